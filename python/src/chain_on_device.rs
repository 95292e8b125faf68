//! Kinematics of arrays that are in GPU memory already. Each method waits for its kernels before it returns its tensors.

use crate::element::Element;
use crate::inverse::Answers;
use crate::kinematics::{Chain, Number, Rows};
use crate::stream::{DeviceStream, failed, refused};
use crate::tensor::Tensor;
use pyo3::prelude::*;
use robocache::device::Dtype;
use robocache::device::gpu::{DeviceBuf, DeviceFault, DeviceSlice};
use robocache::kinematics::{Frame, Solver};
use robocache::ops::kinematics::gpu::{DeviceAnswers, DeviceStarts, GpuModel, GpuSolver};

/// Device memory of a result tensor, which a kernel has yet to write.
struct Result {
    memory: DeviceBuf,
    element: Element,
    shape: Vec<usize>,
}

impl Result {
    /// Allocates a result tensor whose shape is the leading dimensions of `rows`, followed by the dimensions `tail`.
    fn new(stream: &DeviceStream, rows: &Rows, tail: &[usize], element: Element) -> PyResult<Self> {
        let shape: Vec<usize> = rows.leading().iter().chain(tail).copied().collect();
        let bytes = shape.iter().fold(element.size(), |bytes, &n| bytes.saturating_mul(n));
        Ok(Self {
            memory: stream.memory(bytes)?,
            element,
            shape,
        })
    }

    fn slice(&self) -> PyResult<DeviceSlice<'_>> {
        let len = self.shape.iter().product();
        let dtype = crate::stream::dtype(self.element);
        self.memory.slice(0, dtype, len).map_err(refused)
    }

    fn tensor(self, stream: &DeviceStream) -> PyResult<Tensor> {
        let shape = self.shape.iter().map(|&n| n as i64).collect();
        stream.tensor(self.memory, self.element, shape)
    }
}

impl Chain {
    /// Computes a tensor with the dimensions `tail` for each row of `q`. `launch` enqueues the kernel without waiting for it.
    /// Its arguments are the slices of `q` and of the result.
    fn of_rows<R: Number>(
        &self,
        stream: &DeviceStream,
        q: &Rows,
        tail: &[usize],
        launch: impl FnOnce(&GpuModel<R>, DeviceSlice<'_>, DeviceSlice<'_>) -> core::result::Result<(), DeviceFault>,
    ) -> PyResult<Tensor> {
        let model = GpuModel::new(R::model(self), &stream.gpu);
        let result = Result::new(stream, q, tail, R::DTYPE.into())?;
        let launched = launch(&model, stream.slice(q.array())?, result.slice()?);
        launched.and(stream.gpu.synchronize()).map_err(failed)?;
        result.tensor(stream)
    }

    pub fn fk_on_device<R: Number>(
        &self,
        py: Python<'_>,
        stream: &DeviceStream,
        q: &Rows,
        links: Option<&[usize]>,
    ) -> PyResult<Tensor> {
        py.detach(|| match links {
            // SAFETY: the memory of all slices outlives the synchronization.
            None => self.of_rows::<R>(stream, q, &[7], |model, q, poses| unsafe { model.poses(q, poses) }),
            Some(links) => {
                let table = GpuModel::new(R::model(self), &stream.gpu)
                    .links(links)
                    .map_err(failed)?;
                self.of_rows::<R>(stream, q, &[links.len(), 7], |model, q, poses| {
                    // SAFETY: the memory of all slices, and the table, outlive the synchronization.
                    unsafe { model.link_poses(q, &table, poses) }
                })
            }
        })
    }

    pub fn jacobian_on_device<R: Number>(
        &self,
        py: Python<'_>,
        stream: &DeviceStream,
        q: &Rows,
        frame: Frame,
    ) -> PyResult<Tensor> {
        py.detach(|| {
            self.of_rows::<R>(stream, q, &[6, self.size()], |model, q, out| {
                // SAFETY: the memory of all slices outlives the synchronization.
                unsafe { model.jacobians(q, frame, out) }
            })
        })
    }

    pub fn velocity_on_device<R: Number>(
        &self,
        py: Python<'_>,
        stream: &DeviceStream,
        q: &Rows,
        dq: &Rows,
        frame: Frame,
    ) -> PyResult<Tensor> {
        py.detach(|| {
            let dq = stream.slice(dq.array())?;
            self.of_rows::<R>(stream, q, &[6], |model, q, out| {
                // SAFETY: the memory of all slices outlives the synchronization.
                unsafe { model.twists(q, dq, frame, out) }
            })
        })
    }

    pub fn manipulability_on_device<R: Number>(
        &self,
        py: Python<'_>,
        stream: &DeviceStream,
        q: &Rows,
    ) -> PyResult<Tensor> {
        py.detach(|| {
            self.of_rows::<R>(stream, q, &[], |model, q, out| {
                // SAFETY: the memory of all slices outlives the synchronization.
                unsafe { model.manipulabilities(q, out) }
            })
        })
    }

    /// Solves inverse kinematics for each pose, on the GPU of `stream`.
    pub fn ik_on_device<R: Number>(
        &self,
        py: Python<'_>,
        stream: &DeviceStream,
        poses: &Rows,
        seeds: Option<&Rows>,
        solver: &Solver<R>,
    ) -> PyResult<Answers> {
        py.detach(|| {
            let mut on_device = GpuSolver::new(solver, &stream.gpu).map_err(failed)?;
            let answers = JointResults::new::<R>(stream, poses, self.size())?;
            let targets = stream.slice(poses.array())?;
            // SAFETY: the memory of all slices, and the solver, outlive the synchronization.
            let launched = unsafe { on_device.solve_batch(targets, starts(stream, seeds)?, &answers.slices()?) };
            launched.and(stream.gpu.synchronize()).map_err(failed)?;
            answers.tensors(stream)
        })
    }

    /// Solves inverse kinematics along trajectories of `length` poses, on the GPU of `stream`. Returns the solutions, and
    /// `branch`, the number of each pose's branch.
    pub fn ik_path_on_device<R: Number>(
        &self,
        py: Python<'_>,
        stream: &DeviceStream,
        poses: &Rows,
        seeds: Option<&Rows>,
        solver: &Solver<R>,
        length: usize,
    ) -> PyResult<(Answers, Tensor)> {
        py.detach(|| {
            let on_device = GpuSolver::new(solver, &stream.gpu).map_err(failed)?;
            let answers = JointResults::new::<R>(stream, poses, self.size())?;
            let branches = Result::new(stream, poses, &[], Dtype::Int64.into())?;
            if poses.count() > 0 {
                let (targets, starts) = (stream.slice(poses.array())?, starts(stream, seeds)?);
                let (slices, branches) = (answers.slices()?, branches.slice()?);
                // SAFETY: the memory of all slices, and the solver, outlive the synchronization.
                let launched = unsafe { on_device.solve_trajectories(targets, length, starts, &slices, branches) };
                launched.and(stream.gpu.synchronize()).map_err(failed)?;
            }
            Ok((answers.tensors(stream)?, branches.tensor(stream)?))
        })
    }
}

fn starts<'a>(stream: &DeviceStream, seeds: Option<&'a Rows>) -> PyResult<DeviceStarts<'a>> {
    Ok(match seeds {
        None => DeviceStarts::Middle,
        Some(seeds) if seeds.leading().is_empty() => DeviceStarts::One(stream.slice(seeds.array())?),
        Some(seeds) => DeviceStarts::Each(stream.slice(seeds.array())?),
    })
}

/// Device memory for the results of inverse kinematics, before they become the tensors of `Answers`.
struct JointResults {
    joints: Result,
    valid: Result,
    position_error_m: Result,
    rotation_error_rad: Result,
    seed: Result,
    iterations: Result,
}

impl JointResults {
    fn new<R: Number>(stream: &DeviceStream, poses: &Rows, joints: usize) -> PyResult<Self> {
        let new = |tail: &[usize], element| Result::new(stream, poses, tail, element);
        let (number, count) = (Element::Number(R::DTYPE), Element::Number(Dtype::Int64));
        Ok(Self {
            joints: new(&[joints], number)?,
            valid: new(&[], Element::Bool)?,
            position_error_m: new(&[], number)?,
            rotation_error_rad: new(&[], number)?,
            seed: new(&[], count)?,
            iterations: new(&[], count)?,
        })
    }

    fn slices(&self) -> PyResult<DeviceAnswers<'_>> {
        Ok(DeviceAnswers {
            joints: self.joints.slice()?,
            valid: self.valid.slice()?,
            position_error_m: self.position_error_m.slice()?,
            rotation_error_rad: self.rotation_error_rad.slice()?,
            seed: self.seed.slice()?,
            iterations: self.iterations.slice()?,
        })
    }

    fn tensors(self, stream: &DeviceStream) -> PyResult<Answers> {
        Ok((
            self.joints.tensor(stream)?,
            self.valid.tensor(stream)?,
            self.position_error_m.tensor(stream)?,
            self.rotation_error_rad.tensor(stream)?,
            self.seed.tensor(stream)?,
            self.iterations.tensor(stream)?,
        ))
    }
}

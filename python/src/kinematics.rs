//! Kinematic chains for arrays in Python: poses, Jacobians, velocities and manipulability. Results have the type of the
//! argument, float32 or float64, and are in the same memory. No array is copied between host and device.

use crate::array::Array;
use crate::arrays::Arrays;
use crate::element::Place;
use crate::tensor::Tensor;
use crate::threads;
use pyo3::exceptions::{PyMemoryError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use robocache::device::gpu::Kind;
use robocache::device::{Dtype, Primitive};
use robocache::geometry::vector::norm;
use robocache::geometry::{Real, RigidTransform};
use robocache::kinematics::{self, ChainConfig, ChainError, Frame, Model, UNIT_NORMS};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

/// A kinematic chain of a robot, with two models: one computes in float32, one in float64.
#[pyclass(frozen, module = "robocache._native")]
pub struct Chain {
    pub chain: kinematics::Chain,
    single: Model<f32>,
    double: Model<f64>,
}

/// A type in which a chain can be computed: float32 or float64.
pub trait Number: Real + Primitive {
    /// Returns the model of `chain` that computes in this type.
    fn model(chain: &Chain) -> &Model<Self>;
}

impl Number for f32 {
    fn model(chain: &Chain) -> &Model<Self> {
        &chain.single
    }
}

impl Number for f64 {
    fn model(chain: &Chain) -> &Model<Self> {
        &chain.double
    }
}

/// Calls a method that is generic over a [`Number`], with the type of the elements of `$rows`.
macro_rules! with_type {
    ($rows:expr, $this:ident.$function:ident($($argument:expr),*)) => {
        match $rows.dtype {
            Dtype::Float64 => $this.$function::<f64>($($argument),*),
            _ => $this.$function::<f32>($($argument),*),
        }
    };
}
pub(crate) use with_type;

/// An array argument whose last axis is a row of float32 or float64 values, `[..., width]`, such as joints or a pose.
pub struct Rows {
    array: Array,
    pub dtype: Dtype,
}

impl Rows {
    /// Imports the argument `name`, whose last axis must have the length `width`. `meaning` describes a row in errors.
    pub fn take(arrays: &Arrays, name: &str, object: &Bound<'_, PyAny>, width: usize, meaning: &str) -> PyResult<Self> {
        let rows = Self::take_any(arrays, name, object)?;
        if rows.shape().last() != Some(&width) {
            return Err(PyValueError::new_err(format!(
                "`{name}` has shape {:?} (allowed: [..., {width}], {meaning})",
                rows.shape()
            )));
        }
        Ok(rows)
    }

    /// Imports the argument `name`, float32 or float64, with a last axis of any length.
    pub fn take_any(arrays: &Arrays, name: &str, object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let array = arrays.take(&name, object)?;
        let dtype = array.expect_dtype(&name, &[Dtype::Float32, Dtype::Float64])?;
        if let place @ Place::Gpu(Kind::Hip, _) = array.place() {
            return Err(PyValueError::new_err(format!(
                "`{name}` is on {place}, where kinematics does not compute yet (allowed: the host, CUDA)"
            )));
        }
        Ok(Self { array, dtype })
    }

    /// Refuses an argument that is in GPU memory, rather than copy it silently. `problem` is the end of the error text.
    pub fn expect_on_host(&self, name: &str, problem: &str) -> PyResult<()> {
        match self.array.place() {
            Place::Host => Ok(()),
            place => Err(PyValueError::new_err(format!(
                "`{name}` is on {place}, where {problem} (allowed: an array on the host, such as \
                 `{name}.cpu()` of PyTorch, `{name}.get()` of CuPy)"
            ))),
        }
    }

    /// Refuses an argument that is in other memory than the argument `first`, for example on another GPU.
    pub fn expect_place_of(&self, name: &str, first_name: &str, first: &Self) -> PyResult<()> {
        let (place, first) = (self.array.place(), first.array.place());
        if place == first {
            return Ok(());
        }
        Err(PyValueError::new_err(format!(
            "`{name}` is on {place}, `{first_name}` on {first} (allowed: all on one device)"
        )))
    }

    /// Refuses an argument that has several rows, but not one for each index of the dimensions `leading`. Errors contain
    /// `things`, a word for what the rows belong to, such as poses.
    pub fn expect_for_each(&self, name: &str, things: &str, leading: &[usize]) -> PyResult<()> {
        if self.leading().is_empty() || self.leading() == leading {
            return Ok(());
        }
        let (shape, width) = (self.shape(), self.width());
        let allowed = match leading {
            [] => format!("[{width}]"),
            _ => format!(
                "[{width}] for all {things}, {:?} for each",
                [leading, &[width]].concat()
            ),
        };
        Err(PyValueError::new_err(format!(
            "`{name}` has shape {shape:?} (allowed: {allowed})"
        )))
    }

    /// The array that holds the rows.
    pub fn array(&self) -> &Array {
        &self.array
    }

    /// True if the rows are in the memory of a GPU.
    pub fn is_on_device(&self) -> bool {
        self.array.place() != Place::Host
    }

    /// Dimensions of the array: the leading dimensions, and then the width of a row.
    pub fn shape(&self) -> &[usize] {
        self.array.shape()
    }

    /// Number of values in a row: the length of the last axis.
    pub fn width(&self) -> usize {
        self.shape().last().copied().unwrap_or(0)
    }

    /// Dimensions of the array without its last axis; empty if there is a single row.
    pub fn leading(&self) -> &[usize] {
        self.shape().split_last().map_or(&[], |(_, leading)| leading)
    }

    /// Number of rows: the product of the leading dimensions.
    pub fn count(&self) -> usize {
        self.leading().iter().product()
    }

    /// Values of all rows, row-major.
    ///
    /// # Panics
    /// If the values are of another type than `R`, or not on the host.
    pub fn values<R: Number>(&self) -> &[R] {
        self.array.as_slice()
    }

    /// Makes a host tensor of the elements `memory`. Its shape is the leading dimensions of these rows, followed by `tail`.
    pub fn tensor<T: bytemuck::Pod + Send + Sync>(&self, memory: Vec<T>, tail: &[usize]) -> Tensor {
        let shape: Vec<usize> = self.leading().iter().chain(tail).copied().collect();
        Tensor::of_vec(memory, self.dtype, &shape)
    }

    /// Refuses an argument whose elements have another type than the argument `first`.
    pub fn expect_type_of(&self, name: &str, first_name: &str, first: &Self) -> PyResult<()> {
        if self.dtype == first.dtype {
            return Ok(());
        }
        Err(PyTypeError::new_err(format!(
            "`{name}` is {}, `{first_name}` {} (allowed: the same type)",
            self.dtype, first.dtype
        )))
    }
}

/// Allocates `rows * of_row` copies of `value`; `MemoryError` if there is not enough memory.
pub fn filled<T: Clone>(value: T, rows: usize, of_row: usize) -> PyResult<Vec<T>> {
    let len = rows.saturating_mul(of_row);
    let mut values = Vec::new();
    values.try_reserve_exact(len).map_err(|_| {
        PyMemoryError::new_err(format!(
            "no memory for the results of {rows} rows, {} bytes",
            len.saturating_mul(size_of::<T>())
        ))
    })?;
    values.resize(len, value);
    Ok(values)
}

/// Reads the text of a URDF file. Raises `OSError` if the file can't be read, and `ValueError` if it is not text.
#[pyfunction]
pub fn read_urdf(path: PathBuf) -> PyResult<String> {
    kinematics::Chain::read_text(&path).map_err(refusal)
}

/// Makes the exception for a URDF that can't be read (`OSError`) or that gives no chain (`ValueError`).
fn refusal(error: ChainError) -> PyErr {
    match &error {
        ChainError::Io { source, .. } if source.kind() != io::ErrorKind::InvalidData => {
            io::Error::new(source.kind(), error.to_string()).into()
        }
        _ => PyValueError::new_err(error.to_string()),
    }
}

fn frame_of(frame: &str) -> PyResult<Frame> {
    match frame {
        "base" => Ok(Frame::Base),
        "tool" => Ok(Frame::Tool),
        "spatial" => Ok(Frame::Spatial),
        _ => Err(PyValueError::new_err(format!(
            "`frame` is {frame:?} (allowed: base, tool, spatial)"
        ))),
    }
}

#[pymethods]
impl Chain {
    #[new]
    #[pyo3(signature = (text, file, base, tip, joints, tool, limits))]
    fn new(
        text: &str,
        file: &str,
        base: String,
        tip: String,
        joints: Option<Vec<String>>,
        tool: Option<[f64; 7]>,
        limits: BTreeMap<String, [f64; 2]>,
    ) -> PyResult<Self> {
        let tool = tool.map(tool_of).transpose()?;
        let config = ChainConfig {
            base,
            tip,
            joints,
            limits,
            tool,
        };
        let chain = kinematics::Chain::new(text, file, &config).map_err(refusal)?;
        Ok(Self {
            single: Model::new(&chain),
            double: Model::new(&chain),
            chain,
        })
    }

    /// Names of the joints, in the order of a row of values.
    #[getter]
    fn joint_names(&self) -> Vec<&str> {
        self.chain.joints().iter().map(|joint| joint.name.as_str()).collect()
    }

    /// Lower and upper limit of each joint, rad or m, float64 `[n, 2]`.
    #[getter]
    fn limits(&self) -> Tensor {
        let limits: Vec<[f64; 2]> = self.chain.joints().iter().map(|joint| joint.limits).collect();
        let shape = [limits.len(), 2];
        Tensor::of_vec(limits, Dtype::Float64, &shape)
    }

    /// Names of the links, in order from the base to the tip.
    #[getter]
    fn link_names(&self) -> Vec<&str> {
        self.chain.links().collect()
    }

    /// Warnings about peculiarities of the URDF, one line each; empty if there are none.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.chain.warnings().to_vec()
    }

    /// Poses x y z qx qy qz qw of the tip, or of its tool, in the frame of the base: `[..., 7]`. With `links`, poses of these
    /// links, `[..., L, 7]`.
    #[pyo3(signature = (q, links=None))]
    fn fk(&self, py: Python<'_>, q: &Bound<'_, PyAny>, links: Option<Vec<String>>) -> PyResult<Tensor> {
        let arrays = Arrays::new(None);
        let q = self.take_row_per_joint(&arrays, "q", q)?;
        let links = links.map(|links| self.indices(&links)).transpose()?;
        if q.is_on_device() {
            let stream = arrays.into_stream()?;
            return with_type!(q, self.fk_on_device(py, &stream, &q, links.as_deref()));
        }
        with_type!(q, self.fk_of(py, &q, links.as_deref()))
    }

    /// Jacobians of the tip, `[..., 6, n]`: three linear rows, then three angular rows.
    fn jacobian(&self, py: Python<'_>, q: &Bound<'_, PyAny>, frame: &str) -> PyResult<Tensor> {
        let (frame, arrays) = (frame_of(frame)?, Arrays::new(None));
        let q = self.take_row_per_joint(&arrays, "q", q)?;
        if q.is_on_device() {
            let stream = arrays.into_stream()?;
            return with_type!(q, self.jacobian_on_device(py, &stream, &q, frame));
        }
        with_type!(q, self.jacobian_of(py, &q, frame))
    }

    /// Velocities of the tip for joint velocities `dq`, `[..., 6]`: linear (m/s), then angular (rad/s).
    fn velocity(&self, py: Python<'_>, q: &Bound<'_, PyAny>, dq: &Bound<'_, PyAny>, frame: &str) -> PyResult<Tensor> {
        let (frame, arrays) = (frame_of(frame)?, Arrays::new(None));
        let q = self.take_row_per_joint(&arrays, "q", q)?;
        let dq = self.take_row_per_joint(&arrays, "dq", dq)?;
        dq.expect_type_of("dq", "q", &q)?;
        dq.expect_place_of("dq", "q", &q)?;
        if dq.leading() != q.leading() {
            return Err(PyValueError::new_err(format!(
                "`dq` has shape {:?} (allowed: {:?}, the shape of `q`)",
                dq.shape(),
                q.shape()
            )));
        }
        if q.is_on_device() {
            let stream = arrays.into_stream()?;
            return with_type!(q, self.velocity_on_device(py, &stream, &q, &dq, frame));
        }
        with_type!(q, self.velocity_of(py, &q, &dq, frame))
    }

    /// Yoshikawa's manipulability at the joints `q`, `[...]`; 0 at a singularity.
    fn manipulability(&self, py: Python<'_>, q: &Bound<'_, PyAny>) -> PyResult<Tensor> {
        let arrays = Arrays::new(None);
        let q = self.take_row_per_joint(&arrays, "q", q)?;
        if q.is_on_device() {
            let stream = arrays.into_stream()?;
            return with_type!(q, self.manipulability_on_device(py, &stream, &q));
        }
        with_type!(q, self.manipulability_of(py, &q))
    }
}

impl Chain {
    /// Number of joints in the chain.
    pub fn size(&self) -> usize {
        self.chain.joints().len()
    }

    /// Imports the argument `name`, whose rows must have a value for each joint of the chain.
    pub fn take_row_per_joint(&self, arrays: &Arrays, name: &str, object: &Bound<'_, PyAny>) -> PyResult<Rows> {
        let names = self.joint_names().join(", ");
        Rows::take(
            arrays,
            name,
            object,
            self.size(),
            &format!("a value for each of {names}"),
        )
    }

    fn indices(&self, names: &[String]) -> PyResult<Vec<usize>> {
        let index = |name: &String| {
            let found = self.chain.links().position(|link| link == name);
            found.ok_or_else(|| {
                let allowed = self.link_names().join(", ");
                PyValueError::new_err(format!("`links` has {name:?} (allowed: {allowed})"))
            })
        };
        if names.is_empty() {
            return Err(PyValueError::new_err(
                "`links` is empty (allowed: one name or more, or None)",
            ));
        }
        names.iter().map(index).collect()
    }

    fn fk_of<R: Number>(&self, py: Python<'_>, q: &Rows, links: Option<&[usize]>) -> PyResult<Tensor> {
        let (model, values) = (R::model(self), q.values::<R>());
        let mut poses = filled([R::default(); 7], q.count(), links.map_or(1, <[usize]>::len))?;
        py.detach(|| {
            threads::share(|| match links {
                Some(links) => model.link_poses(values, links, &mut poses),
                None => model.poses(values, &mut poses),
            })
        })?;
        Ok(match links {
            Some(links) => q.tensor(poses, &[links.len(), 7]),
            None => q.tensor(poses, &[7]),
        })
    }

    fn jacobian_of<R: Number>(&self, py: Python<'_>, q: &Rows, frame: Frame) -> PyResult<Tensor> {
        let (model, values) = (R::model(self), q.values::<R>());
        let mut jacobians = filled(R::default(), values.len(), 6)?;
        let mut poses = filled([R::default(); 7], q.count(), 1)?;
        py.detach(|| threads::share(|| model.jacobians(values, frame, &mut jacobians, &mut poses)))?;
        Ok(q.tensor(jacobians, &[6, self.size()]))
    }

    fn velocity_of<R: Number>(&self, py: Python<'_>, q: &Rows, dq: &Rows, frame: Frame) -> PyResult<Tensor> {
        let (model, values, velocities) = (R::model(self), q.values::<R>(), dq.values::<R>());
        let mut twists = filled([R::default(); 6], q.count(), 1)?;
        py.detach(|| threads::share(|| model.twists(values, velocities, frame, &mut twists)))?;
        Ok(q.tensor(twists, &[6]))
    }

    fn manipulability_of<R: Number>(&self, py: Python<'_>, q: &Rows) -> PyResult<Tensor> {
        let (model, values) = (R::model(self), q.values::<R>());
        let mut manipulabilities = filled(R::default(), q.count(), 1)?;
        py.detach(|| threads::share(|| model.manipulabilities(values, &mut manipulabilities)))?;
        Ok(q.tensor(manipulabilities, &[]))
    }
}

/// Converts the pose of a tool, x y z qx qy qz qw, to a transform. Refuses a quaternion whose norm is off by more than 1 %.
fn tool_of([x, y, z, rotation @ ..]: [f64; 7]) -> PyResult<RigidTransform<f64>> {
    let numbers = [x, y, z].into_iter().chain(rotation);
    if !(numbers.into_iter().all(f64::is_finite) && UNIT_NORMS.contains(&norm(rotation))) {
        return Err(PyValueError::new_err(format!(
            "`tool` is {:?} (allowed: x y z qx qy qz qw, finite, with a quaternion of norm 1, to within 1 %)",
            [[x, y, z].as_slice(), &rotation].concat()
        )));
    }
    Ok(RigidTransform::new(rotation, [x, y, z]))
}

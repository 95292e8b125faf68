//! Arrays on CUDA devices: the engine's entries for tensors that are there already.

use crate::arrays::Array;
use crate::element::{Element, Place};
use crate::resample::Form;
use crate::ring::{Lent, locked};
use crate::tensor::{Memory, Part, Tensor};
use crate::voxelize::{CloudArrays, Made, values_shape};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use robocache::device::Dtype;
use robocache::device::cuda::{Budget, CudaError, DeviceBuf, DeviceSlice, Event, Gpu, SliceError};
use robocache::device::ring::{RingError, Taken};
use robocache::ops::resample::ResampleConfig;
use robocache::ops::resample::cuda::{CudaResampler, DeviceBatch};
use robocache::ops::voxelize::cuda::{DeviceClouds, DeviceField, VoxelizeBatch, VoxelizeError};
use robocache::ops::voxelize::{VoxelLayout, VoxelizeConfig};
use robocache::time::is_stamp_in_range;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// A stream of a device's own, in which a call works.
pub struct Stream {
    gpu: Gpu,
}

/// A device of each ordinal that was used: with it, its context and kernels stay loaded between calls.
static OPENED: Mutex<Option<HashMap<usize, Gpu>>> = Mutex::new(None);

impl Memory for DeviceBuf {}
/// The grids of a batch are in its memory.
impl Memory for Mutex<VoxelizeBatch> {}

impl Stream {
    /// A stream of the device of that ordinal, which waits for what is in the stream `after` so far.
    pub fn open(ordinal: usize, after: Option<isize>) -> PyResult<Self> {
        let gpu = Gpu::open(ordinal).map_err(failed)?;
        let mut opened = locked(&OPENED);
        opened
            .get_or_insert_default()
            .entry(ordinal)
            .or_insert_with(|| gpu.clone());
        if let Some(handle) = after.filter(|&handle| handle > 0) {
            // SAFETY: that a stream of the device is there is the caller's duty, as with any library that takes a handle.
            unsafe { gpu.wait_for_stream(handle as u64) }.map_err(failed)?;
        }
        Ok(Self { gpu })
    }

    /// The ordinal of its device.
    pub fn ordinal(&self) -> usize {
        self.gpu.ordinal()
    }

    /// Its number by DLPack, for the library that is to let it wait.
    pub fn handle(&self) -> isize {
        self.gpu.stream_handle() as isize
    }

    /// Copies an array of the device to the host.
    pub fn fetch(&self, array: &Array, to: &mut [u8]) -> PyResult<()> {
        let slice = self.slice(array)?;
        // SAFETY: the array holds its elements, and its library has let this stream wait for them.
        unsafe { self.gpu.fetch(slice, to) }.map_err(failed)
    }

    /// A tensor on the device with these elements.
    pub fn upload(&self, bytes: &[u8], element: Element, shape: Vec<i64>) -> PyResult<Tensor> {
        let memory = self.memory(bytes.len())?;
        // SAFETY: the stream is synchronized before the elements are given up.
        unsafe { memory.upload(0, bytes) }.map_err(failed)?;
        self.gpu.synchronize().map_err(failed)?;
        self.tensor(memory, element, shape)
    }

    /// Writes bytes to memory of the device, to each of these addresses.
    ///
    /// # Safety
    /// The memory is there, and nothing uses it meanwhile.
    pub unsafe fn put(&self, pieces: &[(u64, &[u8])]) -> PyResult<()> {
        for &(address, bytes) in pieces {
            // SAFETY: the caller's promise.
            let to = unsafe { DeviceSlice::from_raw(address, Dtype::UInt8, bytes.len(), self.ordinal()) };
            // SAFETY: the same.
            unsafe { self.gpu.put(to.map_err(refused)?, bytes) }.map_err(failed)?;
        }
        Ok(())
    }

    fn memory(&self, bytes: usize) -> PyResult<DeviceBuf> {
        let mut memory = DeviceBuf::new(&self.gpu, &Budget::new(None));
        memory.reserve(bytes).map_err(failed)?;
        Ok(memory)
    }

    fn slice(&self, array: &Array) -> PyResult<DeviceSlice> {
        let (dtype, ordinal) = (dtype(array.element()), self.ordinal());
        // SAFETY: the array holds its elements while it is borrowed, and no slice outlives the call.
        unsafe { DeviceSlice::from_raw(array.address(), dtype, array.len(), ordinal) }.map_err(refused)
    }

    fn tensor(&self, memory: DeviceBuf, element: Element, shape: Vec<i64>) -> PyResult<Tensor> {
        let address = memory.slice(0, Dtype::UInt8, 0).map_err(refused)?.address();
        Ok(self.tensor_of(address, element, shape, Arc::new(memory)))
    }

    fn tensor_of(&self, address: u64, element: Element, shape: Vec<i64>, owner: Arc<dyn Memory>) -> Tensor {
        let part = Part {
            address,
            shape,
            element,
            place: Place::Cuda(self.ordinal()),
            is_read_only: false,
        };
        // SAFETY: the owner has the elements, and the stream that wrote them was synchronized.
        unsafe { Tensor::new(part, owner) }
    }

    /// Resamples a batch where it is.
    pub fn resample(
        &self,
        config: &ResampleConfig,
        form: &Form,
        times: &Array,
        values: &Array,
        targets: &Array,
    ) -> PyResult<(Tensor, Tensor)> {
        let resampler = CudaResampler::new(config, &self.gpu, None)
            .map_err(|error| PyValueError::new_err(format!("config: resample: {error}")))?;
        self.check_times(form, times)?;
        let rows = form.rows.unwrap_or(1);
        let mut spread = self.memory(0)?;
        let targets_ns = match form.is_shared && rows > 1 {
            false => self.slice(targets)?,
            true => {
                let mut host = vec![0i64; targets.len()];
                self.fetch(targets, bytemuck::cast_slice_mut(&mut host))?;
                let host = form.spread(&host);
                let bytes: &[u8] = bytemuck::cast_slice(&host);
                spread = self.memory(bytes.len())?;
                // SAFETY: the stream is synchronized before `host` is given up: `finish`, or here.
                unsafe { spread.upload(0, bytes) }.map_err(failed)?;
                self.gpu.synchronize().map_err(failed)?;
                spread.slice(0, Dtype::Int64, host.len()).map_err(refused)?
            }
        };
        let (count, dim) = (rows * form.targets, form.dim.unwrap_or(1));
        let out = self.memory(count * dim * form.dtype.size())?;
        let valid = self.memory(count)?;
        let batch = DeviceBatch {
            rows,
            samples: form.samples,
            targets: form.targets,
            dim,
            times: self.slice(times)?,
            values: self.slice(values)?,
            targets_ns,
            out: out.slice(0, form.dtype, count * dim).map_err(refused)?,
            valid: valid.slice(0, Dtype::UInt8, count).map_err(refused)?,
        };
        // SAFETY: all of the memory outlives the synchronization, and the times ascend.
        let launched = unsafe { resampler.launch(&batch) };
        launched.and(self.gpu.synchronize()).map_err(failed)?;
        drop(spread);
        let shape = |shape: Vec<usize>| shape.into_iter().map(|n| n as i64).collect();
        Ok((
            self.tensor(out, form.dtype.into(), shape(form.values_shape()))?,
            self.tensor(valid, Element::Bool, shape(form.valid_shape()))?,
        ))
    }

    /// The kernels rely on times that ascend. They are looked at on the host.
    fn check_times(&self, form: &Form, times: &Array) -> PyResult<()> {
        let mut host = vec![0i64; times.len()];
        self.fetch(times, bytemuck::cast_slice_mut(&mut host))?;
        for (row, times) in host.chunks_exact(form.samples.max(1)).enumerate() {
            if let Some(at) = times.windows(2).position(|pair| pair[0] > pair[1]) {
                let (before, came) = (times[at], times[at + 1]);
                return Err(PyValueError::new_err(format!(
                    "`times_ns`: row {row}: timestamp {} is {came}, after {before} (allowed: ascending timestamps, ties too)",
                    at + 1
                )));
            }
            let mut ends = [times.first(), times.last()].into_iter().flatten();
            if let Some(time) = ends.find(|time| !is_stamp_in_range(**time)) {
                return Err(PyValueError::new_err(format!(
                    "`times_ns`: row {row}: timestamp {time} ns is out of range (allowed: +-2^61)"
                )));
            }
        }
        Ok(())
    }

    /// Makes the grid of a cloud `[N, C]` where it is.
    pub fn voxelize(&self, config: &VoxelizeConfig, cloud: &CloudArrays) -> PyResult<Made> {
        let array = &cloud.arrays[0];
        let (slice, dtype) = (self.slice(array)?, dtype(array.element()));
        // Clouds are read from memory of the engine's own: a copy within the device.
        let points = self.memory(slice.bytes())?;
        // SAFETY: the array holds its elements until the stream is synchronized.
        unsafe { points.copy_from_slice(0, slice) }.map_err(failed)?;
        let stride = cloud.fields.len() * dtype.size();
        let field = |(i, name)| DeviceField {
            name,
            dtype,
            at: i * dtype.size(),
            stride,
        };
        let fields: Vec<DeviceField<'_>> = cloud.fields.iter().map(String::as_str).enumerate().map(field).collect();
        let made = self.grid_of(config, &points, cloud.points, &fields);
        // The copy may still be on its way where something failed.
        let done = self.gpu.synchronize().map_err(failed);
        made.and_then(|made| done.map(|()| made))
    }

    fn grid_of(
        &self,
        config: &VoxelizeConfig,
        points: &DeviceBuf,
        count: usize,
        fields: &[DeviceField<'_>],
    ) -> PyResult<Made> {
        let words = |error: VoxelizeError| match error {
            VoxelizeError::Cuda(error) => failed(error),
            error => PyValueError::new_err(format!("`points`: {error}")),
        };
        let clouds = DeviceClouds::new(points, 1, count, fields)
            .map_err(|error| PyValueError::new_err(format!("`points`: {error}")))?;
        let mut batch = VoxelizeBatch::new(config, &self.gpu, None).map_err(words)?;
        let grids = batch.run_device(&clouds).map_err(words)?;
        let (counters, saturated, unusable) = (grids.counters(0), grids.saturated(0), grids.unusable(0).to_vec());
        let rows = match config.layout {
            VoxelLayout::Coo => grids.first_row(1),
            _ => 0,
        };
        let at = |memory: &DeviceBuf, offset: usize| {
            let slice = memory.slice(offset, Dtype::UInt8, 0).map_err(refused)?;
            Ok::<_, PyErr>(slice.address())
        };
        let shape = |shape: Vec<usize>| shape.into_iter().map(|n| n as i64).collect::<Vec<i64>>();
        let parts = match config.layout {
            VoxelLayout::Coo => vec![
                (at(grids.coords(), 0)?, Dtype::Int32, shape(vec![rows, 3])),
                (
                    at(grids.features(), 0)?,
                    Dtype::Float32,
                    shape(vec![rows, config.channels.len()]),
                ),
            ],
            VoxelLayout::Dense => vec![(at(grids.dense(), 0)?, config.dtype, shape(values_shape(config)))],
            VoxelLayout::Bits => {
                let (memory, offset) = grids.bitmap(0);
                vec![(at(memory, offset)?, Dtype::UInt8, shape(values_shape(config)))]
            }
        };
        let names = names_of_fields(config);
        let owner: Arc<dyn Memory> = Arc::new(Mutex::new(batch));
        let tensors = parts.into_iter();
        let tensors =
            tensors.map(|(address, dtype, shape)| self.tensor_of(address, dtype.into(), shape, owner.clone()));
        Ok(Made {
            tensors: tensors.collect(),
            counters,
            saturated,
            unusable: names.into_iter().zip(unusable).collect(),
        })
    }
}

/// The fields beside x, y and z that channels are computed from, in the order in which they first name them.
fn names_of_fields(config: &VoxelizeConfig) -> Vec<String> {
    let mut names = Vec::new();
    for channel in &config.channels {
        let channel = channel.to_string();
        if let Some((_, field)) = channel.split_once('_')
            && !["x", "y", "z"].contains(&field)
            && names.iter().all(|name| name != field)
        {
            names.push(field.to_owned());
        }
    }
    names
}

/// What other libraries use on a device, and what becomes of it when the last one has let go: it is given up once the work
/// that they enqueued until then is done.
struct InUse {
    thing: Option<Thing>,
    gpu: Gpu,
    /// Whether it was handed out to the legacy default stream, to that of a thread, and to any other one.
    streams: Mutex<[bool; 3]>,
}

enum Thing {
    /// A payload in its slot.
    Taken(#[expect(dead_code, reason = "it is held until it is dropped")] Arc<Taken>),
    /// A copy of one, in memory that is used again.
    Copy(DeviceBuf),
}

/// What waits for the work of other libraries.
static WAITING: Mutex<Vec<(Thing, Vec<Event>)>> = Mutex::new(Vec::new());
/// Memory for copies.
static FREE: Mutex<Vec<DeviceBuf>> = Mutex::new(Vec::new());
/// How much of it is kept.
const MAX_FREE: usize = 8;

impl Memory for InUse {
    fn handed_out(&self, stream: Option<isize>) {
        let kind = match stream {
            None | Some(1) => 0,
            Some(2) => 1,
            Some(_) => 2,
        };
        locked(&self.streams)[kind] = true;
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let Some(thing) = self.thing.take() else { return };
        let [legacy, of_thread, other] = *locked(&self.streams);
        if other {
            // A stream may be gone before its arrays are, and an event in one that is gone may hang: all work is waited for.
            let _ = self.gpu.synchronize_all();
            return thing.give_up();
        }
        let default_streams = [(legacy, false), (of_thread, true)]
            .into_iter()
            .filter(|(was_used, _)| *was_used);
        let events = default_streams.map(|(_, of_thread)| {
            let event = self.gpu.event()?;
            event.record_in_default(of_thread)?;
            Ok(event)
        });
        match events.collect::<Result<Vec<Event>, CudaError>>() {
            Ok(events) if !events.is_empty() => locked(&WAITING).push((thing, events)),
            // A device that fails does no more work.
            _ => thing.give_up(),
        }
    }
}

impl Thing {
    fn give_up(self) {
        if let Self::Copy(memory) = self {
            let mut free = locked(&FREE);
            if free.len() == MAX_FREE {
                // The smallest is the least worth keeping.
                free.sort_by_key(|memory| std::cmp::Reverse(memory.capacity()));
                free.pop();
            }
            free.push(memory);
        }
    }
}

/// Gives up what no work waits for any more.
fn sweep() {
    let mut waiting = locked(&WAITING);
    let mut i = 0;
    while i < waiting.len() {
        let is_done = |event: &Event| event.is_reached().unwrap_or(true);
        match waiting[i].1.iter().all(is_done) {
            true => waiting.swap_remove(i).0.give_up(),
            false => i += 1,
        }
    }
}

/// Makes a payload of a ring on a device memory for other libraries: a copy of it, or the slot itself.
pub fn lend(taken: &Arc<Taken>, copy: bool) -> Result<Lent, RingError> {
    sweep();
    let Some(gpu) = taken.gpu().cloned() else {
        unreachable!("a payload on a device");
    };
    let (address, thing) = if copy {
        let needed = taken.len();
        let mut free = locked(&FREE);
        let fits = |memory: &DeviceBuf| {
            memory.gpu().ordinal() == gpu.ordinal() && (needed..=needed.max(1 << 16) * 2).contains(&memory.capacity())
        };
        let found = free.iter().position(fits).map(|i| free.swap_remove(i));
        drop(free);
        let mut memory = found.unwrap_or_else(|| DeviceBuf::new(&gpu, &Budget::new(None)));
        taken.copy_to_device(&mut memory)?;
        let slice = memory.slice(0, Dtype::UInt8, 0);
        (slice.map_or(0, |slice| slice.address()), Thing::Copy(memory))
    } else {
        (taken.address(), Thing::Taken(taken.clone()))
    };
    Ok(Lent {
        address,
        place: Place::Cuda(gpu.ordinal()),
        owner: Arc::new(InUse {
            thing: Some(thing),
            gpu,
            streams: Mutex::default(),
        }),
    })
}

fn dtype(element: Element) -> Dtype {
    match element {
        Element::Number(dtype) => dtype,
        Element::Bool => Dtype::UInt8,
    }
}

fn failed(error: CudaError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

fn refused(error: SliceError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

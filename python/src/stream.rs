//! GPU streams of calls, and GPU memory that other libraries use by DLPack. Such memory is reused only after all work is done
//! that these libraries may have enqueued on it.

use crate::array::Array;
use crate::element::{Element, Place};
use crate::tensor::{Lent, Memory, Part, Tensor};
use crate::threads::locked;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use robocache::device::gpu::{Budget, DeviceBuf, DeviceFault, DeviceSlice, Event, Gpu, Kind, SliceError};
use robocache::device::ring::{RingError, RingPayload, SlotMemory};
use robocache::device::{Device, Dtype};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// A CUDA or HIP stream that is opened for one call.
pub struct DeviceStream {
    pub gpu: Gpu,
}

/// Devices that were opened, kept so that their contexts and kernels stay loaded between calls.
static OPENED: Mutex<Option<HashMap<(Kind, usize), Gpu>>> = Mutex::new(None);

impl Memory for DeviceBuf {}

impl DeviceStream {
    /// Opens a stream of GPU `ordinal`. The new stream waits for the work that is in the stream `after`, by DLPack's numbering.
    pub fn open(kind: Kind, ordinal: usize, after: Option<isize>) -> PyResult<Self> {
        let gpu = Gpu::open(kind, ordinal).map_err(failed)?;
        let mut opened = locked(&OPENED);
        opened
            .get_or_insert_default()
            .entry((kind, ordinal))
            .or_insert_with(|| gpu.clone());
        if let Some(handle) = after.filter(|&handle| handle >= 0) {
            // SAFETY: the caller must pass the handle of a stream of the device, as to any library that takes one.
            unsafe { gpu.wait_for_stream(handle as u64) }.map_err(failed)?;
        }
        Ok(Self { gpu })
    }

    /// Kind of memory of the stream's GPU.
    pub fn place(&self) -> Place {
        place_of_gpu(&self.gpu)
    }

    /// Handle of the stream, which the library of an array needs to make this stream wait.
    pub fn handle(&self) -> isize {
        self.gpu.stream_handle() as isize
    }

    /// Copies the elements of an array on the device to `to`, and waits for the copy.
    pub fn fetch(&self, array: &Array, to: &mut [u8]) -> PyResult<()> {
        let slice = self.slice(array)?;
        // SAFETY: the array holds its elements, and its library has let this stream wait for them.
        unsafe { self.gpu.fetch(slice, to) }.map_err(failed)
    }

    /// Copies `bytes` of the host to a new tensor on the device, and waits for the copy.
    pub fn upload(&self, bytes: &[u8], element: Element, shape: Vec<i64>) -> PyResult<Tensor> {
        let memory = self.memory(bytes.len())?;
        // SAFETY: the stream is synchronized before `bytes` may be dropped.
        unsafe { memory.upload(0, bytes) }.map_err(failed)?;
        self.gpu.synchronize().map_err(failed)?;
        self.tensor(memory, element, shape)
    }

    /// Copies each of `pieces` to the device: an address there, and the bytes to copy.
    ///
    /// # Safety
    /// The memory at each address must exist, and nothing else may use it meanwhile.
    pub unsafe fn put(&self, pieces: &[(u64, &[u8])]) -> PyResult<()> {
        for &(address, bytes) in pieces {
            // SAFETY: the caller's promise.
            let to = unsafe { DeviceSlice::from_raw(address, Dtype::UInt8, bytes.len(), self.gpu.device()) };
            // SAFETY: the same.
            unsafe { self.gpu.put(to.map_err(refused)?, bytes) }.map_err(failed)?;
        }
        Ok(())
    }

    /// Allocates `bytes` bytes of device memory, without a budget.
    pub fn memory(&self, bytes: usize) -> PyResult<DeviceBuf> {
        let mut memory = DeviceBuf::new(&self.gpu, &Budget::new(None));
        memory.reserve(bytes).map_err(failed)?;
        Ok(memory)
    }

    /// Views the elements of an array on the device, for a kernel.
    pub fn slice<'a>(&self, array: &'a Array) -> PyResult<DeviceSlice<'a>> {
        let (dtype, device) = (dtype(array.element()), self.gpu.device());
        // SAFETY: the array holds its elements while it is borrowed.
        unsafe { DeviceSlice::from_raw(array.address(), dtype, array.len(), device) }.map_err(refused)
    }

    /// Makes a tensor that owns `memory`, whose elements must be ready.
    pub fn tensor(&self, memory: DeviceBuf, element: Element, shape: Vec<i64>) -> PyResult<Tensor> {
        let address = memory.pointer().raw();
        // SAFETY: the memory is its own owner.
        Ok(unsafe { self.tensor_of(address, element, shape, Arc::new(memory)) })
    }

    /// Makes a tensor at `address` on the device, in memory of `owner`. Its elements must be ready.
    ///
    /// # Safety
    /// The same as of [`Tensor::new`].
    pub unsafe fn tensor_of(&self, address: u64, element: Element, shape: Vec<i64>, owner: Arc<dyn Memory>) -> Tensor {
        let part = Part {
            address,
            shape,
            element,
            place: self.place(),
            is_read_only: false,
        };
        // SAFETY: the caller's promise.
        unsafe { Tensor::new(part, owner) }
    }
}

/// Device memory that other libraries use by DLPack. When the last array on it is dropped, the memory is released after the
/// work that was enqueued until then.
struct InUse {
    thing: Option<LentMemory>,
    gpu: Gpu,
    /// Kinds of streams in which the memory was used: the legacy default stream, a thread's default stream, any other stream.
    streams: Mutex<[bool; 3]>,
}

enum LentMemory {
    /// Payload that other libraries use in place, in the slot of its ring.
    RingPayload(#[expect(dead_code, reason = "it is held until it is dropped")] Arc<RingPayload>),
    /// Payload of which other libraries use a copy. The buffer of the copy returns to `FREE`.
    Copy(DeviceBuf),
}

/// Memory that no array uses any more, each with the device events after which it is released.
static WAITING: Mutex<Vec<(LentMemory, Vec<Event>)>> = Mutex::new(Vec::new());
/// Free device buffers, which later copies of payloads reuse.
static FREE: Mutex<Vec<DeviceBuf>> = Mutex::new(Vec::new());
/// Largest number of free device buffers; the smallest buffer is dropped if there are more.
const MAX_FREE: usize = 8;

impl Memory for InUse {
    fn handed_out(&self, stream: Option<isize>) {
        let kind = match stream {
            None | Some(0 | 1) => 0,
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
            // A stream may be destroyed before its arrays, and an event in a destroyed stream may hang. So this waits for all work.
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
        match events.collect::<Result<Vec<Event>, DeviceFault>>() {
            Ok(events) if !events.is_empty() => locked(&WAITING).push((thing, events)),
            // A device that fails does no more work.
            _ => thing.give_up(),
        }
    }
}

impl LentMemory {
    fn give_up(self) {
        if let Self::Copy(memory) = self {
            let mut free = locked(&FREE);
            if free.len() == MAX_FREE {
                // The smallest buffer is dropped.
                free.sort_by_key(|memory| std::cmp::Reverse(memory.capacity()));
                free.pop();
            }
            free.push(memory);
        }
    }
}

/// Releases the memory in `WAITING` whose device events have all been reached.
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

/// Makes a payload in device memory available to other libraries: a copy if `copy` is true, otherwise the memory of its slot.
pub fn lend(taken: &Arc<RingPayload>, copy: bool) -> Result<Lent, RingError> {
    sweep();
    let Some(gpu) = taken.gpu().cloned() else {
        unreachable!("a payload on a device");
    };
    let (address, thing) = if copy {
        let needed = taken.len();
        let mut free = locked(&FREE);
        let fits = |memory: &DeviceBuf| {
            memory.gpu().device() == gpu.device() && (needed..=needed.max(1 << 16) * 2).contains(&memory.capacity())
        };
        let found = free.iter().position(fits).map(|i| free.swap_remove(i));
        drop(free);
        let mut memory = found.unwrap_or_else(|| DeviceBuf::new(&gpu, &Budget::new(None)));
        taken.copy_to_device(&mut memory)?;
        (memory.pointer().raw(), LentMemory::Copy(memory))
    } else {
        (address_of(taken), LentMemory::RingPayload(taken.clone()))
    };
    Ok(Lent {
        address,
        place: place_of_gpu(&gpu),
        owner: Arc::new(InUse {
            thing: Some(thing),
            gpu,
            streams: Mutex::default(),
        }),
    })
}

/// Returns the address of the payload in its slot, valid while `taken` lives.
pub fn address_of(taken: &RingPayload) -> u64 {
    match taken.memory() {
        SlotMemory::Shared(bytes) => bytes.as_ptr() as u64,
        SlotMemory::Device(pointer) => pointer.raw(),
    }
}

/// Returns the kind of memory of a GPU, as a `Place`.
fn place_of_gpu(gpu: &Gpu) -> Place {
    match gpu.device() {
        Device::Cpu => Place::Host,
        Device::Gpu(kind, ordinal) => Place::Gpu(kind, ordinal),
    }
}

/// Converts an element type to the type that kernels use: booleans become uint8.
pub fn dtype(element: Element) -> Dtype {
    match element {
        Element::Number(dtype) => dtype,
        Element::Bool => Dtype::UInt8,
    }
}

/// Makes the `RuntimeError` for a device that failed.
pub fn failed(error: DeviceFault) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

/// Makes the `ValueError` for memory that can't be viewed as a slice.
pub fn refused(error: SliceError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

//! Streams of GPUs, and memory there for other libraries.

use crate::array::Array;
use crate::element::{Element, Place};
use crate::tensor::{Lent, Memory, Part, Tensor};
use crate::threads::locked;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use robocache::device::gpu::{Budget, DeviceBuf, DeviceFault, DeviceSlice, Event, Gpu, Kind, SliceError};
use robocache::device::ring::{RingError, SlotMemory, Taken};
use robocache::device::{Device, Dtype};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// A stream of a device's own, in which a call works.
pub struct DeviceStream {
    pub gpu: Gpu,
}

/// Each device that was used: with it, its context and kernels stay loaded between calls.
static OPENED: Mutex<Option<HashMap<(Kind, usize), Gpu>>> = Mutex::new(None);

impl Memory for DeviceBuf {}

impl DeviceStream {
    /// A stream of a device, which waits for what is in the stream `after` so far.
    pub fn open(kind: Kind, ordinal: usize, after: Option<isize>) -> PyResult<Self> {
        let gpu = Gpu::open(kind, ordinal).map_err(failed)?;
        let mut opened = locked(&OPENED);
        opened
            .get_or_insert_default()
            .entry((kind, ordinal))
            .or_insert_with(|| gpu.clone());
        if let Some(handle) = after.filter(|&handle| handle >= 0) {
            // SAFETY: that a stream of the device is there is the caller's duty, as with any library that takes a handle.
            unsafe { gpu.wait_for_stream(handle as u64) }.map_err(failed)?;
        }
        Ok(Self { gpu })
    }

    /// Its device.
    pub fn place(&self) -> Place {
        place_of_gpu(&self.gpu)
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
            let to = unsafe { DeviceSlice::from_raw(address, Dtype::UInt8, bytes.len(), self.gpu.device()) };
            // SAFETY: the same.
            unsafe { self.gpu.put(to.map_err(refused)?, bytes) }.map_err(failed)?;
        }
        Ok(())
    }

    /// Memory of the device.
    pub fn memory(&self, bytes: usize) -> PyResult<DeviceBuf> {
        let mut memory = DeviceBuf::new(&self.gpu, &Budget::new(None));
        memory.reserve(bytes).map_err(failed)?;
        Ok(memory)
    }

    /// An array of the device.
    pub fn slice<'a>(&self, array: &'a Array) -> PyResult<DeviceSlice<'a>> {
        let (dtype, device) = (dtype(array.element()), self.gpu.device());
        // SAFETY: the array holds its elements while it is borrowed.
        unsafe { DeviceSlice::from_raw(array.address(), dtype, array.len(), device) }.map_err(refused)
    }

    /// A tensor of memory of the device, whose elements are there.
    pub fn tensor(&self, memory: DeviceBuf, element: Element, shape: Vec<i64>) -> PyResult<Tensor> {
        let address = memory.pointer().raw();
        // SAFETY: the memory is its own owner.
        Ok(unsafe { self.tensor_of(address, element, shape, Arc::new(memory)) })
    }

    /// A tensor of memory of `owner` on the device, whose elements are there.
    ///
    /// # Safety
    /// As that of [`Tensor::new`].
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

/// A thing that other libraries use on a device: once the last one has let go, it is given up when the work that they
/// enqueued until then is done.
struct InUse {
    thing: Option<Thing>,
    gpu: Gpu,
    /// True for each kind of stream that it was handed to: the legacy default stream, that of a thread, any other one.
    streams: Mutex<[bool; 3]>,
}

enum Thing {
    /// A payload in its slot.
    Taken(#[expect(dead_code, reason = "it is held until it is dropped")] Arc<Taken>),
    /// A copy of one, in memory that is used again.
    Copy(DeviceBuf),
}

/// Things that wait for the work of other libraries.
static WAITING: Mutex<Vec<(Thing, Vec<Event>)>> = Mutex::new(Vec::new());
/// Memory for copies.
static FREE: Mutex<Vec<DeviceBuf>> = Mutex::new(Vec::new());
/// Number of free ones that are kept.
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
        match events.collect::<Result<Vec<Event>, DeviceFault>>() {
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
            memory.gpu().device() == gpu.device() && (needed..=needed.max(1 << 16) * 2).contains(&memory.capacity())
        };
        let found = free.iter().position(fits).map(|i| free.swap_remove(i));
        drop(free);
        let mut memory = found.unwrap_or_else(|| DeviceBuf::new(&gpu, &Budget::new(None)));
        taken.copy_to_device(&mut memory)?;
        (memory.pointer().raw(), Thing::Copy(memory))
    } else {
        (address_of(taken), Thing::Taken(taken.clone()))
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

/// The address of a payload in its slot, which `taken` holds.
pub fn address_of(taken: &Taken) -> u64 {
    match taken.memory() {
        SlotMemory::Shared(bytes) => bytes.as_ptr() as u64,
        SlotMemory::Device(pointer) => pointer.raw(),
    }
}

/// The memory of a GPU.
fn place_of_gpu(gpu: &Gpu) -> Place {
    match gpu.device() {
        Device::Cpu => Place::Host,
        Device::Gpu(kind, ordinal) => Place::Gpu(kind, ordinal),
    }
}

/// The type of elements, as kernels take them.
pub fn dtype(element: Element) -> Dtype {
    match element {
        Element::Number(dtype) => dtype,
        Element::Bool => Dtype::UInt8,
    }
}

/// A device that fails.
pub fn failed(error: DeviceFault) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

/// Memory that is not as it was said.
pub fn refused(error: SliceError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

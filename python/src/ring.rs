//! Payloads that other processes publish in rings of shared or GPU memory. Reading raises `StaleError` if the producer has
//! overwritten the payload before, and `TornError` if it does so meanwhile. `is_intact` is false if it was overwritten later.

use crate::element::{Element, Place};
use crate::stream::{address_of, lend};
use crate::tensor::{Lent, Memory, Part, Tensor};
use crate::threads::locked;
use pyo3::create_exception;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use robocache::device::ring::{self, Readers, RingPayload, Ticket};
use robocache::device::{Dtype, HostBuf};
use robocache::stream::{self, Cells, SlotColumn};
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

create_exception!(
    robocache,
    RingError,
    PyRuntimeError,
    "A payload can't be taken from a ring."
);
create_exception!(
    robocache,
    StaleError,
    RingError,
    "The payload was overwritten before it was taken."
);
create_exception!(
    robocache,
    TornError,
    RingError,
    "The payload was overwritten while it was read."
);
create_exception!(
    robocache,
    ProducerGone,
    RingError,
    "The process that published the payload is gone."
);

/// State of a process that reads rings: its ring readers, and free buffers.
struct ProcessState {
    pid: u32,
    readers: Mutex<Readers>,
    /// Free host buffers for copies of payloads. Page faults of a newly allocated large buffer take longer than the copy.
    free: Mutex<Vec<HostBuf>>,
}

/// Largest number of free host buffers: two, so that the next copy can be made while the last copy is used.
const MAX_FREE: usize = 2;

/// State of this process, or of the process from which it was forked; null at first. A state is never freed.
static PROCESS_STATE: AtomicPtr<ProcessState> = AtomicPtr::new(std::ptr::null_mut());
/// Number of payloads that this process copied out of rings.
static COPIED: AtomicU64 = AtomicU64::new(0);

impl Memory for RingPayload {}

/// A copy of a payload on the host. When it is dropped, its buffer returns to the free buffers.
struct HostCopy(HostBuf);

impl Memory for HostCopy {}

impl HostCopy {
    fn new(bytes: usize) -> Self {
        let mut memory = locked(&own().free).pop().unwrap_or_default();
        memory.resize(bytes);
        Self(memory)
    }
}

impl Drop for HostCopy {
    fn drop(&mut self) {
        let mut free = locked(&own().free);
        if free.len() < MAX_FREE {
            free.push(std::mem::take(&mut self.0));
        }
    }
}

/// Returns the state of this process, which is created at the first call. A forked process does not use its parent's state: the
/// rings in it have leases of the parent, and a thread of the parent may hold a lock.
fn own() -> &'static ProcessState {
    let pid = std::process::id();
    let mut found = PROCESS_STATE.load(Ordering::Acquire);
    loop {
        // SAFETY: the state is never freed.
        if let Some(own) = unsafe { found.as_ref() }
            && own.pid == pid
        {
            return own;
        }
        let made = Box::into_raw(Box::new(ProcessState {
            pid,
            readers: Mutex::default(),
            free: Mutex::default(),
        }));
        match PROCESS_STATE.compare_exchange(found, made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => found = made,
            Err(other) => {
                // SAFETY: `made` was allocated above, and nobody else has it.
                drop(unsafe { Box::from_raw(made) });
                found = other;
            }
        }
    }
}

/// Locks the readers of this process, with the rings that are open.
fn readers() -> MutexGuard<'static, Readers> {
    locked(&own().readers)
}

/// Payload that was read from a ring, and its columns. The payload is a copy, or the memory of the slot itself.
#[pyclass(frozen, module = "robocache")]
pub struct SlotPayload {
    columns: Vec<Column>,
    lent: Lent,
    /// The lease of the slot that holds the payload; `None` if the payload was copied.
    taken: Option<Arc<RingPayload>>,
    is_copy: bool,
}

/// Column of a payload: `at` is its offset in bytes, `offsets` the byte range of its row offsets, which is empty if all rows
/// have the same length.
struct Column {
    name: String,
    element: Element,
    shape: Vec<i64>,
    at: usize,
    offsets: Range<usize>,
}

impl Column {
    fn new(column: &SlotColumn<'_>, rows: usize) -> Self {
        Self {
            name: column.name.to_owned(),
            element: column.dtype.into(),
            shape: match column.cells {
                Cells::One => vec![rows as i64],
                Cells::Fixed(n) => vec![rows as i64, n as i64],
                Cells::Ragged(total) | Cells::Text(total) => vec![total as i64],
            },
            at: column.data.start,
            offsets: column.offsets.clone(),
        }
    }
}

/// Reads the payload of `generation` from a slot of a ring. Returns a copy, or the memory of the slot if `copy` is false.
#[pyfunction]
#[pyo3(signature = (ring, slot, generation, nbytes, *, copy=true))]
pub fn take(
    py: Python<'_>,
    ring: &str,
    slot: usize,
    generation: u64,
    nbytes: usize,
    copy: bool,
) -> PyResult<SlotPayload> {
    let ticket = Ticket {
        ring: ring.into(),
        slot,
        generation,
        nbytes,
    };
    py.detach(|| SlotPayload::take(&ticket, copy)).map_err(failed)
}

impl SlotPayload {
    fn take(ticket: &Ticket<'_>, copy: bool) -> Result<Self, ring::RingError> {
        let taken = readers().take(ticket)?;
        // Without a lease the producer would overwrite the payload silently while it is used.
        if !copy && !taken.is_held() {
            let ring = taken.ring().to_owned();
            return Err(ring::RingError::NoLease { ring });
        }
        let resident = stream::SlotPayload::of(taken)?;
        let rows = resident.rows();
        let columns = resident.columns().map(|column| Column::new(&column, rows)).collect();
        let taken = Arc::new(resident.taken);
        let lent = match (taken.gpu().is_some(), copy) {
            (true, _) => lend(&taken, copy)?,
            (false, true) => {
                let mut copy = HostCopy::new(taken.len());
                taken.copy_to(0, copy.0.bytes_mut())?;
                Lent {
                    address: copy.0.bytes().as_ptr() as u64,
                    place: Place::Host,
                    owner: Arc::new(copy),
                }
            }
            (false, false) => Lent {
                address: address_of(&taken),
                place: Place::Host,
                owner: taken.clone(),
            },
        };
        COPIED.fetch_add(u64::from(copy), Ordering::Relaxed);
        Ok(Self {
            columns,
            lent,
            taken: (!copy).then_some(taken),
            is_copy: copy,
        })
    }

    fn tensor(&self, at: usize, element: Element, shape: Vec<i64>) -> Tensor {
        let part = Part {
            address: self.lent.address + at as u64,
            shape,
            element,
            place: self.lent.place,
            is_read_only: !self.is_copy,
        };
        // SAFETY: the columns are within the payload, which its owner holds. The producer may overwrite a payload that is still
        // in its slot: `is_intact` is false then.
        unsafe { Tensor::new(part, self.lent.owner.clone()) }
    }
}

#[pymethods]
impl SlotPayload {
    /// Tensors of the columns by name: `[rows]`, `[rows, n]`, or concatenated rows if rows differ in length. A flat array has the
    /// name "".
    #[getter]
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let columns = PyDict::new(py);
        for column in &self.columns {
            columns.set_item(
                &column.name,
                self.tensor(column.at, column.element, column.shape.clone()),
            )?;
        }
        Ok(columns)
    }

    /// Device that holds the payload: `cpu`, `cuda:N` or `hip:N`.
    #[getter]
    fn device(&self) -> String {
        self.lent.place.to_string()
    }

    /// Offsets of a column's rows among the column's elements, int32 `[rows + 1]`; `None` if all rows have the same length or
    /// the column does not exist.
    fn offsets(&self, column: &str) -> Option<Tensor> {
        let column = self.columns.iter().find(|it| it.name == column)?;
        let Range { start, end } = column.offsets;
        (start < end).then(|| self.tensor(start, Dtype::Int32.into(), vec![((end - start) / 4) as i64]))
    }

    /// True if the producer has not overwritten the payload since it was read. Always true for a copy.
    #[getter]
    fn is_intact(&self) -> bool {
        self.taken.as_ref().is_none_or(|taken| taken.is_intact())
    }
}

/// Numbers of payloads that this process read (`taken`), copied (`copied`), and found overwritten before reading (`stale`) or
/// during reading (`torn`).
#[pyfunction]
pub fn ring_counters(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let counters = py.detach(|| readers().counters());
    let dict = PyDict::new(py);
    dict.set_item("taken", counters.taken)?;
    dict.set_item("stale", counters.stale)?;
    dict.set_item("torn", counters.torn)?;
    dict.set_item("copied", COPIED.load(Ordering::Relaxed))?;
    Ok(dict)
}

fn failed(error: ring::RingError) -> PyErr {
    let words = error.to_string();
    match error {
        ring::RingError::Stale { .. } => StaleError::new_err(words),
        ring::RingError::Torn { .. } => TornError::new_err(words),
        ring::RingError::ProducerGone { .. } => ProducerGone::new_err(words),
        _ => RingError::new_err(words),
    }
}

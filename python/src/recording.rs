//! The streams of a recording.

use crate::element::Element;
use crate::tensor::Tensor;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use robocache::device::{Dtype, HostBuf};
use robocache::stream::recording::{ReadError, Reader};
use robocache::stream::{Cells, Message};
use std::io;
use std::sync::{Mutex, PoisonError};

/// A recording can't be read: `OSError` where the system says so, else `ValueError`.
pub fn unreadable(error: ReadError) -> PyErr {
    match &error {
        ReadError::Io { source, .. } => io::Error::new(source.kind(), error.to_string()).into(),
        _ => PyValueError::new_err(error.to_string()),
    }
}

fn open(path: &str, stream: &str) -> PyResult<Reader> {
    let mut reader = Reader::open(path).map_err(unreadable)?;
    if reader.streams().all(|name| name != stream) {
        let names: Vec<&str> = reader.streams().collect();
        return Err(PyValueError::new_err(format!(
            "{path}: stream `{stream}` was not recorded (there are: {})",
            names.join(", ")
        )));
    }
    reader.retain(|name| name == stream);
    Ok(reader)
}

/// The samples of a stream: their stamps, int64 `[S]`, and values `[S, D]`.
#[pyfunction]
pub fn read_samples(py: Python<'_>, path: &str, stream: &str) -> PyResult<(Tensor, Tensor)> {
    let mut reader = open(path, stream)?;
    let words = |problem: String| PyValueError::new_err(format!("{path}: stream `{stream}` {problem}"));
    let (times, values, (dtype, dim)) = py.detach(|| {
        let (mut times, mut values, mut form) = (Vec::new(), Vec::new(), None);
        let mut message = Message::default();
        while reader.next_into(&mut message).map_err(unreadable)?.is_some() {
            let Some(flat) = message.flat() else {
                let problem = "holds structs, such as clouds (allowed: samples; `messages` has the others)";
                return Err(words(problem.to_owned()));
            };
            let rows = message.header.timestamps_ns.len().max(1);
            let came = (flat.dtype(), flat.len() / rows);
            let &mut (dtype, dim) = form.get_or_insert(came);
            if came != (dtype, dim) {
                let (other, width) = came;
                return Err(words(format!(
                    "has samples of {dim} {dtype} and of {width} {other} values (allowed: one form)"
                )));
            }
            for sample in message.samples(dim).map_err(|error| words(error.to_string()))? {
                times.push(sample.stamp_ns);
                values.extend_from_slice(sample.values.bytes());
            }
        }
        Ok((times, values, form.unwrap_or((Dtype::Float32, 0))))
    })?;
    let samples = times.len();
    Ok((
        Tensor::of_vec(times, Dtype::Int64, &[samples]),
        Tensor::of_bytes(&values, dtype, &[samples, dim]),
    ))
}

/// The messages of a stream, one after the other: stamp, columns and metadata.
#[pyclass(frozen, module = "robocache")]
pub struct Messages {
    path: String,
    stream: String,
    reader: Mutex<Reader>,
}

#[pymethods]
impl Messages {
    #[new]
    fn new(path: &str, stream: &str) -> PyResult<Self> {
        Ok(Self {
            path: path.to_owned(),
            stream: stream.to_owned(),
            reader: Mutex::new(open(path, stream)?),
        })
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    /// `(timestamp_ns, shape, fields, columns)`. The only column of a flat array has no name.
    #[allow(clippy::type_complexity, reason = "Python sees a tuple")]
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<(i64, Vec<i64>, Vec<String>, Bound<'py, PyDict>)>> {
        let read = py.detach(|| {
            let mut message = Message::default();
            let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
            reader.next_into(&mut message).map(|stream| stream.map(|_| message))
        });
        let read = read.map_err(unreadable)?;
        let Some(mut message) = read else { return Ok(None) };
        if let Some(skipped) = message.skipped().first() {
            return Err(PyValueError::new_err(format!(
                "{}: stream `{}`: column `{}` is {} ({})",
                self.path,
                self.stream,
                skipped.field.name(),
                skipped.field.data_type(),
                skipped.reason
            )));
        }
        let columns = PyDict::new(py);
        for column in message.columns_mut() {
            let memory = std::mem::take(&mut column.data);
            let (name, len) = (column.name.clone(), memory.len() / column.dtype.size());
            columns.set_item(name, tensor(memory, column.dtype, column.cells, len))?;
        }
        let header = &message.header;
        let fields = header.fields.iter().cloned().collect();
        Ok(Some((
            message.timestamp_ns(),
            header.shape.as_slice().to_vec(),
            fields,
            columns,
        )))
    }
}

fn tensor(mut memory: HostBuf, dtype: Dtype, cells: Cells, len: usize) -> Tensor {
    let shape = match cells {
        Cells::Fixed(n) if n > 0 => vec![len / n, n],
        _ => vec![len],
    };
    memory.resize(len * dtype.size());
    Tensor::of_host(memory, Element::Number(dtype), &shape)
}

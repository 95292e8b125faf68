//! Streams of a recording, read as arrays of samples or message by message. A broken part is never skipped silently. It is an
//! error, or a warning if the caller asks for the readable parts.

use crate::element::Element;
use crate::tensor::Tensor;
use pyo3::exceptions::{PyIndexError, PyUserWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use robocache::device::{Dtype, HostBuf};
use robocache::stream::recording::{self, Indexed, ReadError, Reader};
use robocache::stream::{Cells, Message, MetadataRef, key};
use std::ffi::CString;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Makes the exception for a recording that can't be read: `OSError` if the system failed, otherwise `ValueError`.
pub fn unreadable(error: ReadError) -> PyErr {
    match &error {
        ReadError::Io { source, .. } => io::Error::new(source.kind(), error.to_string()).into(),
        _ => PyValueError::new_err(error.to_string()),
    }
}

/// Opens the stream in the file `path`. A part that can't be read is an error. If `uses_broken` is true, it is a warning, and
/// the part is left out.
pub fn opened(py: Python<'_>, path: &str, uses_broken: bool) -> PyResult<Indexed> {
    let (stream, problems) = py.detach(|| Indexed::open_readable(path)).map_err(unreadable)?;
    let Some(first) = problems.first() else {
        return Ok(stream);
    };
    let more = match problems.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    if !uses_broken {
        return Err(PyValueError::new_err(format!(
            "{first}{more}; `broken=\"use\"` of `Recording` takes what can be read"
        )));
    }
    let words = CString::new(format!("{first}{more}: what can be read is used").replace('\0', " "))?;
    PyErr::warn(py, &py.get_type::<PyUserWarning>(), &words, 3)?;
    Ok(stream)
}

/// Names of the streams in the folder of a recording, sorted; `OSError` if the folder can't be read.
#[pyfunction]
pub fn recorded_streams(py: Python<'_>, path: &str) -> PyResult<Vec<String>> {
    py.detach(|| recording::streams(path)).map_err(unreadable)
}

/// Errors of the parts of a recording that can't be read, one line each; empty if all can be read. Reads every file to its end.
#[pyfunction]
pub fn recording_problems(py: Python<'_>, path: &str) -> PyResult<Vec<String>> {
    py.detach(|| {
        let (mut reader, refused) = Reader::open_readable(path).map_err(unreadable)?;
        let mut problems: Vec<String> = refused.iter().map(ToString::to_string).collect();
        let mut message = Message::default();
        loop {
            match reader.next_into(&mut message) {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(problems),
                Err(error) => problems.push(error.to_string()),
            }
        }
    })
}

/// Reads all samples of the stream in the file `path`. Returns their stamps, ns, int64 `[S]`, and their values, `[S, D]`.
/// Refuses point clouds.
#[pyfunction]
#[pyo3(signature = (path, uses_broken=false))]
pub fn read_samples(py: Python<'_>, path: &str, uses_broken: bool) -> PyResult<(Tensor, Tensor)> {
    let words = |problem: String| PyValueError::new_err(format!("{path}: {problem}"));
    let mut stream = opened(py, path, uses_broken)?;
    let (times, values, dtype, dim) = py.detach(|| {
        let mut times = Vec::with_capacity(stream.samples());
        let (mut values, mut form) = (HostBuf::default(), None);
        let mut message = Message::default();
        for i in 0..stream.timestamps_ns().len() {
            stream.read(i, &mut message).map_err(unreadable)?;
            let Some(flat) = message.flat() else {
                let problem = "structs, such as clouds (allowed: samples; `messages` has the others)";
                return Err(words(problem.to_owned()));
            };
            let rows = message.stamps().len();
            let came = (flat.dtype(), flat.len() / rows);
            let &mut (dtype, dim) = form.get_or_insert_with(|| {
                values.resize(stream.samples() * came.1 * came.0.size());
                came
            });
            if came != (dtype, dim) {
                let (other, width) = came;
                return Err(words(format!(
                    "samples of {dim} {dtype} and of {width} {other} values (allowed: one form)"
                )));
            }
            for sample in message.samples(dim).map_err(|error| words(error.to_string()))? {
                let bytes = sample.values.bytes();
                let (at, end) = (times.len() * bytes.len(), (times.len() + 1) * bytes.len());
                if values.len() < end {
                    values.resize(end);
                }
                values.bytes_mut()[at..end].copy_from_slice(bytes);
                times.push(sample.stamp_ns);
            }
        }
        let (dtype, dim) = form.unwrap_or((Dtype::Float32, 0));
        values.resize(times.len() * dim * dtype.size());
        Ok((times, values, dtype, dim))
    })?;
    let samples = times.len();
    Ok((
        Tensor::of_vec(times, Dtype::Int64, &[samples]),
        Tensor::of_host(values, dtype, &[samples, dim]),
    ))
}

/// Messages of the stream in the file `path`. The index is read when the file is opened, and a message only when it
/// is requested.
#[pyclass(frozen, module = "robocache")]
pub struct Messages {
    path: String,
    stream: Mutex<Indexed>,
}

#[pymethods]
impl Messages {
    #[new]
    #[pyo3(signature = (path, uses_broken=false))]
    fn new(py: Python<'_>, path: &str, uses_broken: bool) -> PyResult<Self> {
        let stream = opened(py, path, uses_broken)?;
        Ok(Self {
            path: path.to_owned(),
            stream: Mutex::new(stream),
        })
    }

    fn __len__(&self) -> usize {
        self.stream().timestamps_ns().len()
    }

    /// Stamps of all messages, ns, int64 `[N]`, in the order of the recording.
    #[getter]
    fn timestamps_ns(&self) -> Tensor {
        let stream = self.stream();
        let stamps = stream.timestamps_ns();
        Tensor::of_vec(stamps.to_vec(), Dtype::Int64, &[stamps.len()])
    }

    /// Times at which the messages arrived at the recorder, ns, int64 `[N]`; `None` if the recording does not have them.
    #[getter]
    fn arrivals_ns(&self) -> Option<Tensor> {
        let stream = self.stream();
        let arrivals = stream.arrivals_ns()?;
        Some(Tensor::of_vec(arrivals.to_vec(), Dtype::Int64, &[arrivals.len()]))
    }

    /// Reads the message `index`, and returns `(timestamp_ns, metadata, columns)`. A flat array is a column with the name "", and
    /// its type is the `dtype` of the metadata. A column of text is a list.
    fn message<'py>(&self, py: Python<'py>, index: usize) -> PyResult<(i64, Bound<'py, PyDict>, Bound<'py, PyDict>)> {
        let count = self.__len__();
        if index >= count {
            return Err(PyIndexError::new_err(format!(
                "{}: message {index} of {count}",
                self.path
            )));
        }
        let mut message = py.detach(|| {
            let mut message = Message::default();
            let read = self.stream().read(index, &mut message);
            read.map(|()| message).map_err(unreadable)
        })?;
        if let Some(skipped) = message.skipped().first() {
            return Err(PyValueError::new_err(format!(
                "{}: column `{}` is {} ({})",
                self.path,
                skipped.field.name(),
                skipped.field.data_type(),
                skipped.reason
            )));
        }
        let metadata = PyDict::new(py);
        for (key, value) in message.header.iter() {
            set_value(&metadata, key, value)?;
        }
        if let Some(values) = message.flat() {
            metadata.set_item(key::dtype, values.dtype().name())?;
        }
        let columns = PyDict::new(py);
        for column in message.columns_mut() {
            if let Some(texts) = column.texts() {
                columns.set_item(&column.name, PyList::new(py, texts)?)?;
                continue;
            }
            let memory = std::mem::take(&mut column.data);
            let (name, len) = (column.name.clone(), memory.len() / column.dtype.size());
            columns.set_item(name, tensor(memory, column.dtype, column.cells, len))?;
        }
        Ok((message.timestamp_ns(), metadata, columns))
    }
}

fn set_value(metadata: &Bound<'_, PyDict>, key: &str, value: MetadataRef<'_>) -> PyResult<()> {
    match value {
        MetadataRef::Bool(value) => metadata.set_item(key, value),
        MetadataRef::Integer(value) | MetadataRef::Timestamp(value) => metadata.set_item(key, value),
        MetadataRef::Float(value) => metadata.set_item(key, value),
        MetadataRef::String(value) => metadata.set_item(key, value),
        MetadataRef::ListInt(values) => metadata.set_item(key, values),
        MetadataRef::ListFloat(values) => metadata.set_item(key, values),
        MetadataRef::ListString(values) => metadata.set_item(key, values),
    }
}

impl Messages {
    fn stream(&self) -> MutexGuard<'_, Indexed> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
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

//! Resample for arrays in Python: one trajectory, a batch of equal lengths, or trajectories of different lengths. Arrays on a
//! GPU are resampled there, with the same bits as on the host.

use crate::array::Array;
use crate::arrays::Arrays;
use crate::batch::BatchShape;
use crate::config::{Source, placement, refusal};
use crate::element::{Element, Place};
use crate::on_device;
use crate::tensor::Tensor;
use crate::threads;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use robocache::device::{Dtype, HostBuf, Placement};
use robocache::ops::resample::{ResampleConfig, ResampleCounters, Resampler};
use robocache::stream::{Cells, ColumnLayout, Layout, Message, Payload};

/// Result of a call: the tensors `values` and `valid`, and pairs of a counter's name and its count.
type Resampled = (Tensor, Tensor, Vec<(&'static str, Option<u64>)>);

/// Result of a batch on the host: the bytes of its values, a mask byte for each target, and the counters.
type BatchResult = (HostBuf, HostBuf, ResampleCounters);

/// A batch of trajectories on the host, in the form of the resampler's input message: concatenated trajectories, with the
/// offset at which each begins.
#[derive(Default)]
struct Batch {
    times: Vec<i64>,
    values: HostBuf,
    targets: Vec<i64>,
    time_offsets: Vec<i32>,
    target_offsets: Vec<i32>,
    dim: usize,
}

impl Batch {
    fn regular(form: &BatchShape, times: &Array, values: &Array, targets: &Array) -> PyResult<Self> {
        let rows = form.rows.unwrap_or(1);
        let offsets = |step: usize| (0..=rows).map(|row| end(row * step)).collect::<PyResult<Vec<i32>>>();
        let mut batch = Self {
            times: times.as_slice::<i64>().to_vec(),
            targets: form.spread(targets.as_slice()),
            time_offsets: offsets(form.samples)?,
            target_offsets: offsets(form.targets)?,
            dim: form.dim.unwrap_or(1),
            ..Self::default()
        };
        batch.values.copy_from(values.bytes());
        Ok(batch)
    }

    fn run(&self, dtype: Dtype, mut resampler: Resampler) -> Result<BatchResult, String> {
        let values = self.values.len() / dtype.size();
        let column = |name: &'static str, dtype, len| ColumnLayout {
            name: name.into(),
            dtype,
            cells: Cells::Ragged(len),
        };
        let layout = Layout {
            rows: self.time_offsets.len() - 1,
            columns: vec![
                column("timestamps_ns", Dtype::Int64, self.times.len()),
                column("values", dtype, values),
                column("targets_ns", Dtype::Int64, self.targets.len()),
            ],
        };
        let last = self.time_offsets.last().copied().unwrap_or(0) as usize;
        end(last * self.dim).map_err(|error| error.to_string())?;
        let mut message = Message::default();
        message.write(&layout, |payload, header| {
            payload.column(0).copy_from_slice(&self.times);
            payload.offsets(0).copy_from_slice(&self.time_offsets);
            payload.column::<u8>(1).copy_from_slice(self.values.bytes());
            for (to, &from) in payload.offsets(1).iter_mut().zip(&self.time_offsets) {
                *to = from * self.dim as i32;
            }
            payload.column(2).copy_from_slice(&self.targets);
            payload.offsets(2).copy_from_slice(&self.target_offsets);
            header.dim.set(self.dim as i64);
        });
        let trajectories = resampler.read(&message).map_err(|error| error.to_string())?;
        if let Some(refused) = trajectories.refused().first() {
            return Err(format!("`times_ns`: {refused}"));
        }
        let (mut answer, mut layout) = (Message::default(), Layout::default());
        trajectories.layout_into(&mut layout);
        let resampled = resampler.run(&trajectories, &mut Payload::in_message(&mut answer, &layout));
        if let Some(error) = resampler.take_lost() {
            return Err(error.to_string());
        }
        let [values, valid] = answer.columns_mut() else {
            return Err("no answer".to_owned());
        };
        let taken = [values, valid].map(|column| std::mem::take(&mut column.data));
        let [values, valid] = taken;
        Ok((values, valid, resampled.counters))
    }
}

/// Pairs counters with their names. The counts are `None` if `counters` is `None`, as on a device, which does not count.
fn counted(counters: Option<ResampleCounters>) -> Vec<(&'static str, Option<u64>)> {
    vec![
        ("dropped_nonfinite", counters.map(|counters| counters.dropped_nonfinite)),
        ("dropped_overflow", counters.map(|counters| counters.dropped_overflow)),
        ("invalid", counters.map(|counters| counters.invalid)),
    ]
}

/// Converts an offset in an Arrow list, counted in elements, to 32 bits; `ValueError` if it does not fit.
fn end(elements: usize) -> PyResult<i32> {
    i32::try_from(elements).map_err(|_| {
        PyValueError::new_err(format!(
            "{elements} elements in one batch (allowed: {}; resample fewer rows at once)",
            i32::MAX
        ))
    })
}

/// Reads the section `resample`, and replaces its `fill_value` by `invalid` unless that is `None`.
fn config(source: &Source, invalid: Option<f32>) -> Result<ResampleConfig, robocache::app::AppError> {
    source.build("resample", Placement::cpu("a configuration"), move |app| {
        let mut config: ResampleConfig = app.config()?;
        Resampler::new(&config, app.placement()).map_err(|error| app.refused(&error))?;
        config.fill_value = invalid.unwrap_or(config.fill_value);
        Ok(config)
    })
}

fn resampler(config: &ResampleConfig, source: &Source, device: Option<&str>) -> PyResult<Resampler> {
    let made = Resampler::new(config, &placement(device)?);
    made.map_err(|error| refusal(source.refused("resample", error.to_string())))
}

/// Resamples one trajectory, or a batch of trajectories with equal numbers of samples and of targets. All arrays must be on one
/// device.
#[pyfunction]
#[pyo3(signature = (times, values, targets, config, invalid, device=None, stream=None))]
#[allow(clippy::too_many_arguments, reason = "Python names them")]
pub fn resample(
    py: Python<'_>,
    times: &Bound<'_, PyAny>,
    values: &Bound<'_, PyAny>,
    targets: &Bound<'_, PyAny>,
    config: Source,
    invalid: Option<f32>,
    device: Option<&str>,
    stream: Option<isize>,
) -> PyResult<Resampled> {
    let read = self::config(&config, invalid).map_err(refusal)?;
    let arrays = Arrays::new(stream);
    let times = arrays.take(&"times_ns", times)?;
    let values = arrays.take(&"values", values)?;
    let targets = arrays.take(&"targets_ns", targets)?;
    let form = BatchShape::of(&times, &values, &targets)?;
    let place = values.place();
    for (name, array) in [("times_ns", &times), ("targets_ns", &targets)] {
        if array.place() != place {
            return Err(PyValueError::new_err(format!(
                "`{name}` is on {}, `values` on {place} (allowed: all on one device)",
                array.place()
            )));
        }
    }
    if let Place::Gpu(kind, _) = place {
        if device.is_some_and(|device| device != place.to_string() && !["auto", kind.name()].contains(&device)) {
            return Err(PyValueError::new_err(format!(
                "`device` is {} (allowed for arrays on {place}: None, {kind}, {place})",
                device.unwrap_or_default()
            )));
        }
        let stream = arrays.into_stream()?;
        let (values, valid) = py.detach(|| on_device::resample(&stream, &read, &form, &times, &values, &targets))?;
        return Ok((values, valid, counted(None)));
    }
    let resampler = resampler(&read, &config, device)?;
    let batch = Batch::regular(&form, &times, &values, &targets)?;
    let (values, valid, counters) = py
        .detach(|| threads::share(|| batch.run(form.dtype, resampler)))?
        .map_err(PyValueError::new_err)?;
    Ok((
        Tensor::of_host(values, form.dtype, &form.values_shape()),
        Tensor::of_host(valid, Element::Bool, &form.valid_shape()),
        counted(Some(counters)),
    ))
}

/// Resamples trajectories of different lengths: `(times, values, targets)` for each. The results are on the host, those of all
/// trajectories concatenated, `[sum of T, D]`.
#[pyfunction]
#[pyo3(signature = (rows, config, invalid, device=None))]
pub fn resample_ragged(
    py: Python<'_>,
    rows: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>, Bound<'_, PyAny>)>,
    config: Source,
    invalid: Option<f32>,
    device: Option<&str>,
) -> PyResult<Resampled> {
    let read = self::config(&config, invalid).map_err(refusal)?;
    let (mut batch, mut first) = (Batch::default(), None);
    batch.time_offsets.push(0);
    batch.target_offsets.push(0);
    let mut bytes = Vec::new();
    for (row, (times, values, targets)) in rows.iter().enumerate() {
        let arrays = Arrays::new(None);
        let times = arrays.take_to_host(&format_args!("times_ns[{row}]"), times)?;
        let values = arrays.take_to_host(&format_args!("values[{row}]"), values)?;
        let targets = arrays.take_to_host(&format_args!("targets_ns[{row}]"), targets)?;
        let words = |error: PyErr| PyValueError::new_err(format!("row {row}: {}", error.value(py)));
        let form = BatchShape::of(&times, &values, &targets).map_err(words)?;
        let came = (form.dtype, form.dim);
        let &mut (dtype, dim) = first.get_or_insert(came);
        if form.rows.is_some() || came != (dtype, dim) {
            return Err(PyValueError::new_err(format!(
                "`values[{row}]` is {} {:?} (allowed: [S] or [S, D] in each row, with the type and the D of the first)",
                form.dtype,
                values.shape()
            )));
        }
        batch.times.extend_from_slice(times.as_slice());
        bytes.extend_from_slice(values.bytes());
        batch.targets.extend_from_slice(targets.as_slice());
        batch.time_offsets.push(end(batch.times.len())?);
        batch.target_offsets.push(end(batch.targets.len())?);
    }
    let (dtype, dim) = first.unwrap_or((Dtype::Float32, None));
    batch.values.copy_from(&bytes);
    batch.dim = dim.unwrap_or(1);
    let resampler = resampler(&read, &config, device)?;
    let targets = batch.targets.len();
    let (values, valid, counters) = py
        .detach(|| threads::share(|| batch.run(dtype, resampler)))?
        .map_err(PyValueError::new_err)?;
    let shape: Vec<usize> = [targets].into_iter().chain(dim).collect();
    Ok((
        Tensor::of_host(values, dtype, &shape),
        Tensor::of_host(valid, Element::Bool, &[targets]),
        counted(Some(counters)),
    ))
}

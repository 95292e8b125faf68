//! Align and fuse over whole streams.

use crate::arrays::{Array, Arrays};
use crate::config::{Source, placement, refusal};
use crate::element::Element;
use crate::extent::{Merge, Pace, Stamps};
use crate::recording::{opened, unreadable};
use crate::tensor::Tensor;
use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use robocache::app::AppError;
use robocache::device::{Dtype, HostBuf, Placement, Values};
use robocache::ops::align::{AlignConfig, Aligner, Masks, PushError, Pushed, SampleError, Target, Timeline};
use robocache::stream::Message;
use robocache::stream::recording::Mapped;
use std::collections::{HashMap, TryReserveError};
use std::fmt::Display;

/// The observations of whole streams, row by row: a row that several windows show is stored once.
#[pyclass(frozen, get_all, module = "robocache")]
pub struct Observed {
    /// The streams in it, in the order of the columns.
    modalities: Vec<String>,
    /// M + 1: modality m is columns `offsets[m]..offsets[m + 1]`.
    offsets: Vec<i64>,
    /// The rows, `[U, D]`.
    values: Py<Tensor>,
    /// bool `[U, M]`.
    valid: Py<Tensor>,
    /// int64 `[U, M]`.
    age_ns: Py<Tensor>,
    /// int64 `[U]`.
    timestamps_ns: Py<Tensor>,
    /// int64 `[N, T]`: the rows of each window.
    index: Py<Tensor>,
    /// int64 `[N]`.
    epoch: Py<Tensor>,
    /// Samples that came for a target already made, or sooner than `min_period_ms`.
    late_samples: i64,
    /// Samples that could not be used, by modality and reason.
    dropped: Vec<(String, &'static str, u64)>,
    /// The inputs that the configuration attaches, which are left out.
    attached: Vec<String>,
    /// Of each stream with a stamp: its name, its least and its greatest one, and how many it has. Messages of several
    /// samples have one.
    spans: Vec<(String, i64, i64, usize)>,
}

/// The rows of one output, as they are found.
struct Rows {
    output: usize,
    columns: usize,
    modalities: usize,
    values: HostBuf,
    valid: Vec<u8>,
    age_ns: Vec<i64>,
    times: Vec<i64>,
    index: Vec<i64>,
    /// The newest row of each time.
    newest: HashMap<i64, usize>,
    row_bytes: usize,
}

/// An aligner, and what it gave so far.
struct Run {
    aligner: Aligner,
    rows: Vec<Rows>,
    epochs: Vec<i64>,
    late_samples: i64,
    dropped: Vec<[u64; REASONS.len()]>,
    /// The window at hand.
    window: Vec<u8>,
}

/// Why samples are dropped.
const REASONS: [&str; 4] = ["nonfinite", "no_rotation", "stamp_out_of_range", "wrong_length"];

/// The samples of one stream.
struct Samples {
    name: String,
    times: Array,
    values: Array,
    dtype: Dtype,
    dim: usize,
}

impl Rows {
    /// None so far, with memory for so many rows and observations.
    fn new(aligner: &Aligner, output: usize, rows: usize, observations: usize) -> Result<Self, TryReserveError> {
        let of = &aligner.outputs()[output];
        let mut made = Self {
            output,
            columns: of.columns(),
            modalities: of.modalities().len(),
            values: HostBuf::default(),
            valid: Vec::new(),
            age_ns: Vec::new(),
            times: Vec::new(),
            index: Vec::new(),
            newest: HashMap::new(),
            row_bytes: of.columns() * aligner.timeline().dtype().size(),
        };
        made.values.try_reserve(rows.saturating_mul(made.row_bytes))?;
        made.valid.try_reserve_exact(rows.saturating_mul(made.modalities))?;
        made.age_ns.try_reserve_exact(rows.saturating_mul(made.modalities))?;
        made.times.try_reserve_exact(rows)?;
        made.newest.try_reserve(rows)?;
        let window = aligner.timeline().window();
        made.index.try_reserve_exact(observations.saturating_mul(window))?;
        Ok(made)
    }

    /// Adds the rows of a window that are not there yet, and says which rows it has.
    fn add(&mut self, window: &[u8], masks: &Masks) {
        for (row, &time) in masks.timestamps_ns.iter().enumerate() {
            let values = &window[row * self.row_bytes..][..self.row_bytes];
            let valid = &masks.valid[row * self.modalities..][..self.modalities];
            let age_ns = &masks.age_ns[row * self.modalities..][..self.modalities];
            let known = self.newest.get(&time).copied();
            let same = known.filter(|&known| self.is(known, values, valid, age_ns));
            let at = same.unwrap_or_else(|| {
                let at = self.times.len();
                let end = self.values.len();
                self.values.resize(end + values.len());
                self.values.bytes_mut()[end..].copy_from_slice(values);
                self.valid.extend(valid.iter().map(|&valid| valid as u8));
                self.age_ns.extend_from_slice(age_ns);
                self.times.push(time);
                self.newest.insert(time, at);
                at
            });
            self.index.push(at as i64);
        }
    }

    /// Whether a row has these bits.
    fn is(&self, row: usize, values: &[u8], valid: &[i64], age_ns: &[i64]) -> bool {
        let masks = row * self.modalities..(row + 1) * self.modalities;
        self.values.bytes()[row * self.row_bytes..][..self.row_bytes] == *values
            && self.age_ns[masks.clone()] == *age_ns
            && self.valid[masks]
                .iter()
                .zip(valid)
                .all(|(&known, &valid)| i64::from(known) == valid)
    }
}

impl Run {
    /// Has memory for so many observations and rows, so that none is missing on the way.
    fn new(aligner: Aligner, (observations, rows): (usize, usize)) -> PyResult<Self> {
        let missing = |error: TryReserveError| {
            PyMemoryError::new_err(format!("{observations} observations with {rows} rows: {error}"))
        };
        let outputs = 0..aligner.outputs().len();
        let outputs = outputs.map(|output| Rows::new(&aligner, output, rows, observations));
        let made = outputs.collect::<Result<Vec<_>, _>>().map_err(missing)?;
        let mut epochs = Vec::new();
        epochs.try_reserve_exact(observations).map_err(missing)?;
        Ok(Self {
            rows: made,
            epochs,
            late_samples: 0,
            dropped: vec![[0; REASONS.len()]; aligner.timeline().modalities()],
            window: Vec::new(),
            aligner,
        })
    }

    /// Takes what became of a sample, and the observations that it made due.
    fn pushed(&mut self, modality: usize, pushed: Result<Pushed, PushError>) -> PyResult<()> {
        match pushed {
            Ok(_) => {}
            Err(PushError::Sample(error)) => {
                let reason = match error {
                    SampleError::NonFinite { .. } => 0,
                    SampleError::NoRotation { .. } => 1,
                    SampleError::StampOutOfRange(_) => 2,
                    SampleError::WrongLength { .. } => 3,
                    SampleError::Elsewhere => return Err(PyValueError::new_err(error.to_string())),
                };
                self.dropped[modality][reason] += 1;
            }
            Err(error @ PushError::Device(_)) => return Err(PyRuntimeError::new_err(error.to_string())),
        }
        self.take_due()
    }

    fn take_due(&mut self) -> PyResult<()> {
        while let Some(target) = self.aligner.due() {
            self.take(target);
        }
        match self.aligner.take_lost() {
            Some(error) => Err(PyRuntimeError::new_err(error.to_string())),
            None => Ok(()),
        }
    }

    fn take(&mut self, target: Target) {
        self.epochs.push(target.epoch);
        let mut window = self.aligner.window(target);
        for rows in &mut self.rows {
            self.window.resize(window.output(rows.output).bytes(), 0);
            window.write(rows.output, &mut self.window);
            rows.add(&self.window, window.masks());
        }
    }

    /// The streams have ended: what waited for more of them is due.
    fn finish(&mut self) -> PyResult<()> {
        for modality in 0..self.aligner.timeline().modalities() {
            self.aligner.close(modality);
        }
        self.take_due()?;
        let timeline = self.aligner.timeline();
        self.late_samples = (0..timeline.modalities())
            .map(|modality| timeline.late_samples(modality))
            .sum();
        Ok(())
    }

    /// Runs over arrays, in the order of `stamps`, which are theirs.
    fn over_arrays(&mut self, streams: &[Samples], stamps: &[Stamps<'_>]) -> PyResult<()> {
        for (modality, at, stamp_ns) in Merge::new(stamps) {
            let samples = &streams[modality];
            let values = Values::new(samples.dtype, samples.values.bytes());
            let values = values.slice(at * samples.dim, (at + 1) * samples.dim);
            let pushed = self.aligner.push(modality, stamp_ns, values);
            self.pushed(modality, pushed)?;
        }
        self.finish()
    }

    /// Runs over the messages of recorded streams, in the order of `stamps`, which are theirs.
    fn over_messages(&mut self, streams: &mut [Mapped], stamps: &[Stamps<'_>], path: &str) -> PyResult<()> {
        let mut message = Message::default();
        for (modality, at, _) in Merge::new(stamps) {
            let words = |problem: &dyn Display| {
                let name = stamps[modality].name;
                PyValueError::new_err(format!("{path}: stream `{name}`: {problem}"))
            };
            streams[modality].read(at, &mut message).map_err(unreadable)?;
            message.check().map_err(|error| words(&error))?;
            let samples = self.aligner.samples(modality, &message);
            let mut samples = samples.map_err(|error| words(&error))?;
            while let Some(pushed) = self.aligner.push_next(&mut samples, &message) {
                self.pushed(modality, pushed)?;
            }
        }
        self.finish()
    }

    fn into_observed(
        self,
        py: Python<'_>,
        attached: &[String],
        spans: &[(String, i64, i64, usize)],
    ) -> PyResult<Vec<Observed>> {
        let names: Vec<String> = self.aligner.timeline().inputs().map(str::to_owned).collect();
        let (dtype, window) = (self.aligner.timeline().dtype(), self.aligner.timeline().window());
        let observations = self.epochs.len();
        let epoch = Py::new(py, Tensor::of_vec(self.epochs, Dtype::Int64, &[observations]))?;
        let mut observed = Vec::with_capacity(self.rows.len());
        for rows in self.rows {
            let of = &self.aligner.outputs()[rows.output];
            let (count, modalities) = (rows.times.len(), rows.modalities);
            let dropped = of.modalities().flat_map(|modality| {
                let counts = REASONS.iter().zip(self.dropped[modality]);
                let counts = counts.filter(|(_, count)| *count > 0);
                let name = &names[modality];
                counts.map(move |(reason, count)| (name.clone(), *reason, count))
            });
            let tensor = |tensor: Tensor| Py::new(py, tensor);
            observed.push(Observed {
                modalities: names[of.modalities()].to_vec(),
                offsets: of.offsets().to_vec(),
                dropped: dropped.collect(),
                values: tensor(Tensor::of_host(rows.values, dtype, &[count, rows.columns]))?,
                valid: tensor(Tensor::of_vec(rows.valid, Element::Bool, &[count, modalities]))?,
                age_ns: tensor(Tensor::of_vec(rows.age_ns, Dtype::Int64, &[count, modalities]))?,
                timestamps_ns: tensor(Tensor::of_vec(rows.times, Dtype::Int64, &[count]))?,
                index: tensor(Tensor::of_vec(rows.index, Dtype::Int64, &[observations, window]))?,
                epoch: epoch.clone_ref(py),
                late_samples: self.late_samples,
                attached: attached.to_vec(),
                spans: spans.to_vec(),
            });
        }
        Ok(observed)
    }
}

/// Makes the aligner of a section, without what the section attaches: the inputs of that are returned beside it. Nobody asks
/// here, and no timer ticks.
fn aligner(source: &Source, section: &str, placement: Placement) -> Result<(Aligner, Vec<String>, Pace), AppError> {
    let is_split = section == "align";
    let name = if is_split { "align" } else { "fuse" };
    let made = source.build(name, &[], placement, move |app| {
        let mut config: AlignConfig = app.config()?;
        let make = if is_split { Aligner::split } else { Aligner::new };
        // What is wrong with `attach` is wrong here, too.
        make(&config, app.placement()).map_err(|error| app.refused(&error))?;
        let attached = config.attach.drain(..).map(|attach| attach.input).collect();
        let aligner = make(&config, app.placement()).map_err(|error| app.refused(&error))?;
        let pace = Pace::new(&config, &aligner);
        Ok((aligner, attached, pace))
    })?;
    let timeline: &Timeline = made.0.timeline();
    if timeline.trigger_input().is_some() {
        let words = format!(
            "trigger: {}: not offered here (allowed: none, stream)",
            timeline.trigger()
        );
        return Err(source.refused(name, words));
    }
    Ok(made)
}

/// Runs `section`, align or fuse, over `(name, times_ns, values)` of each stream.
#[pyfunction]
#[pyo3(signature = (section, streams, config, most_bytes, device=None, stream=None))]
pub fn observe(
    py: Python<'_>,
    section: &str,
    streams: Vec<(String, Bound<'_, PyAny>, Bound<'_, PyAny>)>,
    config: Source,
    most_bytes: u64,
    device: Option<&str>,
    stream: Option<isize>,
) -> PyResult<Vec<Observed>> {
    let placement = placement(device)?;
    let (aligner, attached, pace) = py.detach(|| aligner(&config, section, placement)).map_err(refusal)?;
    let timeline = aligner.timeline();
    for (name, ..) in &streams {
        if timeline.inputs().all(|input| input != name) {
            let words = format!(
                "stream `{name}` is no input of a modality (allowed: {})",
                list(timeline.inputs())
            );
            return Err(PyValueError::new_err(words));
        }
    }
    let arrays = Arrays::new(stream);
    let samples = timeline.inputs().enumerate().map(|(modality, input)| {
        let Some((name, times, values)) = streams.iter().find(|(name, ..)| name == input) else {
            let came = list(streams.iter().map(|(name, ..)| name.as_str()));
            return Err(PyValueError::new_err(format!(
                "modality `{input}` has no stream (there are: {came})"
            )));
        };
        Samples::new(name, times, values, timeline.dim(modality), &arrays)
    });
    let samples = samples.collect::<PyResult<Vec<_>>>()?;
    let stamps: Vec<Stamps<'_>> = samples
        .iter()
        .map(|samples| Stamps {
            name: &samples.name,
            stamps_ns: samples.times.as_slice(),
            samples: samples.times.len(),
        })
        .collect();
    let run = py.detach(|| {
        let most = pace.check(&stamps, most_bytes, true)?;
        let mut run = Run::new(aligner, most)?;
        run.over_arrays(&samples, &stamps).map(|()| run)
    });
    run?.into_observed(py, &attached, &spans(&stamps))
}

/// Runs fuse over a recording, whose streams are `recorded`. `streams` are pairs of a modality's input and the stream that it
/// is recorded as, where that has another name.
#[pyfunction]
#[pyo3(signature = (path, recorded, config, streams, most_bytes, is_gathered, device=None, uses_broken=false))]
#[allow(clippy::too_many_arguments, reason = "Python names them")]
pub fn observe_recording(
    py: Python<'_>,
    path: &str,
    recorded: Vec<String>,
    config: Source,
    streams: HashMap<String, String>,
    most_bytes: u64,
    is_gathered: bool,
    device: Option<&str>,
    uses_broken: bool,
) -> PyResult<Vec<Observed>> {
    let placement = placement(device)?;
    let (aligner, attached, pace) = py.detach(|| aligner(&config, "fuse", placement)).map_err(refusal)?;
    let inputs: Vec<String> = aligner.timeline().inputs().map(str::to_owned).collect();
    if let Some(unknown) = streams.keys().find(|key| !inputs.contains(key)) {
        let allowed = list(inputs.iter().map(String::as_str));
        return Err(PyValueError::new_err(format!(
            "`streams` names `{unknown}`, no input of a modality (allowed: {allowed})"
        )));
    }
    let sources: Vec<String> = inputs
        .iter()
        .map(|input| streams.get(input).unwrap_or(input).clone())
        .collect();
    if let Some(missing) = sources.iter().find(|source| !recorded.contains(source)) {
        let there = list(recorded.iter().map(String::as_str));
        return Err(PyValueError::new_err(format!(
            "{path}: stream `{missing}` was not recorded (there are: {there})"
        )));
    }
    let files = sources.iter().map(|source| format!("{path}/{source}.arrow"));
    let mapped = files.map(|file| opened(py, &file, uses_broken));
    let mut mapped = mapped.collect::<PyResult<Vec<Mapped>>>()?;
    let (run, spans) = py.detach(|| {
        let times: Vec<Vec<i64>> = mapped.iter().map(|stream| stream.timestamps_ns().to_vec()).collect();
        let stamps: Vec<Stamps<'_>> = (0..mapped.len())
            .map(|i| Stamps {
                name: &sources[i],
                stamps_ns: &times[i],
                samples: mapped[i].samples(),
            })
            .collect();
        let most = pace.check(&stamps, most_bytes, is_gathered)?;
        let mut run = Run::new(aligner, most)?;
        run.over_messages(&mut mapped, &stamps, path)?;
        Ok::<_, PyErr>((run, spans(&stamps)))
    })?;
    run.into_observed(py, &attached, &spans)
}

/// The name of each stream that has a stamp, its least and its greatest one, and how many it has.
fn spans(streams: &[Stamps<'_>]) -> Vec<(String, i64, i64, usize)> {
    let spans = streams.iter().filter_map(|of| {
        let (least, greatest) = (of.stamps_ns.iter().min()?, of.stamps_ns.iter().max()?);
        Some((of.name.to_owned(), *least, *greatest, of.stamps_ns.len()))
    });
    spans.collect()
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    match names.collect::<Vec<_>>() {
        names if names.is_empty() => "none".to_owned(),
        names => names.join(", "),
    }
}

impl Samples {
    fn new(
        name: &str,
        times: &Bound<'_, PyAny>,
        values: &Bound<'_, PyAny>,
        dim: usize,
        arrays: &Arrays,
    ) -> PyResult<Self> {
        let (times_name, values_name) = (format!("{name}: times_ns"), format!("{name}: values"));
        let times = arrays.take_to_host(&times_name, times)?;
        let values = arrays.take_to_host(&values_name, values)?;
        times.expect_dtype(&times_name, &[Dtype::Int64])?;
        let dtype = values.expect_dtype(&values_name, &Dtype::ALL)?;
        let &[samples] = times.shape() else {
            return Err(PyValueError::new_err(format!(
                "`{times_name}` has shape {:?} (allowed: [S])",
                times.shape()
            )));
        };
        let fits = match *values.shape() {
            [rows] => dim == 1 && rows == samples,
            [rows, columns] => rows == samples && columns == dim,
            _ => false,
        };
        if !fits {
            return Err(PyValueError::new_err(format!(
                "`{values_name}` has shape {:?} (allowed with `dim` {dim} and {samples} times: [{samples}, {dim}]{})",
                values.shape(),
                if dim == 1 {
                    format!(" or [{samples}]")
                } else {
                    String::new()
                }
            )));
        }
        Ok(Self {
            name: name.to_owned(),
            times,
            values,
            dtype,
            dim,
        })
    }
}

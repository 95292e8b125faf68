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
use robocache::ops::align::{
    AlignConfig, Aligner, AttachError, Attached, Masks, PushError, Pushed, SampleError, Target, Timeline,
};
use robocache::ops::offsets::{Offset, Offsets, Severity};
use robocache::stream::recording::Mapped;
use robocache::stream::{Message, Reading};
use robocache::time::ms_to_ns;
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
    left_out: Vec<String>,
    /// What is attached: its output and its stream, and, both int64 `[N, T]`, the number of the message that a row has and the
    /// time from that to the row's target, ns; -1 where it has none.
    attached: Vec<(String, String, Py<Tensor>, Py<Tensor>)>,
    /// Of each stream with a stamp what [`Span`] says.
    spans: Vec<Span>,
    /// Streams whose stamps are off, in words.
    off: Vec<String>,
}

/// The name of a stream, its least stamp and its greatest one, how many it has, and, where the last is before the first, how
/// many are before the one before them. Messages of several samples have one.
type Span = (String, i64, i64, usize, usize);

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
    /// By stream.
    dropped: Vec<[u64; REASONS.len()]>,
    /// The attached messages, by number.
    attached: Attached<usize>,
    /// Of each attached stream the number of the message of each row, and its age.
    members: Vec<[Vec<i64>; 2]>,
    /// The window at hand.
    window: Vec<u8>,
}

/// Why samples and messages are dropped.
const REASONS: [&str; 5] = [
    "nonfinite",
    "no_rotation",
    "stamp_out_of_range",
    "wrong_length",
    "max_held_mb",
];

/// What a message that is attached takes beside its payload in a node, bytes.
const OVERHEAD: usize = 4096;

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

    /// Writes a number in place of modalities that are not valid; the first column of each is in `offsets`.
    fn fill(&mut self, offsets: &[i64], dtype: Dtype, number: f32) {
        let element = match dtype {
            Dtype::Float16 => half::f16::from_f32(number).to_le_bytes().to_vec(),
            Dtype::BFloat16 => half::bf16::from_f32(number).to_le_bytes().to_vec(),
            _ => number.to_le_bytes().to_vec(),
        };
        let size = element.len();
        for (row, valid) in self.valid.chunks_exact(self.modalities.max(1)).enumerate() {
            for (ends, _) in offsets.windows(2).zip(valid).filter(|(_, valid)| **valid == 0) {
                let at = row * self.row_bytes;
                let cells = at + ends[0] as usize * size..at + ends[1] as usize * size;
                let cells = &mut self.values.bytes_mut()[cells];
                cells
                    .chunks_exact_mut(size)
                    .for_each(|cell| cell.copy_from_slice(&element));
            }
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
            dropped: vec![[0; REASONS.len()]; aligner.timeline().inputs().count()],
            attached: Attached::new(aligner.timeline()),
            members: vec![Default::default(); aligner.timeline().attached().len()],
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

    /// Takes a message of an attached stream by its number, and the observations that it made due.
    fn attach(&mut self, stream: usize, number: usize, message: &Message) -> PyResult<()> {
        let bytes = message.bytes() + OVERHEAD;
        let arrival = self
            .attached
            .push(&mut self.aligner, stream, message.timestamp_ns(), bytes, || number);
        let dropped = &mut self.dropped[self.aligner.timeline().modalities() + stream];
        match arrival {
            Ok(arrival) => dropped[4] += arrival.dropped as u64,
            Err(AttachError::Stamp(_)) => dropped[2] += 1,
            Err(AttachError::TooLarge { .. }) => dropped[4] += 1,
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
        self.attached.select(window.timeline(), &target);
        while self.attached.next_released().is_some() {}
        let streams = self.members.len();
        for (stream, [numbers, ages]) in self.members.iter_mut().enumerate() {
            let members: Vec<i64> = self.attached.members(stream).map(|&number| number as i64).collect();
            let of_rows = |list: &'_ [i64]| list.iter().skip(stream).step_by(streams).copied().collect::<Vec<_>>();
            let number = |at: i64| usize::try_from(at).map_or(-1, |at| members[at]);
            numbers.extend(of_rows(self.attached.index()).into_iter().map(number));
            ages.extend(of_rows(self.attached.age_ns()));
        }
    }

    /// The streams have ended: what waited for more of them is due.
    fn finish(&mut self) -> PyResult<()> {
        for stream in 0..self.aligner.timeline().inputs().count() {
            self.aligner.close(stream);
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
    fn over_messages(
        &mut self,
        streams: &mut [Mapped],
        readings: &[Reading],
        stamps: &[Stamps<'_>],
        path: &str,
    ) -> PyResult<()> {
        let mut message = Message::default();
        for (modality, at, _) in Merge::new(stamps) {
            let words = |problem: &dyn Display| {
                let name = stamps[modality].name;
                PyValueError::new_err(format!("{path}: stream `{name}`: {problem}"))
            };
            streams[modality].read(at, &mut message).map_err(unreadable)?;
            message.check().map_err(|error| words(&error))?;
            let restamped = readings[modality].restamp(&mut message.header);
            restamped.map_err(|error| words(&error))?;
            if let Some(attached) = modality.checked_sub(self.aligner.timeline().modalities()) {
                self.attach(attached, at, &message)?;
                continue;
            }
            let samples = self.aligner.samples(modality, &message);
            let mut samples = samples.map_err(|error| words(&error))?;
            while let Some(pushed) = self.aligner.push_next(&mut samples, &message) {
                self.pushed(modality, pushed)?;
            }
        }
        self.finish()
    }

    /// What is not valid becomes `invalid`. `sources` are the streams.
    fn into_observed(
        self,
        py: Python<'_>,
        sources: &[String],
        about: &About,
        invalid: Option<f32>,
    ) -> PyResult<Vec<Observed>> {
        let timeline = self.aligner.timeline();
        let names: Vec<String> = timeline.inputs().map(str::to_owned).collect();
        let (dtype, window, first) = (timeline.dtype(), timeline.window(), timeline.modalities());
        if let Some(number) = invalid.filter(|number| !number.is_nan() && !dtype.holds(*number)) {
            return Err(PyValueError::new_err(format!(
                "`invalid` is {number}, which {dtype} can't hold (allowed: None, NaN, a number that it can)"
            )));
        }
        let observations = self.epochs.len();
        let tensor = |tensor: Tensor| Py::new(py, tensor);
        let mut attached = Vec::new();
        for (i, (spec, [numbers, ages])) in timeline.attached().iter().zip(self.members).enumerate() {
            let of_rows = |list| tensor(Tensor::of_vec(list, Dtype::Int64, &[observations, window]));
            let source = sources[first + i].clone();
            attached.push((spec.output.clone(), source, of_rows(numbers)?, of_rows(ages)?));
        }
        let epoch = Py::new(py, Tensor::of_vec(self.epochs, Dtype::Int64, &[observations]))?;
        let mut observed = Vec::with_capacity(self.rows.len());
        for mut rows in self.rows {
            let of = &self.aligner.outputs()[rows.output];
            let (count, modalities) = (rows.times.len(), rows.modalities);
            if let Some(number) = invalid {
                rows.fill(of.offsets(), dtype, number);
            }
            let dropped = of.modalities().chain(first..names.len()).flat_map(|modality| {
                let counts = REASONS.iter().zip(self.dropped[modality]);
                let counts = counts.filter(|(_, count)| *count > 0);
                let name = &names[modality];
                counts.map(move |(reason, count)| (name.clone(), *reason, count))
            });
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
                left_out: about.left_out.clone(),
                attached: attached
                    .iter()
                    .map(|(output, source, numbers, ages)| {
                        (
                            output.clone(),
                            source.clone(),
                            numbers.clone_ref(py),
                            ages.clone_ref(py),
                        )
                    })
                    .collect(),
                spans: about.spans.clone(),
                off: about.off.clone(),
            });
        }
        Ok(observed)
    }
}

/// What is said of streams beside their observations.
#[derive(Default)]
struct About {
    left_out: Vec<String>,
    spans: Vec<Span>,
    off: Vec<String>,
}

/// What a section makes.
struct Made {
    aligner: Aligner,
    /// The inputs that are attached and left out.
    left_out: Vec<String>,
    pace: Pace,
    /// Of each stream, ns.
    latencies: Vec<i64>,
    /// How a node reads each stream.
    readings: Vec<Reading>,
}

/// Makes the aligner of a section, with what it attaches of the inputs that are `kept`. Nobody asks here, and no timer ticks.
fn made(source: &Source, section: &str, placement: Placement, kept: Vec<String>) -> Result<Made, AppError> {
    let is_split = section == "align";
    let name = if is_split { "align" } else { "fuse" };
    let made = source.build(name, placement, move |app| {
        let mut config: AlignConfig = app.config()?;
        let make = if is_split { Aligner::split } else { Aligner::new };
        // What is wrong with `attach` is wrong here, too.
        make(&config, app.placement()).map_err(|error| app.refused(&error))?;
        let (attach, left_out): (Vec<_>, Vec<_>) = std::mem::take(&mut config.attach)
            .into_iter()
            .partition(|attach| kept.contains(&attach.input));
        config.attach = attach;
        let aligner = make(&config, app.placement()).map_err(|error| app.refused(&error))?;
        let modalities = config.modalities.iter().map(|it| it.latency_ms);
        let latencies = modalities.chain(config.attach.iter().map(|it| it.latency_ms));
        Ok(Made {
            pace: Pace::new(&config, &aligner),
            latencies: latencies.map(ms_to_ns).collect(),
            left_out: left_out.into_iter().map(|attach| attach.input).collect(),
            readings: config.readings().collect(),
            aligner,
        })
    })?;
    let timeline: &Timeline = made.aligner.timeline();
    if timeline.trigger_input().is_some() {
        let words = format!(
            "trigger: {}: not offered here (allowed: none, stream)",
            timeline.trigger()
        );
        return Err(source.refused(name, words));
    }
    Ok(made)
}

/// Judges streams by when they arrived, but for those that are `allowed`: pairs of a stream, with its input and latency, and of
/// what is known of it. Returns those that are a little off, in words.
fn judge<'a>(
    streams: impl Iterator<Item = (&'a str, &'a str, i64, &'a [i64], Option<&'a [i64]>)>,
    allowed: &[String],
) -> PyResult<Vec<String>> {
    let is_judged = |input: &str, name: &str| allowed.iter().all(|allowed| allowed != input && allowed != name);
    let judged: Vec<_> = streams.filter(|(input, name, ..)| is_judged(input, name)).collect();
    let mut offsets = Offsets::new(judged.iter().map(|&(_, name, latency, ..)| (name, latency)));
    for (stream, (_, _, _, stamps, arrivals)) in judged.iter().enumerate() {
        for (&stamp_ns, &arrival_ns) in stamps.iter().zip(arrivals.unwrap_or_default()) {
            offsets.add(stream, stamp_ns, arrival_ns);
        }
    }
    let found = offsets.judge();
    let words = |offset: &Offset| {
        let name = &offset.stream;
        format!("{offset}; `allow_offset=[{name:?}]` takes it as it is")
    };
    let refused = found.iter().filter(|offset| offset.severity() == Severity::Refused);
    match refused.map(words).collect::<Vec<_>>() {
        refused if refused.is_empty() => Ok(found.iter().map(words).collect()),
        refused => Err(PyValueError::new_err(refused.join("; and "))),
    }
}

/// A name that is allowed to be off, and is that of no stream.
fn check_allowed<'a>(allowed: &[String], known: impl Iterator<Item = &'a str> + Clone) -> PyResult<()> {
    match allowed
        .iter()
        .find(|allowed| !known.clone().any(|known| known == *allowed))
    {
        None => Ok(()),
        Some(unknown) => Err(PyValueError::new_err(format!(
            "`allow_offset` names `{unknown}`, no stream that is taken (allowed: {})",
            list(known)
        ))),
    }
}

/// The observations do not fit into memory: what is said of it, and the streams.
fn too_many(words: String, stamps: &[Stamps<'_>]) -> PyErr {
    PyMemoryError::new_err((words, spans(stamps)))
}

/// Runs `section`, align or fuse, over `(name, times_ns, values)` of each stream. `arrivals` are names and times of arrival.
#[pyfunction]
#[pyo3(signature = (section, streams, config, most_bytes, invalid, arrivals, allowed, device=None, stream=None))]
#[allow(clippy::too_many_arguments, reason = "Python names them")]
pub fn observe(
    py: Python<'_>,
    section: &str,
    streams: Vec<(String, Bound<'_, PyAny>, Bound<'_, PyAny>)>,
    config: Source,
    most_bytes: u64,
    invalid: Option<f32>,
    arrivals: Vec<(String, Bound<'_, PyAny>)>,
    allowed: Vec<String>,
    device: Option<&str>,
    stream: Option<isize>,
) -> PyResult<Vec<Observed>> {
    let placement = placement(device)?;
    let made = py.detach(|| made(&config, section, placement, Vec::new()));
    let Made {
        aligner,
        left_out,
        pace,
        latencies,
        ..
    } = made.map_err(refusal)?;
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
    let names: Vec<String> = samples.iter().map(|samples| samples.name.clone()).collect();
    check_allowed(&allowed, names.iter().map(String::as_str))?;
    if let Some((unknown, _)) = arrivals.iter().find(|(name, _)| !names.contains(name)) {
        let words = format!(
            "`arrivals_ns` names `{unknown}`, no stream (allowed: {})",
            list(names.iter().map(String::as_str))
        );
        return Err(PyValueError::new_err(words));
    }
    let came = samples.iter().map(|samples| {
        let Some((name, times)) = arrivals.iter().find(|(name, _)| *name == samples.name) else {
            return Ok(None);
        };
        let name = format!("{name}: arrivals_ns");
        let times = arrays.take_to_host(&name, times)?;
        times.expect_dtype(&name, &[Dtype::Int64])?;
        let (came, wanted) = (times.shape(), samples.times.len());
        match came {
            [count] if *count == wanted => Ok(Some(times)),
            _ => Err(PyValueError::new_err(format!(
                "`{name}` has shape {came:?} (allowed: [{wanted}], one for each of its times)"
            ))),
        }
    });
    let came = came.collect::<PyResult<Vec<_>>>()?;
    let stamps: Vec<Stamps<'_>> = samples
        .iter()
        .map(|samples| Stamps {
            name: &samples.name,
            stamps_ns: samples.times.as_slice(),
            samples: samples.times.len(),
        })
        .collect();
    let (run, off) = py.detach(|| {
        let judged = stamps.iter().zip(&latencies).zip(&came).map(|((of, &latency), came)| {
            let came = came.as_ref().map(|came| came.as_slice::<i64>());
            (of.name, of.name, latency, of.stamps_ns, came)
        });
        let off = judge(judged, &allowed)?;
        let most = pace.check(&stamps, most_bytes, true);
        let mut run = Run::new(aligner, most.map_err(|words| too_many(words, &stamps))?)?;
        run.over_arrays(&samples, &stamps)?;
        Ok::<_, PyErr>((run, off))
    })?;
    let about = About {
        left_out,
        spans: spans(&stamps),
        off,
    };
    run.into_observed(py, &names, &about, invalid)
}

/// Runs fuse over a recording, whose streams are `recorded`. `streams` are pairs of an input and the stream that it is recorded
/// as, where that has another name.
#[pyfunction]
#[pyo3(signature = (path, recorded, config, streams, most_bytes, is_gathered, invalid, allowed, device=None, uses_broken=false))]
#[allow(clippy::too_many_arguments, reason = "Python names them")]
pub fn observe_recording(
    py: Python<'_>,
    path: &str,
    recorded: Vec<String>,
    config: Source,
    streams: HashMap<String, String>,
    most_bytes: u64,
    is_gathered: bool,
    invalid: Option<f32>,
    allowed: Vec<String>,
    device: Option<&str>,
    uses_broken: bool,
) -> PyResult<Vec<Observed>> {
    let placement = placement(device)?;
    // What is attached is taken where it was recorded.
    let renamed = streams.iter().filter(|(_, source)| recorded.contains(source));
    let kept = renamed.map(|(input, _)| input.clone());
    let kept = kept.chain(recorded.iter().filter(|name| !streams.contains_key(*name)).cloned());
    let kept = kept.collect();
    let made = py.detach(|| made(&config, "fuse", placement, kept));
    let Made {
        aligner,
        left_out,
        pace,
        latencies,
        readings,
    } = made.map_err(refusal)?;
    let inputs: Vec<String> = aligner.timeline().inputs().map(str::to_owned).collect();
    if let Some(unknown) = streams
        .keys()
        .find(|key| !inputs.contains(key) && !left_out.contains(key))
    {
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
    check_allowed(&allowed, inputs.iter().chain(&sources).map(String::as_str))?;
    let files = sources.iter().map(|source| format!("{path}/{source}.arrow"));
    let mapped = files.map(|file| opened(py, &file, uses_broken));
    let mut mapped = mapped.collect::<PyResult<Vec<Mapped>>>()?;
    let (run, spans, off) = py.detach(|| {
        let times = mapped.iter_mut().zip(&readings).zip(&sources);
        let times = times.map(|((stream, reading), name)| stamps_of(stream, reading, name, path));
        let times = times.collect::<PyResult<Vec<Vec<i64>>>>()?;
        let stamps: Vec<Stamps<'_>> = (0..mapped.len())
            .map(|i| Stamps {
                name: &sources[i],
                stamps_ns: &times[i],
                samples: mapped[i].samples(),
            })
            .collect();
        let judged = stamps.iter().enumerate().map(|(i, of)| {
            let came = mapped[i].arrivals_ns();
            (inputs[i].as_str(), of.name, latencies[i], of.stamps_ns, came)
        });
        let off = judge(judged, &allowed)?;
        let most = pace.check(&stamps, most_bytes, is_gathered);
        let mut run = Run::new(aligner, most.map_err(|words| too_many(words, &stamps))?)?;
        run.over_messages(&mut mapped, &readings, &stamps, path)?;
        Ok::<_, PyErr>((run, spans(&stamps), off))
    })?;
    let about = About { left_out, spans, off };
    run.into_observed(py, &sources, &about, invalid)
}

/// The stamps of a recorded stream, ns, as a node reads them: those that it was recorded with, unless its metadata have others.
fn stamps_of(stream: &mut Mapped, reading: &Reading, name: &str, path: &str) -> PyResult<Vec<i64>> {
    let mut stamps = stream.timestamps_ns().to_vec();
    let mut message = Message::default();
    for (at, stamp) in stamps.iter_mut().enumerate() {
        stream.read(at, &mut message).map_err(unreadable)?;
        let header = &mut message.header;
        // Whether a sender gives stamps does not change from one message to the next.
        if at == 0 && *header.unstamped == 0 && !reading.has_told_stamp() {
            break;
        }
        let words = |error| PyValueError::new_err(format!("{path}: stream `{name}`: message {at}: {error}"));
        reading.restamp(header).map_err(words)?;
        *stamp = message.timestamp_ns();
    }
    Ok(stamps)
}

/// What is said of each stream that has a stamp.
fn spans(streams: &[Stamps<'_>]) -> Vec<Span> {
    let spans = streams.iter().filter_map(|of| {
        let (least, greatest) = (of.stamps_ns.iter().min()?, of.stamps_ns.iter().max()?);
        let back = of.stamps_ns.windows(2).filter(|pair| pair[1] < pair[0]).count();
        let is_back = of.stamps_ns.last() < of.stamps_ns.first();
        let back = if is_back { back } else { 0 };
        Some((of.name.to_owned(), *least, *greatest, of.stamps_ns.len(), back))
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

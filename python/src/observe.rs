//! Align and fuse for whole streams, from arrays or from a recording. Observations have the same bits as those of the nodes.
//! Before the first one is computed, an estimate must show that all of them fit into memory.

use crate::arrays::Arrays;
use crate::config::{Source, placement, refusal};
use crate::extent::{ObservationEstimate, Stamps};
use crate::observed::{Observed, StreamFacts, observed, spans};
use crate::recording::{opened, unreadable};
use crate::run::{Run, Samples};
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
use robocache::app::AppError;
use robocache::device::{Dtype, Placement};
use robocache::ops::align::{AlignConfig, Aligner, Timeline};
use robocache::ops::offsets::{Offset, Offsets, Severity};
use robocache::stream::recording::{self, Indexed};
use robocache::stream::{Message, Selection};
use robocache::time::ms_to_ns;
use std::collections::HashMap;

/// Aligner of a configuration's section `align` or `fuse`, with further settings that a run needs.
struct SectionAligner {
    aligner: Aligner,
    /// Inputs of `attach:` for which the caller gave no stream. They are left out.
    left_out: Vec<String>,
    estimate: ObservationEstimate,
    /// `latency_ms` of each stream in ns: the modalities, then the attached streams.
    latencies: Vec<i64>,
    /// Rules by which a node reads the stamp and the samples of a message, for each stream.
    selections: Vec<Selection>,
}

/// Options of a run that are arguments of the Python call, not settings of the configuration.
struct RunOptions<'a> {
    /// Largest number of bytes that all observations may take.
    most_bytes: u64,
    /// True if Python will also build the array of all windows, `[N, T, D]`, in which rows that several windows share are repeated.
    is_gathered: bool,
    /// Streams whose stamps are not checked against their arrivals, by input or by recorded name.
    allowed: &'a [String],
}

impl SectionAligner {
    /// Makes the aligner of a section on `device`. The inputs of `attach:` that are not in `kept` are left out.
    fn of(py: Python<'_>, source: &Source, section: &str, device: Option<&str>, kept: Vec<String>) -> PyResult<Self> {
        let placement = placement(device)?;
        let made = py.detach(|| made(source, section, placement, kept));
        made.map_err(refusal)
    }

    /// Allocates a run for all observations of the streams, and collects warnings about the streams. `arrivals` are the times at
    /// which the messages of a stream arrived, ns, if known. Refuses streams whose stamps are 1 s or more off, and more
    /// observations than fit into memory.
    fn start(
        self,
        stamps: &[Stamps<'_>],
        inputs: &[String],
        arrivals: &[Option<&[i64]>],
        asked: &RunOptions<'_>,
    ) -> PyResult<(Run, StreamFacts)> {
        let streams = stamps.iter().zip(inputs).zip(&self.latencies).zip(arrivals);
        let judged =
            streams.map(|(((of, input), &latency), &came)| (input.as_str(), of.name, latency, of.stamps_ns, came));
        let about = StreamFacts {
            off: judge(judged, asked.allowed)?,
            spans: spans(stamps),
            left_out: self.left_out,
            by_arrival: false,
        };
        let most = self.estimate.check(stamps, asked.most_bytes, asked.is_gathered);
        // The exception also carries the spans of the streams, in which Python looks for the cause, such as a wrong unit.
        let most = most.map_err(|words| PyMemoryError::new_err((words, about.spans.clone())))?;
        Ok((Run::new(self.aligner, most)?, about))
    }
}

/// Makes the aligner of a section on the devices of `placement`. Refuses triggers by request or timer, which do not exist offline.
fn made(source: &Source, section: &str, placement: Placement, kept: Vec<String>) -> Result<SectionAligner, AppError> {
    let is_split = section == "align";
    let name = if is_split { "align" } else { "fuse" };
    let made = source.build(name, placement, move |app| {
        let mut config: AlignConfig = app.config()?;
        let make = if is_split { Aligner::aligned } else { Aligner::fused };
        // Checks all of `attach`, including the inputs that are left out below.
        make(&config, app.placement()).map_err(|error| app.refused(&error))?;
        let (attach, left_out): (Vec<_>, Vec<_>) = std::mem::take(&mut config.attach)
            .into_iter()
            .partition(|attach| kept.contains(&attach.input));
        config.attach = attach;
        let aligner = make(&config, app.placement()).map_err(|error| app.refused(&error))?;
        let modalities = config.modalities.iter().map(|it| it.latency_ms);
        let latencies = modalities.chain(config.attach.iter().map(|it| it.latency_ms));
        Ok(SectionAligner {
            estimate: ObservationEstimate::new(&config, &aligner),
            latencies: latencies.map(ms_to_ns).collect(),
            left_out: left_out.into_iter().map(|attach| attach.input).collect(),
            selections: config.selections().collect(),
            aligner,
        })
    })?;
    let timeline: &Timeline = made.aligner.timeline();
    if timeline.trigger_input().is_some() {
        let words = format!(
            "trigger: {}: not available offline (allowed: none, stream)",
            timeline.trigger()
        );
        return Err(source.refused(name, words));
    }
    Ok(made)
}

/// Compares the stamps of streams with their times of arrival, except for streams in `allowed`. Items of `streams` are the input,
/// name, latency (ns), stamps and, if known, arrivals. Returns warnings about streams with a small offset; a `ValueError` for
/// streams with a large offset.
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

/// Refuses a name in the argument `allow_offset` that is not in `known`, the names of the streams.
fn check_allowed<'a>(allowed: &[String], known: impl Iterator<Item = &'a str> + Clone) -> PyResult<()> {
    match allowed
        .iter()
        .find(|allowed| !known.clone().any(|known| known == *allowed))
    {
        None => Ok(()),
        Some(unknown) => {
            let mut known: Vec<&str> = known.collect();
            known.sort_unstable();
            known.dedup();
            Err(PyValueError::new_err(format!(
                "`allow_offset` names `{unknown}`, which is not a stream in use (allowed: {})",
                list(known.into_iter())
            )))
        }
    }
}

/// Runs `section`, align or fuse, over the samples of arrays: `(name, times_ns, values)` for each stream. `arrivals` are pairs of a
/// stream's name and its times of arrival, ns. Returns the observations of each output.
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
    let made = SectionAligner::of(py, &config, section, device, Vec::new())?;
    let timeline = made.aligner.timeline();
    for (name, ..) in &streams {
        if timeline.inputs().all(|input| input != name) {
            let words = format!(
                "stream `{name}` is not an input of a modality (allowed: {})",
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
            "`arrivals_ns` names `{unknown}`, which is not a stream (allowed: {})",
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
            order_ns: samples.times.as_slice(),
            samples: samples.times.len(),
        })
        .collect();
    let asked = RunOptions {
        most_bytes,
        is_gathered: true,
        allowed: &allowed,
    };
    let (run, about) = py.detach(|| {
        let came: Vec<_> = came
            .iter()
            .map(|came| came.as_ref().map(|came| came.as_slice()))
            .collect();
        let (mut run, about) = made.start(&stamps, &names, &came, &asked)?;
        run.over_arrays(&samples, &stamps)?;
        Ok::<_, PyErr>((run, about))
    })?;
    observed(py, run, &names, &about, invalid)
}

/// Runs fuse over the recording in the folder `path`, whose streams are `recorded`. An input that was recorded by another name
/// has that name in `streams`. Messages reach the aligner in the order of `arrival` or of `stamp`, as `order` says. With
/// `None` the order is by arrival if the arrivals of all streams are known, never go back, and are not all the same time.
#[pyfunction]
#[pyo3(signature = (path, recorded, config, streams, most_bytes, is_gathered, invalid, allowed, device=None, uses_broken=false, order=None))]
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
    order: Option<&str>,
) -> PyResult<Vec<Observed>> {
    // Inputs of `attach:` stay if they were recorded.
    let renamed = streams.iter().filter(|(_, source)| recorded.contains(source));
    let kept = renamed.map(|(input, _)| input.clone());
    let kept = kept.chain(recorded.iter().filter(|name| !streams.contains_key(*name)).cloned());
    let mut made = SectionAligner::of(py, &config, "fuse", device, kept.collect())?;
    let inputs: Vec<String> = made.aligner.timeline().inputs().map(str::to_owned).collect();
    if let Some(unknown) = streams
        .keys()
        .find(|key| !inputs.contains(key) && !made.left_out.contains(key))
    {
        let allowed = list(inputs.iter().map(String::as_str));
        return Err(PyValueError::new_err(format!(
            "`streams` names `{unknown}`, which is not an input of a modality (allowed: {allowed})"
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
    let indexed = files.map(|file| opened(py, &file, uses_broken));
    let mut indexed = indexed.collect::<PyResult<Vec<Indexed>>>()?;
    let by_arrival = is_by_arrival(order, &indexed, &sources, path)?;
    let selections = std::mem::take(&mut made.selections);
    let asked = RunOptions {
        most_bytes,
        is_gathered,
        allowed: &allowed,
    };
    let (run, about) = py.detach(|| {
        let times = indexed.iter_mut().zip(&selections).zip(&sources);
        let times = times.map(|((stream, selection), name)| stamps_of(stream, selection, name, path));
        let times = times.collect::<PyResult<Vec<Vec<i64>>>>()?;
        let came: Vec<Option<Vec<i64>>> = indexed.iter().map(|of| of.arrivals_ns().map(<[i64]>::to_vec)).collect();
        let arrivals: Vec<Option<&[i64]>> = came.iter().map(Option::as_deref).collect();
        let stamps: Vec<Stamps<'_>> = (0..indexed.len())
            .map(|i| Stamps {
                name: &sources[i],
                stamps_ns: &times[i],
                order_ns: arrivals[i].filter(|_| by_arrival).unwrap_or(&times[i]),
                samples: indexed[i].samples(),
            })
            .collect();
        let (mut run, mut about) = made.start(&stamps, &inputs, &arrivals, &asked)?;
        about.by_arrival = by_arrival;
        run.over_messages(&mut indexed, &selections, &stamps, path)?;
        Ok::<_, PyErr>((run, about))
    })?;
    observed(py, run, &sources, &about, invalid)
}

/// True if messages reach the aligner in the order of their arrival: if `order` says so, or is `None` and all arrivals are known
/// and in order. Refuses `arrival` if a stream does not have them.
fn is_by_arrival(order: Option<&str>, streams: &[Indexed], names: &[String], path: &str) -> PyResult<bool> {
    let unknown = streams
        .iter()
        .zip(names)
        .find(|(stream, _)| stream.arrivals_ns().is_none());
    match (order, unknown) {
        (Some("stamp"), _) => Ok(false),
        (Some("arrival"), Some((_, name))) => Err(PyValueError::new_err(format!(
            "{path}: stream `{name}` has no column `arrival_ns` (allowed: a recording that has it in every stream; \
             otherwise `order=\"stamp\"`)"
        ))),
        (Some("arrival"), None) => Ok(true),
        (None, _) => Ok(recording::are_in_order(streams.iter().map(Indexed::arrivals_ns))),
        (Some(other), _) => Err(PyValueError::new_err(format!(
            "`order` is {other:?} (allowed: \"arrival\", \"stamp\", None for that of arrival if it is known)"
        ))),
    }
}

/// Reads the stamps of a recorded stream, ns, as a node would: from the index of the recording. They are read from the messages
/// if `selection` takes the stamp from a key of the metadata, or the first message was sent without a stamp.
fn stamps_of(stream: &mut Indexed, selection: &Selection, name: &str, path: &str) -> PyResult<Vec<i64>> {
    let mut stamps = stream.timestamps_ns().to_vec();
    let mut message = Message::default();
    for (at, stamp) in stamps.iter_mut().enumerate() {
        stream.read(at, &mut message).map_err(unreadable)?;
        let header = &mut message.header;
        // A sender gives stamps with all of its messages or with none: the first message tells.
        if at == 0 && !header.is_unstamped() && !selection.has_metadata_stamp() {
            break;
        }
        let words = |error| PyValueError::new_err(format!("{path}: stream `{name}`: message {at}: {error}"));
        selection.restamp(header).map_err(words)?;
        *stamp = message.timestamp_ns();
    }
    Ok(stamps)
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    match names.collect::<Vec<_>>() {
        names if names.is_empty() => "none".to_owned(),
        names => names.join(", "),
    }
}

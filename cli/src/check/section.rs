//! Checks of a section's settings against the facts about its streams. They find settings that can't work, or not well. Only
//! known facts are used.

use super::facts::{Kind, StreamFacts};
use super::findings::{Findings, SectionFindings};
use super::units::MANY_BYTES;
use crate::config::{Operation, Section};
use crate::interpolated;
use crate::output::{bytes, figure};
use robocache::app::Config;
use robocache::device::Dtype;
use robocache::ops::align::{AlignConfig, AttachConfig, ModalityConfig};
use robocache::ops::group::GroupingConfig;
use robocache::ops::kinematics::{Chain, InputError, Kinematics, KinematicsConfig};
use robocache::ops::map::MapConfig;
use robocache::ops::voxelize::{VoxelLayout, VoxelizeConfig};
use robocache::stream::{Layout, Message};
use robocache::time::Interpolation;
use std::path::Path;

/// Tolerance of comparisons with a period or a rate: a difference of up to 2 % is not reported, as jitter may cause it.
const TOLERANCE: f64 = 0.98;

/// Time span of messages that an input's queue should hold, s, if the stream's rate is known only from the configuration.
const QUEUE_S: f64 = 0.1;

/// Returns the number of messages that an input's queue should hold, and a description of the setting that implies the input's
/// message rate. `None` if no setting implies a rate.
pub fn least_queue(config: &AlignConfig, input: &str) -> Option<(usize, String)> {
    let modality = config.modalities.iter().find(|modality| modality.input == input)?;
    let (key, limit) = match modality.interpolation {
        Some(Interpolation::Previous) => ("max_age_ms", modality.max_age_ms),
        Some(Interpolation::Nearest) => ("max_age_ms", modality.max_age_ms.map(|most| 2.0 * most)),
        _ => ("max_gap_ms", modality.max_gap_ms),
    };
    let said = [("min_period_ms", modality.min_period_ms), (key, limit)];
    let said = said
        .into_iter()
        .find_map(|(key, ms)| Some((key, ms.filter(|&ms| ms > 0.0)?)));
    let messages = |rate: f64| (rate * QUEUE_S).ceil() as usize;
    match said {
        Some((key, ms)) => Some((
            messages(1e3 / ms),
            format!("{} times a second by its `{key}`", figure(1e3 / ms)),
        )),
        // A stream may be slower than the time grid, but no message may be lost while another is processed.
        None if config.trigger.is_none() => {
            let said = format!("for {} observations a second", figure(config.rate_hz));
            Some((messages(config.rate_hz).min(2), said))
        }
        None => None,
    }
}

/// Checker of a section, with its findings and the facts about its inputs.
struct Checker<'a> {
    found: SectionFindings<'a>,
    input: &'a dyn Fn(&str) -> StreamFacts,
}

pub fn check(file: &Path, operation: &Operation, input: &dyn Fn(&str) -> StreamFacts, findings: &mut Findings) {
    let found = SectionFindings {
        file,
        label: operation.label(),
        findings,
    };
    let mut checker = Checker { found, input };
    match &operation.section {
        Section::Observe(config) => checker.observe(config),
        Section::Voxelize(config) => checker.voxelize(config),
        Section::Group(config) => checker.group(config),
        Section::Clock(config) => checker.found.units_of_clocks(config),
        Section::Kinematics(config) => checker.kinematics(config),
        Section::Map(config) => checker.map(config),
        Section::Record(_) | Section::Replay(_) | Section::Resample | Section::Sim(_) => {}
    }
}

/// Timing settings that a modality and an attached stream have in common.
struct Timing<'a> {
    key: String,
    input: &'a str,
    latency_ms: f64,
    min_period_ms: Option<f64>,
    jump_ms: Option<f64>,
    wait: bool,
}

impl<'a> Timing<'a> {
    fn of_modality(m: usize, config: &'a ModalityConfig) -> Self {
        Self {
            key: format!("modalities[{m}]"),
            input: &config.input,
            latency_ms: config.latency_ms,
            min_period_ms: config.min_period_ms,
            jump_ms: config.jump_ms,
            wait: config.wait,
        }
    }

    fn of_attached(a: usize, config: &'a AttachConfig) -> Self {
        Self {
            key: format!("attach[{a}]"),
            input: &config.input,
            latency_ms: config.latency_ms,
            min_period_ms: config.min_period_ms,
            jump_ms: config.jump_ms,
            wait: config.wait,
        }
    }

    /// Returns the time between two messages of the stream, ms; `None` if neither `known` nor `min_period_ms` gives it.
    fn period_ms(&self, known: &StreamFacts) -> Option<f64> {
        let period = known.rate_hz.map(|rate| 1e3 / rate);
        period.or(self.min_period_ms.filter(|&period| period > 0.0))
    }
}

impl Checker<'_> {
    fn observe(&mut self, config: &AlignConfig) {
        self.found.units_of_observations(config);
        let modalities = config.modalities.iter().enumerate();
        let streams: Vec<Timing<'_>> = modalities
            .map(|(m, modality)| Timing::of_modality(m, modality))
            .chain(
                config
                    .attach
                    .iter()
                    .enumerate()
                    .map(|(a, attach)| Timing::of_attached(a, attach)),
            )
            .collect();
        let known: Vec<StreamFacts> = streams.iter().map(|stream| (self.input)(stream.input)).collect();
        for (stream, known) in streams.iter().zip(&known) {
            self.timing(stream, known);
        }
        self.wait(config, &streams, &known);
        for (m, (modality, known)) in config.modalities.iter().zip(&known).enumerate() {
            if self.check_samples(&streams[m], modality, known) {
                self.limits(&streams[m], modality, known);
            }
        }
        for (key, problem) in interpolated::warnings(config, |input| (self.input)(input).product) {
            self.found.warn(&key, problem);
        }
        let attached = streams.iter().zip(&known).skip(config.modalities.len());
        for (attach, (stream, known)) in config.attach.iter().zip(attached) {
            self.attached(config, attach, stream, known);
        }
        let rates: Option<Vec<f64>> = known[..config.modalities.len()]
            .iter()
            .map(|known| known.rate_hz)
            .collect();
        let fastest = rates.and_then(|rates| rates.into_iter().reduce(f64::max));
        if let Some(fastest) = fastest.filter(|fastest| config.rate_hz * TOLERANCE > *fastest) {
            let rate = figure(config.rate_hz);
            let problem = format!(
                "{rate} Hz, and the fastest stream has {} Hz: rows repeat what was there (allowed: at most as many)",
                figure(fastest)
            );
            self.found.warn("rate_hz", problem);
        }
    }

    fn timing(&mut self, stream: &Timing<'_>, known: &StreamFacts) {
        let period = known.rate_hz.map(|rate| 1e3 / rate);
        if let (Some(least), Some(period)) = (stream.min_period_ms, period)
            && least * TOLERANCE > period
        {
            let problem = format!(
                "{least} ms, and `{}` speaks every {} ms: what comes sooner counts as late (allowed: at most the period)",
                stream.input,
                figure(period)
            );
            self.found.warn(&format!("{}.min_period_ms", stream.key), problem);
        }
        if let (Some(jump), Some(period)) = (stream.jump_ms, stream.period_ms(known))
            && jump < period
        {
            let problem = format!(
                "{jump} ms, and `{}` speaks every {} ms: every sample is a clock jump (allowed: more than that)",
                stream.input,
                figure(period)
            );
            self.found.error(&format!("{}.jump_ms", stream.key), problem);
        }
    }

    /// Checks that `max_wait_ms` covers the delay between the quickest stream and each stream with `wait: true`. Reports `null`
    /// if sensors send the streams.
    fn wait(&mut self, config: &AlignConfig, streams: &[Timing<'_>], known: &[StreamFacts]) {
        let Some(max_wait) = config.max_wait_ms else {
            if known.iter().any(|known| known.rate_hz.is_some() && !known.is_replayed) {
                let problem = "null, and the streams are live: one that falls silent ends all observations (allowed: \
                               a number of ms, after which they go on without it; null is for recordings)";
                self.found.warn("max_wait_ms", problem.to_owned());
            }
            return;
        };
        let delay = |(stream, known): (&Timing<'_>, &StreamFacts)| match known.delay_ms {
            Some(delay) => Some(delay + stream.latency_ms),
            // A sample can't be published before it is stamped.
            None => (stream.latency_ms > 0.0).then_some(stream.latency_ms),
        };
        let delays: Vec<Option<f64>> = streams.iter().zip(known).map(delay).collect();
        let quickest = delays
            .iter()
            .map(|delay| delay.unwrap_or(0.0))
            .fold(f64::INFINITY, f64::min);
        for (stream, delay) in streams.iter().zip(&delays).filter(|(stream, _)| stream.wait) {
            let behind = delay.unwrap_or(0.0) - quickest.max(0.0);
            if behind > max_wait {
                let problem = format!(
                    "{max_wait} ms, and `{}` comes {} ms after the quickest stream: it is masked, and its samples are late \
                     (allowed: that or more)",
                    stream.input,
                    figure(behind)
                );
                self.found.warn("max_wait_ms", problem);
            }
        }
    }

    /// Checks that `max_age_ms` and `max_gap_ms` do not mask a regular stream between its samples.
    fn limits(&mut self, stream: &Timing<'_>, modality: &ModalityConfig, known: &StreamFacts) {
        let Some(period) = stream.period_ms(known) else { return };
        let whole = [(
            stream.key.clone(),
            modality.interpolation,
            modality.max_age_ms,
            modality.max_gap_ms,
        )];
        let groups = modality.groups.iter().enumerate().map(|(g, group)| {
            let key = format!("{}.groups[{g}]", stream.key);
            let mode = group.interpolation.or(modality.interpolation);
            (
                key,
                mode,
                group.max_age_ms.or(modality.max_age_ms),
                group.max_gap_ms.or(modality.max_gap_ms),
            )
        });
        let rules: Vec<_> = if modality.groups.is_empty() {
            whole.into()
        } else {
            groups.collect()
        };
        for (key, mode, max_age, max_gap) in rules {
            let (name, limit, needed) = match mode {
                Some(Interpolation::Previous) => ("max_age_ms", max_age, period),
                Some(Interpolation::Nearest) => ("max_age_ms", max_age, period / 2.0),
                _ => ("max_gap_ms", max_gap, period),
            };
            if let Some(limit) = limit.filter(|&limit| limit < needed * TOLERANCE) {
                let problem = format!(
                    "{limit} ms, and `{}` speaks every {} ms: it is masked between its samples (allowed: {} ms or more)",
                    modality.input,
                    figure(period),
                    figure(needed)
                );
                self.found.warn(&format!("{key}.{name}"), problem);
            }
        }
    }

    /// Reports messages of a wrong kind, or with a wrong number of values. Returns false if the messages can't be samples.
    fn check_samples(&mut self, stream: &Timing<'_>, modality: &ModalityConfig, known: &StreamFacts) -> bool {
        let Some(kind) = &known.kind else { return true };
        if matches!(kind, Kind::Cloud(_) | Kind::Tick) {
            let problem = format!(
                "`{}` is wired to {} (allowed: samples)",
                modality.input,
                kind.in_words()
            );
            self.found.error(&format!("{}.input", stream.key), problem);
            return false;
        }
        if let Some(width) = kind.width().filter(|&width| width != modality.dim) {
            let problem = format!(
                "{}, and a sample of `{}` has {width} values (allowed: as many)",
                modality.dim, modality.input
            );
            self.found.error(&format!("{}.dim", stream.key), problem);
        }
        true
    }

    fn attached(&mut self, config: &AlignConfig, attach: &AttachConfig, stream: &Timing<'_>, known: &StreamFacts) {
        if known.kind == Some(Kind::Tick) {
            let problem = format!(
                "`{}` is wired to a timer, whose ticks hold nothing (allowed: an output of a node)",
                attach.input
            );
            self.found.error(&format!("{}.input", stream.key), problem);
        }
        let Some(period) = stream.period_ms(known) else { return };
        if let Some(max_age) = attach.max_age_ms.filter(|&max_age| max_age < period * TOLERANCE) {
            let problem = format!(
                "{max_age} ms, and `{}` comes every {} ms: rows between are without one (allowed: {} ms or more)",
                attach.input,
                figure(period),
                figure(period)
            );
            self.found.warn(&format!("{}.max_age_ms", stream.key), problem);
        }
        if let Some(payload_bytes) = known.bytes {
            let intervals = attach.rows.unwrap_or(config.window).saturating_sub(1) * config.stride;
            let span_ms = intervals as f64 * 1e3 / config.rate_hz + config.max_wait_ms.unwrap_or(0.0);
            // Two more than the span has: the message before it, which its oldest row may have, and the message after it, which may
            // make its newest row due.
            let messages = (span_ms / period).ceil() + 2.0;
            let needed_mb = messages * super::facts::pooled(payload_bytes) as f64 / f64::from(1 << 20);
            if needed_mb > attach.max_held_mb {
                let problem = format!(
                    "{} MiB, and a window needs {messages} messages of `{}`, {} MiB: the oldest are dropped (allowed: that or more)",
                    attach.max_held_mb,
                    attach.input,
                    figure(needed_mb)
                );
                self.found.warn(&format!("{}.max_held_mb", stream.key), problem);
            }
        }
    }

    fn voxelize(&mut self, config: &VoxelizeConfig) {
        self.found.units_of_grids(config);
        if config.inputs.len() > 1 && config.max_wait_ms.is_none() {
            let problem = "absent with several inputs: one that falls silent ends all grids (allowed: a number of ms, after \
                           which they go on without it)";
            self.found.warn("max_wait_ms", problem.to_owned());
        }
        if config.layout == VoxelLayout::Coo && config.max_voxels.is_none() {
            let problem = "absent: nothing bounds the size of a message (allowed: the most voxels that one may have)";
            self.found.note("max_voxels", problem.to_owned());
        }
        if config.layout == VoxelLayout::Dense && config.dtype != Dtype::Float32 {
            self.counts(config);
        }
        let mut slowest = f64::INFINITY;
        for (i, cloud) in config.inputs.iter().enumerate() {
            let key = format!("inputs[{i}]");
            let known = (self.input)(&cloud.input);
            slowest = slowest.min(known.rate_hz.unwrap_or(f64::INFINITY));
            match &known.kind {
                Some(Kind::Cloud(Some(fields))) => self.fields(config, &cloud.input, fields),
                Some(Kind::Cloud(None)) | None => {}
                Some(kind) => {
                    let problem = format!(
                        "`{}` is wired to {} (allowed: point clouds)",
                        cloud.input,
                        kind.in_words()
                    );
                    self.found.error(&format!("{key}.input"), problem);
                }
            }
        }
        if let Some(grid) = config.message_bytes().filter(|_| slowest.is_finite()) {
            let each_second = grid as f64 * slowest;
            let found = format!(
                "{:?} as `{}` is {} a grid and {} a second",
                config.shape,
                config.layout,
                bytes(grid as u64),
                bytes(each_second as u64)
            );
            if each_second > MANY_BYTES {
                self.found.warn("shape", format!("{found}: `coo` or `bits` send less"));
            } else {
                self.found.note("shape", found);
            }
        }
    }

    fn map(&mut self, config: &MapConfig) {
        self.found.units_of_maps(config);
        if config.max_wait_ms.is_none() {
            let problem = "absent: an input that falls silent stops the map (allowed: a number of ms, after which it goes on \
                           without that input)";
            self.found.warn("max_wait_ms", problem.to_owned());
        }
        for (i, input) in config.inputs.iter().enumerate() {
            let known = (self.input)(&input.input);
            let (is_allowed, allowed) = match (&input.camera, &known.kind) {
                (_, None) => continue,
                (None, kind) => (
                    matches!(kind, Some(Kind::Cloud(_))),
                    "point clouds, or depth images with `camera`",
                ),
                (Some(camera), kind) => {
                    let pixels = camera.width * camera.height;
                    (
                        *kind == Some(Kind::Samples(pixels)),
                        "depth images of the size in `camera`",
                    )
                }
            };
            if let Some(kind) = known.kind.filter(|_| !is_allowed) {
                let problem = format!("`{}` is wired to {} (allowed: {allowed})", input.input, kind.in_words());
                self.found.error(&format!("inputs[{i}].input"), problem);
            }
        }
        for (name, pose) in &config.poses {
            let known = (self.input)(&pose.input);
            let is_allowed = matches!(known.kind, None | Some(Kind::Samples(7 | 13)));
            if let Some(kind) = known.kind.filter(|_| !is_allowed && pose.from.is_none()) {
                let problem = format!(
                    "`{}` is wired to {} (allowed: samples of 7 values, x y z and a quaternion, or 13 with velocities)",
                    pose.input,
                    kind.in_words()
                );
                self.found.error(&format!("poses.{name}.input"), problem);
            }
        }
    }

    /// Checks that recorded samples are joints or poses that the entries of `kinematics:` can convert. Each entry is tried with
    /// the smallest and the largest recorded values.
    fn kinematics(&mut self, config: &KinematicsConfig) {
        for (i, entry) in config.entries.iter().enumerate() {
            let known = (self.input)(&entry.input);
            let is_made = config.entries[..i]
                .iter()
                .any(|earlier| earlier.outputs().any(|made| made == entry.input));
            let Some(kind) = known.kind.as_ref().filter(|_| !is_made && entry.from.is_none()) else {
                continue;
            };
            let at = format!("[{i}].input: `{}`", entry.input);
            let Kind::Samples(width) = kind else {
                let problem = format!("{at} is wired to {} (allowed: samples)", kind.in_words());
                self.found.refused(problem);
                continue;
            };
            // A chain that can't be read is reported already.
            let Ok(chain) =
                Config::read(self.found.file).and_then(|file| file.chain("kinematics", "chain", &entry.chain))
            else {
                continue;
            };
            let Ok(mut kinematics) = Kinematics::new(entry, i, &chain) else {
                continue;
            };
            for message in extremes(&known, *width) {
                match kinematics.read(&message) {
                    Err(error) => self
                        .found
                        .refused(format!("{at}: {error}{}", allowed_joints(&error, &chain))),
                    Ok(()) => {
                        let too_large = kinematics.refused().find(|row| row.reason.is_range());
                        let doubts = kinematics.implausible().map(|value| value.to_string());
                        let doubts = doubts.or(too_large.map(|row| row.to_string()));
                        let unnamed = kinematics.unnamed().map(|unnamed| unnamed.to_string());
                        if let Some(problem) = unnamed {
                            self.found.warn_of_entry(format!("{at}: {problem}"));
                        }
                        match doubts {
                            Some(problem) => self.found.warn_of_entry(format!("{at}: {problem}")),
                            None => continue,
                        }
                    }
                }
                break;
            }
        }
    }

    /// Warns of a voxel channel `count` whose `dtype` can't represent large counts.
    fn counts(&mut self, config: &VoxelizeConfig) {
        if config.channels.iter().any(|channel| channel.to_string() == "count") {
            let problem = format!(
                "`{}` can't tell counts above its precision apart (allowed: float32)",
                config.dtype
            );
            self.found.warn("dtype", problem);
        }
    }

    /// Checks that the clouds have the fields from which the channels of a grid are computed.
    fn fields(&mut self, config: &VoxelizeConfig, input: &str, fields: &[String]) {
        for (c, channel) in config.channels.iter().map(ToString::to_string).enumerate() {
            let of = ["mean_", "max_", "min_"]
                .iter()
                .find_map(|prefix| channel.strip_prefix(prefix));
            if let Some(field) = of.filter(|field| !fields.iter().any(|came| came == field)) {
                let fields = fields.join(", ");
                let problem =
                    format!("`{channel}`, and the clouds of `{input}` have no field `{field}` (they have {fields})");
                self.found.error(&format!("channels[{c}]"), problem);
            }
        }
    }

    fn group(&mut self, config: &GroupingConfig) {
        self.found.units_of_groups(config);
        let known: Vec<StreamFacts> = config.inputs.iter().map(|input| (self.input)(&input.input)).collect();
        let slowest = known
            .iter()
            .filter_map(|known| known.rate_hz)
            .fold(f64::INFINITY, f64::min);
        for (i, (input, known)) in config.inputs.iter().zip(&known).enumerate() {
            if let (Some(least), Some(rate)) = (input.min_period_ms, known.rate_hz)
                && least * TOLERANCE > 1e3 / rate
            {
                let problem = format!(
                    "{least} ms, and `{}` speaks every {} ms: sets may not be the best (allowed: at most that)",
                    input.input,
                    figure(1e3 / rate)
                );
                self.found.warn(&format!("inputs[{i}].min_period_ms"), problem);
            }
            let waits = known.rate_hz.map_or(0.0, |rate| (rate / slowest).ceil());
            if waits > config.queue_size as f64 {
                let problem = format!(
                    "{}, and {waits} messages of `{}` come between two of the slowest input: the oldest are dropped \
                     (allowed: as many or more)",
                    config.queue_size, input.input
                );
                self.found.warn("queue_size", problem);
            }
        }
    }
}

/// Makes two messages of one sample each: the smallest and the largest recorded number of each value. A value that was not
/// recorded is 0.
fn extremes(known: &StreamFacts, width: usize) -> [Message; 2] {
    [0, 1].map(|end| {
        let mut message = Message::default();
        message.write(&Layout::flat(Dtype::Float64, width), |payload, header| {
            let values = payload.column::<f64>(0);
            values.fill(0.0);
            for (value, seen) in values.iter_mut().zip(&known.extremes) {
                // A value that was never finite has no extremes.
                *value = if seen[0] <= seen[1] { seen[end] } else { 0.0 };
            }
            header.timestamp_ns.set(1);
            if !known.fields.is_empty() {
                header.fields.set(&known.fields);
            }
        });
        message
    })
}

/// Returns text to append to an error about a sample: the names of the chain's joints, and what is allowed. Empty if the error is
/// not about joints.
fn allowed_joints(error: &InputError, chain: &Chain) -> String {
    let names: Vec<&str> = chain.joints().iter().map(|joint| joint.name.as_str()).collect();
    let names = names.join(", ");
    match error {
        InputError::Missing { .. } => format!(
            "; the chain has {names} (allowed: these names in any order, or `channels` for values in this order)"
        ),
        InputError::Samples(_) | InputError::Narrow { .. } => {
            format!("; the chain has {names} (allowed: as many, or `channels: [first, end]`)")
        }
        _ => String::new(),
    }
}

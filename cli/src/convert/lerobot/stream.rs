//! Streams whose samples become features of a dataset directly, without interpolation by fuse. A sample is dropped only if no
//! later frame can need it, or if the clock was set.

use super::by_chain::ChainConverter;
use super::config::Take;
use eyre::bail;
use robocache::device::Dtype;
use robocache::formats::lerobot::{Feature, Kind};
use robocache::stream::{Message, MetadataValue};
use std::collections::VecDeque;

/// Step back of a stream's stamps, ns, above which the stream's clock counts as set back.
const RESET_NS: i64 = 1_000_000_000;

/// Distance of a sample from a target, ns, beyond which the clock counts as set in between.
const FAR_NS: u64 = 10_000_000_000;

/// Stream whose samples become a feature.
pub struct FeatureStream {
    /// Name of the feature that the samples become.
    pub feature: String,
    /// Name of the stream in the recording.
    pub name: String,
    pub content: FeatureContent,
    pub take: Take,
    pub max_age_ns: i64,
    pub latency_ns: i64,
    /// Converter of the samples by a kinematic chain; `None` if the feature has no conversion.
    pub by_chain: Option<ChainConverter>,
    /// Index of the first frame after a jump between solutions of the inverse kinematics; `None` if there was none.
    pub changed_frame: Option<u64>,
    /// Type and shape of the samples; `None` until the first sample arrives.
    form: Option<Form>,
    names: Option<Vec<String>>,
    /// Samples that a later frame may still need, by capture time, ascending.
    samples: VecDeque<Sample>,
    newest_ns: i64,
    /// Number of samples with a value that is not finite.
    pub nonfinite: u64,
    /// True if samples with a value that is not finite are kept, but are not valid.
    pub keeps_nonfinite: bool,
    /// Number of samples that arrived after the frame that they belong to had been written.
    pub late: u64,
    /// Capture time up to which frames have used the samples, ns. A sample that arrives with this time or an earlier one
    /// is late.
    settled_ns: i64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum FeatureContent {
    Numbers { is_bool: bool },
    Images,
    Window(usize),
}

struct Form {
    dtype: Dtype,
    shape: Vec<usize>,
}

struct Sample {
    time_ns: i64,
    bytes: Vec<u8>,
    is_finite: bool,
}

/// Samples of a stream that a frame gets, as a range of the stream's queue.
pub struct FoundSamples {
    /// Capture time of the newest sample that the frame gets, ns; `None` if there is none.
    pub time_ns: Option<i64>,
    pub is_valid: bool,
    /// Range of the frame's samples in the stream's queue, `from..to`.
    from: usize,
    to: usize,
}

impl FeatureStream {
    pub fn new(feature: &str, name: &str, content: FeatureContent, names: Option<Vec<String>>) -> Self {
        Self {
            feature: feature.to_owned(),
            name: name.to_owned(),
            content,
            take: Take::default(),
            max_age_ns: i64::MAX,
            latency_ns: 0,
            by_chain: None,
            changed_frame: None,
            form: None,
            names,
            samples: VecDeque::new(),
            newest_ns: i64::MIN,
            nonfinite: 0,
            keeps_nonfinite: false,
            late: 0,
            settled_ns: i64::MIN,
        }
    }

    /// True if the stream has passed the target, so that all samples that the frame at the target needs have arrived.
    pub fn is_past(&self, target_ns: i64) -> bool {
        let is_near = |time_ns: i64| target_ns.abs_diff(time_ns) <= FAR_NS;
        self.newest_ns >= target_ns && (is_near(self.newest_ns) || self.find(target_ns).time_ns.is_some_and(is_near))
    }

    /// The feature that the stream becomes; `None` until the first sample arrives.
    pub fn feature(&self) -> Option<Feature> {
        let form = self.form.as_ref()?;
        let (kind, shape) = match self.content {
            FeatureContent::Images => (Kind::Image, form.shape.clone()),
            FeatureContent::Numbers { is_bool: true } => (Kind::Bool, form.shape.clone()),
            FeatureContent::Numbers { is_bool: false } => (Kind::Numbers(form.dtype), form.shape.clone()),
            FeatureContent::Window(samples) => {
                let shape = [samples].into_iter().chain(form.shape.iter().copied());
                (Kind::Numbers(form.dtype), shape.collect())
            }
        };
        Some(Feature::new(&self.feature, kind, shape).with_names(self.names.iter().flatten()))
    }

    /// True if the stream's clock was set back before this message, by more than a second.
    pub fn is_reset(&self, message: &Message) -> bool {
        let time_ns = message.timestamp_ns().saturating_sub(self.latency_ns);
        time_ns < self.newest_ns.saturating_sub(RESET_NS)
    }

    /// Drops all samples and their times, because the stream's clock was set.
    pub fn clear(&mut self) {
        self.samples.clear();
        self.newest_ns = i64::MIN;
        self.settled_ns = i64::MIN;
    }

    /// Stores `frame` as `changed_frame` if it is the first whose newest sample is at or after a jump between solutions of the
    /// inverse kinematics.
    pub fn note_frame(&mut self, found: &FoundSamples, frame: u64) {
        let changes = self.by_chain.as_ref().and_then(ChainConverter::changes);
        if let (None, Some((_, stamp_ns)), Some(time_ns)) = (self.changed_frame, changes, found.time_ns)
            && time_ns >= stamp_ns.saturating_sub(self.latency_ns)
        {
            self.changed_frame = Some(frame);
        }
    }

    /// Adds the samples of a message to the queue.
    ///
    /// # Errors
    /// The reason why the message is not a sample of this feature.
    pub fn push(&mut self, message: &Message) -> eyre::Result<()> {
        match self.content {
            FeatureContent::Images => self.push_image(message),
            _ => match self.by_chain.take() {
                None => self.push_numbers(message),
                Some(mut by_chain) => {
                    let converted = by_chain.convert(message);
                    let pushed = converted.and_then(|message| self.push_numbers(message));
                    self.by_chain = Some(by_chain);
                    pushed
                }
            },
        }
    }

    fn push_numbers(&mut self, message: &Message) -> eyre::Result<()> {
        let Some(values) = message.flat() else {
            bail!("a struct (allowed: a tensor; of a struct make a modality, with `from:`)");
        };
        let header = &message.header;
        let rows = message.stamps().len();
        let has_rows = header.timestamps_ns.get().is_some_and(|stamps| !stamps.is_empty());
        let shape = match header.shape.get().unwrap_or_default() {
            [] => vec![values.len() / rows],
            [_, inner @ ..] if has_rows => inner.iter().map(|&n| n as usize).collect(),
            shape => shape.iter().map(|&n| n as usize).collect(),
        };
        let shape = if shape.is_empty() { vec![1] } else { shape };
        // A dataset can't hold float16 and bfloat16; float32 represents all of their values.
        let is_half = matches!(values.dtype(), Dtype::Float16 | Dtype::BFloat16);
        let dtype = if is_half { Dtype::Float32 } else { values.dtype() };
        let fields = header.fields.get().unwrap_or_default();
        if self.names.is_none() && shape.len() == 1 && fields.len() == shape[0] {
            self.names = Some(fields.to_vec());
        }
        let is_bool = matches!(self.content, FeatureContent::Numbers { is_bool: true });
        if is_bool && (dtype != Dtype::UInt8 || values.bytes().iter().any(|&value| value > 1)) {
            bail!("it is not a bool (allowed: uint8, each 0 or 1)");
        }
        let width = (shape.len() == 1).then_some(shape[0]);
        self.check_form(dtype, shape)?;
        if let (Some(names), Some(width)) = (&self.names, width)
            && names.len() != width
        {
            bail!(
                "names: {}, and a sample has {width} values (allowed: as many)",
                names.len()
            );
        }
        for sample in message.samples(values.len() / rows)? {
            let mut wide = vec![0.0; sample.values.len()];
            let is_float = matches!(dtype, Dtype::Float32 | Dtype::Float64);
            let is_finite = match sample.values.dtype() {
                Dtype::Float64 => sample.values.as_slice::<f64>().iter().all(|value| value.is_finite()),
                _ if is_float => {
                    sample.values.to_f32(&mut wide);
                    wide.iter().all(|value| value.is_finite())
                }
                _ => true,
            };
            if !is_finite {
                self.nonfinite += 1;
                if !self.keeps_nonfinite {
                    continue;
                }
            }
            let bytes = if is_half {
                wide.iter().flat_map(|value| value.to_le_bytes()).collect()
            } else {
                sample.values.bytes().to_vec()
            };
            self.insert(sample.stamp_ns, bytes, is_finite);
        }
        Ok(())
    }

    fn push_image(&mut self, message: &Message) -> eyre::Result<()> {
        let allowed = "allowed: uint8, `shape` [height, width], [height, width, 1] or [height, width, 3]";
        let Some(values) = message.flat().filter(|values| values.dtype() == Dtype::UInt8) else {
            bail!("it is not an image ({allowed})");
        };
        let shape: Vec<usize> = match message.header.shape.get().unwrap_or_default() {
            &[height, width] => vec![height as usize, width as usize, 1],
            &[height, width, channels @ (1 | 3)] => vec![height as usize, width as usize, channels as usize],
            other => bail!("an image of `shape` {other:?} ({allowed})"),
        };
        let encoding = match message.header.other.get("encoding") {
            Some(MetadataValue::String(encoding)) => encoding.to_lowercase(),
            _ => String::new(),
        };
        let mut pixels = values.bytes().to_vec();
        match (encoding.as_str(), shape[2]) {
            ("" | "rgb" | "rgb8", 3) | ("" | "mono8" | "8uc1", 1) => {}
            ("bgr" | "bgr8" | "8uc3", 3) => pixels.chunks_exact_mut(3).for_each(|pixel| pixel.swap(0, 2)),
            _ => bail!(
                "an image of {} channels in `{encoding}` (allowed: rgb8, bgr8, mono8)",
                shape[2]
            ),
        }
        self.check_form(Dtype::UInt8, shape)?;
        self.insert(message.timestamp_ns(), pixels, true);
        Ok(())
    }

    fn check_form(&mut self, dtype: Dtype, shape: Vec<usize>) -> eyre::Result<()> {
        let form = self.form.get_or_insert_with(|| Form {
            dtype,
            shape: shape.clone(),
        });
        if form.dtype != dtype || form.shape != shape {
            bail!(
                "{dtype} {shape:?}, and the first was {} {:?} (allowed: the same)",
                form.dtype,
                form.shape
            );
        }
        Ok(())
    }

    fn insert(&mut self, stamp_ns: i64, bytes: Vec<u8>, is_finite: bool) {
        let time_ns = stamp_ns.saturating_sub(self.latency_ns);
        self.late += u64::from(time_ns <= self.settled_ns);
        let at = self.samples.partition_point(|sample| sample.time_ns <= time_ns);
        // If two samples have the same time, the later arrival wins.
        match at.checked_sub(1).map(|before| &mut self.samples[before]) {
            Some(same) if same.time_ns == time_ns => (same.bytes, same.is_finite) = (bytes, is_finite),
            _ => {
                let sample = Sample {
                    time_ns,
                    bytes,
                    is_finite,
                };
                self.samples.insert(at, sample);
            }
        }
        self.newest_ns = self.newest_ns.max(time_ns);
    }

    /// Finds the samples for the frame at a target. They are valid if they are complete, near enough and finite.
    pub fn find(&self, target_ns: i64) -> FoundSamples {
        let past = self.samples.partition_point(|sample| sample.time_ns <= target_ns);
        let (from, to) = match (self.content, self.take) {
            (FeatureContent::Window(samples), _) => (past.saturating_sub(samples), past),
            (_, Take::Previous) => (past.saturating_sub(1), past),
            (_, Take::Next) => {
                let first = self.samples.partition_point(|sample| sample.time_ns < target_ns);
                (first, (first + 1).min(self.samples.len()))
            }
        };
        let time_ns = (from < to).then(|| self.samples[to - 1].time_ns);
        let is_near = time_ns.is_some_and(|time_ns| target_ns.abs_diff(time_ns) <= self.max_age_ns as u64);
        let is_whole = !matches!(self.content, FeatureContent::Window(samples) if to - from < samples);
        FoundSamples {
            time_ns,
            is_valid: is_near && is_whole && self.samples.range(from..to).all(|sample| sample.is_finite),
            from,
            to,
        }
    }

    /// Appends to `out` the bytes of the samples that were found. Samples that are missing are zeros, at the front.
    pub fn write(&self, found: &FoundSamples, out: &mut Vec<u8>) {
        out.resize(out.len() + self.missing(found) * self.sample_bytes(), 0);
        for sample in self.samples.range(found.from..found.to) {
            out.extend_from_slice(&sample.bytes);
        }
    }

    /// The capture times of a window's samples, ns, ascending; at the front -1 for each sample that is missing.
    pub fn times<'a>(&'a self, found: &FoundSamples) -> impl Iterator<Item = i64> + 'a {
        let there = self.samples.range(found.from..found.to).map(|sample| sample.time_ns);
        std::iter::repeat_n(-1, self.missing(found)).chain(there)
    }

    fn missing(&self, found: &FoundSamples) -> usize {
        let all = if let FeatureContent::Window(samples) = self.content {
            samples
        } else {
            1
        };
        all - (found.to - found.from)
    }

    fn sample_bytes(&self) -> usize {
        let form = self.form.as_ref();
        form.map_or(0, |form| form.shape.iter().product::<usize>() * form.dtype.size())
    }

    /// Drops the samples that no frame after the one at `target_ns` needs.
    pub fn end_frame(&mut self, target_ns: i64) {
        self.settled_ns = match self.take {
            Take::Previous => target_ns,
            Take::Next => self.find(target_ns).time_ns.unwrap_or(target_ns),
        };
        let past = self.samples.partition_point(|sample| sample.time_ns <= target_ns);
        let kept = if let FeatureContent::Window(samples) = self.content {
            samples
        } else {
            1
        };
        self.samples.drain(..past.saturating_sub(kept));
    }
}

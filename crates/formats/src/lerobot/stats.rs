//! Statistics of features, by which policies normalise.

use rayon::prelude::*;
use serde_json::{Value, json};

/// Quantiles that LeRobot has, and what it calls them.
const QUANTILES: [(&str, f64); 5] = [("q01", 0.01), ("q10", 0.1), ("q50", 0.5), ("q90", 0.9), ("q99", 0.99)];

/// Frames that quantiles are taken of, at most.
pub(super) const MOST_SAMPLED: usize = 1 << 16;

/// The statistics of a feature, in the shape that they have in a dataset.
pub(super) struct Summary {
    /// Of each: its name, and a value for each element.
    pub values: Vec<(&'static str, Vec<f64>)>,
    /// Frames.
    pub count: u64,
    pub shape: Vec<usize>,
}

/// What has been seen of a feature, in the episode and in all.
pub(super) enum Stats {
    Numbers { episode: Numbers, whole: Numbers },
    Images { episode: Pixels, whole: Pixels },
}

/// Moments of each element of a frame over frames, and frames to take quantiles of.
pub(super) struct Numbers {
    shape: Vec<usize>,
    elements: Vec<Moments>,
    sample: Sample,
}

/// Frames: all up to [`MOST_SAMPLED`], then every second, fourth, ... one.
struct Sample {
    /// Elements of a frame.
    width: usize,
    /// Frames that came.
    count: u64,
    /// `[frames, elements]`.
    frames: Vec<f64>,
    /// How many frames one of these stands for.
    every: u64,
}

/// Of the values that are finite.
#[derive(Clone, Copy)]
struct Moments {
    count: u64,
    min: f64,
    max: f64,
    mean: f64,
    /// Sum of the squares of deviations from the mean.
    squares: f64,
}

impl Moments {
    const NONE: Self = Self {
        count: 0,
        min: f64::INFINITY,
        max: f64::NEG_INFINITY,
        mean: 0.0,
        squares: 0.0,
    };

    /// Of both: Chan's formula.
    fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        let (own, others) = (self.count as f64, other.count as f64);
        let (all, step) = (own + others, other.mean - self.mean);
        self.count += other.count;
        self.mean += step * (others / all);
        self.squares += other.squares + step * step * (own * others / all);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }
}

/// Of each element over these frames, `[frames, elements]`.
fn moments_of(values: &[f64], width: usize) -> Vec<Moments> {
    let mut elements = vec![Moments::NONE; width];
    for frame in values.chunks_exact(width) {
        for (moments, &value) in elements.iter_mut().zip(frame) {
            let is_finite = value.is_finite();
            let or = |other| if is_finite { value } else { other };
            moments.count += u64::from(is_finite);
            moments.mean += or(0.0);
            moments.min = moments.min.min(or(f64::INFINITY));
            moments.max = moments.max.max(or(f64::NEG_INFINITY));
        }
    }
    for moments in &mut elements {
        moments.mean /= moments.count.max(1) as f64;
    }
    for frame in values.chunks_exact(width) {
        for (moments, &value) in elements.iter_mut().zip(frame) {
            let off = if value.is_finite() { value - moments.mean } else { 0.0 };
            moments.squares += off * off;
        }
    }
    elements
}

impl Sample {
    fn new(width: usize) -> Self {
        Self {
            width,
            count: 0,
            frames: Vec::new(),
            every: 1,
        }
    }

    fn add(&mut self, values: &[f64]) {
        for frame in values.chunks_exact(self.width) {
            if self.count.is_multiple_of(self.every) {
                self.frames.extend_from_slice(frame);
                if self.frames.len() == MOST_SAMPLED * self.width {
                    self.thin();
                }
            }
            self.count += 1;
        }
    }

    /// Keeps every second frame.
    fn thin(&mut self) {
        let (width, kept) = (self.width, self.frames.len() / self.width / 2);
        for frame in 0..kept {
            let from = 2 * frame * width;
            self.frames.copy_within(from..from + width, frame * width);
        }
        self.frames.truncate(kept * width);
        self.every *= 2;
    }

    /// The quantiles of each element.
    fn quantiles(&self) -> Vec<[f64; 5]> {
        let elements = (0..self.width).into_par_iter();
        elements
            .map_init(Vec::new, |column, element| {
                column.clear();
                let values = self.frames.iter().skip(element).step_by(self.width);
                column.extend(values.copied().filter(|value| value.is_finite()));
                quantiles(column)
            })
            .collect()
    }
}

impl Numbers {
    fn new(shape: &[usize]) -> Self {
        let width = shape.iter().product();
        Self {
            shape: shape.to_vec(),
            elements: vec![Moments::NONE; width],
            sample: Sample::new(width),
        }
    }

    fn merge(&mut self, elements: &[Moments]) {
        for (moments, other) in self.elements.iter_mut().zip(elements) {
            moments.merge(other);
        }
    }

    /// What it comes to, zeros for an element without a finite value.
    fn summary(&self) -> Summary {
        let each = |of: fn(&Moments) -> f64| {
            let of = |moments: &Moments| if moments.count == 0 { 0.0 } else { of(moments) };
            self.elements.iter().map(of).collect()
        };
        let moments = [
            ("min", each(|moments| moments.min)),
            ("max", each(|moments| moments.max)),
            ("mean", each(|moments| moments.mean)),
            ("std", each(|moments| (moments.squares / moments.count as f64).sqrt())),
        ];
        let elements = self.sample.quantiles();
        let quantiles = QUANTILES
            .iter()
            .enumerate()
            .map(|(i, (name, _))| (*name, elements.iter().map(|quantiles| quantiles[i]).collect()));
        Summary {
            values: moments.into_iter().chain(quantiles).collect(),
            count: self.sample.count,
            shape: self.shape.clone(),
        }
    }
}

/// The quantiles of these values, which are reordered: NumPy's `linear`. Zeros where there are none.
fn quantiles(values: &mut [f64]) -> [f64; 5] {
    if values.is_empty() {
        return [0.0; 5];
    }
    let last = values.len() - 1;
    let mut sorted = 0;
    QUANTILES.map(|(_, quantile)| {
        let at = quantile * last as f64;
        let (below, part) = (at as usize, at.fract());
        // What is below the last quantile is in its place already.
        let (_, &mut low, above) = values[sorted..].select_nth_unstable_by(below - sorted, f64::total_cmp);
        let high = above.iter().copied().min_by(f64::total_cmp).unwrap_or(low);
        sorted = below;
        // Exact at either end, as NumPy's.
        if part < 0.5 {
            low + (high - low) * part
        } else {
            high - (high - low) * (1.0 - part)
        }
    })
}

/// How often each value of each channel came: everything else follows from it.
pub(super) struct Pixels {
    count: u64,
    channels: Vec<[u64; 256]>,
}

impl Pixels {
    fn new(channels: usize) -> Self {
        Self {
            count: 0,
            channels: vec![[0; 256]; channels],
        }
    }

    /// Takes an image, row-major with its channels side by side.
    fn add(&mut self, pixels: &[u8]) {
        self.count += 1;
        let channels = self.channels.len();
        for pixel in pixels.chunks_exact(channels) {
            for (counts, &value) in self.channels.iter_mut().zip(pixel) {
                counts[value as usize] += 1;
            }
        }
    }

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        for (counts, others) in self.channels.iter_mut().zip(&other.channels) {
            counts.iter_mut().zip(others).for_each(|(count, other)| *count += other);
        }
    }

    /// What it comes to, in 0 to 1.
    fn summary(&self) -> Summary {
        let each = |of: &dyn Fn(&[u64; 256]) -> f64| self.channels.iter().map(|counts| of(counts) / 255.0).collect();
        let of_quantile = |quantile: f64| {
            each(&move |counts| {
                let at = quantile * total(counts).saturating_sub(1) as f64;
                let (low, high) = (ranked(counts, at as u64), ranked(counts, at.ceil() as u64));
                low + (high - low) * at.fract()
            })
        };
        let moments = [
            ("min", each(&|counts| ranked(counts, 0))),
            ("max", each(&|counts| ranked(counts, total(counts).saturating_sub(1)))),
            ("mean", each(&mean)),
            (
                "std",
                each(&|counts| {
                    let mean = mean(counts);
                    weighted(counts, |value| (value - mean) * (value - mean)).sqrt()
                }),
            ),
        ];
        let quantiles = QUANTILES.map(|(name, quantile)| (name, of_quantile(quantile)));
        Summary {
            values: moments.into_iter().chain(quantiles).collect(),
            count: self.count,
            shape: vec![self.channels.len(), 1, 1],
        }
    }
}

fn total(counts: &[u64; 256]) -> u64 {
    counts.iter().sum()
}

/// The value of this rank among all.
fn ranked(counts: &[u64; 256], rank: u64) -> f64 {
    let mut before = 0;
    let value = counts.iter().position(|&count| {
        before += count;
        before > rank
    });
    value.unwrap_or(0) as f64
}

fn weighted(counts: &[u64; 256], of: impl Fn(f64) -> f64) -> f64 {
    let sum: f64 = counts
        .iter()
        .enumerate()
        .map(|(value, &count)| of(value as f64) * count as f64)
        .sum();
    sum / total(counts).max(1) as f64
}

fn mean(counts: &[u64; 256]) -> f64 {
    weighted(counts, |value| value)
}

impl Stats {
    pub fn of_numbers(shape: &[usize]) -> Self {
        Self::Numbers {
            episode: Numbers::new(shape),
            whole: Numbers::new(shape),
        }
    }

    pub fn of_images(channels: usize) -> Self {
        Self::Images {
            episode: Pixels::new(channels),
            whole: Pixels::new(channels),
        }
    }

    /// Takes frames of numbers, `[frames, elements]`.
    pub fn add_numbers(&mut self, values: &[f64]) {
        if let Self::Numbers { episode, whole } = self {
            episode.merge(&moments_of(values, episode.elements.len()));
            episode.sample.add(values);
            whole.sample.add(values);
        }
    }

    /// Takes an image, row-major with its channels side by side.
    pub fn add_image(&mut self, pixels: &[u8]) {
        if let Self::Images { episode, .. } = self {
            episode.add(pixels);
        }
    }

    /// What the episode comes to. The next frames are of another one.
    pub fn end_episode(&mut self) -> Summary {
        match self {
            Self::Numbers { episode, whole } => {
                whole.merge(&episode.elements);
                let ended = std::mem::replace(episode, Numbers::new(&whole.shape));
                ended.summary()
            }
            Self::Images { episode, whole } => {
                whole.merge(episode);
                let ended = std::mem::replace(episode, Pixels::new(whole.channels.len()));
                ended.summary()
            }
        }
    }

    /// What all episodes that have ended come to.
    pub fn whole(&self) -> Summary {
        match self {
            Self::Numbers { whole, .. } => whole.summary(),
            Self::Images { whole, .. } => whole.summary(),
        }
    }
}

impl Summary {
    /// As `stats.json` has it.
    pub fn json(&self) -> Value {
        let stats = self
            .values
            .iter()
            .map(|(name, values)| ((*name).to_owned(), nested(values, &self.shape)));
        stats
            .chain([("count".to_owned(), json!([self.count]))])
            .collect::<serde_json::Map<_, _>>()
            .into()
    }
}

fn nested(values: &[f64], shape: &[usize]) -> Value {
    match shape {
        [] => values.first().map_or(Value::Null, |&value| json!(value)),
        [_, inner @ ..] => values
            .chunks(inner.iter().product::<usize>().max(1))
            .map(|values| nested(values, inner))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<'a>(summary: &'a Summary, name: &str) -> &'a [f64] {
        &summary.values.iter().find(|(each, _)| *each == name).unwrap().1
    }

    #[test]
    fn a_ramp_has_the_statistics_of_numpy() {
        let mut stats = Stats::of_numbers(&[2]);
        // 0 to 100, and its negative without the one at 50; in two batches.
        let frames: Vec<f64> = (0..=100)
            .flat_map(|i| [f64::from(i), if i == 50 { f64::NAN } else { -f64::from(i) }])
            .collect();
        stats.add_numbers(&frames[..60]);
        stats.add_numbers(&frames[60..]);
        let summary = stats.end_episode();
        assert_eq!(summary.count, 101);
        assert_eq!(
            (of(&summary, "min"), of(&summary, "max")),
            (&[0.0, -100.0][..], &[100.0, 0.0][..])
        );
        assert_eq!(of(&summary, "mean")[0], 50.0);
        assert!((of(&summary, "mean")[1] + 50.0).abs() < 1e-12);
        assert!((of(&summary, "std")[0] - 850f64.sqrt()).abs() < 1e-12);
        assert!((of(&summary, "std")[1] - 858.5f64.sqrt()).abs() < 1e-12);
        let quantiles = ["q01", "q10", "q50", "q90", "q99"].map(|name| of(&summary, name)[0]);
        assert_eq!(quantiles, [1.0, 10.0, 50.0, 90.0, 99.0]);
        // Of 100 values the median lies between the two in the middle.
        assert_eq!(of(&summary, "q50")[1], -50.0);
    }

    #[test]
    fn episodes_add_up_to_all() {
        let mut stats = Stats::of_numbers(&[1]);
        stats.add_numbers(&[1.0, 2.0]);
        assert_eq!(of(&stats.end_episode(), "mean"), [1.5]);
        stats.add_numbers(&[6.0]);
        let second = stats.end_episode();
        assert_eq!(
            (of(&second, "mean"), of(&second, "std"), second.count),
            (&[6.0][..], &[0.0][..], 1)
        );
        let whole = stats.whole();
        assert_eq!(
            (of(&whole, "mean"), of(&whole, "q50"), whole.count),
            (&[3.0][..], &[2.0][..], 3)
        );
        assert!((of(&whole, "std")[0] - (14f64 / 3.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn many_frames_are_sampled_evenly() {
        let mut sample = Sample::new(1);
        let frames = 5 * MOST_SAMPLED + 3;
        let ramp: Vec<f64> = (0..frames).map(|i| i as f64).collect();
        ramp.chunks(1000).for_each(|batch| sample.add(batch));
        assert!((MOST_SAMPLED / 2..MOST_SAMPLED).contains(&sample.frames.len()));
        assert!(sample.frames.windows(2).all(|pair| pair[1] - pair[0] == 8.0));
        let median = sample.quantiles()[0][2];
        assert!((median / frames as f64 - 0.5).abs() < 1e-4, "{median}");
    }

    #[test]
    fn pixels_are_in_0_to_1() {
        let mut stats = Stats::of_images(3);
        stats.add_image(&[0, 51, 255, 102, 51, 255]);
        let summary = stats.end_episode();
        assert_eq!(of(&summary, "mean"), [0.2, 0.2, 1.0]);
        assert_eq!(of(&summary, "std"), [0.2, 0.0, 0.0]);
        assert_eq!(of(&summary, "q50"), [0.2, 0.2, 1.0]);
        assert_eq!(of(&summary, "max"), [0.4, 0.2, 1.0]);
        assert_eq!(summary.json()["mean"], json!([[[0.2]], [[0.2]], [[1.0]]]));
        assert_eq!(stats.whole().json(), summary.json());
    }
}

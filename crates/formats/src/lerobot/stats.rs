//! Statistics of features, by which policies normalize their inputs and outputs. Values that are not finite are ignored, and
//! memory is bounded for any number of frames.

use rayon::prelude::*;
use serde_json::{Map, Value, json};

/// LeRobot's names of the statistics, with the quantiles last.
const NAMES: [&str; 9] = ["min", "max", "mean", "std", "q01", "q10", "q50", "q90", "q99"];
/// The quantiles that are computed, in the order of their names.
const QUANTILES: [f64; 5] = [0.01, 0.1, 0.5, 0.9, 0.99];

/// Number of frames up to which quantiles are exact. For more frames they are computed from a subsample of fewer frames
/// than this.
pub(super) const MOST_SAMPLED: usize = 1 << 16;

/// Statistics of a feature, as they are written to a dataset.
pub(super) struct Summary {
    /// Name of each statistic, and its value for each element of the feature.
    pub values: Vec<(&'static str, Vec<f64>)>,
    /// Number of frames that the statistics are over.
    pub count: u64,
    pub shape: Vec<usize>,
}

/// Accumulator of a feature's statistics, over the current episode and over the whole dataset.
pub(super) struct Stats {
    episode: Running,
    whole: Running,
}

/// Running statistics of a feature, updated frame by frame.
#[derive(Clone)]
enum Running {
    /// The shape of a frame, the moments of each of its elements, and a sample of frames for the quantiles.
    Numbers(Vec<usize>, Vec<Moments>, Sample),
    /// Number of images, and a histogram of each channel's pixel values.
    Pixels(u64, Vec<[u64; 256]>),
}

/// Subsample of a feature's frames, for the quantiles: all frames up to [`MOST_SAMPLED`], then every second, fourth, ... frame.
#[derive(Clone)]
struct Sample {
    /// Number of elements in a frame.
    width: usize,
    /// Number of frames seen so far, whether kept or not.
    count: u64,
    /// Elements of the kept frames, `[frames, elements]`.
    frames: Vec<f64>,
    /// Sampling period: one frame of `every` is kept.
    every: u64,
}

/// Count, range, mean and squared deviation of the finite values of an element.
#[derive(Clone, Copy)]
struct Moments {
    count: u64,
    min: f64,
    max: f64,
    mean: f64,
    /// Sum of the squared deviations of the values from their mean.
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

    /// Merges the moments of another set of frames, element by element (Chan et al. 1979).
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

/// Computes the moments of each element over `values`, `[frames, elements]` with `width` elements.
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

    /// Drops every second kept frame, and doubles `every` so that later frames are sampled at the same rate.
    fn thin(&mut self) {
        let (width, kept) = (self.width, self.frames.len() / self.width / 2);
        for frame in 0..kept {
            let from = 2 * frame * width;
            self.frames.copy_within(from..from + width, frame * width);
        }
        self.frames.truncate(kept * width);
        self.every *= 2;
    }

    /// Computes the quantiles of each element over the sampled frames; 0 for an element without a finite value.
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

/// Computes `QUANTILES` of the values as NumPy's method `linear` does. Reorders the values. Returns zeros if there are none.
fn quantiles(values: &mut [f64]) -> [f64; 5] {
    if values.is_empty() {
        return [0.0; 5];
    }
    let last = values.len() - 1;
    let mut sorted = 0;
    QUANTILES.map(|quantile| {
        let at = quantile * last as f64;
        let (below, part) = (at as usize, at.fract());
        // Values before the last quantile are in their places already.
        let (_, &mut low, above) = values[sorted..].select_nth_unstable_by(below - sorted, f64::total_cmp);
        let high = above.iter().copied().min_by(f64::total_cmp).unwrap_or(low);
        sorted = below;
        // Exact at either end, as NumPy's formula is.
        if part < 0.5 {
            low + (high - low) * part
        } else {
            high - (high - low) * (1.0 - part)
        }
    })
}

/// Concatenates min, max, mean and standard deviation with the quantiles, in the order of `NAMES`.
fn all(moments: [f64; 4], quantiles: [f64; 5]) -> [f64; 9] {
    let mut all = [0.0; 9];
    all[..4].copy_from_slice(&moments);
    all[4..].copy_from_slice(&quantiles);
    all
}

/// Returns all statistics of an element, in the order of `NAMES`. If no value is finite, all statistics that follow from the
/// moments are 0.
fn of_numbers(moments: &Moments, quantiles: [f64; 5]) -> [f64; 9] {
    let std = (moments.squares / moments.count as f64).sqrt();
    match moments.count {
        0 => all([0.0; 4], quantiles),
        _ => all([moments.min, moments.max, moments.mean, std], quantiles),
    }
}

/// Computes the statistics of an image channel from its histogram, with pixel values scaled to the range from 0 to 1.
fn of_pixels(counts: &[u64; 256]) -> [f64; 9] {
    let total: u64 = counts.iter().sum();
    let last = total.saturating_sub(1);
    let average = |of: &dyn Fn(f64) -> f64| {
        let each = counts
            .iter()
            .enumerate()
            .map(|(value, &count)| of(value as f64) * count as f64);
        each.sum::<f64>() / total.max(1) as f64
    };
    // The value at a rank in the sorted order.
    let ranked = |rank: u64| {
        let mut before = 0;
        let value = counts.iter().position(|&count| {
            before += count;
            before > rank
        });
        value.unwrap_or(0) as f64
    };
    let mean = average(&|value| value);
    let std = average(&|value| (value - mean) * (value - mean)).sqrt();
    let quantiles = QUANTILES.map(|quantile| {
        let at = quantile * last as f64;
        let (low, high) = (ranked(at as u64), ranked(at.ceil() as u64));
        low + (high - low) * at.fract()
    });
    all([ranked(0), ranked(last), mean, std], quantiles).map(|value| value / 255.0)
}

impl Running {
    /// Merges the statistics of an episode into those of the dataset. The sample for the quantiles does not change:
    /// `add_numbers` has already added the episode's frames to it.
    fn merge(&mut self, episode: &Self) {
        match (self, episode) {
            (Self::Numbers(_, elements, _), Self::Numbers(_, others, _)) => merge(elements, others),
            (Self::Pixels(count, channels), Self::Pixels(more, others)) => {
                *count += more;
                let counts = channels.as_flattened_mut().iter_mut();
                counts
                    .zip(others.as_flattened())
                    .for_each(|(count, other)| *count += other);
            }
            _ => {}
        }
    }

    fn summary(&self) -> Summary {
        let (elements, count, shape): (Vec<_>, _, _) = match self {
            Self::Numbers(shape, elements, sample) => {
                let elements = elements.iter().zip(sample.quantiles());
                let elements = elements.map(|(moments, quantiles)| of_numbers(moments, quantiles));
                (elements.collect(), sample.count, shape.clone())
            }
            Self::Pixels(count, channels) => {
                let elements = channels.iter().map(of_pixels).collect();
                (elements, *count, vec![channels.len(), 1, 1])
            }
        };
        let of = |(i, name)| (name, elements.iter().map(|element| element[i]).collect());
        Summary {
            values: NAMES.into_iter().enumerate().map(of).collect(),
            count,
            shape,
        }
    }
}

fn merge(elements: &mut [Moments], others: &[Moments]) {
    let pairs = elements.iter_mut().zip(others);
    pairs.for_each(|(moments, other)| moments.merge(other));
}

impl Stats {
    fn new(none: Running) -> Self {
        Self {
            episode: none.clone(),
            whole: none,
        }
    }

    pub(super) fn of_numbers(shape: &[usize]) -> Self {
        let width = shape.iter().product();
        let elements = vec![Moments::NONE; width];
        Self::new(Running::Numbers(shape.to_vec(), elements, Sample::new(width)))
    }

    pub(super) fn of_images(channels: usize) -> Self {
        Self::new(Running::Pixels(0, vec![[0; 256]; channels]))
    }

    /// Adds frames of numbers, `[frames, elements]`, to the current episode, and to the sample of the whole dataset.
    pub(super) fn add_numbers(&mut self, values: &[f64]) {
        if let Running::Numbers(_, elements, sample) = &mut self.episode {
            let others = moments_of(values, elements.len());
            merge(elements, &others);
            sample.add(values);
        }
        if let Running::Numbers(_, _, sample) = &mut self.whole {
            sample.add(values);
        }
    }

    /// Adds an image to the current episode: bytes, row-major, with the channels of a pixel side by side.
    pub(super) fn add_image(&mut self, pixels: &[u8]) {
        if let Running::Pixels(count, channels) = &mut self.episode {
            *count += 1;
            for pixel in pixels.chunks_exact(channels.len()) {
                for (counts, &value) in channels.iter_mut().zip(pixel) {
                    counts[value as usize] += 1;
                }
            }
        }
    }

    /// Ends the current episode, and adds its statistics to those of the dataset. Returns the statistics of the episode.
    pub(super) fn end_episode(&mut self) -> Summary {
        self.whole.merge(&self.episode);
        let none = match &self.whole {
            Running::Numbers(shape, ..) => Self::of_numbers(shape),
            Running::Pixels(_, channels) => Self::of_images(channels.len()),
        };
        std::mem::replace(&mut self.episode, none.episode).summary()
    }

    /// Computes the statistics of the dataset, over all episodes that have ended.
    pub(super) fn whole(&self) -> Summary {
        self.whole.summary()
    }
}

impl Summary {
    /// Converts the statistics to the form of `stats.json`.
    pub(super) fn json(&self) -> Value {
        let stats = self.values.iter();
        let stats = stats.map(|(name, values)| ((*name).to_owned(), nested(values, &self.shape)));
        let count = ("count".to_owned(), json!([self.count]));
        stats.chain([count]).collect::<Map<_, _>>().into()
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
        // The median of 100 values lies between the two in the middle.
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

//! The section `lerobot:` of a configuration: how a dataset is made of observations. A key that is unknown, or does not belong to a
//! feature's source, is refused and never ignored.

use eyre::bail;
use robocache::ops::align::AlignConfig;
use robocache::ops::kinematics::{InverseConfig, Product};
use serde::{Deserialize, Serialize};

/// The section `lerobot:`: the frames, episodes, tasks and features of a dataset.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LerobotConfig {
    /// Type of the robot, as text in the dataset's metadata.
    #[serde(default)]
    pub robot_type: Option<String>,
    /// Frames a second. `None` means the rate of the observations, which is measured if the samples of a stream are the targets.
    #[serde(default)]
    pub fps: Option<u32>,
    /// Text of the task, for frames for which the stream `tasks` gives no task.
    #[serde(default)]
    pub task: Option<String>,
    /// Name of a stream of tasks. Each message gives the task from its stamp on, as `task` in its metadata.
    #[serde(default)]
    pub tasks: Option<String>,
    /// Name of a stream of which each message begins an episode.
    #[serde(default)]
    pub episodes: Option<String>,
    /// Longest time between two frames of an episode, ms. `None` means one and a half periods of the time grid. If the samples of a
    /// stream are the targets, `None` means 1000.
    #[serde(default)]
    pub episode_gap_ms: Option<f64>,
    /// Treatment of a frame of which a value is not valid.
    #[serde(default)]
    pub on_invalid: OnInvalid,
    /// True if the features `robocache.*`, with validity, ages and times, are written.
    #[serde(default = "yes")]
    pub truth: bool,
    /// Features of the dataset; if empty, one for each modality.
    #[serde(default)]
    pub features: Vec<FeatureConfig>,
}

fn yes() -> bool {
    true
}

/// Treatment of a frame with a value that is not valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnInvalid {
    /// Leaves the frame out.
    #[default]
    Refuse,
    /// Repeats the last valid value of the episode; without such a value the frame is left out.
    Hold,
    /// Writes the value as it is: the `fill_value` of an observation, or the invalid sample of a stream that the dataset reads
    /// directly. Writes zeros if the stream has no sample for the frame.
    Fill,
}

/// A feature and its source: one of `modalities`, `stream`, `images` and `window`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeatureConfig {
    pub name: String,
    /// Names of the modalities whose values, side by side, are the feature. `None` for other sources.
    #[serde(default)]
    pub modalities: Option<Vec<String>>,
    /// Name of the stream of which each frame gets one sample, without interpolation. `None` for other sources.
    #[serde(default)]
    pub stream: Option<String>,
    /// Name of the stream of which each frame of the dataset gets one image. `None` for other sources.
    #[serde(default)]
    pub images: Option<String>,
    /// Name of the stream of which each frame of the dataset gets the newest samples, without interpolation. `None` for
    /// other sources.
    #[serde(default)]
    pub window: Option<String>,
    /// Number of samples that each frame gets of a `window`, 1 to 1,000,000. `None` for other sources.
    #[serde(default)]
    pub samples: Option<usize>,
    /// Rule by which a frame selects a sample of a `stream` or an image of `images`; `None` means `previous`.
    #[serde(default)]
    pub take: Option<Take>,
    /// Greatest distance of a sample from the frame's target, ms; a farther sample is not valid. `None` means no limit.
    #[serde(default)]
    pub max_age_ms: Option<f64>,
    /// Time from the capture of a sample to its stamp, ms. `None` means the `latency_ms` of the modality with this input, else 0.
    #[serde(default)]
    pub latency_ms: Option<f64>,
    /// `bool` if the bytes of a `stream`, each 0 or 1, become booleans; `None` keeps the type of the stream.
    #[serde(default)]
    pub dtype: Option<Bool>,
    /// Conversion of joints in a `stream` or `window` to the pose that they reach; `None` for no conversion.
    #[serde(default)]
    pub pose_of: Option<ChainConfig>,
    /// Conversion of a pose in a `stream` or `window` to joints that reach it; `None` for no conversion.
    #[serde(default)]
    pub joints_of: Option<ChainConfig>,
    /// Names of the feature's elements. `None` means the names in the messages, if there are any.
    #[serde(default)]
    pub names: Option<Vec<String>>,
}

/// Conversion of joints to a pose, or of a pose to joints, by a kinematic chain.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChainConfig {
    /// Name of the chain in the section `chains:`.
    pub chain: String,
    /// Range of the values that are converted, `[first, end]`; all values if `None`.
    #[serde(default)]
    pub channels: Option<[usize; 2]>,
    /// Settings of the inverse kinematics of `joints_of`.
    #[serde(default)]
    pub inverse: Option<InverseConfig>,
}

/// Rule by which a frame selects one sample of a stream for its target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Take {
    /// The newest sample at or before the target.
    #[default]
    Previous,
    /// The first sample at or after the target, such as the action that follows the observation.
    Next,
}

/// Data type that a configuration can set for a feature, only `bool`. Without it, a feature has the type of its stream.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bool {
    Bool,
}

/// Source of a feature's values: the names of modalities, or the name of a stream.
pub enum FeatureSource<'a> {
    Modalities(&'a [String]),
    Stream(&'a str),
    Images(&'a str),
    Window(&'a str, usize),
}

impl FeatureConfig {
    /// Returns the source of the feature, and checks that the feature's keys belong to that source.
    ///
    /// # Errors
    /// The feature has no source or several, or keys that don't belong to its source.
    pub fn origin(&self) -> eyre::Result<FeatureSource<'_>> {
        let name = &self.name;
        let origin = match (&self.modalities, &self.stream, &self.images, &self.window) {
            (Some(modalities), None, None, None) => FeatureSource::Modalities(modalities),
            (None, Some(stream), None, None) => FeatureSource::Stream(stream),
            (None, None, Some(images), None) => FeatureSource::Images(images),
            (None, None, None, Some(window)) => match self.samples {
                Some(samples @ 1..=1_000_000) => FeatureSource::Window(window, samples),
                Some(samples) => bail!("lerobot: features: `{name}`: samples: {samples} (allowed: 1 to 1000000)"),
                None => bail!("lerobot: features: `{name}`: `samples` is missing: how many a window has"),
            },
            _ => bail!(
                "lerobot: features: `{name}`: it comes from nowhere, or from several places (allowed: one of `modalities`, `stream`, \
                 `images`, `window`)"
            ),
        };
        let of_stream = matches!(origin, FeatureSource::Stream(_));
        let of_sample = matches!(origin, FeatureSource::Stream(_) | FeatureSource::Images(_));
        let of_modalities = matches!(origin, FeatureSource::Modalities(_));
        if let (true, Some((key, ..))) = (of_modalities, self.by_chain()?) {
            bail!(
                "lerobot: features: `{name}`: `{key}` does not belong to observations, which have what the node gives the policy (allowed: \
                 a modality that `kinematics:` makes; `{key}` with `stream`, `window`)"
            );
        }
        let of_numbers = matches!(origin, FeatureSource::Stream(_) | FeatureSource::Window(..));
        let misplaced = [
            (
                "samples",
                self.samples.is_some() && !matches!(origin, FeatureSource::Window(..)),
            ),
            ("take", self.take.is_some() && !of_sample),
            ("dtype", self.dtype.is_some() && !of_stream),
            ("pose_of", self.pose_of.is_some() && !of_numbers),
            ("joints_of", self.joints_of.is_some() && !of_numbers),
            (
                "dtype",
                self.dtype.is_some() && (self.pose_of.is_some() || self.joints_of.is_some()),
            ),
            ("max_age_ms", self.max_age_ms.is_some() && of_modalities),
            ("latency_ms", self.latency_ms.is_some() && of_modalities),
        ];
        if let Some((key, _)) = misplaced.into_iter().find(|(_, is_misplaced)| *is_misplaced) {
            bail!(
                "lerobot: features: `{name}`: `{key}` does not belong to what it comes from (allowed: `samples` with `window`; `take` with \
                 `stream`, `images`; `dtype` with `stream`; `pose_of`, `joints_of` with `stream`, `window`, without `dtype`; `max_age_ms`, \
                 `latency_ms` with any of these)"
            );
        }
        if self.modalities.as_ref().is_some_and(Vec::is_empty) {
            bail!("lerobot: features: `{name}`: modalities: none (allowed: one or more)");
        }
        Ok(origin)
    }
}

impl FeatureConfig {
    /// Returns the key of the conversion by a kinematic chain, its result (poses or joints), and its configuration; `None` if
    /// the feature has no conversion.
    ///
    /// # Errors
    /// The feature has both `pose_of` and `joints_of`.
    pub fn by_chain(&self) -> eyre::Result<Option<(&'static str, Product, &ChainConfig)>> {
        match (&self.pose_of, &self.joints_of) {
            (None, None) => Ok(None),
            (Some(config), None) => Ok(Some(("pose_of", Product::Pose, config))),
            (None, Some(config)) => Ok(Some(("joints_of", Product::Joints, config))),
            (Some(_), Some(_)) => bail!(
                "lerobot: features: `{}`: `pose_of` and `joints_of` (allowed: one of them)",
                self.name
            ),
        }
    }
}

impl LerobotConfig {
    /// Lists the streams that the dataset reads directly, not from observations, including the streams `tasks` and `episodes`.
    pub fn streams(&self) -> impl Iterator<Item = &str> {
        let of_features = self
            .features
            .iter()
            .flat_map(|feature| [&feature.stream, &feature.images, &feature.window]);
        let of_all = [&self.tasks, &self.episodes];
        of_features.chain(of_all).flatten().map(String::as_str)
    }

    /// Lists the names of the kinematic chains that convert joints or poses of features.
    pub fn chains(&self) -> impl Iterator<Item = &str> {
        let of_features = self
            .features
            .iter()
            .flat_map(|feature| [&feature.pose_of, &feature.joints_of]);
        of_features.flatten().map(|config| config.chain.as_str())
    }

    /// Makes the features of a configuration that lists none: `observation.X` for each modality `X`. A modality keeps its name
    /// if it is `action`, or begins with `action.` or `observation.`.
    pub fn default_features(fuse: &AlignConfig) -> Vec<FeatureConfig> {
        let of = |input: &String| {
            let is_named = input.starts_with("observation.") || input == "action" || input.starts_with("action.");
            let prefix = if is_named { "" } else { "observation." };
            FeatureConfig {
                name: format!("{prefix}{input}"),
                modalities: Some(vec![input.clone()]),
                ..FeatureConfig::default()
            }
        };
        fuse.modalities.iter().map(|modality| of(&modality.input)).collect()
    }
}

/// Converts a time in ms to ns. Fails, with `key` in the error, if the time is below 0 or above 1e12 ms.
pub fn to_ns(key: &str, ms: f64) -> eyre::Result<i64> {
    if !(0.0..=1e12).contains(&ms) {
        bail!("lerobot: {key}: {ms} (allowed: 0 to 1e12)");
    }
    Ok((ms * 1e6).round() as i64)
}

/// Converts a `latency_ms` to ns; it is negative if stamps are earlier than the capture.
pub fn latency_ns(ms: f64) -> eyre::Result<i64> {
    if !(-1e12..=1e12).contains(&ms) {
        bail!("lerobot: features: latency_ms: {ms} (allowed: -1e12 to 1e12)");
    }
    Ok((ms * 1e6).round() as i64)
}

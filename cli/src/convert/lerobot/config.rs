//! The section `lerobot:` of a configuration: how a dataset is made of observations.

use eyre::bail;
use robocache::ops::align::AlignConfig;
use robocache::ops::kinematics::{InverseConfig, Product};
use serde::{Deserialize, Serialize};

/// Contents and form of a dataset.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LerobotConfig {
    /// The robot's type.
    #[serde(default)]
    pub robot_type: Option<String>,
    /// Frames a second; `None` if there are as many as observations.
    #[serde(default)]
    pub fps: Option<u32>,
    /// The task of all episodes.
    #[serde(default)]
    pub task: Option<String>,
    /// A stream whose messages hold the task from their stamp on, as `task` in their metadata.
    #[serde(default)]
    pub tasks: Option<String>,
    /// A stream of which each message begins an episode.
    #[serde(default)]
    pub episodes: Option<String>,
    /// Longest step between the frames of an episode. `None` means one and a half periods of the grid, or 1000 if samples are the
    /// targets.
    #[serde(default)]
    pub episode_gap_ms: Option<f64>,
    /// Treatment of a frame with a value that is not valid.
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
    /// Writes the observation's own value, `fill_value`; zeros for other streams.
    Fill,
}

/// A feature and its source: one of `modalities`, `stream`, `images` and `window`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeatureConfig {
    pub name: String,
    /// Modalities of the observations, side by side.
    #[serde(default)]
    pub modalities: Option<Vec<String>>,
    /// A stream, of which one sample is taken without interpolation.
    #[serde(default)]
    pub stream: Option<String>,
    /// A stream of images, of which one is taken.
    #[serde(default)]
    pub images: Option<String>,
    /// A stream, of which the newest samples are taken without interpolation.
    #[serde(default)]
    pub window: Option<String>,
    /// Number of samples of a `window`.
    #[serde(default)]
    pub samples: Option<usize>,
    /// Choice of the sample of a `stream`, or of the image of `images`.
    #[serde(default)]
    pub take: Option<Take>,
    /// Greatest distance of a sample from the target.
    #[serde(default)]
    pub max_age_ms: Option<f64>,
    /// Delay of the stream's stamps behind the capture. `None` means that of the modality with this input, else 0.
    #[serde(default)]
    pub latency_ms: Option<f64>,
    /// Type of a `stream`: `bool`, if its bytes are 0 or 1.
    #[serde(default)]
    pub dtype: Option<Bool>,
    /// Joints in a `stream` or `window` that are replaced by their pose.
    #[serde(default)]
    pub pose_of: Option<ChainConfig>,
    /// Pose in a `stream` or `window` that is replaced by its joints.
    #[serde(default)]
    pub joints_of: Option<ChainConfig>,
    /// Names of the elements.
    #[serde(default)]
    pub names: Option<Vec<String>>,
}

/// The values of a sample that are converted by a chain.
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

/// Choice of the sample for a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Take {
    /// The newest sample at or before the target.
    #[default]
    Previous,
    /// The first sample at or after the target, such as the action that follows the observation.
    Next,
}

/// The only type of a feature that the stream does not tell.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bool {
    Bool,
}

/// Source of a feature.
pub enum FeatureSource<'a> {
    Modalities(&'a [String]),
    Stream(&'a str),
    Images(&'a str),
    Window(&'a str, usize),
}

impl FeatureConfig {
    /// The source of the feature.
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
            bail!("lerobot: features: `{name}`: `{key}` does not belong to what it comes from");
        }
        if self.modalities.as_ref().is_some_and(Vec::is_empty) {
            bail!("lerobot: features: `{name}`: modalities: none (allowed: one or more)");
        }
        Ok(origin)
    }
}

impl FeatureConfig {
    /// The conversion by a chain, if there is one: its key, its product and its configuration.
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
    /// The streams that the dataset takes beside the observations, those of tasks and episodes among them.
    pub fn streams(&self) -> impl Iterator<Item = &str> {
        let of_features = self
            .features
            .iter()
            .flat_map(|feature| [&feature.stream, &feature.images, &feature.window]);
        let of_all = [&self.tasks, &self.episodes];
        of_features.chain(of_all).flatten().map(String::as_str)
    }

    /// Names of the chains that convert values of a feature.
    pub fn chains(&self) -> impl Iterator<Item = &str> {
        let of_features = self
            .features
            .iter()
            .flat_map(|feature| [&feature.pose_of, &feature.joints_of]);
        of_features.flatten().map(|config| config.chain.as_str())
    }

    /// Makes the features of a file that names none: `observation.X` of each modality `X`. A modality that is named like a feature
    /// of LeRobot keeps its name.
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

/// Converts a time in ms to ns.
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

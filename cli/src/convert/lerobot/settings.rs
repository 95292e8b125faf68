//! Settings of a dataset, from the sections `fuse:` and `lerobot:` of a file. `convert` and `check` share them, so that both
//! refuse the same files.

use super::config::{LerobotConfig, to_ns};
use super::plan::{Plan, plan, rate};
use super::stream::FeatureStream;
use crate::config::{self, Section};
use eyre::bail;
use robocache::app::{AppError, Config, Graph};
use robocache::formats::lerobot::{Dataset, Feature, Kind, Version};
use robocache::ops::align::{AlignConfig, FUSED};
use robocache::prelude::Dtype;
use std::path::Path;

/// Sections whose operations run to make frames, in the order in which they run.
const ORDER: [&str; 4] = ["clock", "kinematics", "voxelize", "fuse"];

/// Longest time between two frames of an episode, if the samples of a stream are the targets and `episode_gap_ms` is absent.
const GAP_OF_SAMPLES_MS: f64 = 1000.0;

pub struct Settings {
    pub config: LerobotConfig,
    pub fuse: AlignConfig,
    /// Name of the output whose observations become frames.
    pub fused: String,
    /// Frames a second; `None` if they have to be measured.
    pub fps: Option<u32>,
    /// Longest time between two frames of an episode, ns. After a longer pause a new episode begins.
    pub gap_ns: i64,
    /// The period of the time grid, ns; `None` if the samples of a stream are the targets.
    pub grid_ns: Option<i64>,
    pub graph: Graph,
    pub plan: Vec<Plan>,
    pub streams: Vec<FeatureStream>,
}

impl Settings {
    /// Reads the settings of a dataset from a configuration.
    ///
    /// # Errors
    /// An [`AppError`], or the name of the file and the problem of a section.
    pub fn read(file: &Path) -> eyre::Result<Self> {
        let in_file = |error: eyre::Report| match error.is::<AppError>() {
            true => error,
            false => eyre::eyre!("{}: {error}", file.display()),
        };
        Self::of(file).map_err(in_file)
    }

    /// Finds the first problem of the section `lerobot:` or `fuse:` of a file. Returns the section and the problem; `None` if there
    /// is none.
    pub fn refusal(file: &Path) -> Option<eyre::Result<(String, String), AppError>> {
        let error = Self::of(file).err()?;
        Some(match error.downcast::<AppError>() {
            Ok(error) => Err(error),
            Err(other) => {
                let words = other.to_string();
                let (section, problem) = words.split_once(": ").unwrap_or(("lerobot", &words));
                Ok((section.to_owned(), problem.to_owned()))
            }
        })
    }

    fn of(file: &Path) -> eyre::Result<Self> {
        let of_file = Config::read(file)?;
        let mut config = of_file.read_section::<LerobotConfig>("lerobot")?.unwrap_or_default();
        let (graph, operations) = config::graph(file, &ORDER, "make frames of", |output, operations| {
            operations.iter().any(|operation| match &operation.section {
                Section::Observe(_) => operation.plugin == "fuse" && operation.output(FUSED) == output,
                Section::Kinematics(config) => config.outputs().any(|made| operation.output(&made) == output),
                _ => false,
            })
        })?;
        let mut found = operations.iter().filter(|operation| operation.plugin == "fuse");
        let (Some(operation), None) = (found.next(), found.next()) else {
            bail!(
                "fuse: there is none, or more than one (allowed: exactly one, which makes the frames of the dataset)"
            );
        };
        let Section::Observe(fuse) = operation.section.clone() else {
            bail!("fuse: it is not a section of observations");
        };
        let (fps, grid_ns) = rate(&config, &fuse)?;
        let gap_ns = match (config.episode_gap_ms, grid_ns) {
            (Some(ms), _) => to_ns("episode_gap_ms", ms)?,
            (None, Some(period_ns)) => longest(period_ns),
            (None, None) => to_ns("episode_gap_ms", GAP_OF_SAMPLES_MS)?,
        };
        if config.features.is_empty() {
            config.features = LerobotConfig::default_features(&fuse);
        }
        let (plan, streams) = plan(&config, &fuse, &of_file)?;
        let settings = Self {
            fused: operation.output(FUSED),
            config,
            fuse,
            fps,
            gap_ns,
            grid_ns,
            graph,
            plan,
            streams,
        };
        settings.check()?;
        Ok(settings)
    }

    /// Checks the features of the dataset, as far as they are known before the first sample arrives.
    fn check(&self) -> eyre::Result<()> {
        let features = self.plan.iter().zip(&self.config.features).map(|(plan, feature)| {
            let dim = match plan {
                Plan::Modalities(parts) => parts.iter().map(|&part| self.fuse.modalities[part].dim).sum(),
                Plan::Stream(_) => 1,
            };
            Feature::new(&feature.name, Kind::Numbers(Dtype::Float32), [dim])
        });
        let dataset = Dataset {
            version: Version::V3_0,
            fps: self.fps.unwrap_or(1),
            robot_type: None,
            features: features.collect(),
        };
        dataset.check().map_err(|error| eyre::eyre!("lerobot: {error}"))
    }
}

/// Returns one and a half times `period_ns`, the longest time between two frames that is not a gap, ns: half a period counts as
/// jitter.
pub fn longest(period_ns: i64) -> i64 {
    period_ns + period_ns / 2
}

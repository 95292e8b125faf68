//! Reader and writer of datasets of [LeRobot](https://github.com/huggingface/lerobot), as folders, in versions 2.1 and 3.0.
//!
//! ```text
//! meta/info.json                                features, frames a second, numbers of frames and episodes
//! meta/stats.json                               statistics of each feature, to normalise it           version 3.0
//! meta/tasks.parquet, meta/episodes/...         descriptions of the tasks, and the episodes           version 3.0
//! meta/{tasks,episodes,episodes_stats}.jsonl    the same, and the statistics of each episode          version 2.1
//! data/chunk-000/file-000.parquet               a row for each frame, several episodes in a file      version 3.0
//! data/chunk-000/episode_000000.parquet         a row for each frame, one episode in a file           version 2.1
//! ```
//!
//! A frame's `timestamp` is `frame_index / fps`. To keep the capture times of samples, store them as a feature. Images are PNGs
//! in the data files. Video is neither read nor written.
//!
//! The statistics min, max, mean, standard deviation and count are over all frames. Quantiles are exact up to 65,536 frames;
//! for more frames they are over every second, fourth, ... frame. Values that are not finite are left out. Statistics of images
//! are over every pixel.
//!
//! ```
//! use robocache_formats::lerobot::{Dataset, Feature, Kind, Reader, Version, Writer};
//! use robocache_device::{Dtype, Values};
//!
//! # let folder = std::env::temp_dir().join(format!("robocache-lerobot-{}", std::process::id()));
//! # let _ = std::fs::remove_dir_all(&folder);
//! let state = Feature::new("observation.state", Kind::Numbers(Dtype::Float32), [2]).with_names(["shoulder", "elbow"]);
//! let dataset = Dataset { features: vec![state], ..Dataset::new(Version::V3_0, 30) };
//! let mut writer = Writer::create(&folder, dataset)?;
//! for episode in [[[0.0, 0.5], [0.1, 0.5]], [[0.7, 0.1], [0.8, 0.1]]] {
//!     for angles in &episode {
//!         writer.set(0, Values::from_f32(angles))?;
//!         writer.end_frame("reach for the cup")?;
//!     }
//!     writer.end_episode()?;
//! }
//! writer.finish()?;
//!
//! let mut reader = Reader::open(&folder)?;
//! let mut elbows = Vec::new();
//! while let Some(frames) = reader.next_frames()? {
//!     for frame in 0..frames.len() {
//!         elbows.push((frames.episode(frame), frames.values(0, frame).as_slice::<f32>()[1]));
//!     }
//! }
//! assert_eq!(elbows, [(0, 0.5), (0, 0.5), (1, 0.1), (1, 0.1)]);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod column;
mod feature;
mod files;
mod image;
mod info;
mod meta;
mod reader;
mod stats;
mod writer;

pub use feature::{Feature, Kind};
pub use reader::{Frames, Reader};
pub use writer::Writer;

/// Version of LeRobot's format of datasets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Version {
    V2_1,
    V3_0,
}

impl Version {
    const ALL: [Self; 2] = [Self::V2_1, Self::V3_0];

    /// Name of the version in `meta/info.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::V2_1 => "v2.1",
            Self::V3_0 => "v3.0",
        }
    }
}

/// Description of a dataset: its version, rate and features.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// Version of the dataset's format.
    pub version: Version,
    /// Number of frames a second, 1 or more.
    pub fps: u32,
    /// Name of the robot's type; `None` if it is not known.
    pub robot_type: Option<String>,
    /// Features of a frame. The columns that every dataset has, such as `timestamp`, are not listed.
    pub features: Vec<Feature>,
}

impl Dataset {
    /// Describes a dataset at `fps` frames a second, with no features and no type of robot yet.
    pub fn new(version: Version, fps: u32) -> Self {
        Self {
            version,
            fps,
            robot_type: None,
            features: Vec::new(),
        }
    }
}

/// Counts and tasks of a dataset that was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Number of episodes in the dataset.
    pub episodes: usize,
    /// Number of frames of all episodes.
    pub frames: usize,
    /// Descriptions of the tasks, in the order of their first frames.
    pub tasks: Vec<String>,
}

//! Writing of a dataset's metadata files, in the folder `meta`. `meta/info.json` is written last: without this file a folder is
//! not a dataset.

use super::feature::{bookkeeping, element_of};
use super::files::{Table, create_file};
use super::stats::Summary;
use super::{Dataset, Feature, Kind, Version, Written};
use crate::Error;
use arrow_array::{ArrayRef, Float64Array, Int64Array, ListArray, RecordBatch, StringArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::DataType;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) const INFO: &str = "meta/info.json";
pub(super) const TASKS: &str = "meta/tasks.parquet";
pub(super) const TASKS_V2: &str = "meta/tasks.jsonl";
const STATS: &str = "meta/stats.json";
const EPISODES: &str = "meta/episodes/chunk-000/file-000.parquet";
const EPISODES_V2: &str = "meta/episodes.jsonl";
const STATS_V2: &str = "meta/episodes_stats.jsonl";

/// Size of a data file, MiB, from which the next episode of a dataset of version 3.0 goes to a new file.
pub(super) const FILE_MB: usize = 100;
/// Largest number of files in a folder such as `chunk-000`, as in LeRobot.
pub(super) const CHUNK: usize = 1000;

/// Number of episodes whose rows are written to the list of episodes at a time.
const EPISODES_TOGETHER: usize = 256;

/// Metadata for pandas, which make the column `task` the index of the table of tasks, as LeRobot expects.
const PANDAS: &str = r#"{"index_columns": ["task"], "column_indexes": [], "columns": [
    {"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64", "metadata": null},
    {"name": "task", "field_name": "task", "pandas_type": "unicode", "numpy_type": "object", "metadata": null}]}"#;

/// An episode: the counts, tasks and statistics of its frames.
#[derive(Default)]
pub(super) struct Episode {
    pub index: usize,
    /// Number of frames in the dataset before the episode.
    pub start: usize,
    pub length: usize,
    /// Indices of the episode's tasks, in the order of their first frames.
    pub tasks: Vec<usize>,
    /// Index of the data file that holds the episode.
    pub file: usize,
    pub stats: Vec<(String, Summary)>,
}

impl Episode {
    /// Makes the episode that follows this one in the dataset, with no frames yet.
    pub(super) fn next(&self) -> Self {
        Self {
            index: self.index + 1,
            start: self.start + self.length,
            ..Self::default()
        }
    }
}

/// Writer of the dataset's list of episodes.
pub(super) struct Episodes {
    folder: PathBuf,
    /// Two text files of version 2.1: a line for each episode, and a line for the statistics of each episode. `None` in
    /// version 3.0.
    lines: Option<[Lines; 2]>,
    /// Parquet table of the episodes in version 3.0; `None` until its first rows are written, and in version 2.1.
    table: Option<Table>,
    /// Episodes that are not in `table` yet, each with the descriptions of its tasks.
    waiting: Vec<(Episode, Vec<String>)>,
}

impl Episodes {
    pub(super) fn create(folder: &Path, version: Version) -> Result<Self, Error> {
        let create = |name: &str| Lines::create(folder.join(name));
        Ok(Self {
            folder: folder.to_owned(),
            lines: match version {
                Version::V2_1 => Some([create(EPISODES_V2)?, create(STATS_V2)?]),
                Version::V3_0 => None,
            },
            table: None,
            waiting: Vec::new(),
        })
    }

    pub(super) fn add(&mut self, episode: Episode, tasks: &[String]) -> Result<(), Error> {
        let tasks = episode.tasks.iter().map(|&task| tasks[task].clone()).collect();
        if let Some([episodes, stats]) = &mut self.lines {
            let index = episode.index;
            episodes.write(&json!({"episode_index": index, "tasks": tasks, "length": episode.length}))?;
            return stats.write(&json!({"episode_index": index, "stats": stats_of(&episode.stats)}));
        }
        self.waiting.push((episode, tasks));
        match self.waiting.len() {
            ..EPISODES_TOGETHER => Ok(()),
            _ => self.flush(),
        }
    }

    fn flush(&mut self) -> Result<(), Error> {
        let path = self.folder.join(EPISODES);
        let batch = rows_of(&self.waiting).map_err(|error| Error::file(&path, error))?;
        self.waiting.clear();
        let table = match self.table.take() {
            Some(table) => table,
            None => Table::create(path, &batch.schema(), None)?,
        };
        self.table.insert(table).write(&batch, 0)
    }

    /// Ends the list of episodes, and writes the list of the dataset's `tasks`.
    pub(super) fn finish(mut self, tasks: &[String]) -> Result<(), Error> {
        if !self.waiting.is_empty() {
            self.flush()?;
        }
        self.table.map_or(Ok(()), Table::close)?;
        let Some(lines) = self.lines else {
            return write_tasks(self.folder.join(TASKS), tasks);
        };
        lines.into_iter().try_for_each(Lines::finish)?;
        let mut lines = Lines::create(self.folder.join(TASKS_V2))?;
        for (task_index, task) in tasks.iter().enumerate() {
            lines.write(&json!({"task_index": task_index, "task": task}))?;
        }
        lines.finish()
    }
}

fn write_tasks(path: PathBuf, tasks: &[String]) -> Result<(), Error> {
    let indices: ArrayRef = Arc::new(Int64Array::from_iter_values(0..tasks.len() as i64));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(tasks));
    let columns = [("task_index", indices, true), ("task", texts, true)];
    let batch = RecordBatch::try_from_iter_with_nullable(columns).map_err(|error| Error::file(&path, error))?;
    let mut table = Table::create(path, &batch.schema(), Some(("pandas", PANDAS.to_owned())))?;
    table.write(&batch, 0)?;
    table.close()
}

/// Function that returns the value that an episode has in one column.
type EpisodeValue = fn(&Episode) -> usize;

/// Makes the rows for `episodes` in the Parquet table of episodes that version 3.0 has.
fn rows_of(episodes: &[(Episode, Vec<String>)]) -> Result<RecordBatch, arrow_schema::ArrowError> {
    let mut columns: Vec<(String, ArrayRef)> = Vec::new();
    let whole: [(&str, EpisodeValue); 8] = [
        ("episode_index", |episode| episode.index),
        ("length", |episode| episode.length),
        ("data/chunk_index", |episode| episode.file / CHUNK),
        ("data/file_index", |episode| episode.file % CHUNK),
        ("dataset_from_index", |episode| episode.start),
        ("dataset_to_index", |episode| episode.start + episode.length),
        ("meta/episodes/chunk_index", |_| 0),
        ("meta/episodes/file_index", |_| 0),
    ];
    for (name, of) in whole {
        let values = episodes.iter().map(|(episode, _)| of(episode) as i64);
        columns.push((name.to_owned(), Arc::new(Int64Array::from_iter_values(values))));
    }
    let texts: Vec<&String> = episodes.iter().flat_map(|(_, tasks)| tasks).collect();
    let lengths = OffsetBuffer::from_lengths(episodes.iter().map(|(_, tasks)| tasks.len()));
    let texts = Arc::new(StringArray::from_iter_values(texts));
    let tasks = ListArray::new(element_of(DataType::Utf8), lengths, texts, None);
    columns.insert(1, ("tasks".to_owned(), Arc::new(tasks)));
    let first = episodes.first().map_or(&[][..], |(episode, _)| &episode.stats);
    for (i, (feature, summary)) in first.iter().enumerate() {
        for (j, (stat, _)) in summary.values.iter().enumerate() {
            let values = episodes.iter().flat_map(|(episode, _)| &episode.stats[i].1.values[j].1);
            let values = values.copied();
            let flat: ArrayRef = Arc::new(Float64Array::from_iter_values(values));
            columns.push((format!("stats/{feature}/{stat}"), lists_of(flat, &summary.shape)));
        }
        let counts = episodes.iter().map(|(episode, _)| episode.stats[i].1.count as i64);
        let counts: ArrayRef = Arc::new(Int64Array::from_iter_values(counts));
        columns.push((format!("stats/{feature}/count"), lists_of(counts, &[1])));
    }
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true)))
}

/// Nests a flat array in lists, one level for each axis of `shape`.
pub(super) fn lists_of(flat: ArrayRef, shape: &[usize]) -> ArrayRef {
    shape.iter().rev().fold(flat, |inner, &n| {
        let field = element_of(inner.data_type().clone());
        let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(n, inner.len() / n));
        Arc::new(ListArray::new(field, offsets, inner, None))
    })
}

fn stats_of(stats: &[(String, Summary)]) -> Value {
    let stats = stats.iter().map(|(feature, summary)| (feature.clone(), summary.json()));
    stats.collect::<Map<_, _>>().into()
}

/// Writes the statistics of the whole dataset to `meta/stats.json`. Version 2.1 does not have this file.
pub(super) fn write_stats(folder: &Path, version: Version, stats: &[(String, Summary)]) -> Result<(), Error> {
    match version {
        Version::V3_0 => write_json(&folder.join(STATS), &stats_of(stats)),
        Version::V2_1 => Ok(()),
    }
}

/// Contents of `meta/info.json`, with the features in their order.
#[derive(Serialize)]
struct InfoText<'a> {
    codebase_version: &'static str,
    robot_type: Option<&'a str>,
    total_episodes: usize,
    total_frames: usize,
    total_tasks: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_videos: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_chunks: Option<usize>,
    chunks_size: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_files_size_in_mb: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    video_files_size_in_mb: Option<usize>,
    fps: u32,
    splits: Value,
    data_path: &'static str,
    video_path: Option<&'a str>,
    #[serde(serialize_with = "features_text")]
    features: &'a [Feature],
}

fn features_text<S: Serializer>(features: &&[Feature], serializer: S) -> Result<S::Ok, S::Error> {
    let own = bookkeeping();
    serializer.collect_map(features.iter().chain(&own).map(|feature| {
        let names = match (&feature.kind, feature.names.is_empty()) {
            (Kind::Image, true) => json!(["height", "width", "channels"]),
            (_, true) => Value::Null,
            (_, false) => json!(feature.names),
        };
        let about = json!({"dtype": feature.kind.name(), "shape": feature.shape, "names": names});
        (&feature.name, about)
    }))
}

pub(super) fn write_info(folder: &Path, dataset: &Dataset, written: &Written) -> Result<(), Error> {
    let is_v3 = dataset.version == Version::V3_0;
    let info = InfoText {
        codebase_version: dataset.version.name(),
        robot_type: dataset.robot_type.as_deref(),
        total_episodes: written.episodes,
        total_frames: written.frames,
        total_tasks: written.tasks.len(),
        total_videos: (!is_v3).then_some(0),
        total_chunks: (!is_v3).then_some(written.episodes.div_ceil(CHUNK)),
        chunks_size: CHUNK,
        data_files_size_in_mb: is_v3.then_some(FILE_MB),
        video_files_size_in_mb: is_v3.then_some(200),
        fps: dataset.fps,
        splits: json!({"train": format!("0:{}", written.episodes)}),
        data_path: if is_v3 {
            "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
        } else {
            "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
        },
        video_path: None,
        features: &dataset.features,
    };
    write_json(&folder.join(INFO), &info)
}

/// Describes the types of a file's columns in JSON, as the library `datasets` reads them from the file's metadata.
pub(super) fn huggingface<'a>(features: impl Iterator<Item = &'a Feature>) -> Value {
    let of = |feature: &Feature| {
        let value = json!({"dtype": feature.kind.name(), "_type": "Value"});
        match (&feature.kind, feature.shape.as_slice()) {
            (Kind::Image, _) => json!({"_type": "Image"}),
            (_, [1]) => value,
            (_, [n]) => json!({"feature": value, "length": n, "_type": "Sequence"}),
            (kind, shape) => json!({"shape": shape, "dtype": kind.name(), "_type": format!("Array{}D", shape.len())}),
        }
    };
    let features: Map<String, Value> = features.map(|feature| (feature.name.clone(), of(feature))).collect();
    json!({"info": {"features": features}})
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Error::file(path, error))?;
    fs::write(path, text + "\n").map_err(|source| Error::io(path, source))
}

/// Writer of a file with a JSON object in each line.
struct Lines {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Lines {
    fn create(path: PathBuf) -> Result<Self, Error> {
        let file = BufWriter::new(create_file(&path)?);
        Ok(Self { path, file })
    }

    fn write(&mut self, line: &Value) -> Result<(), Error> {
        writeln!(self.file, "{line}").map_err(|source| Error::io(&self.path, source))
    }

    fn finish(mut self) -> Result<(), Error> {
        self.file.flush().map_err(|source| Error::io(&self.path, source))
    }
}

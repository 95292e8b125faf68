//! Reading of a dataset's `meta/info.json`, of its tasks, and of the list of its data files. A value that is not allowed is an
//! error, with the value found and the values allowed.

use super::feature::is_bookkeeping;
use super::files::guarded;
use super::meta::{INFO, TASKS, TASKS_V2};
use super::{Dataset, Feature, Kind, Version};
use crate::Error;
use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_schema::DataType;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use robocache_stream::file;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// Largest size of a text file that is read, bytes.
const MOST_BYTES: u64 = 64 << 20;

#[derive(Deserialize)]
struct InfoText {
    codebase_version: String,
    fps: f64,
    robot_type: Option<String>,
    total_frames: u64,
    features: FeaturesText,
}

/// Object `features` of `meta/info.json`: the name and description of each feature, in the order of the file.
struct FeaturesText(Vec<(String, FeatureText)>);

#[derive(Deserialize)]
struct FeatureText {
    dtype: String,
    shape: Vec<usize>,
    #[serde(default)]
    names: Value,
}

impl<'de> Deserialize<'de> for FeaturesText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = FeaturesText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with an entry for each feature")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<FeaturesText, M::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(FeaturesText(entries))
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

fn read_text(path: &Path) -> Result<String, Error> {
    let mut text = String::new();
    let file = file::open(path).map(|file| file.take(MOST_BYTES + 1));
    let read = file.and_then(|mut file| file.read_to_string(&mut text));
    match read.map_err(|source| Error::io(path, source))? as u64 {
        ..=MOST_BYTES => Ok(text),
        _ => Err(Error::file(path, format!("it is longer than {MOST_BYTES} bytes"))),
    }
}

/// Reads the description of the dataset from `meta/info.json`, and the number of frames that the file states.
pub(super) fn read_info(folder: &Path) -> Result<(Dataset, u64), Error> {
    let path = folder.join(INFO);
    let wrong = |problem: String| Error::file(&path, problem);
    let info: InfoText = serde_json::from_str(&read_text(&path)?).map_err(|error| wrong(error.to_string()))?;
    let mut versions = Version::ALL.into_iter();
    let version = versions.find(|version| version.name() == info.codebase_version);
    let version = version.ok_or_else(|| {
        let found = &info.codebase_version;
        let allowed = "v3.0, v2.1; LeRobot has scripts that convert older ones";
        wrong(format!("`codebase_version` is `{found}` (allowed: {allowed})"))
    })?;
    if !(info.fps >= 1.0 && info.fps <= f64::from(u32::MAX) && info.fps.fract() == 0.0) {
        let found = info.fps;
        return Err(wrong(format!("`fps` is {found} (allowed: a whole number, 1 or more)")));
    }
    let FeaturesText(features) = info.features;
    let features = features.into_iter().filter(|(name, _)| !is_bookkeeping(name));
    let features = features.map(|(name, text)| {
        let feature = Feature::new(name, Kind::from_name(&text.dtype), text.shape).with_names(leaves(&text.names));
        feature.check().map(|()| feature)
    });
    let dataset = Dataset {
        version,
        fps: info.fps as u32,
        robot_type: info.robot_type,
        features: features.collect::<Result<_, _>>()?,
    };
    Ok((dataset, info.total_frames))
}

/// Collects the strings in `names`, which may be nested in JSON lists and objects, in the order of the file.
fn leaves(names: &Value) -> Vec<String> {
    match names {
        Value::String(name) => vec![name.clone()],
        Value::Array(list) => list.iter().flat_map(leaves).collect(),
        Value::Object(map) => map.values().flat_map(leaves).collect(),
        _ => Vec::new(),
    }
}

/// Reads the descriptions of the tasks, in the order of their indices, which have to be 0, 1, 2 and so on.
pub(super) fn read_tasks(folder: &Path, version: Version) -> Result<Vec<String>, Error> {
    let path = folder.join(match version {
        Version::V2_1 => TASKS_V2,
        Version::V3_0 => TASKS,
    });
    let wrong = |problem: String| Error::file(&path, problem);
    let listed = match version {
        Version::V2_1 => tasks_of_lines(&read_text(&path)?),
        Version::V3_0 => tasks_of_table(file::open(&path).map_err(|source| Error::io(&path, source))?),
    };
    let mut listed = listed.map_err(wrong)?;
    listed.sort();
    let (found, tasks): (Vec<i64>, Vec<String>) = listed.into_iter().unzip();
    match found.iter().copied().eq(0..found.len() as i64) {
        true => Ok(tasks),
        false => Err(wrong(format!(
            "`task_index` is {found:?} (allowed: 0, 1, 2, ..., each once)"
        ))),
    }
}

fn tasks_of_lines(text: &str) -> Result<Vec<(i64, String)>, String> {
    #[derive(Deserialize)]
    struct Line {
        task_index: i64,
        task: String,
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let tasks = lines.map(|(i, line)| match serde_json::from_str::<Line>(line) {
        Ok(line) => Ok((line.task_index, line.task)),
        Err(error) => Err(format!("line {}: {error}", i + 1)),
    });
    tasks.collect()
}

fn tasks_of_table(file: File) -> Result<Vec<(i64, String)>, String> {
    let batches = guarded(|| {
        let reader = ParquetRecordBatchReaderBuilder::try_new(file)?.build()?;
        Ok(reader.collect::<Result<Vec<_>, _>>()?)
    })?;
    let mut tasks = Vec::new();
    for batch in batches {
        // Pandas calls an index that has no name `__index_level_0__`.
        let mut names = ["task", "__index_level_0__"].into_iter();
        let texts = names.find_map(|name| batch.column_by_name(name));
        let columns = batch.column_by_name("task_index").zip(texts);
        let allowed = "allowed: `task_index` int64, `task` string";
        let found = || format!("columns {:?} ({allowed})", batch.schema().fields());
        let (indices, texts) = columns.ok_or_else(found)?;
        let indices = indices.as_primitive_opt::<Int64Type>().ok_or_else(found)?;
        let texts: Vec<Option<&str>> = match texts.data_type() {
            DataType::Utf8 => texts.as_string::<i32>().iter().collect(),
            DataType::LargeUtf8 => texts.as_string::<i64>().iter().collect(),
            _ => return Err(found()),
        };
        for (index, text) in indices.iter().zip(texts) {
            match index.zip(text) {
                Some((index, text)) => tasks.push((index, text.to_owned())),
                None => return Err("a task is null (allowed: text)".to_owned()),
            }
        }
    }
    Ok(tasks)
}

/// Lists the data files of a dataset, in the order of their frames.
pub(super) fn data_files(folder: &Path) -> Result<Vec<std::path::PathBuf>, Error> {
    let data = folder.join("data");
    let mut files = Vec::new();
    for chunk in fs::read_dir(&data).map_err(|source| Error::io(&data, source))? {
        let chunk = chunk.map_err(|source| Error::io(&data, source))?.path();
        if !chunk.is_dir() {
            continue;
        }
        for file in fs::read_dir(&chunk).map_err(|source| Error::io(&chunk, source))? {
            let file = file.map_err(|source| Error::io(&chunk, source))?.path();
            if file.extension().is_some_and(|extension| extension == "parquet") {
                files.push(file);
            }
        }
    }
    if files.is_empty() {
        let problem = "no data files (allowed: Parquet files in folders such as chunk-000)";
        return Err(Error::file(&data, problem));
    }
    files.sort();
    Ok(files)
}

//! Writer of LeRobot datasets, frame by frame. `meta/info.json` is written last: a folder that was not finished is not
//! a dataset.

use super::column::Column;
use super::feature::{bookkeeping, is_bookkeeping};
use super::files::Table;
use super::meta::{self, CHUNK, Episode, Episodes, FILE_MB};
use super::{Dataset, Feature, Kind, Version, Written};
use crate::Error;
use arrow_array::RecordBatch;
use arrow_schema::{Field, Schema, SchemaRef};
use rayon::prelude::*;
use robocache_device::{Dtype, Values};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest number of frames that are buffered before they are written.
const BATCH_FRAMES: usize = 4096;
/// Largest number of bytes of frames that are buffered before they are written.
const BATCH_BYTES: usize = 32 << 20;

/// Size from which the current row group is written from memory to the file, bytes. A row group also ends with its episode.
const ROW_GROUP_BYTES: usize = 64 << 20;

/// Writer of a dataset into a new folder, frame by frame.
///
/// For each frame, [set](Self::set) every feature once, and then call [`end_frame`](Self::end_frame) with the task of the
/// robot. Frames of an episode are `1 / fps` s apart: their `timestamp` is `frame_index / fps`, whatever the capture times of
/// their values.
///
/// Only [`finish`](Self::finish) writes `meta/info.json`: a folder without this file is not a dataset. Memory holds a row group
/// of at most 64 MiB, a batch of frames, the statistics, and a row for each episode.
pub struct Writer {
    folder: PathBuf,
    dataset: Dataset,
    schema: SchemaRef,
    /// Columns of the features, followed by the columns that every dataset has, [`bookkeeping`].
    columns: Vec<Column>,
    /// True for each feature that is set in the current frame, in the order of the features.
    is_set: Vec<bool>,
    /// Number of frames that are buffered, and not written yet.
    waiting: usize,
    tasks: Vec<String>,
    task_indices: HashMap<String, usize>,
    episode: Episode,
    episodes: Episodes,
    file: Option<Table>,
    /// Number of finished data files, which is the index of the current file.
    files: usize,
}

impl Writer {
    /// Creates the folder of the dataset, which must be new or empty.
    ///
    /// # Errors
    /// If the folder is not empty or can't be created, a feature can't be written, the dataset has no feature, or `fps` is 0.
    pub fn create(folder: impl AsRef<Path>, dataset: Dataset) -> Result<Self, Error> {
        let folder = folder.as_ref().to_owned();
        check(&folder, &dataset)?;
        let data = folder.join("data");
        fs::create_dir_all(&data).map_err(|source| Error::io(&data, source))?;
        let features = dataset.features.iter().cloned().chain(bookkeeping());
        let columns: Vec<Column> = features.map(Column::new).collect();
        let fields = columns.iter().map(|column| {
            let feature = &column.feature;
            Field::new(&feature.name, feature.arrow_type(), true)
        });
        Ok(Self {
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            is_set: vec![false; dataset.features.len()],
            episodes: Episodes::create(&folder, dataset.version)?,
            columns,
            waiting: 0,
            tasks: Vec::new(),
            task_indices: HashMap::new(),
            episode: Episode::default(),
            file: None,
            files: 0,
            folder,
            dataset,
        })
    }

    /// Sets a feature of the current frame, by its index in [`Dataset::features`]. The values are the feature's elements,
    /// row-major: bytes of 0 or 1 for bools, pixels for an image.
    ///
    /// # Errors
    /// If the values do not have the type or number of the feature's elements, or the feature is set already.
    ///
    /// # Panics
    /// If no feature has this index.
    pub fn set(&mut self, feature: usize, values: Values<'_>) -> Result<(), Error> {
        let Feature { name, kind, shape, .. } = &self.columns[feature].feature;
        let dtype = kind.dtype().unwrap_or(Dtype::UInt8);
        if values.dtype() != dtype {
            let problem = format!("a frame has {} (allowed: {dtype}, {shape:?})", values.dtype());
            return Err(Error::feature(name, problem));
        }
        self.set_bytes(feature, values.bytes())
    }

    /// Sets a feature of the current frame as [`set`](Self::set) does, from the bytes of its elements.
    ///
    /// # Errors
    /// If [`set`](Self::set) would fail.
    ///
    /// # Panics
    /// If no feature has this index.
    pub fn set_bytes(&mut self, feature: usize, bytes: &[u8]) -> Result<(), Error> {
        let column = &mut self.columns[..self.is_set.len()][feature];
        let Feature { name, kind, shape, .. } = &column.feature;
        let refused = |problem: String| Err(Error::feature(name, problem));
        let expected = column.feature.bytes();
        if bytes.len() != expected {
            let came = bytes.len();
            let allowed = format!("{expected}, {} {shape:?}", kind.name());
            return refused(format!("a frame has {came} bytes (allowed: {allowed})"));
        }
        if *kind == Kind::Bool && bytes.iter().any(|&byte| byte > 1) {
            return refused("a bool is neither 0 nor 1 (allowed: 0, 1)".to_owned());
        }
        if std::mem::replace(&mut self.is_set[feature], true) {
            return refused("it is set twice in a frame (allowed: once)".to_owned());
        }
        column.push(bytes);
        Ok(())
    }

    /// Ends the current frame, in which the robot did `task`.
    ///
    /// # Errors
    /// If a feature is not set: the frame is dropped, and the writer remains usable. If a file can't be written.
    pub fn end_frame(&mut self, task: &str) -> Result<(), Error> {
        if let Some(missing) = self.is_set.iter().position(|is_set| !is_set) {
            self.drop_frame();
            let name = &self.columns[missing].feature.name;
            return Err(Error::feature(
                name,
                "a frame has no value of it (needed: one in every frame)",
            ));
        }
        self.is_set.fill(false);
        let task_index = self.task(task);
        let Episode {
            index, start, length, ..
        } = self.episode;
        let timestamp = (length as f64 / f64::from(self.dataset.fps)) as f32;
        let whole = [length, index, start + length, task_index].map(|number| number as i64);
        let features = self.dataset.features.len();
        self.columns[features].push(&timestamp.to_le_bytes());
        for (column, number) in self.columns[features + 1..].iter_mut().zip(whole) {
            column.push(&number.to_le_bytes());
        }
        self.episode.length += 1;
        self.waiting += 1;
        let bytes: usize = self.columns.iter().map(Column::waiting).sum();
        if self.waiting >= BATCH_FRAMES || bytes >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Drops the values that were set in the current frame.
    fn drop_frame(&mut self) {
        self.is_set.fill(false);
        for column in &mut self.columns {
            column.truncate(self.waiting);
        }
    }

    /// Ends the current episode. A frame without [`end_frame`](Self::end_frame) is dropped, and an episode without a frame does
    /// not count.
    ///
    /// # Errors
    /// If a file can't be written.
    pub fn end_episode(&mut self) -> Result<(), Error> {
        self.drop_frame();
        if self.episode.length == 0 {
            return Ok(());
        }
        self.flush()?;
        let next = self.episode.next();
        let mut ended = std::mem::replace(&mut self.episode, next);
        ended.file = self.files;
        let columns = self.columns.par_iter_mut();
        let stats = columns.map(|column| (column.feature.name.clone(), column.stats.end_episode()));
        ended.stats = stats.collect();
        self.episodes.add(ended, &self.tasks)?;
        if let Some(file) = &mut self.file {
            file.flush()?;
            if file.bytes() >= FILE_MB << 20 || self.dataset.version == Version::V2_1 {
                self.close_file()?;
            }
        }
        Ok(())
    }

    /// Ends the current episode and the dataset, and returns its counts.
    ///
    /// # Errors
    /// If a file can't be written, or the dataset has no frame.
    pub fn finish(mut self) -> Result<Written, Error> {
        self.end_episode()?;
        self.close_file()?;
        let written = Written {
            episodes: self.episode.index,
            frames: self.episode.start,
            tasks: self.tasks,
        };
        if written.frames == 0 {
            let problem = "the dataset has no frames, and LeRobot can't open an empty one";
            return Err(Error::file(&self.folder, problem));
        }
        self.episodes.finish(&written.tasks)?;
        let columns = self.columns.par_iter();
        let stats = columns.map(|column| (column.feature.name.clone(), column.stats.whole()));
        meta::write_stats(&self.folder, self.dataset.version, &stats.collect::<Vec<_>>())?;
        meta::write_info(&self.folder, &self.dataset, &written)?;
        Ok(written)
    }

    fn task(&mut self, task: &str) -> usize {
        let known = self.task_indices.get(task).copied();
        let index = known.unwrap_or_else(|| {
            self.task_indices.insert(task.to_owned(), self.tasks.len());
            self.tasks.push(task.to_owned());
            self.tasks.len() - 1
        });
        if !self.episode.tasks.contains(&index) {
            self.episode.tasks.push(index);
        }
        index
    }

    /// Writes the buffered frames to the current data file, which is created if needed.
    fn flush(&mut self) -> Result<(), Error> {
        if self.waiting == 0 {
            return Ok(());
        }
        self.waiting = 0;
        let arrays = self.columns.par_iter_mut().map(Column::flush);
        let batch = RecordBatch::try_new(self.schema.clone(), arrays.collect::<Result<_, _>>()?);
        let batch = batch.map_err(|error| Error::file(&self.folder, error))?;
        let file = match self.file.take() {
            Some(file) => file,
            None => {
                let features = self.columns.iter().map(|column| &column.feature);
                let about = ("huggingface", meta::huggingface(features).to_string());
                Table::create(self.next_path(), &self.schema, Some(about))?
            }
        };
        self.file.insert(file).write(&batch, ROW_GROUP_BYTES)
    }

    fn next_path(&self) -> PathBuf {
        let number = self.files;
        let file = match self.dataset.version {
            Version::V2_1 => format!("data/chunk-{:03}/episode_{number:06}.parquet", number / CHUNK),
            Version::V3_0 => format!("data/chunk-{:03}/file-{:03}.parquet", number / CHUNK, number % CHUNK),
        };
        self.folder.join(file)
    }

    fn close_file(&mut self) -> Result<(), Error> {
        if let Some(file) = self.file.take() {
            file.close()?;
            self.files += 1;
        }
        Ok(())
    }
}

/// Checks that the folder is empty or new, and that the dataset can be written.
fn check(folder: &Path, dataset: &Dataset) -> Result<(), Error> {
    if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
        let problem = "there is something in the folder (allowed: an empty or a new one)";
        return Err(Error::file(folder, problem));
    }
    if dataset.fps == 0 {
        return Err(Error::file(folder, "`fps` is 0 (allowed: 1 or more)"));
    }
    if dataset.features.is_empty() {
        return Err(Error::file(folder, "no features (allowed: one or more)"));
    }
    dataset.check()
}

impl Dataset {
    /// Checks that a writer can write the dataset's features.
    ///
    /// # Errors
    /// Names the first feature that can't be written, and the reason: its name, type or shape, or a second feature with the
    /// same name.
    pub fn check(&self) -> Result<(), Error> {
        for (i, feature) in self.features.iter().enumerate() {
            feature.check_written()?;
            if is_bookkeeping(&feature.name) {
                let own = bookkeeping().map(|feature| feature.name).join(", ");
                let problem = format!("a dataset fills it itself (as {own}): give it another name");
                return Err(Error::feature(&feature.name, problem));
            }
            if self.features[..i].iter().any(|other| other.name == feature.name) {
                return Err(Error::feature(
                    &feature.name,
                    "there are two of this name (allowed: one)",
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use std::fs::File;

    /// Checks that a long episode is written in several row groups of bounded size, which together have all frames. Memory then
    /// never holds the whole episode.
    #[test]
    fn a_long_episode_has_several_row_groups() {
        let folder = std::env::temp_dir().join(format!("robocache-row-groups-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        const VALUES: usize = 1 << 20;
        const FRAMES: usize = 50;
        let features = vec![Feature::new("noise", Kind::Numbers(Dtype::Float32), [VALUES])];
        let dataset = Dataset {
            features,
            ..Dataset::new(Version::V3_0, 30)
        };
        let mut writer = Writer::create(&folder, dataset).unwrap();
        let mut state = 1u32;
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f32::from_bits(0x3f80_0000 | state >> 9)
        };
        for _ in 0..FRAMES {
            let values: Vec<f32> = (0..VALUES).map(|_| noise()).collect();
            writer.set(0, Values::from_f32(&values)).unwrap();
            writer.end_frame("").unwrap();
        }
        writer.finish().unwrap();
        let file = File::open(folder.join("data/chunk-000/file-000.parquet")).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let groups = reader.metadata().row_groups();
        assert!(groups.len() >= 3, "{} row groups", groups.len());
        for group in groups {
            let bytes = group.compressed_size() as usize;
            assert!(
                bytes <= ROW_GROUP_BYTES + BATCH_BYTES + (8 << 20),
                "a row group of {bytes} bytes"
            );
        }
        assert_eq!(groups.iter().map(|group| group.num_rows()).sum::<i64>(), FRAMES as i64);
        fs::remove_dir_all(&folder).unwrap();
    }
}

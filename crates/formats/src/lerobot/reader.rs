//! Reader of LeRobot datasets, frame by frame, episode after episode. A data file whose frames are out of order is an error,
//! and reading continues with the next file.

use super::feature::{EPISODE_INDEX, FRAME_INDEX, TASK_INDEX, TIMESTAMP};
use super::files::guarded;
use super::{Dataset, Feature, Kind, image, info};
use crate::Error;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, GenericListArray, OffsetSizeTrait, RecordBatch};
use arrow_buffer::Buffer;
use arrow_schema::DataType;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use robocache_device::{Dtype, Values};
use robocache_stream::file;
use std::path::{Path, PathBuf};
use std::vec;

/// Largest number of frames in a batch.
const BATCH: usize = 512;

/// Reader of a dataset, frame by frame, in the order of its files.
pub struct Reader {
    folder: PathBuf,
    dataset: Dataset,
    tasks: Vec<String>,
    /// Data files that are not open yet.
    files: vec::IntoIter<PathBuf>,
    file: Option<(PathBuf, ParquetRecordBatchReader)>,
    /// Number of frames that were read so far.
    frames: u64,
    /// Number of frames in the dataset according to `meta/info.json`.
    expected: u64,
    /// Index of the episode of the frame that was read last, and index of the frame in that episode; `None` before the
    /// first frame.
    last: Option<(i64, i64)>,
}

/// Batch of consecutive frames of a dataset, as [`Reader::next_frames`] returns it.
pub struct Frames {
    episodes: Vec<i64>,
    indices: Vec<i64>,
    tasks: Vec<i64>,
    times_s: Option<Times>,
    columns: Vec<Column>,
}

/// The `timestamp` of each frame, s since its episode began, and the relative precision of the column's float type. The error
/// is the name of the column's type, if it is not float32 or float64.
type Times = Result<(Vec<f64>, f64), String>;

struct Column {
    feature: Feature,
    data: Data,
}

enum Data {
    Numbers(Buffer),
    /// PNG files as bytes, one for each frame.
    Images(ArrayRef),
}

impl Reader {
    /// Opens the dataset in `folder`, and reads its description and its tasks.
    ///
    /// # Errors
    /// If the folder has no dataset of version 2.1 or 3.0, or the dataset's description is not valid.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, Error> {
        let folder = folder.as_ref();
        let (dataset, expected) = info::read_info(folder)?;
        Ok(Self {
            tasks: info::read_tasks(folder, dataset.version)?,
            files: info::data_files(folder)?.into_iter(),
            file: None,
            frames: 0,
            expected,
            last: None,
            folder: folder.to_owned(),
            dataset,
        })
    }

    /// Description of the dataset, without the features that [`retain`](Self::retain) has removed.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// Descriptions of the tasks, such as `reach for the cup`, in the order of their indices.
    pub fn tasks(&self) -> &[String] {
        &self.tasks
    }

    /// Keeps the features for which `keep` returns true. The columns of other features are not read from the files.
    pub fn retain(&mut self, keep: impl FnMut(&Feature) -> bool) {
        self.dataset.features.retain(keep);
    }

    /// Reads the next batch of frames; `None` at the end of the dataset.
    ///
    /// # Errors
    /// If a feature can't be read, such as a video. If a data file is damaged or contradicts `meta/info.json`: the next call
    /// continues with the next file. Once at the end, if the number of frames differs from the number in `meta/info.json`.
    pub fn next_frames(&mut self) -> Result<Option<Frames>, Error> {
        loop {
            let Some((path, batches)) = &mut self.file else {
                let Some(path) = self.files.next() else {
                    return self.end();
                };
                let batches = open(&path, &self.dataset.features)?;
                self.file = Some((path, batches));
                continue;
            };
            let next = guarded(|| Ok(batches.next().transpose()?));
            let frames = next.and_then(|batch| {
                let Some(batch) = batch else { return Ok(None) };
                let frames = self.dataset.frames(&batch)?;
                check_order(&mut self.last, &frames, self.tasks.len())?;
                self.frames += frames.len() as u64;
                Ok(Some(frames))
            });
            let frames = frames.map_err(|problem| Error::file(path, problem));
            if let Ok(Some(_)) = frames {
                return frames;
            }
            self.file = None;
            frames?;
        }
    }

    fn end(&mut self) -> Result<Option<Frames>, Error> {
        let (found, expected) = (self.frames, std::mem::replace(&mut self.expected, self.frames));
        if found == expected {
            return Ok(None);
        }
        let path = self.folder.join("data");
        let problem = format!(
            "{found} frames could be read, and meta/info.json has {expected} `total_frames` (needed: all data files, whole)"
        );
        Err(Error::file(&path, problem))
    }
}

/// Opens a data file to read the columns of `features`, and the columns that every dataset has, such as `frame_index`.
fn open(path: &Path, features: &[Feature]) -> Result<ParquetRecordBatchReader, Error> {
    for feature in features {
        if let Kind::Other(kind) = &feature.kind {
            let problem = format!(
                "it is {kind}, which is not read (allowed: numbers, bool, image; leave it out, or write it as images with LeRobot)"
            );
            return Err(Error::feature(&feature.name, problem));
        }
    }
    let file = file::open(path).map_err(|source| Error::io(path, source))?;
    let opened = guarded(|| {
        let builder = ParquetRecordBatchReaderBuilder::try_new(file)?;
        let bookkeeping = [EPISODE_INDEX, FRAME_INDEX, TASK_INDEX];
        let wanted = features.iter().map(|feature| feature.name.as_str()).chain(bookkeeping);
        let mut roots = Vec::new();
        for name in wanted {
            match builder.schema().index_of(name) {
                Ok(root) => roots.push(root),
                Err(_) => return Ok(Err(format!("no column `{name}`, which meta/info.json says there is"))),
            }
        }
        roots.extend(builder.schema().index_of(TIMESTAMP).ok());
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
        Ok(Ok(builder.with_projection(mask).with_batch_size(BATCH).build()?))
    });
    opened.flatten().map_err(|problem| Error::file(path, problem))
}

/// Checks that each frame is the next one of its episode, or the first one of a later episode. Checks that its task index is
/// below `tasks`. `last` has the episode and the index of the previous frame; `None` before the first frame.
fn check_order(last: &mut Option<(i64, i64)>, frames: &Frames, tasks: usize) -> Result<(), String> {
    for frame in 0..frames.len() {
        let (episode, index, task) = (frames.episodes[frame], frames.indices[frame], frames.tasks[frame]);
        let is_next = match *last {
            Some((before, index_before)) if episode == before => index == index_before + 1,
            Some((before, _)) => episode > before && index == 0,
            None => episode >= 0 && index == 0,
        };
        if !is_next {
            let before = last.map_or("at the beginning".to_owned(), |(episode, index)| {
                format!("behind frame {index} of episode {episode}")
            });
            let allowed = "the next frame, or frame 0 of a later episode";
            let frame = format!("frame {index} of episode {episode}");
            return Err(format!("{frame} {before} (allowed: {allowed})"));
        }
        if !(0..tasks as i64).contains(&task) {
            let allowed = format!("less than {tasks}, as many as there are tasks");
            let frame = format!("frame {index} of episode {episode}");
            return Err(format!("`task_index` {task} of {frame} (allowed: {allowed})"));
        }
        *last = Some((episode, index));
    }
    Ok(())
}

impl Dataset {
    fn frames(&self, batch: &RecordBatch) -> Result<Frames, String> {
        let whole = |name: &str| -> Result<Vec<i64>, String> {
            let feature = Feature::new(name, Kind::Numbers(Dtype::Int64), [1]);
            let buffer = numbers_of(column(batch, name)?, &feature)?;
            Ok(Values::new(Dtype::Int64, &buffer).as_slice().to_vec())
        };
        let columns = self.features.iter().map(|feature| {
            let array = column(batch, &feature.name)?;
            let data = match feature.kind {
                Kind::Image => images_of(array).map(Data::Images),
                _ => numbers_of(array, feature).map(Data::Numbers),
            };
            let data = data.map_err(|problem| format!("column `{}` {problem}", feature.name))?;
            let feature = feature.clone();
            Ok(Column { feature, data })
        });
        Ok(Frames {
            columns: columns.collect::<Result<_, String>>()?,
            episodes: whole(EPISODE_INDEX)?,
            indices: whole(FRAME_INDEX)?,
            tasks: whole(TASK_INDEX)?,
            times_s: batch.column_by_name(TIMESTAMP).map(times_of),
        })
    }
}

/// Reads a column of timestamps, s; a null is NaN. A float32 is read as the shortest decimal number that rounds to it.
fn times_of(array: &ArrayRef) -> Times {
    let decimal = |time: f32| time.to_string().parse().unwrap_or(f64::NAN);
    match array.data_type() {
        DataType::Float32 => {
            let times = array.as_primitive::<Float32Type>().iter();
            let times = times.map(|time| time.map_or(f64::NAN, decimal)).collect();
            Ok((times, f32::EPSILON.into()))
        }
        DataType::Float64 => {
            let times = array.as_primitive::<Float64Type>().iter();
            Ok((times.map(|time| time.unwrap_or(f64::NAN)).collect(), f64::EPSILON))
        }
        other => Err(other.to_string()),
    }
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef, String> {
    batch.column_by_name(name).ok_or_else(|| format!("no column `{name}`"))
}

/// Returns the elements of a feature's column, frame after frame, row-major.
fn numbers_of(array: &ArrayRef, feature: &Feature) -> Result<Buffer, String> {
    let mut array = array.clone();
    for (axis, &n) in feature.shape.iter().enumerate() {
        let is_plain = !array.data_type().is_nested();
        if axis == 0 && feature.is_scalar() && is_plain {
            break;
        }
        array = inner_of(&array, n)?;
    }
    if array.null_count() > 0 {
        return Err("has nulls (allowed: a value in every frame)".to_owned());
    }
    let dtype = feature.kind.dtype().unwrap_or(Dtype::UInt8);
    let (found, allowed) = match feature.kind {
        Kind::Bool => (array.data_type(), DataType::Boolean),
        _ => (array.data_type(), dtype.arrow_type()),
    };
    if *found != allowed {
        return Err(format!("is of {found} (allowed: {allowed}, as meta/info.json says)"));
    }
    if feature.kind == Kind::Bool {
        let bytes: Vec<u8> = array.as_boolean().values().iter().map(u8::from).collect();
        return Ok(bytes.into());
    }
    let data = array.to_data();
    let size = dtype.size();
    Ok(data.buffers()[0].slice_with_length(data.offset() * size, data.len() * size))
}

/// Returns the flattened elements of a column of lists, each of which must have `n` elements.
fn inner_of(array: &ArrayRef, n: usize) -> Result<ArrayRef, String> {
    if array.null_count() > 0 {
        return Err("has nulls (allowed: a value in every frame)".to_owned());
    }
    let elements = match array.data_type() {
        DataType::FixedSizeList(_, found) if *found as usize == n => Ok(array.as_fixed_size_list().values().clone()),
        DataType::FixedSizeList(_, found) => Err(*found as usize),
        DataType::List(_) => elements_of(array.as_list::<i32>(), n),
        DataType::LargeList(_) => elements_of(array.as_list::<i64>(), n),
        other => return Err(format!("is of {other} (allowed: lists of {n}, as meta/info.json says)")),
    };
    elements.map_err(|found| format!("has a list of {found} (allowed: {n}, as meta/info.json says)"))
}

/// Returns the flattened elements of lists of `n` elements. The error is the length of the first list with another length.
fn elements_of<O: OffsetSizeTrait>(lists: &GenericListArray<O>, n: usize) -> Result<ArrayRef, usize> {
    match lists.offsets().lengths().find(|&found| found != n) {
        Some(found) => Err(found),
        None => Ok(lists.values().slice(lists.offsets()[0].as_usize(), lists.len() * n)),
    }
}

fn images_of(array: &ArrayRef) -> Result<ArrayRef, String> {
    let bytes = array.as_struct_opt().and_then(|images| images.column_by_name("bytes"));
    let bytes = bytes.filter(|bytes| matches!(bytes.data_type(), DataType::Binary | DataType::LargeBinary));
    let found = || format!("is of {} (allowed: a struct with `bytes`, of a PNG)", array.data_type());
    let bytes = bytes.ok_or_else(found)?;
    if bytes.null_count() > 0 || array.null_count() > 0 {
        let allowed = "images in the file itself, not as paths";
        return Err(format!("has an image without `bytes` (allowed: {allowed})"));
    }
    Ok(bytes.clone())
}

impl Frames {
    /// Number of frames in the batch.
    pub fn len(&self) -> usize {
        self.episodes.len()
    }

    /// True if the batch has no frames.
    pub fn is_empty(&self) -> bool {
        self.episodes.is_empty()
    }

    /// Index of the episode that a frame belongs to.
    ///
    /// # Panics
    /// If `frame` is not below [`len`](Self::len). The other methods with an argument `frame` panic, too.
    pub fn episode(&self, frame: usize) -> i64 {
        self.episodes[frame]
    }

    /// Index of a frame in its episode, from 0.
    pub fn index(&self, frame: usize) -> i64 {
        self.indices[frame]
    }

    /// The `timestamp` of a frame, s since its episode began; NaN for a null. Returns `None` if the dataset has no readable
    /// `timestamp`.
    pub fn time_s(&self, frame: usize) -> Option<f64> {
        self.times().ok()?.map(|(times, _)| times[frame])
    }

    /// The `timestamp` of each frame, s since its episode began, and the relative precision of its float type; `None` if the
    /// dataset has no `timestamp`.
    ///
    /// # Errors
    /// Names the type of `timestamp`, if it is neither float32 nor float64.
    pub fn times(&self) -> Result<Option<(&[f64], f64)>, &str> {
        match &self.times_s {
            None => Ok(None),
            Some(Ok((times, exact))) => Ok(Some((times, *exact))),
            Some(Err(of)) => Err(of),
        }
    }

    /// Index of a frame's task in [`Reader::tasks`].
    pub fn task(&self, frame: usize) -> usize {
        self.tasks[frame] as usize
    }

    /// Elements of a feature in one frame, row-major; bools are bytes of 0 or 1. `feature` is an index
    /// in [`Dataset::features`].
    ///
    /// # Panics
    /// If the feature is an image.
    pub fn values(&self, feature: usize, frame: usize) -> Values<'_> {
        let Column { feature, data } = &self.columns[feature];
        match data {
            Data::Numbers(buffer) => {
                let values = Values::new(feature.kind.dtype().unwrap_or(Dtype::UInt8), buffer);
                values.slice(frame * feature.len(), (frame + 1) * feature.len())
            }
            Data::Images(_) => panic!("`{}` is an image", feature.name),
        }
    }

    /// Decodes an image to its pixels, row-major with the channels of a pixel side by side. `feature` is an index in
    /// [`Dataset::features`].
    ///
    /// # Errors
    /// If the data are not a PNG, or have another shape than the feature.
    ///
    /// # Panics
    /// If the feature is not an image.
    pub fn image(&self, feature: usize, frame: usize) -> Result<Vec<u8>, Error> {
        let Column { feature, data } = &self.columns[feature];
        let file = match data {
            Data::Images(files) if *files.data_type() == DataType::Binary => files.as_binary::<i32>().value(frame),
            Data::Images(files) => files.as_binary::<i64>().value(frame),
            Data::Numbers(_) => panic!("`{}` is not an image", feature.name),
        };
        image::decode(file, &feature.shape).map_err(|problem| {
            let (episode, index) = (self.episodes[frame], self.indices[frame]);
            Error::feature(&feature.name, format!("frame {index} of episode {episode}: {problem}"))
        })
    }
}

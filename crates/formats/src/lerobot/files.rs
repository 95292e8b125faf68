//! Parquet files of a dataset: a writer, and a guard for reading files that may be damaged. The guard turns a panic of the
//! decoder into an error.

use crate::Error;
use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use std::collections::HashMap;
use std::fs::{self, File};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Writer of a Parquet file, compressed with Snappy as in LeRobot.
pub(super) struct Table {
    path: PathBuf,
    writer: ArrowWriter<File>,
}

impl Table {
    /// Creates a Parquet file, and its folder if needed. `about` is a key and its value for the file's metadata. They tell a
    /// library such as pandas how to load the table. `None` adds nothing.
    pub(super) fn create(path: PathBuf, schema: &SchemaRef, about: Option<(&str, String)>) -> Result<Self, Error> {
        let file = create_file(&path)?;
        let about: HashMap<String, String> = about.into_iter().map(|(key, text)| (key.to_owned(), text)).collect();
        let keys = about.iter().map(|(key, text)| KeyValue::new(key.clone(), text.clone()));
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            // Measurements hardly repeat.
            .set_dictionary_enabled(false)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_key_value_metadata(Some(keys.collect()))
            .build();
        // Arrow's own libraries read metadata of the schema, other libraries those of the file.
        let schema = Arc::new(Schema::new_with_metadata(schema.fields().clone(), about));
        let writer = ArrowWriter::try_new(file, schema, Some(properties));
        let writer = writer.map_err(|error| Error::file(&path, error))?;
        Ok(Self { path, writer })
    }

    /// Adds rows to the current row group, which is in memory. Writes the row group to the file once it has `row_group` bytes.
    pub(super) fn write(&mut self, batch: &RecordBatch, row_group: usize) -> Result<(), Error> {
        self.writer
            .write(batch)
            .map_err(|error| Error::file(&self.path, error))?;
        match self.writer.in_progress_size() >= row_group {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Ends the row group, and writes it to the file.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        self.writer.flush().map_err(|error| Error::file(&self.path, error))
    }

    /// Number of bytes written to the file; the current row group does not count.
    pub(super) fn bytes(&self) -> usize {
        self.writer.bytes_written()
    }

    pub(super) fn close(self) -> Result<(), Error> {
        let closed = self.writer.close().map(drop);
        closed.map_err(|error| Error::file(&self.path, error))
    }
}

/// Creates a file, and its folder if needed.
pub(super) fn create_file(path: &Path) -> Result<File, Error> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(|source| Error::io(folder, source))?;
    File::create(path).map_err(|source| Error::io(path, source))
}

/// Runs `read`, which decodes a file that may be damaged. A panic of the decoder becomes an error.
pub(super) fn guarded<T>(read: impl FnOnce() -> Result<T, Box<dyn std::error::Error>>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(read) => read.map_err(|error| error.to_string()),
        Err(_) => Err("it is damaged: the decoder gave up (needed: a whole Parquet file; copy it again)".to_owned()),
    }
}

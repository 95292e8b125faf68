//! The Parquet files of a dataset: how they are written, and how damaged ones are read.

use super::LerobotError;
use arrow_schema::{Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use std::collections::HashMap;
use std::fs::{self, File};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

/// A Parquet file as LeRobot writes them: compressed with snappy. A library that reads it finds `about` under its name.
pub(super) fn create_file(
    path: &Path,
    schema: &SchemaRef,
    about: Option<(&str, String)>,
) -> Result<ArrowWriter<File>, LerobotError> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(LerobotError::io(folder))?;
    let file = File::create(path).map_err(LerobotError::io(path))?;
    let about: HashMap<String, String> = about.into_iter().map(|(key, text)| (key.to_owned(), text)).collect();
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        // Measurements hardly repeat.
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_key_value_metadata(Some(
            about
                .iter()
                .map(|(key, text)| KeyValue::new(key.clone(), text.clone()))
                .collect(),
        ))
        .build();
    // Arrow's own libraries look into its schema, others into the file's keys.
    let schema = Arc::new(Schema::new_with_metadata(schema.fields().clone(), about));
    ArrowWriter::try_new(file, schema, Some(properties)).map_err(|error| LerobotError::file(path, error))
}

/// What reads a file that may be damaged, also where the decoder gives up on it.
pub(super) fn guarded<T>(read: impl FnOnce() -> Result<T, Box<dyn std::error::Error>>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(read) => read.map_err(|error| error.to_string()),
        Err(_) => Err("it is damaged: the decoder gave up".to_owned()),
    }
}

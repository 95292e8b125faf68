//! The files of a bag: one MCAP file, or those that the `metadata.yaml` of a folder of rosbag2 lists.

use super::ReadError;
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};

const METADATA: &str = "metadata.yaml";

#[derive(Deserialize)]
struct Metadata {
    rosbag2_bagfile_information: Information,
}

#[derive(Deserialize)]
struct Information {
    storage_identifier: String,
    #[serde(default)]
    relative_file_paths: Vec<PathBuf>,
    #[serde(default)]
    compression_format: String,
    #[serde(default)]
    compression_mode: String,
}

/// Whether this is a folder of rosbag2, as far as can be seen from outside.
pub(super) fn is_bag(path: &Path) -> bool {
    path.join(METADATA).is_file() || !mcap_files(path).is_empty()
}

/// The MCAP files of a path, in their order.
pub(super) fn of(path: &Path) -> Result<Vec<PathBuf>, ReadError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let metadata = path.join(METADATA);
    let refused = |path: &Path, problem: String| {
        Err(ReadError::NotABag {
            path: path.to_owned(),
            problem,
        })
    };
    if !metadata.exists() {
        // What was recorded until the recorder died.
        let found = mcap_files(path);
        let problem = "no `metadata.yaml` and no `.mcap` file (allowed: a folder of rosbag2)";
        return if found.is_empty() {
            refused(path, problem.to_owned())
        } else {
            Ok(found)
        };
    }
    let text = fs::read_to_string(&metadata).map_err(|source| ReadError::Io {
        path: metadata.clone(),
        source,
    })?;
    let Metadata {
        rosbag2_bagfile_information: bag,
    } = match crate::yaml::from_str(&text) {
        Ok(read) => read,
        Err(error) => return refused(&metadata, format!("{error} (allowed: the metadata of rosbag2)")),
    };
    if bag.storage_identifier != "mcap" {
        let came = bag.storage_identifier;
        let problem =
            format!("storage `{came}` (allowed: mcap; `ros2 bag convert` and `mcap convert` make it of others)");
        return refused(&metadata, problem);
    }
    // MCAP compresses its chunks by itself.
    let mode = bag.compression_mode.to_lowercase();
    if !bag.compression_format.is_empty() && !matches!(mode.as_str(), "" | "none" | "storage") {
        let problem = format!(
            "`compression_mode: {mode}` with {} (allowed: none, or storage, which compresses chunks within a file; `ros2 bag convert` \
             makes it of others)",
            bag.compression_format
        );
        return refused(&metadata, problem);
    }
    let listed = bag.relative_file_paths.iter();
    // Some versions write the name of the folder before that of the file.
    let found = listed.map(|file| {
        let within = path.join(file);
        match (within.exists(), file.file_name()) {
            (false, Some(name)) => path.join(name),
            _ => within,
        }
    });
    match found.collect::<Vec<_>>() {
        found if found.is_empty() => refused(
            &metadata,
            "no files in `relative_file_paths` (allowed: one or more)".into(),
        ),
        found => Ok(found),
    }
}

fn mcap_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "mcap"))
        .collect();
    found.sort();
    found
}

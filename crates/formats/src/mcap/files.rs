//! Finding of a bag's files: one file, or the files that the `metadata.yaml` of a rosbag2 folder lists. Other bag files in the
//! folder are not read; a line for the user names them.

use crate::Error;
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
    message_count: Option<u64>,
}

/// Files of a bag, and the contents of its `metadata.yaml`.
#[derive(Default)]
pub(super) struct Bag {
    /// Paths of the bag's files, in the order in which they are read.
    pub files: Vec<PathBuf>,
    /// Number of messages in the bag according to `metadata.yaml`; `None` if it gives no number.
    pub stated_messages: Option<u64>,
    /// Line for the user with the bag files in the folder that `metadata.yaml` does not list; `None` if there are none.
    pub unlisted: Option<String>,
}

/// True if a folder looks like a bag of rosbag2: it has a `metadata.yaml`, or a file with the name of a bag.
pub(super) fn is_bag(path: &Path) -> bool {
    path.join(METADATA).is_file() || !bag_files(path).is_empty()
}

/// Finds the files of the bag at `path`, which is a file or a folder.
pub(super) fn of(path: &Path) -> Result<Bag, Error> {
    let of_files = |files: Vec<PathBuf>| Bag {
        files,
        ..Bag::default()
    };
    if !path.is_dir() {
        return Ok(of_files(vec![path.to_owned()]));
    }
    let metadata = path.join(METADATA);
    if !metadata.exists() {
        // A recorder that died has written files, and no `metadata.yaml`.
        let found = bag_files(path);
        let problem = "no `metadata.yaml`, and no `.mcap` or `.db3` file (allowed: a folder of rosbag2)";
        return match found.is_empty() {
            true => Err(Error::file(path, problem)),
            false => Ok(of_files(found)),
        };
    }
    let refused = |problem: String| Error::file(&metadata, problem);
    let text = fs::read_to_string(&metadata).map_err(|source| Error::io(&metadata, source))?;
    let Metadata {
        rosbag2_bagfile_information: bag,
    } = robocache_yaml::from_str(&text).map_err(|error| {
        refused(format!(
            "{error} (allowed: the metadata of rosbag2; without this file, all bags of the folder are read)"
        ))
    })?;
    if !matches!(bag.storage_identifier.as_str(), "mcap" | "sqlite3") {
        let came = bag.storage_identifier;
        return Err(refused(format!("storage `{came}` (allowed: mcap, sqlite3)")));
    }
    if !matches!(bag.compression_format.as_str(), "" | "zstd") {
        let came = bag.compression_format;
        return Err(refused(format!("`compression_format: {came}` (allowed: zstd)")));
    }
    if bag.relative_file_paths.is_empty() {
        let problem = "no files in `relative_file_paths` (allowed: one or more; without this file, all bags of the folder are read)";
        return Err(refused(problem.to_owned()));
    }
    // Some versions write the folder's name before the file's, and some leave out the ending of compressed files.
    let found = bag.relative_file_paths.iter().map(|file| {
        let name = file.file_name().unwrap_or_default();
        let mut compressed = name.to_owned();
        compressed.push(".zstd");
        let places = [path.join(file), path.join(name), path.join(compressed)];
        let there = places.iter().find(|place| place.exists());
        there.unwrap_or(&places[0]).clone()
    });
    let files: Vec<PathBuf> = found.collect();
    let others = bag_files(path).into_iter().filter(|file| !files.contains(file));
    let name = |file: PathBuf| format!("`{}`", file.file_name().unwrap_or_default().to_string_lossy());
    let others: Vec<String> = others.map(name).collect();
    let unlisted = (!others.is_empty()).then(|| {
        let (metadata, others) = (metadata.display(), others.join(", "));
        format!("{metadata}: it does not list {others}, and what it does not list is not read")
    });
    Ok(Bag {
        stated_messages: bag.message_count,
        unlisted,
        files,
    })
}

/// True if a file has the name of a bag's file: the name ends with `.mcap`, `.db3`, `.mcap.zstd` or `.db3.zstd`.
fn is_bag_file(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let plain = name.strip_suffix(".zstd").unwrap_or(&name);
    [".mcap", ".db3"].iter().any(|ending| plain.ends_with(ending))
}

fn bag_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| is_bag_file(path))
        .collect();
    // A file that was being compressed when the recorder died is there twice.
    let plain: Vec<PathBuf> = found.clone();
    found.retain(|path| {
        path.extension().is_none_or(|ending| ending != "zstd") || !plain.contains(&path.with_extension(""))
    });
    found.sort_by_cached_key(|path| ordered(&path.to_string_lossy()));
    found
}

/// Returns a sort key for a file name: its numbers are padded, so that `bag_10` follows `bag_2`.
fn ordered(name: &str) -> String {
    let mut key = String::new();
    let mut digits = String::new();
    for c in name.chars().chain(['\0']) {
        if c.is_ascii_digit() {
            digits.push(c);
        } else {
            if !digits.is_empty() {
                key.push_str(&format!("{digits:0>20}"));
                digits.clear();
            }
            key.push(c);
        }
    }
    key
}

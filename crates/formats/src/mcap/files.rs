//! The files of a bag: one file, or those that the `metadata.yaml` of a folder of rosbag2 lists.

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
    message_count: Option<u64>,
}

/// What a bag is made of.
#[derive(Default)]
pub(super) struct Bag {
    /// Its files, in their order.
    pub files: Vec<PathBuf>,
    /// How many messages its `metadata.yaml` says that they have.
    pub says_messages: Option<u64>,
    /// The files beside them that `metadata.yaml` does not list, in words.
    pub unlisted: Option<String>,
}

/// Whether this is a folder of rosbag2, as far as can be seen from outside.
pub(super) fn is_bag(path: &Path) -> bool {
    path.join(METADATA).is_file() || !bag_files(path).is_empty()
}

/// What a path is, a file or a folder.
pub(super) fn of(path: &Path) -> Result<Bag, ReadError> {
    let of_files = |files: Vec<PathBuf>| Bag {
        files,
        ..Bag::default()
    };
    if !path.is_dir() {
        return Ok(of_files(vec![path.to_owned()]));
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
        let found = bag_files(path);
        let problem = "no `metadata.yaml`, and no `.mcap` or `.db3` file (allowed: a folder of rosbag2)";
        return if found.is_empty() {
            refused(path, problem.to_owned())
        } else {
            Ok(of_files(found))
        };
    }
    let text = fs::read_to_string(&metadata).map_err(|source| ReadError::Io {
        path: metadata.clone(),
        source,
    })?;
    let Metadata {
        rosbag2_bagfile_information: bag,
    } = match robocache_yaml::from_str(&text) {
        Ok(read) => read,
        Err(error) => return refused(&metadata, format!("{error} (allowed: the metadata of rosbag2)")),
    };
    if !matches!(bag.storage_identifier.as_str(), "mcap" | "sqlite3") {
        let came = bag.storage_identifier;
        return refused(&metadata, format!("storage `{came}` (allowed: mcap, sqlite3)"));
    }
    if !matches!(bag.compression_format.as_str(), "" | "zstd") {
        let came = bag.compression_format;
        return refused(&metadata, format!("`compression_format: {came}` (allowed: zstd)"));
    }
    let listed = bag.relative_file_paths.iter();
    // Some versions write the name of the folder before that of the file, and some forget what compression adds to it.
    let found = listed.map(|file| {
        let name = file.file_name().unwrap_or_default();
        let mut compressed = name.to_owned();
        compressed.push(".zstd");
        let places = [path.join(file), path.join(name), path.join(compressed)];
        let [listed, ..] = &places;
        places.iter().find(|place| place.exists()).unwrap_or(listed).clone()
    });
    match found.collect::<Vec<_>>() {
        found if found.is_empty() => refused(
            &metadata,
            "no files in `relative_file_paths` (allowed: one or more)".into(),
        ),
        found => {
            let others = bag_files(path).into_iter().filter(|file| !found.contains(file));
            let others: Vec<String> = others.map(|file| name_of(&file)).collect();
            Ok(Bag {
                says_messages: bag.message_count,
                unlisted: (!others.is_empty()).then(|| {
                    let (metadata, others) = (metadata.display(), others.join(", "));
                    format!("{metadata}: it does not list {others}, and what it does not list is not read")
                }),
                files: found,
            })
        }
    }
}

fn name_of(file: &Path) -> String {
    format!("`{}`", file.file_name().unwrap_or_default().to_string_lossy())
}

/// Whether a file is called as those of bags are.
pub(super) fn is_bag_file(path: &Path) -> bool {
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
    // What was being compressed when the recorder died is there twice.
    let plain: Vec<PathBuf> = found.clone();
    found.retain(|path| {
        path.extension().is_none_or(|ending| ending != "zstd") || !plain.contains(&path.with_extension(""))
    });
    found.sort_by_cached_key(|path| ordered(&path.to_string_lossy()));
    found
}

/// A name with its numbers as long as each other: `bag_10` comes behind `bag_2`.
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

//! The files of a recording: `NAME.arrow` for each stream, and `NAME.arrow.2`, `NAME.arrow.3` if its recorder was restarted.
//!
//! The number follows the extension, so that it can't be part of the name of a stream: `arm.2` may be a stream.

use super::EXTENSION;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Name of the file, in a recording's folder, that stores the name of the run, such as a run of a dataflow. A later process of
/// the same run continues the recording.
pub(super) const RUN: &str = ".run";

/// Parses the name of a file into the name of the stream and the file's number, from 1. Returns `None` if the file is not one of a
/// recording.
fn part_of(file: &str) -> Option<(&str, u32)> {
    if let Some(stream) = file.strip_suffix(EXTENSION).and_then(|stem| stem.strip_suffix('.')) {
        return Some((stream, 1));
    }
    let (first, number) = file.rsplit_once('.')?;
    let number = number
        .parse()
        .ok()
        .filter(|&part: &u32| part > 1 && number == part.to_string())?;
    part_of(first)
        .filter(|&(_, part)| part == 1)
        .map(|(stream, _)| (stream, number))
}

/// The path of the stream's file of this number, from 1.
pub(super) fn part(folder: &Path, stream: &str, number: u32) -> PathBuf {
    match number {
        1 => folder.join(format!("{stream}.{EXTENSION}")),
        _ => folder.join(format!("{stream}.{EXTENSION}.{number}")),
    }
}

/// Lists the files of each stream in a folder, in the order in which they were written. If numbers are missing, the path of the
/// first missing file is included, so that reading it fails.
pub(super) fn streams(folder: &Path) -> io::Result<BTreeMap<String, Vec<PathBuf>>> {
    let mut found: BTreeMap<String, Vec<(u32, PathBuf)>> = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        if let Some((stream, number)) = name.as_deref().and_then(part_of) {
            found.entry(stream.to_owned()).or_default().push((number, path));
        }
    }
    let in_order = |(stream, mut parts): (String, Vec<(u32, PathBuf)>)| -> (String, Vec<PathBuf>) {
        parts.sort();
        let mut next = 1;
        let mut files = Vec::with_capacity(parts.len());
        for (number, path) in parts {
            files.extend((number > next).then(|| part(folder, &stream, next)));
            files.push(path);
            next = number.saturating_add(1);
        }
        (stream, files)
    };
    Ok(found.into_iter().map(in_order).collect())
}

/// The number of a stream's next file, if `files` are all its files so far.
pub(super) fn number_after(files: &[PathBuf]) -> u32 {
    let name = files.last().and_then(|path| path.file_name()).unwrap_or_default();
    part_of(&name.to_string_lossy()).map_or(1, |(_, number)| number.saturating_add(1))
}

/// All files of the stream whose first file is `file`. Returns `file` alone if it is not the first file of a stream.
pub(super) fn beside(file: &Path) -> io::Result<Vec<PathBuf>> {
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned());
    let stream = name.as_deref().and_then(part_of).filter(|&(_, number)| number == 1);
    let folder = file.parent().map(|folder| match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    });
    let parts = match stream.zip(folder) {
        Some(((stream, _), folder)) => streams(folder)?.remove(stream),
        None => None,
    };
    Ok(parts.unwrap_or_else(|| vec![file.to_owned()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_the_stream_and_the_part() {
        let cases = [
            ("lidar.arrow", Some(("lidar", 1))),
            ("lidar.arrow.2", Some(("lidar", 2))),
            ("lidar.arrow.17", Some(("lidar", 17))),
            ("arm.2.arrow", Some(("arm.2", 1))),
            ("arm.2.arrow.2", Some(("arm.2", 2))),
            ("a.arrow.2.arrow", Some(("a.arrow.2", 1))),
            ("a.arrow.2.3", None),
            ("lidar.arrow.1", None),
            ("lidar.arrow.02", None),
            ("lidar.arrow.bak", None),
            ("lidar.2", None),
            ("robocache.yml", None),
        ];
        for (file, part) in cases {
            assert_eq!(part_of(file), part, "{file}");
        }
    }
}

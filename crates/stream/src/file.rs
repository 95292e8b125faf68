//! Opening of regular files for reading.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Opens a file, or the target of a symbolic link. Refuses folders, sockets, pipes and devices; opening a pipe may
/// block forever.
pub fn open(path: &Path) -> io::Result<File> {
    if !fs::metadata(path)?.is_file() {
        let problem = "a folder, a pipe, a socket or a device (allowed: a file, or a link to one)";
        return Err(io::Error::other(problem));
    }
    File::open(path)
}

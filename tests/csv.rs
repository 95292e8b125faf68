//! Tables as text: what is too long is refused.

#![allow(clippy::unwrap_used)]

use robocache::formats::csv::{Options, Reader};
use robocache::prelude::*;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};

/// A file of `head`, a hole that reads as zeros without a line break, and `tail`.
fn holed(name: &str, head: &str, hole: i64, tail: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("robocache-csv-{name}-{}.csv", std::process::id()));
    let mut file = File::create(&path).unwrap();
    file.write_all(head.as_bytes()).unwrap();
    file.seek(SeekFrom::Current(hole)).unwrap();
    file.write_all(tail.as_bytes()).unwrap();
    path
}

#[test]
fn a_line_that_is_too_long_is_refused_and_the_rest_comes() {
    let path = holed("row", "time_ns,x\n1,1\n2,", 65 << 20, "\n3,3\n");
    let mut reader = Reader::open(&path, &Options::default()).unwrap();
    let (mut message, mut came, mut said) = (Message::default(), Vec::new(), Vec::new());
    loop {
        match reader.next_into(&mut message) {
            Ok(Some(_)) => came.push(message.timestamp_ns()),
            Ok(None) => break,
            Err(error) => said.push(error.to_string()),
        }
    }
    assert_eq!(came, [1, 3]);
    let words = ".csv:3: a line of more than 67108864 bytes (allowed: 67108864)";
    assert!(said.len() == 1 && said[0].ends_with(words), "{said:?}");
    fs::remove_file(path).unwrap();
}

#[test]
fn a_file_without_line_breaks_is_refused() {
    let path = holed("file", "time,x", 200 << 20, "x");
    let refused = Reader::open(&path, &Options::default()).err().unwrap().to_string();
    assert!(refused.contains("a line of more than 67108864 bytes"), "{refused}");
    fs::remove_file(path).unwrap();
}

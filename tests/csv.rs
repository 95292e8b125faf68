//! CSV tables: rows that are too long or malformed are refused.

use crate::common::{Folder, read_all};
use robocache::formats::csv::{Options, Reader, Writer};
use robocache::prelude::*;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Writes a sparse file: `head`, `hole` bytes that read as zeros without a line break, and `tail`.
fn holed(folder: &Folder, head: &str, hole: i64, tail: &str) -> PathBuf {
    let path = folder.0.join("holed.csv");
    let mut file = File::create(&path).unwrap();
    file.write_all(head.as_bytes()).unwrap();
    file.seek(SeekFrom::Current(hole)).unwrap();
    file.write_all(tail.as_bytes()).unwrap();
    path
}

/// Reads a CSV table. Returns the stamps of its rows, ns, and the errors.
fn read(path: &Path) -> (Vec<i64>, Vec<String>) {
    let mut reader = Reader::open(path, &Options::default()).unwrap();
    read_all(|message| reader.next_into(message), |_, message| message.timestamp_ns())
}

#[test]
fn a_line_that_is_too_long_is_refused_and_the_rest_comes() {
    let folder = Folder::new();
    let path = holed(&folder, "time_ns,x\n1,1\n2,", 65 << 20, "\n3,3\n");
    let (came, errors) = read(&path);
    assert_eq!(came, [1, 3]);
    let words = ".csv:3: a line of more than 67108864 bytes (allowed: 67108864)";
    assert!(errors.len() == 1 && errors[0].ends_with(words), "{errors:?}");
}

#[test]
fn a_file_without_line_breaks_is_refused() {
    let folder = Folder::new();
    let path = holed(&folder, "time,x", 200 << 20, "x");
    let refused = Reader::open(&path, &Options::default()).err().unwrap().to_string();
    assert!(refused.contains("a line of more than 67108864 bytes"), "{refused}");
}

/// Writes `text` to a file and reads it as a table.
fn read_text(text: &str) -> (Vec<i64>, Vec<String>) {
    let folder = Folder::new();
    let path = folder.0.join("text.csv");
    fs::write(&path, text).unwrap();
    read(&path)
}

/// An open quote must not turn all rows up to the next quote, or to the end of the file, into the text of one cell.
#[test]
fn a_quote_that_is_not_closed_costs_its_row_alone() {
    for rest in ["2,4,y\n3,5,z\n", "2,4,y\n3,5,\"z\"\n", "2,4,\"y\"\"y\"\n3,5,\"z\nz\"\n"] {
        let (came, errors) = read_text(&format!("time_ns,a,note\n0,1,ok\n1,3,\"x\n{rest}"));
        assert_eq!(came, [0, 2, 3], "{rest}: {errors:?}");
        assert!(
            errors.len() == 1
                && errors[0].ends_with(".csv:3: a quote is not closed (needed: `\"` at the end of the cell)"),
            "{errors:?}"
        );
    }
    let (came, errors) = read_text("time_ns,a,b\n0,1,2\n1,1,\"2");
    assert_eq!(came, [0]);
    assert!(
        errors.len() == 1 && errors[0].ends_with(".csv:3: a quote is not closed (needed: `\"` at the end of the cell)"),
        "{errors:?}"
    );
    // Quoted text may go over lines, and a quote inside of a cell stands for itself.
    let (came, errors) = read_text("time_ns,a,note\n0,1,\"x\n\"\"y\"\"\n\"\n1,2,5\" x\n2,3,\"z\n\"");
    assert_eq!(came, [0, 1, 2]);
    assert!(errors.is_empty(), "{errors:?}");
}

/// The two rows have the same number of values, so that only the names of their columns differ.
#[test]
fn a_row_of_other_columns_than_the_first_is_refused() {
    let folder = Folder::new();
    let mut writer = Writer::create(folder.0.join("tables")).unwrap();
    let of = |names: [&'static str; 2]| {
        let column = |name: &'static str| ColumnLayout {
            name: name.into(),
            dtype: Dtype::Float32,
            cells: Cells::One,
        };
        let mut message = Message::default();
        message.lay_out(&Layout {
            rows: 1,
            columns: names.map(column).into(),
        });
        message
    };
    writer.append("t", &of(["a", "b"])).unwrap();
    let refused = writer.append("t", &of(["a", "c"])).unwrap_err().to_string();
    let words = "a row of `a` float32, `c` float32, and the first has `a` float32, `b` float32 (allowed: the same)";
    assert!(refused.contains(words), "{refused}");
}

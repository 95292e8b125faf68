//! Tests with damaged recordings: every reader must report the same broken parts. `ROBOCACHE_DAMAGED_RECORDINGS` sets the
//! number of recordings that are tried.

#![allow(clippy::unwrap_used)]

#[path = "../../../tests/common/random.rs"]
mod random;

use crate::{convert, info, report};
use clap::Parser;
use random::Random;
use robocache::prelude::*;
use robocache::stream::recording::Indexed;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

#[derive(Parser)]
struct Convert {
    #[command(flatten)]
    args: convert::Args,
}

#[derive(Parser)]
struct Report {
    #[command(flatten)]
    args: report::Args,
}

fn message(stream: &str, i: usize) -> Message {
    let mut message = Message::default();
    let columns = match stream {
        "lidar" => vec![("x", Dtype::Float32, 40), ("ring", Dtype::UInt16, 40)],
        _ => vec![("", Dtype::Float32, 6)],
    };
    let column = |&(name, dtype, _): &(&'static str, Dtype, usize)| ColumnLayout {
        name: name.into(),
        dtype,
        cells: Cells::One,
    };
    let layout = Layout {
        rows: columns[0].2,
        columns: columns.iter().map(column).collect(),
    };
    for column in message.lay_out(&layout) {
        column.data.bytes_mut().fill(i as u8 % 64);
    }
    message.header.timestamp_ns.set(i as i64 * 20_000_000);
    message.header.frame_id.set(if i % 50 < 40 { "map" } else { "odom" });
    message
}

/// Writes a recording in which one stream continues in a second file. Returns the names and the bytes of its files.
fn recorded(folder: &Path) -> Vec<(String, Vec<u8>)> {
    for part in 0..2 {
        let mut writer = recording::Writer::create_or_resume(folder, "run")
            .unwrap()
            .with_arrivals();
        let start = Instant::now();
        for i in part * 100..part * 100 + 100 {
            let now = start + Duration::from_millis(20 * i as u64);
            for stream in ["force", "lidar"].into_iter().take(2 - part) {
                writer.append(stream, &message(stream, i), now).unwrap();
            }
            writer.tick(now).unwrap();
        }
        writer.finish().unwrap();
    }
    let names = ["force.arrow", "force.arrow.2", "lidar.arrow"];
    names
        .map(|name| (name.to_owned(), fs::read(folder.join(name)).unwrap()))
        .into()
}

/// Cuts a file, flips bits, zeroes a range or appends garbage, at random.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len());
    match random.below(4) {
        0 => bytes.truncate(at),
        1 => {
            for _ in 0..1 + random.below(8) {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
        }
        2 => {
            let end = bytes.len().min(at + 1 + random.below(600));
            bytes[at..end].fill(0);
        }
        _ => bytes.extend((0..1 + random.below(300)).map(|_| random.below(256) as u8)),
    }
}

/// Lists the errors that reading a recording by random access finds, as Python reads it.
fn indexed(folder: &Path) -> Result<Vec<String>, String> {
    let mut problems = Vec::new();
    for stream in recording::streams(folder).map_err(|error| error.to_string())? {
        match Indexed::open_readable(folder.join(format!("{stream}.arrow"))) {
            Ok((_, found)) => problems.extend(found.iter().map(ToString::to_string)),
            Err(error) => problems.push(error.to_string()),
        }
    }
    Ok(problems)
}

fn set(problems: &[String]) -> BTreeSet<&str> {
    problems.iter().map(String::as_str).collect()
}

#[test]
fn every_reader_says_the_same_of_what_is_broken() {
    let count: usize = std::env::var("ROBOCACHE_DAMAGED_RECORDINGS").map_or(400, |count| count.parse().unwrap());
    // In memory, as all files are written and synced again and again.
    let folder = Path::new("/dev/shm").join(format!("robocache-damaged-recordings-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    let (at, out, page) = (folder.join("recording"), folder.join("out"), folder.join("page.html"));
    let files = recorded(&at);
    let (mut told, mut silent, mut refusing) = (0, 0, 0);
    // Panics of Arrow are caught and become errors, so they are not printed.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !panic.location().is_some_and(|at| at.file().contains("/arrow-")) {
            usual(panic);
        }
    }));
    for round in 0..count {
        let mut random = Random((round as u64) << 32);
        let damaged = random.below(files.len());
        let mut bytes = files[damaged].1.clone();
        damage(&mut bytes, &mut random);
        let is_changed = bytes != files[damaged].1;
        fs::write(at.join(&files[damaged].0), bytes).unwrap();
        let info = info::read(&at).unwrap();
        let converted = Convert::parse_from([Path::new("convert"), &at, &out]).args;
        let converted = convert::convert(&converted).unwrap();
        let paged = [Path::new("report"), &at, Path::new("-o"), &page];
        let paged = report::write(&Report::parse_from(paged).args).unwrap();
        let indexed = indexed(&at).unwrap();
        let broken = set(&info.problems);
        assert_eq!(set(&paged.problems), broken, "round {round}: report");
        assert_eq!(set(&indexed), broken, "round {round}: Python");
        // `convert` also reports the parts that it can't write.
        let refused = converted.streams.iter().filter(|stream| stream.refused > 0).count();
        let more: Vec<_> = set(&converted.problems).difference(&broken).copied().collect();
        assert!(set(&converted.problems).is_superset(&broken), "round {round}: convert");
        assert_eq!(more.len(), refused, "round {round}: {more:?}");
        // Every loss is reported.
        let messages: u64 = converted
            .streams
            .iter()
            .map(|stream| stream.messages + stream.refused)
            .sum();
        assert!(
            messages == 300 || !broken.is_empty(),
            "round {round}: {messages} messages of 300"
        );
        told += usize::from(!broken.is_empty());
        silent += usize::from(broken.is_empty() && is_changed);
        refusing += usize::from(refused > 0);
        fs::remove_dir_all(&out).unwrap();
        fs::write(at.join(&files[damaged].0), &files[damaged].1).unwrap();
    }
    let _ = std::panic::take_hook();
    fs::remove_dir_all(&folder).unwrap();
    println!(
        "{count} recordings: {told} told as broken, {silent} with other values alone, {refusing} with refused messages"
    );
    assert!(told > count / 3);
}

//! Damaged recordings cause no panic and take little memory, and every error names its file. `ROBOCACHE_DAMAGED_FILES` is the
//! number of damaged files to try.

use crate::common::Folder;
use crate::common::random::Random;
use crate::counting::{held, most_held, reset_most_held};
use robocache::device::Dtype;
use robocache::stream::recording::{Reader, Writer};
use robocache::stream::{Cells, Message, MetadataValue};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

fn message(stream: &str, i: usize) -> Message {
    let mut message = Message::default();
    message.header.timestamp_ns.set(i as i64 * 1000);
    if stream == "force" {
        message.rows = 6;
        message.header.shape.set([2, 3]);
        message.header.timestamps_ns.set([i as i64, i as i64 + 1]);
        let column = message.add_column("", Dtype::Float32, Cells::One);
        column.data.copy_from(&[i as u8; 24]);
    } else {
        let points = i % 20;
        message.rows = points;
        for (name, dtype) in [
            ("x", Dtype::Float32),
            ("t_ns", Dtype::Int64),
            ("shape", Dtype::BFloat16),
        ] {
            let column = message.add_column(name, dtype, Cells::One);
            column.data.copy_from(&vec![i as u8; points * dtype.size()]);
        }
        let column = message.add_column("coords", Dtype::Int32, Cells::Fixed(3));
        column.data.copy_from(&vec![i as u8; points * 12]);
        let column = message.add_column("echoes", Dtype::UInt8, Cells::Ragged(points * 2));
        column.data.copy_from(&vec![i as u8; points * 2]);
        column.offsets.extend((0..=points as i32).map(|row| row * 2));
    }
    *message.header.other.set("encoding") = MetadataValue::String("rgb8".into());
    *message.header.other.set("seq") = MetadataValue::Integer(i as i64);
    message.header.frame_id.set(if i % 50 < 40 { "map" } else { "odom" });
    message
}

/// Makes two files of each stream, as the file's name and its bytes: a complete file, and a file that a killed process left.
fn recordings(folder: &Path) -> Vec<(&'static str, Vec<u8>)> {
    let mut files = Vec::new();
    for stream in ["force", "lidar"] {
        let mut writer = Writer::create(folder).unwrap();
        let start = Instant::now();
        for i in 0..200 {
            let now = start + Duration::from_millis(20 * i);
            writer.append(stream, &message(stream, i as usize), now).unwrap();
            writer.tick(now).unwrap();
        }
        writer.finish().unwrap();
        let path = folder.join(format!("{stream}.arrow"));
        let whole = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let mut killed = whole.clone();
        killed.truncate(whole.len() * 4 / 5);
        files.extend([(stream, whole), (stream, killed)]);
    }
    files
}

fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.bits() % 3 {
        if bytes.is_empty() {
            return;
        }
        let mut any = |below: usize| (random.bits() % below.max(1) as u64) as usize;
        let (at, len) = (any(bytes.len()), 1 + any(300));
        match any(9) {
            // Wrong bits, many of them in metadata.
            0 | 1 => {
                for _ in 0..1 + any(20) {
                    let at = any(bytes.len());
                    bytes[at] ^= 1 << any(8);
                }
            }
            2 => {
                let at = any(bytes.len().min(2000));
                bytes[at] ^= 1 << any(8);
            }
            3 => bytes.truncate(at),
            4 => {
                let end = bytes.len().min(at + len);
                for byte in &mut bytes[at..end] {
                    *byte = any(256) as u8;
                }
            }
            // A wrong word in place of a length, an offset or a marker.
            5 => {
                let word = [0, -1, i64::MAX, i64::MIN, 1 << 31, any(1 << 20) as i64, 0xffff_ffff][any(7)];
                let (at, width) = (at & !3, 4 << any(2));
                let end = bytes.len().min(at + width);
                bytes[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
            }
            6 => {
                let (from, len) = (any(bytes.len()), len.min(bytes.len()));
                let (at, from) = (at.min(bytes.len() - len), from.min(bytes.len() - len));
                for i in 0..len {
                    bytes.swap(at + i, from + i);
                }
            }
            7 => {
                let part: Vec<u8> = bytes[at..bytes.len().min(at + len)].to_vec();
                let to = any(bytes.len());
                bytes.splice(to..to, part);
            }
            _ => {
                let end = bytes.len().min(at + len);
                bytes.drain(at..end);
            }
        }
    }
}

#[test]
fn damaged_files_are_errors_or_less_and_take_no_memory() {
    let files: usize = std::env::var("ROBOCACHE_DAMAGED_FILES").map_or(3000, |count| count.parse().unwrap());
    let folder = Folder::new();
    let recordings = recordings(&folder.0);
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // Panics of Arrow are caught, and become errors.
        if panic.location().is_some_and(|at| at.file().contains("/arrow-")) {
            PANICS.fetch_add(1, Relaxed);
            println!("{panic}");
        } else {
            usual(panic);
        }
    }));
    let (mut whole, mut refused, mut partly, mut errors, mut messages) = (0, 0, 0, 0, 0);
    let (mut most, mut stays) = (0, Vec::new());
    let mut message = Message::default();
    for file in 0..files {
        let mut random = Random((file as u64) << 32);
        let (stream, bytes) = &recordings[file % recordings.len()];
        let path = folder.0.join(format!("{stream}.arrow"));
        let mut bytes = bytes.clone();
        damage(&mut bytes, &mut random);
        fs::write(&path, &bytes).unwrap();
        let before = held();
        reset_most_held();
        match Reader::open(&folder.0) {
            Err(error) => {
                assert!(error.to_string().contains(".arrow"), "file {file}: {error}");
                refused += 1;
            }
            Ok(mut reader) => {
                let (mut calls, mut failed) = (0, 0);
                loop {
                    calls += 1;
                    assert!(calls < 100_000, "file {file}: no end");
                    match reader.next_into(&mut message) {
                        Ok(Some(_)) => messages += 1,
                        Ok(None) => break,
                        Err(error) => {
                            assert!(error.to_string().contains(".arrow"), "file {file}: {error}");
                            failed += 1;
                        }
                    }
                }
                errors += failed;
                *if failed > 0 { &mut partly } else { &mut whole } += 1;
            }
        }
        most = most.max(most_held() - before);
        message = Message::default();
        stays.push((held() - before).max(0));
        fs::remove_file(&path).unwrap();
    }
    let _ = std::panic::take_hook();
    println!(
        "{files} files: {whole} read without an error, {partly} in part with {errors} errors, {refused} refused; \
         {messages} messages; {} panics of Arrow caught; at most {most} bytes at once",
        PANICS.load(Relaxed)
    );
    assert!(partly > 0 && refused > 0 && whole > 0, "all kinds of damage were tried");
    assert!(most < 4 << 20, "a file of 50 kB took {most} bytes");
    let leaked: isize = stays.iter().skip(100).sum();
    assert!(leaked < files as isize * 64, "{leaked} bytes stay after {files} files");
}

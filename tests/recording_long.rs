//! A recorder that runs for hours writes only a few more bytes than its messages have. Linux counts the bytes that
//! a thread writes.

use crate::common::Folder;
use robocache::device::Dtype;
use robocache::stream::recording::{ReadError, Reader, Writer};
use robocache::stream::{Cells, Message};
use std::fs;
use std::time::{Duration, Instant};

/// Returns the number of bytes that this thread has passed to write calls, as Linux counts them.
fn written() -> u64 {
    let counts = fs::read_to_string("/proc/thread-self/io").unwrap();
    let line = counts.lines().find_map(|line| line.strip_prefix("wchar: "));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn eight_hours_write_little_more_than_the_file_and_can_be_read_at_any_moment() {
    let folder = Folder::new();
    let file = folder.file("force");
    let mut writer = Writer::create(&folder.0).unwrap();
    let (start, before) = (Instant::now(), written());
    let mut message = Message::default();
    let mut rows = 0;
    // A batch every half second.
    for half_second in 0..2 * 8 * 3600u64 {
        let now = start + Duration::from_millis(500 * half_second);
        for i in 0..2 {
            message.clear();
            message.header.timestamp_ns.set((half_second * 2 + i) as i64);
            message.rows = 6;
            let column = message.add_column("", Dtype::Float32, Cells::One);
            column.data.copy_from(&[i as u8; 24]);
            writer.append("force", &message, now).unwrap();
            rows += 1;
        }
        writer.tick(now + Duration::from_millis(500)).unwrap();
        if half_second.is_multiple_of(9973) {
            // Reads the file as a process leaves it that is killed here.
            let mut reader = Reader::open(&folder.0).unwrap();
            let mut count = 0;
            loop {
                match reader.next_into(&mut message) {
                    Ok(Some(_)) => count += 1,
                    Ok(None) => break,
                    // The recording has not ended yet.
                    Err(ReadError::Unfinished { left: 0, .. } | ReadError::NotEnded { .. }) => continue,
                    Err(error) => panic!("{error}"),
                }
            }
            assert_eq!(count, rows);
        }
    }
    writer.finish().unwrap();
    let (wrote, size) = (written() - before, fs::metadata(&file).unwrap().len());
    println!("{size} bytes of file, {wrote} bytes written, {rows} messages");
    assert!(
        (size..size * 3 / 2).contains(&wrote),
        "{wrote} bytes for a file of {size}"
    );
    let reader = arrow::ipc::reader::FileReader::try_new(fs::File::open(&file).unwrap(), None).unwrap();
    assert_eq!(reader.map(|batch| batch.unwrap().num_rows()).sum::<usize>(), rows);
}

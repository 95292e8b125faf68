//! A process that is killed while it records loses at most its last second.

use crate::common::{Folder, process_of};
use robocache::device::Dtype;
use robocache::stream::recording::{ReadError, Reader, Writer};
use robocache::stream::{Cells, Message};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const THIS: &str = "recording_killed::a_killed_recording_opens_and_lacks_no_more_than_its_last_second";
const FOLDER: &str = "ROBOCACHE_TEST_RECORD_INTO";
/// Greatest rate of all messages, Hz: the process sleeps for a period after each.
const RATE_HZ: u32 = 1000;

fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64
}

/// Returns the number of messages that the recorder has accepted, read from the file `taken`.
fn taken(folder: &Path) -> u32 {
    let mut bytes = [0; 4];
    let Ok(file) = File::open(folder.join("taken")) else {
        return 0;
    };
    // The file exists before anything is written to it.
    file.read_exact_at(&mut bytes, 0)
        .map_or(0, |()| u32::from_le_bytes(bytes))
}

/// Records until the process is killed: small messages at 1 kHz and large ones at 20 Hz, each stamped with its time and filled
/// with its number. Writes the number of recorded messages to the file `taken`.
fn record_for_ever(folder: &Path) {
    let mut writer = Writer::create(folder.join("recording")).unwrap();
    let taken = File::create(folder.join("taken")).unwrap();
    let mut message = Message::default();
    for number in 0u32.. {
        let large = number.is_multiple_of(50);
        message.clear();
        message.header.timestamp_ns.set(now_ns());
        message.rows = if large { 400_000 } else { 6 };
        let column = message.add_column("", Dtype::UInt32, Cells::One);
        column.data.resize(4 * if large { 400_000 } else { 6 });
        column.data.as_mut_slice::<u32>().fill(number);
        writer
            .append(if large { "lidar" } else { "force" }, &message, Instant::now())
            .unwrap();
        taken.write_all_at(&(number + 1).to_le_bytes(), 0).unwrap();
        writer.tick(Instant::now()).unwrap();
        std::thread::sleep(Duration::from_secs(1) / RATE_HZ);
    }
}

#[test]
fn a_killed_recording_opens_and_lacks_no_more_than_its_last_second() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return record_for_ever(folder.as_ref());
    }
    for round in 0..4 {
        let folder = Folder::new();
        let mut child = process_of(THIS)
            .env(FOLDER, &folder.0)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // A random moment of the half second between two batches, and of the writes in it.
        let enough = 3 * RATE_HZ / 2 + now_ns() as u32 % (7 * RATE_HZ / 10);
        let deadline = Instant::now() + Duration::from_secs(120);
        while taken(&folder.0) < enough {
            assert!(Instant::now() < deadline, "it took {} of {enough}", taken(&folder.0));
            assert_eq!(child.try_wait().unwrap(), None, "it ended");
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let taken = taken(&folder.0);

        let folder = folder.0.join("recording");
        let mut reader = Reader::open(&folder).unwrap();
        let names: Vec<String> = reader.streams().map(str::to_owned).collect();
        assert_eq!(names, ["force", "lidar"]);
        let (mut message, mut next, mut told) = (Message::default(), [1, 0], 0);
        loop {
            let stream = match reader.next_into(&mut message) {
                Ok(Some(stream)) => stream,
                Ok(None) => break,
                // The process was killed, maybe during a write.
                Err(ReadError::NotEnded { .. } | ReadError::Unfinished { .. }) => {
                    told += 1;
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            let values = message.flat().unwrap();
            assert_eq!(values.len(), [6, 400_000][stream]);
            let number = values.as_slice::<u32>()[0];
            assert!(values.as_slice::<u32>().iter().all(|&n| n == number));
            assert_eq!(number, next[stream], "{}: no message is missing", names[stream]);
            next[stream] = match stream {
                0 if (number + 1).is_multiple_of(50) => number + 2,
                0 => number + 1,
                _ => number + 50,
            };
        }
        assert_eq!(told, 2, "each file tells that its recorder did not end");
        // The number of the first lost message of each stream is in `next`.
        for (name, first) in names.iter().zip(next) {
            let lost = taken.saturating_sub(first);
            println!("round {round}: {name} lost what came among the last {lost} messages");
            assert!(
                lost < RATE_HZ,
                "{name} lost {lost} messages, those of more than a second"
            );
        }
    }
}

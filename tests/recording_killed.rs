//! A process that is killed while it records loses at most its last second.

#![allow(clippy::unwrap_used)]

use robocache::device::Dtype;
use robocache::stream::recording::{ReadError, Reader, Writer};
use robocache::stream::{Cells, Message};
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const FOLDER: &str = "ROBOCACHE_TEST_RECORD_INTO";

fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64
}

/// Records until it is killed: small messages at 1 kHz and large ones at 20 Hz, each stamped with the time it came and
/// filled with its number.
fn record_for_ever(folder: PathBuf) {
    let mut writer = Writer::create(folder).unwrap();
    let mut message = Message::default();
    println!("ready");
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
        writer.tick(Instant::now()).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_killed_recording_opens_and_lacks_no_more_than_its_last_second() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return record_for_ever(folder.into());
    }
    for round in 0..4 {
        let folder = std::env::temp_dir().join(format!("robocache-killed-{}-{round}", std::process::id()));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--nocapture", "--test-threads", "1"])
            .env(FOLDER, &folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = child.stdout.take().unwrap();
        let mut said = Vec::new();
        while !said.ends_with(b"ready\n") {
            let mut byte = [0];
            assert_eq!(
                out.read(&mut byte).unwrap(),
                1,
                "the child ended: {}",
                String::from_utf8_lossy(&said)
            );
            said.push(byte[0]);
        }
        // Another moment of the half second between two batches each time, and of the writes in it.
        std::thread::sleep(Duration::from_millis(1500 + now_ns() as u64 % 700));
        child.kill().unwrap();
        let killed = now_ns();
        child.wait().unwrap();

        let mut reader = Reader::open(&folder).unwrap();
        let names: Vec<String> = reader.streams().map(str::to_owned).collect();
        assert_eq!(names, ["force", "lidar"]);
        let (mut message, mut newest, mut next, mut told) = (Message::default(), [0; 2], [1, 0], 0);
        loop {
            let stream = match reader.next_into(&mut message) {
                Ok(Some(stream)) => stream,
                Ok(None) => break,
                // It was killed, maybe in a write.
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
            newest[stream] = message.timestamp_ns();
        }
        assert_eq!(told, 2, "each file tells that its recorder did not end");
        for (name, newest) in names.iter().zip(newest) {
            let lost = (killed - newest) as f64 / 1e9;
            println!("round {round}: {name} lost {lost:.3} s");
            assert!(lost < 1.0, "{name} lost {lost} s");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

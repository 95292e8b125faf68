//! Tests that the output of `convert` is complete or absent if the command is killed, the disk is full, or two run at once.
//! Each conversion is killed at `ROBOCACHE_KILL_POINTS` points in time.

use crate::common::{FUSE, Folder, MS, command, done, record, run, sample};
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Writes a recording, the same recording as MCAP, and a configuration.
fn inputs(folder: &Folder) -> [String; 3] {
    let at = folder.path("recording");
    let streams = (0..3000).flat_map(|i| {
        [
            ("a", sample(i * 10 * MS, &[i as f32])),
            ("b", sample(i * 10 * MS, &[i as f32, 0.5])),
        ]
    });
    record(&at, streams);
    let bag = folder.path("in.mcap");
    assert_eq!(run(["convert".as_ref(), at.as_os_str(), bag.as_os_str()]).code, 0);
    [at, bag, folder.write("robocache.yml", FUSE)].map(|path| path.to_str().unwrap().to_owned())
}

/// Lists the name of the output and the other arguments of each conversion.
fn conversions([recording, bag, config]: &[String; 3]) -> Vec<(&'static str, Vec<String>)> {
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    vec![
        ("out", words(&[bag])),
        ("out.mcap", words(&[recording])),
        ("tables", words(&[recording, "--to", "csv"])),
        ("v3", words(&[recording, "--to", "lerobot", "--config", config])),
        ("v2", words(&[recording, "--to", "lerobot-v2.1", "--config", config])),
    ]
}

/// Reads all files of an output; `None` if the output is not there.
fn contents(path: &Path) -> Option<BTreeMap<PathBuf, Vec<u8>>> {
    fn walk(path: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>, from: &Path) {
        if path.is_dir() {
            for entry in std::fs::read_dir(path).unwrap() {
                walk(&entry.unwrap().path(), found, from);
            }
        } else {
            let name = path.strip_prefix(from).unwrap().to_owned();
            found.insert(name, std::fs::read(path).unwrap());
        }
    }
    let mut found = BTreeMap::new();
    std::fs::symlink_metadata(path).ok()?;
    walk(path, &mut found, path);
    Some(found)
}

fn remove(path: &Path) {
    let _ = std::fs::remove_dir_all(path);
    let _ = std::fs::remove_file(path);
}

fn convert(words: &[String], out: &Path) -> Command {
    let mut command = command(["convert"]);
    command.args(words).arg(out);
    command
}

fn partial(out: &Path) -> PathBuf {
    PathBuf::from(format!("{}.robocache-partial", out.display()))
}

#[test]
fn killed_at_any_point_it_leaves_a_whole_output_or_none() {
    let points: u32 = std::env::var("ROBOCACHE_KILL_POINTS").map_or(12, |points| points.parse().unwrap());
    let folder = Folder::new();
    for (name, words) in conversions(&inputs(&folder)) {
        let out = folder.path(name);
        let start = Instant::now();
        let first = done(&mut convert(&words, &out));
        assert_eq!(first.code, 0, "{name}: {}", first.err);
        let took = start.elapsed();
        let whole = contents(&out);
        assert!(!partial(&out).exists());
        let (mut there, mut left) = (0, 0);
        // State of a generator that spreads its values evenly.
        let mut spread = 0.5f64;
        for point in 0..points {
            remove(&out);
            spread = (spread + 0.618_033_988_75).fract();
            let mut child = convert(&words, &out)
                .arg("--discard-partial")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(took.mul_f64(1.2 * spread));
            child.kill().unwrap();
            child.wait().unwrap();
            if let Some(found) = contents(&out) {
                assert!(
                    Some(&found) == whole.as_ref(),
                    "{name}: point {point} left something else"
                );
                there += 1;
                let _ = std::fs::remove_dir(partial(&out));
            } else if contents(&partial(&out)).is_some_and(|files| !files.is_empty()) {
                left += 1;
                // The leftover is named, and no output is made before it is removed.
                if left == 1 {
                    let refused = done(&mut convert(&words, &out));
                    assert_eq!(refused.code, 2);
                    let said = format!("{name}.robocache-partial: a run that did not end has left it");
                    assert!(refused.err.contains(&said), "{}", refused.err);
                }
            }
        }
        println!("{name}: {points} kills in {took:?}: {there} whole, {left} partial beside it");
        remove(&out);
        let last = done(convert(&words, &out).arg("--discard-partial"));
        assert_eq!(last.code, 0, "{name}: {}", last.err);
        assert!(contents(&out) == whole, "{name}: another output than the first");
        assert!(!partial(&out).exists());
    }
}

/// Limits the size of files, which acts like a full disk.
#[test]
fn without_room_nothing_is_left() {
    let folder = Folder::new();
    for (name, words) in conversions(&inputs(&folder)) {
        let out = folder.path(name);
        for blocks in [0, 1, 8] {
            let mut limited = Command::new("bash");
            limited.args(["-c", &format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\""), "bash"]);
            let made = convert(&words, &out);
            limited.arg(made.get_program()).args(made.get_args());
            let failed = done(&mut limited);
            assert_eq!(failed.code, 2, "{name}, {blocks} kB: {}{}", failed.out, failed.err);
            assert!(!out.exists() && !partial(&out).exists(), "{name}, {blocks} kB");
        }
        assert_eq!(done(&mut convert(&words, &out)).code, 0);
    }
}

#[test]
fn of_two_runs_on_one_output_the_second_is_refused_at_once() {
    let folder = Folder::new();
    let inputs = inputs(&folder);
    // The state of a first run that is still writing.
    let out = folder.path("out");
    std::fs::create_dir(partial(&out)).unwrap();
    std::fs::write(partial(&out).join("out"), "half").unwrap();
    let lock = File::open(partial(&out)).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    for option in [None, Some("--discard-partial")] {
        let second = done(convert(&inputs[..1], &out).args(option));
        assert_eq!(second.code, 2);
        assert!(second.err.contains("another run is making"), "{}", second.err);
        assert!(partial(&out).join("out").exists());
    }
    // The first run dies.
    drop(lock);
    let refused = done(&mut convert(&inputs[..1], &out));
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("--discard-partial"), "{}", refused.err);
    let made = done(convert(&inputs[..1], &out).arg("--discard-partial"));
    assert_eq!(made.code, 0, "{}", made.err);
    assert!(out.exists() && !partial(&out).exists());
}

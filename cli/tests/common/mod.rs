//! Helpers of the tests: they run the command, and make its recordings and configurations in temporary folders.

// Each test uses only a part of the module.
#![allow(dead_code, clippy::unwrap_used)]

use robocache::prelude::*;
use robocache_sim::plugin::SimPlugin;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

pub const MS: i64 = 1_000_000;

/// The root folder of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Temporary folder that is removed on drop.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("robocache-cli-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Exit code and outputs of the command.
pub struct Done {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Done {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}\n{}", self.out, self.err))
    }
}

/// Creates the command `robocache` with the arguments `words`, to be run with [`done`].
pub fn command<S: AsRef<std::ffi::OsStr>>(words: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_robocache"));
    command
        .current_dir(root())
        .args(words)
        .env_remove("ROBOCACHE_CONFIG")
        .env_remove("RUST_LOG");
    command
}

pub fn done(command: &mut Command) -> Done {
    let output = command.output().unwrap();
    Done {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs the command `robocache` with the arguments `words`.
pub fn run<S: AsRef<std::ffi::OsStr>>(words: impl IntoIterator<Item = S>) -> Done {
    done(&mut command(words))
}

/// Makes a message of one sample, float32.
pub fn sample(stamp_ns: i64, values: &[f32]) -> Message {
    let mut message = Message::default();
    message.write(&Layout::flat(Dtype::Float32, values.len()), |payload, header| {
        payload.column(0).copy_from_slice(values);
        header.timestamp_ns.set(stamp_ns);
    });
    message
}

/// Writes a recording of messages, each given with the name of its stream.
pub fn record<'a>(folder: &Path, messages: impl IntoIterator<Item = (&'a str, Message)>) {
    let mut writer = recording::Writer::create(folder).unwrap();
    for (stream, message) in messages {
        writer.append(stream, &message, Instant::now()).unwrap();
    }
    writer.finish().unwrap();
}

/// Writes a recording of messages, each given with the name of its stream, with the messages' own arrivals.
pub fn record_with_arrivals<'a>(folder: &Path, messages: impl IntoIterator<Item = (&'a str, Message)>) {
    let mut writer = recording::Writer::create(folder).unwrap().with_arrivals_of_messages();
    for (stream, message) in messages {
        writer.append(stream, &message, Instant::now()).unwrap();
    }
    writer.finish().unwrap();
}

/// Configuration of a section `fuse` with the streams `a` and `b`.
pub const FUSE: &str = "
fuse:
  rate_hz: 100
  max_wait_ms: 50
  modalities:
    - { input: a, dim: 1, interpolation: previous, max_age_ms: 20 }
    - { input: b, dim: 2, interpolation: linear, max_gap_ms: 15 }
";

/// Writes a recording of two seconds of `a` and `b` at 100 Hz. The second half of `b` is missing, and its stamps are 1 ms later
/// than those of `a`.
pub fn half(folder: &Folder) {
    let a = (0..=200).map(|i| ("a", sample(i * 10 * MS, &[i as f32])));
    let b = (0..=100).map(|i| ("b", sample(i * 10 * MS + MS, &[1.0, 2.0])));
    record(&folder.path("recording"), a.chain(b));
}

/// Writes a recording of these streams of the simulated robot, as fast as possible; `sim` is the section `sim:` of its
/// configuration.
pub fn record_robot(folder: &Path, sim: &str, streams: &[&str]) {
    let config = format!("plugins: [sim: {sim}, record: {{ path: {} }}]", folder.display());
    let mut graph = App::new()
        .with_config(Config::parse(Path::new("robot.yml"), &config).unwrap())
        .add_plugin(SimPlugin)
        .add_plugin(RecordPlugin::default())
        .with_wired_inputs(streams.iter().map(|&stream| stream.to_owned()))
        .build(|_| false)
        .unwrap();
    let mut sink = Nothing;
    graph.wake(Instant::now(), true, &mut sink).unwrap();
    while !graph.is_done() {
        graph.wake(Instant::now(), false, &mut sink).unwrap();
    }
    graph.finish(&mut sink).unwrap();
}

struct Nothing;

impl Sink for Nothing {
    fn send(&mut self, _: &str, _: &Layout, _: &mut dyn FnMut(&mut Payload<'_>, &mut Header)) -> Result<(), Fault> {
        Ok(())
    }
}

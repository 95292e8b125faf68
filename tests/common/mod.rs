//! Helpers of the tests: a graph of operations that is fed by hand, the messages that it publishes, and temporary folders.

// Each test uses some of the helpers.
#![allow(dead_code)]

pub mod kind;
pub mod random;

use robocache::app::{App, AppError, Config, Fault, Graph, Sink, plugins};
use robocache::device::Dtype;
use robocache::stream::{Cells, Header, Layout, Message, MetadataRef, Payload};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

pub const MS: i64 = 1_000_000;

/// Builds the graph of a configuration from all of robocache's plugins. Every output is published.
pub fn graph(config: &str) -> Result<Graph, AppError> {
    graph_of(config, |_| true)
}

/// Builds the graph of a configuration. It publishes the outputs for whose names `is_published` returns true.
pub fn graph_of(config: &str, is_published: impl Fn(&str) -> bool) -> Result<Graph, AppError> {
    let config = Config::parse(Path::new("robot.yml"), config)?;
    App::new()
        .with_config(config)
        .add_plugins(plugins::all())
        .build(is_published)
}

/// Returns the index of an input of the dataflow.
pub fn input(graph: &Graph, name: &str) -> usize {
    graph.external_inputs().position(|(input, _)| input == name).unwrap()
}

/// Returns the number of faults that the graph has counted under the name `place`, such as "fuse: input `a`".
pub fn faults(graph: &Graph, place: &str) -> u64 {
    graph.faults().find(|(name, _)| *name == place).unwrap().1
}

/// Makes a message of one float32 sample.
pub fn sample(stamp_ns: i64, values: &[f32]) -> Message {
    let mut message = Message::default();
    message.rows = values.len();
    message.header.timestamp_ns.set(stamp_ns);
    let column = message.add_column("", Dtype::Float32, Cells::One);
    column.data.copy_from(bytemuck::cast_slice(values));
    message
}

/// Makes a message of K float32 samples, `[K, D]`, one for each stamp.
pub fn samples(stamps_ns: &[i64], values: &[f32]) -> Message {
    let mut message = sample(*stamps_ns.last().unwrap(), values);
    message.header.timestamps_ns.set(stamps_ns);
    message
        .header
        .shape
        .set([stamps_ns.len() as i64, (values.len() / stamps_ns.len()) as i64]);
    message
}

/// A message that was published: a flat float32 payload and its header.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    pub output: String,
    pub values: Vec<f32>,
    pub header: Box<Header>,
}

impl Sent {
    pub fn integer(&self, key: &str) -> i64 {
        match self.header.get(key) {
            Some(MetadataRef::Integer(value)) => value,
            other => panic!("`{key}` is {other:?}"),
        }
    }

    pub fn integers(&self, key: &str) -> &[i64] {
        match self.header.get(key) {
            Some(MetadataRef::ListInt(values)) => values,
            other => panic!("`{key}` is {other:?}"),
        }
    }

    /// Stamp of the message, ms; for an observation the newest target.
    pub fn ms(&self) -> f64 {
        self.header.timestamp_ns.get().unwrap() as f64 / MS as f64
    }
}

/// Sink that keeps the values and headers of published messages.
#[derive(Default)]
pub struct Recorder {
    pub sent: Vec<Sent>,
    memory: Message,
}

impl Recorder {
    /// Takes the messages that were published since the last call.
    pub fn take(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.sent)
    }
}

impl Sink for Recorder {
    fn send(
        &mut self,
        output: &str,
        layout: &Layout,
        fill: &mut dyn FnMut(&mut Payload<'_>, &mut Header),
    ) -> Result<(), Fault> {
        self.memory.write(layout, fill);
        let values = self.memory.flat().ok_or("a struct")?.as_slice().to_vec();
        self.sent.push(Sent {
            output: output.to_owned(),
            values,
            header: self.memory.header.clone(),
        });
        Ok(())
    }
}

/// Sink that keeps published messages unchanged, also structs with several columns.
#[derive(Default)]
pub struct Keeper(pub Vec<(String, Message)>);

impl Keeper {
    /// Takes the messages that were published since the last call, each with the name of its output.
    pub fn take(&mut self) -> Vec<(String, Message)> {
        std::mem::take(&mut self.0)
    }
}

impl Sink for Keeper {
    fn send(
        &mut self,
        output: &str,
        layout: &Layout,
        fill: &mut dyn FnMut(&mut Payload<'_>, &mut Header),
    ) -> Result<(), Fault> {
        let mut message = Message::default();
        message.write(layout, fill);
        self.0.push((output.to_owned(), message));
        Ok(())
    }
}

/// Sink that counts published messages. Each message overwrites the one before it.
#[derive(Default)]
pub struct Overwrite {
    pub sent: u64,
    memory: Message,
}

impl Sink for Overwrite {
    fn send(
        &mut self,
        _: &str,
        layout: &Layout,
        fill: &mut dyn FnMut(&mut Payload<'_>, &mut Header),
    ) -> Result<(), Fault> {
        self.memory.write(layout, fill);
        self.sent += 1;
        Ok(())
    }
}

/// Reads messages with the reader `next` until its end. Returns the results of `of`, which gets each message with its stream's
/// index, and the reader's errors.
pub fn read_all<T, E: ToString>(
    mut next: impl FnMut(&mut Message) -> Result<Option<usize>, E>,
    mut of: impl FnMut(usize, &Message) -> T,
) -> (Vec<T>, Vec<String>) {
    let (mut message, mut came, mut said) = (Message::default(), Vec::new(), Vec::new());
    loop {
        match next(&mut message) {
            Ok(Some(stream)) => came.push(of(stream, &message)),
            Ok(None) => return (came, said),
            Err(error) => said.push(error.to_string()),
        }
    }
}

/// A temporary folder, removed when the value is dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        Self::below(&std::env::temp_dir())
    }

    /// Creates a folder in memory, for tests with thousands of files.
    pub fn in_memory() -> Self {
        Self::below(Path::new("/dev/shm"))
    }

    fn below(parent: &Path) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("robocache-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Path of the file of a recorded stream.
    pub fn file(&self, stream: &str) -> PathBuf {
        self.0.join(format!("{stream}.arrow"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns a command that runs the test `test` of this binary in a process of its own, and shows everything that it prints.
pub fn process_of(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]);
    command
}

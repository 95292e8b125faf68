//! Sources of the benchmark dataflows. A source sends to the measured node and to the relay in turn, so that both are measured
//! under the same load.

use crate::now_ns;
use arrow::array::{ArrayRef, Float32Array, StructArray};
use arrow::datatypes::{DataType, Field};
use dora_node_api::dora_core::config::DataId;
use dora_node_api::{DoraNode, IntoArrow, MetadataParameters, Parameter};
use robocache::stream::key;
use std::error::Error;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

const MS: i64 = 1_000_000;
/// Period of the observations that fuse.yml configures, ns.
const PERIOD_NS: i64 = 20 * MS;
const FIRST_MIDDLE: i64 = PERIOD_NS / 2;
const SECOND_MIDDLE: i64 = PERIOD_NS + FIRST_MIDDLE;
/// Time between the stamp of a wrench and its publication, ns. It is longer than for proprioception, so that a wrench is the
/// sample that makes a target due.
const FORCE_DELAY_NS: i64 = 2 * MS;
/// Number of values in an observation of fuse.yml, 16 rows of 149. Every second message to the relay has this number of values.
const FUSED_ELEMENTS: usize = 16 * 149;
/// Time that the source waits before it ends, for consumers to read the last messages.
const LINGER: Duration = Duration::from_secs(1);

struct Source {
    node: DoraNode,
    log: String,
}

impl Source {
    fn send(&mut self, output: &'static str, stamp: i64, data: impl IntoArrow) -> Result<(), Box<dyn Error>> {
        let parameters = MetadataParameters::from([(key::timestamp_ns.to_owned(), Parameter::Integer(stamp))]);
        writeln!(self.log, "{output},{stamp},{}", now_ns())?;
        self.node
            .send_output(DataId::from(output.to_owned()), parameters, data)?;
        Ok(())
    }

    fn end(self, log: &str) -> Result<(), Box<dyn Error>> {
        std::thread::sleep(LINGER);
        std::fs::write(log, format!("output,stamp_ns,sent_ns\n{}", self.log))?;
        Ok(())
    }
}

fn sleep_until(time_ns: i64) {
    if let Ok(left) = u64::try_from(time_ns - now_ns()) {
        std::thread::sleep(Duration::from_nanos(left));
    }
}

/// Sends a robot's streams in real time for `ticks` periods, and writes the send times to the CSV file `log`. The streams are
/// camera features at 30 Hz, proprioception at 500 Hz and a wrench at 1 kHz. In the middle of each period, a message to the
/// relay replaces a wrench. Relay messages have alternately the size of an observation and of a wrench.
pub fn streams(ticks: i64, log: &str) -> Result<(), Box<dyn Error>> {
    let (node, _events) = DoraNode::init_from_env()?;
    let mut source = Source {
        node,
        log: String::with_capacity(1 << 24),
    };
    let start = (now_ns() / PERIOD_NS + 10) * PERIOD_NS;
    let row = |dim: usize, stamp: i64| -> Vec<f32> {
        (0..dim)
            .map(|i| (stamp % 1_000_000_007) as f32 * 1e-9 + i as f32)
            .collect()
    };
    let mut sends: Vec<(i64, &str)> = Vec::new();
    let end = ticks * PERIOD_NS;
    sends.extend((0..end / (100 * MS / 3)).map(|k| (k * (100 * MS / 3) + MS / 4, "camera")));
    sends.extend((0..end / (2 * MS)).map(|k| (k * 2 * MS + MS / 2, "proprio")));
    sends.extend((0..end / MS).map(|k| {
        let output = match k * MS % (2 * PERIOD_NS) {
            FIRST_MIDDLE => "large probe",
            SECOND_MIDDLE => "small probe",
            _ => "force",
        };
        (k * MS, output)
    }));
    sends.sort_unstable();
    for (time, output) in sends {
        let time = start + time;
        sleep_until(time);
        match output {
            "camera" => source.send("camera", time, row(128, time))?,
            "proprio" => source.send("proprio", time, row(15, time))?,
            "large probe" => source.send("probe", time, row(FUSED_ELEMENTS, time))?,
            "small probe" => source.send("probe", time, row(6, time))?,
            _ => source.send("force", time - FORCE_DELAY_NS, row(6, time))?,
        }
    }
    source.end(log)
}

/// Sends `messages` clouds, read from the files of `folder`, to the measured node and to the relay in turn. Writes the send
/// times to the CSV file `log`.
pub fn clouds(messages: i64, period_ms: i64, folder: &str, log: &str) -> Result<(), Box<dyn Error>> {
    let mut files: Vec<_> = std::fs::read_dir(folder)?
        .map(|file| file.map(|file| file.path()))
        .collect::<Result<_, _>>()?;
    files.sort();
    let clouds: Vec<ArrayRef> = files
        .iter()
        .map(|file| Ok(cloud(&std::fs::read(file)?)))
        .collect::<Result<_, std::io::Error>>()?;
    let (node, _events) = DoraNode::init_from_env()?;
    let mut source = Source {
        node,
        log: String::new(),
    };
    let start = now_ns() + 200 * MS;
    for i in 0..messages {
        let time = start + i * period_ms * MS;
        sleep_until(time);
        let output = if i % 2 == 0 { "cloud" } else { "probe" };
        // Both paths get every cloud.
        source.send(output, time, clouds[(i / 2) as usize % clouds.len()].clone())?;
    }
    source.end(log)
}

/// Converts a file's rows of x, y, z, float32 little-endian, to a struct of three columns.
fn cloud(bytes: &[u8]) -> ArrayRef {
    let (points, _) = bytes.as_chunks::<4>();
    let points: Vec<f32> = points.iter().copied().map(f32::from_le_bytes).collect();
    let column = |axis: usize, name: &str| {
        let values = Float32Array::from_iter_values(points.chunks_exact(3).map(|point| point[axis]));
        let field = Arc::new(Field::new(name, DataType::Float32, false));
        (field, Arc::new(values) as ArrayRef)
    };
    Arc::new(StructArray::from(vec![column(0, "x"), column(1, "y"), column(2, "z")]))
}

//! `robocache new`: writes a dataflow and a configuration to start from. No existing file is overwritten.

use crate::output::{Output, path, quoted};
use eyre::{WrapErr, bail, ensure};
use serde::Serialize;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

const SENSORS: &str = include_str!("../templates/sensors.py");
const SHOW: &str = include_str!("../templates/show.py");
/// Greatest rate of the observations, Hz. If every sensor is slower, the rate is that of the fastest sensor.
const RATE_HZ: f64 = 50.0;
/// Threshold of a sensor's rate, Hz. From this rate on, linear interpolation is nearer to the truth than the previous sample.
const LINEAR_HZ: f64 = 50.0;
/// Maximum number of occupied cells in a voxel grid, which the new configuration sets.
const MAX_VOXELS: u64 = 50_000;
const POOL: &str = "16MB";
/// Size of a node's pool of shared memory if the dataflow gives none, MB.
const DEFAULT_POOL_MB: usize = 8;
/// Dataflow keys by which dora restarts a node after a crash, at most three times: a node that can't start now will not
/// start later.
const RESTART: &str = "    restart_policy: on-failure\n    max_restarts: 3\n";
/// Timer input of a sensor's node, as dora restarts only nodes with an input.
const TICK: &str =
    "    inputs: { tick: { source: dora/timer/secs/1, queue_size: 1 } }      # dora restarts only what has an input\n";
/// Number of rows in an observation.
const WINDOW: usize = 16;

/// Writes a dataflow and a configuration to start from
///
/// It makes DIR with `dataflow.yml`, `robocache.yml`, `sensors.py`, which stands for your drivers, and `show.py`, which
/// stands for your policy. `dora run DIR/dataflow.yml` runs it as it is.
#[derive(clap::Args)]
#[command(after_help = "Exit codes:
  0   the files are written
  2   they can't be, or the list of sensors makes no sense

Example:
  robocache new arm --sensor force:6@1000 --sensor camera:128@30 --cloud lidar@10")]
pub struct Args {
    /// The folder to write to, which is made
    dir: PathBuf,
    /// A sensor: its name, values a sample and samples a second
    #[arg(long = "sensor", value_name = "NAME:DIM@RATE")]
    sensors: Vec<Sensor>,
    /// A sensor of point clouds: its name, and clouds a second
    #[arg(long = "cloud", value_name = "NAME@RATE")]
    clouds: Vec<Cloud>,
    /// The folder of robocache's nodes; absent: the folder of this command
    #[arg(long, value_name = "FOLDER")]
    nodes: Option<PathBuf>,
    /// The Python that runs the senders, with pyarrow and dora
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: String,
}

#[derive(Clone)]
struct Sensor {
    name: String,
    dim: usize,
    rate_hz: f64,
}

#[derive(Clone)]
struct Cloud {
    name: String,
    rate_hz: f64,
}

/// Parses the name of a stream, which is also the name of a node and of a file.
fn name(text: &str) -> Result<String, String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let taken = ["fuse", "voxelize", "show", "fused", "voxels"];
    if text.is_empty() || !text.chars().all(is_name) {
        return Err(format!(
            "`{text}` is not a name (allowed: letters a to z, digits, `_` and `-`)"
        ));
    }
    if !matches!(serde_yaml::from_str(text), Ok(serde_yaml::Value::String(read)) if read == text) {
        return Err(format!("`{text}` is not text in YAML (allowed: a name such as force)"));
    }
    if taken.contains(&text) {
        return Err(format!(
            "`{text}` is the name of a node or of an output (taken: {})",
            taken.join(", ")
        ));
    }
    Ok(text.to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.1..=10_000.0).contains(rate));
    rate.ok_or_else(|| format!("`{text}` is not a rate (allowed: 0.1 to 10000 Hz)"))
}

impl FromStr for Sensor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text
            .split_once('@')
            .and_then(|(left, rate)| Some((left.split_once(':')?, rate)));
        let ((own_name, dim), rate_hz) = parts.ok_or("allowed: NAME:DIM@RATE, such as force:6@1000")?;
        let dim = dim.parse().ok().filter(|dim| (1..=1_000_000).contains(dim));
        Ok(Self {
            name: name(own_name)?,
            dim: dim.ok_or("DIM is not a number of values (allowed: 1 to 1000000)")?,
            rate_hz: rate(rate_hz)?,
        })
    }
}

impl FromStr for Cloud {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (own_name, rate_hz) = text.split_once('@').ok_or("allowed: NAME@RATE, such as lidar@10")?;
        Ok(Self {
            name: name(own_name)?,
            rate_hz: rate(rate_hz)?,
        })
    }
}

#[derive(Serialize)]
struct Written {
    files: Vec<PathBuf>,
}

pub fn run(args: &Args, output: &Output) -> eyre::Result<ExitCode> {
    let names: Vec<&String> = args
        .sensors
        .iter()
        .map(|sensor| &sensor.name)
        .chain(args.clouds.iter().map(|cloud| &cloud.name))
        .collect();
    ensure!(
        !names.is_empty(),
        "no sensor is given (allowed: one or more of --sensor NAME:DIM@RATE and --cloud NAME@RATE)"
    );
    if let Some(twice) = (1..names.len()).find(|&i| names[..i].contains(&names[i])) {
        bail!("`{}` is given twice (allowed: each name once)", names[twice]);
    }
    let nodes = match &args.nodes {
        Some(folder) => folder
            .canonicalize()
            .wrap_err_with(|| format!("--nodes {}", folder.display()))?,
        None => std::env::current_exe()?.parent().unwrap_or(Path::new("")).to_owned(),
    };
    let files = [
        ("dataflow.yml", dataflow(args, &nodes)),
        ("robocache.yml", config(args)),
        ("sensors.py", SENSORS.to_owned()),
        ("show.py", SHOW.to_owned()),
    ];
    let files = files.map(|(name, text)| (args.dir.join(name), text));
    if let Some((path, _)) = files.iter().find(|(path, _)| path.exists()) {
        bail!("{}: it is there already, and is not written over", path.display());
    }
    fs::create_dir_all(&args.dir).wrap_err_with(|| args.dir.display().to_string())?;
    for (path, text) in &files {
        fs::write(path, text).wrap_err_with(|| path.display().to_string())?;
    }
    let written = Written {
        files: files.map(|(path, _)| path).into(),
    };
    output.result(&written, |written| {
        let lines = written.files.iter().map(|file| format!("{}\n", path(file)));
        lines.collect()
    })?;
    let (dataflow, status) = (args.dir.join("dataflow.yml"), args.dir.join("status"));
    output.remark(format_args!("to run it: dora run {}", dataflow.display()));
    output.remark(format_args!("to watch it: robocache top {}", status.display()));
    Ok(ExitCode::SUCCESS)
}

/// Returns the duration of `periods` periods of a rate, in whole ms, rounded up.
fn periods_ms(periods: f64, rate_hz: f64) -> u64 {
    (periods * 1e3 / rate_hz).ceil() as u64
}

fn slowest(rates: impl Iterator<Item = f64>) -> f64 {
    rates.fold(f64::INFINITY, f64::min)
}

fn config(args: &Args) -> String {
    let mut text =
        String::from("# What robocache makes of the sensors: docs/sensors.md says how to choose each figure.\n");
    text.push_str("status: status              # a folder beside the dataflow, which `robocache top` shows\n");
    // Writing to a string can't fail.
    if !args.sensors.is_empty() {
        let rates = || args.sensors.iter().map(|sensor| sensor.rate_hz);
        let rate_hz = rates().fold(0.0, f64::max).min(RATE_HZ);
        let max_wait = periods_ms(3.0, slowest(rates())).max(20);
        let _ = write!(
            text,
            "\nfuse:\n  rate_hz: {rate_hz}\n  window: {WINDOW}\n  max_wait_ms: {max_wait}     # three periods of the slowest stream; \
             after that, what is missing is masked\n  modalities:             # in the order of the last axis\n"
        );
        for Sensor { name, dim, rate_hz } in &args.sensors {
            let limits = if *rate_hz >= LINEAR_HZ {
                let gap = periods_ms(5.0, *rate_hz).max(20);
                format!("linear, max_gap_ms: {gap}, extrapolate_ms: 5")
            } else {
                format!("previous, max_age_ms: {}", periods_ms(3.0, *rate_hz))
            };
            let _ = writeln!(text, "    - {{ input: {name}, dim: {dim}, interpolation: {limits} }}");
        }
    }
    if !args.clouds.is_empty() {
        text.push_str(
            "\nvoxelize:\n  origin_m: [-10, -10, -2]     # min corner\n  voxel_size_m: [0.2, 0.2, 0.2]\n  shape: [100, 100, 20]\n  \
             channels: [occupancy, mean_z]\n  layout: coo\n",
        );
        let _ = writeln!(text, "  max_voxels: {MAX_VOXELS}");
        if args.clouds.len() > 1 {
            let wait = periods_ms(1.5, slowest(args.clouds.iter().map(|cloud| cloud.rate_hz)));
            let _ = writeln!(
                text,
                "  max_wait_ms: {wait}             # a grid without a lidar that is silent for longer"
            );
        }
        text.push_str("  inputs:\n");
        for cloud in &args.clouds {
            let _ = writeln!(
                text,
                "    - {{ input: {}, extrinsic: {{ translation_m: [0, 0, 0], rotation_xyzw: [0, 0, 0, 1] }} }}",
                cloud.name
            );
        }
    }
    text
}

/// Formats the key that sizes a node's pool of shared memory for messages of `values` float32; empty if dora's default is large
/// enough.
fn pool(values: usize) -> String {
    let mb = (4 * (4 * values + 4096)).div_ceil(1_000_000);
    match mb {
        ..=DEFAULT_POOL_MB => String::new(),
        _ => format!("    shared_memory_pool_size: {mb}MB      # four of the largest messages at least\n"),
    }
}

fn dataflow(args: &Args, nodes: &Path) -> String {
    let python = quoted(&args.python);
    let node = |name: &str| quoted(&nodes.join(name).to_string_lossy());
    let mut text = String::from(
        "# `dora run` it from anywhere: paths count from this folder. sensors.py stands for drivers, show.py for a policy.\nnodes:\n",
    );
    for Sensor { name, dim, rate_hz } in &args.sensors {
        let _ = write!(
            text,
            "  - id: {name}\n    path: {python}\n    args: sensors.py {name} {rate_hz} {dim}\n{RESTART}{}{TICK}    outputs: [{name}]\n\n",
            pool(*dim)
        );
    }
    for Cloud { name, rate_hz } in &args.clouds {
        let _ = write!(
            text,
            "  - id: {name}\n    path: {python}\n    args: sensors.py {name} {rate_hz} cloud\n{RESTART}    shared_memory_pool_size: {POOL}      \
             # four of the largest messages at least\n{TICK}    outputs: [{name}]\n\n"
        );
    }
    if !args.sensors.is_empty() {
        let _ = write!(
            text,
            "  - id: fuse\n    path: {}\n    args: --config robocache.yml\n{RESTART}{}    inputs:      # queue_size: a second of \
             messages\n",
            node("robocache-fuse"),
            pool(WINDOW * args.sensors.iter().map(|sensor| sensor.dim).sum::<usize>())
        );
        for Sensor { name, rate_hz, .. } in &args.sensors {
            let queue = (rate_hz.ceil() as usize).max(10);
            let _ = writeln!(text, "      {name}: {{ source: {name}/{name}, queue_size: {queue} }}");
        }
        text.push_str("    outputs: [fused]\n\n");
    }
    if !args.clouds.is_empty() {
        let _ = write!(
            text,
            "  - id: voxelize\n    path: {}\n    args: --config robocache.yml\n{RESTART}    shared_memory_pool_size: {POOL}\n    \
             inputs:\n",
            node("robocache-voxelize")
        );
        for Cloud { name, .. } in &args.clouds {
            let _ = writeln!(text, "      {name}: {{ source: {name}/{name}, queue_size: 4 }}");
        }
        text.push_str("    outputs: [voxels]\n\n");
    }
    let _ = write!(
        text,
        "  - id: show\n    path: {python}\n    args: show.py\n{RESTART}    inputs:\n"
    );
    if !args.sensors.is_empty() {
        text.push_str("      fused: { source: fuse/fused, queue_size: 50 }\n");
    }
    if !args.clouds.is_empty() {
        text.push_str("      voxels: { source: voxelize/voxels, queue_size: 4 }\n");
    }
    text
}

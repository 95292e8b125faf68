//! Sensors of a made-up robot, the same as in sensors.py, in Rust: `sensors imu|wrench|front|rear [MESSAGES]`.
//!
//! A timer of the dataflow says when to send. Each function below stands for a driver: it takes the time at which the
//! sensor measured, ns since 1970, and gives the payload and its metadata.

use dora_node_api::arrow_v59::array::{Array, ArrayRef, Float32Array, StructArray, UInt8Array};
use dora_node_api::arrow_v59::datatypes::Field;
use dora_node_api::{DoraNode, Event, MetadataParameters, Parameter};
use std::error::Error;
use std::f64::consts::PI;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time that the process waits before it exits, because messages still in transport are lost with it.
const LINGER: Duration = Duration::from_millis(500);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let name = arguments.first().map_or("", String::as_str);
    let sensor = match name {
        "imu" => imu,
        "wrench" => wrench,
        "front" => front,
        "rear" => rear,
        _ => return Err("sensors imu|wrench|front|rear [MESSAGES]".into()),
    };
    let mut left: u64 = match arguments.get(1) {
        Some(messages) => messages.parse()?,
        None => u64::MAX,
    };
    let (mut node, mut events) = DoraNode::init_from_env()?;
    while let Some(event) = events.recv() {
        match event {
            Event::Input { .. } if left > 0 => {
                let (payload, metadata) = sensor(now_ns()?);
                node.send_output(name.into(), MetadataParameters::from_iter(metadata), payload)?;
                left -= 1;
            }
            // All messages are sent, or the dataflow stops: a timer never ends by itself.
            Event::Input { .. } | Event::Stop(_) => break,
            _ => {}
        }
    }
    std::thread::sleep(LINGER);
    Ok(())
}

type Message = (ArrayRef, Vec<(String, Parameter)>);

/// Makes a message of the IMU: one sample of six values, angular velocity in rad/s and acceleration in m/s^2.
fn imu(time_ns: i64) -> Message {
    let turn = phase(time_ns) as f32;
    let values = vec![0.1 * turn.sin(), 0.0, 0.2 * turn.cos(), turn.sin(), turn.cos(), 9.81];
    (Arc::new(Float32Array::from(values)), vec![stamp(time_ns), shape(&[6])])
}

/// Makes a message of the force/torque sensor: ten samples at 1 kHz, `[10, 6]`, with a stamp for each row.
fn wrench(time_ns: i64) -> Message {
    let stamps: Vec<i64> = (0..10).rev().map(|i| time_ns - i * 1_000_000).collect();
    let values = stamps
        .iter()
        .flat_map(|&time| (0..6).map(move |i| (10.0 * (phase(time) + f64::from(i)).sin()) as f32));
    let payload = Arc::new(Float32Array::from_iter_values(values));
    let stamps = ("timestamps_ns".to_owned(), Parameter::ListInt(stamps));
    (payload, vec![stamp(time_ns), stamps, shape(&[10, 6])])
}

/// Makes a cloud in struct form: a column for each field, so that each has a type of its own.
fn front(time_ns: i64) -> Message {
    let points = wall();
    let axis = |i: usize| Arc::new(Float32Array::from_iter_values(points.iter().map(|point| point[i]))) as ArrayRef;
    let columns = [
        ("x", axis(0)),
        ("y", axis(1)),
        ("z", axis(2)),
        ("intensity", Arc::new(UInt8Array::from(vec![80; points.len()]))),
    ];
    let columns = columns.map(|(name, column)| {
        let field = Field::new(name, column.data_type().clone(), false);
        (Arc::new(field), column)
    });
    let frame = ("frame_id".to_owned(), Parameter::String("front_lidar".into()));
    (
        Arc::new(StructArray::from(columns.to_vec())),
        vec![stamp(time_ns), frame],
    )
}

/// Makes a cloud as a flat array `[N, 4]`, whose columns the metadata key `fields` names.
fn rear(time_ns: i64) -> Message {
    let points = wall();
    let values = points.iter().flat_map(|[x, y, z]| [*x, *y, *z, 80.0]);
    let fields = ["x", "y", "z", "intensity"].map(str::to_owned).to_vec();
    let metadata = vec![
        stamp(time_ns),
        shape(&[points.len() as i64, 4]),
        ("fields".to_owned(), Parameter::ListString(fields)),
        ("frame_id".to_owned(), Parameter::String("rear_lidar".into())),
    ];
    (Arc::new(Float32Array::from_iter_values(values)), metadata)
}

fn stamp(time_ns: i64) -> (String, Parameter) {
    ("timestamp_ns".to_owned(), Parameter::Integer(time_ns))
}

fn shape(dimensions: &[i64]) -> (String, Parameter) {
    ("shape".to_owned(), Parameter::ListInt(dimensions.to_vec()))
}

/// Returns the phase of the simulated motion at a time, rad: half a turn a second, from 0 to 2 pi.
fn phase(time_ns: i64) -> f64 {
    (time_ns % 2_000_000_000) as f64 * 1e-9 * PI
}

/// Makes 20,000 points of a wall four metres ahead of a sensor, x y z in metres, spread evenly.
fn wall() -> Vec<[f32; 3]> {
    let spread = |i: u32, ratio: f64| (f64::from(i) * ratio).fract() as f32;
    (0..20_000)
        .map(|i| {
            [
                4.0 + 0.1 * spread(i, 0.5497),
                6.0 * spread(i, 0.8192) - 3.0,
                2.0 * spread(i, 0.6710),
            ]
        })
        .collect()
}

/// Reads the host's clock, ns since 1970. A real driver uses the time at which its sensor measured instead.
fn now_ns() -> Result<i64, Box<dyn Error>> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())?)
}

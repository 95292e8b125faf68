//! Shows how a sensor of one's own in Rust sends to robocache: a made-up IMU, a sample at each tick of a timer.
//!
//!     imu [MESSAGES]

use dora_node_api::{DoraNode, Event, IntoArrow, MetadataParameters, Parameter};
use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What is still on its way when a process ends is lost with it.
const LINGER: Duration = Duration::from_millis(500);

fn main() -> Result<(), Box<dyn Error>> {
    let mut left: u64 = match std::env::args().nth(1) {
        Some(messages) => messages.parse()?,
        None => u64::MAX,
    };
    let (mut node, mut events) = DoraNode::init_from_env()?;
    while let Some(event) = events.recv() {
        match event {
            Event::Input { .. } if left > 0 => {
                let time_ns = now_ns()?;
                let metadata = MetadataParameters::from([
                    ("timestamp_ns".to_owned(), Parameter::Integer(time_ns)),
                    ("shape".to_owned(), Parameter::ListInt(vec![6])),
                ]);
                node.send_output("imu".into(), metadata, measure(time_ns).into_arrow())?;
                left -= 1;
            }
            // All is sent, or the dataflow stops. A timer never ends by itself.
            Event::Input { .. } | Event::Stop(_) => break,
            _ => {}
        }
    }
    std::thread::sleep(LINGER);
    Ok(())
}

/// Angular velocity in rad/s and acceleration in m/s^2, x y z each.
fn measure(time_ns: i64) -> Vec<f32> {
    let turn = (time_ns % 2_000_000_000) as f32 * 1e-9 * std::f32::consts::PI;
    vec![0.1 * turn.sin(), 0.0, 0.2 * turn.cos(), turn.sin(), turn.cos(), 9.81]
}

/// When the sample was measured, ns since 1970. A driver takes it from the sensor.
fn now_ns() -> Result<i64, Box<dyn Error>> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())?)
}

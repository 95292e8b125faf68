//! Benchmark of one lidar sweep, and of one second of the whole simulated robot, on one core.
//!
//! `cargo bench --profile release -p robocache-sim --bench sweep`

use robocache_sim::config::SimConfig;
use robocache_sim::lidar::{Lidar, PointBuffers, SWEEP_NS};
use robocache_sim::schedule::{Schedule, Sensor};
use robocache_sim::signals;
use robocache_sim::table::{DEPTH_HEIGHT, DEPTH_WIDTH, DepthCamera, camera_pose_values};
use std::hint::black_box;
use std::time::{Duration, Instant};

const RUNS: usize = 200;

fn main() {
    let lidar = Lidar::new();
    let mut points = PointBuffers::for_sweep();
    let mut sweeps: Vec<Duration> = (0..RUNS)
        .map(|sweep| {
            let begin = Instant::now();
            lidar.cast(sweep as i64 * SWEEP_NS, black_box(&mut points));
            begin.elapsed()
        })
        .collect();
    sweeps.sort();
    let [median, worst] = [sweeps[RUNS / 2], sweeps[RUNS * 99 / 100]];
    println!("sweep of {} points: p50 {median:?}, p99 {worst:?}", points.len());

    let config = SimConfig {
        duration_s: Some(10.0),
        ..SimConfig::default()
    };
    let schedule = match Schedule::new(&config) {
        Ok(schedule) => schedule,
        Err(error) => panic!("{error}"),
    };
    let mut features = [0.0; signals::CAMERA_DIM];
    let depth_camera = DepthCamera::new();
    let mut depths = vec![0; DEPTH_WIDTH * DEPTH_HEIGHT];
    let begin = Instant::now();
    for event in schedule {
        match event.sensor {
            Sensor::Camera => signals::camera_features(event.true_ns, black_box(&mut features)),
            Sensor::Force => drop(black_box(signals::wrench(event.true_ns))),
            Sensor::Proprio => drop(black_box(signals::proprio(event.true_ns))),
            Sensor::Lidar => lidar.cast(event.true_ns, black_box(&mut points)),
            Sensor::Depth => depth_camera.render(event.true_ns, black_box(&mut depths)),
            Sensor::CameraPose => drop(black_box(camera_pose_values(event.true_ns))),
        }
    }
    println!("one second of the robot, lidar included: {:?}", begin.elapsed() / 10);
}

//! Benchmark of the time to voxelize a cloud: `cargo bench --bench voxelize`, one JSON line per row. An argument selects the
//! rows whose names contain it.
//!
//! The clouds are a room as a 128-beam lidar sees it, 1024 columns in firing order, the same points shuffled, and as many
//! points at random places of the grid. Eight clouds are used in turn, so that none is still in the cache. The first rounds are
//! not counted. The time of a row is that of one cloud, from the message to the output in the caller's buffers.

#[path = "robocache-bench/src/clouds.rs"]
#[allow(dead_code)]
mod clouds;
#[path = "robocache-bench/src/random.rs"]
#[allow(dead_code)]
mod random;
#[path = "robocache-bench/src/scene.rs"]
#[allow(dead_code)]
mod scene;

use clouds::tensor;
use random::Random;
use robocache::device::{Dtype, HostMemory};
use robocache::ops::voxelize::{CpuVoxelizer, VoxelLayout, VoxelizeConfig};
use robocache::stream::{Cells, Message};
use std::hint::black_box;
use std::time::Instant;

const BEAMS: usize = 128;
const COLUMNS: usize = 1024;
const POINTS: usize = BEAMS * COLUMNS;
const CLOUDS: usize = 8;
const ROUNDS: usize = 40;

/// Makes a sweep of the room, after the sensor has moved `step` times.
fn sweep(step: usize) -> Vec<[f32; 3]> {
    scene::sweep(step, BEAMS, COLUMNS)
}

fn shuffled(mut points: Vec<[f32; 3]>) -> Vec<[f32; 3]> {
    let mut random = Random::new(7);
    for i in (1..points.len()).rev() {
        points.swap(i, random.bits() as usize % (i + 1));
    }
    points
}

fn uniform(step: usize) -> Vec<[f32; 3]> {
    let mut random = Random::new(step as u64);
    let mut anywhere = |extent: f32| (random.unit() - 0.5) * extent;
    (0..POINTS)
        .map(|_| [anywhere(51.0), anywhere(51.0), anywhere(7.5)])
        .collect()
}

fn columns(points: &[[f32; 3]]) -> Message {
    let mut message = Message::default();
    message.rows = points.len();
    for (axis, name) in ["x", "y", "z"].into_iter().enumerate() {
        let values: Vec<f32> = points.iter().map(|p| p[axis]).collect();
        let column = message.add_column(name, Dtype::Float32, Cells::One);
        column.data.copy_from(bytemuck::cast_slice(&values));
    }
    let values: Vec<f32> = points.iter().map(|p| (p[0] * 7.0).sin().abs() * 100.0).collect();
    let column = message.add_column("intensity", Dtype::Float32, Cells::One);
    column.data.copy_from(bytemuck::cast_slice(&values));
    message
}

const MEANS: &str = "[occupancy, count, mean_x, mean_y, mean_z]";
const ALL: &str = "[occupancy, count, mean_x, mean_y, mean_z, mean_intensity, max_intensity, max_z, min_z]";
const CUBE: &str = "origin_m: [-25.6, -25.6, -25.6], voxel_size_m: [0.2, 0.2, 0.2], shape: [256, 256, 256]";
const FLAT: &str = "origin_m: [-51.2, -51.2, -4.0], voxel_size_m: [0.2, 0.2, 0.2], shape: [512, 512, 40]";
const TURNED: &str = "{ input: lidar, extrinsic: { translation_m: [0, 0, 0.5], rotation_xyzw: [0, 0, 0.1, 1] } }";

fn measure(name: &str, clouds: &[Message], config: &str) {
    // Cargo passes `--bench`.
    if std::env::args()
        .skip(1)
        .any(|part| part != "--bench" && !name.contains(&part))
    {
        return;
    }
    let config: VoxelizeConfig = match serde_yaml::from_str(config) {
        Ok(config) => config,
        Err(error) => panic!("{config}: {error}"),
    };
    let mut voxelizer = match CpuVoxelizer::new(&config) {
        Ok(voxelizer) => voxelizer,
        Err(error) => panic!("{error}"),
    };
    let (cells, channels) = (voxelizer.grid().cells(), config.channels.len());
    let dense_size = if config.layout == VoxelLayout::Dense {
        cells * channels
    } else {
        0
    };
    let (mut dense, mut bits) = (vec![0.0f32; dense_size], vec![0u8; cells.div_ceil(8)]);
    let (mut coords, mut features) = (vec![0i32; POINTS * 3], vec![0.0f32; POINTS * channels]);
    let rounds = if dense_size > 0 { ROUNDS / 4 } else { ROUNDS };
    let mut times = Vec::new();
    let mut voxels = 0;
    for round in 0..rounds + 3 {
        for message in clouds {
            let start = Instant::now();
            voxelizer.gather([(0, black_box(message))], |_, error| panic!("{error}"));
            voxels = voxelizer.voxels();
            match config.layout {
                VoxelLayout::Dense => voxelizer.write_dense(black_box(&mut dense[..])),
                VoxelLayout::Bits => voxelizer.write_bits(black_box(&mut bits)),
                VoxelLayout::Coo => voxelizer.write_coo(
                    black_box(&mut coords[..voxels * 3]),
                    black_box(&mut features[..voxels * channels]),
                ),
            }
            if round >= 3 {
                times.push(start.elapsed().as_nanos() as f64 / 1e3);
            }
        }
    }
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times[(part * (times.len() - 1) as f64).round() as usize];
    println!(
        "{{\"op\":\"voxelize\",\"config\":\"{name}, {voxels} voxels\",\"us_p50\":{:.1},\"us_p99\":{:.1}}}",
        at(0.5),
        at(0.99)
    );
}

/// Writes the clouds of the room to `folder`, for the benchmarks of other libraries: rows of x, y, z, float32, little-endian.
fn write_clouds(folder: &str) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for step in 0..CLOUDS {
        let bytes: Vec<u8> = sweep(step)
            .as_flattened()
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect();
        std::fs::write(format!("{folder}/{step}.f32"), bytes)?;
    }
    Ok(())
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [option, folder] = arguments.as_slice()
        && option == "--write-clouds"
    {
        if let Err(error) = write_clouds(folder) {
            panic!("{folder}: {error}");
        }
        return;
    }
    let all = |make: &dyn Fn(usize) -> Message| (0..CLOUDS).map(make).collect::<Vec<_>>();
    let room = all(&|i| columns(&sweep(i)));
    let room_tensor = all(&|i| tensor(&sweep(i), &HostMemory::pageable()));
    let room_shuffled = all(&|i| columns(&shuffled(sweep(i))));
    let anywhere = all(&|i| columns(&uniform(i)));
    for (grid_name, grid) in [("256x256x256", CUBE), ("512x512x40", FLAT)] {
        for (cloud_name, clouds, layout, channels, input) in [
            ("room", &room, "coo", MEANS, "{ input: lidar }"),
            ("room shuffled", &room_shuffled, "coo", MEANS, "{ input: lidar }"),
            ("uniform", &anywhere, "coo", MEANS, "{ input: lidar }"),
            ("room as tensor", &room_tensor, "coo", MEANS, "{ input: lidar }"),
            ("room with extrinsic", &room, "coo", MEANS, TURNED),
            ("room, 9 channels", &room, "coo", ALL, "{ input: lidar }"),
            ("room", &room, "bits", "[occupancy]", "{ input: lidar }"),
            ("room, occupancy", &room, "dense", "[occupancy]", "{ input: lidar }"),
        ] {
            measure(
                &format!("{cloud_name}, {POINTS} points, {grid_name}, {layout}"),
                clouds,
                &format!("{{ {grid}, layout: {layout}, channels: {channels}, inputs: [{input}] }}"),
            );
        }
    }
}

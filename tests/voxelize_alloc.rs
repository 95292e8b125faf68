//! A cloud becomes a grid without an allocation in steady state, on the CPU and on a CUDA device if there is one.
use crate::common::process_of;
use crate::counting::allocations_of_all;
use robocache::device::gpu::Kind;
use robocache::device::{DeviceChoice, Dtype, Placement};
use robocache::ops::voxelize::{VoxelizeConfig, Voxelizer};
use robocache::stream::{Cells, Message, Payload};

fn cloud(points: usize, seed: u32, tensor: bool) -> Message {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32 * 12.0 - 6.0
    };
    let mut values: Vec<f32> = (0..points * 4).map(|_| next()).collect();
    // The steady stream has intensities that are unusable, and some that are summed apart.
    let odd = [f32::NAN, 1e9, f32::INFINITY];
    let last = if tensor { 3 } else { points * 3 };
    for (i, odd) in odd.iter().cycle().take(points / 100).enumerate() {
        values[last + i * if tensor { 4 } else { 1 }] = *odd;
    }
    let names = ["x", "y", "z", "intensity"];
    let mut message = Message::default();
    if tensor {
        message.rows = values.len();
        message.header.shape.set([points as i64, 4]);
        message.header.fields.set(&names);
        let column = message.add_column("", Dtype::Float32, Cells::One);
        column.data.copy_from(bytemuck::cast_slice(&values));
    } else {
        message.rows = points;
        for (name, values) in names.iter().zip(values.chunks_exact(points)) {
            let column = message.add_column(name, Dtype::Float32, Cells::One);
            column.data.copy_from(bytemuck::cast_slice(values));
        }
    }
    message
}

/// Runs in a process of its own, where no other test allocates, since the allocations of the voxelizer's threads count, too.
#[test]
fn a_steady_stream_of_clouds_allocates_nothing() {
    const ALONE: &str = "ROBOCACHE_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let test = "voxelize_alloc::a_steady_stream_of_clouds_allocates_nothing";
        let done = process_of(test).env(ALONE, "1").output().unwrap();
        let [said, errors] = [&done.stdout, &done.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        assert!(done.status.success() && said.contains("1 passed"), "{said}{errors}");
        return;
    }
    let mut clouds: Vec<_> = (0..6).map(|i| cloud(20_000 + i * 10, i as u32, i % 2 == 0)).collect();
    let cpu = Placement::cpu("a test");
    let cuda = Placement::resolve(DeviceChoice::Gpu(Kind::Cuda, None), None).ok();
    for layout in ["dense", "bits", "coo"] {
        let channels = match layout {
            "bits" => "[occupancy]",
            _ => "[occupancy, count, mean_x, mean_y, mean_z, mean_intensity, max_intensity, min_z]",
        };
        let config: VoxelizeConfig = serde_yaml::from_str(&format!(
            "{{ origin_m: [-5, -5, -5], voxel_size_m: [0.2, 0.2, 0.2], shape: [50, 50, 50], layout: {layout},
                channels: {channels}, inputs: [{{ input: a }}, {{ input: b, extrinsic: {{ translation_m: [1, 0, 0] }} }}] }}"
        ))
        .unwrap();
        for placement in [Some(cpu.clone()), cuda.clone()].into_iter().flatten() {
            let mut voxelizer = Voxelizer::new(&config, &placement).unwrap();
            let mut out = Message::default();
            let mut grids = 0;
            let mut run = |round: i64| {
                for (i, cloud) in clouds.iter_mut().enumerate() {
                    cloud.header.timestamp_ns.set(round * 1000 + i as i64);
                    let Some(mut grid) = voxelizer.push(i % 2, cloud).unwrap().grid else {
                        continue;
                    };
                    grid.write(&mut Payload::in_message(&mut out, grid.layout()));
                    assert!(grid.counters().points_kept > 20_000);
                    assert_eq!(grid.inputs_valid(), [1, 1]);
                    grids += 1;
                }
            };
            run(0);
            let before = allocations_of_all();
            for round in 1..20 {
                run(round);
            }
            let allocations = allocations_of_all() - before;
            assert_eq!(allocations, 0, "allocations for layout {layout} on {placement}");
            assert_eq!(grids, 60);
        }
    }
}

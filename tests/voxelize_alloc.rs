//! In steady state a cloud becomes a grid without an allocation.
#![allow(clippy::unwrap_used)]

use robocache::device::Dtype;
use robocache::ops::voxelize::{Cloud, Collector, VoxelizeConfig, Voxelizer};
use robocache::stream::{Cells, Message};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as of the caller.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as of the caller.
        unsafe { System.dealloc(ptr, layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as of the caller.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn cloud(points: usize, seed: u32, tensor: bool) -> Message {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32 * 12.0 - 6.0
    };
    let values: Vec<f32> = (0..points * 4).map(|_| next()).collect();
    let names = ["x", "y", "z", "intensity"];
    let mut message = Message::default();
    if tensor {
        message.rows = values.len();
        message.shape = vec![points, 4];
        message.set_fields(&names);
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

// The only test of this binary: no other thread allocates meanwhile.
#[test]
fn a_steady_stream_of_clouds_allocates_nothing() {
    let clouds: Vec<_> = (0..6).map(|i| cloud(20_000 + i * 10, i as u32, i % 2 == 0)).collect();
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
        let mut voxelizer = Voxelizer::new(&config).unwrap();
        let mut collector = Collector::new(&config);
        let mut dense = vec![0.0f32; 8 * 50 * 50 * 50];
        let mut bits = vec![0u8; (50usize * 50 * 50).div_ceil(8)];
        let (mut coords, mut features) = (vec![0i32; 3 * 125_000], vec![0.0f32; 8 * 125_000]);
        let mut grids = 0;
        let mut run = |round: i64| {
            for (i, message) in clouds.iter().enumerate() {
                collector.arrived(i % 2, round * 1000 + i as i64);
                if !collector.due() {
                    continue;
                }
                collector.take().unwrap();
                voxelizer.begin();
                for (input, message) in [(0, &clouds[i - 1]), (1, message)] {
                    voxelizer.add(input, &Cloud::from_message(message).unwrap()).unwrap();
                }
                let counters = voxelizer.finish();
                assert!(counters.points_kept > 20_000);
                let voxels = voxelizer.voxels();
                match layout {
                    "dense" => voxelizer.write_dense(&mut dense),
                    "bits" => voxelizer.write_bits(&mut bits),
                    _ => voxelizer.write_coo(&mut coords[..voxels * 3], &mut features[..voxels * 8]),
                }
                assert!(!voxelizer.layout().columns.is_empty());
                grids += 1;
            }
        };
        run(0);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for round in 1..20 {
            run(round);
        }
        assert_eq!(
            ALLOCATIONS.load(Ordering::Relaxed) - before,
            0,
            "allocations for layout {layout}"
        );
        assert_eq!(grids, 60);
    }
}

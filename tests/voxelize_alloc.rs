//! In steady state a cloud becomes a grid without an allocation, on the CPU and on a CUDA device where there is one.
#![allow(clippy::unwrap_used)]

use robocache::device::Dtype;
use robocache::device::cuda::{Gpu, device_count};
use robocache::ops::voxelize::cuda::CudaVoxelizer;
use robocache::ops::voxelize::{Cloud, Collector, CpuVoxelizer, VoxelizeConfig};
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
    let mut values: Vec<f32> = (0..points * 4).map(|_| next()).collect();
    // Intensities that are unusable, and such as are summed apart, are a steady stream, too.
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

enum Backend {
    Cpu(Box<CpuVoxelizer>),
    Cuda(Box<CudaVoxelizer>),
}

/// Where grids are written.
struct Output {
    dense: Vec<f32>,
    bits: Vec<u8>,
    coords: Vec<i32>,
    features: Vec<f32>,
}

impl Backend {
    /// Makes a grid and writes it; how many points are in it.
    fn run(&mut self, clouds: [(usize, &Message); 2], layout: &str, out: &mut Output) -> u64 {
        match self {
            Self::Cpu(voxelizer) => {
                voxelizer.begin();
                for (input, message) in clouds {
                    voxelizer.add(input, &Cloud::from_message(message).unwrap()).unwrap();
                }
                let counters = voxelizer.finish();
                let voxels = voxelizer.voxels();
                match layout {
                    "dense" => voxelizer.write_dense(&mut out.dense),
                    "bits" => voxelizer.write_bits(&mut out.bits),
                    _ => voxelizer.write_coo(&mut out.coords[..voxels * 3], &mut out.features[..voxels * 8]),
                }
                assert!(!voxelizer.layout().columns.is_empty());
                counters.points_kept
            }
            Self::Cuda(voxelizer) => {
                let counters = voxelizer.gather(clouds, |_, error| panic!("{error}")).unwrap();
                let voxels = voxelizer.voxels();
                match layout {
                    "dense" => voxelizer.write_dense(&mut out.dense),
                    "bits" => voxelizer.write_bits(&mut out.bits),
                    _ => voxelizer.write_coo(&mut out.coords[..voxels * 3], &mut out.features[..voxels * 8]),
                }
                .unwrap();
                assert!(!voxelizer.layout().columns.is_empty());
                counters.points_kept
            }
        }
    }
}

// The only test of this binary: no other thread allocates meanwhile.
#[test]
fn a_steady_stream_of_clouds_allocates_nothing() {
    let clouds: Vec<_> = (0..6).map(|i| cloud(20_000 + i * 10, i as u32, i % 2 == 0)).collect();
    let gpu = device_count().ok().map(|_| Gpu::open(0).unwrap());
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
        let mut out = Output {
            dense: vec![0.0; 8 * 50 * 50 * 50],
            bits: vec![0; (50usize * 50 * 50).div_ceil(8)],
            coords: vec![0; 3 * 125_000],
            features: vec![0.0; 8 * 125_000],
        };
        let cpu = Backend::Cpu(Box::new(CpuVoxelizer::new(&config).unwrap()));
        let cuda = gpu.as_ref().map(|gpu| CudaVoxelizer::new(&config, gpu, None).unwrap());
        for mut backend in [Some(cpu), cuda.map(Box::new).map(Backend::Cuda)].into_iter().flatten() {
            let mut collector = Collector::new(&config);
            let mut grids = 0;
            let mut run = |round: i64| {
                for (i, message) in clouds.iter().enumerate() {
                    collector.arrived(i % 2, round * 1000 + i as i64);
                    if !collector.due() {
                        continue;
                    }
                    collector.take().unwrap();
                    assert!(backend.run([(0, &clouds[i - 1]), (1, message)], layout, &mut out) > 20_000);
                    grids += 1;
                }
            };
            run(0);
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            for round in 1..20 {
                run(round);
            }
            let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
            let place = if matches!(backend, Backend::Cpu(_)) {
                "CPU"
            } else {
                "device"
            };
            assert_eq!(allocations, 0, "allocations for layout {layout} on the {place}");
            assert_eq!(grids, 60);
        }
    }
}

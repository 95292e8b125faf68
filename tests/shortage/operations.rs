//! Single operations, which go on with the device after it refused a call.

use crate::common::MS;
use crate::emulator::{ALL, ALLOCATION, COPY, Emulator, LAUNCH, ONE};
use crate::works::{cloud, signal, voxelize};
use robocache::device::Dtype;
use robocache::device::cuda::{Budget, DeviceBuf, Gpu};
use robocache::ops::align::cuda::{CudaFuser, DeviceSample, PushError};
use robocache::ops::align::{AlignConfig, Masks, Timeline};
use robocache::ops::fuse;
use robocache::ops::voxelize::cuda::{CudaVoxelizer, VoxelBatch, VoxelizeBatch};
use robocache::ops::voxelize::{Cloud, VoxelizeConfig};
use robocache::stream::Message;
use std::ffi::c_int;

/// Streams of which every other sample comes on the device: where that fails, rows come back with their samples, and go
/// there again.
#[test]
fn rows_come_back_from_the_device_whatever_is_refused() {
    let Some(emulator) = Emulator::open() else { return };
    let mut cases = 0;
    for (asked, count) in [
        (ALLOCATION, ONE),
        (ALLOCATION, ALL),
        (COPY, ONE),
        (LAUNCH, ONE),
        (LAUNCH, ALL),
    ] {
        for first in 1.. {
            let refused = follow(&emulator, (asked, first, count));
            if refused == 0 {
                break;
            }
            cases += 1;
        }
    }
    assert!(cases > 300, "{cases} cases");
}

/// Plays a timeline with late samples, samples that replace others, a jump and a long wait, and says how many calls were
/// refused.
fn follow(emulator: &Emulator, (asked, first, count): (c_int, u64, u64)) -> c_int {
    let rule = "interpolation: linear, reorder_ms: 25, reset_ms: 500";
    let config = format!(
        "{{ rate_hz: 50, window: 3, modalities: [{{ input: a, dim: 3, {rule} }}, {{ input: b, dim: 300, {rule} }}] }}"
    );
    let config: AlignConfig = serde_yaml::from_str(&config).unwrap();
    let [mut oracle, mut aligner] = [(); 2].map(|()| Timeline::new(&config).unwrap());
    let (gpu, budget) = (Gpu::open(0).unwrap(), Budget::new(None));
    let mut fuser = CudaFuser::new(&aligner, &gpu, &budget);
    let mut memory = DeviceBuf::new(&gpu, &budget);
    memory.reserve(4 * 300).unwrap();
    emulator.refuse(asked, first, count);
    let (mut refused, mut windows) = (0, 0);
    let stamps = (1..60).map(|i| match i {
        9 => 8 * 20,                 // instead of the one before
        17 | 33 => (i - 1) * 20 - 5, // late
        40.. => (i - 39) * 20,       // the clock jumped back
        _ => i * 20,
    });
    for (i, ms) in stamps.enumerate() {
        // There is memory again.
        if i == 45 && count == ALL {
            refused += emulator.refuse(asked, 0, ONE);
        }
        for (modality, dim) in [(0, 3), (1, 300)] {
            // b is behind for a while, so that a's ring grows.
            if modality == 1 && (20..30).contains(&i) {
                continue;
            }
            let message = signal(ms, dim);
            let values = message.flat().unwrap();
            let wanted = oracle.push(modality, ms * MS, values).unwrap();
            let came = if i % 2 == modality {
                fuser.push_host(&mut aligner, modality, ms * MS, values)
            } else {
                put(&memory, values.bytes());
                let sample = DeviceSample {
                    memory: &memory,
                    at: 0,
                    dtype: Dtype::Float32,
                    len: dim,
                };
                fuser.push(&mut aligner, modality, ms * MS, sample)
            };
            let came = came.or_else(|error| {
                fuser.bring_back(&mut aligner).unwrap();
                match error {
                    PushError::Unplaced { pushed, .. } => aligner.restore(modality, ms * MS, values).map(|()| pushed),
                    PushError::Cuda(error) if error.is_memory() => aligner.push(modality, ms * MS, values),
                    other => panic!("{other}"),
                }
            });
            assert_eq!(came.unwrap(), wanted);
            while let Some(target) = oracle.due() {
                assert_eq!(aligner.due(), Some(target));
                let [mut came, mut wanted] = [(); 2].map(|()| vec![0u8; 3 * 303 * 4]);
                let [mut masks, mut wanted_masks] = [(); 2].map(|()| Masks::default());
                let written = fuser.window(&aligner, &target, 0..2, &mut came, &mut masks);
                if let Err(error) = written {
                    assert!(error.is_memory(), "{error}");
                    fuser.bring_back(&mut aligner).unwrap();
                    fuse::cpu::fuse::<f32>(&aligner, &target, bytemuck::cast_slice_mut(&mut came), &mut masks);
                }
                fuse::cpu::fuse::<f32>(
                    &oracle,
                    &target,
                    bytemuck::cast_slice_mut(&mut wanted),
                    &mut wanted_masks,
                );
                assert!(
                    came == wanted && masks == wanted_masks,
                    "{asked} {first} of {count}: window {windows}"
                );
                windows += 1;
            }
        }
    }
    assert!(windows > 40, "{windows} windows");
    refused + emulator.refuse(asked, 0, ONE)
}

/// The test's own copies are not those that are refused: they are tried until they are done.
fn put(to: &DeviceBuf, bytes: &[u8]) {
    // SAFETY: the source is not page-locked, so that it has been read on return.
    while let Err(error) = unsafe { to.upload(0, bytes) } {
        assert!(error.is_memory(), "{error}");
    }
    to.gpu().synchronize().unwrap();
}

fn coo() -> VoxelizeConfig {
    let config = voxelize("coo", [8, 8, 4]);
    let (_, config) = config.split_once(' ').unwrap();
    serde_yaml::from_str(config).unwrap()
}

#[test]
fn a_copy_that_is_refused_leaves_none_on_its_way_into_memory_that_was_lent() {
    let Some(emulator) = Emulator::open() else { return };
    let gpu = Gpu::open(0).unwrap();
    let mut voxelizer = CudaVoxelizer::new(&coo(), &gpu, None).unwrap();
    let cloud = cloud(100, 300);
    voxelizer.gather([(0, &cloud)], |_, error| panic!("{error}")).unwrap();
    let voxels = voxelizer.voxels();
    let (mut coords, mut features) = (vec![0i32; 3 * voxels], vec![0f32; 2 * voxels]);
    emulator.refuse(COPY, 2, ONE);
    let refused = voxelizer.write_coo(&mut coords, &mut features).unwrap_err();
    emulator.refuse(COPY, 0, ONE);
    assert!(refused.is_memory(), "{refused}");
    coords.fill(-7);
    gpu.synchronize().unwrap();
    voxelizer.gpu().synchronize().unwrap();
    assert!(
        coords.iter().all(|&coord| coord == -7),
        "it was written to after the call"
    );
    voxelizer.write_coo(&mut coords, &mut features).unwrap();
    assert!(coords.iter().all(|&coord| coord >= 0));
}

/// A chunk of a batch that fails is made again in halves, whole rows and none twice.
#[test]
fn a_batch_that_is_cut_after_a_refusal_has_the_same_rows() {
    let Some(emulator) = Emulator::open() else { return };
    let gpu = Gpu::open(0).unwrap();
    let messages: Vec<Message> = (1..6).map(|i| cloud(100 * i, 200 + 10 * i as usize)).collect();
    let clouds: Vec<Cloud<'_>> = messages
        .iter()
        .map(|message| Cloud::from_message(message).unwrap())
        .collect();
    let run = || {
        let mut out = VoxelBatch::default();
        let mut batch = VoxelizeBatch::new(&coo(), &gpu, None).unwrap();
        batch
            .run(&clouds, &mut out)
            .map(|()| (out.rows, out.coords, out.features, out.counters))
    };
    let wanted = run().unwrap();
    for asked in [ALLOCATION, COPY, LAUNCH] {
        for first in 1.. {
            emulator.refuse(asked, first, ONE);
            let came = run();
            if emulator.refuse(asked, 0, ONE) == 0 {
                break;
            }
            assert!(came.unwrap() == wanted, "{asked} {first}");
        }
    }
}

//! Single operations, which go on with the device after it has refused a call.

use crate::common::MS;
use crate::common::kind::kind;
use crate::emulator::{ALL, ALLOCATION, COPY, Emulator, LAUNCH, ONE};
use crate::works::{cloud, signal, voxelize};
use robocache::device::gpu::{Budget, DeviceBuf, Gpu};
use robocache::device::{Device, DeviceChoice, Dtype, Placement, State, Values};
use robocache::ops::align::gpu::{DeviceSample, FuserError, GpuFuser};
use robocache::ops::align::{AlignConfig, Aligner, Destination, Masks, Notice, Output, Timeline, cpu};
use robocache::ops::voxelize::gpu::{GpuVoxelizer, VoxelBatch, VoxelizeBatch};
use robocache::stream::{HostCloud, Message};
use std::ffi::c_int;

/// Every other sample is pushed from device memory. If the device refuses a call, the buffered samples return to the host, and move
/// to the device again later.
#[test]
fn rows_come_back_from_the_device_whatever_is_refused() {
    let Some(emulator) = Emulator::open() else { return };
    let cases = emulator.sweep(1, |call_kind, first, count| {
        follow(&emulator, (call_kind, first, count))
    });
    assert!(cases > 300, "{cases} cases");
}

/// Plays a timeline with late samples, samples that replace others, a jump and a long wait. Returns the number of refused calls.
fn follow(emulator: &Emulator, (call_kind, first, count): (c_int, u64, u64)) -> c_int {
    let rule = "interpolation: linear, reorder_ms: 25, reset_ms: 500";
    let config = format!(
        "{{ rate_hz: 50, window: 3, modalities: [{{ input: a, dim: 3, {rule} }}, {{ input: b, dim: 300, {rule} }}] }}"
    );
    let config: AlignConfig = serde_yaml::from_str(&config).unwrap();
    let [mut oracle, mut timeline] = [(); 2].map(|()| Timeline::new(&config).unwrap());
    let (gpu, budget) = (Gpu::open(kind(), 0).unwrap(), Budget::new(None));
    let mut fuser = GpuFuser::new(&timeline, 1, &gpu, &budget);
    let all = [Output::new(&timeline, 0..2)];
    let mut memory = DeviceBuf::new(&gpu, &budget);
    memory.reserve(4 * 300).unwrap();
    emulator.refuse(call_kind, first, count);
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
            refused += emulator.refuse(call_kind, 0, ONE);
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
                fuser.push_host(&mut timeline, modality, ms * MS, values)
            } else {
                put(&memory, values.bytes());
                let sample = DeviceSample::new(&memory, 0, Dtype::Float32, dim).unwrap();
                fuser.push(&mut timeline, modality, ms * MS, sample)
            };
            let came = came.or_else(|error| {
                fuser.bring_back(&mut timeline).unwrap();
                match error {
                    FuserError::Lost { pushed, .. } => timeline.restore(modality, ms * MS, values).map(|()| pushed),
                    FuserError::Gpu(error) if error.is_memory() => timeline.push(modality, ms * MS, values),
                    other => panic!("{other}"),
                }
            });
            assert_eq!(came.unwrap(), wanted);
            while let Some(target) = oracle.due() {
                assert_eq!(timeline.due(), Some(target));
                let [mut came, mut wanted] = [(); 2].map(|()| vec![0u8; 3 * 303 * 4]);
                let [mut masks, mut wanted_masks] = [(); 2].map(|()| Masks::default());
                match fuser.make(&timeline, &target, &all, &[Destination::Host]) {
                    Ok(()) => {
                        came.copy_from_slice(fuser.values(0));
                        fuser.masks(0, &timeline, &target, &mut masks);
                    }
                    Err(error) => {
                        assert!(error.is_memory(), "{error}");
                        fuser.bring_back(&mut timeline).unwrap();
                        let came = bytemuck::cast_slice_mut(&mut came);
                        cpu::window::<f32>(&timeline, &target, 0..2, came, &mut masks);
                    }
                }
                let of_oracle = bytemuck::cast_slice_mut(&mut wanted);
                cpu::window::<f32>(&oracle, &target, 0..2, of_oracle, &mut wanted_masks);
                assert!(
                    came == wanted && masks == wanted_masks,
                    "{call_kind} {first} of {count}: window {windows}"
                );
                windows += 1;
            }
        }
    }
    assert!(windows > 40, "{windows} windows");
    refused + emulator.refuse(call_kind, 0, ONE)
}

/// Whatever is refused, an operation gives the windows of the CPU and loses nothing.
#[test]
fn an_operation_falls_back_whatever_is_refused() {
    let Some(emulator) = Emulator::open() else { return };
    let cases = emulator.sweep(3, |call_kind, first, count| {
        fall_back(&emulator, (call_kind, first, count))
    });
    assert!(cases > 30, "{cases} cases");
}

/// Plays samples of the host and of the device to an operation with two outputs, one of which is to stay on the device. Returns
/// the number of refused calls.
fn fall_back(emulator: &Emulator, (call_kind, first, count): (c_int, u64, u64)) -> c_int {
    let rule = "interpolation: linear";
    let config = format!(
        "{{ rate_hz: 50, window: 3, modalities: [{{ input: a, dim: 3, {rule} }}, {{ input: b, dim: 300, {rule} }}] }}"
    );
    let config: AlignConfig = serde_yaml::from_str(&config).unwrap();
    let cuda = Placement::resolve(DeviceChoice::Gpu(kind(), None), None).unwrap();
    let mut oracle = Aligner::aligned(&config, &Placement::cpu("the oracle")).unwrap();
    let mut subject = Aligner::aligned(&config, &cuda).unwrap();
    let gpu = cuda.gpu().unwrap();
    let [mut sample, mut left] = [(); 2].map(|()| DeviceBuf::new(gpu, &Budget::new(None)));
    sample.reserve(4 * 300).unwrap();
    left.reserve(4 * 3 * 300).unwrap();
    emulator.refuse(call_kind, first, count);
    let mut windows = 0;
    for i in 1..16 {
        for (modality, dim) in [(0, 3), (1, 300)] {
            let message = signal(20 * i, dim);
            let values = message.flat().unwrap();
            oracle.push(modality, 20 * i * MS, values).unwrap();
            if i % 2 == modality as i64 {
                subject.push(modality, 20 * i * MS, values).unwrap();
            } else {
                put(&sample, values.bytes());
                let sample = DeviceSample::new(&sample, 0, Dtype::Float32, dim).unwrap();
                subject.push_on_device(modality, 20 * i * MS, sample).unwrap();
            }
        }
        while let Some(target) = oracle.due() {
            assert_eq!(subject.due(), Some(target));
            let mut oracle = oracle.window(target);
            let wanted = [Destination::Host, Destination::Device];
            let mut window = subject.window_for(target, |output| wanted[output]);
            for output in 0..2 {
                let [mut came, mut wanted] = [(); 2].map(|()| vec![0u8; window.output(output).bytes()]);
                oracle.write(output, &mut wanted);
                if window.destination(output) == Destination::Device {
                    let handed_on = window.leave_on_device(output, &mut left);
                    match handed_on.and_then(|()| left.fetch(0, &mut came)) {
                        Ok(()) => {}
                        Err(error) => window.failed_to_leave(error),
                    }
                }
                if window.destination(output) == Destination::Host {
                    window.write(output, &mut came);
                }
                assert!(
                    came == wanted && window.masks() == oracle.masks(),
                    "{call_kind} {first} of {count}: window {windows}"
                );
            }
            windows += 1;
        }
    }
    let refused = emulator.refuse(call_kind, 0, ONE);
    assert!(subject.take_lost().is_none());
    assert_eq!((subject.timeline_mut().take_notices().count(), windows), (0, 15));
    refused
}

/// Rows that can't be read back are lost. Each stream reports that and begins anew.
#[test]
fn rows_that_can_not_come_back_are_said_to_be_lost() {
    let Some(emulator) = Emulator::open() else { return };
    let rule = "interpolation: linear";
    let config = format!(
        "{{ rate_hz: 50, modalities: [{{ input: a, dim: 3, {rule} }}, {{ input: b, dim: 300, {rule} }}, \
         {{ input: c, dim: 1, {rule} }}] }}"
    );
    let config: AlignConfig = serde_yaml::from_str(&config).unwrap();
    let cuda = Placement::resolve(DeviceChoice::Gpu(kind(), None), None).unwrap();
    let mut oracle = Aligner::aligned(&config, &Placement::cpu("the oracle")).unwrap();
    let mut subject = Aligner::aligned(&config, &cuda).unwrap();
    let mut memory = DeviceBuf::new(cuda.gpu().unwrap(), &Budget::new(None));
    memory.reserve(4 * 300).unwrap();
    let mut windows = 0;
    for i in 1..16 {
        if i == 8 {
            // From now on every launch and copy is refused.
            emulator.refuse(LAUNCH, 1, ALL);
            emulator.refuse(COPY, 1, ALL);
        }
        // The rows of a and b are on the device, those of c never.
        for (modality, dim) in [(0, 3), (1, 300), (2, 1)] {
            let message = signal(20 * i, dim);
            let values = message.flat().unwrap();
            oracle.push(modality, 20 * i * MS, values).unwrap();
            if modality == 2 || i >= 8 {
                subject.push(modality, 20 * i * MS, values).unwrap();
            } else {
                put(&memory, values.bytes());
                let sample = DeviceSample::new(&memory, 0, Dtype::Float32, dim).unwrap();
                subject.push_on_device(modality, 20 * i * MS, sample).unwrap();
            }
        }
        while let Some(target) = oracle.due() {
            assert_eq!(subject.due(), Some(target));
            let (mut oracle, mut window) = (oracle.window(target), subject.window(target));
            for output in 0..3 {
                let [mut came, mut wanted] = [(); 2].map(|()| vec![0u8; window.output(output).bytes()]);
                oracle.write(output, &mut wanted);
                window.write(output, &mut came);
                assert!(
                    came == wanted && window.masks() == oracle.masks(),
                    "{i}: output {output} of window {windows}"
                );
            }
            windows += 1;
        }
        if i == 8 {
            let notices: Vec<_> = subject.timeline_mut().take_notices().collect();
            // The newest sample of a came from the host, and is put back.
            let lost = |modality, samples| Notice::SamplesLost { modality, samples };
            assert_eq!(notices, [lost(0, 1), lost(1, 1)]);
        }
    }
    emulator.refuse(LAUNCH, 0, ONE);
    emulator.refuse(COPY, 0, ONE);
    assert!(subject.take_lost().is_none());
    assert_eq!((subject.timeline_mut().take_notices().count(), windows), (0, 15));
}

/// All outputs of a window are made in one pass of two launches, however many streams there are.
#[test]
fn a_window_of_many_outputs_is_two_launches() {
    let Some(emulator) = Emulator::open() else { return };
    let modalities: Vec<String> = (0..5)
        .map(|i| format!("{{ input: s{i}, dim: 2, interpolation: previous }}"))
        .collect();
    let config = format!("{{ rate_hz: 50, modalities: [{}] }}", modalities.join(", "));
    let config: AlignConfig = serde_yaml::from_str(&config).unwrap();
    let cuda = Placement::resolve(DeviceChoice::Gpu(kind(), None), None).unwrap();
    let mut aligner = Aligner::aligned(&config, &cuda).unwrap();
    for (i, wanted) in [5, 3].into_iter().enumerate() {
        for modality in 0..5 {
            let values = [i as f32, modality as f32];
            aligner
                .push(modality, 20 * i as i64 * MS, Values::from_f32(&values))
                .unwrap();
        }
        let target = aligner.due().unwrap();
        // A third launch would be refused.
        emulator.refuse(LAUNCH, 3, ALL);
        let of = |output| {
            if output < wanted {
                Destination::Host
            } else {
                Destination::Nowhere
            }
        };
        let mut window = aligner.window_for(target, of);
        for output in 0..wanted {
            let mut values = [0f32; 2];
            window.write(output, &mut values);
            assert_eq!(values, [i as f32, output as f32]);
        }
        assert_eq!(window.device(), Device::Gpu(kind(), 0));
        assert_eq!(emulator.refuse(LAUNCH, 0, ONE), 0);
    }
}

/// Copies bytes for the test itself. The refusals are not meant for this copy, so it is tried until it succeeds.
fn put(to: &DeviceBuf, bytes: &[u8]) {
    // SAFETY: the source is not page-locked, so that it has been read on return.
    while let Err(error) = unsafe { to.upload(0, bytes) } {
        assert!(error.is_memory(), "{error}");
    }
    to.gpu().synchronize().unwrap();
}

fn coo() -> robocache::ops::voxelize::VoxelizeConfig {
    let config = voxelize("coo", [8, 8, 4]);
    let (_, config) = config.split_once(' ').unwrap();
    serde_yaml::from_str(config).unwrap()
}

#[test]
fn a_large_copy_is_whole_or_an_error_and_leaves_the_memory_alone_then() {
    let Some(emulator) = Emulator::open() else { return };
    const BYTES: usize = (5 << 20) + 5;
    let bytes: Vec<u8> = (0..BYTES).map(|i| (i * 7 + (i >> 8) * 13 + (i >> 16)) as u8).collect();
    let cases = emulator.sweep(1, |call_kind, first, count| {
        // A new stream, which has no page-locked memory yet.
        let gpu = Gpu::open(kind(), 0).unwrap();
        let mut device = DeviceBuf::new(&gpu, &Budget::new(None));
        device.reserve(BYTES).unwrap();
        let mut came = vec![0; BYTES];
        emulator.refuse(call_kind, first, count);
        // SAFETY: the source is not page-locked, so that it has been read on return.
        let sent = unsafe { device.upload(0, &bytes) };
        let fetched = device.fetch(0, &mut came);
        let refused = emulator.refuse(call_kind, 0, ONE);
        for result in [sent.clone(), fetched.clone()] {
            assert!(result.map_or_else(|error| error.is_memory(), |()| true));
        }
        assert!(
            call_kind == COPY || (sent.is_ok() && fetched.is_ok()),
            "the driver copies without chunks"
        );
        if fetched.is_err() {
            came.fill(1);
            gpu.synchronize().unwrap();
            assert!(came.iter().all(|&byte| byte == 1));
        } else if sent.is_ok() {
            assert!(came == bytes);
        }
        // The refusal does not affect the next copy.
        put(&device, &bytes);
        device.fetch(0, &mut came).unwrap();
        assert!(came == bytes);
        refused
    });
    assert!(cases > 20, "{cases}");
}

#[test]
fn a_copy_that_is_refused_leaves_none_on_its_way_into_memory_that_was_lent() {
    let Some(emulator) = Emulator::open() else { return };
    let gpu = Gpu::open(kind(), 0).unwrap();
    let mut voxelizer = GpuVoxelizer::new(&coo(), &gpu, None).unwrap();
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

/// A chunk of a batch that fails is made again in halves: no row is missing or made twice.
#[test]
fn a_batch_that_is_cut_after_a_refusal_has_the_same_rows() {
    let Some(emulator) = Emulator::open() else { return };
    let gpu = Gpu::open(kind(), 0).unwrap();
    let messages: Vec<Message> = (1..6).map(|i| cloud(100 * i, 200 + 10 * i as usize)).collect();
    let clouds: Vec<HostCloud<'_>> = messages
        .iter()
        .map(|message| HostCloud::from_message(message).unwrap())
        .collect();
    let run = || {
        let mut out = VoxelBatch::default();
        let mut batch = VoxelizeBatch::new(&coo(), &gpu, None).unwrap();
        batch
            .run(&clouds, &mut out)
            .map(|()| (out.rows, out.coords, out.features, out.counters))
    };
    let wanted = run().unwrap();
    for call_kind in [ALLOCATION, COPY, LAUNCH] {
        for first in 1.. {
            emulator.refuse(call_kind, first, ONE);
            let came = run();
            if emulator.refuse(call_kind, 0, ONE) == 0 {
                break;
            }
            assert!(came.unwrap() == wanted, "{call_kind} {first}");
        }
    }
}

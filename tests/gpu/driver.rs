//! The interface below `Gpu`: on a wrapped driver, operations give the CPU's bits, make few calls, and survive one that fails.

use crate::counting_driver::{CountingDriver, Counts};
use crate::support::{gpu, kind, ran};
use robocache::device::gpu::{Budget, DeviceBuf, DeviceFault, Gpu};
use robocache::device::{Dtype, Placement, Values};
use robocache::ops::align::gpu::DeviceSample;
use robocache::ops::align::{AlignConfig, Aligner};
use robocache::ops::resample::{ResampleConfig, Resampler};
use robocache::ops::voxelize::{VoxelizeConfig, Voxelizer};
use robocache::stream::{Cells, ColumnLayout, Layout, Message, Payload};
use std::fmt::Display;

/// Number of runs of an operation in a test, which is how often `auto` tries a device. From the third run on, all memory and
/// kernels are loaded.
const STEPS: usize = 4;

/// Function that runs an operation `STEPS` times and returns the bytes of all results. Each run is large enough for `auto` to try a
/// device, and is followed by a call of the callback. An error comes from a device that was asked for.
type Run = fn(&Placement, &mut dyn FnMut()) -> Result<Vec<u8>, String>;

const OPERATIONS: [(&str, Run); 4] = [
    ("voxelize", voxelize),
    ("resample", resample),
    ("fuse", fuse),
    ("fuse on device", fuse_on_device),
];

fn text(error: impl Display) -> String {
    error.to_string()
}

/// Returns the bytes, or the error if a device that was asked for was lost meanwhile.
fn unless_lost(bytes: Vec<u8>, lost: Option<impl Display>) -> Result<Vec<u8>, String> {
    lost.map_or(Ok(bytes), |error| Err(text(error)))
}

fn append(bytes: &mut Vec<u8>, message: &Message) {
    for column in message.columns() {
        bytes.extend(column.data.bytes());
    }
}

fn voxelize(placement: &Placement, step: &mut dyn FnMut()) -> Result<Vec<u8>, String> {
    const POINTS: usize = 1500;
    let config = "{ origin_m: [0, 0, 0], voxel_size_m: [1, 1, 1], shape: [8, 8, 8], layout: coo, channels: [count, mean_x], \
                  inputs: [{ input: a }] }";
    let config: VoxelizeConfig = serde_yaml::from_str(config).unwrap();
    let mut voxelizer = Voxelizer::new(&config, placement).map_err(text)?;
    let (mut bytes, mut cloud, mut voxels) = (Vec::new(), Message::default(), Message::default());
    for seed in 0..STEPS {
        cloud.write(&Layout::flat(Dtype::Float32, 3 * POINTS), |payload, header| {
            for (i, value) in payload.column::<f32>(0).iter_mut().enumerate() {
                *value = ((i * 37 + seed * 11) % 101) as f32 / 11.0;
            }
            header.shape.set([POINTS as i64, 3]);
            header.timestamp_ns.set(1);
        });
        let clouds = [(0, &cloud)];
        let mut grid = voxelizer.gather(&clouds);
        grid.write(&mut Payload::in_message(&mut voxels, grid.layout()));
        append(&mut bytes, &voxels);
        step();
    }
    unless_lost(bytes, voxelizer.take_lost())
}

fn resample(placement: &Placement, step: &mut dyn FnMut()) -> Result<Vec<u8>, String> {
    const SAMPLES: usize = 3000;
    const TARGETS: usize = 2500;
    let mut resampler = Resampler::new(&ResampleConfig::default(), placement).map_err(text)?;
    let columns = [
        ("timestamps_ns", Dtype::Int64, SAMPLES),
        ("values", Dtype::Float32, 2 * SAMPLES),
        ("targets_ns", Dtype::Int64, TARGETS),
    ];
    let column = |(name, dtype, len): (&'static str, _, _)| ColumnLayout {
        name: name.into(),
        dtype,
        cells: Cells::Ragged(len),
    };
    let layout = Layout {
        rows: 1,
        columns: columns.map(column).into(),
    };
    let (mut bytes, mut message, mut resampled) = (Vec::new(), Message::default(), Message::default());
    let mut answer = Layout::default();
    for seed in 0..STEPS {
        message.write(&layout, |payload, header| {
            for (i, time) in payload.column::<i64>(0).iter_mut().enumerate() {
                *time = 100 * i as i64;
            }
            for (i, value) in payload.column::<f32>(1).iter_mut().enumerate() {
                *value = (i * i + seed) as f32;
            }
            for (i, target) in payload.column::<i64>(2).iter_mut().enumerate() {
                *target = 130 * i as i64;
            }
            for (i, (_, _, len)) in columns.into_iter().enumerate() {
                payload.offsets(i).copy_from_slice(&[0, len as i32]);
            }
            header.dim.set(2);
        });
        let batch = resampler.read(&message).unwrap();
        batch.layout_into(&mut answer);
        resampler.run(&batch, &mut Payload::in_message(&mut resampled, &answer));
        append(&mut bytes, &resampled);
        step();
    }
    unless_lost(bytes, resampler.take_lost())
}

fn fuse(placement: &Placement, step: &mut dyn FnMut()) -> Result<Vec<u8>, String> {
    fuse_samples(placement, None, step)
}

/// Runs fuse with samples in device memory, so that their rows are on the device only.
fn fuse_on_device(placement: &Placement, step: &mut dyn FnMut()) -> Result<Vec<u8>, String> {
    let memory = placement.gpu().map(|gpu| DeviceBuf::new(gpu, &Budget::new(None)));
    fuse_samples(placement, memory, step)
}

/// Pushes samples to fuse, out of `memory` on a device if there is some. Checks that no failure loses a sample.
fn fuse_samples(
    placement: &Placement,
    mut memory: Option<DeviceBuf>,
    step: &mut dyn FnMut(),
) -> Result<Vec<u8>, String> {
    const STEP_NS: i64 = 20_000_000;
    const DIM: usize = 200;
    let config = "{ rate_hz: 50, window: 200, modalities: [{ input: a, dim: 200, interpolation: linear }] }";
    let config: AlignConfig = serde_yaml::from_str(config).unwrap();
    let mut aligner = Aligner::fused(&config, placement).map_err(text)?;
    let (mut bytes, mut window_bytes) = (Vec::new(), vec![0; 200 * DIM * size_of::<f32>()]);
    for seed in 1..=STEPS {
        let sample: Vec<f32> = (0..DIM).map(|i| (i * seed * seed) as f32).collect();
        let (stamp_ns, values) = (STEP_NS * seed as i64, Values::from_f32(&sample));
        match &mut memory {
            None => aligner.push(0, stamp_ns, values).unwrap(),
            Some(memory) => {
                let sample = put(memory, values).map_err(text)?;
                aligner.push_on_device(0, stamp_ns, sample).unwrap()
            }
        };
        while let Some(target) = aligner.due() {
            let mut window = aligner.window(target);
            window.write(0, &mut window_bytes);
            bytes.extend(&window_bytes);
            bytes.extend(bytemuck::cast_slice::<i64, u8>(&window.masks().valid));
        }
        step();
    }
    assert_eq!(aligner.timeline_mut().take_notices().count(), 0, "a sample was lost");
    unless_lost(bytes, aligner.take_lost())
}

/// Copies a sample to memory of a device.
fn put<'a>(memory: &'a mut DeviceBuf, values: Values<'_>) -> Result<DeviceSample<'a>, DeviceFault> {
    memory.reserve(values.bytes().len())?;
    // SAFETY: the source stays until the copy is done.
    unsafe { memory.upload(0, values.bytes()) }?;
    memory.gpu().synchronize()?;
    Ok(DeviceSample::new(memory, 0, Dtype::Float32, values.len())?)
}

/// Opens a device on a driver that wraps the real one.
fn second(fails_at: Option<usize>) -> (&'static CountingDriver, Result<Gpu, DeviceFault>) {
    let driver = CountingDriver::new(kind().driver().unwrap(), fails_at);
    (driver, Gpu::open_on(driver, 0))
}

/// Returns the number of calls to each function between two counts, `before` and `after`.
fn calls(before: &Counts, after: &Counts) -> Counts {
    let calls = after
        .iter()
        .map(|(&call, count)| (call, count - before.get(call).unwrap_or(&0)));
    calls.filter(|&(_, count)| count > 0).collect()
}

#[test]
fn a_steady_step_has_the_bytes_of_the_cpu_and_makes_few_calls() {
    let Some(first) = gpu() else { return };
    for (name, run) in OPERATIONS {
        let (driver, gpu) = second(None);
        let placement = Placement::on(vec![gpu.unwrap()], false);
        let mut counts = Vec::new();
        let came = run(&placement, &mut || counts.push(driver.counts())).unwrap();
        assert!(
            came == run(&Placement::cpu("the oracle"), &mut || ()).unwrap(),
            "{name}"
        );
        // Nothing is allocated, freed or loaded.
        let expected: &[(&str, usize)] = match name {
            // Copies the points, the counts of cells, which give the number of rows, and then the rows.
            "voxelize" => &[
                ("download", 4),
                ("launch", 4),
                ("record", 2),
                ("synchronize", 1),
                ("synchronize_event", 1),
                ("upload", 1),
            ],
            // Uploads times, values and targets. A launch of its own counts dropped samples.
            "resample" => &[
                ("clear", 1),
                ("download", 2),
                ("launch", 2),
                ("synchronize", 1),
                ("upload", 3),
            ],
            // The upload is the test's own. The launches check the sample, put it into its ring and make the window.
            "fuse on device" => &[("download", 1), ("launch", 4), ("synchronize", 3), ("upload", 1)],
            // A launch appends the sample, which the device reads from the host, and another makes the window.
            _ => &[("download", 1), ("launch", 2), ("synchronize", 1)],
        };
        // From the third step on.
        for step in counts[1..].windows(2) {
            let mut steady = calls(&step[0], &step[1]);
            // Every call of `Gpu` makes the context current, which costs next to nothing.
            steady.remove("make_current");
            assert_eq!(steady, expected.iter().copied().collect(), "{name}");
        }
    }
    ran(&first, "driver: operations", OPERATIONS.len());
}

/// Runs an operation once for each call up to the last result, and makes that call fail. Later calls only release something. The
/// arguments of `check` are the name of the call and the result. Returns the number of calls.
fn fail_each(run: Run, is_auto: bool, mut check: impl FnMut(&'static str, Result<Vec<u8>, String>)) -> usize {
    let on = |gpu| Placement::on(vec![gpu], is_auto);
    let (driver, gpu) = second(None);
    let mut calls = 0;
    run(&on(gpu.unwrap()), &mut || calls = driver.fallible()).unwrap();
    for call in 0..calls {
        let (driver, gpu) = second(Some(call));
        let came = gpu.map_err(text).and_then(|gpu| run(&on(gpu), &mut || ()));
        check(driver.failed().unwrap(), came);
    }
    calls
}

#[test]
fn each_call_that_fails_is_told_by_its_name() {
    let Some(first) = gpu() else { return };
    let mut cases = 0;
    for (name, run) in OPERATIONS {
        let expected = run(&Placement::cpu("the oracle"), &mut || ()).unwrap();
        cases += fail_each(run, false, |failed, came| match came {
            Err(error) => {
                let says = format!("{}:0: {failed} of ", kind());
                assert!(
                    error.contains(&says) && error.ends_with("A_TEST (4711)"),
                    "{name}: {error}"
                );
            }
            // The context was made current to ask if memory is page-locked, or to release some: neither can fail.
            Ok(came) => assert!(failed == "make_current" && came == expected, "{name}: {failed}"),
        });
    }
    ran(&first, "driver: calls that fail", cases);
}

#[test]
fn the_cpu_does_the_work_of_a_call_that_fails() {
    let Some(first) = gpu() else { return };
    let mut cases = 0;
    for (name, run) in OPERATIONS {
        let expected = run(&Placement::cpu("the oracle"), &mut || ()).unwrap();
        cases += fail_each(run, true, |failed, came| match came {
            Ok(came) => assert!(came == expected, "{name}: {failed}"),
            // The device could not be opened.
            Err(error) => assert!(
                error.starts_with(&format!("{}:0: {failed} of ", kind())),
                "{name}: {error}"
            ),
        });
    }
    ran(&first, "driver: calls that the CPU makes up for", cases);
}

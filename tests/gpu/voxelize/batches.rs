//! Many clouds at once, on the host and on the device, whole and in parts.

use super::random::{CHANNEL_LISTS, SHAPES, cloud, on_cpu, random_config};
use crate::support::{Random, gpu, ran, random_cases};
use robocache::device::cuda::{Budget, DeviceBuf, Gpu};
use robocache::device::{Dtype, HostBuf};
use robocache::ops::voxelize::{
    Cloud, DeviceClouds, DeviceField, VoxelBatch, VoxelLayout, VoxelizeBatch, VoxelizeConfig, VoxelizeShards,
    Voxelizer as CpuVoxelizer,
};
use robocache::stream::Message;

/// What the CPU makes of each cloud by itself, behind one another.
fn expected(config: &VoxelizeConfig, messages: &[Message]) -> (Vec<String>, Vec<u8>, Vec<u8>) {
    let mut cpu = CpuVoxelizer::new(config).unwrap();
    let (mut counters, mut first, mut second) = (vec![], vec![], vec![]);
    for message in messages {
        let (counted, bytes) = on_cpu(&mut cpu, config.layout, &[(0, message)]);
        counters.push(counted);
        match config.layout {
            VoxelLayout::Coo => {
                let (coords, features) = bytes.split_at(cpu.voxels() * 12);
                first.extend(coords);
                second.extend(features);
            }
            _ => first.extend(bytes),
        }
    }
    (counters, first, second)
}

fn check(config: &VoxelizeConfig, messages: &[Message], out: &VoxelBatch) {
    let (counters, first, second) = expected(config, messages);
    let came: Vec<_> = out.counters.iter().map(|counters| format!("{counters:?}")).collect();
    assert_eq!(came, counters, "{config:?}");
    match config.layout {
        VoxelLayout::Coo => {
            assert!(bytemuck::cast_slice::<i32, u8>(&out.coords) == first, "{config:?}");
            assert!(bytemuck::cast_slice::<f32, u8>(&out.features) == second, "{config:?}");
            assert_eq!(out.rows.len(), messages.len() + 1);
            assert_eq!(out.rows.last(), Some(&(out.coords.len() / 3)));
            let rows = out.rows.windows(2).map(|rows| rows[1] - rows[0]);
            assert!(rows.zip(messages).all(|(rows, message)| rows <= message.rows));
        }
        _ => assert!(out.cells.bytes() == first, "{config:?}"),
    }
}

fn messages(random: &mut Random, size: f64, clouds: usize) -> Vec<Message> {
    let sizes = random.of(&[[100, 100, 100], [0, 700, 1], [2000, 33, 256]]);
    let is_tensor = random.once_in(2);
    let each = |_| {
        let shape = random.of(&SHAPES);
        let n = random.of(&sizes);
        let cloud = cloud(random, shape, n, size);
        if is_tensor {
            cloud.to_tensor()
        } else {
            cloud.with_type("t", Dtype::Int16).to_struct()
        }
    };
    (0..clouds).map(each).collect()
}

#[test]
fn a_batch_is_each_of_its_clouds() {
    let Some(gpu) = gpu() else { return };
    let (cases, mut random) = (random_cases(20), Random(2));
    let mut out = VoxelBatch::default();
    for _ in 0..cases {
        let (config, size) = random_config(&mut random);
        let mut batch = VoxelizeBatch::new(&config, &gpu, None).unwrap();
        for clouds in [random.of(&[1, 2, 7]), 3, 1] {
            let messages = messages(&mut random, size, clouds);
            let clouds: Vec<_> = messages.iter().map(|m| Cloud::from_message(m).unwrap()).collect();
            batch.run(&clouds, &mut out).unwrap();
            check(&config, &messages, &out);
        }
    }
    ran(&gpu, "voxelize: batches", cases * 3);
}

#[test]
fn clouds_of_several_forms_are_one_batch() {
    let Some(gpu) = gpu() else { return };
    let mut random = Random(3);
    let config = super::support::config(-4.0, 0.25, [32, 32, 32], CHANNEL_LISTS[6]);
    let clouds: Vec<_> = (0..6).map(|_| cloud(&mut random, SHAPES[0], 300, 8.0)).collect();
    let messages: Vec<_> = clouds
        .into_iter()
        .enumerate()
        .map(|(i, cloud)| match i {
            0 | 1 => cloud.to_tensor(),
            2 => cloud.with_type("i", Dtype::Int64).to_struct(),
            _ => cloud.to_struct(),
        })
        .collect();
    let clouds: Vec<_> = messages.iter().map(|m| Cloud::from_message(m).unwrap()).collect();
    let mut out = VoxelBatch::default();
    VoxelizeBatch::new(&config, &gpu, None)
        .unwrap()
        .run(&clouds, &mut out)
        .unwrap();
    check(&config, &messages, &out);
    ran(&gpu, "voxelize: several forms", 1);
}

#[test]
fn a_batch_past_its_memory_is_made_in_parts() {
    let Some(gpu) = gpu() else { return };
    let mut random = Random(4);
    let mut config = super::support::config(-4.0, 0.125, [64, 64, 64], CHANNEL_LISTS[1]);
    for layout in [VoxelLayout::Coo, VoxelLayout::Dense, VoxelLayout::Bits] {
        config.layout = layout;
        if layout == VoxelLayout::Bits {
            config.channels = vec!["occupancy".parse().unwrap()];
        }
        let messages: Vec<_> = (0..9)
            .map(|_| cloud(&mut random, SHAPES[2], 500, 8.0).to_tensor())
            .collect();
        let clouds: Vec<_> = messages.iter().map(|m| Cloud::from_message(m).unwrap()).collect();
        let mut out = VoxelBatch::default();
        let limit = if layout == VoxelLayout::Bits { 250_000 } else { 600_000 };
        let mut batch = VoxelizeBatch::new(&config, &gpu, Some(limit)).unwrap();
        for _ in 0..2 {
            batch.run(&clouds, &mut out).unwrap();
            check(&config, &messages, &out);
            assert!(batch.chunk() < 9, "{layout}: {} clouds at once", batch.chunk());
            assert!(batch.used_bytes() <= limit);
        }
        let mut too_small = VoxelizeBatch::new(&config, &gpu, Some(20_000)).unwrap();
        assert!(too_small.run(&clouds, &mut out).unwrap_err().is_memory());
    }
    ran(&gpu, "voxelize: batches in parts", 6);
}

#[test]
fn several_devices_give_what_one_gives() {
    let Some(gpu) = gpu() else { return };
    // With one device alone, two streams of it.
    let count = robocache::device::cuda::device_count().unwrap();
    let gpus: Vec<_> = (0..count.clamp(2, 8)).map(|i| Gpu::open(i % count).unwrap()).collect();
    let mut random = Random(6);
    let mut cases = 0;
    for _ in 0..8 {
        let (config, size) = random_config(&mut random);
        let mut shards = VoxelizeShards::new(&config, &gpus, None).unwrap();
        let mut out = VoxelBatch::default();
        for clouds in [0, 1, 5, 16] {
            let messages = messages(&mut random, size, clouds);
            let clouds: Vec<_> = messages.iter().map(|m| Cloud::from_message(m).unwrap()).collect();
            shards.run(&clouds, &mut out).unwrap();
            check(&config, &messages, &out);
            cases += 1;
        }
    }
    ran(&gpu, &format!("voxelize: batches over {} devices", gpus.len()), cases);
}

/// Everything in a device buffer from a byte on.
fn fetch(buffer: &DeviceBuf, at: usize, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    // SAFETY: the stream is synchronized before the memory is read.
    unsafe { buffer.download(at, &mut out) }.unwrap();
    buffer.gpu().synchronize().unwrap();
    out
}

#[test]
fn clouds_on_the_device_stay_there() {
    let Some(gpu) = gpu() else { return };
    let (cases, mut random) = (random_cases(20), Random(7));
    for _ in 0..cases {
        let (mut config, size) = random_config(&mut random);
        config.inputs.truncate(1);
        // With room for two outputs of one cloud, but of three clouds for one output only; and with room for all.
        let cells: usize = config.shape.iter().product();
        let is_occupancy = config.layout == VoxelLayout::Dense && config.channels.len() == 1;
        let limit =
            (is_occupancy && cells > 20_000 && random.once_in(2)).then_some(9 * cells * config.dtype.size() - 1);
        let mut batch = VoxelizeBatch::new(&config, &gpu, limit).unwrap();
        // Grids follow one another: what one leaves must not show in the next.
        for _ in 0..4 {
            let (clouds, points) = (random.of(&[1, 1, 3]), random.of(&[1000, 64, 0, 333]));
            let messages: Vec<_> = (0..clouds)
                .map(|_| {
                    let shape = random.of(&SHAPES);
                    cloud(&mut random, shape, points, size).to_tensor()
                })
                .collect();
            let mut host = HostBuf::default();
            let bytes: Vec<u8> = messages
                .iter()
                .flat_map(|m| m.columns()[0].values().bytes().to_vec())
                .collect();
            host.copy_from(&bytes);
            let mut buffer = DeviceBuf::new(&gpu, &Budget::new(None));
            buffer.reserve(bytes.len().max(1)).unwrap();
            // SAFETY: the memory is not page-locked.
            unsafe { buffer.upload(0, host.bytes()) }.unwrap();
            gpu.synchronize().unwrap();
            let fields: Vec<_> = ["x", "y", "z", "i", "t"]
                .into_iter()
                .enumerate()
                .map(|(i, name)| DeviceField {
                    name,
                    dtype: Dtype::Float32,
                    at: i * 4,
                    stride: 20,
                })
                .collect();
            let on_device = DeviceClouds::new(&buffer, clouds, points, &fields).unwrap();
            let grids = batch.run_device(&on_device).unwrap();
            let (counters, first, second) = expected(&config, &messages);
            for (i, counters) in counters.iter().enumerate() {
                assert_eq!(&format!("{:?}", grids.counters(i)), counters, "{config:?}");
            }
            match config.layout {
                VoxelLayout::Coo => {
                    assert_eq!(grids.first_row(clouds), first.len() / 12);
                    assert!(fetch(grids.coords(), 0, first.len()) == first, "{config:?}");
                    assert!(fetch(grids.features(), 0, second.len()) == second, "{config:?}");
                }
                VoxelLayout::Dense => assert!(fetch(grids.dense(), 0, first.len()) == first, "{config:?}"),
                VoxelLayout::Bits => {
                    let each = first.len() / clouds;
                    for (i, expected) in first.chunks(each).enumerate() {
                        let (buffer, at) = grids.bitmap(i);
                        assert!(fetch(buffer, at, each) == expected, "{config:?}");
                    }
                }
            }
        }
    }
    ran(&gpu, "voxelize: clouds on the device", cases * 4);
}

#[test]
fn fields_must_lie_within_their_buffer() {
    let Some(gpu) = gpu() else { return };
    let mut buffer = DeviceBuf::new(&gpu, &Budget::new(None));
    buffer.reserve(1024).unwrap();
    let field = |at, stride| DeviceField {
        name: "x",
        dtype: Dtype::Float32,
        at,
        stride,
    };
    let capacity = buffer.capacity();
    let points = capacity / 16;
    assert!(DeviceClouds::new(&buffer, 1, points, &[field(12, 16)]).is_ok());
    for wrong in [field(16, 16), field(2, 16), field(0, 18)] {
        assert!(DeviceClouds::new(&buffer, 1, points, &[wrong]).is_err(), "{wrong:?}");
    }
    assert!(DeviceClouds::new(&buffer, 2, points, &[field(0, 16)]).is_err());
    assert!(DeviceClouds::new(&buffer, 65_536, 0, &[]).is_err());
    ran(&gpu, "voxelize: fields of device clouds", 6);
}

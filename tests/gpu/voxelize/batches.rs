//! Many clouds at once, on the host and on the device, whole and in parts.

use super::random::{CHANNEL_LISTS, SHAPES, cloud, counters_text, on_cpu, random_config};
use crate::support::{Random, gpu, ran, random_cases};
use robocache::device::Dtype;
use robocache::ops::voxelize::gpu::{VoxelBatch, VoxelizeBatch};
use robocache::ops::voxelize::{CpuVoxelizer, VoxelLayout, VoxelizeConfig};
use robocache::stream::{HostCloud, Message};

/// Voxelizes each cloud by itself on the CPU: the counters, and the outputs of all clouds, concatenated.
pub fn expected(config: &VoxelizeConfig, messages: &[Message]) -> (Vec<String>, Vec<u8>, Vec<u8>) {
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
    let fields = out.unusable.len() / messages.len().max(1);
    let came = out.counters.iter().zip(&out.saturated).enumerate();
    let came: Vec<_> = came
        .map(|(i, (counters, saturated))| counters_text(*counters, &out.unusable[i * fields..][..fields], *saturated))
        .collect();
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
    let sizes = random.pick(&[[100, 100, 100], [0, 700, 1], [2000, 33, 256]]);
    let is_tensor = random.once_in(2);
    let each = |_| {
        let shape = random.pick(&SHAPES);
        let n = random.pick(&sizes);
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
        for clouds in [random.pick(&[1, 2, 7]), 3, 1] {
            let messages = messages(&mut random, size, clouds);
            let clouds: Vec<_> = messages.iter().map(|m| HostCloud::from_message(m).unwrap()).collect();
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
    let clouds: Vec<_> = messages.iter().map(|m| HostCloud::from_message(m).unwrap()).collect();
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
        let clouds: Vec<_> = messages.iter().map(|m| HostCloud::from_message(m).unwrap()).collect();
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

//! Clouds that are on the device, and grids that stay there.

use super::batches::expected;
use super::random::{SHAPES, Shape, cloud, counters_text, random_config};
use super::support::{TestCloud, config};
use crate::support::{Random, gpu, kind, ran, random_cases};
use robocache::device::gpu::{Budget, DeviceBuf, DeviceFault, Gpu, device_count};
use robocache::device::{Device, Dtype};
use robocache::ops::voxelize::gpu::{DeviceClouds, DeviceField, GpuVoxelizer, VoxelizeBatch, VoxelizeError};
use robocache::ops::voxelize::{VoxelLayout, VoxelizeConfig};
use robocache::stream::{HostCloud, Layout, Message, PointCloud, PointCloudError};

/// Fetches `bytes` bytes of a device buffer from the byte `at` on.
fn fetch(buffer: &DeviceBuf, at: usize, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    // SAFETY: the stream is synchronized before the memory is read.
    unsafe { buffer.download(at, &mut out) }.unwrap();
    buffer.gpu().synchronize().unwrap();
    out
}

/// Makes grids of float32 tensors of the same form on the device, and compares all outputs with the CPU's.
fn check(gpu: &Gpu, batch: &mut VoxelizeBatch, config: &VoxelizeConfig, messages: &[Message], names: &[&str]) {
    let bytes: Vec<u8> = messages
        .iter()
        .flat_map(|m| m.columns()[0].values().bytes().to_vec())
        .collect();
    let mut buffer = DeviceBuf::new(gpu, &Budget::new(None));
    buffer.reserve(bytes.len().max(1)).unwrap();
    // SAFETY: the memory is not page-locked.
    unsafe { buffer.upload(0, &bytes) }.unwrap();
    gpu.synchronize().unwrap();
    let field = |(i, name): (usize, &&'static str)| DeviceField {
        name,
        dtype: Dtype::Float32,
        at: i * 4,
        stride: names.len() * 4,
    };
    let names: Vec<&'static str> = ["x", "y", "z", "i", "t"][..names.len()].to_vec();
    let fields: Vec<_> = names.iter().enumerate().map(field).collect();
    let (clouds, points) = (messages.len(), bytes.len() / 4 / names.len() / messages.len());
    let on_device = DeviceClouds::new(&buffer, clouds, points, &fields).unwrap();
    let grids = batch.run_device(&on_device).unwrap();
    let (counters, first, second) = expected(config, messages);
    for (i, counters) in counters.iter().enumerate() {
        let came = counters_text(grids.counters(i), grids.unusable(i), grids.saturated(i));
        assert_eq!(&came, counters, "{config:?}");
    }
    match config.layout {
        VoxelLayout::Coo => {
            assert_eq!(grids.first_row(clouds), first.len() / 12);
            assert!(fetch(grids.coords(), 0, first.len()) == first, "{config:?}");
            assert!(fetch(grids.features(), 0, second.len()) == second, "{config:?}");
        }
        VoxelLayout::Dense => assert!(fetch(grids.dense(), 0, first.len()) == first, "{config:?}"),
        VoxelLayout::Bits => {
            for (i, expected) in first.chunks(first.len() / clouds).enumerate() {
                let (buffer, at) = grids.bitmap(i);
                assert!(fetch(buffer, at, expected.len()) == expected, "{config:?}");
            }
        }
    }
}

/// Memory limit in bytes that leaves room for one dense output of `clouds` clouds, but not for two.
fn room_for_one_output(config: &VoxelizeConfig, clouds: usize) -> usize {
    3 * clouds * config.shape.iter().product::<usize>() * config.dtype.size() - 1
}

#[test]
fn clouds_on_the_device_stay_there() {
    let Some(gpu) = gpu() else { return };
    let (cases, mut random) = (random_cases(40), Random(7));
    for _ in 0..cases {
        let (mut config, size) = random_config(&mut random);
        config.inputs.truncate(1);
        let cells: usize = config.shape.iter().product();
        let is_occupancy = config.layout == VoxelLayout::Dense && config.channels.len() == 1;
        let is_limited = is_occupancy && cells > 20_000 && random.once_in(2);
        let limit = is_limited.then(|| room_for_one_output(&config, 3));
        let mut batch = VoxelizeBatch::new(&config, &gpu, limit).unwrap();
        // Each number of columns has a kernel of its own.
        let only_xyz = config
            .channels
            .iter()
            .all(|c| c.field().is_none_or(|f| ["x", "y", "z"].contains(&f)));
        let columns = if only_xyz { random.pick(&[3, 4, 5]) } else { 5 };
        let names = &["x", "y", "z", "i", "t"][..columns];
        // Grids follow one another: what one leaves must not show in the next.
        for _ in 0..4 {
            let (clouds, points) = (random.pick(&[1, 1, 3]), random.pick(&[1000, 64, 0, 333]));
            let messages: Vec<_> = (0..clouds)
                .map(|_| {
                    let shape = random.pick(&SHAPES);
                    let mut cloud = cloud(&mut random, shape, points, size);
                    cloud.columns.truncate(columns);
                    cloud.to_tensor()
                })
                .collect();
            check(&gpu, &mut batch, &config, &messages, names);
        }
    }
    ran(&gpu, "voxelize: clouds on the device", cases * 4);
}

#[test]
fn a_word_of_the_bitmap_that_comes_and_goes_within_a_warp_is_whole() {
    let Some(gpu) = gpu() else { return };
    let mut random = Random(8);
    let mut config = config(0.0, 1.0, [32, 32, 32], &["occupancy"]);
    config.layout = VoxelLayout::Dense;
    for limit in [None, Some(room_for_one_output(&config, 1))] {
        let mut batch = VoxelizeBatch::new(&config, &gpu, limit).unwrap();
        for grid in 0..20 {
            // Every other point is in one column of 32 cells, which is a word of the bitmap; the others are anywhere.
            let column = f64::from(grid) + 0.5;
            let points: Vec<_> = (0..500)
                .map(|i| match i % 2 {
                    0 => [column, 0.5, random.below(32) as f64 + 0.5],
                    _ => [0, 1, 2].map(|_| random.below(32) as f64 + 0.5),
                })
                .collect();
            check(
                &gpu,
                &mut batch,
                &config,
                &[TestCloud::xyz(&points).to_tensor()],
                &["x", "y", "z"],
            );
        }
    }
    ran(&gpu, "voxelize: words that come and go", 40);
}

#[test]
fn batches_of_several_sizes_follow_one_another() {
    let Some(gpu) = gpu() else { return };
    let mut random = Random(10);
    for layout in [VoxelLayout::Dense, VoxelLayout::Bits, VoxelLayout::Coo] {
        // Bitmaps of 3 clouds and more are cleared before they are used.
        let mut config = config(-4.0, 0.03125, [256, 256, 192], &["occupancy"]);
        config.layout = layout;
        let mut batch = VoxelizeBatch::new(&config, &gpu, None).unwrap();
        for clouds in [1, 3, 2, 3, 3, 1, 1] {
            let points = random.pick(&[1500, 100, 700]);
            let messages: Vec<_> = (0..clouds)
                .map(|_| {
                    let shape = random.pick(&[Shape::Surface, Shape::Zigzag]);
                    let mut cloud = cloud(&mut random, shape, points, 8.0);
                    cloud.columns.truncate(4);
                    cloud.to_tensor()
                })
                .collect();
            check(&gpu, &mut batch, &config, &messages, &["x", "y", "z", "i"]);
        }
    }
    ran(&gpu, "voxelize: batches of several sizes", 21);
}

#[test]
fn one_grid_is_made_of_points_wherever_they_are() {
    let Some(gpu) = gpu() else { return };
    let points = [1.5f32, 2.5, 0.5, 3.0, 1.5, 2.5, 0.5, 5.0, 9.5, 0.5, 0.5, 1.0];
    let mut on_device = Message::default();
    let budget = Budget::new(None);
    let (columns, header) = on_device
        .lay_out_on_device(&Layout::flat(Dtype::Float32, points.len()), &gpu, &budget)
        .unwrap();
    header.fields.set(["x", "y", "z", "i"]);
    header.shape.set([3, 4]);
    // SAFETY: the memory is not page-locked.
    unsafe { columns[0].memory.upload(0, bytemuck::cast_slice(&points)) }.unwrap();
    gpu.synchronize().unwrap();
    let mut on_host = Message::default();
    on_host.fetch(&on_device).unwrap();
    assert_eq!(
        HostCloud::from_message(&on_device).err(),
        Some(PointCloudError::OnDevice)
    );

    let config = config(0.0, 1.0, [4, 4, 4], &["count", "mean_i", "max_x"]);
    let mut voxelizer = GpuVoxelizer::new(&config, &gpu, None).unwrap();
    let grids = [&on_host, &on_device].map(|message| {
        let cloud = PointCloud::from_message(message).unwrap();
        voxelizer.begin().unwrap();
        // SAFETY: the message is left alone until the grid is finished.
        unsafe { voxelizer.add(0, &cloud) }.unwrap();
        let counters = voxelizer.finish().unwrap();
        let (mut coords, mut features) = (vec![0; voxelizer.voxels() * 3], vec![0.0; voxelizer.voxels() * 3]);
        voxelizer.write_coo(&mut coords, &mut features).unwrap();
        (counters, coords, features)
    });
    assert_eq!(grids[0], grids[1]);
    assert_eq!(
        (grids[0].1.as_slice(), grids[0].2.as_slice()),
        (&[1, 2, 0][..], &[2.0, 4.0, 1.5][..])
    );
    ran(&gpu, "voxelize: one cloud on the device", 1);
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

#[test]
fn points_of_another_device_are_refused() {
    let Some(gpu) = gpu() else { return };
    if device_count(kind()).unwrap() < 2 {
        return;
    }
    let other = Gpu::open(kind(), 1).unwrap();
    let mut buffer = DeviceBuf::new(&other, &Budget::new(None));
    buffer.reserve(1200).unwrap();
    let fields = ["x", "y", "z"].map(|name| DeviceField {
        name,
        dtype: Dtype::Float32,
        at: 0,
        stride: 12,
    });
    let clouds = DeviceClouds::new(&buffer, 1, 100, &fields).unwrap();
    let mut batch = VoxelizeBatch::new(&config(0.0, 1.0, [4, 4, 4], &["count"]), &gpu, None).unwrap();
    let Err(error) = batch.run_device(&clouds) else {
        panic!("it was taken")
    };
    assert_eq!(
        error,
        VoxelizeError::Gpu(DeviceFault::WrongDevice {
            expected: Device::Gpu(kind(), 0),
            came: Device::Gpu(kind(), 1)
        })
    );
    ran(&gpu, "voxelize: another device", 1);
}

//! Random clouds on a device, with one voxelizer for many grids, compared with the CPU.

use super::support::{TestCloud, config, coo, voxelizer};
use crate::support::{Random, gpu, ran, random_cases};
use robocache::device::Dtype;
use robocache::device::gpu::{Budget, DeviceBuf};
use robocache::ops::voxelize::gpu::GpuVoxelizer;
use robocache::ops::voxelize::{
    Channel, CpuVoxelizer, Extrinsic, VoxelCounters, VoxelInput, VoxelLayout, VoxelizeConfig,
};
use robocache::stream::Message;

/// Arrangement of a cloud's points.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    Uniform,
    Clustered,
    Surface,
    Outside,
    Same,
    Zigzag,
}

pub const SHAPES: [Shape; 6] = [
    Shape::Uniform,
    Shape::Clustered,
    Shape::Surface,
    Shape::Outside,
    Shape::Same,
    Shape::Zigzag,
];

/// Draws `n` points in and around a grid of `size` metres about 0, with fields `i` and `t`.
pub fn cloud(random: &mut Random, shape: Shape, n: usize, size: f64) -> TestCloud {
    let centre = [random.signed(), random.signed(), random.signed()].map(|v| v * size / 3.0);
    // One value in `odd_in` is odd: often few values are, at times half of them, or none.
    let odd_in = random.pick(&[50, 50, 2, usize::MAX]);
    let point = |i: usize| {
        let [a, b, c] = [random.signed(), random.signed(), random.signed()];
        let half = size / 2.0;
        let [x, y, z] = match shape {
            Shape::Uniform => [a * half * 1.05, b * half * 1.05, c * half * 1.05],
            Shape::Clustered => [centre[0] + a * a * a, centre[1] + b * b * b, centre[2] + c * c * c],
            Shape::Surface => [
                a * half,
                b * half,
                (a * 3.0).sin() * (b * 2.0).cos() * half / 2.0 + c * 0.01,
            ],
            Shape::Outside => [a * half + size * 2.0, b * half, c * half],
            Shape::Same => centre,
            // A column of cells, which every third point leaves: words of the bitmap that come and go within a warp.
            Shape::Zigzag => {
                let turn = f64::from(u32::from(i.is_multiple_of(3)));
                [centre[0] + turn * 0.5, centre[1], (i % 97) as f64 / 97.0 * size - half]
            }
        };
        let odd = [f64::NAN, f64::INFINITY, -1e30, 262_145.0, 1e8, -3e11, -0.0, 0.0];
        let value = |random: &mut Random| match random.once_in(odd_in) {
            true => random.pick(&odd),
            false => random.signed() * 300.0,
        };
        let x = if random.once_in(200) { random.pick(&odd) } else { x };
        [x, y, z, value(random), value(random)]
    };
    let points: Vec<_> = (0..n).map(point).collect();
    TestCloud::new(["x", "y", "z", "i", "t"], &points)
}

pub const CHANNEL_LISTS: [&[&str]; 7] = [
    &["occupancy"],
    &["count", "mean_x", "mean_y", "mean_z"],
    &["mean_x", "mean_y", "mean_z", "mean_i"],
    &["count"],
    &["max_z", "min_z", "occupancy"],
    &["mean_z", "max_i", "min_t"],
    &[
        "occupancy",
        "count",
        "mean_y",
        "mean_t",
        "max_x",
        "min_x",
        "max_t",
        "min_i",
        "mean_i",
    ],
];

/// Returns the bytes of a grid's output. The results of the device's voxelizer need `.unwrap()`, those of the CPU's do not.
macro_rules! written {
    ($voxelizer:expr, $layout:expr $(, $unwrap:ident)?) => {{
        if $layout == VoxelLayout::Coo {
            let voxels = $voxelizer.voxels();
            let (mut coords, mut features) = (vec![0; voxels * 3], vec![0.0; voxels * $voxelizer.channels().len()]);
            $voxelizer.write_coo(&mut coords, &mut features)$(.$unwrap())?;
            let coords: &[u8] = bytemuck::cast_slice(&coords);
            [coords, bytemuck::cast_slice::<f32, u8>(&features)].concat()
        } else {
            let column = &$voxelizer.layout().columns[0];
            let mut out = vec![0xffu8; $voxelizer.layout().rows * column.dtype.size()];
            match ($layout, column.dtype) {
                (VoxelLayout::Bits, _) => $voxelizer.write_bits(&mut out),
                (_, Dtype::Float16) => $voxelizer.write_dense::<half::f16>(bytemuck::cast_slice_mut(&mut out)),
                (_, Dtype::BFloat16) => $voxelizer.write_dense::<half::bf16>(bytemuck::cast_slice_mut(&mut out)),
                _ => $voxelizer.write_dense::<f32>(bytemuck::cast_slice_mut(&mut out)),
            }$(.$unwrap())?;
            out
        }
    }};
}

/// Voxelizes clouds on the CPU: the counters as text, and the bytes of the output.
pub fn on_cpu(voxelizer: &mut CpuVoxelizer, layout: VoxelLayout, clouds: &[(usize, &Message)]) -> (String, Vec<u8>) {
    let counters = voxelizer.gather(clouds.iter().copied(), |_, error| panic!("{error}"));
    let out = written!(voxelizer, layout);
    (
        counters_text(counters, voxelizer.unusable(), voxelizer.saturated()),
        out,
    )
}

/// Formats all counters.
pub fn counters_text(counters: VoxelCounters, unusable: &[u64], saturated: u64) -> String {
    format!("{counters:?}, unusable {unusable:?}, saturated {saturated}")
}

fn on_device(voxelizer: &mut GpuVoxelizer, layout: VoxelLayout, clouds: &[(usize, &Message)]) -> (String, Vec<u8>) {
    let refused = |_, error| panic!("{error}");
    let counters = voxelizer.gather(clouds.iter().copied(), refused).unwrap();
    let out = written!(voxelizer, layout, unwrap);
    let saturated = voxelizer.saturated();
    let counters = counters_text(counters, voxelizer.unusable().unwrap(), saturated);
    // Bytes that the buffers had before must not show.
    let [mut first, mut second] = [(); 2].map(|()| {
        let mut buffer = DeviceBuf::new(voxelizer.gpu(), &Budget::new(None));
        buffer.reserve(out.len()).unwrap();
        // SAFETY: the memory is not page-locked.
        unsafe { buffer.upload(0, &vec![0xa5; out.len()]) }.unwrap();
        buffer
    });
    let mut copy = vec![0; out.len()];
    let (from_first, from_second) = match layout {
        VoxelLayout::Coo => copy.split_at_mut(voxelizer.voxels() * 3 * size_of::<i32>()),
        VoxelLayout::Dense | VoxelLayout::Bits => copy.split_at_mut(out.len()),
    };
    match layout {
        VoxelLayout::Coo => voxelizer.write_coo_on_device(&mut first, &mut second),
        VoxelLayout::Dense | VoxelLayout::Bits => voxelizer.write_on_device(&mut first),
    }
    .unwrap();
    assert_eq!(voxelizer.saturated(), saturated);
    first.fetch(0, from_first).unwrap();
    second.fetch(0, from_second).unwrap();
    assert!(copy == out, "{layout} on the device");
    (counters, out)
}

/// Draws a grid of some size and layout with two inputs, the second with an extrinsic. Returns it with its size, m.
pub fn random_config(random: &mut Random) -> (VoxelizeConfig, f64) {
    let shape = random.pick(&[
        [64, 64, 64],
        [33, 17, 40],
        [128, 128, 16],
        [5, 1, 300],
        [16, 16, 16],
        [1, 1, 1],
    ]);
    let voxel = random.pick(&[0.25, 0.1, 1.0]);
    let size = f64::from(voxel) * *shape.iter().max().unwrap() as f64;
    let mut config = config(-(size as f32) / 2.0, voxel, shape, random.pick(&CHANNEL_LISTS));
    if random.below(8) == 0 {
        config.channels = Channel::all(["x", "y", "z", "i", "t"]).collect();
    }
    config.layout = random.pick(&[VoxelLayout::Coo, VoxelLayout::Dense, VoxelLayout::Bits]);
    match config.layout {
        VoxelLayout::Bits => config.channels = vec!["occupancy".parse().unwrap()],
        VoxelLayout::Dense => config.dtype = random.pick(&[Dtype::Float32, Dtype::Float16, Dtype::BFloat16]),
        VoxelLayout::Coo => config.max_voxels = random.pick(&[None, None, Some(1), Some(100), Some(1000)]),
    }
    config.inputs.push(VoxelInput {
        input: "rear".into(),
        extrinsic: Some(Extrinsic {
            translation_m: [0.3, -0.1, 0.5],
            rotation_xyzw: [0.1, -0.02, 0.7, 0.7],
        }),
        ..VoxelInput::default()
    });
    (config, size)
}

#[test]
fn random_clouds_give_the_bits_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let cases = random_cases(60);
    let mut random = Random(1);
    let mut done = 0;
    while done < cases {
        let (config, size) = random_config(&mut random);
        let mut cuda = GpuVoxelizer::new(&config, &gpu, None).unwrap();
        let mut cpu = CpuVoxelizer::new(&config).unwrap();
        let only_xyz = config
            .channels
            .iter()
            .all(|c| c.field().is_none_or(|f| ["x", "y", "z"].contains(&f)));
        for _ in 0..5 {
            let clouds: Vec<_> = (0..random.pick(&[1, 1, 2, 3, 0]))
                .map(|_| {
                    let n = random.pick(&[0, 1, 31, 257, 1000, 4099]);
                    let shape = random.pick(&SHAPES);
                    let cloud = cloud(&mut random, shape, n, size);
                    match random.below(3) {
                        0 if only_xyz => cloud.first_columns(random.pick(&[3, 4])).to_tensor(),
                        0 => cloud.to_tensor(),
                        1 => cloud.with_type("i", Dtype::UInt16).to_struct(),
                        _ => cloud
                            .with_type("x", Dtype::Float64)
                            .with_type("z", Dtype::Float16)
                            .to_struct(),
                    }
                })
                .collect();
            let clouds: Vec<_> = clouds.iter().map(|message| (random.below(2), message)).collect();
            let expected = on_cpu(&mut cpu, config.layout, &clouds);
            let points: usize = clouds.iter().map(|(_, message)| message.rows).sum();
            for _ in 0..2 {
                let came = on_device(&mut cuda, config.layout, &clouds);
                assert_eq!(came.0, expected.0, "{config:?}");
                assert!(
                    came.1 == expected.1,
                    "{points} rows in {} clouds with {config:?}",
                    clouds.len()
                );
            }
            done += 1;
        }
    }
    ran(&gpu, "voxelize: random clouds", done);
}

#[test]
fn what_is_no_cloud_of_the_grid_leaves_it_as_it_was() {
    let Some(gpu) = gpu() else { return };
    let config = config(0.0, 1.0, [4, 4, 4], &["count", "mean_i"]);
    let good = TestCloud::new(["x", "y", "z", "i"], &[[0.5, 0.5, 0.5, 2.0]]);
    let (wide, message) = (good.clone().with_type("i", Dtype::Int32).to_struct(), good.to_struct());
    let none = TestCloud::xyz(&[[0.5; 3]]).to_struct();
    let mut cuda = GpuVoxelizer::new(&config, &gpu, None).unwrap();
    let mut refused = Vec::new();
    let counters = cuda.gather([(0, &wide), (0, &message), (0, &none)], |_, error| {
        refused.push(error.to_string())
    });
    assert_eq!(counters.unwrap().points_kept, 1);
    assert_eq!(refused.len(), 2, "{refused:?}");
    let counters = cuda.gather([(0, &message), (0, &wide), (0, &none)], |_, error| {
        refused.push(error.to_string())
    });
    assert_eq!(counters.unwrap().points_kept, 1);
    assert_eq!(refused.len(), 4, "{refused:?}");
    assert_eq!(coo(&mut voxelizer(&config), &[(0, &message)]).values(), [[1.0, 2.0]]);
    ran(&gpu, "voxelize: refused clouds", 2);
}

#[test]
fn a_device_without_room_is_an_error_and_the_next_grid_starts_anew() {
    let Some(gpu) = gpu() else { return };
    let config = config(-4.0, 0.125, [64, 64, 64], &["count", "mean_x"]);
    let mut random = Random(5);
    let small = cloud(&mut random, Shape::Uniform, 100, 8.0).to_tensor();
    let large = cloud(&mut random, Shape::Uniform, 60_000, 8.0).to_tensor();
    let mut cuda = GpuVoxelizer::new(&config, &gpu, Some(1_200_000)).unwrap();
    let expected = on_cpu(
        &mut CpuVoxelizer::new(&config).unwrap(),
        VoxelLayout::Coo,
        &[(0, &small)],
    );
    for _ in 0..3 {
        assert!(on_device(&mut cuda, VoxelLayout::Coo, &[(0, &small)]) == expected);
        let made = cuda.gather([(0, &large)], |_, error| panic!("{error}"));
        assert!(made.unwrap_err().is_memory());
        assert!(cuda.used_bytes() <= 1_200_000);
    }
    ran(&gpu, "voxelize: no room", 3);
}

#[test]
fn large_grids_follow_one_another() {
    let Some(gpu) = gpu() else { return };
    let mut random = Random(9);
    let mut cases = 0;
    // Bitmaps of 5 MB are cleared before they are used, those of 34 MB where they were touched.
    for shape in [[512, 512, 160], [1024, 1024, 257]] {
        for layout in [VoxelLayout::Coo, VoxelLayout::Bits] {
            let mut config = config(-8.0, 0.03125, shape, &["count", "mean_z"]);
            config.layout = layout;
            if layout == VoxelLayout::Bits {
                config.channels = vec!["occupancy".parse().unwrap()];
            }
            let mut cuda = GpuVoxelizer::new(&config, &gpu, None).unwrap();
            let mut cpu = CpuVoxelizer::new(&config).unwrap();
            for n in [3000, 2500, 0, 10] {
                let messages =
                    [Shape::Uniform, Shape::Zigzag].map(|shape| cloud(&mut random, shape, n, 16.0).to_tensor());
                let clouds: Vec<_> = messages.iter().map(|message| (0, message)).collect();
                assert!(
                    on_device(&mut cuda, layout, &clouds) == on_cpu(&mut cpu, layout, &clouds),
                    "{n} {config:?}"
                );
                cases += 1;
            }
        }
    }
    ran(&gpu, "voxelize: large grids", cases);
}

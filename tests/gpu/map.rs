//! Volumes on a device have the CPU's bytes, for random cameras, images, windows and configurations.

use crate::support::{Random, gpu, kind, ran, random_cases, say};
use robocache::device::gpu::{Budget, Gpu, Kind};
use robocache::geometry::RigidTransform;
use robocache::ops::map::gpu::GpuTsdf;
use robocache::ops::map::{
    DepthFrame, DepthImage, DepthRange, DistanceAlong, FrameWeight, Pinhole, Shape, Tsdf, TsdfConfig,
};

/// Opens the first device; `None` if there is none, or its kind has no kernels of maps.
fn cuda() -> Option<Gpu> {
    if kind() == Kind::Cuda {
        return gpu();
    }
    say(&format!("gpu: skipped maps, which {} has no kernels of", kind()));
    None
}

/// Images of a random frame: depths in mm, a NaN or 0 in some pixels, and colours.
struct Images {
    camera: Pinhole,
    pose: RigidTransform<f64>,
    raw: Vec<u16>,
    depths: Vec<f32>,
    rgb: Vec<[u8; 3]>,
    range: DepthRange,
}

fn images(random: &mut Random, shape: Shape, voxel_size_m: f64) -> Images {
    let (width, height) = (1 + random.below(80), 1 + random.below(60));
    let focal = random.log_uniform(5.0, 200.0) as f32;
    let camera = Pinhole {
        width,
        height,
        focal_px: [focal, random.pick(&[focal, -focal])],
        principal_px: [
            random.uniform(-0.2, 1.2) as f32 * width as f32,
            random.uniform(-0.2, 1.2) as f32 * height as f32,
        ],
    };
    let size = shape.axes().map(|cells| cells as f64 * voxel_size_m);
    let position = size.map(|size| random.uniform(-0.7, 1.7) * size);
    let rotation = [0; 4].map(|_| random.uniform(-1.0, 1.0));
    let surface = random.uniform(0.05, 1.5) * size.iter().sum::<f64>();
    let raw: Vec<u16> = (0..camera.pixels())
        .map(|_| match random.below(12) {
            0 => 0,
            1 => u16::MAX,
            _ => (surface * random.uniform(0.9, 1.1) * 1000.0) as u16,
        })
        .collect();
    let depths = raw
        .iter()
        .map(|&raw| if raw == 0 { f32::NAN } else { f32::from(raw) * 0.001 })
        .collect();
    let rgb = raw.iter().map(|_| [0; 3].map(|_| random.below(256) as u8)).collect();
    Images {
        camera,
        pose: RigidTransform::new(rotation, position),
        raw,
        depths,
        rgb,
        range: DepthRange {
            min_m: random.pick(&[0.0, 0.1]),
            max_m: random.pick(&[1.0, 5.0, 100.0]),
            min_cell_m: random.pick(&[0.001, 0.05]),
        },
    }
}

#[test]
fn signed_distances_have_the_bytes_of_the_cpu() {
    let Some(gpu) = cuda() else { return };
    let (cases, mut random) = (random_cases(40), Random(11));
    let mut seen = 0;
    for case in 0..cases {
        let voxel_size_m = random.log_uniform(0.005, 0.2);
        let shape = Shape::new([1 + random.below(20), 1 + random.below(30), 1 + random.below(90)]).unwrap();
        let config = TsdfConfig {
            truncation_m: (voxel_size_m * random.uniform(0.5, 6.0)) as f32,
            distance: random.pick(&[DistanceAlong::Axis, DistanceAlong::Ray]),
            weight: random.pick(&[FrameWeight::Constant, FrameWeight::InverseSquare]),
            max_weight: random.pick(&[1, 2, 5, 64, 128]),
        };
        let with_color = random.chance(0.4);
        let mut cpu = Tsdf::new(config, shape, voxel_size_m, with_color).unwrap();
        let budget = Budget::new(None);
        let mut device = GpuTsdf::new(config, shape, voxel_size_m, with_color, &gpu, &budget).unwrap();
        for _ in 0..1 + random.below(4) {
            if random.chance(0.5) {
                let corner = cpu.window().corner().map(|cell| cell + random.below(25) as i64 - 12);
                assert_eq!(device.move_to(corner).unwrap(), cpu.move_to(corner), "case {case}");
            }
            let images: Vec<Images> = (0..1 + random.below(6))
                .map(|_| images(&mut random, shape, voxel_size_m))
                .collect();
            let frames: Vec<DepthFrame<'_>> = images
                .iter()
                .map(|images| DepthFrame {
                    camera: images.camera,
                    pose: images.pose,
                    depth: match random.chance(0.5) {
                        true => DepthImage::UInt16(&images.raw, 0.001),
                        false => DepthImage::Float32(&images.depths),
                    },
                    range: images.range,
                    rgb: random.chance(0.7).then_some(&images.rgb),
                })
                .collect();
            cpu.integrate(&frames);
            device.integrate(&frames).unwrap();
        }
        let state = device.fetch().unwrap();
        let different = state.iter().zip(cpu.state()).position(|(device, cpu)| device != cpu);
        assert_eq!(different, None, "case {case}: {config:?}, {shape:?}, {voxel_size_m}");
        if with_color {
            assert_eq!(device.fetch_color().unwrap(), cpu.color(), "case {case}");
        }
        seen += state.iter().filter(|state| **state > 0xffff).count();
    }
    assert!(seen > 100 * cases, "{seen} cells were seen in {cases} cases");
    ran(&gpu, "map: signed distances", cases);
}

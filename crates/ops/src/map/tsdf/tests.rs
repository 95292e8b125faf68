//! Tests of signed distances: an oracle that computes one cell at a time, scenes whose distances are known, and
//! recorded depth images.

use super::*;
use crate::map::camera::Pinhole;
use crate::map::frame::{DepthImage, DepthRange};
use robocache_geometry::RigidTransform;

/// Depth range of the test images.
const RANGE: DepthRange = DepthRange {
    min_m: 0.1,
    max_m: 5.0,
    min_cell_m: 0.05,
};

const SHAPE: Shape = Shape([20, 24, 70]);

fn config() -> TsdfConfig {
    TsdfConfig {
        truncation_m: 0.1,
        distance: DistanceAlong::Axis,
        weight: FrameWeight::Constant,
        max_weight: 64,
    }
}

fn camera() -> Pinhole {
    Pinhole {
        width: 64,
        height: 48,
        focal_px: [60.0, 55.0],
        principal_px: [31.5, 23.5],
    }
}

/// Returns the pose of a camera at `position` that looks along `forward`. The x axis of its image is horizontal.
fn looking(position: [f64; 3], forward: [f64; 3]) -> RigidTransform<f64> {
    let unit = |v: [f64; 3]| {
        let norm = (v[0] * v[0] + v[1] * v[1] + v[2] * v[2]).sqrt();
        v.map(|x| x / norm)
    };
    let cross = |a: [f64; 3], b: [f64; 3]| {
        [
            a[1] * b[2] - a[2] * b[1],
            a[2] * b[0] - a[0] * b[2],
            a[0] * b[1] - a[1] * b[0],
        ]
    };
    let z = unit(forward);
    let x = unit(cross(z, [0.0, 0.0, 1.0]));
    let y = cross(z, x);
    RigidTransform {
        rotation: std::array::from_fn(|i| [x[i], y[i], z[i]]),
        translation: position,
    }
}

struct Random(u64);

impl Random {
    /// Returns a number in 0..1.
    fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Computes the stored distance, weight and colour of one cell after all images.
fn oracle(volume: &Tsdf, frames: &[DepthFrame<'_>], [x, y, z]: [usize; 3]) -> (i64, i64, [i64; 4]) {
    let config = &volume.config;
    let (mut distance, mut total, mut color) = (0i64, 0i64, [0i64; 4]);
    for frame in frames {
        let camera = frame.camera;
        let transform: RigidTransform<f32> = frame.pose.inverse().rounded();
        let [px, py, pz] = transform.apply([volume.centres[0][x], volume.centres[1][y], volume.centres[2][z]]);
        let inverse = 1.0 / pz;
        let u = (camera.focal_px[0] * (px * inverse) + camera.principal_px[0] + 0.5).floor();
        let v = (camera.focal_px[1] * (py * inverse) + camera.principal_px[1] + 0.5).floor();
        let is_seen = pz > frame.range.min_cell_m
            && (0.0..camera.width as f32).contains(&u)
            && (0.0..camera.height as f32).contains(&v);
        if !is_seen {
            continue;
        }
        let pixel = v as usize * camera.width + u as usize;
        let depth = match frame.depth {
            DepthImage::UInt16(raw, _) if raw[pixel] == 0 || raw[pixel] == 65_535 => continue,
            DepthImage::UInt16(raw, unit) => f32::from(raw[pixel]) * unit,
            DepthImage::Float32(depths) => depths[pixel],
        };
        if !(depth >= frame.range.min_m && depth < frame.range.max_m) {
            continue;
        }
        let mut signed = depth - pz;
        if config.distance == DistanceAlong::Ray {
            let rx = (u - camera.principal_px[0]) / camera.focal_px[0];
            let ry = (v - camera.principal_px[1]) / camera.focal_px[1];
            signed *= ((1.0 + rx * rx) + ry * ry).sqrt();
        }
        if signed < -config.truncation_m {
            continue;
        }
        let (least, greatest) = (i64::from(config.max_weight), i64::from(config.max_weight) * 256);
        let weight = match config.weight {
            FrameWeight::Constant => 256,
            FrameWeight::InverseSquare => ((256.0 * inverse * inverse).round_ties_even() as i64).clamp(least, greatest),
        };
        let measured = (signed.min(config.truncation_m) * (32_767.0 / config.truncation_m)).round_ties_even() as i64;
        let (sum, all) = (distance * total + measured * weight, total + weight);
        // Half away from zero.
        distance = sum.signum() * ((2 * sum.abs() + all) / (2 * all));
        total = all.min(greatest);
        if let Some(rgb) = frame.rgb
            && signed <= config.truncation_m
        {
            let all = color[3] + weight;
            for i in 0..3 {
                color[i] = (color[i] * color[3] + 256 * i64::from(rgb[pixel][i]) * weight + all / 2) / all;
            }
            color[3] = all.min(greatest);
        }
    }
    (distance, total, color)
}

#[test]
fn every_cell_is_what_one_cell_at_a_time_gives() {
    let mut random = Random(1);
    let mut seen = 0;
    for case in 0..60 {
        let config = TsdfConfig {
            distance: [DistanceAlong::Axis, DistanceAlong::Ray][case % 2],
            weight: [FrameWeight::Constant, FrameWeight::InverseSquare][case / 2 % 2],
            max_weight: [1, 5, 128][case % 3],
            ..config()
        };
        let camera = Pinhole {
            focal_px: [60.0, if case % 5 == 0 { -55.0 } else { 55.0 }],
            ..camera()
        };
        let with_color = case % 4 == 0;
        let images: Vec<_> = (0..4)
            .map(|_| {
                let raw: Vec<u16> = (0..camera.pixels())
                    .map(|_| [0, 65_535, (random.next() * 3000.0) as u16][(random.next() * 8.0).min(2.0) as usize])
                    .collect();
                let depths: Vec<f32> = raw
                    .iter()
                    .map(|&raw| if raw == 0 { f32::NAN } else { f32::from(raw) * 0.001 })
                    .collect();
                let rgb: Vec<[u8; 3]> = (0..camera.pixels())
                    .map(|_| [0; 3].map(|_: u8| (random.next() * 256.0) as u8))
                    .collect();
                (raw, depths, rgb)
            })
            .collect();
        let frames: Vec<DepthFrame<'_>> = images
            .iter()
            .enumerate()
            .map(|(i, (raw, depths, rgb))| DepthFrame {
                camera,
                pose: looking(
                    [0; 3].map(|_: u8| 3.0 * random.next() - 0.7),
                    [0; 3].map(|_: u8| random.next() - 0.5),
                ),
                depth: if i % 2 == 0 {
                    DepthImage::UInt16(raw, 0.001)
                } else {
                    DepthImage::Float32(depths)
                },
                range: RANGE,
                rgb: with_color.then_some(rgb),
            })
            .collect();
        let mut volume = Tsdf::new(config, SHAPE, 0.04, with_color).unwrap();
        // The slots of the cells begin anywhere.
        volume.move_to([case as i64 * 7, -13, case as i64 * 33 - 40]);
        volume.integrate(&frames[..1]);
        volume.integrate(&frames[1..]);
        let [_, ny, nz] = SHAPE.0;
        for index in 0..SHAPE.cells() {
            let cell = [index / nz / ny, index / nz % ny, index % nz];
            let slot = volume.window.slot(cell);
            let (distance, weight, color) = oracle(&volume, &frames, cell);
            let (found, found_weight) = unpack(volume.state[slot]);
            assert_eq!(
                (i64::from(found), i64::from(found_weight)),
                (distance, weight),
                "case {case}, cell {cell:?}"
            );
            if with_color {
                assert_eq!(volume.color[slot].map(i64::from), color, "case {case}, cell {cell:?}");
            }
            seen += usize::from(weight > 0);
        }
    }
    assert!(seen > 100_000, "only {seen} cells were seen");
}

/// Fuses an image of a plane at 1 m, seen head on, so that the distance of every cell is known.
#[test]
fn a_plane() {
    let depths = vec![1.0; camera().pixels()];
    let frame = DepthFrame {
        camera: camera(),
        pose: looking([-0.6, 0.03, 0.03], [1.0, 0.0, 0.0]),
        depth: DepthImage::Float32(&depths),
        range: RANGE,
        rgb: None,
    };
    let shape = Shape([40, 3, 3]);
    let mut volume = Tsdf::new(config(), shape, 0.02, false).unwrap();
    volume.integrate(&[frame; 3]);
    for x in 0..40 {
        let ahead = 1.0 - (0.6 + (x as f32 + 0.5) * 0.02);
        let distance = volume.distance_m([x, 1, 1]);
        match distance {
            Some(distance) => assert!((distance - ahead.min(0.1)).abs() < 1e-4, "{x}: {distance}, {ahead}"),
            None => assert!(ahead < -0.0999, "{x}: {ahead}"),
        }
    }
    assert_eq!(volume.weight([10, 1, 1]), 3.0);
    // The cell at 1.01 m is the first one behind the surface.
    let occupied = volume.occupied(1.0);
    assert!(!occupied.contains([19, 1, 1]) && occupied.contains([20, 1, 1]));
    assert_eq!(volume.occupied(3.5).count(), 0);
}

/// Moves a wall after the weight of a cell has reached its limit. The cell's distance must follow at the rate that
/// the limit gives.
#[test]
fn the_weight_is_limited() {
    let frame = |depth: &'static [f32; 1]| DepthFrame {
        camera: Pinhole {
            width: 1,
            height: 1,
            focal_px: [1.0; 2],
            principal_px: [0.0; 2],
        },
        pose: looking([-0.95, 0.05, 0.05], [1.0, 0.0, 0.0]),
        depth: DepthImage::Float32(depth),
        range: RANGE,
        rgb: None,
    };
    let config = TsdfConfig {
        max_weight: 4,
        truncation_m: 0.5,
        ..config()
    };
    let mut volume = Tsdf::new(config, Shape([1, 1, 1]), 0.1, false).unwrap();
    volume.integrate(&[frame(&[1.25]); 100]);
    assert_eq!(
        (volume.distance_m([0; 3]), volume.weight([0; 3])),
        (Some(0.25 + 0.5 / 32_767.0 / 2.0), 4.0)
    );
    let mut distance = 0.25;
    for _ in 0..6 {
        volume.integrate(&[frame(&[0.75])]);
        distance = (distance * 4.0 - 0.25) / 5.0;
        assert!((volume.distance_m([0; 3]).unwrap() - distance).abs() < 1e-4);
    }
}

#[test]
fn configurations_that_are_refused() {
    let problem = |config: TsdfConfig| Tsdf::new(config, Shape([1; 3]), 0.1, false).unwrap_err().to_string();
    let expected = "truncation_m: 0 (allowed: 0.000001 to 1000 m)";
    assert_eq!(
        problem(TsdfConfig {
            truncation_m: 0.0,
            ..config()
        }),
        expected
    );
    assert_eq!(
        problem(TsdfConfig {
            max_weight: 129,
            ..config()
        }),
        "max_weight: 129 (allowed: 1 to 128)"
    );
}

/// Moves a volume: it keeps the cells that stay in it, and forgets the cells that leave, even if they return.
#[test]
fn a_volume_that_moves() {
    let camera = camera();
    let depths: Vec<f32> = (0..camera.pixels()).map(|i| 0.5 + (i % 7) as f32 * 0.02).collect();
    // A pose in the world, of which each volume gets the part from its corner on.
    let from = |corner: [i64; 3]| {
        let position = std::array::from_fn(|axis| [0.1, 0.35, 0.4][axis] - corner[axis] as f64 * 0.0625);
        DepthFrame {
            camera,
            pose: looking(position, [1.0, 0.2, 0.1]),
            depth: DepthImage::Float32(&depths),
            range: RANGE,
            rgb: None,
        }
    };
    let shape = Shape([12, 12, 12]);
    let config = TsdfConfig {
        truncation_m: 0.25,
        ..config()
    };
    let new = || Tsdf::new(config, shape, 0.0625, true).unwrap();
    let (mut still, mut moving) = (new(), new());
    still.integrate(&[from([0; 3])]);
    moving.integrate(&[from([0; 3])]);
    assert!(still.occupied(1.0).count() > 50);
    assert_eq!(moving.move_to([3, -2, 5]), 12 * 12 * 12 - 9 * 10 * 7);
    let kept = |cell: [usize; 3]| moving.distance_m(cell);
    let mut seen = 0;
    for x in 0..12 {
        for y in 0..12 {
            for z in 0..12 {
                // A cell of the moved volume in the volume that stood still.
                let there = [x as i64 + 3, y as i64 - 2, z as i64 + 5];
                let stays = there.iter().all(|i| (0..12).contains(i));
                let expected = stays.then(|| still.distance_m(there.map(|i| i as usize))).flatten();
                assert_eq!(kept([x, y, z]), expected, "{x} {y} {z}");
                seen += usize::from(expected.is_some());
            }
        }
    }
    assert!(seen > 100, "{seen}");
    // Far away, and back: nothing is left.
    assert_eq!(moving.move_to([1_000_000_000_000, 0, 0]), 12 * 12 * 12);
    moving.move_to([0; 3]);
    assert!(moving.state().iter().all(|&state| state == 0));
    // What a volume sees does not depend on where in the grid it is.
    let mut far = new();
    far.move_to([-7, 1 << 40, 5]);
    far.integrate(&[from([0; 3])]);
    for x in 0..12 {
        for y in 0..12 {
            for z in 0..12 {
                assert_eq!(far.distance_m([x, y, z]), still.distance_m([x, y, z]));
            }
        }
    }
}

#[test]
fn a_cell_that_is_not_seen_is_forgotten() {
    let frame = DepthFrame {
        camera: Pinhole {
            width: 1,
            height: 1,
            focal_px: [1.0; 2],
            principal_px: [0.0; 2],
        },
        pose: looking([-0.95, 0.05, 0.05], [1.0, 0.0, 0.0]),
        depth: DepthImage::Float32(&[1.0]),
        range: RANGE,
        rgb: Some(&[[10, 20, 30]]),
    };
    let mut volume = Tsdf::new(config(), Shape([1; 3]), 0.1, true).unwrap();
    volume.integrate(&[frame]);
    let distance = volume.distance_m([0; 3]);
    assert_eq!((volume.weight([0; 3]), volume.rgb([0; 3])), (1.0, Some([10, 20, 30])));
    volume.fade(1 << 14, 1);
    assert_eq!((volume.weight([0; 3]), volume.distance_m([0; 3])), (0.75, distance));
    volume.fade(1 << 16, 1);
    assert_eq!(
        (volume.weight([0; 3]), volume.distance_m([0; 3]), volume.rgb([0; 3])),
        (0.0, None, None)
    );
}

#[test]
fn forgetting_many_times_at_once_is_one_time_after_the_other() {
    for factor in [0, 1, 9000, 1 << 16] {
        let one_by_one =
            |times: u64, weight: u32| (0..times).fold(weight, |weight, _| weight - (weight * factor).div_ceil(1 << 16));
        for times in [0, 1, 2, 3, 7, 100] {
            let left = faded_weights(factor, times);
            assert_eq!(left.len(), (128 << 8) + 1);
            for weight in [0, 1, 255, 256, 12_345, 128 << 8] {
                assert_eq!(u32::from(left[weight as usize]), one_by_one(times, weight));
            }
        }
    }
    assert!(faded_weights(1, u64::MAX).iter().all(|&left| left == 0));
}

//! Tests of occupancy: rays compared with an oracle that traces one ray at a time in exact fractions, and small cases
//! whose cells can be counted by hand.

use super::*;
use crate::map::frame::DepthRange;
use std::collections::{BTreeMap, BTreeSet};

/// Depth range of the test images.
const RANGE: DepthRange = DepthRange {
    min_m: 0.1,
    max_m: 5.0,
    min_cell_m: 0.3,
};

const SHAPE: Shape = Shape([8, 8, 70]);
const HIT: i16 = 868;
const MISS: i16 = -415;

fn config() -> OccupancyConfig {
    OccupancyConfig {
        hit: 0.7,
        miss: 0.4,
        clamp: [0.1192, 0.971],
        max_range_m: 100.0,
        band_m: 0.1,
        distance: DistanceAlong::Axis,
    }
}

fn volume() -> Occupancy {
    Occupancy::new(&config(), SHAPE, 1.0).unwrap()
}

/// Returns the stored log-odds of each cell that was observed.
fn known(volume: &Occupancy) -> BTreeMap<[usize; 3], i16> {
    let [_, ny, nz] = SHAPE.0;
    let cells = (0..SHAPE.cells()).map(|cell| [cell / nz / ny, cell / nz % ny, cell % nz]);
    cells
        .map(|cell| (cell, volume.state[volume.window.slot(cell)]))
        .filter(|(_, state)| *state != UNKNOWN)
        .collect()
}

fn scan(volume: &mut Occupancy, origin: [f32; 3], points: &[[f32; 3]]) -> RayCounters {
    volume.scan(&[RayBundle { origin, points }], &[])
}

fn states<const N: usize>(cells: [([usize; 3], i16); N]) -> BTreeMap<[usize; 3], i16> {
    cells.into()
}

#[test]
fn rays_along_an_axis() {
    let mut volume = volume();
    let counters = scan(&mut volume, [0.5; 3], &[[3.5, 0.5, 0.5]]);
    let expected = [
        ([0, 0, 0], MISS),
        ([1, 0, 0], MISS),
        ([2, 0, 0], MISS),
        ([3, 0, 0], HIT),
    ];
    assert_eq!(known(&volume), states(expected));
    assert_eq!((counters.points_in, counters.rays, counters.rays_clipped), (1, 1, 0));
    // Back again from a face, which belongs to the cell above it.
    scan(&mut volume, [3.0, 0.5, 0.5], &[[1.0, 0.5, 0.5]]);
    let expected = [
        ([0, 0, 0], MISS),
        ([1, 0, 0], MISS + HIT),
        ([2, 0, 0], 2 * MISS),
        ([3, 0, 0], HIT + MISS),
    ];
    assert_eq!(known(&volume), states(expected));
}

#[test]
fn a_diagonal_crosses_faces_at_the_same_time_in_the_order_of_the_axes() {
    let mut volume = volume();
    scan(&mut volume, [0.5; 3], &[[2.5; 3]]);
    let free = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1], [2, 1, 1], [2, 2, 1]];
    let mut expected: BTreeMap<_, _> = free.map(|cell| (cell, MISS)).into();
    expected.insert([2, 2, 2], HIT);
    assert_eq!(known(&volume), expected);
}

#[test]
fn a_hit_beats_the_rays_that_pass() {
    let mut volume = volume();
    volume.scan(
        &[
            RayBundle {
                origin: [0.5; 3],
                points: &[[2.5, 0.5, 0.5]],
            },
            RayBundle {
                origin: [0.5, 0.5, 0.2],
                points: &[[4.5, 0.5, 0.2]],
            },
        ],
        &[],
    );
    let expected = [
        ([0, 0, 0], MISS),
        ([1, 0, 0], MISS),
        ([2, 0, 0], HIT),
        ([3, 0, 0], MISS),
        ([4, 0, 0], HIT),
    ];
    assert_eq!(known(&volume), states(expected));
}

#[test]
fn a_point_in_the_cell_of_the_sensor_and_points_that_are_none() {
    let mut volume = volume();
    let counters = scan(
        &mut volume,
        [0.5; 3],
        &[
            [0.6, 0.5, 0.5],
            [f32::NAN, 0.0, 0.0],
            [0.0, f32::INFINITY, 0.0],
            [3e38, 0.0, 0.0],
        ],
    );
    assert_eq!(known(&volume), states([([0, 0, 0], HIT)]));
    assert_eq!(
        (counters.points_in, counters.dropped_nonfinite, counters.rays),
        (4, 3, 1)
    );
}

#[test]
fn a_long_ray_is_cut_and_its_end_is_free() {
    let mut volume = Occupancy::new(
        &OccupancyConfig {
            max_range_m: 3.0,
            ..config()
        },
        SHAPE,
        1.0,
    )
    .unwrap();
    scan(&mut volume, [0.5; 3], &[[0.5, 7.5, 0.5], [3.5, 0.5, 0.5]]);
    let free = [[0, 0, 0], [0, 1, 0], [0, 2, 0], [0, 3, 0], [1, 0, 0], [2, 0, 0]];
    let mut expected: BTreeMap<_, _> = free.map(|cell| (cell, MISS)).into();
    // A ray of exactly the greatest length is not cut.
    expected.insert([3, 0, 0], HIT);
    assert_eq!(known(&volume), expected);
}

#[test]
fn rays_that_begin_or_end_outside_are_counted() {
    let mut volume = volume();
    let counters = scan(&mut volume, [-1.5, 0.5, 0.5], &[[1.5, 0.5, 0.5], [-0.5, 0.5, 0.5]]);
    assert_eq!(known(&volume), states([([0, 0, 0], MISS), ([1, 0, 0], HIT)]));
    assert_eq!((counters.rays, counters.rays_clipped), (2, 2));
    // A ray of which only the hit is outside, and one beside the grid.
    let counters = scan(&mut volume, [0.5, 0.5, 0.5], &[[0.5, 8.5, 0.5]]);
    assert_eq!((counters.rays, counters.rays_clipped), (1, 1));
    let before = known(&volume);
    let counters = scan(&mut volume, [-1.5, 0.5, 0.5], &[[-3.5, 20.5, 0.5]]);
    assert_eq!((counters.rays, counters.rays_clipped), (1, 1));
    assert_eq!(known(&volume), before);
}

#[test]
fn probabilities_stay_within_their_limits() {
    let mut volume = volume();
    let cell = [2, 0, 0];
    assert_eq!(volume.probability(cell), None);
    for _ in 0..10 {
        scan(&mut volume, [0.5; 3], &[[2.5, 0.5, 0.5]]);
    }
    assert!((volume.probability(cell).unwrap() - 0.971).abs() < 1e-3);
    assert_eq!(volume.occupied().count(), 1);
    for _ in 0..20 {
        scan(&mut volume, [0.5; 3], &[[3.5, 0.5, 0.5]]);
    }
    assert!((volume.probability(cell).unwrap() - 0.1192).abs() < 1e-3);
    assert!(volume.occupied().contains([3, 0, 0]) && !volume.occupied().contains([2, 0, 0]));
}

/// Returns the cells that a scan hits, and the cells that its rays pass through. Traces one ray at a time, and compares
/// crossing times as exact fractions.
fn oracle(volume: &Occupancy, bundle: &RayBundle<'_>) -> (BTreeSet<[i64; 3]>, BTreeSet<[i64; 3]>) {
    let part = |value: f32| ((value * volume.inverse) * 256.0).floor() as i128;
    let from: [i128; 3] = bundle.origin.map(part);
    let (mut hits, mut passed, mut ends) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for point in bundle.points {
        let d: [f32; 3] = std::array::from_fn(|axis| point[axis] - bundle.origin[axis]);
        let length = ((d[0] * d[0] + d[1] * d[1]) + d[2] * d[2]).sqrt();
        let is_cut = length > volume.max_range;
        let to: [i128; 3] = std::array::from_fn(|axis| {
            let cut = bundle.origin[axis] + d[axis] * (volume.max_range / length);
            part(if is_cut { cut } else { point[axis] })
        });
        let last: [i128; 3] = to.map(|part| part.div_euclid(256));
        if !is_cut {
            hits.insert(last.map(|index| index as i64));
        }
        if !ends.insert(last) {
            continue;
        }
        let mut cell = from.map(|part| part.div_euclid(256));
        loop {
            if cell == last && !is_cut {
                break;
            }
            passed.insert(cell.map(|index| index as i64));
            if cell == last {
                break;
            }
            // The face that is crossed first: at `ahead / length` of the way, which is compared crosswise.
            let mut first: Option<(i128, i128, usize)> = None;
            for axis in (0..3).filter(|&axis| cell[axis] != last[axis]) {
                let is_up = to[axis] > from[axis];
                let face = if is_up {
                    (cell[axis] + 1) * 256
                } else {
                    cell[axis] * 256
                };
                let (ahead, length) = ((face - from[axis]).abs(), (to[axis] - from[axis]).abs());
                if first.is_none_or(|(a, l, _)| ahead * l < a * length) {
                    first = Some((ahead, length, axis));
                }
            }
            let (_, _, axis) = first.unwrap();
            cell[axis] += if to[axis] > from[axis] { 1 } else { -1 };
        }
    }
    (hits, passed)
}

#[test]
fn every_ray_passes_the_cells_of_exact_fractions() {
    let mut seed = 1u64;
    let mut random = move || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 40) as f32 / (1u64 << 24) as f32
    };
    for case in 0..300 {
        // On a lattice of eighths of a cell many faces are crossed at the same time.
        let lattice = |value: f32| {
            if case % 2 == 0 {
                (value * 8.0).round() / 8.0
            } else {
                value
            }
        };
        let place = |random: &mut dyn FnMut() -> f32, size: f32| {
            SHAPE
                .0
                .map(|n| lattice((random() * size + 0.5 - size / 2.0) * n as f32))
        };
        let max_range_m = if case % 3 == 0 { 10.0 } else { 1000.0 };
        let mut volume = Occupancy::new(
            &OccupancyConfig {
                max_range_m,
                ..config()
            },
            SHAPE,
            1.0,
        )
        .unwrap();
        let origin = place(&mut random, if case % 5 == 0 { 1.5 } else { 0.9 });
        let points: Vec<[f32; 3]> = (0..40).map(|_| place(&mut random, 1.4)).collect();
        let bundle = RayBundle {
            origin,
            points: &points,
        };
        // The slots of the cells begin anywhere.
        volume.move_to([case - 7, 3 * case, -case]);
        let counters = volume.scan(&[bundle], &[]);
        let (hits, passed) = oracle(&volume, &bundle);
        let in_grid = |cell: &[i64; 3]| (0..3).all(|axis| (0..SHAPE.0[axis] as i64).contains(&cell[axis]));
        let mut expected = BTreeMap::new();
        for cell in passed.union(&hits).filter(|cell| in_grid(cell)) {
            let state = if hits.contains(cell) { HIT } else { MISS };
            expected.insert(cell.map(|index| index as usize), state);
        }
        assert_eq!(known(&volume), expected, "case {case}");
        assert!(counters.rays <= 40 && counters.rays_clipped <= counters.rays);
        assert!(
            (counters.rays_clipped > 0) != passed.union(&hits).all(in_grid),
            "case {case}"
        );
    }
}

/// Scans a depth image of a wall at 1.1 m: cells in front of it are free, the cell on it is occupied, and cells behind
/// it stay unobserved.
#[test]
fn a_wall_in_a_depth_image() {
    let camera = crate::map::Pinhole {
        width: 8,
        height: 8,
        focal_px: [4.0; 2],
        principal_px: [3.5; 2],
    };
    let depths = [1.1; 64];
    let frame = DepthFrame {
        camera,
        pose: robocache_geometry::RigidTransform::new([0.0, 0.0, 0.0, 1.0], [0.1, 0.1, 0.0]),
        depth: crate::map::DepthImage::Float32(&depths),
        range: RANGE,
        rgb: None,
    };
    let mut volume = Occupancy::new(&config(), Shape([1, 1, 10]), 0.2).unwrap();
    volume.scan(&[], &[frame, frame]);
    let expected = [
        UNKNOWN, UNKNOWN, MISS, MISS, MISS, HIT, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN,
    ];
    assert_eq!(volume.state, expected, "cells at 0.1, 0.3, ... m");
}

#[test]
fn configurations_that_are_refused() {
    let problem = |config: OccupancyConfig| Occupancy::new(&config, SHAPE, 0.1).unwrap_err().to_string();
    let hit = "hit: 0.5 (allowed: 0.501 to 0.999999)";
    assert_eq!(problem(OccupancyConfig { hit: 0.5, ..config() }), hit);
    let miss = "miss: 0.5 (allowed: 0.000001 to 0.499)";
    assert_eq!(problem(OccupancyConfig { miss: 0.5, ..config() }), miss);
    let clamp = "clamp: [0, 1] (allowed: 0.000001 to 0.499, and 0.501 to 0.999999)";
    assert_eq!(
        problem(OccupancyConfig {
            clamp: [0.0, 1.0],
            ..config()
        }),
        clamp
    );
    let range = "max_range_m: 500 (allowed: above 0, up to 409.6 m, 4096 cells)";
    assert_eq!(
        problem(OccupancyConfig {
            max_range_m: 500.0,
            ..config()
        }),
        range
    );
    let size = Occupancy::new(&config(), SHAPE, -0.1).unwrap_err().to_string();
    assert_eq!(size, "voxel_size_m: -0.1 (allowed: 0.0001 to 1000 m)");
    let band_m = f32::NAN;
    assert_eq!(
        problem(OccupancyConfig { band_m, ..config() }),
        "band_m: NaN (allowed: 0.000001 to 1000 m)"
    );
}

#[test]
fn a_volume_that_moves_forgets_the_cells_that_leave() {
    let mut volume = volume();
    scan(&mut volume, [0.5; 3], &[[3.5, 0.5, 0.5]]);
    assert_eq!(volume.move_to([2, 0, -69]), (8 * 70 - 6) * 8);
    // The cells 2 and 3 of x are 0 and 1 now, and z = 0 is the last one.
    assert_eq!(known(&volume), states([([0, 0, 69], MISS), ([1, 0, 69], HIT)]));
    scan(&mut volume, [0.5, 0.5, 69.5], &[[2.5, 0.5, 69.5]]);
    let expected = [([0, 0, 69], 2 * MISS), ([1, 0, 69], HIT + MISS), ([2, 0, 69], HIT)];
    assert_eq!(known(&volume), states(expected));
    assert_eq!(volume.move_to([0; 3]), (8 * 70 - 6) * 8);
    assert_eq!(
        known(&volume),
        states([([2, 0, 0], 2 * MISS), ([3, 0, 0], HIT + MISS), ([4, 0, 0], HIT)])
    );
}

#[test]
fn log_odds_fade_to_0_and_stay_known() {
    let mut volume = volume();
    scan(&mut volume, [0.5; 3], &[[1.5, 0.5, 0.5]]);
    volume.fade(400);
    assert_eq!(
        known(&volume),
        states([([0, 0, 0], MISS + 400), ([1, 0, 0], HIT - 400)])
    );
    volume.fade(u32::MAX);
    assert_eq!(known(&volume), states([([0, 0, 0], 0), ([1, 0, 0], 0)]));
    assert_eq!(volume.probability([0; 3]), Some(0.5));
}

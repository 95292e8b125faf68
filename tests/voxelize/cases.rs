//! Small clouds whose grids a reader can check by hand.

use super::oracle;
use super::support::{TestCloud, bits, config, coo, dense, gather, run, voxelizer};
use robocache::device::{Dtype, Element};
use robocache::ops::voxelize::{CloudError, Extrinsic, VoxelCounters, VoxelInput, VoxelLayout, VoxelizeConfig};
use robocache::stream::{Message, Payload};

fn counters(kept: u64, nonfinite: u64, outside: u64, overflow: u64) -> VoxelCounters {
    VoxelCounters {
        points_in: kept + nonfinite + outside + overflow,
        points_kept: kept,
        dropped_nonfinite: nonfinite,
        dropped_outside: outside,
        dropped_overflow: overflow,
    }
}

/// Voxelizes points along x, in cells of 0.5 m that begin at x = -1 m. Returns the counters, and the x index of
/// each occupied cell.
fn along_x(values: &[f64]) -> (VoxelCounters, Vec<i32>) {
    let points: Vec<_> = values.iter().map(|x| [*x, 0.0, 0.0]).collect();
    let output = run(&config(-1.0, 0.5, [4, 4, 4], &["count"]), &TestCloud::xyz(&points));
    (output.counters, output.coords.iter().map(|c| c[0]).collect())
}

#[test]
fn a_cell_holds_its_lower_edge_and_not_its_upper() {
    assert_eq!(along_x(&[-1.0]), (counters(1, 0, 0, 0), vec![0]));
    assert_eq!(along_x(&[-0.5]).1, [1]);
    assert_eq!(along_x(&[-0.500_000_06]).1, [0]);
    assert_eq!(along_x(&[0.0]).1, [2]);
    assert_eq!(along_x(&[-0.0]).1, [2]);
    assert_eq!(along_x(&[0.5]).1, [3]);
    assert_eq!(along_x(&[0.999_999_9]).1, [3]);
    assert_eq!(along_x(&[1.0]), (counters(0, 0, 1, 0), vec![]));
    assert_eq!(along_x(&[-1.000_000_1]), (counters(0, 0, 1, 0), vec![]));
}

#[test]
fn what_is_not_finite_and_what_is_far_outside_are_told_apart() {
    let values = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1e38,
        -1e38,
        3.4e38,
        -3.4e38,
        1e10,
        4.3e9,
        -1e-3,
    ];
    assert_eq!(along_x(&values), (counters(1, 3, 6, 0), vec![1]));
    for axis in 0..3 {
        let mut point = [0.0; 3];
        point[axis] = f64::NAN;
        let output = run(&config(-1.0, 0.5, [4, 4, 4], &["count"]), &TestCloud::xyz(&[point]));
        assert_eq!(output.counters, counters(0, 1, 0, 0));
        point[axis] = 1.0;
        let output = run(&config(-1.0, 0.5, [4, 4, 4], &["count"]), &TestCloud::xyz(&[point]));
        assert_eq!(output.counters, counters(0, 0, 1, 0));
    }
}

#[test]
fn every_channel_of_two_cells() {
    let channels = [
        "occupancy",
        "count",
        "mean_x",
        "mean_z",
        "mean_i",
        "max_i",
        "min_i",
        "max_z",
        "min_x",
    ];
    let cloud = TestCloud::new(
        ["x", "y", "z", "i"],
        &[
            [1.75, 0.5, 0.5, -7.0],
            [0.25, 0.5, 0.25, 10.0],
            [0.75, 0.5, 0.75, 3.0],
            [0.5, 0.5, 0.5, -1.0],
        ],
    );
    let output = run(&config(0.0, 1.0, [2, 2, 2], &channels), &cloud);
    assert_eq!(output.counters, counters(4, 0, 0, 0));
    assert_eq!(output.coords, [[0, 0, 0], [1, 0, 0]]);
    assert_eq!(
        output.values(),
        [
            [1.0, 3.0, 0.5, 0.5, 4.0, 10.0, -1.0, 0.75, 0.25],
            [1.0, 1.0, 1.75, 0.5, -7.0, -7.0, -7.0, 0.5, 1.75]
        ]
    );
}

#[test]
fn cells_come_in_the_order_of_x_then_y_then_z() {
    let cloud = TestCloud::xyz(&[[1.5, 0.5, 0.5], [0.5, 0.5, 2.5], [0.5, 1.5, 0.5], [0.5, 0.5, 0.5]]);
    let config = config(0.0, 1.0, [2, 2, 3], &["occupancy"]);
    assert_eq!(
        run(&config, &cloud).coords,
        [[0, 0, 0], [0, 0, 2], [0, 1, 0], [1, 0, 0]]
    );
    let message = cloud.to_struct();
    // The points are in cells 0, 2, 3 and 6 of 12.
    assert_eq!(
        bits(&config, &[(0, &message)]),
        (counters(4, 0, 0, 0), vec![0b0100_1101, 0])
    );
    let mut expected = [0.0; 12];
    for cell in [0, 2, 3, 6] {
        expected[cell] = 1.0;
    }
    assert_eq!(dense(&config, &[(0, &message)]).1, expected);
}

fn with_extrinsics(mut config: VoxelizeConfig, extrinsics: &[Extrinsic]) -> VoxelizeConfig {
    config.inputs = extrinsics
        .iter()
        .enumerate()
        .map(|(i, extrinsic)| VoxelInput {
            input: format!("lidar_{i}"),
            extrinsic: Some(extrinsic.clone()),
            ..VoxelInput::default()
        })
        .collect();
    config
}

#[test]
fn each_input_has_its_extrinsic() {
    let half = std::f64::consts::FRAC_1_SQRT_2;
    let config = with_extrinsics(
        config(0.0, 1.0, [8, 8, 8], &["mean_x", "mean_y", "mean_z"]),
        &[
            // A quarter turn about z: x to y, y to -x.
            Extrinsic {
                translation_m: [4.0, 0.0, 1.0],
                rotation_xyzw: [0.0, 0.0, half, half],
            },
            Extrinsic {
                translation_m: [0.0, 0.0, -1.0],
                ..Extrinsic::default()
            },
        ],
    );
    let mut voxelizer = voxelizer(&config);
    let (a, b) = (
        TestCloud::xyz(&[[3.5, 1.5, 0.5]]),
        TestCloud::xyz(&[[7.5, 0.5, 1.5], [7.5, 0.5, 0.5]]),
    );
    let output = coo(&mut voxelizer, &[(0, &a.to_struct()), (1, &b.to_tensor())]);
    assert_eq!(output.counters, counters(2, 0, 1, 0));
    assert_eq!(output.coords, [[2, 3, 1], [7, 0, 0]]);
    assert_eq!(output.values(), [[2.5, 3.5, 1.5], [7.5, 0.5, 0.5]]);
}

#[test]
fn a_point_that_the_extrinsic_takes_past_float32_is_not_finite() {
    let far = Extrinsic {
        translation_m: [3e38, 0.0, 0.0],
        ..Extrinsic::default()
    };
    let config = with_extrinsics(config(0.0, 1.0, [2, 2, 2], &["count"]), &[far]);
    let cloud = TestCloud::xyz(&[[3e38, 0.0, 0.0], [0.0, f64::NAN, 0.0], [0.0, 0.0, 0.0]]);
    assert_eq!(run(&config, &cloud).counters, counters(0, 2, 1, 0));
}

#[test]
fn the_cells_past_max_voxels_are_cut_whatever_the_order_of_points() {
    let mut config = config(0.0, 1.0, [4, 1, 1], &["count", "mean_x", "max_x"]);
    config.max_voxels = Some(2);
    let at = |x: f64| [x, 0.5, 0.5];
    let cloud = TestCloud::xyz(&[at(3.5), at(2.5), at(1.5), at(3.25), at(0.5), at(9.0), at(1.25)]);
    let output = run(&config, &cloud);
    assert_eq!(output.counters, counters(3, 0, 1, 3));
    assert_eq!(output.coords, [[0, 0, 0], [1, 0, 0]]);
    assert_eq!(output.values(), [[1.0, 0.5, 0.5], [2.0, 1.375, 1.5]]);
    assert_eq!(run(&config, &cloud.select(&[6, 5, 4, 3, 2, 1, 0])), output);
    config.channels = vec!["occupancy".parse().unwrap()];
    assert_eq!(run(&config, &cloud).counters, counters(3, 0, 1, 3));
}

#[test]
fn an_empty_cloud_is_a_grid_without_voxels() {
    let all = ["occupancy", "count", "mean_x", "max_i", "mean_i"];
    let config = config(0.0, 1.0, [4, 4, 4], &all);
    let cloud = TestCloud::new(["x", "y", "z", "i"], &[]);
    for message in [cloud.to_struct(), cloud.to_tensor()] {
        let output = coo(&mut voxelizer(&config), &[(0, &message)]);
        assert_eq!(output.counters, VoxelCounters::default());
        assert!(output.coords.is_empty());
        assert!(dense(&config, &[(0, &message)]).1.iter().all(|v| v.to_bits() == 0));
        assert!(bits(&config, &[(0, &message)]).1.iter().all(|byte| *byte == 0));
    }
    assert_eq!(coo(&mut voxelizer(&config), &[]).counters, VoxelCounters::default());
}

#[test]
fn a_value_that_its_channels_cannot_take_leaves_its_point_where_it_is() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let cloud = TestCloud::new(
        ["x", "y", "z", "i", "t"],
        &[
            [0.25, 0.5, 0.5, nan, 3.0],
            [0.75, 0.5, 0.5, 6.0, 5.0],
            [0.5, 0.5, 0.5, -2.0, inf],
            [1.5, 0.5, 0.5, -inf, nan],
            [1.5, 0.5, 0.5, nan, 7.0],
            // Unusable values of a point outside the grid are not counted.
            [5.0, 0.5, 0.5, nan, nan],
            [nan, 0.5, 0.5, nan, nan],
        ],
    );
    let channels = ["max_t", "count", "mean_x", "mean_i", "max_i", "min_i", "occupancy"];
    let mut config = config(0.0, 1.0, [2, 1, 1], &channels);
    let output = run(&config, &cloud);
    assert_eq!(output.counters, counters(5, 1, 1, 0));
    // The channels name t before i.
    assert_eq!(output.unusable, [2, 3]);
    assert_eq!(output.coords, [[0, 0, 0], [1, 0, 0]]);
    let rows = [
        [5.0, 3.0, 0.5, 2.0, 6.0, -2.0, 1.0],
        [7.0, 2.0, 1.5, 0.0, 0.0, 0.0, 1.0],
    ];
    assert_eq!(output.values(), rows);
    assert_eq!(run(&config, &cloud.select(&[6, 4, 2, 0, 1, 3, 5])), output);
    let (dense, bits) = (
        dense(&config, &[(0, &cloud.to_tensor())]).1,
        bits(&config, &[(0, &cloud.to_struct())]).1,
    );
    let columns = (0..7).flat_map(|channel| rows.iter().map(move |row| row[channel]));
    assert_eq!(dense, columns.collect::<Vec<f32>>());
    assert_eq!(bits, [3]);
    // Unusable values of voxels past `max_voxels` are not counted.
    config.max_voxels = Some(1);
    let output = run(&config, &cloud);
    assert_eq!((output.counters, output.unusable), (counters(3, 1, 1, 2), vec![1, 1]));
}

#[test]
fn fields_have_their_bounds() {
    let of = |channels: &[&str], dtype, values: &[f64]| {
        let points: Vec<_> = values.iter().map(|v| [0.5, 0.5, 0.5, *v]).collect();
        let cloud = TestCloud::new(["x", "y", "z", "i"], &points).with_type("i", dtype);
        let output = run(&config(0.0, 1.0, [1, 1, 1], channels), &cloud);
        assert_eq!(output.counters, counters(values.len() as u64, 0, 0, 0));
        (output.unusable[0], output.values()[0].clone())
    };
    let (forty, sixty_two) = (2f64.powi(40), 2f64.powi(62));
    assert_eq!(
        of(&["mean_i"], Dtype::Float32, &[forty, forty * 1.01]),
        (1, vec![forty as f32])
    );
    assert_eq!(
        of(&["mean_i"], Dtype::Float64, &[-forty, 1e300]),
        (1, vec![-forty as f32])
    );
    assert_eq!(
        of(&["mean_i"], Dtype::UInt64, &[sixty_two, 1e19]),
        (1, vec![sixty_two as f32])
    );
    assert_eq!(of(&["mean_i"], Dtype::Int64, &[-sixty_two, sixty_two]), (0, vec![0.0]));
    // 2^29 and one and a half steps of 2^-22, the sum's step, is rounded to two steps: the tie goes to the even number.
    let (large, step) = (2f64.powi(29), 2f64.powi(-22));
    assert_eq!(
        of(&["mean_i"], Dtype::Float64, &[large + 1.5 * step, -large]),
        (0, vec![step as f32])
    );
    // Without a mean the bound is that of float32. With a mean, its bound holds for the other channels, too.
    assert_eq!(of(&["max_i"], Dtype::Float64, &[1e30, 1e300]), (1, vec![1e30]));
    assert_eq!(
        of(&["max_i", "mean_i"], Dtype::Float64, &[1e30, 3.0]),
        (1, vec![3.0, 3.0])
    );
}

#[test]
fn the_times_of_a_sweep_have_a_mean_in_every_type() {
    // A tenth of a second and the greatest uint32 as nanoseconds, and a time of today in seconds.
    for (times, expected) in [
        ([0.0, 1e8], 5e7),
        ([4.294e9, 4.29e9], 4.292e9),
        ([1.7e9, 1.7e9 + 256.0], 1.7e9 + 128.0),
    ] {
        let points = times.map(|t| [0.5, 0.5, 0.5, t]);
        let cloud = TestCloud::new(["x", "y", "z", "t"], &points);
        for dtype in [Dtype::Float32, Dtype::Float64, Dtype::UInt32, Dtype::Int64] {
            let output = run(
                &config(0.0, 1.0, [1, 1, 1], &["mean_t"]),
                &cloud.clone().with_type("t", dtype),
            );
            assert_eq!(output.unusable, [0]);
            assert_eq!(output.values(), [[expected as f32]], "{dtype}");
        }
    }
}

#[test]
fn a_type_that_cannot_hold_a_value_has_its_greatest() {
    let n = 70_000;
    let points: Vec<_> = (0..n)
        .map(|i| [0.5 + f64::from(i / 65_504), 0.5, 0.5, -3.4e38])
        .collect();
    let message = TestCloud::new(["x", "y", "z", "i"], &points).to_tensor();
    fn check<E: Element>(message: &Message, expected: &[f32], saturated: u64) {
        let grid = VoxelizeConfig {
            layout: VoxelLayout::Dense,
            dtype: E::DTYPE,
            ..config(0.0, 2.0, [1, 1, 1], &["count", "min_i"])
        };
        let (mut voxelizer, mut out) = (voxelizer(&grid), Message::default());
        let written = gather(&mut voxelizer, &[(0, message)], &mut out).saturated();
        assert_eq!(written, saturated, "{}", E::DTYPE);
        let out: Vec<_> = out.columns()[0]
            .data
            .as_slice::<E>()
            .iter()
            .map(|v| v.to_f32())
            .collect();
        assert_eq!(out, expected, "{}", E::DTYPE);
    }
    check::<f32>(&message, &[70_000.0, -3.4e38], 0);
    check::<half::f16>(&message, &[65_504.0, -65_504.0], 2);
    let greatest = half::bf16::MAX.to_f32();
    check::<half::bf16>(&message, &[half::bf16::from_f32(70_000.0).to_f32(), -greatest], 1);
}

/// Values that are less than half a unit in the last place past the greatest value of a type round to that value. From half a unit
/// on they become infinity.
#[test]
fn what_a_type_can_hold_ends_half_a_step_past_its_greatest() {
    fn check<E: Element>(greatest: f32, half_a_step_past: f32) {
        let [under, past] = [half_a_step_past.next_down(), half_a_step_past];
        let values = [greatest, under, past, -under, -past, f32::MAX];
        let points: Vec<_> = (0..)
            .zip(values)
            .map(|(i, value)| [f64::from(i) + 0.5, 0.5, 0.5, value.into()])
            .collect();
        let message = TestCloud::new(["x", "y", "z", "i"], &points).to_tensor();
        let grid = VoxelizeConfig {
            layout: VoxelLayout::Dense,
            dtype: E::DTYPE,
            ..config(0.0, 1.0, [values.len(), 1, 1], &["max_i"])
        };
        let (mut voxelizer, mut out) = (voxelizer(&grid), Message::default());
        let saturated = gather(&mut voxelizer, &[(0, &message)], &mut out).saturated();
        let written = out.columns()[0].data.as_slice::<E>().iter();
        let written: Vec<f32> = written.map(|value| value.to_f32()).collect();
        let expected = [greatest, greatest, greatest, -greatest, -greatest, greatest];
        assert_eq!((written, saturated), (expected.to_vec(), 3), "{}", E::DTYPE);
        assert!(E::DTYPE.holds(under) && !E::DTYPE.holds(past));
    }
    check::<half::f16>(65_504.0, 65_520.0);
    let greatest = half::bf16::MAX.to_f32();
    check::<half::bf16>(greatest, f32::from_bits(greatest.to_bits() + 0x8000));
}

#[test]
fn zeros_have_their_signs_in_order() {
    let cloud = TestCloud::new(["x", "y", "z", "i"], &[[0.5, 0.5, 0.5, 0.0], [0.5, 0.5, 0.5, -0.0]]);
    for cloud in [cloud.clone(), cloud.select(&[1, 0])] {
        let output = run(&config(0.0, 1.0, [1, 1, 1], &["max_i", "min_i"]), &cloud);
        assert_eq!(output.features, [[0.0f32.to_bits(), (-0.0f32).to_bits()]]);
    }
}

#[test]
fn a_mean_of_four_million_points_is_exact() {
    // The most points that a grid takes, each at the far corner: the greatest sum that is possible.
    let n = 1 << 22;
    let corner = [255.999_9f64; 3];
    let grid = config(-256.0, 1.0, [512, 512, 512], &["count", "mean_x", "mean_y"]);
    let message = TestCloud::xyz(&vec![corner; 1 << 16]).to_tensor();
    let one = TestCloud::xyz(&[corner]).to_tensor();
    let mut clouds = vec![(0, &message); n >> 16];
    clouds.push((0, &one));
    let (mut voxelizer, mut out) = (voxelizer(&grid), Message::default());
    let mut grid = voxelizer.gather(&clouds);
    assert_eq!(grid.refused(), [(0, CloudError::TooMany { points: n + 1 })]);
    assert_eq!(grid.counters(), counters(n as u64, 0, 0, 0));
    grid.write(&mut Payload::in_message(&mut out, grid.layout()));
    let features = out.columns()[1].data.as_slice::<f32>();
    assert_eq!(features, [n as f32, corner[0] as f32, corner[0] as f32]);
}

#[test]
fn the_last_cell_of_the_largest_grid_is_found() {
    let grid = config(0.0, 1.0, [2048, 2048, 1024], &["count"]);
    let cloud = TestCloud::xyz(&[[2047.5, 2047.5, 1023.5], [0.5, 0.5, 0.5]]);
    assert_eq!(run(&grid, &cloud).coords, [[0, 0, 0], [2047, 2047, 1023]]);
}

#[test]
fn dense_is_written_in_the_type_that_is_asked_for() {
    fn check<E: Element>(message: &Message, expected: &[f32]) {
        let grid = VoxelizeConfig {
            layout: VoxelLayout::Dense,
            dtype: E::DTYPE,
            ..config(0.0, 1.0, [2, 1, 1], &["count", "mean_x"])
        };
        let (mut voxelizer, mut out) = (voxelizer(&grid), Message::default());
        let clouds = [(0, message)];
        let grid = gather(&mut voxelizer, &clouds, &mut out);
        assert_eq!(grid.layout().columns[0].dtype, E::DTYPE);
        assert_eq!(grid.layout().rows, 4);
        let out: Vec<_> = out.columns()[0]
            .data
            .as_slice::<E>()
            .iter()
            .map(|v| v.to_f32())
            .collect();
        assert_eq!(out, expected, "{}", E::DTYPE);
    }
    // 1.2890625 needs 9 bits of mantissa: bfloat16 has 8, and the tie goes to even.
    let message = TestCloud::xyz(&[[1.2890625, 0.5, 0.5]]).to_tensor();
    check::<f32>(&message, &[0.0, 1.0, 0.0, 1.2890625]);
    check::<half::f16>(&message, &[0.0, 1.0, 0.0, 1.2890625]);
    check::<half::bf16>(&message, &[0.0, 1.0, 0.0, half::bf16::from_f32(1.2890625).to_f32()]);
}

#[test]
fn a_voxelizer_carries_nothing_over_from_grid_to_grid() {
    let mut grid = config(
        -2.0,
        0.25,
        [16, 16, 16],
        &["count", "mean_x", "mean_i", "max_i", "min_z"],
    );
    grid.max_voxels = Some(40);
    let mut reused = voxelizer(&grid);
    for round in 0..20u32 {
        let n = [0, 1, 700, 3000, 5][round as usize % 5];
        let value = |i: u32, k: u32| {
            f64::from(i.wrapping_mul(2_654_435_761u32.wrapping_mul(k + round + 1)) >> 16) / 16384.0 - 2.0
        };
        let points: Vec<_> = (0..n)
            .map(|i| [value(i, 1), value(i, 2), value(i, 3), value(i, 4)])
            .collect();
        // The type of a field holds within a grid only.
        let dtype = if round % 2 == 0 { Dtype::Float32 } else { Dtype::Int32 };
        let cloud = TestCloud::new(["x", "y", "z", "i"], &points).with_type("i", dtype);
        let message = cloud.to_struct();
        let output = coo(&mut reused, &[(0, &message)]);
        assert_eq!(output, coo(&mut voxelizer(&grid), &[(0, &message)]));
        assert_eq!(output, oracle::voxelize(&grid, &[(0, &cloud)]));
    }
}

//! Messages that are accepted as clouds, and the errors for messages that are not clouds.

use super::support::{TestCloud, config, coo, voxelizer};
use robocache::device::{Dtype, Placement};
use robocache::ops::voxelize::{VoxelInput, Voxelizer};
use robocache::stream::{Cells, HostCloud, Message, PointCloud};

fn tensor(fields: &[&str], shape: &[usize], length: usize) -> Message {
    let mut message = Message::default();
    message.rows = length;
    message.header.shape.set(shape.iter().map(|&n| n as i64));
    message.header.fields.set(fields);
    let values: Vec<f32> = (0..length).map(|i| i as f32).collect();
    message
        .add_column("", Dtype::Float32, Cells::One)
        .data
        .copy_from(bytemuck::cast_slice(&values));
    message
}

fn columns(columns: &[(&str, Cells, usize)], rows: usize) -> Message {
    let mut message = Message::default();
    message.rows = rows;
    for &(name, cells, length) in columns {
        message.add_column(name, Dtype::Float32, cells).data.resize(length * 4);
    }
    message
}

fn refused(message: &Message) -> String {
    match HostCloud::from_message(message) {
        Ok(_) => panic!("it is a cloud"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_tensor_is_a_cloud_with_or_without_its_shape() {
    let len = |message: &Message| HostCloud::from_message(message).unwrap().len();
    assert_eq!(len(&tensor(&["x", "y", "z", "i"], &[2, 4], 8)), 2);
    assert_eq!(len(&tensor(&["x", "y", "z", "i"], &[], 8)), 2);
    assert_eq!(len(&tensor(&[], &[3, 3], 9)), 3);
    assert_eq!(len(&tensor(&[], &[], 0)), 0);
    assert_eq!(len(&tensor(&["z", "i", "y", "x"], &[0, 4], 0)), 0);
    assert!(HostCloud::from_message(&tensor(&[], &[0, 3], 0)).unwrap().is_empty());
}

#[test]
fn a_cloud_has_the_stamp_and_the_frame_of_its_message() {
    let mut message = tensor(&["x", "y", "z", "i"], &[2, 4], 8);
    let facts = |message: &Message| {
        let cloud = PointCloud::from_message(message).unwrap();
        (cloud.len(), cloud.stamp_ns(), cloud.frame_id().map(str::to_owned))
    };
    assert_eq!(facts(&message), (2, None, None));
    message.header.timestamp_ns.set(7);
    message.header.frame_id.set("lidar");
    assert_eq!(facts(&message), (2, Some(7), Some("lidar".to_owned())));
    let field = PointCloud::from_message(&message).unwrap().field_type("i").unwrap();
    assert_eq!((field.dtype, field.sent), (Dtype::Float32, Dtype::Float32));
}

#[test]
fn the_time_of_a_cloud_is_its_stamp_without_the_latency() {
    const MS: i64 = 1_000_000;
    let mut config = config(0.0, 1.0, [9, 9, 9], &["occupancy"]);
    config.inputs.push(VoxelInput {
        input: "rear".into(),
        ..VoxelInput::default()
    });
    config.inputs[1].latency_ms = 80.0;
    let mut voxelizer = Voxelizer::new(&config, &Placement::cpu("a test")).unwrap();
    let mut grids = Vec::new();
    for (input, ms) in [(0, 100), (1, 180), (0, 200), (1, 285), (1, 300), (0, 240)] {
        let mut cloud = tensor(&["x", "y", "z"], &[1, 3], 3);
        cloud.header.timestamp_ns.set(ms * MS);
        let pushed = voxelizer.push(input, &cloud).unwrap();
        grids.extend(
            pushed
                .grid
                .map(|grid| (grid.stamp_ns() / MS, grid.inputs_age_ns().to_vec())),
        );
    }
    assert_eq!(
        grids,
        [(100, vec![0, 0]), (205, vec![5 * MS, 0]), (240, vec![0, 20 * MS])]
    );
    config.inputs[1].latency_ms = f64::NAN;
    let refused = config.validate().unwrap_err().to_string();
    assert!(
        refused.contains("inputs[1].latency_ms: NaN is not allowed (allowed: -1e12 to 1e12 ms)"),
        "{refused}"
    );
}

#[test]
fn fields_are_found_by_name_wherever_they_are() {
    let mut voxelizer = voxelizer(&config(0.0, 1.0, [9, 9, 9], &["mean_x", "mean_i"]));
    let output = coo(&mut voxelizer, &[(0, &tensor(&["i", "z", "y", "x"], &[2, 4], 8))]);
    assert_eq!(output.coords, [[3, 2, 1], [7, 6, 5]]);
    assert_eq!(output.values(), [[3.0, 0.0], [7.0, 4.0]]);
}

#[test]
fn a_tensor_that_is_no_cloud_is_refused_with_what_is_allowed() {
    assert_eq!(
        refused(&tensor(&[], &[2, 4], 8)),
        "a tensor without `fields`, of `shape` [2, 4] and 8 values (allowed: the `shape` [N, 3], x y z; otherwise the names of its \
         columns in `fields`)"
    );
    // Twelve numbers may be three points of four fields as well as four of three.
    assert_eq!(
        refused(&tensor(&[], &[], 12)),
        "a tensor without `fields`, of `shape` [] and 12 values (allowed: the `shape` [N, 3], x y z; otherwise the names of its \
         columns in `fields`)"
    );
    assert_eq!(
        refused(&tensor(&["x", "y", "z", "i"], &[], 10)),
        "10 values are not a whole number of points of 4 `fields` (allowed: 4 values a point)"
    );
    for shape in [&[3, 3][..], &[12], &[1, 3, 4], &[4, 3], &[i64::MAX as usize, 4]] {
        assert_eq!(
            refused(&tensor(&["x", "y", "z", "i"], shape, 12)),
            format!("`shape` {shape:?} for 12 values of 4 `fields` (allowed: [3, 4])")
        );
    }
    assert_eq!(
        refused(&tensor(&["x", "z", "i"], &[], 9)),
        "no field `y`: the cloud has x, z, i"
    );
    assert_eq!(
        refused(&tensor(&["x", "y", "z", "x"], &[], 8)),
        "field `x` occurs twice (allowed: once)"
    );
}

#[test]
fn a_struct_that_is_no_cloud_is_refused_with_what_is_allowed() {
    let one = Cells::One;
    assert_eq!(refused(&Message::default()), "no field `x`: the cloud has none");
    assert_eq!(
        refused(&columns(&[("x", one, 2), ("y", one, 2)], 2)),
        "no field `z`: the cloud has x, y"
    );
    assert_eq!(
        refused(&columns(&[("x", one, 2), ("y", one, 3), ("z", one, 2)], 2)),
        "column `y` has 3 values of float32 for 2 points (allowed: one number for each point)"
    );
    assert_eq!(
        refused(&columns(&[("x", one, 2), ("y", one, 2), ("z", Cells::Fixed(2), 4)], 2)),
        "column `z` has 4 values of float32 for 2 points (allowed: one number for each point)"
    );
    assert_eq!(
        refused(&columns(
            &[
                ("x", Cells::Ragged(5), 5),
                ("y", Cells::Fixed(5), 5),
                ("z", Cells::Ragged(4), 4)
            ],
            1
        )),
        "column `z` has 4 values of float32 for 5 points (allowed: one number for each point)"
    );
    // A list of one element is a number, and lists in the only row are a cloud.
    let lists = columns(&[("x", one, 2), ("y", Cells::Fixed(1), 2), ("z", one, 2)], 2);
    assert_eq!(HostCloud::from_message(&lists).unwrap().len(), 2);
    let lists = columns(
        &[
            ("x", Cells::Ragged(5), 5),
            ("y", Cells::Fixed(5), 5),
            ("z", Cells::Ragged(5), 5),
        ],
        1,
    );
    assert_eq!(HostCloud::from_message(&lists).unwrap().len(), 5);
    // Columns that no channel needs may have any form, and occur twice.
    let odd = columns(
        &[
            ("x", one, 2),
            ("y", one, 2),
            ("z", one, 2),
            ("rgb", Cells::Fixed(3), 6),
            ("rgb", one, 2),
        ],
        2,
    );
    assert_eq!(HostCloud::from_message(&odd).unwrap().len(), 2);
}

#[test]
fn a_cloud_without_a_field_of_a_channel_is_refused_and_the_grid_is_as_it_was() {
    let mut voxelizer = voxelizer(&config(0.0, 1.0, [9, 9, 9], &["count", "mean_i"]));
    let with = TestCloud::new(["x", "y", "z", "i"], &[[0.5, 0.5, 0.5, 1.0]]);
    let (good, without) = (with.to_struct(), TestCloud::xyz(&[[1.5, 1.5, 1.5]]).to_tensor());
    let wide = with.clone().with_type("i", Dtype::UInt32).to_struct();
    let narrow = with.clone().with_type("i", Dtype::UInt8).to_struct();
    let no_field = "no field `i`: the cloud has x, y, z";
    assert_eq!(voxelizer.check(&without).unwrap_err().to_string(), no_field);
    let clouds = [(0, &good), (0, &without), (0, &wide), (0, &narrow)];
    let grid = voxelizer.gather(&clouds);
    let refused: Vec<_> = grid.refused().iter().map(|(_, error)| error.to_string()).collect();
    assert_eq!(
        refused,
        [
            no_field,
            "field `i` is uint32 here, but an earlier cloud of the grid has it as a float or an 8- or 16-bit integer: \
             for mean_i, either all inputs must have it as a 32- or 64-bit integer, or none of them"
        ]
    );
    assert_eq!((grid.counters().points_in, grid.counters().points_kept), (2, 2));
    assert_eq!(grid.layout().rows, 1);
}

#[test]
fn every_type_and_form_of_the_same_numbers_is_the_same_cloud() {
    let points: Vec<_> = (0..3000u32)
        .map(|i| [i % 7, i % 5, i / 7 % 6, i % 90].map(f64::from))
        .collect();
    let cloud = TestCloud::new(["x", "y", "z", "i"], &points);
    let channels = [
        "count", "mean_x", "mean_y", "mean_z", "mean_i", "max_i", "min_i", "max_y",
    ];
    let mut voxelizer = voxelizer(&config(-0.5, 2.0, [3, 2, 3], &channels));
    let expected = coo(&mut voxelizer, &[(0, &cloud.to_struct())]);
    assert_eq!(expected.counters.dropped_outside, 943);
    for dtype in Dtype::ALL {
        let names = ["x", "y", "z", "i"];
        let typed = names
            .iter()
            .fold(cloud.clone(), |cloud, name| cloud.with_type(name, dtype));
        assert_eq!(
            coo(&mut voxelizer, &[(0, &typed.to_struct())]),
            expected,
            "struct of {dtype}"
        );
        assert_eq!(
            coo(&mut voxelizer, &[(0, &typed.to_tensor())]),
            expected,
            "tensor of {dtype}"
        );
    }
}

#[test]
fn sixty_four_bit_integers_are_rounded_once() {
    // 2^60 + 2^36 + 1 is over half way to the next float32, but not once it has been rounded to float64.
    let value = (1i64 << 60) + (1 << 36) + 1;
    let mut message = TestCloud::xyz(&[[0.5; 3]]).to_struct();
    message
        .add_column("i", Dtype::Int64, Cells::One)
        .data
        .copy_from(&value.to_le_bytes());
    let mut voxelizer = voxelizer(&config(0.0, 1.0, [1, 1, 1], &["max_i", "min_i"]));
    let output = coo(&mut voxelizer, &[(0, &message)]);
    assert_ne!(value as f32, value as f64 as f32);
    assert_eq!(output.values(), [[value as f32; 2]]);
}

#[test]
fn integers_with_nulls_go_with_integers() {
    let channels = ["count", "mean_t", "max_t", "min_t"];
    let mut voxelizer = voxelizer(&config(0.0, 1.0, [1, 1, 1], &channels));
    let cloud = |times: &[f64]| {
        let points: Vec<_> = times.iter().map(|t| [0.5, 0.5, 0.5, *t]).collect();
        TestCloud::new(["x", "y", "z", "t"], &points)
    };
    let whole = cloud(&[4.0e9, 2.0]).with_type("t", Dtype::UInt32).to_struct();
    // Integers with a null are read as these floats.
    let mut with_null = cloud(&[4.2e9, f64::NAN]).with_type("t", Dtype::Float64).to_struct();
    with_null.columns_mut()[3].integers = Some(Dtype::UInt32);
    let output = coo(&mut voxelizer, &[(0, &whole), (0, &with_null)]);
    assert_eq!((output.counters.points_kept, &output.unusable[..]), (4, &[1][..]));
    assert_eq!(output.values(), [[4.0, (8_200_000_002.0 / 3.0) as f32, 4.2e9, 2.0]]);
    let floats = cloud(&[1.0]).to_struct();
    assert_eq!(voxelizer.gather(&[(0, &with_null), (0, &floats)]).refused().len(), 1);
}

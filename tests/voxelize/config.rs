//! Configurations of `voxelize:` that are accepted, and those that are refused, with the reason.

use robocache::app::plugins::VoxelizePlugin;
use robocache::app::{App, Config};
use robocache::device::Dtype;
use robocache::ops::voxelize::{Channel, CpuVoxelizer, Extrinsic, VoxelInput, VoxelLayout, VoxelizeConfig};
use std::path::Path;

const GOOD: &str = "
origin_m: [-51.2, -51.2, -5.0]
voxel_size_m: [0.2, 0.2, 0.2]
shape: [512, 512, 40]
channels: [occupancy, count, mean_x, mean_intensity, max_return_type, min_z]
layout: coo
max_voxels: 200000
inputs:
  - { input: lidar, extrinsic: { translation_m: [0, 0, 1.8], rotation_xyzw: [0, 0, 0, 1] } }
  - { input: rear }
";

/// Replaces keys of the good configuration `GOOD`, or adds them, as the YAML `lines` say.
fn with(lines: &str) -> String {
    lines.lines().fold(GOOD.to_owned(), |text, line| {
        let key = line.split_inclusive(':').next().unwrap();
        let mut skip = false;
        let old = text.lines().filter(|old| {
            skip = old.starts_with(key) || skip && old.starts_with(' ');
            !skip
        });
        old.chain([line]).flat_map(|line| [line, "\n"]).collect()
    })
}

fn parse(text: &str) -> Result<VoxelizeConfig, String> {
    // Reads as an app does, so that an error has its key.
    robocache::app::read_yaml(text)
}

#[test]
fn every_key_is_read() {
    let config = parse(&with("dtype: float32\nmax_wait_ms: 50\nreset_ms: 250.5")).unwrap();
    let names: Vec<_> = config.channels.iter().map(Channel::to_string).collect();
    assert_eq!(
        names,
        [
            "occupancy",
            "count",
            "mean_x",
            "mean_intensity",
            "max_return_type",
            "min_z"
        ]
    );
    let expected = VoxelizeConfig {
        origin_m: [-51.2, -51.2, -5.0],
        voxel_size_m: [0.2; 3],
        shape: [512, 512, 40],
        channels: vec![
            Channel::Occupancy,
            Channel::Count,
            Channel::Mean("x".into()),
            Channel::Mean("intensity".into()),
            Channel::Max("return_type".into()),
            Channel::Min("z".into()),
        ],
        layout: VoxelLayout::Coo,
        dtype: Dtype::Float32,
        max_voxels: Some(200_000),
        max_wait_ms: Some(50.0),
        reset_ms: 250.5,
        inputs: vec![
            VoxelInput {
                input: "lidar".into(),
                extrinsic: Some(Extrinsic {
                    translation_m: [0.0, 0.0, 1.8],
                    rotation_xyzw: [0.0, 0.0, 0.0, 1.0],
                }),
                ..VoxelInput::default()
            },
            VoxelInput {
                input: "rear".into(),
                ..VoxelInput::default()
            },
        ],
    };
    assert_eq!(config, expected);
    let least = parse(GOOD).unwrap();
    assert_eq!(
        (least.dtype, least.max_wait_ms, least.reset_ms),
        (Dtype::Float32, None, 1000.0)
    );
    assert!(CpuVoxelizer::new(&least).is_ok());
}

#[test]
fn what_is_not_of_the_language_is_refused_with_its_key_and_what_is_allowed() {
    let cases = [
        (
            "voxel_size: [1, 1, 1]",
            "unknown key `voxel_size`, did you mean `voxel_size_m`? (allowed: origin_m",
        ),
        ("origin_m: [0, 0]", "origin_m: it has 2 values (allowed: a list of 3)"),
        (
            "shape: [1, 2, -3]",
            "shape[2]: -3 is not allowed (allowed: a whole number, 0 or more)",
        ),
        (
            "shape: [1, 2, 2.5]",
            "shape[2]: 2.5 is not allowed (allowed: a whole number, 0 or more)",
        ),
        (
            "channels: [mean]",
            "channels[0]: `mean` is not a channel (allowed: occupancy, count, mean_F, max_F, min_F",
        ),
        ("channels: [count, mean_]", "channels[1]: `mean_` is not a channel"),
        (
            "layout: pillars",
            "layout: `pillars` is not supported yet (allowed: dense, bits, coo)",
        ),
        (
            "layout: tsdf",
            "layout: `tsdf` is not a layout of a grid; the section `map:` has it (allowed: dense, bits, coo)",
        ),
        (
            "layout: sparse",
            "layout: `sparse` is not a layout (allowed: dense, bits, coo)",
        ),
        (
            "dtype: int8",
            "dtype: `int8` can't be published (allowed: float32, float16, bfloat16)",
        ),
        (
            "inputs: [{ input: a, extrinsics: {} }]",
            "inputs[0].extrinsics: unknown key `extrinsics`, did you mean `extrinsic`?",
        ),
        (
            "inputs: [{ input: a, extrinsic: { rotation: [0] } }]",
            "inputs[0].extrinsic.rotation: unknown key `rotation`, did you mean `rotation_xyzw`?",
        ),
    ];
    for (line, expected) in cases {
        let error = parse(&with(line)).expect_err(line);
        assert!(error.contains(expected), "{line}: {error}");
    }
}

#[test]
fn keys_that_no_version_has_yet_are_refused_by_their_names() {
    for line in [
        "deskew: { input: imu }",
        "crop: [0, 1]",
        "accumulate: true",
        "accumulation: 5",
        "decay: 0.5",
    ] {
        let section = with(line).replace('\n', "\n  ");
        let config = Config::parse(Path::new("robot.yml"), &format!("voxelize:\n  {section}")).unwrap();
        let built = App::new()
            .with_config(config)
            .add_plugin(VoxelizePlugin::default())
            .build(|_| true);
        let Err(error) = built else { panic!("{line} was taken") };
        let key = line.split(':').next().unwrap();
        let expected = format!("robot.yml: voxelize: {key}: unknown key `{key}` (allowed: origin_m, voxel_size_m,");
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
}

#[test]
fn values_that_make_no_grid_are_refused_with_their_key_and_what_is_allowed() {
    let cases = [
        ("origin_m: [0, .nan, 0]", "origin_m: [0.0, NaN, 0.0] must be finite"),
        ("origin_m: [0, 1e39, 0]", "origin_m: [0.0, inf, 0.0] must be finite"),
        (
            "voxel_size_m: [1, 0, 1]",
            "voxel_size_m: [1.0, 0.0, 1.0] is not allowed (each must be from 1e-6 to 1e6 metres)",
        ),
        (
            "voxel_size_m: [1, 1, -0.1]",
            "voxel_size_m: [1.0, 1.0, -0.1] is not allowed",
        ),
        (
            "voxel_size_m: [.nan, 1, 1]",
            "voxel_size_m: [NaN, 1.0, 1.0] is not allowed",
        ),
        (
            "voxel_size_m: [.inf, 1, 1]",
            "voxel_size_m: [inf, 1.0, 1.0] is not allowed",
        ),
        (
            "shape: [4, 0, 4]",
            "shape: [4, 0, 4] is not allowed (each must be from 1 to 2^24 cells)",
        ),
        ("shape: [16777217, 1, 1]", "shape: [16777217, 1, 1] is not allowed"),
        (
            "shape: [16384, 16384, 4096]",
            "shape: [16384, 16384, 4096] is 1099511627776 cells (at most 2^32)",
        ),
        ("shape: [16777216, 16777216, 16777216]", "cells (at most 2^32)"),
        (
            "layout: dense\nmax_voxels: null\nshape: [1024, 1024, 512]",
            "shape: [1024, 1024, 512] with 6 channels is 3221225472 elements (at most 2^31 as `dense`)",
        ),
        ("channels: []", "channels: is empty (at least one of occupancy, count"),
        (
            "channels: [count, mean_x, count]",
            "channels[2]: `count` is listed twice",
        ),
        (
            "layout: bits\nmax_voxels: null\nchannels: [occupancy, count]",
            "channels: [occupancy, count] can't be written as `bits` (allowed: [occupancy])",
        ),
        (
            "dtype: float16",
            "dtype: `float16` is not allowed with layout `coo`, whose types are fixed (allowed: float32)",
        ),
        (
            "layout: dense",
            "max_voxels: has no effect in layout `dense` (allowed with: coo)",
        ),
        ("max_voxels: 0", "max_voxels: 0 is not allowed"),
        ("max_wait_ms: -1", "max_wait_ms: -1 is not allowed"),
        ("max_wait_ms: .nan", "max_wait_ms: NaN is not allowed"),
        ("reset_ms: .inf", "reset_ms: inf is not allowed"),
        ("inputs: []", "inputs: is empty"),
        ("inputs: [{ input: '' }]", "inputs[0].input: is empty"),
        (
            "inputs: [{ input: a }, { input: b }, { input: a }]",
            "inputs[2].input: `a` is listed twice",
        ),
        (
            "inputs: [{ input: a }, { input: b, extrinsic: { rotation_xyzw: [0, 0, 0, 0] } }]",
            "inputs[1].extrinsic.rotation_xyzw: [0.0, 0.0, 0.0, 0.0] has the norm 0",
        ),
        (
            "inputs: [{ input: a, extrinsic: { rotation_xyzw: [0, 0, .nan, 1] } }]",
            "inputs[0].extrinsic.rotation_xyzw: [0.0, 0.0, NaN, 1.0]",
        ),
        (
            "inputs: [{ input: a, extrinsic: { translation_m: [0, .inf, 1] } }]",
            "inputs[0].extrinsic.translation_m: [0.0, inf, 1.0] must be finite",
        ),
    ];
    for (lines, expected) in cases {
        let error = parse(&with(lines)).unwrap().validate().expect_err(lines).to_string();
        assert!(error.contains(expected), "{lines}: {error}");
    }
}

#[test]
fn the_largest_grids_are_allowed() {
    for lines in [
        "shape: [65536, 65536, 1]",
        "layout: bits\nchannels: [occupancy]\nmax_voxels: null\nshape: [16777216, 256, 1]",
        "layout: dense\nchannels: [count]\nmax_voxels: null\nshape: [2048, 1024, 1024]",
    ] {
        assert_eq!(parse(&with(lines)).unwrap().validate(), Ok(()), "{lines}");
    }
}

//! Recorded lidar sweeps; runs only if the folder `shared/data` is beside the repository.

use super::oracle;
use super::support::{Column, TestCloud, bits, config, coo, dense, voxelizer};
use robocache::device::Dtype;
use robocache::ops::voxelize::Extrinsic;
use std::path::PathBuf;

fn sweeps(folder: &str, record: usize, columns: &[(&str, Dtype, usize)]) -> Vec<TestCloud> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let found = ["../shared/data", "../../shared/data"]
        .map(|path| root.join(path).join(folder))
        .into_iter()
        .find(|path| path.is_dir());
    let Some(folder) = found else {
        eprintln!("skipped: ../shared/data is absent");
        return Vec::new();
    };
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "bin"));
    files.sort();
    let sweep = |path: PathBuf| {
        let bytes = std::fs::read(path).unwrap();
        let column = |&(name, dtype, offset): &(&str, Dtype, usize)| Column {
            name: name.to_owned(),
            dtype,
            values: bytes
                .chunks_exact(record)
                .map(|r| decode(dtype, &r[offset..]))
                .collect(),
        };
        TestCloud {
            columns: columns.iter().map(column).collect(),
        }
    };
    files.into_iter().map(sweep).collect()
}

fn decode(dtype: Dtype, bytes: &[u8]) -> f64 {
    match dtype {
        Dtype::Float32 => f32::from_le_bytes(bytes[..4].try_into().unwrap()).into(),
        Dtype::UInt32 => u32::from_le_bytes(bytes[..4].try_into().unwrap()).into(),
        Dtype::UInt16 => u16::from_le_bytes(bytes[..2].try_into().unwrap()).into(),
        Dtype::UInt8 => bytes[0].into(),
        other => unreachable!("{other} is in no recording"),
    }
}

/// Checks every sweep in two grids of different resolution, in every layout, with one voxelizer for each grid.
fn check(sweeps: &[TestCloud], field: &str, grids: [(f32, f32, [usize; 3]); 2]) {
    let names = ["occupancy", "count", "mean_x", "mean_y", "mean_z"].map(str::to_owned);
    let more = ["mean", "max", "min"].map(|kind| format!("{kind}_{field}"));
    let channels: Vec<_> = names.iter().chain(&more).map(String::as_str).collect();
    for (origin, size, shape) in grids {
        let mut config = config(origin, size, shape, &channels);
        config.origin_m[2] = -4.0;
        config.inputs[0].extrinsic = Some(Extrinsic {
            translation_m: [0.3, -0.2, 1.8],
            rotation_xyzw: [0.01, -0.02, 0.7, 0.71],
        });
        let mut voxelizer = voxelizer(&config);
        for sweep in sweeps {
            let message = sweep.to_struct();
            let expected = oracle::voxelize(&config, &[(0, sweep)]);
            assert!(
                expected.counters.points_kept > sweep.len() as u64 / 3,
                "{:?}",
                expected.counters
            );
            // Not `assert_eq`, which would print both in full.
            assert!(coo(&mut voxelizer, &[(0, &message)]) == expected, "{field} at {size} m");
            let (counters, values) = dense(&config, &[(0, &message)]);
            assert_eq!(counters, expected.counters);
            let (_, occupied) = bits(&config, &[(0, &message)]);
            let cells = shape.iter().product::<usize>();
            let mut nonzero = 0;
            for (coords, features) in expected.coords.iter().zip(&expected.features) {
                let [x, y, z] = coords.map(|c| c as usize);
                let cell = (x * shape[1] + y) * shape[2] + z;
                assert_eq!(occupied[cell / 8] >> (cell % 8) & 1, 1);
                for (channel, value) in features.iter().enumerate() {
                    assert_eq!(values[channel * cells + cell].to_bits(), *value);
                    nonzero += usize::from(f32::from_bits(*value) != 0.0);
                }
            }
            assert_eq!(values.iter().filter(|v| **v != 0.0).count(), nonzero);
            let bits_set: usize = occupied.iter().map(|byte| byte.count_ones() as usize).sum();
            assert_eq!(bits_set, expected.coords.len());
        }
    }
}

#[test]
fn a_driving_lidar() {
    let columns = [
        ("x", Dtype::Float32, 0),
        ("y", Dtype::Float32, 4),
        ("z", Dtype::Float32, 8),
        ("t_ns", Dtype::UInt32, 12),
        ("ring", Dtype::UInt8, 18),
        ("reflectivity", Dtype::UInt8, 19),
    ];
    let sweeps = sweeps("ouster_os1_128_3scans", 20, &columns);
    let grids = [(-25.6, 0.2, [256, 256, 60]), (-64.0, 1.0, [128, 128, 20])];
    check(&sweeps, "reflectivity", grids);
    check(&sweeps, "t_ns", grids);
    // The same times as floats, some of which are missing.
    let with_holes = |sweep: &TestCloud| {
        let mut sweep = sweep.clone().with_type("t_ns", Dtype::Float64);
        let times = &mut sweep.columns[3].values;
        times.iter_mut().step_by(5).for_each(|time| *time = f64::NAN);
        sweep
    };
    check(&sweeps.iter().map(with_holes).collect::<Vec<_>>(), "t_ns", grids);
}

#[test]
fn an_indoor_lidar() {
    let columns = [
        ("x", Dtype::Float32, 0),
        ("y", Dtype::Float32, 4),
        ("z", Dtype::Float32, 8),
        ("intensity", Dtype::Float32, 12),
        ("ring", Dtype::UInt8, 22),
    ];
    let grids = [(-6.4, 0.05, [256, 256, 160]), (-8.0, 0.5, [32, 32, 20])];
    check(&sweeps("velodyne_vlp16_4scans", 24, &columns), "intensity", grids);
}

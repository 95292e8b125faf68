//! A second implementation of voxelize, as docs/semantics.md words it: a map of cells, one point at a time, sums in 128 bits.

use super::support::{Output, TestCloud};
use robocache::device::Dtype;
use robocache::ops::voxelize::{Channel, VoxelCounters, VoxelizeConfig};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
struct Cell {
    count: u64,
    unusable: BTreeMap<String, u64>,
    sums: BTreeMap<String, i128>,
    values: BTreeMap<String, Vec<f32>>,
}

pub fn voxelize(config: &VoxelizeConfig, clouds: &[(usize, &TestCloud)]) -> Output {
    let mut counters = VoxelCounters::default();
    let mut cells: BTreeMap<u64, Cell> = BTreeMap::new();
    let mut scales: BTreeMap<String, i32> = BTreeMap::new();
    let bits = [0, 1, 2].map(|axis| coordinate_bits(config, axis));
    for &(input, cloud) in clouds {
        let xyz = ["x", "y", "z"].map(|axis| cloud.column(axis));
        let names: BTreeSet<_> = config.channels.iter().filter_map(Channel::field).collect();
        let named = names.into_iter().filter(|name| !is_axis(name));
        let named: Vec<_> = named
            .map(|name| (name, cloud.dtype(name), cloud.column(name)))
            .collect();
        for i in 0..cloud.len() {
            counters.points_in += 1;
            let p = transform(config, input, [0, 1, 2].map(|axis| xyz[axis][i] as f32));
            if p.iter().any(|v| !v.is_finite()) {
                counters.dropped_nonfinite += 1;
                continue;
            }
            let Some(cell) = index(config, p) else {
                counters.dropped_outside += 1;
                continue;
            };
            let cell = cells.entry(cell).or_default();
            cell.count += 1;
            let mut add = |cell: &mut Cell, name: &str, value: f64, bits: i32| {
                let q = (value * 2f64.powi(bits)).round_ties_even() as i128;
                *cell.sums.entry(name.to_owned()).or_default() += q;
                cell.values.entry(name.to_owned()).or_default().push(value as f32);
                scales.insert(name.to_owned(), bits);
            };
            for axis in 0..3 {
                add(cell, ["x", "y", "z"][axis], f64::from(p[axis]), bits[axis]);
            }
            for (name, dtype, column) in &named {
                let is_usable = match config.channels.contains(&Channel::Mean(name.to_string())) {
                    true => column[i].abs() <= bound(*dtype),
                    false => (column[i] as f32).is_finite(),
                };
                match is_usable {
                    true => add(cell, name, column[i], field_bits(*dtype)),
                    false => *cell.unusable.entry(name.to_string()).or_default() += 1,
                }
            }
        }
    }
    let limit = config.max_voxels.unwrap_or(usize::MAX);
    counters.dropped_overflow = cells.values().skip(limit).map(|cell| cell.count).sum();
    counters.points_kept = cells.values().take(limit).map(|cell| cell.count).sum();
    let (ny, nz) = (config.shape[1] as u64, config.shape[2] as u64);
    let feature = |cell: &Cell, channel: &Channel| match channel {
        Channel::Occupancy => 1.0,
        Channel::Count => cell.count as f32,
        Channel::Mean(name) => cell.sums.get(name).map_or(0.0, |sum| {
            (*sum as f64 / cell.values[name].len() as f64 / 2f64.powi(scales[name])) as f32
        }),
        Channel::Max(name) => values(cell, name).max_by(|a, b| a.total_cmp(b)).unwrap_or(0.0),
        Channel::Min(name) => values(cell, name).min_by(|a, b| a.total_cmp(b)).unwrap_or(0.0),
    };
    let row = |cell| {
        config
            .channels
            .iter()
            .map(|channel| feature(cell, channel).to_bits())
            .collect()
    };
    let unusable = |name: &&str| {
        let kept = cells.values().take(limit);
        kept.filter_map(|cell| cell.unusable.get(*name)).sum()
    };
    Output {
        counters,
        unusable: fields(config).iter().map(unusable).collect(),
        coords: cells
            .keys()
            .take(limit)
            .map(|i| [i / nz / ny, i / nz % ny, i % nz].map(|v| v as i32))
            .collect(),
        features: cells.values().take(limit).map(row).collect(),
    }
}

fn values<'a>(cell: &'a Cell, name: &str) -> impl Iterator<Item = f32> + use<'a> {
    cell.values.get(name).into_iter().flatten().copied()
}

/// Fields other than x, y and z, in the order in which the channels first name them.
fn fields(config: &VoxelizeConfig) -> Vec<&str> {
    let mut fields = Vec::new();
    for name in config.channels.iter().filter_map(Channel::field) {
        if !is_axis(name) && !fields.contains(&name) {
            fields.push(name);
        }
    }
    fields
}

fn is_axis(name: &str) -> bool {
    ["x", "y", "z"].contains(&name)
}

fn transform(config: &VoxelizeConfig, input: usize, [x, y, z]: [f32; 3]) -> [f32; 3] {
    let Some(extrinsic) = &config.inputs[input].extrinsic else {
        return [x, y, z];
    };
    let q = extrinsic.rotation_xyzw;
    let norm = (q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]).sqrt();
    let [a, b, c, w] = q.map(|v| v / norm);
    let matrix = [
        [
            1.0 - 2.0 * (b * b + c * c),
            2.0 * (a * b - c * w),
            2.0 * (a * c + b * w),
        ],
        [
            2.0 * (a * b + c * w),
            1.0 - 2.0 * (a * a + c * c),
            2.0 * (b * c - a * w),
        ],
        [
            2.0 * (a * c - b * w),
            2.0 * (b * c + a * w),
            1.0 - 2.0 * (a * a + b * b),
        ],
    ];
    [0, 1, 2].map(|i| {
        let [r0, r1, r2] = matrix[i].map(|v| v as f32);
        ((r0 * x + r1 * y) + r2 * z) + extrinsic.translation_m[i] as f32
    })
}

fn index(config: &VoxelizeConfig, p: [f32; 3]) -> Option<u64> {
    let mut cell = 0;
    for (axis, coordinate) in p.into_iter().enumerate() {
        let i = ((coordinate - config.origin_m[axis]) * (1.0f32 / config.voxel_size_m[axis])).floor();
        if !(0.0..config.shape[axis] as f32).contains(&i) {
            return None;
        }
        cell = cell * config.shape[axis] as u64 + i as u64;
    }
    Some(cell)
}

fn coordinate_bits(config: &VoxelizeConfig, axis: usize) -> i32 {
    let least = f64::from(config.origin_m[axis]);
    let greatest = least + config.shape[axis] as f64 * f64::from(config.voxel_size_m[axis]);
    let extent = least.abs().max(greatest.abs());
    38 - (-200..200).find(|&n| 2f64.powi(n) >= extent).unwrap()
}

fn is_wide(dtype: Dtype) -> bool {
    matches!(dtype.name(), "int32" | "int64" | "uint32" | "uint64")
}

fn field_bits(dtype: Dtype) -> i32 {
    if is_wide(dtype) { 0 } else { 22 }
}

fn bound(dtype: Dtype) -> f64 {
    2f64.powi(62 - field_bits(dtype))
}

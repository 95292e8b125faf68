//! Properties of voxelize that hold for random clouds.

use super::oracle;
use super::support::{TestCloud, bits, coo, dense, voxelizer};
use proptest::prelude::*;
use robocache::device::Dtype;
use robocache::ops::voxelize::{Channel, Extrinsic, VoxelInput, VoxelizeConfig};

fn channels() -> Vec<Channel> {
    Channel::all(["x", "y", "z", "i", "t"]).collect()
}

/// Draws a coordinate within a few cells of a grid around 0, often on an edge of a cell, at times an extreme value.
fn coordinate() -> impl Strategy<Value = f64> {
    prop_oneof![
        12 => -4.0..4.0f64,
        4 => (-16..16i32).prop_map(|k| f64::from(k) * 0.25),
        1 => prop::sample::select(vec![
            f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 1e38, -1e38, 3.4e38, 1e-40, -1e-40, 4.3e9, 16_777_217.0
        ]),
    ]
}

fn cloud() -> impl Strategy<Value = TestCloud> {
    let value = prop_oneof![
        8 => -300.0..300.0f64,
        2 => (0..200i32).prop_map(f64::from),
        1 => prop::sample::select(vec![f64::NAN, f64::INFINITY, -0.0, 262_144.0, 262_145.0, -1e8, 4.2e9, 1.0e12, -1.2e12, -1e30, 1e300]),
    ];
    let point =
        (coordinate(), coordinate(), coordinate(), value.clone(), value).prop_map(|(x, y, z, i, t)| [x, y, z, i, t]);
    prop::collection::vec(point, 0..2500).prop_map(|points| TestCloud::new(["x", "y", "z", "i", "t"], &points))
}

fn extrinsic() -> impl Strategy<Value = Option<Extrinsic>> {
    let some =
        (prop::array::uniform3(-2.0..2.0f64), prop::array::uniform4(-1.0..1.0f64)).prop_map(|(t, q)| Extrinsic {
            translation_m: t,
            rotation_xyzw: if q.iter().all(|v| v.abs() < 0.1) {
                [0.0, 0.0, 0.0, 1.0]
            } else {
                q
            },
        });
    prop::option::of(some)
}

fn config() -> impl Strategy<Value = VoxelizeConfig> {
    (
        prop::array::uniform3(-3.0..1.0f32),
        prop::sample::select(vec![[0.25f32; 3], [0.1, 0.3, 0.7], [1.0, 0.5, 2.0]]),
        prop::array::uniform3(1..20usize),
        prop::sample::subsequence(channels(), 1..=channels().len()).prop_shuffle(),
        prop::option::of(1..200usize),
        [extrinsic(), extrinsic()],
    )
        .prop_map(
            |(origin_m, voxel_size_m, shape, channels, max_voxels, extrinsics)| VoxelizeConfig {
                origin_m,
                voxel_size_m,
                shape,
                channels,
                max_voxels,
                inputs: extrinsics
                    .into_iter()
                    .zip(["front", "rear"])
                    .map(|(extrinsic, input)| VoxelInput {
                        input: input.into(),
                        extrinsic,
                        ..VoxelInput::default()
                    })
                    .collect(),
                ..VoxelizeConfig::default()
            },
        )
}

fn field_type() -> impl Strategy<Value = Dtype> {
    prop::sample::select(Dtype::ALL.to_vec())
}

fn narrow(dtype: Dtype) -> bool {
    !matches!(dtype, Dtype::Int32 | Dtype::Int64 | Dtype::UInt32 | Dtype::UInt64)
}

/// Returns the number of random cases: 300, or `PROPTEST_CASES`, since runs under a sanitizer are slow.
fn cases() -> u32 {
    std::env::var_os("PROPTEST_CASES").map_or(300, |_| ProptestConfig::default().cases)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_is_what_the_oracle_says(
        config in config(), a in cloud(), b in cloud(), types in prop::array::uniform4(field_type()),
    ) {
        // The clouds of a grid must agree on whether a field is a wide integer.
        let same = |one: Dtype, other: Dtype| if narrow(one) == narrow(other) { other } else { one };
        let a = a.with_type("i", types[0]).with_type("t", types[1]);
        let b = b.with_type("i", same(types[0], types[2])).with_type("t", same(types[1], types[3]));
        let expected = oracle::voxelize(&config, &[(0, &a), (1, &b)]);
        let (a, b) = (a.to_struct(), b.to_struct());
        let mut voxelizer = voxelizer(&config);
        let output = coo(&mut voxelizer, &[(0, &a), (1, &b)]);
        prop_assert_eq!(&output, &expected);
        let c = output.counters;
        prop_assert_eq!(c.points_in, c.points_kept + c.dropped_nonfinite + c.dropped_outside + c.dropped_overflow);
        prop_assert_eq!(coo(&mut voxelizer, &[(1, &b), (0, &a)]), expected, "the other cloud first");
    }

    #[test]
    fn neither_the_order_of_points_nor_their_split_changes_a_bit(
        config in config(), cloud in cloud(), seed in any::<u64>(), at in 0.0..1.0f64,
    ) {
        let mut order: Vec<_> = (0..cloud.len()).collect();
        order.sort_by_key(|&i| (i as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (head, tail) = order.split_at((at * order.len() as f64) as usize);
        let mut voxelizer = voxelizer(&config);
        let whole = coo(&mut voxelizer, &[(0, &cloud.to_struct())]);
        prop_assert_eq!(&coo(&mut voxelizer, &[(0, &cloud.select(&order).to_struct())]), &whole);
        let (head, tail) = (cloud.select(head), cloud.select(tail));
        prop_assert_eq!(&coo(&mut voxelizer, &[(0, &head.to_struct()), (0, &tail.to_tensor())]), &whole);
    }

    #[test]
    fn all_layouts_say_the_same(mut config in config(), cloud in cloud()) {
        config.max_voxels = None;
        let message = cloud.to_struct();
        let sparse = coo(&mut voxelizer(&config), &[(0, &message)]);
        let [nx, ny, nz] = config.shape;
        let cells = nx * ny * nz;
        let mut expected = vec![0u32; config.channels.len() * cells];
        let mut occupied = vec![0u8; cells.div_ceil(8)];
        for (coords, features) in sparse.coords.iter().zip(&sparse.features) {
            let [x, y, z] = coords.map(|c| c as usize);
            let cell = (x * ny + y) * nz + z;
            occupied[cell / 8] |= 1 << (cell % 8);
            for (channel, value) in features.iter().enumerate() {
                expected[channel * cells + cell] = *value;
            }
        }
        let (counters, values) = dense(&config, &[(0, &message)]);
        prop_assert_eq!(counters, sparse.counters);
        prop_assert_eq!(values.iter().map(|v| v.to_bits()).collect::<Vec<_>>(), expected);
        // An unusable value does not take its point out of the cell.
        prop_assert_eq!(bits(&config, &[(0, &message)]), (counters, occupied));
    }
}

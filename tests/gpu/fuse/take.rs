//! Samples of any size and type that come on the device, and the ones that are refused.

use super::{MS, Pairs, config};
use crate::support::{gpu, ran};
use half::{bf16, f16};
use robocache::device::{Dtype, Values};
use robocache::ops::align::SampleError;

/// Numbers of values of a sample: from one to the bytes of a bitmap of 512 x 512 x 40 voxels, and 2 M.
const SIZES: [usize; 7] = [1, 2, 255, 1025, 100_003, 512 * 512 * 40 / 8, 1 << 21];

/// Makes a sample of `len` elements of a type, with a NaN at each channel whose index is in `nans`.
fn sample(dtype: Dtype, len: usize, nans: &[usize]) -> Vec<u8> {
    let value = |i: usize| match nans.contains(&i) {
        true => f32::NAN,
        false => (i % 251) as f32 * 0.5,
    };
    let elements = (0..len).map(value);
    match dtype {
        Dtype::Float64 => elements.flat_map(|value| f64::from(value).to_le_bytes()).collect(),
        Dtype::Float16 => elements.flat_map(|value| f16::from_f32(value).to_le_bytes()).collect(),
        Dtype::BFloat16 => elements.flat_map(|value| bf16::from_f32(value).to_le_bytes()).collect(),
        Dtype::UInt8 => elements.map(|value| value as u8).collect(),
        _ => elements.flat_map(f32::to_le_bytes).collect(),
    }
}

fn pairs(dim: usize) -> Pairs {
    Pairs::new(&config(&format!(
        "{{ rate_hz: 100, modalities: [{{ input: grid, dim: {dim}, interpolation: previous }}] }}"
    )))
}

#[test]
fn a_sample_of_any_size_is_taken_value_by_value() {
    let Some(gpu) = gpu() else { return };
    let mut samples = 0;
    for len in SIZES {
        let mut pairs = pairs(len);
        let dtypes: &[Dtype] = match len {
            2_097_152 => &[Dtype::Float32],
            _ => &[
                Dtype::Float32,
                Dtype::Float64,
                Dtype::Float16,
                Dtype::BFloat16,
                Dtype::UInt8,
            ],
        };
        for (i, &dtype) in (0..).zip(dtypes) {
            let values = sample(dtype, len, &[]);
            let pushed = pairs.push_on_device(0, 10 * i * MS, Values::new(dtype, &values));
            pushed.unwrap();
            let target = pairs.due().unwrap();
            pairs.check(&target);
            samples += 1;
        }
    }
    ran(&gpu, "fuse: samples of any size", samples);
}

#[test]
fn the_first_value_that_is_not_finite_is_named_wherever_it_is() {
    let Some(gpu) = gpu() else { return };
    let mut samples = 0;
    for len in SIZES {
        let mut pairs = pairs(len);
        let last = len - 1;
        for dtype in [Dtype::Float32, Dtype::Float64, Dtype::Float16, Dtype::BFloat16] {
            for nans in [&[0][..], &[len / 2], &[last], &[last, len / 2], &[len / 3, last, 0]] {
                if len > 200_000 && dtype != Dtype::Float32 {
                    continue;
                }
                let values = sample(dtype, len, nans);
                let refused = pairs.push_on_device(0, 0, Values::new(dtype, &values)).unwrap_err();
                let first = *nans.iter().min().unwrap();
                assert!(
                    matches!(refused, SampleError::NonFinite { channel, value } if channel == first && value.is_nan()),
                    "{len} {dtype}, NaN at {nans:?}: {refused}"
                );
                samples += 1;
            }
        }
        assert_eq!(pairs.due(), None);
    }
    ran(&gpu, "fuse: samples with a NaN", samples);
}

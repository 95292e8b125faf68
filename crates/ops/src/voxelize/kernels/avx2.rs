//! AVX2 versions of the two loops that compilers don't vectorize. Each gives the same bits as the portable function of
//! the same name in [`cells`](super::cells) or [`values`](super::values).

use super::super::grid::VoxelGrid;
use super::cells::{Bitmap, Indexed, Kept, set_bit};
use super::sums::Row;
use super::values::{TABLE, to_f64};
use std::arch::x86_64::*;

/// Number of points that are processed together: the float32 values of a 256-bit register.
const LANES: usize = 8;

/// The AVX2 version of [`index`](super::index).
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub(super) fn index(grid: &VoxelGrid, xyz: [&[f32]; 3], bitmap: Bitmap<'_>, kept: Kept<'_>) -> Indexed {
    let Bitmap { words, used } = bitmap;
    let points = xyz[0].len();
    let each = |values: [f32; 3]| values.map(|value| _mm256_set1_ps(value));
    let (origin, inverse) = (each(grid.origin_m()), each(grid.inverse()));
    let shape = each(grid.shape().map(|n| n as f32));
    let [_, ny, nz] = grid.shape().map(|n| _mm256_set1_epi32(n as i32));
    let steps = _mm_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7);
    let mut indexed = Indexed::default();
    // The last eight points are padded with NaN.
    let mut tail = [[f32::NAN; LANES]; 3];
    for from in (0..points).step_by(LANES) {
        let count = LANES.min(points - from);
        let mut p = [_mm256_setzero_ps(); 3];
        for axis in 0..3 {
            let mut values = &xyz[axis][from..from + count];
            if count < LANES {
                tail[axis][..count].copy_from_slice(values);
                values = &tail[axis];
            }
            // SAFETY: there are eight values.
            p[axis] = unsafe { _mm256_loadu_ps(values.as_ptr()) };
        }
        let mut t = [_mm256_setzero_ps(); 3];
        let mut inside = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
        for axis in 0..3 {
            t[axis] = _mm256_mul_ps(_mm256_sub_ps(p[axis], origin[axis]), inverse[axis]);
            // A NaN fails both comparisons, an infinity one of them.
            let from_zero = _mm256_cmp_ps::<_CMP_GE_OQ>(t[axis], _mm256_setzero_ps());
            let to_shape = _mm256_cmp_ps::<_CMP_LT_OQ>(t[axis], shape[axis]);
            inside = _mm256_and_ps(inside, _mm256_and_ps(from_zero, to_shape));
        }
        let [x, y, z] = t.map(|t| _mm256_cvttps_epi32(_mm256_and_ps(t, inside)));
        let cells = _mm256_add_epi32(_mm256_mullo_epi32(x, ny), y);
        let cells = _mm256_add_epi32(_mm256_mullo_epi32(cells, nz), z);
        let mask = _mm256_movemask_ps(inside) as u32;
        let out = indexed.kept..indexed.kept + LANES;
        let (of_cells, of_indices) = (&mut kept.cells[out.clone()], &mut kept.indices[out]);
        if mask == 0xff {
            let indices = _mm_add_epi16(_mm_set1_epi16(from as i16), steps);
            // SAFETY: there is room for eight.
            unsafe {
                _mm256_storeu_si256(of_cells.as_mut_ptr().cast(), cells);
                _mm_storeu_si128(of_indices.as_mut_ptr().cast(), indices);
            }
            for &cell in &*of_cells {
                // SAFETY: the point is inside the grid that the bitmap is made for.
                unsafe { set_bit(words, used, cell) };
            }
            indexed.kept += LANES;
            indexed.finite += LANES as u32;
            continue;
        }
        let mut finite = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
        for p in p {
            // Zero times a finite value is 0; zero times any other value is NaN.
            let zero = _mm256_mul_ps(p, _mm256_setzero_ps());
            finite = _mm256_and_ps(finite, _mm256_cmp_ps::<_CMP_ORD_Q>(zero, zero));
        }
        indexed.finite += (_mm256_movemask_ps(finite) as u32).count_ones();
        let mut lanes = [0u32; LANES];
        // SAFETY: there is room for eight.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), cells) };
        let mut left = mask;
        for (of_cell, of_index) in of_cells.iter_mut().zip(of_indices) {
            if left == 0 {
                break;
            }
            let lane = left.trailing_zeros() as usize;
            left &= left - 1;
            *of_cell = lanes[lane & (LANES - 1)];
            *of_index = (from + lane) as u16;
            // SAFETY: the point is inside the grid that the bitmap is made for.
            unsafe { set_bit(words, used, *of_cell) };
        }
        indexed.kept += mask.count_ones() as usize;
    }
    indexed
}

/// The AVX2 version of [`features`](super::features).
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub(super) fn features(rows: &[Row], units: [f64; 3], columns: &[u8], out: &mut [f32]) {
    let unit = _mm256_setr_pd(units[0], units[1], units[2], 1.0);
    let [high_bits, low_bits] = [to_f64::HIGH, to_f64::LOW].map(|bits| _mm256_set1_epi64x(bits as i64));
    let (sign, bias) = (_mm256_set1_epi64x(i64::MIN), _mm256_set1_pd(to_f64::BIAS));
    let one = _mm_set1_ps(1.0);
    let mut order = [0i32; 8];
    for (lane, &column) in order.iter_mut().zip(columns) {
        *lane = i32::from(column);
    }
    // SAFETY: there are eight lanes.
    let order = unsafe { _mm256_loadu_si256(order.as_ptr().cast()) };
    let mut at = 0;
    for row in rows {
        // SAFETY: a row is 32 bytes, aligned to 32 bytes.
        let sums = unsafe { _mm256_load_si256((row as *const Row).cast()) };
        let high = _mm256_or_si256(_mm256_srli_epi64::<32>(_mm256_xor_si256(sums, sign)), high_bits);
        let low = _mm256_blend_epi32::<0b1010_1010>(sums, low_bits);
        let sums = _mm256_add_pd(_mm256_sub_pd(_mm256_castsi256_pd(high), bias), _mm256_castsi256_pd(low));
        let count = _mm256_permute4x64_pd::<0xff>(sums);
        // The count lane is divided by one.
        let over = _mm256_blend_pd::<0b1000>(count, _mm256_set1_pd(1.0));
        let means = _mm256_cvtpd_ps(_mm256_mul_pd(_mm256_div_pd(sums, over), unit));
        let table = _mm256_permutevar8x32_ps(_mm256_set_m128(one, means), order);
        let end = at + columns.len();
        if at + TABLE <= out.len() {
            // SAFETY: there is room for eight. Values past the row are overwritten by the next row.
            unsafe { _mm256_storeu_ps(out.as_mut_ptr().add(at), table) };
        } else {
            let mut values = [0.0f32; TABLE];
            // SAFETY: there is room for eight.
            unsafe { _mm256_storeu_ps(values.as_mut_ptr(), table) };
            out[at..end].copy_from_slice(&values[..columns.len()]);
        }
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::super::cells::INDEX_SLACK;
    use super::super::has_avx2;
    use super::super::tests::odd_values;
    use super::super::{cells, values};
    use super::*;
    use crate::voxelize::quantum;

    #[test]
    fn cells_are_the_same_on_every_cpu() {
        if !has_avx2() {
            return;
        }
        let grid = VoxelGrid::new([-0.75; 3], [0.125, 0.25, 0.5], [12, 6, 3]);
        let words = grid.cells().div_ceil(64);
        for len in (0..70).chain([1000]) {
            let xyz = [1, 2, 3].map(|seed| odd_values(seed + len as u64, len));
            let xyz = xyz.each_ref().map(Vec::as_slice);
            let run = |is_wide: bool| {
                let (mut words, mut used) = (vec![0; words], vec![0; 1]);
                let (mut cells, mut indices) = (vec![0; len + INDEX_SLACK], vec![0; len + INDEX_SLACK]);
                let kept = Kept {
                    cells: &mut cells,
                    indices: &mut indices,
                };
                let bitmap = Bitmap {
                    words: &mut words,
                    used: &mut used,
                };
                let indexed = match is_wide {
                    // SAFETY: the CPU has the features.
                    true => unsafe { index(&grid, xyz, bitmap, kept) },
                    false => cells::index(&grid, xyz, bitmap, kept),
                };
                cells.truncate(indexed.kept);
                indices.truncate(indexed.kept);
                (indexed.finite, cells, indices, words, used)
            };
            assert_eq!(run(true), run(false), "{len} points");
        }
    }

    #[test]
    fn features_are_the_same_on_every_cpu() {
        if !has_avx2() {
            return;
        }
        let units = [-31, -32, -35].map(quantum::power_of_two);
        for columns in [&[4u8, 3, 0, 1, 2][..], &[3], &[2, 4], &[1, 0, 3]] {
            let rows = odd_values(7, 40).into_iter().enumerate().map(|(i, value)| {
                let sum = (f64::from(value) * 1e15) as i64;
                Row([sum, -sum / 3, i64::from(i as u32) << 37, i as i64 + 1])
            });
            let rows: Vec<_> = rows.collect();
            let run = |is_wide: bool| {
                let mut out = vec![f32::NAN; rows.len() * columns.len()];
                match is_wide {
                    // SAFETY: the CPU has the features.
                    true => unsafe { features(&rows, units, columns, &mut out) },
                    false => values::features(&rows, units, columns, &mut out),
                }
                out.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            };
            assert_eq!(run(true), run(false), "{columns:?}");
        }
    }
}

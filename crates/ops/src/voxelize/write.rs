//! Writes a grid that the CPU computed, in each layout. Every element of the output is written, whatever its old value.

use super::cpu::CpuVoxelizer;
use super::kernels;
use super::plan::Source;
use half::{bf16, f16};
use robocache_device::{Dtype, Element};

/// Number of occupied cells that are written together, so that their sums stay in the cache.
const BLOCK: usize = 256;

/// Size, bytes, up to which one core clears memory: waking another core takes longer.
const BYTES_FOR_ONE_CORE: usize = 1 << 22;

/// Fills `out` with zero bits, which are 0.0 in every float type.
pub(super) fn clear<E: Element>(out: &mut [E]) {
    if size_of_val(out) <= BYTES_FOR_ONE_CORE {
        bytemuck::fill_zeroes(out);
        return;
    }
    let (some, others) = out.split_at_mut(out.len() / 2);
    rayon::join(|| clear(some), || clear(others));
}

/// Clamps a finite value to a type's greatest or least value if it would round to an infinity. Returns true if
/// it was clamped.
#[inline]
pub(super) fn saturate<E: Element>(value: f32) -> (f32, bool) {
    // The greatest value, and half a step past it: rounding that to even gives an infinity.
    let (greatest, beyond) = match E::DTYPE {
        Dtype::Float16 => (f16::MAX.to_f32(), 65_520.0),
        Dtype::BFloat16 => (bf16::MAX.to_f32(), f32::from_bits(0x7f7f_8000)),
        _ => return (value, false),
    };
    match value.abs() >= beyond {
        true => (greatest.copysign(value), true),
        false => (value, false),
    }
}

impl CpuVoxelizer {
    /// Writes every element of the tensor `[C, X, Y, Z]`: 0 in all channels of a cell without points. A value that the type
    /// can't hold becomes the greatest or least of the type: see [`saturated`](Self::saturated).
    ///
    /// # Panics
    /// If `out` does not have C * X * Y * Z elements.
    pub fn write_dense<E: Element>(&mut self, out: &mut [E]) {
        let cells = self.spec.grid.cells();
        assert_eq!(
            out.len(),
            cells * self.spec.outputs.len(),
            "one element for each channel of each cell"
        );
        clear(out);
        let mut saturated = 0;
        let mut values = [0.0; BLOCK];
        for (i, block) in self.cells.list()[..self.voxels()].chunks(BLOCK).enumerate() {
            for (&output, channel) in self.spec.outputs.iter().zip(out.chunks_exact_mut(cells)) {
                let values = &mut values[..block.len()];
                output.write(&self.spec.plan, &self.sums, i * BLOCK..i * BLOCK + values.len(), values);
                for (&cell, &value) in block.iter().zip(&*values) {
                    let (value, is_saturated) = saturate::<E>(value);
                    saturated += u64::from(is_saturated);
                    channel[cell as usize] = E::from_f32(value);
                }
            }
        }
        self.saturated = saturated;
    }

    /// Number of values of the last written dense grid beyond the range of its element type, which are written as the
    /// type's greatest or least value.
    pub fn saturated(&self) -> u64 {
        self.saturated
    }

    /// Writes every byte of the bitmap: cell `i` is bit `i % 8`, least significant first, of byte `i / 8`.
    ///
    /// # Panics
    /// If `out` does not have ceil(X * Y * Z / 8) bytes.
    pub fn write_bits(&self, out: &mut [u8]) {
        assert_eq!(out.len(), self.spec.grid.cells().div_ceil(8), "one bit for each cell");
        out.fill(0);
        for (i, word) in self.cells.used_words() {
            let from = i * 8;
            let until = out.len().min(from + 8);
            out[from..until].copy_from_slice(&word.to_le_bytes()[..until - from]);
        }
    }

    /// Writes the occupied cells in cell order: the cell indices x, y, z to `coords`, and a value for each channel to
    /// `features`, cell by cell.
    ///
    /// # Panics
    /// If `coords` does not have 3 elements for each of the [`voxels`](Self::voxels), or `features` not C elements for
    /// each.
    pub fn write_coo(&self, coords: &mut [i32], features: &mut [f32]) {
        let (voxels, columns) = (self.voxels(), self.spec.outputs.len());
        assert_eq!(coords.len(), voxels * 3, "three coordinates for each voxel");
        assert_eq!(features.len(), voxels * columns, "one feature for each channel");
        let [_, ny, nz] = self.spec.grid.shape().map(|n| n as u32);
        kernels::coordinates(&self.cells.list()[..voxels], ny, nz, coords);
        if let Some(table_columns) = &self.table_columns {
            let units = [0, 1, 2].map(|axis| self.sums.unit(Source::Axis(axis)));
            kernels::features(&self.sums.rows[..voxels], units, table_columns, features);
            return;
        }
        // Block by block, so that a block's rows stay in the cache while its channels are written.
        let mut values = [0.0; BLOCK];
        for (i, rows) in features.chunks_mut(BLOCK * columns).enumerate() {
            let values = &mut values[..rows.len() / columns];
            for (column, &output) in self.spec.outputs.iter().enumerate() {
                output.write(&self.spec.plan, &self.sums, i * BLOCK..i * BLOCK + values.len(), values);
                for (row, &value) in rows.chunks_exact_mut(columns).zip(&*values) {
                    row[column] = value;
                }
            }
        }
    }
}

//! From what was gathered to the layouts.

use super::cpu::CpuVoxelizer;
use super::kernels::{self, Exceptions};
use super::plan::{Output, Source};
use crate::device::{Dtype, Element};
use half::{bf16, f16};
use std::sync::atomic::Ordering;

/// Occupied cells that are worked on at a time.
const BLOCK: usize = 256;

/// Less memory than this is cleared by one core: waking another one takes longer.
const BYTES_FOR_ONE_CORE: usize = 1 << 22;

/// Fills with zero bits, which are 0.0 in every float type.
pub(super) fn clear<E: Element>(out: &mut [E]) {
    if size_of_val(out) <= BYTES_FOR_ONE_CORE {
        bytemuck::fill_zeroes(out);
        return;
    }
    let (some, others) = out.split_at_mut(out.len() / 2);
    rayon::join(|| clear(some), || clear(others));
}

/// The value of a type's range that is nearest to a finite value, and whether it is another one.
#[inline]
pub(super) fn saturate<E: Element>(value: f32) -> (f32, bool) {
    let greatest = match E::DTYPE {
        Dtype::Float16 => f16::MAX.to_f32(),
        Dtype::BFloat16 => bf16::MAX.to_f32(),
        _ => return (value, false),
    };
    (value.clamp(-greatest, greatest), value.abs() > greatest)
}

impl CpuVoxelizer {
    /// Writes every element of the tensor `[C, X, Y, Z]`: 0 in all channels of a cell without points. Where the type can't
    /// hold a value, its greatest or least is in its place: see [`saturated`](Self::saturated).
    ///
    /// # Panics
    /// If `out` has not C * X * Y * Z elements.
    pub fn write_dense<E: Element>(&self, out: &mut [E]) {
        let cells = self.spec.grid.cells();
        assert_eq!(
            out.len(),
            cells * self.spec.plan.outputs.len(),
            "one element for each channel of each cell"
        );
        clear(out);
        let mut saturated = 0;
        let mut values = [0.0; BLOCK];
        for (from, order) in self.blocks() {
            for (&output, out) in self.spec.plan.outputs.iter().zip(out.chunks_exact_mut(cells)) {
                let values = &mut values[..order.len()];
                self.values(output, from, values);
                for (&cell, &value) in order.iter().zip(&*values) {
                    let (value, is_saturated) = saturate::<E>(value);
                    saturated += u64::from(is_saturated);
                    out[cell as usize] = E::from_f32(value);
                }
            }
        }
        self.saturated.store(saturated, Ordering::Relaxed);
    }

    /// How many values of the dense grid that was written last its type can't hold.
    pub fn saturated(&self) -> u64 {
        self.saturated.load(Ordering::Relaxed)
    }

    /// Writes every byte of the bitmap: cell `i` is bit `i % 8`, least significant first, of byte `i / 8`.
    ///
    /// # Panics
    /// If `out` has not ceil(X * Y * Z / 8) bytes.
    pub fn write_bits(&self, out: &mut [u8]) {
        assert_eq!(out.len(), self.spec.grid.cells().div_ceil(8), "one bit for each cell");
        out.fill(0);
        for (i, word) in self.cells.used_words() {
            let from = i * 8;
            let until = out.len().min(from + 8);
            out[from..until].copy_from_slice(&word.to_le_bytes()[..until - from]);
        }
    }

    /// Writes the occupied cells in cell order: `coords` x y z each, `features` one value for each channel each.
    ///
    /// # Panics
    /// If `coords` has not 3, or `features` not C elements for each of [`voxels`](Self::voxels).
    pub fn write_coo(&self, coords: &mut [i32], features: &mut [f32]) {
        let columns = self.spec.plan.outputs.len();
        assert_eq!(coords.len(), self.voxels() * 3, "three coordinates for each voxel");
        assert_eq!(features.len(), self.voxels() * columns, "one feature for each channel");
        let [_, ny, nz] = self.spec.grid.shape().map(|n| n as u32);
        kernels::coordinates(&self.order, ny, nz, coords);
        let mut values = [0.0; BLOCK];
        let mut table = [[0.0; 4]; BLOCK];
        for (from, order) in self.blocks() {
            let rows = &mut features[from * columns..][..order.len() * columns];
            let table = self.table(from, &mut table[..order.len()]);
            for (column, &output) in self.spec.plan.outputs.iter().enumerate() {
                if let (Some(table), Output::Count | Output::Mean(1..=3)) = (table, output) {
                    let plane = if let Output::Mean(plane) = output { plane } else { 0 };
                    for (row, values) in rows.chunks_exact_mut(columns).zip(table) {
                        row[column] = values[plane];
                    }
                    continue;
                }
                let values = &mut values[..order.len()];
                self.values(output, from, values);
                for (row, &value) in rows.chunks_exact_mut(columns).zip(&*values) {
                    row[column] = value;
                }
            }
        }
    }

    /// The occupied cells by blocks, so that what is read and written for one stays in the cache over its channels.
    fn blocks(&self) -> impl Iterator<Item = (usize, &[u32])> {
        let blocks = self.order.chunks(BLOCK).enumerate();
        blocks.map(|(i, order)| (i * BLOCK, order))
    }

    /// The count and the mean x, y and z of occupied cells, if all are gathered: it is quicker to make them together.
    fn table<'a>(&self, from: usize, out: &'a mut [[f32; 4]]) -> Option<&'a [[f32; 4]]> {
        self.spec.plan.sums_all_axes().then(|| {
            let stride = self.spec.plan.stride();
            let sums = &self.sums[from * stride..][..out.len() * stride];
            kernels::rows(sums, stride, [1, 2, 3].map(|plane| self.unit(plane)), out);
            &*out
        })
    }

    /// What the sum of a plane can't take, by cells; empty where it takes all.
    fn exceptions(&self, plane: usize) -> &[Exceptions] {
        match self.spec.plan.sums[plane - 1] {
            Source::Axis(_) => &[],
            Source::Field(field) => &self.exceptions[field],
        }
    }

    /// The values of a channel for the occupied cells from the `from`-th on.
    fn values(&self, output: Output, from: usize, out: &mut [f32]) {
        let stride = self.spec.plan.stride();
        let n = out.len();
        let sums = || &self.sums[from * stride..][..n * stride];
        match output {
            Output::One => out.fill(1.0),
            Output::Count => kernels::means(sums(), stride, 0, 1.0, out),
            Output::Mean(plane) => match self.exceptions(plane) {
                [] => kernels::means(sums(), stride, plane, self.unit(plane), out),
                exceptions => {
                    let exceptions = &exceptions[from..][..n];
                    kernels::means_of_usable(sums(), stride, plane, self.unit(plane), exceptions, out);
                }
            },
            Output::Extreme(place) => kernels::extremes(&self.extremes[place][from..][..out.len()], out),
        }
    }
}

//! From what was gathered to the layouts.

use super::cpu::Voxelizer;
use super::kernels::order_key;
use super::plan::Output;
use crate::device::Element;

impl Voxelizer {
    /// Writes every element of the tensor `[C, X, Y, Z]`: 0 in all channels of a cell without points.
    ///
    /// # Panics
    /// If `out` has not C * X * Y * Z elements.
    pub fn write_dense<E: Element>(&self, out: &mut [E]) {
        let cells = self.grid.cells();
        assert_eq!(
            out.len(),
            cells * self.plan.outputs.len(),
            "one element for each channel of each cell"
        );
        // The all-zero bits are 0.0 in every float type.
        bytemuck::fill_zeroes(out);
        for (&output, out) in self.plan.outputs.iter().zip(out.chunks_exact_mut(cells)) {
            self.each_value(output, |slot, value| {
                out[self.order[slot] as usize] = E::from_f32(value);
            });
        }
    }

    /// Writes every byte of the bitmap: cell `i` is bit `i % 8`, least significant first, of byte `i / 8`.
    ///
    /// # Panics
    /// If `out` has not ceil(X * Y * Z / 8) bytes.
    pub fn write_bits(&self, out: &mut [u8]) {
        assert_eq!(out.len(), self.grid.cells().div_ceil(8), "one bit for each cell");
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
        let columns = self.plan.outputs.len();
        assert_eq!(coords.len(), self.voxels() * 3, "three coordinates for each voxel");
        assert_eq!(features.len(), self.voxels() * columns, "one feature for each channel");
        self.write_coords(coords);
        for (column, &output) in self.plan.outputs.iter().enumerate() {
            self.each_value(output, |slot, value| features[slot * columns + column] = value);
        }
    }

    fn write_coords(&self, coords: &mut [i32]) {
        let [_, ny, nz] = self.grid.shape().map(|n| n as u32);
        // Neighbours in cell order are mostly in one column of cells, so that the divisions are few.
        let (mut x, mut y, mut column) = (0, 0, 0);
        for (&cell, out) in self.order.iter().zip(coords.chunks_exact_mut(3)) {
            let mut z = cell.wrapping_sub(column);
            if z >= nz {
                z = cell % nz;
                column = cell - z;
                (x, y) = (cell / nz / ny, cell / nz % ny);
            }
            out.copy_from_slice(&[x as i32, y as i32, z as i32]);
        }
    }

    /// Calls `write` with each occupied cell's number and its value of a channel.
    #[inline(always)]
    fn each_value(&self, output: Output, mut write: impl FnMut(usize, f32)) {
        let voxels = self.voxels();
        let stride = self.plan.stride();
        match output {
            Output::One => (0..voxels).for_each(|slot| write(slot, 1.0)),
            Output::Count => {
                for (slot, sums) in self.sums.chunks_exact(stride).take(voxels).enumerate() {
                    write(slot, sums[0] as f32);
                }
            }
            Output::Mean(plane) => {
                let unit = self.unit(plane);
                for (slot, sums) in self.sums.chunks_exact(stride).take(voxels).enumerate() {
                    write(slot, (sums[plane] as f64 / sums[0] as f64 * unit) as f32);
                }
            }
            Output::Extreme(place) => {
                for (slot, &key) in self.extremes[place][..voxels].iter().enumerate() {
                    write(slot, f32::from_bits(order_key(key) as u32));
                }
            }
        }
    }
}

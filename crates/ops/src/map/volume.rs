//! Shape of a map, the box of cells that it holds, and sets of cells as bitmaps.

use crate::{ConfigError, refused};
use rayon::prelude::*;

/// Number of cells of a map along x, y and z. Cell `(x, y, z)` has the index `(x * Y + y) * Z + z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape(pub(super) [usize; 3]);

impl Shape {
    /// Greatest number of cells along an axis. The squared distance between any two cells then fits in 31 bits.
    pub const MAX_AXIS: usize = 4096;
    /// Greatest number of cells of a map, so that a cell's index fits in 32 bits.
    pub const MAX_CELLS: usize = 1 << 31;

    /// Checks the number of cells along x, y and z, and creates the shape.
    ///
    /// # Errors
    /// Returns the key `shape` if an axis has no cell or more than [`MAX_AXIS`](Self::MAX_AXIS), or the product is more than
    /// [`MAX_CELLS`](Self::MAX_CELLS).
    pub fn new(shape: [usize; 3]) -> Result<Self, ConfigError> {
        let is_axis = |n: &usize| (1..=Self::MAX_AXIS).contains(n);
        if !shape.iter().all(is_axis) || shape.iter().product::<usize>() > Self::MAX_CELLS {
            let (axis, cells) = (Self::MAX_AXIS, Self::MAX_CELLS);
            return refused(
                "shape",
                format!("{shape:?} (allowed: 1 to {axis} cells an axis, {cells} in all)"),
            );
        }
        Ok(Self(shape))
    }

    /// Number of cells along x, y and z.
    pub fn axes(self) -> [usize; 3] {
        self.0
    }

    /// Number of cells in all.
    pub fn cells(self) -> usize {
        self.0.iter().product()
    }

    /// Number of lines of cells along z: one for each x and y.
    pub fn runs(self) -> usize {
        self.0[0] * self.0[1]
    }

    /// Returns the coordinates of the cells' centres along each axis, metres, float32, from the map's corner of least
    /// coordinates. `voxel_size_m` is the edge of a cell.
    pub(super) fn centres(self, voxel_size_m: f64) -> [Vec<f32>; 3] {
        self.0
            .map(|cells| (0..cells).map(|i| ((i as f64 + 0.5) * voxel_size_m) as f32).collect())
    }
}

/// Box of cells that a map holds, in an unbounded grid. The box moves by whole cells.
///
/// A cell keeps its slot, the index in the map's arrays, while the box moves. Along each axis, the slot is the cell's
/// grid index modulo the number of cells of the box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    shape: Shape,
    corner: [i64; 3],
}

impl Window {
    /// Creates the box whose first cell has the grid index 0 on each axis.
    pub fn new(shape: Shape) -> Self {
        Self { shape, corner: [0; 3] }
    }

    /// Number of cells of the box along each axis.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Grid index of the box's first cell, along each axis.
    pub fn corner(&self) -> [i64; 3] {
        self.corner
    }

    /// Returns the slot of a cell, its index in the map's arrays. `cell` is counted from the box's first cell.
    pub fn slot(&self, cell: [usize; 3]) -> usize {
        let [x, y, z] = std::array::from_fn(|axis| (cell[axis] + self.first_slot(axis)) % self.shape.0[axis]);
        (x * self.shape.0[1] + y) * self.shape.0[2] + z
    }

    /// Returns the slot of the box's first cell along one axis.
    pub(super) fn first_slot(&self, axis: usize) -> usize {
        self.corner[axis].rem_euclid(self.shape.0[axis] as i64) as usize
    }

    /// Returns the x and y, counted from the box's first cell, of the cells in a line of slots along z. `run` is the
    /// index of the line.
    pub(super) fn place_of_run(&self, run: usize) -> [usize; 2] {
        let [nx, ny, _] = self.shape.0;
        let place = |slot: usize, axis: usize, n: usize| (slot + n - self.first_slot(axis)) % n;
        [place(run / ny, 0, nx), place(run % ny, 1, ny)]
    }

    /// Applies `value` to each cell's element of `slots`, and writes the results to `out` in the order of the cells'
    /// indices in the box.
    ///
    /// # Panics
    /// If `slots` or `out` does not have one element for each cell.
    pub(super) fn unrolled<T: Copy + Sync, U: Send>(&self, slots: &[T], out: &mut [U], value: impl Fn(T) -> U + Sync) {
        let Shape([nx, ny, nz]) = self.shape;
        assert_eq!(out.len(), self.shape.cells(), "number of cells");
        let [first_x, first_y, first_z] = [0, 1, 2].map(|axis| self.first_slot(axis));
        out.par_chunks_mut(nz).enumerate().for_each(|(run, out)| {
            let slot = (run / ny + first_x) % nx * ny + (run % ny + first_y) % ny;
            let (far, near) = slots[slot * nz..][..nz].split_at(first_z);
            for (out, slot) in out.iter_mut().zip(near.iter().chain(far)) {
                *out = value(*slot);
            }
        });
    }

    /// Moves the box so that its first cell has the grid index `corner`, and sets the slots of the cells that enter to
    /// `empty`. Returns the number of these cells.
    pub(super) fn move_to<T: Copy + Send + Sync>(&mut self, corner: [i64; 3], slots: &mut [T], empty: T) -> u64 {
        let (before, Shape([nx, ny, nz])) = (*self, self.shape);
        self.corner = corner;
        // A volume without colour has no slots for colours.
        if before == *self || slots.is_empty() {
            return 0;
        }
        // True for each slot along an axis whose cell is another one than before.
        let enters: [Vec<bool>; 3] = std::array::from_fn(|axis| {
            let n = self.shape.0[axis];
            let cell = |window: &Self, slot: usize| {
                window.corner[axis].wrapping_add(((slot + n - window.first_slot(axis)) % n) as i64)
            };
            (0..n).map(|slot| cell(self, slot) != cell(&before, slot)).collect()
        });
        let [x, y, z] = &enters;
        let runs = slots.par_chunks_mut(nz).enumerate();
        runs.for_each(|(run, slots)| match x[run / ny] || y[run % ny] {
            true => slots.fill(empty),
            false => slots
                .iter_mut()
                .zip(z)
                .filter(|(_, enters)| **enters)
                .for_each(|(slot, _)| *slot = empty),
        });
        let stay = |enters: &[bool]| enters.iter().filter(|enters| !**enters).count();
        (nx * ny * nz - stay(x) * stay(y) * stay(z)) as u64
    }
}

/// Set of cells, as a bitmap. A line of cells along z has its own words: cell z is bit `z % 64` of word `z / 64`.
///
/// No word belongs to two lines, so threads can write different lines at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bits {
    shape: Shape,
    words: Vec<u64>,
}

impl Bits {
    /// Creates an empty set of cells of a map of this shape.
    pub fn new(shape: Shape) -> Self {
        let words = shape.runs() * words_of_run(shape);
        Self {
            shape,
            words: vec![0; words],
        }
    }

    /// Creates the set of all cells for which `contains` is true.
    pub fn from_fn(shape: Shape, contains: impl Fn([usize; 3]) -> bool + Sync) -> Self {
        let mut bits = Self::new(shape);
        let [_, y, cells] = shape.0;
        let words = bits.words.par_chunks_mut(words_of_run(shape)).enumerate();
        words.for_each(|(run, words)| {
            for z in (0..cells).filter(|&z| contains([run / y, run % y, z])) {
                words[z / 64] |= 1 << (z % 64);
            }
        });
        bits
    }

    /// Number of cells of the map along each axis, in the set or not.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Number of cells in the set.
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// True if the set contains the cell `[x, y, z]`.
    pub fn contains(&self, [x, y, z]: [usize; 3]) -> bool {
        self.run(x * self.shape.0[1] + y)[z / 64] >> (z % 64) & 1 == 1
    }

    /// Adds the cell `[x, y, z]` to the set.
    pub fn insert(&mut self, [x, y, z]: [usize; 3]) {
        let run = (x * self.shape.0[1] + y) * words_of_run(self.shape);
        self.words[run + z / 64] |= 1 << (z % 64);
    }

    /// Projects the set along z: returns a set of shape `[1, X, Y]` that contains `[0, x, y]` if this set has a cell
    /// there with `low <= z < high`.
    pub fn flattened(&self, low: usize, high: usize) -> Self {
        let [x, y, _] = self.shape.0;
        Self::from_fn(Shape([1, x, y]), |[_, i, j]| {
            self.run(i * y + j).iter().enumerate().any(|(i, word)| {
                let from = low.saturating_sub(i * 64).min(64);
                let to = high.saturating_sub(i * 64).min(64);
                from < to && word >> from << (64 - (to - from)) != 0
            })
        })
    }

    /// Writes the set as bytes, without padding between lines: cell `i` is bit `i % 8`, least significant first,
    /// of byte `i / 8`.
    ///
    /// # Panics
    /// If `out` does not have a byte for every 8 cells.
    pub(super) fn pack(&self, out: &mut [u8]) {
        assert_eq!(out.len(), self.shape.cells().div_ceil(8), "number of bytes");
        out.fill(0);
        for run in 0..self.shape.runs() {
            for (i, &word) in self.run(run).iter().enumerate() {
                let mut word = word;
                while word != 0 {
                    let cell = run * self.shape.0[2] + i * 64 + word.trailing_zeros() as usize;
                    out[cell / 8] |= 1 << (cell % 8);
                    word &= word - 1;
                }
            }
        }
    }

    /// Returns the bitmap words of one line of cells along z. The line at x and y has the index `run = x * Y + y`.
    pub(super) fn run(&self, run: usize) -> &[u64] {
        let words = words_of_run(self.shape);
        &self.words[run * words..][..words]
    }
}

/// Checks that the edge of a cell is 0.0001 to 1000 m.
pub(super) fn check_voxel_size(voxel_size_m: f64) -> Result<(), ConfigError> {
    match (1e-4..=1e3).contains(&voxel_size_m) {
        true => Ok(()),
        false => refused("voxel_size_m", format!("{voxel_size_m} (allowed: 0.0001 to 1000 m)")),
    }
}

/// Number of bitmap words for one line of cells along z.
pub(super) fn words_of_run(shape: Shape) -> usize {
    shape.0[2].div_ceil(64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_that_are_refused() {
        assert_eq!(Shape::new([1, 4096, 512]), Ok(Shape([1, 4096, 512])));
        let allowed = "(allowed: 1 to 4096 cells an axis, 2147483648 in all)";
        for shape in [[0, 1, 1], [1, 4097, 1], [4096, 4096, 129]] {
            assert_eq!(
                Shape::new(shape).unwrap_err().to_string(),
                format!("shape: {shape:?} {allowed}")
            );
        }
    }

    #[test]
    fn columns_between_two_heights() {
        let mut bits = Bits::new(Shape([2, 2, 130]));
        for cell in [[0, 0, 0], [0, 1, 63], [1, 0, 64], [1, 1, 129]] {
            bits.insert(cell);
        }
        let columns = |low, high| {
            let flat = bits.flattened(low, high);
            [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1]].map(|cell| flat.contains(cell))
        };
        assert_eq!(columns(0, 130), [true; 4]);
        assert_eq!(columns(1, 64), [false, true, false, false]);
        assert_eq!(columns(63, 65), [false, true, true, false]);
        assert_eq!(columns(64, 129), [false, false, true, false]);
        assert_eq!(columns(129, 130), [false, false, false, true]);
        assert_eq!(columns(5, 5), [false; 4]);
    }

    #[test]
    fn cells_keep_their_slots() {
        let mut window = Window::new(Shape([3, 1, 4]));
        let mut slots: Vec<usize> = (0..12).collect();
        assert_eq!(window.move_to([1, 0, -1], &mut slots, 99), 12 - 2 * 3);
        // Cell (1, 0, 0) of the grid is the first along x, and the second along z.
        assert_eq!(slots[window.slot([0, 0, 1])], 4);
        assert_eq!(slots[window.slot([1, 0, 3])], 10);
        assert_eq!(slots[window.slot([2, 0, 1])], 99);
        assert_eq!(slots[window.slot([0, 0, 0])], 99);
        assert_eq!(slots.iter().filter(|&&slot| slot == 99).count(), 6);
        assert_eq!(window.place_of_run(window.slot([2, 0, 0]) / 4), [2, 0]);
    }
}

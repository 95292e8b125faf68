//! The set of occupied cells, as a bitmap.

use super::grid::VoxelGrid;
use super::kernels::{self, Indexed, Kept, bits};

/// Cells by their index, as a bitmap: the number of a cell among the occupied ones is a count of bits, so that nothing
/// is sorted and nothing is hashed.
///
/// A second bitmap says which words of the first are in use. Only those are read and cleared.
pub(super) struct CellSet {
    words: Vec<u64>,
    used: Vec<u64>,
    /// Of each word in use: the occupied cells before it. Filled by [`Self::number`].
    ranks: Vec<u32>,
}

/// A bitmap and the bitmap of its words in use: cell `i` is bit `i % 64` of word `i / 64`, and so again.
pub(super) struct Bitmap<'a> {
    pub(super) words: &'a mut [u64],
    pub(super) used: &'a mut [u64],
}

impl CellSet {
    pub(super) fn new(cells: usize) -> Self {
        let words = cells.div_ceil(64);
        Self {
            words: vec![0; words],
            used: vec![0; words.div_ceil(64)],
            ranks: vec![0; words],
        }
    }

    /// Inserts the cells of the points that are in the grid: see [`kernels::index`].
    pub(super) fn insert(&mut self, grid: &VoxelGrid, xyz: [&[f32]; 3], first: u32, kept: &mut [Kept]) -> Indexed {
        let bitmap = Bitmap {
            words: &mut self.words,
            used: &mut self.used,
        };
        kernels::index(grid, xyz, first, bitmap, kept)
    }

    /// Empties the set.
    pub(super) fn clear(&mut self) {
        for (i, used) in self.used.iter_mut().enumerate() {
            for bit in bits(*used) {
                self.words[i * 64 + bit] = 0;
            }
            *used = 0;
        }
    }

    /// Numbers the occupied cells in cell order, an exclusive scan over the words, and returns how many there are.
    pub(super) fn number(&mut self) -> usize {
        kernels::number(&self.words, &self.used, &mut self.ranks)
    }

    /// How many cells are occupied.
    pub(super) fn count(&self) -> usize {
        self.used_words().map(|(_, word)| word.count_ones() as usize).sum()
    }

    /// The numbers of the cells of points, `limit` for those from `limit` on. Returns how many those are.
    pub(super) fn find(&self, kept: &[Kept], limit: u32, slots: &mut [u32]) -> usize {
        kernels::find(&self.words, &self.ranks, kept, limit, slots)
    }

    /// The first cells in cell order, as many as there is room for.
    pub(super) fn list(&self, cells: &mut [u32]) {
        kernels::list(&self.words, &self.used, cells);
    }

    /// The coordinates of the first cells in cell order, as many as there is room for.
    pub(super) fn coordinates(&self, grid: &VoxelGrid, coords: &mut [i32]) {
        let [_, ny, nz] = grid.shape().map(|n| n as u32);
        kernels::coordinates(&self.words, &self.used, ny, nz, coords);
    }

    /// The words that hold an occupied cell: cell `i` is bit `i % 64` of word `i / 64`.
    pub(super) fn used_words(&self) -> impl Iterator<Item = (usize, u64)> {
        self.used
            .iter()
            .enumerate()
            .flat_map(|(i, &used)| bits(used).map(move |bit| i * 64 + bit))
            .map(|word| (word, self.words[word]))
    }
}

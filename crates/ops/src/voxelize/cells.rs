//! Set of a grid's occupied cells: a bitmap that is reused for each grid. A second bitmap marks the words in use; every
//! other word is 0.

use super::grid::VoxelGrid;
use super::kernels::{self, Bitmap, Indexed, Kept, bits};

/// Set of occupied cells, as a bitmap. The rank of a cell is its index among the occupied cells in cell order: the
/// number of set bits before it. So nothing is sorted or hashed.
///
/// A second bitmap marks the words of the first bitmap that are in use. Only these words are read and cleared.
pub(super) struct CellSet {
    words: Vec<u64>,
    used: Vec<u64>,
    /// Number of occupied cells before each bitmap word in use. Computed by [`Self::rank`].
    ranks: Vec<u32>,
    /// Indices of the occupied cells, ascending. Computed by [`Self::rank`].
    list: Vec<u32>,
}

impl CellSet {
    pub(super) fn new(cells: usize) -> Self {
        let words = cells.div_ceil(64);
        Self {
            words: vec![0; words],
            used: vec![0; words.div_ceil(64)],
            ranks: vec![0; words],
            list: Vec::new(),
        }
    }

    /// Finds the cell of each point of a block, and marks the cells as occupied. Lists the points inside the grid and
    /// their cells in `kept`. Returns counts of the points.
    pub(super) fn insert(&mut self, grid: &VoxelGrid, xyz: [&[f32]; 3], kept: Kept<'_>) -> Indexed {
        let bitmap = Bitmap {
            words: &mut self.words,
            used: &mut self.used,
        };
        kernels::index(grid, xyz, bitmap, kept)
    }

    pub(super) fn clear(&mut self) {
        for (i, used) in self.used.iter_mut().enumerate() {
            for bit in bits(*used) {
                self.words[i * 64 + bit] = 0;
            }
            *used = 0;
        }
    }

    /// Ranks the occupied cells, lists them in cell order, and returns their number. `at_most` is an upper bound of
    /// that number, for which memory is reserved.
    pub(super) fn rank(&mut self, at_most: usize) -> usize {
        let room = at_most + kernels::LIST_STEP;
        if self.list.len() < room {
            self.list.resize(room, 0);
        }
        kernels::rank(&self.words, &self.used, &mut self.ranks, &mut self.list)
    }

    /// The number of occupied cells.
    pub(super) fn count(&self) -> usize {
        self.used_words().map(|(_, word)| word.count_ones() as usize).sum()
    }

    /// Writes the rank of each point's cell to `slots`, or `limit` if the rank is `limit` or greater. Returns the
    /// number of points whose rank was limited.
    pub(super) fn find(&self, cells: &[u32], limit: u32, slots: &mut [u32]) -> usize {
        kernels::find(&self.words, &self.ranks, cells, limit, slots)
    }

    /// The indices of the occupied cells, ascending, as [`Self::rank`] listed them. Elements beyond the number that it
    /// returned are stale.
    pub(super) fn list(&self) -> &[u32] {
        &self.list
    }

    /// Iterates over the bitmap words that hold an occupied cell, and their indices. Cell `i` is bit `i % 64`
    /// of word `i / 64`.
    pub(super) fn used_words(&self) -> impl Iterator<Item = (usize, u64)> {
        self.used
            .iter()
            .enumerate()
            .flat_map(|(i, &used)| bits(used).map(move |bit| i * 64 + bit))
            .map(|word| (word, self.words[word]))
    }
}

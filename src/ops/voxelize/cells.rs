//! The set of occupied cells.

use super::kernels::{self, bits};

/// Cells by their index, as a bitmap: the place of a cell among the occupied ones is a count of bits, so that nothing
/// is sorted and nothing is hashed.
///
/// A second bitmap says which words of the first are in use. Only those are read and cleared.
pub(super) struct CellSet {
    words: Vec<u64>,
    used: Vec<u64>,
    /// Of each word in use: the occupied cells before it. Filled by [`Self::number`].
    ranks: Vec<u32>,
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

    pub(super) fn insert(&mut self, cells: &[u32]) {
        kernels::set_bits(&mut self.words, &mut self.used, cells);
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

    /// Numbers the occupied cells in cell order, puts the first `limit` of them in `order`, and returns how many
    /// there are.
    pub(super) fn number(&mut self, limit: usize, order: &mut Vec<u32>) -> usize {
        kernels::number(&self.words, &self.used, &mut self.ranks, limit, order)
    }

    /// Replaces occupied cells by their numbers, those from `limit` on by `limit`, and returns how many those are.
    pub(super) fn find(&self, limit: u32, cells: &mut [u32]) -> usize {
        kernels::find(&self.words, &self.ranks, limit, cells)
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

//! The layout of counters, counts and bitmaps in the memory of grids.

use super::params::{COUNTER_SLOTS, MAX_SUPERBLOCKS, RANK_BLOCK};
use robocache_device::Dtype;

/// Binary logarithm of the words of the smallest superblock: two words for each thread of a block of [`RANK`].
const SUPERBLOCK_SHIFT: u32 = RANK_BLOCK.ilog2() + 1;
/// The sizes of a grid's bitmap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) cells: usize,
    pub(super) words: usize,
    pub(super) superblocks: usize,
    pub(super) shift: u32,
    /// Fields beside x, y and z.
    pub(super) fields: usize,
}

impl Sizes {
    /// The sizes of a grid without a bitmap.
    pub(super) fn without_bitmap(cells: usize, fields: usize) -> Self {
        Self {
            cells,
            words: 0,
            superblocks: 0,
            shift: SUPERBLOCK_SHIFT,
            fields,
        }
    }

    pub(super) fn of(cells: usize, fields: usize) -> Self {
        let words = cells.div_ceil(32);
        let mut shift = SUPERBLOCK_SHIFT;
        while words.div_ceil(1 << shift) > MAX_SUPERBLOCKS {
            shift += 1;
        }
        let superblocks = words.div_ceil(1 << shift);
        Self {
            cells,
            words: superblocks << shift,
            superblocks,
            shift,
            fields,
        }
    }

    /// Byte offsets of counters, counts and words in the memory of a state of `grids` grids, and its end.
    pub(super) fn layout(&self, grids: usize) -> [usize; 4] {
        let counts = self.saturated(grids) + grids * 8;
        let words = (counts + grids * self.superblocks * 4).next_multiple_of(ALIGNMENT);
        [0, counts, words, words + grids * self.words * 4]
    }

    /// Byte offset of the counts of unusable values, one for each field of each grid, behind the counters.
    pub(super) fn unusable(&self, grids: usize) -> usize {
        grids * COUNTER_BYTES
    }

    /// Byte offset of the counts of values that a dense output can't hold, one for each grid, behind the counts of unusable
    /// values.
    pub(super) fn saturated(&self, grids: usize) -> usize {
        self.unusable(grids) + grids * self.fields * 8
    }

    /// Mask of the cells that share a sector, 32 bytes of a dense output; of a single cell, if a grid is not a whole number
    /// of sectors.
    pub(super) fn sector_mask(&self, dtype: Dtype) -> u32 {
        match 32 / dtype.size() {
            cells if !self.cells.is_multiple_of(cells) => 1,
            8 => 0xff,
            _ => 0xffff,
        }
    }
}

const ALIGNMENT: usize = 256;
/// Bytes of the counters of a grid.
pub(super) const COUNTER_BYTES: usize = COUNTER_SLOTS * 32;

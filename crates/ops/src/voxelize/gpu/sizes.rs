//! The layout of counters, counts and bitmaps in the memory of grids. The counters come first, and the aligned bitmaps
//! last.

use super::params::{COUNTER_SLOTS, MAX_SUPERBLOCKS, RANK_BLOCK};
use robocache_device::Dtype;

/// Binary logarithm of the number of bitmap words in the smallest superblock, which one block of `RANK` ranks: two
/// words for each thread.
const SUPERBLOCK_SHIFT: u32 = RANK_BLOCK.ilog2() + 1;
/// The numbers of cells, bitmap words, superblocks and fields of a grid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) cells: usize,
    pub(super) words: usize,
    pub(super) superblocks: usize,
    pub(super) shift: u32,
    /// Number of fields beside x, y and z that channels are computed from.
    pub(super) fields: usize,
}

impl Sizes {
    /// Returns the sizes of a grid without a bitmap.
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

    /// Byte offsets of the counters, the superblocks' counts and the bitmap words of `grids` grids in a state's memory,
    /// followed by the size of this memory, bytes.
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

    /// Mask with a bit for each cell that a sector (32 bytes) of a dense output holds; 1 if a grid is not a whole
    /// number of sectors.
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

//! The outputs of a window, and where each of them goes.

use super::Timeline;
use robocache_stream::Layout;
use std::ops::Range;

/// An output of a window: a range of modalities side by side, `[T, D]` row-major.
#[derive(Clone, Debug)]
pub struct Output {
    modalities: Range<usize>,
    offsets: Vec<i64>,
    layout: Layout,
}

impl Output {
    /// Creates the output of a range of the modalities of a timeline.
    pub fn new(timeline: &Timeline, modalities: Range<usize>) -> Self {
        let mut offsets = vec![0];
        let mut columns = 0;
        for modality in modalities.clone() {
            columns += timeline.dim(modality);
            offsets.push(columns as i64);
        }
        Self {
            modalities,
            offsets,
            layout: Layout::flat(timeline.dtype(), timeline.window() * columns),
        }
    }

    /// The modalities of the output.
    pub fn modalities(&self) -> Range<usize> {
        self.modalities.clone()
    }

    /// The M + 1 offsets of the columns: the output's m-th modality is columns `offsets[m]..offsets[m + 1]`.
    pub fn offsets(&self) -> &[i64] {
        &self.offsets
    }

    /// D, the number of columns.
    pub fn columns(&self) -> usize {
        self.offsets.last().map_or(0, |&columns| columns as usize)
    }

    /// The layout of the payload: a flat array of T * D elements.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The size of the values, bytes.
    pub fn bytes(&self) -> usize {
        let columns = self.layout.columns.iter();
        columns
            .map(|column| column.len(self.layout.rows) * column.dtype.size())
            .sum()
    }
}

/// Memory in which an output is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Nowhere: the output is not computed.
    Nowhere,
    /// Host memory.
    Host,
    /// Memory of the device of [`Aligner::output_gpu`](super::Aligner::output_gpu).
    Device,
}

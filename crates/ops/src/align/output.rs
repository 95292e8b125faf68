//! Outputs of a window: the modalities and the layout of each, and the memory to which each goes.

use super::Timeline;
use robocache_stream::Layout;
use std::ops::Range;

/// One output of a window: the columns of a range of modalities side by side, `[T, D]` row-major.
#[derive(Clone, Debug)]
pub struct Output {
    modalities: Range<usize>,
    offsets: Vec<i64>,
    layout: Layout,
}

impl Output {
    /// Creates the output for a range of the modalities of a timeline.
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

    /// Returns the indices of the modalities whose columns the output has.
    pub fn modalities(&self) -> Range<usize> {
        self.modalities.clone()
    }

    /// Returns the first column of each modality, and last the number of columns: the m-th modality of the output has columns
    /// `offsets[m]..offsets[m + 1]`.
    pub fn offsets(&self) -> &[i64] {
        &self.offsets
    }

    /// Returns D, the number of columns of all modalities of the output.
    pub fn columns(&self) -> usize {
        self.offsets.last().map_or(0, |&columns| columns as usize)
    }

    /// Returns the layout of the payload: a flat array of T * D elements of the published type.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the size of the values of all T rows, bytes.
    pub fn bytes(&self) -> usize {
        let columns = self.layout.columns.iter();
        columns
            .map(|column| column.len(self.layout.rows) * column.dtype.size())
            .sum()
    }
}

/// Memory to which an output of a window goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The output is not computed.
    Nowhere,
    /// Host memory: [`Window::write`](super::Window::write) copies the output there.
    Host,
    /// Device memory, on the device of [`Aligner::output_gpu`](super::Aligner::output_gpu). If the CPU computes the output, it
    /// goes to host memory instead.
    Device,
}

//! Shape of a volume and its set of cells as bits.

/// Number of cells of a volume along x, y and z. Cell `(x, y, z)` has the index `(x * Y + y) * Z + z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape(pub [usize; 3]);

impl Shape {
    /// Greatest number of cells along an axis: squared distances of three axes then fit in 31 bits, and walks along a ray in 64.
    pub const MAX_AXIS: usize = 4096;

    /// Number of cells.
    pub fn cells(self) -> usize {
        self.0.iter().product()
    }

    /// Number of runs of cells along z, each of which begins with a new word of a [`Bits`].
    pub fn runs(self) -> usize {
        self.0[0] * self.0[1]
    }

    /// The coordinates of the cells' centres along each axis, metres, in float32: of a volume whose corner with the least coordinates
    /// is `origin_m` and whose cells have edges of `voxel_size_m`.
    pub(super) fn centres(self, origin_m: [f64; 3], voxel_size_m: f64) -> [Vec<f32>; 3] {
        let centre = |axis: usize, i: usize| (origin_m[axis] + (i as f64 + 0.5) * voxel_size_m) as f32;
        std::array::from_fn(|axis| (0..self.0[axis]).map(|i| centre(axis, i)).collect())
    }
}

/// A set of cells: bit `z % 64` of word `z / 64` in the run of words that belongs to x and y.
///
/// Each run begins with a word of its own, so that threads write runs without sharing a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bits {
    shape: Shape,
    words: Vec<u64>,
}

impl Bits {
    /// Makes the empty set.
    pub fn new(shape: Shape) -> Self {
        let words = shape.runs() * words_of_run(shape);
        Self {
            shape,
            words: vec![0; words],
        }
    }

    /// Makes the set of the cells for which `contains` is true; the argument is the index of a cell.
    pub fn from_fn(shape: Shape, contains: impl Fn(usize) -> bool + Sync) -> Self {
        use rayon::prelude::*;
        let mut bits = Self::new(shape);
        let [_, _, cells] = shape.0;
        let words = bits.words.par_chunks_mut(words_of_run(shape)).enumerate();
        words.for_each(|(run, words)| {
            for z in (0..cells).filter(|z| contains(run * cells + z)) {
                words[z / 64] |= 1 << (z % 64);
            }
        });
        bits
    }

    /// Number of cells along each axis.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Number of cells in the set.
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// True if the set contains the cell.
    pub fn contains(&self, [x, y, z]: [usize; 3]) -> bool {
        self.run(x * self.shape.0[1] + y)[z / 64] >> (z % 64) & 1 == 1
    }

    /// Adds the cell to the set.
    pub fn insert(&mut self, [x, y, z]: [usize; 3]) {
        let run = (x * self.shape.0[1] + y) * words_of_run(self.shape);
        self.words[run + z / 64] |= 1 << (z % 64);
    }

    /// The columns of cells with at least one cell of the set at `low <= z < high`: a set of shape `[1, X, Y]`, in which a column
    /// has the index `x * Y + y`.
    pub fn flattened(&self, low: usize, high: usize) -> Self {
        let [x, y, _] = self.shape.0;
        Self::from_fn(Shape([1, x, y]), |run| {
            self.run(run).iter().enumerate().any(|(i, word)| {
                let from = low.saturating_sub(i * 64).min(64);
                let to = high.saturating_sub(i * 64).min(64);
                from < to && word >> from << (64 - (to - from)) != 0
            })
        })
    }

    /// The words of the cells of one x and y, whose number is `x * Y + y`.
    pub(super) fn run(&self, run: usize) -> &[u64] {
        let words = words_of_run(self.shape);
        &self.words[run * words..][..words]
    }
}

/// Number of words of the cells of one x and y.
pub(super) fn words_of_run(shape: Shape) -> usize {
    shape.0[2].div_ceil(64)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}

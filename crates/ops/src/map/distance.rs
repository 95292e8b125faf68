//! Distances to the nearest obstacle: the exact Euclidean distance transform of a set of cells, the sites.
//!
//! There is one pass for each axis. The pass along z finds the nearest site on the same line along z. For each index i
//! of a line along y or x, the later passes find the index j with the least `square(j) + (i - j)^2`. Here `square(j)`
//! is the squared distance that the earlier passes found at j.
//!
//! As i grows, j never decreases, so the results of two indices bound the search between them. All numbers are
//! integers, so the order of the search does not change a result.

use super::volume::{Bits, Shape};
use rayon::prelude::*;

/// Squared distance of a cell for which the passes so far found no site. A sum with a squared distance still fits
/// in 32 bits.
const FAR: i32 = 1 << 30;
/// Number of neighbouring lines along y or x that are searched together, one in each SIMD lane.
const TILE: usize = 16;

/// Computes distance transforms, and keeps scratch memory from one to the next.
#[derive(Debug, Default)]
pub struct DistanceTransform {
    squares: Vec<i32>,
}

impl DistanceTransform {
    /// Writes the squared distance from each cell to the nearest cell of `sites`, in squared cell edges. A distance
    /// above `limit` is written as `limit + 1`, as is every distance if `sites` is empty. A `limit` above 2^30 - 1,
    /// which no distance reaches, acts as 2^30 - 1.
    ///
    /// `out` has one element for each cell, in the order of the cells' indices.
    ///
    /// # Panics
    /// If the length of `out` is not the number of cells.
    pub fn squared(&mut self, sites: &Bits, limit: u32, out: &mut [i32]) {
        let Shape([x, y, z]) = sites.shape();
        assert_eq!(sites.shape().cells(), out.len(), "number of distances");
        let limit = limit.min(FAR as u32 - 1) as i32;
        self.squares.resize(out.len(), 0);
        let slabs = self.squares.par_chunks_mut(y * z).enumerate();
        slabs.for_each_init(Lines::default, |lines, (i, slab)| {
            for (j, run) in slab.chunks_mut(z).enumerate() {
                squares_along_run(sites.run(i * y + j), run);
            }
            for first in (0..z).step_by(TILE) {
                let width = TILE.min(z - first);
                if lines.load(slab, first, z, y, width) {
                    for (row, run) in lines.nearest.iter().zip(slab.chunks_mut(z)) {
                        copy(row, &mut run[first..][..width]);
                    }
                }
            }
        });
        // A line along x crosses all slabs, so the threads share the planes along y.
        let tiles = z.div_ceil(TILE);
        let (squares, out) = (&self.squares, Shared(out.as_mut_ptr(), out.len()));
        (0..y * tiles)
            .into_par_iter()
            .for_each_init(Lines::default, |lines, tile| {
                let (j, first) = (tile / tiles, tile % tiles * TILE);
                let (start, width) = (j * z + first, TILE.min(z - first));
                lines.load(squares, start, y * z, x, width);
                for (i, row) in lines.nearest.iter().enumerate() {
                    let row = row.map(|square| square.min(limit + 1));
                    // SAFETY: the cells of different tiles are different, and the last one is below the number of cells.
                    let entries = unsafe { out.entries(i * y * z + start, width) };
                    copy(&row, entries);
                }
            });
    }
}

/// Pointer to a slice, and its length. Threads write disjoint elements of the slice.
#[derive(Clone, Copy)]
struct Shared(*mut i32, usize);

// SAFETY: it gives access to entries only by `entries`, whose callers use each entry in one thread.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Returns the `count` elements from index `first` on.
    ///
    /// # Safety
    /// No other thread accesses these entries while the result is used, and they are in the slice.
    unsafe fn entries<'a>(self, first: usize, count: usize) -> &'a mut [i32] {
        debug_assert!(first + count <= self.1);
        // SAFETY: the caller vouches for it.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(first), count) }
    }
}

/// Writes the squared distance along z from each cell of a line of cells to the nearest set bit of `words`.
fn squares_along_run(words: &[u64], squares: &mut [i32]) {
    if words.iter().all(|&word| word == 0) {
        return squares.fill(FAR);
    }
    // A number of cells that is more than that of any run, and whose square is FAR.
    let mut steps = 1 << 15;
    let is_set = |z: usize| words[z / 64] >> (z % 64) & 1 == 1;
    for (z, square) in squares.iter_mut().enumerate() {
        steps = if is_set(z) { 0 } else { steps.min((1 << 15) - 1) + 1 };
        *square = steps;
    }
    steps = 1 << 15;
    for (z, square) in squares.iter_mut().enumerate().rev() {
        steps = if is_set(z) { 0 } else { steps.min((1 << 15) - 1) + 1 };
        let nearest = steps.min(*square);
        *square = nearest * nearest;
    }
}

/// Copies the first `to.len()` elements of a row.
fn copy(row: &[i32; TILE], to: &mut [i32]) {
    match to.as_mut_array::<TILE>() {
        Some(to) => *to = *row,
        None => to.copy_from_slice(&row[..to.len()]),
    }
}

/// Squared distances of [`TILE`] neighbouring lines: row i has the value at index i of every line.
#[derive(Default)]
struct Lines {
    rows: Vec<[i32; TILE]>,
    /// Least `square(j) + (i - j)^2` over all indices j, for each index i and each line.
    nearest: Vec<[i32; TILE]>,
    /// Least and greatest of the minimizing indices j of all lines, for each index i. They bound the search
    /// for other i.
    places: Vec<[usize; 2]>,
}

impl Lines {
    /// Reads `width` lines of `length` values, and fills in `nearest`. The values at index i begin at
    /// `from[start + i * stride]`. Returns false if no line has a site.
    fn load(&mut self, from: &[i32], start: usize, stride: usize, length: usize, width: usize) -> bool {
        self.rows.resize(length, [FAR; TILE]);
        self.nearest.resize(length, [FAR; TILE]);
        self.places.resize(length, [0; 2]);
        let mut least = FAR;
        for (i, row) in self.rows.iter_mut().enumerate() {
            let from = &from[start + i * stride..][..width];
            match from.as_array::<TILE>() {
                Some(from) => *row = *from,
                None => {
                    // The other lanes repeat one, so that they do not widen the search.
                    row.fill(from[0]);
                    row[..width].copy_from_slice(from);
                }
            }
            least = row.iter().fold(least, |least, &square| least.min(square));
        }
        if least < FAR {
            search(self);
        } else {
            self.nearest.fill([FAR; TILE]);
        }
        least < FAR
    }
}

multiversion! {
    /// Fills in `nearest` for every index: index 0 first, then repeatedly the indices halfway between those
    /// that are done.
    fn search(lines: &mut Lines) {
        let Lines { rows, nearest, places } = lines;
        let last = rows.len() - 1;
        (nearest[0], places[0]) = least(rows, 0, [0, last]);
        let mut step = rows.len().next_power_of_two() / 2;
        while step > 0 {
            for i in (step..=last).step_by(2 * step) {
                let from = places[i - step][0];
                let to = places.get(i + step).map_or(last, |places| places[1]);
                (nearest[i], places[i]) = least(rows, i, [from, to]);
            }
            step /= 2;
        }
    }
}

/// Returns the least `square(j) + (i - j)^2` of each line over the indices j from `from` to `to`, inclusive. Also
/// returns the least and the greatest minimizing j over all lines.
#[inline(always)]
fn least(rows: &[[i32; TILE]], i: usize, [from, to]: [usize; 2]) -> ([i32; TILE], [usize; 2]) {
    let (mut best, mut place) = ([i32::MAX; TILE], [0; TILE]);
    for (j, row) in rows.iter().enumerate().take(to + 1).skip(from) {
        let apart = i.abs_diff(j) as i32;
        let added = apart * apart;
        for lane in 0..TILE {
            let square = row[lane] + added;
            let is_less = square < best[lane];
            best[lane] = if is_less { square } else { best[lane] };
            place[lane] = if is_less { j as i32 } else { place[lane] };
        }
    }
    let first = place.iter().fold(i32::MAX, |first, &place| first.min(place));
    let last = place.iter().fold(0, |last, &place| last.max(place));
    (best.map(|square| square.min(FAR)), [first as usize, last as usize])
}

/// Converts a squared distance in cells to a distance in metres.
pub fn metres(square: i32, voxel_size_m: f32) -> f32 {
    (square as f32).sqrt() * voxel_size_m
}

/// Returns the greatest squared distance, in cells, that is within `max_distance_m`, 0 or more. A tolerance of 1e-9
/// makes up for rounding: 0.3 / 0.1 is less than 3 in float64, but the limit is 9.
pub fn limit_of(max_distance_m: f64, voxel_size_m: f64) -> u32 {
    let cells = max_distance_m / voxel_size_m;
    (cells * cells * (1.0 + 1e-9)).min(f64::from(FAR - 1)).floor() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the squared distance of each cell by comparing the cell with every site.
    fn oracle(sites: &Bits, limit: u32) -> Vec<i32> {
        let Shape([x, y, z]) = sites.shape();
        let cells: Vec<[usize; 3]> = (0..x * y * z).map(|i| [i / z / y, i / z % y, i % z]).collect();
        let occupied: Vec<_> = cells.iter().filter(|cell| sites.contains(**cell)).collect();
        let square = |a: &[usize; 3], b: &[usize; 3]| (0..3).map(|k| a[k].abs_diff(b[k]).pow(2) as u32).sum();
        let least = |cell| occupied.iter().map(|site| square(cell, site)).min().unwrap_or(u32::MAX);
        cells.iter().map(|cell| least(cell).min(limit + 1) as i32).collect()
    }

    fn squared(sites: &Bits, limit: u32) -> Vec<i32> {
        let mut out = vec![-1; sites.shape().cells()];
        DistanceTransform::default().squared(sites, limit, &mut out);
        out
    }

    #[test]
    fn two_sites_on_a_plane() {
        let mut sites = Bits::new(Shape([5, 3, 1]));
        sites.insert([0, 0, 0]);
        sites.insert([4, 2, 0]);
        let expected = [0, 1, 4, 1, 2, 5, 4, 5, 4, 5, 2, 1, 4, 1, 0];
        assert_eq!(squared(&sites, 100), expected);
        assert_eq!(squared(&sites, 3), expected.map(|square| square.min(4)));
    }

    #[test]
    fn every_distance_is_the_least_over_all_sites() {
        let mut state = 1u64;
        let mut random = move |n: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        };
        for _ in 0..200 {
            let shape = Shape([1 + random(20), 1 + random(20), 1 + random(70)]);
            let mut sites = Bits::new(shape);
            for _ in 0..[0, 1, 2, 10, 500][random(5)] {
                sites.insert(shape.0.map(&mut random));
            }
            let limit = [0, 1, 50, 10_000][random(4)];
            assert_eq!(
                squared(&sites, limit),
                oracle(&sites, limit),
                "{shape:?}, limit {limit}"
            );
        }
    }

    #[test]
    fn a_full_and_an_empty_set() {
        let shape = Shape([3, 4, 65]);
        assert_eq!(squared(&Bits::new(shape), 7), vec![8; shape.cells()]);
        assert_eq!(squared(&Bits::from_fn(shape, |_| true), 7), vec![0; shape.cells()]);
    }

    #[test]
    fn limits_are_in_cells() {
        assert_eq!(limit_of(2.0, 0.02), 10_000);
        assert_eq!(limit_of(0.07, 0.02), 12);
        assert_eq!(limit_of(0.3, 0.1), 9);
        assert_eq!(limit_of(f64::INFINITY, 0.1), (1 << 30) - 1);
        assert_eq!(metres(25, 0.5), 2.5);
    }
}

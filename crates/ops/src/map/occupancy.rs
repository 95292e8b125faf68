//! Free and occupied cells as log-odds, from the rays between a sensor and the points that it measured, or
//! from depth images.
//!
//! A scan updates each cell at most once. A cell is a hit if a ray ends in it, or if a depth image shows a surface
//! there. Otherwise it is a miss if a ray passes through it, or if an image shows a surface behind it.
//!
//! Rays are traced in integers, and hits and misses are sets, so the number of threads changes no bit. The order of a
//! sensor's points can change the result: of the points in one cell, only the first one's ray is traced.

use super::frame::{DepthFrame, DistanceAlong, PreparedFrame};
use super::volume::{Bits, Shape, Window, check_voxel_size, words_of_run};
use crate::{ConfigError, refused};
use rayon::prelude::*;
use std::ops::AddAssign;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Scale of the stored log-odds: a log-odds of 1 is stored as 1024.
const ONE: f64 = 1024.0;
/// Stored value of a cell that was never observed: no ray passed through it or hit it.
const UNKNOWN: i16 = i16::MIN;
/// Greatest length of a ray, cells: the offset of its end cell then fits in 14 bits for each axis.
const MAX_RAY_CELLS: f64 = 4096.0;
/// Resolution of ray ends: their coordinates are integers in units of 1/256 cell.
const PARTS: f32 = 256.0;
/// Base-2 logarithm of [`PARTS`].
const PART_BITS: u32 = 8;

/// Configuration of the occupancy of cells: probabilities of a hit and a miss, and limits of rays and probabilities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OccupancyConfig {
    /// Probability, above 0.5, that a cell is occupied after one ray ended in it.
    pub hit: f64,
    /// Probability, below 0.5, that a cell is occupied after one ray passed through it.
    pub miss: f64,
    /// Least and greatest probability of a cell. The limits let a few scans change a cell from free to
    /// occupied or back.
    pub clamp: [f64; 2],
    /// Greatest length of a ray, metres. A longer ray is cut at this length: the cells up to there are misses, and
    /// there is no hit.
    pub max_range_m: f32,
    /// Band around a surface in a depth image, metres: cells within this distance are hits, cells further in
    /// front are misses.
    pub band_m: f32,
    /// Direction in which distances from surfaces in depth images are measured: the optical axis or the pixel's ray.
    pub distance: DistanceAlong,
}

/// Points that a sensor measured from one position, such as one lidar scan.
#[derive(Clone, Copy, Debug)]
pub struct RayBundle<'a> {
    /// Position of the sensor, metres, from the map's corner of least coordinates.
    pub origin: [f32; 3],
    /// The measured points, metres, from the map's corner of least coordinates.
    pub points: &'a [[f32; 3]],
}

/// Counts of a scan's points and of the rays to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RayCounters {
    /// Number of points of the scan.
    pub points_in: u64,
    /// Number of dropped points with a coordinate, or a distance from the sensor, that is not finite.
    pub dropped_nonfinite: u64,
    /// Number of rays that were traced: one for all points of a sensor in the same cell.
    pub rays: u64,
    /// Number of traced rays that pass through cells outside the map, or begin or end there. Such cells
    /// are not updated.
    pub rays_clipped: u64,
}

/// Log-odds that the cells of a box are occupied, updated scan by scan.
#[derive(Debug)]
pub struct Occupancy {
    window: Window,
    /// `1 / voxel_size_m` in float32.
    inverse: f32,
    /// Coordinates of the cells' centres along each axis, metres, from the map's corner of least coordinates.
    centres: [Vec<f32>; 3],
    max_range: f32,
    band: f32,
    distance: DistanceAlong,
    hit: i16,
    miss: i16,
    clamp: [i16; 2],
    /// Log-odds of each cell in units of 1/1024, indexed by [`Window::slot`].
    state: Vec<i16>,
    /// Cells in which rays of the current scan end. Empty between scans.
    hits: SharedBits,
    /// Cells through which rays of the current scan pass. Empty between scans.
    passed: SharedBits,
    ends: Vec<RayEnd>,
}

/// End of a ray: at a measured point, or where the ray is cut.
#[derive(Clone, Copy, Debug)]
struct RayEnd {
    /// Offset of the end cell from the sensor's cell, 14 bits for each axis. Rays are sorted by it, to find those that
    /// share an end cell.
    cell: u64,
    /// Index of the measured point in its [`RayBundle`].
    index: u32,
    /// Coordinates of the end, in units of 1/256 cell.
    at: [i32; 3],
    /// True if the ray ends at the measured point; false if it is cut at `max_range_m`.
    is_hit: bool,
}

/// A ray that is being traced from cell to cell, between two points in units of 1/256 cell.
struct Ray {
    first: [i32; 3],
    last: [i32; 3],
    /// Number of remaining steps along each axis.
    left: [u32; 3],
    /// Direction of a step along each axis: 1 or -1.
    step: [i32; 3],
    /// Time at which the ray crosses the next cell face along each axis. Times are scaled to integers: the ray ends at
    /// the product of its components' magnitudes, with a component of 0 counted as 1.
    crossing: [i64; 3],
    /// Time that the ray takes for 1/256 cell along each axis.
    unit: [i64; 3],
    /// True if the ray ends on faces of two axes at the same time, and crosses only one of them. Tracing by crossing
    /// times alone could then step along the wrong axis.
    may_tie_at_end: bool,
}

impl Ray {
    /// Starts the ray between two points in units of 1/256 cell. Faces that it crosses at the same time are crossed in
    /// the order x, y, z.
    fn new(from: [i32; 3], to: [i32; 3]) -> Self {
        let apart = from.map_axes(|axis, part| i64::from(to[axis]) - i64::from(part));
        let [first, last] = [from, to].map(|parts| parts.map(|part| part >> PART_BITS));
        let length = |axis: usize| apart[axis % 3].abs().max(1);
        let unit = [0, 1, 2].map(|axis| length(axis + 1) * length(axis + 2));
        let part = |value: i32| i64::from(value) & ((1 << PART_BITS) - 1);
        let crossing = from.map_axes(|axis, from| {
            let ahead = if apart[axis] > 0 {
                (1 << PART_BITS) - part(from)
            } else {
                part(from)
            };
            // An axis along which the ray does not move has no next face.
            if apart[axis] == 0 {
                i64::MAX / 2
            } else {
                ahead * unit[axis]
            }
        });
        let arrives =
            |is_up: bool| (0..3).any(|axis| apart[axis] != 0 && (apart[axis] > 0) == is_up && part(to[axis]) == 0);
        Self {
            first,
            last,
            left: first.map_axes(|axis, index| last[axis].abs_diff(index)),
            step: apart.map(|apart| if apart < 0 { -1 } else { 1 }),
            crossing,
            unit,
            may_tie_at_end: arrives(true) && arrives(false),
        }
    }

    fn steps(&self) -> u32 {
        self.left.iter().sum()
    }
}

/// Set of cells, as a bitmap of atomic words, to which several threads add cells.
#[derive(Debug)]
struct SharedBits(Vec<AtomicU64>);

impl SharedBits {
    fn new(shape: Shape) -> Self {
        let words = shape.runs() * words_of_run(shape);
        Self((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    /// Sets the bits of the mask `bits` in a word. Most bits are already set, and a read costs less than
    /// an atomic write.
    #[inline(always)]
    fn insert(&self, word: usize, bits: u64) {
        let word = &self.0[word];
        if bits & !word.load(Ordering::Relaxed) != 0 {
            word.fetch_or(bits, Ordering::Relaxed);
        }
    }
}

impl AddAssign for RayCounters {
    fn add_assign(&mut self, other: Self) {
        self.points_in += other.points_in;
        self.dropped_nonfinite += other.dropped_nonfinite;
        self.rays += other.rays;
        self.rays_clipped += other.rays_clipped;
    }
}

impl Occupancy {
    /// Creates a map of cells that were never observed. `voxel_size_m` is the edge of a cell, metres.
    ///
    /// # Errors
    /// Returns the first key whose value is not allowed, the value, and the allowed values.
    pub fn new(config: &OccupancyConfig, shape: Shape, voxel_size_m: f64) -> Result<Self, ConfigError> {
        check_voxel_size(voxel_size_m)?;
        config.validate(voxel_size_m)?;
        Ok(Self {
            window: Window::new(shape),
            inverse: 1.0 / voxel_size_m as f32,
            centres: shape.centres(voxel_size_m),
            max_range: config.max_range_m,
            band: config.band_m,
            distance: config.distance,
            hit: log_odds(config.hit),
            miss: log_odds(config.miss),
            clamp: config.clamp.map(log_odds),
            state: vec![UNKNOWN; shape.cells()],
            hits: SharedBits::new(shape),
            passed: SharedBits::new(shape),
            ends: Vec::new(),
        })
    }

    /// Returns the box of cells that the map holds.
    pub fn window(&self) -> Window {
        self.window
    }

    /// Moves the map so that its first cell has the grid index `corner`. Cells that enter it count as never observed;
    /// their number is returned.
    pub fn move_to(&mut self, corner: [i64; 3]) -> u64 {
        self.window.move_to(corner, &mut self.state, UNKNOWN)
    }

    /// Moves the log-odds of each observed cell towards 0 by `steps` / 1024, so that cells that are no longer
    /// seen are forgotten.
    pub fn fade(&mut self, steps: u32) {
        let steps = i32::try_from(steps).unwrap_or(i32::MAX);
        self.state
            .par_iter_mut()
            .filter(|state| **state != UNKNOWN)
            .for_each(|state| {
                let before = i32::from(*state);
                *state = (before - before.signum() * steps.min(before.abs())) as i16;
            });
    }

    /// Updates the cells with a scan: the points and depth images of all sensors at one time. A cell that has a point
    /// is a hit, even if other rays pass through it. Rays also pass through the sensor's own cell.
    ///
    /// # Panics
    /// If an image does not have the camera's number of pixels.
    pub fn scan(&mut self, bundles: &[RayBundle<'_>], frames: &[DepthFrame<'_>]) -> RayCounters {
        let mut counters = RayCounters::default();
        for bundle in bundles {
            counters += self.mark(bundle);
        }
        for frame in frames {
            self.mark_image(frame);
        }
        self.apply();
        counters
    }

    /// Returns the probability that a cell is occupied; `None` if no ray has passed through it or hit it.
    pub fn probability(&self, cell: [usize; 3]) -> Option<f64> {
        let state = self.state[self.window.slot(cell)];
        (state != UNKNOWN).then(|| 1.0 / (1.0 + (-f64::from(state) / ONE).exp()))
    }

    /// Converts a stored log-odds to the probability that the cell is occupied, in percent; -1 if it
    /// was never observed.
    pub(super) fn percent_of(state: i16) -> i8 {
        static PERCENT: LazyLock<Vec<i8>> = LazyLock::new(|| {
            let percent = |state: i16| (100.0 / (1.0 + (-f64::from(state) / ONE).exp())).round() as i8;
            let all = (0..=u16::MAX).map(|state| state as i16);
            all.map(|state| if state == UNKNOWN { -1 } else { percent(state) })
                .collect()
        });
        PERCENT[usize::from(state as u16)]
    }

    /// Returns the set of cells whose probability of being occupied is above one half.
    pub fn occupied(&self) -> Bits {
        Bits::from_fn(self.window.shape(), |cell| self.state[self.window.slot(cell)] > 0)
    }

    /// Log-odds of each cell in units of 1/1024, indexed by [`Window::slot`]. The least int16 means never observed.
    pub fn state(&self) -> &[i16] {
        &self.state
    }

    /// Traces a sensor's rays, and marks the cells that they end in as hits and the cells that they pass
    /// through as passed.
    fn mark(&mut self, bundle: &RayBundle<'_>) -> RayCounters {
        let from = bundle.origin.map_axes(|_, value| self.part(value));
        let mut ends = std::mem::take(&mut self.ends);
        ends.clear();
        ends.par_extend(bundle.points.par_iter().enumerate().filter_map(|(index, &point)| {
            let (at, is_hit) = self.end(bundle.origin, point)?;
            let cell = (0..3).fold(0, |key, axis| {
                let apart = (at[axis] >> PART_BITS) - (from[axis] >> PART_BITS);
                key << 14 | u64::from((apart + (1 << 13)) as u32 & 0x3fff)
            });
            let index = index as u32;
            Some(RayEnd {
                cell,
                index,
                at,
                is_hit,
            })
        }));
        let dropped = bundle.points.len() - ends.len();
        ends.par_iter().filter(|end| end.is_hit).for_each(|end| {
            if let Some((word, bit)) = self.place(end.at.map(|part| part >> PART_BITS)) {
                self.hits.insert(word, 1 << bit);
            }
        });
        ends.par_sort_unstable_by_key(|end| (end.cell, end.index));
        ends.dedup_by_key(|end| end.cell);
        let clipped = ends.par_iter().filter(|end| self.walk(from, end)).count();
        let counters = RayCounters {
            points_in: bundle.points.len() as u64,
            dropped_nonfinite: dropped as u64,
            rays: ends.len() as u64,
            rays_clipped: clipped as u64,
        };
        self.ends = ends;
        counters
    }

    /// Marks the cells at the surfaces of a depth image as hits, and the cells in front of them as passed.
    fn mark_image(&self, frame: &DepthFrame<'_>) {
        let shape = self.window.shape();
        let (words, [xs, ys, zs]) = (words_of_run(shape), &self.centres);
        let frame = PreparedFrame::new(frame, self.distance);
        (0..shape.runs()).into_par_iter().for_each(|run| {
            let column = [xs[run / ys.len()], ys[run % ys.len()]];
            let [hits, passed] = [&self.hits, &self.passed].map(|bits| &bits.0[run * words..][..words]);
            mark_run(self.band, &frame, column, zs, hits, passed);
        });
    }

    /// Returns the end of the ray to `point`, in units of 1/256 cell. The flag is true if the end is `point`, and false
    /// if the ray is cut. Returns `None` if the length is not finite.
    fn end(&self, origin: [f32; 3], point: [f32; 3]) -> Option<([i32; 3], bool)> {
        let [x, y, z] = std::array::from_fn(|axis| point[axis] - origin[axis]);
        let length = ((x * x + y * y) + z * z).sqrt();
        if !length.is_finite() {
            return None;
        }
        let is_hit = length <= self.max_range;
        let end = if is_hit {
            point
        } else {
            let scale = self.max_range / length;
            [origin[0] + x * scale, origin[1] + y * scale, origin[2] + z * scale]
        };
        Some((end.map_axes(|_, value| self.part(value)), is_hit))
    }

    /// Converts a coordinate in metres to units of 1/256 cell, rounded down.
    fn part(&self, value: f32) -> i32 {
        ((value * self.inverse) * PARTS).floor() as i32
    }

    /// Returns the index of a cell's bitmap word, and its bit in the word; `None` if the cell is outside the map.
    #[inline(always)]
    fn place(&self, cell: [i32; 3]) -> Option<(usize, u32)> {
        let Shape([nx, ny, nz]) = self.window.shape();
        let [x, y, z] = cell.map(|index| index as u32 as usize);
        (x < nx && y < ny && z < nz).then(|| ((x * ny + y) * nz.div_ceil(64) + z / 64, z as u32 % 64))
    }

    /// Marks the cells that a ray passes through, from the sensor's cell on; not the end cell if that is a hit. Returns
    /// true if some of the ray's cells are outside the map.
    fn walk(&self, from: [i32; 3], end: &RayEnd) -> bool {
        let ray = Ray::new(from, end.at);
        let ends = [ray.first, ray.last].map(|cell| self.place(cell));
        match ends {
            [Some((word, bit)), Some(_)] if !ray.may_tie_at_end => {
                self.walk_inside(&ray, word as i64 * 64 + i64::from(bit), end.is_hit);
                false
            }
            _ => self.walk_anywhere(ray, end.is_hit),
        }
    }

    /// Traces a ray between two cells of the map. All cells on the ray are in the map, because a box is convex.
    fn walk_inside(&self, ray: &Ray, mut at: i64, is_hit: bool) {
        let [mut x, mut y, mut z] = ray.crossing;
        let [dx, dy, dz] = ray.unit.map(|unit| unit << PART_BITS);
        let shape = self.window.shape();
        let run = words_of_run(shape) as i64 * 64;
        let strides = [run * shape.0[1] as i64, run, 1];
        let [sx, sy, sz]: [i64; 3] = std::array::from_fn(|axis| strides[axis] * i64::from(ray.step[axis]));
        let (mut word, mut bits) = (at >> 6, 0);
        for _ in 0..ray.steps() + u32::from(!is_hit) {
            if at >> 6 != word {
                self.passed.insert(word as usize, bits);
                (word, bits) = (at >> 6, 0);
            }
            bits |= 1 << (at & 63);
            // Masks in place of branches, which no CPU could predict.
            let is_x = -i64::from(x <= y && x <= z);
            let is_y = -i64::from(y <= z) & !is_x;
            let is_z = !(is_x | is_y);
            (x, y, z) = (x + (dx & is_x), y + (dy & is_y), z + (dz & is_z));
            at += (sx & is_x) | (sy & is_y) | (sz & is_z);
        }
        if bits != 0 {
            self.passed.insert(word as usize, bits);
        }
    }

    /// Traces a ray that may leave the map. Returns true if some of its cells are outside the map.
    fn walk_anywhere(&self, ray: Ray, is_hit: bool) -> bool {
        let (mut cell, mut left, mut crossing) = (ray.first, ray.left, ray.crossing);
        let Shape(axes) = self.window.shape();
        let is_beside = |axis: usize| {
            let (first, last, cells) = (ray.first[axis], ray.last[axis], axes[axis] as i32);
            first.max(last) < 0 || first.min(last) >= cells
        };
        if (0..3).any(is_beside) {
            return true;
        }
        let mut is_clipped = self.place(ray.last).is_none();
        for _ in 0..ray.steps() {
            is_clipped |= !self.pass(cell);
            let next = |axis: usize| if left[axis] > 0 { crossing[axis] } else { i64::MAX };
            let [x, y, z] = [0, 1, 2].map(next);
            let axis = if x <= y && x <= z {
                0
            } else if y <= z {
                1
            } else {
                2
            };
            cell[axis] += ray.step[axis];
            left[axis] -= 1;
            crossing[axis] += ray.unit[axis] << PART_BITS;
        }
        if !is_hit {
            is_clipped |= !self.pass(cell);
        }
        is_clipped
    }

    /// Marks a cell as passed. Returns false if it is outside the map.
    fn pass(&self, cell: [i32; 3]) -> bool {
        let place = self.place(cell);
        if let Some((word, bit)) = place {
            self.passed.insert(word, 1 << bit);
        }
        place.is_some()
    }

    /// Adds the marked hits and misses to the cells' log-odds, and clears the marks.
    fn apply(&mut self) {
        let (window, shape) = (self.window, self.window.shape());
        let (words, Shape([_, ny, nz])) = (words_of_run(shape), shape);
        let (hit, miss, [least, greatest]) = (self.hit, self.miss, self.clamp);
        let (hits, passed, first) = (&self.hits.0, &self.passed.0, window.first_slot(2));
        self.state.par_chunks_mut(nz).enumerate().for_each(|(run, slots)| {
            let [x, y] = window.place_of_run(run);
            for word in 0..words {
                let at = (x * ny + y) * words + word;
                let [hits, passed] = [hits, passed].map(|marks| match marks[at].load(Ordering::Relaxed) {
                    0 => 0,
                    _ => marks[at].swap(0, Ordering::Relaxed),
                });
                let mut marked = hits | passed;
                while marked != 0 {
                    let bit = marked.trailing_zeros();
                    marked &= marked - 1;
                    let z = word * 64 + bit as usize + first;
                    let state = &mut slots[if z < nz { z } else { z - nz }];
                    let before = if *state == UNKNOWN { 0 } else { *state };
                    let change = if hits >> bit & 1 == 1 { hit } else { miss };
                    *state = before.saturating_add(change).clamp(least, greatest);
                }
            }
        });
    }
}

multiversion! {
    /// Marks the hits and the passed cells of a depth image on one line of cells along z. The cells' centres have the x
    /// and y in `column` and the z in `centres`, metres.
    fn mark_run(
        band: f32,
        frame: &PreparedFrame<'_>,
        column: [f32; 2],
        centres: &[f32],
        hits: &[AtomicU64],
        passed: &[AtomicU64],
    ) {
        let depths = [frame.range.min_cell_m, frame.range.max_m + band];
        frame.camera.project_run(&frame.from_grid, column, centres, depths, |cell, seen| {
            let distance = frame.distance(&seen);
            if distance >= -band {
                let marks = if distance > band { passed } else { hits };
                let word = &marks[cell / 64];
                // One thread marks a run.
                word.store(word.load(Ordering::Relaxed) | 1 << (cell % 64), Ordering::Relaxed);
            }
        });
    }
}

/// Converts a probability to log-odds in units of 1/1024.
pub(super) fn log_odds(probability: f64) -> i16 {
    (ONE * (probability / (1.0 - probability)).ln()).round() as i16
}

impl OccupancyConfig {
    pub(super) fn validate(&self, voxel_size_m: f64) -> Result<(), ConfigError> {
        let Self {
            hit,
            miss,
            clamp: [least, greatest],
            max_range_m,
            band_m,
            distance: _,
        } = *self;
        let (low, high) = (1e-6..=0.499, 0.501..=0.999_999);
        if !high.contains(&hit) {
            return refused("hit", format!("{hit} (allowed: 0.501 to 0.999999)"));
        }
        if !low.contains(&miss) {
            return refused("miss", format!("{miss} (allowed: 0.000001 to 0.499)"));
        }
        if !(low.contains(&least) && high.contains(&greatest)) {
            let allowed = "0.000001 to 0.499, and 0.501 to 0.999999";
            return refused("clamp", format!("[{least}, {greatest}] (allowed: {allowed})"));
        }
        let cells = f64::from(max_range_m) / voxel_size_m;
        if !(cells > 0.0 && cells <= MAX_RAY_CELLS) {
            let allowed = MAX_RAY_CELLS * voxel_size_m;
            let problem = format!("{max_range_m} (allowed: above 0, up to {allowed} m, {MAX_RAY_CELLS} cells)");
            return refused("max_range_m", problem);
        }
        if !(1e-6..=1e3).contains(&band_m) {
            return refused("band_m", format!("{band_m} (allowed: 0.000001 to 1000 m)"));
        }
        Ok(())
    }
}

/// Maps each component of a 3-vector with a function that also gets the axis: 0, 1 or 2.
trait MapAxes<T> {
    fn map_axes<U>(self, value: impl FnMut(usize, T) -> U) -> [U; 3];
}

impl<T: Copy> MapAxes<T> for [T; 3] {
    #[inline(always)]
    fn map_axes<U>(self, mut value: impl FnMut(usize, T) -> U) -> [U; 3] {
        std::array::from_fn(|axis| value(axis, self[axis]))
    }
}

#[cfg(test)]
mod tests;

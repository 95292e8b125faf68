//! Free and occupied cells as log-odds, from rays between a sensor and the points that it measured, or from depth images.
//!
//! A scan updates each cell once. It is a hit if a ray ends in the cell, or an image shows a surface there. Else it is a miss if a ray
//! passes the cell, or an image shows a surface behind it. Rays walk in integers, and hits and misses are sets, so that threads
//! change no bit. The order of the points of a sensor does: of those that end in one cell, only the ray of the first one walks.

use super::frame::{DepthFrame, DistanceAlong, PreparedFrame};
use super::volume::{Bits, Shape, Window, check_voxel_size, words_of_run};
use crate::{ConfigError, refused};
use rayon::prelude::*;
use std::ops::AddAssign;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A log-odds of 1 in the state of a cell.
const ONE: f64 = 1024.0;
/// State of a cell that no ray has passed or hit.
const UNKNOWN: i16 = i16::MIN;
/// Greatest length of a ray, cells, so that 14 bits hold its end along an axis.
const MAX_RAY_CELLS: f64 = 4096.0;
/// Parts of a cell, along each axis, in which the ends of rays are given.
const PARTS: f32 = 256.0;
/// Base-2 logarithm of [`PARTS`].
const PART_BITS: u32 = 8;

/// Configuration of log-odds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OccupancyConfig {
    /// Probability, above 0.5, that a cell is occupied if a ray ends in it.
    pub hit: f64,
    /// Probability, below 0.5, that a cell is occupied if a ray passes it.
    pub miss: f64,
    /// Least and greatest probability of a cell, so that a cell that changes is believed after some scans.
    pub clamp: [f64; 2],
    /// Length of a ray, metres, beyond which it is cut: cells up to there are free, and there is no hit.
    pub max_range_m: f32,
    /// Distance from a surface in a depth image, metres, up to which a cell is hit. A cell further in front is passed.
    pub band_m: f32,
    /// Direction in which distances from surfaces in depth images are measured.
    pub distance: DistanceAlong,
}

/// Points that a sensor measured from one place.
#[derive(Clone, Copy, Debug)]
pub struct RayBundle<'a> {
    /// The sensor, metres, in the frame of the grid's corner.
    pub origin: [f32; 3],
    /// The points, metres, in the frame of the grid's corner.
    pub points: &'a [[f32; 3]],
}

/// Counts of the rays of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RayCounters {
    /// Number of points of the scan.
    pub points_in: u64,
    /// Number of dropped points with a coordinate, or a distance from the sensor, that is not finite.
    pub dropped_nonfinite: u64,
    /// Number of rays that walked: of those of a sensor that end in one cell, the one of the first point does.
    pub rays: u64,
    /// Number of the rays that walked through cells outside the grid, which are not updated.
    pub rays_clipped: u64,
}

/// Log-odds of the cells of a volume.
#[derive(Debug)]
pub struct Occupancy {
    window: Window,
    /// 1 divided by the edge of a cell, in float32.
    inverse: f32,
    /// Coordinates of the cells' centres along each axis, metres, from the corner of the window on.
    centres: [Vec<f32>; 3],
    max_range: f32,
    band: f32,
    distance: DistanceAlong,
    hit: i16,
    miss: i16,
    clamp: [i16; 2],
    /// Log-odds of each slot.
    state: Vec<i16>,
    /// Cells in which rays of this scan end, and cells that they pass. Empty between scans.
    hits: SharedBits,
    passed: SharedBits,
    ends: Vec<RayEnd>,
}

/// End of a ray.
#[derive(Clone, Copy, Debug)]
struct RayEnd {
    /// The end cell relative to the cell of the sensor, 14 bits an axis.
    cell: u64,
    /// Index of the point.
    index: u32,
    /// The end in parts of a cell.
    at: [i32; 3],
    /// True if the ray ends at the point, false if it is cut before.
    is_hit: bool,
}

/// A ray between two places in parts of a cell.
struct Ray {
    first: [i32; 3],
    last: [i32; 3],
    /// Steps to the last cell along each axis, and the direction of a step.
    left: [u32; 3],
    step: [i32; 3],
    /// Time at which the ray crosses its next face of each axis. The ray arrives at the product of its three components; a
    /// component of 0 counts as 1.
    crossing: [i64; 3],
    /// Time that the ray takes for a part of a cell along each axis.
    unit: [i64; 3],
    /// True if the ray arrives at faces of two axes at once, and crosses one of them only. Else an axis without steps left crosses
    /// its next face later than an axis that has some.
    may_tie_at_end: bool,
}

impl Ray {
    /// Faces that are crossed at the same time are crossed in the order x, y, z.
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

/// A set of cells to which threads add.
#[derive(Debug)]
struct SharedBits(Vec<AtomicU64>);

impl SharedBits {
    fn new(shape: Shape) -> Self {
        let words = shape.runs() * words_of_run(shape);
        Self((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    /// Adds the cells of `bits` to a word. Most cells are in the set already, and a read costs less than a write.
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
    /// Makes a volume of cells that are not known. `voxel_size_m` is the edge of a cell.
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

    /// The cells that the volume holds.
    pub fn window(&self) -> Window {
        self.window
    }

    /// Moves the volume to the cells from `corner` on. Those that enter it are not known; their number is returned.
    pub fn move_to(&mut self, corner: [i64; 3]) -> u64 {
        self.window.move_to(corner, &mut self.state, UNKNOWN)
    }

    /// Moves the log-odds of each known cell towards 0 by `steps` / 1024, so that a cell that is not seen any more is forgotten.
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

    /// Updates the cells with a scan: all sensors' points and depth images of one time. A cell in which a point lies is a hit, also
    /// if a ray passes it. The cell of a sensor is passed by each of its rays.
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

    /// Probability that a cell is occupied; `None` if no ray has passed or hit the cell.
    pub fn probability(&self, cell: [usize; 3]) -> Option<f64> {
        let state = self.state[self.window.slot(cell)];
        (state != UNKNOWN).then(|| 1.0 / (1.0 + (-f64::from(state) / ONE).exp()))
    }

    /// Probability that a cell with a log-odds is occupied, in percent; -1 if it is not known.
    pub(super) fn percent_of(state: i16) -> i8 {
        static PERCENT: LazyLock<Vec<i8>> = LazyLock::new(|| {
            let percent = |state: i16| (100.0 / (1.0 + (-f64::from(state) / ONE).exp())).round() as i8;
            let all = (0..=u16::MAX).map(|state| state as i16);
            all.map(|state| if state == UNKNOWN { -1 } else { percent(state) })
                .collect()
        });
        PERCENT[usize::from(state as u16)]
    }

    /// The cells that are occupied more likely than not.
    pub fn occupied(&self) -> Bits {
        Bits::from_fn(self.window.shape(), |cell| self.state[self.window.slot(cell)] > 0)
    }

    /// The log-odds of each slot in 1/1024. The least number stands for a cell that is not known.
    pub fn state(&self) -> &[i16] {
        &self.state
    }

    /// Marks the cells that the rays of a sensor end in and pass.
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

    /// Marks the cells that a depth image hits and passes.
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

    /// The end of a ray in parts of a cell, and true if it is the point itself. `None` if it is not finite.
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

    /// A coordinate in parts of a cell.
    fn part(&self, value: f32) -> i32 {
        ((value * self.inverse) * PARTS).floor() as i32
    }

    /// The word and the bit of a cell; `None` outside the grid.
    #[inline(always)]
    fn place(&self, cell: [i32; 3]) -> Option<(usize, u32)> {
        let Shape([nx, ny, nz]) = self.window.shape();
        let [x, y, z] = cell.map(|index| index as u32 as usize);
        (x < nx && y < ny && z < nz).then(|| ((x * ny + y) * nz.div_ceil(64) + z / 64, z as u32 % 64))
    }

    /// Marks the cells that a ray passes: from the sensor's cell on, without the end cell if the ray hits it. Returns true if some
    /// of them are outside the grid.
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

    /// Walks a ray between two cells of the grid, which is convex, so that all its cells are in the grid.
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

    /// Walks any ray. Returns true if some of its cells are outside the grid.
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

    /// Marks a cell as passed. Returns false if it is outside the grid.
    fn pass(&self, cell: [i32; 3]) -> bool {
        let place = self.place(cell);
        if let Some((word, bit)) = place {
            self.passed.insert(word, 1 << bit);
        }
        place.is_some()
    }

    /// Adds the marked hits and misses to the log-odds, and removes the marks.
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
    /// Marks the cells of a run along z that a depth image hits and passes. `column` is x and y of the cells' centres, `centres`
    /// their z.
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

/// The log-odds of a probability in 1/1024.
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

/// A map over the axes of a vector that also passes the number of the axis.
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

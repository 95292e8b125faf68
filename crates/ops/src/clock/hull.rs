//! Fits a line to points in a sliding window. Each point is a message, and the line is host time minus device time over device
//! time. It is computed from the lower convex hull of the points.
//!
//! Points have integer coordinates, so that the hull is exact. Memory is bounded: the window keeps the lowest point of each of
//! `SLOTS` time slots, and up to `2 * SLOTS` vertices of the hull.

use std::collections::VecDeque;

/// Number of time slots in the window. Each slot keeps its lowest point, from which the hull is completed when a vertex leaves
/// the window.
const SLOTS: i128 = 1024;

/// Number of equal parts of the window. The uncertainty is computed from the lowest point of each part.
const PARTS: i128 = 30;

/// Longest time, ns, by which one silence of the device advances the window. A long silence therefore does not push the
/// messages before it out of the window.
const LONGEST_STEP: i128 = 1_000_000_000;

/// A message as a point: x is its device time, and d its host time minus x, ns. Both are relative to the first message.
///
/// 128 bits hold the products in `append` for all int64 times: x spans a few windows, and d is at most 2^66.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub x: i128,
    pub d: i128,
    /// Active time of the device up to this message, ns: the sum of the times between messages, of which each counts for at
    /// most `LONGEST_STEP` (1 s).
    spoken_until: i128,
}

impl Point {
    /// Returns the height of the point above `line`, ns; negative if the point lies below.
    pub(super) fn above(&self, line: &Line) -> f64 {
        self.d as f64 - line.at(self.x)
    }
}

/// Line through the point (x, d), with d (host time minus device time) as a function of device time x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line {
    x: i128,
    d: f64,
    /// Slope of the line, ns of d per ns of x: the skew of the clock.
    pub slope: f64,
}

impl Line {
    /// Returns the line's d, host time minus device time, at device time `x`, ns.
    pub(super) fn at(&self, x: i128) -> f64 {
        self.d + self.slope * (x - self.x) as f64
    }
}

/// Points of the last `span` ns of active time (`Point::spoken_until`), and their lower convex hull.
pub(super) struct Window {
    span: i128,
    hull: Vec<Point>,
    /// Lowest point of each time slot, oldest first.
    slots: VecDeque<Point>,
    /// Sum of the x of all points in `slots`, from which their mean x is computed.
    sum_x: i128,
    /// Active time (`Point::spoken_until`) at which the newest slot began, ns.
    slot_start: i128,
    /// Mean jitter divided by the number of points, m / n, ns: the expected height of the lowest point above the true line. 0
    /// if it is unknown.
    bias: f64,
    scratch: Vec<Point>,
    heights: Vec<f64>,
}

impl Window {
    /// Creates an empty window that spans `span_ns` of the device's active time.
    pub(super) fn new(span_ns: i64) -> Self {
        Self {
            span: i128::from(span_ns),
            // As much as they ever need: nothing is allocated for a message.
            hull: Vec::with_capacity(4 * SLOTS as usize),
            slots: VecDeque::with_capacity(2 * SLOTS as usize),
            sum_x: 0,
            slot_start: 0,
            bias: 0.0,
            scratch: Vec::with_capacity(4 * SLOTS as usize),
            heights: Vec::with_capacity(2 * SLOTS as usize),
        }
    }

    /// Drops all points and keeps their memory for new ones.
    pub(super) fn clear(&mut self) {
        self.hull.clear();
        self.slots.clear();
        (self.sum_x, self.bias) = (0, 0.0);
    }

    /// Adds the point (x, d), or ignores it if x is not greater than that of every other point. Returns true if the point
    /// begins a new slot.
    pub(super) fn push(&mut self, x: i128, d: i128) -> bool {
        let newest = self.hull.last();
        if newest.is_some_and(|newest| newest.x >= x) {
            return false;
        }
        let spoken_until = newest.map_or(0, |newest| newest.spoken_until + (x - newest.x).min(LONGEST_STEP));
        let point = Point { x, d, spoken_until };
        let slope = self.edge().map_or(0.0, |(_, edge)| edge.slope);
        let completes = match self.slots.back_mut() {
            Some(lowest) if spoken_until - self.slot_start < self.span / SLOTS => {
                if ((d - lowest.d) as f64) < slope * (x - lowest.x) as f64 {
                    self.sum_x += x - lowest.x;
                    *lowest = point;
                }
                false
            }
            _ => {
                self.slots.push_back(point);
                self.sum_x += x;
                self.slot_start = spoken_until;
                true
            }
        };
        append(&mut self.hull, point);
        self.forget_before(spoken_until - self.span);
        if self.hull.len() as i128 > 2 * SLOTS {
            self.thin_out();
        }
        if completes {
            self.bias = self.find_bias();
        }
        completes
    }

    /// Returns the mean of all lines under the points, weighted by their likelihood for exponential jitter (Pitman, Biometrika
    /// 30, 1939). `None` with fewer than two points.
    ///
    /// Let n points have mean jitter m, and let `mean` be the mean of their x. A line of slope b that passes `mean` at height h
    /// has likelihood exp(n h / m). Height h is at most c(b), at which the line touches the hull. So slope b has weight exp(n
    /// c(b) / m), and its mean height is m / n below c(b).
    ///
    /// The function c is concave, and greatest at the slope of the hull's edge over `mean`. Between the slopes of two
    /// neighbouring edges, the touching line turns about their common vertex, and c is linear.
    pub(super) fn line(&self) -> Option<Line> {
        let (right, edge) = self.edge()?;
        if self.bias <= 0.0 {
            return Some(edge);
        }
        let (before, after) = self.hull.split_at(right);
        let mut weights = Weights::default();
        weights.turn(after.iter(), &edge, self.bias, 1.0);
        weights.turn(before.iter().rev(), &edge, self.bias, -1.0);
        let Weights { sum, slope, height } = weights;
        let mean = Line {
            d: edge.d + (height / sum - 1.0) * self.bias,
            slope: edge.slope + slope / sum,
            ..edge
        };
        (mean.d.is_finite() && mean.slope.is_finite())
            .then_some(mean)
            .or(Some(edge))
    }

    /// Returns the hull's edge over the mean x: the index of its right end, and the edge as a line. Of all lines under the
    /// points, this edge has the smallest sum of distances to them.
    fn edge(&self) -> Option<(usize, Line)> {
        if self.hull.len() < 2 {
            return None;
        }
        let mean = self.sum_x / self.slots.len().max(1) as i128;
        let right = self.hull.partition_point(|point| point.x <= mean);
        let right = right.clamp(1, self.hull.len() - 1);
        let (from, to) = (self.hull[right - 1], self.hull[right]);
        let slope = (to.d - from.d) as f64 / (to.x - from.x) as f64;
        let d = from.d as f64 + slope * (mean - from.x) as f64;
        Some((right, Line { x: mean, d, slope }))
    }

    /// Returns m / n, mean jitter over number of points, from the heights of the slots' lowest points above the edge. Without
    /// the two points on the edge, a quarter of them is lower than m ln(4/3). Very late points have no influence.
    fn find_bias(&mut self) -> f64 {
        let (Some((_, edge)), count @ 3..) = (self.edge(), self.slots.len()) else {
            return 0.0;
        };
        self.heights.clear();
        self.heights.extend(self.slots.iter().map(|point| point.above(&edge)));
        let (_, quartile, _) = self.heights.select_nth_unstable_by(2 + (count - 2) / 4, f64::total_cmp);
        *quartile / f64::ln(4.0 / 3.0) / count as f64
    }

    /// Smallest d (host time minus device time) of the points, ns; `None` if there is no point.
    pub(super) fn lowest(&self) -> Option<i128> {
        self.hull.iter().map(|point| point.d).min()
    }

    /// Returns the active time of the device since the window was empty, ns. A silence counts for at most `LONGEST_STEP`.
    pub(super) fn spoken(&self) -> i128 {
        self.hull.last().map_or(0, |newest| newest.spoken_until)
    }

    /// Returns the uncertainty of `line`, ns: the root mean square height above it of the lowest point in each of the window's
    /// [`PARTS`] parts.
    pub(super) fn spread(&self, line: &Line) -> f64 {
        let part_ns = (self.span / PARTS).max(1);
        let (mut sum, mut parts) = (0.0, 0u32);
        let mut slots = self.slots.iter().peekable();
        while let Some(first) = slots.next() {
            let part_index = first.spoken_until / part_ns;
            let mut lowest = first.above(line);
            while let Some(slot) = slots.next_if(|slot| slot.spoken_until / part_ns == part_index) {
                lowest = lowest.min(slot.above(line));
            }
            // The newest part has just begun, so it counts only if there is no other part.
            if slots.peek().is_some() || parts == 0 {
                sum += lowest * lowest;
                parts += 1;
            }
        }
        (sum / f64::from(parts.max(1))).sqrt()
    }

    /// Drops the points whose `spoken_until` is before `start`. When a vertex on the left is dropped, points that lay above its
    /// edge become vertices.
    fn forget_before(&mut self, start: i128) {
        while self.slots.len() > 1 && self.slots[0].spoken_until < start {
            self.sum_x -= self.slots.pop_front().map_or(0, |point| point.x);
        }
        let gone = self.hull.iter().take_while(|point| point.spoken_until < start).count();
        if gone == 0 || gone == self.hull.len() {
            return;
        }
        let kept = self.hull[gone];
        self.scratch.clear();
        for &point in self.slots.iter().take_while(|point| point.x < kept.x) {
            append(&mut self.scratch, point);
        }
        for &point in &self.hull[gone..] {
            append(&mut self.scratch, point);
        }
        std::mem::swap(&mut self.hull, &mut self.scratch);
    }

    /// Rebuilds the hull from the lowest point of each slot and the newest point, which bounds the number of vertices.
    fn thin_out(&mut self) {
        let newest = self.hull.last().copied();
        self.hull.clear();
        let last = newest.filter(|newest| self.slots.back().is_none_or(|lowest| lowest.x < newest.x));
        for &point in self.slots.iter().chain(last.as_ref()) {
            append(&mut self.hull, point);
        }
    }
}

/// Weighted sums over the slopes of all lines under the hull: of the weights, of weight times slope, and of weight
/// times height.
#[derive(Default)]
struct Weights {
    sum: f64,
    /// Sum of weight times slope. Slopes are relative to that of the hull's edge over the mean x, in ns of d per ns of x.
    slope: f64,
    /// Sum of weight times height. Heights are relative to that of the hull's edge over the mean x, in units of m / n, and
    /// never above 0.
    height: f64,
}

impl Weights {
    /// Adds the lines on one side of the edge. They turn from the edge's slope about one of the `vertices` after the other. A
    /// `sign` of 1 means greater slopes and the vertices to the right, and -1 means smaller slopes and those to the left. The
    /// mean jitter over the number of points, m / n as in `Window::line`, is `bias`.
    fn turn<'a>(&mut self, vertices: impl Iterator<Item = &'a Point>, edge: &Line, bias: f64, sign: f64) {
        let mut vertices = vertices.peekable();
        // The slope, counted from that of the edge, and the height there.
        let (mut turned, mut height) = (0.0, 0.0);
        while let Some(vertex) = vertices.next() {
            // Fall of the height as the slope turns on.
            let fall = sign * (vertex.x - edge.x) as f64 / bias;
            let until = vertices.peek().map_or(f64::INFINITY, |next| {
                sign * ((next.d - vertex.d) as f64 / (next.x - vertex.x) as f64 - edge.slope)
            });
            let turn = (until - turned).max(0.0);
            let (sum, first) = decay(fall, turn);
            let weight = f64::exp(height);
            self.sum += weight * sum;
            self.slope += sign * weight * (turned * sum + first);
            self.height += weight * (height * sum - fall * first);
            turned += turn;
            height -= fall * turn;
            if height < LEAST_HEIGHT {
                break;
            }
        }
    }
}

/// Natural logarithm of the smallest weight that is still summed, relative to the greatest weight.
const LEAST_HEIGHT: f64 = -40.0;

/// Returns the integrals of exp(-fall t) and of t exp(-fall t) from 0 to `end`.
fn decay(fall: f64, end: f64) -> (f64, f64) {
    let q = fall * end;
    if q < 1e-4 {
        return (end * (1.0 - q / 2.0), end * end * (0.5 - q / 3.0));
    }
    if q > 700.0 {
        return (1.0 / fall, 1.0 / (fall * fall));
    }
    let left = f64::exp(-q);
    (-f64::exp_m1(-q) / fall, (1.0 - (1.0 + q) * left) / (fall * fall))
}

/// Appends a point to the right of a hull, and removes the vertices that no longer belong to it (Andrew's monotone chain).
fn append(hull: &mut Vec<Point>, point: Point) {
    while let [.., a, b] = hull.as_slice() {
        let turn = (b.x - a.x) * (point.d - a.d) - (point.x - a.x) * (b.d - a.d);
        if turn > 0 {
            break;
        }
        hull.pop();
    }
    hull.push(point);
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i128 = 1_000_000_000;

    fn hull(window: &Window) -> Vec<(i128, i128)> {
        window.hull.iter().map(|point| (point.x / S, point.d)).collect()
    }

    #[test]
    fn the_hull_is_what_a_rubber_band_from_below_would_be() {
        let mut window = Window::new(60_000_000_000);
        for (x, d) in [(0, 5), (1, 2), (2, 9), (3, 3), (4, 1), (5, 7), (6, 4)] {
            window.push(x * S, d);
        }
        assert_eq!(hull(&window), [(0, 5), (1, 2), (4, 1), (6, 4)]);
        let (right, edge) = window.edge().unwrap();
        assert_eq!((right, edge.at(S).round(), edge.at(4 * S).round()), (2, 2.0, 1.0));
        assert_eq!(window.lowest(), Some(1));
        // A point that is not to the right of all others is not taken.
        window.push(6 * S, 0);
        window.push(5 * S, 0);
        assert_eq!(hull(&window).len(), 4);
    }

    #[test]
    fn what_leaves_the_window_gives_back_what_lay_above_it() {
        let mut window = Window::new(4_000_000_000);
        for (x, d) in [(0, 0), (1, 9), (2, 3), (3, 8), (4, 4)] {
            window.push(x * S, d);
        }
        assert_eq!(hull(&window), [(0, 0), (4, 4)]);
        window.push(5 * S, 9);
        assert_eq!(hull(&window), [(1, 9), (2, 3), (4, 4), (5, 9)]);
    }

    /// Compares `Window::line` with a brute-force mean of all lines: a weighted sum over many slopes, each with the mean height
    /// of its lines.
    #[test]
    fn the_line_is_the_mean_of_all_lines_under_the_points() {
        let mut state = 3u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        for case in 0..8 {
            let mut window = Window::new(60_000_000_000);
            let points: Vec<(i128, i128)> = (0..30 + 25 * case)
                .map(|i| (i * S / 3, i * 7000 - (5e6 * f64::ln(1.0 - random())) as i128))
                .collect();
            for &(x, d) in &points {
                window.push(x, d);
            }
            let got = window.line().unwrap();
            let first = points[points.len().saturating_sub(181)].0;
            let inside: Vec<_> = points.iter().filter(|point| point.0 >= first).collect();
            let mean = inside.iter().map(|point| point.0).sum::<i128>() / inside.len() as i128;
            let (mut sum, mut slope_sum, mut height_sum) = (0.0, 0.0, 0.0);
            let touches = |slope: f64| {
                let heights = inside
                    .iter()
                    .map(|point| point.1 as f64 - slope * (point.0 - mean) as f64);
                heights.fold(f64::INFINITY, f64::min)
            };
            let slopes = || (-10_000..10_000).map(|i| f64::from(i) * 2e-7);
            let most = slopes().map(touches).fold(f64::NEG_INFINITY, f64::max);
            for slope in slopes() {
                let weight = f64::exp((touches(slope) - most) / window.bias);
                sum += weight;
                slope_sum += weight * slope;
                height_sum += weight * (touches(slope) - window.bias);
            }
            let (slope, height) = (slope_sum / sum, height_sum / sum);
            let unit = window.bias;
            assert!(
                (got.at(mean) - height).abs() < 0.01 * unit,
                "{case}: {got:?} {height} {unit}"
            );
            assert!(
                (got.slope - slope).abs() * 10e9 < 0.01 * unit,
                "{case}: {got:?} {slope}"
            );
        }
    }

    /// Compares the window's hull with a brute-force hull of its points: a vertex lies under every line between two
    /// other points.
    #[test]
    fn it_is_the_hull_of_the_window_after_every_point() {
        let mut state = 7u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let mut window = Window::new(30_000_000_000);
        let mut points: Vec<(i128, i128)> = Vec::new();
        let mut x = 0;
        for _ in 0..300 {
            x += S / 2 + i128::from(random(500)) * 1_000_000;
            points.push((x, i128::from(random(1000))));
            window.push(x, points[points.len() - 1].1);
            let inside: Vec<_> = points.iter().filter(|point| x - point.0 <= 30 * S).collect();
            let is_vertex = |p: &(i128, i128)| {
                inside.iter().filter(|a| a.0 < p.0).all(|a| {
                    let mut right = inside.iter().filter(|b| b.0 > p.0);
                    right.all(|b| (p.1 - a.1) * (b.0 - a.0) < (b.1 - a.1) * (p.0 - a.0))
                })
            };
            let wanted: Vec<_> = inside.iter().filter(|p| is_vertex(p)).map(|p| (p.0, p.1)).collect();
            let got: Vec<_> = window.hull.iter().map(|p| (p.x, p.d)).collect();
            assert_eq!(got, wanted);
        }
    }

    #[test]
    fn memory_is_bounded_where_every_point_is_a_vertex() {
        let mut window = Window::new(60_000_000_000);
        for i in 0..100_000i128 {
            window.push(i * 1_000_000, i * i);
            assert!(window.hull.len() as i128 <= 2 * SLOTS && window.slots.len() as i128 <= SLOTS + 2);
        }
        assert!(window.line().is_some());
    }

    #[test]
    fn the_whole_range_of_int64_is_no_overflow() {
        let mut window = Window::new(3_600_000_000_000);
        let far = i128::from(u64::MAX);
        for (x, d) in [
            (0, 0),
            (1, far),
            (2, -2 * far),
            (36_000 * S, 2 * far),
            (36_001 * S, -far),
        ] {
            window.push(x, d);
            assert!(window.line().is_none_or(|line| line.at(x).is_finite()));
        }
    }
}

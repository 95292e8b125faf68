//! The lower convex hull of a window of points, in whole numbers.

use std::collections::VecDeque;

/// The window keeps the lowest point of each of so many slots, for the hull of what is left when a vertex leaves it.
const SLOTS: i128 = 1024;

/// The parts of a window whose lowest points are compared.
const PARTS: i128 = 30;

/// A silence counts as so much of the window: what came before it is worth keeping until as much has come after it.
const LONGEST_STEP: i128 = 1_000_000_000;

/// A message: its device time x and d, its host time minus x. Both count from the first message's.
///
/// 128 bits hold the products of the hull's turns for every int64 time: x spans a few windows, d at most 2^66.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub x: i128,
    pub d: i128,
    /// How much time was spoken in up to it.
    active: i128,
}

impl Point {
    /// How far it lies above `line`, ns.
    pub fn above(&self, line: &Line) -> f64 {
        (self.d - line.from.d) as f64 - line.slope * (self.x - line.from.x) as f64
    }
}

/// An edge of the hull, continued on both sides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line {
    pub from: Point,
    /// ns of d in an ns of x.
    pub slope: f64,
}

impl Line {
    /// d at x.
    pub fn at(&self, x: i128) -> f64 {
        self.from.d as f64 + self.slope * (x - self.from.x) as f64
    }
}

/// The points of the last so much time that was spoken in, and their lower hull.
pub(super) struct Window {
    span: i128,
    hull: Vec<Point>,
    /// The lowest point of each slot, ascending.
    slots: VecDeque<Point>,
    /// Where the newest slot begins.
    slot_start: i128,
    scratch: Vec<Point>,
}

impl Window {
    /// An empty window of `span_ns`.
    pub fn new(span_ns: i64) -> Self {
        Self {
            span: i128::from(span_ns),
            // All that they ever need: nothing is allocated for a message.
            hull: Vec::with_capacity(4 * SLOTS as usize),
            slots: VecDeque::with_capacity(2 * SLOTS as usize),
            slot_start: 0,
            scratch: Vec::with_capacity(4 * SLOTS as usize),
        }
    }

    /// Forgets all points, keeping their memory.
    pub fn clear(&mut self) {
        self.hull.clear();
        self.slots.clear();
    }

    /// Adds a point to the right of all others; of one that is not, nothing is taken. Returns whether a slot is complete.
    pub fn push(&mut self, x: i128, d: i128) -> bool {
        let newest = self.hull.last();
        if newest.is_some_and(|newest| newest.x >= x) {
            return false;
        }
        let active = newest.map_or(0, |newest| newest.active + (x - newest.x).min(LONGEST_STEP));
        let point = Point { x, d, active };
        let slope = self.line().map_or(0.0, |line| line.slope);
        let completes = match self.slots.back_mut() {
            Some(lowest) if active - self.slot_start < self.span / SLOTS => {
                if point.above(&Line { from: *lowest, slope }) < 0.0 {
                    *lowest = point;
                }
                false
            }
            _ => {
                self.slots.push_back(point);
                self.slot_start = active;
                true
            }
        };
        append(&mut self.hull, point);
        self.forget_before(active - self.span);
        if self.hull.len() as i128 > 2 * SLOTS {
            self.thin_out();
        }
        completes
    }

    /// The edge of the hull over the middle of the time spoken in: of all lines under the points the one nearest to them.
    /// `None` with fewer than two points.
    pub fn line(&self) -> Option<Line> {
        let (first, last) = (self.hull.first()?, self.hull.last()?);
        let middle = (first.active + last.active) / 2;
        let right = self.hull.partition_point(|point| point.active <= middle);
        let right = right.min(self.hull.len() - 1).max(1);
        let (from, to) = (self.hull[right - 1], *self.hull.get(right)?);
        Some(Line {
            from,
            slope: (to.d - from.d) as f64 / (to.x - from.x) as f64,
        })
    }

    /// The least d.
    pub fn lowest(&self) -> Option<i128> {
        self.hull.iter().map(|point| point.d).min()
    }

    /// The time that was spoken in, ns.
    pub fn active(&self) -> i128 {
        let ends = self.hull.first().zip(self.hull.last());
        ends.map_or(0, |(first, last)| last.active - first.active)
    }

    /// How far the lowest points of [`PARTS`] parts of the window lie above a line, ns, as the root of the mean square.
    pub fn spread(&self, line: &Line) -> f64 {
        let part = (self.span / PARTS).max(1);
        let (mut sum, mut parts) = (0.0, 0u32);
        let mut slots = self.slots.iter().peekable();
        while let Some(first) = slots.next() {
            let number = first.active / part;
            let mut lowest = first.above(line);
            while let Some(slot) = slots.next_if(|slot| slot.active / part == number) {
                lowest = lowest.min(slot.above(line));
            }
            // The newest part has just begun.
            if slots.peek().is_some() || parts == 0 {
                sum += lowest * lowest;
                parts += 1;
            }
        }
        (sum / f64::from(parts.max(1))).sqrt()
    }

    /// Where a vertex leaves on the left, points that lay above its edge become vertices.
    fn forget_before(&mut self, start: i128) {
        while self.slots.len() > 1 && self.slots[0].active < start {
            self.slots.pop_front();
        }
        let gone = self.hull.iter().take_while(|point| point.active < start).count();
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

    /// Makes the hull that of the slots alone, and the newest point.
    fn thin_out(&mut self) {
        let newest = self.hull.last().copied();
        self.hull.clear();
        let last = newest.filter(|newest| self.slots.back().is_none_or(|lowest| lowest.x < newest.x));
        for &point in self.slots.iter().chain(last.as_ref()) {
            append(&mut self.hull, point);
        }
    }
}

/// Andrew's monotone chain: appends a point to the right, and takes out those that are then above the hull.
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
        let line = window.line().unwrap();
        assert_eq!((line.from.x / S, line.from.d, line.slope), (1, 2, -1.0 / 3e9));
        assert_eq!(window.lowest(), Some(1));
        // What is not to the right of all others is not taken.
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

    /// The hull of any sequence is that of the points in the window, found the slow way: a point is under every line
    /// between two others.
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

//! Values over time, reduced to the number of points that a drawing can show. A reduced point keeps the smallest and the
//! largest of its values, so that no peak is lost. A stretch is the time between two settings of a clock.

/// Step back of the time, ns, beyond which a clock counts as set. A new stretch of the drawing begins there.
const BACK_NS: i64 = 1_000_000_000;
/// Step ahead of the time, ns, beyond which a clock counts as set. A new stretch of the drawing begins there.
const AHEAD_NS: i64 = 3_600_000_000_000;

/// Maximum number of stretches that are drawn. A stretch is the time between two settings of a clock.
const MOST_STRETCHES: usize = 8;

/// Multiple of the median step beyond which a step is a gap, as in `robocache info`.
const GAP: f64 = 1.5;

/// Number of points to which a stretch of a report is reduced, as soon as it has more than twice as many.
pub const MOST_POINTS: usize = 1000;

/// Values to draw as lines, one column per line, at common times. They are divided into stretches, which end when a clock
/// was set.
pub struct Tracks {
    columns: usize,
    most: usize,
    pub stretches: Vec<Track>,
    /// Number of stretches beyond `MOST_STRETCHES`, whose values are not kept.
    pub left_out: u64,
    newest_ns: Option<i64>,
}

impl Tracks {
    /// Creates tracks of `columns` columns. If a stretch gets more than `2 * most` points, neighbouring points are merged.
    pub fn new(columns: usize, most: usize) -> Self {
        Self {
            columns,
            most,
            stretches: Vec::new(),
            left_out: 0,
            newest_ns: None,
        }
    }

    /// Adds the value of each column at a time, ns; a value that is not finite counts as missing.
    pub fn push(&mut self, time_ns: i64, values: &[f64]) {
        let is_new = self.newest_ns.is_none_or(|newest| {
            let ahead = i128::from(time_ns) - i128::from(newest);
            ahead < -i128::from(BACK_NS) || ahead > i128::from(AHEAD_NS)
        });
        if is_new {
            self.newest_ns = Some(time_ns);
            if self.stretches.len() == MOST_STRETCHES {
                self.left_out += 1;
            } else {
                self.stretches.push(Track::new(self.columns, self.most));
            }
        }
        self.newest_ns = self.newest_ns.max(Some(time_ns));
        if self.left_out == 0
            && let Some(track) = self.stretches.last_mut()
        {
            track.push(time_ns, values);
        }
    }
}

/// Points of one stretch of [`Tracks`], in time order.
pub struct Track {
    columns: usize,
    most: usize,
    /// Time that the values merged into one point may span, ns; 0 if none are merged.
    width_ns: i64,
    points: Vec<Point>,
    /// Smallest and largest value of each column, for each point in turn; NaN if there is no value.
    values: Vec<(f64, f64)>,
}

/// Time span that a point covers: its start and its end, ns.
#[derive(Clone, Copy)]
struct Point {
    first_ns: i64,
    last_ns: i64,
}

/// Points to be joined by lines; a line ends at a missing value.
pub struct Lines {
    pub times_ns: Vec<i64>,
    /// Values of each column, one for each of `times_ns`; `None` if the value is missing.
    pub columns: Vec<Vec<Option<f64>>>,
}

impl Track {
    fn new(columns: usize, most: usize) -> Self {
        Self {
            columns,
            most,
            width_ns: 0,
            points: Vec::new(),
            values: Vec::new(),
        }
    }

    fn push(&mut self, time_ns: i64, values: &[f64]) {
        // Columns that a message lacks have no value.
        let values = values
            .iter()
            .copied()
            .chain(std::iter::repeat(f64::NAN))
            .take(self.columns);
        let values = values.map(|value| match value.is_finite() {
            true => (value, value),
            false => (f64::NAN, f64::NAN),
        });
        let point = Point {
            first_ns: time_ns,
            last_ns: time_ns,
        };
        self.add(point, values);
        if self.points.len() > 2 * self.most {
            self.widen();
        }
    }

    /// Merges a point into the point that covers the same slot of `width_ns`, or inserts it in the order of time.
    fn add(&mut self, point: Point, values: impl Iterator<Item = (f64, f64)>) {
        let slot = |time_ns: i64| time_ns.div_euclid(self.width_ns.max(1));
        let at = self
            .points
            .partition_point(|before| slot(before.first_ns) <= slot(point.first_ns));
        let before = at
            .checked_sub(1)
            .filter(|&i| self.width_ns > 0 && slot(self.points[i].first_ns) == slot(point.first_ns));
        match before {
            Some(i) => {
                let into = &mut self.points[i];
                into.first_ns = into.first_ns.min(point.first_ns);
                into.last_ns = into.last_ns.max(point.last_ns);
                let into = &mut self.values[i * self.columns..];
                for ((least, most), (low, high)) in into.iter_mut().zip(values) {
                    // `min` and `max` ignore a NaN.
                    (*least, *most) = (least.min(low), most.max(high));
                }
            }
            None => {
                self.points.insert(at, point);
                let at = at * self.columns;
                self.values.splice(at..at, values);
            }
        }
    }

    /// Widens the time that each point covers, at least twofold, and merges the points that then cover the same time.
    fn widen(&mut self) {
        let (Some(first), Some(last)) = (self.points.first(), self.points.last()) else {
            return;
        };
        let wider = (last.last_ns - first.first_ns) / self.most as i64 + 1;
        self.width_ns = wider.max(self.width_ns.saturating_mul(2));
        let (points, values) = (std::mem::take(&mut self.points), std::mem::take(&mut self.values));
        for (point, values) in points.into_iter().zip(values.chunks(self.columns.max(1))) {
            self.add(point, values.iter().copied());
        }
    }

    /// The time that the values merged into one point may span, ns; 0 if none are merged.
    pub fn width_ns(&self) -> i64 {
        self.width_ns
    }

    /// Makes the lines to be drawn. A merged point becomes two: the smallest values at its start, and the largest at its end. Lines
    /// end at missing values and at gaps.
    pub fn lines(&self) -> Lines {
        let mut lines = Lines {
            times_ns: Vec::with_capacity(self.points.len()),
            columns: vec![Vec::with_capacity(self.points.len()); self.columns],
        };
        let steps = |pair: &[Point]| pair[1].first_ns - pair[0].last_ns;
        let mut ordered: Vec<i64> = self.points.windows(2).map(steps).collect();
        ordered.sort_unstable();
        let median = ordered.get(ordered.len() / 2).copied().unwrap_or(0);
        let mut before: Option<Point> = None;
        for (i, &point) in self.points.iter().enumerate() {
            if let Some(before) = before {
                let step = point.first_ns - before.last_ns;
                if step > 1 && step as f64 > GAP * median as f64 {
                    lines.add(before.last_ns + step / 2, (0..self.columns).map(|_| f64::NAN));
                }
            }
            let values = &self.values[i * self.columns..(i + 1) * self.columns];
            lines.add(point.first_ns, values.iter().map(|(least, _)| *least));
            if self.width_ns > 0 {
                lines.add(point.last_ns, values.iter().map(|(_, most)| *most));
            }
            before = Some(point);
        }
        lines
    }
}

impl Lines {
    fn add(&mut self, time_ns: i64, values: impl Iterator<Item = f64>) {
        self.times_ns.push(time_ns);
        for (column, value) in self.columns.iter_mut().zip(values) {
            column.push(Some(value).filter(|value| !value.is_nan()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn tracks(most: usize, samples: impl IntoIterator<Item = (i64, f64)>) -> Tracks {
        let mut tracks = Tracks::new(1, most);
        for (ms, value) in samples {
            tracks.push(ms * MS, &[value]);
        }
        tracks
    }

    #[test]
    fn few_values_are_drawn_as_they_are() {
        let tracks = tracks(10, [(0, 1.0), (10, f64::NAN), (30, 3.0), (20, 2.0), (80, 4.0)]);
        let lines = tracks.stretches[0].lines();
        // The gap from 30 to 80 ms ends the line.
        assert_eq!(lines.times_ns, [0, 10, 20, 30, 55, 80].map(|ms| ms * MS));
        assert_eq!(
            lines.columns[0],
            [Some(1.0), None, Some(2.0), Some(3.0), None, Some(4.0)]
        );
    }

    #[test]
    fn of_many_values_the_least_and_the_greatest_are_kept() {
        let spike = |i: i64| if i == 7777 { 99.0 } else { (i % 10) as f64 };
        let tracks = tracks(100, (0..10_000).map(|i| (i, spike(i))));
        let lines = tracks.stretches[0].lines();
        assert!((200..=400).contains(&lines.times_ns.len()), "{}", lines.times_ns.len());
        assert!(lines.times_ns.is_sorted());
        let (values, spikes): (Vec<_>, Vec<_>) = lines.columns[0].iter().flatten().partition(|value| **value < 10.0);
        assert_eq!(spikes, [99.0]);
        assert!(values.contains(&0.0) && values.contains(&9.0));
        assert!(!lines.columns[0].contains(&None));
    }

    #[test]
    fn a_clock_that_is_set_begins_a_stretch() {
        let times = [0, 10, 20, 5, -5000, -4990, 4_000_000, 4_000_010];
        let tracks = tracks(10, times.map(|ms| (ms, 0.0)));
        let lengths: Vec<usize> = tracks.stretches.iter().map(|track| track.points.len()).collect();
        assert_eq!((lengths, tracks.left_out), (vec![4, 2, 2], 0));
        let ends = [i64::MIN, i64::MAX].into_iter().cycle().take(20);
        let mut wild = Tracks::new(1, 10);
        ends.for_each(|time_ns| wild.push(time_ns, &[0.0]));
        assert_eq!((wild.stretches.len(), wild.left_out), (MOST_STRETCHES, 12));
    }

    #[test]
    fn a_gap_stays_one_among_many_values() {
        let tracks = tracks(50, (0..1000).chain(5000..6000).map(|i| (i, 1.0)));
        let lines = tracks.stretches[0].lines();
        let gaps: Vec<i64> = lines
            .times_ns
            .iter()
            .zip(&lines.columns[0])
            .filter(|(_, value)| value.is_none())
            .map(|(ns, _)| ns / MS)
            .collect();
        assert_eq!(gaps, [2999]);
    }
}

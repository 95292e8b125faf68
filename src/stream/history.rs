/// What became of a sample that was put into a [`History`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insert {
    /// It is in its place.
    Kept,
    /// It is in its place, and the oldest sample had to go for it.
    Overflowed,
}

/// The samples of one stream in time order, bounded, without an allocation once it has grown to its working size.
///
/// Times and values are contiguous: sample `i` is `times()[i]` and `row(i)`.
pub struct History {
    dim: usize,
    limit: usize,
    head: usize,
    times: Vec<i64>,
    values: Vec<f32>,
}

/// What a new history has room for; it grows to its working size from there.
const PREALLOCATED_BYTES: usize = 1 << 19;

impl History {
    /// A history of samples of `dim` values that holds `limit` of them at most.
    pub fn new(dim: usize, limit: usize) -> Self {
        let room = limit.min(PREALLOCATED_BYTES / (dim * size_of::<f32>()).max(64)).max(2);
        Self {
            dim,
            limit: limit.max(2),
            head: 0,
            times: Vec::with_capacity(room),
            values: Vec::with_capacity(room * dim),
        }
    }

    /// The times, ascending.
    pub fn times(&self) -> &[i64] {
        &self.times[self.head..]
    }

    /// The values of sample `i`.
    pub fn row(&self, i: usize) -> &[f32] {
        let from = (self.head + i) * self.dim;
        &self.values[from..from + self.dim]
    }

    /// The time of the newest sample.
    pub fn newest(&self) -> Option<i64> {
        self.times().last().copied()
    }

    /// The time of the oldest sample that is kept.
    pub fn oldest(&self) -> Option<i64> {
        self.times().first().copied()
    }

    /// Forgets every sample.
    pub fn clear(&mut self) {
        self.head = 0;
        self.times.clear();
        self.values.clear();
    }

    /// Puts a sample into its place in time. Of two with the same time the later arrival wins.
    ///
    /// # Panics
    /// If `values` are not `dim`.
    pub fn insert(&mut self, time: i64, values: &[f32]) -> Insert {
        assert_eq!(values.len(), self.dim, "a sample has one value for each channel");
        let after = self.times().partition_point(|&t| t <= time);
        if after > 0 && self.times()[after - 1] == time {
            let from = (self.head + after - 1) * self.dim;
            self.values[from..from + self.dim].copy_from_slice(values);
            return Insert::Kept;
        }
        let full = self.times().len() >= self.limit;
        if full {
            if after == 0 {
                return Insert::Overflowed;
            }
            self.head += 1;
        }
        let place = after - usize::from(full);
        if self.times.len() == self.times.capacity() {
            self.compact();
        }
        let place = self.head + place;
        self.times.insert(place, time);
        self.values.extend_from_slice(values);
        self.values[place * self.dim..].rotate_right(self.dim);
        if full { Insert::Overflowed } else { Insert::Kept }
    }

    /// Forgets the samples older than the newest one at or before `time`, which a bracket there still needs.
    pub fn forget_before(&mut self, time: i64) {
        let until = self.times().partition_point(|&t| t <= time);
        self.head += until.saturating_sub(1);
        if self.head > self.times.len() / 2 {
            self.compact();
        }
    }

    fn compact(&mut self) {
        self.times.drain(..self.head);
        self.values.drain(..self.head * self.dim);
        self.head = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(limit: usize, times: &[i64]) -> History {
        let mut history = History::new(1, limit);
        for &time in times {
            history.insert(time, &[time as f32]);
        }
        history
    }

    fn check(history: &History, times: &[i64]) {
        assert_eq!(history.times(), times);
        for (i, &time) in times.iter().enumerate() {
            assert_eq!(history.row(i), [time as f32]);
        }
    }

    #[test]
    fn samples_are_kept_in_time_order_whatever_order_they_come_in() {
        check(&filled(10, &[30, 10, 20, 50, 40]), &[10, 20, 30, 40, 50]);
    }

    #[test]
    fn of_two_with_the_same_time_the_later_arrival_wins() {
        let mut history = filled(10, &[10, 20, 30]);
        assert_eq!(history.insert(20, &[7.0]), Insert::Kept);
        assert_eq!(history.times(), [10, 20, 30]);
        assert_eq!(history.row(1), [7.0]);
    }

    #[test]
    fn a_full_history_gives_up_its_oldest_sample_and_says_so() {
        let mut history = filled(3, &[10, 20, 30]);
        assert_eq!(history.insert(40, &[40.0]), Insert::Overflowed);
        check(&history, &[20, 30, 40]);
        assert_eq!(history.insert(5, &[5.0]), Insert::Overflowed);
        check(&history, &[20, 30, 40]);
        assert_eq!(history.insert(25, &[25.0]), Insert::Overflowed);
        check(&history, &[25, 30, 40]);
    }

    #[test]
    fn what_a_bracket_needs_is_not_forgotten() {
        let mut history = filled(10, &[10, 20, 30]);
        history.forget_before(5);
        check(&history, &[10, 20, 30]);
        history.forget_before(25);
        check(&history, &[20, 30]);
        history.forget_before(99);
        check(&history, &[30]);
    }

    #[test]
    fn a_long_run_needs_no_more_memory_than_its_window() {
        let mut history = History::new(2, 1 << 16);
        let mut room = 0;
        for t in 0..100_000 {
            history.insert(t, &[t as f32, -t as f32]);
            history.forget_before(t - 300);
            if t == 1000 {
                room = history.values.capacity();
            }
        }
        assert_eq!(history.times().len(), 301);
        assert_eq!(history.row(300), [99_999.0, -99_999.0]);
        assert_eq!(history.values.capacity(), room);
    }
}

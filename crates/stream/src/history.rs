//! Histories: the samples of one stream in time order, in a bounded buffer.
//!
//! Times ascend without repetition, and a history never holds more samples than its limit: the oldest sample is dropped first.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Result of putting a sample into a [`History`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insert {
    /// The sample was inserted, or replaced the sample of the same time. No other sample was dropped.
    Kept,
    /// The history was full, and the oldest sample was dropped, which may be the new sample itself.
    Overflowed,
}

/// The samples of one stream in time order: a bounded buffer that allocates nothing once it has grown to its working size.
///
/// Times and values are contiguous: sample `i` is `times()[i]` and `row(i)`. Inserting a sample moves the older samples or the
/// newer samples, whichever are fewer. So an insertion is O(1) amortized for samples in order and for samples in reverse,
/// however full the history is. Forgotten samples leave a gap at the front, which is closed once it is half as long as the
/// samples that remain. So a full history takes 1.5 times the memory of its samples.
///
/// **Sequence numbers.** Sample `i` has the sequence number `first() + i`, which does not change when older samples are
/// forgotten. A copy of the history on a device stays up to date by these numbers. It copies again all samples from
/// [`take_rewritten`](Self::take_rewritten) on, and the samples that were appended.
pub struct History {
    dim: usize,
    limit: usize,
    head: usize,
    times: Vec<i64>,
    values: Vec<f32>,
    first: u64,
    /// Lowest sequence number of a sample that has changed since the last call of `take_rewritten`; `u64::MAX` if no sample has
    /// changed.
    rewritten: AtomicU64,
    are_rows_on_device: bool,
}

/// Position of an inserted sample in a [`History`], with which a copy of the rows on a device is updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Sequence number of the inserted sample, as [`History`] defines it.
    pub number: u64,
    /// Number of newer samples, whose sequence numbers rose by one because of the insertion; 0 if `replaces`.
    pub moved: usize,
    /// True if the sample replaces an earlier sample of the same time, and takes over its sequence number.
    pub replaces: bool,
}

/// Upper limit of the memory that a new history allocates for values, bytes; room for two samples is always allocated. The
/// history grows as samples are inserted.
const PREALLOCATED_BYTES: usize = 1 << 19;

impl History {
    /// Creates a history of samples of `dim` values that holds at most `limit` samples; a `limit` below 2 counts as 2.
    pub fn new(dim: usize, limit: usize) -> Self {
        let room = limit.min(PREALLOCATED_BYTES / (dim * size_of::<f32>()).max(64)).max(2);
        Self {
            dim,
            limit: limit.max(2),
            head: 0,
            times: Vec::with_capacity(room),
            values: Vec::with_capacity(room * dim),
            first: 0,
            rewritten: AtomicU64::new(u64::MAX),
            are_rows_on_device: false,
        }
    }

    /// The sequence number of the oldest sample that is kept, or of the next sample if the history is empty.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Returns the lowest sequence number of a sample that has changed since the last call; `u64::MAX` if no sample has changed.
    /// All later samples may have changed, too. Samples appended after the newest sample don't count as changed. As a call resets
    /// the number, only one copy of the history may call this.
    pub fn take_rewritten(&self) -> u64 {
        self.rewritten.swap(u64::MAX, Ordering::Relaxed)
    }

    /// Times of the samples in the history, ns, ascending.
    #[inline]
    pub fn times(&self) -> &[i64] {
        &self.times[self.head..]
    }

    /// The values of sample `i`, counted from the oldest. The rows must be on the host.
    #[inline]
    pub fn row(&self, i: usize) -> &[f32] {
        let from = (self.head + i) * self.dim;
        &self.values[from..from + self.dim]
    }

    /// The values of a range of samples, counted from the oldest, one sample after the other. The rows must be on the host.
    pub fn rows(&self, samples: Range<usize>) -> &[f32] {
        &self.values[(self.head + samples.start) * self.dim..(self.head + samples.end) * self.dim]
    }

    /// Number of samples at or before `time`, ns, by a galloping search from the newest: O(log d) if d samples are later.
    pub fn until(&self, time: i64) -> usize {
        let times = self.times();
        let mut step = 1;
        let mut end = times.len();
        while step <= end && times[end - step] > time {
            end -= step;
            step *= 2;
        }
        let begin = end.saturating_sub(step);
        begin + times[begin..end].partition_point(|&t| t <= time)
    }

    /// The time of the newest sample, ns; `None` if the history is empty.
    pub fn newest(&self) -> Option<i64> {
        self.times().last().copied()
    }

    /// The time of the oldest sample that is kept, ns; `None` if the history is empty.
    pub fn oldest(&self) -> Option<i64> {
        self.times().first().copied()
    }

    /// Adds `ns` to the times of all samples, as after a change of their sensor's latency.
    pub fn shift(&mut self, ns: i64) {
        for time in &mut self.times[self.head..] {
            *time += ns;
        }
        self.rewrite_from(0);
    }

    /// Forgets every sample; keeps the allocated memory. Sequence numbers are not used again.
    pub fn clear(&mut self) {
        self.first += self.times().len() as u64;
        self.head = 0;
        self.times.clear();
        self.values.clear();
    }

    /// Inserts a sample in time order. A sample of the same time is replaced. If the history is full, the oldest sample
    /// is dropped.
    ///
    /// # Panics
    /// If there are not `dim` values, or the rows are on a device.
    pub fn insert(&mut self, time: i64, values: &[f32]) -> Insert {
        assert_eq!(values.len(), self.dim, "a sample has one value for each channel");
        assert!(!self.are_rows_on_device, "the rows of this history are elsewhere");
        let (inserted, place) = self.insert_time(time);
        let Some(place) = place else { return inserted };
        let from = (self.head + (place.number - self.first) as usize) * self.dim;
        self.values[from..from + self.dim].copy_from_slice(values);
        inserted
    }

    /// Inserts the time of a sample, ns, into a history whose rows are on a device. Returns the position at which the caller
    /// must write the row on the device; `None` if the sample was dropped.
    pub fn insert_time(&mut self, time: i64) -> (Insert, Option<Place>) {
        let after = self.until(time);
        if after > 0 && self.times()[after - 1] == time {
            self.rewrite_from(after - 1);
            let place = Place {
                number: self.first + after as u64 - 1,
                moved: 0,
                replaces: true,
            };
            return (Insert::Kept, Some(place));
        }
        let place = Place {
            number: self.first + after as u64,
            moved: self.times().len() - after,
            replaces: false,
        };
        let full = self.times().len() >= self.limit;
        if full {
            if after == 0 {
                return (Insert::Overflowed, None);
            }
            self.head += 1;
            self.first += 1;
        }
        let at = after - usize::from(full);
        if place.moved > 0 {
            self.rewrite_from(at);
        }
        self.open(at);
        self.times[self.head + at] = time;
        (if full { Insert::Overflowed } else { Insert::Kept }, Some(place))
    }

    /// True if the rows are on a device, and the history keeps only the times.
    pub fn are_rows_on_device(&self) -> bool {
        self.are_rows_on_device
    }

    /// Drops the rows, which the caller has copied to a device. From now on the history keeps only the times.
    pub fn move_rows_to_device(&mut self) {
        self.are_rows_on_device = true;
        self.values.clear();
    }

    /// Forgets every sample, and stores the rows of later samples on the host again.
    pub fn forget_rows_on_device(&mut self) {
        self.clear();
        self.are_rows_on_device = false;
    }

    /// Replaces the rows of all samples by `rows`, copied back from a device, oldest first. From now on rows are on the
    /// host again.
    ///
    /// # Panics
    /// If there are not as many rows as samples.
    pub fn restore_rows(&mut self, rows: &[f32]) {
        assert_eq!(rows.len(), self.times().len() * self.dim, "a row for each sample");
        self.compact();
        self.values.clear();
        self.values.reserve_exact(self.times.capacity() * self.dim);
        self.values.extend_from_slice(rows);
        self.are_rows_on_device = false;
    }

    /// Forgets the samples at or before `time`, ns, except the newest `needed` of them, from which a value at `time`
    /// is computed.
    pub fn forget_before(&mut self, time: i64, needed: usize) {
        // A galloping search, as most calls forget little or nothing.
        let times = self.times();
        let mut step = 1;
        while step < times.len() && times[step] <= time {
            step *= 2;
        }
        let until = times[..times.len().min(step + 1)].partition_point(|&t| t <= time);
        let forgotten = until.saturating_sub(needed);
        self.head += forgotten;
        self.first += forgotten as u64;
        if self.head > self.times.len() / 2 {
            self.compact();
        }
    }

    fn rewrite_from(&mut self, sample: usize) {
        let number = self.first + sample as u64;
        let rewritten = self.rewritten.get_mut();
        *rewritten = number.min(*rewritten);
    }

    /// Makes room for a sample at index `at`, whose time and values are undefined until they are written. Moves the older
    /// samples toward the front, or the newer samples toward the back, whichever are fewer.
    fn open(&mut self, at: usize) {
        let held = self.times.len() - self.head;
        if at < held - at {
            if self.head == 0 {
                // `open_front` takes half of the room at the back, so there must be some.
                self.make_room();
                self.open_front();
            }
            let (head, dim) = (self.head, self.dim);
            self.times.copy_within(head..head + at, head - 1);
            if !self.are_rows_on_device {
                self.values.copy_within(head * dim..(head + at) * dim, (head - 1) * dim);
            }
            self.head -= 1;
        } else {
            self.make_room();
            self.times.insert(self.head + at, 0);
            if !self.are_rows_on_device {
                let (from, end) = ((self.head + at) * self.dim, self.values.len());
                self.values.resize(end + self.dim, 0.0);
                self.values.copy_within(from..end, from + self.dim);
            }
        }
    }

    /// Makes room for one more sample at the back of the buffer, if there is none. Closes the gap that forgotten samples left
    /// at the front if it is long enough; else allocates.
    fn make_room(&mut self) {
        if self.times.len() < self.times.capacity() {
            return;
        }
        let held = self.times.len() - self.head;
        if self.head > 0 && self.head >= held / 2 {
            return self.compact();
        }
        let most = self.limit + self.limit / 2 + 1;
        let room = (2 * self.times.len()).clamp(self.times.len() + 1, most.max(self.times.len() + 1));
        self.times.reserve_exact(room - self.times.len());
        if !self.are_rows_on_device {
            self.values.reserve_exact(room * self.dim - self.values.len());
        }
    }

    /// Moves all samples toward the back by half of the spare room there, which makes a gap at the front. Before the call,
    /// there must be no gap at the front.
    fn open_front(&mut self) {
        let held = self.times.len();
        let gap = (self.times.capacity() - held).div_ceil(2);
        self.times.resize(held + gap, 0);
        self.times.copy_within(..held, gap);
        if !self.are_rows_on_device {
            self.values.resize((held + gap) * self.dim, 0.0);
            self.values.copy_within(..held * self.dim, gap * self.dim);
        }
        self.head = gap;
    }

    fn compact(&mut self) {
        self.times.drain(..self.head);
        if !self.are_rows_on_device {
            self.values.drain(..self.head * self.dim);
        }
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
        history.forget_before(5, 1);
        check(&history, &[10, 20, 30]);
        history.forget_before(25, 2);
        check(&history, &[10, 20, 30]);
        history.forget_before(25, 1);
        check(&history, &[20, 30]);
        history.forget_before(99, 1);
        check(&history, &[30]);
    }

    #[test]
    fn a_number_stays_with_its_sample_as_long_as_no_other_comes_before_it() {
        let mut history = filled(3, &[10, 20]);
        assert_eq!((history.first(), history.take_rewritten()), (0, u64::MAX));
        history.insert(30, &[30.0]);
        history.insert(40, &[40.0]); // 10 goes
        assert_eq!((history.first(), history.take_rewritten()), (1, u64::MAX));
        history.insert(30, &[7.0]); // number 2
        history.insert(40, &[8.0]);
        assert_eq!((history.first(), history.take_rewritten()), (1, 2));
        assert_eq!(history.take_rewritten(), u64::MAX);
        history.insert(35, &[35.0]); // 20 goes, and 40 was number 3
        assert_eq!((history.first(), history.take_rewritten()), (2, 3));
        assert_eq!(history.times(), [30, 35, 40]);
        history.forget_before(36, 1);
        assert_eq!((history.first(), history.take_rewritten()), (3, u64::MAX));
        history.clear();
        assert_eq!((history.first(), history.take_rewritten()), (5, u64::MAX));
        history.insert(1, &[1.0]);
        history.insert(0, &[0.0]);
        assert_eq!((history.first(), history.take_rewritten()), (5, 5));
        assert_eq!(history.rows(0..2), [0.0, 1.0]);
    }

    #[test]
    fn rows_that_were_elsewhere_come_back_to_their_samples() {
        let mut history = filled(4, &[10, 20, 30, 40]);
        history.move_rows_to_device();
        assert_eq!(history.insert_time(50).0, Insert::Overflowed);
        history.forget_before(30, 1);
        history.restore_rows(&[30.0, 40.0, 50.0]);
        assert!(!history.are_rows_on_device());
        history.insert(35, &[35.0]);
        check(&history, &[30, 35, 40, 50]);
    }

    #[test]
    fn a_long_run_needs_no_more_memory_than_its_window() {
        let mut history = History::new(2, 1 << 16);
        let mut room = 0;
        for t in 0..100_000 {
            history.insert(t, &[t as f32, -t as f32]);
            history.forget_before(t - 300, 1);
            if t == 1000 {
                room = history.values.capacity();
            }
        }
        assert_eq!(history.times().len(), 301);
        assert_eq!(history.row(300), [99_999.0, -99_999.0]);
        assert_eq!(history.values.capacity(), room);
    }

    #[test]
    fn the_place_of_a_time_is_found_from_the_newest_sample_on() {
        let times: Vec<i64> = (0..100).map(|i| 10 * i).collect();
        let history = filled(1000, &times);
        for time in -15..1010 {
            assert_eq!(history.until(time), times.partition_point(|&t| t <= time), "{time}");
        }
        assert_eq!(filled(2, &[]).until(0), 0);
    }

    #[test]
    fn samples_move_with_the_latency_of_their_sensor() {
        let mut history = filled(10, &[10, 20, 30]);
        history.forget_before(20, 1);
        history.take_rewritten();
        history.shift(-5);
        assert_eq!(history.times(), [15, 25]);
        assert_eq!(history.row(0), [20.0]);
        assert_eq!(history.take_rewritten(), 1);
    }

    /// Compares a history with a sorted list: samples in order, in reverse and at random, with repeated times, a limit, forgetting
    /// and clearing. Also keeps a copy as a device does, to check which samples must be read again.
    #[test]
    fn a_history_is_a_sorted_list_of_its_newest_samples() {
        for seed in 0..400 {
            // A linear congruential generator, with Knuth's constants.
            let mut state: u64 = seed;
            let mut below = move |n: u64| {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                (state >> 33) % n
            };
            let limit = [2, 3, 7, 40, 300][below(5) as usize];
            let mut history = History::new(3, limit);
            let mut list: Vec<(i64, f32)> = Vec::new();
            let mut copy = std::collections::BTreeMap::new();
            let (mut end, mut time, mut step) = (0, 0, 1);
            for n in 0..1000 {
                match below(100) {
                    0 => step = [1, -1, 0][below(3) as usize],
                    1 => {
                        let (before, needed) = (time - below(50) as i64, below(4) as usize);
                        history.forget_before(before, needed);
                        let until = list.partition_point(|&(t, _)| t <= before);
                        list.drain(..until.saturating_sub(needed));
                    }
                    2 if below(10) == 0 => {
                        history.clear();
                        list.clear();
                    }
                    _ => {
                        time += step * below(3) as i64;
                        let at_once = if step == 0 {
                            time + below(200) as i64 - 100
                        } else {
                            time
                        };
                        let value = n as f32;
                        let inserted = history.insert(at_once, &[value, -value, 0.5]);
                        let at = list.partition_point(|&(t, _)| t < at_once);
                        let mut expected = Insert::Kept;
                        if list.get(at).is_some_and(|&(t, _)| t == at_once) {
                            list[at].1 = value;
                        } else {
                            list.insert(at, (at_once, value));
                            if list.len() > limit {
                                list.remove(0);
                                expected = Insert::Overflowed;
                            }
                        }
                        assert_eq!(inserted, expected, "seed {seed}, step {n}");
                    }
                }
                let times: Vec<i64> = list.iter().map(|&(t, _)| t).collect();
                assert_eq!(history.times(), times, "seed {seed}, step {n}");
                let first = history.first();
                for number in end.min(history.take_rewritten()).max(first)..first + list.len() as u64 {
                    let i = (number - first) as usize;
                    copy.insert(number, (history.times()[i], history.row(i)[0]));
                }
                end = first + list.len() as u64;
                for (i, &(t, value)) in list.iter().enumerate() {
                    assert_eq!(history.row(i), [value, -value, 0.5], "seed {seed}, step {n}");
                    assert_eq!(copy[&(first + i as u64)], (t, value), "seed {seed}, step {n}");
                }
            }
        }
    }

    /// Times 200,000 insertions in ascending and in descending order, in one run, so that other work of the machine slows both
    /// down. An insertion that moved all samples would take 1,000 times as long.
    #[test]
    fn samples_in_reverse_cost_what_samples_in_order_cost() {
        let seconds = |step: i64| {
            let mut history = History::new(6, 1 << 20);
            let start = std::time::Instant::now();
            for n in 0..200_000 {
                history.insert(step * n, &[n as f32; 6]);
            }
            assert_eq!(history.times().len(), 200_000);
            start.elapsed().as_secs_f64()
        };
        let (order, reverse) = (seconds(1), seconds(-1));
        println!("{order:.4} s in order, {reverse:.4} s in reverse");
        assert!(reverse < 20.0 * order);
    }

    /// Returns the mean time of an insertion at the end of a full history of `limit` samples, ns, over `count` insertions.
    fn insert_ns(limit: usize, count: i64) -> f64 {
        let mut history = History::new(6, limit);
        // Filled twice, so that the history has allocated all its memory.
        let filled = 2 * limit as i64;
        for t in 0..filled {
            history.insert(t, &[0.0; 6]);
        }
        let start = std::time::Instant::now();
        for t in 0..count {
            history.insert(filled + t, &[0.0; 6]);
        }
        start.elapsed().as_nanos() as f64 / count as f64
    }

    /// Compares insertions in full histories of 64 and of 2^18 samples. The bound is wide, as the machine may do other work
    /// meanwhile: moving all samples would take 10,000 times as long.
    #[test]
    fn a_full_history_takes_no_longer_for_a_sample() {
        let (short, long) = (insert_ns(64, 1_000_000), insert_ns(1 << 18, 1_000_000));
        println!("{long:.1} ns a sample with a full history, {short:.1} with a short one");
        assert!(long < 50.0 * short);
    }

    #[test]
    fn a_full_history_takes_half_as_much_memory_again_at_most() {
        let limit = 10_000;
        let mut history = History::new(2, limit);
        for t in 0..100_000 {
            history.insert(t, &[t as f32, 0.0]);
        }
        assert_eq!(history.times().len(), limit);
        assert_eq!(history.row(limit - 1), [99_999.0, 0.0]);
        assert!(
            history.times.capacity() <= limit * 3 / 2 + 1,
            "{}",
            history.times.capacity()
        );
        assert!(
            history.values.capacity() <= limit * 3 + 2,
            "{}",
            history.values.capacity()
        );
    }
}

//! The policies of `group` written a second time, slow and obvious, from the description of message_filters and not from the
//! library's code. Each takes messages (stream, time) in order of arrival, and makes sets of message numbers.

use std::collections::{BTreeMap, VecDeque};

pub type Set = Vec<usize>;

#[derive(Clone, Copy)]
struct Queued {
    time: i64,
    number: usize,
}

/// The policy ApproximateTime: a deque of messages for each stream, and the messages that the search for the best
/// set has passed.
pub struct ApproximateTime {
    deques: Vec<VecDeque<Queued>>,
    past: Vec<Vec<Queued>>,
    dropped: Vec<bool>,
    bounds: Vec<i64>,
    candidate: Vec<Queued>,
    start: i64,
    end: i64,
    pivot: Option<usize>,
    pivot_time: i64,
    queue_size: usize,
    /// Factor `1 + age_penalty`, at most 2, in units of 2^-52. It scales the time by which a set ends later than the candidate.
    scale: i128,
    max_span: i64,
    pub sets: Vec<Set>,
}

impl ApproximateTime {
    pub fn new(bounds: &[i64], queue_size: usize, age_penalty: f64, max_span: i64) -> Self {
        let n = bounds.len();
        Self {
            deques: vec![VecDeque::new(); n],
            past: vec![Vec::new(); n],
            dropped: vec![false; n],
            bounds: bounds.to_vec(),
            candidate: Vec::new(),
            start: 0,
            end: 0,
            pivot: None,
            pivot_time: 0,
            queue_size,
            scale: ((1.0 + age_penalty) * 2f64.powi(52)) as i128,
            max_span,
            sets: Vec::new(),
        }
    }

    fn aged(&self, distance: i64) -> i64 {
        (i128::from(distance) * self.scale / (1i128 << 52)) as i64
    }

    fn none_is_empty(&self) -> bool {
        self.deques.iter().all(|deque| !deque.is_empty())
    }

    fn undo_past(&mut self) {
        for (deque, past) in self.deques.iter_mut().zip(&mut self.past) {
            while let Some(held) = past.pop() {
                deque.push_front(held);
            }
        }
    }

    fn pass_head(&mut self, stream: usize) {
        let head = self.deques[stream].pop_front().unwrap();
        self.past[stream].push(head);
    }

    /// Returns index and value of the latest time (the last of equal ones), then of the earliest (the first of equal ones).
    fn boundaries(times: &[i64]) -> ((usize, i64), (usize, i64)) {
        let latest = *times.iter().max().unwrap();
        let earliest = *times.iter().min().unwrap();
        let last = times.iter().rposition(|&time| time == latest).unwrap();
        let first = times.iter().position(|&time| time == earliest).unwrap();
        ((last, latest), (first, earliest))
    }

    pub fn add(&mut self, stream: usize, time: i64, number: usize) {
        self.deques[stream].push_back(Queued { time, number });
        if self.deques[stream].len() == 1 && self.none_is_empty() {
            self.process();
        }
        if self.deques[stream].len() + self.past[stream].len() > self.queue_size {
            self.undo_past();
            self.deques[stream].pop_front();
            self.dropped[stream] = true;
            if self.pivot.take().is_some() {
                self.process();
            }
        }
    }

    fn take_candidate(&mut self, start: i64, end: i64) {
        self.candidate = self.deques.iter().map(|deque| deque[0]).collect();
        self.past.iter_mut().for_each(Vec::clear);
        (self.start, self.end) = (start, end);
    }

    fn publish(&mut self) {
        self.sets
            .push(self.candidate.drain(..).map(|held| held.number).collect());
        self.pivot = None;
        self.undo_past();
        for deque in &mut self.deques {
            deque.pop_front();
        }
    }

    fn process(&mut self) {
        while self.none_is_empty() {
            let heads: Vec<i64> = self.deques.iter().map(|deque| deque[0].time).collect();
            let ((last, end), (first, start)) = Self::boundaries(&heads);
            for (stream, dropped) in self.dropped.iter_mut().enumerate() {
                if stream != last {
                    *dropped = false;
                }
            }
            if self.pivot.is_none() {
                if end - start > self.max_span || self.dropped[last] {
                    self.deques[first].pop_front();
                    continue;
                }
                self.take_candidate(start, end);
                (self.pivot, self.pivot_time) = (Some(last), end);
            } else if self.aged(end - self.end) < start - self.start {
                self.take_candidate(start, end);
            }
            self.pass_head(first);
            if Some(first) == self.pivot || self.aged(end - self.end) >= self.pivot_time - self.start {
                self.publish();
            } else if !self.none_is_empty() {
                self.search_on();
            }
        }
    }

    /// Continues the search for the best set while a deque is empty. Lower bounds stand in for the times of messages that are
    /// yet to come.
    fn search_on(&mut self) {
        let mut moved: Vec<usize> = Vec::new();
        loop {
            let virtual_head = |stream: usize| match self.deques[stream].front() {
                Some(head) => head.time,
                None => {
                    let last = self.past[stream].last().unwrap().time;
                    (last + self.bounds[stream]).max(self.pivot_time)
                }
            };
            let heads: Vec<i64> = (0..self.deques.len()).map(virtual_head).collect();
            let ((_, end), (first, start)) = Self::boundaries(&heads);
            if self.aged(end - self.end) >= self.pivot_time - self.start {
                return self.publish();
            }
            if self.aged(end - self.end) < start - self.start {
                while let Some(stream) = moved.pop() {
                    let held = self.past[stream].pop();
                    self.deques[stream].push_front(held.unwrap());
                }
                return;
            }
            self.pass_head(first);
            moved.push(first);
        }
    }
}

/// The policy ExactTime: for each time, the messages of all streams that have arrived with it.
pub struct ExactTime {
    pub streams: usize,
    pub queue_size: usize,
    pub waiting: BTreeMap<i64, Vec<Option<usize>>>,
    pub sets: Vec<Set>,
}

impl ExactTime {
    pub fn add(&mut self, stream: usize, time: i64, number: usize) {
        let none = vec![None; self.streams];
        let set = self.waiting.entry(time).or_insert(none);
        set[stream] = Some(number);
        if set.iter().all(Option::is_some) {
            self.sets.push(set.iter().map(|number| number.unwrap()).collect());
            self.waiting.retain(|&other, _| other > time);
        }
        while self.waiting.len() > self.queue_size {
            self.waiting.pop_first();
        }
    }
}

/// The policy ApproximateEpsilonTime: a deque of messages for each stream.
pub struct ApproximateEpsilonTime {
    deques: Vec<VecDeque<Queued>>,
    queue_size: usize,
    epsilon: i64,
    pub sets: Vec<Set>,
}

impl ApproximateEpsilonTime {
    pub fn new(streams: usize, queue_size: usize, epsilon: i64) -> Self {
        Self {
            deques: vec![VecDeque::new(); streams],
            queue_size,
            epsilon,
            sets: Vec::new(),
        }
    }

    pub fn add(&mut self, stream: usize, time: i64, number: usize) {
        self.deques[stream].push_back(Queued { time, number });
        let is_full = |deques: &[VecDeque<Queued>]| deques.iter().all(|deque| !deque.is_empty());
        if !is_full(&self.deques) {
            if self.deques[stream].len() > self.queue_size {
                self.deques[stream].pop_front();
            }
            return;
        }
        while is_full(&self.deques) {
            let limit = self.deques.iter().map(|deque| deque[0].time).min().unwrap() + self.epsilon;
            if self.deques.iter().all(|deque| deque[0].time <= limit) {
                let heads = self.deques.iter_mut().map(|deque| deque.pop_front().unwrap().number);
                self.sets.push(heads.collect());
            } else {
                for deque in self.deques.iter_mut().filter(|deque| deque[0].time <= limit) {
                    deque.pop_front();
                }
            }
        }
    }
}

//! Messages of attached streams (`attach:`), such as voxel grids: keeps them while observations may need them, and finds the
//! message of each row of a window.
//!
//! The caller stores an item for each message, such as the message itself. [`Attached::next_released`] returns each item
//! once it is no longer kept. A stream keeps at most `max_held_mb` MiB: messages that no row can need are released first,
//! then the oldest.

use super::{Aligner, AttachedSpec, PushOutcome, SampleError, Target, Timeline};
use std::collections::VecDeque;

/// Messages of the attached streams of an [`Aligner`]. The caller chooses the item `M` that is stored for a message: the
/// message itself, or its number.
///
/// The [`Timeline`] keeps the times of the messages and decides which observation is due, as for a modality with `previous`.
/// This type keeps the items. [`push`](Self::push) adds a message, [`select`](Self::select) finds the messages of a window, and
/// [`next_released`](Self::next_released) returns the items that are no longer needed.
///
/// ```
/// use robocache_device::{Placement, Values};
/// use robocache_ops::align::{Aligner, AttachConfig, Attached, ModalityConfig};
/// use robocache_ops::fuse::FuseConfig;
/// use robocache_time::Interpolation;
///
/// let config = FuseConfig {
///     rate_hz: 100.0,
///     modalities: vec![ModalityConfig {
///         input: "arm".into(),
///         dim: 1,
///         interpolation: Some(Interpolation::Previous),
///         ..ModalityConfig::default()
///     }],
///     attach: vec![AttachConfig { input: "voxels".into(), ..AttachConfig::default() }],
///     ..FuseConfig::default()
/// };
/// let mut aligner = Aligner::fused(&config, &Placement::cpu("an example"))?;
/// let mut grids = Attached::new(aligner.timeline());
///
/// const MS: i64 = 1_000_000;
/// grids.push(&mut aligner, 0, 4 * MS, 100, || "the grid of 4 ms")?;
/// grids.push(&mut aligner, 0, 14 * MS, 100, || "the grid of 14 ms")?;
/// aligner.push(0, 10 * MS, Values::from_f32(&[1.0]))?;
/// let target = aligner.due().ok_or("both are past 10 ms")?;
/// grids.select(aligner.timeline(), &target);
/// assert_eq!(grids.members(0).collect::<Vec<_>>(), [&"the grid of 4 ms"]);
/// assert_eq!((grids.index(), grids.age_ns()), (&[0][..], &[6 * MS][..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Attached<M> {
    streams: Vec<AttachedStream<M>>,
    /// Message in each of T rows from each of A attached streams, in the last selected window, `[T, A]` row-major: its index in
    /// the stream's `members`, or -1 without a message.
    index: Vec<i64>,
    /// Age of each message in `index`, `[T, A]` row-major, ns: time of the row minus time of the message, or -1
    /// without a message.
    age_ns: Vec<i64>,
    /// Released items that the caller has not fetched yet, each with the index of its attached stream.
    released: Vec<(usize, M)>,
}

struct AttachedStream<M> {
    spec: AttachedSpec,
    /// Index of the stream in the timeline, where the modalities come first.
    stream: usize,
    /// One slot for each message time in the timeline's history of the stream, in the same order.
    slots: VecDeque<Slot<M>>,
    /// Sequence number, in the stream's history, of the message in `slots[0]`.
    first: u64,
    /// Total size of the messages that are kept, bytes.
    held: usize,
    /// Sequence number of the first message that `make_room` has not checked yet. It checks whether a later row
    /// needs a message.
    checked_until: u64,
    /// Sequence number of the first message that may still be kept: `make_room` has released all messages before it.
    given_up_until: u64,
    /// Indices in `slots` of the distinct messages of the last selected window, ascending.
    members: Vec<usize>,
}

/// Message whose time is in the stream's history. `item` is `None` if it was released early because of `max_held_mb`.
struct Slot<M> {
    item: Option<M>,
    bytes: usize,
}

/// Result of adding a message to [`Attached`]: its effect on the timeline, and the number of messages that were released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Effect of the message on the timeline: late, overflow, clock jump, as for a sample of a modality.
    pub pushed: PushOutcome,
    /// Number of messages that this call released because of `max_held_mb`, the oldest first, although a later row may
    /// have needed them.
    pub dropped: usize,
}

/// Reason why a message of an attached stream was dropped. Later messages are accepted as usual.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AttachError {
    /// The stamp is not within +-2^61 ns.
    #[error(transparent)]
    Stamp(#[from] SampleError),
    /// The message alone is larger than `max_held_mb`.
    #[error("it takes {came} bytes (allowed: {allowed}, `max_held_mb`)")]
    TooLarge {
        /// Size of the message, bytes.
        came: usize,
        /// Limit of all messages of the stream that are kept, bytes: `max_held_mb`.
        allowed: usize,
    },
}

impl<M> Attached<M> {
    /// Creates an empty store for the messages of a timeline's attached streams.
    pub fn new(timeline: &Timeline) -> Self {
        let streams = timeline.attached().iter().enumerate().map(|(i, spec)| AttachedStream {
            spec: spec.clone(),
            stream: timeline.modalities() + i,
            slots: VecDeque::new(),
            first: 0,
            held: 0,
            checked_until: 0,
            given_up_until: 0,
            members: Vec::new(),
        });
        Self {
            streams: streams.collect(),
            index: Vec::new(),
            age_ns: Vec::new(),
            released: Vec::new(),
        }
    }

    /// Adds a message of an attached stream, with its stamp, ns, and its size, bytes. The function `item` makes the item to
    /// store. It is not called for a message that is dropped at once. Call [`due`](Aligner::due) after each message, until
    /// it returns `None`.
    ///
    /// # Errors
    /// [`AttachError`]: the message is dropped, and its stamp is not added to the timeline.
    ///
    /// # Panics
    /// If `attached` is not the index of an attached stream.
    pub fn push(
        &mut self,
        aligner: &mut Aligner,
        attached: usize,
        stamp_ns: i64,
        bytes: usize,
        item: impl FnOnce() -> M,
    ) -> Result<Arrival, AttachError> {
        let Self { streams, released, .. } = self;
        let of = &mut streams[attached];
        let mut release = |item| released.push((attached, item));
        let allowed = of.spec.max_held;
        if bytes > allowed {
            return Err(AttachError::TooLarge { came: bytes, allowed });
        }
        let timeline = &mut aligner.timeline;
        timeline.check(of.stream, stamp_ns, 0)?;
        let (pushed, place) = timeline.push_time(of.stream, stamp_ns);
        of.follow(timeline, &mut release);
        let mut dropped = 0;
        if let Some(place) = place {
            let at = (place.number - of.first) as usize;
            let item = Some(item());
            of.held += bytes;
            of.checked_until = of.checked_until.min(place.number);
            of.given_up_until = of.given_up_until.min(place.number);
            if place.replaces {
                of.give_up(at).into_iter().for_each(&mut release);
                of.slots[at] = Slot { item, bytes };
            } else {
                of.slots.insert(at, Slot { item, bytes });
            }
            dropped = of.make_room(timeline, &mut release);
        }
        Ok(Arrival { pushed, dropped })
    }

    /// Finds the message of each row of an observation: the newest one at or before the row's time. The row has no message if
    /// that one is older than `max_age_ms`, or was released early. The result is in `members`, `index` and `age_ns`.
    pub fn select(&mut self, timeline: &Timeline, target: &Target) {
        let (rows, streams) = (timeline.window(), self.streams.len());
        for list in [&mut self.index, &mut self.age_ns] {
            list.clear();
            list.resize(rows * streams, -1);
        }
        for (i, of) in self.streams.iter_mut().enumerate() {
            of.follow(timeline, &mut |item| self.released.push((i, item)));
            of.members.clear();
            let history = timeline.history(of.stream);
            for row in rows - of.spec.rows..rows {
                let at_row = timeline.row(target, row);
                let newest = history.until(at_row.time_ns).checked_sub(1);
                let Some(newest) = newest.filter(|_| at_row.is_there) else {
                    continue;
                };
                let age = at_row.time_ns - history.times()[newest];
                let is_too_old = of.spec.max_age.is_some_and(|most| age > most);
                if is_too_old || of.slots[newest].item.is_none() {
                    continue;
                }
                // Rows ascend, and so do the indices of their messages.
                if of.members.last() != Some(&newest) {
                    of.members.push(newest);
                }
                let at = row * streams + i;
                (self.index[at], self.age_ns[at]) = (of.members.len() as i64 - 1, age);
            }
        }
    }

    /// Returns the distinct messages of an attached stream in the window that was [selected](Self::select) last, oldest first.
    pub fn members(&self, attached: usize) -> impl ExactSizeIterator<Item = &M> + Clone {
        let AttachedStream { slots, members, .. } = &self.streams[attached];
        members.iter().map(|&at| match &slots[at].item {
            Some(item) => item,
            None => unreachable!("a member is held until the next call that changes something"),
        })
    }

    /// Returns the message in each of T rows from each of A attached streams, `[T, A]` row-major: its index among the stream's
    /// [`members`](Self::members), or -1 without a message.
    pub fn index(&self) -> &[i64] {
        &self.index
    }

    /// Returns the age of each message in [`index`](Self::index), `[T, A]` row-major, ns: time of the row minus time of the
    /// message, or -1 without a message.
    pub fn age_ns(&self) -> &[i64] {
        &self.age_ns
    }

    /// Returns the total size of the messages of an attached stream that are kept, bytes.
    pub fn held_bytes(&self, attached: usize) -> usize {
        self.streams[attached].held
    }

    /// Returns a released item and the index of its attached stream; `None` if no item is left. Each item is returned once.
    pub fn next_released(&mut self) -> Option<(usize, M)> {
        self.released.pop()
    }
}

impl<M> AttachedStream<M> {
    /// Releases the messages whose times are no longer in the stream's history.
    fn follow(&mut self, timeline: &Timeline, release: &mut impl FnMut(M)) {
        let first = timeline.history(self.stream).first();
        while self.first < first {
            if !self.slots.is_empty() {
                self.give_up(0).into_iter().for_each(&mut *release);
                self.slots.pop_front();
            }
            self.first += 1;
        }
    }

    fn give_up(&mut self, at: usize) -> Option<M> {
        let item = self.slots[at].item.take();
        if item.is_some() {
            self.held -= self.slots[at].bytes;
        }
        item
    }

    /// Releases messages until at most `max_held_mb` are kept: first messages that no later row can need, then the oldest.
    /// Returns the number of messages that were released although a later row may need them.
    fn make_room(&mut self, timeline: &Timeline, release: &mut impl FnMut(M)) -> usize {
        let times = timeline.history(self.stream).times();
        self.checked_until = self.checked_until.max(self.first);
        while self.held > self.spec.max_held {
            let slot = (self.checked_until - self.first) as usize;
            let (Some(&from), Some(&next)) = (times.get(slot), times.get(slot + 1)) else {
                break;
            };
            self.checked_until += 1;
            // A row exactly `max_age` after the message still has the message; the end of the range is exclusive.
            let until = self.spec.max_age.map_or(next, |max_age| next.min(from + max_age + 1));
            if !timeline.awaits_row_in(from, until) {
                self.give_up(slot).into_iter().for_each(&mut *release);
            }
        }
        let mut dropped = 0;
        self.given_up_until = self.given_up_until.max(self.first);
        while self.held > self.spec.max_held && self.given_up_until < self.first + self.slots.len() as u64 {
            if let Some(item) = self.give_up((self.given_up_until - self.first) as usize) {
                release(item);
                dropped += 1;
            }
            self.given_up_until += 1;
        }
        dropped
    }
}

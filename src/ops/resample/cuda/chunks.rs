//! How a batch is cut into chunks that fit the memory of a device, and where the parts of a chunk lie in it.

use super::super::Trajectories;
use super::launch::Tile;
use std::ops::Range;

/// A part of a batch: trajectories, or targets of one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub rows: Range<usize>,
    /// Samples of those rows, of all of the batch.
    pub samples: Range<usize>,
    /// Targets, of all of the batch.
    pub targets: Range<usize>,
    /// Whether it is the one that counts the dropped samples of its rows.
    pub counts_samples: bool,
}

/// Where the parts of a chunk lie in one piece of memory: byte offsets, and how many bytes there are in all.
pub(super) struct Places {
    pub times: usize,
    pub values: usize,
    pub targets: usize,
    pub tiles: usize,
    pub out: usize,
    pub valid: usize,
    pub dropped: usize,
    pub bytes: usize,
}

/// What every part of a chunk begins at a multiple of.
const ALIGNMENT: usize = 256;

impl Places {
    pub fn of(batch: &Trajectories<'_>, chunk: &Chunk) -> Self {
        let row_bytes = batch.dim * batch.dtype().size();
        let (samples, targets) = (chunk.samples.len(), chunk.targets.len());
        let mut bytes = 0;
        let mut place = |size: usize| {
            let at = bytes;
            bytes += size.next_multiple_of(ALIGNMENT);
            at
        };
        // Each row has at most one tile that is not full.
        let tiles = targets / Tile::LEAST_TARGETS + chunk.rows.len();
        Self {
            times: place(samples * size_of::<i64>()),
            values: place(samples * row_bytes),
            targets: place(targets * size_of::<i64>()),
            tiles: place(tiles * size_of::<Tile>()),
            out: place(targets * row_bytes),
            valid: place(targets),
            dropped: place(size_of::<u64>()),
            bytes,
        }
    }
}

impl Chunk {
    /// Whether there is a smaller one that does a part of it.
    pub fn can_be_halved(&self) -> bool {
        self.rows.len() > 1 || self.targets.len() > 1
    }

    /// The bytes of times, values and targets.
    pub fn inputs<'a>(&self, batch: &Trajectories<'a>) -> (&'a [u8], &'a [u8], &'a [u8]) {
        let row_bytes = batch.dim * batch.dtype().size();
        (
            bytemuck::cast_slice(&batch.times[self.samples.clone()]),
            &batch.values.bytes()[self.samples.start * row_bytes..self.samples.end * row_bytes],
            bytemuck::cast_slice(&batch.targets[self.targets.clone()]),
        )
    }

    /// How many samples and targets every row has, if they all have the same.
    pub fn regular(&self, batch: &Trajectories<'_>) -> Option<(usize, usize)> {
        let even = |offsets: &[i32], len: usize| {
            let steps = offsets[self.rows.start..=self.rows.end].windows(2);
            steps.map(|pair| (pair[1] - pair[0]) as usize).all(|step| step == len)
        };
        let rows = self.rows.len().max(1);
        let (samples, targets) = (self.samples.len() / rows, self.targets.len() / rows);
        let is_regular = rows == 1 || (even(batch.time_offsets, samples) && even(batch.target_offsets, targets));
        is_regular.then_some((samples, targets))
    }

    /// Runs of at most `most` targets of one row each.
    pub fn tiles<'a>(&'a self, batch: &'a Trajectories<'_>, most: usize) -> impl Iterator<Item = Tile> + 'a {
        self.rows.clone().flat_map(move |row| {
            let samples = batch.row_samples(row);
            let targets = batch.row_targets(row);
            let targets = targets.start.max(self.targets.start)..targets.end.min(self.targets.end);
            targets.clone().step_by(most).map(move |from| Tile {
                sample: (samples.start - self.samples.start) as u64,
                target: (from - self.targets.start) as u64,
                samples: samples.len() as u32,
                targets: most.min(targets.end - from) as u32,
            })
        })
    }
}

/// The chunks of a batch, one after the other.
pub(super) struct Chunks<'a, 'b> {
    batch: &'a Trajectories<'b>,
    rows: Range<usize>,
    /// Targets that are done, of all of the batch.
    done: usize,
}

impl<'a, 'b> Chunks<'a, 'b> {
    pub fn new(batch: &'a Trajectories<'b>, rows: Range<usize>) -> Self {
        let done = batch.target_offsets[rows.start] as usize;
        Self { batch, rows, done }
    }

    /// The next chunk, of as many rows as fit into `room` bytes, or of as many targets of one row; at the least of one
    /// target of one row, whether it fits or not.
    pub fn next(&self, room: usize) -> Option<Chunk> {
        if self.rows.is_empty() {
            return None;
        }
        let fits = |chunk: &Chunk| Places::of(self.batch, chunk).bytes <= room;
        let is_new_row = self.done == self.batch.target_offsets[self.rows.start] as usize;
        if is_new_row {
            let whole = |rows: usize| self.chunk(rows, None);
            let rows = largest(self.rows.len(), |rows| fits(&whole(rows)));
            if rows > 0 {
                return Some(whole(rows));
            }
        }
        let left = self.batch.row_targets(self.rows.start).end - self.done;
        let some = |targets: usize| self.chunk(1, Some(targets));
        let targets = largest(left, |targets| fits(&some(targets)));
        Some(some(targets.max(1).min(left)))
    }

    /// Goes past a chunk that came from `next`.
    pub fn advance(&mut self, chunk: &Chunk) {
        self.done = chunk.targets.end;
        let ends_row = chunk.targets.end == self.batch.row_targets(chunk.rows.end - 1).end;
        self.rows.start = if ends_row { chunk.rows.end } else { chunk.rows.start };
    }

    fn chunk(&self, rows: usize, targets: Option<usize>) -> Chunk {
        let rows = self.rows.start..self.rows.start + rows;
        let first = self.batch.target_offsets[rows.start] as usize;
        let samples = self.batch.row_samples(rows.start).start..self.batch.row_samples(rows.end - 1).end;
        let end = match targets {
            Some(targets) => self.done + targets,
            None => self.batch.row_targets(rows.end - 1).end,
        };
        Chunk {
            rows,
            samples,
            targets: self.done..end,
            counts_samples: self.done == first,
        }
    }
}

/// The largest number up to `most` for which `fits` holds, which is monotonic; 0 if there is none.
fn largest(most: usize, fits: impl Fn(usize) -> bool) -> usize {
    if most > 0 && fits(most) {
        return most;
    }
    let (mut good, mut bad) = (0, most);
    while bad > good + 1 {
        let middle = good + (bad - good) / 2;
        if fits(middle) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    good
}

//! Cuts a batch into chunks that fit the memory of a device, and lays out the parts of a chunk in it.

use super::super::Trajectories;
use super::launch::Tile;
use std::ops::Range;

/// A part of a batch: whole trajectories, or some targets of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub rows: Range<usize>,
    /// The samples of those rows, counted over the batch.
    pub samples: Range<usize>,
    /// Its targets, counted over the batch.
    pub targets: Range<usize>,
    /// Whether it counts the dropped samples of its rows: the first chunk of a trajectory does.
    pub counts_samples: bool,
}

/// The byte offsets of the parts of a chunk in one block of memory, and the size of the block.
pub(super) struct Offsets {
    pub times: usize,
    pub values: usize,
    pub targets: usize,
    pub tiles: usize,
    pub out: usize,
    /// The count of dropped samples; `valid` follows at once, so that both are one copy.
    pub dropped: usize,
    pub valid: usize,
    pub bytes: usize,
}

/// The alignment of every part of a chunk, bytes.
const ALIGNMENT: usize = 256;

impl Offsets {
    pub fn of(batch: &Trajectories<'_>, chunk: &Chunk) -> Self {
        let row_bytes = batch.dim * batch.dtype().size();
        let (samples, targets) = (chunk.samples.len(), chunk.targets.len());
        let mut bytes = 0;
        let mut append = |size: usize| {
            let offset = bytes;
            bytes += size.next_multiple_of(ALIGNMENT);
            offset
        };
        // Room for a tile for each target, so that the size of a chunk does not depend on how a device tiles it.
        let tiles = targets.max(1);
        let times = append(samples * size_of::<i64>());
        let values = append(samples * row_bytes);
        let targets_ns = append(targets * size_of::<i64>());
        let tiles = append(tiles * size_of::<Tile>());
        let out = append(targets * row_bytes);
        let dropped = append(size_of::<u64>() + targets);
        Self {
            times,
            values,
            targets: targets_ns,
            tiles,
            out,
            dropped,
            valid: dropped + size_of::<u64>(),
            bytes,
        }
    }
}

impl Chunk {
    /// Whether a smaller chunk could do a part of it.
    pub fn can_be_halved(&self) -> bool {
        self.rows.len() > 1 || self.targets.len() > 1
    }

    /// The memory that it takes on a device, bytes.
    pub fn bytes(&self, batch: &Trajectories<'_>) -> usize {
        Offsets::of(batch, self).bytes
    }

    /// The memory that half of its rows take, or of a single row half of its targets, bytes: less than
    /// [`bytes`](Self::bytes).
    pub fn half_bytes(&self, batch: &Trajectories<'_>) -> usize {
        let bytes = self.bytes(batch);
        if self.rows.len() > 1 {
            return bytes / 2;
        }
        let mut half = self.clone();
        half.targets.end = half.targets.start + half.targets.len() / 2;
        // Rounded up to the alignment both may be equal.
        half.bytes(batch).min(bytes - 1)
    }

    /// Its times, values and targets.
    pub fn inputs<'a>(&self, batch: &'a Trajectories<'_>) -> [&'a [u8]; 3] {
        let row_bytes = batch.dim * batch.dtype().size();
        [
            bytemuck::cast_slice(&batch.times()[self.samples.clone()]),
            &batch.values().bytes()[self.samples.start * row_bytes..self.samples.end * row_bytes],
            bytemuck::cast_slice(&batch.targets[self.targets.clone()]),
        ]
    }

    /// How many samples and targets each row has, if all have the same numbers.
    pub fn regular(&self, batch: &Trajectories<'_>) -> Option<(usize, usize)> {
        let even = |offsets: &[i32], len: usize| {
            let steps = offsets[self.rows.start..=self.rows.end].windows(2);
            steps.map(|pair| (pair[1] - pair[0]) as usize).all(|step| step == len)
        };
        let rows = self.rows.len().max(1);
        let (samples, targets) = (self.samples.len() / rows, self.targets.len() / rows);
        let is_regular = rows == 1 || (even(batch.time_offsets(), samples) && even(batch.target_offsets, targets));
        is_regular.then_some((samples, targets))
    }

    /// Cuts the targets of each row into tiles of at most `most`.
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

/// Goes through a batch in chunks.
pub(super) struct Chunks<'a, 'b> {
    batch: &'a Trajectories<'b>,
    rows: Range<usize>,
    /// Targets that are done, counted over the batch.
    done: usize,
}

impl<'a, 'b> Chunks<'a, 'b> {
    pub fn new(batch: &'a Trajectories<'b>, rows: Range<usize>) -> Self {
        let done = batch.target_offsets[rows.start] as usize;
        Self { batch, rows, done }
    }

    /// The memory that all that is left takes as one chunk, bytes.
    pub fn whole_bytes(&self) -> usize {
        match self.rows.len() {
            0 => 0,
            rows => self.chunk(rows, None).bytes(self.batch),
        }
    }

    /// The next chunk: as many rows as fit `room` bytes, or one row if it fits `most` bytes. A larger row is cut into as
    /// many targets as fit `most`, and into single targets if none does.
    pub fn next(&self, room: usize, most: usize) -> Option<Chunk> {
        if self.rows.is_empty() {
            return None;
        }
        let bytes = |chunk: &Chunk| chunk.bytes(self.batch);
        let is_new_row = self.done == self.batch.target_offsets[self.rows.start] as usize;
        if is_new_row {
            let whole = |rows: usize| self.chunk(rows, None);
            let rows = largest(self.rows.len(), |rows| bytes(&whole(rows)) <= room);
            if rows > 0 || bytes(&whole(1)) <= most {
                return Some(whole(rows.max(1)));
            }
        }
        let left = self.batch.row_targets(self.rows.start).end - self.done;
        let some = |targets: usize| self.chunk(1, Some(targets));
        let targets = largest(left, |targets| bytes(&some(targets)) <= most);
        Some(some(targets.max(1).min(left)))
    }

    /// Moves past a chunk that came from [`next`](Self::next).
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

/// The largest number up to `most` that fits, by binary search; 0 if none does. All numbers below one that fits do, too.
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

#[cfg(test)]
mod tests {
    use super::*;
    use robocache_device::Dtype;
    use robocache_stream::{Cells, Message};

    const DIM: usize = 3;

    /// A batch of rows of so many samples and targets.
    fn message(rows: &[(usize, usize)]) -> Message {
        let mut message = Message::default();
        message.rows = rows.len();
        message.header.dim.set(DIM as i64);
        let mut add = |name, dtype: Dtype, len: fn((usize, usize)) -> usize| {
            let total = rows.iter().map(|&row| len(row)).sum::<usize>();
            let column = message.add_column(name, dtype, Cells::Ragged(total));
            column.data.copy_from(&vec![0; total * dtype.size()]);
            column.offsets.push(0);
            for &row in rows {
                column
                    .offsets
                    .push(column.offsets[column.offsets.len() - 1] + len(row) as i32);
            }
        };
        add("timestamps_ns", Dtype::Int64, |(samples, _)| samples);
        add("values", Dtype::Float32, |(samples, _)| samples * DIM);
        add("targets_ns", Dtype::Int64, |(_, targets)| targets);
        message
    }

    #[test]
    fn chunks_fit_and_take_every_target_and_count_every_sample_once() {
        let message = message(&[(0, 0), (50, 400), (0, 7), (9, 0), (60, 1), (60, 1), (60, 300), (0, 0)]);
        let batch = Trajectories::from_message(&message).unwrap();
        let mut least = 0;
        for room in [0, 2_000, 3_000, 4_000, 10_000, 20_000, usize::MAX] {
            let mut chunks = Chunks::new(&batch, 0..batch.rows);
            let (mut targets, mut samples, mut count) = (0, 0, 0);
            while let Some(chunk) = chunks.next(room, room) {
                assert_eq!(chunk.targets.start, targets);
                targets = chunk.targets.end;
                if chunk.counts_samples {
                    assert_eq!(chunk.samples.start, samples);
                    samples = chunk.samples.end;
                }
                let fits = chunk.bytes(&batch) <= room;
                assert!(fits || !chunk.can_be_halved(), "{chunk:?} is more than {room}");
                let tiled: usize = chunk.tiles(&batch, 16).map(|tile| tile.targets as usize).sum();
                assert_eq!(tiled, chunk.targets.len());
                count += 1;
                chunks.advance(&chunk);
            }
            assert_eq!((targets, samples), (709, 239), "with {room}");
            least = count;
        }
        assert_eq!(least, 1);
    }

    #[test]
    fn rows_that_are_alike_need_no_table() {
        let message = message(&[(5, 2), (5, 2), (5, 2), (5, 3)]);
        let batch = Trajectories::from_message(&message).unwrap();
        let whole = Chunks::new(&batch, 0..4).next(usize::MAX, usize::MAX).unwrap();
        assert_eq!(whole.regular(&batch), None);
        let alike = Chunks::new(&batch, 0..3).next(usize::MAX, usize::MAX).unwrap();
        assert_eq!(alike.regular(&batch), Some((5, 2)));
    }

    #[test]
    fn the_largest_that_fits_is_found() {
        for most in 0..20 {
            for limit in 0..25 {
                assert_eq!(largest(most, |n| n <= limit), most.min(limit));
            }
        }
    }
}

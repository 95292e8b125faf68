//! Estimates the number and the size of the observations of some streams, before any observation is made.

use robocache::ops::align::{AlignConfig, Aligner, Rows, TriggerConfig};

/// The stamps of one stream, in the order of input: of its samples, or of its messages, which may have several samples.
pub struct Stamps<'a> {
    pub name: &'a str,
    pub stamps_ns: &'a [i64],
    /// Times that set the order of input: the stamps, or the times of arrival.
    pub order_ns: &'a [i64],
    /// Number of samples.
    pub samples: usize,
}

/// The samples of all streams in the order of a replay. The stream whose next `order_ns` is the least comes next; of equal
/// times, the stream whose name sorts first. The samples of one stream keep their order, even if these times go back.
pub struct Merge<'a> {
    streams: &'a [Stamps<'a>],
    /// Indices of the streams, sorted by name.
    order: Vec<usize>,
    next: Vec<usize>,
}

impl<'a> Merge<'a> {
    pub fn new(streams: &'a [Stamps<'a>]) -> Self {
        let mut order: Vec<usize> = (0..streams.len()).collect();
        order.sort_by_key(|&stream| streams[stream].name);
        Self {
            streams,
            order,
            next: vec![0; streams.len()],
        }
    }
}

impl Iterator for Merge<'_> {
    /// The indices of the stream and of its sample, and the stamp.
    type Item = (usize, usize, i64);

    fn next(&mut self) -> Option<Self::Item> {
        let heads = self.order.iter().filter_map(|&stream| {
            let time_ns = *self.streams[stream].order_ns.get(self.next[stream])?;
            Some((time_ns, stream))
        });
        // Of equal times, this is the first in the order of names.
        let (_, stream) = heads.min_by_key(|&(time_ns, _)| time_ns)?;
        let at = self.next[stream];
        self.next[stream] += 1;
        Some((stream, at, self.streams[stream].stamps_ns[at]))
    }
}

/// The part of a configuration that sets the number and the size of observations.
pub struct ObservationEstimate {
    /// The stream whose samples are the targets, and the places of the older rows of a window.
    trigger: Option<(usize, Rows)>,
    /// Time between the observations of a grid, ns.
    period_ns: i64,
    window: usize,
    stride: usize,
    emit_every: usize,
    /// Greatest step ahead of a stamp, for each stream. A greater step is a clock jump, after which the grid starts anew.
    jump_ns: Vec<Option<i64>>,
    /// Greatest step back of a stamp, for each stream. A greater step is a clock jump, a smaller one is out of order.
    reset_ns: Vec<i64>,
    /// Bytes of a row: its values, masks, ages and time, in all outputs.
    row_bytes: usize,
}

/// The longest time without a sample.
#[derive(Default)]
struct Gap {
    from_ns: i64,
    ns: i64,
}

/// Greatest stamp that the nodes accept, ns.
const LARGEST_STAMP: u64 = 1 << 61;
/// Default `jump_ms` of a stream, if the configuration has `max_wait_ms`.
const JUMP_MS: f64 = 10_000.0;
/// Default `reset_ms` of a stream.
const RESET_MS: f64 = 1000.0;

impl ObservationEstimate {
    pub fn new(config: &AlignConfig, aligner: &Aligner) -> Self {
        let timeline = aligner.timeline();
        let rows = aligner.outputs().iter().map(|output| {
            let masks = output.modalities().len() * (1 + size_of::<i64>());
            output.columns() * timeline.dtype().size() + masks + size_of::<i64>()
        });
        let modalities = config.modalities.iter();
        let modalities = modalities.map(|it| (it.jump_ms, it.reset_ms, it.reorder_ms));
        let attached = config.attach.iter().map(|it| (it.jump_ms, it.reset_ms, it.reorder_ms));
        let limits: Vec<_> = modalities.chain(attached).collect();
        let jumps = limits.iter().map(|&(jump_ms, ..)| {
            let ms = jump_ms.or(config.max_wait_ms.map(|_| JUMP_MS));
            ms.map(|ms| (ms * 1e6) as i64)
        });
        let resets = limits.iter().map(|&(_, reset_ms, reorder_ms)| {
            let ms = reset_ms.unwrap_or(RESET_MS.max(reorder_ms));
            (ms * 1e6) as i64
        });
        let trigger = match &config.trigger {
            Some(TriggerConfig::Stream { stream, rows, .. }) => {
                let modality = timeline.inputs().position(|input| input == stream);
                modality.map(|modality| (modality, *rows))
            }
            _ => None,
        };
        Self {
            trigger,
            period_ns: timeline.period_ns().max(1),
            window: timeline.window(),
            stride: config.stride,
            emit_every: config.emit_every,
            jump_ns: jumps.collect(),
            reset_ns: resets.collect(),
            row_bytes: rows.sum(),
        }
    }

    /// Sums the steps ahead of `stamps` without clock jumps, ns, and finds the longest gap. Items are the index of a stream and a
    /// stamp.
    fn passed(&self, stamps: impl Iterator<Item = (usize, i64)>) -> (i128, Gap) {
        let (mut newest, mut passed, mut longest) = (None, 0_i128, Gap::default());
        for (stream, stamp_ns) in stamps {
            // The nodes drop stamps that are out of range.
            if stamp_ns.unsigned_abs() > LARGEST_STAMP {
                continue;
            }
            let from_ns = newest.unwrap_or(stamp_ns);
            let ns = stamp_ns.saturating_sub(from_ns);
            if (-self.reset_ns[stream]..0).contains(&ns) {
                continue;
            }
            newest = Some(stamp_ns);
            if ns > longest.ns {
                longest = Gap { from_ns, ns };
            }
            // After a jump ahead, targets begin at its stamp. After a jump back, the same targets may be sent again, and count
            // twice.
            if ns > 0 && self.jump_ns[stream].is_none_or(|jump_ns| ns <= jump_ns) {
                passed += i128::from(ns);
            }
        }
        (passed, longest)
    }

    /// Estimates, to within a few, the numbers of observations and of their distinct rows, and finds the longest gap.
    fn observations(&self, streams: &[Stamps<'_>]) -> (u64, u64, Gap) {
        let (together, longest) = self.passed(Merge::new(streams).map(|(stream, _, stamp_ns)| (stream, stamp_ns)));
        // In the order of arrival, stamps of streams with different clocks go back and forth, which adds up too much time.
        let each = streams.iter().enumerate().map(|(stream, of)| {
            let (passed, _) = self.passed(of.stamps_ns.iter().map(|&stamp_ns| (stream, stamp_ns)));
            passed
        });
        let is_by_stamp = streams.iter().all(|of| std::ptr::eq(of.order_ns, of.stamps_ns));
        let passed = if is_by_stamp {
            together
        } else {
            together.min(each.sum())
        };
        let window = self.window as u64;
        let observations = match self.trigger {
            Some((stream, _)) => streams[stream].samples as u64,
            None => u64::try_from(passed / i128::from(self.period_ns)).unwrap_or(u64::MAX) + 1,
        };
        let every_window_apart = observations.saturating_mul(window);
        let rows = match self.trigger {
            Some((_, Rows::Period)) => every_window_apart,
            _ => observations
                .saturating_mul(self.emit_every as u64)
                .saturating_add(window * self.stride as u64)
                .min(every_window_apart),
        };
        (observations, rows, longest)
    }

    /// Estimates the numbers of observations and of their distinct rows; an error is the reason why they do not fit into
    /// `most_bytes`. If `is_gathered`, each window has a copy of its rows, too.
    pub fn check(&self, streams: &[Stamps<'_>], most_bytes: u64, is_gathered: bool) -> Result<(usize, usize), String> {
        let (observations, rows, gap) = self.observations(streams);
        let (window, row_bytes) = (self.window as u64, self.row_bytes as u64);
        // Each row has an entry in a map from times to rows.
        let found_bytes = 4 * size_of::<i64>() as u64;
        let index_bytes = (window + 1) * size_of::<i64>() as u64;
        let gathered = if is_gathered { window * row_bytes } else { 0 };
        let bytes = rows
            .saturating_mul(row_bytes + found_bytes)
            .saturating_add(observations.saturating_mul(index_bytes + gathered));
        if bytes <= most_bytes {
            return Ok((observations as usize, rows as usize));
        }
        let names: Vec<String> = streams.iter().map(|stamps| format!("`{}`", stamps.name)).collect();
        Err(format!(
            "{observations} observations of {window} rows take {}, but {} are free. The longest time without a sample of {} \
             is {}, after {} ns (allowed: observations that fit; cut the streams there, or give `jump_ms`, a larger \
             `emit_every` or a smaller `window`)",
            size(bytes),
            size(most_bytes),
            names.join(", "),
            duration(gap.ns),
            gap.from_ns
        ))
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..10_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

fn duration(ns: i64) -> String {
    let seconds = ns as f64 / 1e9;
    match seconds {
        86_400.0.. => format!("{:.1} days", seconds / 86_400.0),
        _ => format!("{seconds:.3} s"),
    }
}

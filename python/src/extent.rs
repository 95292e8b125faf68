//! Estimates the number and the size of the observations of whole streams, before any observation is made. If they would not
//! fit into memory, for example after a clock jump, the call is refused before it allocates anything.

use robocache::ops::align::{AlignConfig, Aligner, Rows, TriggerConfig};

/// Stamps of one stream, in the order in which the aligner gets them. There is a stamp for each sample of an array, or for each
/// message of a recording, which may hold several samples.
pub struct Stamps<'a> {
    pub name: &'a str,
    pub stamps_ns: &'a [i64],
    /// Times by which the streams are merged, ns, one for each stamp: the stamps themselves, or the times of arrival.
    pub order_ns: &'a [i64],
    /// Number of samples of the stream. It is more than the length of `stamps_ns` if messages hold several samples.
    pub samples: usize,
}

/// Iterator over the stamps of all streams, merged in the order of a replay: by `order_ns`, and for equal `order_ns` by the
/// names of the streams. The stamps of one stream keep their order, even if their `order_ns` go back.
pub struct Merge<'a> {
    streams: &'a [Stamps<'a>],
    /// Indices of the streams, sorted by name.
    order: Vec<usize>,
    /// Index of the next stamp of each stream.
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
    /// Index of the stream, index of the stamp in the stream, and the stamp, ns.
    type Item = (usize, usize, i64);

    fn next(&mut self) -> Option<Self::Item> {
        let heads = self.order.iter().filter_map(|&stream| {
            let time_ns = *self.streams[stream].order_ns.get(self.next[stream])?;
            Some((time_ns, stream))
        });
        // `min_by_key` returns the first of equal times, in the order of names.
        let (_, stream) = heads.min_by_key(|&(time_ns, _)| time_ns)?;
        let at = self.next[stream];
        self.next[stream] += 1;
        Some((stream, at, self.streams[stream].stamps_ns[at]))
    }
}

/// The settings of an aligner from which the number and the size of its observations can be estimated.
pub struct ObservationEstimate {
    /// Index of the stream that triggers the observations, and how the older rows of a window are chosen; `None` without such
    /// a stream.
    trigger: Option<(usize, Rows)>,
    /// Period of the time grid of the targets, ns, at least 1.
    period_ns: i64,
    window: usize,
    stride: usize,
    emit_every: usize,
    /// Largest step forward of the stamps, ns, for each stream; `None` for no limit. A larger step is a clock jump, after which the
    /// time grid starts anew.
    jump_ns: Vec<Option<i64>>,
    /// Largest step back of the stamps, ns, for each stream. A larger step back is a clock jump. A smaller step back is a sample
    /// out of order.
    reset_ns: Vec<i64>,
    /// Size of a row in all outputs, bytes: values, masks, ages and timestamp.
    row_bytes: usize,
}

/// Longest gap, in which no stream has a sample: the stamp before it and its length, ns.
#[derive(Default)]
struct Gap {
    from_ns: i64,
    ns: i64,
}

/// Largest absolute stamp that the nodes accept, ns.
const LARGEST_STAMP: u64 = 1 << 61;
/// Default of a stream's `jump_ms` if the configuration has `max_wait_ms`. Otherwise there is no limit by default.
const JUMP_MS: f64 = 10_000.0;
/// Default of a stream's `reset_ms`; `reorder_ms` if that is larger.
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

    /// Sums the steps forward of `stamps`, ns, without clock jumps, and finds the longest gap. An item of `stamps` is the index
    /// of a stream and a stamp, ns.
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

    /// Estimates the number of observations and the number of their distinct rows, and finds the longest gap in the streams.
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

    /// Estimates the numbers of observations and of distinct rows. Returns an error text if they need more than `most_bytes`
    /// bytes. If `is_gathered` is true, a copy of all windows, `[N, T, D]`, is counted as well.
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

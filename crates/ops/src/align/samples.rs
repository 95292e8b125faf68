//! [`Samples`]: adds the samples of a message to an [`Aligner`] one at a time.
//!
//! The caller computes the observations that become due after each sample. So a message of K samples gives the same
//! observations as K messages. A row that another aligning node masked, or sent before, is skipped.

use super::aligner::{NewestRow, Sample};
use super::gpu::DeviceSample;
use super::{Aligner, PushError, PushOutcome};
use robocache_device::Values;
use robocache_stream::{Data, Message, SamplesError, form};

/// Cursor over the samples of a message. Samples are added to an aligner one at a time, because each may make observations due
/// that come before the next sample.
///
/// ```
/// # use robocache_device::Placement;
/// # use robocache_ops::align::{AlignConfig, Aligner};
/// # use robocache_stream::Message;
/// fn take(aligner: &mut Aligner, modality: usize, message: &Message) -> Result<(), Box<dyn std::error::Error>> {
///     let mut samples = aligner.samples(modality, message)?;
///     while let Some(pushed) = aligner.push_next(&mut samples, message) {
///         pushed?;
///         while let Some(target) = aligner.due() {
///             let mut values = vec![0f32; aligner.outputs()[0].layout().rows];
///             aligner.window(target).write(0, &mut values);
///         }
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Samples {
    modality: usize,
    next_row: usize,
    stamp_ns: i64,
    /// Newest stamp, ns, of the rows that earlier observations on this input had: rows up to this stamp are skipped. `None`:
    /// all rows are new.
    taken_until: Option<i64>,
}

impl Samples {
    /// Returns the index of the modality to which the samples are added.
    pub fn modality(&self) -> usize {
        self.modality
    }

    /// Returns the stamp of the sample that was added last, ns; before the first sample, the stamp of the message.
    pub fn stamp_ns(&self) -> i64 {
        self.stamp_ns
    }
}

/// Greatest step back, ns, of the newest row from one observation on an input to the next. A longer step means that the clock
/// of the sending node was set back. If the `epoch` of the two differs, every step back does.
const OBSERVATIONS_RESET: i64 = 1_000_000_000;

impl Aligner {
    /// Creates a cursor over the samples of a message: one sample, or one for each of its `timestamps_ns`.
    ///
    /// The cursor skips rows that an aligning node upstream masked. If the message is an observation, it also skips the rows
    /// that earlier observations had: a window repeats all rows but the newest.
    ///
    /// # Errors
    /// [`SamplesError`] if the message holds no samples of this modality.
    pub fn samples(&mut self, modality: usize, message: &Message) -> Result<Samples, SamplesError> {
        message.check_samples(self.timeline.dim(modality))?;
        message.check_fields(self.timeline.fields(modality))?;
        Ok(Samples {
            modality,
            next_row: 0,
            stamp_ns: message.timestamp_ns(),
            taken_until: self.taken_until(modality, message),
        })
    }

    /// Adds the next sample of a message to its stream; returns `None` if no sample is left. Call [`due`](Self::due) after each
    /// sample, until it returns `None`.
    ///
    /// `message` must be the one for which [`samples`](Self::samples) made the cursor.
    pub fn push_next(&mut self, samples: &mut Samples, message: &Message) -> Option<Result<PushOutcome, PushError>> {
        while let Some((row, stamp)) = message.next_sample(&mut samples.next_row) {
            if samples.taken_until.is_some_and(|until| stamp <= until) {
                continue;
            }
            samples.stamp_ns = stamp;
            let sample = self.sample(samples.modality, row, message);
            return Some(sample.and_then(|sample| self.push_sample(samples.modality, stamp, sample)));
        }
        None
    }

    /// Returns row `row` of a message as a sample. If the message has only one row, the sample is its whole payload, whatever
    /// the length: the aligner refuses a wrong length.
    fn sample<'a>(&self, modality: usize, row: usize, message: &'a Message) -> Result<Sample<'a>, PushError> {
        let dim = self.timeline.dim(modality);
        let elements = |len: usize| match message.stamps().len() {
            0 | 1 => 0..len,
            _ => row * dim..(row + 1) * dim,
        };
        if let Data::Device([tensor]) = message.data() {
            return Ok(Sample::Device(DeviceSample::of(tensor, elements(tensor.len))?));
        }
        // `samples` has checked that the payload is a flat array.
        let values = message.flat().unwrap_or(Values::from_f32(&[]));
        let elements = elements(values.len());
        Ok(Sample::Host(values.slice(elements.start, elements.end)))
    }

    /// Returns the newest stamp, ns, of the rows that earlier observations on the input had; `None` if all rows are new.
    /// Records the newest row of `message` for the next call.
    fn taken_until(&mut self, modality: usize, message: &Message) -> Option<i64> {
        if form::modalities.get(&message.header).is_none_or(<[String]>::is_empty) {
            return None;
        }
        let epoch = crate::key::epoch.get(&message.header).unwrap_or(0);
        let newest = message.stamps().last().copied()?;
        let before = self.newest_rows[modality].filter(|before| {
            let back = before.stamp_ns.saturating_sub(newest);
            back <= 0 || (back <= OBSERVATIONS_RESET && before.epoch == epoch)
        });
        let until = before.map(|before| before.stamp_ns);
        self.newest_rows[modality] = Some(NewestRow {
            stamp_ns: until.map_or(newest, |until| until.max(newest)),
            epoch,
        });
        until
    }
}

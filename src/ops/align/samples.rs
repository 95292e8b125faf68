//! The samples of a message.

use super::aligner::Sample;
use super::cuda::DeviceSample;
use super::{Aligner, DeviceFailure, PushError, Pushed};
use crate::device::Values;
use crate::stream::Message;

/// Why a message holds no samples.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SamplesError {
    /// It is no flat array.
    #[error("the payload is a struct (allowed: a flat array of samples of {dim} values)")]
    Struct {
        /// The modality's `dim`.
        dim: usize,
    },
    /// Its length is not that of a sample for each stamp.
    #[error("{stamps} `timestamps_ns` with {values} values (allowed: {dim} values for each)")]
    Stamps {
        /// Stamps that came.
        stamps: usize,
        /// Values that came.
        values: usize,
        /// The modality's `dim`.
        dim: usize,
    },
    /// It has no stamp. A node gives such a message the time of its publication.
    #[error("no `timestamp_ns` (needed: the capture time, ns; of several samples `timestamps_ns`, one for each)")]
    NoStamp,
    /// Its shape says otherwise.
    #[error(
        "`shape` {shape:?} is not that of {samples} samples of {dim} values (allowed: [{samples}, {dim}]{}; there is one \
         sample for each of `timestamps_ns`, without them one)",
        if *samples == 1 { format!(", or [{dim}]") } else { String::new() }
    )]
    Shape {
        /// The shape that came.
        shape: Vec<i64>,
        /// Samples in the message.
        samples: usize,
        /// The modality's `dim`.
        dim: usize,
    },
}

/// A cursor over the samples of a message. One sample is pushed at a time, since what it makes due comes before the next.
///
/// ```
/// # use robocache::device::Placement;
/// # use robocache::ops::align::{AlignConfig, Aligner};
/// # use robocache::stream::Message;
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
    /// Rows up to this stamp were taken from an earlier message.
    taken_until: Option<i64>,
}

impl Samples {
    /// The modality that they are of.
    pub fn modality(&self) -> usize {
        self.modality
    }

    /// The stamp of the sample that was pushed last, ns.
    pub fn stamp_ns(&self) -> i64 {
        self.stamp_ns
    }
}

/// The newest row that was taken from the observations of an input.
#[derive(Clone, Copy)]
pub(super) struct NewestRow {
    stamp_ns: i64,
    epoch: i64,
}

/// Observations that go back by more, or go back in a new epoch, come from a clock that was set back, ns.
const OBSERVATIONS_RESET: i64 = 1_000_000_000;

impl Aligner {
    /// Begins with the samples of a message: one sample, or one for each of its `timestamps_ns`.
    ///
    /// Rows that an aligning node upstream masked are no samples. Of a message that is an observation itself, neither are
    /// the rows that an earlier one held: a window repeats all rows but the newest.
    ///
    /// # Errors
    /// [`SamplesError`]: the message holds no samples of this modality.
    pub fn samples(&mut self, modality: usize, message: &Message) -> Result<Samples, SamplesError> {
        self.check_form(modality, message)?;
        Ok(Samples {
            modality,
            next_row: 0,
            stamp_ns: *message.header.timestamp_ns,
            taken_until: self.taken_until(modality, message),
        })
    }

    /// Pushes the next sample of a message; `None` where there is none left. Ask what is [`due`](Self::due) after each one.
    ///
    /// The message must be the one that [`samples`](Self::samples) got.
    pub fn push_next(&mut self, samples: &mut Samples, message: &Message) -> Option<Result<Pushed, PushError>> {
        let stamps = stamps(message);
        let valid = message.header.valid.as_slice();
        let masks_per_row = valid.len() / stamps.len();
        while let Some(&stamp) = stamps.get(samples.next_row) {
            let row = samples.next_row;
            samples.next_row += 1;
            let masks = valid.get(row * masks_per_row..(row + 1) * masks_per_row);
            let is_masked = masks.is_some_and(|masks| masks.contains(&0));
            let was_taken = samples.taken_until.is_some_and(|until| stamp <= until);
            if is_masked || was_taken {
                continue;
            }
            samples.stamp_ns = stamp;
            let sample = self.sample(samples.modality, row, message);
            return Some(sample.and_then(|sample| self.push_sample(samples.modality, stamp, sample)));
        }
        None
    }

    /// A row of a message. Where it is the only one, it is the whole payload, whatever its length.
    fn sample<'a>(&self, modality: usize, row: usize, message: &'a Message) -> Result<Sample<'a>, PushError> {
        let dim = self.timeline.dim(modality);
        let elements = |len: usize| match message.header.timestamps_ns.len() {
            0 | 1 => 0..len,
            _ => row * dim..(row + 1) * dim,
        };
        if let Some(tensor) = message.on_device() {
            let sample = DeviceSample::of(tensor, elements(tensor.len));
            return Ok(Sample::Device(sample.map_err(DeviceFailure::from)?));
        }
        let values = message.flat().unwrap_or(Values::from_f32(&[]));
        let elements = elements(values.len());
        Ok(Sample::Host(values.slice(elements.start, elements.end)))
    }

    /// Checks that a message is samples of a modality.
    fn check_form(&self, modality: usize, message: &Message) -> Result<(), SamplesError> {
        let dim = self.timeline.dim(modality);
        let values = match (message.on_device(), message.flat()) {
            (Some(tensor), _) => tensor.len,
            (None, Some(values)) => values.len(),
            (None, None) => return Err(SamplesError::Struct { dim }),
        };
        let stamps = message.header.timestamps_ns.len();
        if stamps > 0 && values != stamps * dim {
            return Err(SamplesError::Stamps { stamps, values, dim });
        }
        if stamps == 0 && !message.header.timestamp_ns.is_present() {
            return Err(SamplesError::NoStamp);
        }
        check_shape(message, stamps.max(1), dim)
    }

    /// The stamp up to which the rows of an observation were taken from an earlier one.
    fn taken_until(&mut self, modality: usize, message: &Message) -> Option<i64> {
        if message.header.modalities.is_empty() {
            return None;
        }
        let newest = stamps(message).last().copied()?;
        let before = self.newest_rows[modality].filter(|before| {
            let back = before.stamp_ns.saturating_sub(newest);
            back <= 0 || (back <= OBSERVATIONS_RESET && before.epoch == *message.header.epoch)
        });
        let until = before.map(|before| before.stamp_ns);
        self.newest_rows[modality] = Some(NewestRow {
            stamp_ns: until.map_or(newest, |until| until.max(newest)),
            epoch: *message.header.epoch,
        });
        until
    }
}

/// The stamp of each sample of a message.
fn stamps(message: &Message) -> &[i64] {
    match message.header.timestamps_ns.as_slice() {
        [] => std::slice::from_ref(&*message.header.timestamp_ns),
        several => several,
    }
}

/// Checks that a shape, where there is one, is that of so many samples of `dim` values.
fn check_shape(message: &Message, samples: usize, dim: usize) -> Result<(), SamplesError> {
    let shape = message.header.shape.as_slice();
    // The bits of a voxel grid are eight cells to a byte.
    let is_bits = message.header.grid_shape.is_present();
    let fits_dim = |shape: &[i64]| {
        let mut sizes = shape.iter().map(|&n| usize::try_from(n).ok());
        let values = sizes.try_fold(1usize, |product, n| product.checked_mul(n?));
        values.is_some_and(|values| values == dim || is_bits && values.div_ceil(8) == dim)
    };
    let fits = match shape {
        [] => true,
        [first, rest @ ..] if !rest.is_empty() && usize::try_from(*first) == Ok(samples) && fits_dim(rest) => true,
        all => samples == 1 && fits_dim(all),
    };
    match fits {
        true => Ok(()),
        false => Err(SamplesError::Shape {
            shape: shape.to_vec(),
            samples,
            dim,
        }),
    }
}

//! The samples of a message: which of its rows are samples, and their stamps.
//!
//! A row that `valid` masks is never read as a sample, and a value that is not finite in float32 is never converted.

use super::{Message, form};
use robocache_device::Values;

/// The reason why a message, or a row of it, is not a sample.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SamplesError {
    /// The payload is not a flat array.
    #[error(
        "the payload is a struct (allowed: a flat array of samples of {dim} values; `from:` takes them out of a struct)"
    )]
    Struct {
        /// Number of values that a sample must have.
        dim: usize,
    },
    /// The message is one sample, and its number of values is not `dim`.
    #[error("{values} values (allowed: {dim}, one sample; for several samples, a stamp for each in `timestamps_ns`)")]
    Length {
        /// Received number of values.
        values: usize,
        /// Number of values that a sample must have.
        dim: usize,
    },
    /// The number of values is not `dim` times the number of stamps.
    #[error("{stamps} `timestamps_ns` with {values} values (allowed: {dim} values for each)")]
    Stamps {
        /// Received number of `timestamps_ns`.
        stamps: usize,
        /// Received number of values.
        values: usize,
        /// Number of values that a sample must have.
        dim: usize,
    },
    /// The message has no stamp. A node gives such a message the time of its publication.
    #[error(
        "no `timestamp_ns` (needed: the capture time, ns; for several samples `timestamps_ns`, with one time for each)"
    )]
    NoStamp,
    /// The `shape` does not match the number of samples and `dim`.
    #[error(
        "`shape` {shape:?} is not that of {samples} samples of {dim} values (allowed: [{samples}, {dim}]{}; one \
         sample for each of `timestamps_ns`, or a single sample without `timestamps_ns`)",
        if *samples == 1 { format!(", or [{dim}]") } else { String::new() }
    )]
    Shape {
        /// Received `shape`.
        shape: Vec<i64>,
        /// Number of samples in the message, one for each stamp.
        samples: usize,
        /// Number of values that a sample must have.
        dim: usize,
    },
    /// The values have other names or another order than in the configuration.
    #[error(
        "`fields` is {} (allowed: {}, as `from:` says; `robocache convert` takes them in this order with `--config`)",
        found.join(", "), wanted.join(", ")
    )]
    Fields {
        /// Received names of the values, `fields`.
        found: Vec<String>,
        /// Configured names of the values, in order.
        wanted: Vec<String>,
    },
    /// A row has a value that is NaN or infinite in float32.
    #[error(
        "value {channel} of row {row} is {value}, not finite in float32 (allowed: finite; 0 in `valid` masks a row)"
    )]
    NonFinite {
        /// Index of the row in the message.
        row: usize,
        /// Index in the row of the first value that is not finite.
        channel: usize,
        /// First value that is not finite, in float32.
        value: f32,
    },
}

/// One sample of a message, as [`Message::samples`] returns it.
#[derive(Clone, Copy, Debug)]
pub struct SampleRow<'a> {
    /// Index of the row in the message.
    pub row: usize,
    /// Capture time of the sample, ns.
    pub stamp_ns: i64,
    /// Values of the sample.
    pub values: Values<'a>,
}

impl SampleRow<'_> {
    /// Copies the values to float32.
    ///
    /// # Errors
    /// [`SamplesError::NonFinite`] if a value is NaN, as a null is, or infinite, or too large for float32.
    ///
    /// # Panics
    /// If `out` has another length than a sample.
    pub fn to_f32(&self, out: &mut [f32]) -> Result<(), SamplesError> {
        self.values.to_f32(out);
        match out.iter().enumerate().find(|(_, value)| !value.is_finite()) {
            None => Ok(()),
            Some((channel, &value)) => Err(SamplesError::NonFinite {
                row: self.row,
                channel,
                value,
            }),
        }
    }
}

/// Iterator of [`Message::samples`] over the samples of a message, in the order of its rows.
#[derive(Clone)]
pub struct SampleRows<'a> {
    message: &'a Message,
    values: Values<'a>,
    dim: usize,
    next_row: usize,
}

impl<'a> Iterator for SampleRows<'a> {
    type Item = SampleRow<'a>;

    fn next(&mut self) -> Option<SampleRow<'a>> {
        let (row, stamp_ns) = self.message.next_sample(&mut self.next_row)?;
        Some(SampleRow {
            row,
            stamp_ns,
            values: self.values.slice(row * self.dim, (row + 1) * self.dim),
        })
    }
}

impl Message {
    /// The samples of a message on the host: one sample of `dim` values, or one for each of its `timestamps_ns`. Rows whose
    /// `valid` is 0 are skipped.
    ///
    /// The window of an observation repeats rows of the window before it: only the newest row is new. A caller that takes samples
    /// from windows must skip the rows that are not newer than the last row that it took.
    ///
    /// ```
    /// use robocache_device::Dtype;
    /// use robocache_stream::{Layout, Message};
    ///
    /// // Three samples of two values, the second of which is none.
    /// let mut message = Message::default();
    /// message.write(&Layout::flat(Dtype::Float64, 3 * 2), |payload, header| {
    ///     payload.column(0).copy_from_slice(&[0.5, 1.0, 0.0, 0.0, 2.5, f64::NAN]);
    ///     header.timestamps_ns.set([10, 20, 30]);
    ///     header.valid.set([1, 0, 1]);
    /// });
    ///
    /// let (mut taken, mut faults) = (Vec::new(), Vec::new());
    /// for sample in message.samples(2)? {
    ///     let mut values = [0f32; 2];
    ///     match sample.to_f32(&mut values) {
    ///         Ok(()) => taken.push((sample.stamp_ns, values)),
    ///         Err(error) => faults.push(error.to_string()),
    ///     }
    /// }
    /// assert_eq!(taken, [(10, [0.5, 1.0])]);
    /// assert_eq!(faults, ["value 1 of row 2 is NaN, not finite in float32 (allowed: finite; 0 in `valid` masks a row)"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SamplesError`]: the payload is not a flat array, has another length or shape, or has no stamp.
    pub fn samples(&self, dim: usize) -> Result<SampleRows<'_>, SamplesError> {
        self.check_samples(dim)?;
        let values = self.flat().ok_or(SamplesError::Struct { dim })?;
        if values.len() != self.stamps().len() * dim {
            let values = values.len();
            return Err(SamplesError::Length { values, dim });
        }
        Ok(SampleRows {
            message: self,
            values,
            dim,
            next_row: 0,
        })
    }

    /// Checks that the `fields` of the message are the names `wanted`, in this order. A message without `fields` passes, and so
    /// does every message if `wanted` is empty.
    pub fn check_fields(&self, wanted: &[String]) -> Result<(), SamplesError> {
        let found = self.header.fields.get().unwrap_or_default();
        if wanted.is_empty() || found.is_empty() || found == wanted {
            return Ok(());
        }
        let (found, wanted) = (found.to_vec(), wanted.to_vec());
        Err(SamplesError::Fields { found, wanted })
    }

    /// Checks that the message consists of samples of `dim` values. The length of a single sample is not checked.
    pub fn check_samples(&self, dim: usize) -> Result<(), SamplesError> {
        let values = self.data().flat_len().ok_or(SamplesError::Struct { dim })?;
        let stamps = self.header.timestamps_ns.get().map_or(0, <[i64]>::len);
        if stamps > 0 && values != stamps * dim {
            return Err(SamplesError::Stamps { stamps, values, dim });
        }
        if stamps == 0 && !self.header.timestamp_ns.is_present() {
            return Err(SamplesError::NoStamp);
        }
        self.check_sample_shape(stamps.max(1), dim)
    }

    /// Checks that the shape of the message, if present, fits `samples` samples of `dim` values.
    fn check_sample_shape(&self, samples: usize, dim: usize) -> Result<(), SamplesError> {
        let shape = self.header.shape.get().unwrap_or_default();
        // A voxel grid of layout `bits` packs eight cells into a byte.
        let is_bits = form::grid_shape.get(&self.header).is_some();
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

    /// Returns the first row from `next_row` on that is a sample, and its stamp, ns; moves `next_row` to the row after it. Returns
    /// `None` if no further row is a sample.
    pub fn next_sample(&self, next_row: &mut usize) -> Option<(usize, i64)> {
        let stamps = self.stamps();
        let valid = self.header.valid.get().unwrap_or_default();
        let masks_per_row = valid.len() / stamps.len();
        while let Some(&stamp_ns) = stamps.get(*next_row) {
            let row = *next_row;
            *next_row += 1;
            let masks = valid.get(row * masks_per_row..(row + 1) * masks_per_row);
            if masks.is_none_or(|masks| !masks.contains(&0)) {
                return Some((row, stamp_ns));
            }
        }
        None
    }

    /// The capture time of each row, ns, in the order of the rows. A message without `timestamps_ns` has one row, at
    /// `timestamp_ns`.
    pub fn stamps(&self) -> &[i64] {
        match self.header.timestamps_ns.get() {
            None | Some([]) => std::slice::from_ref(self.header.timestamp_ns.or_empty()),
            Some(several) => several,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cells, ColumnLayout, Header, Layout};
    use robocache_device::Dtype;

    fn message(values: &[f32], header: impl FnOnce(&mut Header)) -> Message {
        let mut message = Message::default();
        message.write(&Layout::flat(Dtype::Float32, values.len()), |payload, to| {
            payload.column(0).copy_from_slice(values);
            header(to);
        });
        message
    }

    fn walked(message: &Message, dim: usize) -> Vec<(usize, i64, Vec<f32>)> {
        let samples = message.samples(dim).unwrap();
        samples
            .map(|sample| (sample.row, sample.stamp_ns, sample.values.as_slice().to_vec()))
            .collect()
    }

    #[test]
    fn a_message_without_rows_is_one_sample() {
        let one = message(&[1.0, 2.0], |header| header.timestamp_ns.set(-7));
        assert_eq!(walked(&one, 2), [(0, -7, vec![1.0, 2.0])]);
        let masked = message(&[1.0, 2.0], |header| {
            header.timestamp_ns.set(7);
            header.valid.set([0]);
        });
        assert_eq!(walked(&masked, 2), []);
    }

    #[test]
    fn each_row_has_its_stamp_and_those_that_are_masked_are_none() {
        let rows = |header: &mut Header| {
            header.timestamp_ns.set(99);
            header.timestamps_ns.set([10, 5, 20]);
        };
        let three = message(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], rows);
        let want = [(0, 10, vec![1.0, 2.0]), (1, 5, vec![3.0, 4.0]), (2, 20, vec![5.0, 6.0])];
        assert_eq!(walked(&three, 2), want);
        let mut masked = three;
        masked.header.valid.set([0, 1, 0]);
        assert_eq!(walked(&masked, 2), want[1..2]);
        // A row of an observation is a sample if all of its modalities are valid.
        form::modalities.set(&mut masked.header, ["a", "b"]);
        masked.header.valid.set([1, 1, 1, 0, 1, 1]);
        assert_eq!(walked(&masked, 2), [want[0].clone(), want[2].clone()]);
    }

    #[test]
    fn what_is_no_sample_is_refused_by_what_came() {
        let stamped = |header: &mut Header| header.timestamp_ns.set(0);
        let struct_layout = Layout {
            rows: 1,
            columns: vec![ColumnLayout {
                name: "x".into(),
                dtype: Dtype::Float32,
                cells: Cells::One,
            }],
        };
        let mut of_columns = Message::default();
        of_columns.write(&struct_layout, |_, header| stamped(header));
        let cases = [
            (message(&[1.0, 2.0], |_| ()), "no `timestamp_ns` (needed"),
            (message(&[1.0], stamped), "1 values (allowed: 2, one sample"),
            (message(&[], stamped), "0 values (allowed: 2"),
            (message(&[1.0; 4], stamped), "4 values (allowed: 2"),
            (
                message(&[1.0; 3], |header| header.timestamps_ns.set([1, 2])),
                "2 `timestamps_ns` with 3 values (allowed: 2 values for each)",
            ),
            (
                message(&[1.0; 4], |header| {
                    header.timestamps_ns.set([1, 2]);
                    header.shape.set([4, 1]);
                }),
                "`shape` [4, 1] is not that of 2 samples of 2 values (allowed: [2, 2];",
            ),
            (of_columns, "the payload is a struct"),
        ];
        for (message, want) in &cases {
            let words = message.samples(2).err().unwrap().to_string();
            assert!(words.starts_with(want), "{words}\nnot {want}");
        }
    }

    #[test]
    fn a_value_that_float32_cannot_hold_is_no_sample() {
        let mut two = Message::default();
        two.write(&Layout::flat(Dtype::Float64, 4), |payload, header| {
            payload.column(0).copy_from_slice(&[1.0, 1e39, f64::NAN, 2.0]);
            header.timestamps_ns.set([1, 2]);
        });
        let mut out = [0f32; 2];
        let words: Vec<String> = two
            .samples(2)
            .unwrap()
            .map(|sample| sample.to_f32(&mut out).unwrap_err().to_string())
            .collect();
        assert_eq!(
            words,
            [
                "value 1 of row 0 is inf, not finite in float32 (allowed: finite; 0 in `valid` masks a row)",
                "value 0 of row 1 is NaN, not finite in float32 (allowed: finite; 0 in `valid` masks a row)"
            ]
        );
    }
}

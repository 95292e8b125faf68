//! Batches of trajectories, read from messages and checked. A row with a mistake keeps its targets but has no samples,
//! so that none of its targets is valid.

use rayon::prelude::*;
use robocache_device::{Dtype, HostBuf, Primitive, Values};
use robocache_stream::{Cells, Column, ColumnLayout, Layout, Message};
use robocache_time::is_stamp_in_range;
use std::ops::Range;

/// A batch of trajectories, one in each row, read from a message and checked.
///
/// A row with a mistake is [refused](Self::refused): its samples are left out, so that none of its targets is valid.
pub struct Trajectories<'a> {
    /// All rows as received, refused rows included.
    sent: Rows<'a>,
    /// Copy of the samples in which refused rows have no samples; `None` if no row is refused.
    kept: Option<KeptSamples>,
    refused: Vec<RefusedRow>,
}

/// Copy of a batch's samples, row after row, in which refused rows have no samples.
struct KeptSamples {
    times: Vec<i64>,
    time_offsets: Vec<i32>,
    values: HostBuf,
}

/// Consecutive rows of a batch: all rows, or the rows of one core or device. The offsets of the rows count from the first
/// element of the whole batch.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub dim: usize,
    /// True if, in any row of the batch, two samples have the same time.
    pub has_ties: bool,
    pub times: &'a [i64],
    /// Index of each row's first sample, followed by the end of the last row.
    time_offsets: &'a [i32],
    /// Values of the samples: `dim` values for each element of `times`.
    pub values: Values<'a>,
    pub targets: &'a [i64],
    target_offsets: &'a [i32],
}

/// A row whose samples can't be used. In the answer, none of its targets is valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("row {row}: {problem}")]
pub struct RefusedRow {
    /// Index of the row in the batch.
    pub row: usize,
    /// The mistake in the row.
    pub problem: RowError,
}

/// A mistake in the samples of a row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// The number of values is not `dim` times the number of timestamps.
    #[error("{values} values for {samples} timestamps (allowed: {samples} times `dim` {dim})")]
    Length {
        /// Number of values in the row.
        values: usize,
        /// Number of timestamps in the row.
        samples: usize,
        /// Number of values of a sample.
        dim: usize,
    },
    /// A list of the row is null, or has a null among its timestamps or targets.
    #[error("column `{column}` is null or has a null in it (allowed: nulls only among the elements of `values`)")]
    Null {
        /// Name of the column with the null.
        column: &'static str,
    },
    /// A timestamp, ns, is more than 2^61 ns from 1970.
    #[error("timestamp {0} ns is out of range (allowed: +-2^61)")]
    OutOfRange(i64),
    /// A timestamp is less than the previous timestamp of the row.
    #[error("timestamp {at} is {came}, but the one before it is {before} (allowed: ascending timestamps, ties too)")]
    Descending {
        /// Index within the row of the timestamp that is less than the previous one.
        at: usize,
        /// The timestamp at index `at`, ns.
        came: i64,
        /// The previous timestamp, at index `at - 1`, ns.
        before: i64,
    },
}

/// A message that is not a batch of trajectories.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrajectoriesError {
    /// A required column is missing.
    #[error(
        "no column `{column}`, the payload has {came} (a batch of trajectories is a StructArray with `timestamps_ns` \
         List<Int64>, `values` List<Float32 | Float64 | Float16 | UInt16 with dtype bfloat16>, `targets_ns` List<Int64>)"
    )]
    MissingColumn {
        /// The column's name.
        column: &'static str,
        /// Names of the payload's columns, as text for the error.
        came: String,
    },
    /// The row offsets of a column do not match its number of elements.
    #[error(
        "the offsets of column `{column}` do not fit its {elements} elements in {rows} rows (allowed: ascending from 0 to {elements}, one more than rows)"
    )]
    Offsets {
        /// The column's name.
        column: &'static str,
        /// Number of elements of the column, over all rows.
        elements: usize,
        /// Number of rows of the batch.
        rows: usize,
    },
    /// A column has the wrong type.
    #[error("column `{column}` is {came} (allowed: {allowed})")]
    WrongType {
        /// The column's name.
        column: &'static str,
        /// Type of the column, as text for the error.
        came: String,
        /// Allowed types, as text for the error.
        allowed: &'static str,
    },
    /// The metadata key `dim` is implausibly large, and no row has samples that confirm it.
    #[error(
        "metadata `dim` is {dim}, but no row has samples with {dim} values: the lists hold {samples} timestamps and \
         {values} values (allowed without samples: up to {LARGEST_UNCONFIRMED_DIM})"
    )]
    UnconfirmedDim {
        /// The value of the metadata key `dim`.
        dim: usize,
        /// Number of timestamps over all rows.
        samples: usize,
        /// Number of values over all rows.
        values: usize,
    },
    /// The metadata key `dim`, the number of values of a sample, is missing or not positive.
    #[error("metadata `dim` is 0 or absent (allowed: an Integer of at least 1, the number of values of a sample)")]
    Dim,
    /// No row has `dim` values for each of its timestamps; the first wrong row is given.
    #[error("metadata `dim` fits no row: {0}")]
    Length(RefusedRow),
    /// The result would have more elements than a List column can hold, 2^31 - 1.
    #[error(
        "{targets} targets of `dim` {dim} (allowed: {} values in one answer; send fewer rows)",
        i32::MAX
    )]
    TooLarge {
        /// Number of targets over all rows.
        targets: usize,
        /// Number of values of a sample.
        dim: usize,
    },
}

/// Largest `dim` that is accepted if no sample of the message confirms it. Each target takes `dim` values in the result, so
/// that a small message with a wrong `dim` could need much memory.
const LARGEST_UNCONFIRMED_DIM: usize = 1 << 16;

/// Smallest number of samples for which all cores check a batch: 1 MiB of stamps, for which one core needs 100 us or more.
const SHARED_STAMPS: usize = 1 << 17;

impl<'a> Trajectories<'a> {
    /// Reads the columns `timestamps_ns`, `values` and `targets_ns` of a message, and its metadata key `dim`.
    ///
    /// # Errors
    /// The part that is missing or wrong, and what is allowed. A wrong row is not an error: it is [refused](Self::refused).
    pub fn from_message(message: &'a Message) -> Result<Self, TrajectoriesError> {
        let times = int64(message, "timestamps_ns")?;
        let values = ragged(message, "values", FLOATS)?;
        let targets = int64(message, "targets_ns")?;
        if !matches!(
            values.dtype,
            Dtype::Float32 | Dtype::Float64 | Dtype::Float16 | Dtype::BFloat16
        ) {
            return Err(wrong_type("values", values, FLOATS));
        }
        let dim = usize::try_from(message.header.dim.get().unwrap_or(0)).unwrap_or(0);
        if dim == 0 {
            return Err(TrajectoriesError::Dim);
        }
        let sent = Rows {
            dim,
            has_ties: false,
            times: times.data.as_slice(),
            time_offsets: &times.offsets,
            values: values.values(),
            targets: targets.data.as_slice(),
            target_offsets: &targets.offsets,
        };
        let total = sent.targets.len().checked_mul(dim);
        if total.is_none_or(|total| total > i32::MAX as usize) {
            let targets = sent.targets.len();
            return Err(TrajectoriesError::TooLarge { targets, dim });
        }
        let columns = [("timestamps_ns", times), ("values", values), ("targets_ns", targets)];
        let null = |row: usize| {
            let column = columns
                .iter()
                .find(|(_, column)| column.null_rows.binary_search(&row).is_ok());
            column.map_or(Ok(()), |&(column, _)| Err(RowError::Null { column }))
        };
        let check = |row: usize| null(row).and_then(|()| sent.check(row, &values.offsets));
        // True if some row has `dim` values for each timestamp, and true if a sample confirms `dim`.
        let (mut has_length, mut is_confirmed) = (false, false);
        let (mut has_ties, mut refused) = (false, Vec::new());
        if let Some(ties) = sent.check_all(check) {
            (has_ties, is_confirmed) = (ties, !sent.times.is_empty());
        } else {
            for row in 0..sent.len() {
                match check(row) {
                    Ok(ties) => {
                        has_ties |= ties;
                        is_confirmed |= !sent.times_of(row).is_empty();
                    }
                    Err(problem) => {
                        is_confirmed |= matches!(problem, RowError::Descending { .. });
                        has_length |= !matches!(problem, RowError::Length { .. });
                        refused.push(RefusedRow { row, problem });
                    }
                }
            }
        }
        if let Some(first) = refused.first()
            && !has_length
            && !is_confirmed
        {
            return Err(TrajectoriesError::Length(first.clone()));
        }
        if !is_confirmed && dim > LARGEST_UNCONFIRMED_DIM {
            return Err(TrajectoriesError::UnconfirmedDim {
                dim,
                samples: sent.times.len(),
                values: sent.values.len(),
            });
        }
        Ok(Self {
            kept: (!refused.is_empty()).then(|| sent.without(&refused, &values.offsets)),
            sent: Rows { has_ties, ..sent },
            refused,
        })
    }

    /// Returns all rows of the batch; refused rows have no samples.
    pub(super) fn rows(&self) -> Rows<'_> {
        match &self.kept {
            None => self.sent,
            Some(kept) => Rows {
                times: &kept.times,
                time_offsets: &kept.time_offsets,
                values: Values::new(self.dtype(), kept.values.bytes()),
                ..self.sent
            },
        }
    }

    /// Number of values of a sample, D.
    pub fn dim(&self) -> usize {
        self.sent.dim
    }

    /// The type of the values, in the batch and in the answer.
    pub fn dtype(&self) -> Dtype {
        self.sent.values.dtype()
    }

    /// The rows whose samples can't be used, in ascending order.
    pub fn refused(&self) -> &[RefusedRow] {
        &self.refused
    }

    /// Number of targets of all rows together, which is the number of bytes in `valid` of the answer.
    pub fn targets(&self) -> usize {
        self.sent.targets.len()
    }

    /// Returns the size of the result's `values` over all rows, bytes.
    pub fn output_bytes(&self) -> usize {
        self.sent.output_bytes()
    }

    /// Sets `layout` to the layout of the result: a struct of the ragged columns `values` (T * D elements in each row) and
    /// `valid` (T elements in each row).
    pub fn layout_into(&self, layout: &mut Layout) {
        layout.rows = self.sent.len();
        layout.columns.clear();
        let columns = [
            ("values", self.dtype(), self.targets() * self.dim()),
            ("valid", Dtype::UInt8, self.targets()),
        ];
        layout
            .columns
            .extend(columns.map(|(name, dtype, elements)| ColumnLayout {
                name: name.into(),
                dtype,
                cells: Cells::Ragged(elements),
            }));
    }

    /// Writes the row offsets of the result's columns: row i of a column is its elements `offsets[i]..offsets[i + 1]`.
    ///
    /// # Panics
    /// If `values` or `valid` does not have one offset more than there are rows.
    pub fn offsets_into(&self, values: &mut [i32], valid: &mut [i32]) {
        valid.copy_from_slice(self.sent.target_offsets);
        assert_eq!(values.len(), valid.len(), "one offset more than rows");
        for (value, &target) in values.iter_mut().zip(&*valid) {
            // The product fits: its last and greatest value was checked against i32::MAX.
            *value = target * self.dim() as i32;
        }
    }
}

impl<'a> Rows<'a> {
    pub(super) fn len(&self) -> usize {
        self.time_offsets.len() - 1
    }

    /// Returns the rows in the index range `rows`, counted from the first of these rows.
    pub(super) fn range(&self, rows: Range<usize>) -> Self {
        let span =
            |offsets: &[i32]| (offsets[rows.start] - offsets[0]) as usize..(offsets[rows.end] - offsets[0]) as usize;
        let (samples, targets) = (span(self.time_offsets), span(self.target_offsets));
        Self {
            times: &self.times[samples.clone()],
            time_offsets: &self.time_offsets[rows.start..=rows.end],
            values: self.values.slice(samples.start * self.dim, samples.end * self.dim),
            targets: &self.targets[targets],
            target_offsets: &self.target_offsets[rows.start..=rows.end],
            ..*self
        }
    }

    /// Returns the size of one sample's values, bytes, which is also the size of one target's result.
    pub(super) fn row_bytes(&self) -> usize {
        self.dim * self.values.dtype().size()
    }

    /// Returns the size of the resampled values of all targets, bytes.
    pub(super) fn output_bytes(&self) -> usize {
        self.targets.len() * self.row_bytes()
    }

    /// Returns the range of the row's samples within `times`.
    pub(super) fn samples_of(&self, row: usize) -> Range<usize> {
        span(self.time_offsets, row)
    }

    /// Returns the range of the row's targets within `targets`.
    pub(super) fn targets_of(&self, row: usize) -> Range<usize> {
        span(self.target_offsets, row)
    }

    pub(super) fn times_of(&self, row: usize) -> &'a [i64] {
        &self.times[self.samples_of(row)]
    }

    pub(super) fn values_of<T: Primitive>(&self, row: usize) -> &'a [T] {
        let samples = self.samples_of(row);
        &self.values.as_slice()[samples.start * self.dim..samples.end * self.dim]
    }

    /// Returns the numbers of samples and targets per row, if they are the same in all rows; otherwise `None`.
    pub(super) fn regular(&self) -> Option<(usize, usize)> {
        let rows = self.len().max(1);
        let (samples, targets) = (self.times.len() / rows, self.targets.len() / rows);
        let even = |offsets: &[i32], len: usize| offsets.windows(2).all(|pair| (pair[1] - pair[0]) as usize == len);
        (even(self.time_offsets, samples) && even(self.target_offsets, targets)).then_some((samples, targets))
    }

    /// Copies the samples of all rows except the `refused` ones, which have no samples in the copy.
    fn without(&self, refused: &[RefusedRow], value_offsets: &[i32]) -> KeptSamples {
        let is_kept = |row: &usize| refused.binary_search_by_key(row, |refused| refused.row).is_err();
        let size = self.values.dtype().size();
        let bytes = |row| span(value_offsets, row).len() * size;
        let mut values = HostBuf::default();
        values.resize((0..self.len()).filter(is_kept).map(bytes).sum());
        let (mut times, mut time_offsets, mut end) = (Vec::new(), vec![0], 0);
        for row in 0..self.len() {
            if is_kept(&row) {
                let span = span(value_offsets, row);
                let from = &self.values.bytes()[span.start * size..span.end * size];
                values.bytes_mut()[end..end + from.len()].copy_from_slice(from);
                end += from.len();
                times.extend_from_slice(self.times_of(row));
            }
            time_offsets.push(times.len() as i32);
        }
        KeptSamples {
            times,
            time_offsets,
            values,
        }
    }

    /// Checks all rows on all cores. Returns true if some row has two samples with the same time. Returns `None` if a row is wrong
    /// or the batch is small: the caller then checks the rows on one core, which finds the first error.
    fn check_all(&self, check: impl Fn(usize) -> Result<bool, RowError> + Sync) -> Option<bool> {
        if self.times.len() < SHARED_STAMPS {
            return None;
        }
        let rows = (0..self.len()).into_par_iter().map(|row| check(row).ok());
        rows.try_reduce(|| false, |a, b| Some(a | b))
    }

    /// Checks one row. Returns true if two of its samples have the same time.
    fn check(&self, row: usize, value_offsets: &[i32]) -> Result<bool, RowError> {
        let times = self.times_of(row);
        let values = span(value_offsets, row).len();
        if times.len().checked_mul(self.dim) != Some(values) {
            return Err(RowError::Length {
                values,
                samples: times.len(),
                dim: self.dim,
            });
        }
        let (mut ties, mut descending) = (false, false);
        for pair in times.windows(2) {
            ties |= pair[0] == pair[1];
            descending |= pair[0] > pair[1];
        }
        match times.windows(2).position(|pair| descending && pair[0] > pair[1]) {
            Some(i) => Err(RowError::Descending {
                at: i + 1,
                came: times[i + 1],
                before: times[i],
            }),
            None => {
                // The times ascend: the first and the last are the extremes.
                let mut ends = [times.first(), times.last()].into_iter().flatten();
                match ends.find(|&&time| !is_stamp_in_range(time)) {
                    Some(&time) => Err(RowError::OutOfRange(time)),
                    None => Ok(ties),
                }
            }
        }
    }
}

const FLOATS: &str = "List<Float32 | Float64 | Float16>, or List<UInt16> with metadata `dtype` bfloat16";

/// Returns the range of a row's elements, counted from the first element of the first row.
fn span(offsets: &[i32], row: usize) -> Range<usize> {
    (offsets[row] - offsets[0]) as usize..(offsets[row + 1] - offsets[0]) as usize
}

fn ragged<'a>(
    message: &'a Message,
    name: &'static str,
    allowed: &'static str,
) -> Result<&'a Column, TrajectoriesError> {
    if let Some(skipped) = message.skipped().iter().find(|skipped| skipped.field.name() == name) {
        return Err(TrajectoriesError::WrongType {
            column: name,
            came: skipped.field.data_type().to_string(),
            allowed,
        });
    }
    let Some(column) = message.column(name) else {
        return Err(TrajectoriesError::MissingColumn {
            column: name,
            came: columns_in_words(message),
        });
    };
    if !matches!(column.cells, Cells::Ragged(_)) {
        return Err(wrong_type(name, column, allowed));
    }
    let (offsets, elements) = (&column.offsets, column.values().len());
    let fits = offsets.len() == message.rows + 1
        && offsets.is_sorted()
        && offsets.first() == Some(&0)
        && offsets.last().map(|&last| last as usize) == Some(elements);
    match fits {
        true => Ok(column),
        false => Err(TrajectoriesError::Offsets {
            column: name,
            elements,
            rows: message.rows,
        }),
    }
}

fn int64<'a>(message: &'a Message, name: &'static str) -> Result<&'a Column, TrajectoriesError> {
    const ALLOWED: &str = "List<Int64>";
    let column = ragged(message, name, ALLOWED)?;
    match column.dtype {
        Dtype::Int64 => Ok(column),
        _ => Err(wrong_type(name, column, ALLOWED)),
    }
}

fn wrong_type(name: &'static str, column: &Column, allowed: &'static str) -> TrajectoriesError {
    let dtype = column.integers.unwrap_or(column.dtype);
    let nulls = column.integers.map_or("", |_| " with nulls");
    TrajectoriesError::WrongType {
        column: name,
        came: match column.cells {
            Cells::One => format!("{dtype}{nulls}"),
            Cells::Fixed(n) => format!("FixedSizeList<{dtype}, {n}>{nulls}"),
            Cells::Ragged(_) => format!("List<{dtype}>{nulls}"),
            Cells::Text(_) => "text".to_owned(),
        },
        allowed,
    }
}

fn columns_in_words(message: &Message) -> String {
    match message.columns() {
        [] => "no columns".to_owned(),
        [only] if only.name.is_empty() => format!("a flat {} array", only.dtype),
        columns => columns
            .iter()
            .map(|column| format!("`{}`", column.name))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

use rayon::prelude::*;
use robocache_device::{Dtype, HostBuf, Primitive, Values};
use robocache_stream::{Cells, Column, ColumnLayout, Layout, Message};
use robocache_time::is_stamp_in_range;

/// A batch of trajectories, one a row, read from a message and checked.
///
/// A row that makes no sense is one of the [`refused`](Self::refused). It has no samples here, so that none of its targets
/// is valid.
pub struct Trajectories<'a> {
    pub(super) rows: usize,
    pub(super) dim: usize,
    samples: Samples<'a>,
    pub(super) targets: &'a [i64],
    pub(super) target_offsets: &'a [i32],
    pub(super) has_ties: bool,
    refused: Vec<RefusedRow>,
}

/// The samples of all rows, row after row.
enum Samples<'a> {
    /// Those of the message.
    All {
        times: &'a [i64],
        time_offsets: &'a [i32],
        values: Values<'a>,
    },
    /// A copy without those of refused rows.
    Kept {
        times: Vec<i64>,
        time_offsets: Vec<i32>,
        dtype: Dtype,
        values: HostBuf,
    },
}

/// A row whose samples make no sense. Its targets are answered as not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("row {row}: {problem}")]
pub struct RefusedRow {
    /// The row.
    pub row: usize,
    /// What is wrong with it.
    pub problem: RowError,
}

/// What can be wrong with the samples of a row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// It has not `dim` values for each timestamp.
    #[error("{values} values for {samples} timestamps (allowed: {samples} times `dim` {dim})")]
    Length {
        /// Its values.
        values: usize,
        /// Its timestamps.
        samples: usize,
        /// Values a sample has.
        dim: usize,
    },
    /// One of its lists is null, or a timestamp or target is.
    #[error("column `{column}` is null or has a null in it (allowed: only among `values`)")]
    Null {
        /// The column.
        column: &'static str,
    },
    /// A timestamp is too far from 1970.
    #[error("timestamp {0} ns is out of range (allowed: +-2^61)")]
    OutOfRange(i64),
    /// The timestamps go back.
    #[error("timestamp {at} is {came}, after {before} (allowed: ascending timestamps, ties too)")]
    Descending {
        /// The index within the row.
        at: usize,
        /// The timestamp there, ns.
        came: i64,
        /// The one before it, ns.
        before: i64,
    },
}

/// A message is no batch of trajectories.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrajectoriesError {
    /// A column is not there.
    #[error(
        "no column `{column}`, the payload has {came} (a batch of trajectories is a StructArray with `timestamps_ns` \
         List<Int64>, `values` List<Float32 | Float64 | Float16 | UInt16 with dtype bfloat16>, `targets_ns` List<Int64>)"
    )]
    MissingColumn {
        /// The column's name.
        column: &'static str,
        /// The names there are.
        came: String,
    },
    /// The offsets of a column's rows are not those of its elements.
    #[error(
        "the offsets of column `{column}` do not fit its {elements} elements in {rows} rows (allowed: ascending from 0 to {elements}, one more than rows)"
    )]
    Offsets {
        /// The column's name.
        column: &'static str,
        /// Elements over all rows.
        elements: usize,
        /// Rows of the batch.
        rows: usize,
    },
    /// A column has the wrong type.
    #[error("column `{column}` is {came} (allowed: {allowed})")]
    WrongType {
        /// The column's name.
        column: &'static str,
        /// Its type in words.
        came: String,
        /// What it may be.
        allowed: &'static str,
    },
    /// There is no sample to show that `dim` is what it says, and it is too large to be believed.
    #[error(
        "metadata `dim` is {dim}, and no row has samples of so many values: the lists hold {samples} timestamps and \
         {values} values (allowed without samples: up to {LARGEST_UNSEEN_DIM})"
    )]
    Unseen {
        /// `dim` of the metadata.
        dim: usize,
        /// Timestamps over all rows.
        samples: usize,
        /// Values over all rows.
        values: usize,
    },
    /// The metadata does not say how many values a sample has.
    #[error("metadata `dim` is 0 or absent (allowed: an Integer of at least 1, the values of a sample)")]
    Dim,
    /// No row with samples has `dim` values for each of its timestamps.
    #[error("metadata `dim` is that of no row: {0}")]
    Length(RefusedRow),
    /// The answer would have more elements than a List column can.
    #[error(
        "{targets} targets of `dim` {dim} (allowed: {} values in one answer; send fewer rows)",
        i32::MAX
    )]
    TooLarge {
        /// Targets over all rows.
        targets: usize,
        /// Values a sample has.
        dim: usize,
    },
}

/// The largest `dim` that is taken from a message in which no sample shows it: each target is answered with so many
/// values, whatever the message itself holds.
const LARGEST_UNSEEN_DIM: usize = 1 << 16;

/// A batch of so many samples is checked by all cores: 1 MiB of stamps, which take one of them 100 us and more.
const SHARED_STAMPS: usize = 1 << 17;

impl<'a> Trajectories<'a> {
    /// Reads the columns `timestamps_ns`, `values` and `targets_ns` of a message, and its `dim`.
    ///
    /// # Errors
    /// What is missing or wrong, and what is allowed. A wrong row alone is no error: see [`refused`](Self::refused).
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
        let dim = usize::try_from(*message.header.dim).unwrap_or(0);
        if dim == 0 {
            return Err(TrajectoriesError::Dim);
        }
        let mut batch = Self {
            rows: message.rows,
            dim,
            samples: Samples::All {
                times: times.data.as_slice(),
                time_offsets: &times.offsets,
                values: values.values(),
            },
            targets: targets.data.as_slice(),
            target_offsets: &targets.offsets,
            has_ties: false,
            refused: Vec::new(),
        };
        let total = batch.targets.len().checked_mul(batch.dim);
        if total.is_none_or(|total| total > i32::MAX as usize) {
            return Err(TrajectoriesError::TooLarge {
                targets: batch.targets.len(),
                dim: batch.dim,
            });
        }
        let columns = [("timestamps_ns", times), ("values", values), ("targets_ns", targets)];
        let null = |row: usize| {
            let column = columns
                .iter()
                .find(|(_, column)| column.null_rows.binary_search(&row).is_ok());
            column.map_or(Ok(()), |&(column, _)| Err(RowError::Null { column }))
        };
        let check = |row: usize| null(row).and_then(|()| batch.check_row(row, &values.offsets));
        // Whether `dim` is the length of some row, and whether a sample shows it.
        let (mut has_length, mut is_seen) = (false, false);
        let (mut has_ties, mut refused) = (false, Vec::new());
        if let Some(ties) = batch.all_rows(check) {
            (has_ties, is_seen) = (ties, !batch.times().is_empty());
        } else {
            for row in 0..batch.rows {
                match check(row) {
                    Ok(ties) => {
                        has_ties |= ties;
                        is_seen |= !batch.row_times(row).is_empty();
                    }
                    Err(problem) => {
                        is_seen |= matches!(problem, RowError::Descending { .. });
                        has_length |= !matches!(problem, RowError::Length { .. });
                        refused.push(RefusedRow { row, problem });
                    }
                }
            }
        }
        (batch.has_ties, batch.refused) = (has_ties, refused);
        if let Some(first) = batch.refused.first()
            && !has_length
            && !is_seen
        {
            return Err(TrajectoriesError::Length(first.clone()));
        }
        if !is_seen && batch.dim > LARGEST_UNSEEN_DIM {
            return Err(TrajectoriesError::Unseen {
                dim: batch.dim,
                samples: batch.times().len(),
                values: batch.values().len(),
            });
        }
        if !batch.refused.is_empty() {
            batch.samples = batch.kept(&values.offsets);
        }
        Ok(batch)
    }

    /// The samples of the rows that are not refused.
    fn kept(&self, value_offsets: &[i32]) -> Samples<'a> {
        let is_kept = |row: &usize| self.refused.binary_search_by_key(row, |refused| refused.row).is_err();
        let (all, size) = (self.values(), self.dtype().size());
        let bytes = |row| span(value_offsets, row).len() * size;
        let mut values = HostBuf::default();
        values.resize((0..self.rows).filter(is_kept).map(bytes).sum());
        let (mut times, mut time_offsets, mut end) = (Vec::new(), vec![0], 0);
        for row in 0..self.rows {
            if is_kept(&row) {
                let span = span(value_offsets, row);
                let from = &all.bytes()[span.start * size..span.end * size];
                values.bytes_mut()[end..end + from.len()].copy_from_slice(from);
                end += from.len();
                times.extend_from_slice(self.row_times(row));
            }
            time_offsets.push(times.len() as i32);
        }
        Samples::Kept {
            times,
            time_offsets,
            dtype: self.dtype(),
            values,
        }
    }

    /// Whether two samples of a row have the same time, if nothing is wrong with any row, found by all cores. `None`
    /// otherwise, and of a small batch, which one core reads before others are awake.
    fn all_rows(&self, check: impl Fn(usize) -> Result<bool, RowError> + Sync) -> Option<bool> {
        if self.times().len() < SHARED_STAMPS {
            return None;
        }
        let rows = (0..self.rows).into_par_iter().map(|row| check(row).ok());
        rows.try_reduce(|| false, |a, b| Some(a | b))
    }

    /// Checks a row, and says whether two of its samples have the same time.
    fn check_row(&self, row: usize, value_offsets: &[i32]) -> Result<bool, RowError> {
        let times = self.row_times(row);
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
                // They ascend.
                let mut ends = [times.first(), times.last()].into_iter().flatten();
                match ends.find(|&&time| !is_stamp_in_range(time)) {
                    Some(&time) => Err(RowError::OutOfRange(time)),
                    None => Ok(ties),
                }
            }
        }
    }

    /// How many trajectories there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many values a sample has, D.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The type of the values, which is that of the answer.
    pub fn dtype(&self) -> Dtype {
        self.values().dtype()
    }

    /// The rows that make no sense, in order.
    pub fn refused(&self) -> &[RefusedRow] {
        &self.refused
    }

    pub(super) fn times(&self) -> &[i64] {
        match &self.samples {
            Samples::All { times, .. } => times,
            Samples::Kept { times, .. } => times,
        }
    }

    /// Row i has the samples `time_offsets[i]..time_offsets[i + 1]`.
    pub(super) fn time_offsets(&self) -> &[i32] {
        match &self.samples {
            Samples::All { time_offsets, .. } => time_offsets,
            Samples::Kept { time_offsets, .. } => time_offsets,
        }
    }

    /// `dim` values for each time.
    pub(super) fn values(&self) -> Values<'_> {
        match &self.samples {
            Samples::All { values, .. } => *values,
            Samples::Kept { dtype, values, .. } => Values::new(*dtype, values.bytes()),
        }
    }

    /// How many targets all rows have, which is the number of bytes in `valid` of the answer.
    pub fn targets(&self) -> usize {
        self.targets.len()
    }

    /// Bytes of the timestamps, values and targets.
    pub fn input_bytes(&self) -> usize {
        size_of_val(self.times()) + self.values().bytes().len() + size_of_val(self.targets)
    }

    /// Bytes of the `values` of the answer.
    pub fn output_bytes(&self) -> usize {
        self.targets.len() * self.dim * self.dtype().size()
    }

    /// Sets `layout` to that of the answer: a struct of the ragged columns `values` (T * D a row) and `valid` (T a row).
    pub fn layout_into(&self, layout: &mut Layout) {
        layout.rows = self.rows;
        layout.columns.clear();
        layout.columns.push(ColumnLayout {
            name: "values".into(),
            dtype: self.dtype(),
            cells: Cells::Ragged(self.targets.len() * self.dim),
        });
        layout.columns.push(ColumnLayout {
            name: "valid".into(),
            dtype: Dtype::UInt8,
            cells: Cells::Ragged(self.targets.len()),
        });
    }

    /// Writes the offsets of the answer's columns: row i of a column is its elements `offsets[i]..offsets[i + 1]`.
    ///
    /// # Panics
    /// If there is not one offset more than rows in both.
    pub fn offsets_into(&self, values: &mut [i32], valid: &mut [i32]) {
        valid.copy_from_slice(self.target_offsets);
        assert_eq!(values.len(), valid.len(), "one offset more than rows");
        for (value, &target) in values.iter_mut().zip(&*valid) {
            // It fits: the last and largest was checked against i32::MAX.
            *value = target * self.dim as i32;
        }
    }

    pub(super) fn row_samples(&self, row: usize) -> std::ops::Range<usize> {
        span(self.time_offsets(), row)
    }

    pub(super) fn row_times(&self, row: usize) -> &[i64] {
        &self.times()[self.row_samples(row)]
    }

    pub(super) fn row_targets(&self, row: usize) -> std::ops::Range<usize> {
        span(self.target_offsets, row)
    }

    pub(super) fn row_values<T: Primitive>(&self, row: usize) -> &[T] {
        let samples = self.row_samples(row);
        &self.values().as_slice()[samples.start * self.dim..samples.end * self.dim]
    }
}

const FLOATS: &str = "List<Float32 | Float64 | Float16>, or List<UInt16> with metadata `dtype` bfloat16";

fn span(offsets: &[i32], row: usize) -> std::ops::Range<usize> {
    offsets[row] as usize..offsets[row + 1] as usize
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

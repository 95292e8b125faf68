//! Reader of samples in Arrow structs of one row, such as a ROS message.
//!
//! Values keep the order of their paths. A null becomes NaN, and is counted as missing.

use super::names::Names;
use super::path::{Numbers, Path, integer, number};
use super::{FromConfig, SelectError, Width};
use crate::{Cells, Header, Message};
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float32Type, Float64Type};
use arrow_array::{Array, StructArray};
use arrow_schema::{DataType, FieldRef, Fields};
use robocache_device::Dtype;

const ALLOWED: &str = "a number, a list of numbers, or a struct of these";

/// Reader of the samples in payloads of one Arrow type, by the paths of their values.
#[derive(Debug)]
pub(super) struct Samples {
    /// Paths of the numbers in a struct that make up a sample, in the order of the sample's values.
    numbers: Vec<Numbers>,
    /// True if a message may have an empty list at the last path. The sample then ends before this list.
    may_lack_last: bool,
    /// Number of paths in `numbers` that the current message has: all, or all but the last one.
    taken: usize,
    names: Option<Names>,
    /// Type of a sample's values: float32 if all numbers are float32, else float64.
    dtype: Dtype,
    /// Names of a sample's values for the metadata `fields`; empty if the values have no names.
    labels: Vec<String>,
    /// Number of values at each path when `labels` was made.
    label_counts: Vec<usize>,
    /// Counts of losses so far: first of integers that were rounded, then of nulls that became NaN.
    losses: [Loss; 2],
}

/// Counts of numbers that were rounded or missing in the payloads of one Arrow type.
#[derive(Clone, Copy, Debug, Default)]
pub struct Losses<'a> {
    /// Number of integers that were rounded, and the path of the first of these integers.
    pub rounded: (u64, &'a str),
    /// Number of nulls, which became NaN, and the path of the first null.
    pub missing: (u64, &'a str),
}

/// Count of one kind of loss, rounded integers or nulls, and the index in `Samples::numbers` of the path of the first.
#[derive(Debug, Default)]
struct Loss {
    count: u64,
    first: usize,
}

impl Loss {
    fn add(&mut self, count: usize, field: usize) {
        if self.count == 0 {
            self.first = field;
        }
        self.count += count as u64;
    }
}

impl Samples {
    /// Finds the paths that a configuration names in a struct with these `fields`.
    pub(super) fn find(config: &FromConfig, fields: &Fields) -> Result<Self, SelectError> {
        let names = config.names.as_ref();
        let names = names.map(|names| Names::find(&names.key, names.order.clone(), fields));
        Self::new(config.columns.iter().map(String::as_str), names.transpose()?, fields)
    }

    /// Finds the paths of a sample's values in a struct with these `fields`. If `names` is given, each path must lead to
    /// a list.
    pub(super) fn new<'a>(
        paths: impl IntoIterator<Item = &'a str>,
        names: Option<Names>,
        fields: &Fields,
    ) -> Result<Self, SelectError> {
        let mut numbers = Vec::new();
        for text in paths {
            let (path, field) = Path::find(text, fields)?;
            add(&path, &field, &mut numbers)?;
            let is_list = matches!(numbers.last(), Some(last) if last.path.text() == text && last.is_list);
            if names.is_some() && !is_list {
                let allowed = "a list of numbers, as its elements have names";
                return Err(SelectError::value(text, field.data_type(), allowed));
            }
        }
        let is_single = numbers.iter().all(|numbers| numbers.dtype == Dtype::Float32);
        Ok(Self {
            may_lack_last: false,
            taken: numbers.len(),
            numbers,
            names,
            dtype: if is_single { Dtype::Float32 } else { Dtype::Float64 },
            labels: Vec::new(),
            label_counts: Vec::new(),
            losses: Default::default(),
        })
    }

    /// Accepts messages whose last list of numbers is empty, and reads them without that list.
    pub(super) fn let_last_be_empty(&mut self) {
        self.may_lack_last = true;
    }

    /// The paths of the numbers that the current message has.
    fn taken(&self) -> &[Numbers] {
        &self.numbers[..self.taken]
    }

    /// Sets `taken` to the number of paths that the message in `payload` has.
    fn look(&mut self, payload: &StructArray) -> Result<(), SelectError> {
        self.taken = self.numbers.len();
        if let (true, Some(last)) = (self.may_lack_last, self.numbers.last())
            && last.find(payload)?.1.is_empty()
        {
            self.taken -= 1;
        }
        Ok(())
    }

    /// The counts of rounded and missing numbers in all payloads so far.
    pub(super) fn losses(&self) -> Losses<'_> {
        let [rounded, missing] = &self.losses;
        let place = |loss: &Loss| self.numbers.get(loss.first).map_or("", |numbers| numbers.path.text());
        let of = |loss: &Loss| (loss.count, place(loss));
        Losses {
            rounded: of(rounded),
            missing: of(missing),
        }
    }

    /// Counts the numbers of a message that are rounded or missing.
    fn count_losses(&mut self, payload: &StructArray) -> Result<(), SelectError> {
        for (i, numbers) in self.numbers[..self.taken].iter().enumerate() {
            let (array, range) = numbers.find(payload)?;
            if array.null_count() > 0 {
                let missing = range.clone().filter(|&i| array.is_null(i)).count();
                self.losses[1].add(missing, i);
            }
            if matches!(numbers.dtype, Dtype::Int64 | Dtype::UInt64) {
                let is_rounded = |i: &usize| integer(&**array, *i).is_some_and(|value| value as f64 as i128 != value);
                self.losses[0].add(range.filter(is_rounded).count(), i);
            }
        }
        Ok(())
    }

    /// The names of a sample's values; empty if the values are not selected by name, or no message has given the names yet.
    pub(super) fn names(&self) -> &[String] {
        self.names.as_ref().map_or(&[], Names::order)
    }

    /// Describes how many messages have elements that the first message did not have; `None` if no message has any.
    pub(super) fn others(&self) -> Option<String> {
        let (names, numbers) = (self.names.as_ref()?, self.numbers.first()?);
        names
            .others()
            .map(|words| format!("`{}`: {words}", numbers.path.text()))
    }

    /// Writes the values of a sample to `message` as a flat array. Refuses another number of values than `width`.
    pub(super) fn read(
        &mut self,
        payload: &StructArray,
        width: Width,
        message: &mut Message,
    ) -> Result<(), SelectError> {
        if let Some(names) = &mut self.names {
            names.look(payload)?;
        }
        self.look(payload)?;
        let values = self.count(payload)?;
        if let Width::Of(dim) = width
            && values != dim
        {
            let paths: Vec<&str> = self.taken().iter().map(|numbers| numbers.path.text()).collect();
            return Err(SelectError::value(
                paths.join(", "),
                format!("{values} values"),
                format!("{dim}, the `dim` of the input"),
            ));
        }
        if let Some(names) = &mut self.names {
            names.keep();
        }
        // A mask of one entry is that of the sample, and stays. A longer mask belongs to rows of another payload.
        let mask = match message.header.valid.get() {
            Some(&[mask]) => Some(mask),
            _ => None,
        };
        message.header.forget_form();
        if let Some(mask) = mask {
            message.header.valid.set([mask]);
        }
        self.label(payload, &mut message.header)?;
        self.count_losses(payload)?;
        message.rows = values;
        let column = message.add_column("", self.dtype, Cells::One);
        column.data.resize(values * self.dtype.size());
        let bytes = column.data.bytes_mut();
        match self.dtype {
            Dtype::Float32 => self.write::<Float32Type>(payload, bytemuck::cast_slice_mut(bytes), |value| value as f32),
            _ => self.write::<Float64Type>(payload, bytemuck::cast_slice_mut(bytes), |value| value),
        }
    }

    /// Sets `fields` to the names of the values or, if the values have no names, to their paths. The elements of a single list
    /// without names stay unnamed.
    fn label(&mut self, payload: &StructArray, header: &mut Header) -> Result<(), SelectError> {
        let names = self.names.as_ref().map_or(&[][..], Names::order);
        let taken = &self.numbers[..self.taken];
        let mut is_last = self.label_counts.len() == taken.len();
        self.label_counts.resize(taken.len(), 0);
        for (numbers, last) in taken.iter().zip(&mut self.label_counts) {
            let len = if names.is_empty() {
                numbers.find(payload)?.1.len()
            } else {
                names.len()
            };
            is_last &= *last == len;
            *last = len;
        }
        if !is_last {
            self.labels.clear();
            let is_alone = taken.len() == 1;
            for (numbers, &len) in taken.iter().zip(&self.label_counts) {
                let path = numbers.path.text();
                match (names.is_empty(), numbers.is_list) {
                    (true, false) => self.labels.push(path.to_owned()),
                    (true, true) if is_alone => {}
                    (true, true) => self.labels.extend((0..len).map(|i| format!("{path}[{i}]"))),
                    (false, _) if is_alone => self.labels.extend_from_slice(names),
                    (false, _) => self.labels.extend(names.iter().map(|name| format!("{path}.{name}"))),
                }
            }
        }
        if !self.labels.is_empty() {
            header.fields.set(&self.labels);
        }
        Ok(())
    }

    /// The number of values of a sample in `payload`.
    fn count(&self, payload: &StructArray) -> Result<usize, SelectError> {
        let mut values = 0;
        for numbers in self.taken() {
            let len = numbers.find(payload)?.1.len();
            values += match &self.names {
                // Lists whose elements have no names are taken as they are.
                Some(names) if names.len() + names.order().len() > 0 => {
                    if names.len() != len {
                        let (path, key, named) = (numbers.path.text(), names.key(), names.len());
                        let problem =
                            format!("`{path}` has {len} values for the {named} of `{key}` (allowed: one for each)");
                        return Err(SelectError::Broken(problem));
                    }
                    names.places().len()
                }
                _ => len,
            };
        }
        Ok(values)
    }

    fn write<T: ArrowPrimitiveType>(
        &self,
        payload: &StructArray,
        mut out: &mut [T::Native],
        cast: impl Fn(f64) -> T::Native,
    ) -> Result<(), SelectError> {
        let places = self.names.as_ref().map_or(&[][..], Names::places);
        for numbers in self.taken() {
            let (array, range) = numbers.find(payload)?;
            let len = if places.is_empty() { range.len() } else { places.len() };
            let to;
            (to, out) = out.split_at_mut(len);
            let whole = array.as_primitive_opt::<T>().filter(|array| array.null_count() == 0);
            match whole {
                Some(array) if places.is_empty() => to.copy_from_slice(&array.values()[range]),
                _ => {
                    for (i, to) in to.iter_mut().enumerate() {
                        let place = places.get(i).copied().unwrap_or(i);
                        *to = cast(number(&**array, range.start + place));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Adds the field at `path` to `numbers`. For a struct, adds each of its fields in their order.
fn add(path: &Path, field: &FieldRef, numbers: &mut Vec<Numbers>) -> Result<(), SelectError> {
    if let DataType::Struct(fields) = field.data_type() {
        for (step, field) in fields.iter().enumerate() {
            add(&path.child(step, field.name()), field, numbers)?;
        }
        return Ok(());
    }
    let refused = || SelectError::value(path.text(), field.data_type(), ALLOWED);
    numbers.push(Numbers::of(path, field).ok_or_else(refused)?);
    Ok(())
}

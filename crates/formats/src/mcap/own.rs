//! Messages that robocache wrote, as they were.

use super::form::{About, Elements, changes};
use super::types::Type;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type, UInt32Type};
use arrow_array::{Array, ArrayRef, StructArray};
use arrow_schema::Fields;
use robocache_device::Dtype;
use robocache_stream::recording::text::Change;
use robocache_stream::{Cells, Message, Reading, Selector, key};
use std::collections::HashMap;
use std::sync::Arc;

/// Reads the messages of a channel.
pub(super) struct Own {
    pub about: About,
    pub of: Arc<Type>,
    pub fields: Fields,
    first: Vec<Change>,
    parts: Vec<(String, Dtype, Elements)>,
    samples: Selector,
    scratch: Message,
}

impl Own {
    pub fn new(about: About, first: &str, of: Arc<Type>) -> Result<Self, String> {
        Ok(Self {
            fields: of.arrow_fields(),
            first: changes(first)?,
            parts: about.parts()?,
            samples: Selector::new(Reading::named_samples(None)),
            scratch: Message::default(),
            about,
            of,
        })
    }

    /// Makes `message` what was written. `changes` is where its metadata differ from those of the first message.
    pub fn read(
        &mut self,
        payload: &Arc<StructArray>,
        stamp_ns: i64,
        changes: &[Change],
        message: &mut Message,
    ) -> Result<(), String> {
        message.clear();
        if self.about.form == "exact" {
            return self.exact(payload, message);
        }
        message.header.timestamp_ns.set(stamp_ns);
        set(self.first.iter().chain(changes), message);
        match self.about.form.as_str() {
            "cloud" => self.cloud(payload, message),
            "joints" => {
                let position = payload
                    .column_by_name("position")
                    .and_then(|list| list.as_list_opt::<i32>());
                let values = position.and_then(|list| list.values().as_primitive_opt::<Float64Type>());
                self.values(values.ok_or("no `position` of float64")?.values(), message)
            }
            "samples" => {
                let array: ArrayRef = payload.clone();
                let mut scratch = std::mem::take(&mut self.scratch);
                let read = self
                    .samples
                    .read([], &array, &mut scratch)
                    .map_err(|error| error.to_string());
                let values = scratch.flat().filter(|values| values.dtype() == Dtype::Float64);
                let read = read.and_then(|()| {
                    let values = values.ok_or("no values of float64")?;
                    self.values(values.as_slice(), message)
                });
                self.scratch = scratch;
                read
            }
            other => Err(format!("form `{other}`, which is not known")),
        }
    }

    /// A flat array of floats.
    fn values(&self, values: &[f64], message: &mut Message) -> Result<(), String> {
        message.rows = values.len();
        match self.parts.as_slice() {
            [(name, Dtype::Float64, _)] if name.is_empty() => {
                let column = message.add_column("", Dtype::Float64, Cells::One);
                column.data.copy_from(bytemuck::cast_slice(values));
            }
            [(name, Dtype::Float32, _)] if name.is_empty() => {
                let column = message.add_column("", Dtype::Float32, Cells::One);
                column.data.resize(values.len() * size_of::<f32>());
                let out: &mut [f32] = column.data.as_mut_slice();
                out.iter_mut().zip(values).for_each(|(to, value)| *to = *value as f32);
            }
            _ => return Err("columns that are no flat array of floats".to_owned()),
        }
        Ok(())
    }

    fn cloud(&self, payload: &StructArray, message: &mut Message) -> Result<(), String> {
        let number =
            |name: &str| Some(payload.column_by_name(name)?.as_primitive_opt::<UInt32Type>()?.value(0) as usize);
        let data = payload
            .column_by_name("data")
            .and_then(|list| list.as_list_opt::<i32>());
        let (Some(points), Some(step), Some(data)) = (number("width"), number("point_step"), data) else {
            return Err("no `width`, `point_step` or `data`".to_owned());
        };
        let data = &bytes(data.values(), 1)[..];
        let size: usize = self.parts.iter().map(|(_, dtype, _)| dtype.size()).sum();
        let is_flat = matches!(self.parts.as_slice(), [(name, ..)] if name.is_empty());
        let is_whole = step.checked_mul(points) == Some(data.len());
        if !is_whole || step == 0 || (is_flat && !step.is_multiple_of(size)) || (!is_flat && step != size) {
            return Err(format!(
                "{points} points of {step} bytes in {}, of columns of {size}",
                data.len()
            ));
        }
        if is_flat {
            let dtype = self.parts[0].1;
            message.rows = data.len() / size;
            message.add_column("", dtype, Cells::One).data.copy_from(data);
            return Ok(());
        }
        message.rows = points;
        let mut offset = 0;
        for (name, dtype, _) in &self.parts {
            let size = dtype.size();
            let column = message.add_column(name, *dtype, Cells::One);
            column.data.resize(points * size);
            let out = column.data.bytes_mut().chunks_exact_mut(size);
            for (to, point) in out.zip(data.chunks_exact(step)) {
                to.copy_from_slice(&point[offset..offset + size]);
            }
            offset += size;
        }
        Ok(())
    }

    fn exact(&self, payload: &StructArray, message: &mut Message) -> Result<(), String> {
        let lacks = |name: &str| format!("no `{name}` as it is written");
        let list = |name: &'static str| -> Result<&[i64], String> {
            let list = payload.column_by_name(name).and_then(|list| list.as_list_opt::<i32>());
            let values = list.and_then(|list| list.values().as_primitive_opt::<Int64Type>());
            values.map(|values| &values.values()[..]).ok_or_else(|| lacks(name))
        };
        let stamp = payload
            .column_by_name(key::timestamp_ns)
            .and_then(|stamp| stamp.as_primitive_opt::<Int64Type>());
        let rows = payload
            .column_by_name("rows")
            .and_then(|rows| rows.as_primitive_opt::<UInt32Type>());
        let text = super::plan::text(payload, "metadata").ok_or_else(|| lacks("metadata"))?;
        let (Some(stamp), Some(rows)) = (stamp, rows) else {
            return Err(lacks(key::timestamp_ns));
        };
        let header = &mut message.header;
        header.timestamp_ns.set(stamp.value(0));
        for (entry, name) in [
            (&mut header.shape, key::shape),
            (&mut header.timestamps_ns, key::timestamps_ns),
            (&mut header.valid, key::valid),
            (&mut header.age_ns, key::age_ns),
        ] {
            match list(name)? {
                [] => {}
                values => entry.set(values),
            }
        }
        set(changes(text)?.iter(), message);
        let rows = rows.value(0) as usize;
        message.rows = rows;
        // Behind the fields that all types of ours have.
        let from = payload.fields().find("rows").map_or(0, |(at, _)| at + 1);
        let mut lists = payload.columns()[from..]
            .iter()
            .filter_map(|list| list.as_list_opt::<i32>());
        for (name, dtype, elements) in &self.parts {
            let values = lists.next().ok_or_else(|| lacks(name))?.values();
            let travels_as = if matches!(dtype, Dtype::Float16 | Dtype::BFloat16) {
                Dtype::UInt16
            } else {
                *dtype
            };
            let mut offsets = &[][..];
            let (cells, wanted) = match elements {
                Elements::One => (Cells::One, Some(rows)),
                Elements::Fixed(n) => (Cells::Fixed(*n), rows.checked_mul(*n)),
                Elements::Any | Elements::Text => {
                    let list = lists
                        .next()
                        .and_then(|list| list.values().as_primitive_opt::<Int32Type>());
                    offsets = &list.ok_or_else(|| lacks(name))?.values()[..];
                    let is_fine = offsets.len() == rows + 1 && offsets[0] == 0 && offsets.is_sorted();
                    let total = offsets.last().filter(|_| is_fine).map(|&total| total as usize);
                    let cells = match elements {
                        Elements::Text => Cells::Text,
                        _ => Cells::Ragged,
                    };
                    (cells(total.unwrap_or(0)), total)
                }
            };
            if values.data_type() != &travels_as.arrow_type() || Some(values.len()) != wanted {
                return Err(format!(
                    "column `{name}` of {} values for {rows} rows of {elements:?}",
                    values.len()
                ));
            }
            let data = bytes(values, dtype.size());
            let is_text = |text: &str| offsets.iter().all(|&at| text.is_char_boundary(at as usize));
            if matches!(cells, Cells::Text(_)) && !std::str::from_utf8(&data).is_ok_and(is_text) {
                return Err(format!("column `{name}` of texts that are not UTF-8"));
            }
            let column = message.add_column(name, *dtype, cells);
            column.data.copy_from(&data);
            column.offsets.extend_from_slice(offsets);
        }
        Ok(())
    }
}

fn set<'a>(entries: impl Iterator<Item = &'a Change>, message: &mut Message) {
    for (name, value) in entries {
        message.header.remove(name);
        if let Some(value) = value {
            message.header.set(name, value.as_ref());
        }
    }
}

/// The bytes of an array of numbers, which is whole.
fn bytes(array: &ArrayRef, size: usize) -> Vec<u8> {
    let data = array.to_data();
    let from = data.offset() * size;
    data.buffers().first().map_or(Vec::new(), |buffer| {
        buffer.as_slice()[from..from + data.len() * size].to_vec()
    })
}

/// What the channels of streams say that differs from their first messages, until the message comes that it is of.
pub(super) type Differences = HashMap<String, Vec<Change>>;

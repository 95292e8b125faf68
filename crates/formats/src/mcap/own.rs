//! Reader of messages that robocache itself wrote: it restores them to the bit, whatever ROS message type they have in
//! the file.

use super::decoder::Decoder;
use super::form::{About, changes, element};
use super::row;
use super::writer::LISTS;
use crate::parts::cell_type;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type, UInt8Type, UInt32Type};
use arrow_array::{Array, ArrayRef, StructArray};
use robocache_device::Dtype;
use robocache_stream::recording::text::Change;
use robocache_stream::{Cells, Message, MetadataRef, Selection, Selector, key};
use std::collections::HashMap;
use std::sync::Arc;

/// Reader of the messages of one channel that robocache wrote.
pub(super) struct Own {
    pub about: About,
    pub decoder: Decoder,
    first: Vec<Change>,
    samples: Selector,
    scratch: Message,
}

impl Own {
    pub(super) fn new(about: About, first: &str, decoder: Decoder) -> Result<Self, String> {
        if about.parts.is_empty() {
            return Err("a channel of no columns".to_owned());
        }
        Ok(Self {
            first: changes(first)?,
            samples: Selector::new(Selection::named_samples(None)),
            scratch: Message::default(),
            about,
            decoder,
        })
    }

    /// Restores a message that robocache wrote, from its decoded `payload`. `changes` lists how its metadata differ from those
    /// of the stream's first message.
    pub(super) fn read(
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
                let values = row::list::<Float64Type>(payload, "position");
                self.values(values.ok_or("no `position` of float64")?, message)
            }
            "samples" => {
                let array: ArrayRef = payload.clone();
                let read = self.samples.read([], &array, &mut self.scratch);
                read.map_err(|error| error.to_string())?;
                let values = self.scratch.flat();
                let values = values.filter(|values| values.dtype() == Dtype::Float64);
                self.values(values.ok_or("no values of float64")?.as_slice(), message)
            }
            other => Err(format!(
                "form `{other}`, which is not known (allowed: cloud, joints, samples, exact)"
            )),
        }
    }

    /// Sets the payload of `message` to a flat array of float32 or float64.
    fn values(&self, values: &[f64], message: &mut Message) -> Result<(), String> {
        let dtype = match &self.about.parts[..] {
            [(name, dtype @ (Dtype::Float32 | Dtype::Float64), _)] if name.is_empty() => *dtype,
            _ => return Err("columns that are not a flat array of floats".to_owned()),
        };
        message.rows = values.len();
        let column = message.add_column("", dtype, Cells::One);
        if dtype == Dtype::Float64 {
            column.data.copy_from(bytemuck::cast_slice(values));
            return Ok(());
        }
        column.data.resize(values.len() * size_of::<f32>());
        let out: &mut [f32] = column.data.as_mut_slice();
        out.iter_mut().zip(values).for_each(|(to, value)| *to = *value as f32);
        Ok(())
    }

    fn cloud(&self, payload: &StructArray, message: &mut Message) -> Result<(), String> {
        let number = |name: &str| Some(row::number::<UInt32Type>(payload, name)? as usize);
        let data = row::list::<UInt8Type>(payload, "data");
        let (Some(points), Some(step), Some(data)) = (number("width"), number("point_step"), data) else {
            return Err("no `width`, `point_step` or `data`".to_owned());
        };
        let size: usize = self.about.parts.iter().map(|(_, dtype, _)| dtype.size()).sum();
        let is_flat = matches!(self.about.parts.as_slice(), [(name, ..)] if name.is_empty());
        let is_whole = step.checked_mul(points) == Some(data.len());
        if !is_whole || step == 0 || (is_flat && !step.is_multiple_of(size)) || (!is_flat && step != size) {
            return Err(format!(
                "{points} points of {step} bytes in {}, of columns of {size}",
                data.len()
            ));
        }
        if is_flat {
            let dtype = self.about.parts[0].1;
            message.rows = data.len() / size;
            message.add_column("", dtype, Cells::One).data.copy_from(data);
            return Ok(());
        }
        message.rows = points;
        let mut offset = 0;
        for (name, dtype, _) in &self.about.parts {
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
        let lacks = |name: &str| format!("no `{name}` of the type that robocache writes");
        let list = |name: &str| row::list::<Int64Type>(payload, name).ok_or_else(|| lacks(name));
        let stamp_ns = row::number::<Int64Type>(payload, key::timestamp_ns);
        let rows = row::number::<UInt32Type>(payload, "rows");
        let text = row::text(payload, "metadata").ok_or_else(|| lacks("metadata"))?;
        let (Some(stamp_ns), Some(rows)) = (stamp_ns, rows) else {
            return Err(lacks(key::timestamp_ns));
        };
        let header = &mut message.header;
        header.timestamp_ns.set(stamp_ns);
        for name in LISTS {
            match list(name)? {
                [] => {}
                values => header.set(name, MetadataRef::ListInt(values)),
            }
        }
        set(changes(text)?.iter(), message);
        let rows = rows as usize;
        message.rows = rows;
        // In messages of the form `exact`, the columns stand behind the fields that all such messages have.
        let mut next = payload.fields().find("rows").map_or(0, |(at, _)| at + 1);
        for (name, dtype, cells) in &self.about.parts {
            let list = payload.columns().get(next).and_then(|list| list.as_list_opt::<i32>());
            let values = list.ok_or_else(|| lacks(name))?.values();
            next += 1;
            let mut offsets = &[][..];
            let total = match cells {
                Cells::One => Some(rows),
                Cells::Fixed(n) => rows.checked_mul(*n),
                Cells::Ragged(_) | Cells::Text(_) => {
                    let list = payload.columns().get(next).and_then(row::numbers::<Int32Type>);
                    offsets = list.ok_or_else(|| lacks(name))?;
                    next += 1;
                    let is_fine = offsets.len() == rows + 1 && offsets[0] == 0 && offsets.is_sorted();
                    offsets.last().filter(|_| is_fine).map(|&total| total as usize)
                }
            };
            let cells = match cells {
                Cells::Ragged(_) => Cells::Ragged(values.len()),
                Cells::Text(_) => Cells::Text(values.len()),
                cells => *cells,
            };
            if *values.data_type() != element(*dtype).arrow_type() || Some(values.len()) != total {
                let (came, cells) = (values.len(), cell_type(*dtype, cells));
                return Err(format!("column `{name}` of {came} values for {rows} rows of {cells}"));
            }
            let (whole, size) = (values.to_data(), dtype.size());
            let data = &whole.buffers()[0][whole.offset() * size..][..values.len() * size];
            let is_text = |text: &str| offsets.iter().all(|&at| text.is_char_boundary(at as usize));
            if matches!(cells, Cells::Text(_)) && !str::from_utf8(data).is_ok_and(is_text) {
                return Err(format!("column `{name}` of texts that are not UTF-8"));
            }
            let column = message.add_column(name, *dtype, cells);
            column.data.copy_from(data);
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

/// Changes of metadata from a stream's first message to its next message, by the name of the stream. They are removed when that
/// message is read.
pub(super) type Differences = HashMap<String, Vec<Change>>;

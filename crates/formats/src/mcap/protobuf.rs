//! Decoder of messages in Protocol Buffers: the wire format, by the layout that a [descriptor](super::descriptor) gives.
//!
//! A field that occurs again in a message replaces the first one, or is merged into it. A field whose wire type does not match
//! its type counts as unknown, and is skipped. Missing numbers are 0, or null if the schema tells a missing number from 0.

use super::columns::{Column, Filled};
use super::types::{Field, Kind, Type};
use std::collections::HashMap;
use std::sync::Arc;

/// Encodings of a type's fields on the wire, in the order of the fields.
pub(super) struct Layout {
    pub fields: Vec<Tag>,
    /// Indices of the fields, by their field numbers on the wire.
    pub places: HashMap<u64, usize>,
}

pub(super) struct Tag {
    pub form: Form,
    /// Bits of the number that replaces the field if it is absent from a message; `None` to make it null.
    pub absent: Option<u64>,
}

/// Encoding of a field's value on the wire.
pub(super) enum Form {
    Bool,
    Varint,
    /// Signed number of 32 bits, in zigzag.
    Zigzag32,
    Zigzag64,
    Fixed32,
    Fixed64,
    /// Strings, or `bytes` as the element of a list.
    Text,
    /// The type `bytes` as a list of uint8.
    Bytes,
    Struct(Arc<Layout>),
    Opaque,
}

/// Decodes a message in Protocol Buffers, and appends its values as a row to `columns`.
pub(super) fn read(layout: &Layout, of: &Type, data: &[u8], columns: &mut [Column]) -> Result<(), String> {
    let mut decoder = Decoder::default();
    decoder.read(layout, of, columns, 0, data)?;
    decoder.close(layout, of, columns, 0)
}

#[derive(Default)]
struct Decoder {
    filled: Filled,
}

impl Decoder {
    /// Decodes the fields in `data`, a part of a message, into the row with index `row` of `columns`. The row stays incomplete,
    /// so that further parts of the message can be added.
    fn read(
        &mut self,
        layout: &Layout,
        of: &Type,
        columns: &mut [Column],
        row: usize,
        data: &[u8],
    ) -> Result<(), String> {
        for each in Wire::new(data) {
            let (number, value) = each?;
            if let Some(&at) = layout.places.get(&number) {
                let field = &of.fields[at];
                self.field(&layout.fields[at].form, field, &mut columns[at], row, value)
                    .map_err(|problem| format!("`{}`: {problem}", field.name))?;
            }
        }
        Ok(())
    }

    fn field(
        &mut self,
        form: &Form,
        field: &Field,
        column: &mut Column,
        row: usize,
        value: Value<'_>,
    ) -> Result<(), String> {
        match (form, column, value, &field.kind) {
            (
                Form::Struct(layout),
                Column::Structs { columns, rows, is_open },
                Value::Bytes(data),
                Kind::Struct(of),
            ) => {
                *is_open = true;
                self.read(layout, of, columns, *rows, data)
            }
            (Form::Struct(layout), Column::Lists(_, items), Value::Bytes(data), Kind::Struct(of)) => {
                let Column::Structs { columns, rows, .. } = &mut **items else {
                    return Ok(());
                };
                self.read(layout, of, columns, *rows, data)?;
                self.close(layout, of, columns, *rows)?;
                *rows += 1;
                Ok(())
            }
            (Form::Bytes, Column::Lists(offsets, items), Value::Bytes(data), _) => {
                items.truncate(offsets.last().map_or(0, |&from| from as usize));
                items.add_bytes(data);
                Ok(())
            }
            (Form::Text, Column::Lists(_, items), Value::Bytes(data), kind) => add_text(items, kind, data),
            (Form::Text, column, Value::Bytes(data), kind) => {
                column.truncate(row);
                add_text(column, kind, data)
            }
            (form, Column::Lists(_, items), Value::Bytes(packed), _) => {
                let mut wire = Wire::new(packed);
                while let Some(number) = form.next_packed(&mut wire)? {
                    items.add_number(number);
                }
                Ok(())
            }
            (form, column, value, _) => {
                match (form.number(value), column) {
                    (None, _) => {}
                    (Some(number), Column::Lists(_, items)) => items.add_number(number),
                    (Some(number), column) => {
                        column.truncate(row);
                        column.add_number(number);
                    }
                }
                Ok(())
            }
        }
    }

    /// Completes the row with index `row` of `columns`: fills in its missing fields.
    fn close(&mut self, layout: &Layout, of: &Type, columns: &mut [Column], row: usize) -> Result<(), String> {
        for ((tag, field), column) in layout.fields.iter().zip(&of.fields).zip(columns) {
            match (column, &tag.form, &field.kind) {
                (
                    Column::Structs {
                        columns,
                        rows,
                        is_open: is_open @ true,
                    },
                    Form::Struct(layout),
                    Kind::Struct(of),
                ) => {
                    self.close(layout, of, columns, *rows)?;
                    *rows += 1;
                    *is_open = false;
                }
                (column @ Column::Lists(..), ..) => column.end_list()?,
                (column, ..) if column.len() == row => {
                    self.filled.add(column)?;
                    if let Some(value) = tag.absent {
                        column.truncate(row);
                        column.add_number(value);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn add_text(column: &mut Column, kind: &Kind, data: &[u8]) -> Result<(), String> {
    match kind {
        Kind::Text => column.add_text(String::from_utf8_lossy(data).as_bytes()),
        _ => column.add_text(data),
    }
}

impl Form {
    /// Returns the bits of a number; `None` if the value's wire type does not match.
    fn number(&self, value: Value<'_>) -> Option<u64> {
        let signed = |value: u64| (value >> 1) ^ (value & 1).wrapping_neg();
        Some(match (self, value) {
            (Self::Bool, Value::Varint(value)) => u64::from(value != 0),
            (Self::Varint, Value::Varint(value)) => value,
            (Self::Zigzag32, Value::Varint(value)) => signed(u64::from(value as u32)),
            (Self::Zigzag64, Value::Varint(value)) => signed(value),
            (Self::Fixed32, Value::Fixed32(bytes)) => u32::from_le_bytes(bytes).into(),
            (Self::Fixed64, Value::Fixed64(bytes)) => u64::from_le_bytes(bytes),
            _ => return None,
        })
    }

    /// Reads the next number of a packed field; `None` at the end of the field.
    fn next_packed(&self, wire: &mut Wire<'_>) -> Result<Option<u64>, String> {
        if wire.rest.is_empty() {
            return Ok(None);
        }
        Ok(self.number(match self {
            Self::Fixed32 => Value::Fixed32(wire.array()?),
            Self::Fixed64 => Value::Fixed64(wire.array()?),
            Self::Text | Self::Bytes | Self::Struct(_) | Self::Opaque => return Ok(None),
            _ => Value::Varint(wire.varint()?),
        }))
    }
}

/// Encoded value of a field, by its wire type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    /// Bytes that a length precedes, or the contents of a group.
    Bytes(&'a [u8]),
    Fixed32([u8; 4]),
}

/// Iterator over the fields of an encoded message: the number and the value of each field.
pub(super) struct Wire<'a> {
    rest: &'a [u8],
    len: usize,
}

const START_GROUP: u64 = 3;
const END_GROUP: u64 = 4;

impl<'a> Iterator for Wire<'a> {
    type Item = Result<(u64, Value<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.rest.is_empty()).then(|| {
            let (number, wire_type) = self.tag()?;
            let value = match wire_type {
                START_GROUP => self.group(number)?,
                wire_type => self.value(wire_type)?,
            };
            Ok((number, value))
        })
    }
}

impl<'a> Wire<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Self {
            rest: data,
            len: data.len(),
        }
    }

    fn tag(&mut self) -> Result<(u64, u64), String> {
        let at = self.at();
        let tag = self.varint()?;
        match tag >> 3 {
            number @ 1..=0x1fff_ffff => Ok((number, tag & 7)),
            number => Err(format!("field number {number} at byte {at} (allowed: 1 to 536870911)")),
        }
    }

    fn value(&mut self, wire_type: u64) -> Result<Value<'a>, String> {
        let at = self.at();
        Ok(match wire_type {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(self.array()?),
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Fixed32(self.array()?),
            END_GROUP => return Err(format!("the end of a group at byte {at} that did not begin")),
            _ => return Err(format!("wire type {wire_type} at byte {at} (allowed: 0 to 5)")),
        })
    }

    /// Reads to the end of the group with the field number `number`, including all groups nested in it.
    fn group(&mut self, number: u64) -> Result<Value<'a>, String> {
        let (from, mut open) = (self.rest, vec![number]);
        while let Some(&innermost) = open.last() {
            let at = self.at();
            match self.tag()? {
                (number, START_GROUP) => open.push(number),
                (number, END_GROUP) if number == innermost => {
                    open.pop();
                    if open.is_empty() {
                        let inside = at - (self.len - from.len());
                        return Ok(Value::Bytes(&from[..inside]));
                    }
                }
                (number, END_GROUP) => {
                    return Err(format!(
                        "the end of group {number} at byte {at}, and {innermost} is open"
                    ));
                }
                (_, wire_type) => {
                    self.value(wire_type)?;
                }
            }
        }
        Ok(Value::Bytes(&[]))
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0;
        for (i, &byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.rest = &self.rest[i + 1..];
                return Ok(value);
            }
        }
        Err(format!(
            "the number at byte {} of {} does not end (allowed: up to 10 bytes)",
            self.at(),
            self.len
        ))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64)?);
        Ok(array)
    }

    fn take(&mut self, bytes: u64) -> Result<&'a [u8], String> {
        let taken = usize::try_from(bytes).ok().and_then(|n| self.rest.split_at_checked(n));
        let (taken, rest) = taken.ok_or_else(|| {
            format!(
                "it needs {bytes} bytes from byte {} on, and ends at byte {}: cut off, or of another type",
                self.at(),
                self.len
            )
        })?;
        self.rest = rest;
        Ok(taken)
    }

    fn at(&self) -> usize {
        self.len - self.rest.len()
    }
}

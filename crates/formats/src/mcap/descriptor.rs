//! Types of Protocol Buffers: what a `FileDescriptorSet` says of them.

use super::protobuf::{Absent, Form, Layout, Tag, Value, Wire};
use super::types::{Count, Field, Kind, Type};
use robocache_device::Dtype;
use std::collections::HashMap;
use std::sync::Arc;

/// Messages are described no deeper in others than this.
const DEEPEST: usize = 32;

/// A type, and how it travels.
type Made = (Arc<Type>, Arc<Layout>);

/// `FieldDescriptorProto.Label`.
const REPEATED: u64 = 3;

/// The type of that name, and how it travels. A message within itself, or too deep in others, is not decoded.
pub(super) fn from_descriptors(name: &str, set: &[u8]) -> Result<Made, String> {
    let failed = |problem: String| format!("its schema is no FileDescriptorSet: {problem}");
    let mut types = Types::default();
    each(set, |number, value| match (number, value) {
        (1, Value::Bytes(file)) => types.file(file),
        _ => Ok(()),
    })
    .map_err(failed)?;
    let name = format!(".{}", name.trim_start_matches('.'));
    match types.find(&name).map_err(failed)? {
        Some(made) => Ok(made),
        None => Err(format!("type `{name}` is not in its schema")),
    }
}

fn each<'a>(data: &'a [u8], mut take: impl FnMut(u64, Value<'a>) -> Result<(), String>) -> Result<(), String> {
    let mut wire = Wire::new(data);
    while let Some((number, value)) = wire.next()? {
        take(number, value)?;
    }
    Ok(())
}

/// The last field of that number: where it is one of bytes.
fn bytes(data: &[u8], wanted: u64) -> Result<Option<&[u8]>, String> {
    let mut found = None;
    each(data, |number, value| {
        if let (true, Value::Bytes(bytes)) = (number == wanted, value) {
            found = Some(bytes);
        }
        Ok(())
    })?;
    Ok(found)
}

/// `FeatureSet.field_presence` in the features that stand in options, under this number.
fn presence(options: &[u8], features: u64) -> Result<Option<u64>, String> {
    let mut found = None;
    if let Some(features) = bytes(options, features)? {
        each(features, |number, value| {
            if let (1, Value::Varint(presence)) = (number, value) {
                found = Some(presence);
            }
            Ok(())
        })?;
    }
    Ok(found)
}

/// `FeatureSet.FieldPresence.IMPLICIT`.
const IMPLICIT: u64 = 2;

/// Whether a file can tell fields that are not there from those that are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Always,
    /// Where a field is `optional`, one of several, or a message.
    WhereSaid,
}

#[derive(Default)]
struct Types<'a> {
    /// `DescriptorProto`s by their full names.
    messages: HashMap<String, (&'a [u8], Presence)>,
    made: HashMap<String, Made>,
    /// Those that are being made.
    open: Vec<String>,
}

/// A `FieldDescriptorProto`.
struct Described<'a> {
    name: String,
    number: u64,
    label: u64,
    of: u64,
    type_name: String,
    default: Option<&'a [u8]>,
    is_one_of: bool,
    presence: Option<u64>,
}

impl<'a> Types<'a> {
    fn file(&mut self, file: &'a [u8]) -> Result<(), String> {
        let text = |number| Ok::<_, String>(String::from_utf8_lossy(bytes(file, number)?.unwrap_or_default()));
        let package = text(2)?;
        let presence = match (&*text(12)?, presence(bytes(file, 8)?.unwrap_or_default(), 50)?) {
            ("proto3", _) | (_, Some(IMPLICIT)) => Presence::WhereSaid,
            _ => Presence::Always,
        };
        let scope = if package.is_empty() {
            String::new()
        } else {
            format!(".{package}")
        };
        // Messages, how deep they are in others, and the number that messages in them have.
        let mut waiting = vec![(scope, file, 0, 4)];
        while let Some((scope, within, depth, nested)) = waiting.pop() {
            each(within, |number, value| {
                if let (true, Value::Bytes(message)) = (number == nested, value) {
                    let name = String::from_utf8_lossy(bytes(message, 1)?.unwrap_or_default());
                    let name = format!("{scope}.{name}");
                    self.messages.insert(name.clone(), (message, presence));
                    if depth < DEEPEST {
                        waiting.push((name, message, depth + 1, 3));
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// `None`: it is not described.
    fn find(&mut self, name: &str) -> Result<Option<Made>, String> {
        if let Some(made) = self.made.get(name) {
            return Ok(Some(made.clone()));
        }
        let Some(&(message, presence)) = self.messages.get(name) else {
            return Ok(None);
        };
        self.open.push(name.to_owned());
        let (mut fields, mut tags, mut places) = (Vec::new(), Vec::new(), HashMap::new());
        let mut wire = Wire::new(message);
        while let Some((number, value)) = wire.next()? {
            let (2, Value::Bytes(field)) = (number, value) else {
                continue;
            };
            let described = Described::new(field)?;
            let (kind, form) = self.form(&described)?;
            let count = match (described.label == REPEATED, &form) {
                (true, _) | (_, Form::Bytes) => Count::Sequence,
                _ => Count::One,
            };
            places.insert(described.number, fields.len());
            tags.push(Tag {
                absent: described.absent(presence, &kind, &form),
                form,
            });
            fields.push(Field {
                name: described.name,
                kind,
                count,
            });
        }
        self.open.pop();
        let made = (Type::new(fields)?, Arc::new(Layout { fields: tags, places }));
        self.made.insert(name.to_owned(), made.clone());
        Ok(Some(made))
    }

    fn form(&mut self, field: &Described<'_>) -> Result<(Kind, Form), String> {
        let number = |dtype, form| Ok((Kind::Number(dtype), form));
        match field.of {
            1 => number(Dtype::Float64, Form::Fixed),
            2 => number(Dtype::Float32, Form::Fixed),
            3 => number(Dtype::Int64, Form::Varint),
            4 => number(Dtype::UInt64, Form::Varint),
            // An enum is a number, too.
            5 | 14 => number(Dtype::Int32, Form::Varint),
            6 => number(Dtype::UInt64, Form::Fixed),
            7 => number(Dtype::UInt32, Form::Fixed),
            8 => Ok((Kind::Flag, Form::Bool)),
            9 => Ok((Kind::Text, Form::Text)),
            10 | 11 => {
                let name = format!(".{}", field.type_name.trim_start_matches('.'));
                if self.open.contains(&name) || self.open.len() >= DEEPEST {
                    return Ok((Kind::Opaque, Form::Opaque));
                }
                let (of, layout) = self
                    .find(&name)?
                    .ok_or_else(|| format!("type `{name}` of field `{}` is not described", field.name))?;
                Ok((Kind::Struct(of), Form::Struct(layout)))
            }
            12 if field.label == REPEATED => Ok((Kind::Bytes, Form::Text)),
            12 => number(Dtype::UInt8, Form::Bytes),
            13 => number(Dtype::UInt32, Form::Varint),
            15 => number(Dtype::Int32, Form::Fixed),
            16 => number(Dtype::Int64, Form::Fixed),
            17 => number(Dtype::Int32, Form::Zigzag),
            18 => number(Dtype::Int64, Form::Zigzag),
            other => Err(format!("field `{}` is of type {other} (allowed: 1 to 18)", field.name)),
        }
    }
}

impl<'a> Described<'a> {
    fn new(field: &'a [u8]) -> Result<Self, String> {
        let mut described = Self {
            name: String::new(),
            number: 0,
            label: 1,
            of: 0,
            type_name: String::new(),
            default: None,
            is_one_of: false,
            presence: None,
        };
        each(field, |number, value| {
            match (number, value) {
                (1, Value::Bytes(name)) => described.name = String::from_utf8_lossy(name).into_owned(),
                (3, Value::Varint(number)) => described.number = number,
                (4, Value::Varint(label)) => described.label = label,
                (5, Value::Varint(of)) => described.of = of,
                (6, Value::Bytes(name)) => described.type_name = String::from_utf8_lossy(name).into_owned(),
                (7, Value::Bytes(default)) => described.default = Some(default),
                (8, Value::Bytes(options)) => described.presence = presence(options, 21)?,
                // That of an `optional` field of proto3 has no other member.
                (9, Value::Varint(_)) => described.is_one_of = true,
                _ => {}
            }
            Ok(())
        })?;
        Ok(described)
    }

    /// What stands for it where it is not there.
    fn absent(&self, file: Presence, kind: &Kind, form: &Form) -> Absent {
        let is_told = match (self.presence, file) {
            (Some(presence), _) => presence != IMPLICIT,
            (None, Presence::Always) => true,
            (None, Presence::WhereSaid) => self.is_one_of,
        };
        let dtype = match (kind, form) {
            (_, Form::Struct(_) | Form::Opaque) => return Absent::Null,
            (Kind::Number(dtype), _) => *dtype,
            (Kind::Flag, _) => Dtype::UInt8,
            _ => return Absent::Null,
        };
        if !is_told {
            return Absent::Value(vec![0; dtype.size()]);
        }
        let default = self.default.and_then(|text| str::from_utf8(text).ok());
        let value = default.and_then(|text| match dtype {
            Dtype::Float64 => text.parse::<f64>().ok().map(|value| value.to_le_bytes().to_vec()),
            Dtype::Float32 => text.parse::<f32>().ok().map(|value| value.to_le_bytes().to_vec()),
            Dtype::UInt8 => Some(vec![u8::from(text == "true")]),
            dtype => {
                let value = text.parse::<i128>().ok()?;
                Some(value.to_le_bytes()[..dtype.size()].to_vec())
            }
        });
        value.map_or(Absent::Null, Absent::Value)
    }
}

//! Message types of Protocol Buffers, read from a `FileDescriptorSet`. Nesting is decoded to a bounded depth, so that a
//! recursive description ends.

use super::protobuf::{Form, Layout, Tag, Value, Wire};
use super::types::{Count, Field, Kind, Type};
use robocache_device::Dtype;
use std::collections::HashMap;
use std::sync::Arc;

/// Largest nesting depth of messages that is decoded.
const DEEPEST: usize = 32;

/// A message type, and the layout of its fields on the wire.
type Made = (Arc<Type>, Arc<Layout>);

/// Value `LABEL_REPEATED` of `FieldDescriptorProto.Label`.
const REPEATED: u64 = 3;

/// Makes the type with this name, and its layout on the wire, from the bytes of a `FileDescriptorSet`. A message type that
/// contains itself, or is nested too deep, is not decoded.
pub(super) fn from_descriptors(name: &str, set: &[u8]) -> Result<Made, String> {
    let failed = |problem: String| format!("its schema is not a FileDescriptorSet: {problem}");
    let mut types = Types::default();
    types.set(set).map_err(failed)?;
    let name = format!(".{}", name.trim_start_matches('.'));
    match types.find(&name).map_err(failed)? {
        Some(made) => Ok(made),
        None => Err(format!("type `{name}` is not in its schema")),
    }
}

/// Returns the last value of field number `field` in the encoded message `data`, converted by `of`. Skips values for which `of`
/// returns `None`. Returns `None` if no value is left.
fn last<'a, T>(data: &'a [u8], field: u64, of: impl Fn(Value<'a>) -> Option<T>) -> Result<Option<T>, String> {
    let mut found = None;
    for each in Wire::new(data) {
        let (number, value) = each?;
        if number == field {
            found = of(value).or(found);
        }
    }
    Ok(found)
}

fn bytes(data: &[u8], field: u64) -> Result<Option<&[u8]>, String> {
    last(data, field, |value| match value {
        Value::Bytes(bytes) => Some(bytes),
        _ => None,
    })
}

fn number(data: &[u8], field: u64) -> Result<Option<u64>, String> {
    last(data, field, |value| match value {
        Value::Varint(number) => Some(number),
        _ => None,
    })
}

fn text(data: &[u8], field: u64) -> Result<String, String> {
    Ok(String::from_utf8_lossy(bytes(data, field)?.unwrap_or_default()).into_owned())
}

/// Reads `FeatureSet.field_presence` from `data`, the encoded descriptor of a file or a field; `None` if it is absent. The
/// descriptor has its options in the field number `options`. The options have their feature set in the field number `features`.
fn presence(data: &[u8], options: u64, features: u64) -> Result<Option<u64>, String> {
    let options = bytes(data, options)?.unwrap_or_default();
    number(bytes(options, features)?.unwrap_or_default(), 1)
}

/// Value `IMPLICIT` of `FeatureSet.FieldPresence`.
const IMPLICIT: u64 = 2;

/// Field presence of a `.proto` file: the rule that tells an absent value from the value 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Always,
    /// An absent value differs from 0 only in fields that are `optional`, that belong to a `oneof`, or that are messages.
    Marked,
}

#[derive(Default)]
struct Types<'a> {
    /// Encoded `DescriptorProto` of each message type, and the `Presence` of its file, by the type's full name.
    messages: HashMap<String, (&'a [u8], Presence)>,
    made: HashMap<String, Made>,
    /// Names of the types under construction, from the outermost to the innermost.
    open: Vec<String>,
}

/// A `FieldDescriptorProto`: the description of one field of a message type.
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
    fn set(&mut self, set: &'a [u8]) -> Result<(), String> {
        for each in Wire::new(set) {
            if let (1, Value::Bytes(file)) = each? {
                self.file(file)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, file: &'a [u8]) -> Result<(), String> {
        // Field numbers of `FileDescriptorProto`: 2 `package`, 8 `options` (50 `features`), 12 `syntax`.
        let package = text(file, 2)?;
        let presence = match (&*text(file, 12)?, presence(file, 8, 50)?) {
            ("proto3", _) | (_, Some(IMPLICIT)) => Presence::Marked,
            _ => Presence::Always,
        };
        let scope = if package.is_empty() {
            String::new()
        } else {
            format!(".{package}")
        };
        // Scopes to search: name, bytes, depth, and the field number of the types within: 4 in a file, 3 in a type. Field 1 of a
        // type is its name.
        let mut scopes = vec![(scope, file, 0, 4)];
        while let Some((scope, within, depth, types_field)) = scopes.pop() {
            for each in Wire::new(within) {
                let (number, value) = each?;
                if let (true, Value::Bytes(message)) = (number == types_field, value) {
                    let name = format!("{scope}.{}", text(message, 1)?);
                    self.messages.insert(name.clone(), (message, presence));
                    if depth < DEEPEST {
                        scopes.push((name, message, depth + 1, 3));
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes the type with this full name, and its layout on the wire; `None` if the set of descriptors lacks it.
    fn find(&mut self, name: &str) -> Result<Option<Made>, String> {
        if let Some(made) = self.made.get(name) {
            return Ok(Some(made.clone()));
        }
        let Some(&(message, presence)) = self.messages.get(name) else {
            return Ok(None);
        };
        self.open.push(name.to_owned());
        let (mut fields, mut tags, mut places) = (Vec::new(), Vec::new(), HashMap::new());
        for each in Wire::new(message) {
            let (2, Value::Bytes(field)) = each? else {
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
                absent: described.absent(presence, &kind),
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
            1 => number(Dtype::Float64, Form::Fixed64),
            2 => number(Dtype::Float32, Form::Fixed32),
            3 => number(Dtype::Int64, Form::Varint),
            4 => number(Dtype::UInt64, Form::Varint),
            // An enum is a number, too.
            5 | 14 => number(Dtype::Int32, Form::Varint),
            6 => number(Dtype::UInt64, Form::Fixed64),
            7 => number(Dtype::UInt32, Form::Fixed32),
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
            15 => number(Dtype::Int32, Form::Fixed32),
            16 => number(Dtype::Int64, Form::Fixed64),
            17 => number(Dtype::Int32, Form::Zigzag32),
            18 => number(Dtype::Int64, Form::Zigzag64),
            other => Err(format!("field `{}` is of type {other} (allowed: 1 to 18)", field.name)),
        }
    }
}

impl<'a> Described<'a> {
    fn new(field: &'a [u8]) -> Result<Self, String> {
        Ok(Self {
            name: text(field, 1)?,
            number: number(field, 3)?.unwrap_or(0),
            label: number(field, 4)?.unwrap_or(1),
            of: number(field, 5)?.unwrap_or(0),
            type_name: text(field, 6)?,
            default: bytes(field, 7)?,
            // An `optional` field of proto3 is in a `oneof` of its own.
            is_one_of: number(field, 9)?.is_some(),
            presence: presence(field, 8, 21)?,
        })
    }

    /// Returns the bits of the number that replaces this field if it is absent from a message; `None` to make it null.
    fn absent(&self, file: Presence, kind: &Kind) -> Option<u64> {
        let has_presence = match (self.presence, file) {
            (Some(presence), _) => presence != IMPLICIT,
            (None, Presence::Always) => true,
            (None, Presence::Marked) => self.is_one_of,
        };
        let dtype = match kind {
            Kind::Number(dtype) => *dtype,
            Kind::Flag => Dtype::UInt8,
            _ => return None,
        };
        if !has_presence {
            return Some(0);
        }
        let text = str::from_utf8(self.default?).ok()?;
        match dtype {
            Dtype::Float64 => text.parse().ok().map(f64::to_bits),
            Dtype::Float32 => text.parse().ok().map(|value: f32| value.to_bits().into()),
            Dtype::UInt8 => Some(u64::from(text == "true")),
            _ => text.parse().ok().map(|value: i128| value as u64),
        }
    }
}

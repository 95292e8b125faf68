//! Decoder of messages in JSON.
//!
//! A JSON Schema seldom describes a type completely: the first message decides what the schema leaves open. Later messages must
//! be of this type. A key that the type lacks is counted and skipped, and a value of another type is an error.

use super::columns::{Column, Filled};
use super::stamp;
use super::tally::Tally;
use super::types::{Count, Field, Kind, Type};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use robocache_device::Dtype;
use robocache_yaml::JsonValue as Value;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Largest nesting depth of values that is decoded.
const DEEPEST: usize = 32;
/// Largest number of values and objects in a message type.
const MOST_VALUES: usize = 65_536;
/// Magnitude up to which float64 holds every integer exactly.
const EXACT: i128 = 1 << 53;

/// Renames the keys of a message to names of fields. If two keys of an object get the same name, the last value is kept, as in
/// JavaScript and Python. `twice` gets the first such name.
fn name_fields(value: &mut Value, twice: &mut Option<String>) {
    match value {
        Value::List(items) => items.iter_mut().for_each(|item| name_fields(item, twice)),
        Value::Object(entries) => {
            entries.iter_mut().for_each(|(_, value)| name_fields(value, twice));
            let mut keys = HashSet::with_capacity(entries.len());
            let is_plain = |(key, _): &'_ (String, _)| matches!(name_of(key), Cow::Borrowed(name) if name == key);
            if entries.iter().all(is_plain) && entries.iter().all(|(key, _)| keys.insert(key.as_str())) {
                return;
            }
            let mut places = HashMap::new();
            for (key, value) in std::mem::take(entries) {
                let name = name_of(&key).into_owned();
                let at = *places.entry(name.clone()).or_insert(entries.len());
                if at < entries.len() {
                    entries[at].1 = value;
                    twice.get_or_insert(name);
                } else {
                    entries.push((name, value));
                }
            }
        }
        _ => {}
    }
}

fn parse(data: &[u8]) -> Result<Value, String> {
    Value::parse(str::from_utf8(data).map_err(|_| "it is not UTF-8")?)
}

/// Turns a JSON key into the name of a field. Dots become `_`, because they separate the names in a path.
fn name_of(key: &str) -> Cow<'_, str> {
    match key {
        "" => "_".into(),
        key if key.contains('.') => key.replace('.', "_").into(),
        key => key.into(),
    }
}

/// Derives the type of a topic's messages from their JSON Schema, if there is one, and the first message. The message decides
/// what the schema leaves open.
pub(super) fn type_of(schema: &[u8], first: &Message) -> Result<Arc<Type>, String> {
    let first = &first.value;
    let schema = parse(schema).unwrap_or(Value::Null);
    let mut types = Types {
        root: &schema,
        open: Vec::new(),
        values: 0,
    };
    match types.kind(&schema, Some(first))? {
        (Kind::Struct(of), Count::One) => Ok(of),
        _ => Err(format!("{} (allowed: an object)", first.word())),
    }
}

struct Types<'a> {
    root: &'a Value,
    /// References (`$ref`) of the JSON Schema under resolution, from the outermost to the innermost. A nesting level without a
    /// reference is an empty string.
    open: Vec<&'a str>,
    values: usize,
}

const ONE_NUMBER: (Kind, Count) = (Kind::Number(Dtype::Float64), Count::One);

impl<'a> Types<'a> {
    fn kind(&mut self, mut schema: &'a Value, first: Option<&Value>) -> Result<(Kind, Count), String> {
        self.values += 1;
        if self.values > MOST_VALUES {
            return Err(format!("a type of more than {MOST_VALUES} values"));
        }
        let depth = self.open.len();
        while let Some(reference) = schema.get("$ref").and_then(Value::text) {
            if self.open.contains(&reference) || self.open.len() >= DEEPEST {
                self.open.truncate(depth);
                return Ok((Kind::Opaque, Count::One));
            }
            self.open.push(reference);
            let path = reference.strip_prefix("#/");
            let mut steps = path.into_iter().flat_map(|path| path.split('/'));
            schema = steps.try_fold(self.root, Value::get).unwrap_or(&Value::Null);
        }
        self.open.push("");
        let kind = match self.open.len() {
            ..=DEEPEST => self.described(schema, first),
            _ => Ok((Kind::Opaque, Count::One)),
        };
        self.open.truncate(depth);
        kind
    }

    fn described(&mut self, schema: &'a Value, first: Option<&Value>) -> Result<(Kind, Count), String> {
        let words = schema.get("type").map(|of| match of {
            Value::List(several) => several.as_slice(),
            one => std::slice::from_ref(one),
        });
        let mut words = words.into_iter().flatten().filter_map(Value::text);
        Ok(match words.find(|word| *word != "null") {
            Some("integer") => (Kind::Number(Dtype::Int64), Count::One),
            Some("number") => ONE_NUMBER,
            Some("boolean") => (Kind::Flag, Count::One),
            Some("string") if schema.get("contentEncoding").and_then(Value::text) == Some("base64") => {
                (Kind::Number(Dtype::UInt8), Count::Sequence)
            }
            Some("string") => (Kind::Text, Count::One),
            Some("array") => {
                let items = schema.get("items").filter(|items| matches!(items, Value::Object(_)));
                match items {
                    Some(items) => list_of(self.kind(items, first.and_then(|list| list.list().first()))?),
                    None => self.found(first.filter(|first| matches!(first, Value::List(_))))?,
                }
            }
            _ => match schema.get("properties") {
                Some(Value::Object(properties)) if !properties.is_empty() => {
                    let fields = properties.iter().map(|(key, schema)| {
                        let name = name_of(key).into_owned();
                        let of = self.kind(schema, first.and_then(|object| object.get(&name)))?;
                        Ok(field(name, of))
                    });
                    object(fields.collect())?
                }
                _ => self.found(first)?,
            },
        })
    }

    /// Derives the kind of a field or list element from its value in the first message. A missing value (`None`) or a null
    /// counts as a number, the most likely kind.
    fn found(&mut self, value: Option<&Value>) -> Result<(Kind, Count), String> {
        Ok(match value {
            None | Some(Value::Null | Value::Float(_)) => ONE_NUMBER,
            Some(Value::Bool(_)) => (Kind::Flag, Count::One),
            Some(&Value::Whole(value)) => match value {
                // Such large numbers are stamps in ns.
                _ if value.abs() > EXACT && i64::try_from(value).is_ok() => (Kind::Number(Dtype::Int64), Count::One),
                _ => ONE_NUMBER,
            },
            Some(Value::Text(_)) => (Kind::Text, Count::One),
            Some(Value::List(items)) => {
                let is_number =
                    |item: &Value| matches!(item, Value::Null | Value::Bool(_) | Value::Whole(_) | Value::Float(_));
                match &items[..] {
                    items if items.iter().all(is_number) => list_of(ONE_NUMBER),
                    [first @ (Value::Text(_) | Value::Object(_)), ..] => list_of(self.kind(&Value::Null, Some(first))?),
                    _ => (Kind::Opaque, Count::Sequence),
                }
            }
            Some(Value::Object(entries)) => {
                let fields = entries.iter().map(|(name, value)| {
                    let of = self.kind(&Value::Null, Some(value))?;
                    Ok(field(name.clone(), of))
                });
                object(fields.collect())?
            }
        })
    }
}

fn object(fields: Result<Vec<Field>, String>) -> Result<(Kind, Count), String> {
    Ok((Kind::Struct(Type::new(fields?)?), Count::One))
}

/// Makes a field of an object. Integers become float64. Fields that may belong to a stamp stay int64, so that they are
/// not rounded.
fn field(name: String, (kind, count): (Kind, Count)) -> Field {
    let kind = match kind {
        Kind::Number(Dtype::Int64) if count != Count::One || !stamp::is_part(&name) => Kind::Number(Dtype::Float64),
        kind => kind,
    };
    Field { name, kind, count }
}

/// Makes the type of a list whose elements have this kind. Lists of lists are not decoded.
fn list_of((kind, count): (Kind, Count)) -> (Kind, Count) {
    match count {
        Count::One => (kind, Count::Sequence),
        _ => (Kind::Opaque, Count::Sequence),
    }
}

/// A parsed JSON message, with keys renamed to names of fields.
pub(super) struct Message {
    value: Value,
    /// First field name that two or more keys of one object have; `None` if there is no such name.
    twice: Option<String>,
}

impl Message {
    pub(super) fn parse(data: &[u8]) -> Result<Self, String> {
        let (mut value, mut twice) = (parse(data)?, None);
        name_fields(&mut value, &mut twice);
        Ok(Self { value, twice })
    }
}

/// Decodes a message in JSON, and appends its values as a row to `columns`. `tally` counts keys that are unknown or repeated,
/// and numbers that are rounded.
pub(super) fn read(of: &Type, data: &[u8], columns: &mut [Column], tally: &mut Tally) -> Result<(), String> {
    let message = Message::parse(data)?;
    let mut reader = Reader::default();
    let Value::Object(entries) = &message.value else {
        return Err(format!("{} (allowed: an object)", message.value.word()));
    };
    reader.object(of, columns, entries)?;
    for (tally, key) in [(&mut tally.unknown, reader.unknown), (&mut tally.twice, message.twice)] {
        if let Some(key) = key {
            tally.add(1, format!("`{key}`"));
        }
    }
    if reader.rounded > 0 {
        tally.rounded.add(reader.rounded, format!("`{}`", reader.rounded_at));
    }
    Ok(())
}

#[derive(Default)]
struct Reader {
    filled: Filled,
    /// First key of the message that its type lacks; `None` if there is none.
    unknown: Option<String>,
    /// Number of integers in the message that were rounded to float64.
    rounded: u64,
    /// Path of the first integer that was rounded.
    rounded_at: String,
}

impl Reader {
    fn object(&mut self, of: &Type, columns: &mut [Column], entries: &[(String, Value)]) -> Result<(), String> {
        let names = entries.iter().map(|(name, _)| name);
        let is_in_order = names.eq(of.fields.iter().map(|field| &field.name));
        let mut places = HashMap::new();
        if !is_in_order {
            places.extend(entries.iter().map(|(name, value)| (name.as_str(), value)));
        }
        for (i, (field, column)) in of.fields.iter().zip(columns).enumerate() {
            let value = if is_in_order {
                Some(&entries[i].1)
            } else {
                places.remove(field.name.as_str())
            };
            let had_rounded = self.rounded > 0;
            self.field(field, column, value.unwrap_or(&Value::Null))
                .map_err(|problem| format!("`{}`: {problem}", field.name))?;
            if self.rounded > 0 && !had_rounded {
                let at = &mut self.rounded_at;
                *at = match at.as_str() {
                    "" => field.name.clone(),
                    within => format!("{}.{within}", field.name),
                };
            }
        }
        if let (Some(key), None) = (places.keys().min(), &self.unknown) {
            self.unknown = Some((*key).to_owned());
        }
        Ok(())
    }

    fn field(&mut self, field: &Field, column: &mut Column, value: &Value) -> Result<(), String> {
        if field.count == Count::One {
            return self.value(&field.kind, column, value);
        }
        if let Column::Lists(_, items) = column {
            match (value, &field.kind) {
                (Value::Null, _) => {}
                (Value::Text(text), Kind::Number(Dtype::UInt8)) => {
                    let bytes = BASE64_STANDARD.decode(text);
                    items.add_bytes(&bytes.map_err(|error| format!("it is not base64: {error}"))?);
                }
                (Value::List(values), kind) => {
                    for value in values {
                        self.value(kind, items, value)?;
                    }
                }
                (other, _) => return Err(format!("{} (allowed: a list)", other.word())),
            }
        }
        column.end_list()
    }

    fn value(&mut self, kind: &Kind, column: &mut Column, value: &Value) -> Result<(), String> {
        match (kind, column, value) {
            (Kind::Text, column, Value::Text(text)) => column.add_text(text.as_bytes()),
            (Kind::Struct(of), Column::Structs { columns, rows, .. }, Value::Object(entries)) => {
                self.object(of, columns, entries)?;
                *rows += 1;
                Ok(())
            }
            (Kind::Opaque, column, _) | (_, column, Value::Null) => self.filled.add(column),
            (Kind::Flag | Kind::Number(_), column, value) => {
                let dtype = match kind {
                    Kind::Number(dtype) => *dtype,
                    _ => Dtype::UInt8,
                };
                if let (Dtype::Float64, Some(whole)) = (dtype, whole(value)) {
                    self.rounded += u64::from(whole as f64 as i128 != whole);
                }
                let number = number(dtype, value);
                column.add_number(number.ok_or_else(|| refused(dtype, value))?);
                Ok(())
            }
            (Kind::Text, _, other) => Err(format!("{} (allowed: a text)", other.word())),
            (_, _, other) => Err(format!("{} (allowed: an object)", other.word())),
        }
    }
}

fn refused(dtype: Dtype, value: &Value) -> String {
    let allowed = match dtype {
        Dtype::Float64 => "a number",
        Dtype::UInt8 => "true, false, or a whole number up to 255",
        _ => "a whole number within int64",
    };
    match value {
        Value::Whole(value) => format!("{value} (allowed: {allowed})"),
        Value::Float(value) => format!("{value} (allowed: {allowed})"),
        other => format!("{} (allowed: {allowed})", other.word()),
    }
}

/// Returns the value as an integer; `None` if it is not one.
fn whole(value: &Value) -> Option<i128> {
    match value {
        Value::Whole(value) => Some(*value),
        Value::Bool(value) => Some(i128::from(*value)),
        Value::Float(value) if value.fract() == 0.0 && value.abs() <= EXACT as f64 => Some(*value as i128),
        Value::Text(text) => text.parse().ok(),
        _ => None,
    }
}

/// Returns the bits of a value as a number of the type `dtype`; `None` if the value does not fit. Strings are parsed, too: the
/// JSON form of Protocol Buffers writes int64, NaN and infinities as strings.
fn number(dtype: Dtype, value: &Value) -> Option<u64> {
    let whole = whole(value);
    match dtype {
        Dtype::Float64 => {
            let float = match (value, whole) {
                (Value::Float(value), _) => *value,
                (_, Some(whole)) => whole as f64,
                (Value::Text(text), _) => match text.as_str() {
                    "NaN" => f64::NAN,
                    "Infinity" => f64::INFINITY,
                    "-Infinity" => f64::NEG_INFINITY,
                    _ => return None,
                },
                _ => return None,
            };
            Some(float.to_bits())
        }
        Dtype::UInt8 => u8::try_from(whole?).ok().map(u64::from),
        _ => i64::try_from(whole?).ok().map(|value| value as u64),
    }
}

//! Messages in JSON, to Arrow.
//!
//! JSON Schema seldom says all of a type: what it leaves open, the first message tells.

use super::columns::{self, Column, Filled};
use super::stamp;
use super::types::{Count, Field, Kind, Type};
use arrow_array::StructArray;
use arrow_schema::Fields;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use robocache_device::Dtype;
use robocache_stream::recording::text::Parser;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Values are described no deeper in others than this.
const DEEPEST: usize = 32;
/// A message has no more lists and objects in each other than this.
const DEEPEST_TEXT: usize = 128;
/// A type has no more values and objects than this.
const MOST_VALUES: usize = 65_536;
/// Every whole number up to here is a float64.
const EXACT: i128 = 1 << 53;

/// A value, whose keys are in their order.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Null,
    Bool(bool),
    Whole(i128),
    Float(f64),
    Text(String),
    List(Vec<Value>),
    Object(Vec<(String, Value)>),
}

impl Value {
    fn parse(data: &[u8]) -> Result<Self, String> {
        let text = str::from_utf8(data).map_err(|_| "no text in UTF-8")?;
        let mut parser = Parser::new(text);
        let value = Self::next(&mut parser, 0)?;
        parser.end(value)
    }

    fn next(parser: &mut Parser<'_>, depth: usize) -> Result<Self, String> {
        if depth > DEEPEST_TEXT {
            return parser.wrong(&format!(
                "value (allowed: {DEEPEST_TEXT} lists and objects in each other)"
            ));
        }
        match parser.peek() {
            Some('{') => {
                let mut entries = Vec::new();
                parser.items('{', '}', |parser| {
                    let key = parser.string()?;
                    parser.take(':')?;
                    entries.push((key, Self::next(parser, depth + 1)?));
                    Ok(())
                })?;
                Ok(Self::Object(entries))
            }
            Some('[') => {
                let mut items = Vec::new();
                parser.items('[', ']', |parser| {
                    items.push(Self::next(parser, depth + 1)?);
                    Ok(())
                })?;
                Ok(Self::List(items))
            }
            Some('"') => parser.string().map(Self::Text),
            Some('t') => parser.word("true", Self::Bool(true)),
            Some('f') => parser.word("false", Self::Bool(false)),
            Some('n') => parser.word("null", Self::Null),
            // As Python writes them.
            Some('N') => parser.word("NaN", Self::Float(f64::NAN)),
            Some('I') => parser.word("Infinity", Self::Float(f64::INFINITY)),
            _ => {
                let infinity = parser.word("-Infinity", Self::Float(f64::NEG_INFINITY));
                infinity.or_else(|_| {
                    let digits = parser.digits();
                    let whole = digits.parse().map(Self::Whole);
                    match whole.or_else(|_| digits.parse().map(Self::Float)) {
                        Ok(Self::Float(infinite)) if infinite.is_infinite() => {
                            Err(format!("the number {digits} (allowed: those within float64)"))
                        }
                        Ok(number) => Ok(number),
                        Err(_) => parser.wrong("value"),
                    }
                })
            }
        }
    }

    /// Makes the keys of a message names of fields, each of which stands once in its object: of several values the last one is
    /// kept, as JavaScript and Python do. Returns the first name that stood there several times.
    fn name_fields(&mut self) -> Option<String> {
        let mut twice = None;
        match self {
            Self::List(items) => items
                .iter_mut()
                .for_each(|item| keep_first(&mut twice, item.name_fields())),
            Self::Object(entries) => {
                entries
                    .iter_mut()
                    .for_each(|(_, value)| keep_first(&mut twice, value.name_fields()));
                let mut keys = HashSet::with_capacity(entries.len());
                let is_plain = |(key, _): &'_ (String, _)| matches!(name_of(key), Cow::Borrowed(name) if name == key);
                if entries.iter().all(is_plain) && entries.iter().all(|(key, _)| keys.insert(key.as_str())) {
                    return twice;
                }
                let mut places = HashMap::new();
                for (key, value) in std::mem::take(entries) {
                    let name = name_of(&key).into_owned();
                    let at = *places.entry(name.clone()).or_insert(entries.len());
                    if at < entries.len() {
                        entries[at].1 = value;
                        keep_first(&mut twice, Some(name));
                    } else {
                        entries.push((name, value));
                    }
                }
            }
            _ => {}
        }
        twice
    }

    fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(entries) => entries.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    fn list(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    /// What it is, in words.
    fn word(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Whole(_) | Self::Float(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }
}

fn keep_first<T>(kept: &mut Option<T>, next: Option<T>) {
    if kept.is_none() {
        *kept = next;
    }
}

/// The name of the field that a key becomes: dots stand between names.
fn name_of(key: &str) -> Cow<'_, str> {
    match key {
        "" => "_".into(),
        key if key.contains('.') => key.replace('.', "_").into(),
        key => key.into(),
    }
}

/// The type of messages: what their schema says of it, if there is one, and else the first of them.
pub(super) fn type_of(schema: &[u8], first: &Message) -> Result<Arc<Type>, String> {
    let first = &first.value;
    let schema = Value::parse(schema).unwrap_or(Value::Null);
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
    /// The objects and references that are being described.
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
            let mut steps = reference
                .strip_prefix("#/")
                .into_iter()
                .flat_map(|path| path.split('/'));
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
                    let mut fields = Vec::new();
                    for (key, schema) in properties {
                        let name = name_of(key).into_owned();
                        let of = self.kind(schema, first.and_then(|object| object.get(&name)))?;
                        fields.push(field(name, of));
                    }
                    (Kind::Struct(Type::new(fields)?), Count::One)
                }
                _ => self.found(first)?,
            },
        })
    }

    /// The kind that a value shows. One that shows none is a number, which is the most likely.
    fn found(&mut self, value: Option<&Value>) -> Result<(Kind, Count), String> {
        Ok(match value {
            None | Some(Value::Null | Value::Float(_)) => ONE_NUMBER,
            Some(Value::Bool(_)) => (Kind::Flag, Count::One),
            Some(&Value::Whole(value)) => match value {
                // Stamps in ns.
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
                let mut fields = Vec::new();
                for (name, value) in entries {
                    let of = self.kind(&Value::Null, Some(value))?;
                    fields.push(field(name.clone(), of));
                }
                (Kind::Struct(Type::new(fields)?), Count::One)
            }
        })
    }
}

/// A field of an object. Whole numbers become float64, but for those that may be of a stamp, which is not rounded.
fn field(name: String, (kind, count): (Kind, Count)) -> Field {
    let kind = match kind {
        Kind::Number(Dtype::Int64) if count != Count::One || !stamp::is_part(&name) => Kind::Number(Dtype::Float64),
        kind => kind,
    };
    Field { name, kind, count }
}

/// Lists of lists are not decoded.
fn list_of((kind, count): (Kind, Count)) -> (Kind, Count) {
    match count {
        Count::One => (kind, Count::Sequence),
        _ => (Kind::Opaque, Count::Sequence),
    }
}

/// A message, whose keys are names of fields.
pub(super) struct Message {
    value: Value,
    /// The first name that several keys have in one object.
    pub twice: Option<String>,
}

impl Message {
    pub fn parse(data: &[u8]) -> Result<Self, String> {
        let mut value = Value::parse(data)?;
        let twice = value.name_fields();
        Ok(Self { value, twice })
    }
}

/// What of a message can't be taken as it is.
#[derive(Default)]
pub(super) struct Losses {
    /// The first key that its type has not.
    pub unknown: Option<String>,
    /// How many whole numbers float64 does not hold, and where the first of them stands.
    pub rounded: u64,
    pub rounded_at: String,
}

/// Reads a message into a struct of one row. `fields` are those that the type becomes.
pub(super) fn read(of: &Type, fields: &Fields, message: &Message) -> Result<(StructArray, Losses), String> {
    let mut columns = columns::of(of);
    let mut reader = Reader::default();
    let Value::Object(entries) = &message.value else {
        return Err(format!("{} (allowed: an object)", message.value.word()));
    };
    reader.object(of, &mut columns, entries)?;
    Ok((columns::finish(columns, fields, 1)?, reader.losses))
}

#[derive(Default)]
struct Reader {
    filled: Filled,
    losses: Losses,
}

impl Reader {
    fn object(&mut self, of: &Type, columns: &mut [Column], entries: &[(String, Value)]) -> Result<(), String> {
        let is_in_order = entries.len() == of.fields.len()
            && entries
                .iter()
                .zip(&of.fields)
                .all(|((name, _), field)| *name == field.name);
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
            let had_rounded = self.losses.rounded > 0;
            self.field(field, column, value.unwrap_or(&Value::Null))
                .map_err(|problem| format!("`{}`: {problem}", field.name))?;
            if self.losses.rounded > 0 && !had_rounded {
                let at = &mut self.losses.rounded_at;
                *at = match at.as_str() {
                    "" => field.name.clone(),
                    within => format!("{}.{within}", field.name),
                };
            }
        }
        keep_first(&mut self.losses.unknown, places.keys().min().map(ToString::to_string));
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
                    let bytes = BASE64_STANDARD
                        .decode(text)
                        .map_err(|error| format!("no base64: {error}"))?;
                    items.add_number(&bytes);
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
                    self.losses.rounded += u64::from(whole as f64 as i128 != whole);
                }
                let number = number(dtype, value);
                column.add_number(&number.ok_or_else(|| refused(dtype, value))?);
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

/// A number without a fraction.
fn whole(value: &Value) -> Option<i128> {
    match value {
        Value::Whole(value) => Some(*value),
        Value::Bool(value) => Some(i128::from(*value)),
        Value::Float(value) if value.fract() == 0.0 && value.abs() <= EXACT as f64 => Some(*value as i128),
        Value::Text(text) => text.parse().ok(),
        _ => None,
    }
}

/// The bytes of a number. Protocol Buffers write as JSON texts what JSON has no numbers for.
fn number(dtype: Dtype, value: &Value) -> Option<Vec<u8>> {
    let whole = whole(value);
    match dtype {
        Dtype::Float64 => {
            let float = match (value, whole) {
                (Value::Float(value), _) => Some(*value),
                (_, Some(whole)) => Some(whole as f64),
                (Value::Text(text), _) => match text.as_str() {
                    "NaN" => Some(f64::NAN),
                    "Infinity" => Some(f64::INFINITY),
                    "-Infinity" => Some(f64::NEG_INFINITY),
                    _ => None,
                },
                _ => None,
            };
            float.map(|value| value.to_le_bytes().to_vec())
        }
        Dtype::UInt8 => u8::try_from(whole?).ok().map(|value| vec![value]),
        _ => i64::try_from(whole?).ok().map(|value| value.to_le_bytes().to_vec()),
    }
}

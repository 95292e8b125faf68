//! Deserializes values, with errors in the words of the person who wrote the YAML. No error names a type of Rust, as serde's own
//! errors do.

use super::{Json, did_you_mean, listed};
use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, Expected, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_yaml::{Mapping, Value};
use std::fmt::{self, Display};

/// The reason why a value is refused: its path, the refused value and the allowed values.
#[derive(Debug, PartialEq, Eq)]
pub struct Misread {
    /// Path of the refused value, such as `a.b[3]`; empty for the value as a whole.
    path: String,
    problem: String,
}

impl Display for Misread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for Misread {}

/// Deserializes a YAML value as a `T`.
pub fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T, Misread> {
    T::deserialize(ValueDeserializer(value))
}

impl Misread {
    /// Makes the error that refuses the value at `key`, for the reason `problem`.
    pub fn at(key: &str, problem: String) -> Self {
        let path = key.to_owned();
        Self { path, problem }
    }

    fn new(problem: String) -> Self {
        Self::at("", problem)
    }

    /// Makes the error for a value that is not allowed; `allowed` lists the allowed values.
    fn refused(came: Unexpected<'_>, allowed: &str) -> Self {
        Self::new(match came {
            Unexpected::Unit | Unexpected::Option => format!("it is empty (allowed: {allowed})"),
            came => format!("{} is not allowed (allowed: {allowed})", in_words(came)),
        })
    }

    /// Puts `key`, or an index such as `[3]`, in front of the path of the refused value.
    pub fn within(mut self, key: &str) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') {
            ""
        } else {
            "."
        };
        self.path = format!("{key}{dot}{}", self.path);
        self
    }
}

impl de::Error for Misread {
    fn custom<T: Display>(problem: T) -> Self {
        Self::new(problem.to_string())
    }

    fn invalid_type(came: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::refused(came, &allowed(&expected.to_string()))
    }

    fn invalid_value(came: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::refused(came, &allowed(&expected.to_string()))
    }

    fn invalid_length(len: usize, expected: &dyn Expected) -> Self {
        Self::new(format!(
            "it has {len} values (allowed: {})",
            allowed(&expected.to_string())
        ))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let hint = did_you_mean(variant, expected);
        Self::new(format!(
            "`{variant}` is not allowed{hint} (allowed: {})",
            listed(expected)
        ))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let hint = did_you_mean(field, expected);
        Self::new(format!("unknown key `{field}`{hint} (allowed: {})", listed(expected)))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("the key `{field}` is missing"))
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::new(format!("the key `{field}` is given twice (allowed: once)"))
    }
}

/// Formats a refused value as it is written in the YAML text; for a list, a map and the like only its kind, such as `a list`.
fn in_words(came: Unexpected<'_>) -> String {
    match came {
        Unexpected::Bool(value) => value.to_string(),
        Unexpected::Unsigned(value) => value.to_string(),
        Unexpected::Signed(value) => value.to_string(),
        Unexpected::Float(value) => format!("{value:?}"),
        Unexpected::Char(value) => format!("{value:?}"),
        Unexpected::Str(value) => Json(&value.into()).to_string(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a map".to_owned(),
        Unexpected::Other(other) => other.to_owned(),
        _ => "what came".to_owned(),
    }
}

/// Rewrites serde's description of an expected value, such as `u8`, in the words of a person who writes YAML.
fn allowed(expected: &str) -> String {
    let words = match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "u128" | "usize" => "a whole number, 0 or more",
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" | "str" | "a borrowed string" | "path string" | "a character" | "char" => "text",
        "a sequence" => "a list",
        "variant identifier" | "field identifier" | "identifier" => "a name",
        expected => {
            let of_size = ["an array of length ", "a tuple of size "];
            let size = of_size.iter().find_map(|prefix| expected.strip_prefix(prefix));
            let of_rust = [
                "struct ",
                "enum ",
                "unit struct ",
                "tuple struct ",
                "internally tagged enum ",
            ];
            return match size {
                Some(size) => format!("a list of {size}"),
                None if of_rust.iter().any(|prefix| expected.starts_with(prefix)) => "a map".to_owned(),
                None => expected.to_owned(),
            };
        }
    };
    words.to_owned()
}

/// Returns serde's description of a value, for an error.
fn came(value: &Value) -> Unexpected<'_> {
    match value {
        Value::Null => Unexpected::Unit,
        Value::Bool(value) => Unexpected::Bool(*value),
        Value::Number(value) => match (value.as_u64(), value.as_i64()) {
            (Some(value), _) => Unexpected::Unsigned(value),
            (None, Some(value)) => Unexpected::Signed(value),
            (None, None) => Unexpected::Float(value.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(value) => Unexpected::Str(value),
        Value::Sequence(_) => Unexpected::Seq,
        Value::Mapping(_) => Unexpected::Map,
        Value::Tagged(_) => Unexpected::Other("a value with a tag"),
    }
}

/// Deserializer of a borrowed YAML value.
#[derive(Clone, Copy)]
struct ValueDeserializer<'de>(&'de Value);

impl<'de> Deserializer<'de> for ValueDeserializer<'de> {
    type Error = Misread;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misread> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(value) => match (value.as_u64(), value.as_i64()) {
                (Some(value), _) => visitor.visit_u64(value),
                (None, Some(value)) => visitor.visit_i64(value),
                (None, None) => visitor.visit_f64(value.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(value) => visitor.visit_borrowed_str(value),
            Value::Sequence(values) => {
                let mut list = List { values, next: 0 };
                let read = visitor.visit_seq(&mut list)?;
                match list.next == values.len() {
                    true => Ok(read),
                    false => Err(Misread::new(format!(
                        "it has {} values (allowed: {})",
                        values.len(),
                        list.next
                    ))),
                }
            }
            Value::Mapping(map) => visitor.visit_map(Map::of(map)),
            Value::Tagged(tagged) => Err(Misread::new(format!(
                "the tag `{}` is not allowed (allowed: the value without a tag)",
                tagged.tag
            ))),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misread> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Misread> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misread> {
        if let Value::Mapping(map) = self.0 {
            return visitor.visit_map(Map::of(map));
        }
        let expected = (&visitor as &dyn Expected).to_string();
        Err(match expected.strip_prefix("struct ") {
            Some(_) => Misread::refused(came(self.0), &format!("a map of {}", listed(fields))),
            None => Misread::refused(came(self.0), &expected),
        })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misread> {
        match self.0 {
            Value::String(name) => {
                let name: StrDeserializer<'_, Misread> = name.as_str().into_deserializer();
                visitor.visit_enum(name)
            }
            other => Err(Misread::refused(came(other), &listed(variants))),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

/// Items of a list that is being read, and the index of the next item.
struct List<'de> {
    values: &'de [Value],
    next: usize,
}

impl<'de> SeqAccess<'de> for &mut List<'de> {
    type Error = Misread;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Misread> {
        let Some(value) = self.values.get(self.next) else {
            return Ok(None);
        };
        let at = self.next;
        self.next += 1;
        let read = seed.deserialize(ValueDeserializer(value));
        read.map(Some).map_err(|misread| misread.within(&format!("[{at}]")))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.values.len() - self.next)
    }
}

/// The entries of a map that is being read, and the entry whose key was read last.
struct Map<'de> {
    entries: serde_yaml::mapping::Iter<'de>,
    at: Option<(&'de Value, &'de Value)>,
}

impl<'de> Map<'de> {
    fn of(map: &'de Mapping) -> Self {
        Self {
            entries: map.iter(),
            at: None,
        }
    }
}

impl<'de> MapAccess<'de> for Map<'de> {
    type Error = Misread;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Misread> {
        self.at = self.entries.next();
        let Some((key, _)) = self.at else { return Ok(None) };
        let read = seed.deserialize(ValueDeserializer(key));
        read.map(Some).map_err(|misread| misread.within(&Json(key).bare()))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Misread> {
        let Some((key, value)) = self.at.take() else {
            return Err(Misread::new("a value without its key".to_owned()));
        };
        let read = seed.deserialize(ValueDeserializer(value));
        read.map_err(|misread| misread.within(&Json(key).bare()))
    }
}

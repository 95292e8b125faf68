//! Reads a YAML text into values, and refuses a key that is given twice in a map. The error names the line of the key; yaml_serde's
//! own `Value` would name the line of the map.

use serde::de::{self, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};
use serde_yaml::value::{Tag, TaggedValue};
use serde_yaml::{Mapping, Sequence, Value};
use std::fmt;

/// YAML value whose maps have each key once.
pub(super) struct Unique(pub Value);

impl<'de> de::Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        UniqueKeys(None).deserialize(deserializer).map(Self)
    }
}

/// Visitor that reads a value. If the value is a key of a map, the `Mapping` holds the entries of this map before the key. The
/// visitor refuses a key that is among them. The `Mapping` is `None` for any other value.
struct UniqueKeys<'a>(Option<&'a Mapping>);

impl<'de> DeserializeSeed<'de> for UniqueKeys<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl UniqueKeys<'_> {
    fn take<E: de::Error>(&self, value: Value) -> Result<Value, E> {
        match self.0 {
            // An error here gets the place of the key.
            Some(map) if map.contains_key(&value) => Err(E::custom(format!(
                "the key `{}` is given twice (allowed: once)",
                super::Json(&value).bare()
            ))),
            _ => Ok(value),
        }
    }
}

impl<'de> Visitor<'de> for UniqueKeys<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        self.take(value.into())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        self.take(value.into())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        self.take(value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        self.take(value.into())
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        self.take(value.into())
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        self.take(Value::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        self.take(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Value, A::Error> {
        let mut list = Sequence::new();
        while let Some(value) = values.next_element_seed(UniqueKeys(None))? {
            list.push(value);
        }
        self.take(Value::Sequence(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Mapping::new();
        while let Some(key) = entries.next_key_seed(UniqueKeys(Some(&map)))? {
            map.insert(key, entries.next_value_seed(UniqueKeys(None))?);
        }
        self.take(Value::Mapping(map))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<Value, A::Error> {
        let (tag, value): (String, _) = tagged.variant()?;
        let value = value.newtype_variant_seed(UniqueKeys(None))?;
        let tag = Tag::new(tag);
        self.take(Value::Tagged(Box::new(TaggedValue { tag, value })))
    }
}

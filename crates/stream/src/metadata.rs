use std::fmt;

/// A value of a message's metadata, of the types that dora has.
#[derive(Clone, Debug, PartialEq)]
pub enum MetadataValue {
    /// Yes or no.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Float(f64),
    /// Text.
    String(String),
    /// Whole numbers.
    ListInt(Vec<i64>),
    /// Numbers.
    ListFloat(Vec<f64>),
    /// Texts.
    ListString(Vec<String>),
    /// A time in UTC, ns since the Unix epoch.
    Timestamp(i64),
}

/// A value of a message's metadata, borrowed from wherever it stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetadataRef<'a> {
    /// Yes or no.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Float(f64),
    /// Text.
    String(&'a str),
    /// Whole numbers.
    ListInt(&'a [i64]),
    /// Numbers.
    ListFloat(&'a [f64]),
    /// Texts.
    ListString(&'a [String]),
    /// A time in UTC, ns since the Unix epoch.
    Timestamp(i64),
}

impl MetadataValue {
    /// The value, borrowed.
    pub fn as_ref(&self) -> MetadataRef<'_> {
        match self {
            Self::Bool(value) => MetadataRef::Bool(*value),
            Self::Integer(value) => MetadataRef::Integer(*value),
            Self::Float(value) => MetadataRef::Float(*value),
            Self::String(value) => MetadataRef::String(value),
            Self::ListInt(value) => MetadataRef::ListInt(value),
            Self::ListFloat(value) => MetadataRef::ListFloat(value),
            Self::ListString(value) => MetadataRef::ListString(value),
            Self::Timestamp(value) => MetadataRef::Timestamp(*value),
        }
    }

    /// Makes it a copy of a value. The memory of text and lists stays where the type does.
    pub fn assign(&mut self, value: MetadataRef<'_>) {
        match (self, value) {
            (Self::String(to), MetadataRef::String(from)) => from.clone_into(to),
            (Self::ListInt(to), MetadataRef::ListInt(from)) => from.clone_into(to),
            (Self::ListFloat(to), MetadataRef::ListFloat(from)) => from.clone_into(to),
            (Self::ListString(to), MetadataRef::ListString(from)) => from.clone_into(to),
            (to, from) => *to = from.to_owned(),
        }
    }
}

impl MetadataRef<'_> {
    /// A copy of the value.
    pub fn to_owned(self) -> MetadataValue {
        match self {
            Self::Bool(value) => MetadataValue::Bool(value),
            Self::Integer(value) => MetadataValue::Integer(value),
            Self::Float(value) => MetadataValue::Float(value),
            Self::String(value) => MetadataValue::String(value.to_owned()),
            Self::ListInt(value) => MetadataValue::ListInt(value.to_vec()),
            Self::ListFloat(value) => MetadataValue::ListFloat(value.to_vec()),
            Self::ListString(value) => MetadataValue::ListString(value.to_vec()),
            Self::Timestamp(value) => MetadataValue::Timestamp(value),
        }
    }
}

/// Metadata by name, in memory that is reused.
#[derive(Clone, Default)]
pub struct Metadata {
    entries: Vec<(String, MetadataValue)>,
    used: usize,
}

impl Metadata {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&MetadataValue> {
        self.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// Every key with its value, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &MetadataValue)> {
        self.entries[..self.used]
            .iter()
            .map(|(key, value)| (key.as_str(), value))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Adds a key that is not there yet, and returns its value, to be overwritten: it holds memory of an earlier use.
    fn add(&mut self, key: &str) -> &mut MetadataValue {
        if self.used == self.entries.len() {
            self.entries.push((String::new(), MetadataValue::Bool(false)));
        }
        let (name, value) = &mut self.entries[self.used];
        self.used += 1;
        name.clear();
        name.push_str(key);
        value
    }

    /// The value of a key, to be overwritten, whether it is there or not.
    pub fn set(&mut self, key: &str) -> &mut MetadataValue {
        match self.index(key) {
            Some(index) => &mut self.entries[index].1,
            None => self.add(key),
        }
    }

    /// Takes a key out, if it is there.
    pub fn remove(&mut self, key: &str) {
        if let Some(index) = self.index(key) {
            self.entries[index..self.used].rotate_left(1);
            self.used -= 1;
        }
    }

    fn index(&self, key: &str) -> Option<usize> {
        self.entries[..self.used].iter().position(|(name, _)| name == key)
    }

    /// Makes it empty, keeping its memory.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Sorts it by key.
    pub fn sort(&mut self) {
        self.entries[..self.used].sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    }

    /// Makes it a copy of another one, keeping its memory.
    pub fn copy_from(&mut self, other: &Self) {
        self.clear();
        for (key, value) in other.iter() {
            self.add(key).assign(value.as_ref());
        }
    }
}

impl PartialEq for Metadata {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_reused_without_traces_of_its_last_content() {
        let mut metadata = Metadata::default();
        *metadata.add("encoding") = MetadataValue::String("cpu".into());
        *metadata.add("gains") = MetadataValue::ListInt(vec![1, 2, 3]);
        assert_eq!(metadata.get("gains"), Some(&MetadataValue::ListInt(vec![1, 2, 3])));
        let mut copy = Metadata::default();
        copy.copy_from(&metadata);
        metadata.clear();
        assert!(metadata.is_empty() && metadata.get("encoding").is_none());
        *metadata.add("width") = MetadataValue::Integer(640);
        let entries: Vec<_> = metadata.iter().collect();
        assert_eq!(entries, [("width", &MetadataValue::Integer(640))]);
        assert_eq!(copy.get("encoding"), Some(&MetadataValue::String("cpu".into())));
        assert_eq!(copy.iter().count(), 2);
        *copy.set("encoding") = MetadataValue::Bool(true);
        copy.remove("gains");
        copy.remove("not there");
        *copy.set("width") = MetadataValue::Integer(1);
        let entries: Vec<_> = copy.iter().collect();
        assert_eq!(
            entries,
            [
                ("encoding", &MetadataValue::Bool(true)),
                ("width", &MetadataValue::Integer(1))
            ]
        );
    }

    #[test]
    fn a_copy_of_the_same_form_keeps_its_memory() {
        let mut value = MetadataValue::String("camera".into());
        let address = |value: &MetadataValue| match value {
            MetadataValue::String(text) => text.as_ptr(),
            _ => panic!("it is a text"),
        };
        let before = address(&value);
        value.assign(MetadataRef::String("lidar"));
        assert_eq!(value, MetadataValue::String("lidar".into()));
        assert_eq!(address(&value), before);
    }
}

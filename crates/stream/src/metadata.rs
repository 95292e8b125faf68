//! Metadata of a message: values by key, in memory that is reused.
//!
//! A removed key keeps the memory of its value, so that messages with the same keys allocate nothing. The number of such keys is
//! bounded.

use std::fmt::{self, Display, Write};
use std::ops::Deref;

/// A value of a message's metadata: a variant for each of dora's types of parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum MetadataValue {
    /// Boolean, which is kept and sent unchanged.
    Bool(bool),
    /// Int64, such as `timestamp_ns`.
    Integer(i64),
    /// Float64, such as `clock_skew_ppm`.
    Float(f64),
    /// Text in UTF-8, such as `frame_id`.
    String(String),
    /// List of int64, such as `shape`.
    ListInt(Vec<i64>),
    /// List of float64, such as `origin_m`.
    ListFloat(Vec<f64>),
    /// List of texts, such as `fields`.
    ListString(Names),
    /// Time in UTC, ns since 1970.
    Timestamp(i64),
}

/// A borrowed value of a message's metadata, with the variants of [`MetadataValue`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetadataRef<'a> {
    /// Boolean, which is kept and sent unchanged.
    Bool(bool),
    /// Int64, such as `timestamp_ns`.
    Integer(i64),
    /// Float64, such as `clock_skew_ppm`.
    Float(f64),
    /// Text in UTF-8, such as `frame_id`.
    String(&'a str),
    /// List of int64, such as `shape`.
    ListInt(&'a [i64]),
    /// List of float64, such as `origin_m`.
    ListFloat(&'a [f64]),
    /// List of texts, such as `fields`.
    ListString(&'a [String]),
    /// Time in UTC, ns since 1970.
    Timestamp(i64),
}

impl MetadataValue {
    /// Borrows the value; texts and lists are not copied.
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

    /// Replaces the value by a copy of `value`. Texts and lists reuse their memory if the type stays the same.
    pub fn assign(&mut self, value: MetadataRef<'_>) {
        match (self, value) {
            (Self::String(to), MetadataRef::String(from)) => from.clone_into(to),
            (Self::ListInt(to), MetadataRef::ListInt(from)) => from.clone_into(to),
            (Self::ListFloat(to), MetadataRef::ListFloat(from)) => from.clone_into(to),
            (Self::ListString(to), MetadataRef::ListString(from)) => {
                to.clear();
                from.iter().for_each(|name| to.push(name));
            }
            (to, from) => *to = from.to_owned(),
        }
    }
}

impl MetadataRef<'_> {
    /// Copies the value, with its text or list.
    pub fn to_owned(self) -> MetadataValue {
        match self {
            Self::Bool(value) => MetadataValue::Bool(value),
            Self::Integer(value) => MetadataValue::Integer(value),
            Self::Float(value) => MetadataValue::Float(value),
            Self::String(value) => MetadataValue::String(value.to_owned()),
            Self::ListInt(value) => MetadataValue::ListInt(value.to_vec()),
            Self::ListFloat(value) => MetadataValue::ListFloat(value.to_vec()),
            Self::ListString(value) => MetadataValue::ListString(value.iter().collect()),
            Self::Timestamp(value) => MetadataValue::Timestamp(value),
        }
    }
}

/// A list of texts, such as names of joints. Removed texts leave their memory for later texts.
#[derive(Clone, Default)]
pub struct Names {
    texts: Vec<String>,
    used: usize,
}

impl Names {
    /// Appends the text of `name` to the list.
    pub fn push(&mut self, name: impl Display) {
        if self.used == self.texts.len() {
            self.texts.push(String::new());
        }
        let text = &mut self.texts[self.used];
        self.used += 1;
        text.clear();
        // Writing to a string can't fail.
        let _ = write!(text, "{name}");
    }

    /// Removes all texts; keeps the allocated memory.
    pub fn clear(&mut self) {
        self.used = 0;
    }
}

impl<N: Display> FromIterator<N> for Names {
    fn from_iter<I: IntoIterator<Item = N>>(names: I) -> Self {
        let mut list = Self::default();
        names.into_iter().for_each(|name| list.push(name));
        list
    }
}

impl Deref for Names {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.texts[..self.used]
    }
}

impl PartialEq for Names {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Greatest number of removed keys whose memory is kept. Beyond it, a new key takes over the memory of a removed key, so that a
/// sender that invents ever new keys can't fill the memory.
const MANY_UNUSED: usize = 64;

/// Metadata of a message: values by key. A removed key keeps the memory of its value for the next value of that key.
#[derive(Clone, Default)]
pub struct Metadata {
    /// Present keys in the order in which they were added, and behind them the removed keys.
    entries: Vec<(String, MetadataValue)>,
    used: usize,
}

impl Metadata {
    /// The value of a key; `None` if the key is absent.
    pub fn get(&self, key: &str) -> Option<&MetadataValue> {
        self.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// Iterates over the present keys and their values, in the order in which the keys were added.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &MetadataValue)> {
        self.entries[..self.used]
            .iter()
            .map(|(key, value)| (key.as_str(), value))
    }

    /// True if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Returns the value of a key, to be overwritten. An absent key is added, with an undefined value.
    pub fn set(&mut self, key: &str) -> &mut MetadataValue {
        let has_key = |(name, _): &(String, MetadataValue)| name == key;
        // Messages of a stream have the same keys in the same order.
        let is_next = self.entries.get(self.used).is_some_and(has_key);
        let at = match is_next {
            true => self.used,
            false => match self.entries.iter().position(has_key) {
                Some(at) if at < self.used => return &mut self.entries[at].1,
                Some(at) => at,
                None => self.begin(key),
            },
        };
        self.entries[self.used..=at].rotate_right(1);
        self.used += 1;
        &mut self.entries[self.used - 1].1
    }

    /// Adds a key that has no entry as the last of all entries, and returns its index.
    fn begin(&mut self, key: &str) -> usize {
        let has_many_unused = self.entries.len() - self.used >= MANY_UNUSED;
        match self.entries.last_mut() {
            Some((name, _)) if has_many_unused => key.clone_into(name),
            _ => self.entries.push((key.to_owned(), MetadataValue::Bool(false))),
        }
        self.entries.len() - 1
    }

    /// Removes a key, if present.
    pub fn remove(&mut self, key: &str) {
        let index = self.entries[..self.used].iter().position(|(name, _)| name == key);
        if let Some(index) = index {
            self.entries[index..self.used].rotate_left(1);
            self.used -= 1;
        }
    }

    /// Removes all keys; keeps the allocated memory.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Sorts the present keys by name.
    pub fn sort(&mut self) {
        self.entries[..self.used].sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    }

    /// Replaces all keys by copies of other metadata, in the memory that is allocated already.
    pub fn copy_from(&mut self, other: &Self) {
        self.clear();
        for (key, value) in other.iter() {
            self.set(key).assign(value.as_ref());
        }
    }
}

/// Equality of all keys and values; the order of the keys does not count.
impl PartialEq for Metadata {
    fn eq(&self, other: &Self) -> bool {
        self.used == other.used && self.iter().all(|(key, value)| other.get(key) == Some(value))
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
        *metadata.set("encoding") = MetadataValue::String("cpu".into());
        *metadata.set("gains") = MetadataValue::ListInt(vec![1, 2, 3]);
        assert_eq!(metadata.get("gains"), Some(&MetadataValue::ListInt(vec![1, 2, 3])));
        let mut copy = Metadata::default();
        copy.copy_from(&metadata);
        metadata.clear();
        assert!(metadata.is_empty() && metadata.get("encoding").is_none());
        *metadata.set("width") = MetadataValue::Integer(640);
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
    fn a_key_that_is_taken_out_keeps_its_memory_by_name() {
        let mut metadata = Metadata::default();
        let lists = |metadata: &Metadata| {
            ["places", "gains", "counts"].map(|key| match metadata.get(key) {
                Some(MetadataValue::ListInt(list)) => list.as_ptr(),
                other => panic!("{key}: {other:?}"),
            })
        };
        let fill = |metadata: &mut Metadata, keys: &[&str]| {
            for key in keys {
                metadata.set(key).assign(MetadataRef::ListInt(&[1, 2]));
            }
        };
        fill(&mut metadata, &["places", "gains", "counts"]);
        let before = lists(&metadata);
        metadata.clear();
        fill(&mut metadata, &["counts", "places"]);
        assert_eq!(
            metadata.iter().map(|(key, _)| key).collect::<Vec<_>>(),
            ["counts", "places"]
        );
        metadata.remove("counts");
        fill(&mut metadata, &["gains", "counts"]);
        assert_eq!(lists(&metadata), before);
        let mut other = Metadata::default();
        fill(&mut other, &["gains", "counts"]);
        assert_ne!(metadata, other);
        fill(&mut other, &["places"]);
        assert_eq!(metadata, other, "in another order");
    }

    #[test]
    fn keys_that_never_come_again_fill_no_memory() {
        let mut metadata = Metadata::default();
        for i in 0..10 * MANY_UNUSED as i64 {
            metadata.clear();
            *metadata.set("encoding") = MetadataValue::Bool(true);
            *metadata.set(&format!("key {i}")) = MetadataValue::Integer(i);
            assert_eq!(metadata.iter().count(), 2);
        }
        assert_eq!(metadata.entries.len(), 1 + MANY_UNUSED);
    }

    #[test]
    fn names_keep_their_memory() {
        let mut names = Names::from_iter(["camera", "force"]);
        let before = names[0].as_ptr();
        names.clear();
        assert!(names.is_empty());
        names.push("lidar");
        assert_eq!((&*names, names[0].as_ptr()), (&["lidar".to_owned()][..], before));
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

/// A value of a message's metadata, of the types that dora has.
#[derive(Debug, PartialEq)]
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

impl Clone for MetadataValue {
    fn clone(&self) -> Self {
        match self {
            Self::Bool(value) => Self::Bool(*value),
            Self::Integer(value) => Self::Integer(*value),
            Self::Float(value) => Self::Float(*value),
            Self::String(value) => Self::String(value.clone()),
            Self::ListInt(value) => Self::ListInt(value.clone()),
            Self::ListFloat(value) => Self::ListFloat(value.clone()),
            Self::ListString(value) => Self::ListString(value.clone()),
            Self::Timestamp(value) => Self::Timestamp(*value),
        }
    }

    /// Keeps the memory of text and lists where the type stays the same.
    fn clone_from(&mut self, other: &Self) {
        match (self, other) {
            (Self::String(to), Self::String(from)) => to.clone_from(from),
            (Self::ListInt(to), Self::ListInt(from)) => to.clone_from(from),
            (Self::ListFloat(to), Self::ListFloat(from)) => to.clone_from(from),
            (Self::ListString(to), Self::ListString(from)) => to.clone_from(from),
            (to, from) => *to = from.clone(),
        }
    }
}

/// The metadata of a message that [`Message`](super::Message) has no field for, in memory that is reused.
#[derive(Default)]
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

    /// Adds a key that is not there yet, and returns the place of its value, to be overwritten: what stands there is of
    /// an earlier use.
    pub fn add(&mut self, key: &str) -> &mut MetadataValue {
        if self.used == self.entries.len() {
            self.entries.push((String::new(), MetadataValue::Bool(false)));
        }
        let (name, value) = &mut self.entries[self.used];
        self.used += 1;
        name.clear();
        name.push_str(key);
        value
    }

    /// The place of a key's value, to be overwritten, whether it is there or not.
    pub fn set(&mut self, key: &str) -> &mut MetadataValue {
        match self.place(key) {
            Some(place) => &mut self.entries[place].1,
            None => self.add(key),
        }
    }

    /// Takes a key out, if it is there.
    pub fn remove(&mut self, key: &str) {
        if let Some(place) = self.place(key) {
            self.entries[place..self.used].rotate_left(1);
            self.used -= 1;
        }
    }

    fn place(&self, key: &str) -> Option<usize> {
        self.entries[..self.used].iter().position(|(name, _)| name == key)
    }

    /// Makes it empty, keeping its memory.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Makes it a copy of another one, keeping its memory.
    pub fn copy_from(&mut self, other: &Self) {
        self.clear();
        for (key, value) in other.iter() {
            self.add(key).clone_from(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_reused_without_traces_of_its_last_content() {
        let mut metadata = Metadata::default();
        *metadata.add("device") = MetadataValue::String("cpu".into());
        *metadata.add("age_ns") = MetadataValue::ListInt(vec![1, 2, 3]);
        assert_eq!(metadata.get("age_ns"), Some(&MetadataValue::ListInt(vec![1, 2, 3])));
        let mut copy = Metadata::default();
        copy.copy_from(&metadata);
        metadata.clear();
        assert!(metadata.is_empty() && metadata.get("device").is_none());
        metadata.add("width").clone_from(&MetadataValue::Integer(640));
        let entries: Vec<_> = metadata.iter().collect();
        assert_eq!(entries, [("width", &MetadataValue::Integer(640))]);
        assert_eq!(copy.get("device"), Some(&MetadataValue::String("cpu".into())));
        assert_eq!(copy.iter().count(), 2);
        copy.set("device").clone_from(&MetadataValue::Bool(true));
        copy.remove("age_ns");
        copy.remove("not there");
        copy.set("width").clone_from(&MetadataValue::Integer(1));
        let entries: Vec<_> = copy.iter().collect();
        assert_eq!(
            entries,
            [
                ("device", &MetadataValue::Bool(true)),
                ("width", &MetadataValue::Integer(1))
            ]
        );
    }

    #[test]
    fn a_copy_of_the_same_form_keeps_its_memory() {
        let names = |names: &[&str]| MetadataValue::ListString(names.iter().map(|name| (*name).to_owned()).collect());
        let mut value = names(&["camera", "force"]);
        let address = |value: &MetadataValue| match value {
            MetadataValue::ListString(names) => names[0].as_ptr(),
            _ => panic!("it is a list of texts"),
        };
        let before = address(&value);
        value.clone_from(&names(&["lidar"]));
        assert_eq!(value, names(&["lidar"]));
        assert_eq!(address(&value), before);
    }
}

//! Metadata of a message: the keys that any message may have, and the macro that declares further keys.
//!
//! A received key is never lost: a key without a field, or with a value of another type, stays in `Header::other` and is sent
//! unchanged. A header that is reused keeps the memory of its values.

use super::{Metadata, MetadataRef, MetadataValue, Names, form, ring};
use std::fmt::{Display, Write};
use std::marker::PhantomData;

/// Declares the fields of `Header`, which are the keys that any message may have. Each entry has a doc comment, a name and the
/// type of its value. A text after the type makes the key strict: a message with a value of another type is refused, and the
/// text says what is allowed.
macro_rules! header {
    ($($(#[doc = $doc:literal])+ $name:ident: $Type:ty $(= $allowed:literal)?,)+) => {
        /// The metadata of a message: a field for each key that any message may have, in memory that is reused.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Header {
            $($(#[doc = $doc])+ pub $name: Entry<$Type>,)+
            /// Keys without a field, and keys of fields whose received value has another type: kept as received, and sent
            /// unchanged. A [`Key`] reads and writes a key that an operation declares.
            pub other: Metadata,
        }

        /// Names of the keys that are fields of `Header`, as constants of the same name.
        #[allow(non_upper_case_globals, missing_docs)]
        pub mod key {
            use super::{Names, Value};

            $(pub const $name: &str = stringify!($name);)+

        /// Names of the keys that are fields of `Header`, each with the type of its value as dora names it, such as `Integer`.
            #[allow(unreachable_pub)]
        pub const ALL: &[(&str, &str)] = &[$((stringify!($name), <$Type as Value>::KIND)),+];
        }

        impl Header {
            /// Removes all keys; keeps the allocated memory.
            pub fn clear(&mut self) {
                $(self.$name.clear();)+
                self.other.clear();
            }

            /// Replaces all keys by copies of another header's keys, in the memory that is allocated already.
            pub fn copy_from(&mut self, other: &Self) {
                $(self.$name.copy_from(&other.$name);)+
                self.other.copy_from(&other.other);
            }

            /// Iterates over the present keys and their values, first the fields and then the keys of [`other`](Self::other), each
            /// key once. If a field is set, a value of the same key in `other` is left out.
            pub fn iter(&self) -> impl Iterator<Item = (&str, MetadataRef<'_>)> {
                let fields = [$(self.$name.get().map(|value| (stringify!($name), value.into()))),+];
                let other = self.other.iter().filter(|(key, _)| !self.has_field(key));
                fields.into_iter().flatten().chain(other.map(|(key, value)| (key, value.as_ref())))
            }

            /// True if `key` is the name of a field of `Header`, and this field is set.
            fn has_field(&self, key: &str) -> bool {
                match key {
                    $(stringify!($name) => self.$name.is_present(),)+
                    _ => false,
                }
            }

            /// Removes a key by its name, from its field and from [`other`](Self::other), if present.
            pub fn remove(&mut self, key: &str) {
                match key {
                    $(stringify!($name) => self.$name.clear(),)+
                    _ => {}
                }
                self.other.remove(key);
            }

            /// Sets a key by its name: the field of that name, or [`other`](Self::other) if there is no field or the value has
            /// another type.
            pub fn set(&mut self, key: &str, value: MetadataRef<'_>) {
                let is_field = match key {
                    $(stringify!($name) => {
                        let value = <$Type as Value>::of(value);
                        self.$name.assign(value);
                        value.is_some()
                    })+
                    _ => false,
                };
                match is_field {
                    true => self.other.remove(key),
                    false => self.other.set(key).assign(value),
                }
            }
        }

        /// Returns the name of the key and a text of its allowed values if the message must be refused because of the type of
        /// `value`. Returns `None` for a value that fits, and for a key whose values may have any type.
        fn misfit(key: &str, value: MetadataRef<'_>) -> Option<(&'static str, &'static str)> {
            match key {
                $($(stringify!($name) if !fits::<$Type>(value) => Some((stringify!($name), $allowed)),)?)+
                _ if key == ring::ring.name && !fits::<String>(value) => Some((ring::ring.name, "the name of a ring")),
                _ => None,
            }
        }
    };
}

header! {
    /// Capture time of the newest sample, ns.
    timestamp_ns: i64 = "an Integer; from Python `int(x)`, a NumPy integer becomes text",
    /// Capture time of each sample in the payload, ns; absent if the payload is one sample.
    timestamps_ns: Vec<i64> = "a list of integers",
    /// 1 if the sender gave no stamp, so that `timestamp_ns` is the time of publication; otherwise absent or 0.
    unstamped: i64,
    /// Validity mask: 1 for each row of the payload that is a sample, else 0. Observations have an entry for each row and modality,
    /// row-major.
    valid: Vec<i64> = "a list of integers",
    /// Dimensions of the payload, row-major.
    shape: Vec<i64> = "a list of integers",
    /// Names of the elements along the last axis of the payload, such as `x`, `y` and `z`.
    fields: Names = "a list of strings",
    /// Name of the payload's coordinate frame.
    frame_id: String,
    /// Number of values of one sample, in a batch of trajectories.
    dim: i64 = "an Integer of 1 or more",
    /// Name of the payload's element type, such as `float32`. A bfloat16 payload is sent as uint16, and only this key marks it
    /// as bfloat16.
    dtype: String = "the name of an element type",
    /// Process that published the message: a random number, drawn when the process starts.
    sender: i64,
}

/// Declares the metadata keys of one kind of message. Each entry has a doc comment, which is required, a name and the type of
/// its value. Each name becomes a constant [`Key`], and `ALL` lists all of them.
///
/// ```
/// use robocache_stream::Header;
///
/// /// The keys of an operation's results.
/// mod key {
///     robocache_stream::keys! {
///         /// Messages that were out of range, so far.
///         out_of_range: i64,
///         /// Names of the joints.
///         joints: robocache_stream::Names,
///     }
/// }
///
/// let mut header = Header::default();
/// key::out_of_range.set(&mut header, 3);
/// key::joints.set(&mut header, ["shoulder", "elbow"]);
/// assert_eq!(key::out_of_range.get(&header), Some(3));
/// assert_eq!(key::ALL, [("out_of_range", "Integer"), ("joints", "ListString")]);
/// ```
///
/// The name must not be that of a field of [`Header`]. The type is `i64`, `f64`, `String`, `Vec<i64>`, `Vec<f64>` or [`Names`].
/// A value of another type, such as an integer where a float is declared, is kept as received, and [`Key::get`] returns `None`.
#[macro_export]
macro_rules! keys {
    ($($(#[doc = $doc:literal])+ $name:ident: $Type:ty),+ $(,)?) => {
        $(
            $(#[doc = $doc])+
            #[allow(non_upper_case_globals, unreachable_pub)]
            pub const $name: $crate::Key<$Type> = $crate::Key::new(stringify!($name));
        )+

        /// Names of the declared keys, each with the type of its value as dora names it, such as `Integer`.
        #[allow(unreachable_pub)]
        pub const ALL: &[(&str, &str)] = &[$((stringify!($name), <$Type as $crate::Value>::KIND)),+];
    };
}

/// Metadata key whose value has the type `T`. [`keys!`](crate::keys) declares the key, and [`Header::other`] stores its value.
pub struct Key<T> {
    /// Name of the metadata key, such as `age_ns`.
    pub name: &'static str,
    of: PhantomData<fn() -> T>,
}

impl<T: Value> Key<T> {
    /// Creates the key `name`; [`keys!`](crate::keys) calls this.
    pub const fn new(name: &'static str) -> Self {
        Self { name, of: PhantomData }
    }

    /// The value of the key in `header`; `None` if the key is absent or its value is of another type.
    pub fn get<'a>(&self, header: &'a Header) -> Option<T::Ref<'a>> {
        T::of(header.other.get(self.name)?.as_ref())
    }

    /// Sets the key in `header`. As the type of the key demands, `value` is a number, anything that can be displayed as text,
    /// or an iterator of list items. The memory of an earlier value of this type is reused.
    pub fn set<V>(&self, header: &mut Header, value: V)
    where
        T: Set<V>,
    {
        let to = header.other.set(self.name);
        let mut memory = T::reusing(std::mem::replace(to, MetadataValue::Bool(false)));
        memory.empty();
        memory.put(value);
        *to = memory.into();
    }

    /// Copies the value of the key from the header `from` to the header `to`. Removes the key from `to` if `from` lacks it, or has
    /// a value of another type.
    pub fn copy(&self, from: &Header, to: &mut Header) {
        match self.get(from) {
            Some(value) => to.other.set(self.name).assign(value.into()),
            None => to.other.remove(self.name),
        }
    }
}

/// Field of a [`Header`]: the value of a key, or the absence of the key. The memory of the value stays allocated if the key is
/// removed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry<T> {
    /// Value of the key; 0 or empty if the key is absent.
    value: T,
    is_present: bool,
}

impl<T: Value> Entry<T> {
    /// True if the key is present, even with an empty value.
    pub fn is_present(&self) -> bool {
        self.is_present
    }

    /// The value of the key; `None` if the key is absent.
    pub fn get(&self) -> Option<T::Ref<'_>> {
        self.is_present.then(|| self.value.borrowed())
    }

    /// The value of the key; 0 or empty if the key is absent.
    pub(crate) fn or_empty(&self) -> &T {
        &self.value
    }

    /// Sets the key in the memory of its earlier value. As the type of the key demands, `value` is a number, anything that can
    /// be displayed as text, or an iterator of list items.
    pub fn set<V>(&mut self, value: V)
    where
        T: Set<V>,
    {
        self.value.empty();
        self.value.put(value);
        self.is_present = true;
    }

    /// Removes the key; keeps the allocated memory.
    pub fn clear(&mut self) {
        self.value.empty();
        self.is_present = false;
    }

    /// Copies the value of another entry, or its absence, into the memory that is allocated already.
    pub fn copy_from(&mut self, other: &Self) {
        self.assign(other.get());
    }

    /// Sets the key to a copy of `value`; removes the key if `value` is `None`.
    fn assign(&mut self, value: Option<T::Ref<'_>>) {
        self.clear();
        if let Some(value) = value {
            self.value.assign(value);
            self.is_present = true;
        }
    }
}

/// Metadata value type that can be set from a `V`. A `String`, for example, can be set from anything that can be displayed.
pub trait Set<V> {
    /// Writes `value` to `self`, which must be 0 or empty before the call.
    fn put(&mut self, value: V);
}

impl Set<i64> for i64 {
    fn put(&mut self, value: i64) {
        *self = value;
    }
}

impl Set<f64> for f64 {
    fn put(&mut self, value: f64) {
        *self = value;
    }
}

impl<V: Display> Set<V> for String {
    fn put(&mut self, value: V) {
        // Writing to a string can't fail.
        let _ = write!(self, "{value}");
    }
}

impl<N, V: IntoIterator> Set<V> for Vec<N>
where
    Vec<N>: Extend<V::Item>,
{
    fn put(&mut self, values: V) {
        self.extend(values);
    }
}

impl<V: IntoIterator<Item: Display>> Set<V> for Names {
    fn put(&mut self, names: V) {
        names.into_iter().for_each(|name| self.push(name));
    }
}

/// Type of value that a metadata key can have: `i64`, `f64`, `String`, `Vec<i64>`, `Vec<f64>` or [`Names`].
pub trait Value: Default + Into<MetadataValue> {
    /// Borrowed form of this type, such as `&str` for `String`.
    type Ref<'a>: Into<MetadataRef<'a>>;

    /// Name of this type in dora, such as `ListInt`.
    const KIND: &'static str;

    /// Sets the value to 0 or empty; keeps the allocated memory.
    fn empty(&mut self);

    /// Borrows the value.
    fn borrowed(&self) -> Self::Ref<'_>;

    /// Copies `value` to `self`, which must be 0 or empty before the call.
    fn assign(&mut self, value: Self::Ref<'_>);

    /// Returns the content of `value` if it has this type, else `None`.
    fn of(value: MetadataRef<'_>) -> Option<Self::Ref<'_>>;

    /// Converts `value` to this type, keeping its memory. A value of another type is dropped, and the result is 0 or empty.
    fn reusing(value: MetadataValue) -> Self;
}

macro_rules! value {
    ($Type:ty, $Ref:ty, $Variant:ident, |$it:ident| $empty:expr, $borrowed:expr, |$from:ident| $assign:expr) => {
        impl Value for $Type {
            type Ref<'a> = $Ref;
            const KIND: &'static str = stringify!($Variant);

            fn empty(&mut self) {
                let $it = self;
                $empty;
            }

            fn borrowed(&self) -> Self::Ref<'_> {
                let $it = self;
                $borrowed
            }

            fn assign(&mut self, $from: Self::Ref<'_>) {
                let $it = self;
                $assign;
            }

            fn of(value: MetadataRef<'_>) -> Option<Self::Ref<'_>> {
                match value {
                    MetadataRef::$Variant(value) => Some(value),
                    _ => None,
                }
            }

            fn reusing(value: MetadataValue) -> Self {
                match value {
                    MetadataValue::$Variant(value) => value,
                    _ => Self::default(),
                }
            }
        }

        impl<'a> From<$Ref> for MetadataRef<'a> {
            fn from(value: $Ref) -> Self {
                Self::$Variant(value)
            }
        }

        impl From<$Type> for MetadataValue {
            fn from(value: $Type) -> Self {
                Self::$Variant(value)
            }
        }
    };
}

value!(i64, i64, Integer, |it| *it = 0, *it, |from| *it = from);
value!(f64, f64, Float, |it| *it = 0.0, *it, |from| *it = from);
value!(String, &'a str, String, |it| it.clear(), it, |from| it.push_str(from));
value!(Vec<i64>, &'a [i64], ListInt, |it| it.clear(), it, |from| it
    .extend_from_slice(from));
value!(Vec<f64>, &'a [f64], ListFloat, |it| it.clear(), it, |from| it
    .extend_from_slice(from));
value!(Names, &'a [String], ListString, |it| it.clear(), it, |from| from
    .iter()
    .for_each(|name| it.push(name)));

/// True if `value` has the type `T`. An empty list of strings also counts as a list of integers, because Python sends any empty
/// list so.
fn fits<T: Value>(value: MetadataRef<'_>) -> bool {
    // An empty list from Python arrives as a list of strings.
    let is_empty_list = T::KIND == Vec::<i64>::KIND && value == MetadataRef::ListString(&[]);
    is_empty_list || T::of(value).is_some()
}

/// The reason why a message can't be used; the message is dropped and counted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The payload has an Arrow type that no operation can read.
    #[error("Arrow type {came} ({why})")]
    ArrowType {
        /// The Arrow type of the payload.
        came: String,
        /// Allowed types, or the reason why the payload can't be used.
        why: &'static str,
    },
    /// A metadata key has a value that is not allowed.
    #[error("metadata `{key}` is {came} (allowed: {allowed})")]
    Metadata {
        /// Name of the metadata key.
        key: &'static str,
        /// Received value, as text.
        came: String,
        /// Values that are allowed, as text.
        allowed: &'static str,
    },
    /// `shape` contradicts the length of the payload.
    #[error(
        "metadata `shape` {shape:?} needs {expected} values, but the payload has {came} (allowed: the same number)"
    )]
    Shape {
        /// Received `shape`.
        shape: Vec<i64>,
        /// Number of elements that `shape` needs: the product of its dimensions, or `usize::MAX` if the product overflows.
        expected: usize,
        /// Number of elements of the payload.
        came: usize,
    },
    /// `shape` contradicts the number of samples or of fields.
    #[error(
        "metadata `shape` {shape:?} contradicts `{key}`, which has {came} entries (allowed: {came} as the {axis} dimension)"
    )]
    Axis {
        /// Received `shape`.
        shape: Vec<i64>,
        /// Name of the key that `shape` contradicts: `timestamps_ns` or `fields`.
        key: &'static str,
        /// Number that the message has: of samples, or of names in `fields`.
        came: usize,
        /// Dimension of `shape` that must equal `came`: `first` or `last`.
        axis: &'static str,
    },
    /// The samples, the points or the stamp can't be read from the payload.
    #[error(transparent)]
    Select(#[from] super::SelectError),
    /// The payload is in a ring, memory that sender and receivers share, and can't be copied from it. The text is the reason.
    #[error("{0}")]
    Ring(String),
    /// `valid` does not have one entry for each sample and modality.
    #[error("metadata `valid` has {came} entries (allowed: {allowed}, one for each sample and modality)")]
    Valid {
        /// Received number of entries of `valid`.
        came: usize,
        /// Number of entries that `valid` must have.
        allowed: usize,
    },
}

impl Header {
    /// Replaces all keys by `entries`. If `timestamp_ns` is absent, an Integer under the older key `timestamp` becomes
    /// `timestamp_ns`.
    ///
    /// # Errors
    /// [`MessageError::Metadata`] for the first key of a fixed type, such as `shape` or `ring`, whose value has another type. All
    /// keys are read nevertheless, and the value is kept in [`other`](Self::other).
    pub fn read<'a>(
        &mut self,
        entries: impl IntoIterator<Item = (&'a str, MetadataRef<'a>)>,
    ) -> Result<(), MessageError> {
        self.clear();
        let mut read = Ok(());
        for (name, value) in entries {
            self.set(name, value);
            if let Some((key, allowed)) = misfit(name, value).filter(|_| read.is_ok()) {
                let came = format!("{value:?}");
                read = Err(MessageError::Metadata { key, came, allowed });
            }
        }
        if !self.timestamp_ns.is_present()
            && let Some(&MetadataValue::Integer(stamp)) = self.other.get("timestamp")
        {
            self.timestamp_ns.set(stamp);
        }
        read
    }

    /// Removes the keys that describe the form of the payload: `shape`, `dtype`, `fields`, `dim`, `timestamps_ns` and `valid`.
    /// To be called before another payload is written.
    pub fn forget_form(&mut self) {
        for key in [
            key::shape,
            key::dtype,
            key::fields,
            key::dim,
            key::timestamps_ns,
            key::valid,
        ] {
            self.remove(key);
        }
    }

    /// True if the sender gave no stamp, and `timestamp_ns` is the time of publication.
    pub fn is_unstamped(&self) -> bool {
        self.unstamped.get().is_some_and(|unstamped| unstamped != 0)
    }

    /// The value of a key by its name, from its field or from [`other`](Self::other); `None` if the key is absent.
    pub fn get(&self, key: &str) -> Option<MetadataRef<'_>> {
        self.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// Checks `shape`, `dim`, `valid`, `timestamps_ns` and `fields` against each other and against the payload. `len` is the number
    /// of elements of a flat payload; `None` for a struct.
    pub(super) fn check(&self, len: Option<usize>) -> Result<(), MessageError> {
        let refused = |key, came: String, allowed| Err(MessageError::Metadata { key, came, allowed });
        let (shape, valid) = (self.shape.or_empty(), self.valid.or_empty());
        if let Some(n) = shape.iter().find(|&&n| n < 0) {
            return refused(key::shape, n.to_string(), "dimensions of 0 or more");
        }
        if let Some(dim) = self.dim.get().filter(|&dim| dim <= 0) {
            let came = format!("{:?}", MetadataRef::Integer(dim));
            return refused(key::dim, came, "an Integer of 1 or more");
        }
        if let Some(mask) = valid.iter().find(|mask| !matches!(mask, 0 | 1)) {
            return refused(key::valid, mask.to_string(), "a ListInt of 0 and 1");
        }
        let Some(len) = len else { return Ok(()) };
        // Attached messages have a stamp each, and any number of rows: the last offset is the number of all rows.
        let samples = match form::grid_offsets.get(self).and_then(<[i64]>::last) {
            Some(&rows) => rows.max(1) as usize,
            None => self.timestamps_ns.or_empty().len().max(1),
        };
        let axis = |key, came, axis| MessageError::Axis {
            shape: shape.to_vec(),
            key,
            came,
            axis,
        };
        if let [first, .., last] | [first @ last] = shape.as_slice() {
            let cells = shape
                .iter()
                .try_fold(1usize, |product, &n| product.checked_mul(n as usize));
            // A voxel grid of layout `bits` packs eight cells into a byte.
            let is_bits = form::grid_shape.get(self).is_some() && cells.map(|cells| cells.div_ceil(8)) == Some(len);
            if cells != Some(len) && !is_bits {
                return Err(MessageError::Shape {
                    shape: shape.to_vec(),
                    expected: cells.unwrap_or(usize::MAX),
                    came: len,
                });
            }
            if samples > 1 && *first as usize != samples {
                return Err(axis(key::timestamps_ns, samples, "first"));
            }
            let fields = self.fields.or_empty().len();
            if fields > 0 && *last as usize != fields {
                return Err(axis(key::fields, fields, "last"));
            }
        }
        let parts = form::modalities.get(self).map_or(1, |names| names.len());
        match valid.len() {
            0 => Ok(()),
            came if came == samples * parts => Ok(()),
            came => Err(MessageError::Valid {
                came,
                allowed: samples * parts,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    keys! {
        /// Key that only these tests declare.
        epoch: i64,
        /// Key that only these tests declare.
        device: String,
        /// Key that only these tests declare.
        compute_us: f64,
    }

    #[test]
    fn every_type_of_value_comes_back_by_name() {
        let mut header = Header::default();
        header.timestamp_ns.set(7);
        compute_us.set(&mut header, 0.5);
        device.set(&mut header, "cpu");
        form::age_ns.set(&mut header, [-1, 5]);
        form::origin_m.set(&mut header, [0.5, -1.0]);
        form::channels.set(&mut header, ["count", "mean_x"]);
        header.other.set("encoding").assign(MetadataRef::String("rgb8"));
        let mut copy = Header::default();
        for (key, value) in header.iter() {
            copy.set(key, value);
        }
        assert_eq!(copy, header);
        assert_eq!(copy.iter().count(), 7);
        for (key, _) in header.iter() {
            copy.remove(key);
        }
        assert_eq!(copy, Header::default());
        copy.copy_from(&header);
        assert_eq!(copy, header);
        copy.clear();
        assert_eq!(copy, Header::default());
    }

    #[test]
    fn what_is_empty_is_not_what_is_not_there() {
        let mut header = Header::default();
        assert!(header.shape.get().is_none() && epoch.get(&header).is_none());
        header.shape.set([0; 0]);
        epoch.set(&mut header, 0);
        header.frame_id.set("");
        let keys: Vec<_> = header.iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["shape", "frame_id", "epoch"]);
        assert_eq!(
            ALL,
            [("epoch", "Integer"), ("device", "String"), ("compute_us", "Float")]
        );
        header.valid.set([1]);
        assert_eq!(header.valid.get(), Some(&[1][..]));
    }

    #[test]
    fn a_value_of_another_type_is_kept_or_refused() {
        let mut header = Header::default();
        let entries = |entries: &'static [(&'static str, MetadataRef<'static>)]| entries.iter().copied();
        let lenient = entries(&[
            ("epoch", MetadataRef::Float(1.5)),
            ("compute_us", MetadataRef::Integer(3)),
            ("shape", MetadataRef::ListString(&[])),
        ]);
        header.read(lenient).unwrap();
        assert!(epoch.get(&header).is_none() && !header.shape.is_present());
        assert_eq!(header.other.get("compute_us"), Some(&MetadataValue::Integer(3)));
        assert_eq!(header.iter().count(), 3);
        let refused = header
            .read(entries(&[("fields", MetadataRef::ListInt(&[1]))]))
            .unwrap_err();
        assert_eq!(
            refused.to_string(),
            "metadata `fields` is ListInt([1]) (allowed: a list of strings)"
        );
        header.read(entries(&[("timestamp", MetadataRef::Integer(6))])).unwrap();
        assert_eq!(header.timestamp_ns.get(), Some(6));
    }

    #[test]
    fn a_field_that_is_set_stands_for_what_came_under_its_name() {
        let mut header = Header::default();
        let came = [
            ("valid", MetadataRef::ListString(&[])),
            ("frame_id", MetadataRef::Integer(3)),
            ("dtype", MetadataRef::String("float32")),
        ];
        header.read(came).unwrap();
        let mut copy = Header::default();
        copy.copy_from(&header);
        assert_eq!(copy.get("valid"), Some(MetadataRef::ListString(&[])));
        copy.valid.set([1, 0]);
        copy.frame_id.set("base");
        let said: Vec<_> = copy.iter().collect();
        let wanted = [
            ("valid", MetadataRef::ListInt(&[1, 0])),
            ("frame_id", MetadataRef::String("base")),
            ("dtype", MetadataRef::String("float32")),
        ];
        assert_eq!(said, wanted);
    }

    #[test]
    fn the_name_of_a_ring_is_a_text() {
        let mut header = Header::default();
        let refused = header
            .read([("slot", MetadataRef::Float(1.0)), ("ring", MetadataRef::Integer(3))])
            .unwrap_err();
        assert_eq!(
            refused.to_string(),
            "metadata `ring` is Integer(3) (allowed: the name of a ring)"
        );
        assert!(!header.is_resident() && header.other.iter().count() == 2);
    }

    #[test]
    fn a_key_that_is_set_keeps_its_memory_and_its_type() {
        let mut header = Header::default();
        let address = |header: &Header| form::age_ns.get(header).map(<[i64]>::as_ptr);
        form::age_ns.set(&mut header, [1, 2, 3]);
        let before = address(&header);
        let mut copy = header.clone();
        header.clear();
        assert_eq!(address(&header), None);
        form::age_ns.set(&mut header, [4]);
        assert_eq!((form::age_ns.get(&header), address(&header)), (Some(&[4][..]), before));
        form::age_ns.copy(&header, &mut copy);
        assert_eq!(copy, header);
        header.set("age_ns", MetadataRef::Integer(7));
        form::age_ns.copy(&header, &mut copy);
        assert!(copy.other.is_empty(), "one of another type is none");
        form::age_ns.set(&mut header, [5]);
        assert_eq!(header.iter().count(), 1);
    }
}

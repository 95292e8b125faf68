//! What a message says of itself. Every metadata key that robocache knows stands here, once.

use super::{Metadata, MetadataRef, MetadataValue};
use std::fmt::{self, Display, Write};
use std::ops::{Deref, DerefMut};

/// The keys, one an entry: what it means, its name, the type of its value. A key with a text after its type is strict:
/// a message in which it has a value of another type is refused, and the text says what is allowed.
macro_rules! keys {
    ($($(#[doc = $doc:literal])+ $name:ident: $Type:ty $(= $allowed:literal)?,)+) => {
        /// The metadata of a message: a field for each key that robocache knows, in memory that is reused.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Header {
            $($(#[doc = $doc])+ pub $name: Entry<$Type>,)+
            /// Every other key, and those of the fields whose value is of another type: kept as it came, and sent as it
            /// is.
            pub other: Metadata,
        }

        /// The names of the keys, as constants of the same name.
        #[allow(non_upper_case_globals, missing_docs)]
        pub mod key {
            $(pub const $name: &str = stringify!($name);)+
        }

        impl Header {
            /// Every key that has a field.
            pub const KEYS: &'static [Key] = &[$(Key {
                name: stringify!($name),
                kind: <$Type as Value>::KIND,
                about: concat!($($doc),+).trim_ascii(),
                required: [$($allowed,)? ""][0],
            }),+];

            /// Makes it empty, keeping its memory.
            pub fn clear(&mut self) {
                $(self.$name.clear();)+
                self.other.clear();
            }

            /// Makes it a copy of another one, keeping its memory.
            pub fn copy_from(&mut self, other: &Self) {
                $(self.$name.copy_from(&other.$name);)+
                self.other.copy_from(&other.other);
            }

            /// Every key that is there, with its value.
            pub fn iter(&self) -> impl Iterator<Item = (&str, MetadataRef<'_>)> {
                let fields = [$(self.$name.get().map(|value| (stringify!($name), value.borrowed()))),+];
                fields.into_iter().flatten().chain(self.other.iter().map(|(key, value)| (key, value.as_ref())))
            }

            /// Takes a key out, if it is there.
            pub fn remove(&mut self, key: &str) {
                match key {
                    $(stringify!($name) => self.$name.clear(),)+
                    _ => {}
                }
                self.other.remove(key);
            }

            /// Sets a key by its name: the field of that name, or [`other`](Self::other) where there is none or the value
            /// is not of its type. Returns the key then that it did not fit.
            pub fn set(&mut self, key: &str, value: MetadataRef<'_>) -> Option<&'static Key> {
                let mut known = Self::KEYS.iter();
                let field = match key {
                    $(stringify!($name) => {
                        if self.$name.assign(value) {
                            self.other.remove(key);
                            return None;
                        }
                        known.find(|known| known.name == key)
                    })+
                    _ => None,
                };
                self.other.set(key).assign(value);
                field
            }
        }
    };
}

keys! {
    /// Capture time of the newest sample, ns.
    timestamp_ns: i64 = "an Integer; from Python `int(x)`, a NumPy integer becomes text",
    /// Capture time of each sample, ns, where there are several.
    timestamps_ns: Vec<i64> = "a list of integers",
    /// 1 where the sender gave no stamp: `timestamp_ns` is the time of publication.
    unstamped: i64,
    /// 0/1 for each sample, or for each part of one: whether it is a sample.
    valid: Vec<i64> = "a list of integers",
    /// Dimensions, row-major.
    shape: Vec<i64> = "a list of integers",
    /// Names along the last axis.
    fields: Names = "a list of strings",
    /// Coordinate frame.
    frame_id: String,
    /// Values of one sample, in a batch of trajectories.
    dim: i64 = "an Integer of 1 or more",
    /// Element type of the payload; tells bfloat16 from uint16.
    dtype: String = "the name of an element type",
    /// Streams of an observation, in the order of the last axis.
    modalities: Names,
    /// Columns of an observation: modality m is `offsets[m]..offsets[m + 1]`.
    offsets: Vec<i64>,
    /// For each row and modality, target minus the newest sample at or before it, ns; -1 where there is none.
    age_ns: Vec<i64>,
    /// Goes up by one at each clock jump: of an observation's grid, of a set's streams, of a device.
    epoch: i64,
    /// Samples that came after their target was sent, so far.
    late_samples: i64,
    /// What made an observation: `grid`, `stream`, `request` or `timer`.
    trigger: String,
    /// By how much the newest sample would be past an observation's target when it falls due, if all samples came in the
    /// order of their times, ns.
    wait_ns: i64,
    /// 0 where an observation's target depends on when a request or a tick came.
    deterministic: i64,
    /// Why a request gets no observation.
    error: String,
    /// Outputs of the attached streams of an observation.
    attached: Names,
    /// For each row and attached stream, which of its distinct messages; -1 where there is none.
    grid_index: Vec<i64>,
    /// For each row and attached stream, target minus the time of its message, ns; -1 where there is none.
    grid_age_ns: Vec<i64>,
    /// Rows of attached messages, one after the other: those of message u are `grid_offsets[u]..grid_offsets[u + 1]`.
    grid_offsets: Vec<i64>,
    /// How many sets came before the one that the message is of.
    group: i64,
    /// The newest time in the message's set, ns.
    group_timestamp_ns: i64,
    /// The newest time in the message's set minus the oldest, ns.
    group_span_ns: i64,
    /// The stamp that a message had by the clock of its device, ns.
    device_timestamp_ns: i64,
    /// Host time minus the time of the device, ns.
    clock_offset_ns: i64,
    /// How much more than a second passes on the host in a second of the device, millionths.
    clock_skew_ppm: f64,
    /// How far the estimate of a device's clock is uncertain, ns.
    clock_sigma_ns: i64,
    /// 0/1: whether a stamp is of an estimate, and not the time of publication.
    clock_locked: i64,
    /// Names of the channels of a voxel grid.
    channels: Names,
    /// Min corner of a voxel grid, m.
    origin_m: Vec<f64>,
    /// Edges of a voxel, m.
    voxel_size_m: Vec<f64>,
    /// Cells of a voxel grid along x, y, z.
    grid_shape: Vec<i64>,
    /// Points that came: those kept and all dropped ones.
    points_in: i64,
    /// Points that are in the grid.
    points_kept: i64,
    /// Points or samples with a value that is NaN, infinite or null.
    dropped_nonfinite: i64,
    /// Points outside the grid.
    dropped_outside: i64,
    /// Points past `max_voxels`, or results that the element type can't hold.
    dropped_overflow: i64,
    /// For each field of the channels, its values that they leave out.
    unusable: Vec<i64>,
    /// Values of a dense grid that its element type can't hold.
    saturated: i64,
    /// Names of the inputs of a voxel grid.
    inputs: Names,
    /// 0/1 for each input: whether a cloud of it is in the grid.
    inputs_valid: Vec<i64>,
    /// For each input, `timestamp_ns` minus the stamp of its cloud, ns; -1 where there is none.
    inputs_age_ns: Vec<i64>,
    /// Targets of a batch.
    targets: i64,
    /// Targets of a batch that have no value.
    invalid: i64,
    /// Rows of a batch that make no sense.
    refused_rows: i64,
    /// Where the payload is, if not in the message: `shared` or `cuda`, memory of a ring.
    residence: String,
    /// The name of the ring, which is the name of its socket, too.
    ring: String = "the name of a ring",
    /// The slot of the ring.
    slot: i64,
    /// The generation of the slot: it holds this payload as long as it has that.
    generation: i64,
    /// Bytes of the payload.
    nbytes: i64,
    /// The process that published it: a number that is drawn when it starts.
    sender: i64,
    /// Where it was computed.
    device: String,
    /// Time that the operation took, us.
    compute_us: f64,
    /// Device memory that the operation holds, bytes.
    device_bytes: i64,
    /// The node that diagnostics are of.
    node: String,
    /// Of diagnostics: 0 ok, 1 warn, 2 error, 3 stale, that of the worst input.
    level: i64,
    /// Why diagnostics have their level.
    message: String,
    /// Observations, sets and grids that the node has published so far.
    observations: i64,
    /// The same in a second, of the last seconds.
    observation_rate_hz: f64,
    /// From the target of an observation to the newest stamp that was seen when it was published, ns: the median.
    wait_p50_ns: i64,
    /// The same: one in a hundred is above.
    wait_p99_ns: i64,
    /// Time that the operations took for a result, us: the median.
    compute_p50_us: f64,
    /// The same: one in a hundred is above.
    compute_p99_us: f64,
    /// The most messages of one input that waited at once in the last second.
    queue_depth: i64,
}

/// A key of the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// The type of its value, as dora names it.
    pub kind: &'static str,
    /// What it means.
    pub about: &'static str,
    /// What is allowed, where a value of another type is an error; otherwise empty.
    required: &'static str,
}

/// The value of a key, and whether it is there. What is not there reads as zero or empty.
///
/// Whoever writes to it by dereferencing it puts it there. [`get`](Self::get) is the entry's own and hides that of a list:
/// `header.valid.as_slice().get(row)` is an element.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry<T> {
    /// Empty where it is not there.
    value: T,
    is_present: bool,
}

impl<T> Entry<T> {
    /// Whether it is there, however empty.
    pub fn is_present(&self) -> bool {
        self.is_present
    }

    /// The value, where it is there.
    pub fn get(&self) -> Option<&T> {
        self.is_present.then_some(&self.value)
    }
}

impl<T> Deref for Entry<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Entry<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.is_present = true;
        &mut self.value
    }
}

#[expect(private_bounds, reason = "the types of values are those of the keys")]
impl<T: Value> Entry<T> {
    /// Takes it out, keeping its memory.
    pub fn clear(&mut self) {
        self.value.empty();
        self.is_present = false;
    }

    /// Makes it a copy of another one, keeping its memory.
    pub fn copy_from(&mut self, other: &Self) {
        self.clear();
        if let Some(value) = other.get() {
            self.is_present = self.value.assign(value.borrowed());
        }
    }

    /// Whether the value is of this type; then it is that now, and otherwise not there.
    fn assign(&mut self, value: MetadataRef<'_>) -> bool {
        self.clear();
        self.is_present = self.value.assign(value);
        self.is_present
    }
}

impl Entry<i64> {
    /// Sets it.
    pub fn set(&mut self, value: i64) {
        **self = value;
    }
}

impl Entry<f64> {
    /// Sets it.
    pub fn set(&mut self, value: f64) {
        **self = value;
    }
}

impl Entry<String> {
    /// Sets it to what `text` is in words.
    pub fn set(&mut self, text: impl Display) {
        self.clear();
        // Writing to a string can't fail.
        let _ = write!(**self, "{text}");
    }
}

impl<N> Entry<Vec<N>> {
    /// Sets it to these numbers.
    pub fn set<I: IntoIterator>(&mut self, values: I)
    where
        Vec<N>: Extend<I::Item>,
    {
        let list = &mut **self;
        list.clear();
        list.extend(values);
    }
}

impl Entry<Names> {
    /// Sets it to what these are in words.
    pub fn set<I: IntoIterator<Item: Display>>(&mut self, names: I) {
        self.clear();
        let list = &mut **self;
        names.into_iter().for_each(|name| list.push(name));
    }
}

/// A list of texts that keeps the memory of earlier ones.
#[derive(Clone, Default)]
pub struct Names {
    texts: Vec<String>,
    used: usize,
}

impl Names {
    /// Appends what `name` is in words.
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

/// A type that values have.
trait Value {
    /// Its name in dora.
    const KIND: &'static str;

    /// Makes it zero or empty, keeping its memory.
    fn empty(&mut self);

    fn borrowed(&self) -> MetadataRef<'_>;

    /// Takes a value over if it is of this type. It is empty before.
    fn assign(&mut self, value: MetadataRef<'_>) -> bool;
}

macro_rules! value {
    ($Type:ty, $Variant:ident, $empty:expr, |$value:ident| $borrowed:expr, |$to:ident, $from:ident| $assign:expr) => {
        impl Value for $Type {
            const KIND: &'static str = stringify!($Variant);

            fn empty(&mut self) {
                #[allow(clippy::redundant_closure_call)]
                ($empty)(self)
            }

            fn borrowed(&self) -> MetadataRef<'_> {
                let $value = self;
                MetadataRef::$Variant($borrowed)
            }

            fn assign(&mut self, value: MetadataRef<'_>) -> bool {
                let MetadataRef::$Variant($from) = value else {
                    return false;
                };
                let $to = self;
                $assign;
                true
            }
        }
    };
}

value!(
    i64,
    Integer,
    |value: &mut i64| *value = 0,
    |value| *value,
    |to, from| *to = from
);
value!(
    f64,
    Float,
    |value: &mut f64| *value = 0.0,
    |value| *value,
    |to, from| *to = from
);
value!(String, String, String::clear, |value| value, |to, from| to
    .push_str(from));
value!(Vec<i64>, ListInt, Vec::clear, |value| value, |to, from| to
    .extend_from_slice(from));
value!(Vec<f64>, ListFloat, Vec::clear, |value| value, |to, from| to
    .extend_from_slice(from));
value!(
    Names,
    ListString,
    |value: &mut Names| value.used = 0,
    |value| value,
    |to, from| from.iter().for_each(|name| to.push(name))
);

/// Why a message can't be used. It is dropped and counted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The payload is of a type that no operation takes.
    #[error("Arrow type {came} ({why})")]
    ArrowType {
        /// The type that came.
        came: String,
        /// What is allowed.
        why: &'static str,
    },
    /// A metadata key has a value that it can't have.
    #[error("metadata `{key}` is {came} (allowed: {allowed})")]
    Metadata {
        /// The key.
        key: &'static str,
        /// The value that came.
        came: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// `shape` is not that of the payload.
    #[error("metadata `shape` {shape:?} is {expected} values, the payload has {came}")]
    Shape {
        /// The shape.
        shape: Vec<i64>,
        /// Its product.
        expected: usize,
        /// The length of the payload.
        came: usize,
    },
    /// `shape` is not that of the samples or the fields.
    #[error("metadata `shape` {shape:?} does not go with {came} `{key}` (allowed: {came} in its {axis} place)")]
    Axis {
        /// The shape.
        shape: Vec<i64>,
        /// The other key.
        key: &'static str,
        /// Its length.
        came: usize,
        /// Which dimension must be that: first or last.
        axis: &'static str,
    },
    /// The payload has not what is to be taken from it.
    #[error(transparent)]
    Select(#[from] super::SelectError),
    /// The payload is in a ring, and can't be taken from it.
    #[error("{0}")]
    Ring(String),
    /// `valid` has another length than the samples.
    #[error("metadata `valid` has {came} entries (allowed: {allowed}, one for each sample and modality)")]
    Valid {
        /// Its length.
        came: usize,
        /// What it must be.
        allowed: usize,
    },
}

impl Header {
    /// Makes it that of a message with these keys. Without `timestamp_ns` the older key `timestamp` stands in for it.
    ///
    /// # Errors
    /// The first key whose value is of a type that it can't be of. It is kept with [`other`](Self::other) ones.
    pub fn read<'a>(
        &mut self,
        entries: impl IntoIterator<Item = (&'a str, MetadataRef<'a>)>,
    ) -> Result<(), MessageError> {
        self.clear();
        let mut read = Ok(());
        for (name, value) in entries {
            let misfit = self.set(name, value).filter(|key| !key.required.is_empty());
            // An empty list from Python arrives as a list of strings.
            let is_empty_list = |key: &Key| key.kind == Vec::<i64>::KIND && value == MetadataRef::ListString(&[]);
            if let Some(key) = misfit.filter(|key| read.is_ok() && !is_empty_list(key)) {
                read = Err(MessageError::Metadata {
                    key: key.name,
                    came: format!("{value:?}"),
                    allowed: key.required,
                });
            }
        }
        if !self.timestamp_ns.is_present()
            && let Some(&MetadataValue::Integer(stamp)) = self.other.get("timestamp")
        {
            self.timestamp_ns.set(stamp);
        }
        read
    }

    /// Takes out what it says of the form of a payload, which does not hold of another one: `shape`, `dtype`, `fields`, `dim`,
    /// `timestamps_ns` and `valid`.
    pub fn forget_form(&mut self) {
        self.shape.clear();
        self.dtype.clear();
        self.fields.clear();
        self.dim.clear();
        self.timestamps_ns.clear();
        self.valid.clear();
        for key in [
            key::shape,
            key::dtype,
            key::fields,
            key::dim,
            key::timestamps_ns,
            key::valid,
        ] {
            self.other.remove(key);
        }
    }

    /// Whether it is a request of dora's service pattern, and not the answer to one, which says what made it.
    pub fn is_request(&self) -> bool {
        self.other.get("request_id").is_some() && !self.trigger.is_present()
    }

    /// The value of a key by its name.
    pub fn get(&self, key: &str) -> Option<MetadataRef<'_>> {
        self.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// Checks what it says of the form of a payload against the payload, and against itself. `len` is the length of a
    /// flat payload; a struct has none.
    pub(super) fn check(&self, len: Option<usize>) -> Result<(), MessageError> {
        let refused = |key, came: String, allowed| Err(MessageError::Metadata { key, came, allowed });
        if let Some(n) = self.shape.iter().find(|&&n| n < 0) {
            return refused(key::shape, n.to_string(), "dimensions of 0 or more");
        }
        if let Some(&dim) = self.dim.get().filter(|&&dim| dim <= 0) {
            let came = format!("{:?}", MetadataRef::Integer(dim));
            return refused(key::dim, came, "an Integer of 1 or more");
        }
        if let Some(mask) = self.valid.iter().find(|mask| !matches!(mask, 0 | 1)) {
            return refused(key::valid, mask.to_string(), "a ListInt of 0 and 1");
        }
        let Some(len) = len else { return Ok(()) };
        let shape = self.shape.as_slice();
        // Attached messages of any number of rows have a stamp each.
        let samples = match self.grid_offsets.last() {
            Some(&rows) => rows.max(1) as usize,
            None => self.timestamps_ns.len().max(1),
        };
        let axis = |key, came, axis| MessageError::Axis {
            shape: shape.to_vec(),
            key,
            came,
            axis,
        };
        if let [first, .., last] | [first @ last] = shape {
            let cells = shape
                .iter()
                .try_fold(1usize, |product, &n| product.checked_mul(n as usize));
            // The bits of a voxel grid are eight cells to a byte.
            let is_bits = self.grid_shape.is_present() && cells.map(|cells| cells.div_ceil(8)) == Some(len);
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
            if !self.fields.is_empty() && *last as usize != self.fields.len() {
                return Err(axis(key::fields, self.fields.len(), "last"));
            }
        }
        let parts = self.modalities.get().map_or(1, |names| names.len());
        match self.valid.len() {
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

    #[test]
    fn every_type_of_value_comes_back_by_name() {
        let mut header = Header::default();
        header.timestamp_ns.set(7);
        header.compute_us.set(0.5);
        header.device.set("cpu");
        header.age_ns.set([-1, 5]);
        header.origin_m.set([0.5, -1.0]);
        header.channels.set(["count", "mean_x"]);
        header.other.set("encoding").assign(MetadataRef::String("rgb8"));
        let mut copy = Header::default();
        for (key, value) in header.iter() {
            assert_eq!(copy.set(key, value), None);
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
        assert!(header.shape.get().is_none() && header.shape.is_empty());
        header.shape.set::<[i64; 0]>([]);
        header.epoch.set(0);
        header.frame_id.set("");
        let keys: Vec<_> = header.iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["shape", "frame_id", "epoch"]);
        header.valid.push(1);
        assert_eq!(header.valid.get(), Some(&vec![1]));
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
        assert!(!header.epoch.is_present() && !header.shape.is_present());
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
        assert_eq!(header.timestamp_ns.get(), Some(&6));
    }

    #[test]
    fn names_keep_their_memory() {
        let mut names = Entry::<Names>::default();
        names.set(["camera", "force"]);
        let before = names[0].as_ptr();
        names.clear();
        assert!(names.is_empty() && !names.is_present());
        names.set(["lidar"]);
        assert_eq!((names[0].as_str(), names[0].as_ptr()), ("lidar", before));
        assert_eq!(names.len(), 1);
    }
}

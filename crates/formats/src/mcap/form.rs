//! How a message of ours travels in MCAP, and what its channel says of that.

use super::standard::Standard;
use robocache_device::Dtype;
use robocache_stream::recording::text::{self, Change};
use robocache_stream::{Cells, Column, DATATYPES, Message, MetadataRef, MetadataValue};

/// The metadata of a channel that say what it is, and what the first message of its stream says of itself.
pub(super) const ABOUT: &str = "robocache";
pub(super) const FIRST: &str = "robocache.first";

/// The type of a column of text.
const TEXT: &str = "utf8";

/// The form of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A type of ROS that holds these numbers.
    Samples(&'static str),
    /// A JointState.
    Joints,
    /// A PointCloud2.
    Cloud,
    /// A type of ours, which holds everything.
    Exact,
}

impl Form {
    /// The one that draws best of those that lose nothing.
    pub fn of(message: &Message) -> Self {
        let header = &message.header;
        let is_stamped = i32::try_from(message.timestamp_ns().div_euclid(1_000_000_000)).is_ok();
        let is_one = header.timestamps_ns.is_empty() && header.modalities.is_empty() && header.grid_shape.is_empty();
        if !is_stamped || !is_one {
            return Self::Exact;
        }
        if is_cloud(message) {
            return Self::Cloud;
        }
        let names = &header.fields[..];
        let is_row = matches!(header.shape[..], [] | [_]);
        match message.flat() {
            Some(values) if is_row && !names.is_empty() && values.len() == names.len() && is_kept(message) => {
                Standard::of_samples(names).map_or(Self::Joints, |standard| Self::Samples(standard.name))
            }
            _ => Self::Exact,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Samples(_) => "samples",
            Self::Joints => "joints",
            Self::Cloud => "cloud",
            Self::Exact => "exact",
        }
    }
}

/// Whether the values are the same once they are float64, and not anymore.
fn is_kept(message: &Message) -> bool {
    match message.columns() {
        [only] if only.dtype == Dtype::Float64 => true,
        [only] if only.dtype == Dtype::Float32 => {
            let values = only.values();
            let mut bits = values.as_slice::<f32>().iter();
            bits.all(|value| (f64::from(*value) as f32).to_bits() == value.to_bits())
        }
        _ => false,
    }
}

fn is_cloud(message: &Message) -> bool {
    let columns = message.columns();
    let is_field = |column: &Column| datatype(column.dtype).is_some() && column.cells == Cells::One;
    let step: usize = columns.iter().map(|column| column.dtype.size()).sum();
    let fits = step
        .checked_mul(message.rows)
        .is_some_and(|bytes| bytes <= u32::MAX as usize);
    let names = &message.header.fields[..];
    let is_flat = message.flat().is_some();
    let is_table = !is_flat || matches!(message.header.shape[..], [_, width] if width as usize == names.len());
    let has = |axis: &str| match is_flat {
        true => names.iter().any(|name| name == axis),
        false => message.column(axis).is_some(),
    };
    columns.iter().all(is_field) && fits && is_table && ["x", "y", "z"].into_iter().all(has)
}

/// The number that a `sensor_msgs/PointField` has for a type.
pub(super) fn datatype(dtype: Dtype) -> Option<u8> {
    DATATYPES
        .iter()
        .position(|&known| known == dtype)
        .map(|at| at as u8 + 1)
}

/// What a channel of ours says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct About {
    pub stream: String,
    /// The [`Form`] of its messages; `metadata` for texts that say where those of the next message differ from the first,
    /// `view` for what is there to be looked at.
    pub form: String,
    /// Whether times of recording are those of arrival.
    pub has_arrivals: bool,
    /// The columns of the payload, and how many elements of which type a row of each has.
    pub columns: Vec<String>,
    pub types: Vec<String>,
}

/// The type of a column's cells: how many elements of which type a row has.
pub(super) fn cell_type(dtype: Dtype, cells: Cells) -> String {
    match cells {
        Cells::One => dtype.name().to_owned(),
        Cells::Fixed(n) => format!("{dtype}[{n}]"),
        Cells::Ragged(_) => format!("{dtype}[]"),
        Cells::Text(_) => TEXT.to_owned(),
    }
}

impl About {
    pub fn of(stream: &str, form: Form, message: &Message) -> Self {
        let types = message
            .columns()
            .iter()
            .map(|column| cell_type(column.dtype, column.cells));
        Self {
            stream: stream.to_owned(),
            form: form.word().to_owned(),
            has_arrivals: message.arrival_ns.is_some(),
            columns: message.columns().iter().map(|column| column.name.clone()).collect(),
            types: types.collect(),
        }
    }

    pub fn beside(stream: &str, form: &str) -> Self {
        Self {
            stream: stream.to_owned(),
            form: form.to_owned(),
            ..Self::default()
        }
    }

    pub fn to_text(&self) -> String {
        let mut out = String::from("{");
        text::push_entry(&mut out, "stream", Some(MetadataRef::String(&self.stream)));
        text::push_entry(&mut out, "form", Some(MetadataRef::String(&self.form)));
        text::push_entry(&mut out, "arrivals", Some(MetadataRef::Bool(self.has_arrivals)));
        text::push_entry(&mut out, "columns", Some(MetadataRef::ListString(&self.columns)));
        text::push_entry(&mut out, "types", Some(MetadataRef::ListString(&self.types)));
        out + "}"
    }

    pub fn from_text(text: &str) -> Result<Self, String> {
        let mut about = Self::default();
        for (name, value) in text::object(text)? {
            match (name.as_str(), value) {
                ("stream", Some(MetadataValue::String(stream))) => about.stream = stream,
                ("form", Some(MetadataValue::String(form))) => about.form = form,
                ("arrivals", Some(MetadataValue::Bool(has_arrivals))) => about.has_arrivals = has_arrivals,
                ("columns", Some(MetadataValue::ListString(columns))) => about.columns = columns,
                ("types", Some(MetadataValue::ListString(types))) => about.types = types,
                (name, _) => return Err(format!("`{name}` is not known")),
            }
        }
        Ok(about)
    }

    /// The columns: their names, types, and how many elements a row has.
    pub fn parts(&self) -> Result<Vec<(String, Dtype, Elements)>, String> {
        let part = |(name, text): (&String, &String)| {
            let (dtype, elements) = match text.split_once('[') {
                None if text == TEXT => (Dtype::UInt8.name(), Some(Elements::Text)),
                None => (text.as_str(), Some(Elements::One)),
                Some((dtype, "]")) => (dtype, Some(Elements::Any)),
                Some((dtype, n)) => (dtype, n.trim_end_matches(']').parse().ok().map(Elements::Fixed)),
            };
            match (Dtype::from_name(dtype), elements) {
                (Some(dtype), Some(elements)) => Ok((name.clone(), dtype, elements)),
                _ => Err(format!("a column of `{text}`")),
            }
        };
        if self.columns.len() != self.types.len() || self.columns.is_empty() {
            return Err(format!(
                "{} columns with {} types",
                self.columns.len(),
                self.types.len()
            ));
        }
        self.columns.iter().zip(&self.types).map(part).collect()
    }
}

/// How many elements a row of a column has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Elements {
    One,
    Fixed(usize),
    Any,
    /// Bytes of UTF-8.
    Text,
}

/// Metadata out of what a channel or a message says.
pub(super) fn changes(text: &str) -> Result<Vec<Change>, String> {
    if text.is_empty() {
        Ok(Vec::new())
    } else {
        text::object(text)
    }
}

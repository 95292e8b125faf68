//! Choice of the ROS message type for a message that robocache writes to MCAP. A type is chosen only if it holds the message
//! without loss, and the channel's metadata name the choice.

use super::standard::Standard;
use crate::parts::{ColumnSpec, TEXT, cell_type};
use robocache_device::Dtype;
use robocache_stream::recording::text::{self, Change};
use robocache_stream::{Cells, Column, DATATYPES, Message, MetadataRef, MetadataValue, form};

/// Key in a channel's metadata under which robocache describes the channel.
pub(super) const ABOUT: &str = "robocache";
/// Key in a channel's metadata under which robocache stores the metadata of the stream's first message.
pub(super) const FIRST: &str = "robocache.first";

/// ROS message type that robocache uses to write a message.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Form {
    /// A ROS message type that consists of a header and numbers, such as WrenchStamped.
    Samples(&'static Standard),
    /// A JointState, for samples whose values have names.
    Joints,
    /// A PointCloud2, for tables with columns x, y and z.
    Cloud,
    /// A message type that robocache defines itself, which can hold any message.
    Exact,
}

impl Form {
    /// Chooses the form of a message: of the forms that hold it without loss, the one that viewers draw best.
    pub(super) fn of(message: &Message) -> Self {
        let header = &message.header;
        let is_stamped = i32::try_from(message.timestamp_ns().div_euclid(1_000_000_000)).is_ok();
        let is_one = header.timestamps_ns.get().is_none_or(<[i64]>::is_empty)
            && form::modalities.get(header).is_none_or(<[String]>::is_empty)
            && form::grid_shape.get(header).is_none_or(<[i64]>::is_empty);
        if !is_stamped || !is_one {
            return Self::Exact;
        }
        if is_cloud(message) {
            return Self::Cloud;
        }
        let names = header.fields.get().unwrap_or_default();
        let is_row = matches!(header.shape.get(), None | Some([] | [_]));
        match message.flat() {
            Some(values) if is_row && !names.is_empty() && values.len() == names.len() && is_kept(message) => {
                Standard::of_samples(names).map_or(Self::Joints, Self::Samples)
            }
            _ => Self::Exact,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Samples(_) => "samples",
            Self::Joints => "joints",
            Self::Cloud => "cloud",
            Self::Exact => "exact",
        }
    }
}

/// True if the payload is one column of floats, and each float keeps its bits when it is converted to float64 and back.
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
    let bytes = step.checked_mul(message.rows);
    let fits = bytes.is_some_and(|bytes| bytes <= u32::MAX as usize);
    let names = message.header.fields.get().unwrap_or_default();
    let is_flat = message.flat().is_some();
    let is_table = !is_flat || matches!(message.header.shape.get(), Some(&[_, width]) if width as usize == names.len());
    let has = |axis: &str| match is_flat {
        true => names.iter().any(|name| name == axis),
        false => message.column(axis).is_some(),
    };
    columns.iter().all(is_field) && fits && is_table && ["x", "y", "z"].into_iter().all(has)
}

/// Returns the constant that `sensor_msgs/PointField` has for an element type; `None` if it has none.
pub(super) fn datatype(dtype: Dtype) -> Option<u8> {
    let at = DATATYPES.iter().position(|&known| known == dtype)?;
    Some(at as u8 + 1)
}

/// Returns the element type that messages of the form `exact` use for `dtype`: uint16 with the same bits for float16 and
/// bfloat16, and `dtype` itself for all other types.
pub(super) fn element(dtype: Dtype) -> Dtype {
    match dtype {
        Dtype::Float16 | Dtype::BFloat16 => Dtype::UInt16,
        other => other,
    }
}

/// Parses the type of a column, such as `float32[3]`, as `cell_type` writes it.
fn cells_of_type(text: &str) -> Result<(Dtype, Cells), String> {
    let (dtype, cells) = match text.split_once('[') {
        None if text == TEXT => (Dtype::UInt8.name(), Some(Cells::Text(0))),
        None => (text, Some(Cells::One)),
        Some((dtype, "]")) => (dtype, Some(Cells::Ragged(0))),
        Some((dtype, n)) => (dtype, n.trim_end_matches(']').parse().ok().map(Cells::Fixed)),
    };
    let both = Dtype::from_name(dtype).zip(cells);
    both.ok_or_else(|| format!("a column of `{text}`"))
}

/// Description of a channel that robocache wrote, stored in the channel's metadata.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct About {
    pub stream: String,
    /// Name of the channel's [`Form`]. Two more names are used: `metadata` for changes of metadata from the first message to
    /// the next, and `view` for clouds that only viewers read.
    pub form: String,
    /// True if the log times of the channel's messages are arrival times; false if they are stamps.
    pub has_arrivals: bool,
    /// Columns of the payload of the channel's messages.
    pub parts: Vec<ColumnSpec>,
}

impl About {
    pub(super) fn to_text(&self) -> String {
        let names: Vec<String> = self.parts.iter().map(|(name, ..)| name.clone()).collect();
        let types = self.parts.iter().map(|(_, dtype, cells)| cell_type(*dtype, *cells));
        let mut out = String::from("{");
        text::push_entry(&mut out, "stream", Some(MetadataRef::String(&self.stream)));
        text::push_entry(&mut out, "form", Some(MetadataRef::String(&self.form)));
        text::push_entry(&mut out, "arrivals", Some(MetadataRef::Bool(self.has_arrivals)));
        text::push_entry(&mut out, "columns", Some(MetadataRef::ListString(&names)));
        text::push_entry(
            &mut out,
            "types",
            Some(MetadataRef::ListString(&types.collect::<Vec<_>>())),
        );
        out + "}"
    }

    pub(super) fn from_text(text: &str) -> Result<Self, String> {
        let (mut about, mut names, mut types) = (Self::default(), Vec::new(), Vec::new());
        for (name, value) in text::object(text)? {
            match (name.as_str(), value) {
                ("stream", Some(MetadataValue::String(stream))) => about.stream = stream,
                ("form", Some(MetadataValue::String(form))) => about.form = form,
                ("arrivals", Some(MetadataValue::Bool(has_arrivals))) => about.has_arrivals = has_arrivals,
                ("columns", Some(MetadataValue::ListString(columns))) => names = columns.to_vec(),
                ("types", Some(MetadataValue::ListString(of))) => types = of.to_vec(),
                (name, _) => {
                    return Err(format!(
                        "`{name}` is not known (allowed: stream, form, arrivals, columns, types)"
                    ));
                }
            }
        }
        if names.len() != types.len() {
            return Err(format!("{} columns with {} types", names.len(), types.len()));
        }
        for (name, text) in names.into_iter().zip(&types) {
            let (dtype, cells) = cells_of_type(text)?;
            about.parts.push((name, dtype, cells));
        }
        Ok(about)
    }
}

/// Parses a JSON object of metadata: all metadata of a stream's first message, or the changes in a later message. An empty
/// string has none.
pub(super) fn changes(text: &str) -> Result<Vec<Change>, String> {
    if text.is_empty() {
        Ok(Vec::new())
    } else {
        text::object(text)
    }
}

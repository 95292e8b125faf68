//! Selectors: readers of samples and point clouds in the Arrow structs that other software sends, such as ROS messages.
//!
//! A [`Selector`] reads the payloads of one input. When the Arrow type of the payloads changes, the selector finds the paths of
//! the fields to read. Between such changes every payload is read in the same way. `docs/messages.md` has the rules.

mod cloud;
mod config;
mod error;
mod names;
mod path;
mod samples;
mod stamp;
#[cfg(test)]
mod tests;
mod types;

pub use cloud::DATATYPES;
pub use config::{FromConfig, FromError, MetadataStamp, NamesConfig, NumberStamp, StampConfig, TimeUnit};
pub use error::SelectError;
pub use path::{Path, integer, number};
pub(crate) use samples::Losses;
pub use stamp::ns_of;
pub use types::FRAMES;

use crate::arrow::Text;
use crate::{Header, Message, MessageError, MetadataRef};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, StructArray};
use arrow_schema::{DataType, Fields};
use names::Names;
use stamp::Stamp;
use types::CloudType;

const XYZ: [&str; 3] = ["x", "y", "z"];

/// Parts of an input's payloads that the operations need: samples, clouds, or neither. The default selection leaves
/// payloads unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Number of values of a sample; `None` if no operation uses samples. A struct that is a sample becomes a flat array, and
    /// the names of its values in the struct become `fields`.
    pub samples: Option<Width>,
    /// Fields to read from clouds; `None` if no operation uses clouds. A struct that is a cloud becomes a struct with these
    /// fields as columns.
    pub cloud: Option<CloudFields>,
    /// Configured paths of the values and of the stamp; `None` if structs are recognised by the names of their fields.
    pub from: Option<FromConfig>,
    /// True if text columns are skipped, because no operation uses them.
    pub skips_text: bool,
    /// Names of the joints to read from a struct with joint names, in this order; empty for the joints of the first message.
    pub joints: Vec<String>,
    /// True if a sample has the joints' velocities after their positions, provided that the struct has velocities.
    pub velocities: bool,
}

/// Number of values that a sample must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// Exactly this number of values; a sample of another width is refused.
    Of(usize),
    /// Any number of values.
    Any,
}

/// Fields of a cloud that a [`Selection`] includes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloudFields {
    /// All fields of the cloud.
    All,
    /// The fields x, y and z, and the fields of these names.
    Named(Vec<String>),
}

impl CloudFields {
    fn has(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(_) => self.names().any(|wanted| wanted == name),
        }
    }

    /// Returns the names of the fields without which a cloud is refused: x, y, z, and the fields of `Named`.
    fn names(&self) -> impl Iterator<Item = &str> {
        let others = match self {
            Self::All => &[][..],
            Self::Named(names) => names,
        };
        XYZ.into_iter().chain(others.iter().map(String::as_str))
    }
}

impl Selection {
    /// Creates a selection for samples of `dim` values. `from` has the configured paths; `None` to recognise structs by their
    /// fields.
    pub fn samples(dim: usize, from: Option<FromConfig>) -> Self {
        Self {
            samples: Some(Width::Of(dim)),
            from,
            ..Self::default()
        }
    }

    /// Creates a selection for samples of any number of values; columns of text are skipped.
    pub fn named_samples(from: Option<FromConfig>) -> Self {
        Self {
            samples: Some(Width::Any),
            from,
            skips_text: true,
            ..Self::default()
        }
    }

    /// Creates a selection for the positions of these joints from a struct with joint names, or for samples of any number of
    /// values. With `velocities`, the velocities of the joints follow, if the struct has any.
    ///
    /// ```
    /// use robocache_stream::Selection;
    ///
    /// let joints = |names: &[&str], velocities| {
    ///     let names = names.iter().map(|&name| name.to_owned()).collect();
    ///     Selection::joints(names, velocities, None)
    /// };
    /// // Two arms in one message.
    /// let both = joints(&["a", "b"], false).and(joints(&["c"], true)).unwrap();
    /// assert_eq!((both.joints.len(), both.velocities), (3, true));
    /// // Who takes samples of one width takes those of every joint, and no velocities.
    /// let samples = Selection::samples(9, None);
    /// assert!(joints(&["a"], false).and(samples.clone()).unwrap().joints.is_empty());
    /// assert!(joints(&["a"], true).and(samples).is_none());
    /// ```
    pub fn joints(joints: Vec<String>, velocities: bool, from: Option<FromConfig>) -> Self {
        Self {
            joints,
            velocities,
            ..Self::named_samples(from)
        }
    }

    /// Creates a selection for clouds with the fields `wanted`; columns of text are skipped.
    pub fn cloud(wanted: CloudFields, from: Option<FromConfig>) -> Self {
        Self {
            cloud: Some(wanted),
            from,
            skips_text: true,
            ..Self::default()
        }
    }

    /// Sets the stamp of a message from another metadata key: the key that `from` names, or `timestamp` in seconds if the
    /// sender gave no `timestamp_ns`. [`Selector::read`] calls this; the caller must call it for messages of a recording.
    ///
    /// # Errors
    /// If the stamp that `from` names is missing or not a time. After an error the message has its earlier stamp.
    pub fn restamp(&self, header: &mut Header) -> Result<(), SelectError> {
        let has_own = header.timestamp_ns.is_present() && !header.is_unstamped();
        let stamp_ns = match self.stamp() {
            Some(StampConfig::Metadata(stamp)) => Some(stamp.read(header)?),
            _ if has_own => None,
            _ => stamp::from_seconds(header),
        };
        if let Some(stamp_ns) = stamp_ns {
            header.timestamp_ns.set(stamp_ns);
            header.unstamped.clear();
        }
        Ok(())
    }

    /// True if the configuration `from` reads the stamp from a key of the metadata.
    pub fn has_metadata_stamp(&self) -> bool {
        matches!(self.stamp(), Some(StampConfig::Metadata(_)))
    }

    /// True if the configuration `from` reads the stamp from a field of the payload.
    pub fn has_payload_stamp(&self) -> bool {
        matches!(self.stamp(), Some(StampConfig::Path(_) | StampConfig::Number(_)))
    }

    /// The path and the unit of the stamp that `from` reads from the payload; ns if `from` gives no unit. Without a unit, the
    /// path may also lead to a struct or to an Arrow timestamp. `None` if `from` reads no stamp from the payload.
    pub fn number_stamp(&self) -> Option<(&str, TimeUnit)> {
        match self.stamp()? {
            StampConfig::Path(path) => Some((path, TimeUnit::Nanosecond)),
            StampConfig::Number(stamp) => Some((&stamp.path, stamp.unit)),
            StampConfig::Metadata(_) => None,
        }
    }

    fn stamp(&self) -> Option<&StampConfig> {
        self.from.as_ref()?.stamp.as_ref()
    }

    /// True if a payload of this type is already a sample or a cloud as the selector produces it, as in a recording, and the
    /// header has a stamp. If `from` selects values by name, the header must also have `fields`.
    fn has_selected_form(&self, schema: &DataType, header: &Header) -> bool {
        let is_named = self.from.as_ref().is_some_and(|from| from.names.is_some());
        let is_whole = match schema {
            DataType::Struct(fields) => self.cloud.is_some() && XYZ.iter().all(|name| fields.find(name).is_some()),
            _ => self.samples.is_some() && !(is_named && header.fields.get().is_none_or(<[String]>::is_empty)),
        };
        is_whole && header.timestamp_ns.is_present()
    }

    /// Merges the selections of two operations on one input. Returns `None` if their `from` differ and neither selection is the
    /// default, or if one has velocities and the other has samples of a fixed width.
    pub fn and(self, other: Self) -> Option<Self> {
        let takes_any = |selection: &Self| *selection == Self::default();
        if self.from != other.from && !takes_any(&self) && !takes_any(&other) {
            return None;
        }
        let is_of_width = |selection: &Self| matches!(selection.samples, Some(Width::Of(_)));
        if self.velocities != other.velocities && (is_of_width(&self) || is_of_width(&other)) {
            return None;
        }
        let samples = match is_of_width(&other) {
            true => other.samples,
            false => self.samples.or(other.samples),
        };
        // A selection without joints takes all joints.
        let mut joints = self.joints;
        match joints.is_empty() || other.joints.is_empty() {
            true => joints.clear(),
            false => joints.extend(other.joints),
        }
        let cloud = match (self.cloud, other.cloud) {
            (Some(CloudFields::Named(mut names)), Some(CloudFields::Named(more))) => {
                names.extend(more);
                Some(CloudFields::Named(names))
            }
            (None, None) => None,
            // A selection without a choice of fields takes all fields.
            _ => Some(CloudFields::All),
        };
        Some(Self {
            samples,
            cloud,
            from: self.from.or(other.from),
            skips_text: self.skips_text && other.skips_text,
            joints,
            velocities: self.velocities || other.velocities,
        })
    }
}

/// Reader that makes the samples or clouds of a [`Selection`] from the payloads of one input.
///
/// ```
/// use arrow_array::{ArrayRef, Float64Array, StructArray};
/// use robocache_stream::{Message, MetadataRef, Selection, Selector};
/// use std::sync::Arc;
///
/// let numbers = |values: [f64; 1]| -> ArrayRef { Arc::new(Float64Array::from(values.to_vec())) };
/// let vector = |[x, y, z]: [f64; 3]| -> ArrayRef {
///     let parts = [("x", x), ("y", y), ("z", z)].map(|(name, value)| (name, numbers([value])));
///     Arc::new(StructArray::try_from(parts.to_vec()).unwrap())
/// };
/// // A std/control/v1/Twist.
/// let parts = vec![("linear", vector([1.0, 2.0, 3.0])), ("angular", vector([4.0, 5.0, 6.0]))];
/// let twist: ArrayRef = Arc::new(StructArray::try_from(parts)?);
///
/// let mut selector = Selector::new(Selection::samples(6, None));
/// let mut message = Message::default();
/// selector.read([("timestamp_ns", MetadataRef::Integer(7))], &twist, &mut message)?;
/// assert_eq!(message.flat().unwrap().as_slice::<f64>(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
/// assert_eq!(selector.take_note().unwrap(), "std/control/v1/Twist: linear, angular");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Selector {
    selection: Selection,
    /// Arrow type of the last payload, which `plan` was made for; `None` before the first payload.
    schema: Option<DataType>,
    plan: Result<Plan, SelectError>,
    /// Names of a sample's values; empty until a message gives them. They stay when the Arrow type of the payload changes,
    /// because the joints stay the same.
    names: Vec<String>,
    /// Line for the log that `take_note` has not returned yet; `None` if there is none.
    note: Option<String>,
    /// Log lines about recognised types that were a `note` before. Each line becomes a note only once.
    logged_notes: Vec<String>,
}

/// Paths of the values, the stamp and the coordinate frame in payloads of one Arrow type.
#[derive(Default)]
struct Plan {
    take: Take,
    stamp: Option<Stamp>,
    /// Path of the coordinate frame's name; `None` if the payloads do not name a frame.
    frame: Option<Path>,
    /// Log line that names the recognised type and the fields that are read from it; `None` if no recognised type is read.
    recognised: Option<String>,
}

/// Kind of struct that [`recognise`] finds by the names of the struct's fields.
pub enum Recognised {
    /// A point cloud, such as a `PointCloud2`.
    Cloud,
    /// A sample: the paths of its values, and the path of the list of their names; `None` if there is no such list.
    Sample(Vec<&'static str>, Option<&'static str>),
}

/// Recognises a struct by the names of its fields, in any order. Returns `None` if no known type has exactly these fields.
pub fn recognise(fields: &Fields) -> Option<Recognised> {
    let sample = types::sample(fields).map(|known| Recognised::Sample(known.columns, known.names));
    sample.or_else(|| types::cloud(fields).map(|_| Recognised::Cloud))
}

#[derive(Default)]
enum Take {
    /// The whole payload is copied unchanged.
    #[default]
    Everything,
    Samples(samples::Samples, Width),
    PointCloud2(Box<cloud::PointCloud2>),
    Lists(cloud::Lists),
    Bytes(cloud::Bytes),
}

impl Selector {
    /// Creates a selector for this selection.
    pub fn new(selection: Selection) -> Self {
        Self {
            selection,
            schema: None,
            plan: Ok(Plan::default()),
            names: Vec::new(),
            note: None,
            logged_notes: Vec::new(),
        }
    }

    /// Returns the log line that is new since the last call; `None` if there is none. It names the fields that are read from a
    /// recognised struct, or the form of a cloud's times. Each line is returned once.
    pub fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }

    /// The counts of rounded integers and of nulls since the Arrow type of the payload last changed.
    pub fn losses(&self) -> Losses<'_> {
        match self.taken() {
            Some(Take::Samples(samples, _)) => samples.losses(),
            _ => Losses::default(),
        }
    }

    /// Describes how many messages have elements or fields that the first message did not have, since the Arrow type of the payload
    /// last changed. `None` if no message has any.
    pub fn others(&self) -> Option<String> {
        match self.taken()? {
            Take::Samples(samples, _) => samples.others(),
            Take::PointCloud2(cloud) => cloud.others(),
            _ => None,
        }
    }

    /// Describes the units and origins in which the times of a cloud's points were read, and doubts about them. `None` if all are
    /// usual for the name of the field.
    pub fn times(&self) -> Option<String> {
        match self.taken()? {
            Take::PointCloud2(cloud) => cloud.times.as_ref()?.unusual(),
            Take::Lists(lists) => lists.times.as_ref()?.unusual(),
            _ => None,
        }
    }

    /// Describes each field of a cloud that does not become a column, because it has several values or an unknown type.
    pub fn left_out(&self) -> Vec<String> {
        match self.taken() {
            Some(Take::PointCloud2(cloud)) => cloud.left_out.clone(),
            _ => Vec::new(),
        }
    }

    fn taken(&self) -> Option<&Take> {
        self.plan.as_ref().ok().map(|plan| &plan.take)
    }

    /// Reads the selected parts of an Arrow array with this metadata into the allocated memory of `message`. If nothing is
    /// selected from the payload, [`Message::read`] reads it unchanged.
    ///
    /// # Errors
    /// The errors of [`Message::read`], and [`SelectError`] if a selected part can't be read. After an error the payload of
    /// `message` is undefined.
    pub fn read<'a>(
        &mut self,
        metadata: impl IntoIterator<Item = (&'a str, MetadataRef<'a>)>,
        array: &ArrayRef,
        message: &mut Message,
    ) -> Result<(), MessageError> {
        if self.selection == Selection::default() {
            return message.read_with(metadata, |message| {
                message.copy(array, Text::Read)?;
                self.selection.restamp(&mut message.header).map_err(MessageError::from)
            });
        }
        if self.schema.as_ref() != Some(array.data_type()) {
            if let Some(Take::Samples(samples, _)) = self.taken()
                && !samples.names().is_empty()
            {
                self.names = samples.names().to_vec();
            }
            self.plan = self.compile(array.data_type());
            let known = self.plan.as_ref().ok().and_then(|plan| plan.recognised.as_ref());
            if let Some(known) = known.filter(|known| !self.logged_notes.contains(known)) {
                self.note = Some(known.clone());
                self.logged_notes.push(known.clone());
            }
            self.schema = Some(array.data_type().clone());
        }
        let wants = &self.selection;
        let plan = self.plan.as_mut().map_err(|error| error.clone());
        let text = match self.selection.skips_text {
            true => Text::Skipped,
            false => Text::Read,
        };
        message.read_with(metadata, |message| {
            let plan = match plan {
                Err(_) if wants.has_selected_form(array.data_type(), &message.header) => {
                    return message.copy(array, text);
                }
                plan => plan?,
            };
            if wants.has_metadata_stamp() {
                wants.restamp(&mut message.header)?;
            }
            let is_configured = wants.has_payload_stamp();
            match array.as_struct_opt() {
                Some(payload) if is_configured || plan.needs_a_row(payload) => {
                    plan.read(one_row(payload)?, array, is_configured, text, message)?;
                }
                _ => message.copy(array, text)?,
            }
            if !wants.has_metadata_stamp() {
                wants.restamp(&mut message.header)?;
            }
            Ok(())
        })?;
        let of_times = match self.plan.as_mut().map(|plan| &mut plan.take) {
            Ok(Take::PointCloud2(cloud)) => cloud.times.as_mut(),
            Ok(Take::Lists(lists)) => lists.times.as_mut(),
            _ => None,
        };
        if let Some(of_times) = of_times.and_then(cloud::Times::take_note) {
            self.note = Some(match self.note.take() {
                Some(note) => format!("{note}, {of_times}"),
                None => format!("a cloud, {of_times}"),
            });
        }
        // A payload in a ring is a tensor or columns, and `from` can't name parts of these.
        if self.selection.from.is_some() && message.header.is_resident() {
            return Err(SelectError::payload("in a ring").into());
        }
        Ok(())
    }

    fn compile(&self, schema: &DataType) -> Result<Plan, SelectError> {
        let from = self.selection.from.as_ref();
        let columns = from.map_or(&[][..], |from| &from.columns);
        let configured = self.selection.stamp();
        let DataType::Struct(fields) = schema else {
            return match (columns, configured) {
                ([], None | Some(StampConfig::Metadata(_))) => Ok(Plan::default()),
                _ => Err(SelectError::payload(format!("Arrow type {schema}"))),
            };
        };
        let (take, recognised) = match (columns, from) {
            ([_, ..], Some(from)) => (self.take_columns(from, fields)?, None),
            _ => self.take_recognised(fields)?,
        };
        let stamp = match configured {
            Some(StampConfig::Path(path)) => Some(Stamp::find(path, fields)?),
            Some(StampConfig::Number(stamp)) => Some(Stamp::number(stamp, fields)?),
            Some(StampConfig::Metadata(_)) => None,
            // A field of that name that is not a stamp is ignored.
            None => Stamp::find("header.stamp", fields).ok(),
        };
        let frame = types::FRAMES.into_iter().find_map(|path| {
            let (path, field) = Path::find(path, fields).ok()?;
            path::is_text(field.data_type()).then_some(path)
        });
        Ok(Plan {
            take,
            stamp,
            frame,
            recognised,
        })
    }

    fn take_columns(&self, from: &FromConfig, fields: &Fields) -> Result<Take, SelectError> {
        if let (Some(dim), None) = (self.selection.samples, &self.selection.cloud) {
            return Ok(Take::Samples(samples::Samples::find(from, fields)?, dim));
        }
        let wanted = self.selection.cloud.as_ref().unwrap_or(&CloudFields::All);
        if let [only] = from.columns.as_slice() {
            let (_, field) = Path::find(only, fields)?;
            if let DataType::Struct(within) = field.data_type()
                && let Some((CloudType::PointCloud2, _)) = types::cloud(within)
            {
                let cloud = cloud::PointCloud2::ros(&format!("{only}."), fields, wanted)?;
                return Ok(Take::PointCloud2(Box::new(cloud)));
            }
        }
        let paths = from.columns.iter().map(String::as_str);
        Ok(Take::Lists(cloud::Lists::find(paths, fields, wanted)?))
    }

    /// Chooses the parts to read from a recognised struct, and the log line about them. The log line is `None` if the struct
    /// stays unchanged.
    fn take_recognised(&self, fields: &Fields) -> Result<(Take, Option<String>), SelectError> {
        if let Some(dim) = self.selection.samples
            && let Some(known) = types::sample(fields)
        {
            let order = match self.selection.joints.as_slice() {
                [] => &self.names,
                joints => joints,
            };
            let names = known.names.map(|names| Names::find(names, order.to_vec(), fields));
            let velocities = known.velocities.filter(|_| self.selection.velocities);
            let columns: Vec<&str> = known.columns.into_iter().chain(velocities).collect();
            let words = format!("{}: {}", known.name, columns.join(", "));
            let mut samples = samples::Samples::new(columns, names.transpose()?, fields)?;
            if velocities.is_some() {
                samples.let_last_be_empty();
            }
            return Ok((Take::Samples(samples, dim), Some(words)));
        }
        if let Some(wanted) = &self.selection.cloud
            && let Some((known, name)) = types::cloud(fields)
        {
            let take = match known {
                CloudType::PointCloud2 => Take::PointCloud2(Box::new(cloud::PointCloud2::ros("", fields, wanted)?)),
                CloudType::Foxglove => Take::PointCloud2(Box::new(cloud::PointCloud2::foxglove(fields, wanted)?)),
                CloudType::Livox => Take::Lists(cloud::Lists::livox(fields, wanted)?),
                CloudType::Std => Take::Bytes(cloud::Bytes::find(fields)?),
            };
            return Ok((take, Some(format!("{name}: its points"))));
        }
        Ok((Take::Everything, None))
    }
}

impl Plan {
    /// True if `payload` is read as a struct of one row. A struct that is copied unchanged may have any number of rows; its
    /// stamp is read only if it has exactly one row.
    fn needs_a_row(&self, payload: &StructArray) -> bool {
        !matches!(self.take, Take::Everything) || payload.len() == 1 && payload.is_valid(0)
    }

    /// Reads a payload of the type that the plan was made for. If `is_configured`, the stamp of the payload replaces the stamp of
    /// the metadata; else it is used only if the metadata have none.
    fn read(
        &mut self,
        payload: &StructArray,
        array: &ArrayRef,
        is_configured: bool,
        text: Text,
        message: &mut Message,
    ) -> Result<(), MessageError> {
        let header = &mut message.header;
        let is_needed = is_configured || !header.timestamp_ns.is_present();
        let stamp_ns = match self.stamp.as_ref().map(|stamp| stamp.read(payload)) {
            Some(Err(error)) if is_needed => return Err(error.into()),
            stamp_ns => stamp_ns.and_then(Result::ok),
        };
        // A stamp of 0 may mean a missing stamp, so another stamp of the message is preferred.
        let has_other = header.timestamp_ns.is_present();
        if let Some(stamp_ns) = stamp_ns.filter(|&ns| is_needed && !(ns == 0 && has_other)) {
            header.timestamp_ns.set(stamp_ns);
        }
        self.read_frame(payload, header);
        // The times of points count by the clock of the payload's own stamp.
        let stamp_ns = stamp_ns.filter(|&ns| ns != 0);
        let stamp_ns = stamp_ns.or(header.timestamp_ns.get()).unwrap_or(0);
        match &mut self.take {
            Take::Everything => message.copy(array, text)?,
            Take::Samples(samples, dim) => samples.read(payload, *dim, message)?,
            Take::PointCloud2(cloud) => cloud.read(payload, stamp_ns, message)?,
            Take::Lists(lists) => lists.read(payload, stamp_ns, message)?,
            Take::Bytes(bytes) => bytes.read(payload, message)?,
        }
        Ok(())
    }

    fn read_frame(&self, payload: &StructArray, header: &mut Header) {
        if let Some(frame) = self.frame.as_ref().filter(|_| !header.frame_id.is_present())
            && let Ok(frame) = frame.follow(payload)
            && let Some(frame_id) = path::text(&**frame, 0).filter(|text| !text.is_empty())
        {
            header.frame_id.set(frame_id);
        }
    }
}

fn one_row(payload: &StructArray) -> Result<&StructArray, SelectError> {
    let came = match payload.len() {
        1 if payload.is_valid(0) => return Ok(payload),
        1 => "a struct whose row is null".to_owned(),
        rows => format!("a struct of {rows} rows"),
    };
    Err(SelectError::payload(came))
}

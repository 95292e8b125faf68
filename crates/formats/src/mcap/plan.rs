//! Plan for reading the messages of one type: the streams that they become, and the fields that are left out. A plan is made
//! once for the type of a topic's messages.

use super::decoder::Decoder;
use super::image;
use super::stamp::Stamp;
use super::tally::Tally;
use super::types::has_all;
use arrow_schema::{DataType, FieldRef, Fields};
use robocache_stream::{
    CloudFields, FRAMES, FromConfig, NamesConfig, Recognised, Selection, Selector, TimeUnit, recognise,
};

/// Length from which an array becomes a stream of its own, as a list of variable length does.
const LONG: i32 = 64;

/// Name of the field that holds the pose of the sensor, in a message with a point cloud.
const POSE: &str = "pose";

/// Plan for reading the messages of one type: the decoder, the stamp, and the streams.
pub(super) struct Plan {
    pub decoder: Decoder,
    pub stamp: Option<Stamp>,
    /// True if a configuration selects the fields that are read.
    pub is_configured: bool,
    /// True if the configuration names the stamp's field.
    pub is_stamp_configured: bool,
    pub parts: Vec<PlannedStream>,
    /// Path and type of each field that is left out, as text for the user.
    pub left_out: Vec<String>,
}

/// One of the streams that the messages of a topic become, and the counts of its messages.
pub(super) struct PlannedStream {
    /// Suffix of the stream's name after the topic's name, with its dot, such as `.pose`.
    pub suffix: String,
    pub take: Take,
    /// Path of the list or struct from which the stream is made; `None` if the stream is made from the whole message. A message
    /// in which this list or struct is empty gives the stream no sample.
    pub source: Option<String>,
    /// Number of messages that the stream has received so far.
    pub given: u64,
    /// Number of messages so far in which the stream's `source` was empty.
    pub empty: u64,
}

pub(super) enum Take {
    Select(Box<Selector>),
    Image(image::Kind),
    /// Transforms between coordinate frames, with a stream for each pair of frames.
    Transforms(Box<Transforms>),
}

impl Take {
    fn samples(from: Option<FromConfig>) -> Self {
        Self::select(Selection::named_samples(from))
    }

    fn select(selection: Selection) -> Self {
        Self::Select(Box::new(Selector::new(selection)))
    }

    fn selector(&self) -> Option<&Selector> {
        match self {
            Self::Select(selector) => Some(selector),
            Self::Transforms(transforms) => Some(&transforms.selector),
            Self::Image(_) => None,
        }
    }
}

impl PlannedStream {
    /// Lists the losses of the stream so far, such as numbers that were rounded or missing, as lines for the user.
    pub(super) fn losses(&self) -> Vec<String> {
        let Some(selector) = self.take.selector() else {
            return Vec::new();
        };
        let losses = selector.losses();
        let missing = "missing numbers, replaced by NaN:";
        let lines = [(losses.rounded, Tally::ROUNDED), (losses.missing, missing)].into_iter();
        let lines = lines.filter(|((count, _), _)| *count > 0);
        let lines = lines.map(|((count, path), what)| format!("{what} {count}, the first in `{path}`"));
        lines.chain(selector.others()).chain(selector.times()).collect()
    }
}

/// Description of the transforms in a message: the selector of their values, their stamp, and their parent coordinate frame.
pub(super) struct Transforms {
    pub selector: Selector,
    pub stamp: Option<Stamp>,
    /// Path of the string that names the parent coordinate frame.
    pub parent: &'static str,
    /// True if the transforms are the elements of the message's only list; false if the message itself is a transform.
    pub is_list: bool,
}

impl Plan {
    /// Makes the plan for a type. If a configuration gives a `selection`, it alone decides which values are read. `unit` is the
    /// user's unit for stamps that are numbers; `None` to guess the unit.
    pub(super) fn new(decoder: Decoder, selection: Option<&Selection>, unit: Option<TimeUnit>) -> Self {
        let fields = decoder.fields.clone();
        let mut plan = Self {
            decoder,
            stamp: Stamp::of(&fields).map(|stamp| stamp.in_unit(unit)),
            parts: Vec::new(),
            left_out: Vec::new(),
            is_configured: selection.is_some(),
            is_stamp_configured: selection.is_some_and(Selection::has_payload_stamp),
        };
        if plan.is_stamp_configured {
            let number = selection.and_then(Selection::number_stamp);
            plan.stamp = number.and_then(|(path, unit)| Stamp::configured(path, &fields, unit));
        }
        if let Some(selection) = selection {
            plan.push("", Take::select(selection.clone()), None);
        } else if let Some(kind) = image::Kind::of(&fields) {
            plan.push("", Take::Image(kind), None);
        } else if let Some(transforms) = Transforms::of(&fields) {
            plan.push("", Take::Transforms(Box::new(transforms)), None);
        } else {
            let found = Found::of(&fields, plan.stamp.as_ref());
            match recognise(&fields).filter(|known| found.has(known)) {
                Some(Recognised::Cloud) => {
                    plan.push("", Take::select(Selection::cloud(CloudFields::All, None)), None);
                    // The pose is a stream of its own: the points are not moved by it.
                    plan.push_values(&found, &format!(".{POSE}"), Some(POSE));
                }
                Some(Recognised::Sample(taken, names)) => {
                    let list = taken.iter().find(|path| found.lists.iter().any(|list| list == **path));
                    plan.push("", Take::samples(None), list.copied());
                    plan.push_lists(&found, names, |path| !taken.contains(&path));
                    let is_within = |path: &str| taken.iter().any(|taken| is_below(path, taken));
                    let rest = found.values.iter().filter(|(path, _)| !is_within(path));
                    let others = found.others.iter().filter(|(path, _)| Some(path.as_str()) != names);
                    plan.left_out = rest.chain(others).map(|(_, words)| words.clone()).collect();
                }
                None => {
                    plan.push_values(&found, "", None);
                    plan.push_lists(&found, None, |_| true);
                    plan.left_out = found.others.into_iter().map(|(_, words)| words).collect();
                }
            }
        }
        plan
    }

    /// True if the messages hold transforms between coordinate frames, each with a stamp of its own.
    pub(super) fn is_transforms(&self) -> bool {
        matches!(&self.parts[..], [part] if matches!(part.take, Take::Transforms(_)))
    }

    /// Lists, as lines for the user, the streams whose source was empty in some of the `messages` messages read. A stream that
    /// got no message at all is only listed if no other stream got one.
    pub(super) fn empty(&self, messages: u64) -> Vec<String> {
        let is_given = self.parts.iter().any(|part| part.given > 0);
        let is_all = !is_given && self.parts.iter().all(|part| part.empty > 0);
        let is_told = |part: &&PlannedStream| part.empty > 0 && (part.given > 0 || is_all);
        let parts = self.parts.iter().filter(is_told);
        let words = |part: &PlannedStream| {
            let of = part.source.as_deref().unwrap_or("transforms");
            format!(
                "of {messages} messages {} give no sample, as `{of}` is empty",
                part.empty
            )
        };
        parts.map(words).collect()
    }

    /// Lists the point fields of clouds that become no column, as text for the user.
    pub(super) fn fields_left_out(&self) -> Vec<String> {
        let selectors = self.parts.iter().filter_map(|part| part.take.selector());
        selectors.flat_map(Selector::left_out).collect()
    }

    fn push(&mut self, suffix: &str, take: Take, source: Option<&str>) {
        self.parts.push(PlannedStream {
            suffix: suffix.to_owned(),
            take,
            source: source.map(str::to_owned),
            given: 0,
            empty: 0,
        });
    }

    /// Adds a stream of the values in `found`, or only of those at and below the path `below`. Adds nothing if there are
    /// no values.
    fn push_values(&mut self, found: &Found, suffix: &str, below: Option<&str>) {
        let paths = found.values.iter().map(|(path, _)| path);
        let paths = paths.filter(|path| below.is_none_or(|below| is_below(path, below)));
        let paths: Vec<String> = paths.cloned().collect();
        if !paths.is_empty() {
            self.push(suffix, Take::samples(Some(columns(paths, None))), below);
        }
    }

    /// Adds a stream for each list of numbers whose path satisfies `is_wanted`. `names` is the path of the strings that name a
    /// list's elements; `None` if there are no names.
    fn push_lists(&mut self, found: &Found, names: Option<&str>, is_wanted: impl Fn(&str) -> bool) {
        for path in found.lists.iter().filter(|path| is_wanted(path)) {
            let take = Take::samples(Some(columns(vec![path.clone()], names)));
            self.push(&format!(".{path}"), take, Some(path));
        }
    }
}

/// Makes the configuration of a stream that reads these columns. `names` is the path of a list with the names of their values;
/// `None` if the values have no names.
fn columns(columns: Vec<String>, names: Option<&str>) -> FromConfig {
    FromConfig {
        columns,
        names: names.map(|key| NamesConfig {
            key: key.to_owned(),
            // If empty, the order of the first message.
            order: Vec::new(),
        }),
        stamp: None,
    }
}

fn is_below(path: &str, of: &str) -> bool {
    path.strip_prefix(of)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Fields of a message type, with their paths, in three groups: `values`, `lists` and `others`.
#[derive(Default)]
struct Found {
    /// Paths of numbers and of short arrays of numbers, each with a description of its type.
    values: Vec<(String, String)>,
    lists: Vec<String>,
    /// Paths of fields that are not numbers, each with a description of its type.
    others: Vec<(String, String)>,
}

impl Found {
    /// True if the type has all fields of the recognised message `known`. Other types may have some fields with these names.
    /// Always true for a cloud.
    fn has(&self, known: &Recognised) -> bool {
        let paths = || self.values.iter().map(|(path, _)| path).chain(&self.lists);
        match known {
            Recognised::Cloud => true,
            Recognised::Sample(taken, _) => taken.iter().all(|taken| paths().any(|path| is_below(path, taken))),
        }
    }

    fn of(fields: &Fields, stamp: Option<&Stamp>) -> Self {
        let mut found = Self::default();
        fields.iter().for_each(|field| found.add(field.name(), field, stamp));
        found
    }

    fn add(&mut self, path: &str, field: &FieldRef, stamp: Option<&Stamp>) {
        match field.data_type() {
            // The stamp and the frame go to the message's header.
            _ if stamp.is_some_and(|stamp| stamp.is_at(path)) => {}
            DataType::Utf8 if FRAMES.contains(&path) => {}
            DataType::Struct(fields) => {
                for field in fields {
                    self.add(&format!("{path}.{}", field.name()), field, stamp);
                }
            }
            DataType::List(item) | DataType::FixedSizeList(item, LONG..) if item.data_type().is_numeric() => {
                self.lists.push(path.to_owned());
            }
            of => {
                let is_value = match of {
                    DataType::FixedSizeList(item, _) => item.data_type().is_numeric(),
                    one => one.is_numeric(),
                };
                let found = if is_value { &mut self.values } else { &mut self.others };
                found.push((path.to_owned(), format!("`{path}` ({})", words(of))));
            }
        }
    }
}

impl Transforms {
    /// Finds the transforms in messages with these fields; `None` if the messages hold none.
    fn of(fields: &Fields) -> Option<Self> {
        const ROS: [&str; 3] = ["header", "child_frame_id", "transform"];
        const FOXGLOVE: [&str; 5] = [
            "timestamp",
            "parent_frame_id",
            "child_frame_id",
            "translation",
            "rotation",
        ];
        let of_list = match &fields[..] {
            [only] if only.name() == "transforms" => match only.data_type() {
                DataType::List(item) => match item.data_type() {
                    DataType::Struct(within) => Some(within),
                    _ => return None,
                },
                _ => return None,
            },
            _ => None,
        };
        let (within, is_list) = (of_list.unwrap_or(fields), of_list.is_some());
        let (paths, parent) = if is_list && has_all(within, &ROS) {
            (["transform.translation", "transform.rotation"], FRAMES[0])
        } else if has_all(within, &FOXGLOVE) {
            (["translation", "rotation"], "parent_frame_id")
        } else {
            return None;
        };
        let from = columns(paths.map(str::to_owned).to_vec(), None);
        Some(Self {
            selector: Selector::new(Selection::named_samples(Some(from))),
            stamp: Stamp::of(within),
            parent,
            is_list,
        })
    }
}

/// Formats a type for the user, such as `list of structs`.
fn words(data_type: &DataType) -> String {
    match data_type {
        DataType::Utf8 => "text".to_owned(),
        DataType::Binary => "bytes".to_owned(),
        DataType::Null => "nested without end".to_owned(),
        DataType::Struct(_) => "structs".to_owned(),
        DataType::List(item) if item.data_type().is_null() => "nested lists".to_owned(),
        DataType::List(item) => format!("list of {}", words(item.data_type())),
        DataType::FixedSizeList(item, size) => format!("{size} {}", words(item.data_type())),
        other => other.to_string().to_lowercase(),
    }
}

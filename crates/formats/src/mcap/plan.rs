//! Plan for the messages of a type: the streams that they become, and the parts that are left out.

use super::decoder::Decoder;
use super::image;
use super::stamp::Stamp;
use super::tally::Tally;
use super::types::has_all;
use arrow_schema::{DataType, FieldRef, Fields};
use robocache_stream::{
    CloudFields, FRAMES, FromConfig, NamesConfig, Recognised, Selection, Selector, TimeUnit, recognise,
};

/// An array of more elements than this has a stream of its own, as lists of any length have.
const LONG: i32 = 64;

/// Field with the sensor's pose, from which the points of a cloud come.
const POSE: &str = "pose";

/// Use of the messages of a type.
pub(super) struct Plan {
    pub decoder: Decoder,
    pub stamp: Option<Stamp>,
    /// True if a configuration says what is taken.
    pub is_configured: bool,
    /// True if the configuration says where the stamp stands: then it is read with the rest.
    pub is_stamp_said: bool,
    pub parts: Vec<Part>,
    /// Parts that are left out, in words.
    pub left_out: Vec<String>,
}

/// A stream that messages become.
pub(super) struct Part {
    /// Suffix of the topic's name, behind a dot.
    pub suffix: String,
    pub take: Take,
    /// Source of the stream: the path of a list, or of a struct. Where that is empty, there is no message.
    pub source: Option<String>,
    /// Number of messages that it has given, and of those whose source was empty.
    pub given: u64,
    pub empty: u64,
}

pub(super) enum Take {
    Select(Box<Selector>),
    Image(image::Kind),
    /// Poses, each a stream by the names of its frames.
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

impl Part {
    /// Numbers that could not be taken as they are, in words.
    pub(super) fn losses(&self) -> Vec<String> {
        let Some(selector) = self.take.selector() else {
            return Vec::new();
        };
        let losses = selector.losses();
        let missing = "numbers that are not there, for which NaN stands:";
        let lines = [(losses.rounded, Tally::ROUNDED), (losses.missing, missing)].into_iter();
        let lines = lines.filter(|((count, _), _)| *count > 0);
        let lines = lines.map(|((count, path), what)| format!("{what} {count}, the first in `{path}`"));
        lines.chain(selector.others()).chain(selector.times()).collect()
    }
}

/// Use of transforms.
pub(super) struct Transforms {
    pub selector: Selector,
    pub stamp: Option<Stamp>,
    /// Path of the name of the parent frame.
    pub parent: &'static str,
    /// True if they are the elements of the only list of a message.
    pub is_list: bool,
}

impl Plan {
    /// The plan for a type; `selection` is the configuration's selection of it, `unit` that of stamps which are numbers.
    pub(super) fn new(decoder: Decoder, selection: Option<&Selection>, unit: Option<TimeUnit>) -> Self {
        let fields = decoder.fields.clone();
        let mut plan = Self {
            decoder,
            stamp: Stamp::of(&fields).map(|stamp| stamp.in_unit(unit)),
            parts: Vec::new(),
            left_out: Vec::new(),
            is_configured: selection.is_some(),
            is_stamp_said: selection.is_some_and(Selection::has_payload_stamp),
        };
        if plan.is_stamp_said {
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
                    // The pose of a cloud, which its points are not moved by.
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

    /// True if each message holds several, with stamps of their own.
    pub(super) fn is_transforms(&self) -> bool {
        matches!(&self.parts[..], [part] if matches!(part.take, Take::Transforms(_)))
    }

    /// Streams that lack some of the `messages` because their source was empty, in words. If others have a value, a
    /// list that is empty in all messages is not reported.
    pub(super) fn empty(&self, messages: u64) -> Vec<String> {
        let is_given = self.parts.iter().any(|part| part.given > 0);
        let is_all = !is_given && self.parts.iter().all(|part| part.empty > 0);
        let is_told = |part: &&Part| part.empty > 0 && (part.given > 0 || is_all);
        let parts = self.parts.iter().filter(is_told);
        let words = |part: &Part| {
            let of = part.source.as_deref().unwrap_or("transforms");
            format!(
                "of {messages} messages {} give no sample, as `{of}` is empty",
                part.empty
            )
        };
        parts.map(words).collect()
    }

    /// The fields of clouds that are in no column.
    pub(super) fn fields_left_out(&self) -> Vec<String> {
        let selectors = self.parts.iter().filter_map(|part| part.take.selector());
        selectors.flat_map(Selector::left_out).collect()
    }

    fn push(&mut self, suffix: &str, take: Take, source: Option<&str>) {
        self.parts.push(Part {
            suffix: suffix.to_owned(),
            take,
            source: source.map(str::to_owned),
            given: 0,
            empty: 0,
        });
    }

    /// The values below a path, or all of them, as a stream.
    fn push_values(&mut self, found: &Found, suffix: &str, below: Option<&str>) {
        let paths = found.values.iter().map(|(path, _)| path);
        let paths = paths.filter(|path| below.is_none_or(|below| is_below(path, below)));
        let paths: Vec<String> = paths.cloned().collect();
        if !paths.is_empty() {
            self.push(suffix, Take::samples(Some(columns(paths, None))), below);
        }
    }

    /// Lists of numbers, each a stream.
    fn push_lists(&mut self, found: &Found, names: Option<&str>, is_wanted: impl Fn(&str) -> bool) {
        for path in found.lists.iter().filter(|path| is_wanted(path)) {
            let take = Take::samples(Some(columns(vec![path.clone()], names)));
            self.push(&format!(".{path}"), take, Some(path));
        }
    }
}

/// These columns, whose values have the names in a list.
fn columns(columns: Vec<String>, names: Option<&str>) -> FromConfig {
    FromConfig {
        columns,
        names: names.map(|key| NamesConfig {
            key: key.to_owned(),
            // In the order of the first message.
            order: Vec::new(),
        }),
        stamp: None,
    }
}

fn is_below(path: &str, of: &str) -> bool {
    path.strip_prefix(of)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The parts of a type, by their paths.
#[derive(Default)]
struct Found {
    /// Numbers and short arrays of them, with what they are in words.
    values: Vec<(String, String)>,
    lists: Vec<String>,
    /// Fields that are not numbers.
    others: Vec<(String, String)>,
}

impl Found {
    /// True if all parts of a sample are there: other types have fields of the same names.
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
            // They become the stamp and the frame of the message.
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
    /// Transforms in messages of these fields, if there are any.
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

/// A type in words.
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

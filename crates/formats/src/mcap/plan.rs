//! What is taken of the messages of a type: which streams they become, and what is left out.

use super::decoder::Decoder;
use super::image;
use super::stamp::Stamp;
use super::tally::Tally;
use super::types::{Type, has_all};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, StructArray};
use arrow_schema::{DataType, FieldRef, Fields};
use robocache_stream::{FRAMES, FromConfig, NamesConfig, Reading, Recognised, Selector, Wanted, recognise};
use std::sync::Arc;

/// An array of more elements than this has a stream of its own, as lists of any length have.
const LONG: i32 = 64;

/// Where the points of a cloud come from, in its frame.
const POSE: &str = "pose";

/// What is done with messages of a type.
pub(super) struct Plan {
    pub of: Arc<Type>,
    pub decoder: Decoder,
    pub fields: Fields,
    pub stamp: Option<Stamp>,
    pub parts: Vec<Part>,
    /// What is left out, in words.
    pub left_out: Vec<String>,
}

/// A stream that messages become.
pub(super) struct Part {
    /// What stands behind the name of the topic, with a dot before it.
    pub suffix: String,
    pub take: Take,
    /// What it is made of: a list, or a struct. Where that is empty, there is no message.
    pub source: Option<String>,
    /// How many messages it has given, and of how many its source was empty.
    pub given: u64,
    pub empty: u64,
}

pub(super) enum Take {
    Select(Box<Selector>),
    Image(image::Kind),
    /// Poses, each a stream by the names of its frames.
    Transforms(Box<Transforms>),
}

impl Part {
    /// What of its numbers could not be taken as they are, in words.
    pub fn losses(&self) -> Vec<String> {
        let losses = match &self.take {
            Take::Select(selector) => selector.losses(),
            Take::Transforms(transforms) => transforms.selector.losses(),
            Take::Image(_) => return Vec::new(),
        };
        let others = match &self.take {
            Take::Select(selector) => selector.others(),
            _ => None,
        };
        let line = |(count, path): (u64, &str), what: &str| {
            (count > 0).then(|| format!("{what} {count}, the first in `{path}`"))
        };
        let rounded = line(losses.rounded, Tally::ROUNDED);
        let missing = line(losses.missing, "numbers that are not there, for which NaN stands:");
        rounded.into_iter().chain(missing).chain(others).collect()
    }
}

/// What is taken of transforms.
pub(super) struct Transforms {
    pub selector: Selector,
    pub stamp: Option<Stamp>,
    /// Where the name of the parent frame stands.
    pub parent: &'static str,
    /// Whether they are the elements of the only list of a message.
    pub is_list: bool,
}

impl Plan {
    /// That of a type; `reading` is what a configuration wants of it.
    pub fn new(of: Arc<Type>, decoder: Decoder, reading: Option<&Reading>) -> Self {
        let fields = of.arrow_fields();
        let mut plan = Self {
            of,
            decoder,
            fields: fields.clone(),
            stamp: Stamp::of(&fields),
            parts: Vec::new(),
            left_out: Vec::new(),
        };
        let select = |from| Take::Select(Box::new(Selector::new(Reading::named_samples(from))));
        if let Some(reading) = reading {
            plan.push("", Take::Select(Box::new(Selector::new(reading.clone()))), None);
        } else if let Some(kind) = image::Kind::of(&fields) {
            plan.push("", Take::Image(kind), None);
        } else if let Some(transforms) = Transforms::of(&fields) {
            plan.push("", Take::Transforms(Box::new(transforms)), None);
        } else {
            let found = Found::of(&fields, plan.stamp.as_ref());
            match recognise(&fields).filter(|known| found.has(known)) {
                Some(Recognised::Cloud) => {
                    let selector = Selector::new(Reading::cloud(Wanted::Every, None));
                    plan.push("", Take::Select(Box::new(selector)), None);
                    plan.push_pose(&found);
                }
                Some(Recognised::Sample(taken, names)) => {
                    let list = taken.iter().find(|path| found.lists.iter().any(|list| list == **path));
                    plan.push("", select(None), list.map(|&list| list.to_owned()));
                    plan.push_lists(&found, names, |path| !taken.contains(&path));
                    let is_within = |path: &str| taken.iter().any(|taken| is_below(path, taken));
                    let rest = found.values.iter().filter(|(path, _)| !is_within(path));
                    let others = found.others.iter().filter(|(path, _)| Some(path.as_str()) != names);
                    plan.left_out = rest.chain(others).map(|(_, words)| words.clone()).collect();
                }
                None => {
                    if !found.values.is_empty() {
                        let paths = found.values.iter().map(|(path, _)| path.clone()).collect();
                        plan.push("", select(Some(columns(paths, None))), None);
                    }
                    plan.push_lists(&found, None, |_| true);
                    plan.left_out = found.others.into_iter().map(|(_, words)| words).collect();
                }
            }
        }
        plan
    }

    /// Whether each message holds several, with stamps of their own.
    pub fn is_transforms(&self) -> bool {
        matches!(
            self.parts.as_slice(),
            [Part {
                take: Take::Transforms(_),
                ..
            }]
        )
    }

    /// Of which of so many messages a stream has none as what it is made of is empty, in words. Where others have a value, a
    /// list that is empty in all messages is not used.
    pub fn empty(&self, messages: u64) -> Vec<String> {
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
    pub fn fields_left_out(&self) -> Vec<String> {
        let left_out = self.parts.iter().map(|part| match &part.take {
            Take::Select(selector) => selector.left_out(),
            Take::Image(_) | Take::Transforms(_) => Vec::new(),
        });
        left_out.flatten().collect()
    }

    fn push(&mut self, suffix: &str, take: Take, source: Option<String>) {
        self.parts.push(Part {
            suffix: suffix.to_owned(),
            take,
            source,
            given: 0,
            empty: 0,
        });
    }

    /// The pose of a cloud, which its points are not moved by.
    fn push_pose(&mut self, found: &Found) {
        let of_pose = |(path, _): &(String, String)| is_below(path, POSE).then(|| path.clone());
        let paths: Vec<String> = found.values.iter().filter_map(of_pose).collect();
        if !paths.is_empty() {
            let selector = Selector::new(Reading::named_samples(Some(columns(paths, None))));
            let take = Take::Select(Box::new(selector));
            self.push(&format!(".{POSE}"), take, Some(POSE.to_owned()));
        }
    }

    /// Lists of numbers, each a stream.
    fn push_lists(&mut self, found: &Found, names: Option<&str>, is_wanted: impl Fn(&str) -> bool) {
        for path in found.lists.iter().filter(|path| is_wanted(path)) {
            let from = columns(vec![path.clone()], names);
            let selector = Selector::new(Reading::named_samples(Some(from)));
            self.push(
                &format!(".{path}"),
                Take::Select(Box::new(selector)),
                Some(path.clone()),
            );
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
    /// What is no number.
    others: Vec<(String, String)>,
}

impl Found {
    /// Whether all is there that a sample is made of: other types have fields of the same names.
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
            DataType::FixedSizeList(item, size) if item.data_type().is_numeric() => {
                self.values.push((
                    path.to_owned(),
                    format!("`{path}` ({size} {})", words(item.data_type())),
                ));
            }
            one if one.is_numeric() => self
                .values
                .push((path.to_owned(), format!("`{path}` ({})", words(one)))),
            other => self
                .others
                .push((path.to_owned(), format!("`{path}` ({})", words(other)))),
        }
    }
}

impl Transforms {
    /// Those of messages of these fields, if they are transforms.
    fn of(fields: &Fields) -> Option<Self> {
        const ROS: ([&str; 3], [&str; 2], &str) = (
            ["header", "child_frame_id", "transform"],
            ["transform.translation", "transform.rotation"],
            FRAMES[0],
        );
        const FOXGLOVE: ([&str; 5], [&str; 2], &str) = (
            [
                "timestamp",
                "parent_frame_id",
                "child_frame_id",
                "translation",
                "rotation",
            ],
            ["translation", "rotation"],
            "parent_frame_id",
        );
        let (within, is_list) = match &fields[..] {
            [only] if only.name() == "transforms" => match only.data_type() {
                DataType::List(item) => match item.data_type() {
                    DataType::Struct(within) => (within, true),
                    _ => return None,
                },
                _ => return None,
            },
            _ => (fields, false),
        };
        let (paths, parent) = match (has_all(within, &ROS.0), has_all(within, &FOXGLOVE.0)) {
            (true, _) if is_list => (ROS.1, ROS.2),
            (_, true) => (FOXGLOVE.1, FOXGLOVE.2),
            _ => return None,
        };
        let from = columns(paths.map(str::to_owned).to_vec(), None);
        Some(Self {
            selector: Selector::new(Reading::named_samples(Some(from))),
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

/// The text at a path. `None` where there is none.
pub(super) fn text<'a>(of: &'a StructArray, path: &str) -> Option<&'a str> {
    let (name, within) = match path.split_once('.') {
        Some((outer, name)) => (name, of.column_by_name(outer)?.as_struct_opt()?),
        None => (path, of),
    };
    let texts = within.column_by_name(name)?.as_string_opt::<i32>()?;
    (texts.len() > 0).then(|| texts.value(0))
}

/// Whether there is nothing at a path: a list without elements, or a struct without values.
pub(super) fn is_empty(payload: &StructArray, path: &str) -> bool {
    fn has_nothing(column: &ArrayRef) -> bool {
        match (column.as_struct_opt(), column.as_list_opt::<i32>()) {
            (Some(inner), _) => inner.columns().iter().all(has_nothing),
            (_, Some(list)) => list.value_length(0) == 0,
            _ => column.is_null(0),
        }
    }
    let (mut steps, mut at) = (path.split('.').peekable(), payload);
    while let Some(step) = steps.next() {
        let Some(column) = at.column_by_name(step) else {
            return false;
        };
        match (steps.peek(), column.as_struct_opt()) {
            (Some(_), Some(inner)) => at = inner,
            _ => return has_nothing(column),
        }
    }
    false
}

/// The coordinate frame of a message.
pub(super) fn frame(payload: &StructArray) -> Option<&str> {
    let mut texts = FRAMES.into_iter().filter_map(|path| text(payload, path));
    texts.find(|frame| !frame.is_empty())
}

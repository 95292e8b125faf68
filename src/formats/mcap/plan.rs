//! What is taken of the messages of a type: which streams they become, and what is left out.

use super::image;
use super::types::Type;
use crate::arrow::array::{Array, AsArray, StructArray};
use crate::arrow::datatypes::{DataType, FieldRef, Fields, Int32Type, UInt32Type};
use crate::stream::{FromConfig, NamesConfig, Reading, Recognised, Selector, Wanted, recognise};
use std::sync::Arc;

/// An array of more elements than this has a stream of its own, as lists of any length have.
const LONG: i32 = 64;

/// What ROS calls the coordinate frame.
const FRAME: &str = "frame_id";

/// What is done with messages of a type.
pub(super) struct Plan {
    pub of: Arc<Type>,
    pub fields: Fields,
    pub parts: Vec<Part>,
    /// What is left out, in words.
    pub left_out: Vec<String>,
}

/// A stream that messages become.
pub(super) struct Part {
    /// What stands behind the name of the topic, with a dot before it.
    pub suffix: String,
    pub take: Take,
    /// The list that it is made of: where that is empty, there is no message.
    pub list: Option<String>,
}

pub(super) enum Take {
    Select(Box<Selector>),
    Image(image::Kind),
    /// A pose for each element of `transforms`, each a stream by the names of its frames.
    Transforms(Box<Selector>),
}

impl Plan {
    /// That of a type; `reading` is what a configuration wants of it.
    pub fn new(of: Arc<Type>, reading: Option<&Reading>) -> Self {
        let fields = of.arrow_fields();
        let mut plan = Self {
            of,
            fields: fields.clone(),
            parts: Vec::new(),
            left_out: Vec::new(),
        };
        let select = |from| Take::Select(Box::new(Selector::new(Reading::named_samples(from))));
        let transform = ["transform.translation", "transform.rotation"].map(str::to_owned);
        if let Some(reading) = reading {
            plan.push("", Take::Select(Box::new(Selector::new(reading.clone()))), None);
        } else if let Some(kind) = image::Kind::of(&fields) {
            plan.push("", Take::Image(kind), None);
        } else if is_transforms(&fields) {
            let selector = Selector::new(Reading::named_samples(Some(columns(transform.to_vec(), None))));
            plan.push("", Take::Transforms(Box::new(selector)), None);
        } else {
            let found = Found::of(&fields);
            match recognise(&fields).filter(|known| found.has(known)) {
                Some(Recognised::Cloud) => {
                    let selector = Selector::new(Reading::cloud(Wanted::Every, None));
                    plan.push("", Take::Select(Box::new(selector)), None);
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

    fn push(&mut self, suffix: &str, take: Take, list: Option<String>) {
        self.parts.push(Part {
            suffix: suffix.to_owned(),
            take,
            list,
        });
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

    fn of(fields: &Fields) -> Self {
        let mut found = Self::default();
        for field in fields {
            // It becomes the stamp and the frame of the message.
            if !is_header(field) {
                found.add(field.name(), field);
            }
        }
        found
    }

    fn add(&mut self, path: &str, field: &FieldRef) {
        match field.data_type() {
            DataType::Struct(fields) => {
                for field in fields {
                    self.add(&format!("{path}.{}", field.name()), field);
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

fn is_header(field: &FieldRef) -> bool {
    match field.data_type() {
        DataType::Struct(parts) => {
            field.name() == "header" && parts.iter().map(|part| part.name().as_str()).eq(["stamp", FRAME])
        }
        _ => false,
    }
}

fn is_transforms(fields: &Fields) -> bool {
    let [only] = &fields[..] else { return false };
    let DataType::List(item) = only.data_type() else {
        return false;
    };
    let DataType::Struct(parts) = item.data_type() else {
        return false;
    };
    only.name() == "transforms"
        && parts
            .iter()
            .map(|part| part.name().as_str())
            .eq(["header", "child_frame_id", "transform"])
}

/// A type in words.
fn words(data_type: &DataType) -> String {
    match data_type {
        DataType::Utf8 => "text".to_owned(),
        DataType::Struct(_) => "structs".to_owned(),
        DataType::List(item) => format!("list of {}", words(item.data_type())),
        DataType::FixedSizeList(item, size) => format!("{size} {}", words(item.data_type())),
        other => other.to_string().to_lowercase(),
    }
}

/// The stamp in the header of a message, ns. `None` where there is none, or it is zero.
pub(super) fn stamp(payload: &StructArray) -> Option<i64> {
    let stamp = payload
        .column_by_name("header")?
        .as_struct_opt()?
        .column_by_name("stamp")?
        .as_struct_opt()?;
    let sec = stamp.column_by_name("sec")?.as_primitive_opt::<Int32Type>()?.value(0);
    let nanosec = stamp
        .column_by_name("nanosec")?
        .as_primitive_opt::<UInt32Type>()?
        .value(0);
    let is_usable = nanosec < 1_000_000_000 && (sec, nanosec) != (0, 0);
    is_usable.then(|| i64::from(sec) * 1_000_000_000 + i64::from(nanosec))
}

/// The text of a field of a struct.
pub(super) fn text<'a>(of: &'a StructArray, name: &str) -> Option<&'a str> {
    let texts = of.column_by_name(name)?.as_string_opt::<i32>()?;
    (texts.len() > 0).then(|| texts.value(0))
}

/// Whether the list at a path has no elements.
pub(super) fn is_empty(payload: &StructArray, path: &str) -> bool {
    let (mut steps, mut at) = (path.split('.').peekable(), payload);
    while let Some(step) = steps.next() {
        let Some(column) = at.column_by_name(step) else {
            return false;
        };
        match (steps.peek(), column.as_struct_opt()) {
            (Some(_), Some(inner)) => at = inner,
            _ => {
                return column
                    .as_list_opt::<i32>()
                    .is_some_and(|list| list.value_length(0) == 0);
            }
        }
    }
    false
}

/// The frame in the header of a message.
pub(super) fn frame(payload: &StructArray) -> Option<&str> {
    text(payload.column_by_name("header")?.as_struct_opt()?, FRAME).filter(|frame| !frame.is_empty())
}

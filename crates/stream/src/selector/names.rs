//! Selection of list elements by their names, such as the names of joints.
//!
//! The elements are found by their names in every message, so that a sender may change their order. A message that lacks a name
//! is refused.

use super::SelectError;
use super::path::{Path, is_text, item_of, text};
use arrow_array::{ArrayRef, StructArray};
use arrow_schema::{DataType, Fields};
use std::ops::Range;

/// Number of messages with names that the first message did not have, and up to 64 of these names.
#[derive(Debug, Default)]
pub(super) struct NewNames {
    messages: u64,
    names: Vec<String>,
}

impl NewNames {
    /// Greatest number of new names that are stored, so that a sender can't fill the memory.
    const MOST: usize = 64;

    /// Counts a message that has these new names.
    pub(super) fn add<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        self.messages += 1;
        for name in names {
            if self.names.len() < Self::MOST && !self.names.iter().any(|known| known == name) {
                self.names.push(name.to_owned());
            }
        }
    }

    /// Describes the counted messages in a line: their number, the text `what`, and the new names. Returns `None` if no message
    /// was counted.
    pub(super) fn line(&self, what: &str) -> Option<String> {
        let names: Vec<String> = self.names.iter().map(|name| format!("`{name}`")).collect();
        let new = match names.is_empty() {
            true => String::new(),
            false => format!(": {}", names.join(", ")),
        };
        (self.messages > 0).then(|| format!("{} messages {what}{new}", self.messages))
    }
}

/// Names of the elements of a message's lists, and the choice of the elements to read.
#[derive(Debug)]
pub(super) struct Names {
    path: Path,
    /// Names of the elements to read; empty until the first message gives them.
    order: Vec<String>,
    /// Names of all elements in the last message.
    last: Vec<String>,
    /// Index in `last` of each name in `order`.
    places: Vec<usize>,
    /// True if `places` is up to date with `order` and `last`.
    has_places: bool,
    /// True if the first message decides which elements are read. Messages with more elements are then counted in `others`.
    is_of_first: bool,
    others: NewNames,
}

impl Names {
    /// Finds the list of names at `path` in a struct with these `fields`. The elements of `order` are read or, if `order` is
    /// empty, all elements of the first message.
    pub(super) fn find(path: &str, order: Vec<String>, fields: &Fields) -> Result<Self, SelectError> {
        let is_list = |data_type: &DataType| item_of(data_type).is_some_and(|item| is_text(item.data_type()));
        let (path, _) = Path::typed(path, fields, is_list, "a list of texts")?;
        Ok(Self {
            path,
            is_of_first: order.is_empty(),
            others: NewNames::default(),
            order,
            last: Vec::new(),
            places: Vec::new(),
            has_places: false,
        })
    }

    /// The path of the list of names.
    pub(super) fn key(&self) -> &str {
        self.path.text()
    }

    /// The names of the elements to read, in the order of the values; empty until a message gives them.
    pub(super) fn order(&self) -> &[String] {
        &self.order
    }

    /// Finds the elements to read in the lists of a message, and sets `last` and `places`. Fails if one of these elements
    /// is missing.
    pub(super) fn look(&mut self, payload: &StructArray) -> Result<(), SelectError> {
        let (values, range) = self.path.list(payload)?;
        let is_last = self.has_places
            && range.len() == self.last.len()
            && (range.clone().zip(&self.last)).all(|(i, last)| text(&**values, i) == Some(last.as_str()));
        if !is_last {
            self.has_places = false;
            self.places.clear();
            self.remember(values, range)?;
            let order = match self.order.as_slice() {
                [] => &self.last,
                order => order,
            };
            for name in order {
                self.places.push(self.place(name)?);
            }
            self.has_places = true;
        }
        Ok(())
    }

    /// Sets `order`, if it is empty, to the names of the last message. Counts the message if it has names that the first
    /// message did not have.
    pub(super) fn keep(&mut self) {
        if self.order.is_empty() {
            self.order.clone_from(&self.last);
        }
        // Each name of `order` is in `last` once, so more names are new names.
        if self.is_of_first && self.last.len() > self.order.len() {
            let order = &self.order;
            let is_new = |name: &&str| !order.iter().any(|known| known == name);
            self.others.add(self.last.iter().map(String::as_str).filter(is_new));
        }
    }

    /// Describes how many messages have elements that the first message did not have; `None` if no message has any.
    pub(super) fn others(&self) -> Option<String> {
        let what = format!(
            "have names in `{}` that the first did not have, whose values are left out",
            self.key()
        );
        self.others.line(&what)
    }

    /// The number of names in the last message.
    pub(super) fn len(&self) -> usize {
        self.last.len()
    }

    /// Indices, in the lists of the last message, of the elements to read.
    pub(super) fn places(&self) -> &[usize] {
        &self.places
    }

    fn remember(&mut self, values: &ArrayRef, range: Range<usize>) -> Result<(), SelectError> {
        self.last.resize_with(range.len(), String::new);
        for (number, (to, i)) in self.last.iter_mut().zip(range).enumerate() {
            to.clear();
            let null = || SelectError::value(format!("{}[{number}]", self.path.text()), "null", "a name");
            to.push_str(text(&**values, i).ok_or_else(null)?);
        }
        Ok(())
    }

    fn place(&self, name: &String) -> Result<usize, SelectError> {
        let mut places = (0..self.last.len()).filter(|&i| self.last[i] == *name);
        match (places.next(), places.next()) {
            (Some(place), None) => Ok(place),
            (None, _) => {
                let there = self.last.iter().map(String::as_str);
                Err(SelectError::missing(name, &format!("`{}`", self.key()), there))
            }
            _ => {
                let came = format!("a list with `{name}` twice");
                Err(SelectError::value(self.key(), came, "each name once"))
            }
        }
    }
}

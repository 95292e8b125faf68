//! Elements of lists by name.

use super::path::{List, Path, is_text, text};
use super::{NamesConfig, SelectError};
use arrow_array::{ArrayRef, StructArray};
use arrow_schema::Fields;
use std::ops::Range;

/// Messages that have names which the first did not have.
#[derive(Debug, Default)]
pub(super) struct Others {
    messages: u64,
    names: Vec<String>,
}

impl Others {
    const MOST: usize = 64;

    /// Counts a message with such names.
    pub fn add<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        self.messages += 1;
        for name in names {
            if self.names.len() < Self::MOST && !self.names.iter().any(|known| known == name) {
                self.names.push(name.to_owned());
            }
        }
    }

    /// How many messages there are and what is wrong with them, if there are any.
    pub fn line(&self, what: &str) -> Option<String> {
        let names: Vec<String> = self.names.iter().map(|name| format!("`{name}`")).collect();
        let new = match names.is_empty() {
            true => String::new(),
            false => format!(": {}", names.join(", ")),
        };
        (self.messages > 0).then(|| format!("{} messages {what}{new}", self.messages))
    }
}

/// Which elements of a list have which names.
#[derive(Debug)]
pub(super) struct Names {
    path: Path,
    list: List,
    /// The names of the elements that are taken. Empty until a message has said which there are.
    order: Vec<String>,
    /// The names in the last message, and where in it those of `order` are.
    last: Vec<String>,
    places: Vec<usize>,
    is_known: bool,
    /// Whether the first message says which elements are taken; then the messages with more.
    is_of_first: bool,
    others: Others,
}

impl Names {
    /// Those of a configuration.
    pub fn find(config: &NamesConfig, fields: &Fields) -> Result<Self, SelectError> {
        Self::new(&config.key, config.order.clone(), fields)
    }

    /// Those of the first message, in its order: of one of another type, `order`, where there was such a one.
    pub fn as_they_come(path: &str, order: Vec<String>, fields: &Fields) -> Result<Self, SelectError> {
        Self::new(path, order, fields)
    }

    fn new(path: &str, order: Vec<String>, fields: &Fields) -> Result<Self, SelectError> {
        let (path, field) = Path::find(path, fields)?;
        match List::of(field.data_type()) {
            Some((list, item)) if is_text(item.data_type()) => Ok(Self {
                path,
                list,
                is_of_first: order.is_empty(),
                others: Others::default(),
                order,
                last: Vec::new(),
                places: Vec::new(),
                is_known: false,
            }),
            _ => Err(SelectError::value(path.text(), field.data_type(), "a list of texts")),
        }
    }

    /// The path of the names.
    pub fn key(&self) -> &str {
        self.path.text()
    }

    /// The names of the elements that are taken, as far as they are known.
    pub fn order(&self) -> &[String] {
        &self.order
    }

    /// Finds the elements that are taken in a message.
    pub fn look(&mut self, payload: &StructArray) -> Result<(), SelectError> {
        let array = self.path.follow(payload)?;
        let (values, range) = self.list.first_row(array).ok_or_else(|| self.path.is_null())?;
        let is_last = self.is_known
            && range.len() == self.last.len()
            && (range.clone().zip(&self.last)).all(|(i, last)| text(&**values, i) == Some(last.as_str()));
        if !is_last {
            self.is_known = false;
            self.places.clear();
            self.remember(values, range)?;
            let order = match self.order.as_slice() {
                [] => &self.last,
                order => order,
            };
            for name in order {
                self.places.push(self.place(name)?);
            }
            self.is_known = true;
        }
        Ok(())
    }

    /// Takes the names of the message that was looked at last in later ones, too, if nothing has said yet which.
    pub fn keep(&mut self) {
        if self.order.is_empty() {
            self.order.clone_from(&self.last);
        }
        // Each name that is taken is there once.
        if self.is_of_first && self.last.len() > self.order.len() {
            let order = &self.order;
            let is_new = |name: &&str| !order.iter().any(|known| known == name);
            self.others.add(self.last.iter().map(String::as_str).filter(is_new));
        }
    }

    /// How many messages have elements that the first did not have, in words.
    pub fn others(&self) -> Option<String> {
        let what = format!(
            "have names in `{}` that the first did not have, whose values are left out",
            self.key()
        );
        self.others.line(&what)
    }

    /// How many names the message has.
    pub fn len(&self) -> usize {
        self.last.len()
    }

    /// Where the elements that are taken are in a list of the message.
    pub fn places(&self) -> &[usize] {
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
            (None, _) => Err(SelectError::Missing {
                path: name.clone(),
                within: format!("`{}`", self.key()),
                there: self.last.clone(),
            }),
            _ => Err(SelectError::value(
                self.key(),
                format!("a list with `{name}` twice"),
                "each name once",
            )),
        }
    }
}

//! Parser of JSON as other programs write it: Python's `NaN` and `Infinity` are numbers, and a JSON object may have a key several
//! times.

/// Greatest depth to which lists and objects may be nested.
const DEEPEST: usize = 128;

/// A JSON value. The entries of an object keep their order, and a repeated key keeps all its entries.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum JsonValue {
    Null,
    Bool(bool),
    Whole(i128),
    Float(f64),
    Text(String),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl JsonValue {
    /// Parses a JSON text.
    ///
    /// # Errors
    /// The text is not JSON, has a number beyond float64, or nests lists and objects more than 128 deep.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { text, at: 0 };
        let value = parser.value(0)?;
        match parser.peek() {
            None => Ok(value),
            Some(_) => parser.missing("end"),
        }
    }

    /// The first value of a key, if the value is an object that has the key; else `None`.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(entries) => entries.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// The text, if the value is a text; else `None`.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The items, if the value is a list; else an empty slice.
    pub fn list(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    /// The kind of the value in words, for an error.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Whole(_) | Self::Float(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn value(&mut self, depth: usize) -> Result<JsonValue, String> {
        if depth > DEEPEST {
            return self.missing(&format!(
                "room for lists and objects more than {DEEPEST} deep in each other"
            ));
        }
        match self.peek() {
            Some('{') => {
                let mut entries = Vec::new();
                self.items('{', '}', |parser| {
                    let key = parser.string()?;
                    parser.take(':')?;
                    entries.push((key, parser.value(depth + 1)?));
                    Ok(())
                })?;
                Ok(JsonValue::Object(entries))
            }
            Some('[') => {
                let mut items = Vec::new();
                self.items('[', ']', |parser| {
                    items.push(parser.value(depth + 1)?);
                    Ok(())
                })?;
                Ok(JsonValue::List(items))
            }
            Some('"') => self.string().map(JsonValue::Text),
            _ => self.word_or_number(),
        }
    }

    fn word_or_number(&mut self) -> Result<JsonValue, String> {
        let words = [
            ("true", JsonValue::Bool(true)),
            ("false", JsonValue::Bool(false)),
            ("null", JsonValue::Null),
            ("NaN", JsonValue::Float(f64::NAN)),
            ("Infinity", JsonValue::Float(f64::INFINITY)),
            ("-Infinity", JsonValue::Float(f64::NEG_INFINITY)),
        ];
        let rest = &self.text[self.at..];
        if let Some((word, value)) = words.into_iter().find(|(word, _)| rest.starts_with(word)) {
            self.at += word.len();
            return Ok(value);
        }
        let end = rest.find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'));
        let digits = &rest[..end.unwrap_or(rest.len())];
        let whole = digits.parse().map(JsonValue::Whole);
        let number = match whole.or_else(|_| digits.parse().map(JsonValue::Float)) {
            Ok(JsonValue::Float(infinite)) if infinite.is_infinite() => {
                return Err(format!("the number {digits} is beyond the range of float64"));
            }
            Ok(number) => number,
            Err(_) => return self.missing("value"),
        };
        self.at += digits.len();
        Ok(number)
    }

    /// Skips white space, and returns the next character, which stays unread; `None` at the end of the text.
    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
        self.text[self.at..].chars().next()
    }

    /// Returns the error that `wanted` is missing at the parser's position.
    fn missing<T>(&self, wanted: &str) -> Result<T, String> {
        Err(format!("no {wanted} at byte {} of the text", self.at))
    }

    /// Skips white space, and then the character `wanted`, which must come next.
    fn take(&mut self, wanted: char) -> Result<(), String> {
        if self.peek() != Some(wanted) {
            return self.missing(&format!("`{wanted}`"));
        }
        self.at += wanted.len_utf8();
        Ok(())
    }

    /// Parses items with commas between them, from the bracket `open` to the bracket `close`. The function `item` parses one item.
    fn items(
        &mut self,
        open: char,
        close: char,
        mut item: impl FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        self.take(open)?;
        if self.peek() == Some(close) {
            return self.take(close);
        }
        loop {
            item(self)?;
            if self.peek() == Some(close) {
                return self.take(close);
            }
            self.take(',')?;
        }
    }

    /// Parses a string with its quotes and escapes.
    fn string(&mut self) -> Result<String, String> {
        self.take('"')?;
        let mut text = String::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(end) = rest.find(['"', '\\']) else {
                return self.missing("end of a string");
            };
            text.push_str(&rest[..end]);
            self.at += end + 1;
            if rest[end..].starts_with('"') {
                return Ok(text);
            }
            text.push(self.escaped()?);
        }
    }

    fn escaped(&mut self) -> Result<char, String> {
        let plain = match self.text.as_bytes().get(self.at) {
            Some(b'u') => None,
            Some(b'n') => Some('\n'),
            Some(b't') => Some('\t'),
            Some(b'r') => Some('\r'),
            Some(b'b') => Some('\u{8}'),
            Some(b'f') => Some('\u{c}'),
            Some(&c @ (b'"' | b'\\' | b'/')) => Some(c as char),
            _ => return self.missing("escape"),
        };
        self.at += 1;
        match plain {
            Some(c) => Ok(c),
            None => self.utf16(),
        }
    }

    fn utf16(&mut self) -> Result<char, String> {
        let mut unit = || {
            let digits = self.text.get(self.at..self.at + 4)?;
            self.at += 4;
            u16::from_str_radix(digits, 16).ok()
        };
        let first = unit();
        let mut units = vec![first.unwrap_or(0)];
        if first.is_some_and(|unit| (0xd800..0xdc00).contains(&unit)) && self.text[self.at..].starts_with("\\u") {
            self.at += 2;
            let digits = self.text.get(self.at..self.at + 4).unwrap_or_default();
            units.extend(u16::from_str_radix(digits, 16).ok());
            self.at += digits.len();
        }
        match (
            first,
            String::from_utf16(&units).ok().and_then(|text| text.chars().next()),
        ) {
            (Some(_), Some(c)) => Ok(c),
            _ => self.missing("valid `\\u` escape that ends"),
        }
    }
}

//! Metadata as text: JSON objects, one for each message.
//!
//! Numbers with a point or an exponent are floats. What JSON has no form for is an object with one key: `{"float":
//! "NaN"}`, `{"list_float": ["inf", "1.0"]}`, `{"list_int": []}`, `{"timestamp": 1700000000000000000}` in ns since 1970.

use crate::{Metadata, MetadataRef as Ref, MetadataValue as Value};

/// A change of a message's metadata: the key, and its value where it has one.
pub type Change = (String, Option<Value>);

/// Appends where metadata differ from those of the first message, as entries of an object.
pub fn push_differences(first: &Metadata, now: &Metadata, out: &mut String) {
    for (key, value) in now.iter() {
        if !first.get(key).is_some_and(|first| is_same(first, value)) {
            push_entry(out, key, Some(value.as_ref()));
        }
    }
    for (key, _) in first.iter() {
        if now.get(key).is_none() {
            push_entry(out, key, None);
        }
    }
}

/// Whether two values are of one type and have the same bits.
fn is_same(a: &Value, b: &Value) -> bool {
    let bits = |list: &[f64]| list.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
    match (a, b) {
        (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits(),
        (Value::ListFloat(a), Value::ListFloat(b)) => bits(a) == bits(b),
        _ => a == b,
    }
}

/// Appends `"key": value` to an object that ends with `{` or a value.
pub fn push_entry(out: &mut String, key: &str, value: Option<Ref<'_>>) {
    if !out.ends_with('{') {
        out.push_str(", ");
    }
    push_string(out, key);
    out.push_str(": ");
    match value {
        Some(value) => push_value(out, value),
        None => out.push_str("null"),
    }
}

fn push_value(out: &mut String, value: Ref<'_>) {
    match value {
        Ref::Bool(yes) => out.push_str(if yes { "true" } else { "false" }),
        Ref::Integer(number) => out.push_str(&number.to_string()),
        // The shortest digits that give the same bits.
        Ref::Float(number) if number.is_finite() => out.push_str(&format!("{number:?}")),
        Ref::Float(number) => push_tagged(out, "float", |out| push_string(out, &number.to_string())),
        Ref::String(text) => push_string(out, text),
        Ref::Timestamp(ns) => push_tagged(out, "timestamp", |out| out.push_str(&ns.to_string())),
        Ref::ListInt([]) => push_tagged(out, "list_int", |out| out.push_str("[]")),
        Ref::ListInt(list) => push_list(out, list, |out, number| out.push_str(&number.to_string())),
        Ref::ListFloat(list) if !list.is_empty() && list.iter().all(|number| number.is_finite()) => {
            push_list(out, list, |out, number| out.push_str(&format!("{number:?}")));
        }
        Ref::ListFloat(list) => push_tagged(out, "list_float", |out| {
            push_list(out, list, |out, number| push_string(out, &format!("{number:?}")));
        }),
        Ref::ListString(list) => push_list(out, list, |out, text| push_string(out, text)),
    }
}

fn push_tagged(out: &mut String, tag: &str, content: impl FnOnce(&mut String)) {
    out.push('{');
    push_string(out, tag);
    out.push_str(": ");
    content(out);
    out.push('}');
}

fn push_list<T>(out: &mut String, list: &[T], push: impl Fn(&mut String, &T)) {
    out.push('[');
    for (i, item) in list.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        push(out, item);
    }
    out.push(']');
}

fn push_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Names as a list.
pub(super) fn list_of(names: &[String]) -> String {
    let mut text = String::new();
    push_list(&mut text, names, |out, name| push_string(out, name));
    text
}

/// Reads an object.
pub fn object(text: &str) -> Result<Vec<Change>, String> {
    let mut parser = Parser::new(text);
    let object = parser.object()?;
    parser.end(object)
}

/// Reads a list of objects.
pub(super) fn objects(text: &str) -> Result<Vec<Vec<Change>>, String> {
    let mut parser = Parser::new(text);
    let mut objects = Vec::new();
    parser.items('[', ']', |parser| {
        objects.push(parser.object()?);
        Ok(())
    })?;
    parser.end(objects)
}

/// Reads JSON. It calls itself nowhere, so that no nesting can exhaust the stack.
pub struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    /// Begins at the start of a text.
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The next character that is no space.
    pub fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
        self.text[self.at..].chars().next()
    }

    /// Refuses the text where the parser is, for want of something.
    pub fn wrong<T>(&self, wanted: &str) -> Result<T, String> {
        Err(format!("no {wanted} at byte {} of the text", self.at))
    }

    /// Takes one character, after spaces.
    pub fn take(&mut self, wanted: char) -> Result<(), String> {
        if self.peek() != Some(wanted) {
            return self.wrong(&format!("`{wanted}`"));
        }
        self.at += wanted.len_utf8();
        Ok(())
    }

    /// Gives `value` where the text ends, and an error elsewhere.
    pub fn end<T>(&mut self, value: T) -> Result<T, String> {
        match self.peek() {
            None => Ok(value),
            Some(_) => self.wrong("end"),
        }
    }

    /// Takes what stands between two brackets, with commas between its items.
    pub fn items(
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

    fn object(&mut self) -> Result<Vec<Change>, String> {
        let mut entries = Vec::new();
        self.items('{', '}', |parser| {
            let key = parser.string()?;
            parser.take(':')?;
            let value = match parser.peek() {
                Some('n') => parser.word("null", None)?,
                _ => Some(parser.value()?),
            };
            entries.push((key, value));
            Ok(())
        })?;
        Ok(entries)
    }

    /// Takes a word, which stands for a value.
    pub fn word<T>(&mut self, word: &str, value: T) -> Result<T, String> {
        if !self.text[self.at..].starts_with(word) {
            return self.wrong(word);
        }
        self.at += word.len();
        Ok(value)
    }

    fn value(&mut self) -> Result<Value, String> {
        match self.peek() {
            Some('t') => self.word("true", Value::Bool(true)),
            Some('f') => self.word("false", Value::Bool(false)),
            Some('"') => Ok(Value::String(self.string()?)),
            Some('[') => self.list(),
            Some('{') => self.tagged(),
            _ => self.number(),
        }
    }

    /// The characters of a number.
    pub fn digits(&mut self) -> &'a str {
        self.peek();
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'));
        let digits = &rest[..end.unwrap_or(rest.len())];
        self.at += digits.len();
        digits
    }

    fn number(&mut self) -> Result<Value, String> {
        let from = self.at;
        let digits = self.digits();
        let whole = digits.parse().map(Value::Integer);
        let number = whole.or_else(|_| digits.parse().map(Value::Float));
        number.or_else(|_| {
            self.at = from;
            self.peek();
            self.wrong("value")
        })
    }

    fn list(&mut self) -> Result<Value, String> {
        let (mut texts, mut integers, mut floats) = (Vec::new(), Vec::new(), Vec::new());
        self.items('[', ']', |parser| {
            match parser.peek() {
                Some('"') => texts.push(parser.string()?),
                _ => match parser.number()? {
                    Value::Integer(number) => {
                        integers.push(number);
                        floats.push(number as f64);
                    }
                    Value::Float(number) => floats.push(number),
                    _ => {}
                },
            }
            Ok(())
        })?;
        match (texts.is_empty(), floats.is_empty()) {
            (_, true) => Ok(Value::ListString(texts)),
            (false, false) => self.wrong("list of one kind before this"),
            (true, false) if integers.len() == floats.len() => Ok(Value::ListInt(integers)),
            (true, false) => Ok(Value::ListFloat(floats)),
        }
    }

    fn tagged(&mut self) -> Result<Value, String> {
        self.take('{')?;
        let tag = self.string()?;
        self.take(':')?;
        let content = match self.peek() {
            Some('[') => self.list()?,
            Some('"') => Value::String(self.string()?),
            _ => self.number()?,
        };
        self.take('}')?;
        let float = |text: &String| text.parse::<f64>().ok();
        let value = match (tag.as_str(), content) {
            ("float", Value::String(text)) => float(&text).map(Value::Float),
            ("timestamp", Value::Integer(ns)) => Some(Value::Timestamp(ns)),
            ("list_int", Value::ListString(list)) if list.is_empty() => Some(Value::ListInt(Vec::new())),
            ("list_float", Value::ListString(list)) => {
                list.iter().map(float).collect::<Option<_>>().map(Value::ListFloat)
            }
            _ => None,
        };
        value.map_or_else(|| self.wrong("value of a known kind before this"), Ok)
    }

    /// Takes a string.
    pub fn string(&mut self) -> Result<String, String> {
        self.take('"')?;
        let mut text = String::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(end) = rest.find(['"', '\\']) else {
                return self.wrong("end of a string");
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
            _ => return self.wrong("escape"),
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
            _ => self.wrong("character of four hexadecimal digits before this"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_comes_back_bit_for_bit() {
        let texts = ["", "a \"b\"", "c\\d", "tab\tand\u{1}\u{85}", "mü\u{fffe}\u{1f600}"].map(str::to_owned);
        let numbers = [0.1, -0.0, 1e300, 5e-324, 3.0, f64::MAX, 1.0 / 3.0];
        let mut values = vec![
            None,
            Some(Value::Bool(true)),
            Some(Value::Bool(false)),
            Some(Value::Timestamp(1_700_000_000_123_456_789)),
            Some(Value::ListInt(vec![])),
            Some(Value::ListInt(vec![i64::MIN, 0, i64::MAX])),
            Some(Value::ListFloat(vec![])),
            Some(Value::ListFloat(numbers.to_vec())),
            Some(Value::ListFloat(vec![f64::NAN, 1.0, f64::NEG_INFINITY])),
            Some(Value::ListString(vec![])),
            Some(Value::ListString(texts.to_vec())),
            Some(Value::Float(f64::NAN)),
            Some(Value::Float(f64::INFINITY)),
        ];
        values.extend([i64::MIN, -1, 0, i64::MAX].map(|number| Some(Value::Integer(number))));
        values.extend(numbers.map(|number| Some(Value::Float(number))));
        values.extend(texts.map(|text| Some(Value::String(text))));
        let changes: Vec<Change> = values
            .into_iter()
            .enumerate()
            .map(|(i, value)| (format!("key \"{i}\""), value))
            .collect();
        let mut text = String::from("{");
        for (key, value) in &changes {
            push_entry(&mut text, key, value.as_ref().map(Value::as_ref));
        }
        text.push('}');
        // NaN is not equal to itself, and 0 is to -0.
        let bits = |changes: &[Change]| format!("{changes:?}");
        assert_eq!(bits(&object(&text).unwrap()), bits(&changes), "{text}");
        let rows = objects(&format!("[{text}, {{}}]")).unwrap();
        assert_eq!((bits(&rows[0]), rows[1].len(), rows.len()), (bits(&changes), 0, 2));
    }

    #[test]
    fn it_is_json() {
        let mut text = String::from("{");
        push_entry(&mut text, "a", Some(Ref::ListString(&["x\ty".into(), "mü".into()])));
        push_entry(&mut text, "b", Some(Ref::Float(2.0)));
        assert_eq!(text, r#"{"a": ["x\u0009y", "mü"], "b": 2.0"#);
        assert_eq!(
            object("\n{ \"a\" :\t[ 1 ,2.5 ] , \"b\": \"\\u00e9\\ud83d\\ude00\\/\\n\" }").unwrap(),
            [
                ("a".to_owned(), Some(Value::ListFloat(vec![1.0, 2.5]))),
                ("b".to_owned(), Some(Value::String("é\u{1f600}/\n".into())))
            ]
        );
    }

    #[test]
    fn what_is_no_such_text_is_refused() {
        for text in [
            "",
            "{",
            "{}x",
            "[",
            "{\"a\"}",
            "{\"a\": }",
            "{\"a\": nul}",
            "{\"a\": 1,}",
            "{\"a\": [1, \"b\"]}",
            "{\"a\": \"b}",
            "{\"a\": {\"b\": []}}",
            "{\"a\": \"\\x\"}",
            "{\"a\": \"\\u12\"}",
            "{\"a\": \"\\ud800\"}",
            "{\"a\": [[1]]}",
            "{\"a\": {\"list_float\": [\"x\"]}}",
            "{\"a\": \"\\u12mü\"}",
        ] {
            assert!(object(text).is_err(), "{text}");
        }
        let nested = "[".repeat(1 << 20);
        assert!(objects(&nested).is_err());
        assert!(object(&format!("{{\"a\": {nested}")).is_err());
    }
}

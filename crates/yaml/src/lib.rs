//! Reads YAML texts that come from outside: configurations, and the metadata of recordings. A text that would take the parser long
//! is refused before it is parsed.

#![warn(unreachable_pub)]

mod hint;
mod json;
mod json_value;
mod read;
mod text;

pub use hint::{did_you_mean, listed};
pub use json::Json;
pub use json_value::JsonValue;
pub use read::{Misread, from_value};

use serde::de::DeserializeOwned;
use serde_yaml::Value;

/// Length of the longest text that is read, bytes. Longer texts are refused.
pub const MAX_BYTES: usize = 1 << 20;

/// Greatest depth of brackets within one another. The parser's time grows with the square of the depth. The parser itself refuses a
/// depth of 128.
const MAX_DEPTH: usize = 100;

/// The reason why a text is not YAML of the expected form.
#[derive(Debug, thiserror::Error)]
pub enum YamlError {
    /// The text is longer than [`MAX_BYTES`].
    #[error("the text is longer than {MAX_BYTES} bytes (allowed: up to that; is it a configuration?)")]
    TooLong,
    /// Brackets are nested more than 100 deep.
    #[error("line {line}: brackets are nested more than {MAX_DEPTH} deep (is one not closed?)")]
    TooDeep {
        /// The line of the bracket, from 1 on.
        line: usize,
    },
    /// The text has more than one document.
    #[error("it holds several documents, which lines of `---` divide (allowed: one; put each in a file of its own)")]
    Several,
    /// A value is not of the type of its tag, such as `!!int`, or is out of range.
    #[error(
        "line {line} column {column}: the value is not of the type that its tag says, or out of range (allowed: such as `5`, \
         or `!!int 5`)"
    )]
    Tag {
        /// The line of the value, from 1 on.
        line: usize,
        /// The column of the value, from 1 on.
        column: usize,
    },
    /// Any other error of the parser.
    #[error("{0}")]
    Yaml(serde_yaml::Error),
}

impl From<serde_yaml::Error> for YamlError {
    fn from(error: serde_yaml::Error) -> Self {
        let words = error.to_string();
        match error.location() {
            _ if words.contains("more than one document") => Self::Several,
            Some(at) if words.contains("invalid value: ") => Self::Tag {
                line: at.line(),
                column: at.column(),
            },
            _ => Self::Yaml(error),
        }
    }
}

/// Reads a YAML text as a `T`. A map that has a key twice is an error.
///
/// # Errors
/// The text is not YAML, has a key twice, or is not a `T`. The error names the line or the key, the refused value and the allowed
/// values.
pub fn read_yaml<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let value = value(text).map_err(|error| error.to_string())?;
    from_value(&value).map_err(|misread| misread.to_string())
}

/// Reads a YAML text as a value. Refuses a map that has a key twice, and a text that would take the parser long.
pub fn value(text: &str) -> Result<Value, YamlError> {
    from_str::<text::Unique>(text).map(|text::Unique(value)| value)
}

/// Reads a YAML text as a `T`. Refuses a text that would take the parser long. A key that a map has twice is refused only if the
/// `T` refuses it, as structs do. A byte order mark, which some editors put before the
/// text, is removed: the parser takes it for a document of its own.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, YamlError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    check(text)?;
    Ok(serde_yaml::from_str(text)?)
}

fn check(text: &str) -> Result<(), YamlError> {
    if text.len() > MAX_BYTES {
        return Err(YamlError::TooLong);
    }
    let mut depth = 0usize;
    for (i, byte) in text.bytes().enumerate() {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            let line = text.as_bytes()[..i].iter().filter(|&&byte| byte == b'\n').count() + 1;
            return Err(YamlError::TooDeep { line });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_text_that_would_take_long_is_refused_at_once() {
        let deep = |open: &str, close: &str| format!("a: 1\nb: {}{}", open.repeat(100_000), close.repeat(100_000));
        let cases = [
            (deep("[", "]"), "line 2: brackets are nested more than 100 deep"),
            (deep("{a: ", "}"), "line 2: brackets are nested more than 100 deep"),
            (deep("[", ""), "line 2: brackets are nested more than 100 deep"),
            ("- ".repeat(500_000), "recursion limit"),
            (format!("a: {}", "x".repeat(2 << 20)), "longer than 1048576 bytes"),
            (
                "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned() + &aliases(),
                "repetition limit",
            ),
        ];
        let most = Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 2 });
        for (text, expected) in cases {
            let start = Instant::now();
            let refused = from_str::<serde_yaml::Value>(&text).unwrap_err().to_string();
            assert!(refused.contains(expected), "{refused}, not {expected}");
            assert!(start.elapsed() < most, "{expected}: {:?}", start.elapsed());
        }
        let shallow = format!("a: {}1{}", "[".repeat(50), "]".repeat(50));
        assert!(from_str::<serde_yaml::Value>(&shallow).is_ok());
        let wide = format!("a: [{}]", "[], ".repeat(100_000));
        assert!(from_str::<serde_yaml::Value>(&wide).is_ok());
    }

    #[test]
    fn a_byte_order_mark_before_a_text_is_no_part_of_it() {
        let read: std::collections::BTreeMap<String, u32> = read_yaml("\u{feff}---\na: 1\n").unwrap();
        assert_eq!(read["a"], 1);
        let words = read_yaml::<Value>("\u{feff}a: 1\n---\nb: 2\n").unwrap_err();
        assert!(words.contains("several documents"), "{words}");
    }

    /// A YAML text in which each anchor has ten aliases of the anchor before, so that its size grows tenfold with each line.
    fn aliases() -> String {
        let name = |i: u8| char::from(b'a' + i);
        let line = |i: u8| {
            format!(
                "{}: &{} [{}]\n",
                name(i),
                name(i),
                vec![format!("*{}", name(i - 1)); 10].join(", ")
            )
        };
        (1..9).map(line).collect()
    }
}

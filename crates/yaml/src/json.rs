use serde_yaml::Value;
use std::fmt;

/// YAML value that is displayed as JSON on one line, for errors and the log.
pub struct Json<'a>(pub &'a Value);

impl Json<'_> {
    /// Formats the value as JSON; a string has no quotes, so that a name looks as it is written in YAML.
    pub fn bare(&self) -> String {
        self.0.as_str().map_or_else(|| self.to_string(), str::to_owned)
    }
}

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("null"),
            Value::Bool(yes) => write!(f, "{yes}"),
            Value::Number(number) => write!(f, "{number}"),
            Value::String(text) => write!(f, "{text:?}"),
            Value::Sequence(values) => {
                f.write_str("[")?;
                for (i, value) in values.iter().enumerate() {
                    write!(f, "{}{}", if i > 0 { "," } else { "" }, Json(value))?;
                }
                f.write_str("]")
            }
            Value::Mapping(entries) => {
                f.write_str("{")?;
                for (i, (key, value)) in entries.iter().enumerate() {
                    write!(f, "{}{}:{}", if i > 0 { "," } else { "" }, Json(key), Json(value))?;
                }
                f.write_str("}")
            }
            Value::Tagged(tagged) => Json(&tagged.value).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_reads_as_it_was_set() {
        for text in [
            "null",
            "true",
            "40",
            "-2.5",
            "5.0",
            "\"fast\"",
            "[1,[],\"a\"]",
            "{\"a\":[null],\"b\":{}}",
        ] {
            let value: Value = serde_yaml::from_str(text).unwrap();
            assert_eq!(Json(&value).to_string(), text);
        }
    }
}

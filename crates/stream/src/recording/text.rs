//! Metadata as text: JSON objects, one for each message.
//!
//! Numbers with a point or an exponent are floats. A value that JSON has no form for is an object with one key: `{"float":
//! "NaN"}`, `{"list_float": ["inf", "1.0"]}`, `{"list_int": []}`, `{"timestamp": 1700000000000000000}` in ns since 1970.
//!
//! A value that is written and parsed again has the same type and the same bits.

use crate::{Metadata, MetadataRef as Ref, MetadataValue as Value};
use robocache_yaml::JsonValue;

/// Change of one metadata key: its name and its new value; `None` if the key is removed.
pub type Change = (String, Option<Value>);

/// Appends to `out` the keys in which `now` differs from `first`, as entries of a JSON object. A key that `now` lacks becomes
/// `null`.
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

/// True if two values have the same type and the same bits.
fn is_same(a: &Value, b: &Value) -> bool {
    let bits = |list: &[f64]| list.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
    match (a, b) {
        (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits(),
        (Value::ListFloat(a), Value::ListFloat(b)) => bits(a) == bits(b),
        _ => a == b,
    }
}

/// Appends `"key": value` to the text of an object, which ends with `{` or a value. A `value` of `None` becomes `null`.
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

/// Formats names as a JSON list.
pub(super) fn list_of(names: &[String]) -> String {
    let mut text = String::new();
    push_list(&mut text, names, |out, name| push_string(out, name));
    text
}

/// Parses a JSON object into changes of metadata, in the order of its keys.
///
/// # Errors
/// If the text is not JSON or not an object, or has a value that metadata can't have.
pub fn object(text: &str) -> Result<Vec<Change>, String> {
    JsonValue::parse(text).and_then(changes_of)
}

/// Parses a JSON list of objects into the changes of each object.
pub(super) fn objects(text: &str) -> Result<Vec<Vec<Change>>, String> {
    match JsonValue::parse(text)? {
        JsonValue::List(items) => items.into_iter().map(changes_of).collect(),
        other => Err(format!("{} (allowed: a list)", other.word())),
    }
}

fn changes_of(value: JsonValue) -> Result<Vec<Change>, String> {
    let JsonValue::Object(entries) = value else {
        return Err(format!("{} (allowed: an object)", value.word()));
    };
    let changes = entries.into_iter().map(|(key, value)| match value {
        JsonValue::Null => Ok((key, None)),
        value => match value_of(value) {
            Some(value) => Ok((key, Some(value))),
            None => Err(format!(
                "`{key}` has a value that metadata can't have (allowed: a boolean, number or text, or a list of numbers or texts)"
            )),
        },
    });
    changes.collect()
}

fn value_of(value: JsonValue) -> Option<Value> {
    match value {
        JsonValue::Null => None,
        JsonValue::Bool(yes) => Some(Value::Bool(yes)),
        JsonValue::Text(text) => Some(Value::String(text)),
        JsonValue::List(items) => list(&items),
        JsonValue::Object(entries) => tagged(&entries),
        number => whole(&number)
            .map(Value::Integer)
            .or_else(|| float(&number).map(Value::Float)),
    }
}

fn whole(value: &JsonValue) -> Option<i64> {
    match value {
        JsonValue::Whole(number) => i64::try_from(*number).ok(),
        _ => None,
    }
}

fn float(value: &JsonValue) -> Option<f64> {
    match value {
        JsonValue::Whole(number) => Some(*number as f64),
        JsonValue::Float(number) => Some(*number).filter(|number| number.is_finite()),
        _ => None,
    }
}

/// Converts a JSON list to a metadata list. An empty list becomes a list of strings. Returns `None` if the items have
/// different types.
fn list(items: &[JsonValue]) -> Option<Value> {
    let texts = items.iter().map(|item| item.text().map(str::to_owned));
    let strings = texts.collect::<Option<_>>().map(Value::ListString);
    let integers = || items.iter().map(whole).collect::<Option<_>>().map(Value::ListInt);
    let floats = || items.iter().map(float).collect::<Option<_>>().map(Value::ListFloat);
    strings.or_else(integers).or_else(floats)
}

/// Converts a JSON object of one entry that encodes a value that JSON lacks, such as `{"float": "NaN"}`. Returns `None` for any
/// other object.
fn tagged(entries: &[(String, JsonValue)]) -> Option<Value> {
    let [(tag, content)] = entries else { return None };
    let parsed = |text: &JsonValue| text.text()?.parse().ok();
    match (tag.as_str(), content) {
        ("float", text) => parsed(text).map(Value::Float),
        ("timestamp", number) => whole(number).map(Value::Timestamp),
        ("list_int", JsonValue::List(items)) if items.is_empty() => Some(Value::ListInt(Vec::new())),
        ("list_float", JsonValue::List(items)) => items.iter().map(parsed).collect::<Option<_>>().map(Value::ListFloat),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Names;

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
            Some(Value::ListString(Names::default())),
            Some(Value::ListString(texts.iter().collect())),
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
        // NaN is not equal to itself, and 0 is equal to -0.
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

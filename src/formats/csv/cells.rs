//! The cells of a line.

use std::borrow::Cow;

/// The separator of a table, by its first line: the one of `,`, `;` and tab that is there most often.
pub(super) fn separator(line: &str) -> char {
    let count = |separator: &char| line.matches(*separator).count();
    // Of several, the last one wins.
    ['\t', ';', ','].into_iter().max_by_key(count).unwrap_or(',')
}

/// The cells of a line, without the spaces and quotes around them.
pub(super) fn split(line: &str, separator: char) -> Vec<Cow<'_, str>> {
    let mut cells = Vec::new();
    let mut rest = line;
    loop {
        let begins = rest.trim_start_matches(' ');
        let (cell, behind) = match begins.strip_prefix('"') {
            Some(quoted) => unquote(quoted),
            None => {
                let end = rest.find(separator).unwrap_or(rest.len());
                (Cow::Borrowed(rest[..end].trim()), &rest[end..])
            }
        };
        cells.push(cell);
        match behind.find(separator) {
            Some(at) => rest = &behind[at + separator.len_utf8()..],
            None => return cells,
        }
    }
}

/// What stands before the closing quote, and what behind it. Two quotes are one.
fn unquote(text: &str) -> (Cow<'_, str>, &str) {
    let mut from = 0;
    while let Some(at) = text[from..].find('"').map(|at| from + at) {
        if !text[at + 1..].starts_with('"') {
            let inner = &text[..at];
            let cell = if inner.contains('"') {
                inner.replace("\"\"", "\"").into()
            } else {
                inner.into()
            };
            return (cell, &text[at + 1..]);
        }
        from = at + 2;
    }
    (Cow::Borrowed(text), "")
}

/// A number: also `nan`, `inf`, `true` and `false`, and NaN where there is nothing.
pub(super) fn number(cell: &str) -> Option<f64> {
    match cell {
        "" => Some(f64::NAN),
        "true" | "True" | "TRUE" => Some(1.0),
        "false" | "False" | "FALSE" => Some(0.0),
        cell => cell.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_separators() {
        let cases: [(&str, char, &[&str]); 6] = [
            ("a,b", ',', &["a", "b"]),
            ("a, \"b,c\" ,d", ',', &["a", "b,c", "d"]),
            ("\"a \"\"b\"\"\";;", ';', &["a \"b\"", "", ""]),
            ("\"open", ',', &["open"]),
            ("a\tb c\t", '\t', &["a", "b c", ""]),
            ("", ',', &[""]),
        ];
        for (line, by, cells) in cases {
            assert_eq!(split(line, by), cells, "{line}");
            if line.contains(by) {
                assert_eq!(separator(line), by, "{line}");
            }
        }
    }
}

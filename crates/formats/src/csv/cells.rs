//! Parsing of a CSV table's cells: the character that separates them, the strings that mark a missing value, and numbers.

/// Characters that may separate cells. If two are equally frequent in a line, the earlier one is chosen.
const SEPARATORS: [u8; 3] = [b',', b';', b'\t'];

/// Cells that mark a missing value, as pandas reads them and R and spreadsheets write them. `nan` is not listed: it parses as
/// a number.
const MISSING: [&str; 13] = [
    "", "NA", "N/A", "n/a", "<NA>", "#N/A", "#NA", "NULL", "Null", "null", "None", "NaT", "-",
];

/// Guesses the separator of a table from its first line: the one of `SEPARATORS` that is most frequent outside of quotes, or a
/// comma if there is none.
pub(super) fn separator(line: &[u8]) -> u8 {
    let mut counts = [0; SEPARATORS.len()];
    let mut is_quoted = false;
    for byte in line {
        is_quoted ^= *byte == b'"';
        if let Some(at) = SEPARATORS.iter().position(|separator| separator == byte && !is_quoted) {
            counts[at] += 1;
        }
    }
    // A tie goes to the first.
    let most = (0..SEPARATORS.len()).rev().max_by_key(|&at| counts[at]).unwrap_or(0);
    SEPARATORS[most]
}

/// Strips the spaces around a cell, and its quotes. `csv_core` leaves the quotes in place if a space precedes them.
pub(super) fn trim(cell: &str) -> &str {
    let trimmed = cell.trim();
    let unquoted = trimmed.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    unquoted.unwrap_or(trimmed)
}

/// True if the cell, already stripped of spaces, marks a missing value.
pub(super) fn is_missing(cell: &str) -> bool {
    MISSING.contains(&cell)
}

/// Parses a cell: a number, `nan`, `inf`, `true` (1) or `false` (0). A missing value is NaN. Returns `None` for any other text.
pub(super) fn number(cell: &str) -> Option<f64> {
    match cell {
        "true" | "True" | "TRUE" => Some(1.0),
        "false" | "False" | "FALSE" => Some(0.0),
        cell if is_missing(cell) => Some(f64::NAN),
        cell => cell.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_separator_is_the_most_frequent() {
        let cases: [(&str, u8); 7] = [
            ("a,b", b','),
            ("a;b;c,d", b';'),
            ("a\tb c\t", b'\t'),
            ("\"x, y, z\";t", b';'),
            ("a;b,c", b','),
            ("a", b','),
            ("", b','),
        ];
        for (line, by) in cases {
            assert_eq!(separator(line.as_bytes()), by, "{line}");
        }
    }

    #[test]
    fn what_is_missing_is_nan() {
        for cell in ["", "NA", "nan", "NaN", "-nan", "null", "None", "#N/A"] {
            assert!(number(cell).is_some_and(f64::is_nan), "{cell}");
        }
        assert_eq!(
            ["1e3", "-inf", "True"].map(number),
            [Some(1000.0), Some(f64::NEG_INFINITY), Some(1.0)]
        );
        assert_eq!(["text", "1,5", "--"].map(number), [None; 3]);
        assert_eq!([" \"a b\" ", "\"", "\u{a0}x "].map(trim), ["a b", "\"", "x"]);
    }
}

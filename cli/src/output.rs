//! Writes results and remarks. Control characters in tables, paths and remarks are escaped, so that no file can command the
//! terminal.

use eyre::WrapErr;
use robocache::stream::needs_escape;
pub use robocache::stream::plain;
use serde::Serialize;
use std::fmt::{self, Display, Write as _};
use std::fs::{self, File};
use std::io::{ErrorKind, IsTerminal, Read, Write};
use std::path::Path;

/// Converts a path to text, with control characters escaped.
pub fn path(path: &Path) -> String {
    plain(&path.to_string_lossy()).into_owned()
}

/// Quotes and escapes a text for YAML and JSON.
pub fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if needs_escape(c) => {
                let mut units = [0; 2];
                let units = c.encode_utf16(&mut units).iter();
                out.extend(units.map(|unit| format!("\\u{unit:04x}")));
            }
            c => out.push(c),
        }
    }
    out + "\""
}

/// Writer of results and remarks, in JSON or text.
pub struct Output {
    json: bool,
    colour: bool,
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Ok,
    /// A fact worth knowing; nothing is wrong.
    Note,
    Warning,
    Error,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }

    /// The ANSI code of the level's colour on a terminal.
    fn colour(self) -> &'static str {
        match self {
            Self::Ok => "32",
            Self::Note => "36",
            Self::Warning => "33",
            Self::Error => "31",
        }
    }
}

impl Output {
    /// Selects JSON or text. Text is coloured if standard output is a terminal and `NO_COLOR` is unset or empty.
    pub fn new(json: bool) -> Self {
        let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            json,
            colour: !json && !is_plain && std::io::stdout().is_terminal(),
        }
    }

    /// True if results are JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Writes the result to standard output, as JSON or as the text that `text` makes of it.
    pub fn result<R: Serialize>(&self, result: &R, text: impl FnOnce(&R) -> String) -> eyre::Result<()> {
        let text = if self.json {
            serde_json::to_string_pretty(result)? + "\n"
        } else {
            text(result)
        };
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // The reader closed the pipe, as it has read enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            written => written.wrap_err("standard output"),
        }
    }

    /// Writes a remark of one line to standard error.
    pub fn remark(&self, text: impl Display) {
        let _ = writeln!(std::io::stderr(), "robocache: {}", plain(&text.to_string()));
    }

    /// Returns the word for a level, in the level's colour if results are coloured.
    pub fn level(&self, level: Level) -> String {
        let word = level.word();
        if self.colour {
            format!("\x1b[{}m{word}\x1b[0m", level.colour())
        } else {
            word.to_owned()
        }
    }
}

/// Writes a file that begins with `start`. An existing file is overwritten only if it begins with `start`, too: a mistyped name
/// must not cost a recording or a configuration. The file is renamed into place, so that it is never half written.
pub fn write(path: &Path, start: &str, text: &str) -> eyre::Result<()> {
    let failed = |error| eyre::eyre!("{}: {error}", path.display());
    let mut begin = Vec::new();
    // Pipes and terminals have nothing to lose.
    if path.is_file() {
        let file = File::open(path).map_err(failed)?;
        file.take(start.len() as u64).read_to_end(&mut begin).map_err(failed)?;
    }
    if !begin.is_empty() && begin != start.as_bytes() {
        eyre::bail!(
            "{}: it is there and is not a file of that kind (allowed: a new file, or one that begins with `{start}`, which is written over)",
            path.display()
        );
    }
    let text = format!("{start}{text}");
    if path.exists() && !path.is_file() {
        return fs::write(path, text).map_err(failed);
    }
    // If the path is a link, the file behind it is replaced, not the link.
    let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut name = place.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    let partial = place.with_file_name(name);
    let written = File::create_new(&partial).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&partial, &place)
    });
    written.map_err(|error| {
        let _ = fs::remove_file(&partial);
        failed(error)
    })
}

/// Maximum number of characters in a cell of a table; a longer text is cut.
const MAX_CELL_CHARS: usize = 200;

/// Minimum number of characters that are left of a name in the first column of a table that is too wide.
const MIN_NAME_CHARS: usize = 10;

/// Text table: headings and rows of cells, with text aligned left and numbers right. A cell that is too long is cut, and ends
/// with `...`.
pub struct Table {
    rows: Vec<Vec<String>>,
    left: Vec<bool>,
}

impl Table {
    /// Creates a table with these headings. A `<` before a heading marks a column of text.
    pub fn new<const N: usize>(headings: [&str; N]) -> Self {
        let left = headings.iter().map(|heading| heading.starts_with('<')).collect();
        let headings = headings.map(|heading| heading.trim_start_matches('<').to_owned());
        Self {
            rows: vec![headings.into()],
            left,
        }
    }

    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.map(|cell| cut(&plain(&cell))).into());
    }

    /// Lays the table out in lines of `width` characters. If it is too wide, the gaps between columns become narrow, and then names
    /// are cut, to [`MIN_NAME_CHARS`] at least.
    pub fn within(&self, width: usize) -> String {
        let widths = self.widths();
        let needed = |gap: usize| widths.iter().sum::<usize>() + gap * widths.len().saturating_sub(1);
        let gap = if needed(2) > width { 1 } else { 2 };
        let over = needed(gap).saturating_sub(width);
        self.lines(gap, widths[0].saturating_sub(over).max(MIN_NAME_CHARS))
    }

    fn widths(&self) -> Vec<usize> {
        let widest = |i: usize| self.rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
        (0..self.left.len()).map(widest).collect()
    }

    /// Formats the rows as lines, with `gap` spaces between columns and at most `most` characters of the first column.
    fn lines(&self, gap: usize, most: usize) -> String {
        let mut widths = self.widths();
        widths[0] = widths[0].min(most);
        let mut text = String::new();
        for row in &self.rows {
            let start = text.len();
            for ((cell, &width), &left) in row.iter().zip(&widths).zip(&self.left) {
                // Writing to a string can't fail.
                let _ = match left {
                    true => write!(text, "{cell:<width$.width$}"),
                    false => write!(text, "{cell:>width$}"),
                };
                text.extend(std::iter::repeat_n(' ', gap));
            }
            text.truncate(start + text[start..].trim_end().len());
            text.push('\n');
        }
        text
    }
}

fn cut(cell: &str) -> String {
    match cell.char_indices().nth(MAX_CELL_CHARS) {
        Some(_) => cell.chars().take(MAX_CELL_CHARS - 3).chain("...".chars()).collect(),
        None => cell.to_owned(),
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines(2, usize::MAX))
    }
}

/// Formats a number with up to three significant digits, or with all digits before the point if these are more.
pub fn figure(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 1e9 => format!("{value:.2e}"),
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.9995 => format!("{value:.2}"),
        size if size >= 0.0005 => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

/// Formats a number like [`figure`], or as a dash if there is none.
pub fn figure_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), figure)
}

/// Formats a number of bytes in B, kB, MB, GB or TB.
pub fn bytes(bytes: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{} {}", figure(value), units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let cases = [
            (0.0, "0"),
            (0.0123, "0.012"),
            (1.0, "1.00"),
            (33.333, "33.3"),
            (1234.5, "1234"),
            (1e-6, "1.0e-6"),
            (-1.7e308, "-1.70e308"),
        ];
        for (value, text) in cases {
            assert_eq!(figure(value), text);
        }
        assert_eq!(
            [bytes(0), bytes(1_440_000), bytes(999_600)],
            ["0 B", "1.44 MB", "1.00 MB"]
        );
    }

    #[test]
    fn what_a_terminal_obeys_is_written_out() {
        let cases = [
            ("imu/data ü…", "imu/data ü…"),
            ("a\nb\r\tc", "a\\nb\\r\\tc"),
            ("\u{1b}[31mred\u{7}", "\\u{1b}[31mred\\u{7}"),
            ("\u{9b}2J\u{7f}\u{202e}x\u{2028}", "\\u{9b}2J\\u{7f}\\u{202e}x\\u{2028}"),
        ];
        for (text, wanted) in cases {
            assert_eq!(plain(text), wanted);
        }
        let mut table = Table::new(["<stream", "messages"]);
        table.row(["a\u{1b}c\nb".into(), "1".into()]);
        assert_eq!(table.to_string(), "stream       messages\na\\u{1b}c\\nb         1\n");
    }

    #[test]
    fn quoted_texts_are_one_text_of_yaml() {
        for text in [
            "a",
            "",
            "x: [1]\nplugins: []\n",
            "\u{1b}\u{85}\u{2028}\u{feff}",
            "a\"b\\c #d",
            "ü😀\0",
        ] {
            let read: String = serde_yaml::from_str(&format!("key: {}", quoted(text)))
                .map(|read: std::collections::BTreeMap<String, String>| read["key"].clone())
                .unwrap();
            assert_eq!(read, text);
            assert_eq!(serde_json::from_str::<String>(&quoted(text)).unwrap(), text);
        }
    }

    #[test]
    fn a_table_stands_in_columns() {
        let mut table = Table::new(["<stream", "messages"]);
        table.row(["a".into(), "1".into()]);
        table.row(["camera".into(), "12345678901".into()]);
        assert_eq!(
            table.to_string(),
            "stream     messages\na                 1\ncamera  12345678901\n"
        );
        let narrow = "stream    messages\na                1\ncamera 12345678901\n";
        assert_eq!(
            (table.within(19), table.within(18)),
            (table.to_string(), narrow.to_owned())
        );
        table.row(["a camera of a long name".into(), "1".into()]);
        assert_eq!(
            table.within(30).lines().nth(3).unwrap(),
            "a camera of a long           1"
        );
        assert_eq!(table.within(10).lines().nth(3).unwrap(), "a camera o           1");
        // This cell is longer than the largest width of a format string, which has 16 bits.
        table.row(["ü".repeat(70_000), "1".into()]);
        let text = table.to_string();
        assert!(text.lines().all(|line| line.chars().count() <= 200 + 2 + 11), "{text}");
        assert!(text.contains(&format!("\n{}...  ", "ü".repeat(197))), "{text}");
    }
}

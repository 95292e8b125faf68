//! Escaping of texts from senders and files, so that a terminal shows their characters and does not obey them.

use std::borrow::Cow;

/// Escapes the characters of a text that a terminal obeys or shows as something else, such as `\u{1b}`. These are control
/// characters, line breaks among them, and marks of the direction of writing. A text without such characters is borrowed.
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(needs_escape) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match needs_escape(c) {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    out.into()
}

/// True if a terminal obeys this character, or shows it as something else.
pub fn needs_escape(c: char) -> bool {
    // Marks of the direction of writing, line breaks that are not control characters, and the byte order mark.
    let is_format = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
    c.is_control() || is_format
}

//! Files of other software, read into messages and written from them. Each format has a feature of its own.

#[cfg(feature = "csv")]
pub mod csv;
#[cfg(any(feature = "csv", feature = "mcap"))]
mod error;
#[cfg(feature = "lerobot")]
pub mod lerobot;
#[cfg(feature = "mcap")]
pub mod mcap;

/// A name that a file can have: `/` becomes `_`, and so does all else but letters, digits, `_`, `-` and `.`.
pub fn file_name(name: &str) -> String {
    let name = name.trim_matches('/');
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let mut plain: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    if plain.is_empty() || plain.starts_with('.') {
        plain.insert(0, '_');
    }
    // A file's name has 255 bytes at most.
    plain.truncate(200);
    plain
}

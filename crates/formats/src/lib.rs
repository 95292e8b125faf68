//! Files of other software, read into messages and written from them. Each format has a feature of its own.

#![warn(unreachable_pub)]

#[cfg(feature = "csv")]
pub mod csv;
mod error;
#[cfg(feature = "lerobot")]
pub mod lerobot;
#[cfg(feature = "mcap")]
pub mod mcap;
#[cfg(any(feature = "csv", feature = "mcap"))]
mod parts;

pub use error::Error;

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

/// The name that is wanted, or the first with a number behind it, if the one that it wants is another's.
#[cfg(feature = "mcap")]
fn free_name(wanted: &str, between: &str, mut take: impl FnMut(&str) -> bool) -> String {
    let mut name = wanted.to_owned();
    let mut number = 1;
    while !take(&name) {
        number += 1;
        name = format!("{wanted}{between}{number}");
    }
    name
}

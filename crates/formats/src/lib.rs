//! Readers and writers of CSV tables, LeRobot datasets and MCAP files, which convert between these files and streams of
//! messages. Each format has a Cargo feature.

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

/// Turns `name` into a valid file name of at most 200 bytes: each character but letters, digits, `_`, `-` and `.` becomes `_`.
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

/// Returns `wanted` if this name is free. Otherwise returns `wanted`, `between` and the first number from 2 on that makes a
/// free name. `take` reserves a name; it returns false if the name is in use.
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

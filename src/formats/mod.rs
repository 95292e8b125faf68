//! Files of other software, read into messages and written from them. Each format has a feature of its own.

#[cfg(feature = "lerobot")]
pub mod lerobot;

use super::MAX_DESCRIPTOR;
use std::ops::Deref;
use std::str::Utf8Error;

/// The text that describes a payload.
#[derive(Clone)]
pub struct Descriptor {
    bytes: [u8; MAX_DESCRIPTOR],
    /// Length of the text within `bytes`.
    len: usize,
}

impl Descriptor {
    /// Takes the first `len` bytes, or all if there are fewer, which must be text.
    pub(super) fn new(bytes: [u8; MAX_DESCRIPTOR], len: usize) -> Result<Self, Utf8Error> {
        let len = len.min(MAX_DESCRIPTOR);
        std::str::from_utf8(&bytes[..len])?;
        Ok(Self { bytes, len })
    }
}

impl Deref for Descriptor {
    type Target = str;

    fn deref(&self) -> &str {
        // SAFETY: `new` has checked it.
        unsafe { std::str::from_utf8_unchecked(&self.bytes[..self.len]) }
    }
}

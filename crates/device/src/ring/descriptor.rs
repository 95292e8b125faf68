use super::MAX_DESCRIPTOR;
use std::ops::Deref;
use std::str::Utf8Error;

/// Text with which the writer describes a payload: UTF-8, at most [`MAX_DESCRIPTOR`] bytes.
#[derive(Clone)]
pub struct Descriptor {
    bytes: [u8; MAX_DESCRIPTOR],
    /// Length of the text within `bytes`.
    len: usize,
}

impl Descriptor {
    /// Takes the first `len` bytes, or all bytes if there are fewer. They must be UTF-8.
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

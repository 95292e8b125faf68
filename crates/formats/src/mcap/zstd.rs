//! Unpacking of data that are compressed with zstd.

use std::io::{self, Write};

/// Magic number of a zstd frame. No message in CDR begins with these bytes.
pub(super) const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Unpacks zstd frames into `out`, one after the other, until `limit` bytes are written. Returns the number of bytes written.
pub(super) fn unpack(mut compressed: impl io::BufRead, limit: u64, out: &mut impl Write) -> Result<u64, String> {
    let mut unpacked = 0;
    let is_empty = |compressed: &mut dyn io::BufRead| compressed.fill_buf().map(<[u8]>::is_empty);
    while unpacked < limit && !is_empty(&mut compressed).map_err(|error| error.to_string())? {
        let decoder = ruzstd::decoding::StreamingDecoder::new(&mut compressed).map_err(|error| error.to_string())?;
        let copied = io::copy(&mut io::Read::take(decoder, limit - unpacked), out);
        unpacked += copied.map_err(|error| error.to_string())?;
    }
    Ok(unpacked)
}

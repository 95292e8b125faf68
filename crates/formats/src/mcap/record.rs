//! Parsing of MCAP's records: <https://mcap.dev/spec>. A record that is shorter than its fields gives `None`, never a panic,
//! and a chunk is not unpacked beyond [`MOST_BYTES`].

use super::zstd;
use crate::Error;
use std::io::Read;

/// Number of bytes of a record's header: an opcode, and a length of 64 bits.
pub(super) const HEAD: usize = 9;
/// Largest size of a chunk or a record, compressed or not, bytes: the limit of a message in dora. Without a limit, a kilobyte
/// of zstd may unpack to a gigabyte.
pub(super) const MOST_BYTES: u64 = 256 << 20;

/// A record of a bag: a message, or the schema or channel that describes messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    Schema(Schema<'a>),
    Channel(Channel<'a>),
    Message(RawMessage<'a>),
}

/// Open file of a bag, MCAP or SQLite, as a sequence of records.
pub(super) trait Container {
    /// Calls `take` with the schemas and channels that are known before the first message.
    fn describe(&self, take: &mut dyn FnMut(Record<'_>));

    /// Reads the next record; `None` at the end of the file.
    ///
    /// # Errors
    /// If a part of the file can't be read. The next call continues after the damage.
    fn next(&mut self) -> Result<Option<Record<'_>>, Error>;

    /// Formats a line for the user that lists the records that are not read; `None` if there are none.
    fn left_out(&self) -> Option<String> {
        None
    }

    /// False if the log times of all messages are 0: the recorder did not write log times.
    fn has_log_times(&self) -> bool {
        true
    }

    /// True if the log times are the stamps of the messages, which may go back.
    fn is_by_stamp(&self) -> bool {
        false
    }

    /// Number of messages that follow a message with a later log time in the file, and were sorted.
    fn late(&self) -> u64 {
        0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Schema<'a> {
    pub id: u16,
    pub name: &'a str,
    pub encoding: &'a str,
    pub data: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Channel<'a> {
    pub id: u16,
    /// Id of the schema; 0 if the channel has none.
    pub schema: u16,
    pub topic: &'a str,
    pub encoding: &'a str,
    /// Names and values of the channel's metadata, still encoded.
    metadata: &'a [u8],
}

impl<'a> Channel<'a> {
    pub(super) fn new(id: u16, schema: u16, topic: &'a str, encoding: &'a str) -> Self {
        Self {
            id,
            schema,
            topic,
            encoding,
            metadata: &[],
        }
    }

    /// Returns the last value of this name in the channel's metadata; `None` if the name is absent.
    pub(super) fn metadata(&self, name: &str) -> Option<&'a str> {
        let mut fields = Fields(self.metadata);
        let all = std::iter::from_fn(|| Some((fields.text()?, fields.text()?)));
        all.filter(|(known, _)| *known == name).last().map(|(_, value)| value)
    }
}

/// A message that is not decoded yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawMessage<'a> {
    pub channel: u16,
    /// Log time: time at which the message was recorded, ns.
    pub log_time: u64,
    /// Time at which the message was sent, ns.
    pub publish_time: u64,
    pub data: &'a [u8],
}

/// Parser of a record's fields. Holds the bytes that are not parsed yet.
pub(super) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, n: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(n).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn blob(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.bytes(length.into())
    }

    fn text(&mut self) -> Option<&'a str> {
        str::from_utf8(self.blob()?).ok()
    }

    pub(super) fn schema(mut self) -> Option<Schema<'a>> {
        Some(Schema {
            id: self.u16()?,
            name: self.text()?,
            encoding: self.text()?,
            data: self.blob()?,
        })
    }

    pub(super) fn channel(mut self) -> Option<Channel<'a>> {
        Some(Channel {
            id: self.u16()?,
            schema: self.u16()?,
            topic: self.text()?,
            encoding: self.text()?,
            metadata: self.blob()?,
        })
    }

    pub(super) fn message(mut self) -> Option<RawMessage<'a>> {
        let channel = self.u16()?;
        self.u32()?; // the number of the message in its channel
        Some(RawMessage {
            channel,
            log_time: self.u64()?,
            publish_time: self.u64()?,
            data: self.0,
        })
    }

    /// Describes an attachment for the user, from its first bytes; `None` if they end too early.
    pub(super) fn attachment(mut self) -> Option<String> {
        self.u64()?; // when it was logged, and when it was made
        self.u64()?;
        let (name, kind) = (self.text()?, self.text()?);
        let bytes = self.u64()?;
        Some(format!("attachment `{name}` ({kind}, {bytes} bytes)"))
    }

    /// Returns the name of a metadata record; `None` if the record ends too early.
    pub(super) fn metadata(mut self) -> Option<&'a str> {
        self.text()
    }

    /// Parses the index record of a chunk: the chunk's position, the log times of its earliest and latest message, and the ids
    /// of its messages' channels. Returns `None` if the record ends too early.
    pub(super) fn chunk_index(mut self) -> Option<(u64, [u64; 2], Vec<u16>)> {
        let times = [self.u64()?, self.u64()?];
        let at = self.u64()?;
        let mut indices = Self(self.bytes(8).and_then(|_| self.blob()).unwrap_or_default());
        let mut channels = Vec::new();
        while let (Some(channel), Some(_)) = (indices.u16(), indices.u64()) {
            channels.push(channel);
        }
        Some((at, times, channels))
    }

    /// Unpacks the records of a chunk into `out`. If `is_cut`, the end of the chunk is missing, and as many bytes as possible
    /// are unpacked.
    pub(super) fn unpack_chunk(mut self, is_cut: bool, out: &mut Vec<u8>) -> Result<(), String> {
        out.clear();
        let mut parts = || {
            self.bytes(16)?; // the times of its first and last message
            Some((self.u64()?, self.u32()?, self.text()?, self.u64()?))
        };
        let parts = parts().ok_or("a chunk that is shorter than its fields")?;
        let (size, stated_crc, compression, compressed_size) = parts;
        if size > MOST_BYTES {
            return Err(format!("a chunk of {size} bytes (allowed: {MOST_BYTES})"));
        }
        let there = self.0.len() as u64;
        if there < compressed_size && !is_cut {
            return Err(format!(
                "a chunk of {compressed_size} compressed bytes in a record of {there}"
            ));
        }
        let compressed = &self.0[..there.min(compressed_size) as usize];
        // One byte more than stated shows that the chunk is larger.
        let limit = size + 1;
        let unpacked = match compression {
            "" => {
                out.extend_from_slice(compressed);
                Ok(())
            }
            "lz4" => {
                let mut frames = lz4_flex::frame::FrameDecoder::new(compressed).take(limit);
                frames.read_to_end(out).map(drop).map_err(|error| error.to_string())
            }
            "zstd" => zstd::unpack(compressed, limit, out).map(drop),
            other => {
                return Err(format!(
                    "a chunk compressed with `{other}` (allowed: lz4, zstd, or none)"
                ));
            }
        };
        if is_cut {
            return Ok(());
        }
        unpacked.map_err(|error| format!("a chunk that {compression} can't unpack: {error}"))?;
        if out.len() as u64 != size {
            return Err(format!("a chunk of {} bytes that says {size}", out.len()));
        }
        match crc32fast::hash(out) {
            crc if stated_crc != 0 && crc != stated_crc => Err(format!(
                "a chunk whose bytes have the CRC {crc:08x}, and it says {stated_crc:08x}"
            )),
            _ => Ok(()),
        }
    }
}

/// Parses the header of a record: its opcode, and the length of its body, bytes; `None` if there are fewer than 9 bytes.
pub(super) fn head(bytes: &[u8]) -> Option<(u8, u64)> {
    let mut fields = Fields(bytes);
    let [op] = fields.array()?;
    Some((op, fields.u64()?))
}

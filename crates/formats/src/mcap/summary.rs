//! Summary section at the end of an MCAP file, which repeats its schemas and channels and has an index of its chunks. A summary
//! that is damaged is ignored.

use super::record::{Fields, HEAD, MOST_BYTES, Record, head};
use mcap::MAGIC;
use mcap::records::op;
use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Bound;

/// Number of bytes of a footer: the positions of the summary and of its offsets, and its CRC.
pub(super) const FOOTER: u64 = 20;
/// Number of bytes of a footer with its header, and of the magic bytes after it.
const TAIL: u64 = HEAD as u64 + FOOTER + MAGIC.len() as u64;
const BEFORE_CRC: usize = HEAD + 16;

#[derive(Default)]
pub(super) struct Summary {
    bytes: Vec<u8>,
    /// Ids of the channels with messages in each chunk, by the chunk's position in the file.
    chunks: BTreeMap<u64, Vec<u16>>,
    /// Earliest log time, ns, in each chunk and all later chunks, by the chunk's position in the file.
    earliest: BTreeMap<u64, u64>,
    /// Latest log time of all messages in chunks, ns.
    latest: u64,
}

impl Summary {
    /// Reads the summary of a file of `length` bytes, whose records begin at byte `from`. Returns an empty summary if the file
    /// has none, or if the summary is damaged.
    pub(super) fn read(file: &mut (impl Read + Seek), from: u64, length: u64) -> io::Result<Self> {
        let Some(footer_at) = length.checked_sub(TAIL).filter(|&at| at >= from) else {
            return Ok(Self::default());
        };
        file.seek(SeekFrom::Start(footer_at))?;
        let mut tail = [0; TAIL as usize];
        file.read_exact(&mut tail)?;
        let start = Fields(&tail[HEAD..]).u64().unwrap_or(0);
        let is_footer = head(&tail) == Some((op::FOOTER, FOOTER)) && tail.ends_with(MAGIC);
        if !is_footer || !(from..footer_at).contains(&start) || footer_at - start > MOST_BYTES {
            return Ok(Self::default());
        }
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(footer_at - start).read_to_end(&mut bytes)?;
        // The footer points elsewhere if a part of the file is missing or stands in it twice.
        let mut crc = crc32fast::Hasher::new();
        crc.update(&bytes);
        crc.update(&tail[..BEFORE_CRC]);
        let says = Fields(&tail[BEFORE_CRC..]).u32().unwrap_or(0);
        let is_whole = split(&bytes).map(|(_, body)| HEAD + body.len()).sum::<usize>() == bytes.len();
        if (says != 0 && says != crc.finalize()) || !is_whole {
            return Ok(Self::default());
        }
        let indices = split(&bytes).filter(|(op, _)| *op == op::CHUNK_INDEX);
        let (mut chunks, mut earliest, mut latest) = (BTreeMap::new(), BTreeMap::new(), 0);
        for (at, times, channels) in indices.filter_map(|(_, body)| Fields(body).chunk_index()) {
            latest = latest.max(times[1]);
            // A chunk without a message has no times.
            let is_empty = times == [0; 2] && channels.is_empty();
            earliest.insert(at, if is_empty { u64::MAX } else { times[0] });
            chunks.insert(at, channels);
        }
        let mut least = u64::MAX;
        for time in earliest.values_mut().rev() {
            least = least.min(*time);
            *time = least;
        }
        Ok(Self {
            bytes,
            chunks,
            earliest,
            latest,
        })
    }

    /// Returns the schemas and channels that the summary repeats.
    pub(super) fn records(&self) -> impl Iterator<Item = Record<'_>> {
        split(&self.bytes).filter_map(|(op, body)| match op {
            // The number 0 stands for no schema.
            op::SCHEMA => Fields(body)
                .schema()
                .filter(|schema| schema.id != 0)
                .map(Record::Schema),
            op::CHANNEL => Fields(body).channel().map(Record::Channel),
            _ => None,
        })
    }

    /// True if the index has a chunk that begins at byte `at`.
    pub(super) fn has_chunk(&self, at: u64) -> bool {
        self.chunks.contains_key(&at)
    }

    /// Returns the position of the first chunk after byte `at`; `None` if there is no further chunk.
    pub(super) fn next_chunk(&self, at: u64) -> Option<u64> {
        let mut behind = self.chunks.range((Bound::Excluded(at), Bound::Unbounded));
        behind.next().map(|(&at, _)| at)
    }

    /// Returns the earliest log time in the chunks at or after byte `at`, ns; `u64::MAX` if they have no message.
    pub(super) fn earliest_from(&self, at: u64) -> u64 {
        self.earliest.range(at..).next().map_or(u64::MAX, |(_, &time)| time)
    }

    /// False if there are chunks, and the log times of all their messages are 0.
    pub(super) fn has_log_times(&self) -> bool {
        self.latest > 0 || self.chunks.is_empty()
    }

    /// True if the summary has an index of the chunks.
    pub(super) fn has_chunks(&self) -> bool {
        !self.chunks.is_empty()
    }

    /// Names the topics with messages in the chunk at byte `at`, as the end of an error's sentence. Returns an empty string if
    /// the file has no index.
    pub(super) fn topics_at(&self, at: u64) -> String {
        let channels = self.records().filter_map(|record| match record {
            Record::Channel(channel) => Some((channel.id, channel.topic)),
            _ => None,
        });
        let topics: BTreeMap<u16, &str> = channels.collect();
        let ids = self.chunks.get(&at).into_iter().flatten();
        let of: Vec<&str> = ids.filter_map(|id| topics.get(id).copied()).collect();
        match of.is_empty() {
            true => String::new(),
            false => format!(", with messages of {}", of.join(", ")),
        }
    }
}

/// Splits bytes into records, and returns the opcode and body of each. Stops at a record that is incomplete.
fn split(mut rest: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (op, length) = head(rest)?;
        let (body, behind) = rest[HEAD..].split_at_checked(usize::try_from(length).ok()?)?;
        rest = behind;
        Some((op, body))
    })
}

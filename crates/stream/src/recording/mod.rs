//! Recordings: a folder with one Arrow IPC file for each stream, `<output id>.arrow`, in which a row is a message.
//!
//! | column | type | what it holds |
//! |---|---|---|
//! | `timestamp_ns` | Int64 | capture time of the newest sample |
//! | `data` | `List<T>` | the elements of a tensor, row-major |
//! | `shape` | `List<Int64>` | its dimensions, empty if the message had none |
//! | `timestamps_ns` | `List<Int64>` | capture time of each sample, if messages carry several |
//! | `valid` | `List<Int64>` | validity mask of a tensor, 0/1, if messages carry one |
//! | `arrival_ns` | Int64 | arrival at the recorder, ns since 1970 by its host; ascending over all streams |
//! | `metadata` | Utf8 | differences from the first message's metadata, as a JSON object; null if there are none |
//!
//! Messages that are a StructArray have a List column for each of their fields instead of `data`, and `shape` only if the first
//! message has a shape. A field of several elements a row is a `List<FixedSizeList<T, n>>` or a `List<List<T>>`, and a field of
//! text a `List<Utf8>`. A field with the name of a column above, except `valid`, is stored with the prefix `data.`; its own name
//! is in the column's metadata, as `field`.
//!
//! The schema's metadata hold the metadata of the first message: `fields` (a JSON list of strings), `dtype`, `frame_id`, `dim`, and
//! all others as one JSON object, `metadata`. The `dtype` is a name; `bfloat16` is stored as UInt16. A struct's column of bfloat16
//! has its own `dtype` in the metadata of its field. Its messages have that `dtype`, too, unless `metadata` has a `null` for
//! `dtype`.
//!
//! If a message differs from the first message, the column `metadata` of its row has the keys that differ, with `null` for an
//! absent key. Recordings of earlier versions lack this column. In them the custom metadata of a batch have a key `metadata`, a
//! JSON list with an object for each row.
//!
//! | in JSON | type |
//! |---|---|
//! | `1`, `[1, 2]` | integers |
//! | `1.0`, `[0.5, 1e300]` | floats |
//! | `{"float": "NaN"}`, `{"list_float": ["inf", "1.0"]}` | floats that JSON has no number for; an empty list of floats |
//! | `{"list_int": []}` | an empty list of integers; `[]` is an empty list of strings |
//! | `{"timestamp": 1700000000000000000}` | a dora timestamp, ns since 1970 |
//!
//! A recorder that is restarted in the same run continues each stream in further files: `<output id>.arrow.2`,
//! `<output id>.arrow.3`, and so on. Together the files are one stream, in this order.
//!
//! `arrival_ns` is present if the [`Writer`] was made with [`Writer::with_arrivals`] or [`Writer::with_arrivals_of_messages`].
//! It gives the order in which the messages of all streams arrived. Replayed in this order, a recording makes the same
//! observations under `max_wait_ms` as the live messages made in the recorder's process.
//!
//! [`Writer`] writes such a folder, message by message. A process that dies loses at most the messages of the last half second.
//! [`Reader`] returns the messages of all streams in the order of time, and the whole batches of a damaged file. [`Indexed`]
//! reads the messages of one stream in any order, and loads only those that are read. Any Arrow reader can open the files of a
//! finished recording, and those of an unfinished recording as a stream from byte 8 on. [`Reader`] also reads files of other
//! writers, unless they are compressed: batches of any size, columns in any order, and `shape`, `timestamps_ns`, `valid`,
//! `arrival_ns` and `metadata` optional.
//!
//! ```
//! use robocache_device::Dtype;
//! use robocache_stream::{Layout, Message, recording};
//! use std::time::Instant;
//!
//! # let folder = std::env::temp_dir().join(format!("robocache-recording-{}", std::process::id()));
//! // `folder` is made; a stream that was recorded there before is refused.
//! let mut writer = recording::Writer::create(&folder)?;
//! let mut message = Message::default();
//! for (stream, ms) in [("force", 0), ("force", 2), ("camera", 1)] {
//!     message.write(&Layout::flat(Dtype::Float32, 2), |payload, header| {
//!         payload.column(0).copy_from_slice(&[ms as f32, 0.5]);
//!         header.timestamp_ns.set(ms * 1_000_000);
//!     });
//!     // When the message came: a batch is written when its oldest message has waited for half a second.
//!     writer.append(stream, &message, Instant::now())?;
//!     writer.tick(Instant::now())?;
//! }
//! writer.finish()?;
//!
//! let mut reader = recording::Reader::open(&folder)?;
//! let streams: Vec<String> = reader.streams().map(str::to_owned).collect();
//! assert_eq!(streams, ["camera", "force"]); // sorted by name
//! let mut came = Vec::new();
//! while let Some(stream) = reader.next_into(&mut message)? {
//!     came.push((streams[stream].as_str(), message.timestamp_ns()));
//! }
//! assert_eq!(came, [("force", 0), ("camera", 1_000_000), ("force", 2_000_000)]);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod batch;
mod error;
mod files;
mod framing;
mod indexed;
mod pending;
mod reader;
mod schema;
mod sparse;
pub mod text;
mod writer;

use std::path::Path;

pub use error::{ReadError, WriteError};
pub use indexed::Indexed;
pub use reader::{Order, Reader};
pub use writer::Writer;

/// The names of the streams that have a file in a recording's folder, sorted.
///
/// # Errors
/// If the folder can't be read.
pub fn streams(folder: impl AsRef<Path>) -> Result<Vec<String>, ReadError> {
    let path = folder.as_ref();
    let files = files::streams(path).map_err(ReadError::io(path))?;
    Ok(files.into_keys().collect())
}

/// True if messages can be ordered by their arrival times, ns. `streams` has the arrival times of each stream; `None` for a
/// stream without them. Every stream needs arrival times that never descend, and not all times may be equal.
pub fn are_in_order<'a>(streams: impl IntoIterator<Item = Option<&'a [i64]>>) -> bool {
    let (mut first, mut differ, mut any) = (None, false, false);
    for arrivals in streams {
        let Some(arrivals) = arrivals.filter(|arrivals| arrivals.is_sorted()) else {
            return false;
        };
        for ends in [arrivals.first(), arrivals.last()].into_iter().flatten() {
            any = true;
            differ |= first.is_some_and(|first| first != *ends);
            first = Some(*ends);
        }
    }
    differ || !any
}

/// Extension of a recording's files, behind the name of the stream.
const EXTENSION: &str = "arrow";

/// Name of the column of a tensor's elements. The other columns have the names of the metadata keys that they hold.
const DATA: &str = "data";
/// Name of the column of the messages' arrival times. A struct's field of this name is stored with the prefix `data.`.
const ARRIVAL: &str = "arrival_ns";

#[cfg(test)]
mod tests {
    use super::are_in_order;

    #[test]
    fn arrivals_tell_the_order_if_they_are_there_differ_and_do_not_go_back() {
        let tell = |streams: &[Option<&[i64]>]| are_in_order(streams.iter().copied());
        assert!(tell(&[Some(&[1, 2, 2]), Some(&[0, 5])]));
        assert!(tell(&[Some(&[1]), Some(&[2])]));
        assert!(tell(&[]) && tell(&[Some(&[])]));
        assert!(!tell(&[Some(&[1, 2]), None]));
        assert!(!tell(&[Some(&[0, 0]), Some(&[0])]));
        assert!(!tell(&[Some(&[7]), Some(&[7, 7])]));
        assert!(!tell(&[Some(&[1, 2]), Some(&[1, 3, 2])]));
    }
}

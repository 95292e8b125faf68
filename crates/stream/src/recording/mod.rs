//! Recordings: a folder with one Arrow IPC file for each stream, `<output id>.arrow`, in which a row is a message.
//!
//! | column | type | what it holds |
//! |---|---|---|
//! | `timestamp_ns` | Int64 | capture time of the newest sample |
//! | `data` | `List<T>` | the elements of a tensor, row-major |
//! | `shape` | `List<Int64>` | its dimensions, empty if the message had none |
//! | `timestamps_ns` | `List<Int64>` | one for each sample, if messages carry several |
//! | `valid` | `List<Int64>` | 0/1 as a fused tensor carries it, if messages do |
//! | `arrival_ns` | Int64 | when the recorder got it, ns since 1970 by its host; ascending over all streams |
//! | `metadata` | Utf8 | if it differs from the first message, as a JSON object; null if it does not |
//!
//! Messages that are a StructArray have a List column for each of their fields instead of `data`, and `shape` only
//! if the first of them says one. A field of several elements a row is a `List<FixedSizeList<T, n>>` or a
//! `List<List<T>>`, one of text a `List<Utf8>`. A field that is called like one of the columns above has `data.` before its name, and its own name
//! in the column's metadata, as `field`.
//!
//! The metadata of the first message are in those of the schema: `fields` (a JSON list of strings), `dtype` (by name;
//! `bfloat16` is stored as UInt16), `frame_id`, `dim`, and everything else as one JSON object, `metadata`. A struct's
//! column of bfloat16 has its own `dtype`, in the metadata of its field, and its messages say the same, unless there is
//! a `null` for `dtype` in `metadata`. If a message differs from the first one, its row has the keys that differ in the
//! column `metadata`, `null` for one that is not there. Recordings of earlier versions lack this column: in them the
//! custom metadata of a batch has a `metadata`, a JSON list with an object for each row.
//!
//! | in JSON | type |
//! |---|---|
//! | `1`, `[1, 2]` | integers |
//! | `1.0`, `[0.5, 1e300]` | floats |
//! | `{"float": "NaN"}`, `{"list_float": ["inf", "1.0"]}` | floats that JSON has no number for, and no floats |
//! | `{"list_int": []}` | no integers; `[]` means no strings |
//! | `{"timestamp": 1700000000000000000}` | a time of dora's, ns since 1970 |
//!
//! A recorder that was started again in the same run goes on in further files: `<output id>.arrow.2`, `<output id>.arrow.3`, and so
//! on. They are one stream, in this order.
//!
//! `arrival_ns` is there if the [`Writer`] was told to keep it: it gives the messages of all streams in the order in
//! which they came, and so under `max_wait_ms` the observations of an operation that got them in the same process.
//!
//! [`Writer`] makes such a folder, message by message, and a process that dies loses at most what came in the last half
//! second. [`Reader`] gives the messages of all streams in the order of time, and of a damaged file what is whole;
//! [`Indexed`] those of one stream in any order, loading what is asked for. Any Arrow reader can open the files of a recording that was finished, and as a stream from byte 8 on those of one that
//! was not. [`Reader`] reads those of other writers: batches of any size, columns in any order, `shape`,
//! `timestamps_ns`, `valid`, `arrival_ns` and `metadata` optional; not compressed.
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

/// The names of the streams that have a file in a folder, sorted.
///
/// # Errors
/// If there is no such folder.
pub fn streams(folder: impl AsRef<Path>) -> Result<Vec<String>, ReadError> {
    let path = folder.as_ref();
    let files = files::streams(path).map_err(ReadError::io(path))?;
    Ok(files.into_keys().collect())
}

/// True if these arrivals of each stream's messages tell in which order they came: they are there, of more than one time, and
/// those of a stream don't go back.
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

/// Suffix of a recording's file, behind the stream's name.
const EXTENSION: &str = "arrow";

/// The column of a tensor's elements. The other columns are called like the metadata keys that they hold.
const DATA: &str = "data";
/// Column of the messages' arrivals; a struct's field does not have this name.
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

//! Recordings: a folder with one Arrow IPC file for each stream, `<output id>.arrow`, in which a row is a message.
//!
//! | column | type | what it holds |
//! |---|---|---|
//! | `timestamp_ns` | Int64 | capture time of the newest sample |
//! | `data` | `List<T>` | the elements of a tensor, row-major |
//! | `shape` | `List<Int64>` | its dimensions, empty where the message had none |
//! | `timestamps_ns` | `List<Int64>` | one for each sample, where messages carry several |
//! | `valid` | `List<Int64>` | 0/1 as a fused tensor carries it, where messages do |
//!
//! Messages that are a StructArray have a List column for each of their fields instead of `data`, and `shape` only
//! where they say one. A field of several elements a row is a `List<FixedSizeList<T, n>>` or a `List<List<T>>`.
//!
//! What is the same in every message is in the schema's metadata: `fields` (a JSON list of strings), `dtype` (by name;
//! `bfloat16` is stored as UInt16), `frame_id` and `dim`. A struct's column of bfloat16 has its own `dtype`, in the
//! metadata of its field.
//!
//! [`Writer`] makes such a folder, message by message, and a process that dies loses at most what came in the last half
//! second. [`Reader`] gives the messages of all streams in the order of time. Any Arrow reader can open the files, and
//! [`Reader`] reads those of other writers: batches of any size, columns in any order, `shape`, `timestamps_ns` and
//! `valid` optional.

mod batch;
mod error;
mod framing;
mod pending;
mod reader;
mod schema;
mod writer;

pub use error::{ReadError, WriteError};
pub use reader::Reader;
pub use writer::Writer;

/// What a file of a recording is called: the stream's name and this.
const EXTENSION: &str = "arrow";

const TIMESTAMP: &str = "timestamp_ns";
const TIMESTAMPS: &str = "timestamps_ns";
const SHAPE: &str = "shape";
const DATA: &str = "data";
const VALID: &str = "valid";

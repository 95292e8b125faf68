//! Reader and writer of CSV tables. The reader makes one stream or several from a file, the writer one file from each stream.
//!
//! ```
//! use robocache_formats::csv::{Options, Reader};
//! use robocache_stream::Message;
//!
//! # let path = std::env::temp_dir().join(format!("robocache-force-{}.csv", std::process::id()));
//! std::fs::write(&path, "time,fx,fy\n1700000000.123456789,0.5,1\n1700000000.125,0.25,\n")?;
//! let mut reader = Reader::open(&path, &Options::default())?;
//! let mut message = Message::default();
//! let stream = reader.next_into(&mut message)?.unwrap();
//! assert_eq!(message.timestamp_ns(), 1_700_000_000_123_456_789);
//! assert_eq!(message.flat().unwrap().as_slice::<f64>(), [0.5, 1.0]);
//! assert!(reader.stream(stream).starts_with("robocache-force"));
//! // The unit was guessed, and that is said.
//! assert!(reader.left_out()[0].contains("column `time` is the time, in s"));
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cells;
mod reader;
mod rows;
mod time;
mod writer;

pub use reader::{Options, Reader};
pub use writer::Writer;

/// Name of the timestamp column, ns, in the tables that the writer makes.
const TIMESTAMP: &str = robocache_stream::key::timestamp_ns;
/// Name of the column of arrival times, ns.
const ARRIVAL: &str = "arrival_ns";

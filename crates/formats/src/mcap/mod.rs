//! Reader and writer of MCAP files: recordings of ROS 2, Foxglove and others are read, and ROS 2 messages are written. Nothing
//! is lost silently: data that can't be read are an error, and other data that are left out are listed.
//!
//! [`Reader`] reads the messages of a file, or of a folder of rosbag2, and splits them into streams as `docs/formats.md` says.
//!
//! ```no_run
//! use robocache_formats::mcap::Reader;
//! use robocache_stream::Message;
//!
//! let mut reader = Reader::open("drive.mcap")?;
//! let mut message = Message::default();
//! loop {
//!     match reader.next_into(&mut message) {
//!         Ok(Some(stream)) => println!("{}: {} values", reader.stream(stream), message.rows),
//!         Ok(None) => break,
//!         // What is whole behind it comes next.
//!         Err(error) => eprintln!("{error}"),
//!     }
//! }
//! reader.left_out().iter().for_each(|line| println!("{line}"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Writer`] writes messages to a file, and a reader gives the same messages back:
//!
//! ```
//! use robocache_formats::mcap::{Reader, Writer};
//! use robocache_device::Dtype;
//! use robocache_stream::{Layout, Message};
//!
//! # let path = std::env::temp_dir().join(format!("robocache-{}.mcap", std::process::id()));
//! let mut message = Message::default();
//! message.write(&Layout::flat(Dtype::Float32, 2), |payload, header| {
//!     payload.column(0).copy_from_slice(&[0.5f32, -1.5]);
//!     header.timestamp_ns.set(7);
//!     header.fields.set(["elbow", "wrist"]); // so it becomes a JointState
//! });
//! let mut writer = Writer::create(&path)?;
//! writer.append("joints", &message)?;
//! writer.finish()?;
//!
//! let (mut reader, mut read) = (Reader::open(&path)?, Message::default());
//! let stream = reader.next_into(&mut read)?.unwrap();
//! assert_eq!(reader.stream(stream), "joints");
//! assert_eq!(read.header, message.header);
//! assert_eq!(read.columns()[0].values().as_slice::<f32>(), [0.5, -1.5]);
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cdr;
mod chunks;
mod columns;
mod container;
mod decoder;
mod descriptor;
mod encoder;
mod files;
mod form;
mod image;
mod interfaces;
mod json;
mod ordered;
mod own;
mod plan;
mod protobuf;
mod reader;
mod record;
mod records;
mod row;
#[cfg(feature = "rosbag2")]
mod sqlite;
mod stamp;
mod standard;
mod summary;
mod tally;
#[cfg(test)]
mod tests;
mod topics;
mod types;
mod voxels;
mod writer;
mod zstd;

pub use reader::Reader;
pub use writer::Writer;

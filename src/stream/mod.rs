//! What streams are made of: messages in memory that is reused, and the bounded history of one stream.

mod history;
mod message;
mod metadata;
mod payload;
pub mod recording;

pub use history::{History, Insert, Place};
pub use message::{Cells, Column, ColumnLayout, DeviceTensor, Layout, Message, Skipped};
pub use metadata::{Metadata, MetadataValue};
pub(crate) use payload::ColumnPlace;
pub use payload::Payload;

//! Sensor streams: messages in memory that is reused, bounded histories, point clouds, selectors that read the messages of
//! other software, and recordings.

#![warn(unreachable_pub)]

mod arrow;
mod cloud;
pub mod file;
pub mod form;
mod header;
mod history;
mod message;
mod metadata;
mod payload;
mod plain;
pub mod recording;
pub mod ring;
mod samples;
mod selector;
mod slot;

pub use cloud::{
    DeviceCloud, DeviceCloudError, DeviceField, FieldType, HostCloud, HostField, PointCloud, PointCloudError,
};
pub use header::{Entry, Header, Key, MessageError, Set, Value, key};
pub use history::{History, Insert, Place};
pub use message::{Cells, Column, ColumnLayout, Data, DeviceColumn, Layout, Message, Skipped};
pub use metadata::{Metadata, MetadataRef, MetadataValue, Names};
pub use payload::ColumnSpan;
pub use payload::Payload;
pub use plain::{needs_escape, plain};
pub use samples::{SampleRow, SampleRows, SamplesError};
pub use selector::{
    CloudFields, FromConfig, FromError, MetadataStamp, NamesConfig, NumberStamp, SelectError, Selection, Selector,
    StampConfig, TimeUnit, Width,
};
pub use selector::{DATATYPES, FRAMES, Path, Recognised, integer, ns_of, number, recognise};
pub use slot::{SlotColumn, SlotLayout, SlotPayload};

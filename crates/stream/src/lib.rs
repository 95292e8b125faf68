//! What streams are made of: messages in memory that is reused, and the bounded history of one stream.

// Without CUDA no value of a device's types exists. Code that takes one still compiles, and is never reached.
#![cfg_attr(
    not(feature = "cuda"),
    allow(
        dead_code,
        missing_docs,
        unreachable_code,
        unused_assignments,
        unused_mut,
        unused_variables
    )
)]

mod arrow;
pub mod file;
pub mod header;
mod history;
mod message;
mod metadata;
mod payload;
mod plain;
pub mod recording;
mod resident;
mod samples;
mod selector;

pub use header::{Entry, Header, MessageError, Names, key};
pub use history::{History, Insert, Place};
pub use message::{Cells, Column, ColumnLayout, DeviceTensor, Layout, Message, Skipped};
pub use metadata::{Metadata, MetadataRef, MetadataValue};
pub use payload::ColumnSpan;
pub use payload::Payload;
pub use plain::{is_obeyed, plain};
pub use resident::{Resident, SlotColumn, SlotLayout};
pub use samples::{SampleRow, SampleRows, SamplesError};
pub use selector::{DATATYPES, FRAMES, Path, Recognised, integer, ns_of, number, recognise};
pub use selector::{
    FromConfig, FromError, MetadataStamp, NamesConfig, Reading, SelectError, Selector, StampConfig, TimeUnit, Wanted,
    Width,
};

//! Memory that the payload of a message is written to when the message is published.
//!
//! An operation writes each payload once, to the memory that the payload is sent from.

use super::{Column, Layout, Message};
use robocache_device::{Dtype, Primitive};
use std::ops::Range;

/// Memory for the payload of a message that is being published. The publisher must fill every element of every column.
///
/// A message for the dataflow is written to the memory that it is sent from, which may be shared memory: nothing is copied later.
pub struct Payload<'a>(Memory<'a>);

enum Memory<'a> {
    /// The columns of a message that stays in this process.
    Message(&'a mut [Column]),
    /// The body of an Arrow IPC message, which holds the columns one after the other.
    Body(&'a mut [u8], &'a [ColumnSpan]),
}

/// Byte ranges of one column in the body of a message: the row offsets, then the elements.
pub struct ColumnSpan {
    /// Type of the column's elements.
    pub dtype: Dtype,
    /// Byte range of the row offsets, int32, in the body; empty if the column has no offsets.
    pub offsets: Range<usize>,
    /// Byte range of the elements in the body.
    pub data: Range<usize>,
}

impl<'a> Payload<'a> {
    /// Gives `message` a payload of this layout, and returns its memory; the header stays. [`Message::write`] replaces both.
    pub fn in_message(message: &'a mut Message, layout: &Layout) -> Self {
        Self(Memory::Message(message.lay_out(layout)))
    }

    pub(super) fn in_columns(columns: &'a mut [Column]) -> Self {
        Self(Memory::Message(columns))
    }

    /// Copies the payload of a message of the same layout to this memory.
    pub fn copy_from(&mut self, message: &Message) {
        for (i, column) in message.columns().iter().enumerate() {
            self.column::<u8>(i).copy_from_slice(column.data.bytes());
            self.offsets(i).copy_from_slice(&column.offsets);
        }
    }

    /// Creates the payload in the body of an Arrow IPC message, whose columns lie at `spans`.
    pub fn in_body(body: &'a mut [u8], spans: &'a [ColumnSpan]) -> Self {
        Self(Memory::Body(body, spans))
    }

    fn dtype(&self, i: usize) -> Dtype {
        match &self.0 {
            Memory::Message(columns) => columns[i].dtype,
            Memory::Body(_, spans) => spans[i].dtype,
        }
    }

    /// The elements of column `i`, of type `T`, to be filled; with `u8` as `T`, the bytes of the elements.
    ///
    /// # Panics
    /// If column `i` does not exist or has another type.
    #[track_caller]
    pub fn column<T: Primitive>(&mut self, i: usize) -> &mut [T] {
        self.dtype(i).assert_is::<T>();
        bytemuck::cast_slice_mut(match &mut self.0 {
            Memory::Message(columns) => columns[i].data.bytes_mut(),
            Memory::Body(body, spans) => &mut body[spans[i].data.clone()],
        })
    }

    /// The elements of the first two columns, of types `T` and `U`, to be filled.
    ///
    /// # Panics
    /// If there are fewer than two columns, or if they have other types.
    #[track_caller]
    pub fn columns<T: Primitive, U: Primitive>(&mut self) -> (&mut [T], &mut [U]) {
        self.dtype(0).assert_is::<T>();
        self.dtype(1).assert_is::<U>();
        let (first, second) = match &mut self.0 {
            Memory::Message(columns) => {
                let (first, others) = columns.split_at_mut(1);
                (first[0].data.bytes_mut(), others[0].data.bytes_mut())
            }
            Memory::Body(body, spans) => split_two(body, &spans[0].data, &spans[1].data),
        };
        (bytemuck::cast_slice_mut(first), bytemuck::cast_slice_mut(second))
    }

    /// The row offsets of the first two columns, to be filled as [`offsets`](Self::offsets) says.
    pub fn both_offsets(&mut self) -> (&mut [i32], &mut [i32]) {
        match &mut self.0 {
            Memory::Message(columns) => {
                let (first, others) = columns.split_at_mut(1);
                (&mut first[0].offsets, &mut others[0].offsets)
            }
            Memory::Body(body, spans) => {
                let (first, second) = split_two(body, &spans[0].offsets, &spans[1].offsets);
                (bytemuck::cast_slice_mut(first), bytemuck::cast_slice_mut(second))
            }
        }
    }

    /// The row offsets of column `i`, to be filled with ascending offsets from 0, one more than there are rows. Empty if the column
    /// is not ragged.
    pub fn offsets(&mut self, i: usize) -> &mut [i32] {
        match &mut self.0 {
            Memory::Message(columns) => &mut columns[i].offsets,
            Memory::Body(body, spans) => bytemuck::cast_slice_mut(&mut body[spans[i].offsets.clone()]),
        }
    }
}

/// Borrows two ranges of a body, both mutable. The first range must end before the second begins.
fn split_two<'a>(body: &'a mut [u8], first: &Range<usize>, second: &Range<usize>) -> (&'a mut [u8], &'a mut [u8]) {
    let (before, after) = body.split_at_mut(second.start);
    (&mut before[first.clone()], &mut after[..second.len()])
}

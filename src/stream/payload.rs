use super::{Column, Layout, Message};
use bytemuck::Pod;
use std::ops::Range;

/// The memory of a message that is being published: fill every element of every column.
///
/// It is the message's final place, in shared memory where dora uses that.
pub struct Payload<'a>(Memory<'a>);

enum Memory<'a> {
    /// Of a message that stays in this process.
    Message(&'a mut [Column]),
    /// The body of an Arrow IPC message, in which the columns lie one after the other.
    #[cfg_attr(not(feature = "dora"), allow(dead_code))]
    Body(&'a mut [u8], &'a [ColumnPlace]),
}

/// Where a column lies in the body of a message: its offsets, then its data.
pub(crate) struct ColumnPlace {
    pub offsets: Range<usize>,
    pub data: Range<usize>,
}

impl<'a> Payload<'a> {
    /// The memory of `message`, which is given this layout and keeps its header. [`Message::write`] gives both at once.
    pub fn in_message(message: &'a mut Message, layout: &Layout) -> Self {
        Self(Memory::Message(message.lay_out(layout)))
    }

    pub(super) fn in_columns(columns: &'a mut [Column]) -> Self {
        Self(Memory::Message(columns))
    }

    /// Fills it with a copy of the payload of a message of the same layout.
    pub fn copy_from(&mut self, message: &Message) {
        for (i, column) in message.columns().iter().enumerate() {
            self.column::<u8>(i).copy_from_slice(column.data.bytes());
            self.offsets(i).copy_from_slice(&column.offsets);
        }
    }

    #[cfg(feature = "dora")]
    pub(crate) fn in_body(body: &'a mut [u8], places: &'a [ColumnPlace]) -> Self {
        Self(Memory::Body(body, places))
    }

    /// The elements of column `i`, of type `T` by the layout.
    pub fn column<T: Pod>(&mut self, i: usize) -> &mut [T] {
        bytemuck::cast_slice_mut(match &mut self.0 {
            Memory::Message(columns) => columns[i].data.bytes_mut(),
            Memory::Body(body, places) => &mut body[places[i].data.clone()],
        })
    }

    /// The elements of the first two columns.
    pub fn columns<T: Pod, U: Pod>(&mut self) -> (&mut [T], &mut [U]) {
        let (first, second) = match &mut self.0 {
            Memory::Message(columns) => {
                let (first, others) = columns.split_at_mut(1);
                (first[0].data.bytes_mut(), others[0].data.bytes_mut())
            }
            Memory::Body(body, places) => two_of(body, &places[0].data, &places[1].data),
        };
        (bytemuck::cast_slice_mut(first), bytemuck::cast_slice_mut(second))
    }

    /// The offsets of the rows of the first two columns.
    pub fn both_offsets(&mut self) -> (&mut [i32], &mut [i32]) {
        match &mut self.0 {
            Memory::Message(columns) => {
                let (first, others) = columns.split_at_mut(1);
                (&mut first[0].offsets, &mut others[0].offsets)
            }
            Memory::Body(body, places) => {
                let (first, second) = two_of(body, &places[0].offsets, &places[1].offsets);
                (bytemuck::cast_slice_mut(first), bytemuck::cast_slice_mut(second))
            }
        }
    }

    /// The offsets of the rows of column `i`, one more than there are rows, from 0; empty where it is not ragged.
    pub fn offsets(&mut self, i: usize) -> &mut [i32] {
        match &mut self.0 {
            Memory::Message(columns) => &mut columns[i].offsets,
            Memory::Body(body, places) => bytemuck::cast_slice_mut(&mut body[places[i].offsets.clone()]),
        }
    }
}

/// Two ranges of a body, the first of which ends before the second begins.
fn two_of<'a>(body: &'a mut [u8], first: &Range<usize>, second: &Range<usize>) -> (&'a mut [u8], &'a mut [u8]) {
    let (before, after) = body.split_at_mut(second.start);
    (&mut before[first.clone()], &mut after[..second.len()])
}

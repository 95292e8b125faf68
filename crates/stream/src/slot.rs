//! Payloads in slots of a ring, memory that sender and receivers share: the layout of columns in a slot, and copying
//! to messages.
//!
//! A reader does not trust a slot: bytes beyond the payload, offsets that do not rise and text that is not UTF-8 are errors.

use super::{Cells, Column, ColumnSpan, Header, Key, Layout, Message, MessageError, Payload, ring};
use robocache_device::Dtype;
use robocache_device::ring::{Descriptor, Readers, RingError, RingPayload, SlotMut, Ticket};
use std::borrow::Cow;
use std::fmt::Write;
use std::ops::Range;

/// Alignment of the offsets and the elements of each column in a slot, bytes.
const ALIGNMENT: usize = 64;

/// Layout of a payload in a slot: column after column, and in a ragged column first the offsets and then the elements.
///
/// A [reader](SlotPayload::columns) parses the layout from a text: a line `rows N`, then for each column a line with its type,
/// its elements per row, and its name. The elements per row are `1`, or `xN` for N. They are `~N` for a varying number with N
/// in all rows together, and `tN` for texts with N bytes in all rows together.
#[derive(Default)]
pub struct SlotLayout {
    spans: Vec<ColumnSpan>,
    bytes: usize,
    text: String,
}

/// Allocator of byte ranges in a slot for columns of `rows` rows, one column after the other.
struct Spans {
    rows: usize,
    bytes: usize,
}

impl Spans {
    fn next(&mut self, dtype: Dtype, cells: Cells) -> ColumnSpan {
        let (offsets, elements) = match cells {
            Cells::One => (0, self.rows),
            Cells::Fixed(n) => (0, n * self.rows),
            Cells::Ragged(total) | Cells::Text(total) => (self.rows + 1, total),
        };
        let mut next = |len: usize| {
            let start = self.bytes;
            self.bytes += len.next_multiple_of(ALIGNMENT);
            start..start + len
        };
        ColumnSpan {
            dtype,
            offsets: next(offsets * size_of::<i32>()),
            data: next(elements * dtype.size()),
        }
    }
}

impl SlotLayout {
    /// Computes the byte ranges of the columns, and the text that describes them, for payloads of this layout.
    pub fn set(&mut self, layout: &Layout) {
        self.spans.clear();
        self.text.clear();
        let mut spans = Spans {
            rows: layout.rows,
            bytes: 0,
        };
        // Writing to a string can't fail.
        let _ = write!(self.text, "rows {}", layout.rows);
        for column in &layout.columns {
            self.spans.push(spans.next(column.dtype, column.cells));
            let _ = write!(self.text, "\n{} ", column.dtype);
            let _ = match column.cells {
                Cells::One => write!(self.text, "1"),
                Cells::Fixed(n) => write!(self.text, "x{n}"),
                Cells::Ragged(n) => write!(self.text, "~{n}"),
                Cells::Text(n) => write!(self.text, "t{n}"),
            };
            let _ = write!(self.text, " {}", column.name);
        }
        self.bytes = spans.bytes;
    }

    /// The number of bytes that the payload takes in a slot.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The text that describes the layout to readers of the slot.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The offset in the slot of the elements of column `i`, and the size of these elements, bytes.
    pub fn column(&self, i: usize) -> (usize, usize) {
        let data = &self.spans[i].data;
        (data.start, data.len())
    }

    /// Returns the slot as a payload to fill; `None` if the CPU can't write the slot.
    pub fn payload<'a>(&'a self, slot: &'a mut SlotMut<'_>) -> Option<Payload<'a>> {
        slot.bytes_mut().map(|bytes| Payload::in_body(bytes, &self.spans))
    }

    /// Copies the payload of a message of this layout to a slot.
    ///
    /// # Errors
    /// The device's error if the copy to the slot fails.
    pub fn write(&self, message: &Message, slot: &mut SlotMut<'_>) -> Result<(), RingError> {
        for (span, column) in self.spans.iter().zip(message.columns()) {
            slot.write(span.data.start, column.data.bytes())?;
            if !span.offsets.is_empty() {
                slot.write(span.offsets.start, bytemuck::cast_slice(&column.offsets))?;
            }
        }
        Ok(())
    }
}

/// One column of a payload in a slot of a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotColumn<'a> {
    /// The field's name; empty for the only column of a flat array.
    pub name: &'a str,
    /// Type of the column's elements.
    pub dtype: Dtype,
    /// Number of elements in each row of the column.
    pub cells: Cells,
    /// Byte range of the row offsets, int32, in the payload; empty if the column is not ragged.
    pub offsets: Range<usize>,
    /// Byte range of the elements in the payload.
    pub data: Range<usize>,
}

/// Parses the text of a layout into its number of rows and its columns. Returns `None` if the line of the number of rows is not
/// valid. A column is `None` if its line is not valid.
fn parse(text: &str) -> Option<(usize, impl Iterator<Item = Option<SlotColumn<'_>>>)> {
    // The bound is more than any memory has, and small enough that sizes can be multiplied and added up.
    let is_size = |n: &usize| *n < 1 << 44;
    let mut lines = text.split('\n');
    let rows = lines.next()?.strip_prefix("rows ")?.parse().ok().filter(is_size)?;
    let mut spans = Spans { rows, bytes: 0 };
    let columns = lines.map(move |line| {
        let mut words = line.splitn(3, ' ');
        let dtype = Dtype::from_name(words.next()?)?;
        let cells = words.next()?;
        let number = |n: &str| n.parse().ok().filter(is_size);
        let cells = match cells.split_at_checked(1)? {
            ("1", "") => Cells::One,
            ("x", n) => Cells::Fixed(number(n)?),
            ("~", n) => Cells::Ragged(number(n)?),
            ("t", n) if dtype == Dtype::UInt8 => Cells::Text(number(n)?),
            _ => return None,
        };
        if let Cells::Fixed(n) = cells {
            n.checked_mul(rows).filter(is_size)?;
        }
        let name = words.next()?;
        let ColumnSpan { offsets, data, .. } = spans.next(dtype, cells);
        Some(SlotColumn {
            name,
            dtype,
            cells,
            offsets,
            data,
        })
    });
    Some((rows, columns))
}

/// Payload in a slot of a ring, with the layout that the slot describes.
pub struct SlotPayload {
    /// Payload in its slot of the ring. If the reader can hold slots, the slot is held until this value is dropped.
    pub taken: RingPayload,
    descriptor: Descriptor,
}

impl SlotPayload {
    /// Takes the payload that the ticket in `header` locates by its ring, slot, generation and size.
    ///
    /// # Errors
    /// [`RingError`] if the ticket is not valid, or the payload can't be taken from the ring.
    pub fn take(header: &Header, readers: &mut Readers) -> Result<Self, RingError> {
        Self::of(readers.take(&header.ticket())?)
    }

    /// Reads the layout of a payload from the descriptor of its slot.
    ///
    /// # Errors
    /// [`RingError::Protocol`] if the descriptor is not valid, or describes more bytes than the payload has.
    /// [`RingError::Torn`] if the slot was overwritten meanwhile.
    pub fn of(taken: RingPayload) -> Result<Self, RingError> {
        let descriptor = taken.descriptor()?;
        let fits = |column: Option<SlotColumn<'_>>| column.is_some_and(|it| it.data.end <= taken.len());
        match parse(&descriptor).is_some_and(|(_, mut columns)| columns.all(fits)) {
            true => Ok(Self { taken, descriptor }),
            false => Err(RingError::Protocol {
                ring: taken.ring().to_owned(),
                what: format!("a payload described as {:?}, which is not valid", &*descriptor),
            }),
        }
    }

    /// The number of rows of the payload.
    pub fn rows(&self) -> usize {
        parse(&self.descriptor).map_or(0, |(rows, _)| rows)
    }

    /// The columns of the payload, in the order of the layout.
    pub fn columns(&self) -> impl Iterator<Item = SlotColumn<'_>> {
        parse(&self.descriptor)
            .into_iter()
            .flat_map(|(_, columns)| columns)
            .flatten()
    }
}

impl Header {
    /// True if the payload is in a ring, memory that sender and receivers share, and not in the message.
    pub fn is_resident(&self) -> bool {
        ring::ring.get(self).is_some()
    }

    /// Returns the ticket in the keys of the header: the ring, slot, generation and size that locate the payload.
    pub fn ticket(&self) -> Ticket<'_> {
        let size = |key: Key<i64>| usize::try_from(key.get(self).unwrap_or(0)).unwrap_or(usize::MAX);
        Ticket {
            ring: Cow::Borrowed(ring::ring.get(self).unwrap_or_default()),
            slot: size(ring::slot),
            generation: u64::try_from(ring::generation.get(self).unwrap_or(0)).unwrap_or(0),
            nbytes: size(ring::nbytes),
        }
    }

    /// Sets the keys that locate the payload: the kind of memory, and the ticket.
    pub fn set_ticket(&mut self, residence: &str, ticket: &Ticket<'_>) {
        ring::residence.set(self, residence);
        ring::ring.set(self, &ticket.ring);
        ring::slot.set(self, ticket.slot as i64);
        ring::generation.set(self, ticket.generation as i64);
        ring::nbytes.set(self, ticket.nbytes as i64);
    }

    /// Removes the keys that locate the payload, because they are wrong for any other payload.
    pub fn forget_residence(&mut self) {
        ring::ALL.iter().for_each(|(key, _)| self.other.remove(key));
    }
}

impl Message {
    /// Copies the payload from the ring that the header names to host memory of this message, which is reused. Removes the keys
    /// that locate the payload.
    ///
    /// # Errors
    /// [`MessageError::Ring`] if the payload can't be copied from the ring, and the errors of [`check`](Self::check). After an
    /// error the payload of the message is undefined.
    pub fn take_resident(&mut self, readers: &mut Readers) -> Result<(), MessageError> {
        self.clear_payload();
        let failed = |error: RingError| MessageError::Ring(error.to_string());
        let resident = SlotPayload::take(&self.header, readers).map_err(failed)?;
        let ring = resident.taken.ring();
        let refused = |what: String| {
            failed(RingError::Protocol {
                ring: ring.to_owned(),
                what,
            })
        };
        self.header.forget_residence();
        self.rows = resident.rows();
        for from in resident.columns() {
            let copy = |at: usize, to: &mut [u8]| resident.taken.copy_to(at, to).map_err(failed);
            let column = self.add_column(from.name, from.dtype, from.cells);
            column.data.resize(from.data.len());
            copy(from.data.start, column.data.bytes_mut())?;
            column.offsets.resize(from.offsets.len() / size_of::<i32>(), 0);
            copy(from.offsets.start, bytemuck::cast_slice_mut(&mut column.offsets))?;
            if !are_offsets(&column.offsets, column.cells) {
                let what = format!(
                    "column {:?} has offsets that do not rise from 0 to its length",
                    column.name
                );
                return Err(refused(what));
            }
            if !is_text(column) {
                return Err(refused(format!("column {:?} is text that is not UTF-8", column.name)));
            }
        }
        self.check()
    }
}

/// True if the offsets of a ragged or text column never descend, from 0 to its number of elements. True for any other column.
fn are_offsets(offsets: &[i32], cells: Cells) -> bool {
    let (Cells::Ragged(total) | Cells::Text(total)) = cells else {
        return true;
    };
    offsets.first() == Some(&0)
        && offsets.last().is_some_and(|&last| last as usize == total)
        && offsets.windows(2).all(|pair| pair[0] <= pair[1])
}

/// True if each row of a column of text is valid UTF-8. True for any other column.
fn is_text(column: &Column) -> bool {
    let mut rows = 0..column.offsets.len().saturating_sub(1);
    !matches!(column.cells, Cells::Text(_)) || rows.all(|row| std::str::from_utf8(column.row(row).bytes()).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ColumnLayout;

    fn layout(rows: usize, columns: &[(&'static str, Dtype, Cells)]) -> Layout {
        let columns = columns.iter().map(|&(name, dtype, cells)| ColumnLayout {
            name: Cow::Borrowed(name),
            dtype,
            cells,
        });
        Layout {
            rows,
            columns: columns.collect(),
        }
    }

    #[test]
    fn a_layout_is_read_as_it_was_described() {
        let layouts = [
            Layout::flat(Dtype::BFloat16, 2384),
            layout(
                7,
                &[
                    ("coords", Dtype::Int32, Cells::Fixed(3)),
                    ("a name, with spaces", Dtype::Float32, Cells::Fixed(1)),
                    ("values", Dtype::Float64, Cells::Ragged(40)),
                    ("rows", Dtype::UInt8, Cells::One),
                ],
            ),
        ];
        for layout in layouts {
            let mut described = SlotLayout::default();
            described.set(&layout);
            let (rows, columns) = parse(described.text()).unwrap();
            let columns: Vec<SlotColumn<'_>> = columns.map(Option::unwrap).collect();
            assert_eq!((rows, columns.len()), (layout.rows, layout.columns.len()));
            for ((read, made), span) in columns.iter().zip(&layout.columns).zip(&described.spans) {
                assert_eq!(
                    (read.name, read.dtype, read.cells),
                    (&*made.name, made.dtype, made.cells)
                );
                assert_eq!((&read.offsets, &read.data), (&span.offsets, &span.data));
                assert!(read.data.end <= described.bytes());
            }
        }
    }

    #[test]
    fn texts_that_describe_nothing_are_refused() {
        for text in [
            "",
            "rows",
            "rows x",
            "rows 1\nfloat32",
            "rows 1\nfloat32 1",
            "rows 1\nfloat99 1 a",
            "rows 1\nfloat32 x a",
            "rows 1\nfloat32 2 a",
            "rows 18446744073709551615\nfloat32 x9 a",
        ] {
            let is_refused = parse(text).is_none_or(|(_, mut columns)| columns.any(|column| column.is_none()));
            assert!(is_refused, "{text:?}");
        }
        assert!(parse("rows 0").is_some_and(|(rows, mut columns)| rows == 0 && columns.next().is_none()));
    }
}

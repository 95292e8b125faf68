//! Payloads that are in slots of a ring: how their columns lie there, and messages made of them.

use super::{Cells, ColumnLayout, ColumnSpan, Header, Layout, Message, MessageError, MetadataRef, Payload};
use crate::device::Dtype;
use crate::device::ring::{Readers, RingError, SlotMut, Taken, Ticket};
use std::borrow::Cow;
use std::fmt::Write;

/// The columns of a payload begin at multiples of this.
const ALIGNMENT: usize = 64;

/// How a payload lies in a slot: column after column, of a ragged one the offsets and then the elements.
///
/// The text that describes it is what a reader makes the same of: a line `rows N`, and one for each column with its type,
/// the elements of a row (`1`, `xN` for N each, `~N` for any number, N in all) and its name.
#[derive(Default)]
pub struct SlotLayout {
    layout: Layout,
    spans: Vec<ColumnSpan>,
    bytes: usize,
    text: String,
}

impl SlotLayout {
    /// Makes it that of payloads of this layout.
    pub fn set(&mut self, layout: &Layout) {
        if self.layout == *layout && !self.text.is_empty() {
            return;
        }
        self.layout.clone_from(layout);
        self.lay_out();
        self.text.clear();
        // Writing to a string can't fail.
        let _ = write!(self.text, "rows {}", layout.rows);
        for column in &layout.columns {
            let _ = write!(self.text, "\n{} ", column.dtype);
            let _ = match column.cells {
                Cells::One => write!(self.text, "1"),
                Cells::Fixed(n) => write!(self.text, "x{n}"),
                Cells::Ragged(n) => write!(self.text, "~{n}"),
            };
            let _ = write!(self.text, " {}", column.name);
        }
    }

    /// The layout that a text describes, if it is such a text.
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.split('\n');
        let rows = lines.next()?.strip_prefix("rows ")?.parse().ok()?;
        let columns = lines.map(|line| {
            let mut words = line.splitn(3, ' ');
            let dtype = Dtype::from_name(words.next()?)?;
            let cells = words.next()?;
            let cells = match (cells.strip_prefix('x'), cells.strip_prefix('~')) {
                (Some(n), _) => Cells::Fixed(n.parse().ok()?),
                (_, Some(n)) => Cells::Ragged(n.parse().ok()?),
                _ => (cells == "1").then_some(Cells::One)?,
            };
            Some(ColumnLayout {
                name: Cow::Owned(words.next()?.to_owned()),
                dtype,
                cells,
            })
        });
        let columns: Vec<ColumnLayout> = columns.collect::<Option<_>>()?;
        // Sizes that no memory has can't be multiplied.
        let fits = |column: &ColumnLayout| {
            let elements = match column.cells {
                Cells::One => Some(rows),
                Cells::Fixed(n) => n.checked_mul(rows),
                Cells::Ragged(total) => Some(total),
            };
            elements.is_some_and(|n| n < 1 << 44) && rows < 1 << 44
        };
        columns.iter().all(fits).then_some(())?;
        let mut parsed = Self {
            layout: Layout { rows, columns },
            text: text.to_owned(),
            ..Self::default()
        };
        parsed.lay_out();
        Some(parsed)
    }

    fn lay_out(&mut self) {
        self.spans.clear();
        self.bytes = 0;
        let bytes = &mut self.bytes;
        let mut next = |len: usize| {
            let start = *bytes;
            *bytes += len.next_multiple_of(ALIGNMENT);
            start..start + len
        };
        for column in &self.layout.columns {
            let offsets = match column.cells {
                Cells::Ragged(_) => (self.layout.rows + 1) * size_of::<i32>(),
                _ => 0,
            };
            self.spans.push(ColumnSpan {
                dtype: column.dtype,
                offsets: next(offsets),
                data: next(column.len(self.layout.rows) * column.dtype.size()),
            });
        }
    }

    /// The layout of the payload.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Bytes of the slot that it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The text that describes it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Where the elements of a column begin in the slot, and how many bytes they are.
    pub fn column(&self, i: usize) -> (usize, usize) {
        let data = &self.spans[i].data;
        (data.start, data.len())
    }

    /// Where the offsets of a ragged column begin in the slot, and how many bytes they are.
    pub fn offsets(&self, i: usize) -> (usize, usize) {
        let offsets = &self.spans[i].offsets;
        (offsets.start, offsets.len())
    }

    /// The slot as a payload to fill, where the CPU can write it.
    pub fn payload<'a>(&'a self, slot: &'a mut SlotMut<'_>) -> Option<Payload<'a>> {
        slot.bytes_mut().map(|bytes| Payload::in_body(bytes, &self.spans))
    }

    /// Copies the payload of a message of this layout to a slot.
    ///
    /// # Errors
    /// What the device says.
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

/// A payload that is in a ring.
pub struct Resident {
    /// Where it is. It is held until this is dropped.
    pub taken: Taken,
    /// How it lies there.
    pub layout: SlotLayout,
}

impl Resident {
    /// Takes what a header says.
    ///
    /// # Errors
    /// What is wrong with the ticket or the ring.
    pub fn take(header: &Header, readers: &mut Readers) -> Result<Self, RingError> {
        Self::of(readers.take(&header.ticket())?)
    }

    /// Reads how a payload lies in its slot.
    ///
    /// # Errors
    /// [`RingError::Protocol`]: its descriptor is that of no payload that fits it.
    pub fn of(taken: Taken) -> Result<Self, RingError> {
        match SlotLayout::parse(taken.descriptor()).filter(|layout| layout.bytes <= taken.len()) {
            Some(layout) => Ok(Self { taken, layout }),
            None => Err(RingError::Protocol {
                ring: taken.ring().to_owned(),
                what: format!("a payload described as {:?} came", taken.descriptor()),
            }),
        }
    }
}

impl Header {
    /// Whether the payload is in a ring.
    pub fn is_resident(&self) -> bool {
        self.ring.is_present()
    }

    /// Where it is then.
    pub fn ticket(&self) -> Ticket {
        Ticket {
            ring: (*self.ring).clone(),
            slot: usize::try_from(*self.slot).unwrap_or(usize::MAX),
            generation: u64::try_from(*self.generation).unwrap_or(0),
            nbytes: usize::try_from(*self.nbytes).unwrap_or(usize::MAX),
        }
    }

    /// Takes out where the payload is: that of another one is elsewhere.
    pub fn forget_residence(&mut self) {
        self.residence.clear();
        self.ring.clear();
        self.slot.clear();
        self.generation.clear();
        self.nbytes.clear();
    }
}

impl Message {
    /// Makes it a copy of a payload that is in a ring, and of metadata that says so, keeping its memory.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`MessageError::Ring`].
    pub fn read_resident<'a>(
        &mut self,
        metadata: impl IntoIterator<Item = (&'a str, MetadataRef<'a>)>,
        readers: &mut Readers,
    ) -> Result<(), MessageError> {
        self.clear();
        let header = self.header.read(metadata);
        let failed = |error: RingError| MessageError::Ring(error.to_string());
        let Resident { taken, layout } = Resident::take(&self.header, readers).map_err(failed)?;
        self.header.forget_residence();
        self.lay_out(layout.layout());
        for (span, column) in layout.spans.iter().zip(self.columns_mut()) {
            taken
                .copy_to(span.data.start, column.data.bytes_mut())
                .map_err(failed)?;
            if !span.offsets.is_empty() {
                let offsets = bytemuck::cast_slice_mut(&mut column.offsets);
                taken.copy_to(span.offsets.start, offsets).map_err(failed)?;
            }
        }
        if !self
            .columns()
            .iter()
            .all(|column| are_offsets(&column.offsets, column.cells))
        {
            let what = format!("{} has offsets that do not rise to its length", taken.descriptor());
            return Err(MessageError::Ring(what));
        }
        header?;
        self.check()
    }
}

/// Whether the offsets of a ragged column are what others rely on.
fn are_offsets(offsets: &[i32], cells: Cells) -> bool {
    let Cells::Ragged(total) = cells else { return true };
    offsets.first() == Some(&0)
        && offsets.last().is_some_and(|&last| last as usize == total)
        && offsets.windows(2).all(|pair| pair[0] <= pair[1])
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let read = SlotLayout::parse(described.text()).unwrap();
            assert_eq!((read.layout(), read.bytes()), (&layout, described.bytes()));
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
            assert!(SlotLayout::parse(text).is_none(), "{text:?}");
        }
        assert!(SlotLayout::parse("rows 0").is_some());
    }
}

//! Messages in CDR, the serialization of ROS 2, to Arrow.

use super::columns::{self, Column};
use super::types::{Count, Kind, Type};
use arrow_array::StructArray;
use arrow_schema::Fields;

/// More bytes than this at the end of a message are no padding.
const MOST_PADDING: usize = 7;

/// Reads a message into a struct of one row. `fields` are those that the type becomes. `ends`: nothing but padding stands
/// behind the last of them.
pub(super) fn read(of: &Type, fields: &Fields, data: &[u8], ends: bool) -> Result<StructArray, String> {
    let mut cdr = Cdr::new(data)?;
    let mut columns = columns::of(of);
    cdr.read_struct(of, &mut columns)?;
    let rest = cdr.data.len().saturating_sub(cdr.at);
    if ends && rest > MOST_PADDING {
        return Err(format!(
            "{rest} bytes behind its last field: it is of another version of the type"
        ));
    }
    columns::finish(columns, fields, 1)
}

/// Reads a message that is one text.
pub(super) fn text(data: &[u8]) -> Result<String, String> {
    let mut cdr = Cdr::new(data)?;
    let length = cdr.length()?;
    let text = cdr.take(length, 1)?;
    Ok(String::from_utf8_lossy(text.strip_suffix(&[0]).unwrap_or(text)).into_owned())
}

/// Bytes, each number at a multiple of its size.
struct Cdr<'a> {
    data: &'a [u8],
    at: usize,
    is_big: bool,
    /// No number is aligned to more.
    alignment: usize,
}

impl<'a> Cdr<'a> {
    fn new(message: &'a [u8]) -> Result<Self, String> {
        let Some(([kind @ .., _, _], data)) = message.split_first_chunk::<4>() else {
            return Err(format!("{} bytes, less than the header of CDR", message.len()));
        };
        let (is_big, alignment) = match kind {
            [0, 0] => (true, 8),
            [0, 1] => (false, 8),
            [0, 6] => (true, 4),
            [0, 7] => (false, 4),
            [a, b] => {
                return Err(format!(
                    "representation {a:02x}{b:02x} (allowed: 0000, 0001, 0006, 0007, which are plain CDR)"
                ));
            }
        };
        Ok(Self {
            data,
            at: 0,
            is_big,
            alignment,
        })
    }

    fn take(&mut self, bytes: usize, size: usize) -> Result<&'a [u8], String> {
        let from = self.at.next_multiple_of(size.min(self.alignment));
        let taken = from.checked_add(bytes).and_then(|end| self.data.get(from..end));
        self.at = from.saturating_add(bytes);
        taken.ok_or_else(|| format!("{bytes} bytes at byte {from} of {}", self.data.len()))
    }

    fn length(&mut self) -> Result<usize, String> {
        let bytes = self.take(4, 4)?;
        let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
        let length = if self.is_big {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        };
        Ok(length as usize)
    }

    /// How many elements a sequence has, each of which takes a byte at least.
    fn count(&mut self) -> Result<usize, String> {
        let count = self.length()?;
        let there = self.data.len() - self.at;
        if count > there {
            return Err(format!("a sequence of {count} in {there} bytes"));
        }
        Ok(count)
    }

    fn read_struct(&mut self, of: &Type, columns: &mut [Column]) -> Result<(), String> {
        for (column, field) in columns.iter_mut().zip(&of.fields) {
            self.read(&field.kind, field.count, column)
                .map_err(|problem| format!("`{}`: {problem}", field.name))?;
        }
        Ok(())
    }

    fn read(&mut self, kind: &Kind, count: Count, column: &mut Column) -> Result<(), String> {
        let n = match count {
            Count::One => return self.read_all(kind, 1, column),
            Count::Array(n) => n,
            Count::Sequence => self.count()?,
        };
        if let Column::Lists(_, items) = column {
            self.read_all(kind, n, items)?;
        }
        column.end_list()
    }

    fn read_all(&mut self, kind: &Kind, n: usize, column: &mut Column) -> Result<(), String> {
        match (column, kind) {
            (Column::Bools(values), _) => values.extend(self.take(n, 1)?.iter().map(|&byte| byte != 0)),
            (Column::Numbers { dtype, values, .. }, kind) => {
                let size = dtype.size();
                // Nothing is aligned where there is nothing.
                if n == 0 {
                    return Ok(());
                }
                let bytes = self.take(n.saturating_mul(size), size)?;
                let from = values.len();
                values.extend_from_slice(bytes);
                if self.is_big && size > 1 {
                    values[from..].chunks_exact_mut(size).for_each(<[u8]>::reverse);
                }
                if matches!(kind, Kind::Flag) {
                    values[from..].iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
                }
            }
            (column @ Column::Texts(..), _) => {
                for _ in 0..n {
                    let length = self.length()?;
                    let text = self.take(length, 1)?;
                    let text = text.strip_suffix(&[0]).unwrap_or(text);
                    column.add_text(String::from_utf8_lossy(text).as_bytes())?;
                }
            }
            (Column::Structs { columns, rows, .. }, Kind::Struct(of)) => {
                for _ in 0..n {
                    self.read_struct(of, columns)?;
                }
                *rows += n;
            }
            _ => {}
        }
        Ok(())
    }
}

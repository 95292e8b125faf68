//! Decoder of messages in CDR, the serialization of ROS 2. A length that exceeds the bytes of the message is refused.

use super::columns::Column;
use super::types::{Count, Kind, Type};
use std::borrow::Cow;

/// Largest number of bytes after the last field of a message that count as padding.
const MOST_PADDING: usize = 7;

/// Decodes a message in CDR, and appends its values as a row to `columns`. If `is_exact`, refuses a message with more than
/// `MOST_PADDING` bytes after its last field.
pub(super) fn read(of: &Type, data: &[u8], is_exact: bool, columns: &mut [Column]) -> Result<(), String> {
    let mut cdr = Cdr::new(data)?;
    cdr.read_struct(of, columns)?;
    match cdr.data.len().saturating_sub(cdr.at) {
        rest if is_exact && rest > MOST_PADDING => Err(format!(
            "{rest} bytes behind its last field: it is of another version of the type"
        )),
        _ => Ok(()),
    }
}

/// Decodes a message in CDR that consists of a single string, such as `std_msgs/String`.
pub(super) fn text(data: &[u8]) -> Result<String, String> {
    Ok(Cdr::new(data)?.text()?.into_owned())
}

/// Reader of a message's bytes, in which each number is aligned to its size.
struct Cdr<'a> {
    data: &'a [u8],
    at: usize,
    is_big: bool,
    /// Largest alignment of a number, bytes: 8, or 4 in version 2 of CDR.
    alignment: usize,
}

impl<'a> Cdr<'a> {
    fn new(message: &'a [u8]) -> Result<Self, String> {
        let Some(([kind @ .., _, _], data)) = message.split_first_chunk::<4>() else {
            return Err(format!(
                "{} bytes, less than the header of CDR (needed: 4)",
                message.len()
            ));
        };
        let &[0, version @ (0 | 1 | 6 | 7)] = kind else {
            let allowed = "allowed: 0000, 0001, 0006, 0007, which are plain CDR";
            return Err(format!("representation {:02x}{:02x} ({allowed})", kind[0], kind[1]));
        };
        Ok(Self {
            data,
            at: 0,
            is_big: version % 2 == 0,
            alignment: if version < 6 { 8 } else { 4 },
        })
    }

    fn take(&mut self, bytes: usize, size: usize) -> Result<&'a [u8], String> {
        let from = self.at.next_multiple_of(size.min(self.alignment));
        let taken = from.checked_add(bytes).and_then(|end| self.data.get(from..end));
        self.at = from.saturating_add(bytes);
        taken.ok_or_else(|| {
            format!(
                "it needs {bytes} bytes from byte {from} on, and ends at byte {}: cut off, or of another type",
                self.data.len()
            )
        })
    }

    fn length(&mut self) -> Result<usize, String> {
        let bytes = self.take(4, 4)?.first_chunk().copied().unwrap_or_default();
        Ok(match self.is_big {
            true => u32::from_be_bytes(bytes) as usize,
            false => u32::from_le_bytes(bytes) as usize,
        })
    }

    fn text(&mut self) -> Result<Cow<'a, str>, String> {
        let length = self.length()?;
        let text = self.take(length, 1)?;
        Ok(String::from_utf8_lossy(text.strip_suffix(&[0]).unwrap_or(text)))
    }

    /// Reads the length of a sequence. Refuses a length above the number of bytes left: each element has at least one byte.
    fn count(&mut self) -> Result<usize, String> {
        let count = self.length()?;
        let there = self.data.len() - self.at;
        if count > there {
            return Err(format!("a sequence of {count} elements, and only {there} bytes follow"));
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
                // An empty sequence is not aligned.
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
                    column.add_text(self.text()?.as_bytes())?;
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

//! The columns of a stream's messages, which files have in common for all of them.

use robocache_device::Dtype;
use robocache_stream::{Cells, Column, Message};

/// The type of a column of text.
pub(crate) const TEXT: &str = "utf8";

/// A column of a payload: its name, its type, and the elements of a row, without the number that ragged ones have.
pub(crate) type Part = (String, Dtype, Cells);

/// The columns of a message.
pub(crate) fn parts_of(message: &Message) -> Vec<Part> {
    let part = |column: &Column| (column.name.clone(), column.dtype, cells_of_all(column));
    message.columns().iter().map(part).collect()
}

/// Number of elements that a row of a column has, in any message.
fn cells_of_all(column: &Column) -> Cells {
    match column.cells {
        Cells::Ragged(_) => Cells::Ragged(0),
        Cells::Text(_) => Cells::Text(0),
        cells => cells,
    }
}

/// True if these are the columns of a message.
pub(crate) fn are_of(message: &Message, parts: &[Part]) -> bool {
    let columns = message.columns();
    let is_same = |((name, dtype, cells), column): (&Part, &Column)| {
        *name == column.name && *dtype == column.dtype && *cells == cells_of_all(column)
    };
    columns.len() == parts.len() && parts.iter().zip(columns).all(is_same)
}

/// The type of a column's cells: how many elements of which type a row has.
pub(crate) fn cell_type(dtype: Dtype, cells: Cells) -> String {
    match cells {
        Cells::One => dtype.name().to_owned(),
        Cells::Fixed(n) => format!("{dtype}[{n}]"),
        Cells::Ragged(_) => format!("{dtype}[]"),
        Cells::Text(_) => TEXT.to_owned(),
    }
}

/// The names and types of columns.
pub(crate) fn in_words(parts: &[Part]) -> String {
    let words = parts
        .iter()
        .map(|(name, dtype, cells)| format!("`{name}` {}", cell_type(*dtype, *cells)));
    words.collect::<Vec<_>>().join(", ")
}

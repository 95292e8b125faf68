//! Columns of messages, which a file describes once for all messages of a stream.

use robocache_device::Dtype;
use robocache_stream::{Cells, Column, Message};

/// Name of the type of a column of strings.
pub(crate) const TEXT: &str = "utf8";

/// A column of a payload: its name, the type of its elements, and their number in a row. The number is 0 for ragged and string
/// columns, in which it varies.
pub(crate) type ColumnSpec = (String, Dtype, Cells);

/// Describes the columns of a message's payload.
pub(crate) fn parts_of(message: &Message) -> Vec<ColumnSpec> {
    let part = |column: &Column| (column.name.clone(), column.dtype, cells_of_all(column));
    message.columns().iter().map(part).collect()
}

/// Returns the cells of a column as they are for all messages: the numbers of elements of ragged and string columns, which
/// vary, become 0.
fn cells_of_all(column: &Column) -> Cells {
    match column.cells {
        Cells::Ragged(_) => Cells::Ragged(0),
        Cells::Text(_) => Cells::Text(0),
        cells => cells,
    }
}

/// True if `message` has the columns `parts`, in this order.
pub(crate) fn are_columns_of(message: &Message, parts: &[ColumnSpec]) -> bool {
    let columns = message.columns();
    let is_same = |((name, dtype, cells), column): (&ColumnSpec, &Column)| {
        *name == column.name && *dtype == column.dtype && *cells == cells_of_all(column)
    };
    columns.len() == parts.len() && parts.iter().zip(columns).all(is_same)
}

/// Formats the type of a column, such as `float32` or `float32[3]`; `float32[]` for a variable length.
pub(crate) fn cell_type(dtype: Dtype, cells: Cells) -> String {
    match cells {
        Cells::One => dtype.name().to_owned(),
        Cells::Fixed(n) => format!("{dtype}[{n}]"),
        Cells::Ragged(_) => format!("{dtype}[]"),
        Cells::Text(_) => TEXT.to_owned(),
    }
}

/// Lists names and types of columns for an error text.
pub(crate) fn list_columns(parts: &[ColumnSpec]) -> String {
    let words = parts
        .iter()
        .map(|(name, dtype, cells)| format!("`{name}` {}", cell_type(*dtype, *cells)));
    words.collect::<Vec<_>>().join(", ")
}

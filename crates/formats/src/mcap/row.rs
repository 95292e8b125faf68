//! Access to the fields of a message that is an Arrow struct array of one row. A field that is absent, or of another type,
//! gives `None`.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, StructArray};
use robocache_stream::FRAMES;

/// Returns the string at a path of one or two names; `None` if there is no string.
pub(super) fn text<'a>(of: &'a StructArray, path: &str) -> Option<&'a str> {
    let (name, within) = match path.split_once('.') {
        Some((outer, name)) => (name, of.column_by_name(outer)?.as_struct_opt()?),
        None => (path, of),
    };
    let texts = within.column_by_name(name)?.as_string_opt::<i32>()?;
    (texts.len() > 0).then(|| texts.value(0))
}

/// Returns the number in a field; `None` if the field is absent, or of another type.
pub(super) fn number<T: ArrowPrimitiveType>(of: &StructArray, name: &str) -> Option<T::Native> {
    Some(of.column_by_name(name)?.as_primitive_opt::<T>()?.value(0))
}

/// Returns the numbers of the list in a field; `None` if the field is absent, or of another type.
pub(super) fn list<'a, T: ArrowPrimitiveType>(of: &'a StructArray, name: &str) -> Option<&'a [T::Native]> {
    numbers::<T>(of.column_by_name(name)?)
}

/// Returns all numbers in an Arrow array of lists; `None` if they are of another type.
pub(super) fn numbers<T: ArrowPrimitiveType>(list: &ArrayRef) -> Option<&[T::Native]> {
    Some(list.as_list_opt::<i32>()?.values().as_primitive_opt::<T>()?.values())
}

/// True if a path leads to a list without elements, or to a struct without values; false if no field has this path.
pub(super) fn is_empty(payload: &StructArray, path: &str) -> bool {
    fn has_nothing(column: &ArrayRef) -> bool {
        match (column.as_struct_opt(), column.as_list_opt::<i32>()) {
            (Some(inner), _) => inner.columns().iter().all(has_nothing),
            (_, Some(list)) => list.value_length(0) == 0,
            _ => column.is_null(0),
        }
    }
    let (mut steps, mut at) = (path.split('.').peekable(), payload);
    while let Some(step) = steps.next() {
        let Some(column) = at.column_by_name(step) else {
            return false;
        };
        match (steps.peek(), column.as_struct_opt()) {
            (Some(_), Some(inner)) => at = inner,
            _ => return has_nothing(column),
        }
    }
    false
}

/// Returns the name of a message's coordinate frame; `None` if it is absent or empty.
pub(super) fn frame(payload: &StructArray) -> Option<&str> {
    let mut texts = FRAMES.into_iter().filter_map(|path| text(payload, path));
    texts.find(|frame| !frame.is_empty())
}

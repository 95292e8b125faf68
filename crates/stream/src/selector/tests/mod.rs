//! Tests with structs as other software sends them, and with malformed structs.

mod clouds;
mod samples;

use super::*;
use crate::key;
use arrow_array::{
    BooleanArray, FixedSizeListArray, Float64Array, Int32Array, LargeListArray, ListArray, StringArray, UInt32Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::Field;
use robocache_device::Dtype;
use std::sync::Arc;

const S: i64 = 1_000_000_000;

/// A struct of these columns, each of which may hold nulls.
fn structure(columns: Vec<(&str, ArrayRef)>) -> ArrayRef {
    Arc::new(StructArray::try_from(columns).unwrap())
}

fn item(values: &ArrayRef) -> Arc<Field> {
    Arc::new(Field::new("item", values.data_type().clone(), true))
}

/// An array of one row, which is the list of these values.
fn list(values: ArrayRef) -> ArrayRef {
    let offsets = OffsetBuffer::from_lengths([values.len()]);
    Arc::new(ListArray::new(item(&values), offsets, values, None))
}

fn large_list(values: ArrayRef) -> ArrayRef {
    let offsets = OffsetBuffer::from_lengths([values.len()]);
    Arc::new(LargeListArray::new(item(&values), offsets, values, None))
}

fn fixed_list(values: ArrayRef) -> ArrayRef {
    Arc::new(FixedSizeListArray::new(
        item(&values),
        values.len() as i32,
        values,
        None,
    ))
}

fn doubles(values: &[f64]) -> ArrayRef {
    Arc::new(Float64Array::from(values.to_vec()))
}

fn texts(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn whole(value: u32) -> ArrayRef {
    Arc::new(UInt32Array::from(vec![value]))
}

fn flag(value: bool) -> ArrayRef {
    Arc::new(BooleanArray::from(vec![value]))
}

fn numbers(parts: &[(&'static str, f64)]) -> ArrayRef {
    structure(parts.iter().map(|&(name, value)| (name, doubles(&[value]))).collect())
}

fn vector([x, y, z]: [f64; 3]) -> ArrayRef {
    numbers(&[("x", x), ("y", y), ("z", z)])
}

fn quaternion([x, y, z, w]: [f64; 4]) -> ArrayRef {
    numbers(&[("x", x), ("y", y), ("z", z), ("w", w)])
}

fn stamp(sec: i32, nanosec: u32) -> ArrayRef {
    structure(vec![
        ("sec", Arc::new(Int32Array::from(vec![sec]))),
        ("nanosec", whole(nanosec)),
    ])
}

/// A `std_msgs/Header` whose stamp is 1.5 s.
fn header() -> ArrayRef {
    structure(vec![("stamp", stamp(1, 500_000_000)), ("frame_id", texts(&["base"]))])
}

fn from(text: &str) -> FromConfig {
    serde_yaml::from_str(text).unwrap()
}

fn selector_of(dim: usize, text: &str) -> Selector {
    Selector::new(Selection::samples(dim, Some(from(text))))
}

fn read(selector: &mut Selector, payload: &ArrayRef) -> Result<Message, String> {
    let mut message = Message::default();
    let read = selector.read([], payload, &mut message);
    read.map(|()| message).map_err(|error| error.to_string())
}

/// The values of a message whose payload is a flat array, as float64.
fn values(message: &Message) -> Vec<f64> {
    let mut values = vec![0f32; message.rows];
    message.flat().unwrap().to_f32(&mut values);
    values.into_iter().map(f64::from).collect()
}

/// Reads a payload with this configuration, and checks that the text of the error contains `wanted`.
fn refused(dim: usize, text: &str, payload: &ArrayRef, wanted: &str) {
    let words = read(&mut selector_of(dim, text), payload).err().unwrap();
    assert!(words.contains(wanted), "{text}: {words}\nnot {wanted}");
}

#[test]
fn selections_of_one_input_go_together_where_they_can() {
    let plain = Selection::default;
    let joints = || Selection::samples(7, Some(from("columns: [position]")));
    let cloud = |names: &[&str]| {
        Selection::cloud(
            CloudFields::Named(names.iter().map(|&name| name.to_owned()).collect()),
            None,
        )
    };
    // A selection that takes every payload takes text, too.
    let with_text = |selection| Selection {
        skips_text: false,
        ..selection
    };
    assert_eq!(plain().and(joints()), Some(with_text(joints())));
    assert_eq!(joints().and(plain()), Some(with_text(joints())));
    assert_eq!(joints().and(joints()), Some(joints()));
    assert_eq!(joints().and(Selection::samples(7, None)), None);
    assert_eq!(
        joints().and(Selection::samples(7, Some(from("columns: [velocity]")))),
        None
    );
    assert_eq!(cloud(&["ring"]).and(cloud(&["t_ns"])), Some(cloud(&["ring", "t_ns"])));
    let every = Selection::cloud(CloudFields::All, None);
    assert_eq!(cloud(&["ring"]).and(plain()), Some(with_text(every)));
}

#[test]
fn a_configuration_that_makes_no_sense_is_refused_by_its_key() {
    let cases = [
        ("{}", None, "columns"),
        ("columns: ['']", Some(1), "columns[0]"),
        ("columns: [a, b..c]", Some(2), "columns[1]"),
        ("columns: [a, a]", Some(2), "columns[1]"),
        (
            "{ columns: [a], names: { key: n, order: [x, y] } }",
            Some(3),
            "names.order",
        ),
        ("{ columns: [a], names: { key: n, order: [] } }", Some(1), "names.order"),
        (
            "{ columns: [a], names: { key: n, order: [x, x] } }",
            Some(2),
            "names.order",
        ),
        (
            "{ columns: [a], names: { key: '.', order: [x] } }",
            Some(1),
            "names.key",
        ),
        ("{ stamp: a, names: { key: n, order: [x] } }", Some(1), "columns"),
        ("{ columns: [a], names: { key: n, order: [x] } }", None, "names"),
        ("stamp: header..stamp", Some(1), "stamp"),
        ("stamp: { metadata: '', unit: s }", Some(1), "stamp.metadata"),
    ];
    for (text, dim, key) in cases {
        let from: FromConfig = serde_yaml::from_str(text).unwrap();
        assert_eq!(from.check(dim).unwrap_err().key, key, "{text}");
    }
    for text in [
        "{ columns: [a], colums: [b] }",
        "stamp: { metadata: timestamp }",
        "stamp: { metadata: timestamp, unit: min }",
        "names: { key: name }",
    ] {
        assert!(serde_yaml::from_str::<FromConfig>(text).is_err(), "{text}");
    }
}

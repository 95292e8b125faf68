//! Messages made of Arrow arrays and metadata: which contents are copied, only noted, or refused.

use arrow::array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, DurationMicrosecondArray, FixedSizeListArray, Float32Array,
    LargeListArray, LargeStringArray, ListArray, StringArray, StringViewArray, StructArray, TimestampMillisecondArray,
    TimestampNanosecondArray, UInt16Array, UInt32Array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{Field, Float32Type, Int32Type, Int64Type};
use robocache::device::Dtype;
use robocache::ops;
use robocache::stream::{
    Cells, CloudFields, HostCloud, Message, MessageError, MetadataValue as Value, Selection, Selector, form,
};
use std::sync::Arc;

fn read(metadata: &[(&str, Value)], array: impl Array + 'static) -> Result<Message, MessageError> {
    let mut message = Message::default();
    let metadata = metadata.iter().map(|(key, value)| (*key, value.as_ref()));
    let array: ArrayRef = Arc::new(array);
    message.read(metadata, &array)?;
    Ok(message)
}

#[test]
fn a_tensor_is_copied_with_what_its_metadata_says() {
    let array = Float32Array::from(vec![9.0, 1.0, 2.0, 3.0, 4.0]).slice(1, 4);
    let parameters = [
        ("timestamp_ns", Value::Integer(7)),
        ("timestamp", Value::Integer(6)),
        ("timestamps_ns", Value::ListInt(vec![5, 7])),
        ("shape", Value::ListInt(vec![2, 2])),
        ("frame_id", Value::String("tool".into())),
    ];
    let message = read(&parameters, array).unwrap();
    assert_eq!(message.timestamp_ns(), 7);
    assert_eq!(message.header.timestamps_ns.get(), Some(&[5, 7][..]));
    assert_eq!(message.header.shape.get(), Some(&[2, 2][..]));
    assert_eq!(message.header.frame_id.get(), Some("tool"));
    assert_eq!(message.flat().unwrap().as_slice::<f32>(), [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn nulls_in_lists_are_noted_by_row_and_floats_are_nan() {
    use arrow::datatypes::{Float32Type, Int64Type};
    let stamps = ListArray::from_iter_primitive::<Int64Type, _, _>([
        Some(vec![Some(1), None]),
        Some(vec![Some(3)]),
        None,
        Some(vec![Some(5)]),
    ]);
    let values = ListArray::from_iter_primitive::<Float32Type, _, _>([
        Some(vec![Some(1.0), None]),
        None,
        Some(vec![]),
        Some(vec![Some(5.0)]),
    ]);
    let field = |name: &str, list: &ListArray| Arc::new(Field::new(name, list.data_type().clone(), true));
    let fields = vec![field("timestamps_ns", &stamps), field("values", &values)];
    let columns: Vec<ArrayRef> = vec![Arc::new(stamps), Arc::new(values)];
    let rows = NullBuffer::from(vec![true, true, true, false]);
    let batch = StructArray::new(fields.into(), columns, Some(rows));
    let message = read(&[], batch).unwrap();
    let null_rows = |name: &str| message.column(name).unwrap().null_rows.clone();
    assert_eq!(null_rows("timestamps_ns"), [0, 2, 3]);
    assert_eq!(null_rows("values"), [1, 3]);
    let values = message.column("values").unwrap().data.as_slice::<f32>();
    assert!(values[0] == 1.0 && values[1].is_nan());
    assert_eq!(message.column("timestamps_ns").unwrap().row(1).as_slice::<i64>(), [3]);
}

#[test]
fn what_an_observation_says_and_what_nobody_knows_is_kept() {
    let names = |names: &[&str]| Value::ListString(names.iter().map(|name| (*name).to_owned()).collect());
    let parameters = [
        ("timestamp_ns", Value::Integer(7)),
        ("shape", Value::ListInt(vec![1])),
        ("modalities", names(&["camera", "force"])),
        ("epoch", Value::Integer(2)),
        ("age_ns", Value::ListInt(vec![-1, 5])),
        ("encoding", Value::String("rgb8".into())),
        ("gain", Value::Float(0.5)),
    ];
    let mut message = read(&parameters, Float32Array::from(vec![1.0])).unwrap();
    assert_eq!(form::modalities.get(&message.header).unwrap(), ["camera", "force"]);
    assert_eq!(ops::key::epoch.get(&message.header), Some(2));
    assert_eq!(form::age_ns.get(&message.header), Some(&[-1, 5][..]));
    let kept: Vec<_> = message.header.other.iter().collect();
    assert_eq!(
        kept[3..],
        [
            ("encoding", &Value::String("rgb8".into())),
            ("gain", &Value::Float(0.5)),
        ]
    );
    // Empty values are present.
    let parameters = [
        ("dtype", Value::String("float32".into())),
        ("epoch", Value::Integer(0)),
        ("fields", names(&[])),
        ("frame_id", Value::String(String::new())),
        ("shape", Value::ListInt(vec![])),
    ];
    let empty = read(&parameters, Float32Array::from(vec![1.0])).unwrap();
    let keys = empty.header.iter().map(|(key, value)| (key, value.to_owned()));
    let mut keys: Vec<_> = keys.collect();
    keys.sort_by_key(|(key, _)| *key);
    assert_eq!(keys, parameters);
    // Keys with another type are taken for the sender's own, not for errors.
    let parameters = [("epoch", Value::Float(1.5)), ("modalities", Value::Integer(3))];
    let own = parameters.iter().map(|(key, value)| (*key, value.as_ref()));
    message.header.read(own).unwrap();
    assert!(form::modalities.get(&message.header).is_none() && ops::key::epoch.get(&message.header).is_none());
    assert_eq!(message.header.other.get("epoch"), Some(&Value::Float(1.5)));
    assert_eq!(message.header.iter().count(), 2);
}

#[test]
fn the_stamp_may_be_the_older_key_or_missing() {
    let array = || Float32Array::from(vec![1.0]);
    let message = read(&[("timestamp", Value::Integer(6))], array()).unwrap();
    assert_eq!(message.timestamp_ns(), 6);
    assert!(!read(&[], array()).unwrap().header.timestamp_ns.is_present());
}

#[test]
fn ragged_columns_start_at_zero_even_in_a_slice() {
    let list = ListArray::from_iter_primitive::<arrow::datatypes::Int64Type, _, _>([
        Some(vec![Some(1), Some(2)]),
        Some(vec![Some(3)]),
        Some(vec![]),
    ]);
    let field = Arc::new(Field::new("targets_ns", list.data_type().clone(), false));
    let batch = StructArray::from(vec![(field, Arc::new(list) as ArrayRef)]).slice(1, 2);
    let message = read(&[], batch).unwrap();
    let column = message.column("targets_ns").unwrap();
    assert_eq!(message.rows, 2);
    assert_eq!(column.offsets, [0, 1, 1]);
    assert_eq!(column.row(0).as_slice::<i64>(), [3]);
}

#[test]
fn bfloat16_travels_as_uint16() {
    let bits = half::bf16::from_f32(1.5).to_bits();
    let dtype = ("dtype", Value::String("bfloat16".into()));
    let message = read(&[dtype], UInt16Array::from(vec![bits])).unwrap();
    let mut value = [0.0];
    message.flat().unwrap().to_f32(&mut value);
    assert_eq!(value, [1.5]);
}

fn columns(columns: Vec<(&str, ArrayRef)>, nulls: Option<NullBuffer>) -> StructArray {
    let field = |(name, column): &(&str, ArrayRef)| Field::new(*name, column.data_type().clone(), true);
    let fields: Vec<_> = columns.iter().map(field).collect();
    StructArray::new(
        fields.into(),
        columns.into_iter().map(|(_, column)| column).collect(),
        nulls,
    )
}

fn floats_of(message: &Message, name: &str) -> Vec<f32> {
    let values = message.column(name).unwrap().values();
    let mut out = vec![0.0; values.len()];
    values.to_f32(&mut out);
    out
}

#[test]
fn what_nothing_asks_for_is_skipped_and_what_is_asked_for_is_named() {
    let xyz = || -> ArrayRef { Arc::new(Float32Array::from(vec![1.0, 2.0])) };
    let dictionary: DictionaryArray<Int32Type> = vec!["a", "b"].into_iter().collect();
    let nested = columns(vec![("x", xyz())], None);
    let cloud = columns(
        vec![
            ("valid", Arc::new(BooleanArray::from(vec![true, false]))),
            ("x", xyz()),
            ("name", Arc::new(StringArray::from(vec!["a", "b"]))),
            ("y", xyz()),
            ("class", Arc::new(dictionary)),
            ("pose", Arc::new(nested)),
            ("z", xyz()),
        ],
        None,
    );
    let message = read(&[], cloud).unwrap();
    let cloud = HostCloud::from_message(&message).unwrap();
    assert_eq!(cloud.len(), 2);
    let asked = |name| cloud.field(name).unwrap_err().to_string();
    assert!(asked("valid").starts_with("field `valid` is Boolean (allowed: arrays of floats"));
    assert!(asked("class").starts_with("field `class` is Dictionary(Int32, Utf8) (allowed"));
    assert_eq!(asked("ring"), "no field `ring`: the cloud has x, y, z");
    let mut copy = Message::default();
    copy.copy_from(&message);
    assert_eq!(copy.skipped().len(), 3);
    assert!(copy.column("name").is_some_and(|name| name.texts().is_some()));
}

#[test]
fn a_null_is_a_value_that_is_not_there() {
    let message = read(&[], Float32Array::from(vec![Some(1.0), None, Some(3.0)])).unwrap();
    let values = floats_of(&message, "");
    assert!(values[0] == 1.0 && values[1].is_nan() && values[2] == 3.0);
    // The second row of the struct is null, and so is a value in the third.
    let cloud = columns(
        vec![
            ("x", Arc::new(Float32Array::from(vec![1.0, 2.0, 3.0]))),
            ("ring", Arc::new(UInt32Array::from(vec![Some(7), Some(8), None]))),
            (
                "t",
                Arc::new(TimestampMillisecondArray::from(vec![Some(1), None, Some(2)])),
            ),
        ],
        Some(NullBuffer::from(vec![true, false, true])),
    );
    let message = read(&[], cloud.slice(1, 2)).unwrap();
    let (x, ring) = (floats_of(&message, "x"), floats_of(&message, "ring"));
    assert!(x[0].is_nan() && x[1] == 3.0);
    assert!(ring.iter().all(|ring| ring.is_nan()));
    let ring = message.column("ring").unwrap();
    assert_eq!((ring.dtype, ring.integers), (Dtype::Float64, Some(Dtype::UInt32)));
    assert!(floats_of(&message, "t")[0].is_nan() && floats_of(&message, "t")[1] == 2e6);
    // An array without nulls stays as it is, though it has a bitmap for them.
    let message = read(&[], UInt32Array::from(vec![Some(7), None]).slice(0, 1)).unwrap();
    assert_eq!(
        (message.flat().unwrap().dtype(), message.columns()[0].integers),
        (Dtype::UInt32, None)
    );
}

#[test]
fn nulls_go_with_the_dtype_that_the_metadata_names() {
    let dtype = |name: &str| ("dtype", Value::String(name.into()));
    let nulls = || UInt16Array::from(vec![Some(half::bf16::from_f32(1.5).to_bits()), None]);
    let message = read(&[dtype("bfloat16")], nulls()).unwrap();
    assert_eq!(message.flat().unwrap().dtype(), Dtype::BFloat16);
    assert!(floats_of(&message, "")[0] == 1.5 && floats_of(&message, "")[1].is_nan());
    let message = read(&[dtype("uint16")], nulls()).unwrap();
    assert!(floats_of(&message, "")[1].is_nan());
}

#[test]
fn times_are_nanoseconds_in_every_unit() {
    let list = ListArray::from_iter_primitive::<arrow::datatypes::TimestampSecondType, _, _>([
        Some(vec![Some(1), None]),
        None,
        Some(vec![Some(-2)]),
    ]);
    let message = columns(
        vec![
            (
                "ns",
                Arc::new(TimestampNanosecondArray::from(vec![5, i64::MAX, i64::MIN])),
            ),
            ("ms", Arc::new(TimestampMillisecondArray::from(vec![5, -6, 7]))),
            ("us", Arc::new(DurationMicrosecondArray::from(vec![5, 6, 7]))),
            (
                "far",
                Arc::new(TimestampMillisecondArray::from(vec![0, i64::MAX / 1000, 0])),
            ),
            ("list", Arc::new(list)),
        ],
        None,
    );
    let message = read(&[], message).unwrap();
    let int64 = |name| message.column(name).unwrap().data.as_slice::<i64>().to_vec();
    assert_eq!(int64("ns"), [5, i64::MAX, i64::MIN]);
    assert_eq!(int64("ms"), [5_000_000, -6_000_000, 7_000_000]);
    assert_eq!(int64("us"), [5000, 6000, 7000]);
    assert_eq!(message.skipped()[0].reason, "a time is beyond int64 nanoseconds");
    let list = message.column("list").unwrap();
    assert_eq!(list.offsets, [0, 2, 2, 3]);
    assert_eq!(floats_of(&message, "list")[2], -2e9);
    // The value under a null is not a time.
    let hidden = TimestampMillisecondArray::new(vec![i64::MAX, 1].into(), Some(vec![false, true].into()));
    let message = read(&[], hidden).unwrap();
    assert_eq!(floats_of(&message, "")[1], 1e6);
}

#[test]
fn lists_of_every_kind_are_columns() {
    let rows = || {
        [
            Some(vec![Some(0)]),
            Some(vec![Some(1), Some(2)]),
            None,
            Some(vec![Some(3), None]),
        ]
    };
    let list = ListArray::from_iter_primitive::<Int64Type, _, _>(rows());
    let large = LargeListArray::from_iter_primitive::<Int64Type, _, _>(rows());
    let fixed = [
        Some(vec![Some(0), Some(9)]),
        Some(vec![Some(1), Some(2)]),
        None,
        Some(vec![Some(3), None]),
    ];
    let fixed = FixedSizeListArray::from_iter_primitive::<Int64Type, _, _>(fixed, 2);
    let batch = columns(
        vec![
            ("list", Arc::new(list)),
            ("large", Arc::new(large)),
            ("fixed", Arc::new(fixed)),
        ],
        None,
    );
    let message = read(&[], batch.slice(1, 3)).unwrap();
    for name in ["list", "large"] {
        let column = message.column(name).unwrap();
        assert_eq!(
            (column.cells, &column.offsets[..]),
            (Cells::Ragged(4), &[0, 2, 2, 4][..]),
            "{name}"
        );
        // Integers in several lists stay integers, so that stamps keep their last digit.
        assert_eq!(column.values().as_slice::<i64>()[..3], [1, 2, 3], "{name}");
        assert_eq!(column.null_rows, [1, 2], "{name}");
    }
    assert_eq!(message.column("fixed").unwrap().cells, Cells::Fixed(2));
    let fixed = floats_of(&message, "fixed");
    assert!(fixed[..2] == [1.0, 2.0] && fixed[2..4].iter().all(|value| value.is_nan()));
    assert!(fixed[4] == 3.0 && fixed[5].is_nan());
}

#[test]
fn text_is_copied_and_a_null_is_an_empty_one() {
    let texts = [Some("camera"), None, Some(""), Some("zwölf")];
    let arrays: [(&str, ArrayRef); 3] = [
        ("short", Arc::new(StringArray::from(texts.to_vec()))),
        ("long", Arc::new(LargeStringArray::from(texts.to_vec()))),
        ("view", Arc::new(StringViewArray::from(texts.to_vec()))),
    ];
    let batch = columns(arrays.to_vec(), Some(NullBuffer::from(vec![false, true, true, true])));
    for (from, expected) in [(0, &["", "", "", "zwölf"][..]), (2, &["", "zwölf"][..])] {
        let message = read(&[], batch.slice(from, expected.len())).unwrap();
        assert!(message.skipped().is_empty());
        for (name, _) in &arrays {
            let column = message.column(name).unwrap();
            assert_eq!(column.texts().unwrap().collect::<Vec<_>>(), expected, "{name}");
            assert_eq!(column.cells, Cells::Text(expected.concat().len()));
            let nulls: Vec<usize> = if from == 0 { vec![0, 1] } else { vec![] };
            assert_eq!(column.null_rows, nulls, "{name}");
        }
    }
}

/// Text columns are skipped, and are copied only if an operation takes messages as they are.
#[test]
fn text_is_skipped_where_samples_or_clouds_are_wanted() {
    let x: ArrayRef = Arc::new(Float32Array::from(vec![1.0]));
    let label: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    let cloud = columns(
        vec![("x", x.clone()), ("y", x.clone()), ("z", x), ("label", label)],
        None,
    );
    for (selection, is_copied) in [
        (Selection::default(), true),
        (Selection::cloud(CloudFields::All, None), false),
        (
            Selection::cloud(CloudFields::All, None)
                .and(Selection::default())
                .unwrap(),
            true,
        ),
    ] {
        let mut message = Message::default();
        let array: ArrayRef = Arc::new(cloud.clone());
        Selector::new(selection).read([], &array, &mut message).unwrap();
        assert_eq!(message.column("label").is_some(), is_copied);
        assert_eq!(message.skipped().len(), usize::from(!is_copied));
        assert_eq!(HostCloud::from_message(&message).unwrap().len(), 1);
    }
}

#[test]
fn lists_in_the_only_row_are_a_cloud() {
    let list = |values: [f32; 3]| -> ArrayRef {
        let values = Some(values.map(Some).to_vec());
        Arc::new(LargeListArray::from_iter_primitive::<Float32Type, _, _>([values]))
    };
    let cloud = columns(
        vec![
            ("x", list([1.0, 2.0, 3.0])),
            ("y", list([0.0; 3])),
            ("z", list([4.0; 3])),
        ],
        None,
    );
    let message = read(&[], cloud).unwrap();
    assert_eq!(HostCloud::from_message(&message).unwrap().len(), 3);
}

#[test]
fn what_the_metadata_says_of_the_form_must_agree() {
    let list = |key: &'static str, values: &[i64]| (key, Value::ListInt(values.to_vec()));
    let names = |key: &'static str, names: &[&str]| {
        (
            key,
            Value::ListString(names.iter().map(|name| (*name).to_owned()).collect()),
        )
    };
    let six = || Float32Array::from(vec![0.0; 6]);
    let refused = |parameters: &[(&str, Value)]| read(parameters, six()).err().map(|error| error.to_string());
    let (shape, stamps) = (
        |shape: &[i64]| list("shape", shape),
        |stamps: &[i64]| list("timestamps_ns", stamps),
    );
    assert_eq!(
        refused(&[shape(&[2, 3]), stamps(&[1, 2, 3])]).unwrap(),
        "metadata `shape` [2, 3] contradicts `timestamps_ns`, which has 3 entries (allowed: 3 as the first dimension)"
    );
    assert_eq!(
        refused(&[shape(&[2, 3]), names("fields", &["x", "y"])]).unwrap(),
        "metadata `shape` [2, 3] contradicts `fields`, which has 2 entries (allowed: 2 as the last dimension)"
    );
    assert_eq!(
        refused(&[stamps(&[1, 2]), list("valid", &[1, 1, 1])]).unwrap(),
        "metadata `valid` has 3 entries (allowed: 2, one for each sample and modality)"
    );
    assert!(refused(&[list("valid", &[1, 1])]).unwrap().contains("allowed: 1"));
    assert!(
        refused(&[shape(&[7])])
            .unwrap()
            .contains("`shape` [7] needs 7 values, but the payload has 6")
    );
    assert!(refused(&[shape(&[1, i64::MAX, 4])]).is_some());
    let good = [
        vec![
            shape(&[2, 3]),
            stamps(&[1, 2]),
            list("valid", &[0, 1]),
            names("fields", &["x", "y", "z"]),
        ],
        vec![shape(&[6]), stamps(&[1]), list("valid", &[1])],
        vec![shape(&[]), stamps(&[])],
        // A window of two rows of three modalities.
        vec![
            shape(&[2, 3]),
            stamps(&[1, 2]),
            names("modalities", &["a", "b", "c"]),
            list("valid", &[1; 6]),
        ],
    ];
    for parameters in good {
        assert_eq!(refused(&parameters), None, "{parameters:?}");
    }
    // The shape of a grid of bits counts cells.
    let bits = |bytes: usize| {
        let parameters = [shape(&[5, 2, 1]), list("grid_shape", &[5, 2, 1])];
        read(&parameters, arrow::array::UInt8Array::from(vec![0; bytes]))
    };
    assert!(bits(2).is_ok() && bits(3).is_err());
}

#[test]
fn what_cannot_be_read_is_said_in_full() {
    let floats = || Float32Array::from(vec![1.0, 2.0]);
    let message = |result: Result<Message, MessageError>| match result {
        Ok(_) => panic!("it was read"),
        Err(error) => error.to_string(),
    };
    assert!(message(read(&[], StringArray::from(vec!["a"]))).contains("Arrow type Utf8 (allowed: arrays of floats"));
    // A list is allowed as the column of a struct only, and of numbers only.
    let nested = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1)])]);
    assert!(message(read(&[], nested)).contains("Arrow type List(Int64) (allowed: arrays of floats"));
    let text = ("timestamp_ns", Value::String("17".into()));
    assert!(message(read(&[text], floats())).contains("a NumPy integer becomes text"));
    let shape = ("shape", Value::ListInt(vec![3]));
    assert!(message(read(&[shape], floats())).contains("`shape` [3] needs 3 values, but the payload has 2"));
    let dtype = ("dtype", Value::String("float64".into()));
    assert!(message(read(&[dtype], floats())).contains("the payload is float32"));
}

//! Recordings: messages are read back unchanged, any Arrow reader opens the files, and a file that was cut off gives
//! its complete messages.

use crate::common::{Folder, read_all};
use arrow::array::{Array, AsArray, Int64Array, ListArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Float32Type, Int64Type, Schema};
use arrow::ipc::reader::FileReader;
use arrow::ipc::writer::FileWriter;
use proptest::prelude::*;
use robocache::device::Dtype;
use robocache::ops;
use robocache::stream::recording::{Indexed, Order, ReadError, Reader, WriteError, Writer};
use robocache::stream::{Cells, Message, MetadataValue as Value, Names, form};
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Name, element type, cell form, bytes and list offsets of a column.
type Part = (String, Dtype, Cells, Vec<u8>, Vec<i32>);

/// All parts of a message that a recording keeps.
#[derive(Clone, Debug, PartialEq)]
struct Content {
    stream: String,
    timestamp_ns: i64,
    metadata: Vec<(String, Value)>,
    rows: usize,
    columns: Vec<Part>,
}

fn content(stream: &str, message: &Message) -> Content {
    Content {
        stream: stream.to_owned(),
        timestamp_ns: message.timestamp_ns(),
        metadata: {
            let entries = message
                .header
                .iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned()));
            // The stamp has a field above, and the columns tell that they are bfloat16.
            let is_bfloat16 = |value: &Value| *value == Value::String("bfloat16".into());
            let is_said = |key: &str, value: &Value| key == "timestamp_ns" || key == "dtype" && is_bfloat16(value);
            let mut entries: Vec<_> = entries.filter(|(key, value)| !is_said(key, value)).collect();
            entries.sort_by(|(a, _), (b, _)| a.cmp(b));
            entries
        },
        rows: message.rows,
        columns: message
            .columns()
            .iter()
            .map(|c| {
                (
                    c.name.clone(),
                    c.dtype,
                    c.cells,
                    c.data.bytes().to_vec(),
                    c.offsets.clone(),
                )
            })
            .collect(),
    }
}

fn tensor(timestamp_ns: i64, dtype: Dtype, bytes: &[u8]) -> Message {
    let mut message = Message::default();
    message.header.timestamp_ns.set(timestamp_ns);
    message.rows = bytes.len() / dtype.size();
    message.add_column("", dtype, Cells::One).data.copy_from(bytes);
    message
}

fn floats(timestamp_ns: i64, values: &[f32]) -> Message {
    tensor(timestamp_ns, Dtype::Float32, bytemuck::cast_slice(values))
}

/// Makes a cloud with fields of each form: numbers, vectors of a fixed length, and lists.
fn cloud(timestamp_ns: i64, points: usize) -> Message {
    let mut message = Message::default();
    message.header.timestamp_ns.set(timestamp_ns);
    message.rows = points;
    message.header.frame_id.set("lidar_top");
    let numbers: Vec<u16> = (0..points * 3).map(|i| i as u16 + timestamp_ns as u16).collect();
    let x: Vec<f32> = (0..points).map(|i| i as f32 + timestamp_ns as f32).collect();
    message
        .add_column("x", Dtype::Float32, Cells::One)
        .data
        .copy_from(bytemuck::cast_slice(&x));
    message
        .add_column("ring", Dtype::UInt16, Cells::One)
        .data
        .copy_from(bytemuck::cast_slice(&numbers[..points]));
    message
        .add_column("descriptor", Dtype::BFloat16, Cells::Fixed(3))
        .data
        .copy_from(bytemuck::cast_slice(&numbers));
    let echoes: Vec<i32> = (0..=points)
        .map(|i| (i * i.min(3)) as i32)
        .map(|i| i.min(points as i32 * 3))
        .collect();
    let total = echoes[points] as usize;
    let column = message.add_column("echoes", Dtype::UInt16, Cells::Ragged(total));
    column.data.copy_from(bytemuck::cast_slice(&numbers[..total]));
    column.offsets.extend(echoes);
    message
}

/// Records the messages 300 ms apart, so that each batch is written two messages later. Returns the recorded contents.
fn record(folder: &Path, messages: &[(&str, Message)]) -> Vec<Content> {
    let start = Instant::now();
    let mut writer = Writer::create(folder).unwrap();
    let mut contents = Vec::new();
    for (i, (stream, message)) in messages.iter().enumerate() {
        writer
            .append(stream, message, start + Duration::from_millis(300 * i as u64))
            .unwrap();
        contents.push(content(stream, message));
    }
    writer.finish().unwrap();
    contents
}

fn read(folder: &Path) -> Result<Vec<Content>, ReadError> {
    let (contents, error) = read_up_to(folder)?;
    error.map_or(Ok(contents), Err)
}

/// Reads messages up to the first one that can't be read. Returns them, and the error, or `None` at the end of the recording.
fn read_up_to(folder: &Path) -> Result<(Vec<Content>, Option<ReadError>), ReadError> {
    let mut reader = Reader::open(folder)?;
    let names: Vec<String> = reader.streams().map(str::to_owned).collect();
    let (mut message, mut contents) = (Message::default(), Vec::new());
    loop {
        match reader.next_into(&mut message) {
            Ok(Some(stream)) => contents.push(content(&names[stream], &message)),
            Ok(None) => return Ok((contents, None)),
            Err(error) => return Ok((contents, Some(error))),
        }
    }
}

#[test]
fn every_type_comes_back_bit_for_bit() {
    let folder = Folder::new();
    let bytes: Vec<u8> = (0..48).map(|i| (i * 37 % 251) as u8).collect();
    let messages: Vec<_> = Dtype::ALL
        .into_iter()
        .enumerate()
        .map(|(i, dtype)| (dtype.name(), tensor(i as i64, dtype, &bytes)))
        .collect();
    let written = record(&folder.0, &messages);
    assert_eq!(read(&folder.0).unwrap(), written);
}

#[test]
fn clouds_come_back_with_every_kind_of_field_and_without_a_point() {
    let folder = Folder::new();
    let sizes = [0, 4, 0, 1, 300, 2];
    let messages: Vec<_> = sizes
        .iter()
        .enumerate()
        .map(|(i, &n)| ("lidar", cloud(i as i64, n)))
        .collect();
    let written = record(&folder.0, &messages);
    assert_eq!(read(&folder.0).unwrap(), written);
}

#[test]
fn text_comes_back_as_it_was() {
    let folder = Folder::new();
    let rows: [&[&str]; 4] = [&["camera", "", "zwölf"], &[], &[""], &["\"a\"\n", "b"]];
    let messages = rows.iter().enumerate().map(|(i, texts)| {
        let mut message = Message::default();
        message.header.timestamp_ns.set(i as i64);
        message.rows = texts.len();
        let all = texts.concat();
        let column = message.add_column("input", Dtype::UInt8, Cells::Text(all.len()));
        column.data.copy_from(all.as_bytes());
        column.offsets.push(0);
        for text in *texts {
            column
                .offsets
                .push(column.offsets[column.offsets.len() - 1] + text.len() as i32);
        }
        let level = message.add_column("level", Dtype::UInt8, Cells::One);
        level.data.copy_from(&vec![i as u8; texts.len()]);
        ("diagnostics", message)
    });
    let messages: Vec<_> = messages.collect();
    let written = record(&folder.0, &messages);
    assert_eq!(read(&folder.0).unwrap(), written);
    let schema = FileReader::try_new(File::open(folder.file("diagnostics")).unwrap(), None)
        .unwrap()
        .schema();
    let texts = DataType::List(Field::new_list_field(DataType::Utf8, true).into());
    assert_eq!(*schema.field(1).data_type(), texts);
    // A stream of text can't go on with bytes under the same name.
    let mut bytes = Message::default();
    bytes.rows = 1;
    for name in ["input", "level"] {
        bytes.add_column(name, Dtype::UInt8, Cells::One).data.copy_from(&[7]);
    }
    let mut writer = Writer::create(folder.0.join("again")).unwrap();
    writer.append("diagnostics", &messages[0].1, Instant::now()).unwrap();
    let words = writer
        .append("diagnostics", &bytes, Instant::now())
        .unwrap_err()
        .to_string();
    assert!(words.contains("`input` uint8") && words.contains("text"), "{words}");
}

#[test]
fn several_samples_and_what_is_said_of_them_come_back() {
    let folder = Folder::new();
    let messages: Vec<_> = (0..5)
        .map(|i| {
            let mut message = floats(i, &vec![i as f32; 6 * i as usize]);
            message.header.shape.set([2 * i, 3]);
            message.header.timestamps_ns.set((0..2 * i).map(|j| i * 100 + j));
            message.header.valid.set((0..i).map(|j| j % 2));
            message.header.fields.set(&["x", "a \"b\"", "c, d"]);
            message.header.frame_id.set("tool0");
            message.header.dim.set(3);
            // The first message decides which lists the stream has.
            if i == 0 {
                message.header.timestamps_ns.set([7]);
                message.header.valid.set([1]);
            }
            ("fused", message)
        })
        .collect();
    let written = record(&folder.0, &messages);
    assert_eq!(read(&folder.0).unwrap(), written);
}

#[test]
fn streams_are_merged_by_time_then_name_then_row() {
    let folder = Folder::new();
    let at = |stream, time| (stream, floats(time, &[time as f32]));
    let written = record(
        &folder.0,
        &[
            at("b", 10),
            at("b", 30),
            at("b", 20),
            at("b", 40),
            at("a", 10),
            at("a", 40),
            at("a", 40),
        ],
    );
    let mut reader = Reader::open(&folder.0).unwrap();
    assert_eq!(reader.streams().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(reader.next_stamp().map(|(time, _)| time), Some(10));
    let order = [4, 0, 1, 2, 5, 6, 3].map(|i: usize| written[i].clone());
    assert_eq!(read(&folder.0).unwrap(), order);
    reader.retain(|name| name == "b");
    let mut message = Message::default();
    for time in [10, 30, 20, 40] {
        assert_eq!(reader.next_into(&mut message).unwrap(), Some(0));
        assert_eq!(message.timestamp_ns(), time);
    }
    assert_eq!(reader.next_into(&mut message).unwrap(), None);
}

#[test]
fn after_every_batch_any_arrow_reader_opens_the_file() {
    let folder = Folder::new();
    let mut writer = Writer::create(&folder.0).unwrap();
    let start = Instant::now();
    let rows = || {
        let reader = FileReader::try_new(File::open(folder.file("force")).unwrap(), None).unwrap();
        reader.map(|batch| batch.unwrap().num_rows()).sum::<usize>()
    };
    assert_eq!(writer.due(), None);
    for batch in 0..20u64 {
        let now = start + Duration::from_secs(batch);
        for row in 0..batch {
            let message = floats((batch * 100 + row) as i64, &[1.0, 2.0]);
            writer
                .append("force", &message, now + Duration::from_millis(row))
                .unwrap();
        }
        if batch > 0 {
            let due = now + Duration::from_millis(500);
            assert_eq!(writer.due(), Some(due));
            writer.tick(due - Duration::from_millis(1)).unwrap();
            assert_eq!(rows() as u64, batch * (batch - 1) / 2, "not before its time");
            writer.tick(due).unwrap();
            assert_eq!(rows() as u64, batch * (batch + 1) / 2);
            assert_eq!(writer.due(), None);
        }
    }
    // A large message is written at once.
    let before = rows();
    let large = floats(9999, &vec![0.5; 3 << 20]);
    writer.append("force", &large, start).unwrap();
    assert_eq!(rows(), before + 1);
}

#[test]
fn the_columns_and_the_metadata_are_those_of_the_format() {
    let folder = Folder::new();
    let mut message = tensor(5, Dtype::BFloat16, bytemuck::cast_slice(&[0x3f80u16, 0x4000]));
    message.header.shape.set([1, 2]);
    message.header.fields.set(["x", "y"]);
    message.header.frame_id.set("map");
    record(&folder.0, &[("a", message), ("lidar", cloud(5, 2))]);
    let open = |stream| FileReader::try_new(File::open(folder.file(stream)).unwrap(), None).unwrap();
    let list = |item| DataType::List(Field::new_list_field(item, true).into());

    let mut file = open("a");
    let schema = file.schema();
    let columns: Vec<_> = schema
        .fields()
        .iter()
        .map(|f| (f.name().as_str(), f.data_type().clone()))
        .collect();
    assert_eq!(
        columns,
        [
            ("timestamp_ns", DataType::Int64),
            ("data", list(DataType::UInt16)),
            ("shape", list(DataType::Int64)),
            ("metadata", DataType::Utf8),
        ]
    );
    for (key, value) in [("dtype", "bfloat16"), ("fields", r#"["x", "y"]"#), ("frame_id", "map")] {
        assert_eq!(schema.metadata()[key], value);
    }
    let batch = file.next().unwrap().unwrap();
    assert_eq!(batch.column(0).as_primitive::<Int64Type>().values(), &[5]);
    assert_eq!(
        batch
            .column(2)
            .as_list::<i32>()
            .value(0)
            .as_primitive::<Int64Type>()
            .values(),
        &[1, 2]
    );

    let schema = open("lidar").schema();
    let names: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(names, ["timestamp_ns", "x", "ring", "descriptor", "echoes", "metadata"]);
    assert_eq!(*schema.field(1).data_type(), list(DataType::Float32));
    assert_eq!(schema.field(3).metadata()["dtype"], "bfloat16");
    assert_eq!(schema.metadata()["frame_id"], "lidar_top");
}

/// A struct with a bfloat16 column is read back with the metadata key `dtype` if it was recorded with that key,
/// else without it.
#[test]
fn a_struct_says_its_dtype_or_does_not_as_it_did() {
    let said = |dtypes: &[Option<&str>]| {
        let folder = Folder::new();
        let messages = (0..).zip(dtypes).map(|(i, dtype)| {
            let mut message = cloud(i, 2);
            if let Some(dtype) = dtype {
                message.header.dtype.set(dtype);
            }
            ("lidar", message)
        });
        record(&folder.0, &messages.collect::<Vec<_>>());
        let mut reader = Reader::open(&folder.0).unwrap();
        let (mut message, mut found) = (Message::default(), Vec::new());
        while reader.next_into(&mut message).unwrap().is_some() {
            let column = message.column("descriptor").unwrap();
            assert_eq!(column.dtype, Dtype::BFloat16);
            found.push(message.header.dtype.get().map(str::to_owned));
        }
        found
    };
    for dtypes in [
        &[None, None][..],
        &[Some("bfloat16"), Some("bfloat16")],
        &[None, Some("bfloat16"), None],
        &[Some("bfloat16"), None, Some("float32")],
        &[Some("float32"), None],
    ] {
        let found = said(dtypes);
        assert_eq!(found.iter().map(Option::as_deref).collect::<Vec<_>>(), dtypes);
    }
}

#[test]
fn a_message_that_does_not_fit_the_first_one_is_refused_and_the_recording_goes_on() {
    let folder = Folder::new();
    let mut writer = Writer::create(&folder.0).unwrap();
    let now = Instant::now();
    writer.append("force", &floats(1, &[1.0]), now).unwrap();
    let mut refuse = |message: Message, words: &[&str]| {
        let error = writer.append("force", &message, now).unwrap_err();
        assert!(matches!(error, WriteError::Misfit { .. }));
        for word in ["stream `force`"].iter().chain(words) {
            assert!(error.to_string().contains(word), "`{error}` does not say `{word}`");
        }
    };
    refuse(tensor(2, Dtype::Float64, &[0; 8]), &["`data` float64", "float32"]);
    refuse(cloud(2, 1), &["[x, ring, descriptor, echoes]"]);
    let mut column = Message::default();
    column.rows = 1;
    column
        .add_column("x", Dtype::Float32, Cells::One)
        .data
        .copy_from(&[0; 4]);
    refuse(column, &["[x]", "[]"]);
    writer.append("force", &floats(3, &[3.0]), now).unwrap();

    for name in ["", "a/b", "..", "a\\b"] {
        assert!(matches!(
            writer.append(name, &floats(1, &[]), now),
            Err(WriteError::Name { .. })
        ));
    }
    let error = writer.append("s", &Message::default(), now).unwrap_err();
    assert!(matches!(error, WriteError::Form { .. }), "{error}");
    let mut long = floats(4, &[4.0]);
    *long.header.other.set("map") = Value::String("x".repeat(17 << 20));
    let error = writer.append("force", &long, now).unwrap_err().to_string();
    assert!(error.contains("stream `force`: metadata that takes"), "{error}");
    writer.finish().unwrap();
    let times: Vec<_> = read(&folder.0).unwrap().iter().map(|c| c.timestamp_ns).collect();
    assert_eq!(times, [1, 3]);

    let mut again = Writer::create(&folder.0).unwrap();
    let error = again.append("force", &floats(1, &[1.0]), now).unwrap_err();
    assert!(matches!(error, WriteError::Exists { .. }), "{error}");
}

/// Adds metadata to a message. The step decides which keys there are, their values and their types.
fn with_metadata(mut message: Message, step: usize) -> Message {
    let mut put = |key: &str, value| *message.header.other.set(key) = value;
    put("encoding", Value::String("rgb8".into()));
    put("width", Value::Integer(640 + step as i64 / 2));
    match step % 7 {
        0 => put("gain", Value::Float(1.0)),
        1 => put("gain", Value::Integer(1)),
        2 => put("gain", Value::ListFloat(vec![0.1, f64::NEG_INFINITY, -0.0])),
        3 => put("gain", Value::ListString(["a \"b\"", "\u{fffe}"].into_iter().collect())),
        4 => put("gain", Value::Bool(step > 4)),
        5 => put("gain", Value::Timestamp(1_700_000_000_123_456_789)),
        _ => {}
    }
    // A key that the header has a field for is kept with another type, too.
    message.header.frame_id.clear();
    match step % 5 {
        0 => message.header.frame_id.set("map"),
        1 => message.header.frame_id.set("odom \"1\""),
        2 => *message.header.other.set("frame_id") = Value::Integer(7),
        3 => *message.header.other.set("frame_id") = Value::String(String::new()),
        _ => {}
    }
    match step % 4 {
        1 => message.header.fields.set(["x"]),
        2 => message.header.fields.set(["x", "y"]),
        3 => *message.header.other.set("fields") = Value::ListString(Names::default()),
        _ => {}
    }
    match step % 3 {
        1 => message.header.dim.set(step as i64),
        2 => {
            ops::key::epoch.set(&mut message.header, step as i64 / 4);
            form::modalities.set(&mut message.header, &["a", "b"][..step % 2 + 1]);
            message.header.timestamps_ns.set([step as i64, 5]);
            message.header.valid.set([1, 0, 1]);
        }
        _ => {}
    }
    message
}

#[test]
fn metadata_may_change_from_message_to_message() {
    for first in 0..12 {
        let folder = Folder::new();
        let messages: Vec<_> = (0..60)
            .flat_map(|i| {
                let step = first + i;
                let mut cloud = with_metadata(cloud(i as i64, 2), step);
                if step % 2 == 1 {
                    cloud.header.shape.set([1, 2]);
                }
                [
                    ("cloud", cloud),
                    ("flat", with_metadata(floats(i as i64, &[step as f32]), step)),
                ]
            })
            .collect();
        let written = record(&folder.0, &messages);
        let came = read(&folder.0).unwrap();
        assert_eq!(came.len(), written.len());
        for (came, written) in came.iter().zip(&written) {
            assert_eq!(came, written);
        }
    }
}

#[test]
fn what_is_the_same_in_every_message_is_in_the_schema_and_what_changes_in_a_column() {
    let folder = Folder::new();
    let messages: Vec<_> = (0..3)
        .map(|i| {
            let mut message = floats(i, &[1.0]);
            message.header.frame_id.set("map");
            *message.header.other.set("encoding") = Value::String("rgb8".into());
            *message.header.other.set("width") = Value::Integer(if i == 1 { 2 } else { 640 });
            ("camera", message)
        })
        .collect();
    record(&folder.0, &messages);
    let file = FileReader::try_new(File::open(folder.file("camera")).unwrap(), None).unwrap();
    let schema = file.schema();
    assert_eq!(schema.metadata()["metadata"], r#"{"encoding": "rgb8", "width": 640}"#);
    assert_eq!(schema.metadata()["frame_id"], "map");
    let names: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(names, ["timestamp_ns", "data", "shape", "metadata"]);
    let batches: Vec<_> = file.map(Result::unwrap).collect();
    let texts: Vec<_> = batches
        .iter()
        .flat_map(|batch| batch.column(3).as_string::<i32>())
        .collect();
    assert_eq!(texts, [None, Some(r#"{"width": 2}"#), None]);
}

/// Makes a batch of trajectories: a message of `rows` rows, whose lists differ in length.
fn trajectories(timestamp_ns: i64, rows: usize) -> Message {
    let mut message = Message::default();
    message.header.timestamp_ns.set(timestamp_ns);
    message.rows = rows;
    message.header.dim.set(2);
    let ends = |step: usize| {
        (0..=rows)
            .map(|row| (row * (row + step) / 2) as i32)
            .collect::<Vec<_>>()
    };
    for (name, dtype, step) in [
        ("timestamps_ns", Dtype::Int64, 1),
        ("values", Dtype::BFloat16, 3),
        ("targets_ns", Dtype::Int64, 5),
    ] {
        let ends = ends(step);
        let total = ends[rows] as usize;
        let column = message.add_column(name, dtype, Cells::Ragged(total));
        column.data.resize(total * dtype.size());
        for (i, byte) in column.data.bytes_mut().iter_mut().enumerate() {
            *byte = (i + step) as u8;
        }
        column.offsets.extend(ends);
    }
    message
}

#[test]
fn batches_of_trajectories_come_back() {
    let folder = Folder::new();
    let messages: Vec<_> = [3, 0, 1, 40]
        .into_iter()
        .enumerate()
        .map(|(i, rows)| ("trajectories", trajectories(i as i64, rows)))
        .collect();
    let written = record(&folder.0, &messages);
    assert_eq!(read(&folder.0).unwrap(), written);
}

#[test]
fn a_struct_s_fields_may_be_called_like_columns_of_a_recording() {
    let folder = Folder::new();
    let names = [
        "timestamp_ns",
        "data",
        "shape",
        "timestamps_ns",
        "valid",
        "arrival_ns",
        "metadata",
        "",
        "data.shape",
        "data.data.shape",
        "x",
    ];
    let messages: Vec<_> = (0..3usize)
        .map(|i| {
            let mut message = Message::default();
            message.header.timestamp_ns.set(i as i64);
            message.rows = i;
            message.header.shape.set([i as i64 + 1]);
            message.header.timestamps_ns.set([9]);
            message.header.valid.set([1]);
            for (at, name) in names.iter().enumerate() {
                let column = message.add_column(name, Dtype::UInt8, Cells::One);
                column.data.copy_from(&vec![(10 * at + i) as u8; i]);
            }
            ("struct", message)
        })
        .collect();
    let written = record(&folder.0, &messages);
    assert_eq!(read(&folder.0).unwrap(), written);
    let schema = FileReader::try_new(File::open(folder.file("struct")).unwrap(), None)
        .unwrap()
        .schema();
    let mut columns: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    columns.sort_unstable();
    columns.dedup();
    assert_eq!(columns.len(), names.len() + 4, "every column has a name of its own");
    // A single named field is a struct, too.
    for name in names.into_iter().filter(|name| !name.is_empty()) {
        let folder = Folder::new();
        let mut message = Message::default();
        message.rows = 2;
        message
            .add_column(name, Dtype::Int64, Cells::One)
            .data
            .copy_from(&[3; 16]);
        let written = record(&folder.0, &[("a", message)]);
        assert_eq!(read(&folder.0).unwrap(), written, "{name}");
    }
}

#[test]
fn a_struct_may_have_any_number_of_columns_of_any_type() {
    for columns in [1, 33, 1000] {
        let folder = Folder::new();
        let messages: Vec<_> = (0..3usize)
            .map(|rows| {
                let mut message = Message::default();
                message.header.timestamp_ns.set(rows as i64);
                message.rows = rows;
                for i in 0..columns {
                    let dtype = Dtype::ALL[i % Dtype::ALL.len()];
                    let cells = [
                        Cells::One,
                        Cells::Fixed(1 + i % 4),
                        Cells::Ragged(2 * rows),
                        Cells::Fixed(0),
                    ][i % 4];
                    let column = message.add_column(&format!("f{i}"), dtype, cells);
                    let elements = match cells {
                        Cells::One => rows,
                        Cells::Fixed(n) => n * rows,
                        Cells::Ragged(n) | Cells::Text(n) => n,
                    };
                    column.data.copy_from(&vec![i as u8; elements * dtype.size()]);
                    if let Cells::Ragged(_) = cells {
                        column.offsets.extend((0..=rows as i32).map(|row| 2 * row));
                    }
                }
                ("wide", message)
            })
            .collect();
        let written = record(&folder.0, &messages);
        assert_eq!(read(&folder.0).unwrap(), written);
    }
}

/// Writes an Arrow file as another program would, without robocache's writer.
fn foreign(path: &Path, schema: Schema, batches: &[Vec<Arc<dyn Array>>]) {
    let schema = Arc::new(schema);
    let mut writer = FileWriter::try_new(File::create(path).unwrap(), &schema).unwrap();
    for columns in batches {
        writer
            .write(&RecordBatch::try_new(schema.clone(), columns.clone()).unwrap())
            .unwrap();
    }
    writer.finish().unwrap();
}

fn list_field(name: &str, item: DataType) -> Field {
    Field::new(name, DataType::List(Field::new_list_field(item, true).into()), true)
}

fn list_of_f32(rows: &[Option<&[f32]>]) -> Arc<dyn Array> {
    let rows = rows
        .iter()
        .map(|row| row.map(|row| row.iter().map(|&v| Some(v)).collect::<Vec<_>>()));
    Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>(rows))
}

fn times(times: &[i64]) -> Arc<dyn Array> {
    Arc::new(Int64Array::from(times.to_vec()))
}

#[test]
fn files_of_other_writers_are_read_whatever_their_batches_and_the_order_of_their_columns() {
    let folder = Folder::new();
    let schema = || {
        Schema::new(vec![
            list_field("data", DataType::Float32),
            Field::new("timestamp_ns", DataType::Int64, true),
        ])
    };
    let data = list_of_f32(&[Some(&[9.0]), Some(&[1.0, 2.0]), Some(&[]), Some(&[3.0])]);
    foreign(
        &folder.file("a"),
        schema(),
        &[
            vec![list_of_f32(&[]), times(&[])],
            // A slice, whose offsets do not start at 0.
            vec![data.slice(1, 3), times(&[1, 2, 3])],
            vec![list_of_f32(&[]), times(&[])],
            vec![data.slice(0, 1), times(&[4])],
        ],
    );
    foreign(&folder.file("without_messages"), schema(), &[]);
    fs::write(folder.0.join("notes.txt"), "not a stream").unwrap();
    let contents = read(&folder.0).unwrap();
    let values: Vec<_> = contents
        .iter()
        .map(|c| {
            (
                c.timestamp_ns,
                c.columns[0]
                    .3
                    .chunks(4)
                    .map(bytemuck::pod_read_unaligned::<f32>)
                    .collect::<Vec<_>>(),
            )
        })
        .collect();
    assert_eq!(
        values,
        [(1, vec![1.0, 2.0]), (2, vec![]), (3, vec![3.0]), (4, vec![9.0])]
    );
    assert!(contents.iter().all(|c| {
        c.metadata
            .iter()
            .all(|(key, _)| key != "shape" && key != "timestamps_ns")
    }));
    assert_eq!(
        Reader::open(&folder.0).unwrap().streams().collect::<Vec<_>>(),
        ["a", "without_messages"]
    );
}

#[test]
fn what_is_wrong_with_a_recording_is_said_with_its_file() {
    let check = |make: &dyn Fn(&Folder), words: &[&str]| {
        let folder = Folder::new();
        make(&folder);
        let error = read(&folder.0).unwrap_err().to_string();
        for word in words {
            assert!(error.contains(word), "`{error}` does not say `{word}`");
        }
    };
    let error = Reader::open("/no/such/folder").err().unwrap().to_string();
    assert!(error.contains("/no/such/folder"), "{error}");
    check(&|_| (), &["no streams", "<output id>.arrow"]);
    check(
        &|f| fs::write(f.file("a"), "hello, world").unwrap(),
        &["a.arrow: not an Arrow IPC file"],
    );

    let timestamp = || Field::new("timestamp_ns", DataType::Int64, true);
    let data = || list_field("data", DataType::Float32);
    let ones = || list_of_f32(&[Some(&[1.0])]);
    let with = |fields: Vec<Field>, columns: Vec<Arc<dyn Array>>| {
        move |f: &Folder| {
            foreign(
                &f.file("a"),
                Schema::new(fields.clone()),
                std::slice::from_ref(&columns),
            )
        }
    };
    check(
        &with(vec![data()], vec![ones()]),
        &["a.arrow: no column `timestamp_ns`, the file has `data`"],
    );
    check(
        &with(vec![timestamp()], vec![times(&[1])]),
        &["a.arrow: no column `data`"],
    );
    let float_time = Field::new("timestamp_ns", DataType::Float32, true);
    let float_times: Arc<dyn Array> = Arc::new(arrow::array::Float32Array::from(vec![1.0]));
    check(
        &with(vec![float_time, data()], vec![float_times, ones()]),
        &["`timestamp_ns` is Float32", "allowed: Int64"],
    );
    let flat = Field::new("data", DataType::Int64, true);
    check(
        &with(vec![timestamp(), flat], vec![times(&[1]), times(&[1])]),
        &["column `data` is Int64", "allowed: a List"],
    );
    let shape = list_field("shape", DataType::Float32);
    check(
        &with(vec![timestamp(), data(), shape], vec![times(&[1]), ones(), ones()]),
        &["column `shape` is List", "allowed: List<Int64>"],
    );
    let shape = list_field("shape", DataType::Int64);
    let shapes: Arc<dyn Array> = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([
        None,
        Some(vec![Some(2), Some(3)]),
    ]));
    check(
        &with(
            vec![timestamp(), data(), shape],
            vec![times(&[1, 2]), list_of_f32(&[Some(&[1.0]), Some(&[1.0; 5])]), shapes],
        ),
        &["a.arrow: row 1: `shape` is [2, 3] for 5 elements"],
    );
    check(
        &with(
            vec![timestamp(), data()],
            vec![times(&[1, 2]), list_of_f32(&[Some(&[1.0]), None])],
        ),
        &["row 1: `data` has a null"],
    );
    let (x, y) = (list_field("x", DataType::Float32), list_field("y", DataType::Float32));
    check(
        &with(
            vec![timestamp(), x, y],
            vec![times(&[1]), ones(), list_of_f32(&[Some(&[1.0, 2.0])])],
        ),
        &["row 0: `x` has 1 values and `y` 2"],
    );
    let metadata = Field::new("metadata", DataType::Utf8, true);
    let texts: Arc<dyn Array> = Arc::new(arrow::array::StringArray::from(vec![None, Some("[1]")]));
    check(
        &with(
            vec![metadata, timestamp(), data()],
            vec![texts, times(&[1, 2]), list_of_f32(&[Some(&[1.0]), Some(&[1.0])])],
        ),
        &["a.arrow: row 1: `metadata`: "],
    );
    let named = |key: &str, value: &str| {
        let metadata = [(key.to_owned(), value.to_owned())].into();
        let schema = Schema::new_with_metadata(vec![timestamp(), data()], metadata);
        move |f: &Folder| foreign(&f.file("a"), schema.clone(), &[vec![times(&[1]), ones()]])
    };
    check(&named("dtype", "float8"), &["metadata `dtype` is `float8`", "bfloat16"]);
    check(&named("dtype", "bfloat16"), &["column `data` is List"]);
    check(&named("fields", "{x"), &["metadata `fields` is `{x`", "JSON list"]);
}

#[test]
fn the_streams_that_can_be_opened_are_had_beside_those_that_can_not() {
    let folder = Folder::new();
    record(&folder.0, &[("a", floats(1, &[1.0])), ("c", floats(2, &[2.0]))]);
    fs::write(folder.file("b"), "hello, world").unwrap();
    let whole = fs::read(folder.file("c")).unwrap();
    fs::write(folder.file("c"), &whole[..whole.len() - 1]).unwrap();
    let (reader, refused) = Reader::open_readable(&folder.0).unwrap();
    assert_eq!(reader.streams().collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!([reader.is_finished(0), reader.is_finished(1)], [true, false]);
    assert_eq!(reader.own_order(), Order::Stamp);
    let refused: Vec<String> = refused.iter().map(ToString::to_string).collect();
    assert!(
        refused.len() == 1 && refused[0].contains("b.arrow: not an Arrow IPC file"),
        "{refused:?}"
    );
    assert!(Reader::open(&folder.0).is_err());
}

#[test]
fn a_finished_file_with_a_damaged_batch_is_an_error_and_not_the_end() {
    let folder = Folder::new();
    record(
        &folder.0,
        &[
            ("a", floats(1, &[1.0])),
            ("a", floats(2, &[2.0])),
            ("a", floats(3, &[3.0])),
            ("a", floats(4, &[4.0])),
        ],
    );
    let whole = fs::read(folder.file("a")).unwrap();
    let second = whole
        .windows(4)
        .enumerate()
        .filter(|(_, w)| *w == [0xff; 4])
        .nth(2)
        .unwrap()
        .0;
    let mut damaged = whole.clone();
    damaged[second..second + 8].fill(0);
    fs::write(folder.file("a"), &damaged).unwrap();
    let error = read(&folder.0).unwrap_err();
    assert!(
        matches!(error, ReadError::Damaged { at, .. } if at == second as u64),
        "{error}"
    );
    damaged[second..second + 4].fill(0xff);
    fs::write(folder.file("a"), &damaged).unwrap();
    let error = read(&folder.0).unwrap_err().to_string();
    assert!(error.contains("the footer has 2"), "{error}");
}

/// A recorder that is restarted within the same run of a dataflow adds a file. All readers read the files as one stream.
#[test]
fn a_recording_is_gone_on_with_in_further_files() {
    let folder = Folder::new();
    let path = folder.0.join("run");
    let named = |stamp: i64, frame: &str| {
        let mut message = floats(stamp, &[stamp as f32; 3]);
        message.header.frame_id.set(frame);
        message
    };
    let mut written = Vec::new();
    for part in 0..3 {
        let mut writer = Writer::create_or_resume(&path, "run 7").unwrap().with_arrivals();
        for i in 0..4 {
            // Each part has a frame of its own, and the last part another form, too.
            let frame = ["map", "odom", "base"][part as usize];
            let message = match part {
                2 => cloud(part * 10 + i, 3),
                _ => named(part * 10 + i, frame),
            };
            writer.append("a", &message, Instant::now()).unwrap();
            written.push(content("a", &message));
        }
        if part == 1 {
            writer.append("arm.2", &named(15, "arm"), Instant::now()).unwrap();
            // While a process records a stream, no other process may record it.
            let mut other = Writer::create_or_resume(&path, "run 7").unwrap();
            let busy = other.append("a", &named(0, "map"), Instant::now()).unwrap_err();
            assert!(
                busy.to_string().contains("a.arrow.2: another process is recording it"),
                "{busy}"
            );
            assert!(other.can_record("a").is_err());
            other.can_record("b").unwrap();
        }
        writer.finish().unwrap();
    }
    let files: Vec<String> = fs::read_dir(&path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    for file in ["a.arrow", "a.arrow.2", "a.arrow.3", "arm.2.arrow", ".run"] {
        assert!(files.iter().any(|there| there == file), "{files:?}");
    }
    assert_eq!(files.len(), 5);
    let reader = Reader::open(&path).unwrap();
    assert_eq!(reader.streams().collect::<Vec<_>>(), ["a", "arm.2"]);
    assert!(reader.own_order() == Order::Arrival && reader.is_finished(0));
    assert_eq!(reader.files(0).len(), 3);
    for order in [Order::Stamp, Order::Arrival] {
        let mut reader = Reader::open(&path).unwrap().in_order(order).unwrap();
        let (mut message, mut came) = (Message::default(), Vec::new());
        while let Some(stream) = reader.next_into(&mut message).unwrap() {
            if stream == 0 {
                came.push(content("a", &message));
            }
        }
        assert_eq!(came, written, "{order:?}");
    }
    // `Indexed` reads the parts in any order, too.
    let mut indexed = Indexed::open(path.join("a.arrow")).unwrap();
    assert_eq!(indexed.timestamps_ns(), [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]);
    let mut message = Message::default();
    for i in [11, 0, 5, 4, 8, 3, 0, 11] {
        indexed.read(i, &mut message).unwrap();
        assert_eq!(content("a", &message), written[i], "{i}");
    }
    // A part that ended before its first batch has a schema and no message.
    fs::rename(path.join("a.arrow.2"), path.join("a.arrow.4")).unwrap();
    fs::write(path.join("a.arrow.2"), fs::read(path.join("a.arrow")).unwrap()).unwrap();
    let empty = Folder::new();
    let mut writer = Writer::create(&empty.0).unwrap().with_arrivals();
    writer.append("a", &floats(0, &[0.0; 3]), Instant::now()).unwrap();
    fs::copy(empty.file("a"), path.join("a.arrow")).unwrap();
    drop(writer);
    let mut reader = Reader::open(&path).unwrap();
    let (streams, said) = read_all(|message| reader.next_into(message), |stream, _| stream);
    assert_eq!(streams.iter().filter(|&&stream| stream == 0).count(), 12);
    let not_ended = format!("{}: its recorder did not end in order", path.join("a.arrow").display());
    assert!(said.len() == 1 && said[0].starts_with(&not_ended), "{said:?}");
    assert!(!reader.is_finished(0) && reader.is_finished(1));
    let (indexed, problems) = Indexed::open_readable(path.join("a.arrow")).unwrap();
    assert_eq!(indexed.timestamps_ns(), [0, 1, 2, 3, 20, 21, 22, 23, 10, 11, 12, 13]);
    assert_eq!(problems.iter().map(ToString::to_string).collect::<Vec<_>>(), said);
    fs::write(path.join("a.arrow"), fs::read(path.join("a.arrow.2")).unwrap()).unwrap();
    // Each reader reports a part that is missing between others, and a recording that goes on does not take its place.
    fs::rename(path.join("a.arrow.3"), folder.0.join("aside")).unwrap();
    let missing = path.join("a.arrow.3").display().to_string();
    for (found, whole) in [
        (
            Reader::open_readable(&path).map(|(_, problems)| problems),
            Reader::open(&path).err(),
        ),
        (
            Indexed::open_readable(path.join("a.arrow")).map(|(_, problems)| problems),
            Indexed::open(path.join("a.arrow")).err(),
        ),
    ] {
        let problems: Vec<String> = found.unwrap().iter().map(|problem| problem.to_string()).collect();
        let words = format!(
            "{missing}: the file is missing, although later files of this stream exist: its messages can't be read \
             (needed: all files, as they were recorded)"
        );
        assert_eq!(problems.join("\n"), words);
        assert_eq!(whole.unwrap().to_string(), words);
    }
    let mut writer = Writer::create_or_resume(&path, "run 7").unwrap();
    writer.append("a", &floats(40, &[1.0; 3]), Instant::now()).unwrap();
    writer.finish().unwrap();
    assert!(path.join("a.arrow.5").exists());
    fs::remove_file(path.join("a.arrow.5")).unwrap();
    fs::rename(folder.0.join("aside"), path.join("a.arrow.3")).unwrap();
    // Resuming is refused for another run, by its name, and for a recording without a run.
    let refused = Writer::create_or_resume(&path, "run 8").err().unwrap().to_string();
    for words in ["a.arrow belongs to", "the run run 7", "{start}"] {
        assert!(refused.contains(words), "{refused}");
    }
    fs::remove_file(path.join(".run")).unwrap();
    let refused = Writer::create_or_resume(&path, "run 7").err().unwrap().to_string();
    assert!(refused.contains("a recording whose run is not known"), "{refused}");
}

#[test]
fn a_part_that_a_crash_cut_is_told_and_the_next_is_read() {
    let folder = Folder::new();
    for part in 0..2 {
        let mut writer = Writer::create_or_resume(&folder.0, "run").unwrap();
        for i in 0..3 {
            let now = Instant::now() + Duration::from_secs(i);
            writer
                .append("a", &floats((part * 10 + i) as i64, &[0.5; 4]), now)
                .unwrap();
            writer.tick(now + Duration::from_secs(1)).unwrap();
        }
        writer.finish().unwrap();
    }
    let whole = fs::read(folder.file("a")).unwrap();
    let mut cut = whole.clone();
    let last = whole.windows(4).rposition(|w| w == [0xff, 0xff, 0xff, 0xff]).unwrap();
    cut.truncate(last - 8);
    for (first, lost) in [(cut, 1), (b"text".to_vec(), 3)] {
        fs::write(folder.file("a"), first).unwrap();
        let (mut reader, refused) = Reader::open_readable(&folder.0).unwrap();
        let (came, mut said) = read_all(|message| reader.next_into(message), |_, message| message.timestamp_ns());
        said.extend(refused.iter().map(ToString::to_string));
        assert_eq!(came, [&[0, 1, 2][..3 - lost], &[10, 11, 12]].concat());
        assert!(said.len() == 1 && said[0].contains("a.arrow: no"), "{said:?}");
        let (indexed, problems) = Indexed::open_readable(folder.file("a")).unwrap();
        assert_eq!(indexed.timestamps_ns(), came);
        assert_eq!(problems.iter().map(ToString::to_string).collect::<Vec<_>>(), said);
    }
}

#[test]
fn what_is_whole_in_a_damaged_file_is_given_and_what_is_not_is_said() {
    let folder = Folder::new();
    let mut writer = Writer::create(&folder.0).unwrap();
    let start = Instant::now();
    for i in 0..10 {
        let now = start + Duration::from_secs(i);
        writer.append("a", &floats(i as i64, &[i as f32; 4]), now).unwrap();
        writer.append("b", &floats(i as i64, &[i as f32; 4]), now).unwrap();
        writer.tick(now + Duration::from_secs(1)).unwrap();
    }
    writer.finish().unwrap();
    let whole = fs::read(folder.file("a")).unwrap();
    // The first start is that of the schema, the others are those of the batches.
    let starts: Vec<_> = (0..whole.len() - 8)
        .step_by(8)
        .filter(|&at| whole[at..at + 4] == [0xff; 4] && whole[at + 4..at + 8] != [0; 4])
        .collect();
    assert_eq!(starts.len(), 11);
    let drain = |damaged: &[u8]| {
        fs::write(folder.file("a"), damaged).unwrap();
        let mut reader = Reader::open(&folder.0).unwrap();
        let stamp = |stream, message: &Message| (stream, message.timestamp_ns() as usize);
        let (came, errors) = read_all(|message| reader.next_into(message), stamp);
        let (a, b): (Vec<_>, Vec<_>) = came.into_iter().partition(|&(stream, _)| stream == 0);
        assert_eq!(b.len(), 10, "the other stream is whole");
        (a.into_iter().map(|(_, stamp)| stamp).collect::<Vec<_>>(), errors)
    };
    for damaged in 0..10 {
        for (place, byte) in [(0, 0), (4, 0xff), (8, 0xff), (7, 0x7f)] {
            let mut bytes = whole.clone();
            bytes[starts[1 + damaged] + place] = byte;
            let (came, errors) = drain(&bytes);
            let wanted: Vec<_> = (0..10).filter(|&i| i != damaged).collect();
            assert_eq!(came, wanted, "byte {place} of batch {damaged}: {errors:?}");
            let at = format!("a.arrow: damaged at byte {}", starts[1 + damaged]);
            assert!(errors.len() == 1 && errors[0].contains(&at), "{errors:?}");
        }
    }
    // The footer has the schema, too.
    for damage in [0..1, 4..5, 8..9, 0..starts[1] - starts[0]] {
        let mut bytes = whole.clone();
        bytes[starts[0] + damage.start..starts[0] + damage.end].fill(0);
        let (came, errors) = drain(&bytes);
        assert_eq!(came, (0..10).collect::<Vec<_>>(), "{damage:?}: {errors:?}");
        let used = "(expected: the schema; that of the footer is used)";
        assert!(errors.len() == 1 && errors[0].ends_with(used), "{damage:?}: {errors:?}");
        // Without the footer nothing of the stream can be read, but it is still listed.
        bytes.pop();
        let (came, errors) = drain(&bytes);
        assert!(
            came.is_empty() && errors.len() == 1 && errors[0].contains("a.arrow: "),
            "{damage:?}: {errors:?}"
        );
    }
    // A wrong letter in the name of a column at the start: the footer has the right one.
    let name = whole.windows(12).position(|bytes| bytes == b"timestamp_ns").unwrap();
    let mut bytes = whole.clone();
    bytes[name] = b'u';
    let (came, errors) = drain(&bytes);
    assert_eq!(came, (0..10).collect::<Vec<_>>());
    assert!(
        errors.len() == 1 && errors[0].contains("a schema that differs from the schema in the footer"),
        "{errors:?}"
    );
    // Without the footer nobody knows where the next batch would be.
    let mut bytes = whole.clone();
    bytes[starts[5]] = 0;
    bytes.pop();
    let (came, errors) = drain(&bytes);
    let words = format!(
        "a.arrow: no valid footer: read up to the last whole batch, byte {}; {} bytes follow: no message starts here",
        starts[5],
        bytes.len() - starts[5]
    );
    assert_eq!(came, [0, 1, 2, 3]);
    assert!(errors.len() == 1 && errors[0].ends_with(&words), "{errors:?}");
    // A damaged footer is ignored.
    let mut bytes = whole;
    let end = bytes.len();
    bytes[end - 30..end - 14].fill(0xff);
    let (came, errors) = drain(&bytes);
    assert_eq!(came, (0..10).collect::<Vec<_>>());
    assert!(errors.len() == 1 && errors[0].contains("no valid footer"), "{errors:?}");
}

#[test]
fn a_file_cut_off_anywhere_gives_what_was_whole_in_it() {
    for stream in ["force", "lidar"] {
        let folder = Folder::new();
        let mut writer = Writer::create(&folder.0).unwrap();
        let start = Instant::now();
        let (mut written, mut whole_at) = (Vec::new(), Vec::new());
        for i in 0..9 {
            let message = if stream == "force" {
                floats(i, &[i as f32; 3])
            } else {
                cloud(i, i as usize)
            };
            writer.append(stream, &message, start).unwrap();
            written.push(content(stream, &message));
            if i % 3 == 2 {
                writer.tick(start + Duration::from_secs(1)).unwrap();
                whole_at.push(fs::metadata(folder.file(stream)).unwrap().len() as usize);
            }
        }
        writer.finish().unwrap();
        let whole = fs::read(folder.file(stream)).unwrap();
        let mut before = 0;
        for len in 0..=whole.len() {
            fs::write(folder.file(stream), &whole[..len]).unwrap();
            let (came, error) = read_up_to(&folder.0).unwrap();
            assert_eq!(came, written[..came.len()], "{len} bytes");
            // A cut is reported even between two batches, as the rest may have held messages.
            let is_whole = len == whole.len();
            match error {
                None => assert!(is_whole, "{len} bytes"),
                Some(ReadError::Unfinished { at, left, .. }) => {
                    assert!(!is_whole && at + left == len as u64, "{len} bytes: {at} and {left}");
                }
                Some(error) => panic!("{len} bytes: {error}"),
            }
            assert!(
                came.len() >= before && came.len().is_multiple_of(3),
                "{len} bytes give {} messages",
                came.len()
            );
            let due = 3 * whole_at.iter().filter(|&&at| at <= len).count();
            assert!(came.len() >= due, "{len} bytes give {} messages, not {due}", came.len());
            before = came.len();
        }
        assert_eq!(before, 9);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn bytes_that_are_wrong_are_an_error_or_the_end_and_never_a_panic(
        at in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 1..12),
        torn in any::<bool>(),
    ) {
        let folder = Folder::new();
        let messages: Vec<_> = (0..4).map(|i| ("lidar", cloud(i, 3))).collect();
        record(&folder.0, &messages);
        let mut whole = fs::read(folder.file("lidar")).unwrap();
        if torn {
            whole.truncate(whole.len() - 1);
        }
        let at = at.index(whole.len());
        for (i, byte) in bytes.iter().enumerate().take(whole.len() - at) {
            whole[at + i] = *byte;
        }
        fs::write(folder.file("lidar"), &whole).unwrap();
        let _ = read(&folder.0);
    }

    #[test]
    fn tensors_of_any_lengths_come_back(
        lengths in prop::collection::vec(0..50usize, 1..30),
    ) {
        let folder = Folder::new();
        let messages: Vec<_> = lengths
            .iter()
            .enumerate()
            .map(|(i, &n)| ("a", floats(i as i64, &(0..n).map(|j| (i * j) as f32).collect::<Vec<_>>())))
            .collect();
        let written = record(&folder.0, &messages);
        prop_assert_eq!(read(&folder.0).unwrap(), written);
    }
}

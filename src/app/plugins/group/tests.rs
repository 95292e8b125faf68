//! Tests of the plugin `group` in a graph: members go out unchanged, losses are counted, and memory stays within its bound.

use super::*;
use crate::app::{App, Config, Graph, Sink};
use robocache_device::Dtype;
use robocache_ops::{self as ops, group};
use robocache_stream::{Cells, MetadataRef, MetadataValue, Payload};
use std::path::Path;

const MS: i64 = 1_000_000;

/// Sink that keeps the published messages.
#[derive(Default)]
struct Collected(Vec<(String, Message)>);

impl Sink for Collected {
    fn send(
        &mut self,
        output: &str,
        layout: &Layout,
        fill: &mut dyn FnMut(&mut Payload<'_>, &mut Header),
    ) -> Result<(), Fault> {
        let mut message = Message::default();
        message.write(layout, fill);
        self.0.push((output.to_owned(), message));
        Ok(())
    }
}

impl Collected {
    /// Removes the collected messages, and returns output, stamp (ms), group, span (ms) and epoch of each member of a set.
    fn take(&mut self) -> Vec<(String, i64, i64, i64, i64)> {
        let sent = std::mem::take(&mut self.0).into_iter().map(|(output, message)| {
            let header = &message.header;
            let stamp = header.timestamp_ns.get().unwrap() / MS;
            let span = group::key::group_span_ns.get(header).unwrap() / MS;
            let (group, epoch) = (
                group::key::group.get(header).unwrap(),
                ops::key::epoch.get(header).unwrap(),
            );
            (output, stamp, group, span, epoch)
        });
        sent.collect()
    }
}

fn built(section: &str) -> Result<Graph, AppError> {
    let text = format!("device: cpu\nplugins: {section}");
    let config = Config::parse(Path::new("robot.yml"), &text)?;
    App::new()
        .with_config(config)
        .add_plugins(super::super::all())
        .build(|_| true)
}

fn group(keys: &str) -> Graph {
    built(&format!("[group: {{ {keys} }}]")).unwrap()
}

fn tensor(ms: i64, values: &[f32]) -> Message {
    let mut message = Message::default();
    message.rows = values.len();
    message.header.timestamp_ns.set(ms * MS);
    let column = message.add_column("", Dtype::Float32, Cells::One);
    column.data.copy_from(bytemuck::cast_slice(values));
    message
}

/// Makes a cloud of `rows` points with the stamp `ms`: a struct with a scalar, a fixed-size, a ragged and a text column.
fn cloud(ms: i64, rows: usize) -> Message {
    let mut message = Message::default();
    message.rows = rows;
    message.header.timestamp_ns.set(ms * MS);
    let x: Vec<f32> = (0..rows).map(|i| i as f32 - 0.5).collect();
    message
        .add_column("x", Dtype::Float32, Cells::One)
        .data
        .copy_from(bytemuck::cast_slice(&x));
    message
        .add_column("colour", Dtype::UInt8, Cells::Fixed(3))
        .data
        .copy_from(&vec![7; 3 * rows]);
    let column = message.add_column("returns", Dtype::UInt16, Cells::Ragged(rows));
    column.data.copy_from(&vec![9; 2 * rows]);
    // Every value is in the first row.
    column
        .offsets
        .extend(std::iter::once(0).chain((0..rows).map(|_| rows as i32)));
    let column = message.add_column("label", Dtype::UInt8, Cells::Text(2 * rows));
    column.data.copy_from("ü".repeat(rows).as_bytes());
    column.offsets.extend((0..=rows).map(|row| 2 * row as i32));
    message
}

fn faults(graph: &Graph, place: &str) -> u64 {
    graph.faults().find(|(name, _)| *name == place).unwrap().1
}

#[test]
fn members_go_out_unchanged_in_the_order_of_the_inputs() {
    let mut graph = group("policy: exact, inputs: [{ input: lidar }, { input: camera, latency_ms: 5 }]");
    let mut sink = Collected::default();
    let mut camera = tensor(15, &[1.5, -0.0, f32::NAN, 4.0]);
    camera.header.shape.set([2, 2]);
    camera.header.frame_id.set("optical");
    camera.header.dtype.set("float32");
    camera.header.other.set("encoding").assign(MetadataRef::String("rgb8"));
    // The sender uses these keys for other values.
    camera
        .header
        .other
        .set(group::key::group.name)
        .assign(MetadataRef::String("left"));
    ops::key::epoch.set(&mut camera.header, 77);
    let lidar = cloud(10, 5);
    for (input, message) in [("camera", &camera), ("lidar", &lidar)] {
        let input = graph.external_inputs().position(|(name, _)| name == input).unwrap();
        graph.message(input, message, &mut sink);
    }
    let [(first, of_lidar), (second, of_camera)] = sink.0.as_slice() else {
        panic!("{} messages", sink.0.len())
    };
    assert_eq!([first, second], ["lidar", "camera"]);
    for (sent, came) in [(of_lidar, &lidar), (of_camera, &camera)] {
        assert_eq!((sent.rows, sent.columns().len()), (came.rows, came.columns().len()));
        for (sent, came) in sent.columns().iter().zip(came.columns()) {
            assert_eq!(
                (sent.cells, sent.data.bytes(), &sent.offsets),
                (came.cells, came.data.bytes(), &came.offsets)
            );
        }
        for (sent, came) in sent.columns().iter().zip(came.columns()) {
            assert_eq!(
                (&sent.name, sent.dtype, sent.cells),
                (&came.name, came.dtype, came.cells)
            );
            assert_eq!((sent.data.bytes(), &sent.offsets), (came.data.bytes(), &came.offsets));
        }
        assert_eq!(
            (
                group::key::group.get(&sent.header),
                group::key::group_span_ns.get(&sent.header)
            ),
            (Some(0), Some(0))
        );
        assert_eq!(
            group::key::group_timestamp_ns.get(&sent.header),
            Some(10 * MS),
            "its stamp less its latency"
        );
    }
    assert_eq!(ops::key::epoch.get(&of_lidar.header), Some(0));
    assert_eq!(ops::key::epoch.get(&of_camera.header), Some(77), "an observation's own");
    let mut rest = (*of_camera.header).clone();
    let mut own = (*camera.header).clone();
    for key in [
        group::key::group.name,
        group::key::group_timestamp_ns.name,
        group::key::group_span_ns.name,
    ] {
        rest.remove(key);
        own.remove(key);
    }
    assert_eq!(rest, own);
    assert_eq!(rest.other.get("encoding"), Some(&MetadataValue::String("rgb8".into())));
}

#[test]
fn what_still_waits_at_the_end_is_counted() {
    for policy in ["approximate", "exact", "epsilon, max_span_ms: 1"] {
        let mut graph = group(&format!("policy: {policy}, inputs: [{{ input: a }}, {{ input: b }}]"));
        graph.gather_diagnostics();
        let mut sink = Collected::default();
        for ms in [0, 10, 20, 30] {
            graph.message(0, &tensor(ms, &[1.0]), &mut sink);
        }
        graph.message(1, &tensor(0, &[1.0]), &mut sink);
        graph.finish(&mut sink).unwrap();
        let in_sets = sink.take().iter().filter(|(output, ..)| output == "a").count() as u64;
        let row = graph.report(std::time::Instant::now()).unwrap().inputs.remove(0);
        assert_eq!((row.messages, in_sets + row.dropped_overflow), (4, 4), "{policy}");
    }
}

#[test]
fn two_groups_run_in_one_process_under_names_of_their_own() {
    let error =
        built("[group: { inputs: [{ input: a }, { input: b }] }, group: { inputs: [{ input: a }, { input: c }] }]");
    let error = error.err().unwrap().to_string();
    assert!(
        error.contains("two of them publish `a`") && error.contains("`name:`"),
        "{error}"
    );

    let text = "[group: { policy: exact, name: front, inputs: [{ input: a }, { input: b }] },
        group: { policy: exact, name: all, inputs: [{ input: front/a }, { input: c }] }]";
    let mut graph = built(text).unwrap();
    let outputs: Vec<_> = graph.outputs().collect();
    assert_eq!(outputs, ["front/a", "front/b", "all/front/a", "all/c"]);
    let mut sink = Collected::default();
    for input in 0..3 {
        graph.message(input, &tensor(10, &[1.0]), &mut sink);
    }
    let sent: Vec<_> = sink.take().into_iter().map(|(output, ms, ..)| (output, ms)).collect();
    let expected = ["front/a", "front/b", "all/front/a", "all/c"].map(|name| (name.to_owned(), 10));
    assert_eq!(sent, expected);
}

#[test]
fn an_input_is_taken_from_the_operation_before_it() {
    let text = "[align: { rate_hz: 100, modalities: [{ input: force, dim: 1, interpolation: previous }] },
        group: { policy: exact, name: sync, inputs: [{ input: force }, { input: camera }] }]";
    let mut graph = built(text).unwrap();
    let inputs: Vec<_> = graph.external_inputs().map(|(name, _)| name).collect();
    assert_eq!(inputs, ["force", "camera"]);
    let mut sink = Collected::default();
    graph.message(1, &tensor(20, &[5.0]), &mut sink);
    graph.message(0, &tensor(20, &[5.0]), &mut sink);
    // The message of align belongs to no set.
    let outputs: Vec<_> = sink.0.into_iter().map(|(output, _)| output).collect();
    assert_eq!(outputs, ["force", "sync/force", "sync/camera"]);
}

#[test]
fn a_clock_jump_clears_everything_and_raises_the_epoch_once() {
    let mut graph = group("policy: exact, inputs: [{ input: a, reset_ms: 50 }, { input: b }]");
    let mut sink = Collected::default();
    for ms in [5000, 5100] {
        graph.message(0, &tensor(ms, &[1.0]), &mut sink);
        graph.message(1, &tensor(ms, &[1.0]), &mut sink);
    }
    graph.message(0, &tensor(5200, &[1.0]), &mut sink);
    // Both clocks are set back; the messages that waited are dropped.
    graph.message(0, &tensor(100, &[1.0]), &mut sink);
    graph.message(1, &tensor(100, &[1.0]), &mut sink);
    graph.message(1, &tensor(5200, &[1.0]), &mut sink);
    let sets: Vec<_> = sink
        .take()
        .into_iter()
        .map(|(_, ms, group, _, epoch)| (ms, group, epoch))
        .collect();
    assert_eq!(
        sets,
        [
            (5000, 0, 0),
            (5000, 0, 0),
            (5100, 1, 0),
            (5100, 1, 0),
            (100, 2, 1),
            (100, 2, 1)
        ]
    );
    assert_eq!(
        (faults(&graph, "group: input `a`"), faults(&graph, "group: input `b`")),
        (1, 0)
    );
}

#[test]
fn what_is_not_as_it_should_be_is_counted() {
    let mut graph = group("queue_size: 2, max_held_mb: 0.001, inputs: [{ input: a, min_period_ms: 10 }, { input: b }]");
    let mut sink = Collected::default();
    let a = |graph: &mut Graph, ms, values: &[f32]| {
        graph.message(0, &tensor(ms, values), &mut Collected::default());
        faults(graph, "group: input `a`")
    };
    assert_eq!(a(&mut graph, 0, &[1.0]), 0);
    assert_eq!(a(&mut graph, 9, &[1.0]), 1, "closer than min_period_ms");
    assert_eq!(a(&mut graph, 5, &[1.0]), 2, "out of order");
    assert_eq!(a(&mut graph, 20, &[1.0]), 3, "overflow");
    assert_eq!(a(&mut graph, 40, &[1.0; 1000]), 4, "larger than what may be held");
    assert_eq!(
        a(&mut graph, 50, &[1.0; 262]),
        6,
        "overflow, and more is held than may be"
    );
    let mut text = Message::default();
    text.header.timestamp_ns.set(60 * MS);
    let field = arrow_schema::Field::new("name", arrow_schema::DataType::Utf8, false);
    text.skip(&std::sync::Arc::new(field), "text");
    graph.message(0, &text, &mut sink);
    assert_eq!(faults(&graph, "group: input `a`"), 7);
    let mut wrong = tensor(0, &[1.0]);
    wrong.header.timestamp_ns.set(i64::MAX);
    graph.message(0, &wrong, &mut sink);
    assert_eq!(faults(&graph, "group: input `a`"), 8);
    assert!(sink.take().is_empty());
}

#[test]
fn a_closed_input_settles_the_last_set() {
    let mut graph = group("inputs: [{ input: a }, { input: b }]");
    let mut sink = Collected::default();
    graph.message(0, &tensor(0, &[1.0]), &mut sink);
    graph.message(1, &tensor(3, &[1.0]), &mut sink);
    assert!(sink.take().is_empty(), "the next of `a` may be nearer");
    graph.changed(0, Change::Closed, &mut sink);
    let sent: Vec<_> = sink
        .take()
        .into_iter()
        .map(|(output, ms, _, span, _)| (output, ms, span))
        .collect();
    assert_eq!(sent, [("a".to_owned(), 0, 3), ("b".to_owned(), 3, 3)]);
}

#[test]
fn memory_is_used_again_and_stays_within_its_bound() {
    const BOUND: usize = 100_000;
    let mut pool = HeldPools::new(2, BOUND);
    let mut held = Vec::new();
    for bytes in [10_000, 30_000, 50_000] {
        let mut message = pool
            .take(0, bytes, held.iter().map(Message::bytes).sum())
            .unwrap_or_default();
        message.lay_out(&Layout::flat(Dtype::UInt8, bytes));
        held.push(message);
    }
    while let Some(message) = held.pop() {
        pool.give_back(0, message, held.iter().map(Message::bytes).sum());
        assert!(pool.bytes() <= BOUND);
    }
    let before = pool.bytes();
    assert!(before >= 90_000);
    let reused = pool.take(0, 9_000, 0).unwrap();
    assert!(reused.capacity() >= 9_000 && pool.bytes() < before);
    // The memory of the other input is freed, if the bound leaves no room for it.
    let fresh = pool.take(1, 80_000, 0).unwrap_or_default();
    assert!(fresh.capacity() == 0 && pool.bytes() <= 20_000);
}

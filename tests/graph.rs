//! Operations that are chained in one process, with messages fed by hand: the routes of messages, the counters
//! and the parameters.

use crate::common::{Folder, MS, Recorder, Sent, faults, graph, graph_of, input, sample, samples};
use arrow::array::{ArrayRef, Float32Array, Int32Array, StringArray};
use robocache::app::{
    App, AppError, BuildContext, Change, Config, Fault, Graph, Operation, Outbox, Plugin, Registration, Value, plugins,
};
use robocache::device::Dtype;
use robocache::ops;
use robocache::stream::{Cells, Header, Message, MetadataRef, form};
use robocache::time::Interpolation;
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

const ALIGN_TO_FUSE: &str = "plugins:
  - align: { rate_hz: 100, modalities: [
      { input: a, dim: 2, interpolation: linear },
      { input: b, dim: 1, interpolation: previous } ] }
  - fuse: { rate_hz: 50, window: 2, modalities: [
      { input: b, dim: 1, interpolation: previous },
      { input: a, dim: 2, interpolation: previous },
      { input: c, dim: 1, interpolation: nearest } ] }";

fn fuse(keys: &str) -> String {
    format!("plugins: [fuse: {{ rate_hz: 100, {keys} }}]")
}

const ONE: &str = "modalities: [{ input: a, dim: 2, interpolation: previous, latency_ms: 0 }]";

struct Robot {
    graph: Graph,
    sink: Recorder,
}

impl Robot {
    fn new(graph: Result<Graph, AppError>) -> Self {
        Self {
            graph: graph.unwrap(),
            sink: Recorder::default(),
        }
    }

    fn send(&mut self, name: &str, message: &Message) -> Vec<Sent> {
        let input = input(&self.graph, name);
        self.graph.message(input, message, &mut self.sink);
        self.sink.take()
    }

    fn change_input(&mut self, name: &str, change: Change) -> Vec<Sent> {
        let input = input(&self.graph, name);
        self.graph.changed(input, change, &mut self.sink);
        self.sink.take()
    }

    fn set_parameter(&mut self, key: &str, value: Value) -> Vec<Sent> {
        self.graph.parameter(key, &value, &mut self.sink);
        self.sink.take()
    }
}

fn ms(sent: &[Sent]) -> Vec<f64> {
    sent.iter().map(Sent::ms).collect()
}

#[test]
fn one_operation_s_output_feeds_the_next_without_leaving_the_process() {
    let mut robot = Robot::new(graph_of(ALIGN_TO_FUSE, |output| output == "fused"));
    let inputs: Vec<_> = robot.graph.external_inputs().collect();
    assert_eq!(inputs, [("a", "align"), ("b", "align"), ("c", "fuse")]);
    robot.send("c", &sample(0, &[7.0]));
    robot.send("c", &sample(30 * MS, &[8.0]));
    assert_eq!(robot.send("a", &sample(0, &[0.0, 100.0])), []);
    // target 0 of align is due now, and with it that of fuse
    let sent = robot.send("b", &sample(0, &[5.0]));
    assert_eq!(ms(&sent), [0.0]);
    // c is `nearest`, so it has a value before its first sample, too
    assert_eq!(sent[0].values, [0.0, 0.0, 0.0, 7.0, 5.0, 0.0, 100.0, 7.0]);
    assert_eq!(sent[0].integers("valid"), [0, 0, 1, 1, 1, 1]);
    robot.send("b", &sample(24 * MS, &[6.0]));
    // a is 12.5, 50 at 25 ms: align interpolates it at 10 and 20, fuse takes 20
    let sent = robot.send("a", &sample(25 * MS, &[25.0, 50.0]));
    assert_eq!(ms(&sent), [20.0]);
    assert_eq!(sent[0].values, [5.0, 0.0, 100.0, 7.0, 5.0, 20.0, 60.0, 8.0]);
    assert_eq!(sent[0].integers("age_ns"), [0, 0, 0, 0, 0, 20 * MS]);
    assert!(robot.graph.faults().all(|(_, count)| count == 0));
}

#[test]
fn only_outputs_that_the_dataflow_declares_are_published() {
    let outputs = |published: fn(&str) -> bool| {
        let mut robot = Robot::new(graph_of(ALIGN_TO_FUSE, published));
        robot.send("c", &sample(0, &[7.0]));
        robot.send("a", &sample(0, &[0.0, 1.0]));
        let sent = robot.send("b", &sample(0, &[5.0]));
        sent.into_iter().map(|message| message.output).collect::<Vec<_>>()
    };
    assert_eq!(outputs(|_| true), ["a", "b", "fused"]);
    assert_eq!(outputs(|output| output == "fused"), ["fused"]);
    assert_eq!(outputs(|output| output == "b"), ["b"]);
    assert_eq!(outputs(|_| false), [""; 0]);
}

/// An output goes to the dataflow and to the next operation as one and the same message.
#[test]
fn an_output_can_be_published_and_taken() {
    let mut robot = Robot::new(graph(ALIGN_TO_FUSE));
    robot.send("c", &sample(0, &[7.0]));
    robot.send("a", &sample(0, &[3.0, 4.0]));
    let sent = robot.send("b", &sample(0, &[5.0]));
    assert_eq!(sent[0].values, [3.0, 4.0]);
    assert_eq!(sent[0].integers("shape"), [1, 2]);
    assert_eq!(form::modalities.get(&sent[0].header).unwrap(), ["a"]);
    assert_eq!(sent[2].values[4..], [5.0, 3.0, 4.0, 7.0]);
}

#[test]
fn a_masked_row_is_not_taken_for_a_sample() {
    let config = "plugins:
  - align: { rate_hz: 100, max_wait_ms: 10, modalities: [
      { input: a, dim: 1, interpolation: previous, max_age_ms: 5 },
      { input: b, dim: 1, interpolation: previous } ] }
  - fuse: { rate_hz: 100, modalities: [
      { input: a, dim: 1, interpolation: previous, wait: false },
      { input: b, dim: 1, interpolation: previous } ] }";
    let mut robot = Robot::new(graph_of(config, |output| output == "fused"));
    robot.send("a", &sample(0, &[3.0]));
    robot.send("b", &sample(0, &[5.0]));
    robot.send("b", &sample(10 * MS, &[6.0]));
    let sent = robot.send("b", &sample(20 * MS, &[7.0]));
    // align masks a at 10, so that fuse holds the sample of 0
    assert_eq!(ms(&sent), [10.0]);
    assert_eq!(sent[0].values, [3.0, 6.0]);
    assert_eq!(sent[0].integers("age_ns"), [10 * MS, 0]);
}

#[test]
fn closing_goes_through_the_chain_and_flushes_it() {
    let mut robot = Robot::new(graph_of(ALIGN_TO_FUSE, |output| output == "fused"));
    robot.send("c", &sample(0, &[7.0]));
    robot.send("a", &sample(0, &[0.0, 1.0]));
    robot.send("b", &sample(0, &[5.0]));
    robot.send("a", &sample(60 * MS, &[60.0, 1.0]));
    assert_eq!(robot.change_input("c", Change::Closed), []);
    // align has a up to 60 and nothing to wait for: 10 to 60 pass, and fuse sends 20, 40 and 60
    let sent = robot.change_input("b", Change::Closed);
    assert_eq!(ms(&sent), [20.0, 40.0, 60.0]);
    assert_eq!(sent[2].values[4..], [5.0, 60.0, 1.0, 7.0]);
    robot.send("c", &sample(81 * MS, &[8.0])); // opens it again
    assert_eq!(robot.change_input("c", Change::Closed), []);
    // Without a, all inputs of align are closed, and so are those of fuse.
    assert_eq!(ms(&robot.change_input("a", Change::Closed)), [80.0]);
}

#[test]
fn an_input_that_opens_is_waited_for_again() {
    let config = fuse(
        "modalities: [{ input: a, dim: 1, interpolation: previous }, { input: b, dim: 1, interpolation: previous }]",
    );
    let mut robot = Robot::new(graph(&config));
    robot.change_input("b", Change::Closed);
    assert_eq!(ms(&robot.send("a", &sample(0, &[1.0]))), [0.0]);
    robot.change_input("b", Change::Opened);
    assert_eq!(robot.send("a", &sample(10 * MS, &[1.0])), []);
    let mut sink = Recorder::default();
    robot.graph.close_all(&mut sink);
    assert_eq!(ms(&sink.take()), [10.0]);
}

#[test]
fn what_is_wrong_with_a_message_is_counted_at_its_input_and_the_node_lives_on() {
    let mut robot = Robot::new(graph(&fuse(ONE)));
    let place = "fuse: input `a`";
    let struct_of = |name: &str| {
        let mut message = sample(0, &[]);
        message.clear();
        message.add_column(name, Dtype::Float32, Cells::One);
        message
    };
    let mut no_stamps_for_all = samples(&[0, 10 * MS], &[1.0; 4]);
    no_stamps_for_all.header.timestamps_ns.set([20 * MS]);
    let wrong = [
        sample(0, &[1.0]),
        sample(0, &[1.0, 2.0, 3.0]),
        sample(0, &[f32::NAN, 1.0]),
        sample(0, &[1.0, f32::INFINITY]),
        sample(i64::MAX, &[1.0, 2.0]),
        struct_of("x"),
        no_stamps_for_all,
    ];
    for (i, message) in wrong.iter().enumerate() {
        assert_eq!(robot.send("a", message), []);
        // A message that contradicts itself is counted at the input, before any operation gets it.
        let found = faults(&robot.graph, place) + faults(&robot.graph, "input `a`");
        assert_eq!(found, i as u64 + 1);
    }
    // Of several samples only the bad one is lost.
    let sent = robot.send(
        "a",
        &samples(&[0, 10 * MS, 20 * MS], &[1.0, 2.0, f32::NAN, 3.0, 5.0, 6.0]),
    );
    assert_eq!(ms(&sent), [0.0, 10.0, 20.0]);
    assert_eq!(sent[1].values, [1.0, 2.0]);
    assert_eq!(sent[2].values, [5.0, 6.0]);
    let found = faults(&robot.graph, place) + faults(&robot.graph, "input `a`");
    assert_eq!(found, wrong.len() as u64 + 1);
}

#[test]
fn stamps_that_go_backwards_are_late_or_a_clock_jump() {
    let mut robot = Robot::new(graph(&fuse(ONE)));
    robot.send("a", &sample(5000 * MS, &[1.0, 2.0]));
    assert_eq!(robot.send("a", &sample(4990 * MS, &[3.0, 4.0])), []);
    assert_eq!(faults(&robot.graph, "fuse: input `a`"), 1); // counted, by stream
    let sent = robot.send("a", &sample(5010 * MS, &[5.0, 6.0]));
    assert_eq!((sent[0].integer("late_samples"), sent[0].integer("epoch")), (1, 0));
    let sent = robot.send("a", &sample(100 * MS, &[7.0, 8.0]));
    assert_eq!(ms(&sent), [100.0]);
    assert_eq!((sent[0].integer("late_samples"), sent[0].integer("epoch")), (1, 1));
    assert_eq!(faults(&robot.graph, "fuse: input `a`"), 2);
}

/// The older rows of an observation repeat earlier samples. They are counted neither as late samples nor as clock jumps.
#[test]
fn of_observations_only_the_new_rows_are_samples() {
    let chain = "plugins:
      - align: { rate_hz: 100, window: 40, stride: 5, modalities: [{ input: a, dim: 1, interpolation: previous }] }
      - fuse: { rate_hz: 100, modalities: [{ input: a, dim: 1, interpolation: previous, reset_ms: 10 }] }";
    let mut robot = Robot::new(graph_of(chain, |output| output == "fused"));
    let mut sent = Vec::new();
    for k in 0..100 {
        sent.extend(robot.send("a", &sample(10 * k * MS, &[k as f32])));
    }
    assert_eq!(ms(&sent), (0..100).map(|k| 10.0 * k as f64).collect::<Vec<_>>());
    for (k, one) in sent.iter().enumerate() {
        assert_eq!(one.values, [k as f32]);
        assert_eq!((one.integer("epoch"), one.integer("late_samples")), (0, 0));
    }
    assert!(robot.graph.faults().all(|(_, count)| count == 0));
    // The clock is set back by 600 ms, which align takes for a late sample, and then by a minute.
    assert_eq!(robot.send("a", &sample(390 * MS, &[0.5])), []);
    let sent = robot.send("a", &sample(-60_000 * MS, &[7.0]));
    assert_eq!(ms(&sent), [-60_000.0]);
    assert_eq!(ms(&robot.send("a", &sample(-59_990 * MS, &[8.0]))), [-59_990.0]);
}

#[test]
fn a_shape_that_contradicts_the_samples_is_an_error() {
    let mut robot = Robot::new(graph(&fuse(ONE)));
    let shaped = |stamps: &[i64], values: &[f32], shape: &[usize]| {
        let mut message = samples(stamps, values);
        message.header.shape.set(shape.iter().map(|&n| n as i64));
        message
    };
    let (two, values) = ([0, 10 * MS], [1.0, 2.0, 3.0, 4.0]);
    for (i, shape) in [&[4, 1][..], &[1, 4], &[4], &[2], &[2, 3], &[2, 2, 2]]
        .iter()
        .enumerate()
    {
        assert_eq!(robot.send("a", &shaped(&two, &values, shape)), [], "{shape:?}");
        let found = faults(&robot.graph, "fuse: input `a`") + faults(&robot.graph, "input `a`");
        assert_eq!(found, i as u64 + 1);
    }
    assert_eq!(robot.send("a", &shaped(&two, &values, &[2, 2])).len(), 2);
    assert_eq!(robot.send("a", &shaped(&[20 * MS], &[5.0, 6.0], &[2])).len(), 1);
    assert_eq!(robot.send("a", &shaped(&[30 * MS], &[5.0, 6.0], &[2, 1])).len(), 1);
    assert_eq!(robot.send("a", &shaped(&[40 * MS], &[5.0, 6.0], &[])).len(), 1);
}

/// Reads a message as the dora transport does. If it has no stamp, its stamp is 30 ms.
fn read(stamp: Option<MetadataRef<'_>>, array: ArrayRef) -> Result<Message, String> {
    let mut message = Message::default();
    let metadata = stamp.map(|stamp| ("timestamp_ns", stamp));
    message.read(metadata, &array).map_err(|error| error.to_string())?;
    assert_eq!(message.header.timestamp_ns.is_present(), stamp.is_some());
    if stamp.is_none() {
        message.header.timestamp_ns.set(30 * MS);
    }
    Ok(message)
}

#[test]
fn messages_of_the_transport_are_of_any_number_type_and_may_have_no_stamp() {
    let mut robot = Robot::new(graph(&fuse(ONE)));
    let ints = Arc::new(Int32Array::from(vec![-3, 4]));
    let sent = robot.send("a", &read(Some(MetadataRef::Integer(20 * MS)), ints.clone()).unwrap());
    assert_eq!(
        (ms(&sent), sent[0].values.as_slice()),
        (vec![20.0], [-3.0, 4.0].as_slice())
    );
    assert_eq!(ms(&robot.send("a", &read(None, ints).unwrap())), [30.0]);
    // A null is a missing value: its sample is lost, and no other.
    for array in [
        Arc::new(Float32Array::from(vec![Some(1.0), None])) as ArrayRef,
        Arc::new(Int32Array::from(vec![None, Some(4)])),
    ] {
        let before = faults(&robot.graph, "fuse: input `a`");
        let nulls = read(Some(MetadataRef::Integer(40 * MS)), array).unwrap();
        assert_eq!(robot.send("a", &nulls), []);
        assert_eq!(faults(&robot.graph, "fuse: input `a`"), before + 1);
    }
    let refused = |stamp, array| read(stamp, array).err().unwrap();
    let text = refused(None, Arc::new(StringArray::from(vec!["a", "b"])));
    assert!(text.contains("Arrow type Utf8"), "{text}");
    let stamp = refused(
        Some(MetadataRef::Float(0.5)),
        Arc::new(Float32Array::from(vec![1.0, 2.0])),
    );
    assert!(
        stamp.contains("`timestamp_ns` is Float(0.5) (allowed: an Integer"),
        "{stamp}"
    );
}

#[test]
fn max_wait_can_be_set_while_the_node_runs() {
    let two =
        "modalities: [{ input: a, dim: 1, interpolation: previous }, { input: b, dim: 1, interpolation: previous }]";
    let mut robot = Robot::new(graph(&fuse(two)));
    robot.send("a", &sample(0, &[1.0]));
    assert_eq!(ms(&robot.send("b", &sample(0, &[2.0]))), [0.0]);
    assert_eq!(robot.send("a", &sample(50 * MS, &[1.0])), []);
    for refused in [
        Value::from(-1),
        Value::from("soon"),
        Value::from(1e13),
        Value::from(true),
    ] {
        assert_eq!(robot.set_parameter("max_wait_ms", refused), []);
    }
    // the target at 10 has waited for longer than 35.5 ms, so it is published at once
    assert_eq!(ms(&robot.set_parameter("fuse.max_wait_ms", Value::from(35.5))), [10.0]);
    assert_eq!(robot.send("b", &sample(5 * MS, &[3.0])), []);
    robot.set_parameter("max_wait_ms", Value::Null);
    assert_eq!(robot.send("a", &sample(500 * MS, &[1.0])), []);
    assert_eq!(ms(&robot.send("b", &sample(20 * MS, &[3.0]))), [20.0]);
}

#[test]
fn a_grid_that_max_wait_makes_due_while_the_node_runs_is_published_at_once() {
    let two = "plugins: [voxelize: { origin_m: [0, 0, 0], voxel_size_m: [1, 1, 1], shape: [1, 1, 4], channels: [count],
        layout: dense, inputs: [{ input: left }, { input: middle }, { input: right }] }]";
    let mut robot = Robot::new(graph(two));
    let cloud = |ms: i64| {
        let mut cloud = sample(ms * MS, &[0.5, 0.5, 2.5]);
        cloud.header.shape.set([1, 3]);
        cloud.header.fields.set(&["x", "y", "z"]);
        cloud
    };
    assert_eq!(robot.send("left", &cloud(0)), []);
    assert_eq!(robot.send("right", &cloud(50)), []);
    assert_eq!(robot.set_parameter("max_wait_ms", Value::from(50.5)), []);
    let sent = robot.set_parameter("voxelize.max_wait_ms", Value::from(50));
    assert_eq!(
        (ms(&sent), &sent[0].values[..]),
        (vec![50.0], &[0.0, 0.0, 2.0, 0.0][..])
    );
    assert_eq!(sent[0].integers("inputs_valid"), [1, 0, 1]);
    assert_eq!(robot.set_parameter("max_wait_ms", Value::from(0)), []);
}

#[test]
fn the_latency_of_an_input_can_be_set_while_the_node_runs() {
    let mut robot = Robot::new(graph(&fuse(ONE)));
    assert_eq!(ms(&robot.send("a", &sample(0, &[1.0, 2.0]))), [0.0]);
    for (key, value) in [
        ("a.latency_ms", Value::from("much")),
        ("a.latency_ms", Value::from(1e13)),
        ("a.latency_ms", Value::Null),
        ("b.latency_ms", Value::from(3)),
        ("latency_ms", Value::from(3)),
        ("align.a.latency_ms", Value::from(3)),
    ] {
        robot.set_parameter(key, value);
    }
    assert_eq!(ms(&robot.send("a", &sample(10 * MS, &[3.0, 4.0]))), [10.0]);
    for (i, key) in ["a.latency_ms", "fuse.a.latency_ms", "fuse.modalities.a.latency_ms"]
        .into_iter()
        .enumerate()
    {
        let latency = 3 + i as i64;
        robot.set_parameter(key, Value::from(latency));
        let at = (20 + 10 * i as i64) * MS;
        assert_eq!(robot.send("a", &sample(at + latency * MS - 1, &[5.0, 6.0])), []);
        assert_eq!(
            ms(&robot.send("a", &sample(at + latency * MS, &[7.0, 8.0]))),
            [(at / MS) as f64]
        );
    }
    // A target that a change makes due is published at once.
    assert_eq!(robot.send("a", &sample(54 * MS, &[9.0, 0.0])), []);
    assert_eq!(ms(&robot.set_parameter("a.latency_ms", Value::from(4))), [50.0]);
    assert_eq!(robot.set_parameter("a.latency_ms", Value::from(40)), []);
}

#[test]
fn a_stream_that_is_ahead_of_the_others_is_named() {
    let two =
        "modalities: [{ input: a, dim: 1, interpolation: previous }, { input: b, dim: 1, interpolation: previous }]";
    let mut robot = Robot::new(graph(&fuse(&format!("max_wait_ms: 20, {two}"))));
    robot.send("a", &sample(0, &[1.0]));
    assert_eq!(ms(&robot.send("b", &sample(0, &[2.0]))), [0.0]);
    assert_eq!(faults(&robot.graph, "fuse: input `b`"), 0);
    assert_eq!(robot.send("b", &sample(3_600_000 * MS, &[2.0])), []);
    assert_eq!(faults(&robot.graph, "fuse: input `b`"), 1);
    assert_eq!(ms(&robot.send("a", &sample(10 * MS, &[1.0]))), [10.0]);
    assert_eq!(faults(&robot.graph, "fuse: input `a`"), 0);
}

#[test]
fn the_first_taker_of_an_output_is_an_operation_after_it() {
    // fuse comes first, so that its `a` is the dataflow's, not align's
    let config = "plugins:
  - fuse: { rate_hz: 100, modalities: [{ input: a, dim: 1, interpolation: previous }] }
  - align: { rate_hz: 10, modalities: [{ input: a, dim: 1, interpolation: previous }] }";
    let mut robot = Robot::new(graph(config));
    let outputs = |sent: Vec<Sent>| sent.into_iter().map(|message| message.output).collect::<Vec<_>>();
    assert_eq!(outputs(robot.send("a", &sample(0, &[1.0]))), ["fused", "a"]);
    assert_eq!(outputs(robot.send("a", &sample(10 * MS, &[1.0]))), ["fused"]);
}

#[test]
fn two_operations_that_publish_the_same_output_are_refused() {
    let config = "plugins:
  - fuse: { rate_hz: 100, modalities: [{ input: a, dim: 1, interpolation: previous }] }
  - fuse: { rate_hz: 10, modalities: [{ input: a, dim: 1, interpolation: previous }] }";
    let refused = graph(config).err().unwrap();
    assert!(refused.is_config());
    assert_eq!(
        refused.to_string(),
        "robot.yml: plugins: two of them publish `fused` (a `name:` in an entry tells them apart)"
    );
}

#[test]
fn a_refused_configuration_names_the_file_the_section_and_the_key() {
    let refused = graph(&fuse("modalities: [{ input: a, dim: 1 }]")).err().unwrap();
    assert!(refused.is_config());
    assert_eq!(
        refused.to_string(),
        format!(
            "robot.yml: fuse: modalities[0].interpolation: it is missing (allowed: {})",
            Interpolation::names()
        )
    );
}

/// Fuse and voxelize have inputs of their own: messages for one operation do not disturb the other.
#[test]
fn fuse_and_voxelize_run_side_by_side() {
    let config = "plugins:
  - fuse: { rate_hz: 100, modalities: [{ input: a, dim: 2, interpolation: previous }] }
  - voxelize: { origin_m: [0, 0, 0], voxel_size_m: [1, 1, 1], shape: [1, 1, 4], channels: [count], layout: dense,
      inputs: [{ input: lidar }] }";
    let mut robot = Robot::new(graph(config));
    let mut cloud = sample(5 * MS, &[0.5, 0.5, 2.5, 0.5, 0.5, 2.75, 0.5, 9.0, 0.5]);
    cloud.header.shape.set([3, 3]);
    cloud.header.fields.set(&["x", "y", "z"]);
    let sent = robot.send("lidar", &cloud);
    assert_eq!((sent.len(), sent[0].output.as_str()), (1, "voxels"));
    assert_eq!(sent[0].values, [0.0, 0.0, 2.0, 0.0]);
    assert_eq!(sent[0].integer("dropped_outside"), 1);
    assert_eq!(robot.send("a", &sample(0, &[1.0, 2.0]))[0].output, "fused");
    assert_eq!(faults(&robot.graph, "voxelize: input `lidar`"), 0);
    robot.send("lidar", &sample(15 * MS, &[1.0])); // not a cloud
    assert_eq!(faults(&robot.graph, "voxelize: input `lidar`"), 1);
    assert_eq!(faults(&robot.graph, "fuse: input `a`"), 0);
}

/// Operation that keeps the headers of the observations that it gets.
struct Witness(Rc<RefCell<Vec<Header>>>);

impl Plugin for Witness {
    fn name(&self) -> &'static str {
        "witness"
    }

    fn build(&self, context: &mut BuildContext<'_>) -> Result<(), AppError> {
        context.add_operation(Registration {
            name: context.name().into(),
            inputs: vec!["fused".into()],
            outputs: Vec::new(),
            operation: Box::new(Self(self.0.clone())),
        });
        Ok(())
    }
}

impl Operation for Witness {
    fn input(&mut self, _: usize, message: &Message, _: &mut Outbox<'_>) -> Result<(), Fault> {
        self.0.borrow_mut().push((*message.header).clone());
        Ok(())
    }
}

/// An operation that takes `fused` in the same process gets the same header as a node of the dataflow.
#[test]
fn an_observation_within_the_process_says_all_that_a_published_one_does() {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let config = "plugins:
  - fuse: { rate_hz: 100, modalities: [
      { input: a, dim: 1, interpolation: previous },
      { input: b, dim: 1, interpolation: previous, wait: false } ] }
  - witness: {}";
    let config = Config::parse(Path::new("robot.yml"), config).unwrap();
    let app = App::new()
        .with_config(config)
        .add_plugins(plugins::all())
        .add_plugin(Witness(seen.clone()));
    let mut robot = Robot::new(app.build(|_| true));
    robot.send("b", &sample(3 * MS, &[5.0]));
    let sent = robot.send("a", &samples(&[0, 10 * MS], &[1.0, 2.0]));
    let reset = robot.send("a", &sample(-5000 * MS, &[3.0]));
    let (seen, sent) = (seen.borrow(), [sent, reset].concat());
    assert_eq!((seen.len(), sent.len()), (3, 3));
    assert_eq!(ops::key::epoch.get(&seen[2]), Some(1));
    assert_eq!(form::age_ns.get(&seen[1]), Some(&[0, 7 * MS][..]));
    for (seen, sent) in seen.iter().zip(&sent) {
        assert_eq!(form::modalities.get(seen).unwrap(), ["a", "b"]);
        assert_eq!(*seen, *sent.header);
    }
}

/// A value that the output type can't hold is published as not valid, and a fault reports the loss.
#[test]
fn values_that_the_type_cannot_hold_are_counted() {
    let mut robot = Robot::new(graph(&fuse(
        "window: 2, modalities: [{ input: a, dim: 1, interpolation: linear }, { input: b, dim: 1, interpolation: previous }]",
    )));
    robot.send("b", &sample(0, &[1.0]));
    robot.send("b", &sample(30 * MS, &[1.0]));
    robot.send("a", &sample(0, &[3e38]));
    let sent = robot.send("a", &sample(30 * MS, &[-3e38]));
    let last = sent.last().unwrap();
    assert_eq!(last.ms(), 30.0);
    assert_eq!(last.values, [0.0, 1.0, -3e38, 1.0]);
    assert_eq!(last.integers("valid"), [0, 1, 1, 1]);
    // The windows that end at 10, 20 and 30 ms.
    assert_eq!(faults(&robot.graph, "fuse: input `a`"), 3);
    assert_eq!(faults(&robot.graph, "fuse: input `b`"), 0);
}

/// A sensor that dies, and closes hours later, makes many targets due at once. Only few of the observations wait between two
/// operations at any time.
#[test]
fn what_falls_due_at_once_does_not_pile_up_between_operations() {
    /// Number of messages of the chain's first operation and of its last, and the largest difference between the two.
    struct Behind {
        first: u64,
        last: u64,
        most: u64,
    }
    struct Shared(Rc<RefCell<Behind>>);
    impl Operation for Shared {
        fn input(&mut self, _: usize, _: &Message, _: &mut Outbox<'_>) -> Result<(), Fault> {
            self.0.borrow_mut().last += 1;
            Ok(())
        }
    }
    struct Taker(Rc<RefCell<Behind>>);
    impl Plugin for Taker {
        fn name(&self) -> &'static str {
            "taker"
        }
        fn build(&self, context: &mut BuildContext<'_>) -> Result<(), AppError> {
            let _: serde_yaml::Value = context.config()?;
            context.add_operation(Registration {
                name: "taker".into(),
                inputs: vec!["fused".into()],
                outputs: Vec::new(),
                operation: Box::new(Shared(self.0.clone())),
            });
            Ok(())
        }
    }
    struct Counted(Rc<RefCell<Behind>>, Recorder);
    impl robocache::app::Sink for Counted {
        fn send(
            &mut self,
            output: &str,
            layout: &robocache::stream::Layout,
            fill: &mut dyn FnMut(&mut robocache::stream::Payload<'_>, &mut Header),
        ) -> Result<(), Fault> {
            if output == "a" {
                let mut behind = self.0.borrow_mut();
                behind.first += 1;
                behind.most = behind.most.max(behind.first - behind.last);
            }
            if output == "fused" {
                self.1.send(output, layout, fill)?;
            }
            Ok(())
        }
    }
    // Fewer windows of 2^20 rows may wait, as each takes 4 MB in each of two outputs.
    for (window, targets, allowed) in [(1, 20_000, 300), (1 << 20, 50, 3)] {
        let behind = Rc::new(RefCell::new(Behind {
            first: 0,
            last: 0,
            most: 0,
        }));
        let two = "modalities: [{ input: a, dim: 1, interpolation: previous }, { input: b, dim: 1, interpolation: previous }]";
        let text = format!(
            "plugins: [align: {{ rate_hz: 1000, window: {window}, {two} }}, fuse: {{ rate_hz: 1000, {two} }}, taker: {{}}]"
        );
        let config = Config::parse(Path::new("robot.yml"), &text).unwrap();
        let app = App::new()
            .with_config(config)
            .add_plugins(plugins::all())
            .add_plugin(Taker(behind.clone()));
        let mut graph = app.build(|_| true).unwrap();
        let mut sink = Counted(behind.clone(), Recorder::default());
        let (a, b) = (input(&graph, "a"), input(&graph, "b"));
        graph.message(b, &sample(0, &[1.0]), &mut sink);
        for k in 0..targets {
            graph.message(a, &sample(k * MS, &[k as f32]), &mut sink);
        }
        graph.changed(b, Change::Closed, &mut sink);
        let Behind { first, last, most } = *behind.borrow();
        assert_eq!((first, last), (targets as u64, targets as u64));
        assert!(most <= allowed, "{most} observations wait for the next operation");
        let fused: Vec<f32> = sink.1.take().iter().map(|sent| sent.values[0]).collect();
        assert_eq!(fused, (0..targets).map(|k| k as f32).collect::<Vec<_>>());
    }
}

/// Operation that keeps the stamps of `fused` in order of arrival.
struct Stamps(Rc<RefCell<Vec<i64>>>);

impl Plugin for Stamps {
    fn name(&self) -> &'static str {
        "stamps"
    }
    fn build(&self, context: &mut BuildContext<'_>) -> Result<(), AppError> {
        let _: serde_yaml::Value = context.config()?;
        context.add_operation(Registration {
            name: "stamps".into(),
            inputs: vec!["fused".into()],
            outputs: Vec::new(),
            operation: Box::new(Stamps(self.0.clone())),
        });
        Ok(())
    }
}

impl Operation for Stamps {
    fn input(&mut self, _: usize, message: &Message, _: &mut Outbox<'_>) -> Result<(), Fault> {
        self.0.borrow_mut().push(message.timestamp_ns());
        Ok(())
    }
}

/// Several samples come in one message. The first makes one observation due. Each further sample makes one observation more due
/// than fuse computes in one call.
#[test]
fn observations_of_samples_that_come_at_once_keep_their_order() {
    let two =
        "modalities: [{ input: a, dim: 1, interpolation: previous }, { input: b, dim: 1, interpolation: previous }]";
    let text =
        format!("plugins: [align: {{ rate_hz: 1000, {two} }}, fuse: {{ rate_hz: 1.0e+6, {two} }}, stamps: {{}}]");
    let stamps = Rc::new(RefCell::new(Vec::new()));
    let app = App::new()
        .with_config(Config::parse(Path::new("robot.yml"), &text).unwrap())
        .add_plugins(plugins::all())
        .add_plugin(Stamps(stamps.clone()));
    let mut graph = app.build(|_| false).unwrap();
    let (a, b) = (input(&graph, "a"), input(&graph, "b"));
    let mut sink = Recorder::default();
    graph.message(b, &sample(0, &[1.0]), &mut sink);
    for k in 0..4 {
        graph.message(a, &sample(k * MS, &[1.0]), &mut sink);
    }
    graph.changed(b, Change::Closed, &mut sink);
    let wanted: Vec<i64> = (0..=3 * MS).step_by(1000).collect();
    assert!(*stamps.borrow() == wanted, "{:?}", &stamps.borrow()[..4]);
}

/// A message can make many observations due, as the end of a stream can. None of its samples is lost meanwhile.
#[test]
fn a_message_goes_on_where_it_made_much_due() {
    let two = "modalities: [{ input: a, dim: 1, interpolation: previous }]";
    let text = format!("plugins: [align: {{ rate_hz: 1000, {two} }}, fuse: {{ rate_hz: 1000, {two} }}]");
    let mut robot = Robot::new(graph_of(&text, |output| output == "fused"));
    robot.send("a", &sample(0, &[0.0]));
    let stamps: Vec<i64> = [600, 1500, 1501, 1502, 4000].map(|ms| ms * MS).to_vec();
    let sent = robot.send("a", &samples(&stamps, &[1.0, 2.0, 3.0, 4.0, 5.0]));
    assert_eq!(ms(&sent), (1..=4000).map(f64::from).collect::<Vec<_>>());
    let value = |ms: usize| sent[ms - 1].values[0];
    assert_eq!(
        [599, 600, 1500, 1501, 3999, 4000].map(value),
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    );
}

/// A null in an integer column is read as NaN, and a null row as not valid. A recording keeps neither, and a
/// fault reports that.
#[test]
fn nulls_that_a_recording_does_not_keep_are_counted() {
    let folder = Folder::new();
    let path = folder.0.join("recording");
    let text = format!("plugins: [record: {{ path: {} }}]", path.display());
    let app = App::new()
        .with_config(Config::parse(Path::new("robot.yml"), &text).unwrap())
        .add_plugins(plugins::all());
    let mut graph = app.with_wired_inputs(["a".to_owned()]).build(|_| true).unwrap();
    let mut send = |array: ArrayRef| {
        let mut message = Message::default();
        message.read([], &array).unwrap();
        graph.message(0, &message, &mut Recorder::default());
        faults(&graph, "record: input `a`")
    };
    assert_eq!(send(Arc::new(Float32Array::from(vec![Some(1.0), None]))), 0);
    assert_eq!(send(Arc::new(Float32Array::from(vec![1.0, 2.0]))), 0);
    graph.finish(&mut Recorder::default()).unwrap();
    std::fs::remove_dir_all(&path).unwrap();
    let app = App::new()
        .with_config(Config::parse(Path::new("robot.yml"), &text).unwrap())
        .add_plugins(plugins::all());
    let mut graph = app.with_wired_inputs(["a".to_owned()]).build(|_| true).unwrap();
    let mut message = Message::default();
    let array: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
    message.read([], &array).unwrap();
    graph.message(0, &message, &mut Recorder::default());
    assert_eq!(faults(&graph, "record: input `a`"), 1);
    graph.finish(&mut Recorder::default()).unwrap();
}

/// The `shape` of a grid in the layout `bits` counts cells. Each value of the sample is a byte with eight cells.
#[test]
fn a_grid_of_bits_is_a_sample() {
    let config = "plugins:
  - voxelize: { origin_m: [0, 0, 0], voxel_size_m: [1, 1, 1], shape: [4, 4, 4], layout: bits, channels: [occupancy],
      inputs: [{ input: lidar }] }
  - fuse: { rate_hz: 100, modalities: [{ input: voxels, dim: 8, interpolation: previous }] }";
    let mut robot = Robot::new(graph_of(config, |output| output == "fused"));
    let mut cloud = sample(0, &[0.5, 0.5, 0.5]);
    cloud.header.shape.set([1, 3]);
    let sent = robot.send("lidar", &cloud);
    assert_eq!(faults(&robot.graph, "fuse: input `voxels`"), 0);
    assert_eq!(sent[0].values, [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(sent[0].integers("valid"), [1]);
}

#[test]
fn a_message_that_contradicts_itself_is_given_to_nobody() {
    let mut robot = Robot::new(graph(&fuse(ONE)));
    let stampless = || {
        let mut message = sample(0, &[1.0, 2.0]);
        message.header.timestamp_ns.clear();
        message
    };
    assert_eq!(robot.send("a", &stampless()), []);
    assert_eq!(faults(&robot.graph, "fuse: input `a`"), 1);
    for mask in [&[1i64, 0, 1][..], &[2, 1], &[-1, 1]] {
        let mut message = samples(&[0, 10 * MS], &[1.0; 4]);
        message.header.valid.set(mask.to_vec());
        let before = faults(&robot.graph, "input `a`");
        assert_eq!(robot.send("a", &message), []);
        assert_eq!(faults(&robot.graph, "input `a`"), before + 1, "{mask:?}");
    }
}

#[test]
fn a_message_of_a_program_is_checked_as_one_of_the_dataflow() {
    let mut robot = Robot::new(graph(&fuse(ONE)));
    let of = |dtype: &str, payload, bytes: &[u8]| {
        let mut message = sample(0, &[]);
        message.columns_mut()[0].dtype = payload;
        message.columns_mut()[0].data.copy_from(bytes);
        message.rows = 2;
        message.header.dtype.set(dtype);
        message
    };
    let ones = [0x80, 0x3f, 0x80, 0x3f];
    let wrong = [
        of("float64", Dtype::Float32, &[0; 8]),
        of("float31", Dtype::Float32, &[0; 8]),
        of("bfloat16", Dtype::UInt16, &ones),
    ];
    for (i, message) in wrong.iter().enumerate() {
        assert_eq!(robot.send("a", message), []);
        assert_eq!(faults(&robot.graph, "input `a`"), i as u64 + 1);
        assert_eq!(faults(&robot.graph, "fuse: input `a`"), 0);
    }
    let mut checked = of("bfloat16", Dtype::UInt16, &ones);
    checked.check().unwrap();
    assert_eq!(robot.send("a", &checked)[0].values, [1.0, 1.0]);
}

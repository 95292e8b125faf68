//! Messages that are attached to the observations of fuse: expected outputs are worked out by hand, and compared byte for byte.

use crate::common::kind::kind;
use crate::common::{Keeper, MS, Overwrite, faults, graph, graph_of, input, sample};
use robocache::app::{
    App, AppError, BuildContext, Config, Fault, Graph, Operation, Outbox, Plugin, Registration, plugins,
};
use robocache::device::Dtype;
use robocache::ops;
use robocache::ops::{align, voxelize};
use robocache::stream::{Cells, Header, Layout, Message, MetadataRef, form};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Sends a message to the input `name`, and returns what the graph publishes.
fn send(graph: &mut Graph, sink: &mut Keeper, name: &str, message: &Message) -> Vec<(String, Message)> {
    let input = input(graph, name);
    graph.message(input, message, sink);
    sink.take()
}

fn fuse(keys: &str, attach: &str) -> String {
    format!(
        "plugins: [fuse: {{ rate_hz: 100, {keys} modalities: [{{ input: arm, dim: 1, interpolation: previous }}], \
         attach: [{attach}] }}]"
    )
}

/// Makes the message of a voxel grid of two channels and two cells; each value is the grid's time, ms.
fn grid(ms: i64) -> Message {
    let mut message = sample(ms * MS, &[ms as f32; 4]);
    message.header.shape.set([2, 2, 1, 1]);
    form::channels.set(&mut message.header, ["occupancy", "mean_z"]);
    form::grid_shape.set(&mut message.header, [2, 1, 1]);
    form::origin_m.set(&mut message.header, [0.5, 0.0, 0.0]);
    form::voxel_size_m.set(&mut message.header, [0.25; 3]);
    voxelize::key::points_in.set(&mut message.header, 7);
    message
}

/// Makes a cloud whose x begins at the time, ms, and grows by 0.25 from point to point.
fn cloud(ms: i64, points: usize) -> Message {
    let mut message = Message::default();
    message.rows = points;
    message.header.timestamp_ns.set(ms * MS);
    let x: Vec<f32> = (0..points).map(|i| ms as f32 + i as f32 * 0.25).collect();
    let column = message.add_column("x", Dtype::Float32, Cells::One);
    column.data.copy_from(bytemuck::cast_slice(&x));
    let column = message.add_column("rgb", Dtype::UInt8, Cells::Fixed(3));
    column.data.copy_from(&vec![ms as u8; 3 * points]);
    message
}

fn integers<'a>(message: &'a Message, key: &str) -> &'a [i64] {
    match message.header.get(key) {
        Some(MetadataRef::ListInt(values)) => values,
        other => panic!("`{key}` is {other:?}"),
    }
}

fn column(message: &Message, i: usize) -> Vec<f32> {
    message.columns()[i].values().as_slice::<f32>().to_vec()
}

fn names(sent: &[(String, Message)]) -> Vec<&str> {
    sent.iter().map(|(name, _)| name.as_str()).collect()
}

#[test]
fn a_window_has_the_newest_grid_at_or_before_each_row() {
    let mut graph = graph(&fuse("window: 4,", "{ input: voxels, max_age_ms: 9, latency_ms: 1 }")).unwrap();
    let mut sink = Keeper::default();
    for ms in [1, 2, 23, 32] {
        assert!(send(&mut graph, &mut sink, "voxels", &grid(ms)).is_empty());
    }
    for ms in [0, 10, 20] {
        send(&mut graph, &mut sink, "arm", &sample(ms * MS, &[ms as f32]));
    }
    // The grid of 2 ms is captured at 1 ms: just young enough for the row at 10 ms, and too old for the row at 20 ms.
    let sent = send(&mut graph, &mut sink, "arm", &sample(30 * MS, &[30.0]));
    assert_eq!(names(&sent), ["grids", "fused", "observation"]);
    let [(_, grids), (_, fused), (_, whole)] = sent.as_slice() else {
        panic!("{} messages", sent.len())
    };
    for message in [grids, fused, whole] {
        assert_eq!(message.timestamp_ns(), 30 * MS);
        assert_eq!(integers(message, "grid_index"), [0, 1, -1, 2]);
        assert_eq!(integers(message, "grid_age_ns"), [0, 9 * MS, -1, 8 * MS]);
        assert_eq!(align::key::attached.get(&message.header).unwrap(), ["grids"]);
    }
    let stacked: Vec<f32> = [1.0, 2.0, 23.0].iter().flat_map(|&ms| [ms; 4]).collect();
    assert_eq!(grids.flat().unwrap().as_slice::<f32>(), stacked);
    assert_eq!(integers(grids, "shape"), [3, 2, 2, 1, 1]);
    assert_eq!(integers(grids, "timestamps_ns"), [MS, 2 * MS, 23 * MS]);
    assert_eq!(form::channels.get(&grids.header).unwrap(), ["occupancy", "mean_z"]);
    assert_eq!(grids.header.dtype.get(), Some("float32"));
    // Counters are those of a single grid, and a message with `modalities` would be taken for an observation.
    assert!(voxelize::key::points_in.get(&grids.header).is_none() && form::modalities.get(&grids.header).is_none());

    let columns: Vec<_> = whole.columns().iter().map(|column| column.name.as_str()).collect();
    assert_eq!((whole.rows, columns), (1, vec!["fused", "grids"]));
    assert_eq!(column(whole, 0), fused.flat().unwrap().as_slice::<f32>());
    assert_eq!(column(whole, 1), stacked);
    assert_eq!(whole.columns()[1].offsets, [0, 12]);
    for (key, value) in fused.header.iter() {
        assert_eq!(whole.header.get(key), Some(value), "{key}");
    }
    let passed = [
        "shape",
        "dtype",
        "timestamps_ns",
        "channels",
        "origin_m",
        "voxel_size_m",
        "grid_shape",
    ];
    for key in passed {
        let own = format!("grids.{key}");
        assert!(grids.header.get(key).is_some(), "{key}");
        assert_eq!(whole.header.get(&own), grids.header.get(key), "{key}");
    }
    assert!(graph.faults().all(|(_, count)| count == 0));
}

#[test]
fn only_what_is_wanted_is_made_and_fused_is_the_same_without_the_rest() {
    let config = fuse("", "{ input: voxels }");
    let mut of = Vec::new();
    for wanted in ["fused", "grids", "observation"] {
        let mut graph = graph_of(&config, |output| output == wanted).unwrap();
        let mut sink = Keeper::default();
        send(&mut graph, &mut sink, "voxels", &grid(0));
        let sent = send(&mut graph, &mut sink, "arm", &sample(0, &[1.0]));
        assert_eq!(names(&sent), [wanted]);
        of.extend(sent);
    }
    let mut graph = graph(&config).unwrap();
    let mut sink = Keeper::default();
    send(&mut graph, &mut sink, "voxels", &grid(0));
    let all = send(&mut graph, &mut sink, "arm", &sample(0, &[1.0]));
    for (name, message) in &all {
        let alone = &of.iter().find(|(other, _)| other == name).unwrap().1;
        assert_eq!(bytes(alone), bytes(message), "{name}");
    }
}

/// Name of a column, bytes of its elements, and offsets of its rows.
type ColumnBytes = (String, Vec<u8>, Vec<i32>);

/// Returns the header and the columns of a message, without `compute_us`, which differs in every run.
fn bytes(message: &Message) -> (Header, Vec<ColumnBytes>) {
    let mut header = (*message.header).clone();
    header.remove("compute_us");
    let column = |column: &robocache::stream::Column| {
        (
            column.name.clone(),
            column.data.bytes().to_vec(),
            column.offsets.clone(),
        )
    };
    (header, message.columns().iter().map(column).collect())
}

#[test]
fn clouds_of_any_length_stand_one_after_the_other() {
    let mut graph = graph(&fuse("window: 2,", "{ input: lidar, output: clouds }")).unwrap();
    let mut sink = Keeper::default();
    send(&mut graph, &mut sink, "lidar", &cloud(0, 3));
    send(&mut graph, &mut sink, "arm", &sample(0, &[1.0]));
    send(&mut graph, &mut sink, "lidar", &cloud(10, 2));
    let sent = send(&mut graph, &mut sink, "arm", &sample(10 * MS, &[1.0]));
    let (clouds, whole) = (&sent[0].1, &sent[2].1);
    assert_eq!(clouds.rows, 5);
    assert_eq!(column(clouds, 0), [0.0, 0.25, 0.5, 10.0, 10.25]);
    assert_eq!(clouds.columns()[1].cells, Cells::Fixed(3));
    assert_eq!(integers(clouds, "grid_offsets"), [0, 3, 5]);
    assert_eq!(integers(clouds, "timestamps_ns"), [0, 10 * MS]);
    assert_eq!(integers(clouds, "grid_index"), [0, 1]);
    let columns: Vec<_> = whole.columns().iter().map(|column| column.name.as_str()).collect();
    assert_eq!(columns, ["fused", "clouds.x", "clouds.rgb"]);
    assert_eq!(column(whole, 1), column(clouds, 0));
    assert_eq!(whole.columns()[2].offsets, [0, 15]);
    assert_eq!(integers(whole, "clouds.grid_offsets"), [0, 3, 5]);
}

/// Clouds are attached in two forms: as a flat tensor with `fields`, and as an Arrow struct of one row whose columns are lists.
#[test]
fn flat_clouds_and_rows_of_lists_are_rows_too() {
    let flat = |ms: i64, points: usize, with_shape: bool| {
        let mut message = sample(ms * MS, &vec![ms as f32; 2 * points]);
        message.header.fields.set(["x", "y"]);
        if with_shape {
            message.header.shape.set([points as i64, 2]);
        }
        message
    };
    let lists = |ms: i64, points: usize| {
        let mut message = Message::default();
        message.rows = 1;
        message.header.timestamp_ns.set(ms * MS);
        for name in ["x", "y"] {
            let column = message.add_column(name, Dtype::Float32, Cells::Ragged(points));
            column.data.copy_from(bytemuck::cast_slice(&vec![ms as f32; points]));
            column.offsets.extend([0, points as i32]);
        }
        message
    };
    let run = |first: &Message, second: &Message| {
        let mut graph = graph(&fuse("window: 2,", "{ input: lidar }")).unwrap();
        let mut sink = Keeper::default();
        send(&mut graph, &mut sink, "lidar", first);
        send(&mut graph, &mut sink, "arm", &sample(0, &[1.0]));
        send(&mut graph, &mut sink, "lidar", second);
        let sent = send(&mut graph, &mut sink, "arm", &sample(10 * MS, &[1.0]));
        assert!(graph.faults().all(|(_, count)| count == 0));
        assert_eq!(integers(&sent[0].1, "grid_offsets"), [0, 3, 4]);
        assert_eq!(integers(&sent[2].1, "grids.grid_offsets"), [0, 3, 4]);
        sent.into_iter().next().unwrap().1
    };
    let mut sent = run(&flat(0, 3, true), &flat(10, 1, false));
    sent.check().unwrap();
    assert_eq!(integers(&sent, "shape"), [4, 2]);
    assert_eq!(column(&sent, 0), [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 10.0, 10.0]);
    let sent = run(&lists(0, 3), &lists(10, 1));
    assert_eq!((sent.rows, sent.columns()[1].cells), (4, Cells::One));
    assert_eq!(column(&sent, 1), [0.0, 0.0, 0.0, 10.0]);
}

#[test]
fn several_streams_have_an_output_and_a_place_in_each_row() {
    let attach = "{ input: voxels }, { input: lidar, output: clouds, wait: false, max_age_ms: 5 }";
    let mut graph = graph(&fuse("window: 2,", attach)).unwrap();
    let mut sink = Keeper::default();
    send(&mut graph, &mut sink, "voxels", &grid(0));
    // No cloud has come yet, so that the form of the stream is not known.
    let sent = send(&mut graph, &mut sink, "arm", &sample(0, &[1.0]));
    assert_eq!(names(&sent), ["grids", "fused", "observation"]);
    let whole = &sent[2].1;
    assert_eq!(integers(whole, "grid_index"), [-1, -1, 0, -1]);
    assert_eq!(
        (whole.columns()[2].name.as_str(), whole.columns()[2].offsets.as_slice()),
        ("clouds", &[0, 0][..])
    );
    assert_eq!(integers(whole, "clouds.timestamps_ns"), [0i64; 0]);
    send(&mut graph, &mut sink, "lidar", &cloud(9, 2));
    send(&mut graph, &mut sink, "voxels", &grid(11));
    let sent = send(&mut graph, &mut sink, "arm", &sample(10 * MS, &[1.0]));
    assert_eq!(names(&sent), ["grids", "clouds", "fused", "observation"]);
    for (name, message) in &sent {
        assert_eq!(align::key::attached.get(&message.header).unwrap(), ["grids", "clouds"]);
        assert_eq!(integers(message, "grid_index"), [0, -1, 0, 0], "{name}");
        assert_eq!(integers(message, "grid_age_ns"), [0, -1, 10 * MS, MS], "{name}");
    }
    // This window has no cloud, but the form of the stream is known now.
    send(&mut graph, &mut sink, "voxels", &grid(100));
    let sent = send(&mut graph, &mut sink, "arm", &sample(100 * MS, &[1.0]));
    let (name, clouds) = &sent[sent.len() - 3];
    assert_eq!((name.as_str(), clouds.rows, clouds.columns().len()), ("clouds", 0, 2));
    assert_eq!(integers(clouds, "grid_offsets"), [0]);
}

#[test]
fn what_can_t_be_attached_is_counted_and_the_rest_goes_on() {
    let mut graph = graph(&fuse("", "{ input: voxels, max_held_mb: 0.01 }")).unwrap();
    let mut sink = Keeper::default();
    let first = grid(0);
    send(&mut graph, &mut sink, "voxels", &first);
    let mut bad = Vec::new();
    let mut without = grid(1);
    without.header.remove("timestamp_ns");
    bad.push(without);
    let mut other_shape = grid(2);
    other_shape.header.shape.set([1, 4, 1, 1]);
    bad.push(other_shape);
    let mut longer = sample(3 * MS, &[0.0; 8]);
    longer.header.copy_from(&grid(3).header);
    longer.header.shape.set([2, 4, 1, 1]);
    bad.push(longer);
    let mut other_type = Message::default();
    other_type.header.copy_from(&grid(4).header);
    other_type.rows = 4;
    other_type
        .add_column("", Dtype::Float64, Cells::One)
        .data
        .copy_from(&[0; 32]);
    bad.push(other_type);
    let mut no_place = grid(5);
    form::origin_m.set(&mut no_place.header, [1.0]);
    bad.push(no_place);
    bad.push(cloud(6, 2));
    let mut lists = Message::default();
    lists.rows = 2;
    lists.header.timestamp_ns.set(6 * MS);
    let column = lists.add_column("x", Dtype::Float32, Cells::Ragged(3));
    column.data.resize(12);
    column.offsets.extend([0, 1, 3]);
    bad.push(lists);
    let mut too_large = grid(7);
    too_large.header.shape.clear();
    bad.push(too_large);
    bad.push(Message::default());
    let mut stamp = grid(8);
    stamp.header.timestamp_ns.set(i64::MAX);
    bad.push(stamp);
    for (i, message) in bad.iter().enumerate() {
        assert!(send(&mut graph, &mut sink, "voxels", message).is_empty());
        assert_eq!(faults(&graph, "fuse: input `voxels`"), i as u64 + 1, "message {i}");
    }
    let sent = send(&mut graph, &mut sink, "arm", &sample(0, &[1.0]));
    assert_eq!(integers(&sent[0].1, "timestamps_ns"), [0]);
    // A message that was refused for its size does not set the form of the stream, so that a grid is taken after it.
    let mut large = graph_of(&fuse("", "{ input: lidar, max_held_mb: 0.01 }"), |_| true).unwrap();
    send(&mut large, &mut sink, "lidar", &cloud(0, 1000));
    assert_eq!(faults(&large, "fuse: input `lidar`"), 1);
    send(&mut large, &mut sink, "lidar", &grid(0));
    assert_eq!(faults(&large, "fuse: input `lidar`"), 1);
}

#[test]
fn the_corner_of_a_map_that_moves_goes_along_with_each_message() {
    let mut graph = graph(&fuse("window: 2,", "{ input: map }")).unwrap();
    let mut sink = Keeper::default();
    send(&mut graph, &mut sink, "arm", &sample(0, &[0.0]));
    for (ms, x) in [(0, 0.5), (10, 0.5), (20, 0.75), (30, 0.75)] {
        let mut moved = grid(ms);
        form::origin_m.set(&mut moved.header, [x, 0.0, -1.0]);
        send(&mut graph, &mut sink, "map", &moved);
    }
    let sent = send(&mut graph, &mut sink, "arm", &sample(30 * MS, &[0.0]));
    let corners = |output: &str, key: &str| -> Vec<Vec<f64>> {
        let of_output = sent.iter().filter(|(name, _)| name == output);
        of_output
            .map(|(_, message)| match message.header.get(key) {
                Some(MetadataRef::ListFloat(metres)) => metres.to_vec(),
                other => panic!("`{key}` is {other:?}"),
            })
            .collect()
    };
    let still = |x: f64| vec![x, 0.0, -1.0];
    let expected = [still(0.5), vec![0.5, 0.0, -1.0, 0.75, 0.0, -1.0], still(0.75)];
    assert_eq!(corners("grids", "origin_m"), expected);
    assert_eq!(corners("observation", "grids.origin_m"), expected);
    assert_eq!(faults(&graph, "fuse: input `map`"), 0);
}

#[test]
fn past_its_bound_the_oldest_is_dropped_what_no_row_can_have_first() {
    // Room for four messages: 16 bytes of payload and 4096 bytes of overhead each.
    let bound = 4.0 * (4096.0 + 16.0) / f64::from(1 << 20);
    let config = fuse("", &format!("{{ input: voxels, max_held_mb: {bound} }}"));
    let mut graph = graph(&config).unwrap();
    let mut sink = Keeper::default();
    // No row lies between 1, 2 and 3 ms, so that only the last of these grids is of use.
    for ms in [1, 2, 3, 12, 22, 32] {
        send(&mut graph, &mut sink, "voxels", &grid(ms));
        assert_eq!(faults(&graph, "fuse: input `voxels`"), 0, "{ms}");
    }
    send(&mut graph, &mut sink, "voxels", &grid(42));
    assert_eq!(faults(&graph, "fuse: input `voxels`"), 1);
    send(&mut graph, &mut sink, "arm", &sample(0, &[0.0]));
    let sent = send(&mut graph, &mut sink, "arm", &sample(40 * MS, &[0.0]));
    let stamps = sent.iter().filter(|(name, _)| name == "grids");
    let stamps: Vec<i64> = stamps
        .flat_map(|(_, grids)| integers(grids, "timestamps_ns"))
        .map(|ns| ns / MS)
        .collect();
    // The grid of 3 ms was dropped, so that the row of 10 ms has none.
    assert_eq!(stamps, [12, 22, 32]);
}

#[test]
fn what_can_t_be_is_refused_by_its_key() {
    for (attach, problem) in [
        ("{ input: arm }", "attach[0].input: `arm` is modalities[0] already"),
        ("{ input: '' }", "attach[0].input: it is empty"),
        (
            "{ input: a }, { input: a, output: b }",
            "attach[1].input: `a` is attach[0] already",
        ),
        (
            "{ input: a }, { input: b }",
            "attach[1].output: `grids` is the output of attach[0] already",
        ),
        (
            "{ input: a, output: fused }",
            "attach[0].output: `fused` is an output of fuse itself",
        ),
        (
            "{ input: a, output: observation }",
            "attach[0].output: `observation` is an output of fuse itself",
        ),
        (
            "{ input: a, output: a.b }",
            "attach[0].output: `a.b` is not a name of an output",
        ),
        (
            "{ input: a, max_age_ms: -1 }",
            "attach[0].max_age_ms: -1 is not a duration",
        ),
        (
            "{ input: a, max_held_mb: 0 }",
            "attach[0].max_held_mb: 0 is not allowed",
        ),
        (
            "{ input: a, min_period_ms: -5 }",
            "attach[0].min_period_ms: -5 is not a duration",
        ),
        (
            "{ input: a, reorder_ms: 5, reset_ms: 4 }",
            "attach[0].reset_ms: 4 ms is less than reorder_ms, 5",
        ),
        ("{ input: a, latency_ms: 1e13 }", "attach[0].latency_ms: 10000000000000"),
        (
            "{ input: a, rows: 0 }",
            "attach[0].rows: 0 (allowed: 1 to 1, the rows of the window)",
        ),
        ("{ input: a, rows: 2 }", "attach[0].rows: 2 (allowed: 1 to 1"),
        ("{ input: a, dim: 3 }", "unknown key `dim`"),
    ] {
        let refused = graph(&fuse("", attach)).err().unwrap().to_string();
        assert!(refused.contains(problem), "{refused}");
    }
    let align = fuse("", "{ input: a }").replace("fuse:", "align:");
    let refused = graph(&align).err().unwrap().to_string();
    assert!(
        refused.contains("align: attach: align can't attach messages"),
        "{refused}"
    );
}

#[test]
fn a_latency_can_be_set_while_it_runs() {
    let mut graph = graph(&fuse("", "{ input: voxels, wait: false }")).unwrap();
    let mut sink = Keeper::default();
    send(&mut graph, &mut sink, "voxels", &grid(4));
    graph.parameter("attach.voxels.latency_ms", &robocache::app::Value::from(3), &mut sink);
    let sent = send(&mut graph, &mut sink, "arm", &sample(10 * MS, &[1.0]));
    assert_eq!(integers(&sent[0].1, "grid_age_ns"), [9 * MS]);
}

/// Operation that publishes each message on `raw` as `voxels`, and notes the address of its payload.
struct Producer(Rc<RefCell<Vec<usize>>>);

impl Operation for Producer {
    fn input(&mut self, _: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        let mut layout = Layout::default();
        message.layout_into(&mut layout);
        out.send(0, &layout, |payload, header| {
            payload.copy_from(message);
            header.copy_from(&message.header);
            self.0.borrow_mut().push(payload.column::<u8>(0).as_ptr() as usize);
        });
        Ok(())
    }
}

struct ProducerPlugin(Rc<RefCell<Vec<usize>>>);

impl Plugin for ProducerPlugin {
    fn name(&self) -> &'static str {
        "producer"
    }

    fn is_configured(&self) -> bool {
        true
    }

    fn build(&self, context: &mut BuildContext<'_>) -> Result<(), AppError> {
        context.add_operation(Registration {
            name: "producer".into(),
            inputs: vec!["raw".into()],
            outputs: vec!["voxels".into()],
            operation: Box::new(Producer(self.0.clone())),
        });
        Ok(())
    }
}

/// A held message stays in the memory that the earlier operation wrote. That memory is reused once no window needs the message.
#[test]
fn a_message_of_the_same_process_is_not_copied_to_be_held() {
    let written = Rc::new(RefCell::new(Vec::new()));
    let config = Config::parse(Path::new("robot.yml"), &fuse("window: 3,", "{ input: voxels }")).unwrap();
    let mut graph = App::new()
        .with_config(config)
        .add_plugin(ProducerPlugin(written.clone()))
        .add_plugins(plugins::all())
        .build(|output| output == "observation")
        .unwrap();
    let mut sink = Keeper::default();
    for step in 0..40 {
        let values = vec![step as f32; 50_000];
        send(&mut graph, &mut sink, "raw", &sample(10 * step * MS, &values));
        let sent = send(&mut graph, &mut sink, "arm", &sample(10 * step * MS, &[0.0]));
        let grids = column(&sent[0].1, 1);
        let newest: Vec<f32> = (step.max(2) - 2..=step)
            .flat_map(|step| vec![step as f32; 50_000])
            .collect();
        assert!(grids.ends_with(&newest[newest.len() - grids.len()..]) && !grids.is_empty());
    }
    let written = written.borrow();
    // A held message is not overwritten: any three messages in a row have memory of their own.
    for three in written.windows(3) {
        assert!(three[0] != three[1] && three[1] != three[2] && three[0] != three[2]);
    }
    let mut places = written[10..].to_vec();
    places.sort_unstable();
    places.dedup();
    assert!(places.len() <= 5, "{} places", places.len());
}

const VOXELIZE: &str = "origin_m: [0, 0, 0], voxel_size_m: [1, 1, 1], shape: [8, 8, 8], channels: [occupancy, mean_x]";

fn lidar(ms: i64) -> Message {
    let mut message = Message::default();
    message.rows = 50 + (ms % 7) as usize;
    message.header.timestamp_ns.set(ms * MS);
    for (axis, name) in ["x", "y", "z"].into_iter().enumerate() {
        let values: Vec<f32> = (0..message.rows)
            .map(|i| (i * (axis + 3)) as f32 * 0.37 % 8.0)
            .collect();
        let column = message.add_column(name, Dtype::Float32, Cells::One);
        column.data.copy_from(bytemuck::cast_slice(&values));
    }
    message
}

#[test]
fn a_chain_in_one_process_equals_separate_ones_to_the_byte() {
    for layout in [
        "layout: coo, max_voxels: 1000",
        "layout: dense",
        "layout: bits",
        "layout: dense, dtype: bfloat16",
    ] {
        let fuse = fuse("window: 4,", "{ input: voxels, max_age_ms: 100 }");
        let channels = if layout.contains("bits") {
            VOXELIZE.replace(", mean_x", "")
        } else {
            VOXELIZE.to_owned()
        };
        let voxelize = format!("voxelize: {{ {channels}, {layout}, inputs: [{{ input: lidar }}] }}");
        let chain = fuse.replace("plugins: [", &format!("plugins: [{voxelize}, "));
        let mut chain = graph_of(&chain, |output| output != "voxels").unwrap();
        let mut first = graph(&format!("plugins: [{voxelize}]")).unwrap();
        let mut second = graph(&fuse).unwrap();
        let (mut together, mut apart, mut between) = (Keeper::default(), Keeper::default(), Keeper::default());
        for ms in 0..300 {
            if ms % 33 == 0 {
                let cloud = lidar(ms);
                chain.message(input(&chain, "lidar"), &cloud, &mut together);
                first.message(0, &cloud, &mut between);
                for (_, mut grid) in between.take() {
                    grid.check().unwrap();
                    second.message(input(&second, "voxels"), &grid, &mut apart);
                }
            }
            if ms % 5 == 0 {
                let arm = sample(ms * MS, &[ms as f32]);
                chain.message(input(&chain, "arm"), &arm, &mut together);
                second.message(input(&second, "arm"), &arm, &mut apart);
            }
        }
        let (together, apart) = (together.take(), apart.take());
        assert!(together.len() > 60, "{}", together.len());
        assert_eq!(names(&together), names(&apart));
        for ((name, a), (_, b)) in together.iter().zip(&apart) {
            assert_eq!(bytes(a), bytes(b), "{layout}: {name}");
        }
        // Each message is consistent, so that it can be sent.
        for (name, mut message) in together {
            message
                .check()
                .unwrap_or_else(|error| panic!("{layout}: {name}: {error}"));
        }
        assert!(chain.faults().chain(second.faults()).all(|(_, count)| count == 0));
    }
}

/// Fuse computes the window on the device, and fetches attached grids from there.
#[test]
fn a_device_gives_the_same_bytes() {
    let fuse = fuse("window: 4,", "{ input: voxels, max_age_ms: 100 }");
    let voxelize = format!("voxelize: {{ {VOXELIZE}, layout: dense, inputs: [{{ input: lidar }}] }}");
    let chain = fuse.replace("plugins: [", &format!("plugins: [{voxelize}, "));
    for wanted in ["fused", "observation"] {
        let run = |device: &str| -> Result<Vec<(String, Message)>, AppError> {
            let mut graph = graph_of(&format!("device: {device}\n{chain}"), |output| output == wanted)?;
            let mut sink = Keeper::default();
            for ms in 0..200 {
                if ms % 33 == 0 {
                    graph.message(input(&graph, "lidar"), &lidar(ms), &mut sink);
                }
                if ms % 5 == 0 {
                    graph.message(input(&graph, "arm"), &sample(ms * MS, &[ms as f32]), &mut sink);
                }
            }
            assert!(graph.faults().all(|(_, count)| count == 0));
            Ok(sink.take())
        };
        let on_cpu = run("cpu").unwrap();
        let Ok(on_device) = run(kind().name()) else {
            println!("gpu: skipped, as there is none");
            return;
        };
        assert_eq!(on_device.len(), on_cpu.len());
        for ((name, mut a), (_, mut b)) in on_cpu.into_iter().zip(on_device) {
            assert_eq!(
                (ops::key::device.get(&a.header), ops::key::device.get(&b.header)),
                (Some("cpu"), Some(&*format!("{}:0", kind()))),
                "{name}"
            );
            for key in ["device", "device_bytes"] {
                a.header.remove(key);
                b.header.remove(key);
            }
            assert_eq!(bytes(&a), bytes(&b), "{name}");
        }
    }
}

/// Replays two recordings: one of fuse's inputs, recorded in the process of fuse, and one of every output.
#[test]
fn a_replay_gives_the_same_bytes() {
    let folder = |name: &str| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&folder);
        folder
    };
    let (inputs, outputs) = (folder("attach-inputs"), folder("attach-outputs"));
    let app = |text: &str, wired: &[&str], published: &'static [&'static str]| {
        let config = Config::parse(Path::new("robot.yml"), text).unwrap();
        App::new()
            .with_config(config)
            .add_plugins(plugins::all())
            .with_wired_inputs(wired.iter().map(|&name| name.to_owned()))
            .build(move |output| published.contains(&output))
            .unwrap()
    };
    let fuse = fuse("window: 3, max_wait_ms: 20,", "{ input: lidar, max_age_ms: 60 }");
    let beside = |other: &str| fuse.replace("plugins: [", &format!("plugins: [{other}, "));
    let record = format!("record: {{ path: {} }}", inputs.display());
    let mut live = app(&beside(&record), &["arm", "lidar"], &["grids", "fused", "observation"]);
    let mut sink = Keeper::default();
    for ms in 0..500 {
        // Every fifth cloud comes late.
        let late = if (ms / 40) % 5 == 0 { 37 } else { 8 };
        if ms >= late && (ms - late) % 40 == 0 {
            live.message(input(&live, "lidar"), &lidar(ms - late), &mut sink);
        }
        if ms % 4 == 0 {
            live.message(input(&live, "arm"), &sample(ms * MS, &[ms as f32]), &mut sink);
        }
    }
    live.close_all(&mut sink);
    live.finish(&mut sink).unwrap();
    let live = sink.take();
    assert!(live.len() > 130, "{}", live.len());

    let run = |mut graph: Graph, sink: &mut Keeper| {
        graph.wake(Instant::now(), true, sink).unwrap();
        while !graph.is_done() {
            graph
                .wake(Instant::now() + Duration::from_secs(1), false, sink)
                .unwrap();
        }
        graph.finish(sink).unwrap();
    };
    let replay = format!("replay: {{ path: {}, speed: max, order: arrival }}", inputs.display());
    run(
        app(&beside(&replay), &[], &["grids", "fused", "observation"]),
        &mut sink,
    );
    let again = sink.take();
    assert_eq!(names(&again), names(&live));
    for ((name, a), (_, b)) in live.iter().zip(&again) {
        assert_eq!(bytes(a), bytes(b), "{name}");
    }

    // Records every output, and replays the recording.
    let record = format!("plugins: [record: {{ path: {} }}]", outputs.display());
    let mut recorder = app(&record, &["grids", "fused", "observation"], &[]);
    for (name, message) in &live {
        recorder.message(input(&recorder, name), message, &mut sink);
    }
    recorder.close_all(&mut sink);
    recorder.finish(&mut sink).unwrap();
    assert!(recorder.faults().all(|(_, count)| count == 0));
    let replay = format!("plugins: [replay: {{ path: {}, speed: max }}]", outputs.display());
    run(app(&replay, &[], &["grids", "fused", "observation"]), &mut sink);
    let replayed = sink.take();
    assert_eq!(replayed.len(), live.len());
    for name in ["grids", "fused", "observation"] {
        let of = |all: &[(String, Message)]| -> Vec<_> {
            let of = all.iter().filter(|(output, _)| output == name);
            of.map(|(_, message)| {
                let columns = message
                    .columns()
                    .iter()
                    .map(|column| (column.name.clone(), column.data.bytes().to_vec()));
                let lists = ["grid_index", "grid_age_ns", "timestamps_ns"].map(|key| integers(message, key).to_vec());
                (message.timestamp_ns(), lists, columns.collect::<Vec<_>>())
            })
            .collect()
        };
        assert_eq!(of(&replayed), of(&live), "{name}");
    }
}

/// Prints the time that fuse takes for an observation, for different attached grids and warm buffers.
#[test]
#[ignore = "prints a measurement"]
fn what_an_observation_costs() {
    let coo = |ms: i64| {
        let voxels = 40_000;
        let mut message = Message::default();
        message.rows = voxels;
        message.header.timestamp_ns.set(ms * MS);
        let column = message.add_column("coords", Dtype::Int32, Cells::Fixed(3));
        column.data.resize(12 * voxels);
        let column = message.add_column("features", Dtype::Float32, Cells::Fixed(6));
        column.data.resize(24 * voxels);
        message
    };
    let dense = |ms: i64| sample(ms * MS, &vec![0.0; 2 << 20]);
    type Make<'a> = &'a dyn Fn(i64) -> Message;
    let grids: [(&str, Make<'_>); 3] = [
        ("none", &|ms| sample(ms * MS, &[0.0])),
        ("512x512x40 coo, 40,000 voxels, 1.4 MB", &coo),
        ("dense, 8 MB", &dense),
    ];
    for (name, make) in grids {
        for window in [1, 16] {
            for wanted in ["fused", "observation"] {
                let attach = if name == "none" {
                    ""
                } else {
                    "{ input: voxels, wait: false }"
                };
                let modalities = "{ input: camera, dim: 128, interpolation: previous, wait: false }, \
                                  { input: force, dim: 6, interpolation: linear, wait: false }, ";
                let config = fuse(&format!("window: {window},"), attach).replace("rate_hz: 100", "rate_hz: 50");
                let config = config.replace("modalities: [", &format!("modalities: [{modalities}"));
                let Ok(mut graph) = graph_of(&config, |output| output == wanted) else {
                    continue;
                };
                let mut sink = Overwrite::default();
                let (arm, camera) = (input(&graph, "arm"), input(&graph, "camera"));
                let (mut message, mut frame) = (sample(0, &[0.0]), sample(0, &[0.0; 128]));
                let mut grid = make(0);
                let (mut times, mut held) = (Vec::new(), Vec::new());
                for step in 0..400 {
                    let ns = step * 20 * MS;
                    if step % 5 == 0 && !attach.is_empty() {
                        grid.header.timestamp_ns.set(ns);
                        let voxels = input(&graph, "voxels");
                        let start = Instant::now();
                        graph.message(voxels, &grid, &mut sink);
                        held.push(start.elapsed());
                    }
                    frame.header.timestamp_ns.set(ns);
                    graph.message(camera, &frame, &mut sink);
                    message.header.timestamp_ns.set(ns);
                    let start = Instant::now();
                    graph.message(arm, &message, &mut sink);
                    times.push(start.elapsed());
                }
                let p50 = |times: &mut Vec<Duration>| {
                    times.sort();
                    times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e6)
                };
                println!(
                    "{name}, window {window}, {wanted}: {:.1} us an observation, {:.1} us to take a grid by copy",
                    p50(&mut times),
                    p50(&mut held)
                );
            }
        }
    }
}

#[test]
fn a_flat_message_with_fields_has_whole_rows_or_is_dropped() {
    let rows = |values: usize, shape: &[i64]| {
        let mut message = sample(0, &vec![0.5; values]);
        message.header.fields.set(["x", "y"]);
        message.header.shape.set(shape.iter().copied());
        message
    };
    let mut bits = rows(1, &[2]);
    form::grid_shape.set(&mut bits.header, [2, 1, 1]);
    // A first message, and a next one that does not consist of whole rows of its form.
    let cases = [
        (rows(0, &[5, 0, 2]), rows(0, &[])),
        (rows(0, &[0, 1 << 40, 1 << 40, 2]), rows(4, &[2, 2])),
        (rows(4, &[]), rows(3, &[])),
    ];
    for (first, next) in cases {
        let mut graph = graph(&fuse("", "{ input: voxels }")).unwrap();
        let mut sink = Keeper::default();
        send(&mut graph, &mut sink, "voxels", &first);
        send(&mut graph, &mut sink, "voxels", &next);
        assert_eq!(faults(&graph, "fuse: input `voxels`"), 1);
        assert_eq!(send(&mut graph, &mut sink, "arm", &sample(0, &[1.0])).len(), 3);
    }
    let mut graph = graph(&fuse("", "{ input: voxels }")).unwrap();
    send(&mut graph, &mut Keeper::default(), "voxels", &bits);
    assert_eq!(faults(&graph, "fuse: input `voxels`"), 1);
}

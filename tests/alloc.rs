//! Counts the memory allocations of each operation: none is made once the operation has seen its largest messages.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/counting.rs"]
mod counting;
mod kinematics_alloc;
mod recording_damaged;
mod resample_alloc;
mod voxelize_alloc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Float32Array, Int32Array, LargeListArray, ListArray, StringArray, StructArray,
    TimestampMillisecondArray, UInt8Array, UInt32Array,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{Field, Int32Type};
use common::{MS, Overwrite};
use counting::allocations;
use robocache::app::Graph;
use robocache::device::{Dtype, Placement, Values};
use robocache::ops::align::{AlignConfig, Aligner};
use robocache::ops::clock::{ClockConfig, ClockInput, Clocks};
use robocache::stream::{
    Cells, CloudFields, ColumnLayout, Header, Layout, Message, MetadataRef, MetadataValue, Payload, Selection,
    Selector, form,
};
use std::sync::Arc;

/// YAML keys that the tests use in the section `align:` as well as in `fuse:`.
const KEYS: &str = "rate_hz: 50, window: 16, max_wait_ms: 40, modalities: [
    { input: camera, dim: 128, interpolation: previous, latency_ms: 33, max_age_ms: 100 },
    { input: force, dim: 6, interpolation: linear, max_gap_ms: 50, reorder_ms: 3 },
    { input: proprio, dim: 15, interpolation: nearest } ]";

const STREAMS: [(&str, i64, usize); 3] = [("camera", 33, 128), ("force", 1, 6), ("proprio", 2, 15)];

/// Range of seconds whose messages warm the graph up, before allocations are counted.
const WARM_UP: std::ops::Range<i64> = 0..3;
/// Range of seconds in which allocations are counted.
const COUNTED: std::ops::Range<i64> = 3..8;

/// Returns samples in order of arrival, each as the index of its stream and its stamp, ns. Every third sample of `force` has a
/// stamp 2 ms ahead, so that the next sample is out of order.
fn arrivals(seconds: std::ops::Range<i64>) -> impl Iterator<Item = (usize, i64)> {
    (seconds.start * 1000..seconds.end * 1000).flat_map(|ms| {
        let due = STREAMS
            .into_iter()
            .enumerate()
            .filter(move |(_, (_, period, _))| ms % period == 0);
        due.map(move |(i, (name, _, _))| {
            let overtakes = i64::from(name == "force" && ms % 3 == 0);
            (i, (ms + 2 * overtakes) * MS)
        })
    })
}

#[test]
fn the_operations_allocate_nothing_in_steady_state() {
    let config: AlignConfig = serde_yaml::from_str(&format!("{{ {KEYS} }}")).unwrap();
    let cpu = Placement::cpu("a test");
    let mut aligners = [Aligner::fused, Aligner::aligned].map(|new| new(&config, &cpu).unwrap());
    let sample = [0.5f32; 128];
    let mut out = vec![0f32; config.window * config.columns()];
    let mut observations = 0;
    let mut run = |seconds| {
        for (i, stamp) in arrivals(seconds) {
            let sample = Values::from_f32(&sample[..STREAMS[i].2]);
            for aligner in &mut aligners {
                aligner.push(i, stamp, sample).unwrap();
                while let Some(target) = aligner.due() {
                    let outputs = aligner.outputs().len();
                    let mut window = aligner.window(target);
                    for output in 0..outputs {
                        let elements = window.output(output).layout().rows;
                        window.write(output, &mut out[..elements]);
                        observations += 1;
                    }
                }
            }
        }
    };
    run(WARM_UP);
    let before = allocations();
    assert!(before > 0, "the counter counts");
    run(COUNTED);
    assert_eq!(allocations(), before);
    assert!(observations > 4 * 380, "{observations}");
}

/// Counts the allocations of a graph after its warm-up. Those for published payloads and headers are included.
fn count_allocations(mut graph: Graph) -> u64 {
    let inputs: Vec<usize> = STREAMS.iter().map(|(name, ..)| common::input(&graph, name)).collect();
    let mut messages = STREAMS.map(|(_, _, dim)| common::sample(0, &vec![0.5; dim]));
    // An input for requests or ticks gets one at each sample of the first stream. Every other one asks for a time that is not
    // there yet.
    let trigger = graph.external_inputs().position(|(name, _)| name == "ask");
    let mut ask = common::sample(0, &[]);
    *ask.header.other.set("request_id") = MetadataValue::String("a request".into());
    let mut sink = Overwrite::default();
    let mut run = |seconds, sink: &mut Overwrite| {
        let before = (allocations(), sink.sent);
        for (i, stamp) in arrivals(seconds) {
            messages[i].header.timestamp_ns.set(stamp);
            graph.message(inputs[i], &messages[i], sink);
            if let Some(trigger) = trigger.filter(|_| i == 0) {
                ask.header.timestamp_ns.set(stamp + 30 * MS);
                match stamp / MS % 2 {
                    0 => ask.header.unstamped.clear(),
                    _ => ask.header.unstamped.set(1),
                }
                graph.message(trigger, &ask, sink);
            }
        }
        (allocations() - before.0, sink.sent - before.1)
    };
    run(WARM_UP, &mut sink);
    let (allocated, sent) = run(COUNTED, &mut sink);
    assert!(sent > 140, "{sent}");
    allocated
}

#[test]
fn a_graph_allocates_nothing_in_steady_state() {
    for plugin in ["fuse", "align"] {
        let graph = common::graph(&format!("plugins: [{plugin}: {{ {KEYS} }}]")).unwrap();
        assert_eq!(count_allocations(graph), 0, "{plugin}");
    }
    for trigger in ["{ stream: force, rows: samples }", "{ request: ask }", "{ timer: ask }"] {
        let graph = common::graph(&format!("plugins: [fuse: {{ {KEYS}, trigger: {trigger} }}]")).unwrap();
        assert_eq!(count_allocations(graph), 0, "{trigger}");
    }
}

#[test]
fn to_gather_diagnostics_allocates_nothing_for_a_message() {
    for plugin in ["fuse", "align"] {
        let mut graph = common::graph(&format!("plugins: [{plugin}: {{ {KEYS} }}]")).unwrap();
        graph.gather_diagnostics();
        assert_eq!(count_allocations(graph), 0, "{plugin}");
    }
}

/// The messages have three rates, and many of them match no set. One configuration groups the sets that another group makes.
#[test]
fn grouping_messages_allocates_nothing_in_steady_state() {
    let three = "queue_size: 50, inputs: [{ input: camera }, { input: force }, { input: proprio }]";
    let exact = "name: pair, policy: exact, queue_size: 50, inputs: [{ input: force }, { input: proprio }]";
    let chained = "policy: approximate, queue_size: 50, inputs: [{ input: camera }, { input: pair/force }]";
    for config in [
        format!("group: {{ policy: approximate, {three} }}"),
        format!("group: {{ policy: epsilon, max_span_ms: 5, {three} }}"),
        format!("group: {{ {exact} }}, group: {{ name: last, {chained} }}"),
    ] {
        let graph = common::graph(&format!("plugins: [{config}]")).unwrap();
        assert_eq!(count_allocations(graph), 0, "{config}");
    }
}

/// Attaches grids that voxelize makes in the same process, or clouds that come from the dataflow and are copied. Every
/// output is published.
#[test]
fn attaching_messages_allocates_nothing_in_steady_state() {
    let voxelize = |layout: &str| {
        format!(
            "voxelize: {{ origin_m: [0, 0, 0], voxel_size_m: [1, 1, 1], shape: [32, 32, 8], channels: [occupancy, mean_x], \
             layout: {layout}, inputs: [{{ input: lidar }}] }}, "
        )
    };
    let fuse =
        "rate_hz: 50, window: 16, max_wait_ms: 40, modalities: [{ input: force, dim: 6, interpolation: linear }]";
    let attached =
        "{ input: voxels, max_age_ms: 200, min_period_ms: 95 }, { input: lidar, output: clouds, wait: false }";
    for (before, attached) in [
        (voxelize("dense"), attached),
        (voxelize("coo"), attached),
        (String::new(), "{ input: lidar }"),
    ] {
        let config = format!("plugins: [{before}fuse: {{ {fuse}, attach: [{attached}] }}]");
        let mut graph = common::graph(&config).unwrap();
        let [lidar, force] = ["lidar", "force"].map(|name| common::input(&graph, name));
        let mut sink = Overwrite::default();
        let mut sample = common::sample(0, &[0.5; 6]);
        let mut clouds = [900, 1000].map(|points| {
            let mut cloud = Message::default();
            cloud.rows = points;
            for axis in ["x", "y", "z"] {
                let values: Vec<f32> = (0..points).map(|i| (i * 7 % 32) as f32).collect();
                let column = cloud.add_column(axis, Dtype::Float32, Cells::One);
                column.data.copy_from(bytemuck::cast_slice(&values));
            }
            cloud
        });
        let mut run = |seconds: std::ops::Range<i64>, sink: &mut Overwrite| {
            let before = (allocations(), sink.sent);
            for ms in seconds.start * 1000..seconds.end * 1000 {
                if ms % 100 == 0 {
                    let cloud = &mut clouds[(ms / 100 % 2) as usize];
                    cloud.header.timestamp_ns.set(ms * MS);
                    graph.message(lidar, cloud, sink);
                }
                sample.header.timestamp_ns.set(ms * MS);
                graph.message(force, &sample, sink);
            }
            (allocations() - before.0, sink.sent - before.1)
        };
        run(WARM_UP, &mut sink);
        let (allocated, sent) = run(COUNTED, &mut sink);
        assert!(sent > 3 * 240, "{sent}");
        assert_eq!(allocated, 0, "{config}");
    }
}

#[test]
fn clocks_allocate_nothing_at_all() {
    let inputs = STREAMS.map(|(name, ..)| format!("{{ input: {name}, clock: realtime }}"));
    let graph = common::graph(&format!("plugins: [clock: {{ inputs: [{}] }}]", inputs.join(", "))).unwrap();
    assert_eq!(count_allocations(graph), 0);
    let imu = ClockInput {
        input: "imu".into(),
        window_s: 5.0,
        lock_s: 1.0,
        ..ClockInput::default()
    };
    let mut clocks = Clocks::new(&ClockConfig { inputs: vec![imu] }).unwrap();
    let before = allocations();
    for i in 0..20_000 {
        let (x, jitter) = (i * MS, (i * i * 7919) % 1009 * 10_000);
        let (stamp, _) = clocks.push(0, x, Some(1_700_000_000_000_000_000 + x + i * 20 + jitter));
        assert_eq!(stamp.is_locked, i >= 1000);
    }
    assert_eq!(allocations(), before);
}

/// Reads three kinds of messages: a cloud with nulls, timestamps and a text column that nothing asks for; a struct of lists;
/// and a flat array.
#[test]
fn reading_messages_allocates_nothing_in_steady_state() {
    let struct_of = |columns: Vec<(&str, ArrayRef)>| -> ArrayRef {
        let field = |(name, column): &(&str, ArrayRef)| Field::new(*name, column.data_type().clone(), true);
        let fields: Vec<_> = columns.iter().map(field).collect();
        let columns = columns.into_iter().map(|(_, column)| column).collect();
        Arc::new(StructArray::new(fields.into(), columns, None))
    };
    let floats = || -> ArrayRef { Arc::new(Float32Array::from(vec![0.5; 300])) };
    let holes = |i: i32| (i % 7 > 0).then_some(i);
    let cloud = struct_of(vec![
        ("x", floats()),
        ("label", Arc::new(StringArray::from(vec!["a"; 300]))),
        ("y", floats()),
        ("ring", Arc::new((0..300).map(holes).collect::<Int32Array>())),
        ("z", floats()),
        ("t", Arc::new(TimestampMillisecondArray::from(vec![5; 300]))),
    ]);
    let lists = (0..30).map(|i| (i % 5 > 0).then(|| (0..i).map(holes)));
    let lists = LargeListArray::from_iter_primitive::<Int32Type, _, _>(lists);
    let messages = [cloud, struct_of(vec![("values", Arc::new(lists))]), floats()];
    let metadata = [("timestamp_ns", MetadataRef::Integer(5))];
    let mut message = Message::default();
    let mut run = |rounds: usize| {
        for array in (0..rounds).flat_map(|_| &messages) {
            message.read(metadata, array).unwrap();
        }
    };
    run(2);
    let before = allocations();
    run(10);
    assert_eq!(allocations(), before);
}

/// Takes payloads from producer to consumer: a tensor, and grids of varying lengths from a second ring.
#[test]
fn payloads_in_rings_allocate_nothing_in_steady_state() {
    use robocache::device::ring::{Readers, RingConfig, RingWriter};
    use robocache::stream::SlotLayout;
    let column = |name: &str, cells| ColumnLayout {
        name: name.to_owned().into(),
        dtype: Dtype::Float32,
        cells,
    };
    let grid = |rows| Layout {
        rows,
        columns: vec![
            column("coords", Cells::Fixed(3)),
            column("values", Cells::Ragged(2 * rows)),
        ],
    };
    let outputs = [vec![Layout::flat(Dtype::Float32, 2384)], (300..310).map(grid).collect()];
    let mut writers = [(); 2].map(|()| {
        (
            RingWriter::shared("a test", None, RingConfig::default()),
            SlotLayout::default(),
        )
    });
    let (mut readers, mut header, mut message) = (Readers::default(), Header::default(), Message::default());
    let nothing: ArrayRef = Arc::new(Float32Array::new_null(0));
    let mut run = |rounds: usize| {
        for round in 0..rounds {
            for ((writer, slots), layouts) in writers.iter_mut().zip(&outputs) {
                let layout = &layouts[round % layouts.len()];
                slots.set(layout);
                let ticket = writer.publish(slots.text(), slots.bytes(), |slot| {
                    let mut payload = slots.payload(slot).unwrap();
                    payload.column(0).fill(round as f32);
                    for i in 0..layout.columns.len() {
                        let offsets = payload.offsets(i).iter_mut();
                        offsets.enumerate().for_each(|(row, offset)| *offset = 2 * row as i32);
                    }
                    Ok(())
                });
                let ticket = ticket.unwrap();
                header.set_ticket("shared", &ticket);
                message.read(header.iter(), &nothing).unwrap();
                message.take_resident(&mut readers).unwrap();
                assert_eq!(
                    (message.rows, message.columns().len()),
                    (layout.rows, layout.columns.len())
                );
                let values: &[f32] = message.columns()[0].values().as_slice();
                assert!(values.iter().all(|&value| value == round as f32));
            }
        }
    };
    run(20);
    let before = allocations();
    run(100);
    assert_eq!(allocations(), before);
}

/// The message is an Arrow struct as other software sends it. The order of its joint names changes from message to message.
#[test]
fn selecting_from_structs_allocates_nothing_in_steady_state() {
    let structure = |columns: Vec<(&str, ArrayRef)>| -> ArrayRef { Arc::new(StructArray::try_from(columns).unwrap()) };
    let list = |values: ArrayRef| -> ArrayRef {
        let item = Arc::new(Field::new("item", values.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths([values.len()]);
        Arc::new(ListArray::new(item, offsets, values, None))
    };
    let whole = |value: u32| -> ArrayRef { Arc::new(UInt32Array::from(vec![value])) };
    let header = || {
        let stamp = structure(vec![
            ("sec", Arc::new(Int32Array::from(vec![1]))),
            ("nanosec", whole(5)),
        ]);
        structure(vec![
            ("stamp", stamp),
            ("frame_id", Arc::new(StringArray::from(vec!["base"]))),
        ])
    };
    let joints = |names: [&str; 3]| {
        let numbers = || list(Arc::new(Float32Array::from(vec![0.5; 3])));
        structure(vec![
            ("header", header()),
            ("name", list(Arc::new(StringArray::from(names.to_vec())))),
            ("position", numbers()),
            ("velocity", numbers()),
            ("effort", numbers()),
        ])
    };
    let fields = structure(vec![
        ("name", Arc::new(StringArray::from(vec!["x", "y", "z", "time"]))),
        ("offset", Arc::new(UInt32Array::from(vec![0, 4, 8, 12]))),
        ("datatype", Arc::new(UInt8Array::from(vec![7; 4]))),
        ("count", Arc::new(UInt32Array::from(vec![1; 4]))),
    ]);
    let cloud = structure(vec![
        ("header", header()),
        ("height", whole(2)),
        ("width", whole(50)),
        ("fields", list(fields)),
        ("is_bigendian", Arc::new(BooleanArray::from(vec![false]))),
        ("point_step", whole(16)),
        ("row_step", whole(810)),
        ("data", list(Arc::new(UInt8Array::from(vec![1; 1620])))),
        ("is_dense", Arc::new(BooleanArray::from(vec![true]))),
    ]);
    let from = "{ columns: [position], names: { key: name, order: [b, a] }, stamp: header.stamp }";
    let mut of_names = Selector::new(Selection::samples(2, serde_yaml::from_str(from).unwrap()));
    let mut of_joints = Selector::new(Selection::samples(3, None));
    let mut of_clouds = Selector::new(Selection::cloud(CloudFields::All, None));
    let orders = [joints(["a", "b", "c"]), joints(["c", "b", "a"])];
    let mut messages = [Message::default(), Message::default(), Message::default()];
    let metadata = [("encoding", MetadataRef::String("jointstate"))];
    let mut run = |rounds: usize| {
        for payload in (0..rounds).flat_map(|_| &orders) {
            of_names.read(metadata, payload, &mut messages[0]).unwrap();
            of_joints.read(metadata, payload, &mut messages[1]).unwrap();
            of_clouds.read(metadata, &cloud, &mut messages[2]).unwrap();
        }
    };
    run(2);
    let before = allocations();
    run(10);
    assert_eq!(allocations(), before);
    let rows = messages.map(|message| (message.rows, message.columns().len(), message.timestamp_ns()));
    assert_eq!(
        rows,
        [(2, 1, 1_000_000_005), (3, 1, 1_000_000_005), (100, 4, 1_000_000_005)]
    );
}

#[test]
fn messages_between_two_operations_allocate_nothing_in_steady_state() {
    let keys = KEYS.replace("window: 16", "window: 1");
    let fuse = "rate_hz: 50, window: 16, max_wait_ms: 40, modalities: [
        { input: camera, dim: 128, interpolation: previous },
        { input: force, dim: 6, interpolation: previous },
        { input: proprio, dim: 15, interpolation: previous } ]";
    let config = format!("plugins: [align: {{ {keys} }}, fuse: {{ {fuse} }}]");
    assert_eq!(
        count_allocations(common::graph_of(&config, |output| output == "fused").unwrap()),
        0
    );
}

#[test]
fn a_payload_of_any_number_of_columns_takes_no_memory_of_its_own() {
    let column = |i: usize| ColumnLayout {
        name: format!("c{i}").into(),
        dtype: Dtype::Float32,
        cells: Cells::One,
    };
    let layout = Layout {
        rows: 10,
        columns: (0..100).map(column).collect(),
    };
    let mut message = Message::default();
    let mut fill = || {
        let mut payload = Payload::in_message(&mut message, &layout);
        (0..100).for_each(|i| payload.column(i).fill(i as f32));
    };
    fill();
    let before = allocations();
    fill();
    assert_eq!(allocations(), before);
    assert_eq!(message.columns()[99].values().as_slice::<f32>(), [99.0; 10]);
}

/// Covers metadata keys that the library defines, and keys that only the sender knows.
#[test]
fn the_metadata_of_a_message_is_copied_into_memory_that_is_there() {
    let names = ["camera", "force"].map(str::to_owned);
    let metadata = [
        ("timestamp_ns", MetadataRef::Integer(7)),
        ("modalities", MetadataRef::ListString(&names)),
        ("valid", MetadataRef::ListInt(&[1, 1])),
        ("age_ns", MetadataRef::ListInt(&[3, 4])),
        ("epoch", MetadataRef::Integer(1)),
        ("device", MetadataRef::String("cpu")),
        ("compute_us", MetadataRef::Float(0.5)),
        ("encoding", MetadataRef::String("rgb8")),
        ("gains", MetadataRef::ListFloat(&[0.5, 2.0])),
    ];
    let array: ArrayRef = Arc::new(Float32Array::from(vec![1.0, 2.0]));
    let mut message = Message::default();
    message.read(metadata, &array).unwrap();
    let before = allocations();
    message.read(metadata, &array).unwrap();
    assert_eq!(allocations(), before);
    assert_eq!(form::modalities.get(&message.header), Some(&names[..]));
    assert_eq!(message.header.other.iter().count(), 7);
}

#[test]
fn walking_the_samples_of_a_message_allocates_nothing() {
    let message = common::samples(&[0, MS, 2 * MS], &[0.5; 18]);
    let mut sample = [0f32; 6];
    let before = allocations();
    let mut walked = 0;
    for row in message.samples(6).unwrap() {
        row.to_f32(&mut sample).unwrap();
        walked += 1;
    }
    assert_eq!((allocations(), walked), (before, 3));
}

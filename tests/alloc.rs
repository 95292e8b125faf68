//! Aligning and fusing allocate nothing once they have seen their working set.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/counting.rs"]
mod counting;

use arrow::array::{
    Array, ArrayRef, Float32Array, Int32Array, LargeListArray, StringArray, StructArray, TimestampMillisecondArray,
};
use arrow::datatypes::{Field, Int32Type};
use common::MS;
use counting::allocations;
use robocache::app::{Fault, Graph, Parameter, Parameters, Payload, Sink, read_message};
use robocache::device::{Dtype, Values};
use robocache::ops::align::{AlignConfig, Masks, Timeline, cpu};
use robocache::ops::fuse;
use robocache::stream::{Cells, ColumnLayout, Layout, Message};
use std::sync::Arc;

/// What `align:` and `fuse:` get.
const KEYS: &str = "rate_hz: 50, window: 16, max_wait_ms: 40, modalities: [
    { input: camera, dim: 128, interpolation: previous, latency_ms: 33, max_age_ms: 100 },
    { input: force, dim: 6, interpolation: linear, max_gap_ms: 50, reorder_ms: 3 },
    { input: proprio, dim: 15, interpolation: nearest } ]";

const STREAMS: [(&str, i64, usize); 3] = [("camera", 33, 128), ("force", 1, 6), ("proprio", 2, 15)];

/// Warm-up, then what is counted: seconds of the streams.
const WARM_UP: std::ops::Range<i64> = 0..3;
const COUNTED: std::ops::Range<i64> = 3..8;

/// The streams' samples in order: place of the stream, stamp. Every third sample of force overtakes its neighbour.
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
fn the_engine_allocates_nothing_in_steady_state() {
    let config: AlignConfig = serde_yaml::from_str(&format!("{{ {KEYS} }}")).unwrap();
    let mut aligner = Timeline::new(&config).unwrap();
    let sample = [0.5f32; 128];
    let mut out = vec![0f32; aligner.window() * config.columns()];
    let mut one = vec![0f32; aligner.window() * 128];
    let (mut masks, mut masks_of_one) = (Masks::default(), Masks::default());
    let mut observations = 0;
    let mut run = |seconds| {
        for (i, stamp) in arrivals(seconds) {
            aligner
                .push(i, stamp, Values::from_f32(&sample[..STREAMS[i].2]))
                .unwrap();
            while let Some(target) = aligner.due() {
                fuse::cpu::fuse(&aligner, &target, &mut out, &mut masks);
                cpu::align(&aligner, &target, 0, &mut one, &mut masks_of_one);
                observations += 1;
            }
        }
    };
    run(WARM_UP);
    let before = allocations();
    assert!(before > 0, "the counter counts");
    run(COUNTED);
    assert_eq!(allocations(), before);
    assert!(observations > 380, "{observations}");
}

/// Writes what is published over what was published before, and counts what the operation allocates meanwhile.
#[derive(Default)]
struct Overwrite {
    memory: Message,
    sent: u64,
    by_fill: u64,
}

impl Sink for Overwrite {
    fn send(
        &mut self,
        _: &str,
        layout: &Layout,
        fill: &mut dyn FnMut(&mut Payload<'_>) -> Parameters,
    ) -> Result<(), Fault> {
        let mut payload = Payload::in_message(&mut self.memory, layout);
        let before = allocations();
        let parameters = fill(&mut payload);
        self.by_fill += allocations() - before;
        self.sent += 1;
        drop(parameters);
        Ok(())
    }
}

/// What is allocated for a published message, once the graph is warm: in writing payload and metadata, and otherwise
/// (over all messages).
fn of_graph(mut graph: Graph) -> (u64, u64) {
    let inputs: Vec<usize> = STREAMS.iter().map(|(name, ..)| common::input(&graph, name)).collect();
    let mut messages = STREAMS.map(|(_, _, dim)| common::sample(0, &vec![0.5; dim]));
    let mut sink = Overwrite::default();
    let mut run = |seconds, sink: &mut Overwrite| {
        let before = (allocations(), sink.by_fill, sink.sent);
        for (i, stamp) in arrivals(seconds) {
            messages[i].timestamp_ns = stamp;
            graph.message(inputs[i], &messages[i], sink);
        }
        let by_fill = sink.by_fill - before.1;
        (allocations() - before.0 - by_fill, by_fill, sink.sent - before.2)
    };
    run(WARM_UP, &mut sink);
    let (others, by_fill, sent) = run(COUNTED, &mut sink);
    assert!(sent > 240, "{sent}");
    assert_eq!(by_fill % sent, 0, "each message takes as many");
    (by_fill / sent, others)
}

/// What the metadata of an observation of so many modalities takes: dora's map owns it, so that it is made anew for each
/// message. 12 keys; 7 lists and strings; the list of names and the names; the map's entries in a list to be sorted, and
/// three nodes.
fn metadata(modalities: u64) -> u64 {
    12 + 7 + (1 + modalities) + (1 + 3)
}

#[test]
fn the_graph_allocates_the_metadata_that_dora_takes_and_nothing_else() {
    for (plugin, modalities) in [("fuse", 3), ("align", 1)] {
        let graph = common::graph(&format!("plugins: [{plugin}: {{ {KEYS} }}]")).unwrap();
        let (by_fill, others) = of_graph(graph);
        assert_eq!(others, 0, "{plugin}");
        assert!(by_fill <= metadata(modalities), "{plugin}: {by_fill}");
    }
}

/// A cloud with what nothing asks for, with nulls and with times; a batch of lists; a sample.
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
    let parameters = Parameters::from([("timestamp_ns".to_owned(), Parameter::Integer(5))]);
    let mut message = Message::default();
    let mut run = |rounds: usize| {
        for array in (0..rounds).flat_map(|_| &messages) {
            assert!(read_message(&parameters, array, &mut message).unwrap());
        }
    };
    run(2);
    let before = allocations();
    run(10);
    assert_eq!(allocations(), before);
}

/// What align hands to fuse in one process has metadata, too, and costs no more than that.
#[test]
fn a_message_between_two_operations_takes_its_metadata_only() {
    let keys = KEYS.replace("window: 16", "window: 1");
    let fuse = "rate_hz: 50, window: 16, max_wait_ms: 40, modalities: [
        { input: camera, dim: 128, interpolation: previous },
        { input: force, dim: 6, interpolation: previous },
        { input: proprio, dim: 15, interpolation: previous } ]";
    let config = format!("plugins: [align: {{ {keys} }}, fuse: {{ {fuse} }}]");
    let (by_fill, others) = of_graph(common::graph_of(&config, |output| output == "fused").unwrap());
    assert!(by_fill <= metadata(3), "{by_fill}");
    // One more than its share may fall into the time.
    let targets = 50 * (COUNTED.end - COUNTED.start) as u64 + 1;
    assert!(others <= 3 * targets * metadata(1), "{others}");
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

/// Whatever the sender says beside the payload.
#[test]
fn the_metadata_of_a_message_is_copied_into_memory_that_is_there() {
    let names = |names: &[&str]| Parameter::ListString(names.iter().map(|name| (*name).to_owned()).collect());
    let parameters: Parameters = [
        ("timestamp_ns", Parameter::Integer(7)),
        ("modalities", names(&["camera", "force"])),
        ("valid", Parameter::ListInt(vec![1, 1])),
        ("age_ns", Parameter::ListInt(vec![3, 4])),
        ("offsets", Parameter::ListInt(vec![0, 1, 2])),
        ("epoch", Parameter::Integer(1)),
        ("device", Parameter::String("cpu".into())),
        ("channels", names(&["occupancy", "count"])),
        ("compute_us", Parameter::Float(0.5)),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    let array: ArrayRef = Arc::new(Float32Array::from(vec![1.0, 2.0]));
    let mut message = Message::default();
    read_message(&parameters, &array, &mut message).unwrap();
    let before = allocations();
    read_message(&parameters, &array, &mut message).unwrap();
    assert_eq!(allocations(), before);
    assert_eq!(message.modalities(), ["camera", "force"]);
    assert_eq!(message.metadata.iter().count(), 5);
}

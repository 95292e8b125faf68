//! A recording made in the process of fuse replays in the order of arrival, and so gives the same observations, byte for byte.

use crate::common::{Folder, MS, Recorder, Sent, input, sample};
use robocache::app::{App, Config, Graph, plugins};
use robocache::device::Dtype;
use robocache::stream::recording::{Order, Reader, Writer};
use robocache::stream::{Cells, Message};
use std::path::Path;
use std::time::{Duration, Instant};

const FUSE: &str = "
  - fuse:
      rate_hz: 50
      window: 4
      max_wait_ms: 30
      modalities:
        - { input: camera, dim: 2, interpolation: previous, max_age_ms: 100 }
        - { input: force, dim: 1, interpolation: linear, max_gap_ms: 50, extrapolate_ms: 20 }
        - { input: joints, dim: 3, interpolation: linear, reorder_ms: 4 }";

fn graph(plugins_text: &str, wired: &[&str]) -> Result<Graph, robocache::app::AppError> {
    let config = Config::parse(Path::new("robot.yml"), &format!("plugins:{plugins_text}")).unwrap();
    App::new()
        .with_config(config)
        .add_plugins(plugins::all())
        .with_wired_inputs(wired.iter().map(|&name| name.to_owned()))
        .build(|output| output == "fused")
}

/// Makes messages of three streams in order of arrival. Each stream has its own delay and jitter. One message in 40 is up to 80
/// ms later still.
fn arrivals() -> Vec<(&'static str, Message)> {
    let mut state = 3u64;
    let mut random = move |below: i64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as i64 % below
    };
    let mut all: Vec<(i64, &str, Message)> = Vec::new();
    for (name, dim, period, delay, jitter) in [("camera", 2, 33, 25, 20), ("force", 1, 5, 1, 3), ("joints", 3, 2, 0, 8)]
    {
        for i in 0..6000 / period {
            let stamp = i * period * MS;
            let stall = if random(40) == 0 { random(80) * MS } else { 0 };
            let comes = stamp + delay * MS + random(jitter * MS) + stall;
            let values: Vec<f32> = (0..dim).map(|_| random(1000) as f32).collect();
            all.push((comes, name, sample(stamp, &values)));
        }
    }
    all.sort_by_key(|(comes, ..)| *comes);
    all.into_iter().map(|(_, name, message)| (name, message)).collect()
}

/// Records messages while operations of the same process handle them. Returns the observations of the operations.
fn recorded(folder: &Path, wired: &[&str], operations: &str, messages: Vec<(&str, Message)>) -> Vec<Sent> {
    let text = format!("\n  - record: {{ path: {} }}{operations}", folder.display());
    let mut graph = graph(&text, wired).unwrap();
    let mut sink = Recorder::default();
    for (name, message) in messages {
        let input = input(&graph, name);
        graph.message(input, &message, &mut sink);
    }
    graph.close_all(&mut sink);
    graph.finish(&mut sink).unwrap();
    let sent: Vec<_> = sink.take().into_iter().map(without_place).collect();
    assert!(sent.len() > 280, "{}", sent.len());
    sent
}

fn replayed(folder: &Path, order: &str, operations: &str) -> Vec<Sent> {
    let text = format!(
        "\n  - replay: {{ path: {}, speed: max, order: {order} }}{operations}",
        folder.display()
    );
    let mut graph = graph(&text, &[]).unwrap();
    let mut sink = Recorder::default();
    graph.wake(Instant::now(), true, &mut sink).unwrap();
    while !graph.is_done() {
        graph
            .wake(Instant::now() + Duration::from_secs(1), false, &mut sink)
            .unwrap();
    }
    graph.finish(&mut sink).unwrap();
    sink.take().into_iter().map(without_place).collect()
}

/// Removes the metadata keys that tell on which device, and in what time, a message was computed.
fn without_place(mut sent: Sent) -> Sent {
    for key in ["device", "compute_us", "device_bytes"] {
        sent.header.remove(key);
    }
    sent
}

#[test]
fn a_run_with_max_wait_replays_to_the_same_bytes() {
    let own = Folder::new();
    let folder = own.0.join("recording");
    let live = recorded(&folder, &["camera", "force", "joints"], FUSE, arrivals());

    let by_arrival = replayed(&folder, "arrival", FUSE);
    assert_eq!(by_arrival.len(), live.len());
    for (i, (a, b)) in live.iter().zip(&by_arrival).enumerate() {
        assert_eq!(a, b, "observation {i}");
    }
    // In the order of stamps nothing is late, so that values that were masked on the robot are there.
    let by_stamp = replayed(&folder, "stamp", FUSE);
    let differ = live
        .iter()
        .filter(|a| by_stamp.iter().find(|b| b.ms() == a.ms()) != Some(a))
        .count();
    println!(
        "of {} observations {differ} differ in the order of stamps, none in that of arrival",
        live.len()
    );
    assert!(differ > 0);
}

/// Fuse does not wait for the grid. An observation has the grid if its cloud arrived before the sample that made the
/// observation due. The replay gives the same, as each message goes through all operations before the next one.
#[test]
fn what_operations_make_of_a_message_comes_before_the_next_one() {
    const VOXELS_TO_FUSE: &str = "
  - voxelize:
      origin_m: [0, 0, 0]
      voxel_size_m: [1, 1, 1]
      shape: [2, 2, 2]
      channels: [occupancy]
      layout: dense
      inputs: [{ input: lidar }]
  - fuse:
      rate_hz: 50
      modalities: [{ input: joints, dim: 3, interpolation: previous }]
      attach: [{ input: voxels, wait: false, max_age_ms: 500 }]";
    let own = Folder::new();
    let folder = own.0.join("recording");
    let messages = arrivals().into_iter().filter_map(|(name, message)| match name {
        "camera" => Some(("lidar", cloud(message.timestamp_ns()))),
        "joints" => Some((name, message)),
        _ => None,
    });
    let live = recorded(&folder, &["joints", "lidar"], VOXELS_TO_FUSE, messages.collect());
    assert_eq!(replayed(&folder, "arrival", VOXELS_TO_FUSE), live);
}

fn cloud(stamp_ns: i64) -> Message {
    let mut message = Message::default();
    message.rows = 1;
    message.header.timestamp_ns.set(stamp_ns);
    for name in ["x", "y", "z"] {
        let column = message.add_column(name, Dtype::Float32, Cells::One);
        column.data.copy_from(bytemuck::cast_slice(&[0.5f32]));
    }
    message
}

#[test]
fn arrivals_ascend_over_all_streams_and_are_optional() {
    let own = Folder::new();
    let with = own.0.join("with");
    let mut writer = Writer::create(&with).unwrap().with_arrivals();
    let start = Instant::now();
    // The stamps descend, two messages come at once, and the order of recording stays within a stream.
    for (i, (name, after)) in [("b", 0), ("a", 0), ("b", 5), ("a", 3), ("c", 9)]
        .into_iter()
        .enumerate()
    {
        let message = sample(100 - i as i64, &[i as f32]);
        writer
            .append(name, &message, start + Duration::from_millis(after))
            .unwrap();
    }
    writer.finish().unwrap();
    let read = |order| {
        let mut reader = Reader::open(&with).unwrap().in_order(order).unwrap();
        let (mut message, mut got) = (Message::default(), Vec::new());
        while reader.next_into(&mut message).unwrap().is_some() {
            got.push((
                message.flat().unwrap().as_slice::<f32>()[0],
                message.arrival_ns.unwrap(),
            ));
        }
        got
    };
    let by_arrival = read(Order::Arrival);
    assert_eq!(
        by_arrival.iter().map(|got| got.0).collect::<Vec<_>>(),
        [0.0, 1.0, 2.0, 3.0, 4.0]
    );
    assert!(by_arrival.windows(2).all(|pair| pair[0].1 < pair[1].1));
    assert!((by_arrival[2].1 - by_arrival[0].1 - 5 * MS).abs() < MS);
    assert!((by_arrival[0].1 - robocache::ops::clock::now_ns()).abs() < 60_000 * MS);
    assert_eq!(
        read(Order::Stamp).iter().map(|got| got.0).collect::<Vec<_>>(),
        [4.0, 1.0, 3.0, 0.0, 2.0]
    );

    let without = own.0.join("without");
    let mut writer = Writer::create(&without).unwrap();
    writer.append("a", &sample(1, &[1.0]), start).unwrap();
    writer.finish().unwrap();
    let mut message = Message::default();
    Reader::open(&without).unwrap().next_into(&mut message).unwrap();
    assert_eq!(message.arrival_ns, None);
    let refused = Reader::open(&without)
        .unwrap()
        .in_order(Order::Arrival)
        .err()
        .unwrap()
        .to_string();
    assert!(refused.ends_with(
        "a.arrow: no column `arrival_ns` (allowed: a recording that has it in every stream; otherwise the order `stamp`)"
    ));
    for (order, words) in [
        ("arrival", "replay: order: "),
        ("time", "`time` is not allowed (allowed: stamp, arrival)"),
    ] {
        let text = format!("\n  - replay: {{ path: {}, order: {order} }}", without.display());
        let refused = graph(&text, &[]).err().unwrap().to_string();
        assert!(refused.contains(words) && refused.contains("order"), "{refused}");
    }
}

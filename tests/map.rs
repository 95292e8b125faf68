//! The operation `map`: the messages that it takes, and the counter that each frame is counted in.

use crate::common::{Keeper, MS, faults, graph, graph_of, input, sample};
use robocache::app::{Change, Graph, Value};
use robocache::device::Dtype;
use robocache::ops::map;
use robocache::stream::{Layout, Message, MetadataRef, form};

const CONFIG: &str = "plugins:
  - map:
      frame: world
      voxel_size_m: 0.25
      shape: [4, 4, 8]
      origin_m: [-0.5, -0.5, 0]
      poses:
        base: { input: odometry, extrapolate_ms: 5 }
      inputs:
        - input: depth
          pose: base
          camera: { width: 2, height: 2, focal_px: [2, 2], principal_px: [0.5, 0.5], unit_m: 0.001 }
        - { input: lidar, extrinsic: { translation_m: [0.125, 0.125, 0.125] } }
      tsdf: { truncation_m: 0.5 }
      occupancy: { max_range_m: 4 }
      esdf: { from: occupancy, max_distance_m: 1, slice_m: [0.9, 1.6] }
      outputs: [tsdf, weight, occupancy, bits, esdf, esdf_slice]
";

/// A depth image of 2 x 2 pixels.
fn depth(stamp_ns: i64, millimetres: u16) -> Message {
    let mut message = Message::default();
    message.write(&Layout::flat(Dtype::UInt16, 4), |payload, header| {
        payload.column(0).copy_from_slice(&[millimetres; 4]);
        header.timestamp_ns.set(stamp_ns);
        header.shape.set([2, 2]);
    });
    message
}

fn cloud(stamp_ns: i64, points: &[[f32; 3]]) -> Message {
    let mut message = sample(stamp_ns, points.as_flattened());
    message.header.shape.set([points.len() as i64, 3]);
    message.header.fields.set(["x", "y", "z"]);
    message
}

fn pose(stamp_ns: i64, x: f32) -> Message {
    sample(stamp_ns, &[x, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
}

fn send(graph: &mut Graph, sink: &mut Keeper, name: &str, message: &Message) -> Vec<(String, Message)> {
    let input = input(graph, name);
    graph.message(input, message, sink);
    sink.take()
}

fn integer(message: &Message, key: &str) -> i64 {
    match message.header.get(key) {
        Some(MetadataRef::Integer(value)) => value,
        other => panic!("`{key}` is {other:?}"),
    }
}

#[test]
fn every_product_is_a_voxel_grid() {
    let (mut graph, mut sink) = (graph(CONFIG).unwrap(), Keeper::default());
    assert!(send(&mut graph, &mut sink, "depth", &depth(10 * MS, 1000)).is_empty());
    assert!(
        send(
            &mut graph,
            &mut sink,
            "lidar",
            &cloud(10 * MS, &[[0.0, 0.0, 1.5], [0.0, 0.0, f32::NAN]])
        )
        .is_empty()
    );
    // The pose at 10 ms is known once the sample behind it has come.
    assert!(send(&mut graph, &mut sink, "odometry", &pose(0, 0.0)).is_empty());
    let sent = send(&mut graph, &mut sink, "odometry", &pose(20 * MS, 0.0));
    let names: Vec<&str> = sent.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["tsdf", "weight", "occupancy", "bits", "esdf", "esdf_slice"]);
    let cells = 4 * 4 * 8;
    for (name, message) in &sent {
        let header = &message.header;
        assert_eq!(
            (message.timestamp_ns(), header.frame_id.get()),
            (10 * MS, Some("world")),
            "{name}"
        );
        let (shape, values): (&[i64], _) = match name.as_str() {
            "bits" => (&[4, 4, 8], cells / 8),
            "esdf_slice" => (&[1, 4, 4, 1], 16),
            _ => (&[1, 4, 4, 8], cells),
        };
        assert_eq!((header.shape.get(), message.rows), (Some(shape), values), "{name}");
        let channel = match name.as_str() {
            "bits" => "occupancy",
            "occupancy" => "occupancy_percent",
            name => name,
        };
        assert_eq!(form::channels.get(header).unwrap(), [channel]);
        let counts = [
            "frames_fused",
            "late_frames",
            "dropped_unposed",
            "points_in",
            "dropped_nonfinite",
            "rays",
            "epoch",
        ];
        assert_eq!(counts.map(|key| integer(message, key)), [2, 0, 0, 2, 1, 1, 0], "{name}");
        assert_eq!(map::key::corner_cell.get(header), Some(&[0, 0, 0][..]));
    }
    let values = |i: usize| sent[i].1.flat().unwrap();
    let at = |x: usize, y: usize, z: usize| (x * 4 + y) * 8 + z;
    // Of the column of cells about x = y = 0.125 m, one pixel sees all but the nearest. The surface is at 1 m, and cells are at
    // 0.125 m, 0.375 m, ...
    let column = |values: &[f32]| -> Vec<f32> { (0..8).map(|z| (values[at(2, 2, z)] * 1000.0).round()).collect() };
    assert_eq!(
        column(values(0).as_slice::<f32>()),
        [500.0, 500.0, 375.0, 125.0, -125.0, -375.0, 500.0, 500.0]
    );
    assert_eq!(
        column(values(1).as_slice::<f32>()),
        [0.0, 1000.0, 1000.0, 1000.0, 1000.0, 1000.0, 0.0, 0.0]
    );
    // The image passes cells up to 0.75 m and hits those within 0.25 m of 1 m. The ray goes from 0.125 m to 1.625 m.
    let percent: Vec<i8> = (0..8).map(|z| values(2).as_slice::<i8>()[at(2, 2, z)]).collect();
    assert_eq!(percent, [40, 40, 40, 70, 70, 40, 70, -1]);
    let bits = values(3).as_slice::<u8>();
    assert_eq!(bits[at(2, 2, 0) / 8], 0b0101_1000);
    // Distances in cells: 3, 2, 1, 0, 0, 1, 0, 1.
    assert_eq!(
        column(values(4).as_slice::<f32>()),
        [750.0, 500.0, 250.0, 0.0, 0.0, 250.0, 0.0, 250.0]
    );
    // Cells with centres between 0.9 and 1.6 m: those at 1.125 and 1.375 m.
    let slice = values(5).as_slice::<f32>();
    assert_eq!(slice[2 * 4 + 2], 0.0);
    let [origin, voxel] = [form::origin_m, form::voxel_size_m].map(|key| key.get(&sent[5].1.header).unwrap().to_vec());
    assert_eq!((origin, voxel), (vec![-0.5, -0.5, 1.0], vec![0.25, 0.25, 0.5]));
    assert_eq!(faults(&graph, "map: input `lidar`"), 0);
}

#[test]
fn every_frame_is_fused_or_counted() {
    let config = CONFIG.replace("outputs:", "max_wait_ms: 30\n      emit_every: 2\n      outputs:");
    let (mut graph, mut sink) = (
        graph_of(&config, |output| output == "weight").unwrap(),
        Keeper::default(),
    );
    send(&mut graph, &mut sink, "odometry", &pose(0, 0.0));
    // Frames of 10 ms to 100 ms, without clouds and with poses up to 50 ms.
    send(&mut graph, &mut sink, "odometry", &pose(50 * MS, 0.0));
    let mut sent = Vec::new();
    for ms in (10..=100).step_by(10) {
        sent.extend(send(&mut graph, &mut sink, "depth", &depth(ms * MS, 1000)));
    }
    // Due are those up to 70 ms: each second one is published. Poses are missing from 60 ms on.
    let stamps: Vec<i64> = sent.iter().map(|(_, message)| message.timestamp_ns() / MS).collect();
    assert_eq!(stamps, [20, 40, 60]);
    let counts = |key: &str| -> Vec<i64> { sent.iter().map(|(_, message)| integer(message, key)).collect() };
    assert_eq!(counts("frames_fused"), [2, 2, 1]);
    assert_eq!(counts("dropped_unposed"), [0, 0, 1]);
    // A frame that is late, and one that waits at the end.
    assert!(send(&mut graph, &mut sink, "depth", &depth(70 * MS, 1000)).is_empty());
    graph.parameter("max_wait_ms", &Value::Null, &mut sink);
    for name in ["depth", "lidar", "odometry"] {
        let input = input(&graph, name);
        graph.changed(input, Change::Closed, &mut sink);
    }
    let sent = sink.take();
    let stamps: Vec<i64> = sent.iter().map(|(_, message)| message.timestamp_ns() / MS).collect();
    assert_eq!(stamps, [80, 100]);
    let counts = |key: &str| -> Vec<i64> { sent.iter().map(|(_, message)| integer(message, key)).collect() };
    assert_eq!(
        (counts("late_frames"), counts("dropped_unposed")),
        (vec![1, 0], vec![2, 2])
    );
}

#[test]
fn messages_that_can_t_be_used_do_not_stop_the_map() {
    let (mut graph, mut sink) = (graph(CONFIG).unwrap(), Keeper::default());
    let mut wide = depth(0, 1000);
    wide.header.shape.set([1, 4]);
    for message in [&wide, &sample(0, &[1.0; 3]), &cloud(0, &[[0.0; 3]; 9])] {
        send(&mut graph, &mut sink, "depth", message);
    }
    assert_eq!(faults(&graph, "map: input `depth`"), 3);
    for values in [&[0.0; 6][..], &[0.0; 7], &[f32::NAN, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]] {
        send(&mut graph, &mut sink, "odometry", &sample(0, values));
    }
    assert_eq!(faults(&graph, "map: input `odometry`"), 3);
    // An image of float32 depths, and odometry with velocities.
    send(&mut graph, &mut sink, "lidar", &cloud(10 * MS, &[]));
    send(&mut graph, &mut sink, "depth", &sample(10 * MS, &[1.0; 4]));
    let mut odometry = [0.0; 13];
    odometry[6] = 1.0;
    let sent = send(&mut graph, &mut sink, "odometry", &sample(10 * MS, &odometry));
    assert_eq!(sent.len(), 6);
}

#[test]
fn a_map_that_stands_still_names_the_input_that_it_waits_for() {
    let (mut graph, mut sink) = (graph(CONFIG).unwrap(), Keeper::default());
    let start = std::time::Instant::now();
    let after = |ms: u64| start + std::time::Duration::from_millis(ms);
    graph.wake(start, true, &mut sink).unwrap();
    // The clock of the odometry is an hour behind.
    for i in 0..10 {
        send(&mut graph, &mut sink, "depth", &depth((3_600_000 + 10 * i) * MS, 1000));
        send(&mut graph, &mut sink, "lidar", &cloud((3_600_000 + 10 * i) * MS, &[]));
        send(&mut graph, &mut sink, "odometry", &pose(10 * i * MS, 0.0));
    }
    graph.wake(after(1000), true, &mut sink).unwrap();
    graph.wake(after(30_000), true, &mut sink).unwrap();
    assert!(sink.take().is_empty());
    let causes: Vec<String> = graph.causes().map(|(_, _, words)| words.to_owned()).collect();
    let expected = "its newest stamp is 3599.910 s behind the frames that wait";
    assert!(
        causes.iter().any(|cause| cause.contains("no step of the map for")),
        "{causes:?}"
    );
    assert!(
        causes
            .iter()
            .any(|cause| cause.contains(expected) || cause.contains("has sent nothing")),
        "{causes:?}"
    );
}

#[test]
fn poses_of_another_clock_are_named_though_frames_are_fused() {
    let config = CONFIG.replace("outputs:", "max_wait_ms: 30\n      outputs:");
    let (mut graph, mut sink) = (graph(&config).unwrap(), Keeper::default());
    let start = std::time::Instant::now();
    graph.wake(start, true, &mut sink).unwrap();
    for ms in (0..=9000).step_by(100) {
        send(&mut graph, &mut sink, "odometry", &pose(ms * MS, 0.0));
    }
    for ms in (0..=6000).step_by(100) {
        send(&mut graph, &mut sink, "depth", &depth(ms * MS, 1000));
        send(&mut graph, &mut sink, "lidar", &cloud(ms * MS, &[]));
    }
    graph
        .wake(start + std::time::Duration::from_millis(500), true, &mut sink)
        .unwrap();
    let causes: Vec<String> = graph.causes().map(|(_, _, words)| words.to_owned()).collect();
    let expected = "its newest pose is 3.000 s ahead of every frame";
    assert!(causes.iter().any(|cause| cause.contains(expected)), "{causes:?}");
}

//! The map of `examples/map.yml` against the table that the depth camera sees.

use robocache::device::Dtype;
use robocache::ops::map::{Map, MapConfig, MapProduct};
use robocache::stream::{Layout, Message};
use robocache_sim::config::SimConfig;
use robocache_sim::schedule::{Schedule, Sensor};
use robocache_sim::table::{DEPTH_HEIGHT, DEPTH_WIDTH, DepthCamera, camera_pose, camera_pose_values, distance_m};
use std::path::Path;

/// The section `map` of the example.
fn example() -> MapConfig {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/map/config.yml");
    let text = std::fs::read_to_string(path).expect("the example");
    let config: serde_yaml::Value = serde_yaml::from_str(&text).expect("YAML");
    serde_yaml::from_value(config["plugins"][0]["map"].clone()).expect("a map")
}

/// Fuses what the depth camera sees in `seconds`.
fn fused(config: &MapConfig, seconds: f64) -> Map {
    let mut sim = SimConfig {
        start_ns: Some(1_000_000_000),
        duration_s: Some(seconds),
        ..SimConfig::default()
    };
    let streams = &mut sim.streams;
    (streams.camera, streams.force, streams.proprio, streams.lidar) = (None, None, None, None);
    let camera = DepthCamera::new();
    let mut map = Map::new(config).expect("valid");
    let mut image = Message::default();
    for event in Schedule::new(&sim).expect("valid") {
        if event.sensor == Sensor::CameraPose {
            let [x, y, z, rotation @ ..] = camera_pose_values(event.true_ns);
            map.push_pose(0, event.stamp_ns, [x, y, z], rotation);
        } else {
            image.write(
                &Layout::flat(Dtype::UInt16, DEPTH_HEIGHT * DEPTH_WIDTH),
                |payload, header| {
                    camera.render(event.true_ns, payload.column(0));
                    header.timestamp_ns.set(event.stamp_ns);
                },
            );
            map.push(0, &image).expect("a frame");
        }
        while map.step().is_some() {}
    }
    map.set_open(0, false);
    map.set_open(1, false);
    while map.step().is_some() {}
    map
}

#[test]
fn surfaces_of_the_map_are_those_of_the_table() {
    let config = example();
    let mut map = fused(&config, 12.0);
    let counters = map.take_counters();
    assert_eq!(
        (counters.frames, counters.dropped_unposed, counters.late_frames),
        (180, 0, 0)
    );
    let [x, y, z] = config.shape;
    let (mut distances, mut weights) = (vec![0.0; x * y * z], vec![0.0; x * y * z]);
    map.write_f32(MapProduct::Tsdf, &mut distances);
    map.write_f32(MapProduct::Weight, &mut weights);
    let (origin, voxel) = (map.origin_m(), config.voxel_size_m);
    let mut errors = Vec::new();
    // Between two cells, one in front of a surface and one behind it, the surface is where the distance is 0.
    for cell in 0..x * y * z {
        for (axis, stride) in [(0, y * z), (1, z), (2, 1)] {
            let at = [cell / (y * z), cell / z % y, cell % z];
            if at[axis] + 1 == config.shape[axis] {
                continue;
            }
            let (near, far) = (distances[cell], distances[cell + stride]);
            if weights[cell].min(weights[cell + stride]) < 4.0 || (near > 0.0) == (far > 0.0) {
                continue;
            }
            let mut surface = std::array::from_fn(|i| origin[i] + (at[i] as f64 + 0.5) * voxel);
            surface[axis] += f64::from(near / (near - far)) * voxel;
            errors.push(distance_m(surface).abs());
        }
    }
    errors.sort_by(f64::total_cmp);
    let at = |part: f64| errors[(part * (errors.len() - 1) as f64) as usize];
    let [half, most, nearly_all] = [0.5, 0.8, 0.9].map(at);
    println!(
        "{} places of surfaces: {half} m, {most} m, {nearly_all} m",
        errors.len()
    );
    assert!(errors.len() > 3_000, "{}", errors.len());
    assert!(half < 0.02 * voxel, "half of the surfaces are within {half} m");
    // At edges, which hide what lies behind them, distances jump from one cell to the next.
    assert!(most < 0.25 * voxel, "80 % of the surfaces are within {most} m");
    assert!(
        nearly_all < 0.75 * voxel,
        "90 % of the surfaces are within {nearly_all} m"
    );
}

#[test]
fn the_camera_is_never_in_an_obstacle() {
    for t_ns in (0..1200).map(|i| i * 10_000_000) {
        assert!(distance_m(camera_pose(t_ns).translation) > 0.2);
    }
}

//! Tests of the section `sim:`: its defaults, and the key, value and range that an error names.

use super::*;

fn parse(yaml: &str) -> SimConfig {
    serde_yaml::from_str(yaml).expect("parses")
}

fn refusal(yaml: &str) -> String {
    parse(yaml).validate().expect_err(yaml).to_string()
}

#[test]
fn an_empty_section_is_the_default_and_valid() {
    let config = parse("{}");
    assert_eq!(config, SimConfig::default());
    assert_eq!(config.validate(), Ok(()));
    assert_eq!(
        (config.start_ns, config.real_time, config.duration_s),
        (None, true, None)
    );
}

#[test]
fn left_out_keeps_the_streams_default_and_null_switches_off() {
    let config = parse("streams: { camera: { rate_hz: 15 }, lidar: null, force: {} }");
    assert_eq!(
        config.streams.camera,
        Some(StreamConfig {
            rate_hz: 15.0,
            ..StreamConfig::camera()
        })
    );
    assert_eq!(config.streams.force, Some(StreamConfig::force()));
    assert_eq!(config.streams.proprio, Some(StreamConfig::proprio()));
    assert_eq!(config.streams.lidar, None);
}

#[test]
fn unknown_keys_and_wrong_types_name_themselves() {
    for (yaml, name) in [
        ("sed: 1", "sed"),
        ("streams: { radar: {} }", "radar"),
        ("streams: { camera: { latency_s: 1 } }", "latency_s"),
        ("streams: { camera: { dropouts: [{ start_s: 1, end_s: 2 }] } }", "end_s"),
        ("streams: { camera: { rate_hz: fast } }", "rate_hz"),
    ] {
        let error = serde_yaml::from_str::<SimConfig>(yaml).expect_err(yaml).to_string();
        assert!(error.contains(name), "{yaml}: {error}");
    }
}

#[test]
fn values_that_cannot_be_are_refused_with_key_value_and_range() {
    for (yaml, want) in [
        (
            "duration_s: 0",
            "sim.duration_s: 0 is not allowed, expected more than 0, up to 1000000000 s, or null",
        ),
        (
            "start_ns: -1",
            "sim.start_ns: -1 is not allowed, expected 0 to 4000000000000000000 ns, or null",
        ),
        (
            "streams: { camera: { rate_hz: 0 } }",
            "sim.streams.camera.rate_hz: 0 is not allowed, expected 0.001 to 10000 Hz",
        ),
        (
            "streams: { lidar: { rate_hz: 20 } }",
            "sim.streams.lidar.rate_hz: 20 is not allowed, expected 0.001 to 10 Hz",
        ),
        (
            "streams: { force: { jitter_ms: -0.1 } }",
            "sim.streams.force.jitter_ms: -0.1 is not allowed, \
             expected 0 ms to less than a sixth of the period, here 0.1667 ms",
        ),
        (
            "streams: { force: { drop_rate: 1 } }",
            "sim.streams.force.drop_rate: 1 is not allowed, \
             expected 0 to less than 1 (null for the stream switches it off)",
        ),
        (
            "streams: { proprio: { dropouts: [{ start_s: 1, duration_s: 1 }, { start_s: 2, duration_s: -1 }] } }",
            "sim.streams.proprio.dropouts[1].duration_s: -1 is not allowed, expected more than 0, up to 1000000000 s",
        ),
        (
            "streams: { camera: null, force: null, proprio: null, lidar: null, depth: null, camera_pose: null }",
            "sim.streams: null for all of them is not allowed, expected at least one stream",
        ),
    ] {
        assert_eq!(refusal(yaml), want);
    }
    for key in [
        "rate_hz",
        "clock_offset_ms",
        "jitter_ms",
        "latency_ms",
        "latency_jitter_ms",
        "drop_rate",
    ] {
        for value in [".nan", ".inf", "-.inf"] {
            let error = refusal(&format!("streams: {{ camera: {{ {key}: {value} }} }}"));
            assert!(error.starts_with(&format!("sim.streams.camera.{key}: ")), "{error}");
        }
    }
}

/// The node accepts the README's config.
#[test]
fn the_readmes_config_is_valid() {
    #[derive(Deserialize)]
    struct File {
        sim: SimConfig,
    }
    let readme = include_str!("../../README.md");
    let block = readme
        .split("```yaml\n")
        .find(|block| block.starts_with("sim:"))
        .expect("a block with sim:");
    let yaml = block.split("```").next().expect("an end");
    let file: File = serde_yaml::from_str(yaml).expect("parses");
    assert_eq!(file.sim.validate(), Ok(()));
    assert_eq!(
        SimConfig {
            duration_s: None,
            ..file.sim
        },
        SimConfig::default(),
        "it shows the defaults"
    );
}

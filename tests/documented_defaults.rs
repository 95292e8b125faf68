//! The tables of configuration keys in the nodes' READMEs agree with the code: which keys are required, and the defaults of
//! the optional keys.

use robocache::ops::align::{AlignConfig, AttachConfig, ModalityConfig};
use robocache::ops::clock::{ClockConfig, ClockInput};
use robocache::ops::group::{GroupingConfig, GroupingInput};
use robocache::ops::resample::ResampleConfig;
use robocache::ops::voxelize::VoxelizeConfig;
use robocache::time::Limits;
use serde::de::DeserializeOwned;
use serde_yaml::{Mapping, Value};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::Path;

/// Reads the keys and defaults of a table `| key | default | meaning |` in the README of a node. The `place` 0 is the table of
/// the node's section, 1 that of a modality.
fn table(node: &str, place: usize) -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("nodes/{node}/README.md"));
    let text = std::fs::read_to_string(path).unwrap();
    let after = text
        .split("| key | default | meaning |\n|---|---|---|\n")
        .nth(place + 1);
    let rows = after.unwrap().lines().take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>());
    cells
        .flat_map(|cells| {
            let keys: Vec<String> = cells[1].split(", ").map(|key| key.replace('`', "")).collect();
            keys.into_iter().map(move |key| (key, cells[2].clone()))
        })
        .collect()
}

fn parse<C: DeserializeOwned + Debug>(config: &Mapping) -> Result<String, String> {
    let parsed: C = serde_yaml::from_value(Value::Mapping(config.clone())).map_err(|error| error.to_string())?;
    Ok(format!("{parsed:?}"))
}

/// Compares a table of keys and defaults with the code. The YAML `required_only` has the required keys and no others.
fn check<C: DeserializeOwned + Debug>(rows: &[(String, String)], required_only: &str) {
    let required_only: Mapping = serde_yaml::from_str(required_only).unwrap();
    let without = parse::<C>(&required_only).unwrap();
    for (key, default) in rows {
        let mut changed = required_only.clone();
        if default.starts_with("required") {
            // A key that may stand in the groups instead is not required by this type.
            let is_conditional = default.contains(',');
            assert!(
                changed.remove(key).is_some(),
                "`{key}` is required, but not by this test"
            );
            assert!(
                parse::<C>(&changed).is_err() || is_conditional,
                "`{key}` is not required"
            );
            continue;
        }
        assert!(
            !required_only.contains_key(key),
            "`{key}` is in the least configuration, but has the default {default}"
        );
        let literal: Option<Value> = serde_yaml::from_str(default.trim_matches('`')).ok();
        match literal.filter(|value| !value.is_string() || default.starts_with('`')) {
            // The parsed configuration keeps this limit absent. `Limits` has its default.
            Some(value) if key == "extrapolate_ms" => assert_eq!(value.as_i64(), Some(Limits::default().extrapolate)),
            Some(value) if !default.is_empty() => {
                changed.insert(Value::from(key.as_str()), value);
                assert_eq!(
                    parse::<C>(&changed).unwrap(),
                    without,
                    "the default of `{key}` is not {default}"
                );
            }
            // A default in words, such as `no limit`: the parsed configuration keeps the key absent.
            _ => assert!(
                [format!("{key}: None"), format!("{key}: []")]
                    .iter()
                    .any(|absent| without.contains(absent)),
                "`{key}` has a default that is not {default:?}: {without}"
            ),
        }
    }
    let mut wrong = required_only;
    wrong.insert("no_such_key".into(), Value::Null);
    let refused = parse::<C>(&wrong).unwrap_err();
    let (_, expected) = refused.split_once("expected").unwrap();
    let known: BTreeSet<&str> = expected.split('`').skip(1).step_by(2).collect();
    let documented: BTreeSet<&str> = rows.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(documented, known);
}

#[test]
fn of_align_and_fuse() {
    check::<AlignConfig>(&table("fuse", 0), "{ rate_hz: 50, modalities: [] }");
    check::<ModalityConfig>(&table("fuse", 1), "{ input: camera, dim: 1, interpolation: linear }");
    check::<AttachConfig>(&table("fuse", 2), "{ input: voxels }");
}

#[test]
fn of_group() {
    check::<GroupingConfig>(&table("group", 0), "{ inputs: [] }");
    check::<GroupingInput>(&table("group", 1), "{ input: camera }");
}

#[test]
fn of_clock() {
    check::<ClockConfig>(&table("clock", 0), "{ inputs: [] }");
    check::<ClockInput>(&table("clock", 1), "{ input: imu }");
}

#[test]
fn of_resample() {
    check::<ResampleConfig>(&table("resample", 0), "{}");
}

#[test]
fn of_voxelize() {
    check::<VoxelizeConfig>(
        &table("voxelize", 0),
        "{ origin_m: [0, 0, 0], voxel_size_m: [1, 1, 1], shape: [1, 1, 1], channels: [count], layout: coo, inputs: [] }",
    );
}

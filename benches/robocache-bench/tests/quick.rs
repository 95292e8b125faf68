//! Tests that every part of robocache-bench runs with `--quick`, and prints rows with all keys, on the devices of this machine.

use serde_yaml::Value;
use std::process::Command;

const KEYS: [&str; 12] = [
    "op",
    "config",
    "backend",
    "scope",
    "us_p50",
    "us_p99",
    "us_early_off",
    "us_alone",
    "sets",
    "touched_bytes",
    "gbps",
    "of_copy",
];

fn bench(arguments: &[&str]) -> std::process::Output {
    let program = env!("CARGO_BIN_EXE_robocache-bench");
    Command::new(program)
        .args(arguments)
        .output()
        .expect("it is built before its tests")
}

#[test]
fn every_row_has_the_keys_and_every_operation_has_rows() {
    let done = bench(&[
        "--quick",
        "resample",
        "fuse",
        "live",
        "modes",
        "voxelize",
        "kinematics",
        "copies",
        "grids",
    ]);
    let (out, log) = (
        String::from_utf8(done.stdout).unwrap(),
        String::from_utf8_lossy(&done.stderr),
    );
    assert!(done.status.success(), "{log}");
    // JSON is YAML.
    let rows: Vec<Value> = out.lines().map(|line| serde_yaml::from_str(line).unwrap()).collect();
    for row in &rows {
        assert_eq!(row.as_mapping().unwrap().len(), KEYS.len());
        assert!(KEYS.iter().all(|key| row.get(key).is_some()), "{row:?}");
        assert!(row["us_p50"].as_f64().unwrap() > 0.0, "{row:?}");
        let is_device = row["scope"] == "device";
        for key in ["us_early_off", "us_alone", "sets"] {
            assert_eq!(row[key].is_number(), is_device, "{key}, {row:?}");
        }
    }
    for op in ["resample", "fuse", "voxelize"] {
        for backend in ["cpu"]
            .into_iter()
            .chain((!log.contains("without a GPU")).then_some("cuda"))
        {
            assert!(
                rows.iter().any(|row| row["op"] == op && row["backend"] == backend),
                "{op}, {backend}"
            );
        }
    }
}

#[test]
fn a_part_that_is_not_there_is_refused_by_name() {
    let done = bench(&["resampel"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&done.stderr).contains("there is no part \"resampel\" (allowed: ceilings, resample")
    );
}

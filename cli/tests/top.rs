//! Tests of `robocache top` on status files.

use crate::common::{Folder, run};
use robocache::app::{Level, Report, Row};
use serde_json::json;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

fn report(node: &str, level: Level) -> Report {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let row = Row {
        operation: node.into(),
        input: "force".into(),
        level,
        message: "why".into(),
        rate_hz: 999.7,
        ..Row::default()
    };
    Report {
        version: Report::VERSION,
        node: node.into(),
        timestamp_ns: now.as_nanos() as i64,
        level,
        message: "`force`: why".into(),
        observation_rate_hz: Some(9.5),
        wait_p50_ns: Some(1_500_000),
        device: "cpu".into(),
        inputs: vec![row],
        ..Report::default()
    }
}

fn write(folder: &Folder, report: &Report) {
    folder.write(
        &format!("{}.json", report.node),
        &serde_json::to_string(report).unwrap(),
    );
}

fn top(folder: &Path, option: &str) -> crate::common::Done {
    run(["top".as_ref(), folder.as_os_str(), option.as_ref()])
}

#[test]
fn a_line_for_each_node_and_input_is_printed() {
    let folder = Folder::new();
    write(&folder, &report("fuse", Level::Warn));
    let done = top(&folder.0, "--once");
    assert_eq!(done.code, 0, "{}", done.err);
    let lines: Vec<Vec<&str>> = done.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["warn", "fuse:", "`force`:", "why"]);
    assert_eq!(lines[3], ["fuse", "warn", "9.50", "1.50", "-", "cpu"]);
    assert_eq!(lines[4], ["force", "warn", "1000", "-", "-", "-", "0", "0", "0"]);
    assert_eq!(lines.len(), 5);

    let mut wide = report("robocache-voxelize", Level::Error);
    (wide.inputs[0].rate_hz, wide.inputs[0].valid_share) = (29.9, Some(0.0308));
    wide.inputs[0].input = "the lidar on the roof\u{1b}".into();
    wide.device = "cuda:0, 1.44 MB".into();
    write(&folder, &wide);
    let done = top(&folder.0, "--once");
    assert_eq!(done.code, 1);
    assert!(done.out.lines().all(|line| line.chars().count() <= 80), "{}", done.out);
    assert!(done.out.contains("`the lidar on the roof\\u{1b}`"), "{}", done.out);
}

#[test]
fn scripts_get_all_that_the_files_say() {
    let folder = Folder::new();
    write(&folder, &report("fuse", Level::Ok));
    folder.write("torn.json", "{ \"version\": 1,");
    folder.write("later.json", "{ \"version\": 7 }");
    let done = top(&folder.0, "--json");
    assert_eq!(done.code, 1);
    let nodes = &done.json()["nodes"];
    let of = |i: usize, key: &str| nodes[i][key].clone();
    assert_eq!(
        (of(0, "name"), of(0, "level"), of(0, "problem")),
        (json!("fuse"), json!("ok"), json!(null))
    );
    assert_eq!(nodes[0]["report"]["inputs"][0]["rate_hz"], 999.7);
    assert_eq!(
        of(1, "problem"),
        "its file is of version 7 (allowed: 1; update the node and this command to one robocache)"
    );
    assert_eq!((of(2, "name"), of(2, "level")), (json!("torn"), json!("stale")));
    assert!(
        of(2, "problem")
            .as_str()
            .unwrap()
            .starts_with("its file is not a status: EOF")
    );
}

#[test]
fn a_folder_that_is_not_there_is_refused_and_in_an_empty_one_nothing_is_well() {
    let folder = Folder::new();
    let done = top(&folder.0, "--once");
    assert_eq!(
        (done.code, done.out.contains("no node has written its status")),
        (1, true)
    );
    assert_eq!(top(&folder.0, "--json").code, 1);
    let done = top(&folder.path("nowhere"), "--once");
    assert_eq!((done.code, done.err.contains("nowhere")), (2, true), "{}", done.err);
    let done = run(["top".as_ref(), folder.0.as_os_str()]);
    assert_eq!(
        (done.code, done.err.contains("is not a terminal")),
        (2, true),
        "{}",
        done.err
    );
}

#[test]
fn prometheus_gets_its_figures() {
    let folder = Folder::new();
    let of_exporter = Folder::new();
    let file = of_exporter.path("robocache.prom");
    let words = [
        "top".as_ref(),
        folder.0.as_os_str(),
        "--prometheus".as_ref(),
        file.as_os_str(),
    ];
    write(&folder, &report("fuse", Level::Ok));
    let done = run(words.into_iter().chain(["--once".as_ref()]));
    assert_eq!((done.code, done.out.as_str()), (0, ""), "{}", done.err);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("\nrobocache_up{node=\"fuse\"} 1\n"), "{text}");
    write(&folder, &report("voxelize", Level::Error));
    let mut running = Command::new(env!("CARGO_BIN_EXE_robocache"))
        .args(words)
        .spawn()
        .unwrap();
    let start = Instant::now();
    while !std::fs::read_to_string(&file)
        .unwrap()
        .contains("robocache_level{node=\"voxelize\"} 2\n")
    {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(5));
    }
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(std::fs::read_dir(&of_exporter.0).unwrap().count(), 1);

    std::fs::write(&file, "mine").unwrap();
    let done = run(words);
    assert_eq!(
        (done.code, done.err.contains("is not a file of that kind")),
        (2, true),
        "{}",
        done.err
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

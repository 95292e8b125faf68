//! Tests that files of `robocache new` pass `check`; tests/test_cli.py runs them if dora is installed.

use crate::common::{Done, Folder, run};
use std::path::Path;

fn new(folder: &Path, words: &[&str]) -> Done {
    run(["new".as_ref(), folder.as_os_str()]
        .into_iter()
        .chain(words.iter().map(|word| word.as_ref())))
}

#[test]
fn what_is_written_has_no_mistake() {
    let lists: [&[&str]; 5] = [
        &[
            "--sensor",
            "force:6@1000",
            "--sensor",
            "camera:128@30",
            "--cloud",
            "lidar@10",
        ],
        &["--sensor", "joints:7@12.5"],
        &["--cloud", "front@10", "--cloud", "rear@5"],
        &["--sensor", "a:1@0.1", "--sensor", "b:1000@10000"],
        &["--sensor", "a:1000000@10", "--cloud", "lidar@10"],
    ];
    for words in lists {
        let folder = Folder::new();
        let robot = folder.path("robot");
        let done = new(&robot, words);
        assert_eq!(done.code, 0, "{}", done.err);
        assert_eq!(done.out.lines().count(), 4, "{}", done.out);
        assert!(done.err.contains("dora run "), "{}", done.err);
        let (config, dataflow) = (robot.join("robocache.yml"), robot.join("dataflow.yml"));
        let checked = run([
            "check".as_ref(),
            config.as_os_str(),
            "--dataflow".as_ref(),
            dataflow.as_os_str(),
            "--strict".as_ref(),
        ]);
        assert_eq!(
            (checked.code, checked.out.as_str()),
            (0, "0 errors, 0 warnings\n"),
            "{words:?}"
        );
        // Every node is restarted if it crashes, and nodes of robocache write their status.
        let text = std::fs::read_to_string(&dataflow).unwrap();
        let nodes = text.matches("  - id: ").count();
        assert_eq!(
            text.matches("    restart_policy: on-failure\n    max_restarts: 3\n")
                .count(),
            nodes
        );
        assert!(std::fs::read_to_string(&config).unwrap().contains("\nstatus: status "));
        assert!(done.err.contains("robocache top "), "{}", done.err);
        // No file is overwritten.
        let again = new(&robot, words);
        assert_eq!((again.code, again.out.as_str()), (2, ""));
        assert!(again.err.contains("dataflow.yml: it is there already"), "{}", again.err);
    }
}

#[test]
fn rates_choose_the_modes() {
    let folder = Folder::new();
    let done = new(
        &folder.path("robot"),
        &["--sensor", "force:6@1000", "--sensor", "camera:128@30", "--json"],
    );
    assert_eq!(done.json()["files"].as_array().unwrap().len(), 4);
    let config = std::fs::read_to_string(folder.path("robot/robocache.yml")).unwrap();
    assert!(
        config.contains("{ input: force, dim: 6, interpolation: linear, max_gap_ms: 20, extrapolate_ms: 5 }"),
        "{config}"
    );
    assert!(
        config.contains("{ input: camera, dim: 128, interpolation: previous, max_age_ms: 100 }"),
        "{config}"
    );
    assert!(
        config.contains("rate_hz: 50\n") && config.contains("max_wait_ms: 100 "),
        "{config}"
    );
}

#[test]
fn a_list_that_makes_no_sense_is_refused() {
    let cases: [(&[&str], &str); 9] = [
        (&[], "no sensor is given"),
        (&["--sensor", "force"], "allowed: NAME:DIM@RATE, such as force:6@1000"),
        (&["--sensor", "force:0@10"], "allowed: 1 to 1000000"),
        (&["--sensor", "force:6@fast"], "`fast` is not a rate"),
        (&["--cloud", "a/b@10"], "`a/b` is not a name"),
        (&["--cloud", "null@10"], "`null` is not text in YAML"),
        (&["--sensor", "1e3:6@10"], "`1e3` is not text in YAML"),
        (&["--cloud", "fuse@10"], "`fuse` is the name of a node"),
        (&["--sensor", "a:1@10", "--cloud", "a@10"], "`a` is given twice"),
    ];
    let folder = Folder::new();
    for (words, expected) in cases {
        let done = new(&folder.path("robot"), words);
        assert_eq!(done.code, 2, "{words:?}");
        assert!(done.err.contains(expected), "{words:?}: {}", done.err);
        assert!(!folder.path("robot").exists());
    }
}

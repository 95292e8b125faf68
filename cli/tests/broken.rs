//! Tests that every command that reads a damaged recording reports it: exit code 1, `problems` in JSON, a line in text.

use crate::common::{FUSE, Folder, MS, run, sample};
use robocache::prelude::*;
use std::path::Path;
use std::time::{Duration, Instant};

/// Writes a recording of two streams that move alike for 20 s, with the arrivals of messages.
fn record(folder: &Path) {
    let mut writer = recording::Writer::create(folder).unwrap().with_arrivals();
    let start = Instant::now();
    let wave = |i: i64| (i as f32 * 0.05).sin() + (i as f32 * i as f32 * 1e-4).sin();
    for i in 0..2000 {
        let now = start + Duration::from_millis(10 * i as u64);
        writer.append("a", &sample(i * 10 * MS, &[wave(i)]), now).unwrap();
        writer
            .append("b", &sample(i * 10 * MS, &[wave(i - 3), 0.0]), now)
            .unwrap();
        writer.tick(now).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn every_command_tells_what_it_could_not_read() {
    let folder = Folder::new();
    let at = folder.path("recording");
    record(&at);
    let config = folder.write("robocache.yml", FUSE);
    let (at, config) = (at.to_str().unwrap(), config.to_str().unwrap());
    let page = folder.path("page.html").to_str().unwrap().to_owned();
    let outs = ["out", "out.mcap", "tables", "dataset"].map(|name| folder.path(name).to_str().unwrap().to_owned());
    let commands: [&[&str]; 10] = [
        &["info", at],
        &["try", config, at],
        &["report", at, "-o", &page],
        &["report", at, "-o", &page, "--config", config],
        &["report", at, "-o", &page, "--channel", "a"],
        &["latency", at, "--a", "a[0]", "--b", "b[0]"],
        &["clock", at],
        &["convert", at, &outs[0]],
        &["convert", at, &outs[1]],
        &["convert", at, &outs[2], "--to", "csv"],
    ];
    let clear = || {
        for out in &outs {
            let _ = std::fs::remove_dir_all(out);
            let _ = std::fs::remove_file(out);
        }
    };
    for words in commands {
        let whole = run(words.iter().chain(&["--json"]).copied());
        assert_eq!(whole.code, 0, "{words:?}: {}{}", whole.out, whole.err);
        assert_eq!(whole.json()["problems"], serde_json::json!([]), "{words:?}");
        clear();
    }
    let file = Path::new(at).join("a.arrow");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() * 6 / 10]).unwrap();
    for words in commands {
        let broken = run(words.iter().chain(&["--json"]).copied());
        assert_eq!(broken.code, 1, "{words:?}: {}{}", broken.out, broken.err);
        let problems = broken.json()["problems"].clone();
        assert_eq!(problems.as_array().unwrap().len(), 1, "{words:?}: {problems}");
        assert!(
            problems[0].as_str().unwrap().contains("a.arrow: no valid footer"),
            "{words:?}: {problems}"
        );
        clear();
        let text = run(words);
        assert_eq!(text.code, 1, "{words:?}");
        assert!(text.out.contains("a.arrow: no valid footer"), "{words:?}: {}", text.out);
        clear();
    }
}

#[test]
fn a_stream_of_which_nothing_is_left_is_listed() {
    let folder = Folder::new();
    let at = folder.path("recording");
    record(&at);
    let file = at.join("a.arrow");
    let bytes = std::fs::read(&file).unwrap();
    // The schema is whole, but no batch is.
    std::fs::write(&file, &bytes[..900]).unwrap();
    let out = folder.path("out");
    let told = run(["convert", at.to_str().unwrap(), out.to_str().unwrap(), "--json"]);
    assert_eq!(told.code, 1);
    let streams = told.json()["streams"].clone();
    assert_eq!(
        (&streams[0]["name"], &streams[0]["messages"], &streams[1]["messages"]),
        (&"a".into(), &0.into(), &2000.into()),
        "{streams}"
    );
}

//! Tests of `robocache report`: its numbers, the data of the page, and the page in a browser.

use crate::common::{Done, FUSE, Folder, MS, half, record, record_robot, root, run, sample};
use robocache::ops::{self, align};
use robocache::prelude::*;
use robocache::stream::form;
use serde_json::Value;
use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::Command;

fn report(folder: &Folder, words: &[&str]) -> Done {
    let (recording, page) = (folder.path("recording"), folder.path("page.html"));
    let paths = [
        "report".as_ref(),
        recording.as_os_str(),
        "-o".as_ref(),
        page.as_os_str(),
    ];
    run(paths.into_iter().chain(words.iter().map(|word| OsStr::new(*word))))
}

fn page(folder: &Folder) -> String {
    std::fs::read_to_string(folder.path("page.html")).unwrap()
}

/// Parses the JSON data that a page holds for its script.
fn data(page: &str) -> Value {
    let (_, from) = page.split_once("id=\"data\">").unwrap();
    serde_json::from_str(from.split_once("</script>").unwrap().0).unwrap()
}

/// Removes the measured durations of a report, which differ from run to run.
fn lasting(mut report: Value) -> Value {
    report.as_object_mut().unwrap().remove("took_s");
    for of in report["observations"].as_array_mut().unwrap() {
        of.as_object_mut().unwrap().remove("compute_ms");
    }
    report
}

/// Returns the page after its script ran, in a Chromium without network; `None` if there is no Chromium.
fn opened(page: &Path) -> Option<String> {
    let Some(browser) = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| {
            Command::new(name)
                .arg("--version")
                .output()
                .is_ok_and(|done| done.status.success())
        })
    else {
        // The harness hides prints of tests that pass, but not this line.
        let _ = writeln!(
            std::io::stderr(),
            "report: skipped in a browser, as there is no chromium"
        );
        return None;
    };
    let profile = Folder::new();
    let log = profile.path("net.json");
    let done = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--no-first-run",
            "--disable-sync",
        ])
        .args([
            "--disable-component-update",
            "--disable-default-apps",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--enable-logging=stderr",
        ])
        .args(["--virtual-time-budget=5000", "--dump-dom"])
        .arg(format!("--log-net-log={}", log.display()))
        .arg(format!("--user-data-dir={}", profile.path("profile").display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    let (dom, said) = (
        String::from_utf8(done.stdout).unwrap(),
        String::from_utf8_lossy(&done.stderr),
    );
    assert!(done.status.success(), "{said}");
    assert!(!said.contains("CONSOLE"), "{said}");
    let requests = std::fs::read_to_string(log).unwrap();
    // The page may load nothing; attempts would appear in the console. Only the browser itself contacts its maker.
    let asked = requests
        .split("\"url\":\"http")
        .skip(1)
        .filter_map(|rest| rest.split('/').nth(2));
    let foreign: Vec<&str> = asked
        .filter(|host| ![".google.com", ".googleapis.com"].iter().any(|own| host.ends_with(own)))
        .collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    Some(dom)
}

#[test]
fn it_gives_the_causes_that_try_prints() {
    let folder = Folder::new();
    let a = (0..=100).map(|i| ("a", sample(i * 10 * MS, &[if i % 10 == 3 { f32::NAN } else { 1.0 }])));
    record(&folder.path("recording"), a);
    let config = folder.write("robot.yml", FUSE);
    let config = config.to_str().unwrap();
    let tried = run(["try", config, folder.path("recording").to_str().unwrap()]);
    let (_, causes) = tried.out.split_once("\n\nfuse: input `a`: 10 faults").unwrap();
    let (cause, _) = causes.split_once("\nnot in the recording: b\n").unwrap();
    let cause = cause.lines().nth(1).unwrap();
    assert!(
        cause.starts_with("  10, such as: ") && cause.contains("not finite"),
        "{cause}"
    );
    let done = report(&folder, &["--config", config]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(
        done.out.contains(cause) && done.out.contains("not in the recording: b"),
        "{}",
        done.out
    );
    let such_as = &data(&page(&folder))["figures"]["trial"]["faults"][0]["causes"][0]["such_as"];
    assert!(cause.ends_with(such_as.as_str().unwrap()), "{such_as}");
    if let Some(dom) = opened(&folder.path("page.html")) {
        assert!(dom.contains(&format!("<li>{}</li>", cause.trim())), "{dom}");
    }
}

#[test]
fn its_figures_are_those_of_try() {
    let folder = Folder::new();
    half(&folder);
    let config = folder.write("robot.yml", FUSE);
    let config = config.to_str().unwrap();
    let done = report(&folder, &["--config", config, "--json"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let tried = run(["try", config, folder.path("recording").to_str().unwrap(), "--json"]).json();
    let info = run(["info", folder.path("recording").to_str().unwrap(), "--json"]).json();
    let page = page(&folder);
    let data = data(&page);
    for figures in [done.json(), data["figures"].clone()] {
        assert_eq!(lasting(figures["trial"].clone()), lasting(tried.clone()));
        assert_eq!((&figures["info"], &figures["verdict"]), (&info, &tried["verdict"]));
    }
    assert_eq!(data["config"]["text"], FUSE);
    let fused = &data["outputs"][0];
    assert_eq!(
        (&fused["lanes"][0]["max_age_ms"], &fused["lanes"][1]["max_age_ms"]),
        (&Value::from(20.0), &Value::Null)
    );
    let stretch = &fused["stretches"][0];
    let column = |i: usize| stretch["columns"][i].as_array().unwrap();
    // Each of 200 observations is drawn: `a` is valid in all of them, `b` in half.
    assert_eq!(
        (
            stretch["times_s"].as_array().unwrap().len(),
            stretch["width_s"].as_f64()
        ),
        (200, Some(0.0))
    );
    assert_eq!(
        (&stretch["times_s"][99], &column(2)[99]),
        (&Value::from(1.0), &Value::from(100.0))
    );
    assert_eq!((&column(3)[99], &column(5)[99]), (&Value::from(1.0), &Value::from(1.0)));
    assert_eq!((&column(3)[100], &column(5)[100]), (&Value::from(0.0), &Value::Null));
    let Some(dom) = opened(&folder.path("page.html")) else {
        return;
    };
    assert!(dom.matches("<canvas").count() >= 5, "{dom}");
    assert!(dom.contains("no: of 200 observations on `fused`, the worst stream, `b`, is valid in 50.0 %"));
    assert!(dom.contains("fused: 200 observations, 100 Hz, "));
}

#[test]
fn the_demo_and_what_it_recorded_are_drawn() {
    let folder = Folder::new();
    let sim = "{ duration_s: 6, real_time: false, seed: 7, streams: { camera: { clock_offset_ms: 33 }, lidar: {} } }";
    record_robot(&folder.path("recording"), sim, &["camera", "force", "proprio", "lidar"]);
    let config = root().join("robocache.yml");
    let done = report(&folder, &["--config", config.to_str().unwrap()]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(
        done.out.contains("page.html: ") && done.out.contains("\nyes: of "),
        "{}",
        done.out
    );
    // Without a configuration, the streams are drawn as they were recorded, but not the clouds.
    let alone = report(&folder, &[]);
    assert_eq!(alone.code, 0, "{}", alone.err);
    let data = data(&page(&folder));
    let names: Vec<&str> = data["outputs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| of["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["camera", "force", "proprio"]);
    assert!(
        data["figures"]["not_drawn"]["lidar"]
            .as_str()
            .unwrap()
            .contains("rows is not a sample")
    );
    // 6,000 samples are more than can be drawn one by one.
    let force = &data["outputs"][1]["stretches"][0];
    assert!(force["width_s"].as_f64().unwrap() > 0.0 && force["times_s"].as_array().unwrap().len() <= 4000);
    if let Some(dom) = opened(&folder.path("page.html")) {
        assert!(dom.contains("camera, the first 8 of 128 channels") && dom.contains("Two points stand for up to "));
    }
}

/// Uses recorded observations of a node, and its diagnostics.
#[test]
fn recorded_observations_and_diagnostics_are_used() {
    let folder = Folder::new();
    let observation = |i: i64| {
        let mut message = Message::default();
        message.write(&Layout::flat(Dtype::Float32, 6), |payload, header| {
            payload
                .column(0)
                .copy_from_slice(&[9.0f32, 9.0, 9.0, i as f32, 2.0, 3.0]);
            header.timestamp_ns.set(i * 10 * MS);
            header.timestamps_ns.set([(i - 1) * 10 * MS, i * 10 * MS]);
            header.shape.set([2, 3]);
            form::modalities.set(header, ["arm", "hand"]);
            align::key::offsets.set(header, [0, 1, 3]);
            header.valid.set([0, 0, 1, i64::from(i % 4 > 0)]);
            form::age_ns.set(header, [-1, -1, MS, -1]);
            align::key::wait_ns.set(header, 2 * MS);
            ops::key::compute_us.set(header, 40.0);
            ops::key::epoch.set(header, i / 50);
        });
        message
    };
    let said = |i: i64| {
        let mut message = Message::default();
        let column = |name: &'static str, dtype, cells| ColumnLayout {
            name: name.into(),
            dtype,
            cells,
        };
        let layout = Layout {
            rows: 1,
            columns: vec![
                column("input", Dtype::UInt8, Cells::Text(3)),
                column("level", Dtype::UInt8, Cells::One),
                column("messages", Dtype::UInt64, Cells::One),
                column("rate_hz", Dtype::Float64, Cells::One),
                column("delay_p50_ns", Dtype::Int64, Cells::One),
                column("late", Dtype::UInt64, Cells::One),
            ],
        };
        message.write(&layout, |_, header| {
            header.timestamp_ns.set(i * 1000 * MS);
            header.set("wait_p99_ns", MetadataRef::Integer(7 * MS));
            header.set("compute_p50_us", MetadataRef::Float(250.0));
        });
        let columns = message.columns_mut();
        columns[0].data.bytes_mut().copy_from_slice(b"arm");
        columns[0].offsets.copy_from_slice(&[0, 3]);
        columns[2].data.as_mut_slice::<u64>()[0] = 100 * i as u64;
        columns[4].data.as_mut_slice::<i64>()[0] = 5 * MS;
        message
    };
    let observations = (0..100).map(|i| ("fused", observation(i)));
    record(
        &folder.path("recording"),
        observations.chain((0..3).map(|i| ("diagnostics", said(i)))),
    );
    let done = report(&folder, &["--json"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let figures = done.json();
    assert_eq!(
        figures["verdict"],
        "as recorded: of 100 observations on `fused`, the worst stream, `hand`, is valid in 75.0 %"
    );
    let fused = &figures["recorded"][0];
    assert_eq!(
        (&fused["wait_ms"]["p99"], &fused["compute_ms"]["max"], &fused["epoch"]),
        (&2.0.into(), &0.04.into(), &1.into())
    );
    let data = data(&page(&folder));
    assert_eq!(data["outputs"].as_array().unwrap().len(), 1);
    let stretch = &data["outputs"][0]["stretches"][0];
    assert_eq!(
        (
            &stretch["columns"][2][7],
            &stretch["columns"][5][7],
            &stretch["columns"][5][8]
        ),
        (&7.0.into(), &2.0.into(), &Value::Null)
    );
    assert_eq!(
        data["outputs"][0]["epochs"],
        serde_json::json!([{ "at_s": 0.5, "epoch": 1 }])
    );
    let said = &data["diagnostics"][0];
    assert_eq!(
        (&said["stream"], &said["inputs"]["arm"]["numbers"]["messages"]),
        (&"diagnostics".into(), &200.0.into())
    );
    let charts: Vec<(&str, f64)> = said["charts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|chart| {
            (
                chart["name"].as_str().unwrap(),
                chart["stretches"][0]["columns"][0][2].as_f64().unwrap(),
            )
        })
        .collect();
    assert_eq!(charts, [("wait p99", 7.0), ("compute p50", 0.25), ("arm", 5.0)]);
    if let Some(dom) = opened(&folder.path("page.html")) {
        assert!(dom.contains("Diagnostics: diagnostics") && dom.contains("fused, as recorded"));
    }
}

#[test]
fn channels_are_named_in_the_order_asked_for() {
    let folder = Folder::new();
    let mut tensor = Message::default();
    let mut observation = Message::default();
    let messages = (0..20).flat_map(|i| {
        tensor.write(&Layout::flat(Dtype::Float64, 2), |payload, header| {
            payload.column(0).copy_from_slice(&[i as f64, 2.0]);
            header.timestamp_ns.set(i * 10 * MS);
            header.fields.set(["x", "y"]);
        });
        observation.write(&Layout::flat(Dtype::Float32, 6), |payload, header| {
            payload
                .column(0)
                .copy_from_slice(&[0.0f32, 0.0, 0.0, 1.0, i as f32, 3.0]);
            header.timestamp_ns.set(i * 10 * MS);
            header.timestamps_ns.set([(i - 1) * 10 * MS, i * 10 * MS]);
            form::modalities.set(header, ["arm", "hand"]);
            align::key::offsets.set(header, [0, 1, 3]);
            header.valid.set([1, 1, 1, i64::from(i < 15)]);
            form::age_ns.set(header, [0, 0, 0, 0]);
        });
        let copy = |message: &Message| {
            let mut copy = Message::default();
            copy.copy_from(message);
            copy
        };
        [("imu", copy(&tensor)), ("fused", copy(&observation))]
    });
    record(&folder.path("recording"), messages);
    let names = ["imu.y", "fused.hand[0]", "imu[0]", "fused.arm"];
    let done = report(&folder, names.map(|name| ["--channel", name]).as_flattened());
    assert_eq!(done.code, 0, "{}", done.err);
    let data = data(&page(&folder));
    let channels = data["channels"].as_array().unwrap();
    let names: Vec<&str> = channels.iter().map(|line| line["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["imu.y", "fused.hand[0]", "imu.x", "fused.arm"]);
    // The newest row of each window is drawn; from the fifteenth on it is masked.
    let hand: Vec<Option<i64>> = (0..20).map(|i| Some(i).filter(|i| *i < 15)).collect();
    let drawn = channels[1]["stretches"][0]["columns"][0].as_array().unwrap();
    assert_eq!(
        drawn
            .iter()
            .map(|value| value.as_f64().map(|value| value as i64))
            .collect::<Vec<_>>(),
        hand
    );
    if let Some(dom) = opened(&folder.path("page.html")) {
        assert!(dom.contains(">imu.y<") && dom.contains(">fused.hand[0]<"), "{dom}");
    }
    for (channel, expected) in [
        ("imu.z", "`imu.z`: no field `z` (allowed: x, y)"),
        ("imu[2]", "`imu[2]`: 2 values, none at 2 (allowed: 0 to 1)"),
        ("imu[-1]", "the index is not a number (allowed: 0, 1, ...)"),
        ("gps", "`gps`: no such stream (allowed: fused, imu)"),
        ("imux", "`imux`: no such stream"),
        ("imu]", "`imu]`: no such stream"),
    ] {
        let done = report(&folder, &["--channel", channel]);
        assert_eq!((done.code, done.out.as_str()), (2, ""), "{}", done.err);
        assert!(done.err.contains(expected), "{}", done.err);
    }
}

#[test]
fn channels_of_several_streams_share_a_chart() {
    let folder = Folder::new();
    let value = |i: i64| match i {
        40..50 => f32::NAN,
        _ => i as f32,
    };
    // `a.b` is NaN from 400 to 490 ms, and missing from 700 to 790 ms; the clock of `c` is set back by a minute.
    let a = (0..70).chain(80..100);
    let a = a.map(|i| ("a.b", sample(i * 10 * MS, &[value(i), f32::MAX])));
    let c = (0..100).map(|i| ("c", sample((i * 7 - i / 50 * 60_000) * MS, &[f32::INFINITY])));
    record(&folder.path("recording"), a.chain(c));
    let done = report(&folder, &["--channel", "a.b", "--channel", "c"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let data = data(&page(&folder));
    let channels = data["channels"].as_array().unwrap();
    let parts: Vec<usize> = channels
        .iter()
        .map(|line| line["stretches"].as_array().unwrap().len())
        .collect();
    assert_eq!(parts, [1, 1, 2]);
    let drawn = channels[0]["stretches"][0]["columns"][0].as_array().unwrap();
    // There are 90 samples, and a point for the gap.
    assert_eq!(
        (drawn.len(), drawn.iter().filter(|value| value.is_null()).count()),
        (91, 11)
    );
    if let Some(dom) = opened(&folder.path("page.html")) {
        assert!(dom.contains(">a.b[1]<") && dom.contains(">c[0], part 2<"), "{dom}");
    }
}

#[test]
fn names_are_texts_and_nothing_else() {
    let folder = Folder::new();
    let hostile = [
        "<script>alert(1)<",
        "a&b\"'<img src=x onerror=alert(1)>",
        "]]>--><!--",
        "$&`${x}",
    ];
    let streams = hostile
        .iter()
        .flat_map(|&name| (0..20).map(move |i| (name, sample(i * 10 * MS, &[1.0]))));
    record(&folder.path("recording"), streams);
    let config = "fuse:\n  rate_hz: 100\n  modalities:\n    - { input: '</script><script>alert(1)</script>', dim: 1, interpolation: previous }\n";
    let config = folder.write("</script><b>.yml".replace('/', "|").as_str(), config);
    let done = report(&folder, &["--config", config.to_str().unwrap()]);
    assert_eq!(done.code, 0, "{}", done.err);
    let text = page(&folder);
    // The page closes only its own three elements `script`.
    assert_eq!(text.matches("</script>").count(), 3);
    let Some(dom) = opened(&folder.path("page.html")) else {
        return;
    };
    assert!(
        !dom.contains("<img") && dom.contains("&lt;img src=x onerror=alert(1)&gt;"),
        "{dom}"
    );
    assert_eq!(report(&folder, &[]).code, 0);
    let dom = opened(&folder.path("page.html")).unwrap();
    assert!(!dom.contains("<img") && dom.matches("<canvas").count() == 4, "{dom}");
}

#[test]
fn what_can_not_be_written_is_refused() {
    let folder = Folder::new();
    half(&folder);
    let recording = folder.path("recording");
    let recording = recording.to_str().unwrap();
    let own = folder.path("recording/a.arrow");
    let before = std::fs::read(&own).unwrap();
    let cases = [
        (
            vec!["report", recording, "-o", own.to_str().unwrap()],
            "it is there and is not a file of that kind (allowed: a new file, ",
        ),
        (vec!["report", "nowhere"], "nowhere: "),
        (
            vec!["report", recording, "-o", "/nowhere/page.html"],
            "/nowhere/page.html: ",
        ),
        (vec!["report", recording, "--config", "nowhere.yml"], "nowhere.yml"),
    ];
    for (words, expected) in cases {
        let done = run(words);
        assert_eq!((done.code, done.out.as_str()), (2, ""), "{}", done.err);
        assert!(done.err.contains(expected), "{}", done.err);
    }
    assert_eq!(std::fs::read(own).unwrap(), before);
    for _ in 0..2 {
        assert_eq!(report(&folder, &[]).code, 0);
    }
}

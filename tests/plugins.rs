//! The sources of a plugin's configuration, and the names of operations, outputs and parameters.

use crate::common::{Folder, Keeper, MS, Recorder, faults, graph, input, sample};
use robocache::app::plugins::{self, FusePlugin, RecordConfig, RecordPlugin};
use robocache::app::{App, AppError, Config, Graph, Plugin, Value};
use robocache::ops::align::AlignConfig;
use robocache::stream::recording::{Order, Reader};
use robocache::stream::{Message, Width};
use std::path::Path;

const ONE: &str = "rate_hz: 100, modalities: [{ input: force, dim: 1, interpolation: previous }]";

fn config(input: &str) -> AlignConfig {
    serde_yaml::from_str(&format!("{{ {} }}", ONE.replace("force", input))).unwrap()
}

fn file(text: &str) -> Config {
    Config::parse(Path::new("robot.yml"), text).unwrap()
}

fn refused(built: Result<Graph, AppError>) -> String {
    let error = built.err().unwrap();
    assert!(error.is_config());
    error.to_string()
}

fn names(graph: &Graph) -> (Vec<&str>, Vec<&str>) {
    let inputs = graph.external_inputs().map(|(input, _)| input);
    (inputs.collect(), graph.outputs().collect())
}

#[test]
fn observations_that_the_transport_can_not_carry_are_refused_before_the_start() {
    let build = |plugin: &str| {
        let limit = |output: &str, bytes| match (output, bytes) {
            ("fused" | "force", 400..) => Err("dora carries at most 399".to_owned()),
            _ => Ok(()),
        };
        let text = format!("{plugin}: {{ window: 100, {ONE} }}");
        let app = App::new().with_config(file(&text)).with_message_limit(limit);
        app.add_plugins(plugins::all().into_iter().filter(|known| known.name() == plugin))
            .build(|_| true)
    };
    for (plugin, output) in [("fuse", "fused"), ("align", "force")] {
        let words = format!(
            "robot.yml: {plugin}: window: 100 rows of 1 columns are 400 bytes on `{output}` (dora carries at most 399)"
        );
        assert_eq!(refused(build(plugin)), words);
    }
}

#[test]
fn an_operation_runs_twice_under_names_of_its_own() {
    let text = format!(
        "plugins:
  - fuse: {{ name: wrist, {ONE} }}
  - fuse: {{ name: arm, {} }}
  - fuse: {{ {} }}",
        ONE.replace("force", "joints"),
        ONE.replace("force", "wrist/fused")
    );
    let mut graph = graph(&text).unwrap();
    assert_eq!(
        names(&graph),
        (vec!["force", "joints"], vec!["wrist/fused", "arm/fused", "fused"])
    );
    let (force, mut sink) = (input(&graph, "force"), Recorder::default());
    graph.message(force, &sample(10 * MS, &[3.0]), &mut sink);
    let sent = sink.take();
    let outputs: Vec<_> = sent
        .iter()
        .map(|sent| (sent.output.as_str(), sent.values[0], sent.ms()))
        .collect();
    assert_eq!(outputs, [("wrist/fused", 3.0, 10.0), ("fused", 3.0, 10.0)]);
    graph.message(force, &sample(20 * MS, &[3.0, 4.0]), &mut sink);
    assert_eq!(faults(&graph, "wrist: input `force`"), 1);
}

/// A live parameter whose name begins with the name of an operation is set in that operation alone.
#[test]
fn a_live_parameter_goes_to_the_operation_of_its_name() {
    let late = "rate_hz: 100, modalities: [
        { input: a, dim: 1, interpolation: previous }, { input: b, dim: 1, interpolation: previous } ]";
    let text = format!("plugins: [fuse: {{ name: wrist, {late} }}, fuse: {{ {late} }}]");
    let published = |key: &str| {
        let mut graph = graph(&text).unwrap();
        let mut sink = Recorder::default();
        graph.parameter(key, &Value::from(5), &mut sink);
        let (a, b) = (input(&graph, "a"), input(&graph, "b"));
        graph.message(b, &sample(0, &[1.0]), &mut sink);
        graph.message(a, &sample(0, &[1.0]), &mut sink);
        graph.message(a, &sample(16 * MS, &[1.0]), &mut sink);
        let late = sink.take().into_iter().filter(|sent| sent.ms() > 0.0);
        late.map(|sent| sent.output).collect::<Vec<_>>()
    };
    assert_eq!(published("wrist.max_wait_ms"), ["wrist/fused"]);
    assert_eq!(published("fuse.max_wait_ms"), ["fused"]);
    assert_eq!(published("max_wait_ms"), ["wrist/fused", "fused"]);
    assert_eq!(published("arm.max_wait_ms"), [] as [&str; 0]);
}

#[test]
fn a_program_gives_its_plugins_their_configuration_and_needs_no_file() {
    let app = App::new()
        .add_plugin(FusePlugin::new(config("force")))
        .add_plugin(FusePlugin::new(config("fused")).with_name("again"));
    let graph = app.build(|_| true).unwrap();
    assert_eq!(names(&graph), (vec!["force"], vec!["fused", "again/fused"]));
    // Plugins that a program configures run beside a file, whether it lists them or not.
    let text = format!("plugins: [fuse: {{ {} }}]", ONE.replace("force", "mine/fused"));
    let app = App::new()
        .with_config(file(&text))
        .add_plugins(plugins::all())
        .add_plugin(FusePlugin::new(config("force")).with_name("mine"));
    let graph = app.build(|_| true).unwrap();
    assert_eq!(names(&graph), (vec!["force"], vec!["mine/fused", "fused"]));
}

#[test]
fn a_check_touches_nothing() {
    let folder = Folder::new();
    let path = folder.0.join("recording");
    let app = App::new().add_plugin(RecordPlugin::new(RecordConfig {
        path: path.clone(),
        inputs: None,
    }));
    assert_eq!(names(&app.check().unwrap()), (vec![], vec![]));
    assert!(!path.exists());
}

#[test]
fn what_names_and_configurations_cannot_be_is_said() {
    let built = |text: &str| graph(text);
    assert_eq!(
        refused(built(&format!("plugins: [fuse: {{ name: my wrist, {ONE} }}]"))),
        "robot.yml: fuse: name: `my wrist` is not a name (allowed: letters a to z, digits, `_` and `-`)"
    );
    assert_eq!(
        refused(built(&format!("plugins: [fuse: {{ name: 7, {ONE} }}]"))),
        "robot.yml: fuse: name: 7 is not a name (allowed: text)"
    );
    let twice = format!("plugins: [fuse: {{ name: a, {ONE} }}, fuse: {{ name: a, {ONE} }}]");
    assert!(refused(built(&twice)).contains("two of them publish `a/fused`"));
    let wrong = ONE.replace("dim: 1", "dim: 0");
    assert!(
        refused(built(&format!("plugins: [fuse: {{ name: wrist, {wrong} }}]")))
            .starts_with("robot.yml: fuse `wrist`: modalities[0].dim: 0 (allowed")
    );
    assert_eq!(
        refused(App::new().add_plugin(FusePlugin::default()).build(|_| true)),
        "the program: configuration: the section `fuse:` is missing"
    );
}

#[test]
fn what_is_said_of_an_input_s_payload_is_refused_by_its_key() {
    let fuse = |more: &str| {
        format!(
            "fuse: {{ {} }}",
            ONE.replace("interpolation", &format!("{more}, interpolation"))
        )
    };
    let voxelize = |more: &str| {
        format!(
            "voxelize: {{ origin_m: [0, 0, 0], voxel_size_m: [1, 1, 1], shape: [2, 2, 2], channels: [count], layout: coo,
              inputs: [{{ input: lidar, {more} }}] }}"
        )
    };
    let names = "names: { key: name, order: [a, b] }";
    let cases = [
        (
            fuse("from: { column: [a] }"),
            "fuse: modalities[0].from.column: unknown key `column`, did you mean `columns`? (allowed: columns, names, stamp)",
        ),
        (
            fuse("from: {}"),
            "fuse: modalities[0].from.columns: neither `columns` nor a `stamp` is given",
        ),
        (
            fuse("from: { columns: [a..b] }"),
            "modalities[0].from.columns[0]: `a..b` is not a path",
        ),
        (
            fuse(&format!("from: {{ columns: [a], {names} }}")),
            "modalities[0].from.names.order: 2 names of 1 columns are 2 values (allowed: 1, the `dim`)",
        ),
        (
            fuse("from: { stamp: { metadata: t, unit: h } }"),
            "modalities[0].from.stamp: allowed: a path such as `header.stamp`, `{ path: PATH, unit: s | ms | us | ns }`, or `{ metadata: KEY, unit: ... }`",
        ),
        (
            voxelize(&format!("from: {{ columns: [a], {names} }}")),
            "voxelize: inputs[0].from.names: points have no names (allowed: `from.names` of a modality)",
        ),
        (
            format!("plugins: [align: {{ {ONE} }}, {}]", fuse("from: { columns: [a] }")),
            "the input `force` of `fuse` comes from another operation of this process",
        ),
        (
            format!(
                "plugins: [fuse: {{ name: wrist, {ONE} }}, {}]",
                fuse("from: { columns: [a] }")
            ),
            "operations read the messages of input `force` in different ways (needed: an input of its own",
        ),
    ];
    for (text, wanted) in cases {
        let text = match text.starts_with("plugins") {
            true => text,
            false => format!("plugins: [{text}]"),
        };
        let words = refused(graph(&text));
        assert!(words.contains(wanted), "{text}: {words}\nnot {wanted}");
    }
    // Two operations may take the same samples of an input.
    let text = format!("plugins: [fuse: {{ name: wrist, {ONE} }}, fuse: {{ {ONE} }}]");
    let graph = graph(&text).unwrap();
    assert_eq!(
        graph.selection(input(&graph, "force")).unwrap().samples,
        Some(Width::Of(1))
    );
}

/// A recorder in the process of other operations records their outputs just as a recorder in its own process does. It records
/// outputs after the messages that caused them.
#[test]
fn a_recorder_takes_outputs_of_operations_beside_it() {
    let folder = Folder::new();
    let (beside, alone) = (folder.0.join("beside"), folder.0.join("alone"));
    let wired = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let text = format!(
        "plugins:
  - fuse: {{ {ONE} }}
  - fuse: {{ name: wrist, {ONE} }}
  - record: {{ path: {}, inputs: [force, fused, wrist/fused] }}",
        beside.display()
    );
    let mut both = App::new()
        .with_config(file(&text))
        .add_plugins(plugins::all())
        .with_wired_inputs(wired(&["force", "other"]))
        .build(|output| output == "fused")
        .unwrap();
    both.gather_diagnostics();
    assert_eq!(names(&both).0, ["force"]);
    let text = format!("plugins: [record: {{ path: {} }}]", alone.display());
    let mut recorder = App::new()
        .with_config(file(&text))
        .add_plugins(plugins::all())
        .with_wired_inputs(wired(&["force", "fused", "wrist.fused"]))
        .build(|_| true)
        .unwrap();
    let mut sink = Keeper::default();
    for i in 0..50 {
        let message = sample(i * 7 * MS, &[i as f32]);
        both.message(input(&both, "force"), &message, &mut sink);
        recorder.message(input(&recorder, "force"), &message, &mut Keeper::default());
        for (output, message) in sink.0.drain(..) {
            for name in [output.clone(), format!("wrist.{output}")] {
                recorder.message(input(&recorder, &name), &message, &mut Keeper::default());
            }
        }
    }
    let report = both.report(std::time::Instant::now()).unwrap();
    let rows = report.inputs.iter().filter(|row| row.operation == "record");
    let counts: Vec<_> = rows.map(|row| (row.input.as_str(), row.messages)).collect();
    assert_eq!((counts[0], counts.len()), (("force", 50), 3));
    assert!(counts[1].1 > 30 && counts[1].1 == counts[2].1, "{counts:?}");
    // fuse publishes its last observation when its input closes, before the recorder is closed.
    both.close_all(&mut sink);
    for (output, message) in sink.0.drain(..) {
        for name in [output.clone(), format!("wrist.{output}")] {
            recorder.message(input(&recorder, &name), &message, &mut Keeper::default());
        }
    }
    both.finish(&mut sink).unwrap();
    recorder.close_all(&mut sink);
    recorder.finish(&mut sink).unwrap();
    assert!(both.faults().chain(recorder.faults()).all(|(_, count)| count == 0));

    let read = |folder: &Path, order: Order| {
        let mut reader = Reader::open(folder).unwrap().in_order(order).unwrap();
        let streams: Vec<String> = reader.streams().map(str::to_owned).collect();
        let (mut message, mut came) = (Message::default(), Vec::new());
        while let Some(stream) = reader.next_into(&mut message).unwrap() {
            let mut said: Vec<String> = Vec::new();
            for (name, value) in message.header.iter().filter(|(name, _)| *name != "compute_us") {
                said.push(format!("{name}: {value:?}"));
            }
            came.push((
                streams[stream].clone(),
                said,
                message.columns()[0].data.bytes().to_vec(),
            ));
        }
        came
    };
    assert_eq!(read(&beside, Order::Stamp), read(&alone, Order::Stamp));
    let arrived = read(&beside, Order::Arrival);
    assert!(arrived.len() > 110, "{}", arrived.len());
    // A message that made the first observation due came before it.
    let first_fused = arrived.iter().position(|(stream, ..)| stream == "fused").unwrap();
    assert!(arrived[..first_fused].iter().any(|(stream, ..)| stream == "force"));
}

#[test]
fn a_recorder_refuses_what_can_t_be_a_stream() {
    let refused = |inputs: &str| {
        let folder = Folder::new();
        let path = folder.0.join("recording");
        let text = format!("plugins: [record: {{ path: {}, inputs: {inputs} }}]", path.display());
        let built = App::new()
            .with_config(file(&text))
            .add_plugins(plugins::all())
            .build(|_| true);
        self::refused(built)
    };
    assert!(refused("[a/b, a.b]").contains("two of them are the stream `a.b`"));
    assert!(refused("[]").contains("no input"));
}

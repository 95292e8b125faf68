//! Tests of the plugin `force_mean` alone, and of the example's configuration, where fuse reads the mean within the process.

use super::*;
use std::path::Path;

const MS: i64 = 1_000_000;

/// Sink that keeps the output name and the values of each published message.
#[derive(Default)]
struct Published(Vec<(String, Vec<f32>)>);

impl Sink for Published {
    fn send(
        &mut self,
        output: &str,
        layout: &Layout,
        fill: &mut dyn FnMut(&mut Payload<'_>, &mut Header),
    ) -> Result<(), Fault> {
        let mut message = Message::default();
        message.write(layout, fill);
        let values = message.flat().ok_or("a struct")?.as_slice().to_vec();
        self.0.push((output.to_owned(), values));
        Ok(())
    }
}

fn build(config: &str, published: &'static str) -> Result<Graph, AppError> {
    App::new()
        .with_config(Config::parse(Path::new("config.yml"), config)?)
        .add_plugin(ForceMeanPlugin::default())
        .add_plugin(FusePlugin::default())
        .build(move |output| output == published)
}

fn force(ms: i64, values: &[f32]) -> Message {
    let mut message = Message::default();
    message.write(&Layout::flat(Dtype::Float32, values.len()), |payload, header| {
        payload.column(0).copy_from_slice(values);
        header.timestamp_ns.set(ms * MS);
    });
    message
}

fn means(samples: &[(i64, &[f32])]) -> Vec<Vec<f32>> {
    let mut graph = build(
        "plugins: [force_mean: { input: force, dim: 2, window_ms: 10 }]",
        "force_mean",
    )
    .unwrap();
    let mut published = Published::default();
    for (ms, values) in samples {
        graph.message(0, &force(*ms, values), &mut published);
    }
    published.0.into_iter().map(|(_, values)| values).collect()
}

#[test]
fn it_is_the_mean_of_the_samples_of_the_window() {
    let samples: [(i64, &[f32]); 4] = [
        (0, &[1.0, 10.0]),
        (5, &[3.0, 20.0]),
        (9, &[5.0, 30.0]),
        (10, &[7.0, 40.0]),
    ];
    // At 10 ms the sample of 0 ms is out of the window.
    assert_eq!(means(&samples), [[1.0, 10.0], [2.0, 15.0], [3.0, 20.0], [5.0, 30.0]]);
}

#[test]
fn it_starts_anew_where_the_clock_was_set_back() {
    assert_eq!(means(&[(9, &[1.0, 1.0]), (8, &[5.0, 5.0])]), [[1.0, 1.0], [5.0, 5.0]]);
}

#[test]
fn what_is_no_sample_is_left_out_and_what_is_wrong_is_counted() {
    let mut graph = build(
        "plugins: [force_mean: { input: force, dim: 2, window_ms: 10 }]",
        "force_mean",
    )
    .unwrap();
    let mut published = Published::default();
    let mut without_stamp = force(0, &[1.0, 2.0]);
    without_stamp.header.timestamp_ns.clear();
    for message in [force(0, &[1.0]), force(0, &[f32::NAN, 1.0]), without_stamp] {
        graph.message(0, &message, &mut published);
    }
    // A masked row is not a fault, and other rows are used beside a row with an infinity.
    let mut rows = force(0, &[1.0, 2.0, 9.0, 9.0, f32::INFINITY, 9.0, 3.0, 4.0]);
    rows.header.timestamps_ns.set([0, MS, 2 * MS, 3 * MS]);
    rows.header.valid.set([1, 0, 1, 1]);
    graph.message(0, &rows, &mut published);
    let means: Vec<_> = published.0.into_iter().map(|(_, values)| values).collect();
    assert_eq!(means, [[1.0, 2.0], [2.0, 3.0]]);
    assert_eq!(graph.faults().next(), Some(("force_mean: input `force`", 4)));
}

#[test]
fn a_configuration_that_cannot_be_is_refused_by_its_place() {
    let refused = |section: &str| {
        build(&format!("plugins: [force_mean: {section}]"), "")
            .err()
            .unwrap()
            .to_string()
    };
    assert_eq!(
        refused("{ input: force, dim: 0, window_ms: 10 }"),
        "config.yml: force_mean: dim: 0 (allowed: 1 to 1024)"
    );
    assert!(refused("{ input: force, dim: 6, window_ms: -1 }").contains("window_ms: -1 (allowed: 0.001 to 60000 ms)"));
    assert!(refused("{ input: force, dim: 6, window: 10 }").contains("unknown key `window`"));
}

/// Runs `config.yml`: the plugin's mean force reaches `fuse` within the process, and only `fused` is published.
#[test]
fn fuse_takes_the_mean_from_it() {
    let mut graph = build(include_str!("../config.yml"), "fused").unwrap();
    let inputs: Vec<_> = graph.external_inputs().map(|(input, _)| input.to_owned()).collect();
    assert_eq!(inputs, ["force"]);
    let mut published = Published::default();
    for ms in 0..=40 {
        graph.message(0, &force(ms, &[ms as f32; 6]), &mut published);
    }
    // Targets at 0, 20 and 40 ms have the force, then the mean of all samples so far.
    let want: Vec<_> = [0.0, 20.0, 40.0]
        .map(|ms: f32| ("fused".to_owned(), [[ms; 6], [ms / 2.0; 6]].concat()))
        .into();
    assert_eq!(published.0, want);
}

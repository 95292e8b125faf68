//! Runs the examples of docs/semantics.md: each configuration there is followed by tables of inputs and expected outputs.

use robocache::device::{Dtype, Placement, Values};
use robocache::ops::align::{Aligner, Attached, Masks, Target, Timeline, cpu};
use robocache::ops::fuse::FuseConfig;
use robocache::ops::group::{Grouper, GroupingConfig, Outcome};
use robocache::ops::resample::{CpuResampler, ResampleConfig, Trajectories};
use robocache::ops::voxelize::{Arrival, Collector, VoxelizeConfig, Voxelizer};
use robocache::stream::{Cells, Message};
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::path::Path;

const MS: f64 = 1e6;

/// A configuration in docs/semantics.md, and one of the tables that follow it.
struct Example {
    config: String,
    header: String,
    rows: Vec<Vec<String>>,
}

impl Example {
    fn section<C: DeserializeOwned>(&self, name: &str) -> C {
        let mut sections: HashMap<String, C> = serde_yaml::from_str(&self.config).unwrap();
        sections.remove(name).unwrap()
    }
}

/// Reads the tables of docs/semantics.md that have one of these headers, in order.
fn examples(headers: &[&str]) -> Vec<Example> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/semantics.md");
    let text = std::fs::read_to_string(path).unwrap();
    let mut found: Vec<Example> = Vec::new();
    let (mut config, mut lines) = (String::new(), text.lines());
    while let Some(line) = lines.next() {
        if line == "```yaml" {
            let block = lines.by_ref().take_while(|line| *line != "```");
            config = block.map(|line| format!("{line}\n")).collect();
        } else if headers.contains(&line) {
            let rows = lines.by_ref().skip(1).take_while(|line| line.starts_with('|'));
            let cells = |row: &str| {
                row.trim_matches('|')
                    .split('|')
                    .map(|cell| cell.trim().to_owned())
                    .collect()
            };
            found.push(Example {
                config: config.clone(),
                header: line.to_owned(),
                rows: rows.map(cells).collect(),
            });
        }
    }
    found
}

fn numbers(text: &str) -> Vec<f32> {
    text.split(',').map(|number| number.trim().parse().unwrap()).collect()
}

/// Converts a text such as `0.5 ms` to ns.
fn ns(text: &str) -> i64 {
    let ms: f64 = text.strip_suffix(" ms").unwrap().parse().unwrap();
    (ms * MS) as i64
}

fn quoted(text: &str) -> (&str, &str) {
    text.strip_prefix('`').unwrap().split_once("` ").unwrap()
}

#[test]
fn timelines_give_the_observations_of_their_tables() {
    let examples = examples(&["| arrives | published |"]);
    assert!(examples.len() >= 8);
    for example in examples {
        let config: FuseConfig = example.section("fuse");
        let mut timeline = Timeline::new(&config).unwrap();
        let names: Vec<String> = timeline.inputs().map(str::to_owned).collect();
        for row in &example.rows {
            let (name, event) = quoted(&row[0]);
            let modality = names.iter().position(|each| each == name).unwrap();
            match event.split_once(" at ") {
                Some((values, time)) => {
                    let pushed = timeline.push(modality, ns(time), Values::from_f32(&numbers(values)));
                    pushed.unwrap();
                }
                None => {
                    assert_eq!(event, "closes");
                    timeline.close(modality);
                }
            }
            let mut published = Vec::new();
            while let Some(target) = timeline.due() {
                published.push(observation(&timeline, &target, &names, &config));
            }
            assert_eq!(published.join("; "), row[1], "{}:\n{}", row[0], example.config);
        }
    }
}

fn observation(timeline: &Timeline, target: &Target, names: &[String], config: &FuseConfig) -> String {
    let columns = config.columns();
    let mut values = vec![0.0; timeline.window() * columns];
    let mut masks = Masks::default();
    cpu::window(timeline, target, 0..timeline.modalities(), &mut values, &mut masks);
    let rows = values.chunks(columns).enumerate().map(|(row, mut rest)| {
        let mut text = format!("{} ms:", masks.timestamps_ns[row] as f64 / MS);
        for (m, name) in names.iter().enumerate() {
            let (own, others) = rest.split_at(timeline.dim(m));
            rest = others;
            let own = own.iter().map(f32::to_string).collect::<Vec<_>>().join(",");
            let value = match (masks.valid[row * names.len() + m], timeline.dim(m)) {
                (1, _) => own,
                (_, 1) => "masked".to_owned(),
                (_, _) => format!("{own} masked"),
            };
            let age = match masks.age_ns[row * names.len() + m] {
                -1 => -1.0,
                age => age as f64 / MS,
            };
            let comma = if m > 0 { "," } else { "" };
            text += &format!("{comma} `{name}` {value}, age {age}");
        }
        text
    });
    let mut text = rows.collect::<Vec<_>>().join(" / ");
    for (key, count) in [("epoch", target.epoch), ("late_samples", target.late_samples)] {
        if count > 0 {
            text += &format!(", {key} {count}");
        }
    }
    text
}

#[test]
fn rows_have_the_attached_messages_of_their_table() {
    let examples = examples(&["| arrives | rows |"]);
    let [example] = examples.as_slice() else {
        panic!("{} tables", examples.len())
    };
    let config: FuseConfig = example.section("fuse");
    let mut aligner = Aligner::fused(&config, &Placement::cpu("a test")).unwrap();
    let mut attached = Attached::new(aligner.timeline());
    for row in &example.rows {
        let (name, time) = quoted(&row[0]);
        let time = time.strip_prefix("at ").unwrap();
        match name {
            "voxels" => drop(attached.push(&mut aligner, 0, ns(time), 1, || time).unwrap()),
            _ => drop(aligner.push(0, ns(time), Values::from_f32(&[0.0])).unwrap()),
        }
        let mut published = Vec::new();
        while let Some(target) = aligner.due() {
            attached.select(aligner.timeline(), &target);
            let ages = attached.index().iter().zip(attached.age_ns()).enumerate();
            let rows = ages.map(|(i, (&index, &age))| {
                let ms = aligner.timeline().row(&target, i).time_ns as f64 / MS;
                match usize::try_from(index) {
                    Ok(index) => {
                        let member = attached.members(0).nth(index).unwrap();
                        format!("{ms} ms: that of {member}, age {}", age as f64 / MS)
                    }
                    Err(_) => format!("{ms} ms: none"),
                }
            });
            published.push(rows.collect::<Vec<_>>().join(" / "));
        }
        assert_eq!(published.join("; "), row[1], "{}", row[0]);
    }
}

#[test]
fn trajectories_have_the_values_of_their_table_at_its_targets() {
    let examples = examples(&["| sample at | value |", "| target | value |"]);
    let [samples, targets] = examples.as_slice() else {
        panic!("{} tables", examples.len())
    };
    let stamps: Vec<i64> = samples.rows.iter().map(|row| ns(&row[0])).collect();
    let values: Vec<f32> = samples.rows.iter().flat_map(|row| numbers(&row[1])).collect();
    let at: Vec<i64> = targets.rows.iter().map(|row| ns(&row[0])).collect();
    let mut message = Message::default();
    message.rows = 1;
    let dim = values.len() / stamps.len();
    message.header.dim.set(dim as i64);
    for (name, dtype, bytes, len) in [
        (
            "timestamps_ns",
            Dtype::Int64,
            bytemuck::cast_slice(&stamps),
            stamps.len(),
        ),
        ("values", Dtype::Float32, bytemuck::cast_slice(&values), values.len()),
        ("targets_ns", Dtype::Int64, bytemuck::cast_slice(&at), at.len()),
    ] {
        let column = message.add_column(name, dtype, Cells::Ragged(len));
        column.data.copy_from(bytes);
        column.offsets.extend([0, len as i32]);
    }
    let batch = Trajectories::from_message(&message).unwrap();
    let config: ResampleConfig = samples.section("resample");
    let mut resampler = CpuResampler::new(&config).unwrap();
    let (mut values, mut valid) = (vec![0.0f32; at.len() * dim], vec![0; at.len()]);
    resampler.run(&batch, bytemuck::cast_slice_mut(&mut values), &mut valid);
    for (i, row) in targets.rows.iter().enumerate() {
        let value = &values[i * dim..][..dim];
        match row[1].as_str() {
            "masked" => assert_eq!((valid[i], value), (0, &[0.0, 0.0][..]), "{row:?}"),
            expected => assert_eq!((valid[i], value), (1, numbers(expected).as_slice()), "{row:?}"),
        }
    }
}

#[test]
fn a_cloud_makes_the_cells_of_its_table() {
    let examples = examples(&[
        "| x | y | z | intensity | what becomes of it |",
        "| cell | count | mean_x | max_intensity |",
    ]);
    let [points, cells] = examples.as_slice() else {
        panic!("{} tables", examples.len())
    };
    let config: VoxelizeConfig = points.section("voxelize");
    let shown: Vec<String> = config.channels.iter().map(ToString::to_string).collect();
    assert_eq!(cells.header, format!("| cell | {} |", shown.join(" | ")));
    let mut message = Message::default();
    message.rows = 4 * points.rows.len();
    message.header.fields.set(["x", "y", "z", "intensity"]);
    message.header.timestamp_ns.set(0);
    let values: Vec<f32> = points
        .rows
        .iter()
        .flat_map(|row| numbers(&row[..4].join(",")))
        .collect();
    let column = message.add_column("", Dtype::Float32, Cells::One);
    column.data.copy_from(bytemuck::cast_slice(&values));
    let mut voxelizer = Voxelizer::new(&config, &Placement::cpu("a test")).unwrap();
    let mut grid = voxelizer.push(0, &message).unwrap().grid.unwrap();
    let (layout, counters) = (grid.layout().clone(), grid.counters());
    let mut voxels = Message::default();
    voxels.write(&layout, |payload, _| grid.write(payload));
    let became = |what: &str| points.rows.iter().filter(|row| row[4] == what).count() as u64;
    assert_eq!(counters.points_in, points.rows.len() as u64);
    assert_eq!(counters.points_kept, became("kept"));
    assert_eq!(counters.dropped_nonfinite, became("dropped_nonfinite"));
    assert_eq!(counters.dropped_outside, became("dropped_outside"));
    assert_eq!(grid.unusable(), [1]);
    let coords = voxels.column("coords").unwrap().data.as_slice::<i32>();
    let features = voxels.column("features").unwrap().data.as_slice::<f32>();
    let expected = |from: usize, to: usize| -> Vec<f32> {
        let cells = cells.rows.iter().flat_map(|row| numbers(&row[from..to].join(",")));
        cells.collect()
    };
    assert_eq!(coords.iter().map(|&i| i as f32).collect::<Vec<_>>(), expected(0, 1));
    assert_eq!(features, expected(1, 1 + shown.len()));
}

#[test]
fn clouds_of_several_inputs_make_the_grids_of_their_table() {
    let examples = examples(&["| cloud | grid |"]);
    let [example] = examples.as_slice() else {
        panic!("{} tables", examples.len())
    };
    let config: VoxelizeConfig = example.section("voxelize");
    let mut collector = Collector::new(&config);
    // The text below the table says that this cloud is late.
    let late = "`rear` at 110 ms";
    assert!(example.rows.iter().any(|row| row[0] == late));
    for row in &example.rows {
        let (name, time) = quoted(&row[0]);
        let input = config.inputs.iter().position(|input| input.input == name).unwrap();
        let arrival = collector.arrived(input, ns(time.strip_prefix("at ").unwrap()));
        let mut made = String::new();
        if collector.due() {
            let stamp = collector.take().unwrap();
            let ages = collector.inputs_age_ns().iter().zip(&config.inputs);
            let inputs = ages.map(|(&age, input)| match age {
                -1 => format!("`{}` missing", input.input),
                age => format!("`{}` {} ms old", input.input, age as f64 / MS),
            });
            let inputs: Vec<String> = inputs.collect();
            made = format!("{} ms: {}", stamp as f64 / MS, inputs.join(", "));
        }
        assert_eq!(made, row[1], "{row:?}");
        assert_eq!(arrival == Arrival::Late, row[0] == late);
    }
}

#[test]
fn messages_are_grouped_in_the_sets_of_their_table() {
    let examples = examples(&["| message | published |"]);
    let [example] = examples.as_slice() else {
        panic!("{} tables", examples.len())
    };
    let config: GroupingConfig = example.section("group");
    let sets = |config: &GroupingConfig| -> Vec<String> {
        let mut grouper = Grouper::new(config).unwrap();
        let rows = example.rows.iter().map(|row| {
            let (name, time) = quoted(&row[0]);
            let input = config.inputs.iter().position(|input| input.input == name).unwrap();
            let time = time.strip_prefix("at ").unwrap();
            grouper.push(input, ns(time), 0, || time).unwrap();
            let mut members = Vec::new();
            while let Some(outcome) = grouper.next_outcome() {
                if let Outcome::Member { input, item, .. } = outcome {
                    members.push(format!("`{}` {item}", config.inputs[input].input));
                }
            }
            members.join(", ")
        });
        rows.collect()
    };
    let published: Vec<_> = example.rows.iter().map(|row| row[1].clone()).collect();
    assert_eq!(sets(&config), published);
    // The text below the table says what `min_period_ms: 25` changes.
    let mut bounded = config;
    bounded.inputs[1].min_period_ms = Some(25.0);
    assert_eq!(sets(&bounded)[4], published[5]);
}

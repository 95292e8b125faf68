//! Operations and chains of operations, the messages that they get, and the messages that they publish.

use crate::common::{MS, input, sample};
use robocache::app::{
    App, AppError, BuildContext, Config, Fault, Graph, Operation, Outbox, Plugin, Registration, Sink, plugins,
};
use robocache::device::Dtype;
use robocache::device::gpu::{Budget, Gpu};
use robocache::ops;
use robocache::stream::{Cells, Header, Layout, Message, Payload};
use std::path::Path;
use std::time::Instant;

/// A published message without what depends on the device: its output, the bytes of its columns, and its header.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    pub output: String,
    pub columns: Vec<Vec<u8>>,
    pub header: Box<Header>,
}

/// Sink that keeps the published messages, and the devices that they were computed on.
#[derive(Default)]
pub struct Keeper {
    pub published: Vec<Published>,
    pub devices: Vec<String>,
    pub device_bytes: Vec<i64>,
    memory: Message,
}

impl Sink for Keeper {
    fn send(
        &mut self,
        output: &str,
        layout: &Layout,
        fill: &mut dyn FnMut(&mut Payload<'_>, &mut Header),
    ) -> Result<(), Fault> {
        self.memory.write(layout, fill);
        let mut header = self.memory.header.clone();
        if let Some(device) = ops::key::device.get(&header) {
            self.devices.push(device.to_owned());
        }
        self.device_bytes.push(ops::key::device_bytes.get(&header).unwrap_or(0));
        header.remove(ops::key::device.name);
        header.remove(ops::key::device_bytes.name);
        header.remove(ops::key::compute_us.name);
        let bytes = |column: &robocache::stream::Column| {
            let offsets: &[u8] = bytemuck::cast_slice(&column.offsets);
            [column.data.bytes(), offsets].concat()
        };
        self.published.push(Published {
            output: output.to_owned(),
            columns: self.memory.columns().iter().map(bytes).collect(),
            header,
        });
        Ok(())
    }
}

/// Plugin that forwards `raw` as `signal` on its device, except for every third message, which stays on the host.
struct Mixer;

struct Mix {
    gpu: Option<Gpu>,
    budget: Budget,
    count: usize,
}

impl Plugin for Mixer {
    fn name(&self) -> &'static str {
        "mix"
    }

    fn build(&self, context: &mut BuildContext<'_>) -> Result<(), AppError> {
        let Empty {} = context.config()?;
        let mix = Mix {
            gpu: context.placement().gpu().cloned(),
            budget: Budget::new(None),
            count: 0,
        };
        context.add_operation(Registration {
            name: "mix".into(),
            inputs: vec!["raw".into()],
            outputs: vec!["signal".into()],
            operation: Box::new(mix),
        });
        Ok(())
    }
}

#[derive(serde::Deserialize)]
pub struct Empty {}

impl Operation for Mix {
    fn input(&mut self, _: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        let values = message.flat().ok_or("a struct")?.bytes();
        let len = values.len() / size_of::<f32>();
        self.count += 1;
        if let Some(gpu) = &self.gpu
            && !self.count.is_multiple_of(3)
            && out.is_wanted_on_device(0, gpu)
        {
            let layout = Layout::flat(Dtype::Float32, len);
            let sent = out.send_on_device(0, &layout, (gpu, &self.budget), |columns, header| {
                // SAFETY: the message is borrowed until the stream is synchronized.
                let copied = unsafe { columns[0].memory.upload(0, values) };
                copied.and(gpu.synchronize())?;
                header.timestamp_ns.set(message.timestamp_ns());
                Ok(())
            });
            if sent.is_ok() {
                return Ok(());
            }
        }
        out.send(0, &Layout::flat(Dtype::Float32, len), |payload, header| {
            payload.column(0).copy_from_slice(values);
            header.timestamp_ns.set(message.timestamp_ns());
        });
        Ok(())
    }
}

/// Case of a test: a configuration without `device`, the outputs that the dataflow wants, and the messages that the graph gets.
pub struct Work {
    pub name: &'static str,
    pub config: String,
    pub published: &'static [&'static str],
    pub messages: Vec<(&'static str, Message)>,
}

pub fn built(work: &Work, device: &str) -> Graph {
    let config = format!("device: {device}\n{}", work.config);
    let config = Config::parse(Path::new("robot.yml"), &config).unwrap();
    let app = App::new()
        .with_config(config)
        .add_plugins(plugins::all())
        .add_plugin(Mixer);
    app.build(|output| work.published.contains(&output)).unwrap()
}

/// Plays the messages of a case. Returns the published messages, and the number of faults for each place in the graph.
pub fn play(work: &Work, device: &str) -> (Keeper, Vec<(String, u64)>) {
    let mut graph = built(work, device);
    let mut sink = Keeper::default();
    graph.wake(Instant::now(), true, &mut sink).unwrap();
    for (name, message) in &work.messages {
        graph.message(input(&graph, name), message, &mut sink);
        graph.wake(Instant::now(), false, &mut sink).unwrap();
    }
    graph.close_all(&mut sink);
    graph.wake(Instant::now(), false, &mut sink).unwrap();
    let faults = graph.faults().map(|(place, count)| (place.to_owned(), count)).collect();
    (sink, faults)
}

/// Numbers in -1..1 that look random and are the same in every run.
pub fn noise(seed: u64) -> impl FnMut() -> f32 {
    let mut state = seed;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

pub fn cloud(ms: i64, points: usize) -> Message {
    let mut noise = noise(ms as u64);
    let values: Vec<f32> = (0..points * 4).map(|_| 3.0 * noise()).collect();
    let mut cloud = sample(ms * MS, &values);
    cloud.header.shape.set([points as i64, 4]);
    cloud.header.fields.set(&["x", "y", "z", "intensity"]);
    cloud
}

pub fn signal(ms: i64, dim: usize) -> Message {
    let mut noise = noise(7 + ms as u64);
    sample(ms * MS, &(0..dim).map(|_| noise()).collect::<Vec<f32>>())
}

pub fn trajectories(rows: usize) -> Message {
    let (samples, targets, dim) = (40, 30, 3);
    let mut message = Message::default();
    message.rows = rows;
    message.header.dim.set(dim as i64);
    let mut noise = noise(5);
    let times: Vec<i64> = (0..rows * samples).map(|i| (i % samples) as i64 * 10 * MS).collect();
    let values: Vec<f32> = (0..rows * samples * dim).map(|_| noise()).collect();
    let wanted: Vec<i64> = (0..rows * targets).map(|i| (i % targets) as i64 * 13 * MS).collect();
    let mut add = |name: &str, dtype, bytes: &[u8], of_row: usize| {
        let column = message.add_column(name, dtype, Cells::Ragged(rows * of_row));
        column.data.copy_from(bytes);
        column.offsets.extend((0..=rows).map(|row| (row * of_row) as i32));
    };
    add("timestamps_ns", Dtype::Int64, bytemuck::cast_slice(&times), samples);
    add("values", Dtype::Float32, bytemuck::cast_slice(&values), samples * dim);
    add("targets_ns", Dtype::Int64, bytemuck::cast_slice(&wanted), targets);
    message
}

pub fn clouds(points: usize) -> Vec<(&'static str, Message)> {
    (1..7).map(|i| ("lidar", cloud(100 * i, points))).collect()
}

/// Makes samples every 20 ms, one of them late.
pub fn signals(name: &'static str, dim: usize) -> Vec<(&'static str, Message)> {
    let mut messages: Vec<_> = (1..30).map(|i| (name, signal(20 * i, dim))).collect();
    messages.swap(11, 12);
    messages
}

/// Merges two lists of messages by their stamps.
pub fn merged(
    mut messages: Vec<(&'static str, Message)>,
    others: Vec<(&'static str, Message)>,
) -> Vec<(&'static str, Message)> {
    messages.extend(others);
    messages.sort_by_key(|(_, message)| message.timestamp_ns());
    messages
}

pub fn voxelize(layout: &str, [x, y, z]: [usize; 3]) -> String {
    let channels = if layout == "bits" { "occupancy" } else { "count, mean_z" };
    let sizes = [x, y, z].map(|cells| 6.4 / cells as f64);
    format!(
        "voxelize: {{ origin_m: [-3.2, -3.2, -3.2], voxel_size_m: {sizes:?}, shape: [{x}, {y}, {z}], \
         channels: [{channels}], layout: {layout}, inputs: [{{ input: lidar }}] }}"
    )
}

pub fn modality(input: &str, dim: usize, mode: &str) -> String {
    format!("{{ input: {input}, dim: {dim}, interpolation: {mode}, reorder_ms: 25 }}")
}

pub fn works([points, cells, dim]: [usize; 3]) -> Vec<Work> {
    let grid = [cells, cells, cells / 2];
    let voxels = 2 * cells * cells * cells / 2;
    let bits = cells * cells * cells / 2 / 8;
    let dense = voxelize("dense", grid);
    let plugins = |list: &[String]| {
        format!(
            "plugins: [{}]",
            list.iter()
                .map(|one| format!("{{ {one} }}"))
                .collect::<Vec<_>>()
                .join(", ")
        )
    };
    let align = format!(
        "align: {{ rate_hz: 50, fill_value: 0.5, modalities: [{}] }}",
        modality("force", dim, "linear")
    );
    let fuse = |modalities: &[String]| {
        format!(
            "fuse: {{ rate_hz: 20, window: 3, stride: 2, modalities: [{}] }}",
            modalities.join(", ")
        )
    };
    let grids = modality("voxels", voxels, "previous");
    let mut works: Vec<Work> = ["dense", "bits", "coo"]
        .map(|layout| Work {
            name: layout,
            config: plugins(&[voxelize(layout, grid)]),
            published: &["voxels"],
            messages: clouds(points),
        })
        .into();
    let mut add = |name, config, published, messages| {
        works.push(Work {
            name,
            config,
            published,
            messages,
        })
    };
    let force = || signals("force", dim);
    add("align", plugins(std::slice::from_ref(&align)), &["force"][..], force());
    add(
        "fuse",
        plugins(&[fuse(&[modality("force", dim, "nearest")])]),
        &["fused"],
        force(),
    );
    add(
        "resample",
        plugins(&["resample: { interpolation: linear }".into()]),
        &["resampled"],
        vec![
            ("trajectories", trajectories(4 * points / 100)),
            ("trajectories", trajectories(8 * points / 100)),
        ],
    );
    let voxels_fuse = plugins(&[dense.clone(), fuse(std::slice::from_ref(&grids))]);
    add("voxelize, fuse", voxels_fuse.clone(), &["fused"], clouds(points));
    add(
        "voxelize, fuse, both published",
        voxels_fuse,
        &["voxels", "fused"],
        clouds(points),
    );
    let bits_fuse = plugins(&[voxelize("bits", grid), fuse(&[modality("voxels", bits, "previous")])]);
    add("bits, fuse", bits_fuse, &["fused"], clouds(points));
    let align_fuse = plugins(&[align.clone(), fuse(&[modality("force", dim, "linear")])]);
    add("align, fuse", align_fuse.clone(), &["fused"], force());
    add("align, fuse, both published", align_fuse, &["force", "fused"], force());
    let chain = plugins(&[dense, align, fuse(&[modality("force", dim, "linear"), grids])]);
    let both = || merged(clouds(points), force());
    add("voxelize, align, fuse", chain.clone(), &["fused"], both());
    add(
        "voxelize, align, fuse, all published",
        chain,
        &["voxels", "force", "fused"],
        both(),
    );
    let mixed = plugins(&["mix: {}".into(), fuse(&[modality("signal", dim, "linear")])]);
    add(
        "samples of the device and the host",
        mixed,
        &["fused"],
        signals("raw", dim),
    );
    works
}
pub fn same(case: &str, came: &[Published], wanted: &[Published]) {
    assert_eq!(came.len(), wanted.len(), "{case}");
    for (i, (came, wanted)) in came.iter().zip(wanted).enumerate() {
        assert_eq!(came.output, wanted.output, "{case}: message {i}");
        assert_eq!(came.header, wanted.header, "{case}: message {i}");
        assert!(came.columns == wanted.columns, "{case}: message {i} has other values");
    }
}

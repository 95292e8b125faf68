//! Messages between operations, on the host and on a device: where their memory is, messages that can't be sent, and headers
//! that contradict the payload.

use crate::common::kind::kind;
use crate::common::{Keeper, faults, input, sample};
use robocache::app::{
    App, AppError, BuildContext, Config, Fault, Graph, Operation, Outbox, Plugin, Registration, Sink, plugins,
};
use robocache::device::gpu::{Budget, Gpu, Kind, device_count};
use robocache::device::{Device, Dtype};
use robocache::stream::{Header, Layout, Message, Payload};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Plugin whose operation forwards `a` as `b`, on the device if there is one. For a negative value, the header's `shape`
/// contradicts the number of values.
struct Source;

/// Plugin of two operations that take `b`: on the device `wanted`, or if that is `None`, on the device on which `b` was made.
struct Takers {
    wanted: Option<Device>,
    log: Arc<Log>,
}

/// Log of the messages that the two operations of `Takers` got.
struct Log {
    /// Index of the operation, 0 or 1, and the value, for each message in order.
    came: Mutex<Vec<(usize, f32)>>,
    /// Number of messages that the operations want on the device. They want all later messages on the host.
    most_on_device: usize,
    /// Number of messages that the operations got on the device.
    on_device: AtomicUsize,
}

struct SourceOperation(Option<Gpu>);

struct TakerOperation {
    taker: usize,
    source: Option<Device>,
    wanted: Option<Device>,
    log: Arc<Log>,
}

#[derive(serde::Deserialize)]
struct Empty {}

impl Plugin for Source {
    fn name(&self) -> &'static str {
        "source"
    }

    fn build(&self, context: &mut BuildContext<'_>) -> Result<(), AppError> {
        let Empty {} = context.config()?;
        let operation = SourceOperation(context.placement().gpu().cloned());
        context.add_operation(Registration {
            name: "source".into(),
            inputs: vec!["a".into()],
            outputs: vec!["b".into()],
            operation: Box::new(operation),
        });
        Ok(())
    }
}

impl Plugin for Takers {
    fn name(&self) -> &'static str {
        "takers"
    }

    fn build(&self, context: &mut BuildContext<'_>) -> Result<(), AppError> {
        let Empty {} = context.config()?;
        for taker in 0..2 {
            let operation = TakerOperation {
                taker,
                source: context.placement().gpu().map(Gpu::device),
                wanted: self.wanted.or(context.placement().gpu().map(Gpu::device)),
                log: self.log.clone(),
            };
            context.add_operation(Registration {
                name: format!("taker {taker}"),
                inputs: vec!["b".into()],
                outputs: Vec::new(),
                operation: Box::new(operation),
            });
        }
        Ok(())
    }
}

impl Operation for SourceOperation {
    fn input(&mut self, _: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        let values = message.flat().ok_or("a struct")?;
        let mut header = Header::default();
        header.timestamp_ns.set(message.timestamp_ns());
        if values.as_slice::<f32>()[0] < 0.0 {
            header.shape.set([2, 2]);
        }
        let twice = values.as_slice::<f32>()[0] > 10.0;
        for _ in 0..1 + usize::from(twice) {
            self.send(values.bytes(), &header, out)?;
        }
        Ok(())
    }
}

impl SourceOperation {
    fn send(&self, bytes: &[u8], described: &Header, out: &mut Outbox<'_>) -> Result<(), Fault> {
        let Some(gpu) = self.0.as_ref().filter(|gpu| out.is_wanted_on_device(0, gpu)) else {
            out.send(0, &Layout::flat(Dtype::Float32, 1), |payload, header| {
                payload.column(0).copy_from_slice(bytes);
                header.copy_from(described);
            });
            return Ok(());
        };
        let budget = Budget::new(None);
        out.send_on_device(
            0,
            &Layout::flat(Dtype::Float32, 1),
            (gpu, &budget),
            |columns, header| {
                // SAFETY: the message is borrowed until the stream is synchronized.
                let copied = unsafe { columns[0].memory.upload(0, bytes) };
                copied.and(gpu.synchronize())?;
                header.copy_from(described);
                Ok(())
            },
        )?;
        Ok(())
    }
}

impl Operation for TakerOperation {
    fn input(&mut self, input: usize, message: &Message, _: &mut Outbox<'_>) -> Result<(), Fault> {
        // The message is on the device where it is wanted, if it was made there.
        let wanted = self.device_of_input(input).filter(|_| self.wanted == self.source);
        assert_eq!(message.data().gpu().map(Gpu::device), wanted);
        self.log
            .on_device
            .fetch_add(usize::from(message.data().gpu().is_some()), Relaxed);
        let mut on_host = Message::default();
        on_host.fetch(message)?;
        let value = on_host.flat().ok_or("a struct")?.as_slice::<f32>()[0];
        self.log.came.lock().unwrap().push((self.taker, value));
        Ok(())
    }

    fn device_of_input(&self, _: usize) -> Option<Device> {
        let came = self.log.came.lock().unwrap().len();
        self.wanted.filter(|_| came < self.log.most_on_device)
    }
}

/// Sink that refuses messages with an odd value.
#[derive(Default)]
struct Picky {
    accepted: Vec<f32>,
    memory: Message,
    /// Device on which the sink claims to take payloads, although it has no memory there; `None` for a sink on the host.
    gpu: Option<Gpu>,
}

impl Sink for Picky {
    fn send(
        &mut self,
        _: &str,
        layout: &Layout,
        fill: &mut dyn FnMut(&mut Payload<'_>, &mut Header),
    ) -> Result<(), Fault> {
        self.memory.write(layout, fill);
        let value = self.memory.flat().ok_or("a struct")?.as_slice::<f32>()[0];
        if value % 2.0 != 0.0 {
            return Err("it is odd".into());
        }
        self.accepted.push(value);
        Ok(())
    }

    fn gpu(&self, _: &str) -> Option<&Gpu> {
        self.gpu.as_ref()
    }
}

/// Builds a graph of `Source` and `Takers` with the setting `device`; `None` if there is no device.
fn built(device: &str, wanted: Option<Device>, most_on_device: usize) -> Option<(Graph, Arc<Log>)> {
    if device != "cpu" {
        device_count(kind()).ok()?;
    }
    let log = Arc::new(Log {
        came: Mutex::default(),
        most_on_device,
        on_device: AtomicUsize::new(0),
    });
    let config = format!("device: {device}\nplugins: [{{ source: {{}} }}, {{ takers: {{}} }}]");
    let app = App::new().with_config(Config::parse(Path::new("robot.yml"), &config).unwrap());
    let app = app.add_plugin(Source).add_plugin(Takers {
        wanted,
        log: log.clone(),
    });
    Some((app.build(|_| true).unwrap(), log))
}

fn both(value: f32) -> [(usize, f32); 2] {
    [(0, value), (1, value)]
}

#[test]
fn what_goes_wrong_with_one_taker_of_a_message_holds_up_no_other() {
    for device in ["cpu", kind().name()] {
        let Some((mut graph, log)) = built(device, None, usize::MAX) else {
            continue;
        };
        let mut sink = Picky::default();
        let a = input(&graph, "a");
        for value in [2.0, 3.0, -4.0, -5.0, 6.0] {
            graph.message(a, &sample(1, &[value]), &mut sink);
        }
        // The sink gets -4, too: the dataflow checks headers by itself.
        assert_eq!(sink.accepted, [2.0, -4.0, 6.0], "{device}");
        let came = log.came.lock().unwrap();
        assert_eq!(*came, [2.0, 3.0, 6.0].map(both).as_flattened(), "{device}");
        // The sink refuses 3 and -5, and the takers can't take -4 and -5.
        assert_eq!(faults(&graph, "source: output `b`"), 4, "{device}");
        assert_eq!(faults(&graph, "source: input `a`"), 0, "{device}");
    }
}

#[test]
fn what_is_on_its_way_when_its_taker_goes_back_to_the_host_is_brought_there() {
    let Some((mut graph, log)) = built(kind().name(), None, 1) else {
        return;
    };
    let a = input(&graph, "a");
    for value in [12.0, 14.0] {
        graph.message(a, &sample(1, &[value]), &mut Picky::default());
    }
    assert_eq!(
        *log.came.lock().unwrap(),
        [12.0, 12.0, 14.0, 14.0].map(both).as_flattened()
    );
    assert_eq!(log.on_device.load(Relaxed), 1);
    assert!(graph.faults().all(|(_, count)| count == 0));
}

/// A payload on the device is copied to host memory for the dataflow if the dataflow's ring is not on that device.
#[test]
fn what_the_dataflow_can_not_take_on_the_device_goes_by_the_host() {
    let Some((mut graph, log)) = built(kind().name(), None, usize::MAX) else {
        return;
    };
    let mut sink = Picky {
        gpu: Some(Gpu::open(kind(), 0).unwrap()),
        ..Picky::default()
    };
    let a = input(&graph, "a");
    for value in [2.0, 4.0, 3.0] {
        graph.message(a, &sample(1, &[value]), &mut sink);
    }
    assert_eq!(sink.accepted, [2.0, 4.0]);
    assert_eq!(*log.came.lock().unwrap(), [2.0, 4.0, 3.0].map(both).as_flattened());
    assert_eq!(log.on_device.load(Relaxed), 6);
}

/// Operations of a graph may be on GPUs of different vendors: GPU 0 of one vendor is not GPU 0 of another.
#[test]
fn memory_of_one_vendor_is_not_handed_to_operations_on_another() {
    let others = Kind::ALL.into_iter().filter(|other| *other != kind());
    for other in others {
        let Some((mut graph, log)) = built(kind().name(), Some(Device::Gpu(other, 0)), usize::MAX) else {
            return;
        };
        let mut sink = Picky::default();
        let a = input(&graph, "a");
        for value in [2.0, 4.0] {
            graph.message(a, &sample(1, &[value]), &mut sink);
        }
        assert_eq!(log.on_device.load(Relaxed), 0);
        assert_eq!(*log.came.lock().unwrap(), [2.0, 4.0].map(both).as_flattened());
    }
}

/// Plugin of two operations that take grids on the process's device, or on the host without one, and keep the columns.
struct Holders(Grids);

/// Grids that the two operations got: the index of the operation, true if the grid was on a device, and the columns.
type Grids = Arc<Mutex<Vec<(usize, bool, Columns)>>>;

/// Columns of a grid: the name and the bytes of each.
type Columns = Vec<(String, Vec<u8>)>;

struct HolderOperation {
    taker: usize,
    device: Option<Device>,
    grids: Grids,
}

impl Plugin for Holders {
    fn name(&self) -> &'static str {
        "holders"
    }

    fn build(&self, context: &mut BuildContext<'_>) -> Result<(), AppError> {
        let Empty {} = context.config()?;
        for taker in 0..2 {
            let operation = HolderOperation {
                taker,
                device: context.placement().gpu().map(Gpu::device),
                grids: self.0.clone(),
            };
            context.add_operation(Registration {
                name: format!("holder {taker}"),
                inputs: vec!["voxels".into()],
                outputs: Vec::new(),
                operation: Box::new(operation),
            });
        }
        Ok(())
    }
}

fn columns_of(message: &Message) -> Columns {
    let columns = message.columns().iter();
    columns
        .map(|column| (column.name.clone(), column.data.bytes().to_vec()))
        .collect()
}

impl Operation for HolderOperation {
    fn input(&mut self, _: usize, message: &Message, _: &mut Outbox<'_>) -> Result<(), Fault> {
        let mut on_host = Message::default();
        on_host.fetch(message)?;
        on_host.check()?;
        let is_on_device = message.data().gpu().is_some();
        let came = (self.taker, is_on_device, columns_of(&on_host));
        self.grids.lock().unwrap().push(came);
        Ok(())
    }

    fn device_of_input(&self, _: usize) -> Option<Device> {
        self.device
    }
}

/// Voxelizes four clouds of decreasing size. Returns the grids that two operations got, and the grids that the dataflow got.
fn grids(device: &str, layout: &str) -> (Grids, Vec<Columns>) {
    let channels = if layout == "bits" { "occupancy" } else { "count, mean_z" };
    let config = format!(
        "device: {device}\nplugins: [{{ voxelize: {{ origin_m: [0, 0, 0], voxel_size_m: [1, 1, 1], shape: [16, 16, 8], \
         channels: [{channels}], layout: {layout}, inputs: [{{ input: lidar }}] }} }}, {{ holders: {{}} }}]"
    );
    let grids = Grids::default();
    let app = App::new().with_config(Config::parse(Path::new("robot.yml"), &config).unwrap());
    let app = app.add_plugins(plugins::all()).add_plugin(Holders(grids.clone()));
    let mut graph = app.build(|_| true).unwrap();
    let lidar = input(&graph, "lidar");
    let mut sink = Keeper::default();
    for step in 0..4 {
        // The fewer points, the fewer rows has `coo`.
        let points = 3000 - 900 * step;
        let values: Vec<f32> = (0..3 * points)
            .map(|i| ((i * 37 + step * 11) % 8009) as f32 / 520.0)
            .collect();
        let mut cloud = sample(1 + step as i64, &values);
        cloud.header.shape.set([points as i64, 3]);
        graph.message(lidar, &cloud, &mut sink);
    }
    assert!(graph.faults().all(|(_, count)| count == 0));
    let sent = sink.take().iter().map(|(_, grid)| columns_of(grid)).collect();
    (grids, sent)
}

#[test]
fn a_grid_of_any_layout_stays_on_its_device_up_to_its_takers() {
    if device_count(kind()).is_err() {
        return;
    }
    for layout in ["dense", "bits", "coo"] {
        let (on_host, sent_by_host) = grids("cpu", layout);
        let (on_device, sent_by_device) = grids(kind().name(), layout);
        assert_eq!((sent_by_host.len(), &sent_by_device), (4, &sent_by_host), "{layout}");
        let (on_host, on_device) = (on_host.lock().unwrap(), on_device.lock().unwrap());
        assert_eq!(on_device.len(), 8, "{layout}");
        for (host, device) in on_host.iter().zip(on_device.iter()) {
            assert!(!host.1 && device.1, "{layout}: a grid is not where it was made");
            assert!((host.0, &host.2) == (device.0, &device.2), "{layout}: other bytes");
        }
    }
}

use super::number_or_null;
use crate::app::{App, AppError, Change, Fault, Operation, Outbox, Plugin, Registration, Value};
use crate::device::cuda::{CudaError, Gpu};
use crate::device::{Backend, Device, Dtype, Placement};
use crate::ops::ConfigError;
use crate::ops::voxelize::cuda::{CudaVoxelizer, VoxelizeError};
use crate::ops::voxelize::{
    Arrival, Cloud, CloudError, Collector, Counters, CpuVoxelizer, VoxelLayout, VoxelizeConfig,
};
use crate::stream::{Header, Layout, Message, Payload};
use half::{bf16, f16};
use std::time::{Duration, Instant};

/// Publishes the clouds of `voxelize:` as voxel grids, `voxels`.
#[derive(Default)]
pub struct VoxelizePlugin {
    config: Option<VoxelizeConfig>,
}

impl VoxelizePlugin {
    /// With a configuration from the program. [`default`](Self::default) takes it from the file.
    pub fn new(config: VoxelizeConfig) -> Self {
        Self { config: Some(config) }
    }
}

impl Plugin for VoxelizePlugin {
    fn name(&self) -> &'static str {
        "voxelize"
    }

    fn about(&self) -> &'static str {
        "Publishes point clouds as voxel grids, `voxels`."
    }

    fn is_configured(&self) -> bool {
        self.config.is_some()
    }

    fn build(&self, app: &mut App) -> Result<(), AppError> {
        let config: VoxelizeConfig = app.config_or(&self.config)?;
        check_size(&config, app).map_err(|error| app.refused(&error))?;
        let operation = Voxelize::new(config, app.placement()).map_err(|error| app.refused(&error))?;
        app.add_operation(Registration {
            name: app.name().into(),
            inputs: operation.names.clone(),
            outputs: vec!["voxels".into()],
            operation: Box::new(operation),
        });
        Ok(())
    }
}

/// Whether grids can be made and sent whatever is in them. Those of `coo` are as large as their clouds make them.
fn check_size(config: &VoxelizeConfig, app: &App) -> Result<(), ConfigError> {
    config.validate()?;
    let Some(bytes) = config.message_bytes() else {
        return Ok(());
    };
    let too_large = |problem| {
        let (shape, layout) = (config.shape, config.layout);
        ConfigError::new(
            "shape",
            format!("{shape:?} as `{layout}` is {bytes} bytes a grid ({problem})"),
        )
    };
    app.check_message_size("voxels", bytes).map_err(too_large)
}

/// A cloud was not used.
#[derive(Debug, thiserror::Error)]
enum Unused {
    #[error("a newer cloud came before the other inputs had theirs: the older one is not in a grid")]
    Superseded,
    #[error("the cloud is not newer than the last grid: dropped")]
    Late,
    #[error("the clock was set back: {0} clouds from before are not in a grid")]
    Jumped(usize),
}

struct Voxelize {
    grids: Grids,
    collector: Collector,
    config: VoxelizeConfig,
    names: Vec<String>,
    /// The clouds that wait, where there are several inputs.
    waiting: Vec<Message>,
    /// The inputs whose clouds make the grid at hand.
    used: Vec<usize>,
    frame_id: String,
}

impl Voxelize {
    fn new(config: VoxelizeConfig, placement: &Placement) -> Result<Self, ConfigError> {
        Ok(Self {
            grids: Grids::new(&config, placement)?,
            collector: Collector::new(&config),
            names: config.inputs.iter().map(|input| input.input.clone()).collect(),
            waiting: config.inputs.iter().map(|_| Message::default()).collect(),
            used: Vec::with_capacity(config.inputs.len()),
            frame_id: String::new(),
            config,
        })
    }

    fn make_due_grid(&mut self, out: &mut Outbox<'_>) {
        if !self.collector.due() {
            return;
        }
        let start = Instant::now();
        self.used.clear();
        let inputs = 0..self.waiting.len();
        self.used.extend(inputs.filter(|&input| self.collector.waits(input)));
        let waiting = std::mem::take(&mut self.waiting);
        self.publish(start, &waiting, out);
        self.waiting = waiting;
    }

    /// Makes a grid of the clouds of the inputs in `used` and publishes it.
    fn publish(&mut self, start: Instant, clouds: &[Message], out: &mut Outbox<'_>) {
        let Some(mut stamp) = self.collector.take() else {
            return;
        };
        let stays = self.stays_on_device(out);
        let mut grid = self.grids.gather(clouds, &self.used, stays);
        for (input, error) in self.grids.faults.drain(..) {
            stamp = self.collector.refuse(input);
            out.fault(input, error);
        }
        let gathered = start.elapsed();
        if stays && grid.device != Device::Cpu && self.send_on_device(stamp, gathered, &grid, out) {
            self.grids.left_out.say(&self.grids.cpu, out);
            return;
        }
        let layout = self.grids.take_layout(&grid);
        out.send(0, &layout, |payload, header| {
            // What lies between is the transport's: it makes room for the message.
            let start = Instant::now();
            self.grids.write(&mut grid, clouds, &self.used, payload);
            let time = gathered + start.elapsed();
            self.grids.backend.took(grid.work, grid.device, time);
            header.compute_us.set(time.as_secs_f64() * 1e6);
            self.describe(stamp, &grid, header);
        });
        self.grids.layout = layout;
        self.grids.left_out.say(&self.grids.cpu, out);
        if let Some(error) = self.grids.backend.take_lost() {
            out.end(error);
        }
    }

    /// Whether those that take the grids want them on the device.
    fn stays_on_device(&mut self, out: &Outbox<'_>) -> bool {
        let is_tensor = self.config.layout != VoxelLayout::Coo;
        let gpu = self.grids.backend.output_gpu();
        is_tensor && gpu.is_some_and(|gpu| out.is_wanted_on_device(0, gpu))
    }

    /// Publishes a grid that stays on its device. Says whether that was done.
    fn send_on_device(&mut self, stamp: i64, gathered: Duration, made: &Made, out: &mut Outbox<'_>) -> bool {
        let Some(cuda) = self.grids.backend.resident() else {
            return false;
        };
        let (gpu, budget) = (cuda.gpu().clone(), cuda.budget().clone());
        let layout = self.grids.cpu.layout();
        let (dtype, len) = (layout.columns[0].dtype, layout.rows);
        let sent = out.send_on_device(0, (dtype, len), (&gpu, &budget), |memory, header| {
            let start = Instant::now();
            if let Some(cuda) = self.grids.backend.resident() {
                cuda.write_on_device(memory)?;
                self.grids.left_out.note(cuda.saturated(), cuda.unusable()?);
            }
            header.compute_us.set((gathered + start.elapsed()).as_secs_f64() * 1e6);
            self.describe(stamp, made, header);
            Ok(())
        });
        // The usual way finds out what else is lost, and has the CPU make the grid again.
        if let Err(error) = &sent
            && error.is_memory()
        {
            self.grids.backend.failed_to_hand_on(error);
        }
        sent.is_ok()
    }

    fn describe(&mut self, stamp: i64, made: &Made, header: &mut Header) {
        let counters = &made.counters;
        let grid = self.grids.cpu.grid();
        let channels = self.grids.cpu.channels();
        let cells = grid.shape().map(|n| n as i64);
        header.timestamp_ns.set(stamp);
        header.channels.set(channels);
        header.origin_m.set(grid.origin_m().map(f64::from));
        header.voxel_size_m.set(grid.voxel_size_m().map(f64::from));
        header.grid_shape.set(cells);
        header.points_in.set(counters.points_in as i64);
        header.points_kept.set(counters.points_kept as i64);
        header.dropped_nonfinite.set(counters.dropped_nonfinite as i64);
        header.dropped_outside.set(counters.dropped_outside as i64);
        header.dropped_overflow.set(counters.dropped_overflow as i64);
        header.unusable.set(&self.grids.left_out.unusable);
        header.saturated.set(self.grids.left_out.saturated as i64);
        header.inputs.set(&self.names);
        header.inputs_valid.set(self.collector.inputs_valid());
        header.inputs_age_ns.set(self.collector.inputs_age_ns());
        header.device.set(made.device);
        match self.config.layout {
            VoxelLayout::Dense => {
                header.shape.set(std::iter::once(channels.len() as i64).chain(cells));
                header.dtype.set(self.config.dtype);
            }
            VoxelLayout::Bits => {
                header.shape.set(cells);
                header.dtype.set(Dtype::UInt8);
            }
            VoxelLayout::Coo => {}
        }
        if let (Device::Cuda(_), Some(cuda)) = (made.device, self.grids.backend.resident()) {
            header.device_bytes.set(cuda.used_bytes() as i64);
        }
        if !self.frame_id.is_empty() {
            header.frame_id.set(&self.frame_id);
        }
    }

    /// The grid is in the frame of its cloud where there is one input and nothing moves it.
    fn note_frame(&mut self, message: &Message) {
        if let [only] = self.config.inputs.as_slice()
            && only.extrinsic.is_none()
        {
            self.frame_id.clone_from(&message.header.frame_id);
        }
    }
}

/// The grids of clouds, on either device.
struct Grids {
    cpu: CpuVoxelizer,
    backend: Backend<CudaVoxelizer>,
    form: VoxelLayout,
    dtype: Dtype,
    layout: Layout,
    /// What was wrong with clouds of the grid that was gathered last.
    faults: Vec<(usize, CloudError)>,
    left_out: LeftOut,
}

/// What the channels of the grid that was written last leave out.
#[derive(Default)]
struct LeftOut {
    /// For each field of the channels: its values that are not finite or beyond the bound.
    unusable: Vec<i64>,
    /// Values that the type of a dense grid can't hold.
    saturated: u64,
}

impl LeftOut {
    fn note(&mut self, saturated: u64, unusable: &[u64]) {
        self.saturated = saturated;
        self.unusable.clear();
        self.unusable.extend(unusable.iter().map(|&count| count as i64));
    }

    /// Counts it at the output, and warns of it.
    fn say(&self, grids: &CpuVoxelizer, out: &mut Outbox<'_>) {
        for ((field, usable), &count) in grids.fields().zip(&self.unusable) {
            if count > 0 {
                let message =
                    format_args!("{count} values of `{field}` are left out of its channels (usable: {usable})");
                out.fault_of_output(0, count as u64, message);
            }
        }
        if self.saturated > 0 {
            let (count, dtype) = (self.saturated, grids.layout().columns[0].dtype);
            let message = format_args!("{count} values are beyond {dtype}: its greatest or least is in their places");
            out.fault_of_output(0, count, message);
        }
    }
}

/// A grid that is gathered, and can be written.
struct Made {
    counters: Counters,
    device: Device,
    /// Bytes of its clouds.
    work: usize,
}

/// Clouds of fewer bytes are always done on the CPU, where they take less time than the launches on a device.
const CPU_BYTES: usize = 1 << 14;

impl Grids {
    fn new(config: &VoxelizeConfig, placement: &Placement) -> Result<Self, ConfigError> {
        let cuda = |gpus: &[Gpu]| CudaVoxelizer::new(config, &gpus[0], placement.max_bytes());
        let backend = Backend::new("voxelize", placement, CPU_BYTES, cuda).map_err(|error| match error {
            VoxelizeError::Config(error) => error,
            error => ConfigError::new("device", error.to_string()),
        })?;
        Ok(Self {
            cpu: CpuVoxelizer::new(config)?,
            backend,
            form: config.layout,
            dtype: config.dtype,
            layout: Layout::default(),
            faults: Vec::new(),
            left_out: LeftOut::default(),
        })
    }

    /// Gathers the clouds of the inputs in `used`, each the one of that place, on the device that is quicker, or the one
    /// that the grid stays on.
    fn gather(&mut self, clouds: &[Message], used: &[usize], stays: bool) -> Made {
        let work = used.iter().map(|&input| clouds[input].bytes()).sum();
        if let Some(cuda) = self.backend.cuda(work, stays) {
            self.faults.clear();
            let messages = used.iter().map(|&input| (input, &clouds[input]));
            match cuda.gather(messages, |input, error| self.faults.push((input, error))) {
                Ok(counters) => {
                    return Made {
                        counters,
                        device: self.backend.device(),
                        work,
                    };
                }
                Err(error) => self.backend.failed(work, error),
            }
        }
        Made {
            counters: self.gather_on_cpu(clouds, used),
            device: Device::Cpu,
            work,
        }
    }

    fn gather_on_cpu(&mut self, clouds: &[Message], used: &[usize]) -> Counters {
        self.faults.clear();
        self.cpu.begin();
        for &input in used {
            let added = Cloud::from_message(&clouds[input]).and_then(|cloud| self.cpu.add(input, &cloud));
            self.faults.extend(added.err().map(|error| (input, error)));
        }
        self.cpu.finish()
    }

    /// The form and size of a grid, in memory that is to be given back to `layout`.
    fn take_layout(&mut self, made: &Made) -> Layout {
        let layout = match (made.device, self.backend.resident()) {
            (Device::Cuda(_), Some(cuda)) => cuda.layout(),
            _ => self.cpu.layout(),
        };
        let mut own = std::mem::take(&mut self.layout);
        own.clone_from(layout);
        own
    }

    /// Writes the grid that was gathered. Where its device fails meanwhile, the CPU makes it again of the same clouds.
    fn write(&mut self, made: &mut Made, clouds: &[Message], used: &[usize], payload: &mut Payload<'_>) {
        if let (Device::Cuda(_), Some(cuda)) = (made.device, self.backend.resident()) {
            let written = write_from_device(cuda, self.form, self.dtype, payload);
            match written.and_then(|()| cuda.unusable()) {
                Ok(unusable) => return self.left_out.note(cuda.saturated(), unusable),
                Err(error) => self.backend.failed(made.work, error),
            }
            made.counters = self.gather_on_cpu(clouds, used);
            made.device = Device::Cpu;
        }
        let cpu = &self.cpu;
        match (self.form, self.dtype) {
            (VoxelLayout::Bits, _) => cpu.write_bits(payload.column(0)),
            (VoxelLayout::Coo, _) => {
                let (coords, features) = payload.columns();
                cpu.write_coo(coords, features);
            }
            (VoxelLayout::Dense, Dtype::Float16) => cpu.write_dense::<f16>(payload.column(0)),
            (VoxelLayout::Dense, Dtype::BFloat16) => cpu.write_dense::<bf16>(payload.column(0)),
            (VoxelLayout::Dense, _) => cpu.write_dense::<f32>(payload.column(0)),
        }
        self.left_out.note(cpu.saturated(), cpu.unusable());
    }
}

fn write_from_device(
    cuda: &CudaVoxelizer,
    form: VoxelLayout,
    dtype: Dtype,
    payload: &mut Payload<'_>,
) -> Result<(), CudaError> {
    match (form, dtype) {
        (VoxelLayout::Bits, _) => cuda.write_bits(payload.column(0)),
        (VoxelLayout::Coo, _) => {
            let (coords, features) = payload.columns();
            cuda.write_coo(coords, features)
        }
        (VoxelLayout::Dense, Dtype::Float16) => cuda.write_dense::<f16>(payload.column(0)),
        (VoxelLayout::Dense, Dtype::BFloat16) => cuda.write_dense::<bf16>(payload.column(0)),
        (VoxelLayout::Dense, _) => cuda.write_dense::<f32>(payload.column(0)),
    }
}

impl Operation for Voxelize {
    fn input(&mut self, input: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        let start = Instant::now();
        self.grids.cpu.check(&Cloud::from_message(message)?)?;
        let unused = match self.collector.arrived(input, message.timestamp_ns()) {
            Arrival::Waits => None,
            Arrival::Replaces => Some(Unused::Superseded),
            Arrival::Jumped { dropped } => Some(Unused::Jumped(dropped)),
            Arrival::Superseded => return Err(Unused::Superseded.into()),
            Arrival::Late => return Err(Unused::Late.into()),
        };
        if let Some(unused) = unused {
            out.fault(input, unused);
        }
        self.note_frame(message);
        if let [_] = self.waiting.as_slice() {
            self.used.clear();
            self.used.push(input);
            self.publish(start, std::slice::from_ref(message), out);
        } else {
            self.waiting[input].copy_from(message);
            self.make_due_grid(out);
        }
        Ok(())
    }

    fn changed(&mut self, input: usize, to: Change, out: &mut Outbox<'_>) {
        match to {
            Change::Closed => self.collector.closed(input),
            Change::Opened => self.collector.opened(input),
        }
        self.make_due_grid(out);
    }

    fn parameter(&mut self, key: &str, value: &Value) -> Result<bool, Fault> {
        if key != "max_wait_ms" {
            return Ok(false);
        }
        self.collector.set_max_wait_ms(number_or_null(value)?)?;
        Ok(true)
    }
}

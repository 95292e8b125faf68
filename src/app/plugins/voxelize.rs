use super::number_or_null;
use crate::app::{
    App, AppError, Change, Fault, Operation, Outbox, Parameter, Parameters, Payload, Plugin, Registration, Value,
};
use crate::device::cuda::{CudaError, Gpu};
use crate::device::{Backend, Device, Dtype, Placement};
use crate::ops::ConfigError;
use crate::ops::voxelize::cuda::{CudaVoxelizer, VoxelizeError};
use crate::ops::voxelize::{
    Arrival, Cloud, CloudError, Collector, CpuVoxelizer, VoxelCounters, VoxelLayout, VoxelizeConfig,
};
use crate::stream::{Layout, Message};
use half::{bf16, f16};
use std::time::{Duration, Instant};

/// Publishes the clouds of `voxelize:` as voxel grids, `voxels`.
pub struct VoxelizePlugin;

impl Plugin for VoxelizePlugin {
    fn name(&self) -> &'static str {
        "voxelize"
    }

    fn about(&self) -> &'static str {
        "Publishes point clouds as voxel grids, `voxels`."
    }

    fn build(&self, app: &mut App) -> Result<(), AppError> {
        let config: VoxelizeConfig = app.config()?;
        check_size(&config, app).map_err(|error| app.refused(&error))?;
        let operation = Voxelize::new(config, app.placement()).map_err(|error| app.refused(&error))?;
        app.add_operation(Registration {
            name: self.name().into(),
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
        out.send(0, &layout, |payload| {
            // What lies between is the transport's: it makes room for the message.
            let start = Instant::now();
            self.grids.write(&mut grid, clouds, &self.used, payload);
            let time = gathered + start.elapsed();
            self.grids.backend.took(grid.work, grid.device, time);
            let compute_us = time.as_secs_f64() * 1e6;
            let mut parameters = Parameters::from([("compute_us".into(), Parameter::Float(compute_us))]);
            self.describe(stamp, &grid, &mut parameters);
            parameters
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
        let sent = out.send_on_device(0, (dtype, len), (&gpu, &budget), |memory| {
            let start = Instant::now();
            if let Some(cuda) = self.grids.backend.resident() {
                cuda.write_on_device(memory)?;
                self.grids.left_out.note(cuda.saturated(), cuda.unusable()?);
            }
            let compute_us = (gathered + start.elapsed()).as_secs_f64() * 1e6;
            let mut parameters = Parameters::from([("compute_us".into(), Parameter::Float(compute_us))]);
            self.describe(stamp, made, &mut parameters);
            Ok(parameters)
        });
        // The usual way finds out what else is lost, and has the CPU make the grid again.
        if let Err(error) = &sent
            && error.is_memory()
        {
            self.grids.backend.failed_to_hand_on(error);
        }
        sent.is_ok()
    }

    fn describe(&mut self, stamp: i64, made: &Made, parameters: &mut Parameters) {
        let counters = &made.counters;
        let grid = self.grids.cpu.grid();
        let channels = self.grids.cpu.channels();
        let cells = grid.shape().map(|n| n as i64);
        let floats = |values: [f32; 3]| Parameter::ListFloat(values.map(f64::from).to_vec());
        let integer = |count: u64| Parameter::Integer(count as i64);
        let entries = [
            ("timestamp_ns", Parameter::Integer(stamp)),
            (
                "channels",
                Parameter::ListString(channels.iter().map(ToString::to_string).collect()),
            ),
            ("origin_m", floats(grid.origin_m())),
            ("voxel_size_m", floats(grid.voxel_size_m())),
            ("grid_shape", Parameter::ListInt(cells.to_vec())),
            ("points_in", integer(counters.points_in)),
            ("points_kept", integer(counters.points_kept)),
            ("dropped_nonfinite", integer(counters.dropped_nonfinite)),
            ("dropped_outside", integer(counters.dropped_outside)),
            ("dropped_overflow", integer(counters.dropped_overflow)),
            ("unusable", Parameter::ListInt(self.grids.left_out.unusable.clone())),
            ("saturated", integer(self.grids.left_out.saturated)),
            ("inputs", Parameter::ListString(self.names.clone())),
            (
                "inputs_valid",
                Parameter::ListInt(self.collector.inputs_valid().to_vec()),
            ),
            (
                "inputs_age_ns",
                Parameter::ListInt(self.collector.inputs_age_ns().to_vec()),
            ),
            ("device", Parameter::String(made.device.to_string())),
        ];
        parameters.extend(entries.map(|(key, value)| (key.to_owned(), value)));
        let shape = match self.config.layout {
            VoxelLayout::Dense => [&[channels.len() as i64], cells.as_slice()].concat(),
            VoxelLayout::Bits => cells.to_vec(),
            VoxelLayout::Coo => Vec::new(),
        };
        if !shape.is_empty() {
            parameters.insert("shape".into(), Parameter::ListInt(shape));
        }
        let dtype = match self.config.layout {
            VoxelLayout::Dense => Some(self.config.dtype),
            VoxelLayout::Bits => Some(Dtype::UInt8),
            VoxelLayout::Coo => None,
        };
        if let Some(dtype) = dtype {
            parameters.insert("dtype".into(), Parameter::String(dtype.name().into()));
        }
        if let (Device::Cuda(_), Some(cuda)) = (made.device, self.grids.backend.resident()) {
            let bytes = Parameter::Integer(cuda.used_bytes() as i64);
            parameters.insert("device_bytes".into(), bytes);
        }
        if !self.frame_id.is_empty() {
            parameters.insert("frame_id".into(), Parameter::String(self.frame_id.clone()));
        }
    }

    /// The grid is in the frame of its cloud where there is one input and nothing moves it.
    fn note_frame(&mut self, message: &Message) {
        if let [only] = self.config.inputs.as_slice()
            && only.extrinsic.is_none()
        {
            self.frame_id.clone_from(&message.frame_id);
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
    counters: VoxelCounters,
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

    fn gather_on_cpu(&mut self, clouds: &[Message], used: &[usize]) -> VoxelCounters {
        self.faults.clear();
        let messages = used.iter().map(|&input| (input, &clouds[input]));
        self.cpu
            .gather(messages, |input, error| self.faults.push((input, error)))
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
        let cpu = &mut self.cpu;
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
        let unused = match self.collector.arrived(input, message.timestamp_ns) {
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
        if key.strip_prefix("voxelize.").unwrap_or(key) != "max_wait_ms" {
            return Ok(false);
        }
        self.collector.set_max_wait_ms(number_or_null(value)?)?;
        Ok(true)
    }
}

use super::number_or_null;
use crate::app::{App, AppError, Change, Fault, Operation, Outbox, Parameter, Parameters, Plugin, Registration, Value};
use crate::device::{Device, Dtype};
use crate::ops::ConfigError;
use crate::ops::voxelize::{Arrival, Cloud, Collector, Counters, VoxelLayout, VoxelizeConfig, Voxelizer};
use crate::stream::Message;
use half::{bf16, f16};
use std::time::Instant;

/// Publishes the clouds of `voxelize:` as voxel grids, `voxels`.
pub struct VoxelizePlugin;

impl Plugin for VoxelizePlugin {
    fn name(&self) -> &'static str {
        "voxelize"
    }

    fn build(&self, app: &mut App) -> Result<(), AppError> {
        let config: VoxelizeConfig = app.config()?;
        let operation = Voxelize::new(config, app.device()).map_err(|error| app.refused(&error))?;
        app.add_operation(Registration {
            name: self.name().into(),
            inputs: operation.names.clone(),
            outputs: vec!["voxels".into()],
            operation: Box::new(operation),
        });
        Ok(())
    }
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
    voxelizer: Voxelizer,
    collector: Collector,
    config: VoxelizeConfig,
    names: Vec<String>,
    device: Device,
    /// The clouds that wait, where there are several inputs.
    waiting: Vec<Message>,
    frame_id: String,
}

impl Voxelize {
    fn new(config: VoxelizeConfig, device: Device) -> Result<Self, ConfigError> {
        Ok(Self {
            voxelizer: Voxelizer::new(&config)?,
            collector: Collector::new(&config),
            names: config.inputs.iter().map(|input| input.input.clone()).collect(),
            waiting: config.inputs.iter().map(|_| Message::default()).collect(),
            frame_id: String::new(),
            device,
            config,
        })
    }

    fn make_due_grid(&mut self, out: &mut Outbox<'_>) {
        if !self.collector.due() {
            return;
        }
        let start = Instant::now();
        self.voxelizer.begin();
        for input in 0..self.waiting.len() {
            if self.collector.waits(input) {
                add(&mut self.voxelizer, input, &self.waiting[input], out);
            }
        }
        self.publish(start, out);
    }

    fn publish(&mut self, start: Instant, out: &mut Outbox<'_>) {
        let Some(stamp) = self.collector.take() else {
            return;
        };
        let counters = self.voxelizer.finish();
        let gathered = start.elapsed();
        let voxelizer = &self.voxelizer;
        let add_metadata = |parameters: &mut Parameters| self.describe(stamp, &counters, parameters);
        out.send(0, voxelizer.layout(), |payload| {
            // What lies between is the transport's: it makes room for the message.
            let start = Instant::now();
            match (self.config.layout, self.config.dtype) {
                (VoxelLayout::Bits, _) => voxelizer.write_bits(payload.column(0)),
                (VoxelLayout::Coo, _) => {
                    let (coords, features) = payload.columns();
                    voxelizer.write_coo(coords, features);
                }
                (VoxelLayout::Dense, Dtype::Float16) => voxelizer.write_dense::<f16>(payload.column(0)),
                (VoxelLayout::Dense, Dtype::BFloat16) => voxelizer.write_dense::<bf16>(payload.column(0)),
                (VoxelLayout::Dense, _) => voxelizer.write_dense::<f32>(payload.column(0)),
            }
            let compute_us = (gathered + start.elapsed()).as_secs_f64() * 1e6;
            let mut parameters = Parameters::from([("compute_us".into(), Parameter::Float(compute_us))]);
            add_metadata(&mut parameters);
            parameters
        });
    }

    fn describe(&self, stamp: i64, counters: &Counters, parameters: &mut Parameters) {
        let grid = self.voxelizer.grid();
        let channels = self.voxelizer.channels();
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
            ("inputs", Parameter::ListString(self.names.clone())),
            (
                "inputs_valid",
                Parameter::ListInt(self.collector.inputs_valid().to_vec()),
            ),
            (
                "inputs_age_ns",
                Parameter::ListInt(self.collector.inputs_age_ns().to_vec()),
            ),
            ("device", Parameter::String(self.device.to_string())),
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

fn add(voxelizer: &mut Voxelizer, input: usize, message: &Message, out: &mut Outbox<'_>) {
    let added = Cloud::from_message(message).and_then(|cloud| voxelizer.add(input, &cloud));
    if let Err(error) = added {
        out.fault(input, error);
    }
}

impl Operation for Voxelize {
    fn input(&mut self, input: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        let start = Instant::now();
        self.voxelizer.check(&Cloud::from_message(message)?)?;
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
            self.voxelizer.begin();
            add(&mut self.voxelizer, input, message, out);
            self.publish(start, out);
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

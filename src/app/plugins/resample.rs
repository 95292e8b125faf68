use crate::app::{App, AppError, Fault, Operation, Outbox, Parameter, Parameters, Plugin, Registration};
use crate::device::cuda::Gpu;
use crate::device::{Backend, Device};
use crate::ops::ConfigError;
use crate::ops::resample::cuda::ShardedResampler;
use crate::ops::resample::{Counters, ResampleConfig, Resampler, Trajectories};
use crate::stream::{Layout, Message};
use std::time::Instant;

/// Batches of fewer bytes are always done on the CPU, where they take less time than a launch on a device.
const CPU_BYTES: usize = 1 << 16;

/// Publishes the batches of `trajectories` at their targets, `resampled`.
pub struct ResamplePlugin;

impl Plugin for ResamplePlugin {
    fn name(&self) -> &'static str {
        "resample"
    }

    fn about(&self) -> &'static str {
        "Resamples batches of `trajectories` at their targets, as `resampled`."
    }

    fn build(&self, app: &mut App) -> Result<(), AppError> {
        let config: ResampleConfig = app.config()?;
        let placement = app.placement();
        let cuda = |gpus: &[Gpu]| ShardedResampler::new(&config, gpus, placement.max_bytes());
        let refused = |error: ConfigError| app.refused(&error);
        let operation = Resample {
            cpu: Resampler::new(&config).map_err(refused)?,
            backend: Backend::new(self.name(), placement, CPU_BYTES, cuda).map_err(refused)?,
            layout: Layout::default(),
        };
        app.add_operation(Registration {
            name: self.name().into(),
            inputs: vec!["trajectories".into()],
            outputs: vec!["resampled".into()],
            operation: Box::new(operation),
        });
        Ok(())
    }
}

struct Resample {
    cpu: Resampler,
    backend: Backend<ShardedResampler>,
    layout: Layout,
}

impl Resample {
    /// Fills the columns on the device that is quicker, and says which it was.
    fn run(&mut self, batch: &Trajectories<'_>, values: &mut [u8], valid: &mut [u8]) -> (Counters, Device) {
        let work = batch.input_bytes() + batch.output_bytes();
        let start = Instant::now();
        let mut done = None;
        if let Some(cuda) = self.backend.cuda(work, false) {
            match cuda.run(batch, values, valid) {
                Ok(counters) => done = Some((counters, self.backend.device())),
                Err(error) => self.backend.failed(work, error),
            }
        }
        let (counters, device) = done.unwrap_or_else(|| (self.cpu.run(batch, values, valid), Device::Cpu));
        self.backend.took(work, device, start.elapsed());
        (counters, device)
    }
}

impl Operation for Resample {
    fn input(&mut self, _: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        let batch = Trajectories::from_message(message)?;
        batch.layout_into(&mut self.layout);
        let layout = std::mem::take(&mut self.layout);
        out.send(0, &layout, |payload| {
            let start = Instant::now();
            let (value_offsets, valid_offsets) = payload.both_offsets();
            batch.offsets_into(value_offsets, valid_offsets);
            let (values, valid) = payload.columns();
            let (counters, device) = self.run(&batch, values, valid);
            let compute_us = start.elapsed().as_secs_f64() * 1e6;
            let integer = |count: u64| Parameter::Integer(count as i64);
            let entries = [
                ("timestamp_ns", Parameter::Integer(message.timestamp_ns)),
                ("dim", Parameter::Integer(batch.dim() as i64)),
                ("dtype", Parameter::String(batch.dtype().name().into())),
                ("targets", integer(counters.targets)),
                ("invalid", integer(counters.invalid)),
                ("dropped_nonfinite", integer(counters.dropped_nonfinite)),
                ("device", Parameter::String(device.to_string())),
                ("compute_us", Parameter::Float(compute_us)),
            ];
            let mut parameters: Parameters = entries
                .map(|(key, value)| (key.to_owned(), value))
                .into_iter()
                .collect();
            if let (Device::Cuda(_), Some(cuda)) = (device, self.backend.resident()) {
                let bytes = Parameter::Integer(cuda.bytes_in_use() as i64);
                parameters.insert("device_bytes".into(), bytes);
            }
            parameters
        });
        self.layout = layout;
        if let Some(error) = self.backend.take_lost() {
            out.end(error);
        }
        Ok(())
    }
}

use crate::app::{App, AppError, Fault, Operation, Outbox, Parameter, Parameters, Plugin, Registration};
use crate::device::Device;
use crate::ops::resample::{ResampleConfig, Resampler, Trajectories};
use crate::stream::{Layout, Message};
use std::time::Instant;

/// Publishes the batches of `trajectories` at their targets, `resampled`.
pub struct ResamplePlugin;

impl Plugin for ResamplePlugin {
    fn name(&self) -> &'static str {
        "resample"
    }

    fn build(&self, app: &mut App) -> Result<(), AppError> {
        let config: ResampleConfig = app.config()?;
        let operation = Resample {
            resampler: Resampler::new(&config).map_err(|error| app.refused(&error))?,
            device: app.device(),
            layout: Layout {
                rows: 0,
                columns: Vec::new(),
            },
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
    resampler: Resampler,
    device: Device,
    layout: Layout,
}

impl Operation for Resample {
    fn input(&mut self, _: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        let batch = Trajectories::from_message(message)?;
        batch.layout_into(&mut self.layout);
        out.send(0, &self.layout, |payload| {
            let start = Instant::now();
            let (value_offsets, valid_offsets) = payload.both_offsets();
            batch.offsets_into(value_offsets, valid_offsets);
            let (values, valid) = payload.columns();
            let counters = self.resampler.run(&batch, values, valid);
            let compute_us = start.elapsed().as_secs_f64() * 1e6;
            let integer = |count: u64| Parameter::Integer(count as i64);
            let entries = [
                ("timestamp_ns", Parameter::Integer(message.timestamp_ns)),
                ("dim", Parameter::Integer(batch.dim() as i64)),
                ("dtype", Parameter::String(batch.dtype().name().into())),
                ("targets", integer(counters.targets)),
                ("invalid", integer(counters.invalid)),
                ("dropped_nonfinite", integer(counters.dropped_nonfinite)),
                ("device", Parameter::String(self.device.to_string())),
                ("compute_us", Parameter::Float(compute_us)),
            ];
            entries
                .map(|(key, value)| (key.to_owned(), value))
                .into_iter()
                .collect::<Parameters>()
        });
        Ok(())
    }
}

use super::observe::{self, Columns, Fill, change, push_samples, set_parameter};
use crate::app::{App, AppError, Change, Fault, Operation, Outbox, Plugin, Registration, Value};
use crate::device::{Device, Element};
use crate::ops::ConfigError;
use crate::ops::align::{Aligner, Masks, Target};
use crate::ops::fuse::{FuseConfig, cpu};
use crate::stream::Message;

/// Publishes the streams of `fuse:` as one tensor, `fused`.
pub struct FusePlugin;

impl Plugin for FusePlugin {
    fn name(&self) -> &'static str {
        "fuse"
    }

    fn build(&self, app: &mut App) -> Result<(), AppError> {
        let config: FuseConfig = app.config()?;
        let operation = Fuse::new(&config, app.device()).map_err(|error| app.refused(&error))?;
        app.add_operation(Registration {
            name: self.name().into(),
            inputs: operation.columns.names.clone(),
            outputs: vec!["fused".into()],
            operation: Box::new(operation),
        });
        Ok(())
    }
}

struct Fuse {
    aligner: Aligner,
    device: Device,
    columns: Columns,
    masks: Masks,
}

struct FuseValues;

impl Fill for FuseValues {
    fn fill<E: Element>(&self, aligner: &Aligner, target: &Target, out: &mut [E], masks: &mut Masks) {
        cpu::fuse(aligner, target, out, masks);
    }
}

impl Fuse {
    fn new(config: &FuseConfig, device: Device) -> Result<Self, ConfigError> {
        let aligner = Aligner::new(config)?;
        Ok(Self {
            columns: Columns::new(&aligner, 0..aligner.modalities()),
            masks: Masks::default(),
            device,
            aligner,
        })
    }

    /// The engine, and what publishes its observations.
    fn split(&mut self) -> (&mut Aligner, impl FnMut(&Aligner, &Target, &mut Outbox<'_>) + '_) {
        let Self {
            aligner,
            device,
            columns,
            masks,
        } = self;
        let emit = |aligner: &Aligner, target: &Target, out: &mut Outbox<'_>| {
            out.send(0, &columns.layout, |payload| {
                observe::observe(aligner, target, *device, columns, masks, payload, FuseValues)
            });
        };
        (aligner, emit)
    }
}

impl Operation for Fuse {
    fn input(&mut self, input: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        let (aligner, emit) = self.split();
        push_samples(aligner, input, message, out, emit)
    }

    fn changed(&mut self, input: usize, to: Change, out: &mut Outbox<'_>) {
        let (aligner, emit) = self.split();
        change(aligner, input, to, out, emit);
    }

    fn parameter(&mut self, key: &str, value: &Value) -> Result<bool, Fault> {
        set_parameter(&mut self.aligner, "fuse", key, value)
    }
}

use super::observe::{self, Columns, Fill, change, push_samples, set_parameter};
use crate::app::{App, AppError, Change, Fault, Operation, Outbox, Parameter, Plugin, Registration, Value};
use crate::device::{Device, Element};
use crate::ops::ConfigError;
use crate::ops::align::{AlignConfig, Aligner, Masks, Target, cpu};
use crate::stream::Message;

/// Publishes each stream of `align:` by itself, on the common targets, as an output of the input's name.
pub struct AlignPlugin;

impl Plugin for AlignPlugin {
    fn name(&self) -> &'static str {
        "align"
    }

    fn build(&self, app: &mut App) -> Result<(), AppError> {
        let config: AlignConfig = app.config()?;
        let operation = Align::new(&config, app.device()).map_err(|error| app.refused(&error))?;
        let names: Vec<String> = config
            .modalities
            .iter()
            .map(|modality| modality.input.clone())
            .collect();
        app.add_operation(Registration {
            name: self.name().into(),
            inputs: names.clone(),
            outputs: names,
            operation: Box::new(operation),
        });
        Ok(())
    }
}

struct Align {
    aligner: Aligner,
    device: Device,
    outputs: Vec<Output>,
    masks: Masks,
}

struct Output {
    columns: Columns,
    frame_id: String,
}

struct AlignValues(usize);

impl Fill for AlignValues {
    fn fill<E: Element>(&self, aligner: &Aligner, target: &Target, out: &mut [E], masks: &mut Masks) {
        cpu::align(aligner, target, self.0, out, masks);
    }
}

impl Align {
    fn new(config: &AlignConfig, device: Device) -> Result<Self, ConfigError> {
        let aligner = Aligner::new(config)?;
        let outputs = (0..aligner.modalities()).map(|modality| Output {
            columns: Columns::new(&aligner, modality..modality + 1),
            frame_id: String::new(),
        });
        Ok(Self {
            outputs: outputs.collect(),
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
            outputs,
            masks,
        } = self;
        let emit = |aligner: &Aligner, target: &Target, out: &mut Outbox<'_>| {
            for (i, Output { columns, frame_id }) in outputs.iter().enumerate() {
                out.send(i, &columns.layout, |payload| {
                    let fill = AlignValues(i);
                    let mut parameters = observe::observe(aligner, target, *device, columns, masks, payload, fill);
                    if !frame_id.is_empty() {
                        parameters.insert("frame_id".into(), Parameter::String(frame_id.clone()));
                    }
                    parameters
                });
            }
        };
        (aligner, emit)
    }
}

impl Operation for Align {
    fn input(&mut self, input: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        self.outputs[input].frame_id.clone_from(&message.frame_id);
        let (aligner, emit) = self.split();
        push_samples(aligner, input, message, out, emit)
    }

    fn changed(&mut self, input: usize, to: Change, out: &mut Outbox<'_>) {
        let (aligner, emit) = self.split();
        change(aligner, input, to, out, emit);
    }

    fn parameter(&mut self, key: &str, value: &Value) -> Result<bool, Fault> {
        set_parameter(&mut self.aligner, "align", key, value)
    }
}

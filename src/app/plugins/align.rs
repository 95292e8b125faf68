use super::observe::{Observe, check_size};
use crate::app::{AppError, BuildContext, Plugin, Registration};
use robocache_ops::align::{AlignConfig, Aligner};

/// Publishes each stream of `align:` by itself, on the common targets, as an output of the input's name.
#[derive(Default)]
pub struct AlignPlugin {
    config: Option<AlignConfig>,
}

impl AlignPlugin {
    /// With a configuration from the program. [`default`](Self::default) takes it from the file.
    pub fn new(config: AlignConfig) -> Self {
        Self { config: Some(config) }
    }
}

impl Plugin for AlignPlugin {
    fn name(&self) -> &'static str {
        "align"
    }

    fn about(&self) -> &'static str {
        "Puts streams on common timestamps, each as an output of its own name."
    }

    fn is_configured(&self) -> bool {
        self.config.is_some()
    }

    fn build(&self, context: &mut BuildContext<'_>) -> Result<(), AppError> {
        let config = context.config_or(&self.config)?;
        let aligner = Aligner::split(&config, context.placement()).map_err(|error| context.refused(&error))?;
        for modality in &config.modalities {
            let size = check_size(&config, &modality.input, modality.dim, context);
            size.map_err(|error| context.refused(&error))?;
        }
        let operation = Observe::new(context.name(), &config, aligner, true);
        context.add_operation(Registration {
            name: context.name().into(),
            inputs: operation.inputs(),
            outputs: operation.streams(),
            operation: Box::new(operation),
        });
        Ok(())
    }
}

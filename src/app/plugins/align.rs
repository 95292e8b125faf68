use super::observe::{Observe, check_size};
use crate::app::{App, AppError, Plugin, Registration};
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

    fn build(&self, app: &mut App) -> Result<(), AppError> {
        let config = app.config_or(&self.config)?;
        let aligner = Aligner::split(&config, app.placement()).map_err(|error| app.refused(&error))?;
        for modality in &config.modalities {
            let size = check_size(&config, &modality.input, modality.dim, app);
            size.map_err(|error| app.refused(&error))?;
        }
        let operation = Observe::new(app.name(), &config, aligner, true);
        app.add_operation(Registration {
            name: app.name().into(),
            inputs: operation.inputs(),
            outputs: operation.streams(),
            operation: Box::new(operation),
        });
        Ok(())
    }
}

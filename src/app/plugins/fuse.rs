use super::observe::{Observe, check_size};
use crate::app::{AppError, BuildContext, Plugin, Registration};
use robocache_ops::align::{Aligner, FUSED};
use robocache_ops::fuse::FuseConfig;

/// Publishes the streams of `fuse:` as one tensor, `fused`.
#[derive(Default)]
pub struct FusePlugin {
    config: Option<FuseConfig>,
}

impl FusePlugin {
    /// With a configuration from the program. [`default`](Self::default) takes it from the file.
    pub fn new(config: FuseConfig) -> Self {
        Self { config: Some(config) }
    }
}

impl Plugin for FusePlugin {
    fn name(&self) -> &'static str {
        "fuse"
    }

    fn about(&self) -> &'static str {
        "Puts streams on common timestamps, as one tensor `fused` with a mask, and with `attach` as an `observation`."
    }

    fn is_configured(&self) -> bool {
        self.config.is_some()
    }

    fn build(&self, context: &mut BuildContext<'_>) -> Result<(), AppError> {
        let config = context.config_or(&self.config)?;
        let aligner = Aligner::new(&config, context.placement()).map_err(|error| context.refused(&error))?;
        check_size(&config, FUSED, config.columns(), context).map_err(|error| context.refused(&error))?;
        let operation = Observe::new(context.name(), &config, aligner, false);
        context.add_operation(Registration {
            name: context.name().into(),
            inputs: operation.inputs(),
            outputs: operation.outputs_of_fuse(),
            operation: Box::new(operation),
        });
        Ok(())
    }
}

use super::observe::Observe;
use crate::app::{App, AppError, Plugin, Registration};
use crate::ops::align::Aligner;

/// Publishes each stream of `align:` by itself, on the common targets, as an output of the input's name.
pub struct AlignPlugin;

impl Plugin for AlignPlugin {
    fn name(&self) -> &'static str {
        "align"
    }

    fn about(&self) -> &'static str {
        "Puts streams on common timestamps, each as an output of its own name."
    }

    fn build(&self, app: &mut App) -> Result<(), AppError> {
        let aligner = Aligner::split(&app.config()?, app.placement()).map_err(|error| app.refused(&error))?;
        let operation = Observe::new(self.name(), aligner, true);
        app.add_operation(Registration {
            name: self.name().into(),
            inputs: operation.inputs(),
            outputs: operation.inputs(),
            operation: Box::new(operation),
        });
        Ok(())
    }
}

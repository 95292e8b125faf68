use super::observe::Observe;
use crate::app::{App, AppError, Plugin, Registration};
use crate::ops::align::Aligner;

/// Publishes the streams of `fuse:` as one tensor, `fused`.
pub struct FusePlugin;

impl Plugin for FusePlugin {
    fn name(&self) -> &'static str {
        "fuse"
    }

    fn about(&self) -> &'static str {
        "Puts streams on common timestamps, as one tensor `fused` with a mask."
    }

    fn build(&self, app: &mut App) -> Result<(), AppError> {
        let aligner = Aligner::new(&app.config()?, app.placement()).map_err(|error| app.refused(&error))?;
        let operation = Observe::new(self.name(), aligner, false);
        app.add_operation(Registration {
            name: self.name().into(),
            inputs: operation.inputs(),
            outputs: vec!["fused".into()],
            operation: Box::new(operation),
        });
        Ok(())
    }
}

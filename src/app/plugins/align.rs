use super::add;
use super::observe::{Observe, check_size};
use crate::app::{AppError, BuildContext};
use robocache_ops::align::{AlignConfig, Aligner};

plugin! {
    /// Plugin that puts the streams of `align:` on common timestamps, and publishes each on an output with the input's name.
    AlignPlugin(AlignConfig), "align": "Puts streams on common timestamps, each as an output of its own name."
}

fn build(config: AlignConfig, context: &mut BuildContext<'_>) -> Result<(), AppError> {
    let aligner = Aligner::aligned(&config, context.placement()).map_err(|error| context.refused(&error))?;
    for modality in &config.modalities {
        let size = check_size(&config, &modality.input, modality.dim, context);
        size.map_err(|error| context.refused(&error))?;
    }
    let operation = Observe::new(context.name(), &config, aligner, true);
    add(context, operation.inputs(), operation.streams(), operation)
}

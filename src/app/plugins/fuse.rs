use super::add;
use super::observe::{Observe, check_size};
use crate::app::{AppError, BuildContext};
use robocache_ops::align::{Aligner, FUSED};
use robocache_ops::fuse::FuseConfig;

plugin! {
    /// Plugin that puts the streams of `fuse:` on common timestamps, and publishes them as one tensor, `fused`.
    FusePlugin(FuseConfig), "fuse": "Puts streams on common timestamps, as one tensor `fused` with a mask, and with `attach` as an `observation`."
}

fn build(config: FuseConfig, context: &mut BuildContext<'_>) -> Result<(), AppError> {
    let aligner = Aligner::fused(&config, context.placement()).map_err(|error| context.refused(&error))?;
    check_size(&config, FUSED, config.columns(), context).map_err(|error| context.refused(&error))?;
    let operation = Observe::new(context.name(), &config, aligner, false);
    add(context, operation.inputs(), operation.outputs_of_fuse(), operation)
}

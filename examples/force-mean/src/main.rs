//! Node that runs the plugin `force_mean`, and fuse after it, in one process.

use force_mean::ForceMeanPlugin;
use robocache::prelude::*;
use std::process::ExitCode;

fn main() -> ExitCode {
    robocache::dora::main(|| {
        let app = App::new()
            .add_plugin(ForceMeanPlugin::default())
            .add_plugin(FusePlugin::default());
        Ok(robocache::dora::run(app)?)
    })
}

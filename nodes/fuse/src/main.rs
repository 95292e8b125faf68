//! Publishes sensor streams on common timestamps as one tensor.

use robocache::app::{App, plugins::FusePlugin};
use robocache::dora;
use std::process::ExitCode;

fn main() -> ExitCode {
    dora::main(|| Ok(dora::run(App::new().add_plugin(FusePlugin::default()))?))
}

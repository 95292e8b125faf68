//! Publishes sensor streams on common timestamps, each stream on an output of its own.

use robocache::app::{App, plugins::AlignPlugin};
use robocache::dora;
use std::process::ExitCode;

fn main() -> ExitCode {
    dora::main(|| Ok(dora::run(App::new().add_plugin(AlignPlugin::default()))?))
}

//! Writes the messages of its inputs to a recording.

use robocache::app::{App, plugins::RecordPlugin};
use robocache::dora;
use std::process::ExitCode;

fn main() -> ExitCode {
    dora::main(|| Ok(dora::run(App::new().add_plugin(RecordPlugin::default()))?))
}

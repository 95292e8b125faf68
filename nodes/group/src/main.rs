//! Publishes sets of messages of several inputs with the same stamp, or nearly the same.

use robocache::app::{App, plugins::GroupPlugin};
use robocache::dora;
use std::process::ExitCode;

fn main() -> ExitCode {
    dora::main(|| Ok(dora::run(App::new().add_plugin(GroupPlugin::default()))?))
}

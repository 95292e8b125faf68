//! robocache's own plugins, and the functions that they share.
//!
//! Each plugin is made by the macro `plugin!`: its configuration comes from the program, else from its section of the file.

/// Defines a plugin type with its name and its text in `--help`. The module's function `build` gets the plugin's configuration
/// from the program, or else from the section of the file.
macro_rules! plugin {
    ($(#[doc = $doc:literal])+ $Plugin:ident($Config:ty), $name:literal: $about:literal) => {
        $(#[doc = $doc])+
        #[derive(Default)]
        pub struct $Plugin {
            config: Option<$Config>,
        }

        impl $Plugin {
            /// Makes the plugin with a configuration from the program. [`default`](Self::default) makes a plugin that reads its
            /// section of the configuration file.
            pub fn new(config: $Config) -> Self {
                Self { config: Some(config) }
            }
        }

        impl $crate::app::Plugin for $Plugin {
            fn name(&self) -> &'static str {
                $name
            }

            fn about(&self) -> &'static str {
                $about
            }

            fn is_configured(&self) -> bool {
                self.config.is_some()
            }

            fn build(&self, context: &mut BuildContext<'_>) -> Result<(), AppError> {
                build(context.config_or(&self.config)?, context)
            }
        }
    };
}

mod align;
mod clock;
mod fuse;
mod group;
mod kinematics;
mod map;
mod observe;
mod record;
mod replay;
mod resample;
mod voxelize;
mod watch;

pub use align::AlignPlugin;
pub use clock::ClockPlugin;
pub use fuse::FusePlugin;
pub use group::GroupPlugin;
pub use kinematics::KinematicsPlugin;
pub use map::MapPlugin;
pub use record::{RecordConfig, RecordPlugin};
pub use replay::{ReplayConfig, ReplayPlugin, Speed};
pub use resample::ResamplePlugin;
pub use voxelize::VoxelizePlugin;

use super::{AppError, BuildContext, Fault, Operation, Outbox, Plugin, Registration, Value};
use robocache_stream::{Column, Message};
use robocache_time::ns_to_s;

/// All plugins of robocache, without configurations, for [`App::add_plugins`](super::App::add_plugins).
pub fn all() -> Vec<Box<dyn Plugin>> {
    vec![
        Box::new(AlignPlugin::default()),
        Box::new(ClockPlugin::default()),
        Box::new(FusePlugin::default()),
        Box::new(GroupPlugin::default()),
        Box::new(KinematicsPlugin::default()),
        Box::new(MapPlugin::default()),
        Box::new(RecordPlugin::default()),
        Box::new(ReplayPlugin::default()),
        Box::new(ResamplePlugin::default()),
        Box::new(VoxelizePlugin::default()),
    ]
}

/// Registers the operation of a plugin under the plugin's own name or, without one, under the name of its kind, such as `fuse`.
fn add(
    context: &mut BuildContext<'_>,
    inputs: Vec<String>,
    outputs: Vec<String>,
    operation: impl Operation + 'static,
) -> Result<(), AppError> {
    context.add_operation(Registration {
        name: context.name().into(),
        inputs,
        outputs,
        operation: Box::new(operation),
    });
    Ok(())
}

/// Parses the value of a live parameter: a number, or null, which switches the parameter off and gives `None`.
fn number_or_null(value: &Value) -> Result<Option<f64>, Fault> {
    match value {
        Value::Null => Ok(None),
        value => Ok(Some(value.as_f64().ok_or("it must be a number or null")?)),
    }
}

/// Counts as faults the columns of a message that were skipped when it was read, and the columns with nulls. The texts
/// `columns` and `nulls` complete the log lines: what the operation does with such columns and nulls.
fn report_losses(input: usize, message: &Message, (columns, nulls): (&str, &str), out: &mut Outbox<'_>) {
    for skipped in message.skipped() {
        let (name, kind) = (skipped.field.name(), skipped.field.data_type());
        out.fault(
            input,
            format_args!("column `{name}` is {kind} and {columns} ({})", skipped.reason),
        );
    }
    let with_nulls = |column: &&Column| column.integers.is_some() || !column.null_rows.is_empty();
    for column in message.columns().iter().filter(with_nulls) {
        let (name, kind) = (&column.name, column.type_name());
        out.fault(input, format_args!("column `{name}` of {kind} has nulls, {nulls}"));
    }
}

/// Warns that the clock of an input jumped by `jump_ns`, positive if ahead. `done` says what the operation does about it.
fn warn_of_jump(input: usize, jump_ns: i64, done: &str, out: &mut Outbox<'_>) {
    let seconds = ns_to_s(jump_ns);
    // Two kinds, so that both jumps are logged if a stamp jumps there and back.
    let kind = if jump_ns < 0 {
        "clock jumps back"
    } else {
        "clock jumps ahead"
    };
    out.warn(input, kind, format_args!("the clock jumped by {seconds:.3} s: {done}"));
}

//! The trait of plugins, which read a configuration and register operations.
//!
//! A plugin does no work of its own. Under `--check` it changes nothing outside the process.

use super::{AppError, BuildContext, Operation};

/// A kind of operation, which an [`App`](super::App) builds as its configuration says.
///
/// A plugin is made by the program. When the app is built, [`build`](Self::build) is called once for every entry of `plugins:`
/// with its name, or once if the configuration lists no plugins. It reads the configuration and registers an [`Operation`],
/// whose documentation has an example of both. All of that happens before the node joins its dataflow, so that a configuration
/// which can't be used is found out at once.
///
/// By convention a plugin has two constructors: `new(config)` for a program that has its configuration in code, and
/// `default()` for one that leaves it to the YAML file.
pub trait Plugin {
    /// Name of the plugin: the key of its section in the configuration.
    fn name(&self) -> &'static str;

    /// Purpose of the plugin, in a sentence for `--help`.
    fn about(&self) -> &'static str {
        ""
    }

    /// True if the plugin has its configuration from the program. It then needs no section, and runs even if `plugins:` does not
    /// list it.
    fn is_configured(&self) -> bool {
        false
    }

    /// Name that distinguishes the plugin from another with the same [`name`](Self::name): see [`with_name`](Self::with_name).
    /// With `None` the plugin's name is also the name of its operation.
    fn own_name(&self) -> Option<&str> {
        None
    }

    /// Reads the configuration with [`BuildContext::config`] or [`BuildContext::config_or`] and registers the operation with
    /// [`BuildContext::add_operation`] or [`BuildContext::add_source`]. If [`BuildContext::is_check`], it must change nothing
    /// outside the process, and the inputs of the dataflow are not known.
    ///
    /// # Errors
    /// A configuration that can't be used.
    fn build(&self, context: &mut BuildContext<'_>) -> Result<(), AppError>;

    /// Gives the plugin a name of its own, so that the same operation can run twice in a process. With the name `wrist` the
    /// operation is `wrist` in the log and in live parameters (`wrist.max_wait_ms`). Its output `fused` is `wrist/fused`, for the
    /// dataflow and for the operations after it. In a YAML file, `name: wrist` in an entry of `plugins:` does the same.
    fn with_name(self, name: impl Into<String>) -> Named<Self>
    where
        Self: Sized,
    {
        Named {
            plugin: self,
            name: name.into(),
        }
    }
}

/// A plugin with a name of its own: [`Plugin::with_name`].
pub struct Named<P> {
    plugin: P,
    name: String,
}

impl<P: Plugin> Plugin for Named<P> {
    fn name(&self) -> &'static str {
        self.plugin.name()
    }

    fn about(&self) -> &'static str {
        self.plugin.about()
    }

    fn is_configured(&self) -> bool {
        self.plugin.is_configured()
    }

    fn own_name(&self) -> Option<&str> {
        Some(&self.name)
    }

    fn build(&self, context: &mut BuildContext<'_>) -> Result<(), AppError> {
        self.plugin.build(context)
    }
}

/// An operation to run, with the names of its inputs and outputs.
pub struct Registration {
    /// Name of the operation in the log and in live parameters: [`BuildContext::name`].
    pub name: String,
    /// Names of the inputs that the operation takes; [`Operation::input`] gets their indices in this list.
    pub inputs: Vec<String>,
    /// Names of the outputs that the operation publishes; [`Outbox::send`](super::Outbox::send) takes their indices in this list.
    pub outputs: Vec<String>,
    /// Operation that the graph calls.
    pub operation: Box<dyn Operation>,
}

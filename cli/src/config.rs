//! Configuration files, read and checked by the library's own code. Recorders and replays are checked, but never built, so that
//! nothing is written here.

use robocache::app::plugins::{self, AlignPlugin, GroupPlugin, RecordConfig, ReplayConfig};
use robocache::app::{App, AppError, BuildContext, Config, Graph, OutputResidence, Plugin};
use robocache::device::Placement;
use robocache::ops::align::AlignConfig;
use robocache::ops::clock::ClockConfig;
use robocache::ops::group::GroupingConfig;
use robocache::ops::kinematics::KinematicsConfig;
use robocache::ops::map::MapConfig;
use robocache::ops::voxelize::VoxelizeConfig;
use robocache::stream::Selection;
use robocache_sim::config::SimConfig;
use robocache_sim::plugin::SimPlugin;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;

/// Order in which the sections of a configuration without `plugins:` run. Each section can use the outputs of earlier sections
/// as inputs.
pub const ORDER: [&str; 8] = [
    "clock",
    "kinematics",
    "voxelize",
    "map",
    "fuse",
    "align",
    "group",
    "resample",
];

/// Section of a configuration, with its parsed values.
#[derive(Clone)]
pub enum Section {
    /// Section `fuse` or `align`.
    Observe(AlignConfig),
    Clock(ClockConfig),
    Group(GroupingConfig),
    Kinematics(KinematicsConfig),
    Map(MapConfig),
    Record(RecordConfig),
    Replay(ReplayConfig),
    Resample,
    Sim(SimConfig),
    Voxelize(VoxelizeConfig),
}

/// Operation of a configuration: the plugin that runs, and its section.
#[derive(Clone)]
pub struct Operation {
    /// The plugin's name: the key of its section.
    pub plugin: &'static str,
    /// Name that the configuration gives the operation; `None` if only the plugin's name is known.
    pub own_name: Option<String>,
    pub section: Section,
}

impl Operation {
    /// Label of the operation in errors: the plugin's name, and the operation's own name if it has one.
    pub fn label(&self) -> String {
        match &self.own_name {
            None => self.plugin.to_owned(),
            Some(name) => format!("{} `{name}`", self.plugin),
        }
    }

    /// The name by which other operations read `output` of this operation: `NAME/output` if the operation has a name of
    /// its own.
    pub fn output(&self, output: &str) -> String {
        match &self.own_name {
            None => output.to_owned(),
            Some(name) => format!("{name}/{output}"),
        }
    }
}

/// Configuration of a node that was read and found valid.
pub struct CheckedConfig {
    pub operations: Vec<Operation>,
    /// Inputs that must be wired in the dataflow, as no operation of the configuration publishes them.
    pub inputs: Vec<String>,
    pub residences: Vec<(String, OutputResidence)>,
    /// Warnings about the configuration, such as sections or an order of operations that may be a mistake.
    pub warnings: Vec<String>,
}

/// Creates the plugin of this name, to run in a process with other plugins; `None` if no plugin has the name. Outputs of `align`
/// and `group` are named as their inputs are, so the plugin's name is put before them.
pub fn named_plugin(name: &str) -> Option<Box<dyn Plugin>> {
    match name {
        "align" => Some(Box::new(AlignPlugin::default().with_name(name))),
        "group" => Some(Box::new(GroupPlugin::default().with_name(name))),
        _ => plugins(Some(name)).pop(),
    }
}

/// Creates all of robocache's own plugins, or only the plugin `named`. The simulated robot is created only if it is named.
pub fn plugins(named: Option<&str>) -> Vec<Box<dyn Plugin>> {
    let mut found = plugins::all();
    if named.is_some() {
        found.push(Box::new(SimPlugin));
    }
    found.retain(|plugin| named.is_none_or(|name| plugin.name() == name));
    found
}

/// Checks a file as a node with these plugins would read it.
///
/// # Errors
/// A configuration that can't be used.
pub fn check(file: &Path, plugins: Vec<Box<dyn Plugin>>) -> Result<CheckedConfig, AppError> {
    let read = Rc::default();
    let graph = with_operation_log(App::new().with_config(Config::read(file)?), plugins, &read).check()?;
    let operations = read.take();
    Ok(CheckedConfig {
        operations,
        inputs: graph.external_inputs().map(|(input, _)| input.to_owned()).collect(),
        residences: graph.residences().to_vec(),
        warnings: graph.warnings().to_vec(),
    })
}

/// Builds the operations of a configuration, to run on the CPU. Without `plugins:` there is one for each section that `order`
/// names, in that order. Only outputs for which `is_wanted` is true are published. Errors contain `what_for`, a verb for the
/// caller's purpose.
pub fn graph(
    file: &Path,
    order: &[&'static str],
    what_for: &str,
    is_wanted: impl Fn(&str, &[Operation]) -> bool,
) -> eyre::Result<(Graph, Vec<Operation>)> {
    let config = Config::read(file)?;
    let plugins = if config.has_plugins() {
        plugins(None)
    } else {
        let there: BTreeSet<&str> = config.sections().collect();
        let names = order.iter().filter(|name| there.contains(*name));
        names.filter_map(|name| named_plugin(name)).collect()
    };
    if plugins.is_empty() {
        let problem = format!(
            "it has nothing to {what_for} (allowed: a section of {}, or `plugins:`)",
            order.join(", ")
        );
        return Err(AppError::Config {
            file: file.to_owned(),
            section: "configuration".to_owned(),
            problem,
        }
        .into());
    }
    let notes = OperationLog::default();
    let app = App::new()
        .with_config(config)
        .with_placement(Placement::cpu("to run it over a recording"));
    let graph = with_operation_log(app, plugins, &notes).build(|output| is_wanted(output, &notes.borrow()))?;
    Ok((graph, notes.take()))
}

/// External inputs by name, each with the selection (`from:`) of the message columns that are read.
pub type Selections = Vec<(String, Selection)>;

/// Reads the operations of a file, and the selections of their external inputs.
///
/// # Errors
/// A configuration that can't be used.
pub fn selections(file: &Path) -> Result<(Selections, Vec<Operation>), AppError> {
    let config = Config::read(file)?;
    let plugins = if config.has_plugins() {
        plugins(None)
    } else {
        let mut all = plugins(None);
        all.retain(|plugin| config.sections().any(|section| section == plugin.name()));
        // Each operation runs after those whose outputs it takes.
        let mut names: Vec<_> = all.iter().map(|plugin| plugin.name()).collect();
        names.sort_by_key(|name| ORDER.iter().position(|known| known == name));
        names.into_iter().filter_map(named_plugin).collect()
    };
    let notes = OperationLog::default();
    let graph = with_operation_log(App::new().with_config(config), plugins, &notes).check()?;
    let inputs = graph.external_inputs().enumerate();
    let selections = inputs.map(|(i, (input, _))| (input.to_owned(), graph.selection(i).unwrap_or_default()));
    Ok((selections.collect(), notes.take()))
}

/// Shared list of a configuration's operations, in the order in which their plugins are built.
pub type OperationLog = Rc<RefCell<Vec<Operation>>>;

/// Adds plugins to an app. Each plugin appends its operation to `notes` when it is built.
pub fn with_operation_log(app: App, plugins: Vec<Box<dyn Plugin>>, notes: &OperationLog) -> App {
    let noted = plugins.into_iter().map(|plugin| {
        let notes = notes.clone();
        Box::new(LoggedPlugin { plugin, notes }) as Box<dyn Plugin>
    });
    app.add_plugins(noted)
}

/// Wrapper that appends the operation of a plugin to `notes`. It then builds the plugin, unless the plugin records or replays.
struct LoggedPlugin {
    plugin: Box<dyn Plugin>,
    notes: OperationLog,
}

impl Plugin for LoggedPlugin {
    fn name(&self) -> &'static str {
        self.plugin.name()
    }

    fn own_name(&self) -> Option<&str> {
        self.plugin.own_name()
    }

    fn build(&self, context: &mut BuildContext<'_>) -> Result<(), AppError> {
        let plugin = self.name();
        let section = match plugin {
            "clock" => Section::Clock(context.config()?),
            "group" => Section::Group(context.config()?),
            "kinematics" => Section::Kinematics(context.config()?),
            "map" => Section::Map(context.config()?),
            "record" => Section::Record(context.config()?),
            "replay" => Section::Replay(context.config()?),
            "resample" => Section::Resample,
            "sim" => Section::Sim(context.config()?),
            "voxelize" => Section::Voxelize(context.config()?),
            _ => Section::Observe(context.config()?),
        };
        // If the file gives no name, the context has the plugin's name.
        let own_name = Some(context.name()).filter(|&name| name != plugin || self.own_name().is_some());
        let own_name = own_name.map(str::to_owned);
        // These plugins are not built: nothing is written here, and a recording to be replayed may not exist yet.
        let is_recording = matches!(section, Section::Record(_) | Section::Replay(_));
        self.notes.borrow_mut().push(Operation {
            plugin,
            own_name,
            section,
        });
        if is_recording {
            Ok(())
        } else {
            self.plugin.build(context)
        }
    }
}

//! The command line of a node.
//!
//! An argument that is not known is refused, with the allowed ones, before the configuration is read.

use super::NodeError;
use super::log::FILTER;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;

/// Task that the command line asks for; [`Run`](Task::Run) if no option says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Run,
    Check,
    Help,
    Version,
}

/// Command line of a node: the task, and the file that `--config` or `--check` names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    pub task: Task,
    pub config: Option<PathBuf>,
}

impl Arguments {
    /// Parses the arguments after the program's name.
    pub(super) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Self, NodeError> {
        use lexopt::Arg::{Long, Short, Value};
        let refused = |error: lexopt::Error| NodeError::Arguments(error.to_string());
        let mut arguments = lexopt::Parser::from_args(words);
        let mut found = Self::of(Task::Run);
        while let Some(argument) = arguments.next().map_err(refused)? {
            match argument {
                Long("config") => found.config = Some(arguments.value().map_err(refused)?.into()),
                Long("check") => found.task = Task::Check,
                Value(file) if found.task == Task::Check && found.config.is_none() => found.config = Some(file.into()),
                // Beside these, other arguments do not matter.
                Long("help") | Short('h') => return Ok(Self::of(Task::Help)),
                Long("version") | Short('V') => return Ok(Self::of(Task::Version)),
                other => return Err(refused(other.unexpected())),
            }
        }
        Ok(found)
    }

    fn of(task: Task) -> Self {
        Self { task, config: None }
    }

    /// Path of the configuration to read, from the command line, else from the environment variable `ROBOCACHE_CONFIG`.
    pub(super) fn config_file(self) -> Option<PathBuf> {
        self.config
            .or_else(|| std::env::var_os("ROBOCACHE_CONFIG").map(PathBuf::from))
    }
}

/// File name of this program; `robocache` if the system does not give it.
fn program() -> String {
    let path = std::env::args_os().next().map(PathBuf::from);
    let name = path.as_deref().and_then(|path| path.file_name());
    name.map_or_else(|| "robocache".into(), |name| name.to_string_lossy().into_owned())
}

pub(crate) fn version() -> String {
    format!(
        "{} (robocache {}, dora {})",
        program(),
        env!("CARGO_PKG_VERSION"),
        super::VERSION
    )
}

/// Formats the text of `--help`, for a node with these plugins: the name and the purpose of each.
pub(crate) fn help(plugins: &[(&str, &str)]) -> String {
    let program = program();
    let mut text = format!("{program}: a node of a dora dataflow\n\n");
    // Writing to a string can't fail.
    for (name, about) in plugins {
        let _ = writeln!(text, "  {name:<12} {about}");
    }
    let section = match plugins {
        [(name, _)] => format!("Its configuration is a YAML file with the section `{name}:`."),
        _ => {
            let first = plugins.iter().take(2);
            let entries: String = first.map(|(name, _)| format!("\n    - {name}: {{ ... }}")).collect();
            format!(
                "Its configuration is a YAML file with the key `plugins:`, which lists what runs, in order, such as\n\n  \
                 plugins:{entries}"
            )
        }
    };
    let _ = write!(
        text,
        "
{section}
Its README describes every key.

Usage:
  {program} --config FILE     in a dataflow: `path: {program}`, `args: --config FILE`
  {program} --check FILE

Options:
  --config FILE   the configuration
  --check         checks the configuration and lists its operations, without dora
  -h, --help      prints this text
  -V, --version   prints the version

Environment:
  ROBOCACHE_CONFIG            the configuration, if --config is not given
  ROBOCACHE_STATUS            the folder of status files, if the configuration
                              has no `status:`
  RUST_LOG                    filter of the log, which goes to standard error
                              (default: {FILTER})
  DORA_ZENOH_CONFIG_OVERLAY,  settings of dora's transport; if neither is set,
  ZENOH_CONFIG                the node gives bursts more room than dora does

Exit codes:
  0   the dataflow has ended; the configuration can be used
  1   the node could not go on
  2   the configuration or the command line can't be used
"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<(Task, Option<PathBuf>), String> {
        let parsed = Arguments::parse(words.iter().map(OsString::from)).map_err(|error| error.to_string())?;
        Ok((parsed.task, parsed.config))
    }

    #[test]
    fn a_command_line_says_what_to_do_and_with_which_file() {
        let file = Some(PathBuf::from("robot.yml"));
        assert_eq!(parse(&[]), Ok((Task::Run, None)));
        assert_eq!(parse(&["--config", "robot.yml"]), Ok((Task::Run, file.clone())));
        assert_eq!(
            parse(&["--config=robot.yml", "--check"]),
            Ok((Task::Check, file.clone()))
        );
        assert_eq!(parse(&["--check", "robot.yml"]), Ok((Task::Check, file)));
        assert_eq!(
            parse(&["--config", "robot.yml", "-h", "--nonsense"]),
            Ok((Task::Help, None))
        );
        assert_eq!(parse(&["--version"]), Ok((Task::Version, None)));
        for refused in [
            &["robot.yml"][..],
            &["--config"],
            &["--chekc"],
            &["--check", "a.yml", "b.yml"],
        ] {
            let words = parse(refused).unwrap_err();
            assert!(words.contains("allowed: --config FILE"), "{words}");
        }
    }

    #[test]
    fn help_fits_a_terminal_and_names_every_plugin() {
        for plugins in [
            &[("fuse", "Fuses.")][..],
            &[("fuse", "Fuses."), ("voxelize", "Voxelizes.")],
        ] {
            let text = help(plugins);
            assert!(
                plugins
                    .iter()
                    .all(|(name, about)| text.contains(name) && text.contains(about))
            );
            for word in [
                "--config",
                "--check",
                "--help",
                "--version",
                "ROBOCACHE_CONFIG",
                "ROBOCACHE_STATUS",
                "RUST_LOG",
                "Exit codes",
            ] {
                assert!(text.contains(word), "{word}");
            }
        }
    }
}

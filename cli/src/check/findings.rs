//! Findings of `robocache check`: each names a file and a key in it. Equal findings are kept once.

use crate::output::Level;
use robocache::app::AppError;
use serde::Serialize;
use std::fmt::Display;
use std::path::{Path, PathBuf};

#[derive(Serialize, PartialEq)]
pub(super) struct Finding {
    pub level: Level,
    pub file: PathBuf,
    /// Path of the key in `file` that the finding is about, such as `nodes.robot.outputs` or `fuse.modalities[0].dim`.
    pub at: String,
    pub problem: String,
}

/// Findings of a check so far, in the order in which they were added.
#[derive(Default)]
pub(super) struct Findings(pub Vec<Finding>);

impl Findings {
    fn add(&mut self, level: Level, file: &Path, at: impl Display, problem: impl Display) {
        let finding = Finding {
            level,
            file: file.to_owned(),
            at: at.to_string(),
            problem: problem.to_string(),
        };
        // Two nodes may read the same section.
        if !self.0.contains(&finding) {
            self.0.push(finding);
        }
    }

    pub fn error(&mut self, file: &Path, at: impl Display, problem: impl Display) {
        self.add(Level::Error, file, at, problem);
    }

    pub fn warn(&mut self, file: &Path, at: impl Display, problem: impl Display) {
        self.add(Level::Warning, file, at, problem);
    }

    pub fn note(&mut self, file: &Path, at: impl Display, problem: impl Display) {
        self.add(Level::Note, file, at, problem);
    }

    /// Adds an error of the library as a finding, with the file and the section if the error is about a configuration.
    pub fn refused(&mut self, error: AppError) {
        match error {
            AppError::Config { file, section, problem } => self.error(&file, section, problem),
            other => self.error(Path::new(""), "", other),
        }
    }
}

/// Collector of findings about one section of `file`. It puts the section's label, such as `fuse`, before each key.
pub(super) struct SectionFindings<'a> {
    pub file: &'a Path,
    pub label: String,
    pub findings: &'a mut Findings,
}

impl SectionFindings<'_> {
    pub fn error(&mut self, key: &str, problem: String) {
        self.findings.error(self.file, format!("{}.{key}", self.label), problem);
    }

    pub fn warn(&mut self, key: &str, problem: String) {
        self.findings.warn(self.file, format!("{}.{key}", self.label), problem);
    }

    pub fn note(&mut self, key: &str, problem: String) {
        self.findings.note(self.file, format!("{}.{key}", self.label), problem);
    }

    /// Adds an error about a section that is a list. `problem` begins with the index in the list and the key, such
    /// as `[0].input`.
    pub fn refused(&mut self, problem: String) {
        self.findings.error(self.file, &self.label, problem);
    }

    /// Adds a warning about a section that is a list. `problem` begins with the index in the list and the key, such
    /// as `[0].input`.
    pub fn warn_of_entry(&mut self, problem: String) {
        self.findings.warn(self.file, &self.label, problem);
    }
}

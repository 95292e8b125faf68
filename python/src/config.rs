//! Configurations, and the argument `device` of Python calls. They are read as the nodes read them: the same YAML, checks
//! and errors.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use robocache::app::{App, AppError, BuildContext, Config, Plugin};
use robocache::device::{DeviceChoice, Placement};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

/// The YAML text of a configuration, and the path that errors name as its file.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Source {
    text: String,
    file: String,
}

impl Source {
    /// Builds an operation from one section of the configuration: calls `make` with that section. The other sections
    /// are ignored.
    pub fn build<T: 'static>(
        &self,
        section: &'static str,
        placement: Placement,
        make: impl Fn(&BuildContext<'_>) -> Result<T, AppError> + 'static,
    ) -> Result<T, AppError> {
        let made = Rc::new(RefCell::new(None));
        let config = Config::parse(Path::new(&self.file), &self.text)?.only(section)?;
        let app = App::new().with_config(config).with_placement(placement);
        let plugin = Section {
            name: section,
            make,
            made: made.clone(),
        };
        app.add_plugin(plugin).build(|_| false)?;
        made.take()
            .ok_or_else(|| self.refused(section, "the section is not used"))
    }

    /// Makes the error about a section of the configuration, with the file, the section and the problem.
    pub fn refused(&self, section: &str, problem: impl Into<String>) -> AppError {
        AppError::Config {
            file: self.file.clone().into(),
            section: section.into(),
            problem: problem.into(),
        }
    }
}

/// Makes the `ValueError` for a wrong configuration, with the text of `error`.
pub fn refusal(error: AppError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Plugin that calls `make` with a section of the configuration, and stores the result in `made`.
struct Section<T, F> {
    name: &'static str,
    make: F,
    made: Rc<RefCell<Option<T>>>,
}

impl<T, F: Fn(&BuildContext<'_>) -> Result<T, AppError>> Plugin for Section<T, F> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn build(&self, context: &mut BuildContext<'_>) -> Result<(), AppError> {
        let made = (self.make)(context)?;
        self.made.replace(Some(made));
        Ok(())
    }
}

/// Resolves the argument `device`, such as "auto" or "cuda:0", to the devices on which an operation runs; `None` is the CPU.
pub fn placement(device: Option<&str>) -> PyResult<Placement> {
    let choice = match device {
        None => DeviceChoice::Cpu,
        Some(text) => DeviceChoice::parse(text).ok_or_else(|| {
            let words = format!("`device` is {text:?} (allowed: None, auto, cpu, cuda, cuda:N, hip, hip:N)");
            PyValueError::new_err(words)
        })?,
    };
    Placement::resolve(choice, None).map_err(|error| PyValueError::new_err(format!("`device`: {error}")))
}

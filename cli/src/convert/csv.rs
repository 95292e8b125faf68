//! Source and sinks of CSV and TSV tables. A table holds one stream. In a folder, a table that can't be read does not keep the
//! other tables from being read.

use super::{Problems, Refused, Remarks, Sink, Source};
use clap::ValueEnum;
use eyre::bail;
use robocache::formats::Error;
use robocache::formats::csv::{Options, Reader, Writer};
use robocache::stream::{Message, TimeUnit};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Options for reading tables.
#[derive(clap::Args)]
#[command(next_help_heading = "Tables")]
pub struct Args {
    /// The column of times, if its name is not one that is known
    #[arg(long, value_name = "COLUMN")]
    time: Option<String>,
    /// The unit of the times, if neither the name of their column nor their number of digits gives it; of a bag, the unit of stamps that are plain numbers
    #[arg(long)]
    unit: Option<Unit>,
    /// Makes a stream of columns that are named alike up to the last `.` or `/`
    #[arg(long)]
    by_prefix: bool,
}

impl Args {
    /// The unit of times, if `--unit` gives it.
    pub fn unit(&self) -> Option<TimeUnit> {
        self.unit.map(TimeUnit::from)
    }
}

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Unit {
    S,
    Ms,
    Us,
    Ns,
}

impl From<Unit> for TimeUnit {
    fn from(unit: Unit) -> Self {
        match unit {
            Unit::S => Self::Second,
            Unit::Ms => Self::Millisecond,
            Unit::Us => Self::Microsecond,
            Unit::Ns => Self::Nanosecond,
        }
    }
}

/// Lists the CSV and TSV files of a folder, sorted by path; empty if the folder can't be read.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    files_called(folder, &["csv", "tsv"])
}

/// Lists the files of a folder with one of these extensions, in upper or lower case, sorted by path.
fn files_called(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_called = |path: &PathBuf| {
        let extension = path.extension().unwrap_or_default();
        extensions.iter().any(|called| extension.eq_ignore_ascii_case(called))
    };
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_called).collect();
    found.sort();
    found
}

/// Source that reads the rows of CSV and TSV tables, one table after the other.
pub struct CsvSource {
    readers: Vec<Reader>,
    at: usize,
    problems: Problems,
    notes: Vec<String>,
}

impl CsvSource {
    pub fn open(path: &Path, args: &Args) -> eyre::Result<Self> {
        let options = Options {
            time: args.time.clone(),
            unit: args.unit(),
            by_prefix: args.by_prefix,
        };
        let (paths, texts) = if path.is_dir() {
            (files(path), files_called(path, &["txt"]))
        } else {
            (vec![path.to_owned()], Vec::new())
        };
        let left_out = |text: &PathBuf| {
            let allowed = "allowed in a folder: tables called .csv or .tsv";
            format!("{}: left out, as a text may be no table ({allowed})", text.display())
        };
        let mut problems = Problems::default();
        let mut readers = Vec::with_capacity(paths.len());
        for path in &paths {
            match Reader::open(path, &options) {
                Ok(reader) => readers.push(reader),
                Err(error) if paths.len() == 1 => return Err(error.into()),
                Err(error) => problems.push(error),
            }
        }
        let mut tables = HashMap::new();
        for reader in &readers {
            for stream in reader.streams() {
                if let Some(other) = tables.insert(stream, reader.path()) {
                    bail!(
                        "{} and {}: both are the stream `{stream}` (allowed: one table for each stream)",
                        other.display(),
                        reader.path().display()
                    );
                }
            }
        }
        Ok(Self {
            readers,
            at: 0,
            problems,
            notes: texts.iter().map(left_out).collect(),
        })
    }
}

impl Source for CsvSource {
    fn next_into(&mut self, message: &mut Message) -> eyre::Result<Option<&str>> {
        while let Some(reader) = self.readers.get_mut(self.at) {
            match reader.next_into(message) {
                Ok(Some(stream)) => return Ok(Some(self.readers[self.at].stream(stream))),
                Ok(None) => self.at += 1,
                Err(error) => {
                    // After an I/O error no further row of the table can be read.
                    self.at += usize::from(matches!(error, Error::Io { .. }));
                    self.problems.push(error);
                }
            }
        }
        Ok(None)
    }

    fn remarks(&mut self) -> Remarks {
        let mut problems = self.problems.take();
        problems.extend(self.readers.iter().filter_map(Reader::broken));
        Remarks {
            problems,
            notes: self
                .readers
                .iter()
                .flat_map(Reader::left_out)
                .chain(self.notes.iter().cloned())
                .collect(),
        }
    }
}

impl Sink for Writer {
    fn append(&mut self, stream: &str, message: &Message) -> Result<(), Refused> {
        Ok(self.append(stream, message)?)
    }

    fn finish(&mut self) -> eyre::Result<Remarks> {
        self.finish()?;
        Ok(Remarks::default())
    }
}

/// Sink that writes one stream to one CSV or TSV table, and refuses a second stream.
pub struct Table {
    writer: Writer,
    path: PathBuf,
    stream: Option<String>,
}

impl Table {
    /// Creates a sink that writes the temporary file `made`. Errors name the table by `path`, where the finished file will be.
    pub fn create(made: &Path, path: &Path) -> Self {
        Self {
            writer: Writer::of_file(made),
            path: path.to_owned(),
            stream: None,
        }
    }

    fn refused(&self, streams: &[&str]) -> eyre::Report {
        eyre::eyre!("{}: {}", self.path.display(), one_table(streams))
    }
}

impl Sink for Table {
    fn append(&mut self, stream: &str, message: &Message) -> Result<(), Refused> {
        match &self.stream {
            Some(only) if only != stream => return Err(Refused::All(self.refused(&[only, stream]))),
            Some(_) => {}
            None => self.stream = Some(stream.to_owned()),
        }
        Ok(self.writer.append(stream, message)?)
    }

    fn finish(&mut self) -> eyre::Result<Remarks> {
        if self.stream.is_none() {
            return Err(self.refused(&[]));
        }
        self.writer.finish()?;
        Ok(Remarks::default())
    }
}

/// Formats the error for an input that has no stream or several streams, if the output is a single table.
pub fn one_table(streams: &[impl AsRef<str>]) -> String {
    let names: Vec<String> = streams.iter().map(|name| format!("`{}`", name.as_ref())).collect();
    let streams_found = match names.is_empty() {
        true => "there is no stream".to_owned(),
        false => format!("there are {}", names.join(", ")),
    };
    format!(
        "a table has one stream, and {streams_found} (allowed: an input of one stream, or a folder of tables: --to csv, and a name without `.csv`)"
    )
}

use std::io;
use std::path::{Path, PathBuf};

/// The reason why a message can't be recorded.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A folder or a file can't be made or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The folder or file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A batch of messages could not be written and is lost; the recording can go on.
    #[error("{}: {lost} messages are lost: {source}", path.display())]
    Lost {
        /// The file.
        path: PathBuf,
        /// Number of messages of the batch.
        lost: usize,
        /// The error of the system.
        source: io::Error,
    },
    /// A recording of that stream exists already, and is not written over.
    #[error("{}: the file exists (allowed: a folder without a recording of this stream)", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The folder has a recording of another run.
    #[error(
        "{} belongs to {} (allowed: a folder without a recording, such as one with `{{start}}` in its path; a restart in the \
         same dataflow continues the recording)",
        path.display(),
        of.as_ref().map_or_else(|| "a recording whose run is not known".to_owned(), |of| format!("the run {of}"))
    )]
    OtherRun {
        /// A file of that recording.
        path: PathBuf,
        /// The run of that recording, if it is known.
        of: Option<String>,
    },
    /// Another process records the stream.
    #[error("{}: another process is recording it (allowed: one recorder for each stream of a recording)", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// The name of a stream can't be a file name.
    #[error(
        "stream `{name}` can't be a file's name (allowed: a name without `/` and `\\` that does not start with `.`)"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// The columns of a message differ from those of the first message of its stream.
    #[error(
        "stream `{stream}`: {what} {came}, and the first message of the recording has {recorded} (allowed: the same in every message)"
    )]
    Misfit {
        /// The stream.
        stream: String,
        /// Property that differs.
        what: &'static str,
        /// Value of the property in the message.
        came: String,
        /// Value of the property in the recording.
        recorded: String,
    },
    /// A message has a form that a recording can't hold.
    #[error("stream `{stream}`: {problem}")]
    Form {
        /// The stream.
        stream: String,
        /// The problem: what came, and what is allowed.
        problem: String,
    },
}

/// The reason why a recording can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A folder or a file can't be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The folder or file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file of a stream is missing, although later files are there.
    #[error("{}: the file is missing, although later files of this stream exist: its messages can't be read", path.display())]
    MissingFile {
        /// The file.
        path: PathBuf,
    },
    /// The folder has no file of a stream.
    #[error("{}: no streams (allowed: a folder with a file `<output id>.arrow` for each stream)", path.display())]
    NoStreams {
        /// The folder.
        path: PathBuf,
    },
    /// A file lacks the arrivals of its messages.
    #[error("{}: no column `arrival_ns` (allowed: a recording that has it in every stream; otherwise the order of stamps)", path.display())]
    NoArrivals {
        /// The file.
        path: PathBuf,
    },
    /// The file is not an Arrow IPC file.
    #[error("{}: not an Arrow IPC file (allowed: a file that starts with `ARROW1`)", path.display())]
    NotArrow {
        /// The file.
        path: PathBuf,
    },
    /// The batches of a file are compressed.
    #[error(
        "{}: compressed with {codec} (allowed: no compression; with pyarrow: \
         `w = pyarrow.ipc.new_file(\"new.arrow\", t.schema); w.write_table(t); w.close()`, \
         `t` being `pyarrow.ipc.open_file(\"old.arrow\").read_all()`)",
        path.display()
    )]
    Compressed {
        /// The file.
        path: PathBuf,
        /// Codec of the compression.
        codec: &'static str,
    },
    /// A part of a file can't be read.
    #[error("{}: damaged at byte {at}: {problem}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Start of the part that can't be read.
        at: u64,
        /// The problem with that part.
        problem: String,
    },
    /// A file has no valid footer: its recorder did not end in order, or the file was cut off. All whole batches were read.
    #[error("{}: no valid footer: read up to the last whole batch, byte {at}; {left} bytes follow: {problem}", path.display())]
    Unfinished {
        /// The file.
        path: PathBuf,
        /// End of the last whole batch.
        at: u64,
        /// Number of bytes that follow.
        left: u64,
        /// The problem with these bytes.
        problem: String,
    },
    /// A file is whole up to its last batch, but its recorder did not mark that batch as the last.
    #[error("{}: its recorder did not end in order, or still records: messages of the last half second may be missing", path.display())]
    NotEnded {
        /// The file.
        path: PathBuf,
    },
    /// A column or the schema's metadata of a file do not have the form of a recording.
    #[error("{}: {problem}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// The problem: what came, and what is allowed.
        problem: String,
    },
    /// A file with a `dtype` in its schema, as robocache writes it, has columns that a tensor does not have. The others were read.
    #[error(
        "{}: columns that a tensor does not have are left out: {columns} (allowed: `timestamp_ns`, `data`, `shape`, \
         `timestamps_ns`, `valid`, `arrival_ns`, `metadata`; further columns if the schema's metadata have no `dtype`)",
        path.display()
    )]
    UnknownColumns {
        /// The file.
        path: PathBuf,
        /// Names of the columns.
        columns: String,
    },
    /// A row is not a message.
    #[error("{}: row {row}: {problem}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// The row, counted over the whole file.
        row: u64,
        /// The problem: what came, and what is allowed.
        problem: String,
    },
}

impl WriteError {
    /// Returns a function that makes a system error the error of a folder or a file.
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::Io { path, source }
    }
}

impl ReadError {
    /// Returns a function that makes a system error the error of a folder or a file.
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::Io { path, source }
    }
}

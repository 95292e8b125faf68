//! Errors of writing and of reading a recording. Each names the folder, the file or the stream at fault.

use std::io;
use std::path::{Path, PathBuf};

/// The reason why a message or a stream can't be recorded.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A folder or a file can't be made or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Folder or file that can't be made or written.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A batch of messages could not be written and is lost. Later messages can still be recorded.
    #[error("{}: {lost} messages are lost: {source}", path.display())]
    Lost {
        /// File that the batch was to be written to.
        path: PathBuf,
        /// Number of messages in the batch.
        lost: usize,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The stream has a file in the folder already, which is not overwritten.
    #[error("{}: the file exists (allowed: a folder without a recording of this stream: name another, or remove the file)", path.display())]
    Exists {
        /// Existing file of the stream.
        path: PathBuf,
    },
    /// The folder has a recording of another run.
    #[error(
        "{} belongs to {} (allowed: a folder without a recording, such as one with `{{start}}` in its path, or remove \
         it; a restart in the same dataflow continues the recording)",
        path.display(),
        of.as_ref().map_or_else(|| "a recording whose run is not known".to_owned(), |of| format!("the run {of}"))
    )]
    OtherRun {
        /// File of the other run's recording.
        path: PathBuf,
        /// Name of the other run; `None` if the folder has no file `.run` that names it.
        of: Option<String>,
    },
    /// Another process records the stream.
    #[error("{}: another process is recording it (allowed: one recorder for each stream of a recording; end the other, or name another folder)", path.display())]
    Busy {
        /// File of the stream that the other process has locked.
        path: PathBuf,
    },
    /// The name of a stream can't be a file name.
    #[error(
        "stream `{name}` can't be a file's name (allowed: a name without `/` and `\\` that does not start with `.`)"
    )]
    Name {
        /// Name of the stream.
        name: String,
    },
    /// The columns of a message differ from those of the first message of its stream.
    #[error(
        "stream `{stream}`: {what} {came}, and the first message of the recording has {recorded} (allowed: the same in every message; \
         send others as another output)"
    )]
    Misfit {
        /// Name of the stream.
        stream: String,
        /// Start of the error's sentence about the difference, such as `a column is`.
        what: &'static str,
        /// Property of the received message, as text.
        came: String,
        /// Property of the stream's first message, as text.
        recorded: String,
    },
    /// A message has a form that a recording can't hold.
    #[error("stream `{stream}`: {problem}")]
    Form {
        /// Name of the stream.
        stream: String,
        /// Form of the message, and the forms that are allowed.
        problem: String,
    },
}

/// The reason why a recording, or a part of it, can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A folder or a file can't be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// Folder or file that can't be read.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file of a stream is missing, although later files of the stream exist.
    #[error(
        "{}: the file is missing, although later files of this stream exist: its messages can't be read (needed: all files, as \
         they were recorded)",
        path.display()
    )]
    MissingFile {
        /// Missing file.
        path: PathBuf,
    },
    /// The folder has no file of a stream.
    #[error("{}: no streams (allowed: a folder with a file `<output id>.arrow` for each stream)", path.display())]
    NoStreams {
        /// Folder without a recorded stream.
        path: PathBuf,
    },
    /// A file has no column `arrival_ns`, which the order of arrivals needs.
    #[error(
        "{}: no column `arrival_ns` (allowed: a recording that has it in every stream; otherwise the order `stamp`)",
        path.display()
    )]
    NoArrivals {
        /// File without the column.
        path: PathBuf,
    },
    /// The file is not an Arrow IPC file.
    #[error("{}: not an Arrow IPC file (allowed: a file that starts with `ARROW1`; move any other out of the folder)", path.display())]
    NotArrow {
        /// File that does not start with `ARROW1`.
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
        /// File with compressed batches.
        path: PathBuf,
        /// Name of the compression codec.
        codec: &'static str,
    },
    /// A part of a file can't be read.
    #[error("{}: damaged at byte {at}: {problem}", path.display())]
    Damaged {
        /// Damaged file.
        path: PathBuf,
        /// Offset in the file of the part that can't be read, bytes.
        at: u64,
        /// Reason why the part can't be read.
        problem: String,
    },
    /// A file has no valid footer: its recorder did not finish, or the file was cut off. All whole batches were read.
    #[error("{}: no valid footer: read up to the last whole batch, byte {at}; {left} bytes follow: {problem}", path.display())]
    Unfinished {
        /// File without a valid footer.
        path: PathBuf,
        /// Offset in the file of the end of the last whole batch, bytes.
        at: u64,
        /// Number of bytes behind the last whole batch.
        left: u64,
        /// Reason why the bytes behind the last whole batch can't be read.
        problem: String,
    },
    /// All batches of a file are whole, but its footer marks the recording as unfinished.
    #[error("{}: its recorder did not end in order, or still records: messages of the last half second may be missing", path.display())]
    NotEnded {
        /// File whose footer marks the recording as unfinished.
        path: PathBuf,
    },
    /// A column or the schema's metadata of a file do not have the form of a recording.
    #[error("{}: {problem}", path.display())]
    Form {
        /// File that does not have the form of a recording.
        path: PathBuf,
        /// Form of the file, and the forms that are allowed.
        problem: String,
    },
    /// A file with a `dtype` in its schema, as robocache writes it, has columns that a tensor does not have. Only the other columns
    /// are read.
    #[error(
        "{}: columns that a tensor does not have are left out: {columns} (allowed: `timestamp_ns`, `data`, `shape`, \
         `timestamps_ns`, `valid`, `arrival_ns`, `metadata`; further columns if the schema's metadata have no `dtype`)",
        path.display()
    )]
    UnknownColumns {
        /// File with the unknown columns.
        path: PathBuf,
        /// Names of the unknown columns, separated by commas.
        columns: String,
    },
    /// A row is not a message.
    #[error("{}: row {row}: {problem}", path.display())]
    Row {
        /// File with the row.
        path: PathBuf,
        /// Index of the row in the whole file, from 0.
        row: u64,
        /// Contents of the row, and the contents that are allowed.
        problem: String,
    },
}

impl WriteError {
    /// Returns a function that converts an error of the operating system to an error that names `path`.
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::Io { path, source }
    }
}

impl ReadError {
    /// Returns a function that converts an error of the operating system to an error that names `path`.
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::Io { path, source }
    }
}

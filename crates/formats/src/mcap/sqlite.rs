//! Reader of a rosbag2 file in SQLite, in the order in which its messages were written. The database is never written to, and
//! rows after damaged ones are still read.

use super::interfaces;
use super::record::{Channel, Container, MOST_BYTES, RawMessage, Record, Schema};
use crate::Error;
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error as SqlError, ErrorCode, OpenFlags, OptionalExtension, Row};
use std::collections::{HashMap, VecDeque};
use std::fmt::Write;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Number of bytes of messages that are read in one batch, unless a single message has more.
const BATCH: usize = 4 << 20;
/// Largest number of damaged ranges of rows that are skipped. At the next one, the reader gives up.
const MOST_BREAKS: u32 = 1000;
/// Largest size of a name of a topic, type or encoding, bytes.
const MOST_NAME: usize = 4096;
/// Largest size of the definition of a message type, bytes.
const MOST_DEFINITION: usize = 1 << 20;
/// Longest wait for another program that has locked the database.
const PATIENCE: Duration = Duration::from_secs(1);

/// Reader of a bag's database, which is never written to.
pub(super) struct Database {
    path: PathBuf,
    connection: Connection,
    topics: Vec<Topic>,
    /// Indices of the topics, by their `id` in the database.
    topic_indices: HashMap<i64, u16>,
    /// Number (`rowid`) of the first row that is not read yet.
    next: i64,
    /// Rows that were read and are not returned yet.
    rows: VecDeque<ReadRow>,
    /// Data of the messages in `rows`, one after the other.
    data: Vec<u8>,
    /// Next step after all of `rows` are returned: to read more rows, to return a problem, or to end.
    then: Step,
    breaks: u32,
}

struct Topic {
    name: String,
    kind: String,
    serialization: String,
    /// Encoding of the topic's schema, and the schema itself; empty strings if the type is not known.
    schema: (&'static str, String),
}

struct ReadRow {
    topic: u16,
    time: u64,
    from: usize,
    to: usize,
}

enum Step {
    Rows,
    Problem(String),
    End,
}

impl Database {
    /// Opens the database file at `at`, which may be an unpacked copy: errors name it `path`. Also returns an error if a part
    /// of the database can't be read.
    pub(super) fn open(path: &Path, at: &Path) -> Result<(Self, Option<Error>), Error> {
        let io = |source| Error::io(path, source);
        let refused = |error: SqlError| Error::file(path, words(&error));
        let mut header = Vec::new();
        let mut file = File::open(at).map_err(io)?;
        (&mut file).take(HEADER).read_to_end(&mut header).map_err(io)?;
        let is_log = header.get(18) == Some(&2);
        let (connection, late) = connect(at, is_log).map_err(refused)?;
        let cut = cut(&header, file.metadata().map_err(io)?.len());
        if cut.is_some() {
            // With this setting, SQLite reads a file that is shorter than its header states.
            let query = "PRAGMA writable_schema = ON";
            connection.execute_batch(query).map_err(refused)?;
        }
        let mut database = Self {
            path: path.to_owned(),
            connection,
            topics: Vec::new(),
            topic_indices: HashMap::new(),
            next: i64::MIN,
            rows: VecDeque::new(),
            data: Vec::new(),
            then: Step::Rows,
            breaks: 0,
        };
        if let Some(problem) = database.check().map_err(refused)? {
            return Err(Error::file(path, problem));
        }
        database.read_topics().map_err(refused)?;
        let problem = cut.or(late).map(|problem| Error::file(path, problem));
        Ok((database, problem))
    }

    /// Checks that the tables `topics` and `messages` exist, and have only stored columns, not computed ones. Returns the
    /// problem; `None` if there is none.
    fn check(&self) -> rusqlite::Result<Option<String>> {
        for (table, columns) in [
            ("topics", "id, name, type, serialization_format"),
            ("messages", "topic_id, timestamp, data"),
        ] {
            let query = "SELECT count(*) FROM sqlite_schema WHERE name = ?1 AND type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'";
            let tables: i64 = self.connection.query_row(query, [table], |row| row.get(0))?;
            let query = "SELECT count(*) FROM pragma_table_xinfo(?1) WHERE hidden <> 0";
            let computed: i64 = self.connection.query_row(query, [table], |row| row.get(0))?;
            if (tables, computed) != (1, 0) {
                let problem = format!("a database without a table `{table}` of stored columns");
                return Ok(Some(problem + " (allowed: a bag of rosbag2)"));
            }
            let query = format!("SELECT rowid, {columns} FROM {table}");
            self.connection.prepare(&query)?;
        }
        Ok(None)
    }

    fn read_topics(&mut self) -> rusqlite::Result<()> {
        let mut described = HashMap::new();
        let query = "SELECT count(*) FROM sqlite_schema WHERE name = 'message_definitions' AND type = 'table'";
        if self.connection.query_row(query, [], |row| row.get::<_, i64>(0))? == 1 {
            let query = "SELECT topic_type, encoding, encoded_message_definition FROM message_definitions LIMIT 65535";
            let mut statement = self.connection.prepare(query)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let definition = text(row, 2, MOST_DEFINITION)?;
                if text(row, 1, MOST_NAME)? == "ros2msg" && !definition.is_empty() {
                    described.insert(text(row, 0, MOST_NAME)?, definition);
                }
            }
        }
        let query = "SELECT id, name, type, serialization_format FROM topics ORDER BY rowid LIMIT 65535";
        let mut statement = self.connection.prepare(query)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let kind = text(row, 2, MOST_NAME)?;
            let schema = match described.get(&kind) {
                Some(definition) => ("ros2msg", definition.clone()),
                None => interfaces::schema(&kind).map_or_else(Default::default, |known| (interfaces::BUILT_IN, known)),
            };
            self.topic_indices.insert(row.get(0)?, self.topics.len() as u16);
            self.topics.push(Topic {
                name: text(row, 1, MOST_NAME)?,
                serialization: text(row, 3, MOST_NAME)?,
                kind,
                schema,
            });
        }
        Ok(())
    }
}

impl Container for Database {
    fn describe(&self, take: &mut dyn FnMut(Record<'_>)) {
        for (i, topic) in self.topics.iter().enumerate() {
            let id = i as u16;
            take(Record::Schema(Schema {
                id: id + 1,
                name: &topic.kind,
                encoding: topic.schema.0,
                data: topic.schema.1.as_bytes(),
            }));
            let channel = Channel::new(id, id + 1, &topic.name, &topic.serialization);
            take(Record::Channel(channel));
        }
    }

    fn next(&mut self) -> Result<Option<Record<'_>>, Error> {
        while self.rows.is_empty() {
            match std::mem::replace(&mut self.then, Step::Rows) {
                Step::Rows => self.then = self.read_rows(),
                Step::Problem(problem) => return Err(Error::file(&self.path, problem)),
                Step::End => {
                    self.then = Step::End;
                    return Ok(None);
                }
            }
        }
        let row = self.rows.pop_front();
        Ok(row.map(|row| {
            Record::Message(RawMessage {
                channel: row.topic,
                log_time: row.time,
                publish_time: row.time,
                data: &self.data[row.from..row.to],
            })
        }))
    }
}

impl Database {
    /// Reads the next rows into `rows`. Returns the next step after all of these rows are returned.
    fn read_rows(&mut self) -> Step {
        self.data.clear();
        match self.read_batch() {
            Ok(then) => then,
            Err(error) if is_damage(&error) && self.breaks < MOST_BREAKS => {
                self.breaks += 1;
                let from = self.next.max(0);
                match self.find_readable(from) {
                    Some(next) => {
                        self.next = next;
                        Step::Problem(format!("rows {from} to {} can't be read: {}", next - 1, words(&error)))
                    }
                    None => self.end(from, &error),
                }
            }
            Err(error) => self.end(self.next.max(0), &error),
        }
    }

    fn end(&mut self, from: i64, error: &SqlError) -> Step {
        // The largest number ends the reading: there is no row behind it.
        self.next = i64::MAX;
        self.breaks = MOST_BREAKS;
        Step::Problem(format!("the rows from {from} on can't be read: {}", words(error)))
    }

    fn read_batch(&mut self) -> rusqlite::Result<Step> {
        if self.next == i64::MAX {
            return Ok(Step::End);
        }
        let query = "SELECT rowid, topic_id, timestamp, length(data), CASE WHEN length(data) <= ?2 THEN data END \
                     FROM messages WHERE rowid >= ?1 ORDER BY rowid";
        let mut statement = self.connection.prepare(query)?;
        let mut rows = statement.query((self.next, MOST_BYTES as i64))?;
        while let Some(row) = rows.next()? {
            let number: i64 = row.get(0)?;
            if number < self.next {
                // A page is linked twice, or pages are linked in a circle.
                return Err(SqlError::InvalidQuery);
            }
            self.next = number.saturating_add(1);
            let whole = |at: usize| match row.get_ref(at) {
                Ok(ValueRef::Integer(value)) => value,
                _ => 0,
            };
            let topic = self.topic_indices.get(&whole(1)).copied().unwrap_or(u16::MAX);
            let time = row.get_ref(2)?;
            if !matches!(time, ValueRef::Integer(_)) {
                let came = time.data_type();
                return Ok(Step::Problem(format!(
                    "row {number} is left out: its `timestamp` is {came} (allowed: Integer)"
                )));
            }
            let length = whole(3);
            if length > MOST_BYTES as i64 {
                let topic = self.topics.get(usize::from(topic)).map_or("", |topic| &topic.name);
                return Ok(Step::Problem(format!(
                    "row {number}, a message of {length} bytes of {topic}, is left out (allowed: {MOST_BYTES})"
                )));
            }
            let from = self.data.len();
            if let ValueRef::Blob(data) | ValueRef::Text(data) = row.get_ref(4)? {
                self.data.extend_from_slice(data);
            }
            self.rows.push_back(ReadRow {
                topic,
                time: u64::try_from(whole(2)).unwrap_or(0),
                from,
                to: self.data.len(),
            });
            if self.data.len() >= BATCH {
                return Ok(Step::Rows);
            }
        }
        Ok(Step::End)
    }

    /// Finds the next row that can be read after the row `from`, which can't be read. Returns the row's number; `None` if there
    /// is no higher row number.
    fn find_readable(&self, from: i64) -> Option<i64> {
        let query = "SELECT data FROM messages WHERE rowid >= ?1 ORDER BY rowid LIMIT 1";
        let is_readable = |from: i64| {
            let read = |row: &Row<'_>| row.get_ref(0).map(|_| ());
            self.connection.query_row(query, [from], read).optional().is_ok()
        };
        // Steps that double until a row can be read, and then a binary search for the first such row.
        let (mut bad, mut step) = (from, 1);
        let mut good = loop {
            let at = from.checked_add(step)?;
            if is_readable(at) {
                break at;
            }
            (bad, step) = (at, step.checked_mul(2)?);
        };
        while good - bad > 1 {
            let middle = bad + (good - bad) / 2;
            match is_readable(middle) {
                true => good = middle,
                false => bad = middle,
            }
        }
        Some(good)
    }
}

/// Number of bytes of the header at the start of a database file.
const HEADER: u64 = 100;

/// Opens a database for reading. `is_log` is true if the database's header says that it has a write-ahead log. Also returns the
/// problem if the log or journal in the same folder can't be applied.
fn connect(at: &Path, is_log: bool) -> rusqlite::Result<(Connection, Option<String>)> {
    let beside = |suffix: &str| {
        let mut name = at.as_os_str().to_owned();
        name.push(suffix);
        let is_there = fs::metadata(&name).is_ok_and(|about| about.len() > 0);
        is_there.then(|| PathBuf::from(name))
    };
    let late = [beside("-wal"), beside("-journal")].into_iter().flatten().next();
    // If the writer has removed its log in the end, reading in mode `ro` would create a new one.
    if late.is_some() || !is_log {
        match open(at, "mode=ro") {
            Err(error) if late.is_some() && is_unwritable(&error) => {}
            opened => return opened.map(|connection| (connection, None)),
        }
    }
    let connection = open(at, "immutable=1")?;
    let problem = late.map(|late| {
        let of = late.display();
        format!("`{of}` beside it is not applied: applying it needs a file and a folder that can be written to")
    });
    Ok((connection, problem))
}

fn open(at: &Path, how: &str) -> rusqlite::Result<Connection> {
    let path = fs::canonicalize(at).unwrap_or_else(|_| at.to_owned());
    let mut uri = String::from("file:");
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => uri.push(byte.into()),
            // Writing to a string can't fail.
            byte => drop(write!(uri, "%{byte:02x}")),
        }
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(format!("{uri}?{how}"), flags)?;
    connection.busy_timeout(PATIENCE)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, MOST_BYTES as i32 + (1 << 20))?;
    connection.execute_batch("PRAGMA cell_size_check = ON")?;
    match connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())) {
        Err(error) if !is_damage(&error) => Err(error),
        _ => Ok(connection),
    }
}

/// Returns the problem if a file of `length` bytes is shorter than its header states; else `None`.
fn cut(header: &[u8], length: u64) -> Option<String> {
    let number = |at: usize| header.get(at..)?.first_chunk().copied().map(u32::from_be_bytes);
    let page = match header.get(16..)?.first_chunk().copied().map(u16::from_be_bytes)? {
        1 => 1 << 16,
        page => u64::from(page),
    };
    // Old versions of SQLite do not update the number of pages.
    let pages = number(28).filter(|_| number(24) == number(92))?;
    let says = page * u64::from(pages);
    (length < says).then(|| format!("it ends at byte {length}, and says that it has {says}"))
}

fn is_damage(error: &SqlError) -> bool {
    let codes = [ErrorCode::DatabaseCorrupt, ErrorCode::NotADatabase, ErrorCode::TooBig];
    matches!(error, SqlError::InvalidQuery) || error.sqlite_error_code().is_some_and(|code| codes.contains(&code))
}

fn is_unwritable(error: &SqlError) -> bool {
    let codes = [ErrorCode::CannotOpen, ErrorCode::ReadOnly];
    error.sqlite_error_code().is_some_and(|code| codes.contains(&code))
}

fn words(error: &SqlError) -> String {
    match (error, error.sqlite_error_code()) {
        (SqlError::InvalidQuery, _) => "pages of the file stand in it twice".to_owned(),
        (_, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)) => {
            "another program has locked it (allowed: a bag that no other program is writing)".to_owned()
        }
        _ => format!("SQLite says: {error}"),
    }
}

/// Reads a string of at most `most` bytes from a row's column. A longer string is replaced by a note of its length, and a value
/// of another type by an empty string.
fn text(row: &Row<'_>, at: usize, most: usize) -> rusqlite::Result<String> {
    Ok(match row.get_ref(at)? {
        ValueRef::Text(text) | ValueRef::Blob(text) if text.len() <= most => String::from_utf8_lossy(text).into_owned(),
        ValueRef::Text(text) => format!("text of {} bytes", text.len()),
        _ => String::new(),
    })
}

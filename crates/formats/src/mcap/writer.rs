//! Writer of streams as ROS 2 messages in an MCAP file. A reader gives back the bytes that were appended, whatever message type
//! was chosen for them.

use super::chunks::Chunks;
use super::encoder::Cdr;
use super::form::{ABOUT, About, FIRST, Form, element};
use super::record::MOST_BYTES;
use super::standard::{self, JOINT_STATE, POINT_CLOUD2, STRING, Standard, schema};
use super::types::{Count, Kind};
use crate::parts::{ColumnSpec, are_columns_of, list_columns, parts_of};
use crate::{Error, free_name};
use robocache_device::Dtype;
use robocache_stream::recording::text;
use robocache_stream::{Message, Metadata, MetadataRef, form, key};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Largest size of an encoded message, bytes. The message's chunk has at most `MOST_BYTES`, and needs less than 4096 bytes in
/// addition to the message.
const MOST_DATA: u64 = MOST_BYTES - 4096;

/// Metadata keys with a field of their own in messages of the form `exact`, unless they are empty.
pub(super) const LISTS: [&str; 4] = [key::shape, key::timestamps_ns, key::valid, form::age_ns.name];

/// Writer of streams into a new MCAP file, as messages of ROS 2 in CDR. `docs/formats.md` says which message types are used.
///
/// [`Reader`](super::Reader) reads the same messages from the file, to the byte. The file is complete after
/// [`finish`](Self::finish) has returned.
pub struct Writer {
    path: PathBuf,
    chunks: Chunks,
    streams: Vec<StreamChannels>,
    topics: HashSet<String>,
    /// Schemas of the message types that robocache makes, by the names of the types.
    schemas: HashMap<String, String>,
    data: Cdr,
}

struct StreamChannels {
    name: String,
    topic: String,
    has_arrivals: bool,
    first: Metadata,
    /// Channels of the stream's messages, one for each form of its messages so far.
    channels: Vec<Channel>,
    /// Ids of the stream's further channels, by their form: `metadata` for changes of metadata, `view` for the occupied cells
    /// of a voxel grid.
    beside: Vec<(&'static str, u16)>,
    scratch: Metadata,
}

/// Channel of a stream's messages of one form.
struct Channel {
    form: Form,
    number: u16,
    /// Columns that each message of the channel must have.
    columns: Vec<ColumnSpec>,
}

impl Writer {
    /// Creates an MCAP file.
    ///
    /// # Errors
    /// If the file exists already, or can't be created.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref().to_owned();
        let library = concat!("robocache ", env!("CARGO_PKG_VERSION"));
        let chunks = File::create_new(&path).and_then(|file| Chunks::new(file, library));
        Ok(Self {
            chunks: chunks.map_err(|source| Error::io(&path, source))?,
            path,
            streams: Vec::new(),
            topics: HashSet::new(),
            schemas: HashMap::new(),
            data: Cdr::default(),
        })
    }

    /// Adds a message of `stream`. The `arrival_ns` of the message is kept if the first message of the stream has one.
    ///
    /// # Errors
    /// If the message can't be written in its stream: the message is left out, and the writer remains usable. If the file can't
    /// be written.
    pub fn append(&mut self, stream: &str, message: &Message) -> Result<(), Error> {
        let refused = |problem: &str| Error::message(stream, problem);
        if message.columns().is_empty() {
            let problem = "no payload (allowed: a primitive array or a StructArray with fields)";
            return Err(refused(problem));
        }
        let at = self.stream(stream, message);
        let stamp_ns = message.timestamp_ns();
        let log_ns = match (self.streams[at].has_arrivals, message.arrival_ns) {
            (true, Some(arrival_ns)) => arrival_ns,
            (true, None) => {
                return Err(refused(
                    "a message without `arrival_ns` (needed: one in every message, as in the first)",
                ));
            }
            (false, _) => stamp_ns.max(0),
        };
        let log_time =
            u64::try_from(log_ns).map_err(|_| refused("an `arrival_ns` before 1970 (allowed: 0 ns or more)"))?;
        let published = stamp_ns.max(0) as u64;

        let form = Form::of(message);
        let channel = self.channel(at, form, message).map_err(|problem| refused(&problem))?;
        let mut data = std::mem::take(&mut self.data);
        data.clear();
        match form {
            Form::Samples(standard) => samples(standard, message, &mut data),
            Form::Joints => joints(message, &mut data),
            Form::Cloud => cloud(message, &mut data),
            Form::Exact => exact(message, &mut data),
        }
        let written = match data.bytes.len() as u64 {
            // The differences come first, and only with their message: a reader takes them for the next one.
            ..=MOST_DATA => self
                .write_differences(at, form, message, log_time, published)
                .and_then(|()| self.write(channel, log_time, published, &data.bytes)),
            bytes => Err(refused(&format!("a message of {bytes} bytes (allowed: {MOST_DATA})"))),
        };
        self.data = data;
        written?;
        self.view(at, message, log_time, published)
    }

    /// Ends the file, and waits until the system has put the file on the disk. Later messages are refused.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.chunks.finish().map_err(|source| Error::io(&self.path, source))
    }

    /// Writes the changes of a message's metadata from those of its stream's first message. Writes nothing if there are none,
    /// or if the form is `exact`, which holds all metadata.
    fn write_differences(
        &mut self,
        at: usize,
        form: Form,
        message: &Message,
        log_time: u64,
        published: u64,
    ) -> Result<(), Error> {
        if form == Form::Exact {
            return Ok(());
        }
        match self.differences(at, message) {
            Some((channel, data)) => self.write(channel, log_time, published, &data),
            None => Ok(()),
        }
    }

    fn write(&mut self, channel: u16, log_time: u64, published: u64, data: &[u8]) -> Result<(), Error> {
        let written = self.chunks.message(channel, log_time, published, data);
        written.map_err(|source| Error::io(&self.path, source))
    }

    /// Returns the index of the stream `name`. A stream that is new is added, with `message` as its first message.
    fn stream(&mut self, name: &str, message: &Message) -> usize {
        if let Some(at) = self.streams.iter().position(|stream| stream.name == name) {
            return at;
        }
        let mut first = Metadata::default();
        metadata_of(message, &mut first);
        let topic = topic_of(name, &mut self.topics);
        self.streams.push(StreamChannels {
            name: name.to_owned(),
            topic,
            has_arrivals: message.arrival_ns.is_some(),
            first,
            channels: Vec::new(),
            beside: Vec::new(),
            scratch: Metadata::default(),
        });
        self.streams.len() - 1
    }

    /// Returns the id of the channel for messages of a form, and adds the channel if it is new. `at` is the index of
    /// the stream.
    fn channel(&mut self, at: usize, form: Form, message: &Message) -> Result<u16, String> {
        let stream = &self.streams[at];
        if let Some(channel) = stream.channels.iter().find(|channel| channel.form == form) {
            if are_columns_of(message, &channel.columns) {
                return Ok(channel.number);
            }
            let (came, known) = (list_columns(&parts_of(message)), list_columns(&channel.columns));
            return Err(format!("columns {came} (allowed: those of the first message, {known})"));
        }
        let known = |name: &str| (name.to_owned(), schema(name));
        let (kind, schema) = match form {
            Form::Samples(standard) => known(standard.name),
            Form::Joints => known(JOINT_STATE),
            Form::Cloud => known(POINT_CLOUD2),
            Form::Exact => own_type(&stream.name, message, &mut self.schemas),
        };
        let about = About {
            stream: stream.name.clone(),
            form: form.word().to_owned(),
            has_arrivals: stream.has_arrivals,
            parts: parts_of(message),
        };
        // The form of the first message has the name of the stream.
        let topic = match stream.channels.is_empty() {
            true => stream.topic.clone(),
            false => topic_of(&format!("{}.{}", stream.name, about.form), &mut self.topics),
        };
        let first = object_of(&stream.first);
        let number = self.add_channel(&topic, &kind, &schema, &about, &first)?;
        self.streams[at].channels.push(Channel {
            form,
            number,
            columns: about.parts,
        });
        Ok(number)
    }

    /// Returns the id of a further channel of the stream with index `at`, and adds the channel if it is new. Returns `None` if
    /// the channel can't be added. `form` is `metadata` or `view`.
    fn beside(&mut self, at: usize, form: &'static str, suffix: &str, kind: &str) -> Option<u16> {
        let stream = &self.streams[at];
        if let Some((_, channel)) = stream.beside.iter().find(|(known, _)| *known == form) {
            return Some(*channel);
        }
        let about = About {
            stream: stream.name.clone(),
            form: form.to_owned(),
            ..About::default()
        };
        let topic = topic_of(&format!("{}.{suffix}", stream.name), &mut self.topics);
        let channel = self.add_channel(&topic, kind, &schema(kind), &about, "").ok()?;
        self.streams[at].beside.push((form, channel));
        Some(channel)
    }

    fn add_channel(
        &mut self,
        topic: &str,
        kind: &str,
        schema: &str,
        about: &About,
        first: &str,
    ) -> Result<u16, String> {
        let metadata = [(ABOUT, &*about.to_text()), (FIRST, first)];
        let channel = self.chunks.channel(kind, schema, topic, metadata);
        channel.map_err(|error| error.to_string())
    }

    /// Encodes the changes of a message's metadata from those of its stream's first message.
    ///
    /// Returns the id of the channel for such changes, and the bytes; `None` if there are no changes, or the channel can't
    /// be added.
    fn differences(&mut self, at: usize, message: &Message) -> Option<(u16, Vec<u8>)> {
        let stream = &mut self.streams[at];
        metadata_of(message, &mut stream.scratch);
        let mut out = String::from("{");
        text::push_differences(&stream.first, &stream.scratch, &mut out);
        if out.len() == 1 {
            return None;
        }
        out.push('}');
        let channel = self.beside(at, "metadata", "metadata", STRING)?;
        let mut data = Cdr::new();
        data.text(&out);
        Some((channel, data.bytes))
    }

    /// Writes the occupied cells of a voxel grid as a cloud for viewers, in addition to the grid itself. Does nothing for
    /// other messages.
    fn view(&mut self, at: usize, message: &Message, log_time: u64, published: u64) -> Result<(), Error> {
        let mut data = Cdr::new();
        if super::voxels::cloud(message, &mut data).is_none() {
            return Ok(());
        }
        match self.beside(at, "view", "points", POINT_CLOUD2) {
            Some(channel) => self.write(channel, log_time, published, &data.bytes),
            None => Ok(()),
        }
    }
}

/// Makes a message type for messages with these columns. Returns the name of the type, which is unique, and its schema.
fn own_type(stream: &str, message: &Message, taken: &mut HashMap<String, String>) -> (String, String) {
    let mut columns = String::new();
    for (i, column) in message.columns().iter().enumerate() {
        let name = match column.name.as_str() {
            "" => "values".to_owned(),
            name => format!("{}_{i}", plain(name).to_lowercase()),
        };
        columns.push_str(&format!("{}[] {name}\n", element(column.dtype)));
        if column.cells.has_offsets() {
            columns.push_str(&format!("int32[] {name}_offsets\n"));
        }
    }
    let schema = standard::own_schema(&columns);
    let wanted = match message.columns() {
        [only] if only.name.is_empty() => format!("Tensor{}", camel(element(only.dtype).name())),
        _ => format!("Table{}", camel(stream)),
    };
    let name = free_name(&format!("robocache_msgs/msg/{wanted}"), "", |name| {
        *taken.entry(name.to_owned()).or_insert_with(|| schema.clone()) == schema
    });
    (name, schema)
}

/// Copies all metadata of a message except the stamp to `out`, and sorts the entries by their keys.
fn metadata_of(message: &Message, out: &mut Metadata) {
    out.clear();
    for (name, value) in message.header.iter() {
        if name != key::timestamp_ns {
            out.set(name).assign(value);
        }
    }
    out.sort();
}

fn object_of(metadata: &Metadata) -> String {
    let mut out = String::from("{");
    for (name, value) in metadata.iter() {
        text::push_entry(&mut out, name, Some(value.as_ref()));
    }
    out + "}"
}

/// Makes a unique topic for a stream, of letters, digits, `_` and `/`, as ROS requires.
fn topic_of(stream: &str, taken: &mut HashSet<String>) -> String {
    let parts = stream.split('.').map(|part| match plain(part) {
        part if part.is_empty() || part.starts_with(|c: char| c.is_ascii_digit()) => format!("_{part}"),
        part => part,
    });
    let wanted = parts.fold(String::new(), |topic, part| topic + "/" + &part);
    free_name(&wanted, "_", |topic| taken.insert(topic.to_owned()))
}

fn plain(name: &str) -> String {
    let plain = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    plain.collect()
}

fn camel(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    let upper = |word: &str| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_ascii_uppercase() + rest
    };
    words.map(upper).collect()
}

/// Returns the values of a flat message as float64.
fn doubles(message: &Message) -> Vec<f64> {
    let mut values = Vec::new();
    if let Some(flat) = message.flat() {
        flat.to_f64(&mut values);
    }
    values
}

fn put(kind: &Kind, count: Count, path: &str, value: &dyn Fn(&str) -> f64, data: &mut Cdr) {
    match (kind, count) {
        (Kind::Struct(of), _) => {
            for field in &of.fields {
                put(&field.kind, field.count, &format!("{path}.{}", field.name), value, data);
            }
        }
        (Kind::Text, _) => data.text(""),
        (_, Count::Array(n)) => (0..n).for_each(|_| data.put(&0f64.to_le_bytes())),
        _ => data.put(&value(path).to_le_bytes()),
    }
}

fn samples(standard: &Standard, message: &Message, data: &mut Cdr) {
    let values = doubles(message);
    let value = |path: &str| {
        let at = standard.columns.iter().position(|column| column == path);
        at.map_or(0.0, |at| values[at])
    };
    data.header(message);
    for field in standard.of.fields.iter().filter(|field| field.name != "header") {
        put(&field.kind, field.count, &field.name, &value, data);
    }
}

fn joints(message: &Message, data: &mut Cdr) {
    data.header(message);
    data.texts(message.header.fields.get().unwrap_or_default());
    data.list(8, bytemuck::cast_slice(&doubles(message)));
    data.list(8, &[]);
    data.list(8, &[]);
}

fn cloud(message: &Message, data: &mut Cdr) {
    let fields = message.header.fields.get().unwrap_or_default().iter();
    let columns: Vec<(&str, Dtype)> = match message.columns() {
        [only] if only.name.is_empty() => fields.map(|name| (&**name, only.dtype)).collect(),
        columns => columns.iter().map(|column| (&*column.name, column.dtype)).collect(),
    };
    let step: usize = columns.iter().map(|(_, dtype)| dtype.size()).sum();
    match message.columns() {
        [only] if only.name.is_empty() => data.cloud(message, &columns, only.data.len() / step.max(1), |out| {
            out.extend_from_slice(only.data.bytes());
        }),
        all => data.cloud(message, &columns, message.rows, |out| {
            let from = out.len();
            out.resize(from + message.rows * step, 0);
            let mut offset = 0;
            for column in all {
                let size = column.dtype.size();
                let points = out[from..].chunks_exact_mut(step);
                for (point, value) in points.zip(column.data.bytes().chunks_exact(size)) {
                    point[offset..offset + size].copy_from_slice(value);
                }
                offset += size;
            }
        }),
    }
}

/// Returns the bytes of a list of integers; no bytes if the list is absent.
fn numbers(list: Option<&[i64]>) -> &[u8] {
    bytemuck::cast_slice(list.unwrap_or_default())
}

fn exact(message: &Message, data: &mut Cdr) {
    let header = &message.header;
    data.header(message);
    data.put(&message.timestamp_ns().to_le_bytes());
    data.list(8, numbers(header.shape.get()));
    let fields = header.fields.get().filter(|fields| !fields.is_empty());
    data.texts(fields.or(form::modalities.get(header)).unwrap_or_default());
    data.list(8, numbers(header.timestamps_ns.get()));
    data.list(8, numbers(header.valid.get()));
    data.list(8, numbers(form::age_ns.get(header)));
    let mut rest = String::from("{");
    for (name, value) in header.iter() {
        let is_field = LISTS.contains(&name) && matches!(value, MetadataRef::ListInt([_, ..]));
        if name != key::timestamp_ns && !is_field {
            text::push_entry(&mut rest, name, Some(value));
        }
    }
    rest.push('}');
    data.text(&rest);
    data.put(&(message.rows as u32).to_le_bytes());
    for column in message.columns() {
        data.list(column.dtype.size(), column.data.bytes());
        if column.cells.has_offsets() {
            data.list(4, bytemuck::cast_slice(&column.offsets));
        }
    }
}

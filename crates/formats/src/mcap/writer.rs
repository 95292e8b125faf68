use super::WriteError;
use super::chunks::Chunks;
use super::encoder::Cdr;
use super::form::{ABOUT, About, FIRST, Form, cell_type};
use super::records::MOST_BYTES;
use super::standard::{self, JOINT_STATE, POINT_CLOUD2, SAMPLES, STRING};
use super::types::{Count, Kind, Type};
use robocache_device::Dtype;
use robocache_stream::recording::text;
use robocache_stream::{Cells, Column, ColumnLayout, Message, Metadata, MetadataRef, key};
use std::collections::{HashMap, HashSet};
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What stands around a message in its chunk takes less than the difference.
const MOST_DATA: u64 = MOST_BYTES - 4096;

/// Keys that have a field of their own in a type of ours, where they are not empty.
const LISTS: [&str; 4] = [key::shape, key::timestamps_ns, key::valid, key::age_ns];

/// How many elements a row of a column has, in any message.
fn cells_of_all(column: &Column) -> Cells {
    match column.cells {
        Cells::Ragged(_) => Cells::Ragged(0),
        Cells::Text(_) => Cells::Text(0),
        cells => cells,
    }
}

/// The names and types of columns.
fn in_words<'a>(columns: impl Iterator<Item = (&'a str, Dtype, Cells)>) -> String {
    let words = columns.map(|(name, dtype, cells)| format!("`{name}` {}", cell_type(dtype, cells)));
    words.collect::<Vec<_>>().join(", ")
}

/// Writes streams into a new MCAP file, with messages of ROS 2 in CDR: `docs/formats.md` says which.
///
/// [`Reader`](super::Reader) reads the same messages from it, to the byte. What is written is complete once
/// [`finish`](Self::finish) returns.
pub struct Writer {
    path: PathBuf,
    chunks: Chunks,
    streams: Vec<Stream>,
    topics: HashSet<String>,
    /// The numbers of schemas, by what they say.
    schemas: HashMap<(String, String), u16>,
    /// The types of ROS that were written, read.
    types: HashMap<&'static str, Arc<Type>>,
    data: Cdr,
}

struct Stream {
    name: String,
    topic: String,
    has_arrivals: bool,
    first: Metadata,
    /// Each form that messages of it have had.
    channels: Vec<Channel>,
    differences: Option<u16>,
    /// Where the cells of a voxel grid are to be looked at.
    view: Option<u16>,
    scratch: Metadata,
}

/// Where the messages of a form go.
struct Channel {
    form: Form,
    number: u16,
    /// The columns that all of them have.
    columns: Vec<ColumnLayout>,
}

impl Writer {
    /// A new file.
    ///
    /// # Errors
    /// If it is there already, or can't be made.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, WriteError> {
        let path = path.as_ref().to_owned();
        let made = OpenOptions::new().write(true).create_new(true).open(&path);
        let library = concat!("robocache ", env!("CARGO_PKG_VERSION"));
        match made.and_then(|file| Chunks::new(file, library)) {
            Ok(chunks) => Ok(Self {
                path,
                chunks,
                streams: Vec::new(),
                topics: HashSet::new(),
                schemas: HashMap::new(),
                types: HashMap::new(),
                data: Cdr::default(),
            }),
            Err(source) => Err(WriteError::Io { path, source }),
        }
    }

    /// Adds a message of `stream`. Its `arrival_ns` is kept where the first message of the stream has one.
    ///
    /// # Errors
    /// A message that has no place in the file: it is not written, and others may follow. If the file can't be written.
    pub fn append(&mut self, stream: &str, message: &Message) -> Result<(), WriteError> {
        let refused = |problem: &str| WriteError::Message {
            stream: stream.to_owned(),
            problem: problem.to_owned(),
        };
        if message.columns().is_empty() {
            return Err(refused(
                "no payload (allowed: a primitive array or a StructArray with fields)",
            ));
        }
        let at = self.stream(stream, message);
        let stamp_ns = message.timestamp_ns();
        let log_ns = match (self.streams[at].has_arrivals, message.arrival_ns) {
            (true, Some(arrival_ns)) => arrival_ns,
            (true, None) => {
                return Err(refused(
                    "a message without `arrival_ns` (allowed: one, as the first has)",
                ));
            }
            (false, _) => stamp_ns.max(0),
        };
        let log_time = u64::try_from(log_ns).map_err(|_| refused("an `arrival_ns` before 1970"))?;
        let published = stamp_ns.max(0) as u64;

        let form = Form::of(message);
        let channel = self.channel(at, form, message).map_err(|problem| refused(&problem))?;
        if form != Form::Exact
            && let Some((channel, data)) = self.differences(at, message)
        {
            self.write(channel, log_time, published, &data)?;
        }
        let mut data = std::mem::take(&mut self.data);
        data.clear();
        let encoded = match form {
            Form::Samples(name) => self.samples(name, message, &mut data),
            Form::Joints => {
                joints(message, &mut data);
                Ok(())
            }
            Form::Cloud => {
                cloud(message, &mut data);
                Ok(())
            }
            Form::Exact => {
                exact(message, &mut data);
                Ok(())
            }
        };
        let written = match encoded {
            Ok(()) if data.bytes.len() as u64 > MOST_DATA => Err(refused(&format!(
                "a message of {} bytes (allowed: {MOST_DATA})",
                data.bytes.len()
            ))),
            Ok(()) => self.write(channel, log_time, published, &data.bytes),
            Err(problem) => Err(refused(&problem)),
        };
        self.data = data;
        written?;
        self.view(at, message, log_time, published)
    }

    /// Ends the file, and waits until the system has put it on the disk.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn finish(&mut self) -> Result<(), WriteError> {
        self.chunks.finish().map_err(|source| WriteError::Io {
            path: self.path.clone(),
            source,
        })
    }

    fn write(&mut self, channel: u16, log_time: u64, published: u64, data: &[u8]) -> Result<(), WriteError> {
        let written: io::Result<()> = self.chunks.message(channel, log_time, published, data);
        written.map_err(|source| WriteError::Io {
            path: self.path.clone(),
            source,
        })
    }

    /// The index of a stream, which begins with this message if it is new.
    fn stream(&mut self, name: &str, message: &Message) -> usize {
        if let Some(at) = self.streams.iter().position(|stream| stream.name == name) {
            return at;
        }
        let mut first = Metadata::default();
        metadata_of(message, &mut first);
        let topic = topic_of(name, &mut self.topics);
        self.streams.push(Stream {
            name: name.to_owned(),
            topic,
            has_arrivals: message.arrival_ns.is_some(),
            first,
            channels: Vec::new(),
            differences: None,
            view: None,
            scratch: Metadata::default(),
        });
        self.streams.len() - 1
    }

    /// The channel for messages of a form.
    fn channel(&mut self, at: usize, form: Form, message: &Message) -> Result<u16, String> {
        let stream = &self.streams[at];
        let columns = message.columns().iter();
        if let Some(channel) = stream.channels.iter().find(|channel| channel.form == form) {
            let fits = |(known, column): (&ColumnLayout, &Column)| {
                known.name == column.name && known.dtype == column.dtype && known.cells == cells_of_all(column)
            };
            if channel.columns.len() == columns.len() && channel.columns.iter().zip(columns.clone()).all(fits) {
                return Ok(channel.number);
            }
            let came = in_words(columns.map(|column| (&*column.name, column.dtype, column.cells)));
            let known = channel.columns.iter();
            let known = in_words(known.map(|column| (&*column.name, column.dtype, column.cells)));
            return Err(format!("columns {came} (allowed: those of the first message, {known})"));
        }
        let (kind, schema) = match form {
            Form::Samples(name) => {
                let standard = SAMPLES.iter().find(|standard| standard.name == name);
                let standard = standard.ok_or_else(|| format!("no type `{name}`"))?;
                (name.to_owned(), standard.schema())
            }
            Form::Joints => (JOINT_STATE.name.to_owned(), JOINT_STATE.schema()),
            Form::Cloud => (POINT_CLOUD2.name.to_owned(), POINT_CLOUD2.schema()),
            Form::Exact => self.own_type(&stream.name, message),
        };
        let first = object_of(&stream.first);
        let mut about = About::of(&stream.name, form, message);
        about.has_arrivals = stream.has_arrivals;
        // The best form has the name of the stream.
        let topic = match stream.channels.is_empty() {
            true => stream.topic.clone(),
            false => topic_of(&format!("{}.{}", stream.name, about.form), &mut self.topics),
        };
        let channel = self.add_channel(&topic, &kind, &schema, &about, &first)?;
        let columns = columns.map(|column| ColumnLayout {
            name: column.name.clone().into(),
            dtype: column.dtype,
            cells: cells_of_all(column),
        });
        self.streams[at].channels.push(Channel {
            form,
            number: channel,
            columns: columns.collect(),
        });
        Ok(channel)
    }

    fn add_channel(
        &mut self,
        topic: &str,
        kind: &str,
        schema: &str,
        about: &About,
        first: &str,
    ) -> Result<u16, String> {
        if self.schemas.len() >= usize::from(u16::MAX) || self.topics.len() >= usize::from(u16::MAX) {
            return Err("more than 65535 streams".to_owned());
        }
        let known = (kind.to_owned(), schema.to_owned());
        let chunks = &mut self.chunks;
        let schema = *self.schemas.entry(known).or_insert_with(|| chunks.schema(kind, schema));
        Ok(self
            .chunks
            .channel(schema, topic, &[(ABOUT, &about.to_text()), (FIRST, first)]))
    }

    /// A type of ours for messages with these columns: its name, which no other type has, and its schema.
    fn own_type(&self, stream: &str, message: &Message) -> (String, String) {
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
            [only] if only.name.is_empty() => format!("Tensor{}", camel(element(only.dtype))),
            _ => format!("Table{}", camel(stream)),
        };
        let mut name = format!("robocache_msgs/msg/{wanted}");
        let mut number = 1;
        while self
            .schemas
            .keys()
            .any(|(known, text)| *known == name && *text != schema)
        {
            number += 1;
            name = format!("robocache_msgs/msg/{wanted}{number}");
        }
        (name, schema)
    }

    /// Where the metadata of a message differ from those of the first of its stream, as a message.
    fn differences(&mut self, at: usize, message: &Message) -> Option<(u16, Vec<u8>)> {
        let stream = &mut self.streams[at];
        metadata_of(message, &mut stream.scratch);
        let mut out = String::from("{");
        text::push_differences(&stream.first, &stream.scratch, &mut out);
        if out.len() == 1 {
            return None;
        }
        out.push('}');
        let channel = match stream.differences {
            Some(channel) => channel,
            None => {
                let about = About::beside(&stream.name, "metadata");
                let topic = topic_of(&format!("{}.metadata", stream.name), &mut self.topics);
                let channel = self
                    .add_channel(&topic, STRING.name, &STRING.schema(), &about, "")
                    .ok()?;
                self.streams[at].differences = Some(channel);
                channel
            }
        };
        let mut data = Cdr::default();
        data.clear();
        data.text(&out);
        Some((channel, data.bytes))
    }

    fn samples(&mut self, name: &'static str, message: &Message, data: &mut Cdr) -> Result<(), String> {
        let standard = SAMPLES.iter().find(|standard| standard.name == name);
        let standard = standard.ok_or_else(|| format!("no type `{name}`"))?;
        let of = match self.types.get(name) {
            Some(of) => of.clone(),
            None => {
                let of = standard.parsed()?;
                self.types.insert(name, of.clone());
                of
            }
        };
        let values = doubles(message);
        let value = |path: &str| {
            standard
                .columns
                .iter()
                .position(|column| *column == path)
                .map_or(0.0, |at| values[at])
        };
        data.header(message);
        for field in of.fields.iter().filter(|field| field.name != "header") {
            put(&field.kind, field.count, &field.name, &value, data);
        }
        Ok(())
    }

    /// The occupied cells of a voxel grid as a cloud, beside the grid itself.
    fn view(&mut self, at: usize, message: &Message, log_time: u64, published: u64) -> Result<(), WriteError> {
        let mut data = Cdr::default();
        data.clear();
        if super::voxels::cloud(message, &mut data).is_none() {
            return Ok(());
        }
        let stream = &self.streams[at];
        let channel = match stream.view {
            Some(channel) => channel,
            None => {
                let about = About::beside(&stream.name, "view");
                let topic = topic_of(&format!("{}.points", stream.name), &mut self.topics);
                let Ok(channel) = self.add_channel(&topic, POINT_CLOUD2.name, &POINT_CLOUD2.schema(), &about, "")
                else {
                    return Ok(());
                };
                self.streams[at].view = Some(channel);
                channel
            }
        };
        self.write(channel, log_time, published, &data.bytes)
    }
}

/// Every key but the stamp, in the order of the keys.
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

/// A topic for a stream, which no other has: letters, digits, `_` and `/`, as ROS wants it.
fn topic_of(stream: &str, taken: &mut HashSet<String>) -> String {
    let parts = stream.split('.').map(|part| match plain(part) {
        part if part.is_empty() || part.starts_with(|c: char| c.is_ascii_digit()) => format!("_{part}"),
        part => part,
    });
    let wanted = parts.fold(String::new(), |topic, part| topic + "/" + &part);
    let mut topic = wanted.clone();
    let mut number = 1;
    while !taken.insert(topic.clone()) {
        number += 1;
        topic = format!("{wanted}_{number}");
    }
    topic
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

/// The type of ROS that elements travel as: float16 and bfloat16 as their bits.
fn element(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Float16 | Dtype::BFloat16 => Dtype::UInt16.name(),
        other => other.name(),
    }
}

/// The values of a flat message of floats.
fn doubles(message: &Message) -> Vec<f64> {
    match message.columns() {
        [only] if only.dtype == Dtype::Float32 => {
            let values = only.values();
            values.as_slice::<f32>().iter().map(|&value| value.into()).collect()
        }
        [only] => only.values().as_slice::<f64>().to_vec(),
        _ => Vec::new(),
    }
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

fn joints(message: &Message, data: &mut Cdr) {
    data.header(message);
    data.texts(&message.header.fields);
    data.list(8, bytemuck::cast_slice(&doubles(message)));
    data.list(8, &[]);
    data.list(8, &[]);
}

fn cloud(message: &Message, data: &mut Cdr) {
    let columns: Vec<(&str, Dtype)> = match message.columns() {
        [only] if only.name.is_empty() => message
            .header
            .fields
            .iter()
            .map(|name| (name.as_str(), only.dtype))
            .collect(),
        columns => columns
            .iter()
            .map(|column| (column.name.as_str(), column.dtype))
            .collect(),
    };
    let step: usize = columns.iter().map(|(_, dtype)| dtype.size()).sum();
    match message.columns() {
        [only] if only.name.is_empty() => data.cloud(message, &columns, only.data.len() / step.max(1), |out| {
            out.extend_from_slice(only.data.bytes());
        }),
        all => data.cloud(message, &columns, message.rows, |out| {
            interleave(all, message.rows, step, out)
        }),
    }
}

/// Appends the points whose fields are these columns.
fn interleave(columns: &[Column], rows: usize, step: usize, out: &mut Vec<u8>) {
    let from = out.len();
    out.resize(from + rows * step, 0);
    let mut offset = 0;
    for column in columns {
        let size = column.dtype.size();
        let points = out[from..].chunks_exact_mut(step);
        for (point, value) in points.zip(column.data.bytes().chunks_exact(size)) {
            point[offset..offset + size].copy_from_slice(value);
        }
        offset += size;
    }
}

fn exact(message: &Message, data: &mut Cdr) {
    let header = &message.header;
    data.header(message);
    data.put(&message.timestamp_ns().to_le_bytes());
    data.list(8, bytemuck::cast_slice(&header.shape));
    let names = if header.fields.is_empty() {
        &header.modalities
    } else {
        &header.fields
    };
    data.texts(names);
    data.list(8, bytemuck::cast_slice(&header.timestamps_ns));
    data.list(8, bytemuck::cast_slice(&header.valid));
    data.list(8, bytemuck::cast_slice(&header.age_ns));
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

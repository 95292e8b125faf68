use super::container::{Container, ZSTD, unpack_zstd};
use super::decoder::Decoder;
use super::form::{ABOUT, About, FIRST, changes};
use super::own::{Differences, Own};
use super::plan::{self, Part, Plan, Take, Transforms};
use super::records::{Channel, MOST_BYTES, Raw, Record, Schema};
use super::stamp::Stamp;
use super::tally::{Tally, Unfit};
use super::{ReadError, cdr, descriptor, files, interfaces, json, types};
use crate::file_name;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, StructArray};
use robocache_stream::{Message, MetadataRef, Reading, key};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Reads the messages of a bag, which is one MCAP file, or the folder of rosbag2 with several.
///
/// A topic becomes a stream, or several: `docs/formats.md` says which, and what is left out. Messages come in the order of
/// the files. One chunk of a file is in memory at a time.
pub struct Reader {
    path: PathBuf,
    /// How many messages the metadata of a folder say that there are, until that was compared with those that came; and
    /// whether something could not be read.
    says_messages: Option<u64>,
    messages: u64,
    is_damaged: bool,
    /// The files that are not open yet, the next one last.
    files: Vec<PathBuf>,
    open_file: Option<Container>,
    topics: Topics,
    names: Names,
    /// The message whose streams are being given.
    open: Option<Open>,
    /// Why files can't be opened, or not read as a whole.
    missing: Vec<ReadError>,
    /// What stands beside the messages of the files that were read.
    beside: Vec<String>,
}

impl Reader {
    /// Opens a file, or the folder of a bag.
    ///
    /// # Errors
    /// If there is none, or it is none of MCAP.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ReadError> {
        let bag = files::of(path.as_ref())?;
        let mut files = bag.files;
        files.reverse();
        let mut reader = Self {
            path: path.as_ref().to_owned(),
            says_messages: bag.says_messages,
            messages: 0,
            is_damaged: false,
            files,
            open_file: None,
            topics: Topics::default(),
            names: Names::default(),
            open: None,
            missing: Vec::new(),
            beside: bag.unlisted.into_iter().collect(),
        };
        while let Err(error) = reader.open_next() {
            reader.missing.push(error);
            if reader.files.is_empty() {
                return Err(reader.missing.swap_remove(0));
            }
        }
        Ok(reader)
    }

    /// Whether a folder looks like one of rosbag2.
    pub fn is_bag(folder: impl AsRef<Path>) -> bool {
        files::is_bag(folder.as_ref())
    }

    /// Takes of a topic what a configuration wants of the input of that name. The name is that of the topic, or of its
    /// stream. To be said before the first message is read.
    pub fn with_reading(mut self, name: &str, reading: Reading) -> Self {
        if reading != Reading::default() {
            self.topics.readings.insert(file_name(name), reading);
            self.topics.all.clear();
            self.describe();
        }
        self
    }

    /// The name of a stream that a message came of.
    pub fn stream(&self, index: usize) -> &str {
        &self.names.found[index].2
    }

    /// Makes `message` the next one. Returns the index of its [`stream`](Self::stream); `None` at the end.
    ///
    /// Its `timestamp_ns` is the stamp in its header, else the time of its publication. Its `arrival_ns` is when it was
    /// recorded.
    ///
    /// # Errors
    /// A part that can't be read. The next call goes on behind it.
    pub fn next_into(&mut self, message: &mut Message) -> Result<Option<usize>, ReadError> {
        let read = self.read_next(message);
        self.is_damaged |= read.is_err();
        match (&read, self.says_messages) {
            (Ok(None), Some(says)) if says != self.messages && !self.is_damaged => {
                self.says_messages = None;
                let (path, messages) = (self.path.clone(), self.messages);
                let problem = format!("{messages} messages were read, and its `metadata.yaml` says that it has {says}");
                Err(ReadError::Unreadable { path, problem })
            }
            _ => read,
        }
    }

    fn read_next(&mut self, message: &mut Message) -> Result<Option<usize>, ReadError> {
        if let Some(error) = self.missing.pop() {
            return Err(error);
        }
        loop {
            if let Some(stream) = self.take_part(message) {
                return Ok(Some(stream));
            }
            let Some(file) = &mut self.open_file else {
                if self.files.is_empty() {
                    return Ok(None);
                }
                self.open_next()?;
                if let Some(error) = self.missing.pop() {
                    return Err(error);
                }
                continue;
            };
            match file.next()? {
                None => {
                    self.beside.extend(file.left_out());
                    self.open_file = None;
                }
                Some(Record::Schema(schema)) => self.topics.schema(schema),
                Some(Record::Channel(channel)) => self.topics.channel(channel),
                Some(Record::Message(raw)) => {
                    self.messages += 1;
                    self.open = self.topics.message(raw);
                }
            }
        }
    }

    /// What was left out so far as there is no place for it, and what stands for what was not there, a line for each.
    pub fn left_out(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.topics.all.iter().flat_map(Topic::left_out).collect();
        lines.sort();
        lines.extend(self.names.renamed.iter().cloned());
        lines.extend(self.beside.iter().cloned());
        lines.extend(self.open_file.iter().filter_map(Container::left_out));
        lines
    }

    /// What could not be read so far in messages that came whole, a line for each topic.
    pub fn broken(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.topics.all.iter().filter_map(Topic::broken).collect();
        lines.sort();
        if self.topics.undescribed > 0 {
            let count = self.topics.undescribed;
            lines.push(format!(
                "{count} messages are of channels that the file does not describe"
            ));
        }
        lines
    }

    fn open_next(&mut self) -> Result<(), ReadError> {
        let Some(path) = self.files.pop() else { return Ok(()) };
        let (file, problem) = Container::open(&path)?;
        self.open_file = Some(file);
        self.missing.extend(problem);
        self.describe();
        Ok(())
    }

    /// Takes what the end of the open file says of its channels: what describes them may be in a chunk that is damaged.
    fn describe(&mut self) {
        self.topics.forget_ids();
        let topics = &mut self.topics;
        if let Some(file) = &self.open_file {
            file.describe(|record| match record {
                Record::Schema(schema) => topics.schema(schema),
                Record::Channel(channel) => topics.channel(channel),
                Record::Message(_) => {}
            });
        }
    }

    /// Makes `message` what the next stream has of the message that is open. Returns which stream that is.
    fn take_part(&mut self, message: &mut Message) -> Option<usize> {
        let open = self.open.as_mut()?;
        let topic = &mut self.topics.all[open.topic];
        let plan = match topic.plan.as_mut().ok()? {
            Known::Topic(plan) => plan,
            Known::Own(own) => {
                let open = self.open.take()?;
                let own = &mut **own;
                let changes = self.topics.differences.remove(&own.about.stream).unwrap_or_default();
                let stamp_ns =
                    Stamp::of(&own.fields).and_then(|mut stamp| stamp.read(&open.payload, open.published_ns));
                let stamp_ns = stamp_ns.unwrap_or(0);
                if let Err(why) = own.read(&open.payload, stamp_ns, &changes, message) {
                    topic.tally.broken.add(1, why);
                    return None;
                }
                message.arrival_ns = own.about.has_arrivals.then_some(open.recorded_ns);
                return Some(self.names.find("", 0, &own.about.stream));
            }
            Known::Metadata(_) | Known::View | Known::Unseen { .. } => return None,
        };
        while let Some(part) = plan.parts.get_mut(open.part) {
            let mut suffix = &part.suffix;
            let transform;
            message.clear();
            let read = match &mut part.take {
                Take::Select(selector) => {
                    open.part += 1;
                    if part
                        .source
                        .as_ref()
                        .is_some_and(|path| plan::is_empty(&open.payload, path))
                    {
                        part.empty += 1;
                        continue;
                    }
                    let stamp = open.stamp(open.stamp_ns);
                    let payload: ArrayRef = open.payload.clone();
                    selector.read([stamp], &payload, message).map_err(Unfit::from)
                }
                Take::Image(kind) => {
                    open.part += 1;
                    let (name, stamp) = open.stamp(open.stamp_ns);
                    message.header.set(name, stamp);
                    if let Some(frame) = plan::frame(&open.payload) {
                        message.header.frame_id.set(frame);
                    }
                    kind.read(&open.payload, message)
                }
                Take::Transforms(transforms) => {
                    let Some(element) = open.next_transform(transforms) else {
                        open.part += 1;
                        part.empty += u64::from(open.element == 1);
                        continue;
                    };
                    let child = plan::text(&element, "child_frame_id").unwrap_or_default();
                    let parent = plan::text(&element, transforms.parent).unwrap_or_default();
                    transform = format!(".{parent}.{child}");
                    suffix = &transform;
                    let stamp = transforms.stamp.as_mut();
                    let own = stamp.and_then(|stamp| stamp.read(&element, open.published_ns));
                    if own.is_none() {
                        topic.tally.unstamped += 1;
                    }
                    let stamp = open.stamp(own);
                    let frame = (key::frame_id, MetadataRef::String(parent));
                    let payload: ArrayRef = Arc::new(element.clone());
                    let read = transforms.selector.read([stamp, frame], &payload, message);
                    read.map_err(Unfit::from)
                }
            };
            match read {
                Ok(()) => {
                    part.given += 1;
                    message.arrival_ns = Some(open.recorded_ns);
                    return Some(self.names.find(&topic.name, topic.form.unwrap_or(0), suffix));
                }
                Err(why) => {
                    if !std::mem::replace(&mut open.is_refused, true) {
                        match why {
                            Unfit::Useless(why) => topic.tally.refused.add(1, why),
                            Unfit::Broken(why) => topic.tally.broken.add(1, why),
                        }
                    }
                }
            }
        }
        self.open = None;
        None
    }
}

/// A message that is decoded, and what of it comes next.
struct Open {
    topic: usize,
    payload: Arc<StructArray>,
    /// What it says of itself.
    stamp_ns: Option<i64>,
    recorded_ns: i64,
    published_ns: i64,
    part: usize,
    element: usize,
    /// Whether something of it could not be taken.
    is_refused: bool,
}

impl Open {
    fn stamp(&self, own: Option<i64>) -> (&'static str, MetadataRef<'static>) {
        let stamp_ns = own.unwrap_or(self.published_ns);
        (key::timestamp_ns, MetadataRef::Integer(stamp_ns))
    }

    /// The next transform, as a struct of one row.
    fn next_transform(&mut self, transforms: &Transforms) -> Option<StructArray> {
        let all = match transforms.is_list {
            true => self.payload.column(0).as_list_opt::<i32>()?.values().as_struct_opt()?,
            false => &*self.payload,
        };
        let at = self.element;
        self.element += 1;
        (at < all.len()).then(|| all.slice(at, 1))
    }
}

/// The encoding whose messages tell their type themselves.
const JSON: &str = "json";

/// What the schemas and channels of the files say.
#[derive(Default)]
struct Topics {
    /// What a configuration wants, by the names of streams.
    readings: HashMap<String, Reading>,
    schemas: HashMap<u16, Described>,
    /// Which topic a channel of the file is of.
    channels: HashMap<u16, usize>,
    all: Vec<Topic>,
    /// Messages of channels that nothing describes.
    undescribed: u64,
    differences: Differences,
    /// The last message that was compressed by itself.
    unpacked: Vec<u8>,
}

/// A schema that stays.
#[derive(Clone, PartialEq)]
struct Described {
    name: String,
    encoding: String,
    data: Vec<u8>,
}

struct Topic {
    name: String,
    encoding: String,
    schema: Option<Described>,
    /// Of a channel that robocache wrote, what that says of it.
    own: Option<[String; 2]>,
    plan: Result<Known, String>,
    /// Whether it has a schema that is not in the file.
    is_lost: bool,
    /// Which it is of the forms that messages of a topic have, once one came: each is streams of its own.
    form: Option<usize>,
    /// The schema that the first form has, where this is another one.
    first: Option<String>,
    tally: Tally,
}

/// What is done with the messages of a topic.
enum Known {
    Topic(Plan),
    /// They are of a stream that was recorded.
    Own(Box<Own>),
    /// They say of a stream where the next message differs from the first.
    Metadata(String),
    /// They show what another one holds.
    View,
    /// Only the first message tells what they are.
    Unseen {
        reading: Option<Reading>,
    },
}

impl Topics {
    /// The numbers of channels are those of one file.
    fn forget_ids(&mut self) {
        self.schemas.clear();
        self.channels.clear();
    }

    fn schema(&mut self, schema: Schema<'_>) {
        let is_same = |known: &Described| {
            known.name == schema.name && known.encoding == schema.encoding && known.data == schema.data
        };
        if !self.schemas.get(&schema.id).is_some_and(is_same) {
            let described = Described {
                name: schema.name.to_owned(),
                encoding: schema.encoding.to_owned(),
                data: schema.data.to_vec(),
            };
            self.schemas.insert(schema.id, described);
        }
    }

    fn channel(&mut self, channel: Channel<'_>) {
        let schema = self.schemas.get(&channel.schema);
        let mut metadata = channel.metadata();
        let own = metadata
            .remove(ABOUT)
            .map(|about| [about, metadata.remove(FIRST).unwrap_or_default()]);
        let is_same = |topic: &Topic| {
            topic.name == channel.topic
                && topic.encoding == channel.encoding
                && topic.schema.as_ref() == schema
                && topic.own == own
        };
        let found = self.all.iter().position(is_same);
        let at = found.unwrap_or_else(|| {
            let reading = self.readings.get(&file_name(channel.topic));
            let plan = match schema {
                _ if channel.encoding == JSON => Ok(Known::Unseen {
                    reading: reading.cloned(),
                }),
                None if channel.schema == 0 => Err(format!(
                    "it has no schema, and in `{}` messages do not tell what they are (allowed without one: json)",
                    channel.encoding
                )),
                None => Err(format!("its schema, number {}, is not in the file", channel.schema)),
                Some(schema) => schema.plan(channel.encoding, own.as_ref(), reading),
            };
            self.all.push(Topic {
                name: channel.topic.to_owned(),
                encoding: channel.encoding.to_owned(),
                schema: schema.cloned(),
                own,
                is_lost: schema.is_none() && channel.schema != 0,
                form: None,
                first: None,
                plan,
                tally: Tally::default(),
            });
            self.all.len() - 1
        });
        self.channels.insert(channel.id, at);
    }

    /// Tells messages of other fields apart that a topic has by several schemas, unless a configuration says what to take.
    fn find_form(&mut self, at: usize) {
        let fields = |topic: &Topic| match &topic.plan {
            Ok(Known::Topic(plan)) => Some(plan.fields.clone()),
            _ => None,
        };
        let topic = &self.all[at];
        let Some(own) = fields(topic) else { return };
        let is_wanted = self.readings.contains_key(&file_name(&topic.name));
        let others = || {
            self.all
                .iter()
                .filter(|other| other.name == topic.name && other.form.is_some())
        };
        let same = others().find(|other| is_wanted || fields(other).as_ref() == Some(&own));
        let form = match same {
            Some(same) => same.form.unwrap_or(0),
            None => others().filter_map(|other| other.form).max().map_or(0, |last| last + 1),
        };
        let first = others()
            .next()
            .filter(|_| form > 0)
            .map(|first| first.kind().to_owned());
        let topic = &mut self.all[at];
        (topic.form, topic.first) = (Some(form), first);
    }

    /// Decodes a message. `None` where nothing of it can be taken.
    fn message(&mut self, raw: Raw<'_>) -> Option<Open> {
        let Some(&at) = self.channels.get(&raw.channel) else {
            self.undescribed += 1;
            return None;
        };
        let topic = &mut self.all[at];
        topic.tally.messages += 1;
        if let Ok(Known::Unseen { reading }) = &topic.plan {
            let schema = topic.schema.as_ref().map_or(&[][..], |schema| &schema.data);
            match json::Message::parse(raw.data).and_then(|first| json::type_of(schema, &first)) {
                Ok(of) if of.is_empty() => topic.tally.empty += 1,
                Ok(of) => topic.plan = Ok(Known::Topic(Plan::new(of, Decoder::Json, reading.as_ref()))),
                Err(problem) => topic.tally.broken.add(1, problem),
            }
        }
        if topic.form.is_none() {
            self.find_form(at);
        }
        let topic = &mut self.all[at];
        let (of, decoder, fields) = match topic.plan.as_ref().ok()? {
            Known::Topic(plan) if plan.parts.is_empty() => return None,
            Known::Topic(plan) => (&plan.of, &plan.decoder, &plan.fields),
            Known::Own(own) => (&own.of, &Decoder::Cdr { ends: false }, &own.fields),
            Known::Metadata(stream) => {
                match cdr::text(raw.data).and_then(|text| changes(&text)) {
                    Ok(changes) => {
                        self.differences.insert(stream.clone(), changes);
                    }
                    Err(problem) => topic.tally.broken.add(1, problem),
                }
                return None;
            }
            Known::View | Known::Unseen { .. } => return None,
        };
        let (Ok(recorded_ns), Ok(published_ns)) = (i64::try_from(raw.log_time), i64::try_from(raw.publish_time)) else {
            let (logged, published) = (raw.log_time, raw.publish_time);
            let problem = format!(
                "it was logged at {logged} ns and published at {published} ns (allowed: at most {})",
                i64::MAX
            );
            topic.tally.broken.add(1, problem);
            return None;
        };
        let data = match decoder {
            Decoder::Cdr { .. } if raw.data.starts_with(&ZSTD) => {
                self.unpacked.clear();
                match unpack_zstd(raw.data, MOST_BYTES, &mut self.unpacked) {
                    Ok(..MOST_BYTES) => &self.unpacked,
                    Ok(_) => {
                        let problem = format!("zstd unpacks it to {MOST_BYTES} bytes or more (allowed: less)");
                        topic.tally.broken.add(1, problem);
                        return None;
                    }
                    Err(problem) => {
                        topic.tally.broken.add(1, format!("zstd can't unpack it: {problem}"));
                        return None;
                    }
                }
            }
            _ => raw.data,
        };
        let payload = match decoder.read(of, fields, data, &mut topic.tally) {
            Ok(payload) => payload,
            Err(problem) => {
                topic.tally.broken.add(1, problem);
                return None;
            }
        };
        let mut stamp_ns = None;
        if let Ok(Known::Topic(plan)) = &mut topic.plan
            && !plan.is_transforms()
        {
            let stamp = plan.stamp.as_mut();
            stamp_ns = stamp.and_then(|stamp| stamp.read(&payload, published_ns));
            topic.tally.unstamped += u64::from(stamp_ns.is_none());
        }
        Some(Open {
            topic: at,
            payload: Arc::new(payload),
            stamp_ns,
            recorded_ns,
            published_ns,
            part: 0,
            element: 0,
            is_refused: false,
        })
    }
}

impl Described {
    fn plan(&self, encoding: &str, own: Option<&[String; 2]>, reading: Option<&Reading>) -> Result<Known, String> {
        match (encoding, self.encoding.as_str()) {
            ("cdr", encoding @ ("ros2msg" | interfaces::KNOWN)) => {
                let text = str::from_utf8(&self.data).map_err(|_| "its schema is no text")?;
                let of = types::from_ros2msg(&self.name, text)?;
                let Some([about, first]) = own else {
                    let ends = encoding == interfaces::KNOWN;
                    return Ok(Known::Topic(Plan::new(of, Decoder::Cdr { ends }, reading)));
                };
                let about = About::from_text(about)?;
                match about.form.as_str() {
                    "metadata" => Ok(Known::Metadata(about.stream)),
                    "view" => Ok(Known::View),
                    _ => Ok(Known::Own(Box::new(Own::new(about, first, of)?))),
                }
            }
            ("protobuf", "protobuf") => {
                let (of, layout) = descriptor::from_descriptors(&self.name, &self.data)?;
                Ok(Known::Topic(Plan::new(of, Decoder::Protobuf(layout), reading)))
            }
            ("cdr", "") => Err(
                "the bag does not describe its type, and it is none of those that robocache knows (`ros2 bag convert` of Iron or later \
                 writes descriptions)"
                    .to_owned(),
            ),
            ("cdr", schema) => Err(format!(
                "its schema is in `{schema}`, which is not read (allowed: ros2msg)"
            )),
            ("protobuf", schema) => Err(format!(
                "its schema is in `{schema}`, which is not read (allowed: protobuf)"
            )),
            (encoding, _) => Err(format!(
                "messages in `{encoding}` are not read (allowed: cdr, protobuf, json)"
            )),
        }
    }
}

impl Topic {
    fn kind(&self) -> &str {
        self.schema.as_ref().map_or("no schema", |schema| &schema.name)
    }

    fn left_out(&self) -> Vec<String> {
        let (topic, kind, messages) = (&self.name, self.kind(), self.tally.messages);
        if messages == 0 {
            return Vec::new();
        }
        match &self.plan {
            Err(_) if self.is_lost => Vec::new(),
            Err(why) => vec![format!("{topic} ({kind}): {messages} messages are left out: {why}")],
            Ok(Known::Topic(plan)) if plan.parts.is_empty() => vec![format!(
                "{topic} ({kind}): {messages} messages are left out: there are no numbers in them but {}",
                plan.left_out.join(", ")
            )],
            Ok(known) => {
                let mut lines = self.tally.lines(topic, kind);
                if let Some(first) = &self.first {
                    let words = "other channels of the topic have another schema";
                    lines.push(format!(
                        "{topic} ({kind}): {words}, {first}, and other fields: these messages are streams of their own"
                    ));
                }
                if let Known::Topic(plan) = known {
                    let left_out: Vec<String> = plan.left_out.iter().cloned().chain(plan.fields_left_out()).collect();
                    if !left_out.is_empty() {
                        lines.push(format!("{topic} ({kind}): left out: {}", left_out.join(", ")));
                    }
                    let guess = plan.stamp.as_ref().and_then(Stamp::guess);
                    lines.extend(guess.map(|words| format!("{topic} ({kind}): {words}")));
                    lines.extend(
                        plan.empty(messages)
                            .into_iter()
                            .map(|words| format!("{topic} ({kind}): {words}")),
                    );
                    let losses = plan.parts.iter().flat_map(Part::losses);
                    lines.extend(losses.map(|words| format!("{topic} ({kind}): {words}")));
                }
                lines
            }
        }
    }

    fn broken(&self) -> Option<String> {
        let (topic, messages) = (&self.name, self.tally.messages);
        match &self.plan {
            Err(why) if self.is_lost && messages > 0 => {
                Some(format!("{topic}: {messages} messages are left out: {why}"))
            }
            _ => self.tally.broken.line(topic, self.kind(), messages, "can't be read"),
        }
    }
}

/// The names of streams, by topic and form, and by suffix, each that of a file of its own.
#[derive(Default)]
struct Names {
    found: Vec<((String, usize), String, String)>,
    taken: HashSet<String>,
    /// Those that are not what their topics ask for.
    renamed: Vec<String>,
}

impl Names {
    /// The index of a stream.
    fn find(&mut self, topic: &str, form: usize, suffix: &str) -> usize {
        let mut found = self.found.iter();
        let known = found.position(|((of, which), with, _)| of == topic && *which == form && with == suffix);
        known.unwrap_or_else(|| {
            let wanted = file_name(&format!("{topic}{suffix}"));
            let mut name = wanted.clone();
            let mut number = 1;
            while !self.taken.insert(name.clone()) {
                number += 1;
                name = format!("{wanted}_{number}");
            }
            if number > 1 {
                self.renamed.push(format!(
                    "{topic}{suffix}: its stream is `{name}`, as `{wanted}` is another's"
                ));
            }
            self.found.push(((topic.to_owned(), form), suffix.to_owned(), name));
            self.found.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_become_names_of_files() {
        let cases = [
            ("/imu/data", "imu_data"),
            ("joint_states", "joint_states"),
            ("/a b/ü", "a_b__"),
            ("/", "_"),
            ("/.hidden", "_.hidden"),
            ("../../etc", "_.._.._etc"),
        ];
        for (topic, name) in cases {
            assert_eq!(file_name(topic), name);
        }
        let mut names = Names::default();
        for (topic, name) in [("/a/b", "a_b"), ("/a_b", "a_b_2"), ("/a/b", "a_b")] {
            let stream = names.find(topic, 0, "");
            assert_eq!(names.found[stream].2, name);
        }
        assert_eq!(names.renamed, ["/a_b: its stream is `a_b_2`, as `a_b` is another's"]);
    }
}

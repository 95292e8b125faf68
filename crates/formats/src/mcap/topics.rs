//! Topics of a bag, made from its schemas and channels, and the decoding of their messages. Every message is counted. If it
//! can't be decoded, the first reason is kept with the count.

use super::decoder::{Decoder, Encoding};
use super::form::{ABOUT, About, FIRST, changes};
use super::own::{Differences, Own};
use super::plan::{Plan, PlannedStream, Transforms};
use super::record::{Channel, MOST_BYTES, RawMessage, Record};
use super::stamp::Stamp;
use super::tally::Tally;
use super::{cdr, descriptor, interfaces, json, types, zstd};
use crate::file_name;
use arrow_array::cast::AsArray;
use arrow_array::{Array, StructArray};
use robocache_stream::{MetadataRef, Selection, TimeUnit, key};
use std::collections::HashMap;
use std::sync::Arc;

/// A decoded message, and how many of its streams and list elements were returned so far.
pub(super) struct Decoded {
    pub topic: usize,
    pub payload: Arc<StructArray>,
    /// Stamp in the message itself, ns; `None` if the message has none.
    pub stamp_ns: Option<i64>,
    pub recorded_ns: i64,
    pub published_ns: i64,
    pub part: usize,
    pub element: usize,
    /// True if the values for one of the message's streams could not be read.
    pub is_refused: bool,
}

impl Decoded {
    pub(super) fn stamp(&self, own: Option<i64>) -> (&'static str, MetadataRef<'static>) {
        let stamp_ns = own.unwrap_or(self.published_ns);
        (key::timestamp_ns, MetadataRef::Integer(stamp_ns))
    }

    /// Returns the next transform of the message, as an Arrow struct array of one row; `None` after the last.
    pub(super) fn next_transform(&mut self, transforms: &Transforms) -> Option<StructArray> {
        let all = match transforms.is_list {
            true => self.payload.column(0).as_list_opt::<i32>()?.values().as_struct_opt()?,
            false => &*self.payload,
        };
        let at = self.element;
        self.element += 1;
        (at < all.len()).then(|| all.slice(at, 1))
    }
}

/// Name of the encoding JSON, whose messages can be decoded without a schema.
const JSON: &str = "json";

/// Topics of all files of a bag, with the schemas and channels of the open file.
#[derive(Default)]
pub(super) struct Topics {
    /// Selections of values from a configuration, by the names of their streams.
    pub selections: HashMap<String, Selection>,
    /// Unit of stamps that are numbers; `None` to guess the unit.
    pub unit: Option<TimeUnit>,
    schemas: HashMap<u16, OwnedSchema>,
    /// Index in `all` of the topic of each channel, by the channel's id in the open file.
    channels: HashMap<u16, usize>,
    pub all: Vec<Topic>,
    /// Number of messages whose channel is not described in the file.
    pub undescribed: u64,
    pub differences: Differences,
    /// Buffer for unpacking a message that is compressed by itself.
    unpacked: Vec<u8>,
}

/// Copy of a schema, which outlives the chunk that the schema was read from.
#[derive(Clone, PartialEq)]
struct OwnedSchema {
    name: String,
    encoding: String,
    data: Vec<u8>,
}

pub(super) struct Topic {
    pub name: String,
    encoding: String,
    schema: Option<OwnedSchema>,
    /// Channel's description, and metadata of its stream's first message, as stored in the channel's metadata. `None` if
    /// robocache did not write the channel.
    own: Option<[String; 2]>,
    pub content: Result<Content, String>,
    /// True if the channel refers to a schema that the file lacks.
    is_lost: bool,
    /// Number of the topic's set of fields, from 0: channels of one topic name may have different schemas. Each set has streams
    /// of its own. `None` before the first message.
    pub form: Option<usize>,
    /// Name of the schema with the field set 0 of this topic's name; `None` if the topic itself has that set.
    first: Option<String>,
    pub tally: Tally,
}

/// Treatment of a topic's messages (read, restore or ignore), with the state that it needs.
pub(super) enum Content {
    Foreign(Plan),
    /// Messages of a stream that robocache wrote, which are restored as they were.
    Own(Box<Own>),
    /// Changes of metadata from the first message to the next one, in the stream with this name.
    Differences(String),
    /// Copies of another topic's data for viewers, which are not read.
    View,
    /// JSON messages whose type the first message will decide. Holds the configured selection of their values; `None` if there
    /// is none.
    Undetermined(Option<Selection>),
}

impl Topics {
    /// Drops all schemas and channels, because their ids are valid in one file only.
    pub(super) fn forget_ids(&mut self) {
        self.schemas.clear();
        self.channels.clear();
    }

    /// Stores a schema, or adds the topic of a channel. Ignores messages.
    pub(super) fn describe(&mut self, record: Record<'_>) {
        match record {
            Record::Schema(schema) => {
                let described = OwnedSchema {
                    name: schema.name.to_owned(),
                    encoding: schema.encoding.to_owned(),
                    data: schema.data.to_vec(),
                };
                self.schemas.insert(schema.id, described);
            }
            Record::Channel(channel) => self.channel(channel),
            Record::Message(_) => {}
        }
    }

    fn channel(&mut self, channel: Channel<'_>) {
        let schema = self.schemas.get(&channel.schema);
        let first = || channel.metadata(FIRST).unwrap_or_default();
        let own = channel.metadata(ABOUT).map(|about| [about, first()].map(str::to_owned));
        let is_same = |topic: &Topic| {
            topic.name == channel.topic
                && topic.encoding == channel.encoding
                && topic.schema.as_ref() == schema
                && topic.own == own
        };
        let found = self.all.iter().position(is_same);
        let at = found.unwrap_or_else(|| {
            let selection = self.selections.get(&file_name(channel.topic));
            let content = match schema {
                _ if channel.encoding == JSON => Ok(Content::Undetermined(selection.cloned())),
                None if channel.schema == 0 => Err(format!(
                    "it has no schema, and in `{}` messages do not tell what they are (allowed without one: json)",
                    channel.encoding
                )),
                None => Err(format!("its schema, number {}, is not in the file", channel.schema)),
                Some(schema) => schema.content(channel.encoding, own.as_ref(), selection, self.unit),
            };
            self.all.push(Topic {
                name: channel.topic.to_owned(),
                encoding: channel.encoding.to_owned(),
                schema: schema.cloned(),
                own,
                is_lost: schema.is_none() && channel.schema != 0,
                form: None,
                first: None,
                content,
                tally: Tally::default(),
            });
            self.all.len() - 1
        });
        self.channels.insert(channel.id, at);
    }

    /// Sets `form` of the topic at index `at`. Topics of the same name share a form if their schemas have the same fields, or
    /// if a configuration selects their values.
    fn set_form(&mut self, at: usize) {
        let fields = |topic: &Topic| match &topic.content {
            Ok(Content::Foreign(plan)) => Some(plan.decoder.fields.clone()),
            _ => None,
        };
        let topic = &self.all[at];
        let Some(own) = fields(topic) else { return };
        let is_wanted = self.selections.contains_key(&file_name(&topic.name));
        let is_other = |other: &&Topic| other.name == topic.name && other.form.is_some();
        let others = || self.all.iter().filter(is_other);
        let same = others().find(|other| is_wanted || fields(other).as_ref() == Some(&own));
        let form = match same {
            Some(same) => same.form.unwrap_or(0),
            None => others().filter_map(|other| other.form).max().map_or(0, |last| last + 1),
        };
        let first = others().next().filter(|_| form > 0);
        let first = first.map(|first| first.kind().to_owned());
        let topic = &mut self.all[at];
        (topic.form, topic.first) = (Some(form), first);
    }

    /// Decodes a message. Returns `None` if it has nothing for a stream; a message that can't be decoded is counted with
    /// the reason.
    pub(super) fn message(&mut self, raw: RawMessage<'_>) -> Option<Decoded> {
        let Some(&at) = self.channels.get(&raw.channel) else {
            self.undescribed += 1;
            return None;
        };
        let read = self.read(at, raw);
        read.unwrap_or_else(|problem| {
            self.all[at].tally.broken.add(1, problem);
            None
        })
    }

    /// Decodes a message of the topic with index `at`. Returns `None` if the message has nothing for a stream.
    fn read(&mut self, at: usize, raw: RawMessage<'_>) -> Result<Option<Decoded>, String> {
        let topic = &mut self.all[at];
        topic.tally.messages += 1;
        if let Ok(Content::Undetermined(selection)) = &topic.content {
            let schema = topic.schema.as_ref().map_or(&[][..], |schema| &schema.data);
            let of = json::type_of(schema, &json::Message::parse(raw.data)?)?;
            if of.is_empty() {
                topic.tally.empty += 1;
                return Ok(None);
            }
            let decoder = Decoder::new(of, Encoding::Json);
            topic.content = Ok(Content::Foreign(Plan::new(decoder, selection.as_ref(), self.unit)));
        }
        if topic.form.is_none() {
            self.set_form(at);
        }
        let topic = &mut self.all[at];
        let decoder = match &topic.content {
            Ok(Content::Foreign(plan)) if !plan.parts.is_empty() => &plan.decoder,
            Ok(Content::Own(own)) => &own.decoder,
            Ok(Content::Differences(stream)) => {
                let changes = changes(&cdr::text(raw.data)?)?;
                self.differences.insert(stream.clone(), changes);
                return Ok(None);
            }
            _ => return Ok(None),
        };
        let (Ok(recorded_ns), Ok(published_ns)) = (i64::try_from(raw.log_time), i64::try_from(raw.publish_time)) else {
            let (logged, published) = (raw.log_time, raw.publish_time);
            return Err(format!(
                "it was logged at {logged} ns and published at {published} ns (allowed: at most {})",
                i64::MAX
            ));
        };
        let data = match decoder.encoding {
            Encoding::Cdr { .. } if raw.data.starts_with(&zstd::MAGIC) => {
                self.unpacked.clear();
                match zstd::unpack(raw.data, MOST_BYTES, &mut self.unpacked) {
                    Ok(..MOST_BYTES) => &self.unpacked,
                    Ok(_) => return Err(format!("zstd unpacks it to {MOST_BYTES} bytes or more (allowed: less)")),
                    Err(problem) => return Err(format!("zstd can't unpack it: {problem}")),
                }
            }
            _ => raw.data,
        };
        let payload = decoder.read(data, &mut topic.tally)?;
        let mut stamp_ns = None;
        if let Ok(Content::Foreign(plan)) = &mut topic.content
            && !plan.is_transforms()
        {
            if let Some(stamp) = &mut plan.stamp {
                stamp_ns = stamp.read(&payload, published_ns)?;
            }
            if !plan.is_stamp_configured || plan.stamp.is_some() {
                topic.tally.stamped(stamp_ns, published_ns);
            }
        }
        Ok(Some(Decoded {
            topic: at,
            payload: Arc::new(payload),
            stamp_ns,
            recorded_ns,
            published_ns,
            part: 0,
            element: 0,
            is_refused: false,
        }))
    }
}

impl OwnedSchema {
    fn content(
        &self,
        encoding: &str,
        own: Option<&[String; 2]>,
        selection: Option<&Selection>,
        unit: Option<TimeUnit>,
    ) -> Result<Content, String> {
        match (encoding, self.encoding.as_str()) {
            ("cdr", encoding @ ("ros2msg" | interfaces::BUILT_IN)) => {
                let text = str::from_utf8(&self.data).map_err(|_| "its schema is not text")?;
                let of = types::from_ros2msg(&self.name, text)?;
                let is_exact = encoding == interfaces::BUILT_IN;
                let decoder = Decoder::new(of, Encoding::Cdr { is_exact });
                let Some([about, first]) = own else {
                    return Ok(Content::Foreign(Plan::new(decoder, selection, unit)));
                };
                let about = About::from_text(about)?;
                match about.form.as_str() {
                    "metadata" => Ok(Content::Differences(about.stream)),
                    "view" => Ok(Content::View),
                    _ => Ok(Content::Own(Box::new(Own::new(about, first, decoder)?))),
                }
            }
            ("protobuf", "protobuf") => {
                let (of, layout) = descriptor::from_descriptors(&self.name, &self.data)?;
                let decoder = Decoder::new(of, Encoding::Protobuf(layout));
                Ok(Content::Foreign(Plan::new(decoder, selection, unit)))
            }
            ("cdr", "") => Err(
                "the bag does not describe its type, and it is none of those that robocache knows (`ros2 bag convert` of Iron or later \
                 writes descriptions)"
                    .to_owned(),
            ),
            ("cdr" | "protobuf", schema) => {
                let allowed = if encoding == "cdr" { "ros2msg" } else { "protobuf" };
                Err(format!("its schema is in `{schema}`, which is not read (allowed: {allowed})"))
            }
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

    pub(super) fn left_out(&self) -> Vec<String> {
        let messages = self.tally.messages;
        let lines = match &self.content {
            _ if messages == 0 => Vec::new(),
            Err(_) if self.is_lost => Vec::new(),
            Err(why) => vec![format!("{messages} messages are left out: {why}")],
            Ok(Content::Foreign(plan)) if plan.parts.is_empty() => vec![format!(
                "{messages} messages are left out: there are no numbers in them but {}",
                plan.left_out.join(", ")
            )],
            Ok(content) => {
                let mut lines = self.tally.lines();
                lines.extend(self.first.as_ref().map(|first| {
                    let words = "other channels of the topic have another schema";
                    format!("{words}, {first}, and other fields: these messages are streams of their own")
                }));
                if let Content::Foreign(plan) = content {
                    let left_out: Vec<String> = plan.left_out.iter().cloned().chain(plan.fields_left_out()).collect();
                    if !left_out.is_empty() {
                        lines.push(format!("left out: {}", left_out.join(", ")));
                    }
                    lines.extend(plan.stamp.as_ref().and_then(Stamp::guess));
                    lines.extend(plan.empty(messages));
                    lines.extend(plan.parts.iter().flat_map(PlannedStream::losses));
                }
                lines
            }
        };
        lines.into_iter().map(|line| self.line(&line)).collect()
    }

    pub(super) fn broken(&self) -> Option<String> {
        let (topic, messages) = (&self.name, self.tally.messages);
        match &self.content {
            Err(why) if self.is_lost && messages > 0 => {
                Some(format!("{topic}: {messages} messages are left out: {why}"))
            }
            _ => {
                let broken = self.tally.broken.line(messages, "can't be read");
                // No message has the values that the configuration selects.
                let is_configured = matches!(&self.content, Ok(Content::Foreign(plan)) if plan.is_configured);
                let is_lost = is_configured && self.tally.is_all_refused();
                let lost = is_lost.then(|| "none of its messages can be taken as the configuration says".to_owned());
                let lines = [self.tally.far_from_others(), lost, broken].into_iter().flatten();
                let lines: Vec<String> = lines.collect();
                (!lines.is_empty()).then(|| self.line(&lines.join("; ")))
            }
        }
    }

    /// Formats a line for the user: the topic, its type, and then `words`.
    fn line(&self, words: &str) -> String {
        format!("{} ({}): {words}", self.name, self.kind())
    }
}

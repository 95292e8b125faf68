//! Reader of a bag as streams of messages, whatever software recorded it. Nothing is lost silently: data that can't be read are
//! an error or a line of `broken`, and data that no stream can hold are a line of `left_out`.

use super::container;
use super::plan::Take;
use super::record::{Container, Record};
use super::stamp::Stamp;
use super::tally::Unfit;
use super::topics::{Content, Decoded, Topic, Topics};
use super::{files, row};
use crate::{Error, file_name, free_name};
use arrow_array::ArrayRef;
use robocache_stream::{Message, MetadataRef, Selection, TimeUnit, key};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Reader of the messages of a bag, which is one file, or a folder of rosbag2 with several files.
///
/// A topic becomes one stream or several: `docs/formats.md` says which, and which data are left out. Messages are returned file
/// by file, and within a file in the order of their log times. Memory holds one chunk of a file at a time, and messages that
/// wait for messages with earlier log times.
pub struct Reader {
    path: PathBuf,
    /// Number of messages according to the folder's `metadata.yaml`. `None` if it gives no number, or after a difference
    /// was reported.
    stated_messages: Option<u64>,
    /// Number of messages that were read from all files so far.
    messages: u64,
    /// True if a part of the bag could not be read so far.
    is_damaged: bool,
    /// Number of messages in the files read so far that follow a message with a later log time.
    late: u64,
    /// Number of messages so far that were returned after a message with a later log time, because they could not be sorted.
    backwards: u64,
    /// Log time of the message that was read last, ns.
    last_log_time: u64,
    /// False if the recorder did not write log times, so that they are all 0.
    has_log_times: bool,
    /// Files that are not open yet, in reverse order: the next file is the last element.
    files: Vec<PathBuf>,
    open_file: Option<Box<dyn Container>>,
    topics: Topics,
    names: Names,
    /// Decoded message whose streams are being returned; `None` if all of them were returned.
    open: Option<Decoded>,
    /// Errors found while files were opened, which are still to be returned.
    missing: Vec<Error>,
    /// Lines for the user about records and files that are not read.
    left_out_lines: Vec<String>,
}

impl Reader {
    /// Opens the file of a bag, or the folder of a bag with several files.
    ///
    /// # Errors
    /// If the file or the folder does not exist, or is not a bag.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let bag = files::of(path.as_ref())?;
        let mut files = bag.files;
        files.reverse();
        let mut reader = Self {
            path: path.as_ref().to_owned(),
            stated_messages: bag.stated_messages,
            messages: 0,
            is_damaged: false,
            late: 0,
            backwards: 0,
            last_log_time: 0,
            has_log_times: true,
            files,
            open_file: None,
            topics: Topics::default(),
            names: Names::default(),
            open: None,
            missing: Vec::new(),
            left_out_lines: bag.unlisted.into_iter().collect(),
        };
        while let Err(error) = reader.open_next() {
            reader.missing.push(error);
            if reader.files.is_empty() {
                return Err(reader.missing.swap_remove(0));
            }
        }
        Ok(reader)
    }

    /// True if `folder` looks like a bag of rosbag2: it has a `metadata.yaml`, or a file with the name of a bag.
    pub fn is_bag(folder: impl AsRef<Path>) -> bool {
        files::is_bag(folder.as_ref())
    }

    /// Selects the values that are read from a topic, as a configuration does for an input. `name` is the name of the topic or
    /// of its stream. Call this before the first message is read.
    pub fn with_selection(mut self, name: &str, selection: Selection) -> Self {
        if selection != Selection::default() {
            self.topics.selections.insert(file_name(name), selection);
            self.topics.all.clear();
            self.describe();
        }
        self
    }

    /// Sets the unit of stamps that are numbers, instead of guessing the unit from the times of publication. Call this before
    /// the first message is read.
    pub fn with_unit(mut self, unit: TimeUnit) -> Self {
        self.topics.unit = Some(unit);
        self.topics.all.clear();
        self.describe();
        self
    }

    /// Name of the stream with this index, which [`next_into`](Self::next_into) returns.
    pub fn stream(&self, index: usize) -> &str {
        &self.names.found[index].2
    }

    /// Reads the next message into `message`. Returns the index of its [`stream`](Self::stream); `None` at the end.
    ///
    /// The `timestamp_ns` of `message` is the stamp in its header, else the time of its publication. The `arrival_ns` is the
    /// time of recording. Both are ns.
    ///
    /// # Errors
    /// If a part of the bag can't be read: one or more messages are lost. The next call continues after the damage.
    pub fn next_into(&mut self, message: &mut Message) -> Result<Option<usize>, Error> {
        let read = self.read_next(message);
        self.is_damaged |= read.is_err();
        match (&read, self.stated_messages) {
            (Ok(None), Some(says)) if says != self.messages && !self.is_damaged => {
                self.stated_messages = None;
                let messages = self.messages;
                let problem = format!("{messages} messages were read, and its `metadata.yaml` says that it has {says}");
                Err(Error::file(&self.path, problem))
            }
            _ => read,
        }
    }

    fn read_next(&mut self, message: &mut Message) -> Result<Option<usize>, Error> {
        loop {
            if let Some(error) = self.missing.pop() {
                return Err(error);
            }
            if let Some(stream) = self.take_part(message) {
                return Ok(Some(stream));
            }
            let Some(file) = &mut self.open_file else {
                if self.files.is_empty() {
                    return Ok(None);
                }
                self.open_next()?;
                continue;
            };
            let is_by_stamp = file.is_by_stamp();
            match file.next()? {
                None => {
                    self.late += file.late();
                    self.left_out_lines.extend(file.left_out());
                    self.open_file = None;
                }
                Some(Record::Message(raw)) => {
                    self.messages += 1;
                    // The log time of the first message shows if an index without log times is wrong.
                    self.has_log_times |= self.messages == 1 && raw.log_time != 0;
                    self.backwards += u64::from(raw.log_time < self.last_log_time && !is_by_stamp);
                    self.last_log_time = raw.log_time;
                    self.open = self.topics.message(raw);
                }
                Some(record) => self.topics.describe(record),
            }
        }
    }

    /// Lists the data left out so far because no stream can hold them. Also lists renamed streams, replaced missing values, and
    /// messages out of order. Each is a line for the user.
    pub fn left_out(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.topics.all.iter().flat_map(Topic::left_out).collect();
        lines.sort();
        lines.extend(self.names.renamed.iter().cloned());
        lines.extend(self.left_out_lines.iter().cloned());
        lines.extend(self.open_file.iter().filter_map(|file| file.left_out()));
        let what = "the log times of its first messages are 0: no message has an `arrival_ns`";
        lines.extend((!self.has_log_times).then(|| what.to_owned()));
        let late = self.late + self.open_file.iter().map(|file| file.late()).sum::<u64>();
        let late = late.saturating_sub(self.backwards);
        let what = "stood behind messages that were logged later: they were sorted by log time";
        lines.extend((late > 0).then(|| format!("{late} messages {what}")));
        let what = "stood behind messages that were logged later, and were not sorted";
        lines.extend((self.backwards > 0).then(|| format!("{} messages {what}", self.backwards)));
        lines
    }

    /// Lists the messages so far that can't be decoded: one line for the user for each topic.
    pub fn broken(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.topics.all.iter().filter_map(Topic::broken).collect();
        lines.sort();
        let count = self.topics.undescribed;
        let words = format!("{count} messages are of channels that the file does not describe");
        lines.extend((count > 0).then_some(words));
        lines
    }

    fn open_next(&mut self) -> Result<(), Error> {
        let Some(path) = self.files.pop() else { return Ok(()) };
        let (file, problem) = container::open(&path)?;
        if self.messages == 0 {
            self.has_log_times = file.has_log_times();
        }
        self.open_file = Some(file);
        self.missing.extend(problem);
        self.describe();
        Ok(())
    }

    /// Reads the schemas and channels that the end of the open file repeats: their first copies may be in a damaged chunk.
    fn describe(&mut self) {
        self.topics.forget_ids();
        let topics = &mut self.topics;
        if let Some(file) = &self.open_file {
            file.describe(&mut |record| topics.describe(record));
        }
    }

    /// Fills `message` for the next stream of the current message. Returns the index of the stream; `None` if no stream
    /// is left.
    fn take_part(&mut self, message: &mut Message) -> Option<usize> {
        let open = self.open.as_mut()?;
        let topic = &mut self.topics.all[open.topic];
        let plan = match topic.content.as_mut().ok()? {
            Content::Foreign(plan) => plan,
            Content::Own(own) => {
                let open = self.open.take()?;
                let own = &mut **own;
                let changes = self.topics.differences.remove(&own.about.stream).unwrap_or_default();
                let stamp = Stamp::of(&own.decoder.fields);
                let stamp_ns = stamp.map_or(Ok(None), |mut stamp| stamp.read(&open.payload, open.published_ns));
                let read = stamp_ns.and_then(|ns| own.read(&open.payload, ns.unwrap_or(0), &changes, message));
                if let Err(why) = read {
                    topic.tally.broken.add(1, why);
                    return None;
                }
                message.arrival_ns = own.about.has_arrivals.then_some(open.recorded_ns);
                return Some(self.names.find("", 0, &own.about.stream));
            }
            Content::Differences(_) | Content::View | Content::Undetermined(_) => return None,
        };
        while let Some(part) = plan.parts.get_mut(open.part) {
            let mut suffix = &part.suffix;
            let transform;
            message.clear();
            let read = match &mut part.take {
                Take::Select(selector) => {
                    open.part += 1;
                    let source = part.source.as_ref();
                    if source.is_some_and(|path| row::is_empty(&open.payload, path)) {
                        part.empty += 1;
                        continue;
                    }
                    let payload: ArrayRef = open.payload.clone();
                    let read = selector.read([open.stamp(open.stamp_ns)], &payload, message);
                    read.map_err(Unfit::from)
                }
                Take::Image(kind) => {
                    open.part += 1;
                    let (name, stamp) = open.stamp(open.stamp_ns);
                    message.header.set(name, stamp);
                    if let Some(frame) = row::frame(&open.payload) {
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
                    let child = row::text(&element, "child_frame_id").unwrap_or_default();
                    let parent = row::text(&element, transforms.parent).unwrap_or_default();
                    transform = format!(".{parent}.{child}");
                    suffix = &transform;
                    let stamp = transforms.stamp.as_mut();
                    let own = match stamp.map_or(Ok(None), |stamp| stamp.read(&element, open.published_ns)) {
                        Ok(own) => own,
                        Err(why) => {
                            topic.tally.broken.add(1, why);
                            continue;
                        }
                    };
                    topic.tally.stamped(own, open.published_ns);
                    let frame = (key::frame_id, MetadataRef::String(parent));
                    let payload: ArrayRef = Arc::new(element.clone());
                    let read = transforms.selector.read([open.stamp(own), frame], &payload, message);
                    read.map_err(Unfit::from)
                }
            };
            match read {
                Ok(()) => {
                    part.given += 1;
                    message.arrival_ns = Some(open.recorded_ns).filter(|_| self.has_log_times);
                    return Some(self.names.find(&topic.name, topic.form.unwrap_or(0), suffix));
                }
                Err(_) if std::mem::replace(&mut open.is_refused, true) => {}
                Err(Unfit::Useless(why)) => topic.tally.refused.add(1, why),
                Err(Unfit::Broken(why)) => topic.tally.broken.add(1, why),
            }
        }
        self.open = None;
        None
    }
}

/// Names of streams, by topic, form and suffix. Each name is unique, and a valid file name.
#[derive(Default)]
struct Names {
    found: Vec<((String, usize), String, String)>,
    taken: HashSet<String>,
    /// Lines for the user about streams whose name got a number, because another stream has the name without it.
    renamed: Vec<String>,
}

impl Names {
    /// Returns the index of a stream, and adds the stream if it is new. `form` numbers the different sets of fields that
    /// schemas of one topic have.
    fn find(&mut self, topic: &str, form: usize, suffix: &str) -> usize {
        let mut found = self.found.iter();
        let known = found.position(|((of, which), with, _)| of == topic && *which == form && with == suffix);
        known.unwrap_or_else(|| {
            let wanted = file_name(&format!("{topic}{suffix}"));
            let name = free_name(&wanted, "_", |name| self.taken.insert(name.to_owned()));
            if name != wanted {
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

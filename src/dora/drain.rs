//! The thread that drains dora's events into the node's queue.
//!
//! It copies each payload out at once. It blocks only if the queue of an input with backpressure is full. Opening a ring may
//! take seconds: a thread of its own opens the ring, and meanwhile the messages of the ring's input are held, in order.

use super::message::read_message;
use super::queue::{DEFAULT_BYTES, DEFAULT_MESSAGES, Note, Queue};
use crate::app::{Change, Severity};
use arrow_array::ArrayRef;
use dora_node_api::futures::channel::mpsc::{self, UnboundedReceiver, UnboundedSender};
use dora_node_api::futures::channel::oneshot;
use dora_node_api::futures::future::{Either, pending, select};
use dora_node_api::futures::{StreamExt, executor::block_on};
use dora_node_api::{Event, EventStream, Metadata, MetadataParameters, StopCause};
use robocache_device::ring::{Opened, Readers};
use robocache_ops::align::is_request;
use robocache_ops::clock::now_ns;
use robocache_stream::{Message, MessageError, Selector, ring};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Period at which dora's drop counts are read, and suppressed counts are logged.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Drain {
    names: Vec<String>,
    /// True, for each input, if an operation takes every message of the input, even a message that can't be read.
    takes_any: Vec<bool>,
    /// Selector of each input, which extracts the fields of its payloads that the operations read.
    selectors: Vec<Selector>,
    queue: Arc<Queue>,
    ignored: BTreeSet<String>,
    /// Open rings, from which payloads are copied.
    readers: Readers,
    /// Names of the rings that threads are opening, at most one for each input.
    opening: Vec<String>,
    opened: (UnboundedSender<Opened>, UnboundedReceiver<Opened>),
    backlogs: Vec<Backlog>,
    next_look: Instant,
}

/// Events of an input, in order, that wait for a ring to be opened.
#[derive(Default)]
struct Backlog {
    events: VecDeque<InputEvent>,
    messages: usize,
    bytes: usize,
}

/// A message of an input, or a change of the input's state: closed, or opened again.
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all are messages, and a box would be made for each"
)]
enum InputEvent {
    Message(Received),
    Change(Change),
}

/// A message whose payload may still be in its ring.
struct Received {
    message: Message,
    /// Result of reading the message. A payload in a ring is not read yet.
    read: Result<(), MessageError>,
}

impl Backlog {
    /// Appends an event. A change of the input's state replaces a change just before it. If too many messages are held, removes
    /// and returns the oldest.
    fn push(&mut self, event: InputEvent) -> Option<Message> {
        match &event {
            InputEvent::Message(received) => {
                self.messages += 1;
                self.bytes += received.message.bytes();
            }
            InputEvent::Change(_) => drop(self.events.pop_back_if(|last| matches!(last, InputEvent::Change(_)))),
        }
        self.events.push_back(event);
        if self.messages <= DEFAULT_MESSAGES && (self.bytes <= DEFAULT_BYTES || self.messages == 1) {
            return None;
        }
        // At most one change is ahead of the oldest message.
        let oldest = usize::from(matches!(self.events.front(), Some(InputEvent::Change(_))));
        match self.remove(oldest)? {
            InputEvent::Message(received) => Some(received.message),
            InputEvent::Change(_) => None,
        }
    }

    fn remove(&mut self, at: usize) -> Option<InputEvent> {
        let event = self.events.remove(at)?;
        if let InputEvent::Message(received) = &event {
            self.messages -= 1;
            self.bytes -= received.message.bytes();
        }
        Some(event)
    }

    /// Name of the ring that the first event needs; `None` if the event needs no ring, or there is no event.
    fn waits_for(&self) -> Option<&str> {
        match self.events.front()? {
            InputEvent::Message(received) => received.waits_for(),
            InputEvent::Change(_) => None,
        }
    }
}

impl Received {
    /// Name of the ring that holds the payload; `None` if the payload is in the message, or the message can't be read.
    fn waits_for(&self) -> Option<&str> {
        ring::ring.get(&self.message.header).filter(|_| self.read.is_ok())
    }
}

/// Reasons for which the drain stops waiting: an event of dora, an opened ring, or the end of the node.
enum Woken {
    Event(Option<Event>),
    Opened(Opened),
    Stopped,
}

impl Drain {
    /// Makes the drain of the inputs `names`. For each of them, `takes_any` says if an operation takes every message, and
    /// `selectors` has the selector for its payloads.
    pub(super) fn new(names: Vec<String>, takes_any: Vec<bool>, selectors: Vec<Selector>, queue: Arc<Queue>) -> Self {
        Self {
            backlogs: names.iter().map(|_| Backlog::default()).collect(),
            names,
            takes_any,
            selectors,
            queue,
            ignored: BTreeSet::new(),
            readers: Readers::default(),
            opening: Vec::new(),
            opened: mpsc::unbounded(),
            next_look: Instant::now() + LOOK_EVERY,
        }
    }

    /// Moves dora's events into the queue of the node, until the stream of events or the node ends. Returns the stream of events,
    /// which the caller closes after the node's last output.
    pub(super) fn run(mut self, mut events: EventStream, mut stopped: oneshot::Receiver<()>) -> EventStream {
        loop {
            // The `Stream` implementation keeps the order of arrival; `recv` does not.
            let inputs_closed = match self.wait(events.next(), &mut stopped) {
                Woken::Stopped => return events,
                Woken::Opened(opened) => {
                    self.keep(opened);
                    continue;
                }
                Woken::Event(Some(Event::Stop(cause))) => {
                    self.count_losses(&mut events);
                    matches!(cause, StopCause::AllInputsClosed)
                }
                Woken::Event(Some(event)) => {
                    self.handle(event);
                    if Instant::now() >= self.next_look {
                        self.count_losses(&mut events);
                    }
                    continue;
                }
                Woken::Event(None) => true,
            };
            if inputs_closed {
                self.wait_for_rings(&mut stopped);
            }
            self.count_backlog();
            self.queue.push(Note::End { inputs_closed });
            return events;
        }
    }

    fn wait(
        &mut self,
        event: impl Future<Output = Option<Event>> + Unpin,
        stopped: &mut oneshot::Receiver<()>,
    ) -> Woken {
        match block_on(select(select(event, self.opened.1.select_next_some()), stopped)) {
            Either::Left((Either::Left((event, _)), _)) => Woken::Event(event),
            Either::Left((Either::Right((opened, _)), _)) => Woken::Opened(opened),
            Either::Right(_) => Woken::Stopped,
        }
    }

    /// Waits until no ring is being opened, so that all held messages are in the queue. Returns early if the node stops.
    fn wait_for_rings(&mut self, stopped: &mut oneshot::Receiver<()>) {
        while !self.opening.is_empty() {
            match self.wait(pending(), stopped) {
                Woken::Opened(opened) => self.keep(opened),
                Woken::Event(_) | Woken::Stopped => return,
            }
        }
    }

    /// Counts as unreadable each message that still waits for a ring at the end.
    fn count_backlog(&mut self) {
        for (input, held) in self.backlogs.iter().enumerate() {
            let why = "its ring was not open when the dataflow ended";
            (0..held.messages).for_each(|_| self.queue.count_unreadable(input, why));
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Input { id, metadata, data } => match self.index(id.as_ref()) {
                Some(input) => {
                    let times = (now_ns(), unix_ns(&metadata));
                    self.input(input, &metadata.parameters, data.as_array(), times);
                }
                None if self.ignored.insert(id.to_string()) => {
                    let text = format!(
                        "input `{id}` is wired, but no operation listens to it (name it in the configuration, or unwire it)"
                    );
                    self.log(Severity::Warning, text);
                }
                None => {}
            },
            Event::InputClosed { id } => self.change(id.as_ref(), Change::Closed),
            Event::InputRecovered { id } => self.change(id.as_ref(), Change::Opened),
            Event::NodeFailed {
                affected_input_ids,
                error,
                source_node_id,
            } => {
                let inputs: Vec<String> = affected_input_ids.iter().map(ToString::to_string).collect();
                let text = format!("node `{source_node_id}` failed (inputs {}): {error}", inputs.join(", "));
                self.log(Severity::Error, text);
            }
            Event::NodeRestarted { id } => self.log(Severity::Warning, format!("node `{id}` is back")),
            Event::ParamUpdate { key, value } => match serde_yaml::to_value(&value) {
                Ok(value) => self.queue.push(Note::Parameter { key, value }),
                Err(error) => {
                    let text = format!("parameter `{key}` = {value} is refused: {error}");
                    self.log(Severity::Warning, text);
                }
            },
            Event::ParamDeleted { key } => {
                let text = format!("parameter `{key}` was deleted: its last value stays");
                self.log(Severity::Warning, text);
            }
            Event::Error(text) => self.log(Severity::Error, text),
            _ => {}
        }
    }

    fn log(&self, level: Severity, text: String) {
        self.queue.push(Note::Log { level, text });
    }

    fn change(&mut self, id: &str, change: Change) {
        if let Some(input) = self.index(id) {
            self.append(input, InputEvent::Change(change));
        }
    }

    fn index(&self, id: &str) -> Option<usize> {
        self.names.iter().position(|name| name == id)
    }

    /// Copies a message out of dora's memory, and appends it to the events of its input. The two times are those of its arrival
    /// here and of its publication, ns since 1970.
    fn input(
        &mut self,
        input: usize,
        parameters: &MetadataParameters,
        array: &ArrayRef,
        (arrival_ns, published_ns): (i64, i64),
    ) {
        let mut message = self.queue.take_free(input);
        let selector = &mut self.selectors[input];
        let read = read_message(parameters, array, selector, &mut message);
        message.arrival_ns = Some(arrival_ns);
        message.published_ns = Some(published_ns);
        if let Some(note) = selector.take_note() {
            self.log(
                Severity::Info,
                format!("input `{}` is read as {note}", self.names[input]),
            );
        }
        self.append(input, InputEvent::Message(Received { message, read }));
    }

    fn append(&mut self, input: usize, event: InputEvent) {
        if let Some(message) = self.backlogs[input].push(event) {
            let why = "too many messages came while a ring was opened: the oldest was dropped";
            self.queue.count_unreadable(input, why);
            self.queue.give_back(input, message);
        }
        self.forward(input);
    }

    /// Moves the events of an input into the queue, in order, up to a message whose ring is not open.
    fn forward(&mut self, input: usize) {
        loop {
            if let Some(ring) = self.backlogs[input].waits_for()
                && !self.readers.is_open(ring)
            {
                let ring = ring.to_owned();
                match self.open(&ring) {
                    Ok(()) => return,
                    Err(error) => self.fail(&ring, &format!("ring `{ring}`: no thread can open it: {error}")),
                }
            }
            match self.backlogs[input].remove(0) {
                None => return,
                Some(InputEvent::Change(change)) => self.queue.push_change(input, change),
                Some(InputEvent::Message(received)) => self.message(input, received),
            }
        }
    }

    /// Starts a thread that opens a ring, unless a thread is opening it already.
    fn open(&mut self, ring: &str) -> std::io::Result<()> {
        if self.opening.iter().any(|it| it == ring) {
            return Ok(());
        }
        let (opening, done) = (self.readers.opening(ring), self.opened.0.clone());
        // Sending fails if the node has ended: nobody listens any more.
        let open = move || drop(done.unbounded_send(opening.open()));
        std::thread::Builder::new().name("open ring".into()).spawn(open)?;
        self.opening.push(ring.to_owned());
        Ok(())
    }

    /// Keeps a ring that was opened, or the error of opening it. Moves the messages that waited for the ring into the queue.
    fn keep(&mut self, opened: Opened) {
        let ring = opened.ring().to_owned();
        self.opening.retain(|it| *it != ring);
        if let Err(error) = self.readers.keep(opened) {
            self.fail(&ring, &error.to_string());
        }
        (0..self.backlogs.len()).for_each(|input| self.forward(input));
    }

    /// Makes the messages that wait for a ring unreadable, because the ring can't be opened; `why` is the error.
    fn fail(&mut self, ring: &str, why: &str) {
        for event in self.backlogs.iter_mut().flat_map(|backlog| &mut backlog.events) {
            if let InputEvent::Message(received) = event
                && received.waits_for() == Some(ring)
            {
                received.read = Err(MessageError::Ring(why.to_owned()));
            }
        }
    }

    fn message(&mut self, input: usize, received: Received) {
        let Received { mut message, mut read } = received;
        let (arrival_ns, published_ns) = (message.arrival_ns, message.published_ns);
        // Even a message that is refused is taken out of its ring: a lossless producer waits for that.
        if ring::ring
            .get(&message.header)
            .is_some_and(|ring| self.readers.is_open(ring))
        {
            read = read.and(message.take_resident(&mut self.readers));
        }
        let takes_any = self.takes_any[input];
        if let Err(error) = read {
            self.queue.count_unreadable(input, error);
            if !takes_any {
                return self.queue.give_back(input, message);
            }
            message.make_unread();
        }
        (message.arrival_ns, message.published_ns) = (arrival_ns, published_ns);
        if !message.header.timestamp_ns.is_present() {
            message.header.timestamp_ns.set(published_ns.unwrap_or(0));
            message.header.unstamped.set(1);
            if !takes_any && !is_request(&message.header) {
                self.queue.count(input, |losses| losses.unstamped += 1);
            }
        }
        self.queue.push_message(input, message);
    }

    fn count_losses(&mut self, events: &mut EventStream) {
        self.next_look = Instant::now() + LOOK_EVERY;
        for (id, count) in events.drain_drop_counts() {
            if let Some(input) = self.index(id.as_ref()).filter(|_| count > 0) {
                self.queue.count(input, |losses| losses.lost_by_dora += count);
            }
        }
    }
}

/// Time at which dora published the message, ns since the Unix epoch.
fn unix_ns(metadata: &Metadata) -> i64 {
    let since_epoch = metadata.timestamp().get_time().to_duration();
    i64::try_from(since_epoch.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::message::parameters;
    use super::super::queue::{Bound, Item};
    use super::*;
    use arrow_array::{Float32Array, UInt8Array};
    use robocache_device::HostMemory;
    use robocache_device::ring::{RingConfig, RingWriter, Ticket};
    use robocache_stream::{Header, Selection};
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

    fn drain(inputs: usize) -> Drain {
        let bounds = vec![Bound::new(None, false); inputs];
        let queue = Arc::new(Queue::new(&bounds, &HostMemory::pageable()));
        let names = (0..inputs).map(|input| format!("input {input}")).collect();
        let selectors = (0..inputs).map(|_| Selector::new(Selection::default())).collect();
        Drain::new(names, vec![false; inputs], selectors, queue)
    }

    impl Drain {
        fn resident(&mut self, input: usize, stamp: i64, ticket: &Ticket<'_>) {
            let mut header = Header::default();
            header.timestamp_ns.set(stamp);
            header.set_ticket("shared", ticket);
            let nothing: ArrayRef = Arc::new(UInt8Array::new_null(0));
            self.input(input, &parameters(&header), &nothing, (0, 0));
        }

        fn plain(&mut self, input: usize, stamp: i64) {
            let mut header = Header::default();
            header.timestamp_ns.set(stamp);
            let array: ArrayRef = Arc::new(Float32Array::from(vec![stamp as f32]));
            self.input(input, &parameters(&header), &array, (0, 0));
        }

        /// Waits until the next ring is opened, or can't be opened, and keeps it.
        fn keep_next(&mut self) {
            let opened = block_on(self.opened.1.select_next_some());
            self.keep(opened);
        }

        /// Empties the queue, and returns a text for each item.
        fn words(&self) -> Vec<String> {
            let items = std::iter::from_fn(|| self.queue.pop(Some(Instant::now())));
            let words = items.map(|item| match item {
                Item::Message { input, message } => {
                    let values: &[f32] = message.columns()[0].values().as_slice();
                    format!("{input}: {} {values:?}", message.timestamp_ns())
                }
                Item::Changed { input, change } => format!("{input}: {change:?}"),
                Item::Losses { input, losses } => {
                    format!("{input}: {} unreadable: {}", losses.unreadable, losses.error)
                }
                _ => panic!("neither messages nor changes"),
            });
            words.collect()
        }
    }

    fn publish(writer: &mut RingWriter, value: f32) -> Ticket<'static> {
        let ticket = writer.publish("rows 1\nfloat32 1 ", 64, |slot| slot.write(0, &value.to_le_bytes()));
        ticket.unwrap().into_owned()
    }

    #[test]
    fn a_message_says_when_it_came_by_this_host_and_when_it_was_published_by_its_sender() {
        let mut drain = drain(1);
        let array: ArrayRef = Arc::new(Float32Array::from(vec![1.0]));
        let mut stamped = Header::default();
        stamped.timestamp_ns.set(7);
        for header in [stamped, Header::default()] {
            drain.input(0, &parameters(&header), &array, (2_000, 500));
        }
        let items = std::iter::from_fn(|| drain.queue.pop(Some(Instant::now())));
        let messages = items.filter_map(|item| match item {
            Item::Message { message, .. } => Some(message),
            _ => None,
        });
        let stamps = messages.map(|message| {
            let times = (message.arrival_ns, message.published_ns);
            assert_eq!(times, (Some(2_000), Some(500)));
            (message.timestamp_ns(), message.header.unstamped.get().unwrap_or(0))
        });
        // The message without a stamp has the time of its publication.
        assert_eq!(stamps.collect::<Vec<_>>(), [(7, 0), (500, 1)]);
    }

    #[test]
    fn what_comes_while_a_ring_is_opened_is_held_in_order() {
        let mut drain = drain(3);
        let [mut one, mut other] = ["one", "other"].map(|name| RingWriter::shared(name, None, RingConfig::default()));
        let first = publish(&mut one, 1.0);
        drain.resident(0, 1, &first);
        drain.resident(1, 1, &first);
        drain.resident(0, 2, &publish(&mut one, 2.0));
        drain.plain(0, 3);
        drain.resident(0, 4, &publish(&mut other, 4.0));
        drain.append(0, InputEvent::Change(Change::Closed));
        drain.plain(2, 5);
        assert_eq!(drain.words(), ["2: 5 [5.0]"]);
        assert_eq!(drain.opening, [&*first.ring], "once for two inputs");
        drain.keep_next();
        assert_eq!(drain.words(), ["0: 1 [1.0]", "0: 2 [2.0]", "0: 3 [3.0]", "1: 1 [1.0]"]);
        drain.keep_next();
        assert_eq!(drain.words(), ["0: 4 [4.0]", "0: Closed"]);
        drain.resident(0, 6, &publish(&mut one, 6.0));
        assert_eq!(drain.words(), ["0: 6 [6.0]"], "it is open");
    }

    #[test]
    fn a_producer_that_does_not_answer_holds_up_no_other_input_and_its_messages_are_counted() {
        let name = format!("robocache.test/stopped/{}", std::process::id());
        // This is like a producer that is stopped: the system lets others connect, and nobody answers.
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (socket, address) = (
            socket.unwrap(),
            SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap(),
        );
        rustix::net::bind(&socket, &address).unwrap();
        rustix::net::listen(&socket, 16).unwrap();
        let ticket = Ticket {
            ring: (&*name).into(),
            slot: 0,
            generation: 2,
            nbytes: 64,
        };
        let (mut drain, start) = (drain(3), Instant::now());
        let mut writer = RingWriter::shared("test", None, RingConfig::default());
        for stamp in 0..5 {
            drain.resident(0, stamp, &ticket);
            drain.plain(1, stamp);
        }
        drain.resident(2, 0, &publish(&mut writer, 7.0));
        drain.plain(0, 5);
        drain.keep_next();
        assert_eq!(
            drain.words().len(),
            5 + 1,
            "a ring of another producer is opened meanwhile"
        );
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        drain.keep_next();
        let words = drain.words();
        assert!(
            words[0].starts_with("0: 5 unreadable: ring `") && words[0].contains("does not answer"),
            "{words:?}"
        );
        assert_eq!(words[1..], ["0: 5 [5.0]"]);
    }

    #[test]
    fn of_too_many_messages_that_wait_for_a_ring_the_oldest_are_dropped_and_counted() {
        let mut drain = drain(1);
        let mut writer = RingWriter::shared("test", None, RingConfig::default());
        let ticket = publish(&mut writer, 7.0);
        (0..1030).for_each(|stamp| drain.resident(0, stamp, &ticket));
        drain.keep_next();
        let words = drain.words();
        assert!(
            words[0].starts_with("0: 6 unreadable: too many messages came"),
            "{}",
            words[0]
        );
        assert_eq!((words.len(), &*words[1]), (1 + 1024, "0: 6 [7.0]"));
        let mut other = RingWriter::shared("another", None, RingConfig::default());
        drain.resident(0, 2000, &publish(&mut other, 1.0));
        drain.plain(0, 2001);
        drain.count_backlog();
        let ended = "0: 2 unreadable: its ring was not open when the dataflow ended";
        assert_eq!(drain.words(), [ended]);
    }
}

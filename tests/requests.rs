//! Requests for observations in one process: their metadata, and answers without an observation.

use crate::common::{MS, Recorder, Sent, faults, graph, input, sample};
use robocache::app::{Change, Graph};
use robocache::ops::{align, group};
use robocache::stream::{Message, MetadataRef, MetadataValue};

const MODALITIES: &str = "modalities: [
    { input: a, dim: 2, interpolation: previous },
    { input: b, dim: 1, interpolation: linear } ]";

struct Robot {
    graph: Graph,
    sink: Recorder,
}

impl Robot {
    fn new(plugins: &str) -> Self {
        Self {
            graph: graph(&format!("plugins: [{plugins}]")).unwrap(),
            sink: Recorder::default(),
        }
    }

    fn comes(&mut self, name: &str, message: &Message) -> Vec<Sent> {
        let input = input(&self.graph, name);
        self.graph.message(input, message, &mut self.sink);
        self.sink.take()
    }
}

/// Makes a request with metadata of each type, for a time in ms or for the newest time.
fn request(id: &str, ms: Option<i64>) -> Message {
    let mut message = sample(0, &[1.0]);
    message.header.timestamp_ns.clear();
    for (key, value) in own(id) {
        *message.header.other.set(key) = value;
    }
    message.header.frame_id.set("base");
    group::key::group.set(&mut message.header, 7);
    if let Some(ms) = ms {
        message.header.timestamp_ns.set(ms * MS);
    }
    message
}

fn own(id: &str) -> Vec<(&'static str, MetadataValue)> {
    vec![
        ("request_id", MetadataValue::String(id.into())),
        ("flag", MetadataValue::Bool(true)),
        ("whole", MetadataValue::Integer(-3)),
        ("real", MetadataValue::Float(f64::NAN)),
        ("wholes", MetadataValue::ListInt(vec![])),
        ("reals", MetadataValue::ListFloat(vec![0.5])),
        ("names", MetadataValue::ListString(["x"].into_iter().collect())),
        ("time", MetadataValue::Timestamp(5)),
    ]
}

/// Checks that an answer has the metadata of the request.
#[track_caller]
fn answers(sent: &Sent, id: &str) {
    for (key, value) in own(id) {
        let came = sent.header.get(key).map(MetadataRef::to_owned);
        assert_eq!(format!("{came:?}"), format!("{:?}", Some(value)), "{key}");
    }
    assert_eq!(
        (sent.header.frame_id.get(), group::key::group.get(&sent.header)),
        (Some("base"), Some(7))
    );
    assert_eq!(align::key::trigger.get(&sent.header), Some("request"));
}

#[test]
fn an_answer_has_all_that_its_request_has_but_the_form_of_its_payload() {
    let mut robot = Robot::new(&format!(
        "fuse: {{ rate_hz: 100, window: 2, trigger: {{ request: ask }}, {MODALITIES} }}"
    ));
    let mut for_newest = request("first", None);
    for_newest.header.shape.set([1]);
    for_newest.header.fields.set(["goal"]);
    for_newest.header.dim.set(9);
    for_newest.header.dtype.set("float32");
    for_newest.header.valid.set([1]);
    assert_eq!(robot.comes("ask", &for_newest), []);
    assert_eq!(robot.comes("ask", &request("second", Some(15))), []);
    robot.comes("a", &sample(10 * MS, &[1.0, 2.0]));
    let sent = robot.comes("b", &sample(10 * MS, &[5.0]));
    assert_eq!(sent.len(), 1);
    answers(&sent[0], "first");
    assert_eq!(
        (sent[0].ms(), align::key::deterministic.get(&sent[0].header)),
        (10.0, Some(0))
    );
    assert!(
        align::key::deterministic.get(&sent[0].header).is_some() && align::key::error.get(&sent[0].header).is_none()
    );
    assert_eq!(sent[0].integers("shape"), [2, 3]);
    assert!(!sent[0].header.fields.is_present() && !sent[0].header.dim.is_present());
    assert_eq!(sent[0].integers("valid"), [0, 0, 1, 1]);
    robot.comes("a", &sample(20 * MS, &[1.0, 2.0]));
    let sent = robot.comes("b", &sample(20 * MS, &[6.0]));
    answers(&sent[0], "second");
    assert_eq!(
        (sent[0].ms(), align::key::deterministic.get(&sent[0].header).is_some()),
        (15.0, false)
    );
    assert_eq!(sent[0].values[3..], [1.0, 2.0, 5.5]);
    assert_eq!(faults(&robot.graph, "fuse: input `ask`"), 0);
}

#[test]
fn every_output_answers_also_where_there_is_no_observation() {
    let mut robot = Robot::new(&format!(
        "align: {{ rate_hz: 100, trigger: {{ request: ask }}, {MODALITIES} }}"
    ));
    robot.comes("a", &sample(0, &[1.0, 2.0]));
    robot.comes("b", &sample(0, &[5.0]));
    let sent = robot.comes("ask", &request("now", None));
    assert_eq!(
        sent.iter().map(|sent| sent.output.as_str()).collect::<Vec<_>>(),
        ["a", "b"]
    );
    let sent = robot.comes("ask", &request("far", Some(60_000)));
    for (sent, (output, width)) in sent.iter().zip([("a", 2), ("b", 1)]) {
        answers(sent, "far");
        assert_eq!(
            (sent.output.as_str(), sent.integers("shape")),
            (output, &[0, width][..])
        );
        assert_eq!((sent.ms(), sent.values.len()), (60_000.0, 0));
        assert!(
            align::key::error
                .get(&sent.header)
                .unwrap()
                .contains("60.000 s ahead of the newest sample"),
            "{}",
            align::key::error.get(&sent.header).unwrap()
        );
    }
    assert_eq!(sent.len(), 2);
    assert_eq!(faults(&robot.graph, "align: input `ask`"), 1);
}

#[test]
fn whatever_form_a_request_has_it_gets_an_answer() {
    let mut robot = Robot::new(&format!(
        "fuse: {{ rate_hz: 100, trigger: {{ request: ask }}, {MODALITIES} }}"
    ));
    robot.comes("a", &sample(0, &[1.0, 2.0]));
    robot.comes("b", &sample(0, &[5.0]));
    // A header that contradicts the payload is counted, but the request is answered.
    let mut contradicts = request("odd", None);
    contradicts.header.shape.set([3]);
    let sent = robot.comes("ask", &contradicts);
    answers(&sent[0], "odd");
    assert!(align::key::error.get(&sent[0].header).is_none());
    assert_eq!(faults(&robot.graph, "input `ask`"), 1);
    // A timestamp that is not an integer.
    let mut soon = request("soon", None);
    *soon.header.other.set("timestamp_ns") = MetadataValue::String("soon".into());
    let sent = robot.comes("ask", &soon);
    answers(&sent[0], "soon");
    assert_eq!(
        align::key::error.get(&sent[0].header).unwrap(),
        "metadata `timestamp_ns` is String(\"soon\") (allowed: an Integer, or none for the newest)"
    );
    // dora's own stamp is not a time that was asked for.
    let mut unstamped = request("unstamped", Some(60_000));
    unstamped.header.unstamped.set(1);
    let sent = robot.comes("ask", &unstamped);
    answers(&sent[0], "unstamped");
    assert_eq!(sent[0].ms(), 0.0);
    assert!(!sent[0].header.unstamped.is_present());
}

#[test]
fn what_waits_when_all_closes_or_the_node_ends_is_answered() {
    let plugins = format!("fuse: {{ rate_hz: 100, trigger: {{ request: ask }}, {MODALITIES} }}");
    let mut robot = Robot::new(&plugins);
    robot.comes("a", &sample(0, &[1.0, 2.0]));
    robot.comes("ask", &request("waits", Some(50)));
    robot.graph.finish(&mut robot.sink).unwrap();
    let sent = robot.sink.take();
    answers(&sent[0], "waits");
    assert_eq!(
        (align::key::error.get(&sent[0].header).unwrap(), sent.len()),
        ("the node ends", 1)
    );

    let mut robot = Robot::new(&plugins);
    robot.comes("a", &sample(0, &[1.0, 2.0]));
    robot.comes("ask", &request("in time", Some(0)));
    robot.comes("ask", &request("too new", Some(50)));
    robot.comes("ask", &request("behind it", None));
    // Closing the trigger's own input changes nothing.
    for name in ["ask", "b"] {
        robot
            .graph
            .changed(input(&robot.graph, name), Change::Closed, &mut robot.sink);
    }
    let a = input(&robot.graph, "a");
    robot.graph.changed(a, Change::Closed, &mut robot.sink);
    let sent = robot.sink.take();
    answers(&sent[0], "in time");
    answers(&sent[1], "too new");
    assert_eq!(sent[0].integers("valid"), [1, 0]);
    assert!(
        align::key::error
            .get(&sent[1].header)
            .unwrap()
            .starts_with("every stream that is waited for is closed")
    );
    answers(&sent[2], "behind it");
    assert!(align::key::error.get(&sent[2].header).is_none());
    assert_eq!(sent.len(), 3);
}

#[test]
fn observations_of_the_grid_and_of_ticks_say_what_made_them() {
    let mut robot = Robot::new(&format!("fuse: {{ rate_hz: 100, {MODALITIES} }}"));
    robot.comes("a", &sample(0, &[1.0, 2.0]));
    let sent = robot.comes("b", &sample(4 * MS, &[5.0]));
    assert_eq!(sent, []);
    robot.comes("b", &sample(17 * MS, &[5.0]));
    let sent = robot.comes("a", &sample(12 * MS, &[5.0, 1.0]));
    assert_eq!(
        (
            align::key::trigger.get(&sent[0].header),
            align::key::wait_ns.get(&sent[0].header)
        ),
        (Some("grid"), Some(7 * MS))
    );
    assert!(align::key::deterministic.get(&sent[0].header).is_none());

    let mut robot = Robot::new(&format!(
        "fuse: {{ rate_hz: 100, trigger: {{ timer: tick }}, {MODALITIES} }}"
    ));
    robot.comes("a", &sample(0, &[1.0, 2.0]));
    robot.comes("b", &sample(4 * MS, &[5.0]));
    assert_eq!(robot.comes("tick", &Message::default()), []); // b begins at 4
    robot.comes("a", &sample(6 * MS, &[1.0, 2.0]));
    let sent = robot.comes("tick", &Message::default());
    assert_eq!(
        (
            sent[0].ms(),
            align::key::trigger.get(&sent[0].header).unwrap(),
            sent[0].integer("deterministic")
        ),
        (4.0, "timer", 0)
    );
    assert_eq!(robot.comes("tick", &Message::default()), []);
    assert_eq!(faults(&robot.graph, "fuse: input `tick`"), 0);
}

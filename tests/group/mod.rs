//! Checks that the sets of `group` are those of ROS's message_filters. Random streams are compared with an oracle that follows
//! the description of message_filters, and their documented properties are checked; other cases are worked out by hand.

mod by_hand;
mod oracle;
mod random;

use oracle::Set;
use robocache::ops::group::{DropReason, Grouper, GroupingConfig, GroupingInput, Outcome};

/// Sets and drops of a grouper. Messages are numbered in order of arrival.
#[derive(Default)]
struct Grouped {
    sets: Vec<Set>,
    /// Newest stamp (ns), span of the stamps (ns) and epoch of each set.
    infos: Vec<(i64, i64, i64)>,
    /// Stream, message number and reason of each message that was accepted and then dropped.
    dropped: Vec<(usize, usize, DropReason)>,
}

impl Grouped {
    /// Collects the sets and drops that the grouper has decided since the last call.
    fn take(&mut self, grouper: &mut Grouper<usize>) {
        while let Some(outcome) = grouper.next_outcome() {
            match outcome {
                Outcome::Member { input, item, set } => {
                    if input == 0 {
                        assert_eq!(set.number, self.sets.len() as i64);
                        self.sets.push(Set::new());
                        self.infos.push((set.newest_ns, set.span_ns, set.epoch));
                    }
                    let members = self.sets.last_mut().unwrap();
                    assert_eq!(members.len(), input, "members come in the order of the inputs");
                    members.push(item);
                }
                Outcome::Dropped { input, item, reason } => self.dropped.push((input, item, reason)),
            }
        }
    }
}

/// Groups messages, given as (stream, stamp in ns). Returns the sets and drops, and the grouper.
fn group(config: &GroupingConfig, messages: &[(usize, i64)]) -> (Grouped, Grouper<usize>) {
    let mut grouper = Grouper::new(config).unwrap();
    let mut grouped = Grouped::default();
    for (number, &(stream, stamp)) in messages.iter().enumerate() {
        grouper.push(stream, stamp, 1, || number).unwrap();
        grouped.take(&mut grouper);
    }
    (grouped, grouper)
}

fn inputs(count: usize) -> Vec<GroupingInput> {
    let named = |i: usize| GroupingInput {
        input: format!("s{i}"),
        // The streams of these tests may be more than a second behind one another.
        reset_ms: 1e12,
        ..GroupingInput::default()
    };
    (0..count).map(named).collect()
}

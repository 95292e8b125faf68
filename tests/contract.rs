//! `fuse` on random rigs, compared bit for bit with a naive implementation of its meaning (`contract/oracle.rs`): the
//! observations after every event.
//!
//! `ROBOCACHE_CONTRACT_CASES` is the number of scenarios of each test (100 to 600 by default). `ROBOCACHE_CONTRACT_SEED` runs
//! one scenario alone.

#![allow(clippy::unwrap_used)]

#[path = "contract/liveness.rs"]
mod liveness;
#[path = "contract/oracle.rs"]
mod oracle;
#[path = "common/random.rs"]
mod random;
#[path = "contract/scenario.rs"]
mod scenario;

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use liveness::{Liveness, TriggerBound};
use oracle::{Observation, Oracle, PushOutcome, Refused};
use random::Random;
use robocache::device::{Placement, Values};
use robocache::ops::align::{AlignConfig, Aligner, Attached, Notice, Refusal};
use scenario::{Event, Scenario, Trigger};

/// Number of observations at which a scenario is cut off, since a clock that is a day ahead makes millions of targets due.
const MOST_TARGETS: usize = 1500;
/// Number of mismatches after which a test stops, and shows the mismatch with the fewest events.
const MOST_MISMATCHES: usize = 12;

/// The aligner under test, which gets the same events as the oracle.
struct Subject {
    aligner: Aligner,
    attached: Attached<u32>,
}

impl Subject {
    fn new(scenario: &Scenario) -> Result<Self, String> {
        let config: AlignConfig = serde_yaml::from_str(&scenario.yaml()).map_err(|e| e.to_string())?;
        let aligner = Aligner::fused(&config, &Placement::cpu("a test")).map_err(|e| e.to_string())?;
        let attached = Attached::new(aligner.timeline());
        Ok(Self { aligner, attached })
    }

    fn push(&mut self, i: usize, stamp: i64, values: &[f32]) -> Result<Option<PushOutcome>, String> {
        let pushed = match i.checked_sub(self.aligner.timeline().modalities()) {
            None => self.aligner.push(i, stamp, Values::from_f32(values)).ok(),
            Some(i) => {
                let number = values[0] as u32;
                let arrival = self.attached.push(&mut self.aligner, i, stamp, 1, || number);
                arrival.ok().map(|arrival| arrival.pushed)
            }
        };
        let Some(pushed) = pushed else { return Ok(None) };
        if pushed.overflowed {
            return Err("a sample displaced another one that waited".into());
        }
        Ok(Some(PushOutcome {
            late: pushed.late,
            jumped: pushed.jumped_ns.is_some(),
        }))
    }

    fn apply(&mut self, event: &Event) -> Result<Outcome, String> {
        match *event {
            Event::Push(i, stamp, ref values) => return self.push(i, stamp, values).map(Outcome::Pushed),
            Event::Ask(time) => {
                return Ok(Outcome::Requested(
                    self.aligner
                        .timeline_mut()
                        .ask(time)
                        .map_err(|refusal| refused(&refusal)),
                ));
            }
            Event::Tick => self.aligner.timeline_mut().tick(),
            Event::Close(i) => self.aligner.timeline_mut().close(i),
            Event::Open(i) => self.aligner.timeline_mut().open(i),
            Event::Latency(i, ms) => drop(self.aligner.timeline_mut().set_latency_ms(i, ms)),
            Event::MaxWait(ms) => drop(self.aligner.timeline_mut().set_max_wait_ms(ms)),
        }
        Ok(Outcome::Nothing)
    }

    fn due(&mut self) -> Option<Observation> {
        let target = self.aligner.due()?;
        let wait = self.aligner.timeline().wait_ns(&target);
        let mut values = vec![f32::NAN; self.aligner.outputs()[0].layout().rows];
        let mut window = self.aligner.window(target);
        self.attached.select(window.timeline(), &target);
        window.write(0, &mut values);
        let masks = window.masks();
        let mut observation = Observation {
            time: target.time_ns.into(),
            epoch: target.epoch as u64,
            late_samples: target.late_samples as u64,
            request: target.request,
            wait: Some(wait.into()),
            timestamps: masks.timestamps_ns.iter().map(|&t| t.into()).collect(),
            valid: masks.valid.iter().map(|&v| v as u8).collect(),
            age: masks.age_ns.iter().map(|&a| a.into()).collect(),
            values: values.iter().map(|v| v.to_bits()).collect(),
            attached: Vec::new(),
        };
        drop(window);
        observation.attached = self.rows_of_messages();
        Some(observation)
    }

    /// Returns the number and the age, ns, of the attached message of each row and stream. Panics if a message of the window is
    /// in no row.
    fn rows_of_messages(&self) -> Vec<Option<(u32, i128)>> {
        let streams = self.aligner.timeline().attached().len();
        let (index, age) = (self.attached.index(), self.attached.age_ns());
        assert_eq!(index.len(), age.len());
        for i in 0..streams {
            let mut used: Vec<i64> = index
                .iter()
                .skip(i)
                .step_by(streams)
                .copied()
                .filter(|&i| i >= 0)
                .collect();
            used.dedup();
            assert_eq!(used, (0..self.attached.members(i).len() as i64).collect::<Vec<_>>());
        }
        let rows = index.iter().zip(age).enumerate().map(|(at, (&index, &age))| {
            assert_eq!(index == -1, age == -1);
            // A message is never newer than its row.
            assert!(age >= -1);
            let members = self.attached.members(at % streams).copied();
            members
                .clone()
                .nth(usize::try_from(index).ok()?)
                .map(|number| (number, i128::from(age)))
        });
        rows.collect()
    }
}

/// Direct result of one event. The observations that the event makes due are compared separately.
#[derive(Debug, PartialEq)]
enum Outcome {
    Nothing,
    Pushed(Option<PushOutcome>),
    Requested(Result<u64, Refused>),
}

fn refused(refusal: &Refusal) -> Refused {
    match refusal {
        Refusal::TooMany => Refused::TooMany,
        Refusal::OutOfRange(_) => Refused::OutOfRange,
        Refusal::LongPast { .. } => Refused::LongPast,
        Refusal::FarAhead { .. } => Refused::FarAhead,
        Refusal::Jumped(_) => Refused::Jumped,
        Refusal::Closed => Refused::Closed,
    }
}

impl Oracle {
    fn apply(&mut self, event: &Event) -> Outcome {
        match *event {
            Event::Push(i, stamp, ref values) => return Outcome::Pushed(self.push(i, stamp, values)),
            Event::Ask(time) => return Outcome::Requested(self.ask(time)),
            Event::Tick => self.tick(),
            Event::Close(i) => self.close(i),
            Event::Open(i) => self.open(i),
            Event::Latency(i, ms) => self.set_latency_ms(i, ms),
            Event::MaxWait(ms) => self.set_max_wait_ms(ms),
        }
        Outcome::Nothing
    }

    /// True if an event is possible now: an open stream can send and close, a closed stream can open.
    fn takes(&self, event: &Event) -> bool {
        match *event {
            Event::Push(i, ..) | Event::Close(i) => self.is_open(i),
            Event::Open(i) => !self.is_open(i),
            Event::Latency(..) | Event::MaxWait(_) | Event::Ask(_) | Event::Tick => true,
        }
    }
}

/// First difference between the operation and the oracle: the index of the event after which it shows, and a description.
#[derive(Debug)]
struct Mismatch {
    event: usize,
    what: String,
}

/// Runs a scenario, and compares the operation's outputs with the oracle's after each event. If `lively`, also checks the
/// bounds of `Liveness`.
fn compare(scenario: &Scenario, lively: bool) -> Result<Vec<Observation>, Mismatch> {
    let mut oracle = Oracle::new(scenario);
    let mut subject = Subject::new(scenario).map_err(|what| Mismatch { event: 0, what })?;
    let mut liveness = Liveness::new(scenario);
    let mut asked = TriggerBound::new(scenario);
    let mut all = Vec::new();
    for (event_index, event) in scenario.events.iter().enumerate() {
        if !oracle.takes(event) {
            continue;
        }
        let mismatch = |what| Mismatch {
            event: event_index,
            what,
        };
        let before = oracle.clock();
        let expected = oracle.apply(event);
        let came = subject.apply(event).map_err(mismatch)?;
        if came != expected {
            return Err(mismatch(format!("the event: expected {expected:?}, came {came:?}")));
        }
        let clock = [before, oracle.clock()];
        let timeline = subject.aligner.timeline();
        for i in 0..scenario.modalities.len() {
            let (expected, came) = (oracle.aside(i), timeline.aside_ns(i).map(i128::from));
            if came != expected {
                return Err(mismatch(format!(
                    "stream {i} is aside: expected {expected:?}, came {came:?}"
                )));
            }
        }
        let before = all.len();
        loop {
            let (expected, mut came) = (oracle.due(), subject.due());
            if let (Some(came), Some(expected)) = (&mut came, &expected) {
                came.wait = came.wait.filter(|_| expected.wait.is_some());
            }
            if came != expected {
                return Err(mismatch(difference(scenario, expected.as_ref(), came.as_ref())));
            }
            let Some(observation) = came else { break };
            all.push(observation);
            if all.len() == MOST_TARGETS {
                return Ok(all);
            }
        }
        let came_refused: Vec<_> = std::iter::from_fn(|| subject.aligner.timeline_mut().take_refused()).collect();
        let came_refused: Vec<_> = came_refused
            .iter()
            .map(|(number, refusal)| (*number, refused(refusal)))
            .collect();
        let expected_refused = std::mem::take(&mut oracle.refused);
        if came_refused != expected_refused {
            return Err(mismatch(format!(
                "refused: expected {expected_refused:?}, came {came_refused:?}"
            )));
        }
        let notices: Vec<Notice> = subject.aligner.timeline_mut().take_notices().collect();
        let moved = notices.into_iter().any(|notice| matches!(notice, Notice::Moved { .. }));
        let (taken, number) = match &came {
            Outcome::Pushed(came) => (*came, None),
            Outcome::Requested(asked) => (None, asked.ok()),
            Outcome::Nothing => (None, None),
        };
        let numbers: Vec<u64> = came_refused.iter().map(|(number, _)| *number).collect();
        let is_lively = asked.event((event, taken, number), clock, moved, &all[before..], &numbers);
        is_lively.map_err(mismatch)?;
        if lively {
            let is_lively = liveness.event(event, taken, clock, oracle.horizon(), &all[before..], asked.is_asked());
            is_lively.map_err(mismatch)?;
        }
    }
    Ok(all)
}

fn difference(scenario: &Scenario, expected: Option<&Observation>, came: Option<&Observation>) -> String {
    let show = |o: Option<&Observation>| {
        o.map_or("no observation".into(), |o| {
            format!(
                "t = {} ns, epoch {}, late_samples {}, wait {:?}, request {:?}",
                o.time, o.epoch, o.late_samples, o.wait, o.request
            )
        })
    };
    let mut text = format!("expected {}\n     came {}", show(expected), show(came));
    if let (Some(a), Some(b)) = (expected, came) {
        let (m, d) = (scenario.fused().count(), scenario.dim());
        let n = scenario.modalities.len() - m;
        for row in 0..scenario.window {
            let masks = |o: &Observation| {
                let of_row = row * m..(row + 1) * m;
                let values: Vec<f32> = o.values[row * d..(row + 1) * d]
                    .iter()
                    .map(|&v| f32::from_bits(v))
                    .collect();
                let (valid, age) = (&o.valid[of_row.clone()], &o.age[of_row]);
                let attached = &o.attached[row * n..(row + 1) * n];
                let t = o.timestamps[row];
                format!("t {t} valid {valid:?} age {age:?} values {values:?} attached {attached:?}")
            };
            if masks(a) != masks(b) {
                let _ = write!(text, "\nrow {row}: expected {}\n           came {}", masks(a), masks(b));
            }
        }
    }
    text
}

/// Runs a check on a scenario. A panic of the operation is returned as a mismatch.
fn caught(scenario: &Scenario, check: Check) -> Result<(), Mismatch> {
    catch_unwind(AssertUnwindSafe(|| check(scenario))).unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<String>().cloned();
        let what = what.or(panic.downcast_ref::<&str>().map(|s| s.to_string()));
        Err(Mismatch {
            event: 0,
            what: format!("panic: {}", what.unwrap_or_default()),
        })
    })
}

type Check = fn(&Scenario) -> Result<(), Mismatch>;

/// Removes events and configuration from a scenario for as long as `check` still fails. Returns the small scenario
/// and its mismatch.
fn shrink(mut scenario: Scenario, check: Check) -> (Scenario, Mismatch) {
    let fails = |s: &Scenario| caught(s, check).err();
    let mut mismatch = fails(&scenario).expect("a scenario that differs");
    let left = Cell::new(4000);
    let take = |scenario: &mut Scenario, mismatch: &mut Mismatch, smaller: Scenario| {
        left.set(left.get() - 1);
        let found = if left.get() > 0 { fails(&smaller) } else { None };
        found.map(|m| (*scenario, *mismatch) = (smaller, m)).is_some()
    };
    let mut short = scenario.clone();
    short.events.truncate(mismatch.event + 1);
    take(&mut scenario, &mut mismatch, short);
    loop {
        let before = (scenario.events.len(), scenario.yaml());
        let mut part = scenario.events.len() / 2;
        while part > 0 {
            let mut at = 0;
            while at < scenario.events.len() {
                let mut smaller = scenario.clone();
                smaller.events.drain(at..(at + part).min(scenario.events.len()));
                if !take(&mut scenario, &mut mismatch, smaller) {
                    at += part;
                }
            }
            part /= 2;
        }
        for change in simplifications(&scenario) {
            let mut smaller = scenario.clone();
            change(&mut smaller);
            if smaller.yaml() != scenario.yaml() {
                take(&mut scenario, &mut mismatch, smaller);
            }
        }
        if before == (scenario.events.len(), scenario.yaml()) || left.get() <= 0 {
            return (scenario, mismatch);
        }
    }
}

type Change = Box<dyn Fn(&mut Scenario)>;

fn simplifications(scenario: &Scenario) -> Vec<Change> {
    let mut changes: Vec<Change> = vec![
        Box::new(|s| {
            s.window = 1;
            s.modalities.iter_mut().for_each(|m| m.rows = None);
        }),
        Box::new(|s| s.stride = 1),
        Box::new(|s| s.emit_every = 1),
        Box::new(|s| s.fill = 0.0),
        Box::new(|s| s.max_wait_ms = None),
    ];
    for i in (0..scenario.modalities.len()).rev() {
        changes.push(Box::new(move |s| {
            let others = s.modalities.iter().enumerate().filter(|&(j, _)| j != i);
            let one_waits = others.into_iter().any(|(_, m)| m.wait && !m.attached);
            let leads = matches!(s.trigger, Trigger::Stream { leader, .. } if leader == i);
            if s.modalities.len() > i && one_waits && !leads {
                if let Trigger::Stream { leader, .. } = &mut s.trigger
                    && *leader > i
                {
                    *leader -= 1;
                }
                s.modalities.remove(i);
                s.events.retain(|e| stream_of(e) != Some(i));
                s.events.iter_mut().for_each(|e| move_up(e, i));
            }
        }));
        let of = move |change: fn(&mut scenario::Modality)| -> Change {
            Box::new(move |s| {
                if let Some(m) = s.modalities.get_mut(i) {
                    change(m);
                }
            })
        };
        changes.extend([
            of(|m| m.latency_ms = 0.0),
            of(|m| m.reorder_ms = 0.0),
            of(|m| m.reset_ms = None),
            of(|m| m.jump_ms = None),
            of(|m| m.wait = true),
            of(|m| {
                m.groups
                    .iter_mut()
                    .for_each(|g| (g.max_age_ms, g.max_gap_ms, g.extrapolate_ms) = (None, None, None))
            }),
            of(|m| m.groups.iter_mut().for_each(|g| g.mode = scenario::Mode::Previous)),
        ]);
        changes.push(Box::new(move |s| {
            if s.modalities.get(i).is_some_and(|m| m.dim > 1) {
                let dim = s.modalities[i].dim;
                s.modalities[i].dim = 1;
                s.modalities[i].groups.truncate(1);
                s.modalities[i].groups[0].to = 1;
                s.events.iter_mut().for_each(|e| match e {
                    Event::Push(j, _, values) if *j == i && values.len() == dim => values.truncate(1),
                    _ => {}
                });
            }
        }));
    }
    changes
}

fn stream_of(event: &Event) -> Option<usize> {
    match *event {
        Event::Push(i, ..) | Event::Close(i) | Event::Open(i) | Event::Latency(i, _) => Some(i),
        Event::MaxWait(_) | Event::Ask(_) | Event::Tick => None,
    }
}

fn move_up(event: &mut Event, removed: usize) {
    match event {
        Event::Push(i, ..) | Event::Close(i) | Event::Open(i) | Event::Latency(i, _) if *i > removed => *i -= 1,
        _ => {}
    }
}

/// Runs a check on `cases` random scenarios. Panics with the simplest mismatch, if there is one.
fn on_random_rigs(salt: u64, cases: u64, make: fn(&mut Random) -> Scenario, check: Check) {
    let number = |name: &str| std::env::var(name).ok().map(|v| v.parse::<u64>().expect(name));
    let seeds = match number("ROBOCACHE_CONTRACT_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("ROBOCACHE_CONTRACT_CASES").unwrap_or(cases),
    };
    let rig = |seed: u64| make(&mut Random(salt.wrapping_add(seed.wrapping_mul(0x0123_4567_89ab_cdef))));
    let mut mismatches = Vec::new();
    let mut run = 0;
    for seed in seeds {
        let scenario = rig(seed);
        run += 1;
        if caught(&scenario, check).is_err() {
            mismatches.push(seed);
            if mismatches.len() == MOST_MISMATCHES {
                break;
            }
        }
    }
    let Some((seed, (scenario, mismatch))) = mismatches
        .iter()
        .map(|&seed| (seed, shrink(rig(seed), check)))
        .min_by_key(|(_, (scenario, _))| (scenario.events.len(), scenario.yaml().len()))
    else {
        return;
    };
    let Mismatch { event, what } = mismatch;
    panic!(
        "{} of {run} scenarios differ, seeds {mismatches:?}; seed {seed} in short:\n{scenario}\nat event {event}: {what}\n",
        mismatches.len()
    );
}

/// True if the order of arrival must not change the observations. It may change them if a stream is not waited for, or closes
/// while other streams still send. Design choice: it may also change them if a sample without `reorder_ms` comes twice, since a
/// target that the first of the two settled may be sent already.
fn order_is_free(scenario: &Scenario) -> bool {
    let pushes_first = scenario
        .events
        .iter()
        .rev()
        .skip_while(|e| matches!(e, Event::Close(_)));
    let mut seen = HashSet::new();
    scenario.modalities.iter().all(|m| m.wait)
        && pushes_first.clone().all(|e| match e {
            Event::Push(i, stamp, _) => scenario.modalities[*i].reorder_ms > 0.0 || seen.insert((*i, *stamp)),
            _ => false,
        })
}

/// Replays the scenario in two other orders of arrival, and checks that the observations are still `sent`. Does
/// nothing unless `order_is_free`.
fn any_order_gives(scenario: &Scenario, sent: &[Observation]) -> Result<(), Mismatch> {
    for seed in 0..if order_is_free(scenario) { 2 } else { 0 } {
        let again = compare(&scenario::shuffled(scenario, &mut Random(seed)), false)?;
        if again != sent {
            let first = sent.iter().zip(&again).find(|(a, b)| a != b);
            let (a, b) = first.map_or((None, None), |(a, b)| (Some(a), Some(b)));
            let what = format!(
                "another order of arrival (seed {seed}) gives {} observations for {}\n{}",
                again.len(),
                sent.len(),
                difference(scenario, a, b)
            );
            return Err(Mismatch {
                event: scenario.events.len(),
                what,
            });
        }
    }
    Ok(())
}

#[test]
fn offline_every_observation_is_the_naive_one_in_any_order_of_arrival() {
    on_random_rigs(1, 300, scenario::offline, in_any_order);
}

/// Covers attached messages, too: some streams of each scenario have messages in place of samples.
#[test]
fn offline_every_attached_message_is_the_naive_one_in_any_order_of_arrival() {
    on_random_rigs(4, 200, |r| scenario::attached(r, scenario::offline), in_any_order);
}

#[test]
fn online_every_attached_message_is_the_naive_one_and_nothing_silences_the_node() {
    let check: Check = |scenario| compare(scenario, true).map(drop);
    on_random_rigs(5, 200, |r| scenario::attached(r, scenario::online), check);
    on_random_rigs(6, 200, |r| scenario::attached(r, scenario::tuned), check);
}

/// Compares a scenario with the oracle, and also in other orders of arrival if these must not change it.
fn in_any_order(scenario: &Scenario) -> Result<(), Mismatch> {
    let sent = compare(scenario, false)?;
    any_order_gives(scenario, &sent)
}

#[test]
fn online_every_observation_is_the_naive_one_and_nothing_silences_the_node() {
    on_random_rigs(2, 300, scenario::online, |scenario| compare(scenario, true).map(drop));
}

/// The scenarios have absurd stamps, first samples far ahead, streams that die, close, open or are slow, and settings that
/// change at run time. Every trigger is used.
#[test]
fn with_hostile_clocks_every_observation_is_the_naive_one_and_nothing_silences_or_floods_the_node() {
    on_random_rigs(16, 600, scenario::hostile, |scenario| compare(scenario, true).map(drop));
}

/// One stream goes on throughout. The other streams stop, close, open, and their latencies change.
#[test]
fn while_a_stream_goes_on_nothing_that_others_do_silences_the_node() {
    on_random_rigs(17, 300, scenario::one_steady_stream, |scenario| {
        compare(scenario, true).map(drop)
    });
}

#[test]
fn a_latency_that_changes_moves_the_samples_held_and_is_no_jump() {
    on_random_rigs(3, 300, scenario::tuned, |scenario| compare(scenario, true).map(drop));
}

#[test]
fn the_samples_of_a_stream_are_targets_as_the_naive_ones_are() {
    on_random_rigs(9, 300, scenario::led, |scenario| compare(scenario, false).map(drop));
}

#[test]
fn targets_that_are_samples_do_not_depend_on_the_order_of_arrival() {
    on_random_rigs(10, 300, scenario::led_offline, in_any_order);
}

#[test]
fn requests_are_answered_and_refused_as_naively() {
    on_random_rigs(11, 300, scenario::asked, |scenario| compare(scenario, true).map(drop));
}

#[test]
fn ticks_give_what_they_naively_do() {
    on_random_rigs(12, 300, scenario::ticked, |scenario| compare(scenario, true).map(drop));
}

#[test]
fn with_a_trigger_every_attached_message_is_the_naive_one() {
    let check: Check = |scenario| compare(scenario, true).map(drop);
    on_random_rigs(13, 100, |r| scenario::attached(r, scenario::led), check);
    on_random_rigs(14, 100, |r| scenario::attached(r, scenario::asked), check);
    on_random_rigs(15, 100, |r| scenario::attached(r, scenario::ticked), check);
}

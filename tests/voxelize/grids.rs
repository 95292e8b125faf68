//! Grids of clouds from several inputs, compared with a naive implementation of the rules in docs/semantics.md.

use proptest::prelude::*;
use robocache::ops::voxelize::{Arrival, Collector, VoxelInput, VoxelizeConfig};

const MS: i64 = 1_000_000;

/// Default of `reset_ms`, ns.
const RESET: i64 = 1000 * MS;

fn config(inputs: usize, max_wait_ms: Option<f64>) -> VoxelizeConfig {
    let input = |i| VoxelInput {
        input: format!("lidar_{i}"),
        ..VoxelInput::default()
    };
    VoxelizeConfig {
        inputs: (0..inputs).map(input).collect(),
        max_wait_ms,
        ..VoxelizeConfig::default()
    }
}

/// Stamp of a grid, and the stamp of its cloud from each input, ns; `None` for an input without a cloud.
type Grid = (i64, Vec<Option<i64>>);

/// Naive collector of the clouds of each grid. It keeps every cloud since the last clock jump.
struct NaiveCollector {
    open: Vec<bool>,
    max_wait: Option<i64>,
    clouds: Vec<Cloud>,
    grids: Vec<Grid>,
    left_out: usize,
}

struct Cloud {
    input: usize,
    stamp: i64,
    waits: bool,
    /// True if the cloud has waited for a grid at any time since the last grid.
    waited: bool,
}

impl NaiveCollector {
    fn waiting(&self) -> impl Iterator<Item = &Cloud> {
        self.clouds.iter().filter(|cloud| cloud.waits)
    }

    fn cloud(&mut self, input: usize, stamp: i64) {
        let waiting = self
            .waiting()
            .filter(|cloud| cloud.input == input)
            .map(|cloud| cloud.stamp);
        let newest = waiting
            .chain(self.grids.iter().filter_map(|(_, clouds)| clouds[input]))
            .max();
        if newest.is_some_and(|newest| newest - stamp > RESET) {
            let before = self.waiting().count();
            self.clouds
                .retain(|cloud| cloud.waits && cloud.input != input && cloud.stamp - stamp <= RESET);
            self.left_out += before - self.clouds.len();
            self.grids.clear();
        }
        let in_grids = self.grids.iter().filter_map(|(_, clouds)| clouds[input]);
        let is_new = in_grids.max().is_none_or(|last| stamp > last);
        let waiting = self.clouds.iter_mut().find(|cloud| cloud.waits && cloud.input == input);
        self.left_out += usize::from(!is_new || waiting.is_some());
        let waits = is_new && waiting.as_ref().is_none_or(|waiting| stamp >= waiting.stamp);
        if let Some(waiting) = waiting.filter(|_| waits) {
            waiting.waits = false;
        }
        self.clouds.push(Cloud {
            input,
            stamp,
            waits,
            waited: waits,
        });
    }

    /// Makes the grid that is due now; `None` if no grid is due.
    fn grid(&mut self) -> Option<Grid> {
        let own = |input| {
            self.waiting()
                .find(|cloud| cloud.input == input)
                .map(|cloud| cloud.stamp)
        };
        let mut clouds: Vec<Option<i64>> = (0..self.open.len()).map(own).collect();
        let mut stamp = (*clouds.iter().max()?)?;
        let oldest = |input: Option<usize>| {
            let kept = self.clouds.iter().filter(|cloud| cloud.waited);
            let kept = kept.filter(|cloud| input.is_none_or(|input| cloud.input == input));
            kept.map(|cloud| cloud.stamp).min()
        };
        let is_over = self.max_wait.is_some_and(|wait| stamp - oldest(None).unwrap() >= wait);
        let is_complete = clouds
            .iter()
            .zip(&self.open)
            .all(|(cloud, open)| !open || cloud.is_some());
        match self.grids.last() {
            Some((last, _)) if stamp <= *last => {
                let is_before = |cloud: &Option<i64>| cloud.is_some_and(|stamp| stamp < last - RESET);
                let open = (0..clouds.len()).filter(|&input| self.open[input]);
                let open: Vec<Option<i64>> = open.map(|input| clouds[input]).collect();
                let are_before = if open.is_empty() {
                    is_before(&Some(stamp))
                } else {
                    open.iter().all(is_before)
                };
                let comes_on = |input: usize| {
                    let (newest, oldest) = (clouds[input].unwrap(), oldest(Some(input)).unwrap());
                    newest - oldest >= 10 * RESET
                };
                let goes_on = || (0..clouds.len()).any(|input| is_before(&clouds[input]) && comes_on(input));
                if !(are_before || is_over && goes_on()) {
                    return None;
                }
                let waiting = clouds.iter().flatten().count();
                clouds
                    .iter_mut()
                    .for_each(|cloud| *cloud = cloud.filter(|_| is_before(cloud)));
                self.left_out += waiting - clouds.iter().flatten().count();
                stamp = (*clouds.iter().max()?)?;
            }
            _ if is_complete || is_over => {}
            _ => return None,
        }
        for cloud in &mut self.clouds {
            (cloud.waits, cloud.waited) = (false, false);
        }
        self.grids.push((stamp, clouds));
        self.grids.last().cloned()
    }
}

#[derive(Clone, Debug)]
enum Event {
    Cloud(usize, i64),
    Close(usize),
    Open(usize),
}

fn event() -> impl Strategy<Value = Event> {
    // Mostly stamps that go on, near one another and often the same; now and then those of a clock that is set.
    let stamp = prop_oneof![8 => -40..40i64, 1 => -3000..3000i64, 1 => -40_000..40_000i64];
    prop_oneof![
        20 => (0..3usize, stamp).prop_map(|(input, ms)| Event::Cloud(input, ms)),
        1 => (0..3usize).prop_map(Event::Close),
        1 => (0..3usize).prop_map(Event::Open),
    ]
}

proptest! {
    #[test]
    fn grids_are_those_of_the_rules(
        inputs in 2..4usize,
        max_wait_ms in prop::option::of(prop::sample::select(vec![0.0, 15.0, 50.0])),
        events in prop::collection::vec(event(), 0..120),
    ) {
        let mut collector = Collector::new(&config(inputs, max_wait_ms));
        let mut naive = NaiveCollector {
            open: vec![true; inputs],
            max_wait: max_wait_ms.map(|ms| ms as i64 * MS),
            clouds: Vec::new(),
            grids: Vec::new(),
            left_out: 0,
        };
        let (mut came, mut taken, mut left_out) = (0, 0, 0);
        for (step, event) in events.into_iter().enumerate() {
            match event {
                Event::Cloud(input, ms) if input < inputs => {
                    let stamp = (5 * step as i64 + ms) * MS;
                    came += 1;
                    left_out += match collector.arrived(input, stamp) {
                        Arrival::Waits => 0,
                        Arrival::Replaces | Arrival::Superseded | Arrival::Late => 1,
                        Arrival::Jumped { dropped } => dropped,
                    };
                    naive.cloud(input, stamp);
                }
                Event::Close(input) if input < inputs => {
                    collector.closed(input);
                    naive.open[input] = false;
                }
                Event::Open(input) if input < inputs => {
                    collector.opened(input);
                    naive.open[input] = true;
                }
                _ => continue,
            }
            let due = collector.due().then(|| collector.take().unwrap());
            left_out += if due.is_some() { collector.left_out().len() } else { 0 };
            let of = |&age: &i64| (age >= 0).then(|| due.unwrap() - age);
            let grid = due.map(|stamp| (stamp, collector.inputs_age_ns().iter().map(of).collect()));
            prop_assert_eq!(&grid, &naive.grid());
            taken += grid.map_or(0, |(_, clouds): Grid| clouds.iter().flatten().count());
            // Each cloud is in one grid, waits, or was left out once.
            let waiting = (0..inputs).filter(|&input| collector.waits(input)).count();
            prop_assert_eq!((left_out, waiting), (naive.left_out, naive.waiting().count()));
            prop_assert_eq!(came, taken + left_out + waiting);
        }
    }

    /// No cloud is lost if the clouds of the inputs arrive in turn, whatever clouds wait before, and whichever input's
    /// stamps are later.
    #[test]
    fn inputs_whose_clouds_come_in_turns_lose_none(
        before in prop::collection::vec((0..2usize, 0..30i64), 0..20),
        offset_ms in -99..100i64,
        jitter in prop::collection::vec(-20..20i64, 60),
        max_wait_ms in prop::option::of(Just(150.0)),
    ) {
        let mut collector = Collector::new(&config(2, max_wait_ms));
        for (input, at) in before {
            collector.arrived(input, 20 * at * MS);
            if collector.due() {
                collector.take();
            }
        }
        let mut lost = Vec::new();
        for (i, jitter) in jitter.into_iter().enumerate() {
            let (input, turn) = (i % 2, i as i64 / 2);
            let stamp = (1000 + 100 * turn + jitter + offset_ms * input as i64) * MS;
            if collector.arrived(input, stamp) != Arrival::Waits {
                lost.push(i);
            }
            if collector.due() {
                collector.take();
            }
        }
        // Only a cloud that waited when the turns began is superseded.
        prop_assert!(lost.iter().all(|&i| i < 2) && lost.len() <= 1, "{:?}", lost);
    }
}

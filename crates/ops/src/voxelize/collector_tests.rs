//! Tests of the collector: when a grid is due, which clouds are in it, and what a clock jump drops. Stamps are in ms.

use super::Arrival::{Jumped, Late, Replaces, Superseded, Waits};
use super::*;
use crate::voxelize::VoxelInput;

const MS: i64 = 1_000_000;
const A: usize = 0;
const B: usize = 1;

fn collector(inputs: usize, max_wait_ms: Option<f64>) -> Collector {
    let input = |i| VoxelInput {
        input: format!("lidar_{i}"),
        ..VoxelInput::default()
    };
    Collector::new(&VoxelizeConfig {
        inputs: (0..inputs).map(input).collect(),
        max_wait_ms,
        ..VoxelizeConfig::default()
    })
}

impl Collector {
    fn cloud(&mut self, input: usize, ms: i64) -> Arrival {
        self.arrived(input, ms * MS)
    }

    /// Takes the grid that is due, and returns its stamp and the ages of its clouds, ms; `None` if no grid is due.
    fn grid(&mut self) -> Option<(i64, Vec<i64>)> {
        if !self.due() {
            return None;
        }
        let stamp = self.take().unwrap() / MS;
        for (valid, age) in self.valid.iter().zip(&self.ages) {
            assert_eq!(*valid, i64::from(*age >= 0));
        }
        let ms = |&age: &i64| if age < 0 { -1 } else { age / MS };
        Some((stamp, self.ages.iter().map(ms).collect()))
    }
}

#[test]
fn one_input_makes_a_grid_of_every_cloud_whatever_its_stamp() {
    let mut c = collector(1, None);
    for stamp in [100, 200, 200, 150, -5000, i64::MIN / MS] {
        assert_eq!(c.cloud(A, stamp), Waits);
        assert!(c.due());
        assert_eq!(c.take(), Some(stamp * MS));
        assert_eq!(c.inputs_valid(), [1]);
        assert_eq!(c.inputs_age_ns(), [0]);
        assert!(!c.due());
    }
    assert_eq!(c.take(), None);
}

#[test]
fn a_cloud_that_was_refused_is_not_in_the_grid() {
    let mut c = collector(3, None);
    c.cloud(A, 100);
    c.cloud(B, 97);
    c.cloud(2, 90);
    assert_eq!(c.take(), Some(100 * MS));
    assert_eq!(c.refuse(B), 100 * MS);
    assert_eq!(
        (c.inputs_valid(), c.inputs_age_ns()),
        (&[1, 0, 1][..], &[0, -1, 10 * MS][..])
    );
    // The newest cloud is refused, too: the grid has the stamp of its only cloud, and newer clouds are not late.
    assert_eq!(c.refuse(A), 90 * MS);
    assert_eq!(
        (c.inputs_valid(), c.inputs_age_ns()),
        (&[0, 0, 1][..], &[-1, -1, 0][..])
    );
    assert_eq!(c.cloud(B, 95), Waits);
    // No grid is before the last one, whatever is refused.
    assert_eq!((c.cloud(A, 120), c.cloud(2, 110)), (Waits, Waits));
    assert_eq!(c.take(), Some(120 * MS));
    assert_eq!((c.cloud(A, 130), c.cloud(B, 115)), (Waits, Waits));
    assert_eq!(c.take(), Some(130 * MS));
    assert_eq!(c.refuse(A), 130 * MS);
    assert_eq!(c.inputs_age_ns(), [-1, 15 * MS, -1]);
}

#[test]
fn two_inputs_wait_for_each_other() {
    let mut c = collector(2, None);
    assert_eq!(c.cloud(A, 100), Waits);
    assert_eq!(c.grid(), None);
    assert_eq!(c.cloud(B, 97), Waits);
    assert_eq!(c.grid(), Some((100, vec![0, 3])));
    assert_eq!(c.grid(), None);
    assert_eq!(c.cloud(B, 197), Waits);
    assert_eq!(c.cloud(A, 200), Waits);
    assert_eq!(c.grid(), Some((200, vec![0, 3])));
}

#[test]
fn the_newest_cloud_of_an_input_is_the_one_that_counts() {
    let mut c = collector(2, None);
    assert_eq!(c.cloud(A, 100), Waits);
    assert_eq!(c.cloud(A, 200), Replaces);
    assert_eq!(c.cloud(A, 150), Superseded);
    assert_eq!(c.cloud(A, 200), Replaces);
    assert_eq!(c.cloud(B, 190), Waits);
    assert_eq!(c.grid(), Some((200, vec![0, 10])));
}

#[test]
fn a_cloud_is_new_against_its_own_input_and_the_time_of_grids_grows() {
    let mut c = collector(2, Some(0.0));
    c.cloud(A, 100);
    assert_eq!(c.grid(), Some((100, vec![0, -1])));
    assert_eq!(c.cloud(B, 90), Waits);
    assert!(c.waits(B));
    assert_eq!(c.grid(), None, "a grid at 90 would go back in time");
    assert_eq!(c.cloud(B, 100), Replaces);
    assert_eq!(c.grid(), None);
    assert_eq!(c.cloud(B, 101), Replaces);
    assert_eq!(c.grid(), Some((101, vec![-1, 0])));
    assert_eq!(c.cloud(B, 101), Late);
    assert_eq!(c.cloud(B, 95), Late);
    assert!(!c.waits(B));
    assert_eq!(c.cloud(A, 101), Waits);
    assert_eq!(c.grid(), None);
    assert_eq!(c.cloud(B, 102), Waits);
    assert_eq!(c.grid(), Some((102, vec![1, 0])));
}

/// Delays the first clouds of the second of two lidars, whose stamps are 5 ms older than those of the first.
#[test]
fn an_input_that_is_a_few_ms_behind_loses_nothing_after_it_was_held_up() {
    let mut c = collector(2, Some(150.0));
    let mut grids = Vec::new();
    for (input, stamp) in [(A, 0), (A, 100), (A, 200), (B, 195)] {
        c.cloud(input, stamp);
        grids.extend(c.grid());
    }
    assert_eq!(grids, [(200, vec![0, -1])]);
    // Now the clouds come in turns, and each is in a grid.
    for t in (300..1000).step_by(100) {
        assert_eq!(c.cloud(A, t), Waits);
        grids.extend(c.grid());
        assert_eq!(c.cloud(B, t - 5), Waits);
        grids.extend(c.grid());
    }
    let late: Vec<_> = (300..1000).step_by(100).map(|t| (t, vec![0, 105])).collect();
    assert_eq!(grids[1..], late);
}

#[test]
fn a_silent_input_is_waited_for_no_longer_than_max_wait() {
    let mut c = collector(2, Some(150.0));
    let mut grids = Vec::new();
    for t in (0..=600).step_by(100) {
        c.cloud(A, t);
        grids.extend(c.grid().map(|grid| grid.0));
    }
    // The wait from 0 ms ends at 200 ms, the wait from 300 ms at 500 ms. A superseded cloud doesn't restart it.
    assert_eq!(grids, [200, 500]);
    assert_eq!(c.cloud(B, 550), Waits);
    assert_eq!(c.grid(), Some((600, vec![0, 50])));
}

#[test]
fn without_max_wait_a_silent_input_is_waited_for_until_it_closes() {
    let mut c = collector(2, None);
    for t in 0..100 {
        c.cloud(A, t * 100);
        assert!(!c.due());
    }
    c.closed(B);
    assert_eq!(c.grid(), Some((9900, vec![0, -1])));
    c.cloud(A, 10_000);
    assert_eq!(c.grid(), Some((10_000, vec![0, -1])));
    c.opened(B);
    c.cloud(A, 10_100);
    assert!(!c.due());
    c.cloud(B, 10_050);
    assert_eq!(c.grid(), Some((10_100, vec![0, 50])));
}

#[test]
fn what_waits_when_all_inputs_are_closed_is_the_last_grid() {
    let mut c = collector(3, None);
    c.cloud(A, 100);
    c.cloud(B, 110);
    c.closed(A);
    c.closed(B);
    assert!(!c.due());
    c.closed(2);
    assert_eq!(c.grid(), Some((110, vec![10, 0, -1])));
    assert_eq!(c.grid(), None);
}

#[test]
fn a_rig_whose_clock_is_set_back_goes_on_after_one_jump() {
    let mut c = collector(2, None);
    c.cloud(A, 10_000);
    c.cloud(B, 10_010);
    assert!(c.grid().is_some());
    c.cloud(B, 10_110);
    assert_eq!(c.cloud(A, 0), Jumped { dropped: 1 });
    assert!(!c.due(), "the cloud of before the jump is not mixed with this one");
    assert_eq!(c.cloud(B, 10), Waits);
    assert_eq!(c.grid(), Some((10, vec![10, 0])));
    assert_eq!(c.cloud(A, 100), Waits);
    assert_eq!(c.cloud(B, 110), Waits);
    assert_eq!(c.grid(), Some((110, vec![10, 0])));
}

#[test]
fn a_step_back_within_reset_ms_is_late_and_one_past_it_is_a_jump() {
    let mut c = collector(2, None);
    c.cloud(A, 5000);
    c.cloud(B, 5000);
    assert!(c.grid().is_some());
    assert_eq!(c.cloud(A, 4000), Late);
    assert_eq!(c.cloud(A, 3999), Jumped { dropped: 0 });
    // A waiting cloud of the input counts as well: B steps back from 2500 ms. The cloud of A is within the limit.
    let mut c = collector(2, None);
    c.cloud(A, 1000);
    c.cloud(B, 2500);
    assert_eq!(c.cloud(B, 1499), Jumped { dropped: 1 });
    assert_eq!(c.grid(), Some((1499, vec![499, 0])));
}

/// Sends the first clouds of an input long after the clouds of the other input: that is not a clock jump.
#[test]
fn an_input_that_is_held_up_for_long_is_no_clock_jump() {
    let mut c = collector(2, Some(150.0));
    let mut last = None;
    for t in 0..20 {
        c.cloud(A, t * 100);
        last = c.grid().map(|grid| grid.0).or(last);
    }
    assert_eq!(last, Some(1700));
    for t in 0..20 {
        let arrival = c.cloud(B, t * 100 + 5);
        assert!(matches!(arrival, Waits | Replaces), "{t}: {arrival:?}");
        if let Some((stamp, _)) = c.grid() {
            assert!(Some(stamp) > last, "{stamp} after {last:?}");
            last = Some(stamp);
        }
    }
    assert_eq!(last, Some(1905));
}

#[test]
fn an_input_from_far_ahead_never_stalls_the_others() {
    let mut c = collector(2, Some(50.0));
    let mut grids = 0;
    c.cloud(B, 1_000_000);
    for t in 0..20 {
        c.cloud(A, t * 100);
        grids += usize::from(c.grid().is_some());
        c.cloud(B, 1_000_000 + t * 100);
        grids += usize::from(c.grid().is_some());
    }
    assert!(grids >= 20, "{grids} grids of 40 clouds");
    // B dies, and A goes on alone.
    let mut alone = Vec::new();
    for t in 20..200 {
        assert!(matches!(c.cloud(A, t * 100), Waits | Replaces));
        alone.extend(c.grid().map(|grid| (grid.0, c.back_ns())));
    }
    assert_eq!(alone[0], (12_000, Some((1_001_900 - 12_000) * MS)));
    assert!(
        alone.len() >= 39 && alone[1..].iter().all(|(_, back)| back.is_none()),
        "{alone:?}"
    );
    assert_eq!(c.arrived(A, i64::MAX), Replaces);
    assert_eq!(c.arrived(A, i64::MIN), Jumped { dropped: 1 });
}

/// Checks that an offset between the clocks of two inputs is not mistaken for an advance of one input's stamps by
/// ten times `reset_ms`.
#[test]
fn clocks_that_are_apart_are_not_clouds_that_come_on() {
    let mut c = collector(3, Some(50.0));
    c.cloud(2, 1_000_000);
    c.cloud(2, 1_000_050);
    assert!(c.grid().is_some());
    c.cloud(A, 0);
    c.cloud(B, 12_000);
    assert!(!c.due(), "A and B are 12 s apart, and neither has come on");
    for t in 1..100 {
        c.cloud(A, t * 100);
        c.cloud(B, 12_000 + t * 100);
        assert!(!c.due(), "{t}");
    }
    c.cloud(B, 22_000);
    assert_eq!(c.grid(), Some((22_000, vec![12_100, 0, -1])));
}

/// Lets two lidars die, the second just after it sent a cloud. A third lidar, whose clock is an hour behind, must
/// still make grids.
#[test]
fn a_cloud_that_a_dead_input_left_silences_no_other() {
    for (max_wait_ms, closes) in [(Some(50.0), false), (Some(50.0), true), (None, true)] {
        let mut c = collector(3, max_wait_ms);
        c.cloud(A, 3_600_000);
        c.cloud(B, 3_599_950);
        c.cloud(2, 0);
        assert!(c.grid().is_some());
        assert_eq!(c.cloud(B, 3_599_990), Waits);
        if closes {
            c.closed(A);
            c.closed(B);
        }
        let mut grids = Vec::new();
        for t in 1..200 {
            c.cloud(2, t * 100);
            grids.extend(c.grid().map(|(stamp, ages)| (stamp, ages, c.left_out().to_vec())));
        }
        let first = if closes { 100 } else { 10_100 };
        assert_eq!(grids[0], (first, vec![-1, -1, 0], vec![B]), "{max_wait_ms:?}");
        assert!(grids.len() >= 49, "{} grids", grids.len());
        assert!(grids[1..].iter().all(|(.., left_out)| left_out.is_empty()));
    }
}

//! Time: int64 nanoseconds, the grid of target times, and the value of a sensor stream at a target. Times are floats only for
//! display, and in the weights of an interpolation.

#![warn(unreachable_pub)]

pub mod blend;
mod channels;
mod curve;
mod mode;
mod pick;
mod rotation;

pub use mode::{Interpolation, Limits, QuaternionOrder, Rule};
pub use pick::{Pick, pick};

/// Converts milliseconds to nanoseconds, rounded to the nearest; half a nanosecond rounds away from zero.
pub fn ms_to_ns(ms: f64) -> i64 {
    (ms * 1e6).round() as i64
}

/// Converts nanoseconds to milliseconds, for display: the nearest number, so that 200,000 ns are 0.2 and not 0.19999999999999998.
pub fn ns_to_ms(ns: i64) -> f64 {
    ns as f64 / 1e6
}

/// Converts nanoseconds to seconds, for display.
pub fn ns_to_s(ns: i64) -> f64 {
    ns as f64 / 1e9
}

/// True if a stamp is within +-2^61 ns. Other stamps are refused, so that differences of stamps can't overflow.
pub fn is_stamp_in_range(stamp_ns: i64) -> bool {
    const GREATEST: i64 = 1 << 61;
    (-GREATEST..=GREATEST).contains(&stamp_ns)
}

/// Returns the unit that a stamp seems to be in, such as `seconds`; `None` if the unit is ns or unclear. Read in the returned unit,
/// the stamp is within a day of its arrival, and over ten times nearer to the arrival than read in ns.
pub fn unit_of_stamp(stamp_ns: i64, arrival_ns: i64) -> Option<&'static str> {
    const DAY_NS: u64 = 86_400_000_000_000;
    const UNITS: [(i64, &str); 3] = [
        (1_000, "microseconds"),
        (1_000_000, "milliseconds"),
        (1_000_000_000, "seconds"),
    ];
    let apart = |unit_ns: i64| stamp_ns.saturating_mul(unit_ns).abs_diff(arrival_ns);
    let (apart_ns, unit) = UNITS
        .into_iter()
        .map(|(unit_ns, unit)| (apart(unit_ns), unit))
        .min_by_key(|(apart_ns, _)| *apart_ns)?;
    (stamp_ns > 0 && apart_ns < DAY_NS && apart_ns < apart(1) / 10).then_some(unit)
}

/// Returns the unit of stamps, such as `milliseconds`, if they increase by 1 in about `ns_per_step` nanoseconds (to within a
/// factor of 3). `None` if only ns fit.
pub fn unit_of_pace(ns_per_step: f64) -> Option<&'static str> {
    let units = [(1e3, "microseconds"), (1e6, "milliseconds"), (1e9, "seconds")];
    let is_near = |&(ns, _): &(f64, &str)| (0.3..3.0).contains(&(ns_per_step / ns));
    units.into_iter().find(is_near).map(|(_, unit)| unit)
}

/// The grid of target times: whole multiples of a period, in ns of capture time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeGrid {
    period: i64,
}

impl TimeGrid {
    /// The grid with a period of `round(1e9 / rate_hz)` ns; `None` unless `rate_hz` is in 1e-6..=1e9.
    pub fn from_rate(rate_hz: f64) -> Option<Self> {
        (1e-6..=1e9).contains(&rate_hz).then(|| Self {
            period: (1e9 / rate_hz).round() as i64,
        })
    }

    /// The distance between targets, ns.
    pub fn period(self) -> i64 {
        self.period
    }

    /// The index of the first target at or after `time`, ns.
    pub fn index_at_or_after(self, time: i64) -> i64 {
        let below = time.div_euclid(self.period);
        below + i64::from(time.rem_euclid(self.period) != 0)
    }

    /// The index of the last target at or before `time`, ns.
    pub fn index_at_or_before(self, time: i64) -> i64 {
        time.div_euclid(self.period)
    }

    /// The time of target `index`, ns.
    pub fn time(self, index: i64) -> i64 {
        index.saturating_mul(self.period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_whole_multiples_of_the_period() {
        let grid = TimeGrid::from_rate(50.0).unwrap();
        assert_eq!(grid.period(), 20_000_000);
        assert_eq!(grid.index_at_or_after(0), 0);
        assert_eq!(grid.index_at_or_after(1), 1);
        assert_eq!(grid.index_at_or_after(20_000_000), 1);
        assert_eq!(grid.index_at_or_after(-1), 0);
        assert_eq!(grid.index_at_or_before(39_999_999), 1);
        assert_eq!(grid.index_at_or_before(40_000_000), 2);
        assert_eq!(grid.index_at_or_before(-1), -1);
        assert_eq!(grid.index_at_or_after(-20_000_001), -1);
        assert_eq!(grid.time(-2), -40_000_000);
        assert_eq!(TimeGrid::from_rate(30.0).unwrap().period(), 33_333_333);
        assert!(TimeGrid::from_rate(0.0).is_none());
        assert!(TimeGrid::from_rate(f64::NAN).is_none());
        assert!(TimeGrid::from_rate(2e9).is_none());
    }
}

//! Stamps of messages that other software wrote. A number becomes a stamp only if its unit is known: the user gives it, or the
//! time of publication implies it. A guess and a doubt become lines for the user.

use arrow_array::{Array, StructArray};
use arrow_schema::{DataType, Fields};
use robocache_stream::{Path, TimeUnit, integer, key, ns_of, number};

/// Paths of fields that may hold a message's stamp, in the order in which they are looked for.
const PATHS: [&str; 6] = [
    "header.stamp",
    "header.timestamp",
    "timestamp",
    key::timestamp_ns,
    "stamp",
    "time",
];
/// Names of the two fields of a stamp: its seconds, and the nanoseconds to add.
const PARTS: [[&str; 2]; 4] = [
    ["sec", "nanosec"],
    ["sec", "nsec"],
    ["secs", "nsecs"],
    ["seconds", "nanos"],
];
const SECOND: i128 = 1_000_000_000;
/// Time of publication, ns, up to which a stamp of 0 in the first message counts as a time, as of a clock that starts at 0.
/// Otherwise 0 means that there is no stamp.
const BEGIN_NS: u64 = 1_000_000_000;
/// Shortest time between the first and the last publication, ns, for which the rates of stamps and publications are compared.
const PACE_NS: i64 = 100_000_000;
/// Factor by which stamps must advance faster or slower than the times of publication for their unit to be doubted.
const PACE: u64 = 100;
/// Coarsest spacing of float32 values, ns, at which a float32 still counts as a stamp.
const STEP_NS: f64 = 1e6;
/// Distance of a stamp from its publication, ns, above which other units are compared. The unit is doubted if the stamp is ten
/// times nearer in another one.
const FAR_NS: u64 = 10_000_000_000;
const DAY_NS: u64 = 86_400_000_000_000;

/// True if a field of this name may be a stamp, or the seconds or nanoseconds of a stamp.
pub(super) fn is_part(name: &str) -> bool {
    let is_last = |path: &str| path.rsplit('.').next() == Some(name);
    PATHS.into_iter().any(is_last) || PARTS.as_flattened().contains(&name)
}

/// Reader of the stamps in a topic's messages: their field, their form, and their unit if it is known.
pub(super) struct Stamp {
    path: Path,
    form: Form,
    /// True if the user or a configuration gave the unit; false if the unit was guessed.
    is_unit_given: bool,
    /// True if a configuration names the field of the stamp. A message in which this field is not a time is then an error.
    is_configured: bool,
    /// Reason why the field is not used as the stamp, or why the given unit may be wrong; `None` if there is no doubt.
    doubt: Option<String>,
    /// True after the first message was read, with or without a stamp.
    has_begun: bool,
    /// Stamp and time of publication, ns, of the first and of the last message with a stamp; `None` before the first.
    span: Option<[[i64; 2]; 2]>,
}

enum Form {
    /// Paths of two fields: seconds, and nanoseconds.
    Parts([Path; 2]),
    /// A number whose unit will be guessed from the first message with a stamp.
    Number,
    Units(TimeUnit),
}

impl Stamp {
    fn new(path: Path, form: Form) -> Self {
        Self {
            path,
            form,
            is_unit_given: false,
            is_configured: false,
            doubt: None,
            has_begun: false,
            span: None,
        }
    }

    pub(super) fn of(fields: &Fields) -> Option<Self> {
        PATHS.into_iter().find_map(|path| {
            let (path, field) = Path::find(path, fields).ok()?;
            let DataType::Struct(within) = field.data_type() else {
                let is_number = field.data_type().is_numeric();
                return is_number.then_some(Self::new(path, Form::Number));
            };
            let part = |name: &str| {
                let (step, field) = within.find(name)?;
                field.data_type().is_numeric().then(|| path.child(step, name))
            };
            let parts = PARTS
                .into_iter()
                .find_map(|[sec, nanosec]| Some([part(sec)?, part(nanosec)?]))?;
            let form = Form::Parts(parts);
            Some(Self::new(path, form))
        })
    }

    /// Makes the reader for a configuration that names the field and the unit of the stamp; `None` if the field is not
    /// a number.
    pub(super) fn configured(path: &str, fields: &Fields, unit: TimeUnit) -> Option<Self> {
        let (path, field) = Path::find(path, fields).ok()?;
        let is_number = field.data_type().is_numeric();
        let stamp = is_number.then(|| Self::new(path, Form::Number).in_unit(Some(unit)))?;
        Some(Self {
            is_configured: true,
            ..stamp
        })
    }

    /// Sets the unit of a stamp that is a number. If `unit` is `None`, the unit is guessed later.
    pub(super) fn in_unit(mut self, unit: Option<TimeUnit>) -> Self {
        if let (Form::Number, Some(unit)) = (&self.form, unit) {
            (self.form, self.is_unit_given) = (Form::Units(unit), true);
        }
        self
    }

    /// True if `path` is a struct that holds only the stamp's seconds and nanoseconds.
    pub(super) fn is_at(&self, path: &str) -> bool {
        matches!(self.form, Form::Parts(_)) && self.path.text() == path
    }

    /// Returns a line for the user about a stamp that is a number: the guessed unit, or a doubt. Returns `None` if there is
    /// nothing to report.
    pub(super) fn guess(&self) -> Option<String> {
        match &self.form {
            Form::Parts(_) => None,
            Form::Number => self.doubt.clone(),
            Form::Units(unit) if self.is_unit_given => self.doubt.clone().or_else(|| self.pace(*unit)),
            Form::Units(unit) => {
                let (path, name) = (self.path.text(), unit.name());
                let why = "in which it is next to the time of its publication";
                let pace = self.pace(*unit).map_or_else(String::new, |pace| format!("; {pace}"));
                Some(format!("`{path}` is the stamp, in {name}, {why}{pace}"))
            }
        }
    }

    /// Returns a line for the user if stamps advance 100 times faster or slower than the times of publication; `None` if not.
    fn pace(&self, unit: TimeUnit) -> Option<String> {
        let [[first, first_published], [last, last_published]] = self.span?;
        let (by_ns, published_by_ns) = (last.abs_diff(first), last_published.saturating_sub(first_published));
        let other = published_by_ns as u64;
        let is_odd = by_ns / PACE > other || other / PACE > by_ns;
        (published_by_ns > PACE_NS && by_ns > 0 && is_odd).then(|| {
            let (path, unit) = (self.path.text(), unit.name());
            format!(
                "`{path}` may be in another unit: in {unit} it advances by {by_ns} ns while the time of publication does by \
                 {published_by_ns} ns"
            )
        })
    }

    /// Reads the stamp of a message, ns. Returns `None` if the message has no stamp, the stamp is 0, or its unit is not known.
    /// If no unit is given, it is the unit in which the first stamp is nearest to the time of its publication.
    ///
    /// # Errors
    /// If the nanoseconds are a second or more, or a number is in another unit than the numbers before. If a configuration
    /// names the stamp, and its value is not a time.
    pub(super) fn read(&mut self, payload: &StructArray, published_ns: i64) -> Result<Option<i64>, String> {
        let read = self.find(payload, published_ns);
        self.has_begun = true;
        if let Ok(Some(ns)) = read {
            let last = [ns, published_ns];
            self.span = Some([self.span.map_or(last, |[first, _]| first), last]);
        }
        read
    }

    fn find(&mut self, payload: &StructArray, published_ns: i64) -> Result<Option<i64>, String> {
        let whole = |path: &Path| {
            let array = path.follow(payload).ok()?;
            integer(&**array, 0).or_else(|| {
                let float = number(&**array, 0);
                (float.fract() == 0.0).then_some(float as i128)
            })
        };
        let units = |unit: TimeUnit| {
            let (array, unit_ns) = (self.path.follow(payload).ok()?, unit.ns());
            match integer(&**array, 0) {
                Some(whole) => i64::try_from(whole.checked_mul(unit_ns.into())?).ok(),
                None => ns_of(number(&**array, 0), unit_ns),
            }
        };
        // The reason why a float32 is too coarse for the time in a unit.
        let coarse = |unit: TimeUnit| {
            let array = self.path.follow(payload).ok()?;
            let is_float32 = *array.data_type() == DataType::Float32;
            let step_ns = is_float32.then(|| unit.step_of_float32_ns(number(&**array, 0) as f32))?;
            (step_ns > STEP_NS).then(|| format!("float32, whose steps are {} ms there", step_ns / 1e6))
        };
        // 0 stands for no stamp, except at the start of a clock.
        let begins = !self.has_begun && published_ns.unsigned_abs() < BEGIN_NS;
        let is_time = |&ns: &i64| ns != 0 || begins;
        match self.form {
            Form::Parts([ref sec, ref nanosec]) => {
                let (Some(whole_sec), Some(rest)) = (whole(sec), whole(nanosec)) else {
                    return Ok(None);
                };
                if !(0..SECOND).contains(&rest) {
                    return Err(format!("`{}` is {rest} (allowed: 0 to 999999999)", nanosec.text()));
                }
                let ns = whole_sec.checked_mul(SECOND).and_then(|ns| ns.checked_add(rest));
                Ok(ns.and_then(|ns| i64::try_from(ns).ok()).filter(is_time))
            }
            Form::Units(unit) => {
                let (ns, times) = (units(unit), TimeUnit::ALL.map(|unit| (units(unit), unit)));
                if self.is_configured && ns.is_none() {
                    let (path, unit) = (self.path.text(), unit.name());
                    return Err(format!(
                        "`{path}` is not a time in {unit} (allowed: about 292 years around 1970)"
                    ));
                }
                if let Some(why) = coarse(unit).filter(|_| self.is_unit_given) {
                    self.doubt
                        .get_or_insert_with(|| format!("`{}` is {why}", self.path.text()));
                }
                let apart_ns = |ns: i64| ns.abs_diff(published_ns);
                let own_ns = ns.map_or(u64::MAX, apart_ns);
                let is_other = |(ns, other): &(i64, TimeUnit)| *other != unit && apart_ns(*ns) < own_ns / 10;
                let other = match own_ns > FAR_NS {
                    true => nearest(times, published_ns).ok().flatten().filter(is_other),
                    false => None,
                };
                let Some((_, other)) = other else {
                    return Ok(ns.filter(is_time));
                };
                let (path, unit, other) = (self.path.text(), unit.name(), other.name());
                if self.is_unit_given {
                    let line = || {
                        format!("`{path}` is next to the time of its publication in {other}, but is taken in {unit}")
                    };
                    self.doubt.get_or_insert_with(line);
                    return Ok(ns.filter(is_time));
                }
                Err(format!(
                    "`{path}` is in {other}, in which it is next to the time of its publication (allowed: {unit}, as those before it)"
                ))
            }
            Form::Number => {
                let times = TimeUnit::ALL.map(|unit| (units(unit), unit));
                let found = nearest(times, published_ns).and_then(|found| {
                    let coarse = found.and_then(|(_, unit)| coarse(unit));
                    coarse.map_or(Ok(found), |why| Err(format!("it is {why}")))
                });
                match found {
                    Ok(None) => Ok(Some(0).filter(is_time)),
                    Ok(Some((ns, unit))) => {
                        self.form = Form::Units(unit);
                        Ok(Some(ns))
                    }
                    Err(why) => {
                        let path = self.path.text();
                        self.doubt
                            .get_or_insert_with(|| format!("`{path}` is not taken as the stamp: {why}"));
                        Ok(None)
                    }
                }
            }
        }
    }
}

/// Chooses the unit in which a number is nearest to the time of its publication. Returns the time, ns, and the unit; `None` for
/// 0, which has no unit. `times` has the number converted from each unit to ns.
///
/// # Errors
/// If no time is within a day of the publication, the second nearest is not much further away, or the time of publication is 0.
fn nearest(times: [(Option<i64>, TimeUnit); 4], published_ns: i64) -> Result<Option<(i64, TimeUnit)>, String> {
    let times = times.into_iter().filter_map(|(ns, unit)| Some((ns?, unit)));
    let mut times: Vec<_> = times.map(|(ns, unit)| (ns.abs_diff(published_ns), ns, unit)).collect();
    times.sort_by_key(|&(distance, ns, unit)| (distance, ns, unit.ns()));
    match times[..] {
        [] => Err("it is beyond int64 nanoseconds in every unit".to_owned()),
        [(_, 0, _), ..] => Ok(None),
        _ if published_ns == 0 => {
            Err("it was published at 0 ns, which tells no unit (needed: the unit, as by `--unit us`)".to_owned())
        }
        [(distance, ns, unit), ..] if distance >= DAY_NS => Err(format!(
            "in {} its first is {ns} ns, in other units it is still further from its publication at {published_ns} ns \
             (allowed: less than a day)",
            unit.name()
        )),
        [(distance, first, unit), (next, second, other), ..] if next / 2 < distance => Err(format!(
            "its first is {first} ns in {} and {second} ns in {}, and both are as far from its publication at {published_ns} ns",
            unit.name(),
            other.name()
        )),
        [(_, ns, unit), ..] => Ok(Some((ns, unit))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Float32Array, Float64Array};
    use std::sync::Arc;

    const S: i64 = 1_000_000_000;

    fn payload(time: f64) -> StructArray {
        let array: ArrayRef = Arc::new(Float64Array::from(vec![time]));
        StructArray::try_from(vec![("time", array)]).unwrap()
    }

    fn read(stamp: &mut Stamp, time: f64, published_ns: i64) -> Option<i64> {
        stamp.read(&payload(time), published_ns).unwrap()
    }

    #[test]
    fn the_first_message_that_has_a_time_tells_the_unit() {
        const NOW: i64 = 1_700_000_000_000_000_000;
        let cases = [
            ([1.7e9, 1.7e9 + 0.5], [Some(NOW), Some(NOW + 500_000_000)]),
            ([1.7e12, 0.0], [Some(NOW), None]),
            ([1.7e15, f64::NAN], [Some(NOW), None]),
            ([1.7e18, 1.7e18], [Some(NOW); 2]),
            ([0.0, 1.7e9], [None, Some(NOW)]),
            // Times since a start.
            ([12.5, 13.5], [None; 2]),
            ([1.5e9, 1.5e9], [None; 2]),
        ];
        for (times, wanted) in cases {
            let mut stamp = Stamp::of(payload(0.0).fields()).unwrap();
            let read = times.map(|time| read(&mut stamp, time, NOW + 1000));
            assert_eq!(read, wanted, "{times:?}");
        }
    }

    #[test]
    fn near_zero_it_is_the_unit_next_to_the_publication() {
        for unit in TimeUnit::ALL {
            for published_ns in [
                50_000_000,
                5 * 1_000_000_000,
                86_000 * 1_000_000_000,
                1_700_000_000_000_000_000,
            ] {
                let taken_ns = published_ns - 7_000_000;
                let mut stamp = Stamp::of(payload(0.0).fields()).unwrap();
                let read = read(&mut stamp, taken_ns as f64 / unit.ns() as f64, published_ns);
                let apart = read.unwrap().abs_diff(taken_ns);
                assert!(apart <= 256, "{published_ns} in {unit:?}: {apart}");
                assert!(stamp.guess().unwrap().contains(&format!("in {}, ", unit.name())));
            }
        }
    }

    #[test]
    fn a_float32_is_no_time_since_1970() {
        let payload = |time: f32| {
            let array: ArrayRef = Arc::new(Float32Array::from(vec![time]));
            StructArray::try_from(vec![("time", array)]).unwrap()
        };
        let mut stamp = Stamp::of(payload(0.0).fields()).unwrap();
        assert_eq!(stamp.read(&payload(1.7e9), 1_700_000_000_000_000_000), Ok(None));
        assert_eq!(
            stamp.guess().unwrap(),
            "`time` is not taken as the stamp: it is float32, whose steps are 128000 ms there"
        );
        let mut stamp = Stamp::of(payload(0.0).fields()).unwrap();
        assert_eq!(stamp.read(&payload(12.5), 12_600_000_000), Ok(Some(12_500_000_000)));
        // Steps of float32 are 0.98 ms from 8192 s on.
        let mut stamp = Stamp::of(payload(0.0).fields()).unwrap();
        assert_eq!(stamp.read(&payload(9000.0), 9000 * S), Ok(Some(9000 * S)));
    }

    #[test]
    fn later_numbers_of_another_unit_are_broken() {
        const NOW: i64 = 1_700_000_000_000_000_000;
        let mut stamp = Stamp::of(payload(0.0).fields()).unwrap();
        assert_eq!(read(&mut stamp, 1.7e12, NOW), Some(NOW));
        let broken = stamp.read(&payload(1.7e9), NOW).unwrap_err();
        assert!(broken.contains("`time` is in s, in which it is next to"), "{broken}");
        assert_eq!(read(&mut stamp, 1.7e12 + 5.0, NOW), Some(NOW + 5_000_000));
        // Near 0; and a larger unit first, in which a later number is beyond int64.
        let mut stamp = Stamp::of(payload(0.0).fields()).unwrap();
        assert_eq!(read(&mut stamp, 100_000.0, 100 * S), Some(100 * S));
        assert!(stamp.read(&payload(101.0), 101 * S).is_err());
        let mut stamp = Stamp::of(payload(0.0).fields()).unwrap();
        assert_eq!(read(&mut stamp, 1.7e9, NOW), Some(NOW));
        assert!(stamp.read(&payload(1.7e12), NOW).is_err());
        // A message may come late.
        assert_eq!(read(&mut stamp, 1.7e9, NOW + 3600 * S), Some(NOW));
    }

    #[test]
    fn a_unit_that_was_said_is_kept_and_doubted() {
        let mut stamp = Stamp::of(payload(0.0).fields())
            .unwrap()
            .in_unit(Some(TimeUnit::Microsecond));
        assert_eq!(read(&mut stamp, 1.7e9, 1_700_000_000 * S), Some(1_700 * S));
        assert_eq!(
            stamp.guess().unwrap(),
            "`time` is next to the time of its publication in s, but is taken in us"
        );
    }

    #[test]
    fn a_number_that_a_configuration_names_is_doubted_and_needed() {
        let fields = payload(0.0).fields().clone();
        let mut stamp = Stamp::configured("time", &fields, TimeUnit::Millisecond).unwrap();
        assert_eq!(read(&mut stamp, 1.7e9, 1_700_000_000 * S), Some(1_700_000 * S));
        assert!(stamp.guess().unwrap().contains("in s, but is taken in ms"));
        // 0 is not a stamp, and a number that is not a time breaks its message.
        assert_eq!(read(&mut stamp, 0.0, 1_700_000_000 * S), None);
        let broken = stamp.read(&payload(f64::NAN), 1_700_000_000 * S).unwrap_err();
        assert!(broken.starts_with("`time` is not a time in ms (allowed"), "{broken}");
        assert!(Stamp::configured("nowhere", &fields, TimeUnit::Second).is_none());
        // float32 is too coarse for seconds since 1970.
        let of_float32 = |time: f32| -> StructArray {
            let field = Arc::new(arrow_schema::Field::new("time", DataType::Float32, true));
            vec![(field, Arc::new(Float32Array::from(vec![time])) as ArrayRef)].into()
        };
        let mut stamp = Stamp::configured("time", of_float32(0.0).fields(), TimeUnit::Second).unwrap();
        stamp.read(&of_float32(1.5), 2 * S).unwrap();
        assert_eq!(stamp.guess(), None);
        stamp.read(&of_float32(1.7e9), 1_700_000_000 * S).unwrap();
        assert_eq!(
            stamp.guess().unwrap(),
            "`time` is float32, whose steps are 128000 ms there"
        );
    }

    #[test]
    fn a_number_that_stands_still_beside_its_publication_is_doubted() {
        // Seconds since 1970, published by a clock that began a minute ago: as ns they are nearest to it.
        let mut stamp = Stamp::of(payload(0.0).fields()).unwrap();
        for i in 0..100 {
            stamp
                .read(&payload(1.764e9 + f64::from(i / 10)), 60 * S + i64::from(i) * S / 10)
                .unwrap();
        }
        assert_eq!(
            stamp.guess().unwrap(),
            "`time` is the stamp, in ns, in which it is next to the time of its publication; `time` may be in another unit: in ns it \
             advances by 9 ns while the time of publication does by 9900000000 ns"
        );
        let mut stamp = Stamp::of(payload(0.0).fields()).unwrap();
        for i in 0..100 {
            stamp
                .read(&payload(60.0 + f64::from(i)), (60 + i64::from(i)) * S)
                .unwrap();
        }
        assert!(!stamp.guess().unwrap().contains("may be"));
    }

    #[test]
    fn a_stamp_of_0_is_a_time_of_a_first_message_alone() {
        let read_all = |published: [i64; 3]| {
            let mut stamp = Stamp::of(payload(0.0).fields()).unwrap();
            published.map(|published_ns| read(&mut stamp, 0.0, published_ns))
        };
        assert_eq!(read_all([S / 2, S / 2 + 1, S]), [Some(0), None, None]);
        assert_eq!(read_all([2 * S, 3 * S, 4 * S]), [None; 3]);
    }

    #[test]
    fn a_unit_that_nothing_tells_is_refused_with_both() {
        let said = |time: f64, published_ns: i64| {
            let mut stamp = Stamp::of(payload(0.0).fields()).unwrap();
            assert_eq!(read(&mut stamp, time, published_ns), None);
            stamp.guess().unwrap()
        };
        assert_eq!(
            said(5000.0, 2_500_000),
            "`time` is not taken as the stamp: its first is 5000 ns in ns and 5000000 ns in us, and both are as far from its \
             publication at 2500000 ns"
        );
        assert!(said(12.5, 1_700_000_000_000_000_000).contains("(allowed: less than a day)"));
    }
}

//! Conversion of point times to the column `t_ns`, ns since the cloud's stamp. The unit and origin that a lidar uses are found
//! from its clouds.
//!
//! A *form* of times is their unit and their origin. The *usual form* is the one that the field's name and type suggest. A
//! *sweep* is one turn of a lidar, usually one cloud. A sweep *confirms* a form if its duration, computed from times in this
//! form, is plausible for a sweep.
//!
//! The usual form is final once a sweep confirms it, and another form once 16 sweeps (`SWEEPS`) confirm it. In a float64
//! `t_ns`, a time further than `REACH_NS` from the stamp becomes NaN.

mod form;

pub(super) use form::Number;

use super::T_NS;
use crate::selector::{CloudFields, SelectError, TimeUnit};
use crate::{Cells, Message};
use bytemuck::Pod;
use form::{Form, REACH_NS, Since};
use robocache_device::Dtype;
use std::ops::RangeInclusive;

/// Range of plausible durations of a cloud of one sweep, ns.
const SWEEP_NS: RangeInclusive<f64> = 1e6..=1e9;
/// Range of durations of a cloud that confirm the unit and origin suggested by the field's name, ns. It is wider than
/// `SWEEP_NS`, because clouds may be packets, which are shorter than sweeps, or slow sweeps.
const USUAL_NS: RangeInclusive<f64> = 2.5e5..=4e9;

/// Least share of a cloud's times that must be near the stamp (`REACH_NS`) for a unit and origin to fit the cloud. Some points
/// have no return, or a meaningless time.
const SHARE: f64 = 0.75;

/// Number of sweeps that must confirm a unit and origin before they are final, unless the field's name suggests them.
const SWEEPS: u32 = 16;

/// Greatest number of points of a cloud whose times are examined. A larger cloud is sampled evenly.
const LOOKED_AT: usize = 512;

/// Share of outliers: one in this many examined times is ignored at either end of their range, because some times are
/// meaningless. In clouds of fewer than four times nothing is ignored.
const LEFT_OUT: usize = 8;

/// Counts of odd clouds at which a doubt is logged: the first while no cloud was plausible, afterwards the second, as a cloud
/// may be cut to a region. An *odd* cloud lasts too short or too long for the time since the cloud before it. Each cloud that
/// is not odd lowers the count by two.
const ODD_CLOUDS: [u32; 2] = [3, 16];

/// Duration above which a cloud never counts as too short, ns.
const SHORT_NS: f64 = 5e6;
/// Least plausible ratio of a cloud's duration to the time since the cloud before it. Below this ratio, the cloud is too short.
const SHORT: f64 = 1.0 / 50.0;

/// Greatest plausible ratio of a cloud's duration to the time since the cloud before it. Above this ratio, the cloud is
/// too long.
const LONG: f64 = 3.0;

/// Distance between a cloud's times and its stamp, ns, from which on the cloud is not a flash. A *flash* is a cloud of a lidar
/// without a sweep: all its points have the same time.
const NO_FLASH_NS: f64 = 1e9;

/// Greatest step between neighbouring float32 values near the stamp, ns. With a greater step, float32 numbers are not read as
/// absolute times.
const STEP_NS: f64 = 1e6;

/// Greatest difference, ns, between a cloud's stamp and the time that its points' times count from. A greater difference is
/// logged as a doubt.
const BASE_NS: u64 = 1_000_000;

/// Reason to doubt the times of a field. One line of the log is written for each reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// Times of points further than `REACH_NS` from the stamp.
    Far,
    /// Clouds that last too short or too long for the time between them.
    Pace,
    /// Times of points that count from another time than the stamp.
    Base,
}

/// Range of a cloud's examined times, ns since the stamp, if they are read in one unit and origin.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// Number of examined times that are finite and not 0. A 0 may stand for a point without a return.
    times: usize,
    /// Number of examined times, zeros excluded, within `REACH_NS` of the stamp.
    near: usize,
    /// Earliest time within `REACH_NS` of the stamp, without the share of outliers that `LEFT_OUT` allows; infinity if there is
    /// no such time.
    first: f64,
    /// Latest time within `REACH_NS` of the stamp, without the share of outliers that `LEFT_OUT` allows; minus infinity if there
    /// is no such time.
    last: f64,
}

impl Extent {
    /// Computes the range of times, each given as the received number and as ns since the stamp.
    fn of(numbers: impl Iterator<Item = (f64, f64)>) -> Self {
        let mut all = [0.0; LOOKED_AT];
        let (mut times, mut near, mut within) = (0, 0, 0);
        for (number, ns) in numbers.take(LOOKED_AT) {
            let is_near = ns.abs() <= REACH_NS;
            times += usize::from(is_time(number));
            near += usize::from(is_time(number) && is_near);
            if is_near {
                all[within] = ns;
                within += 1;
            }
        }
        let [first, last] = ends(&mut all[..within]);
        Self {
            times,
            near,
            first,
            last,
        }
    }

    fn lasts_ns(self) -> f64 {
        self.last - self.first
    }
}

/// Returns the earliest and the latest of `times` after outliers at either end are ignored (`LEFT_OUT`). Returns infinity and
/// minus infinity if `times` is empty.
fn ends(times: &mut [f64]) -> [f64; 2] {
    let Some(last) = times.len().checked_sub(1) else {
        return [f64::INFINITY, f64::NEG_INFINITY];
    };
    let cut = if last < 3 { 0 } else { times.len().div_ceil(LEFT_OUT) };
    [cut, last - cut].map(|i| *times.select_nth_unstable_by(i, f64::total_cmp).1)
}

/// Reader of the times of a cloud's points: the field that has them, and the unit, the origin and the doubts found so far.
#[derive(Debug)]
pub(in crate::selector) struct Times {
    name: String,
    /// Names of further fields of the cloud that may have times, too; they stay unchanged.
    passed_over: Vec<String>,
    is_float32: bool,
    /// Type of `t_ns`: the field's type if that is int32 or uint32 and its times usually count from the stamp; else float64.
    dtype: Dtype,
    /// Unit and origin of the times that the name and the type of the field suggest.
    usual: Form,
    /// Unit and origin in which the times are read; `None` until a cloud fits a unit and origin.
    form: Option<Form>,
    has_seen_cloud: bool,
    /// True if the times of the first cloud fit no unit and origin: the field then stays unchanged in all clouds.
    has_no_form: bool,
    /// True if a cloud that lasts as long as a sweep has confirmed `form`.
    is_shown: bool,
    /// Number of sweeps that have confirmed `form`. Sweeps with a stamp in the first 4 s of its clock do not count: there,
    /// relative and absolute times look alike.
    sweeps: u32,
    /// Units and origins in which times have been read so far, each with its number of clouds.
    taken: Vec<(Form, u64)>,
    /// Examined times of the last cloud, each as received and in ns since the stamp.
    looked_at: Vec<(f64, f64)>,
    /// Stamp of the last cloud with points, ns; `None` before the first.
    last_stamp_ns: Option<i64>,
    /// Count of odd clouds, lowered by two for each cloud that is not odd (`ODD_CLOUDS`).
    odd_clouds: u32,
    /// True if any cloud so far was plausible: neither odd nor a flash.
    had_plausible: bool,
    /// Number of clouds so far without a time near the stamp (`REACH_NS`); 0 once a cloud has had such a time.
    unusable: u32,
    /// True if any cloud so far had a time near the stamp (`REACH_NS`).
    had_usable: bool,
    doubts: Vec<(Doubt, String)>,
    /// Line for the log that `take_note` has not returned yet; `None` if there is none.
    note: Option<String>,
}

impl Times {
    /// Creates the reader of times in a field of this name and type; `None` if such a field does not have times.
    pub(super) fn of(name: &str, dtype: Dtype) -> Option<Self> {
        let (is_float, is_short) = match dtype {
            Dtype::Float32 | Dtype::Float64 => (true, false),
            Dtype::Int32 | Dtype::UInt32 => (false, true),
            Dtype::Int64 | Dtype::UInt64 => (false, false),
            _ => return None,
        };
        let usual = Form::usual(name, is_float)?;
        Some(Self {
            name: name.to_owned(),
            passed_over: Vec::new(),
            is_float32: dtype == Dtype::Float32,
            dtype: match is_short && usual.since == Since::Stamp {
                true => dtype,
                false => Dtype::Float64,
            },
            usual,
            form: None,
            has_seen_cloud: false,
            has_no_form: false,
            is_shown: false,
            sweeps: 0,
            taken: Vec::new(),
            looked_at: Vec::new(),
            last_stamp_ns: None,
            odd_clouds: 0,
            had_plausible: false,
            unusable: 0,
            had_usable: false,
            doubts: Vec::new(),
            note: None,
        })
    }

    /// The name of the field that has the times.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Adds the name of a further field of the cloud that may have times, too, and stays unchanged.
    pub(super) fn pass_over(&mut self, name: &str) {
        self.passed_over.push(name.to_owned());
    }

    /// Notes a doubt for the log if `base_ns`, which the points' times count from, is not the stamp of the cloud. `name` is the
    /// field that `base_ns` was read from.
    pub(super) fn check_base(&mut self, name: &str, base_ns: i128, stamp_ns: i64) {
        let apart_ns = base_ns - i128::from(stamp_ns);
        if apart_ns.unsigned_abs() > BASE_NS.into() {
            let line = format!("`{name}` is {apart_ns} ns from the stamp, which `{T_NS}` counts from");
            self.note_doubt(Doubt::Base, line);
        }
    }

    /// Returns the log line that is new since the last call; `None` if there is none. Each line is returned once.
    pub(crate) fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }

    /// Describes an unusual unit or origin, several fields that may have times, the doubts, and clouds without a time near the
    /// stamp. Returns `None` if there is nothing to describe.
    pub(crate) fn unusual(&self) -> Option<String> {
        let is_usual = self.passed_over.is_empty() && self.taken.iter().all(|(form, _)| *form == self.usual);
        let is_one = self.taken.len() == 1;
        let words = |(form, clouds): &(Form, u64)| match is_one {
            true => form.words(),
            false => format!("{} in {clouds} clouds", form.words()),
        };
        let forms: Vec<String> = self.taken.iter().map(words).collect();
        let forms = (!is_usual).then(|| format!("{}, {}", self.source(), forms.join(", ")));
        let unusable = (self.unusable > 0 && self.unusable < SWEEPS).then(|| self.unusable_line());
        let doubts = self.doubts.iter().map(|(_, line)| line.clone());
        let all: Vec<String> = forms.into_iter().chain(doubts).chain(unusable).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Returns a text that names the field that becomes `t_ns`, and the further fields that may have times.
    fn source(&self) -> String {
        let passed_over: String = self
            .passed_over
            .iter()
            .map(|name| format!(" and not `{name}`"))
            .collect();
        format!("`{T_NS}` from `{}`{passed_over}", self.name)
    }

    /// Determines the unit and origin of the times from a cloud of `points` points. Returns true if the times become [`T_NS`];
    /// if false, the field stays unchanged.
    ///
    /// # Errors
    /// If `wanted` names [`T_NS`], and the times fit no unit and origin.
    pub(super) fn look(
        &mut self,
        times: impl Iterator<Item = Number>,
        points: usize,
        stamp_ns: i64,
        wanted: &CloudFields,
    ) -> Result<bool, SelectError> {
        if points > 0 && !self.has_no_form {
            self.look_at(times, points, stamp_ns);
        }
        self.has_seen_cloud = true;
        if self.has_no_form && *wanted != CloudFields::All {
            let came = "of no form that the time of a point has";
            return Err(SelectError::value(&self.name, came, self.allowed()));
        }
        Ok(!self.has_no_form)
    }

    /// Adds the column [`T_NS`] to a message, from the times of `points` points.
    pub(super) fn add_to(
        &mut self,
        message: &mut Message,
        times: impl Iterator<Item = Number> + Clone,
        points: usize,
        stamp_ns: i64,
    ) {
        let column = message.add_column(T_NS, self.dtype, Cells::One);
        column.data.resize(points * self.dtype.size());
        if points == 0 {
            return;
        }
        let (form, out) = (self.form.unwrap_or(self.usual), column.data.bytes_mut());
        let has_digits = self.has_digits(form, stamp_ns);
        let mut seen = std::mem::take(&mut self.looked_at);
        seen.clear();
        match self.dtype {
            Dtype::Int32 => write(out, times.clone(), &mut seen, |time| {
                form.whole_ns(time).clamp(i32::MIN.into(), i32::MAX.into()) as i32
            }),
            Dtype::UInt32 => write(out, times.clone(), &mut seen, |time| {
                form.whole_ns(time).clamp(0, u32::MAX.into()) as u32
            }),
            _ if !has_digits => write(out, times.clone(), &mut seen, |_| f64::NAN),
            _ => write(out, times.clone(), &mut seen, |time| form.t_ns(time, stamp_ns)),
        }
        let has_zero = seen.iter().any(|(time, ns)| *time == 0.0 && ns.is_finite());
        let extent = Extent::of(seen.iter().copied().filter(|(time, _)| is_time(*time)));
        self.looked_at = seen;
        if 2 * extent.near < extent.times && !self.has_doubt(Doubt::Far) {
            let times: Vec<f64> = times.map(Number::as_f64).filter(|time| is_time(*time)).collect();
            self.tell_far(&times, stamp_ns);
        }
        self.check(form, extent, has_zero, stamp_ns);
    }

    /// Notes a doubt for the log if clouds last much shorter or longer than the time between them, or if 16 clouds have no time
    /// near the stamp. If `has_zero`, a point of the cloud has the time 0, which counts as near.
    fn check(&mut self, form: Form, extent: Extent, has_zero: bool, stamp_ns: i64) {
        let before_ns = self.last_stamp_ns.replace(stamp_ns);
        if extent.near == 0 && !has_zero {
            self.unusable += u32::from(!self.had_usable);
            if self.unusable == SWEEPS && !self.has_doubt(Doubt::Far) {
                self.note_doubt(Doubt::Far, self.unusable_line());
            }
            return;
        }
        (self.had_usable, self.unusable) = (true, 0);
        let apart_ns = before_ns.map_or(0, |before_ns| stamp_ns.saturating_sub(before_ns)) as f64;
        let lasts_ns = extent.lasts_ns();
        // By the clock, a number of another unit is not near the stamp, except when the clock begins.
        let is_sure = form.since == Since::Epoch && stamp_ns.unsigned_abs() as f64 > 2.0 * REACH_NS;
        if is_sure || apart_ns <= 0.0 || !lasts_ns.is_finite() {
            return;
        }
        let is_flash = lasts_ns == 0.0 && extent.first.abs() < NO_FLASH_NS;
        let is_short = lasts_ns <= SHORT_NS && lasts_ns < SHORT * apart_ns && !is_flash;
        let is_odd = is_short || lasts_ns > LONG * apart_ns;
        self.had_plausible |= !is_odd && !is_flash;
        self.odd_clouds = match is_odd {
            true => self.odd_clouds + 1,
            false => self.odd_clouds.saturating_sub(2),
        };
        if self.odd_clouds == ODD_CLOUDS[usize::from(self.had_plausible)] {
            let line = format!(
                "`{T_NS}` from `{}` may be in another unit: a cloud lasts {lasts_ns} ns, {apart_ns} ns after the one before it",
                self.name
            );
            self.note_doubt(Doubt::Pace, line);
        }
    }

    /// Updates the unit and origin from the times of a cloud, unless they are final, and counts the cloud for them.
    fn look_at(&mut self, times: impl Iterator<Item = Number>, points: usize, stamp_ns: i64) {
        if !self.is_settled() {
            let some = times.step_by(points.div_ceil(LOOKED_AT)).map(Number::as_f64);
            let (mut all, mut count) = ([0.0; LOOKED_AT], 0);
            for (to, time) in all.iter_mut().zip(some.filter(|time| time.is_finite())) {
                *to = time;
                count += 1;
            }
            if all.iter().any(|time| is_time(*time)) {
                self.find(&all[..count], stamp_ns);
            }
        }
        let Some(form) = self.form else { return };
        match self.taken.iter_mut().find(|(taken, _)| *taken == form) {
            Some((_, clouds)) => *clouds += 1,
            None => {
                self.taken.push((form, 1));
                self.add_note(format!("{}, {}", self.source(), form.words()));
            }
        }
    }

    /// Updates the unit and origin from the examined times of a cloud. Notes a doubt for the log if none fit.
    fn find(&mut self, times: &[f64], stamp_ns: i64) {
        let of_sweep = self
            .of_sweep(times, stamp_ns)
            .filter(|form| !self.keeps_form(*form, times, stamp_ns));
        let found = match self.form {
            Some(_) => of_sweep,
            None => of_sweep.or_else(|| self.of_short(times, stamp_ns)),
        };
        match found {
            Some(form) if self.fits_column(form) => {
                let sweeps = if self.form == of_sweep { self.sweeps } else { 0 };
                // In the first seconds of a clock, times since the stamp and those of the clock look alike.
                let counts = of_sweep.is_some() && stamp_ns.unsigned_abs() as f64 > 2.0 * REACH_NS;
                self.sweeps = sweeps + u32::from(counts);
                self.is_shown = of_sweep.is_some();
                self.form = found;
            }
            None if self.form.is_some() => {}
            _ => {
                self.has_no_form = !self.has_seen_cloud;
                self.tell_far(times, stamp_ns);
            }
        }
    }

    /// True if the current unit and origin are kept, although a cloud looks like a sweep in the form `other`. A sweep has
    /// confirmed them, the cloud lasts no longer than a sweep in them, and `other` is not the usual form.
    fn keeps_form(&self, other: Form, times: &[f64], stamp_ns: i64) -> bool {
        // In the clock's first seconds a sweep shows the unit, but not the origin.
        let is_shown = |form: &Form| self.sweeps > 0 || self.is_shown && form.since == other.since;
        let Some(form) = self.form.filter(|form| *form != other && is_shown(form)) else {
            return false;
        };
        let extent = self.near(form, times, stamp_ns);
        other != self.usual && extent.is_some_and(|extent| extent.lasts_ns() <= *SWEEP_NS.end())
    }

    /// True if the column can hold times in this unit and origin: an integer of 32 bits can hold only times since the stamp.
    fn fits_column(&self, form: Form) -> bool {
        self.dtype == Dtype::Float64 || form.since == Since::Stamp
    }

    /// True if the unit and origin are final. The usual ones are final as soon as a sweep confirms them. Others need more
    /// sweeps: the few points of a cloud that is cut to a region may seem to be a sweep in another unit.
    fn is_settled(&self) -> bool {
        match self.form {
            Some(form) if form == self.usual => self.sweeps > 0,
            _ => self.sweeps >= SWEEPS,
        }
    }

    /// Returns the unit and origin in which a cloud lasts as long as a sweep: the usual ones if they fit, else the first that
    /// fit; `None` if none fit.
    fn of_sweep(&self, times: &[f64], stamp_ns: i64) -> Option<Form> {
        let fits = |form: Form, lasts: &RangeInclusive<f64>| {
            let near = self.near(form, times, stamp_ns);
            near.is_some_and(|extent| lasts.contains(&extent.lasts_ns()))
        };
        if fits(self.usual, &USUAL_NS) {
            return Some(self.usual);
        }
        self.forms().find(|form| fits(*form, &SWEEP_NS))
    }

    /// Returns the unit and origin of a cloud that does not last as long as a sweep: the first of three candidates that puts
    /// the times near the stamp. The candidates are the usual form, absolute times in the best unit, and the usual unit since
    /// the stamp. Other units since the stamp are not tried, as all numbers are near the stamp in one of them.
    fn of_short(&self, times: &[f64], stamp_ns: i64) -> Option<Form> {
        let reach = |form: Form| {
            let near = self.near(form, times, stamp_ns);
            near.map(|extent| extent.first.abs().max(extent.last.abs()))
        };
        let is_near = |form: &Form| reach(*form).is_some();
        let by_clock = self.forms().filter(|form| form.since == Since::Epoch);
        let by_clock = by_clock.filter_map(|form| Some((form, reach(form)?)));
        let nearest = by_clock.min_by(|(_, left), (_, right)| left.total_cmp(right));
        let by_stamp = Form {
            since: Since::Stamp,
            ..self.usual
        };
        let usual = Some(self.usual).filter(is_near);
        let found = usual.or(nearest.map(|(form, _)| form));
        found.or(Some(by_stamp).filter(is_near))
    }

    /// Iterates over all possible units and origins, first those with the usual origin.
    fn forms(&self) -> impl Iterator<Item = Form> + use<> {
        let named = self.name.ends_with("_ns").then_some(TimeUnit::Nanosecond);
        let units = move |since| {
            let units = TimeUnit::ALL
                .into_iter()
                .filter(move |unit| named.is_none_or(|named| named == *unit));
            units.map(move |unit| Form { unit, since })
        };
        units(self.usual.since).chain(units(self.usual.since.other()))
    }

    /// True if the field's type has enough digits for times in this unit and origin near the stamp (`STEP_NS`).
    fn has_digits(&self, form: Form, stamp_ns: i64) -> bool {
        let stamp = (stamp_ns as f64 / form.unit.ns() as f64) as f32;
        !self.is_float32 || form.since == Since::Stamp || form.unit.step_of_float32_ns(stamp) <= STEP_NS
    }

    /// Returns the range of times in a unit and origin. Returns `None` if less than `SHARE` of the times is near the stamp, or
    /// if the type of the field has too few digits.
    fn near(&self, form: Form, times: &[f64], stamp_ns: i64) -> Option<Extent> {
        if !self.has_digits(form, stamp_ns) {
            return None;
        }
        let of_form = |&time: &f64| (time, form.ns(Number::Float(time), stamp_ns));
        let times = times.iter().map(of_form);
        // A 0 is the first point of a sweep only in a usual form since the stamp; else it stands for no return.
        let has_zeros = form == self.usual && form.since == Since::Stamp;
        let extent = Extent::of(times.filter(|(time, _)| has_zeros || *time != 0.0));
        (extent.near as f64 >= SHARE * extent.times as f64).then_some(extent)
    }

    fn allowed(&self) -> String {
        let or_clock = if self.dtype == Dtype::Float64 {
            " or by its clock"
        } else {
            ""
        };
        format!(
            "s, ms, us or ns, since the stamp{or_clock}, less than {} s from it",
            REACH_NS / 1e9
        )
    }

    /// Notes a doubt for the log about times that are not near the stamp in any unit and origin.
    fn tell_far(&mut self, times: &[f64], stamp_ns: i64) {
        let first = times.iter().copied().fold(f64::INFINITY, f64::min);
        let last = times.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (name, allowed) = (&self.name, self.allowed());
        let came = format!("{first} to {last} in a cloud of the stamp {stamp_ns} ns");
        let what = if self.has_no_form {
            "without"
        } else {
            "without a usable"
        };
        self.note_doubt(
            Doubt::Far,
            format!("{what} `{T_NS}`: `{name}` is {came} (allowed: {allowed})"),
        );
    }

    fn unusable_line(&self) -> String {
        let (name, clouds) = (&self.name, self.unusable);
        format!("without a usable `{T_NS}`: `{name}` is 0 or not finite in all points of {clouds} clouds")
    }

    fn has_doubt(&self, doubt: Doubt) -> bool {
        self.doubts.iter().any(|(told, _)| *told == doubt)
    }

    fn note_doubt(&mut self, doubt: Doubt, line: String) {
        if !self.has_doubt(doubt) {
            self.add_note(line.clone());
            self.doubts.push((doubt, line));
        }
    }

    fn add_note(&mut self, line: String) {
        self.note = Some(match self.note.take() {
            Some(note) => format!("{note}; {line}"),
            None => line,
        });
    }
}

/// Converts each time with `convert`, and writes it to `out`. Appends up to `LOOKED_AT` times to `seen`, each as received and
/// as converted.
fn write<T: Pod + Into<f64>>(
    out: &mut [u8],
    times: impl Iterator<Item = Number>,
    seen: &mut Vec<(f64, f64)>,
    convert: impl Fn(Number) -> T,
) {
    let out: &mut [T] = bytemuck::cast_slice_mut(out);
    let step = out.len().div_ceil(LOOKED_AT);
    let (mut rest, mut passed_over) = (out.iter_mut(), 0);
    times.for_each(|time| {
        let Some(to) = rest.next() else { return };
        *to = convert(time);
        if passed_over == 0 {
            seen.push((time.as_f64(), (*to).into()));
            passed_over = step;
        }
        passed_over -= 1;
    });
}

/// True if a received number is finite and not 0. A 0 is not a time, as it may stand for a point without a return.
fn is_time(number: f64) -> bool {
    number.is_finite() && number != 0.0
}

//! The times of a cloud's points as `t_ns`, whatever form their lidar sends them in.

mod form;

pub(super) use form::Number;

use super::T_NS;
use crate::selector::{CloudFields, SelectError, TimeUnit};
use crate::{Cells, Message};
use bytemuck::Pod;
use form::{Form, REACH_NS, Since};
use robocache_device::Dtype;
use std::ops::RangeInclusive;

/// The time that a sweep lasts, ns, and what a cloud may last in the form that is usual: packets are shorter, slow sweeps longer.
const SWEEP_NS: RangeInclusive<f64> = 1e6..=1e9;
const USUAL_NS: RangeInclusive<f64> = 2.5e5..=4e9;

/// Share of the points with a time that has to be near the stamp: some did not come back, or have a time that stands for none.
const SHARE: f64 = 0.75;

/// Sweeps that a form that is not the usual one of its name has to hold for.
const SWEEPS: u32 = 16;

/// Points of a cloud that are looked at.
const LOOKED_AT: usize = 512;

/// The eighth of the times at either end of a cloud of four or more is left out: some have no meaning.
const LEFT_OUT: usize = 8;

/// Clouds that are too short or too long for their distance, before that is told: at first, and once there was one that is
/// neither, as a cloud may be cut to a region. Each one that is neither takes two back.
const ODD_CLOUDS: [u32; 2] = [3, 16];

/// The longest cloud that may be too short, ns, and the share of the distance that it is shorter than.
const SHORT_NS: f64 = 5e6;
const SHORT: f64 = 1.0 / 50.0;

/// The multiple of the distance that a cloud is too long from.
const LONG: f64 = 3.0;

/// The distance from the stamp from which on points of one time can't be a flash, ns.
const NO_FLASH_NS: f64 = 1e9;

/// The longest step of a float32 that a time is taken from, ns.
const STEP_NS: f64 = 1e6;

/// The distance from the stamp from which on another base of the times is told, ns.
const BASE_NS: u64 = 1_000_000;

/// Lines that are told once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// Times are near no stamp.
    Far,
    /// Clouds last too short or too long for their distance.
    Pace,
    /// Their origin is not the stamp.
    Base,
}

/// Some times of a cloud in the form that they are taken for, ns since the stamp.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// Number of times that there are, and of those near the stamp. A 0 is none of them: it stands for no return, too.
    times: usize,
    near: usize,
    /// The first and the last of all near the stamp, but for the outermost; infinite without any.
    first: f64,
    last: f64,
}

impl Extent {
    /// The extent of numbers of a cloud, each with what it is in ns since the stamp.
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

/// The first and the last of the times of a cloud once the outermost are left out.
fn ends(times: &mut [f64]) -> [f64; 2] {
    let Some(last) = times.len().checked_sub(1) else {
        return [f64::INFINITY, f64::NEG_INFINITY];
    };
    let cut = if last < 3 { 0 } else { times.len().div_ceil(LEFT_OUT) };
    [cut, last - cut].map(|i| *times.select_nth_unstable_by(i, f64::total_cmp).1)
}

/// The field of times of a cloud, and what is known of them.
#[derive(Debug)]
pub(in crate::selector) struct Times {
    name: String,
    /// Fields with the name of times that come after it, and stay as they are.
    passed_over: Vec<String>,
    is_float32: bool,
    /// The type of `t_ns`: the field's own, if that is an integer of 32 bits and usually counts from the stamp.
    dtype: Dtype,
    usual: Form,
    form: Option<Form>,
    has_begun: bool,
    /// True if the first cloud had times of no form: the field then stays as it is in all.
    are_unknown: bool,
    /// True if a sweep has shown it.
    is_shown: bool,
    /// Sweeps that were of this form, since the clock's first seconds.
    sweeps: u32,
    /// The forms in which they were taken, and in how many clouds.
    taken: Vec<(Form, u64)>,
    /// Some times of the last cloud, as they came and in ns since the stamp.
    looked_at: Vec<(f64, f64)>,
    /// The stamp of the last cloud with points.
    last_stamp_ns: Option<i64>,
    /// Clouds that were too short or too long for their distance, less twice those that were neither, and whether one was.
    odd_clouds: u32,
    had_even: bool,
    /// Clouds without a time that is near the stamp, while there was none with one.
    unusable: u32,
    is_usable: bool,
    doubts: Vec<(Doubt, String)>,
    /// The line that has not been told yet.
    note: Option<String>,
}

impl Times {
    /// The times in a field of this name and type, if it has them.
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
            has_begun: false,
            are_unknown: false,
            is_shown: false,
            sweeps: 0,
            taken: Vec::new(),
            looked_at: Vec::new(),
            last_stamp_ns: None,
            odd_clouds: 0,
            had_even: false,
            unusable: 0,
            is_usable: false,
            doubts: Vec::new(),
            note: None,
        })
    }

    /// The field.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Notes another field that may have times, and comes after theirs.
    pub(super) fn pass_over(&mut self, name: &str) {
        self.passed_over.push(name.to_owned());
    }

    /// Looks whether the time that they count from, in the field `name`, is the stamp of their cloud.
    pub(super) fn check_base(&mut self, name: &str, base_ns: i128, stamp_ns: i64) {
        let apart_ns = base_ns - i128::from(stamp_ns);
        if apart_ns.unsigned_abs() > BASE_NS.into() {
            let line = format!("`{name}` is {apart_ns} ns from the stamp, which `{T_NS}` counts from");
            self.tell(Doubt::Base, line);
        }
    }

    /// A line about them that is new, to be told once.
    pub(crate) fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }

    /// A line about them, if they were not in all clouds what is usual, or of no use.
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

    /// The words for the field that is taken, and those that are not.
    fn source(&self) -> String {
        let passed_over: String = self
            .passed_over
            .iter()
            .map(|name| format!(" and not `{name}`"))
            .collect();
        format!("`{T_NS}` from `{}`{passed_over}", self.name)
    }

    /// Finds out from the times of a cloud of `points` points what they mean, and whether they become [`T_NS`]. If not, the field
    /// stays as it is.
    ///
    /// # Errors
    /// [`T_NS`] is needed, and they don't become it.
    pub(super) fn look(
        &mut self,
        times: impl Iterator<Item = Number>,
        points: usize,
        stamp_ns: i64,
        wanted: &CloudFields,
    ) -> Result<bool, SelectError> {
        if points > 0 && !self.are_unknown {
            self.look_at(times, points, stamp_ns);
        }
        self.has_begun = true;
        if self.are_unknown && *wanted != CloudFields::All {
            let came = "of no form that the time of a point has";
            return Err(SelectError::value(&self.name, came, self.allowed()));
        }
        Ok(!self.are_unknown)
    }

    /// Adds [`T_NS`] of the times of `points` points to a message.
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
        let is_fine = self.is_fine(form, stamp_ns);
        let mut seen = std::mem::take(&mut self.looked_at);
        seen.clear();
        match self.dtype {
            Dtype::Int32 => write(out, times.clone(), &mut seen, |time| {
                form.whole_ns(time).clamp(i32::MIN.into(), i32::MAX.into()) as i32
            }),
            Dtype::UInt32 => write(out, times.clone(), &mut seen, |time| {
                form.whole_ns(time).clamp(0, u32::MAX.into()) as u32
            }),
            _ if !is_fine => write(out, times.clone(), &mut seen, |_| f64::NAN),
            _ => write(out, times.clone(), &mut seen, |time| form.t_ns(time, stamp_ns)),
        }
        let has_zero = seen.iter().any(|(time, ns)| *time == 0.0 && ns.is_finite());
        let extent = Extent::of(seen.iter().copied().filter(|(time, _)| is_time(*time)));
        self.looked_at = seen;
        if 2 * extent.near < extent.times && !self.has_told(Doubt::Far) {
            let times: Vec<f64> = times.map(Number::as_f64).filter(|time| is_time(*time)).collect();
            self.tell_far(&times, stamp_ns);
        }
        self.check(form, extent, has_zero, stamp_ns);
    }

    /// Looks whether a cloud lasts about as long as it is from the one before, and whether any cloud had a time. `has_zero` says
    /// that some of its points are at 0.
    fn check(&mut self, form: Form, extent: Extent, has_zero: bool, stamp_ns: i64) {
        let before_ns = self.last_stamp_ns.replace(stamp_ns);
        if extent.near == 0 && !has_zero {
            self.unusable += u32::from(!self.is_usable);
            if self.unusable == SWEEPS && !self.has_told(Doubt::Far) {
                self.tell(Doubt::Far, self.unusable_line());
            }
            return;
        }
        (self.is_usable, self.unusable) = (true, 0);
        let apart_ns = before_ns.map_or(0, |before_ns| stamp_ns.saturating_sub(before_ns)) as f64;
        let lasts_ns = extent.lasts_ns();
        // A number of another unit is not near the stamp by its clock, but for a clock that begins.
        let is_sure = form.since == Since::Epoch && stamp_ns.unsigned_abs() as f64 > 2.0 * REACH_NS;
        if is_sure || apart_ns <= 0.0 || !lasts_ns.is_finite() {
            return;
        }
        let is_flash = lasts_ns == 0.0 && extent.first.abs() < NO_FLASH_NS;
        let is_short = lasts_ns <= SHORT_NS && lasts_ns < SHORT * apart_ns && !is_flash;
        let is_odd = is_short || lasts_ns > LONG * apart_ns;
        self.had_even |= !is_odd && !is_flash;
        self.odd_clouds = match is_odd {
            true => self.odd_clouds + 1,
            false => self.odd_clouds.saturating_sub(2),
        };
        if self.odd_clouds == ODD_CLOUDS[usize::from(self.had_even)] {
            let line = format!(
                "`{T_NS}` from `{}` may be in another unit: a cloud lasts {lasts_ns} ns, {apart_ns} ns after the one before it",
                self.name
            );
            self.tell(Doubt::Pace, line);
        }
    }

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

    fn find(&mut self, times: &[f64], stamp_ns: i64) {
        let of_sweep = self
            .of_sweep(times, stamp_ns)
            .filter(|form| !self.holds(*form, times, stamp_ns));
        let found = match self.form {
            Some(_) => of_sweep,
            None => of_sweep.or_else(|| self.of_short(times, stamp_ns)),
        };
        match found {
            Some(form) if self.can_be(form) => {
                let sweeps = if self.form == of_sweep { self.sweeps } else { 0 };
                // In the first seconds of a clock, times since the stamp and those of the clock look alike.
                let counts = of_sweep.is_some() && stamp_ns.unsigned_abs() as f64 > 2.0 * REACH_NS;
                self.sweeps = sweeps + u32::from(counts);
                self.is_shown = of_sweep.is_some();
                self.form = found;
            }
            None if self.form.is_some() => {}
            _ => {
                self.are_unknown = !self.has_begun;
                self.tell_far(times, stamp_ns);
            }
        }
    }

    /// True if the form that a sweep has shown is kept: in it a cloud that seems to be a sweep in the form `other` is a short one.
    fn holds(&self, other: Form, times: &[f64], stamp_ns: i64) -> bool {
        // In the clock's first seconds a sweep shows the unit, but not the origin.
        let is_shown = |form: &Form| self.sweeps > 0 || self.is_shown && form.since == other.since;
        let Some(form) = self.form.filter(|form| *form != other && is_shown(form)) else {
            return false;
        };
        let extent = self.near(form, times, stamp_ns);
        other != self.usual && extent.is_some_and(|extent| extent.lasts_ns() <= *SWEEP_NS.end())
    }

    /// True if their column can hold them: an integer of 32 bits that has the name of one since the stamp is none by its clock.
    fn can_be(&self, form: Form) -> bool {
        self.dtype == Dtype::Float64 || form.since == Since::Stamp
    }

    /// True if they need not be looked at any more. The usual form is taken as soon as a sweep shows it. Other forms are looked at
    /// for longer: the few points of a cloud that is cut to a region may seem to be a sweep in another unit.
    fn is_settled(&self) -> bool {
        match self.form {
            Some(form) if form == self.usual => self.sweeps > 0,
            _ => self.sweeps >= SWEEPS,
        }
    }

    /// The form in which a cloud lasts as long as a sweep: the usual one, if it can be.
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

    /// The form of times that don't last as long as a sweep: what is usual, if that is near the stamp, else the unit in which they are
    /// nearest to it by its clock, else the usual unit since the stamp. In some other unit since the stamp every number is near.
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

    /// The forms that there are for them, those that count as the usual one first.
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

    /// True if the field has the digits for times in a form near the stamp.
    fn is_fine(&self, form: Form, stamp_ns: i64) -> bool {
        let stamp = (stamp_ns as f64 / form.unit.ns() as f64) as f32;
        !self.is_float32 || form.since == Since::Stamp || form.unit.step_of_float32_ns(stamp) <= STEP_NS
    }

    /// The extent of times in a form, if most are near the stamp.
    fn near(&self, form: Form, times: &[f64], stamp_ns: i64) -> Option<Extent> {
        if !self.is_fine(form, stamp_ns) {
            return None;
        }
        let of_form = |&time: &f64| (time, form.ns(Number::Float(time), stamp_ns));
        let times = times.iter().map(of_form);
        // A 0 is the first point of a sweep only if it counts as usual: else it stands for no return.
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

    fn tell_far(&mut self, times: &[f64], stamp_ns: i64) {
        let first = times.iter().copied().fold(f64::INFINITY, f64::min);
        let last = times.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (name, allowed) = (&self.name, self.allowed());
        let came = format!("{first} to {last} in a cloud of the stamp {stamp_ns} ns");
        let what = if self.are_unknown {
            "without"
        } else {
            "without a usable"
        };
        self.tell(
            Doubt::Far,
            format!("{what} `{T_NS}`: `{name}` is {came} (allowed: {allowed})"),
        );
    }

    fn unusable_line(&self) -> String {
        let (name, clouds) = (&self.name, self.unusable);
        format!("without a usable `{T_NS}`: `{name}` is 0 or not finite in all points of {clouds} clouds")
    }

    fn has_told(&self, doubt: Doubt) -> bool {
        self.doubts.iter().any(|(told, _)| *told == doubt)
    }

    fn tell(&mut self, doubt: Doubt, line: String) {
        if !self.has_told(doubt) {
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

/// Writes what `convert` makes of each time, and keeps some, as they came and as they are written.
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

/// True if a number is a time: 0 stands for a point without a return, too.
fn is_time(number: f64) -> bool {
    number.is_finite() && number != 0.0
}

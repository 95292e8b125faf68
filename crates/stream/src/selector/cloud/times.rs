//! The times of a cloud's points as `t_ns`, whatever form their lidar sends them in.

use super::T_NS;
use crate::selector::SelectError;
use crate::selector::stamp::S;
use robocache_device::Dtype;
use std::ops::Range;

/// Names of fields with the time of a point, and what those who use them count from.
const NAMES: [(&str, Since); 9] = [
    // Velodyne, LeiShen and Unitree in seconds; datasets of Velodynes in microseconds.
    ("time", Since::Stamp),
    // Ouster, SICK.
    ("t", Since::Stamp),
    // Autoware.
    ("time_stamp", Since::Stamp),
    // Livox.
    ("offset_time", Since::Stamp),
    ("time_offset", Since::Stamp),
    // Aeva.
    ("time_offset_ns", Since::Stamp),
    // Blickfeld.
    ("point_time_offset", Since::Stamp),
    // Hesai, Robosense and Seyond in seconds, Livox in nanoseconds.
    ("timestamp", Since::Epoch),
    ("stamps", Since::Epoch),
];

/// Units, ns.
const UNITS: [(i64, &str); 4] = [(S, "s"), (1_000_000, "ms"), (1000, "us"), (1, "ns")];

/// The time that a sweep lasts, ns, and what a cloud may last in the form that is usual: packets are shorter, slow sweeps longer.
const SWEEP_NS: Range<f64> = 1e6..1e9;
const USUAL_NS: Range<f64> = 2.5e5..4e9;

/// A point is no further from the stamp of its cloud, ns: that may be of the sweep's start or its end, or of when it came.
const REACH_NS: f64 = 2e9;

/// Share of the points with a time that has to be near the stamp: some did not come back, or have a time that stands for none.
const SHARE: f64 = 0.75;

/// Sweeps that a form that is not the usual one of its name has to hold for.
const SWEEPS: u32 = 16;

/// Points of a cloud that are looked at.
const LOOKED_AT: usize = 4096;

/// The origin of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    /// The stamp of the cloud.
    Stamp,
    /// The origin of the stamp itself.
    Epoch,
}

/// The meaning of a field's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    unit_ns: i64,
    since: Since,
}

/// A number of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    Float(f64),
    Whole(i128),
}

/// The field of times of a cloud, and what is known of them.
#[derive(Debug)]
pub(in crate::selector) struct Times {
    name: String,
    usual: Form,
    /// True if their column is of their own type: whole numbers of 32 bits, since the stamp.
    stay_whole: bool,
    form: Option<Form>,
    /// True if the first cloud with a time had it in no form: the field then stays as it is in all.
    are_unknown: bool,
    /// Sweeps that were of this form.
    sweeps: u32,
    /// The forms in which they were taken, and in how many clouds.
    taken: Vec<(Form, u64)>,
    /// The times of the cloud that is looked at.
    looked_at: Vec<f64>,
    /// The doubt about them, and whether something is new to be told.
    doubt: Option<String>,
    is_new: bool,
}

impl Form {
    /// A time in ns since the stamp of the cloud. One that is not finite stays so, so that nothing uses it.
    pub fn ns(self, time: Number, stamp_ns: i64) -> f64 {
        let origin = match self.since {
            Since::Stamp => 0,
            Since::Epoch => stamp_ns,
        };
        match time {
            Number::Float(time) if !time.is_finite() => time,
            Number::Float(time) if self.unit_ns == 1 => {
                // What float64 has of it is whole, and the stamp may have more digits than float64.
                ((time.trunc() as i64).saturating_sub(origin) as f64 + time.fract()).round()
            }
            Number::Float(time) => {
                // The whole units go first: float64 has not the digits for all.
                let (whole, rest) = (origin.div_euclid(self.unit_ns), origin.rem_euclid(self.unit_ns));
                ((time - whole as f64) * self.unit_ns as f64 - rest as f64).round()
            }
            Number::Whole(time) => {
                let ns = time.saturating_mul(self.unit_ns.into());
                ns.saturating_sub(origin.into()) as f64
            }
        }
    }

    /// The same for the column: NaN is what lies too far from the stamp to be the time of one of its points, as 0 does that
    /// stands for a point that came back from nowhere.
    pub fn t_ns(self, time: Number, stamp_ns: i64) -> f64 {
        let ns = self.ns(time, stamp_ns);
        if ns.is_finite() && ns.abs() > REACH_NS {
            f64::NAN
        } else {
            ns
        }
    }

    /// True for ns since the stamp, as `t_ns` is.
    pub fn is_t_ns(self) -> bool {
        (self.unit_ns, self.since) == (1, Since::Stamp)
    }

    fn words(self) -> String {
        let unit = UNITS.into_iter().find(|(ns, _)| *ns == self.unit_ns);
        let since = match self.since {
            Since::Stamp => "since the stamp",
            Since::Epoch => "by the clock of the stamp",
        };
        format!("in {} {since}", unit.map_or("", |(_, word)| word))
    }
}

impl Number {
    fn as_f64(self) -> f64 {
        match self {
            Self::Float(number) => number,
            Self::Whole(number) => number as f64,
        }
    }
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
        let (_, since) = NAMES.into_iter().find(|(known, _)| *known == name)?;
        let unit_ns = if is_float && !name.ends_with("_ns") { S } else { 1 };
        Some(Self {
            name: name.to_owned(),
            usual: Form { unit_ns, since },
            stay_whole: is_short && since == Since::Stamp,
            form: None,
            are_unknown: false,
            sweeps: 0,
            taken: Vec::new(),
            looked_at: Vec::new(),
            doubt: None,
            is_new: false,
        })
    }

    /// The field.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// True if their column is of their own type.
    pub(super) fn stay_whole(&self) -> bool {
        self.stay_whole
    }

    /// True if they can't be `t_ns`: the field stays as it is.
    pub(super) fn are_unknown(&self) -> bool {
        self.are_unknown
    }

    /// Their meaning.
    pub(super) fn form(&self) -> Form {
        self.form.unwrap_or(self.usual)
    }

    /// A line about them that is new, to be told once.
    pub fn take_note(&mut self) -> Option<String> {
        std::mem::take(&mut self.is_new).then(|| match (&self.doubt, self.taken.last()) {
            (Some(doubt), _) => doubt.clone(),
            (None, last) => {
                let form = last.map_or(self.usual, |(form, _)| *form);
                format!("`{T_NS}` from `{}`, {}", self.name, form.words())
            }
        })
    }

    /// A line about them, if they were not in all clouds what is usual.
    pub fn unusual(&self) -> Option<String> {
        let is_usual = self.taken.iter().all(|(form, _)| *form == self.usual);
        let is_one = self.taken.len() == 1;
        let words = |(form, clouds): &(Form, u64)| match is_one {
            true => form.words(),
            false => format!("{} in {clouds} clouds", form.words()),
        };
        let forms: Vec<String> = self.taken.iter().map(words).collect();
        let forms = (!is_usual).then(|| format!("`{T_NS}` from `{}`, {}", self.name, forms.join(", ")));
        let all: Vec<String> = forms.into_iter().chain(self.doubt.clone()).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Finds out from the times of a cloud of `points` points what they mean.
    pub(super) fn look(&mut self, times: impl Iterator<Item = Number>, points: usize, stamp_ns: i64) {
        if self.are_unknown || points == 0 {
            return;
        }
        if !self.is_settled() {
            let some = times.step_by(points.div_ceil(LOOKED_AT)).map(Number::as_f64);
            let mut times = std::mem::take(&mut self.looked_at);
            times.clear();
            times.extend(some.filter(|time| time.is_finite()));
            // 0 stands for a point without a return, too.
            if times.iter().any(|time| *time != 0.0) {
                self.find(&times, stamp_ns);
            }
            self.looked_at = times;
        }
        let Some(form) = self.form else { return };
        match self.taken.iter_mut().find(|(taken, _)| *taken == form) {
            Some((_, clouds)) => *clouds += 1,
            None => {
                self.taken.push((form, 1));
                (self.is_new, self.doubt) = (true, None);
            }
        }
    }

    fn find(&mut self, times: &[f64], stamp_ns: i64) {
        let of_sweep = self.of_sweep(times, stamp_ns);
        if let Some(form) = of_sweep {
            let sweeps = if self.form == of_sweep { self.sweeps } else { 0 };
            // In the first seconds of a clock, times since the stamp and those of the clock look alike.
            self.sweeps = sweeps + u32::from(stamp_ns.unsigned_abs() as f64 > 2.0 * REACH_NS);
            self.form = Some(form);
        }
        self.form = self.form.or_else(|| self.of_short(times, stamp_ns));
        if self.form.is_none() {
            self.are_unknown = !self.stay_whole;
            self.tell_doubt(times, stamp_ns);
        }
    }

    /// Looks at the `t_ns` of a cloud, which is to be told if few of them are near the stamp.
    pub(super) fn check(&mut self, t_ns: &[f64], times: impl Iterator<Item = Number>, stamp_ns: i64) {
        let near = t_ns.iter().filter(|ns| ns.is_finite()).count();
        if self.doubt.is_some() || 2 * near >= t_ns.len() {
            return;
        }
        let times = times.map(Number::as_f64);
        let times: Vec<f64> = times.filter(|time| time.is_finite() && *time != 0.0).collect();
        if 2 * near < times.len() {
            self.tell_doubt(&times, stamp_ns);
        }
    }

    /// The error for those who need `t_ns` where there is none.
    pub(super) fn missing(&self) -> SelectError {
        SelectError::value(&self.name, "of no form that the time of a point has", allowed())
    }

    /// True if they need not be looked at any more. The usual form is taken as soon as a sweep shows it. Other forms are looked at for longer: the few points of a cloud that
    /// is cut to a region may seem to be a sweep in another unit.
    fn is_settled(&self) -> bool {
        match self.form {
            Some(form) if form == self.usual => self.sweeps > 0,
            _ => self.sweeps >= SWEEPS,
        }
    }

    /// The form in which a cloud lasts as long as a sweep: the usual one, if it can be.
    fn of_sweep(&self, times: &[f64], stamp_ns: i64) -> Option<Form> {
        let fits = |form: Form, lasts: &Range<f64>| {
            let near = self.near(form, times, stamp_ns);
            near.is_some_and(|[first, last]| lasts.contains(&(last - first)))
        };
        if fits(self.usual, &USUAL_NS) {
            return Some(self.usual);
        }
        self.forms().find(|form| fits(*form, &SWEEP_NS))
    }

    /// The form of times that don't last as long as a sweep: what is usual, if that is near the stamp, else the first unit in which
    /// they are near it, or the one in which they are nearest by its clock.
    fn of_short(&self, times: &[f64], stamp_ns: i64) -> Option<Form> {
        let reach = |form: Form| {
            let near = self.near(form, times, stamp_ns);
            near.map(|[first, last]| first.abs().max(last.abs()))
        };
        if reach(self.usual).is_some() {
            return Some(self.usual);
        }
        let [by_stamp, by_clock] = [Since::Stamp, Since::Epoch].map(|since| {
            let forms = self.forms().filter(move |form| form.since == since);
            forms.filter_map(|form| Some((form, reach(form)?)))
        });
        let nearest = by_clock.min_by(|(_, left), (_, right)| left.total_cmp(right));
        let mut by_stamp = by_stamp.into_iter();
        let found = match self.usual.since {
            Since::Stamp => by_stamp.next().or(nearest),
            // A small number is near the stamp in every smaller unit.
            Since::Epoch => nearest.or_else(|| by_stamp.find(|(form, _)| form.unit_ns == self.usual.unit_ns)),
        };
        found.map(|(form, _)| form)
    }

    /// The forms that there are for them, those that count as the usual one first.
    fn forms(&self) -> impl Iterator<Item = Form> + use<> {
        let (since, stay_whole) = (self.usual.since, self.stay_whole);
        let units = |since| UNITS.into_iter().map(move |(unit_ns, _)| Form { unit_ns, since });
        units(since).chain(units(since.other()).filter(move |_| !stay_whole))
    }

    /// The first and the last of those times, ns, that are near the stamp in a form, if most are.
    fn near(&self, form: Form, times: &[f64], stamp_ns: i64) -> Option<[f64; 2]> {
        let (mut extent, mut near) = ([f64::INFINITY, f64::NEG_INFINITY], 0);
        let is_there = |time: &&f64| form.since == Since::Stamp || **time != 0.0;
        let times = || times.iter().filter(is_there);
        for &time in times() {
            let ns = form.ns(Number::Float(time), stamp_ns);
            if ns.abs() <= REACH_NS {
                extent = [extent[0].min(ns), extent[1].max(ns)];
                near += 1;
            }
        }
        (near > 0 && near as f64 >= SHARE * times().count() as f64).then_some(extent)
    }

    fn tell_doubt(&mut self, times: &[f64], stamp_ns: i64) {
        let first = times.iter().copied().fold(f64::INFINITY, f64::min);
        let last = times.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (name, allowed) = (&self.name, allowed());
        let came = format!("{first} to {last} in a cloud of the stamp {stamp_ns} ns");
        let what = if self.stay_whole { "a doubtful" } else { "without" };
        if self.doubt.is_none() {
            self.doubt = Some(format!("{what} `{T_NS}`: `{name}` is {came} (allowed: {allowed})"));
            self.is_new = true;
        }
    }
}

impl Since {
    fn other(self) -> Self {
        match self {
            Self::Stamp => Self::Epoch,
            Self::Epoch => Self::Stamp,
        }
    }
}

fn allowed() -> String {
    format!(
        "s, ms, us or ns, since the stamp or by its clock, less than {} s from it",
        REACH_NS / 1e9
    )
}

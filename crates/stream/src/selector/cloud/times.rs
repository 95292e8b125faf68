//! The times of a cloud's points as `t_ns`, whatever form their lidar sends them in.

use super::T_NS;
use crate::selector::SelectError;
use crate::selector::stamp::S;
use robocache_device::Dtype;

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

/// The time that a sweep lasts, ns.
const SWEEP_NS: std::ops::Range<f64> = 1e6..1e9;

/// A point is no further from the stamp of its cloud, ns: that may be of the sweep's start or its end, or of when it came.
const REACH_NS: f64 = 2e9;

/// Sweeps that a form that is not the usual one of its name has to hold for.
const SWEEPS: u32 = 16;

/// What a time counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    /// The stamp of the cloud.
    Stamp,
    /// What the stamp itself counts from.
    Epoch,
}

/// What the times of a field mean.
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
    is_float: bool,
    form: Option<Form>,
    /// Sweeps that were of this form.
    sweeps: u32,
    /// The form that was told of.
    told: Option<Form>,
    /// What was found out last, and whether it is new.
    words: String,
    is_new: bool,
    /// True if it was told that the times fit no form, or lie elsewhere than the stamp.
    is_doubted: bool,
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

    /// How far these times are from the stamp at most, ns.
    fn reach(self, [first, last]: [f64; 2], stamp_ns: i64) -> f64 {
        let ns = |time| self.ns(Number::Float(time), stamp_ns).abs();
        ns(first).max(ns(last))
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
        let is_float = match dtype {
            Dtype::Float32 | Dtype::Float64 => true,
            Dtype::Int32 | Dtype::UInt32 | Dtype::Int64 | Dtype::UInt64 => false,
            _ => return None,
        };
        let (_, since) = NAMES.into_iter().find(|(known, _)| *known == name)?;
        let unit_ns = if is_float && !name.ends_with("_ns") { S } else { 1 };
        Some(Self {
            name: name.to_owned(),
            usual: Form { unit_ns, since },
            is_float,
            form: None,
            sweeps: 0,
            told: None,
            words: String::new(),
            is_new: false,
            is_doubted: false,
        })
    }

    /// The field.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What its times mean. `None`: nothing that could be `t_ns`.
    pub(super) fn form(&self) -> Option<Form> {
        self.form
    }

    /// True if they are whole ns since the stamp, as `t_ns` is.
    pub(super) fn are_t_ns(&self) -> bool {
        let t_ns = Form {
            unit_ns: 1,
            since: Since::Stamp,
        };
        self.form == Some(t_ns) && !self.is_float
    }

    /// What was found out, to be told once.
    pub fn take_note(&mut self) -> Option<String> {
        std::mem::take(&mut self.is_new).then(|| self.words.clone())
    }

    /// What was found out, if it is not what is usual.
    pub fn unusual(&self) -> Option<String> {
        (self.is_doubted || self.told.is_some_and(|form| form != self.usual)).then(|| self.words.clone())
    }

    /// Finds out from the times of a cloud what they mean.
    pub(super) fn look(&mut self, times: impl Iterator<Item = Number>, stamp_ns: i64) {
        if self.is_settled() {
            return;
        }
        let [all, without_0] = extents(times.map(Number::as_f64));
        let Some(all) = all else {
            // Nothing speaks against what is usual.
            self.form.get_or_insert(self.usual);
            return;
        };
        let of_sweep = self.of_sweep(all, without_0, stamp_ns);
        if let Some(form) = of_sweep {
            let sweeps = if self.form == of_sweep { self.sweeps } else { 0 };
            // In the first seconds of a clock, times since the stamp and those of the clock look alike.
            self.sweeps = sweeps + u32::from(stamp_ns.unsigned_abs() as f64 > 2.0 * REACH_NS);
            self.form = Some(form);
        }
        self.form = self.form.or_else(|| self.of_short(all, without_0, stamp_ns));
        if self.form.is_none() {
            self.tell_doubt(all, stamp_ns);
        }
        if let Some(form) = self.form.filter(|_| self.told != self.form) {
            self.words = format!("`{T_NS}` from `{}`, {}", self.name, form.words());
            (self.told, self.is_new, self.is_doubted) = (self.form, true, false);
        }
    }

    /// Looks at the `t_ns` of a cloud, which is to be told if none of them is near the stamp.
    pub(super) fn check(&mut self, t_ns: &[f64], times: impl Iterator<Item = Number>, stamp_ns: i64) {
        if self.is_doubted || t_ns.iter().any(|ns| ns.is_finite()) {
            return;
        }
        let [all, _] = extents(times.map(Number::as_f64));
        if let Some(all) = all {
            self.tell_doubt(all, stamp_ns);
        }
    }

    /// The error for those who need `t_ns` where there is none.
    pub(super) fn missing(&self) -> SelectError {
        SelectError::value(&self.name, "of no form that the time of a point has", allowed())
    }

    /// What is usual is taken as soon as a sweep shows it. Other forms are looked at for longer: the few points of a cloud that
    /// is cut to a region may seem to be a sweep in another unit.
    fn is_settled(&self) -> bool {
        match self.form {
            Some(form) if form == self.usual => self.sweeps > 0,
            _ => self.sweeps >= SWEEPS,
        }
    }

    /// The form in which a cloud lasts as long as a sweep: one unit at most. Where times may count from the stamp or from what
    /// that counts from, as they may in its first seconds, it is what is usual, unless it is twice as far from the stamp.
    fn of_sweep(&self, all: [f64; 2], without_0: Option<[f64; 2]>, stamp_ns: i64) -> Option<Form> {
        let found = |since| {
            let times = match since {
                Since::Stamp => all,
                Since::Epoch => without_0?,
            };
            let lasts = |unit_ns: i64| (times[1] - times[0]) * unit_ns as f64;
            let (unit_ns, _) = UNITS
                .into_iter()
                .find(|(unit_ns, _)| SWEEP_NS.contains(&lasts(*unit_ns)))?;
            let form = Form { unit_ns, since };
            let reach = form.reach(times, stamp_ns);
            (reach <= REACH_NS).then_some((form, reach))
        };
        match (found(self.usual.since), found(self.usual.since.other())) {
            (Some((_, usual)), Some((other, reach))) if 2.0 * reach < usual => Some(other),
            (usual, other) => usual.or(other).map(|(form, _)| form),
        }
    }

    /// The form of times that don't last as long as a sweep: what is usual, if that is near the stamp, else the unit in which they
    /// are nearest to it.
    fn of_short(&self, all: [f64; 2], without_0: Option<[f64; 2]>, stamp_ns: i64) -> Option<Form> {
        let is_near = |form: &Form| form.reach(all, stamp_ns) <= REACH_NS;
        if is_near(&self.usual) {
            return Some(self.usual);
        }
        let times = without_0?;
        let epoch = UNITS.map(|(unit_ns, _)| Form {
            unit_ns,
            since: Since::Epoch,
        });
        let of_epoch = epoch.into_iter().map(|form| (form, form.reach(times, stamp_ns)));
        let nearest = of_epoch.min_by(|(_, left), (_, right)| left.total_cmp(right))?;
        (nearest.1 <= REACH_NS).then_some(nearest.0)
    }

    fn tell_doubt(&mut self, [first, last]: [f64; 2], stamp_ns: i64) {
        if !self.is_doubted {
            let (name, allowed) = (&self.name, allowed());
            let came = format!("{first} to {last} in a cloud of the stamp {stamp_ns} ns");
            self.words = format!("without `{T_NS}`: `{name}` is {came} (allowed: {allowed})");
            (self.is_new, self.is_doubted) = (true, true);
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

/// The first and the last of the finite ones, of all and of those that are not 0.
fn extents(times: impl Iterator<Item = f64>) -> [Option<[f64; 2]>; 2] {
    let (mut extent, mut has_0) = ([f64::INFINITY, f64::NEG_INFINITY], false);
    for time in times.filter(|time| time.is_finite()) {
        match time {
            0.0 => has_0 = true,
            time => extent = [extent[0].min(time), extent[1].max(time)],
        }
    }
    let without_0 = (extent[0] <= extent[1]).then_some(extent);
    let all = match without_0 {
        Some([first, last]) if has_0 => Some([first.min(0.0), last.max(0.0)]),
        None if has_0 => Some([0.0; 2]),
        other => other,
    };
    [all, without_0]
}

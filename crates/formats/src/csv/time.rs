//! Parsing of timestamps to int64 nanoseconds, without floats. No digit is rounded: only digits below a nanosecond are cut off.

use chrono::{NaiveDate, NaiveDateTime};
use robocache_stream::TimeUnit;

/// Usual names of the timestamp column, in the order in which they are looked for.
const NAMES: [&str; 12] = [
    super::TIMESTAMP,
    "timestamp",
    "time",
    "stamp",
    "t",
    "__time",
    "%time",
    "header.stamp",
    "datetime",
    "unix",
    "seconds",
    "sec",
];

/// Lists the time units with `s` last: the names of the other units, such as `ms`, also end with `s`.
fn units() -> impl Iterator<Item = TimeUnit> {
    TimeUnit::ALL.into_iter().rev()
}

/// Returns the index of the timestamp column, which is found by its name; `None` if no column has a usual name.
pub(super) fn column(names: &[String]) -> Option<usize> {
    let is = |name: &str, wanted: &str| {
        let name = plain(name).to_lowercase();
        let name = name.split(['[', '(']).next().unwrap_or_default().trim();
        let before = units().find_map(|unit| name.strip_suffix(unit.name())?.strip_suffix('_'));
        before.unwrap_or(name) == wanted
    };
    let found = |wanted: &&str| names.iter().position(|name| name == wanted || is(name, wanted));
    NAMES.iter().find_map(found)
}

/// Strips spaces from a column name, and the `#` with which a line of names may begin.
pub(super) fn plain(name: &str) -> &str {
    name.trim_start_matches('#').trim()
}

/// Returns the unit that a column's name ends with, as in `time_ms` or `timestamp [ns]`; `None` if the name ends without
/// a unit.
pub(super) fn unit_of_name(name: &str) -> Option<TimeUnit> {
    let name = name.to_lowercase();
    let said = |unit: &TimeUnit| {
        let unit = unit.name();
        let forms = [format!("_{unit}"), format!("[{unit}]"), format!("({unit})")];
        forms.iter().any(|form| name.ends_with(form.as_str()))
    };
    units().find(said)
}

/// Guesses the unit of a timestamp since 1970 from its number of digits, for times from 1973 to 2286. Any other number with a
/// decimal point counts as seconds. Returns `None` for any other integer.
pub(super) fn unit_of_size(text: &str) -> Option<TimeUnit> {
    let whole = match text.contains(['e', 'E']) {
        // NumPy writes large numbers with an exponent.
        true => text.parse::<f64>().map_or(String::new(), |time| format!("{time:.0}")),
        false => text.split('.').next().unwrap_or_default().to_owned(),
    };
    match whole.trim_start_matches(['-', '+', '0']).len() {
        9 | 10 => Some(TimeUnit::Second),
        12 | 13 => Some(TimeUnit::Millisecond),
        15 | 16 => Some(TimeUnit::Microsecond),
        18 | 19 => Some(TimeUnit::Nanosecond),
        // Times that begin at 0: only seconds have a point.
        _ if text.contains('.') => Some(TimeUnit::Second),
        _ => None,
    }
}

/// Returns the reason to doubt `unit`, which was guessed from the number of digits; `None` if it is plausible. Reasons are an
/// unlikely year, and rows that are too far apart in time. Timestamps that count from another start than 1970 can give a
/// wrong guess.
pub(super) fn doubt(times: &[String], unit: TimeUnit) -> Option<String> {
    const YEAR_S: i64 = 31_556_952;
    let mut times: Vec<i64> = times.iter().filter_map(|time| parse(time, unit)).collect();
    let first_ns = *times.first()?;
    times.sort_unstable();
    let steps = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
    let mut steps: Vec<i64> = steps.filter(|&step_ns| step_ns > 0).collect();
    steps.sort_unstable();
    let step_s = steps.get(steps.len() / 2).map_or(0.0, |&step_ns| step_ns as f64 / 1e9);
    let (word, year) = (unit.name(), 1970 + first_ns / 1_000_000_000 / YEAR_S);
    let years = if step_s >= 1.0 { 2010..2050 } else { 2000..2100 };
    if year == 1970 {
        // Seconds with a point, counted from a start.
        return (step_s >= 10.0).then(|| format!("in {word} its rows are {step_s} s apart"));
    }
    let is_far = step_s > if unit == TimeUnit::Second { 300.0 } else { 60.0 };
    (is_far || !years.contains(&year)).then(|| match is_far {
        true => format!("in {word} since 1970 its rows are {step_s} s apart"),
        false => format!("in {word} since 1970 it is of the year {year}"),
    })
}

/// Parses a decimal number in `unit` to ns; digits below a nanosecond are cut off. Returns `None` if the text is not a number,
/// or is beyond int64.
pub(super) fn parse(text: &str, unit: TimeUnit) -> Option<i64> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        None => (text, 0),
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
    };
    let (is_negative, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let unit_digits = unit.ns().ilog10() as i32;
    // Number of digits before the point, once the number is in ns.
    let kept = (whole.len() as i32).checked_add(exponent)?.checked_add(unit_digits)?;
    let mut ns = 0i128;
    let mut digits = whole.bytes().chain(fraction.bytes());
    if !digits.clone().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    if kept > 64 {
        return digits.all(|digit| digit == b'0').then_some(0);
    }
    for _ in 0..kept.max(0) {
        let digit = digits.next().map_or(0, |digit| i128::from(digit - b'0'));
        ns = ns.checked_mul(10)?.checked_add(digit)?;
    }
    i64::try_from(if is_negative { -ns } else { ns }).ok()
}

/// Parses an ISO 8601 time to ns since 1970. Also returns true if it has a time zone; without a zone it counts as UTC. Returns
/// `None` if the text is not such a time.
///
/// A space may separate date and time, a comma may replace the decimal point, and the time of day may be absent.
pub(super) fn iso(text: &str) -> Option<(i64, bool)> {
    let (digits, rest) = text.split_at_checked(10)?;
    let date = NaiveDate::parse_from_str(digits, "%Y-%m-%d").ok()?;
    // chrono takes dates with signs, with spaces, and with other numbers of digits.
    if date.to_string() != digits {
        return None;
    }
    let rest = rest.trim_start_matches(['T', 't', ' ']);
    let (time, zone) = match rest.find(['Z', 'z', '+', '-', 'U']) {
        Some(at) => (rest[..at].trim_end(), Some(&rest[at..])),
        None => (rest, None),
    };
    let east_s = match zone {
        None | Some("Z" | "z" | "UTC") => 0,
        Some(zone) => east_s(zone)?,
    };
    let local = if time.is_empty() {
        date.and_hms_opt(0, 0, 0)?
    } else {
        let whole = format!("{date}T{}", time.replace(',', "."));
        let forms = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M"].into_iter();
        let mut read = forms.filter_map(|form| NaiveDateTime::parse_from_str(&whole, form).ok());
        read.next()?
    };
    let ns = local.and_utc().timestamp_nanos_opt()?;
    Some((ns.checked_sub(east_s * 1_000_000_000)?, zone.is_some()))
}

/// Parses an offset from UTC, such as `+01:00`, `-0330` or `+01`, to seconds, positive to the east; `None` if the text is not
/// an offset.
fn east_s(zone: &str) -> Option<i64> {
    let (sign, digits) = match zone.as_bytes().first()? {
        b'+' => (1, &zone[1..]),
        b'-' => (-1, &zone[1..]),
        _ => return None,
    };
    let (hours, minutes) = match digits.split_once(':') {
        Some(parts) => parts,
        None if digits.len() == 4 => digits.split_at_checked(2)?,
        None => (digits, "00"),
    };
    let part = |text: &str, most: i64| {
        let is_plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<i64>().ok().filter(|&value| is_plain && value <= most)
    };
    Some(sign * (part(hours, 23)? * 3600 + part(minutes, 59)? * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iso_8601() {
        const SECOND: i64 = 1_700_000_000_000_000_000;
        let cases = [
            ("2023-11-14T22:13:20Z", Some((SECOND, true))),
            ("2023-11-14 22:13:20", Some((SECOND, false))),
            (
                "2023-11-14T22:13:20.123456789+00:00",
                Some((SECOND + 123_456_789, true)),
            ),
            ("2023-11-14T23:13:20,5+01:00", Some((SECOND + 500_000_000, true))),
            ("2023-11-14t17:43:20-0430", Some((SECOND, true))),
            ("2023-11-15T01:13:20 +03", Some((SECOND, true))),
            ("2023-11-14 22:13:20 UTC", Some((SECOND, true))),
            ("2023-11-14 22:13", Some((SECOND - 20_000_000_000, false))),
            ("1970-01-01", Some((0, false))),
            ("1969-12-31T23:59:59.9999999999Z", Some((-1, true))),
            ("2016-12-31T23:59:60Z", Some((1_483_228_800_000_000_000, true))),
            ("2262-04-12T00:00:00Z", None),
            ("2023-02-29T00:00:00Z", None),
            ("2023-11-14T25:00:00Z", None),
            ("2023-11-14T22:13:20+1", None),
            ("2023-11-14T22:13:20Europe/Berlin", None),
            ("20231114", None),
            ("1700000000-12", None),
            ("", None),
            ("2023-11-1é", None),
        ];
        for (text, wanted) in cases {
            assert_eq!(iso(text), wanted, "{text}");
        }
    }

    #[test]
    fn no_digit_is_lost() {
        let cases = [
            (
                "1700000000123456789",
                TimeUnit::Nanosecond,
                Some(1_700_000_000_123_456_789),
            ),
            (
                "1700000000.123456789",
                TimeUnit::Second,
                Some(1_700_000_000_123_456_789),
            ),
            (
                "1700000000123.456789",
                TimeUnit::Millisecond,
                Some(1_700_000_000_123_456_789),
            ),
            (
                "1.700000000123456789e9",
                TimeUnit::Second,
                Some(1_700_000_000_123_456_789),
            ),
            (
                "1700000000123456789e-9",
                TimeUnit::Second,
                Some(1_700_000_000_123_456_789),
            ),
            ("0.0000000019", TimeUnit::Second, Some(1)),
            ("-.5", TimeUnit::Microsecond, Some(-500)),
            ("+5.", TimeUnit::Nanosecond, Some(5)),
            ("9223372036854775807", TimeUnit::Nanosecond, Some(i64::MAX)),
            ("9223372036854775808", TimeUnit::Nanosecond, None),
            ("1e30", TimeUnit::Second, None),
            ("0e99999", TimeUnit::Second, Some(0)),
            ("1e99999999999", TimeUnit::Second, None),
            ("1e-99999", TimeUnit::Second, Some(0)),
            ("", TimeUnit::Second, None),
            (".", TimeUnit::Second, None),
            ("1,5", TimeUnit::Second, None),
            ("nan", TimeUnit::Second, None),
        ];
        for (text, unit, ns) in cases {
            assert_eq!(parse(text, unit), ns, "{text}");
        }
    }

    #[test]
    fn names_and_sizes_tell_the_unit() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(column(&names(&["x", "#timestamp [ns]"])), Some(1));
        assert_eq!(column(&names(&["Time_ms", crate::csv::TIMESTAMP])), Some(1));
        assert_eq!(column(&names(&["x", "y"])), None);
        let cases = [
            ("#timestamp [ns]", Some("ns")),
            ("Time_ms", Some("ms")),
            ("t (s)", Some("s")),
            ("wheels", None),
            ("time", None),
        ];
        for (name, unit) in cases {
            assert_eq!(unit_of_name(name).map(TimeUnit::name), unit, "{name}");
        }
        let cases = [
            ("1700000000", Some("s")),
            ("1700000000.5", Some("s")),
            ("1700000000123", Some("ms")),
            ("1403636579758555392", Some("ns")),
            ("0.5", Some("s")),
            ("1.700000000123456789e+18", Some("ns")),
            ("1.7e9", Some("s")),
            ("1.25e-1", Some("s")),
            ("12", None),
        ];
        for (text, unit) in cases {
            assert_eq!(unit_of_size(text).map(TimeUnit::name), unit, "{text}");
        }
        let doubt = |first: i64, step: i64, unit| {
            let times: Vec<String> = (0..20).map(|i| (first + i * step).to_string()).collect();
            doubt(&times, unit).unwrap_or_default()
        };
        // Times since 1970, up to a minute apart.
        assert_eq!(doubt(1_700_000_000, 60, TimeUnit::Second), "");
        assert_eq!(doubt(1_700_000_000_000, 10, TimeUnit::Millisecond), "");
        assert_eq!(doubt(1_403_636_579_758_555_392, 5_000_000, TimeUnit::Nanosecond), "");
        // Times since a start, in another unit.
        let words = "in s since 1970 its rows are 10000000 s apart";
        assert_eq!(doubt(1_700_000_000, 10_000_000, TimeUnit::Second), words);
        assert!(doubt(1_700_000_000_000, 10_000_000, TimeUnit::Millisecond).contains("its rows are 10000 s apart"));
        assert_eq!(
            doubt(5_000_000_000_000, 10, TimeUnit::Millisecond),
            "in ms since 1970 it is of the year 2128"
        );
        assert_eq!(
            doubt(1_000_000_000_000_000, 10_000_000, TimeUnit::Microsecond),
            "in us since 1970 it is of the year 2001"
        );
        // A number with a point.
        assert_eq!(
            super::doubt(&["0.0".to_owned(), "0.02".to_owned()], TimeUnit::Second),
            None
        );
        let words = "in s its rows are 10 s apart";
        assert_eq!(
            super::doubt(&["0.0".to_owned(), "10.0".to_owned()], TimeUnit::Second).as_deref(),
            Some(words)
        );
    }
}

//! Times as text, to whole nanoseconds, without a float in between.

use crate::stream::TimeUnit;

/// Names of the column of times, where nobody says which it is, in the order in which they are looked for.
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

/// The column of times among these, by its name.
pub(super) fn column(names: &[String]) -> Option<usize> {
    let plain = |name: &str| {
        let name = name.trim_start_matches('#').trim().to_lowercase();
        let name = name.split(['[', '(']).next().unwrap_or_default().trim().to_owned();
        let suffix = ["_ns", "_us", "_ms", "_s"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix));
        suffix.map_or(name.clone(), str::to_owned)
    };
    let found = |wanted: &&str| names.iter().position(|name| name == wanted || plain(name) == **wanted);
    NAMES.iter().find_map(found)
}

/// The unit that the name of a column says: `time_ms`, `timestamp [ns]`.
pub(super) fn unit_of_name(name: &str) -> Option<TimeUnit> {
    let name = name.to_lowercase();
    let units = [
        ("ns", TimeUnit::Nanosecond),
        ("us", TimeUnit::Microsecond),
        ("ms", TimeUnit::Millisecond),
        ("s", TimeUnit::Second),
    ];
    let said = |unit: &str| {
        let forms = [format!("_{unit}"), format!("[{unit}]"), format!("({unit})")];
        forms.iter().any(|form| name.ends_with(form.as_str()))
    };
    units.into_iter().find(|(unit, _)| said(unit)).map(|(_, unit)| unit)
}

/// The unit of a time since 1970 of this size, for times from 1973 to 2286. `None` where it may be any.
pub(super) fn unit_of_size(text: &str) -> Option<TimeUnit> {
    let digits = text
        .split(['.', 'e', 'E'])
        .next()
        .unwrap_or_default()
        .trim_start_matches(['-', '+', '0'])
        .len();
    match digits {
        9 | 10 => Some(TimeUnit::Second),
        12 | 13 => Some(TimeUnit::Millisecond),
        15 | 16 => Some(TimeUnit::Microsecond),
        18 | 19 => Some(TimeUnit::Nanosecond),
        // Times that begin at 0: only seconds have a point.
        _ if text.contains('.') => Some(TimeUnit::Second),
        _ => None,
    }
}

/// What a unit is called.
pub(super) fn word(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}

/// A decimal number of a unit in ns; what is less than a nanosecond is cut off. `None`: it is none, or beyond int64.
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
    // Digits that stand before the point once it is in ns.
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

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(column(&names(&["Time_ms", crate::formats::csv::TIMESTAMP])), Some(1));
        assert_eq!(column(&names(&["x", "y"])), None);
        let cases = [
            ("#timestamp [ns]", Some("ns")),
            ("Time_ms", Some("ms")),
            ("t (s)", Some("s")),
            ("wheels", None),
            ("time", None),
        ];
        for (name, unit) in cases {
            assert_eq!(unit_of_name(name).map(word), unit, "{name}");
        }
        let cases = [
            ("1700000000", Some("s")),
            ("1700000000.5", Some("s")),
            ("1700000000123", Some("ms")),
            ("1403636579758555392", Some("ns")),
            ("0.5", Some("s")),
            ("12", None),
        ];
        for (text, unit) in cases {
            assert_eq!(unit_of_size(text).map(word), unit, "{text}");
        }
    }
}

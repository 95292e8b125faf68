//! Finds the name that a misspelt name may stand for. A name that differs too much is never offered.

/// One slip (a wrong, missing, extra or swapped letter) is allowed for this number of letters of the longer of two names. With more
/// slips, one name is not offered for the other, unless one begins with the other.
const LETTERS_PER_SLIP: usize = 3;

/// Returns `, did you mean ...?` if one of `names` resembles `given`, else an empty text. Errors append it to the misspelt name.
pub fn did_you_mean(given: &str, names: &[impl AsRef<str>]) -> String {
    match closest(given, names) {
        Some(name) => format!(", did you mean `{name}`?"),
        None => String::new(),
    }
}

/// Joins names with commas; `none` if there are no names.
pub fn listed(names: &[impl AsRef<str>]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", "),
    }
}

/// Finds the name that is most like `given`. A few letters differ, or one of the two begins with the other, as if a unit such as
/// `_ms` were left out. Returns `None` if no name is alike.
fn closest<'a>(given: &str, names: &'a [impl AsRef<str>]) -> Option<&'a str> {
    let normalized = |name: &str| name.to_lowercase().replace(['-', ' '], "_");
    let given = normalized(given);
    let slips = |name: &&str| {
        let name = normalized(name);
        let is_longer = given.len() >= LETTERS_PER_SLIP && (name.starts_with(&given) || given.starts_with(&name));
        match strsim::osa_distance(&given, &name) {
            slips if slips <= given.len().max(name.len()) / LETTERS_PER_SLIP => Some(slips),
            slips if is_longer => Some(slips),
            _ => None,
        }
    };
    let likely = names.iter().map(AsRef::as_ref).filter(|name| !name.is_empty());
    let likely = likely.filter_map(|name| Some((slips(&name)?, name)));
    likely.min_by_key(|(slips, _)| *slips).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_much_like_it_is_offered() {
        let keys = [
            "rate_hz",
            "window",
            "max_wait_ms",
            "modalities",
            "max_age_ms",
            "latency_ms",
        ];
        for (given, expected) in [
            ("max_wait", Some("max_wait_ms")),
            ("windwo", Some("window")),
            ("Rate-Hz", Some("rate_hz")),
            ("modality", Some("modalities")),
            ("latency", Some("latency_ms")),
            ("latency_s", Some("latency_ms")),
            ("max_wiat_ms", Some("max_wait_ms")),
            ("stride", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(closest(given, &keys), expected, "{given}");
        }
        assert_eq!(did_you_mean("camrea", &["camera", "force"]), ", did you mean `camera`?");
        assert_eq!(did_you_mean("lidar", &["camera", "force"]), "");
    }
}

//! Finds the name that a misspelt name may stand for.

/// Number of letters, in the longer of two names, for which a single slip is allowed. Names with more slips are different.
const LETTERS_PER_SLIP: usize = 3;

/// Returns `, did you mean ...?` if one of `names` resembles `came`, else an empty text. Errors append it to the misspelt name.
pub fn did_you_mean(came: &str, names: &[impl AsRef<str>]) -> String {
    match closest(came, names) {
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

/// Finds the name that is most like `came`: a few letters differ, or either is the beginning of the other, as without a unit.
fn closest<'a>(came: &str, names: &'a [impl AsRef<str>]) -> Option<&'a str> {
    let plain = |name: &str| name.to_lowercase().replace(['-', ' '], "_");
    let came = plain(came);
    let slips = |name: &&str| {
        let name = plain(name);
        let is_longer = came.len() >= LETTERS_PER_SLIP && (name.starts_with(&came) || came.starts_with(&name));
        match strsim::osa_distance(&came, &name) {
            slips if slips <= came.len().max(name.len()) / LETTERS_PER_SLIP => Some(slips),
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
        for (came, expected) in [
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
            assert_eq!(closest(came, &keys), expected, "{came}");
        }
        assert_eq!(did_you_mean("camrea", &["camera", "force"]), ", did you mean `camera`?");
        assert_eq!(did_you_mean("lidar", &["camera", "force"]), "");
    }
}

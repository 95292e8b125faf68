//! Finds the name that a misspelt one may stand for.

/// Names that are as far apart as this, for each letter of the longer one, are different ones: a third.
const LETTERS_PER_SLIP: usize = 3;

/// `, did you mean ...?` if one of these names is much like what came; else nothing. It stands in an error behind
/// what came.
pub fn did_you_mean(came: &str, names: &[impl AsRef<str>]) -> String {
    match closest(came, names) {
        Some(name) => format!(", did you mean `{name}`?"),
        None => String::new(),
    }
}

/// Names with commas between them, `none` where there is none.
pub fn listed(names: &[impl AsRef<str>]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", "),
    }
}

/// The name that is most like what came: a few letters differ, or it is what came and a unit.
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

use std::fmt::Display;
use std::time::{Duration, Instant};

/// A log line of one kind comes at most this often.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// Counts what goes wrong, by place, and logs it at a limited rate.
#[derive(Default)]
pub(super) struct Faults {
    places: Vec<Place>,
}

struct Place {
    name: String,
    count: u64,
    unsaid: u64,
    last_said: Option<Instant>,
}

impl Faults {
    /// A place to count at, such as "fuse: input `force`".
    pub fn add_place(&mut self, name: String) -> usize {
        self.places.push(Place {
            name,
            count: 0,
            unsaid: 0,
            last_said: None,
        });
        self.places.len() - 1
    }

    /// Counts `times` faults at a place. The message is made only where it is logged.
    pub fn count(&mut self, place: usize, times: u64, message: impl Display) {
        let place = &mut self.places[place];
        place.count += times;
        place.unsaid += times;
        let now = Instant::now();
        if place.last_said.is_none_or(|last| now.duration_since(last) >= LOG_EVERY) {
            place.last_said = Some(now);
            tracing::warn!(
                "{}: {message} ({} since the last line, {} in all)",
                place.name,
                place.unsaid,
                place.count
            );
            place.unsaid = 0;
        }
    }

    /// Every place with what was counted there.
    pub fn counts(&self) -> impl Iterator<Item = (&str, u64)> {
        self.places.iter().map(|place| (place.name.as_str(), place.count))
    }

    /// Logs the counts of the run.
    pub fn summarize(&self) {
        for place in self.places.iter().filter(|place| place.count > 0) {
            tracing::info!("{}: {} in all", place.name, place.count);
        }
    }
}

//! Counts of the observations that became frames of a dataset, and of those that were left out, with the report on them.

use robocache::formats::lerobot::Written;
use std::collections::BTreeMap;

#[derive(Default)]
pub struct Counts {
    pub observations: u64,
    pub frames: u64,
    /// Number of observations that did not become frames.
    pub left_out: u64,
    /// Number of observations in which a modality or a feature was not valid, by the name of the modality or feature.
    pub invalid: BTreeMap<String, u64>,
    /// Number of frames in which the last valid value replaces a value that was not valid, by `on_invalid: hold`.
    pub held: u64,
    /// Number of frames in which a value that was not valid was filled in, by `on_invalid: fill`.
    pub filled: u64,
    /// Number of steps between frames of an episode that are longer than one and a half periods.
    pub holes: u64,
    /// Number of messages that begin an episode and arrived after later frames had been written.
    pub late_begins: u64,
    pub without_task: bool,
    /// Median rate of the targets, Hz; `None` if the configuration gives the rate.
    pub measured_hz: Option<f64>,
}

impl Counts {
    /// Formats the counts as remarks, one line each. `is_grid` is true if frames are on a time grid, false if they are at the
    /// samples of a stream.
    pub fn notes(&self, written: &Written, fps: Option<u32>, is_grid: bool) -> Vec<String> {
        let Written { episodes, frames, .. } = written;
        let (tasks, observations) = (written.tasks.len(), self.observations);
        let at = fps.map_or(String::new(), |fps| format!(" at {fps} fps"));
        let mut notes = vec![format!(
            "{frames} frames in {episodes} episodes{at}, {tasks} tasks, of {observations} observations"
        )];
        let invalid = self.invalid.iter().map(|(name, count)| format!("`{name}` in {count}"));
        let invalid = invalid.collect::<Vec<_>>().join(", ");
        let behind = format!("not valid were {invalid}");
        for (count, what, more) in [
            (self.left_out, "observations left out", behind.as_str()),
            (self.held, "frames with a value that is held", &behind),
            (self.filled, "frames with a value that is filled in", &behind),
            (
                self.holes,
                "steps within episodes are longer than 1 / fps",
                "`timestamp` does not show it",
            ),
            (
                self.late_begins,
                "beginnings of episodes came after later frames were written",
                "these frames stay in the previous episode",
            ),
        ] {
            if count > 0 {
                notes.push(format!("{count} {what}: {more}"));
            }
        }
        if let (Some(fps), Some(rate_hz)) = (fps, self.measured_hz) {
            notes.push(format!(
                "`fps` is {fps}, as the samples that are targets come {rate_hz:.2} times a second: `fps:` in the section `lerobot:` sets another rate"
            ));
        }
        if !is_grid {
            notes.push("frames are where samples are: `timestamp` is frame_index / fps all the same".to_owned());
        }
        if self.without_task {
            notes.push(
                "frames without a task, whose text is empty: `task:` or `tasks:` of the section `lerobot:` says it"
                    .to_owned(),
            );
        }
        notes
    }
}

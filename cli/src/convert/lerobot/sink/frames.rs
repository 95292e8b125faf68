//! Frames from observations: decides which observations become frames and where an episode ends, and writes the bytes of each
//! feature. A value that is not valid is written only as `on_invalid` says.

use super::{PreviousFrame, Sink};
use crate::convert::lerobot::config::OnInvalid;
use crate::convert::lerobot::observed::Observation;
use crate::convert::lerobot::plan::Plan;
use crate::convert::lerobot::settings::longest;
use crate::convert::lerobot::stream::{FeatureContent, FoundSamples};

impl Sink {
    /// Writes an observation as a frame of the dataset, or leaves it out if it has invalid values that `on_invalid` refuses.
    /// `fps` is the dataset's number of frames a second.
    pub(super) fn frame(&mut self, observation: &Observation, fps: u32) -> eyre::Result<()> {
        self.counts.observations += 1;
        let target_ns = observation.target_ns;
        let found: Vec<FoundSamples> = self.streams.iter().map(|stream| stream.find(target_ns)).collect();
        let begun = self.begun.partition_point(|&time_ns| time_ns <= target_ns);
        let begins = self.last.as_ref().is_none_or(|last| {
            let step = target_ns.saturating_sub(last.target_ns);
            observation.epoch != last.epoch || begun != last.begun || step > self.gap_ns || step <= 0
        });
        let modalities = self.fuse.modalities.len();
        let is_used = |part: usize| {
            self.plan.iter().any(|plan| match plan {
                Plan::Modalities(used) => used.contains(&part),
                Plan::Stream(stream) => part == modalities + stream,
            })
        };
        let parts = modalities + self.streams.len();
        let is_valid = |part: usize| match part.checked_sub(modalities) {
            None => observation.valid[part],
            Some(stream) => found[stream].is_valid,
        };
        let invalid: Vec<usize> = (0..parts).filter(|&part| is_used(part) && !is_valid(part)).collect();
        for &part in &invalid {
            let name = self.part_name(part).to_owned();
            *self.counts.invalid.entry(name).or_default() += 1;
        }
        let held = |part: usize| !begins && self.last.as_ref().is_some_and(|last| last.held[part].is_some());
        let is_kept = match self.config.on_invalid {
            OnInvalid::Refuse => invalid.is_empty(),
            OnInvalid::Hold => invalid.iter().all(|&part| held(part)),
            OnInvalid::Fill => self.streams.iter().all(|stream| stream.feature().is_some()),
        };
        if !is_kept {
            self.counts.left_out += 1;
            return Ok(());
        }
        self.open(fps)?;
        let step_ns = longest(self.grid_ns.unwrap_or(1_000_000_000 / i64::from(fps)));
        self.episode(observation, begins, begun, step_ns)?;
        if !invalid.is_empty() {
            match self.config.on_invalid {
                OnInvalid::Hold => self.counts.held += 1,
                _ => self.counts.filled += 1,
            }
        }
        for (stream, found) in self.streams.iter_mut().zip(&found) {
            stream.note_frame(found, self.counts.frames);
        }
        self.write(observation, &found, &invalid)?;
        self.counts.frames += 1;
        Ok(())
    }

    /// Ends the previous episode if `begins` is true. Otherwise counts a hole in the episode if the time since the previous
    /// frame is longer than `step_ns`.
    fn episode(&mut self, observation: &Observation, begins: bool, begun: usize, step_ns: i64) -> eyre::Result<()> {
        let Some(writer) = &mut self.writer else {
            return Ok(());
        };
        if begins {
            writer.end_episode()?;
        }
        let parts = self.fuse.modalities.len() + self.streams.len();
        match &mut self.last {
            Some(last) if !begins => {
                let step = observation.target_ns - last.target_ns;
                self.counts.holes += u64::from(step > step_ns);
                last.target_ns = observation.target_ns;
            }
            last => {
                *last = Some(PreviousFrame {
                    target_ns: observation.target_ns,
                    epoch: observation.epoch,
                    begun,
                    held: (0..parts).map(|_| None).collect(),
                });
            }
        }
        Ok(())
    }

    fn write(&mut self, observation: &Observation, found: &[FoundSamples], invalid: &[usize]) -> eyre::Result<()> {
        let (Some(writer), Some(last)) = (&mut self.writer, &mut self.last) else {
            return Ok(());
        };
        let modalities = self.fuse.modalities.len();
        let holds = self.config.on_invalid == OnInvalid::Hold;
        let mut values = |part: usize, out: &mut Vec<u8>| {
            let begin = out.len();
            if holds && invalid.contains(&part) {
                let (bytes, times) = last.held[part].clone().unwrap_or_default();
                out.extend_from_slice(&bytes);
                return times;
            }
            let times = match part.checked_sub(modalities) {
                None => {
                    out.extend_from_slice(observation.of(part));
                    Vec::new()
                }
                Some(stream) => {
                    self.streams[stream].write(&found[stream], out);
                    match self.streams[stream].content {
                        FeatureContent::Window(_) => self.streams[stream].times(&found[stream]).collect(),
                        _ => Vec::new(),
                    }
                }
            };
            if holds {
                last.held[part] = Some((out[begin..].to_vec(), times.clone()));
            }
            times
        };
        let mut feature = 0;
        let mut windows = Vec::new();
        for plan in &self.plan {
            self.bytes.clear();
            match plan {
                Plan::Modalities(parts) => {
                    for &part in parts {
                        values(part, &mut self.bytes);
                    }
                }
                Plan::Stream(stream) => {
                    let times = values(modalities + stream, &mut self.bytes);
                    if !times.is_empty() {
                        windows.push(times);
                    }
                }
            }
            writer.set_bytes(feature, &self.bytes)?;
            feature += 1;
        }
        if self.config.truth {
            let ages = observation
                .age_ns
                .iter()
                .map(|&age_ns| Some(age_ns).filter(|&age_ns| age_ns >= 0));
            let of_streams = found
                .iter()
                .map(|found| found.time_ns.map(|time_ns| observation.target_ns - time_ns));
            let ages: Vec<Option<i64>> = ages.chain(of_streams).collect();
            let valid: Vec<u8> = observation
                .valid
                .iter()
                .copied()
                .chain(found.iter().map(|found| found.is_valid))
                .map(u8::from)
                .collect();
            let age_ns = ages.iter().map(|age_ns| age_ns.unwrap_or(-1)).collect();
            let capture_ns = ages
                .iter()
                .map(|age_ns| age_ns.map_or(-1, |age_ns| observation.target_ns - age_ns))
                .collect();
            let integers = [vec![observation.target_ns], age_ns, capture_ns, vec![observation.epoch]]
                .into_iter()
                .chain(windows);
            writer.set_bytes(feature, &valid)?;
            for (i, list) in integers.enumerate() {
                let bytes: Vec<u8> = list.iter().flat_map(|number| number.to_le_bytes()).collect();
                writer.set_bytes(feature + 1 + i, &bytes)?;
            }
        }
        let known = self
            .tasks
            .partition_point(|(time_ns, _)| *time_ns <= observation.target_ns);
        let task = known
            .checked_sub(1)
            .map(|i| self.tasks[i].1.as_str())
            .or(self.config.task.as_deref());
        self.counts.without_task |= task.is_none();
        writer.end_frame(task.unwrap_or_default())?;
        Ok(())
    }
}

//! Warnings about values that are allowed, but look as if they were given in the wrong unit. They are never errors, since such
//! a value may be meant.

use super::findings::SectionFindings;
use crate::output::{bytes, figure};
use robocache::ops::align::{AlignConfig, TriggerConfig};
use robocache::ops::clock::ClockConfig;
use robocache::ops::group::GroupingConfig;
use robocache::ops::map::MapConfig;
use robocache::ops::voxelize::{Extrinsic, VoxelizeConfig};

/// Smallest and largest plausible value of a setting, in ms unless the name of the constant ends with another unit.
type Plausible = (f64, f64);

const HOUR_MS: f64 = 3_600_000.0;
/// Plausible range of `max_wait_ms`, ms.
const WAIT: Plausible = (1.0, 60_000.0);
/// Plausible times between a sample and its target, and between two samples, ms.
const AGE: Plausible = (0.1, HOUR_MS);
/// Plausible range of `latency_ms`, `extrapolate_ms` and `reorder_ms`, ms.
const LATENCY: Plausible = (0.05, 10_000.0);
/// Plausible range of `jump_ms` and `reset_ms`, the steps of the stamps above which a clock counts as having jumped, ms.
const JUMP: Plausible = (1.0, 24.0 * HOUR_MS);
/// Plausible range of `window_s` and `lock_s` for the estimate of a clock, here in ms.
const CLOCK: Plausible = (100.0, HOUR_MS);

/// Greatest plausible time that the rows of an observation span, s.
const SPAN_S: f64 = 600.0;
/// Plausible rates of the time grid of observations, Hz.
const RATE_HZ: Plausible = (0.01, 10_000.0);
/// Greatest plausible data rate of an output, bytes a second.
pub const MANY_BYTES: f64 = 1e9;
/// Plausible edges of a voxel, metres.
const VOXEL_M: Plausible = (0.001, 10.0);
/// Greatest plausible distance of a sensor from the origin of its robot, metres.
const MOUNTED_M: f64 = 100.0;
/// Least plausible focal length, pixels.
const MIN_FOCAL_PX: f32 = 10.0;

/// Describes the problem with a duration that is not plausible; `None` if it is plausible, or 0. `unit` is `ms` or `s`. The sign is
/// ignored.
pub fn implausible(value: f64, unit: &str, (least, most): Plausible) -> Option<String> {
    let in_ms = if unit == "s" { 1e3 } else { 1.0 };
    let ms = value.abs() * in_ms;
    if ms == 0.0 || (least..=most).contains(&ms) {
        return None;
    }
    // The unit that may have been meant, and its size in `unit`.
    let others: &[(&str, f64)] = match (unit, ms < least) {
        ("s", true) => &[],
        ("s", false) => &[("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)],
        (_, true) => &[("s", 1e3)],
        (_, false) => &[("us", 1e-3), ("ns", 1e-6)],
    };
    let mut meant = others.iter().map(|(other, factor)| (other, value * factor));
    let meant = meant.find(|(_, meant)| (least..=most).contains(&(meant.abs() * in_ms)));
    let meant = meant.map_or_else(String::new, |(other, meant)| {
        format!(", and {value} {other} would be {} {unit}", without_rounding(meant))
    });
    let [least, most] = [least / in_ms, most / in_ms].map(without_rounding);
    let long = if !(1.0..1000.0).contains(&ms) {
        format!(", {}", span(ms))
    } else {
        String::new()
    };
    Some(format!(
        "{value} {unit}{long}{meant} (plausible: {least} to {most} {unit})"
    ))
}

/// Formats a number with at most six decimals, without digits that come from rounding.
fn without_rounding(value: f64) -> String {
    ((value * 1e6).round() / 1e6).to_string()
}

/// Formats a duration in the usual unit for its length.
fn span(ms: f64) -> String {
    let (value, unit) = match ms {
        ..1.0 => (ms * 1e3, "us"),
        ..1e3 => (ms, "ms"),
        ..120e3 => (ms / 1e3, "s"),
        ..7.2e6 => (ms / 60e3, "minutes"),
        ..172.8e6 => (ms / HOUR_MS, "hours"),
        _ => (ms / (24.0 * HOUR_MS), "days"),
    };
    format!("{} {unit}", figure(value))
}

impl SectionFindings<'_> {
    /// Warns if `value` is not a plausible duration for `key`. It is in seconds if the key ends with `_s`, else in ms.
    fn duration(&mut self, key: &str, value: Option<f64>, plausible: Plausible) {
        let unit = if key.ends_with("_s") { "s" } else { "ms" };
        if let Some(problem) = value.and_then(|value| implausible(value, unit, plausible)) {
            self.warn(key, problem);
        }
    }

    pub fn units_of_observations(&mut self, config: &AlignConfig) {
        self.duration("max_wait_ms", config.max_wait_ms, WAIT);
        if let Some(TriggerConfig::Stream { min_interval_ms, .. }) = &config.trigger {
            self.duration("trigger.min_interval_ms", Some(*min_interval_ms), AGE);
        }
        for (m, modality) in config.modalities.iter().enumerate() {
            let at = |key: &str| format!("modalities[{m}].{key}");
            self.duration(&at("latency_ms"), Some(modality.latency_ms), LATENCY);
            self.duration(&at("max_age_ms"), modality.max_age_ms, AGE);
            self.duration(&at("max_gap_ms"), modality.max_gap_ms, AGE);
            self.duration(&at("extrapolate_ms"), modality.extrapolate_ms, LATENCY);
            self.duration(&at("min_period_ms"), modality.min_period_ms, AGE);
            self.duration(&at("reorder_ms"), Some(modality.reorder_ms), LATENCY);
            self.duration(&at("reset_ms"), modality.reset_ms, JUMP);
            self.duration(&at("jump_ms"), modality.jump_ms, JUMP);
            for (g, group) in modality.groups.iter().enumerate() {
                let at = |key: &str| format!("modalities[{m}].groups[{g}].{key}");
                self.duration(&at("max_age_ms"), group.max_age_ms, AGE);
                self.duration(&at("max_gap_ms"), group.max_gap_ms, AGE);
                self.duration(&at("extrapolate_ms"), group.extrapolate_ms, LATENCY);
            }
        }
        for (a, attach) in config.attach.iter().enumerate() {
            let at = |key: &str| format!("attach[{a}].{key}");
            self.duration(&at("latency_ms"), Some(attach.latency_ms), LATENCY);
            self.duration(&at("max_age_ms"), attach.max_age_ms, AGE);
            self.duration(&at("min_period_ms"), attach.min_period_ms, AGE);
            self.duration(&at("reorder_ms"), Some(attach.reorder_ms), LATENCY);
            self.duration(&at("reset_ms"), attach.reset_ms, JUMP);
            self.duration(&at("jump_ms"), attach.jump_ms, JUMP);
        }
        self.size(config);
    }

    /// Warns of observations with a rate, a span or a size that is not plausible.
    fn size(&mut self, config: &AlignConfig) {
        let (least, most) = RATE_HZ;
        if !(least..=most).contains(&config.rate_hz) {
            let step = span(1e3 / config.rate_hz);
            let problem = format!(
                "{} Hz is a step of {step} (plausible: {least} to {most} Hz)",
                config.rate_hz
            );
            self.warn("rate_hz", problem);
        }
        let span_s = (config.window - 1) as f64 * config.stride as f64 / config.rate_hz;
        if config.trigger.is_none() && span_s > SPAN_S {
            let rows = format!(
                "{} rows, {} steps apart, at {} Hz",
                config.window, config.stride, config.rate_hz
            );
            let problem = format!("{rows} are {} (plausible: up to {SPAN_S} s)", span(span_s * 1e3));
            self.warn("window", problem);
        }
        let size = (config.window * config.columns() * config.dtype.size()) as u64;
        let each_second = size as f64 * config.rate_hz / config.emit_every as f64;
        if config.trigger.is_none() && each_second > MANY_BYTES {
            let problem = format!(
                "an observation is {}, and {} a second are {} a second: `emit_every` sends fewer",
                bytes(size),
                figure(config.rate_hz / config.emit_every as f64),
                bytes(each_second as u64)
            );
            self.warn("window", problem);
        }
    }

    pub fn units_of_grids(&mut self, config: &VoxelizeConfig) {
        self.duration("max_wait_ms", config.max_wait_ms, WAIT);
        self.duration("reset_ms", Some(config.reset_ms), JUMP);
        self.voxel_size(&config.voxel_size_m.map(f64::from));
        for (i, cloud) in config.inputs.iter().enumerate() {
            self.duration(&format!("inputs[{i}].latency_ms"), Some(cloud.latency_ms), LATENCY);
            self.mounting(i, cloud.extrinsic.as_ref());
        }
    }

    pub fn units_of_maps(&mut self, config: &MapConfig) {
        self.duration("max_wait_ms", config.max_wait_ms, WAIT);
        self.duration("reset_ms", Some(config.reset_ms), JUMP);
        self.voxel_size(&[config.voxel_size_m]);
        for (i, input) in config.inputs.iter().enumerate() {
            self.duration(&format!("inputs[{i}].latency_ms"), Some(input.latency_ms), LATENCY);
            self.mounting(i, input.extrinsic.as_ref());
            let Some(camera) = &input.camera else { continue };
            let [least, most] = camera.depth_m;
            if f64::from(least) > MOUNTED_M {
                let problem = format!("[{least}, {most}] m: is it in millimetres? (plausible: up to {MOUNTED_M} m)");
                self.warn(&format!("inputs[{i}].camera.depth_m"), problem);
            }
            let size = [camera.width, camera.height];
            let is_outside = |axis: usize| !(0.0..size[axis] as f32).contains(&camera.principal_px[axis]);
            if is_outside(0) || is_outside(1) {
                let problem = format!(
                    "{:?} is outside of the image, {} x {} pixels (plausible: near its middle; are columns and rows swapped?)",
                    camera.principal_px, camera.width, camera.height
                );
                self.warn(&format!("inputs[{i}].camera.principal_px"), problem);
            }
            if camera.focal_px.iter().any(|focal| focal.abs() < MIN_FOCAL_PX) {
                let problem = format!(
                    "{:?} (plausible: {MIN_FOCAL_PX} or more; is it in parts of the image?)",
                    camera.focal_px
                );
                self.warn(&format!("inputs[{i}].camera.focal_px"), problem);
            }
        }
        for (name, pose) in &config.poses {
            let at = |key: &str| format!("poses.{name}.{key}");
            self.duration(&at("latency_ms"), Some(pose.latency_ms), LATENCY);
            self.duration(&at("max_gap_ms"), pose.max_gap_ms, AGE);
            self.duration(&at("extrapolate_ms"), Some(pose.extrapolate_ms), LATENCY);
            self.duration(&at("reset_ms"), Some(pose.reset_ms), JUMP);
        }
    }

    /// Warns of edges of voxels, metres, that are not plausible.
    fn voxel_size(&mut self, edges: &[f64]) {
        let (least, most) = VOXEL_M;
        if edges.iter().any(|edge| !(least..=most).contains(edge)) {
            let edges = match edges {
                [edge] => format!("{edge}"),
                _ => format!("{edges:?}"),
            };
            let problem = format!("{edges} m: is it in millimetres? (plausible: {least} to {most} m)");
            self.warn("voxel_size_m", problem);
        }
    }

    /// Warns of a pose of a sensor on its robot that is not plausible.
    fn mounting(&mut self, input: usize, extrinsic: Option<&Extrinsic>) {
        let Some(extrinsic) = extrinsic else { return };
        if extrinsic.translation_m.iter().any(|part| part.abs() > MOUNTED_M) {
            let problem = format!(
                "{:?} m: is it in millimetres? (plausible: up to {MOUNTED_M} m from the origin)",
                extrinsic.translation_m
            );
            self.warn(&format!("inputs[{input}].extrinsic.translation_m"), problem);
        }
        let norm = extrinsic
            .rotation_xyzw
            .iter()
            .map(|part| part * part)
            .sum::<f64>()
            .sqrt();
        if (norm - 1.0).abs() > 0.01 {
            let problem = format!(
                "{:?} has a length of {}: it is normalized, if that is what was meant (allowed: a unit quaternion, x y z w)",
                extrinsic.rotation_xyzw,
                figure(norm)
            );
            self.warn(&format!("inputs[{input}].extrinsic.rotation_xyzw"), problem);
        }
    }

    pub fn units_of_groups(&mut self, config: &GroupingConfig) {
        self.duration("max_span_ms", config.max_span_ms, AGE);
        for (i, input) in config.inputs.iter().enumerate() {
            let at = |key: &str| format!("inputs[{i}].{key}");
            self.duration(&at("latency_ms"), Some(input.latency_ms), LATENCY);
            self.duration(&at("min_period_ms"), input.min_period_ms, AGE);
            self.duration(&at("reset_ms"), Some(input.reset_ms), JUMP);
            self.duration(&at("jump_ms"), input.jump_ms, JUMP);
        }
    }

    pub fn units_of_clocks(&mut self, config: &ClockConfig) {
        for (i, input) in config.inputs.iter().enumerate() {
            let at = |key: &str| format!("inputs[{i}].{key}");
            self.duration(&at("latency_ms"), Some(input.latency_ms), LATENCY);
            self.duration(&at("window_s"), Some(input.window_s), CLOCK);
            self.duration(&at("lock_s"), Some(input.lock_s), CLOCK);
            self.duration(&at("reset_ms"), Some(input.reset_ms), JUMP);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_in_another_unit_is_named_with_what_is_plausible() {
        let words = |value, unit, plausible| implausible(value, unit, plausible);
        assert_eq!(words(100.0, "ms", WAIT), None);
        assert_eq!(words(0.0, "ms", WAIT), None);
        assert_eq!(words(-100.0, "ms", LATENCY), None);
        assert_eq!(
            words(0.2, "ms", WAIT).unwrap(),
            "0.2 ms, 200 us, and 0.2 s would be 200 ms (plausible: 1 to 60000 ms)"
        );
        assert_eq!(
            words(200_000_000.0, "ms", AGE).unwrap(),
            "200000000 ms, 2.31 days, and 200000000 us would be 200000 ms (plausible: 0.1 to 3600000 ms)"
        );
        assert_eq!(
            words(33_000_000.0, "ms", LATENCY).unwrap(),
            "33000000 ms, 9.17 hours, and 33000000 ns would be 33 ms (plausible: 0.05 to 10000 ms)"
        );
        assert_eq!(
            words(30_000.0, "s", CLOCK).unwrap(),
            "30000 s, 8.33 hours, and 30000 ms would be 30 s (plausible: 0.1 to 3600 s)"
        );
        assert_eq!(
            words(1e12, "ms", WAIT).unwrap(),
            "1000000000000 ms, 11574 days (plausible: 1 to 60000 ms)"
        );
    }
}

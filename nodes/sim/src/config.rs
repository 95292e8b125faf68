//! The section `sim:` of a config file: the sensors, and the errors of their clocks and networks.
//!
//! After [`SimConfig::validate`] no value can make a stamp overflow, or a stream's stamps go back.

use serde::{Deserialize, Deserializer};

/// Largest latency, latency jitter or clock offset that is allowed, ms.
pub const DELAY_MS_MAX: f64 = 60_000.0;
/// Longest duration of a run or a drop-out, and latest start of a drop-out, s.
pub const DURATION_S_MAX: f64 = 1e9;
/// Latest `start_ns` that is allowed, ns since 1970; it leaves room for every duration.
pub const START_NS_MAX: i64 = 4_000_000_000_000_000_000;

/// Error of a value in the section `sim:` that is not allowed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{key}: {value} is not allowed, expected {allowed}")]
pub struct ConfigError {
    /// Path of the refused key, which begins with `sim.`.
    pub key: String,
    /// The refused value, as text.
    pub value: String,
    /// The values that the key allows, as text with their unit.
    pub allowed: String,
}

/// The section `sim:`: the simulated robot's sensors, and the duration of the run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SimConfig {
    /// Seed of all random numbers. Two runs with the same seed and settings give the same messages.
    pub seed: u64,
    /// Duration of the run, in capture time, s. `null` means that it never ends.
    pub duration_s: Option<f64>,
    /// True time of the first sample, ns since 1970. `null` means the time at which the robot is switched on.
    pub start_ns: Option<i64>,
    /// True to publish in real time, false to publish as fast as consumers take the messages.
    pub real_time: bool,
    /// Settings of the sensors, each of which is a stream.
    pub streams: Streams,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            duration_s: None,
            start_ns: None,
            real_time: true,
            streams: Streams::default(),
        }
    }
}

/// The sensors, by output id. A stream that is absent has its defaults, and a stream that is `null` is off. An absent key of a
/// stream has that stream's default.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Streams {
    /// Camera features, 128 values. 30 Hz; stamped at read-out, 33 ms after the exposure.
    #[serde(deserialize_with = "camera")]
    pub camera: Option<StreamConfig>,
    /// Wrist force and torque, 6 values. 1 kHz.
    #[serde(deserialize_with = "force")]
    pub force: Option<StreamConfig>,
    /// Proprioception, 15 values. 500 Hz.
    #[serde(deserialize_with = "proprio")]
    pub proprio: Option<StreamConfig>,
    /// Point clouds. 10 Hz, published after the sweep's 100 ms.
    #[serde(deserialize_with = "lidar")]
    pub lidar: Option<StreamConfig>,
    /// Images of the depth camera, 120 x 160 values. 15 Hz.
    #[serde(deserialize_with = "depth")]
    pub depth: Option<StreamConfig>,
    /// Poses of the depth camera, 7 values. 100 Hz.
    #[serde(deserialize_with = "camera_pose")]
    pub camera_pose: Option<StreamConfig>,
}

impl Default for Streams {
    fn default() -> Self {
        Self {
            camera: Some(StreamConfig::camera()),
            force: Some(StreamConfig::force()),
            proprio: Some(StreamConfig::proprio()),
            lidar: Some(StreamConfig::lidar()),
            depth: Some(StreamConfig::depth()),
            camera_pose: Some(StreamConfig::camera_pose()),
        }
    }
}

/// Timing and loss of one sensor's samples.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamConfig {
    /// Samples per second, Hz; the period is `round(1e9 / rate_hz)` ns.
    pub rate_hz: f64,
    /// Sensor time minus true time, ms: positive if the sensor's clock is ahead.
    pub clock_offset_ms: f64,
    /// Standard deviation of the capture time about its nominal value, ms. No capture is further than three deviations from its
    /// nominal time. The deviation is less than a sixth of the period, so that stamps of a stream always increase.
    pub jitter_ms: f64,
    /// Time from the capture (of a sweep's first point) to the publication, without jitter, ms.
    pub latency_ms: f64,
    /// Standard deviation of the latency, ms. The latency is at most three deviations from `latency_ms`, and never below 0. If the
    /// deviation is at most the period, messages stay in order; otherwise they may overtake each other.
    pub latency_jitter_ms: f64,
    /// Probability with which each sample is lost, independently of the other samples, 0 to less than 1.
    pub drop_rate: f64,
    /// Intervals in which every sample is lost; none by default.
    pub dropouts: Vec<Dropout>,
}

/// An interval in which every sample is lost, by nominal capture time: `start_s <= t < start_s + duration_s`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dropout {
    /// Start of the interval, s after the robot's start.
    pub start_s: f64,
    /// Length of the interval, s.
    pub duration_s: f64,
}

impl StreamConfig {
    /// Makes the settings of a sensor at `rate_hz` with a perfect clock and no delay, which loses nothing.
    pub fn ideal(rate_hz: f64) -> Self {
        Self {
            rate_hz,
            clock_offset_ms: 0.0,
            jitter_ms: 0.0,
            latency_ms: 0.0,
            latency_jitter_ms: 0.0,
            drop_rate: 0.0,
            dropouts: Vec::new(),
        }
    }

    /// Defaults of the camera: 30 Hz, 45 ms latency, stamped 33 ms after the exposure, 1 % of the samples lost.
    pub fn camera() -> Self {
        Self {
            clock_offset_ms: 33.0,
            jitter_ms: 0.5,
            latency_ms: 45.0,
            latency_jitter_ms: 3.0,
            drop_rate: 0.01,
            ..Self::ideal(30.0)
        }
    }

    /// Defaults of the force sensor: 1 kHz, 1 ms latency, no losses.
    pub fn force() -> Self {
        Self {
            jitter_ms: 0.02,
            latency_ms: 1.0,
            latency_jitter_ms: 0.1,
            ..Self::ideal(1_000.0)
        }
    }

    /// Defaults of the arm's proprioception: 500 Hz, 1.5 ms latency, no losses.
    pub fn proprio() -> Self {
        Self {
            jitter_ms: 0.05,
            latency_ms: 1.5,
            latency_jitter_ms: 0.2,
            ..Self::ideal(500.0)
        }
    }

    /// Defaults of the lidar: 10 Hz, 105 ms latency from a sweep's first point, no losses.
    pub fn lidar() -> Self {
        Self {
            jitter_ms: 0.1,
            latency_ms: 105.0,
            latency_jitter_ms: 2.0,
            ..Self::ideal(10.0)
        }
    }

    /// Defaults of the depth camera: 15 Hz, 30 ms latency, no losses.
    pub fn depth() -> Self {
        Self {
            jitter_ms: 0.5,
            latency_ms: 30.0,
            latency_jitter_ms: 2.0,
            ..Self::ideal(15.0)
        }
    }

    /// Defaults of the depth camera's pose: 100 Hz, 2 ms latency, no losses.
    pub fn camera_pose() -> Self {
        Self {
            jitter_ms: 0.1,
            latency_ms: 2.0,
            latency_jitter_ms: 0.3,
            ..Self::ideal(100.0)
        }
    }

    /// Nominal time between samples, ns.
    pub fn period_ns(&self) -> i64 {
        (1e9 / self.rate_hz).round() as i64
    }
}

/// Keys of a stream as the configuration file has them. An absent key has the stream's own default.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamKeys {
    rate_hz: Option<f64>,
    clock_offset_ms: Option<f64>,
    jitter_ms: Option<f64>,
    latency_ms: Option<f64>,
    latency_jitter_ms: Option<f64>,
    drop_rate: Option<f64>,
    dropouts: Option<Vec<Dropout>>,
}

fn stream<'de, D: Deserializer<'de>>(from: D, default: StreamConfig) -> Result<Option<StreamConfig>, D::Error> {
    let keys = Option::<StreamKeys>::deserialize(from)?;
    Ok(keys.map(|keys| StreamConfig {
        rate_hz: keys.rate_hz.unwrap_or(default.rate_hz),
        clock_offset_ms: keys.clock_offset_ms.unwrap_or(default.clock_offset_ms),
        jitter_ms: keys.jitter_ms.unwrap_or(default.jitter_ms),
        latency_ms: keys.latency_ms.unwrap_or(default.latency_ms),
        latency_jitter_ms: keys.latency_jitter_ms.unwrap_or(default.latency_jitter_ms),
        drop_rate: keys.drop_rate.unwrap_or(default.drop_rate),
        dropouts: keys.dropouts.unwrap_or(default.dropouts),
    }))
}

fn camera<'de, D: Deserializer<'de>>(from: D) -> Result<Option<StreamConfig>, D::Error> {
    stream(from, StreamConfig::camera())
}

fn force<'de, D: Deserializer<'de>>(from: D) -> Result<Option<StreamConfig>, D::Error> {
    stream(from, StreamConfig::force())
}

fn proprio<'de, D: Deserializer<'de>>(from: D) -> Result<Option<StreamConfig>, D::Error> {
    stream(from, StreamConfig::proprio())
}

fn lidar<'de, D: Deserializer<'de>>(from: D) -> Result<Option<StreamConfig>, D::Error> {
    stream(from, StreamConfig::lidar())
}

fn depth<'de, D: Deserializer<'de>>(from: D) -> Result<Option<StreamConfig>, D::Error> {
    stream(from, StreamConfig::depth())
}

fn camera_pose<'de, D: Deserializer<'de>>(from: D) -> Result<Option<StreamConfig>, D::Error> {
    stream(from, StreamConfig::camera_pose())
}

impl SimConfig {
    /// Checks every value of the section.
    ///
    /// # Errors
    /// The first value that is not allowed, with its key and the allowed values.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if let Some(duration_s) = self.duration_s {
            above_zero("sim.duration_s", duration_s, DURATION_S_MAX, " s, or null")?;
        }
        if let Some(start_ns) = self.start_ns
            && !(0..=START_NS_MAX).contains(&start_ns)
        {
            return Err(refuse(
                "sim.start_ns",
                start_ns,
                format!("0 to {START_NS_MAX} ns, or null"),
            ));
        }
        let Streams {
            camera,
            force,
            proprio,
            lidar,
            depth,
            camera_pose,
        } = &self.streams;
        let streams = [
            ("camera", camera),
            ("force", force),
            ("proprio", proprio),
            ("lidar", lidar),
            ("depth", depth),
            ("camera_pose", camera_pose),
        ];
        if streams.iter().all(|(_, stream)| stream.is_none()) {
            return Err(refuse("sim.streams", "null for all of them", "at least one stream"));
        }
        for (name, stream) in streams {
            if let Some(stream) = stream {
                stream.validate(name)?;
            }
        }
        Ok(())
    }
}

impl StreamConfig {
    fn validate(&self, name: &str) -> Result<(), ConfigError> {
        let key = |key: &str| format!("sim.streams.{name}.{key}");
        // one sweep takes a tenth of a second
        let rate_max = if name == "lidar" { 10.0 } else { 10_000.0 };
        within(&key("rate_hz"), self.rate_hz, 0.001, rate_max, " Hz")?;
        within(
            &key("clock_offset_ms"),
            self.clock_offset_ms,
            -DELAY_MS_MAX,
            DELAY_MS_MAX,
            " ms",
        )?;
        let jitter_max = self.period_ns() as f64 / 1e6 / 6.0;
        if !(self.jitter_ms >= 0.0 && self.jitter_ms < jitter_max) {
            let allowed = format!("0 ms to less than a sixth of the period, here {jitter_max:.4} ms");
            return Err(refuse(&key("jitter_ms"), self.jitter_ms, allowed));
        }
        within(&key("latency_ms"), self.latency_ms, 0.0, DELAY_MS_MAX, " ms")?;
        within(
            &key("latency_jitter_ms"),
            self.latency_jitter_ms,
            0.0,
            DELAY_MS_MAX,
            " ms",
        )?;
        if !(0.0..1.0).contains(&self.drop_rate) {
            let allowed = "0 to less than 1 (null for the stream switches it off)";
            return Err(refuse(&key("drop_rate"), self.drop_rate, allowed));
        }
        for (i, dropout) in self.dropouts.iter().enumerate() {
            within(
                &key(&format!("dropouts[{i}].start_s")),
                dropout.start_s,
                0.0,
                DURATION_S_MAX,
                " s",
            )?;
            above_zero(
                &key(&format!("dropouts[{i}].duration_s")),
                dropout.duration_s,
                DURATION_S_MAX,
                " s",
            )?;
        }
        Ok(())
    }
}

fn within(key: &str, value: f64, min: f64, max: f64, unit: &str) -> Result<(), ConfigError> {
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(refuse(key, value, format!("{min} to {max}{unit}")))
    }
}

fn above_zero(key: &str, value: f64, max: f64, unit: &str) -> Result<(), ConfigError> {
    let ok = value > 0.0 && value <= max;
    if ok {
        Ok(())
    } else {
        Err(refuse(key, value, format!("more than 0, up to {max}{unit}")))
    }
}

fn refuse(key: &str, value: impl ToString, allowed: impl Into<String>) -> ConfigError {
    ConfigError {
        key: key.into(),
        value: value.to_string(),
        allowed: allowed.into(),
    }
}

#[cfg(test)]
mod tests;

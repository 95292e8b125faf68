//! Plan of a dataset from its configuration: the frame rate, and the sources of the features. LeRobot needs a whole number of
//! frames a second; a configuration with another rate is refused.

use super::by_chain::ChainConverter;
use super::config::{FeatureConfig, FeatureSource, LerobotConfig, latency_ns, to_ns};
use super::stream::{FeatureContent, FeatureStream};
use eyre::bail;
use robocache::app::{Config, did_you_mean};
use robocache::ops::align::{AlignConfig, TriggerConfig};

/// Greatest relative difference of a measured rate from a whole number: the rates of sensors are rarely exact.
const MEASURED_TOLERANCE: f64 = 0.02;

/// Source of a feature, as indices into the configuration.
pub enum Plan {
    /// Indices of the modalities of `fuse:` that make the feature, side by side.
    Modalities(Vec<usize>),
    /// Index in the list of streams that features read directly, not from observations.
    Stream(usize),
}

/// Returns the number of frames a second, and the period of the time grid, ns. If the samples of a stream are the targets, the
/// period is `None`, and so is the number of frames unless `fps` is configured.
pub fn rate(config: &LerobotConfig, fuse: &AlignConfig) -> eyre::Result<(Option<u32>, Option<i64>)> {
    let every = fuse.emit_every as f64;
    let (own, period_ns) = match &fuse.trigger {
        None => {
            let period_ns = (1e9 / fuse.rate_hz).round() * every;
            (Some(fuse.rate_hz / every), Some(period_ns as i64))
        }
        Some(TriggerConfig::Stream { .. }) => (None, None),
        Some(_) => bail!("fuse: trigger: no observation without somebody who asks (allowed: the grid, or a stream)"),
    };
    match (config.fps, own) {
        (Some(0), _) => bail!("lerobot: fps: 0 (allowed: 1 or more)"),
        (Some(fps), Some(own)) if (own / f64::from(fps) - 1.0).abs() > 0.01 => {
            bail!("lerobot: fps: {fps}, and there are {own} observations a second (allowed: as many)")
        }
        (Some(fps), _) => Ok((Some(fps), period_ns)),
        (None, Some(own)) if own >= 1.0 && (own - own.round()).abs() < 1e-9 => {
            Ok((Some(own.round() as u32), period_ns))
        }
        (None, Some(own)) => bail!(
            "fuse: {own} observations a second, and LeRobot has whole numbers (allowed: a `rate_hz` and `emit_every` that give one, or the \
             nearest as `fps` of `lerobot:`)"
        ),
        (None, None) => Ok((None, None)),
    }
}

/// Measures the frame rate from the targets of observations, ns, in the order of the observations. Returns the whole number
/// nearest to the median rate, and the median rate, Hz.
///
/// # Errors
/// A single target, or a rate that is far from a whole number.
pub fn measured_rate(targets_ns: &[i64]) -> eyre::Result<(u32, f64)> {
    let steps_ns = targets_ns.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
    // A clock that was set makes a step back.
    let mut steps_ns: Vec<i64> = steps_ns.filter(|&step_ns| step_ns > 0).collect();
    steps_ns.sort_unstable();
    let Some(&median_ns) = steps_ns.get(steps_ns.len() / 2) else {
        bail!("lerobot: fps: it is missing, and a single observation has no rate (needed: frames a second)");
    };
    let rate_hz = 1e9 / median_ns as f64;
    let fps = rate_hz.round();
    if fps < 1.0 || (rate_hz / fps - 1.0).abs() > MEASURED_TOLERANCE {
        bail!(
            "lerobot: fps: it is missing, and the samples that are targets come {rate_hz:.2} times a second (needed: the whole number \
             that `timestamp` is to go by)"
        );
    }
    Ok((fps as u32, rate_hz))
}

/// Lists the source of each feature, in the order of the features, and the streams that features read directly. Kinematic
/// chains are read from `file`.
pub fn plan(
    config: &LerobotConfig,
    fuse: &AlignConfig,
    file: &Config,
) -> eyre::Result<(Vec<Plan>, Vec<FeatureStream>)> {
    let (mut plan, mut streams) = (Vec::new(), Vec::new());
    for feature in &config.features {
        let (name, content) = match feature.origin()? {
            FeatureSource::Modalities(inputs) => {
                let known = || fuse.modalities.iter().map(|modality| modality.input.as_str());
                let at = inputs.iter().map(|input| {
                    known().position(|modality| modality == input).ok_or_else(|| {
                        let known: Vec<&str> = known().collect();
                        eyre::eyre!(
                            "lerobot: features: `{}`: no modality `{input}`{} (allowed: {})",
                            feature.name,
                            did_you_mean(input, &known),
                            known.join(", ")
                        )
                    })
                });
                let parts: Vec<usize> = at.collect::<eyre::Result<_>>()?;
                let dim = parts.iter().map(|&part| fuse.modalities[part].dim).sum::<usize>();
                if let Some(names) = feature.names.as_ref().filter(|names| names.len() != dim) {
                    bail!(
                        "lerobot: features: `{}`: names: {}, and it has {dim} values (allowed: as many)",
                        feature.name,
                        names.len()
                    );
                }
                plan.push(Plan::Modalities(parts));
                continue;
            }
            FeatureSource::Stream(stream) => (
                stream,
                FeatureContent::Numbers {
                    is_bool: feature.dtype.is_some(),
                },
            ),
            FeatureSource::Images(stream) => (stream, FeatureContent::Images),
            FeatureSource::Window(stream, samples) => (stream, FeatureContent::Window(samples)),
        };
        let mut stream = FeatureStream::new(&feature.name, name, content, feature.names.clone());
        stream.take = feature.take.unwrap_or_default();
        if let Some(ms) = feature.max_age_ms {
            stream.max_age_ns = to_ns("features: max_age_ms", ms)?;
        }
        let modality = fuse.modalities.iter().find(|modality| modality.input == name);
        let latency_ms = feature.latency_ms.or(modality.map(|modality| modality.latency_ms));
        stream.latency_ns = latency_ns(latency_ms.unwrap_or(0.0))?;
        stream.by_chain = by_chain(feature, file)?;
        plan.push(Plan::Stream(streams.len()));
        streams.push(stream);
    }
    Ok((plan, streams))
}

/// Creates the converter of a stream's samples by a kinematic chain of `file`; `None` if the feature has no conversion.
pub fn by_chain(feature: &FeatureConfig, file: &Config) -> eyre::Result<Option<ChainConverter>> {
    let Some((key, product, config)) = feature.by_chain()? else {
        return Ok(None);
    };
    let at = format!("features: `{}`: {key}", feature.name);
    let chain = file.chain("lerobot", &format!("{at}.chain"), &config.chain)?;
    let made = ChainConverter::new(product, &feature.name, config, &chain);
    Ok(Some(made.map_err(|error| eyre::eyre!("lerobot: {at}.{error}"))?))
}

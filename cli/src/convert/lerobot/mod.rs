//! Datasets of LeRobot, as input and output of `convert`. The output has features `robocache.*`, from which the input restores
//! stamps and validity.

mod by_chain;
mod config;
mod counts;
mod observed;
mod origin;
mod plan;
mod settings;
mod sink;
mod source;
mod stream;

pub use config::LerobotConfig;
pub use settings::Settings;
pub use sink::Sink;
pub use source::Source;

use crate::config::Selections;
use config::FeatureSource;
use robocache::app::Config;
use std::path::Path;

/// Lists the streams that a dataset reads directly, not from observations, each with its latency, ns. A stream whose feature
/// has no `latency_ms` gets the latency that `known` lists for it, else 0.
pub fn latencies(file: &Path, known: &[(String, i64)]) -> eyre::Result<Vec<(String, i64)>> {
    let config = Config::read(file)?.read_section::<LerobotConfig>("lerobot")?;
    let mut latencies = Vec::new();
    for feature in config.iter().flat_map(|config| &config.features) {
        let (FeatureSource::Stream(stream) | FeatureSource::Images(stream) | FeatureSource::Window(stream, _)) =
            feature.origin()?
        else {
            continue;
        };
        let own = feature.latency_ms.map(config::latency_ns).transpose()?;
        let of_modality = known
            .iter()
            .find(|(name, _)| name == stream)
            .map(|(_, latency)| *latency);
        latencies.push((stream.to_owned(), own.or(of_modality).unwrap_or(0)));
    }
    Ok(latencies)
}

/// Lists the streams whose joints or poses a feature converts, each with the selection of columns by which `kinematics:` would
/// read it.
pub fn selections(file: &Path) -> eyre::Result<Selections> {
    let of_file = Config::read(file)?;
    let config = of_file.read_section::<LerobotConfig>("lerobot")?;
    let mut selections = Selections::new();
    for feature in config.iter().flat_map(|config| &config.features) {
        if let (FeatureSource::Stream(stream) | FeatureSource::Window(stream, _), Some(by_chain)) =
            (feature.origin()?, plan::by_chain(feature, &of_file)?)
        {
            selections.push((stream.to_owned(), by_chain.selection().clone()));
        }
    }
    Ok(selections)
}

/// Lists the streams of a recording from which a dataset is made: inputs of observations, and streams that it reads directly.
/// Without a section `lerobot:` the list is empty.
///
/// # Errors
/// The refusals of [`Settings::read`].
pub fn streams_of(file: &Path) -> eyre::Result<Vec<String>> {
    if !Config::read(file)?.sections().any(|section| section == "lerobot") {
        return Ok(Vec::new());
    }
    let settings = Settings::read(file)?;
    let own = settings.config.streams().map(str::to_owned);
    let modalities = settings.fuse.modalities.iter().map(|modality| modality.input.as_str());
    let modalities: Vec<&str> = modalities.collect();
    // Outputs of operations before `fuse` need not be recorded.
    let external = settings.graph.external_inputs().map(|(input, _)| input);
    let observed = external.filter(|input| modalities.contains(input)).map(str::to_owned);
    let mut streams: Vec<String> = own.chain(observed).collect();
    streams.sort();
    streams.dedup();
    Ok(streams)
}

/// True if the path is the folder of a dataset of LeRobot: it has a file `meta/info.json`.
pub fn is_dataset(path: &Path) -> bool {
    path.join("meta/info.json").is_file()
}

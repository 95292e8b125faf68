//! Features of the dataset that is written, and the streams that they come from. They are fixed when the first frame
//! is written.

use super::Sink;
use crate::convert::lerobot::config::FeatureConfig;
use crate::convert::lerobot::origin;
use crate::convert::lerobot::plan::Plan;
use crate::convert::lerobot::stream::FeatureContent;
use eyre::OptionExt;
use robocache::formats::lerobot::{Dataset, Feature, Kind, Writer};
use robocache::prelude::Dtype;
use robocache::time::Interpolation;

impl Sink {
    /// Creates the writer of the dataset before the first frame; later calls do nothing.
    pub(super) fn open(&mut self, fps: u32) -> eyre::Result<()> {
        if self.writer.is_some() {
            return Ok(());
        }
        let mut features = Vec::new();
        for (plan, config) in self.plan.iter().zip(self.features()) {
            features.push(match plan {
                Plan::Stream(stream) => self.streams[*stream]
                    .feature()
                    .ok_or_eyre("a stream without a sample")?,
                Plan::Modalities(parts) => self.feature_of(parts, config),
            });
        }
        if self.config.truth {
            features.extend(self.truth());
        }
        let dataset = Dataset {
            version: self.version,
            fps,
            robot_type: self.config.robot_type.clone(),
            features,
        };
        self.writer = Some(Writer::create(&self.folder, dataset)?);
        Ok(())
    }

    fn features(&self) -> &[FeatureConfig] {
        &self.config.features
    }

    fn feature_of(&self, parts: &[usize], config: &FeatureConfig) -> Feature {
        let dim = parts.iter().map(|&part| self.fuse.modalities[part].dim).sum::<usize>();
        let names = config.names.clone().unwrap_or_else(|| {
            let of = parts.iter().map(|&part| {
                let input = &self.fuse.modalities[part].input;
                self.names.get(input).or(self.observed.names.get(input))
            });
            let known: Option<Vec<&Vec<String>>> = of.collect();
            let names: Vec<String> = known.into_iter().flatten().flatten().cloned().collect();
            if names.len() == dim { names } else { Vec::new() }
        });
        Feature::new(&config.name, Kind::Numbers(Dtype::Float32), [dim]).with_names(names)
    }

    /// Makes the features `robocache.*`, which hold the validity, the ages and the times of the other features' values.
    fn truth(&self) -> Vec<Feature> {
        let parts = self.fuse.modalities.len() + self.streams.len();
        let names: Vec<&str> = (0..parts).map(|part| self.part_name(part)).collect();
        let of = |name: &str, kind: Kind, shape: usize| Feature::new(name, kind, [shape]);
        let whole = Kind::Numbers(Dtype::Int64);
        let mut features = vec![
            of(origin::VALID, Kind::Bool, parts).with_names(names.clone()),
            of(origin::TARGET_NS, whole.clone(), 1),
            of(origin::AGE_NS, whole.clone(), parts).with_names(names.clone()),
            of(origin::CAPTURE_NS, whole.clone(), parts).with_names(names),
            of(origin::EPOCH, whole.clone(), 1),
        ];
        for stream in &self.streams {
            if let FeatureContent::Window(samples) = stream.content {
                features.push(Feature::new(
                    origin::times_of(&stream.feature),
                    whole.clone(),
                    [samples],
                ));
            }
        }
        features
    }

    /// Name of a part by its index, modalities first and then streams: the input of the modality, or the feature of the stream.
    pub(super) fn part_name(&self, part: usize) -> &str {
        match part.checked_sub(self.fuse.modalities.len()) {
            None => &self.fuse.modalities[part].input,
            Some(stream) => &self.streams[stream].feature,
        }
    }

    /// Lists the sources of the features, which are stored in the dataset.
    pub(super) fn origins(&self) -> origin::Origins {
        let of = |(plan, config): (&Plan, &FeatureConfig)| {
            let parts = match plan {
                Plan::Modalities(parts) => parts.clone(),
                Plan::Stream(stream) => vec![self.fuse.modalities.len() + stream],
            };
            origin::Origin {
                feature: config.name.clone(),
                streams: parts.into_iter().map(|part| self.origin_of(part)).collect(),
            }
        };
        origin::Origins {
            features: self.plan.iter().zip(self.features()).map(of).collect(),
        }
    }

    fn origin_of(&self, part: usize) -> origin::Part {
        match part.checked_sub(self.fuse.modalities.len()) {
            None => {
                let modality = &self.fuse.modalities[part];
                let is_previous =
                    |of: Option<Interpolation>| of.or(modality.interpolation) == Some(Interpolation::Previous);
                origin::Part {
                    stream: modality.input.clone(),
                    part,
                    dim: Some(modality.dim),
                    as_it_came: match modality.groups.as_slice() {
                        [] => is_previous(None),
                        groups => groups.iter().all(|group| is_previous(group.interpolation)),
                    },
                    take: None,
                    samples: None,
                }
            }
            Some(stream) => {
                let stream = &self.streams[stream];
                let samples = if let FeatureContent::Window(samples) = stream.content {
                    Some(samples)
                } else {
                    None
                };
                origin::Part {
                    stream: match &stream.by_chain {
                        None => stream.name.clone(),
                        Some(by_chain) => by_chain.name_of(&stream.name),
                    },
                    part,
                    dim: None,
                    as_it_came: true,
                    take: samples.is_none().then_some(stream.take),
                    samples,
                }
            }
        }
    }
}

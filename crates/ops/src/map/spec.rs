//! Checked configuration of a map, with lookups resolved and units converted. Code that uses it does not check again.

use super::camera::Pinhole;
use super::config::{Decay, EsdfSection, MapConfig, MapInput, MapProduct, Obstacles, OccupancySection, TsdfSection};
use super::distance::limit_of;
use super::frame::{DepthRange, DistanceAlong};
use super::mapper::layers;
use super::occupancy::OccupancyConfig;
use super::tsdf::TsdfConfig;
use super::volume::{Shape, check_voxel_size};
use crate::{ConfigError, check_from, duration_ns, refused};
use robocache_geometry::RigidTransform;
use robocache_time::ms_to_ns;
use robocache_yaml::{did_you_mean, listed};

/// Checked configuration of a map: see [`MapConfig`].
#[derive(Debug)]
pub(super) struct Spec {
    pub shape: Shape,
    pub voxel_size_m: f64,
    pub origin_m: [f64; 3],
    /// Index in `poses` of the pose that the map follows. `None`: the map does not move.
    pub follow: Option<usize>,
    /// Names of the moving coordinate frames, sorted. An index of a pose is an index in this list.
    pub poses: Vec<String>,
    pub inputs: Vec<InputSpec>,
    pub tsdf: Option<(TsdfConfig, Option<DecaySpec>)>,
    pub occupancy: Option<(OccupancyConfig, Option<DecaySpec>)>,
    pub esdf: Option<EsdfSpec>,
    pub products: Vec<MapProduct>,
    pub emit_every: u64,
    pub max_wait_ns: Option<i64>,
    pub reset_ns: i64,
}

#[derive(Debug)]
pub(super) struct InputSpec {
    pub latency_ns: i64,
    /// Index of the pose of the coordinate frame that the sensor is fixed to. `None`: the sensor is fixed in the world.
    pub pose: Option<usize>,
    pub extrinsic: RigidTransform<f64>,
    /// Camera, unit of uint16 depths, metres, and range of depths. `None`: the input has clouds.
    pub camera: Option<(Pinhole, f32, DepthRange)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct DecaySpec {
    pub period_ns: i64,
    /// Loss in each period: the argument of the volume's method `fade`.
    pub part: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct EsdfSpec {
    pub from: Obstacles,
    /// Greatest squared distance to an obstacle, in squared cell edges.
    pub limit: u32,
    /// Distance of the cells beyond `limit`, metres.
    pub max_m: f32,
    /// Least and greatest height of obstacles in the output `esdf_slice`, metres. `None`: every height.
    pub slice_m: Option<[f64; 2]>,
}

/// Scale of the decay of signed distances: a [`DecaySpec::part`] of 65,536 removes the whole weight.
const PARTS: f64 = 65_536.0;

impl Spec {
    pub(super) fn new(config: &MapConfig) -> Result<Self, ConfigError> {
        let shape = Shape::new(config.shape)?;
        check_voxel_size(config.voxel_size_m)?;
        for (i, (name, pose)) in config.poses.iter().enumerate() {
            pose.validate(&format!("poses.{name}"))?;
            if config.poses.values().take(i).any(|earlier| earlier.input == pose.input) {
                let problem = format!("`{}` is listed twice (allowed: each input once)", pose.input);
                return refused(format!("poses.{name}.input"), problem);
            }
        }
        let poses: Vec<String> = config.poses.keys().cloned().collect();
        let pose_of = |key: String, name: &Option<String>| match name {
            None => Ok(None),
            Some(name) => match poses.iter().position(|pose| pose == name) {
                Some(found) => Ok(Some(found)),
                None => {
                    let (hint, there) = (did_you_mean(name, &poses), listed(&poses));
                    refused(key, format!("`{name}` is not one of `poses:`{hint} (there: {there})"))
                }
            },
        };
        let follow = pose_of("follow".into(), &config.follow)?;
        if let (Some(_), Some(origin)) = (follow, config.origin_m) {
            return refused(
                "origin_m",
                format!("{origin:?} has no effect with `follow`, which places the map"),
            );
        }
        let origin_m = config.origin_m.unwrap_or_default();
        if !origin_m.iter().all(|metres| metres.abs() <= MAX_DISTANCE) {
            return refused("origin_m", format!("{origin_m:?} (allowed: +-{MAX_DISTANCE} m)"));
        }
        if config.inputs.is_empty() {
            return refused("inputs", "is empty (at least one input)");
        }
        let mut inputs = Vec::with_capacity(config.inputs.len());
        for (i, input) in config.inputs.iter().enumerate() {
            let at = format!("inputs[{i}]");
            let is_taken = config.inputs[..i].iter().any(|earlier| earlier.input == input.input)
                || config.poses.values().any(|pose| pose.input == input.input);
            if is_taken {
                return refused(
                    format!("{at}.input"),
                    format!("`{}` is listed twice (allowed: each input once)", input.input),
                );
            }
            let pose = pose_of(format!("{at}.pose"), &input.pose)?;
            inputs.push(InputSpec::new(&at, input, pose)?);
        }
        let is_used = |pose| follow == Some(pose) || inputs.iter().any(|input| input.pose == Some(pose));
        if let Some(unused) = (0..poses.len()).find(|&pose| !is_used(pose)) {
            let name = &poses[unused];
            return refused(
                format!("poses.{name}"),
                format!("nothing is fixed to it (needed: `pose: {name}` at an input, or `follow: {name}`)"),
            );
        }
        let tsdf = config.tsdf.as_ref().map(|section| tsdf(section, config)).transpose()?;
        let occupancy = config
            .occupancy
            .as_ref()
            .map(|section| occupancy(section, config.voxel_size_m))
            .transpose()?;
        if tsdf.is_none() && occupancy.is_none() {
            return refused(
                "tsdf",
                "is absent, and so is `occupancy` (needed: at least one of them)",
            );
        }
        if let Some(i) = inputs
            .iter()
            .position(|input| input.camera.is_none() && occupancy.is_none())
        {
            return refused(
                format!("inputs[{i}].camera"),
                "is absent, so the input is of clouds, of which `tsdf` has no use (needed: `camera` or `occupancy`)",
            );
        }
        let esdf = config.esdf.as_ref().map(|section| esdf(section, config)).transpose()?;
        check_products(config)?;
        if config.emit_every == 0 {
            return refused("emit_every", "0 is not allowed (at least 1)");
        }
        let max_wait_ns = config
            .max_wait_ms
            .map(|ms| duration_ns(|| "max_wait_ms".into(), ms))
            .transpose()?;
        Ok(Self {
            shape,
            voxel_size_m: config.voxel_size_m,
            origin_m,
            follow,
            poses,
            inputs,
            tsdf,
            occupancy,
            esdf,
            products: config.outputs.clone(),
            emit_every: config.emit_every as u64,
            max_wait_ns,
            reset_ns: duration_ns(|| "reset_ms".into(), config.reset_ms)?,
        })
    }
}

/// Greatest magnitude of the map's corner coordinates and of heights, metres.
const MAX_DISTANCE: f64 = 1e8;

impl InputSpec {
    fn new(at: &str, config: &MapInput, pose: Option<usize>) -> Result<Self, ConfigError> {
        let refused = |key: &str, problem: String| refused(format!("{at}.{key}"), problem);
        if config.input.is_empty() {
            return refused("input", "is empty (allowed: the id of an input)".into());
        }
        check_from(at, config.from.as_ref(), None)?;
        if config.from.is_some() && config.camera.is_some() {
            let problem = "is not supported with `camera` (allowed: depth images as flat arrays)";
            return refused("from", problem.into());
        }
        if !(-1e12..=1e12).contains(&config.latency_ms) {
            return refused(
                "latency_ms",
                format!("{} is not allowed (allowed: -1e12 to 1e12 ms)", config.latency_ms),
            );
        }
        let extrinsic = config.extrinsic.clone().unwrap_or_default();
        extrinsic.validate(at)?;
        let camera = match &config.camera {
            None => None,
            Some(section) => {
                let camera = Pinhole {
                    width: section.width,
                    height: section.height,
                    focal_px: section.focal_px,
                    principal_px: section.principal_px,
                };
                let of_camera =
                    |error: ConfigError| ConfigError::new(format!("{at}.camera.{}", error.key), error.problem);
                camera.validate().map_err(of_camera)?;
                if !(1e-6..=1.0).contains(&section.unit_m) {
                    let problem = format!("{} (allowed: 0.000001 to 1 m)", section.unit_m);
                    return refused("camera.unit_m", problem);
                }
                let [least, greatest] = section.depth_m;
                if !(least >= 0.0 && least < greatest && greatest <= 1e4) {
                    let allowed = "allowed: the least depth, 0 or more, and the greatest, up to 10000 m";
                    return refused("camera.depth_m", format!("[{least}, {greatest}] ({allowed})"));
                }
                let range = DepthRange {
                    min_m: least,
                    max_m: greatest,
                    min_cell_m: section.min_cell_m,
                };
                range.validate().map_err(of_camera)?;
                Some((camera, section.unit_m, range))
            }
        };
        Ok(Self {
            latency_ns: ms_to_ns(config.latency_ms),
            pose,
            extrinsic: extrinsic.transform(),
            camera,
        })
    }
}

fn tsdf(section: &TsdfSection, map: &MapConfig) -> Result<(TsdfConfig, Option<DecaySpec>), ConfigError> {
    if map.inputs.iter().all(|input| input.camera.is_none()) {
        return refused("tsdf", "has no depth images (needed: an input with `camera`)");
    }
    let config = TsdfConfig {
        truncation_m: section.truncation_m,
        distance: section.distance,
        weight: section.weight,
        max_weight: section.max_weight,
    };
    config
        .validate()
        .map_err(|error| ConfigError::new(format!("tsdf.{}", error.key), error.problem))?;
    check_half_cell("tsdf.truncation_m", section.truncation_m, map.voxel_size_m)?;
    Ok((config, decay("tsdf", section.decay, PARTS)?))
}

fn occupancy(
    section: &OccupancySection,
    voxel_size_m: f64,
) -> Result<(OccupancyConfig, Option<DecaySpec>), ConfigError> {
    let config = OccupancyConfig {
        hit: section.hit,
        miss: section.miss,
        clamp: section.clamp,
        max_range_m: section.max_range_m,
        band_m: section.band_m.unwrap_or(voxel_size_m as f32),
        distance: DistanceAlong::Axis,
    };
    let within = |error: ConfigError| ConfigError::new(format!("occupancy.{}", error.key), error.problem);
    config.validate(voxel_size_m).map_err(within)?;
    if let Some(band_m) = section.band_m {
        check_half_cell("occupancy.band_m", band_m, voxel_size_m)?;
    }
    let of_a_hit = f64::from(super::occupancy::log_odds(section.hit));
    Ok((config, decay("occupancy", section.decay, of_a_hit)?))
}

/// Checks that a distance on both sides of a surface reaches the centre of a cell, so that surfaces have no holes.
fn check_half_cell(key: &str, metres: f32, voxel_size_m: f64) -> Result<(), ConfigError> {
    if f64::from(metres) < 0.4999 * voxel_size_m {
        let problem =
            format!("{metres} (allowed: half of `voxel_size_m`, {voxel_size_m}, or more: else surfaces have holes)");
        return refused(key, problem);
    }
    Ok(())
}

/// Checks a decay, and scales its `part` to an integer, at least 1; a `part` of 1 becomes `whole`.
fn decay(at: &str, decay: Option<Decay>, whole: f64) -> Result<Option<DecaySpec>, ConfigError> {
    let Some(Decay { period_ms, part }) = decay else {
        return Ok(None);
    };
    if !(1e-3..=1e12).contains(&period_ms) {
        return refused(
            format!("{at}.decay.period_ms"),
            format!("{period_ms} (allowed: 0.001 to 1e12 ms)"),
        );
    }
    if !(part > 0.0 && part <= 1.0) {
        return refused(
            format!("{at}.decay.part"),
            format!("{part} (allowed: above 0, up to 1)"),
        );
    }
    Ok(Some(DecaySpec {
        period_ns: ms_to_ns(period_ms),
        part: (part * whole).round().max(1.0) as u32,
    }))
}

fn esdf(section: &EsdfSection, config: &MapConfig) -> Result<EsdfSpec, ConfigError> {
    let (name, is_there) = match section.from {
        Obstacles::Tsdf => ("tsdf", config.tsdf.is_some()),
        Obstacles::Occupancy => ("occupancy", config.occupancy.is_some()),
    };
    if !is_there {
        return refused(
            "esdf.from",
            format!("`{name}` is not a section of this map (needed: `{name}:`)"),
        );
    }
    let (max, voxel) = (section.max_distance_m, config.voxel_size_m);
    if !(max >= voxel && max <= 1e7) {
        return refused(
            "esdf.max_distance_m",
            format!("{max} (allowed: `voxel_size_m`, {voxel}, up to 1e7 m)"),
        );
    }
    if let Some([low, high]) = section.slice_m {
        if !(low < high && low.abs() <= MAX_DISTANCE && high.abs() <= MAX_DISTANCE) {
            let problem = format!("[{low}, {high}] (allowed: +-{MAX_DISTANCE} m, the lower height first)");
            return refused("esdf.slice_m", problem);
        }
        if config.follow.is_some() && high - low < voxel {
            let problem = format!(
                "[{low}, {high}] is lower than a cell (needed with `follow`: at least `voxel_size_m`, {voxel}, so that it has the \
                 centre of a cell wherever the map is)"
            );
            return refused("esdf.slice_m", problem);
        }
        let origin = config.origin_m.unwrap_or_default()[2];
        let [first, end] = layers([low, high], origin, voxel);
        if config.follow.is_none() && (first >= config.shape[2] as i64 || end <= 0 || first >= end) {
            let top = origin + config.shape[2] as f64 * voxel;
            let problem = format!("[{low}, {high}] has no centre of a cell (the map is from {origin} to {top} m)");
            return refused("esdf.slice_m", problem);
        }
    }
    Ok(EsdfSpec {
        from: section.from,
        limit: limit_of(max, voxel),
        max_m: max as f32,
        slice_m: section.slice_m,
    })
}

fn check_products(config: &MapConfig) -> Result<(), ConfigError> {
    if config.outputs.is_empty() {
        return refused(
            "outputs",
            format!(
                "is empty (at least one of {})",
                MapProduct::ALL.map(MapProduct::name).join(", ")
            ),
        );
    }
    for (i, product) in config.outputs.iter().enumerate() {
        let at = format!("outputs[{i}]");
        if config.outputs[..i].contains(product) {
            return refused(at, format!("`{product}` is listed twice (allowed: each product once)"));
        }
        let (needed, is_there) = match product {
            MapProduct::Tsdf | MapProduct::Weight => ("tsdf", config.tsdf.is_some()),
            MapProduct::Occupancy => ("occupancy", config.occupancy.is_some()),
            MapProduct::Esdf | MapProduct::EsdfSlice => ("esdf", config.esdf.is_some()),
            MapProduct::Bits => ("occupancy", true),
        };
        if !is_there {
            return refused(at, format!("`{product}` needs the section `{needed}:`"));
        }
    }
    Ok(())
}

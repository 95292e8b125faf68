//! Depth images with their cameras and poses.

use super::camera::{Pinhole, SeenCell};
use crate::{ConfigError, refused};
use robocache_geometry::RigidTransform;
use serde::Deserialize;

/// Depths of a frame's pixels, by rows.
#[derive(Clone, Copy, Debug)]
pub enum DepthImage<'a> {
    /// Depths in a unit, metres. The values 0 and 65535 stand for no depth.
    UInt16(&'a [u16], f32),
    /// Depths in metres. A value that is not finite, or not above 0, stands for no depth.
    Float32(&'a [f32]),
}

/// A depth image with the camera and the pose that it was taken with.
#[derive(Clone, Copy, Debug)]
pub struct DepthFrame<'a> {
    /// The camera's intrinsics.
    pub camera: Pinhole,
    /// Pose of the camera in the frame of the grid's corner: x to the right of the image, y down, z forward.
    pub pose: RigidTransform<f64>,
    /// The depth image.
    pub depth: DepthImage<'a>,
    /// Depths that are used.
    pub range: DepthRange,
    /// Red, green and blue of each pixel, by rows. `None`: no colour.
    pub rgb: Option<&'a [[u8; 3]]>,
}

/// Range of depths that are used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DepthRange {
    /// Least depth of a pixel, metres.
    pub min_m: f32,
    /// Depth of a pixel, metres, from which on it is not used; up to 10,000.
    pub max_m: f32,
    /// Depth of a cell, metres, up to which it is too near the camera to be updated; at least 0.001.
    pub min_cell_m: f32,
}

/// The distance between a surface and a cell in front of it.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum DistanceAlong {
    /// Distance along the optical axis: the pixel's depth minus the cell's.
    #[default]
    Axis,
    /// Distance along the pixel's ray.
    Ray,
}

/// A frame as the loop over cells reads it.
pub(super) struct PreparedFrame<'a> {
    pub camera: Pinhole,
    pub range: DepthRange,
    pub from_grid: RigidTransform<f32>,
    /// Depths, metres; minus infinity where there is none, so that every cell lies behind the surface.
    depths: Vec<f32>,
    /// The ratios of [`Pinhole::ray_ratios`]; empty for distances along the axis.
    ratios: Vec<f32>,
    pub rgb: Option<&'a [[u8; 3]]>,
}

impl<'a> PreparedFrame<'a> {
    /// Converts the depths to metres.
    ///
    /// # Panics
    /// If an image does not have the camera's number of pixels.
    pub(super) fn new(frame: &DepthFrame<'a>, distance: DistanceAlong) -> Self {
        let range = frame.range;
        let usable = |depth: f32| {
            let is_used = depth > 0.0 && depth >= range.min_m && depth < range.max_m;
            if is_used { depth } else { f32::NEG_INFINITY }
        };
        let depths: Vec<f32> = match frame.depth {
            // The product of 0 is not above 0.
            DepthImage::UInt16(raw, unit) => {
                let metres = |raw: u16| if raw == u16::MAX { 0.0 } else { f32::from(raw) * unit };
                raw.iter().map(|&raw| usable(metres(raw))).collect()
            }
            DepthImage::Float32(depths) => depths.iter().map(|&depth| usable(depth)).collect(),
        };
        let pixels = frame.camera.pixels();
        assert_eq!(depths.len(), pixels, "number of depths");
        assert!(frame.rgb.is_none_or(|rgb| rgb.len() == pixels), "number of colours");
        Self {
            camera: frame.camera,
            range,
            from_grid: frame.pose.inverse().rounded(),
            depths,
            ratios: match distance {
                DistanceAlong::Axis => Vec::new(),
                DistanceAlong::Ray => frame.camera.ray_ratios(),
            },
            rgb: frame.rgb,
        }
    }

    /// The signed distance of a cell from the surface that its pixel sees, metres, positive in front of it. Minus infinity if the
    /// pixel sees none.
    #[inline(always)]
    pub(super) fn distance(&self, seen: &SeenCell) -> f32 {
        let distance = self.depths[seen.pixel] - seen.depth;
        match self.ratios.get(seen.pixel) {
            Some(ratio) => distance * ratio,
            None => distance,
        }
    }
}

impl DepthRange {
    /// Checks every value.
    ///
    /// # Errors
    /// The first key whose value is not allowed, the value, and the allowed values.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let Self {
            min_m,
            max_m,
            min_cell_m,
        } = *self;
        if !(min_m >= 0.0 && min_m < max_m) {
            return refused("min_m", format!("{min_m} (allowed: 0 or more, below `max_m`, {max_m})"));
        }
        if max_m > 1e4 {
            return refused("max_m", format!("{max_m} (allowed: up to 10000 m)"));
        }
        if !(1e-3..=1e4).contains(&min_cell_m) {
            return refused("min_cell_m", format!("{min_cell_m} (allowed: 0.001 to 10000 m)"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_are_refused() {
        let range = DepthRange {
            min_m: 0.1,
            max_m: 5.0,
            min_cell_m: 0.05,
        };
        let problem = |range: DepthRange| range.validate().unwrap_err().to_string();
        assert_eq!(range.validate(), Ok(()));
        let expected = "min_m: 5 (allowed: 0 or more, below `max_m`, 5)";
        assert_eq!(problem(DepthRange { min_m: 5.0, ..range }), expected);
        assert!(
            problem(DepthRange {
                min_m: f32::NAN,
                ..range
            })
            .starts_with("min_m: NaN")
        );
        assert_eq!(
            problem(DepthRange { max_m: 1e5, ..range }),
            "max_m: 100000 (allowed: up to 10000 m)"
        );
        assert_eq!(
            problem(DepthRange {
                min_cell_m: 0.0,
                ..range
            }),
            "min_cell_m: 0 (allowed: 0.001 to 10000 m)"
        );
    }
}

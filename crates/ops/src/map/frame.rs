//! Depth images, each with its camera and the camera's pose.

use super::camera::{Pinhole, SeenCell};
use crate::{ConfigError, refused};
use robocache_geometry::RigidTransform;
use serde::Deserialize;

/// Depths of an image's pixels, row by row from the top.
#[derive(Clone, Copy, Debug)]
pub enum DepthImage<'a> {
    /// Integer depths, and their unit in metres. The values 0 and 65535 mean that a pixel has no depth.
    UInt16(&'a [u16], f32),
    /// Depths in metres. A value that is not finite, or not above 0, means that a pixel has no depth.
    Float32(&'a [f32]),
}

/// A depth image, the camera that took it, and the camera's pose.
#[derive(Clone, Copy, Debug)]
pub struct DepthFrame<'a> {
    /// The camera's intrinsics.
    pub camera: Pinhole,
    /// Pose of the camera, with the origin at the map's corner of least coordinates. The camera's x axis points to the
    /// right of the image, y down, z forward.
    pub pose: RigidTransform<f64>,
    /// The depth image.
    pub depth: DepthImage<'a>,
    /// Range of depths that are used. A pixel outside the range counts as without depth.
    pub range: DepthRange,
    /// Red, green and blue of each pixel, row by row. `None`: the image has no colour.
    pub rgb: Option<&'a [[u8; 3]]>,
}

/// Range of pixel depths that are used, and minimum depth of the cells that are updated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DepthRange {
    /// Least depth of a pixel that is used, metres.
    pub min_m: f32,
    /// Upper limit of pixel depths, metres, up to 10,000: a pixel of this depth or more is not used.
    pub max_m: f32,
    /// Minimum depth of a cell, metres, 0.001 or more: a cell at this depth or nearer to the camera is not updated.
    pub min_cell_m: f32,
}

/// Direction along which the distance between a cell and the surface in its pixel is measured.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum DistanceAlong {
    /// The optical axis: the distance is the pixel's depth minus the cell's depth.
    #[default]
    Axis,
    /// The pixel's ray: the difference of the depths is multiplied by the ray's length per unit of depth.
    Ray,
}

/// A depth image prepared for the projection of cells: depths in metres, and the transform from the map to the camera.
pub(super) struct PreparedFrame<'a> {
    pub camera: Pinhole,
    pub range: DepthRange,
    pub from_grid: RigidTransform<f32>,
    /// Depth of each pixel, metres. Minus infinity for a pixel without usable depth, so that every cell counts as far
    /// behind the surface.
    depths: Vec<f32>,
    /// Ray length per unit of depth, for each pixel ([`Pinhole::ray_ratios`]). Empty if distances are along
    /// the optical axis.
    ratios: Vec<f32>,
    pub rgb: Option<&'a [[u8; 3]]>,
}

impl<'a> PreparedFrame<'a> {
    /// Converts an image's depths to metres, and inverts the camera's pose.
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

    /// Returns the signed distance of a cell from the surface in its pixel, metres, positive in front of the surface.
    /// Returns minus infinity if the pixel has no usable depth.
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
    /// Checks the range of every field.
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

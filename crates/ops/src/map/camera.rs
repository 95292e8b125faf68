//! Pinhole camera intrinsics, and the projection of map cells into an image.

use crate::{ConfigError, refused};
use robocache_geometry::RigidTransform;
use std::ops::Range;

/// Intrinsics of a pinhole camera without distortion. The centre of a pixel is at its column and row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pinhole {
    /// Width of the image, pixels.
    pub width: usize,
    /// Height of the image, pixels.
    pub height: usize,
    /// Focal lengths fx and fy, pixels. A negative value mirrors the image along that axis.
    pub focal_px: [f32; 2],
    /// Principal point cx and cy, pixels: a column and a row.
    pub principal_px: [f32; 2],
}

/// Projection of a map cell whose centre falls on a pixel of an image.
pub(super) struct SeenCell {
    /// Index of the pixel: row * width + column.
    pub pixel: usize,
    /// Depth of the cell's centre along the optical axis, metres.
    pub depth: f32,
    /// `1 / depth`, 1/m.
    pub inverse: f32,
}

/// Greatest width and height of an image, pixels, so that a pixel's index fits in 32 bits.
const MAX_PIXELS: usize = 1 << 14;
/// Number of cells that are projected together, so that the compiler vectorizes the loop.
const LANES: usize = 16;
/// Pixel index of a cell that does not fall on a pixel.
const OUTSIDE: u32 = u32::MAX;

impl Pinhole {
    /// Checks the range of every field.
    ///
    /// # Errors
    /// Returns the first key whose value is not allowed, the value, and the allowed values.
    pub fn validate(&self) -> Result<(), ConfigError> {
        for (key, pixels) in [("width", self.width), ("height", self.height)] {
            if !(1..=MAX_PIXELS).contains(&pixels) {
                return refused(key, format!("{pixels} (allowed: 1 to {MAX_PIXELS})"));
            }
        }
        let [fx, fy] = self.focal_px;
        if ![fx, fy].iter().all(|focal| (1e-3..=1e6).contains(&focal.abs())) {
            return refused(
                "focal_px",
                format!("[{fx}, {fy}] (allowed: 0.001 to 1000000, or minus that)"),
            );
        }
        let [cx, cy] = self.principal_px;
        if ![cx, cy].iter().all(|principal| principal.abs() <= 1e6) {
            return refused("principal_px", format!("[{cx}, {cy}] (allowed: +-1000000)"));
        }
        Ok(())
    }

    /// Number of pixels of an image.
    pub fn pixels(&self) -> usize {
        self.width * self.height
    }

    /// Returns, for each pixel row by row, the length of its ray to depth 1: `sqrt((1 + rx^2) + ry^2)` in float32. A
    /// depth along the optical axis times this ratio is the distance along the ray.
    pub fn ray_ratios(&self) -> Vec<f32> {
        let slope = |axis: usize, pixel: usize| (pixel as f32 - self.principal_px[axis]) / self.focal_px[axis];
        let row = |v: usize| {
            let y = slope(1, v);
            (0..self.width).map(move |u| {
                let x = slope(0, u);
                ((1.0 + x * x) + y * y).sqrt()
            })
        };
        (0..self.height).flat_map(row).collect()
    }

    /// Projects a line of cells along z into the image. Calls `update` with the index along z of each cell that falls
    /// on a pixel, and with that pixel.
    ///
    /// `from_grid` maps points of the map to the camera's frame. `column` has the x and y of the cells' centres, and
    /// `centres` their z, ascending, metres. Cells at depth `near` or less, metres, are left out. Cells beyond depth
    /// `far` may be left out.
    #[inline(always)]
    pub(super) fn project_run(
        &self,
        from_grid: &RigidTransform<f32>,
        column: [f32; 2],
        centres: &[f32],
        [near, far]: [f32; 2],
        mut update: impl FnMut(usize, SeenCell),
    ) {
        let range = self.visible(from_grid, column, centres, far);
        let rows = from_grid.rotation;
        let along: [f32; 3] = std::array::from_fn(|i| rows[i][0] * column[0] + rows[i][1] * column[1]);
        let (width, height) = (self.width as f32, self.height as f32);
        let ([fx, fy], [cx, cy]) = (self.focal_px, self.principal_px);
        let (mut pixels, mut depths, mut inverses) = ([0u32; LANES], [0f32; LANES], [0f32; LANES]);
        for first in range.clone().step_by(LANES) {
            for lane in 0..LANES {
                let z = centres[(first + lane).min(range.end - 1)];
                let [px, py, pz]: [f32; 3] =
                    std::array::from_fn(|i| (along[i] + rows[i][2] * z) + from_grid.translation[i]);
                let inverse = 1.0 / pz;
                let u = ((fx * (px * inverse)) + cx) + 0.5;
                let v = ((fy * (py * inverse)) + cy) + 0.5;
                let is_seen = pz > near && u >= 0.0 && u < width && v >= 0.0 && v < height;
                let pixel = (v as u32).wrapping_mul(self.width as u32).wrapping_add(u as u32);
                pixels[lane] = if is_seen { pixel } else { OUTSIDE };
                (depths[lane], inverses[lane]) = (pz, inverse);
            }
            for lane in 0..LANES.min(range.end - first) {
                if pixels[lane] != OUTSIDE {
                    let (pixel, depth, inverse) = (pixels[lane] as usize, depths[lane], inverses[lane]);
                    update(first + lane, SeenCell { pixel, depth, inverse });
                }
            }
        }
    }

    /// Returns a range of indices along z that contains every cell that the camera sees up to depth `far`, metres. The
    /// arguments are those of [`project_run`](Self::project_run).
    fn visible(&self, from_grid: &RigidTransform<f32>, [x, y]: [f32; 2], centres: &[f32], far: f32) -> Range<usize> {
        let (Some(&first), Some(&last)) = (centres.first(), centres.last()) else {
            return 0..0;
        };
        let wide = |values: [f32; 3]| values.map(f64::from);
        // The point is `at + slope * z`.
        let (at, slope): ([f64; 3], [f64; 3]) = {
            let rows = from_grid.rotation.map(wide);
            let (x, y, t) = (f64::from(x), f64::from(y), wide(from_grid.translation));
            (
                std::array::from_fn(|i| rows[i][0] * x + rows[i][1] * y + t[i]),
                rows.map(|row| row[2]),
            )
        };
        let reach = first.abs().max(last.abs());
        let size =
            wide(from_grid.translation).iter().map(|t| t.abs()).sum::<f64>() + f64::from(x.abs() + y.abs() + reach);
        let (mut low, mut high) = (f64::from(first), f64::from(last));
        // Keeps the z at which `constant + rise * z` is not negative. The margin is more than what rounding in float32 adds to sums of
        // this size.
        let mut keep = |constant: f64, rise: f64, scale: f64| {
            let constant = constant + 1e-5 * scale * size;
            if rise > 0.0 {
                low = low.max(-constant / rise);
            } else if rise < 0.0 {
                high = high.min(-constant / rise);
            } else if constant < 0.0 {
                high = f64::NEG_INFINITY;
            }
        };
        keep(at[2], slope[2], 1.0);
        keep(f64::from(far) - at[2], -slope[2], 1.0);
        for (axis, pixels) in [self.width, self.height].into_iter().enumerate() {
            let focal = f64::from(self.focal_px[axis]);
            let before = f64::from(self.principal_px[axis]) + 0.5;
            let behind = pixels as f64 - before;
            let scale = focal.abs() + before.abs() + behind.abs();
            keep(
                focal * at[axis] + before * at[2],
                focal * slope[axis] + before * slope[2],
                scale,
            );
            keep(
                behind * at[2] - focal * at[axis],
                behind * slope[2] - focal * slope[axis],
                scale,
            );
        }
        // The first place at or past `low`, and the first past `high`, one place wider on each side.
        let (low, high) = (low as f32, high as f32);
        let start = centres.partition_point(|&z| z < low).saturating_sub(1);
        let end = (centres.partition_point(|&z| z <= high) + 1).min(centres.len());
        start..end.max(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cameras_that_are_refused() {
        let camera = Pinhole {
            width: 640,
            height: 480,
            focal_px: [525.0, -525.0],
            principal_px: [319.5, 239.5],
        };
        let problem = |camera: Pinhole| camera.validate().unwrap_err().to_string();
        assert_eq!(camera.validate(), Ok(()));
        assert_eq!(
            problem(Pinhole { width: 0, ..camera }),
            "width: 0 (allowed: 1 to 16384)"
        );
        let expected = "focal_px: [0, 525] (allowed: 0.001 to 1000000, or minus that)";
        assert_eq!(
            problem(Pinhole {
                focal_px: [0.0, 525.0],
                ..camera
            }),
            expected
        );
        assert!(
            problem(Pinhole {
                principal_px: [0.0, f32::NAN],
                ..camera
            })
            .starts_with("principal_px: [0, NaN]")
        );
    }
}

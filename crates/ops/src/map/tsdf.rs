//! Truncated signed distances to surfaces, fused from depth images.
//!
//! Each cell is projected into each image, in the order of the images. Distances and weights are stored as integers.
//! The result therefore has the same bits for any number of threads, on the CPU and on a device: see [`fuse`].

use super::frame::{DepthFrame, DistanceAlong, PreparedFrame};
use super::volume::{Bits, Shape, Window, check_voxel_size};
use crate::{ConfigError, refused};
use rayon::prelude::*;
use serde::Deserialize;

/// Stored value of a signed distance of `truncation_m`.
pub(super) const TRUNCATION: f32 = 32_767.0;
/// Stored value of a weight of 1.
pub(super) const WEIGHT_ONE: u32 = 256;
/// Greatest allowed value of `max_weight`.
const MAX_WEIGHT: u32 = 128;

/// Weight of a depth image in a cell's mean distance.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum FrameWeight {
    /// Every image has weight 1.
    #[default]
    Constant,
    /// The weight is `1 / z^2`, with z the cell's depth, metres. It is at least `max_weight / 256` and
    /// at most `max_weight`.
    InverseSquare,
}

/// Configuration of signed distances: truncation, direction and weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TsdfConfig {
    /// Truncation distance, metres. Signed distances are clamped to it, and cells further behind a surface
    /// are not updated.
    pub truncation_m: f32,
    /// Direction in which distances are measured: the optical axis or the pixel's ray.
    pub distance: DistanceAlong,
    /// Weight of a depth image in a cell's mean distance.
    pub weight: FrameWeight,
    /// Greatest weight of a cell, 1 to 128. It limits how much the images so far count against a new image.
    pub max_weight: u32,
}

/// Signed distance of each cell to the nearest surface, fused from all depth images so far, and optionally
/// each cell's colour.
#[derive(Debug)]
pub struct Tsdf {
    config: TsdfConfig,
    window: Window,
    /// Coordinates of the cells' centres along each axis, metres, from the map's corner of least coordinates.
    centres: [Vec<f32>; 3],
    /// State of each cell, indexed by [`Window::slot`]: the distance in the low 16 bits, the weight in the
    /// high 16 bits.
    state: Vec<u32>,
    /// Red, green, blue and weight of each cell's colour, each times 256, indexed by [`Window::slot`]. Empty if the map
    /// has no colour.
    color: Vec<[u16; 4]>,
}

impl Tsdf {
    /// Creates a map without observations. `voxel_size_m` is the edge of a cell, metres.
    ///
    /// # Errors
    /// Returns the first key whose value is not allowed, the value, and the allowed values.
    pub fn new(config: TsdfConfig, shape: Shape, voxel_size_m: f64, with_color: bool) -> Result<Self, ConfigError> {
        check_voxel_size(voxel_size_m)?;
        config.validate()?;
        Ok(Self {
            config,
            window: Window::new(shape),
            centres: shape.centres(voxel_size_m),
            state: vec![0; shape.cells()],
            color: vec![[0; 4]; if with_color { shape.cells() } else { 0 }],
        })
    }

    /// Returns the box of cells that the map holds.
    pub fn window(&self) -> Window {
        self.window
    }

    /// Moves the map so that its first cell has the grid index `corner`. Cells that enter it are empty; their
    /// number is returned.
    pub fn move_to(&mut self, corner: [i64; 3]) -> u64 {
        self.window.clone().move_to(corner, &mut self.color, [0; 4]);
        self.window.move_to(corner, &mut self.state, 0)
    }

    /// Fuses depth images into the cells, one after the other. The images' poses have the origin at the map's corner
    /// of least coordinates.
    ///
    /// # Panics
    /// If an image does not have the camera's number of pixels.
    pub fn integrate(&mut self, frames: &[DepthFrame<'_>]) {
        let frames: Vec<_> = frames
            .iter()
            .map(|frame| PreparedFrame::new(frame, self.config.distance))
            .collect();
        let Shape([.., z]) = self.window.shape();
        let (config, window, [xs, ys, zs]) = (&self.config, self.window, &self.centres);
        let first = window.first_slot(2);
        let (near, far) = zs.split_at(z - first);
        let update = |run: usize, state: &mut [u32], color: &mut [[u16; 4]]| {
            let [x, y] = window.place_of_run(run);
            let (state_far, state_near) = state.split_at_mut(first);
            let (color_far, color_near) = color.split_at_mut(first.min(color.len()));
            for frame in &frames {
                update_run(config, frame, [xs[x], ys[y]], near, state_near, color_near);
                update_run(config, frame, [xs[x], ys[y]], far, state_far, color_far);
            }
        };
        let states = self.state.par_chunks_mut(z).enumerate();
        if self.color.is_empty() {
            states.for_each(|(run, state)| update(run, state, &mut []));
        } else {
            let colors = self.color.par_chunks_mut(z);
            states
                .zip(colors)
                .for_each(|((run, state), color)| update(run, state, color));
        }
    }

    /// Removes `factor / 65536` of each cell's weight, rounded up, and repeats this `times` times. This forgets cells
    /// that are no longer seen.
    ///
    /// # Panics
    /// If `factor` is more than 65,536.
    pub fn fade(&mut self, factor: u32, times: u64) {
        let faded = faded_weights(factor, times);
        self.state.par_iter_mut().for_each(|state| {
            let (_, weight) = unpack(*state);
            let left = u32::from(faded[weight as usize]);
            *state = if left == 0 { 0 } else { (*state & 0xffff) | left << 16 };
        });
        self.color.par_iter_mut().for_each(|color| {
            *color = match faded[usize::from(color[3])] {
                0 => [0; 4],
                left => [color[0], color[1], color[2], left],
            };
        });
    }

    /// Returns the signed distance of a cell, metres, positive in front of the surface; `None` if no image has
    /// seen the cell.
    pub fn distance_m(&self, cell: [usize; 3]) -> Option<f32> {
        let (distance, weight) = self.at(cell);
        (weight > 0).then(|| distance as f32 * (self.config.truncation_m / TRUNCATION))
    }

    /// Converts a cell's stored state to its signed distance, metres; the truncation distance if no image has
    /// seen the cell.
    pub(super) fn distance_of(&self, state: u32) -> f32 {
        let (distance, weight) = unpack(state);
        match weight {
            0 => self.config.truncation_m,
            _ => distance as f32 * (self.config.truncation_m / TRUNCATION),
        }
    }

    /// Returns the weight of a cell; 0 if no image has seen the cell. With [`FrameWeight::Constant`], each image adds
    /// 1, up to `max_weight`.
    pub fn weight(&self, cell: [usize; 3]) -> f32 {
        let (_, weight) = self.at(cell);
        weight as f32 / WEIGHT_ONE as f32
    }

    /// Returns the red, green and blue of a cell; `None` if the cell has no colour.
    pub fn rgb(&self, cell: [usize; 3]) -> Option<[u8; 3]> {
        let [r, g, b, weight] = *self.color.get(self.window.slot(cell))?;
        (weight > 0).then(|| [r, g, b].map(|value| ((value + 128) >> 8) as u8))
    }

    /// Returns the set of cells on a surface or behind it: distance 0 or less, and [weight](Self::weight) at least
    /// `min_weight` and above 0.
    pub fn occupied(&self, min_weight: f32) -> Bits {
        let least = (min_weight * WEIGHT_ONE as f32).max(1.0);
        Bits::from_fn(self.window.shape(), |cell| {
            let (distance, weight) = self.at(cell);
            weight as f32 >= least && distance <= 0
        })
    }

    /// State of each cell, indexed by [`Window::slot`]. The low 16 bits are the signed distance in units of
    /// `truncation_m / 32767`, the high 16 bits the weight in units of 1/256.
    pub fn state(&self) -> &[u32] {
        &self.state
    }

    /// Colour of each cell, indexed by [`Window::slot`]: red, green, blue and the colour's weight, each in units of
    /// 1/256. Empty if the map has no colour.
    pub fn color(&self) -> &[[u16; 4]] {
        &self.color
    }

    /// Returns the stored distance and weight of a cell.
    fn at(&self, cell: [usize; 3]) -> (i32, u32) {
        unpack(self.state[self.window.slot(cell)])
    }
}

/// Tabulates, for each stored weight, the weight that remains after `times` removals of `factor / 65536`.
fn faded_weights(factor: u32, mut times: u64) -> Vec<u16> {
    assert!(factor <= 1 << 16, "part {factor} / 65536");
    let weights = 0..=MAX_WEIGHT * WEIGHT_ONE;
    // What is left after 1, 2, 4, ... times.
    let mut once: Vec<u16> = weights
        .clone()
        .map(|weight| (weight - (weight * factor).div_ceil(1 << 16)) as u16)
        .collect();
    let mut left: Vec<u16> = weights.map(|weight| weight as u16).collect();
    while times > 0 {
        if times % 2 == 1 {
            left.iter_mut().for_each(|weight| *weight = once[usize::from(*weight)]);
        }
        once = once.iter().map(|&weight| once[usize::from(weight)]).collect();
        times /= 2;
    }
    left
}

impl TsdfConfig {
    /// Checks the range of `truncation_m` and `max_weight`.
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let truncation = self.truncation_m;
        if !(1e-6..=1e3).contains(&truncation) {
            return refused("truncation_m", format!("{truncation} (allowed: 0.000001 to 1000 m)"));
        }
        let weight = self.max_weight;
        if !(1..=MAX_WEIGHT).contains(&weight) {
            return refused("max_weight", format!("{weight} (allowed: 1 to {MAX_WEIGHT})"));
        }
        Ok(())
    }

    /// Returns the weight of an image for a cell, in units of 1/256. `inverse` is 1 / depth of the cell, 1/m.
    #[inline(always)]
    fn weight_of(&self, inverse: f32) -> u32 {
        let (least, greatest) = (self.max_weight as f32, (self.max_weight * WEIGHT_ONE) as f32);
        match self.weight {
            FrameWeight::Constant => WEIGHT_ONE,
            FrameWeight::InverseSquare => {
                let weight = ((WEIGHT_ONE as f32 * inverse) * inverse).round_ties_even();
                (if weight < least {
                    least
                } else if weight > greatest {
                    greatest
                } else {
                    weight
                }) as u32
            }
        }
    }
}

/// Splits a cell's state into its stored distance and weight.
#[inline(always)]
fn unpack(state: u32) -> (i32, u32) {
    (i32::from(state as i16), state >> 16)
}

/// Fuses a measured distance into a cell's state: the weighted mean of the two, rounded to the nearest integer, ties
/// away from 0. Returns the new state.
///
/// The sum of the two weights is at most 2^16, so the products fit in 32 bits.
#[inline(always)]
fn fuse(state: u32, measured: i32, weight: u32, max_weight: u32) -> u32 {
    let (distance, before) = unpack(state);
    let sum = before + weight;
    let mean = if distance == measured {
        distance
    } else {
        let total = i64::from(distance) * i64::from(before) + i64::from(measured) * i64::from(weight);
        let mean = ((total.unsigned_abs() as u32 + sum / 2) / sum) as i32;
        if total < 0 { -mean } else { mean }
    };
    u32::from(mean as i16 as u16) | sum.min(max_weight) << 16
}

/// Fuses a pixel's colour into a cell's colour, as a weighted mean.
#[inline(always)]
fn fuse_color(color: &mut [u16; 4], rgb: [u8; 3], weight: u32, max_weight: u32) {
    let before = u32::from(color[3]);
    let sum = before + weight;
    for (mean, value) in color.iter_mut().zip(rgb) {
        let total = u32::from(*mean) * before + (u32::from(value) << 8) * weight;
        *mean = ((total + sum / 2) / sum) as u16;
    }
    color[3] = sum.min(max_weight) as u16;
}

multiversion! {
    /// Updates one line of cells along z with a depth image. The cells' centres have the x and y in `column` and the z
    /// in `centres`, metres.
    fn update_run(
        config: &TsdfConfig,
        frame: &PreparedFrame<'_>,
        column: [f32; 2],
        centres: &[f32],
        state: &mut [u32],
        color: &mut [[u16; 4]],
    ) {
        let truncation = config.truncation_m;
        let scale = TRUNCATION / truncation;
        let max_weight = config.max_weight * WEIGHT_ONE;
        let depths = [frame.range.min_cell_m, frame.range.max_m + truncation];
        frame.camera.project_run(&frame.from_grid, column, centres, depths, |cell, seen| {
            let distance = frame.distance(&seen);
            if distance < -truncation {
                return;
            }
            let near = if distance > truncation { truncation } else { distance };
            let weight = config.weight_of(seen.inverse);
            state[cell] = fuse(state[cell], (near * scale).round_ties_even() as i32, weight, max_weight);
            if let Some(rgb) = frame.rgb
                && distance <= truncation
                && let Some(color) = color.get_mut(cell)
            {
                fuse_color(color, rgb[seen.pixel], weight, max_weight);
            }
        });
    }
}

#[cfg(test)]
mod tests;

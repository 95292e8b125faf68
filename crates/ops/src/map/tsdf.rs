//! Truncated signed distances to surfaces, fused from depth images.
//!
//! A cell is projected into each frame, in the order of the frames, so that neither threads nor the backend change a bit. The
//! state is integers: see [`fuse`].

use super::frame::{DepthFrame, DepthRange, DistanceAlong, PreparedFrame};
use super::volume::Shape;
use crate::{ConfigError, refused};
use rayon::prelude::*;

/// Signed distance of `truncation_m` in the state of a cell.
const TRUNCATION: f32 = 32_767.0;
/// A weight of 1 in the state of a cell.
const WEIGHT_ONE: u32 = 256;

/// Weight of a frame in the mean of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameWeight {
    /// Every frame weighs 1.
    Constant,
    /// A frame weighs `1 / z^2`, z being the cell's depth, metres; at least `max_weight / 256`, at most `max_weight`.
    InverseSquare,
}

/// Configuration of signed distances.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TsdfConfig {
    /// Distance from a surface, metres, up to which cells are told apart. Cells further behind the surface are not updated.
    pub truncation_m: f32,
    /// Direction in which distances are measured.
    pub distance: DistanceAlong,
    /// Weight of a frame.
    pub weight: FrameWeight,
    /// Greatest weight of a cell, 1 to 128. It bounds how much a cell's past counts against a new frame.
    pub max_weight: u32,
    /// Depths that are used.
    pub depth: DepthRange,
}

/// Signed distances of the cells of a volume, fused from all frames so far.
#[derive(Debug)]
pub struct Tsdf {
    config: TsdfConfig,
    shape: Shape,
    /// Coordinates of the cells' centres along each axis, metres.
    centres: [Vec<f32>; 3],
    /// The state of each cell: the distance in the low half, the weight in the high half.
    state: Vec<u32>,
    /// Colour of each cell in 1/256, and the weight of its colour. Empty without colour.
    color: Vec<[u16; 4]>,
}

impl Tsdf {
    /// Makes a volume that has seen nothing.
    ///
    /// `origin_m` is the corner of the volume with the least coordinates, and `voxel_size_m` is the edge of a cell.
    pub fn new(config: TsdfConfig, shape: Shape, origin_m: [f64; 3], voxel_size_m: f64, with_color: bool) -> Self {
        Self {
            config,
            shape,
            centres: shape.centres(origin_m, voxel_size_m),
            state: vec![0; shape.cells()],
            color: vec![[0; 4]; if with_color { shape.cells() } else { 0 }],
        }
    }

    /// Number of cells along each axis.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Fuses frames into the state, one after the other in their order.
    ///
    /// # Panics
    /// If an image does not have the camera's number of pixels.
    pub fn integrate(&mut self, frames: &[DepthFrame<'_>]) {
        let frames: Vec<_> = frames
            .iter()
            .map(|frame| PreparedFrame::new(frame, self.config.depth, self.config.distance))
            .collect();
        let [_, y, z] = self.shape.0;
        if self.state.is_empty() {
            return;
        }
        let (config, centres) = (&self.config, &self.centres);
        let slab = |i: usize, state: &mut [u32], color: &mut [[u16; 4]]| {
            for (j, state) in state.chunks_mut(z).enumerate() {
                let color = match color.len() {
                    0 => &mut [],
                    _ => &mut color[j * z..][..z],
                };
                let corner = [centres[0][i], centres[1][j], centres[2][0]];
                for frame in &frames {
                    update_run(config, frame, corner, &centres[2], state, color);
                }
            }
        };
        let states = self.state.par_chunks_mut(y * z).enumerate();
        if self.color.is_empty() {
            states.for_each(|(i, state)| slab(i, state, &mut []));
        } else {
            let colors = self.color.par_chunks_mut(y * z);
            states.zip(colors).for_each(|((i, state), color)| slab(i, state, color));
        }
    }

    /// Signed distance of a cell, metres, positive in front of the surface; `None` if no frame has seen the cell.
    pub fn distance_m(&self, cell: usize) -> Option<f32> {
        let (distance, weight) = unpack(self.state[cell]);
        (weight > 0).then(|| distance as f32 * (self.config.truncation_m / TRUNCATION))
    }

    /// Weight of a cell.
    pub fn weight(&self, cell: usize) -> f32 {
        let (_, weight) = unpack(self.state[cell]);
        weight as f32 / WEIGHT_ONE as f32
    }

    /// Colour of a cell, red, green and blue; `None` if the cell has none.
    pub fn rgb(&self, cell: usize) -> Option<[u8; 3]> {
        let [r, g, b, weight] = *self.color.get(cell)?;
        (weight > 0).then(|| [r, g, b].map(|value| ((value + 128) >> 8) as u8))
    }

    /// True if a cell of at least `min_weight` lies on the surface or behind it.
    pub fn is_occupied(&self, cell: usize, min_weight: f32) -> bool {
        let (distance, weight) = unpack(self.state[cell]);
        weight > 0 && weight as f32 >= min_weight * WEIGHT_ONE as f32 && distance <= 0
    }

    /// The state of each cell, in the order of the cells' indices. The low 16 bits are the distance as a signed number of
    /// `truncation_m / 32767`, the high 16 bits the weight in 1/256.
    pub fn state(&self) -> &[u32] {
        &self.state
    }
}

impl TsdfConfig {
    /// Checks every value.
    ///
    /// # Errors
    /// The first key whose value is not allowed, the value, and the allowed values.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let truncation = self.truncation_m;
        if !(truncation > 0.0 && truncation <= 1e3) {
            return refused("truncation_m", format!("{truncation} (allowed: above 0, up to 1000 m)"));
        }
        let weight = self.max_weight;
        if !(1..=128).contains(&weight) {
            return refused("max_weight", format!("{weight} (allowed: 1 to 128)"));
        }
        self.depth.validate()
    }

    /// Weight of a frame in 1/256 for a cell, whose `1 / z` is `inverse`.
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

/// The signed distance and the weight of a state.
#[inline(always)]
fn unpack(state: u32) -> (i32, u32) {
    (i32::from(state as i16), state >> 16)
}

/// Fuses a measured distance of a weight into the state of a cell: the mean by weights, rounded to the nearest, ties away from 0.
///
/// The sum of two weights is at most 2^16, so that products fit in 32 bits.
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

/// Fuses a pixel's colour into the colour of a cell.
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
    /// Updates the cells of a run along z with a frame. `corner` is the centre of the run's first cell.
    fn update_run(
        config: &TsdfConfig,
        frame: &PreparedFrame<'_>,
        corner: [f32; 3],
        centres: &[f32],
        state: &mut [u32],
        color: &mut [[u16; 4]],
    ) {
        let truncation = config.truncation_m;
        let scale = TRUNCATION / truncation;
        let max_weight = config.max_weight * WEIGHT_ONE;
        let depths = [config.depth.min_cell_m, config.depth.max_m + truncation];
        frame.camera.project_run(&frame.from_grid, corner, centres, depths, |cell, seen| {
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

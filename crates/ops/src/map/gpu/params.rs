//! Parameters of the kernels of `kernels/map.cu`, which are documented in that file. A struct has the same layout in both languages.

use robocache_device::gpu::{DevicePtr, Params};
use robocache_kernels::Kernel;

/// Number of planes around what a camera sees.
pub(super) const PLANES: usize = 6;
/// Threads of a block.
pub(super) const TSDF_BLOCK: u32 = 256;
/// Cells of a tile along y and z, and tiles that a warp takes along x.
pub(super) const TILE_Y: usize = 8;
pub(super) const TILE_Z: usize = 32;
pub(super) const WARP_TILES: usize = 2;

pub(super) const TSDF_CLEAR: Kernel = kernel("tsdf_clear");
/// Kernels that fuse a frame: without and with colour, of depths in a unit and in metres, along the axis and along the ray.
pub(super) const TSDF: [[[Kernel; 2]; 2]; 2] = [
    [
        [kernel("tsdf_raw"), kernel("tsdf_raw_ray")],
        [kernel("tsdf_metres"), kernel("tsdf_metres_ray")],
    ],
    [
        [kernel("tsdf_raw_color"), kernel("tsdf_raw_ray_color")],
        [kernel("tsdf_metres_color"), kernel("tsdf_metres_ray_color")],
    ],
];

const fn kernel(name: &'static str) -> Kernel {
    robocache_kernels::MAP.kernel(name)
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct FrameParams<'a> {
    pub rotation: [f32; 9],
    pub translation: [f32; 3],
    pub focal: [f32; 2],
    pub principal: [f32; 2],
    pub planes: [[f32; 4]; PLANES],
    pub depths: DevicePtr<'a>,
    pub rgb: DevicePtr<'a>,
    pub ratios: DevicePtr<'a>,
    pub width: u32,
    pub height: u32,
    pub unit: f32,
    pub least_raw: u32,
    pub raw_count: u32,
    pub min_m: f32,
    pub max_m: f32,
    pub unused: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct TsdfParams<'a> {
    pub frame: FrameParams<'a>,
    pub centres: [DevicePtr<'a>; 3],
    pub state: DevicePtr<'a>,
    pub color: DevicePtr<'a>,
    pub shape: [u32; 3],
    pub first: [u32; 3],
    pub max_weight: u32,
    pub least_weight: u32,
    pub is_inverse_square: u32,
    pub truncation: f32,
    pub scale: f32,
    pub min_cell_m: f32,
}

// SAFETY: it has the fields of the kernels' struct of that name.
unsafe impl Params for TsdfParams<'_> {}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ClearParams<'a> {
    pub state: DevicePtr<'a>,
    pub color: DevicePtr<'a>,
    pub shape: [u32; 3],
    pub first: [u32; 3],
    pub entered: [i32; 3],
    pub unused: u32,
}

// SAFETY: it has the fields of the kernels' struct of that name.
unsafe impl Params for ClearParams<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Header, shared_constants, shared_structs};

    #[test]
    fn the_layout_is_written_for_the_kernels() {
        let mut header = Header::new("map");
        shared_constants!(header: PLANES, TSDF_BLOCK, TILE_Y, TILE_Z, WARP_TILES);
        shared_structs!(header:
            FrameParams = "TsdfFrame" {
                rotation, translation, focal, principal, planes, depths, rgb, ratios, width, height, unit, least_raw, raw_count,
                min_m, max_m, unused,
            }
            TsdfParams = "TsdfParams" {
                frame, centres, state, color, shape, first, max_weight, least_weight, is_inverse_square, truncation,
                scale, min_cell_m,
            }
            ClearParams = "ClearParams" { state, color, shape, first, entered, unused }
        );
        header.write();
    }
}

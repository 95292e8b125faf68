//! Signed distances in the memory of a device.

use super::params::{
    ClearParams, FrameParams, PLANES, TILE_Y, TILE_Z, TSDF, TSDF_BLOCK, TSDF_CLEAR, TsdfParams, WARP_TILES,
};
use crate::map::volume::check_voxel_size;
use crate::map::{DepthFrame, DepthImage, DistanceAlong, FrameWeight, Shape, TsdfConfig, Window};
use robocache_device::gpu::{Budget, DeviceBuf, DeviceFault, Gpu};
use robocache_geometry::RigidTransform;

/// Signed distances of the cells of a volume in the memory of a device, with the bits of [`Tsdf`](crate::map::Tsdf).
pub struct GpuTsdf {
    gpu: Gpu,
    config: TsdfConfig,
    window: Window,
    voxel_size_m: f64,
    /// Coordinates of the cells' centres, axis by axis.
    centres: DeviceBuf,
    state: DeviceBuf,
    /// Empty without colour.
    color: DeviceBuf,
    images: ImageBufs,
}

/// Images of a frame in the memory of the device.
struct ImageBufs {
    depths: DeviceBuf,
    rgb: DeviceBuf,
    ratios: DeviceBuf,
}

/// Value of a uint16 depth that stands for none, as 0 does.
const NO_DEPTH: u32 = u16::MAX as u32;
/// Bytes of a cell's state, and of its colour.
const STATE_BYTES: usize = 4;
const COLOR_BYTES: usize = 8;

impl GpuTsdf {
    /// Makes a volume that has seen nothing, on the device of `gpu`. Its memory counts in `budget`.
    ///
    /// # Errors
    /// [`DeviceFault::OutOfBudget`], [`DeviceFault::OutOfMemory`]; the driver's error.
    ///
    /// # Panics
    /// If [`Tsdf::new`](crate::map::Tsdf::new) refuses the values.
    pub fn new(
        config: TsdfConfig,
        shape: Shape,
        voxel_size_m: f64,
        with_color: bool,
        gpu: &Gpu,
        budget: &Budget,
    ) -> Result<Self, DeviceFault> {
        let checked = check_voxel_size(voxel_size_m).and_then(|()| config.validate());
        assert_eq!(checked, Ok(()), "configuration of signed distances");
        let buf = || DeviceBuf::new(gpu, budget);
        let mut volume = Self {
            gpu: gpu.clone(),
            config,
            window: Window::new(shape),
            voxel_size_m,
            centres: buf(),
            state: buf(),
            color: buf(),
            images: ImageBufs {
                depths: buf(),
                rgb: buf(),
                ratios: buf(),
            },
        };
        let cells = shape.cells();
        volume.state.reserve(cells * STATE_BYTES)?;
        volume.state.clear(0, cells * STATE_BYTES)?;
        if with_color {
            volume.color.reserve(cells * COLOR_BYTES)?;
            volume.color.clear(0, cells * COLOR_BYTES)?;
        }
        let centres = shape.centres(voxel_size_m).concat();
        volume.centres.reserve(size_of_val(centres.as_slice()))?;
        // SAFETY: the stream is synchronized before the coordinates are dropped.
        unsafe { volume.centres.upload(0, bytemuck::cast_slice(&centres)) }?;
        gpu.synchronize()?;
        Ok(volume)
    }

    /// The cells that the volume holds.
    pub fn window(&self) -> Window {
        self.window
    }

    /// Moves the volume to the cells from `corner` on, as [`Tsdf::move_to`](crate::map::Tsdf::move_to).
    ///
    /// # Errors
    /// The driver's error.
    pub fn move_to(&mut self, corner: [i64; 3]) -> Result<u64, DeviceFault> {
        let (before, axes) = (self.window, self.window.shape().axes());
        let entered: [i64; 3] = std::array::from_fn(|axis| {
            let cells = axes[axis] as i64;
            corner[axis].saturating_sub(before.corner()[axis]).clamp(-cells, cells)
        });
        self.window.move_to(corner, &mut [(); 0], ());
        if entered == [0; 3] {
            return Ok(0);
        }
        let params = ClearParams {
            state: self.state.pointer(),
            color: self.color.pointer(),
            shape: axes.map(|cells| cells as u32),
            first: std::array::from_fn(|axis| self.window.first_slot(axis) as u32),
            entered: entered.map(|cells| cells as i32),
            unused: 0,
        };
        let (cells, block) = (self.window.shape().cells(), TSDF_BLOCK as usize);
        // SAFETY: the buffers have the volume's number of cells.
        unsafe {
            self.gpu
                .launch(TSDF_CLEAR, [cells.div_ceil(block) as u32, 1, 1], TSDF_BLOCK, &params)
        }?;
        let stay: u64 = (0..3)
            .map(|axis| axes[axis] as u64 - entered[axis].unsigned_abs())
            .product();
        Ok(cells as u64 - stay)
    }

    /// Fuses frames into the state, as [`Tsdf::integrate`](crate::map::Tsdf::integrate).
    ///
    /// # Errors
    /// The driver's error, or too little memory for the images.
    ///
    /// # Panics
    /// If an image does not have the camera's number of pixels.
    pub fn integrate(&mut self, frames: &[DepthFrame<'_>]) -> Result<(), DeviceFault> {
        for frame in frames {
            self.images.upload(frame, self.config.distance)?;
            self.launch(frame)?;
        }
        self.gpu.synchronize()
    }

    /// Enqueues the update with a frame whose images are on the device.
    fn launch(&self, frame: &DepthFrame<'_>) -> Result<(), DeviceFault> {
        let axes = self.window.shape().axes();
        let params = TsdfParams {
            frame: self.frame_params(frame),
            centres: [0, axes[0], axes[0] + axes[1]].map(|first| self.centres.pointer().offset(4 * first)),
            state: self.state.pointer(),
            color: self.color.pointer(),
            shape: axes.map(|cells| cells as u32),
            first: std::array::from_fn(|axis| self.window.first_slot(axis) as u32),
            max_weight: self.config.max_weight * 256,
            least_weight: self.config.max_weight,
            is_inverse_square: u32::from(self.config.weight == FrameWeight::InverseSquare),
            truncation: self.config.truncation_m,
            scale: 32_767.0 / self.config.truncation_m,
            min_cell_m: frame.range.min_cell_m,
        };
        let has_color = self.color.capacity() > 0 && frame.rgb.is_some();
        let is_metres = matches!(frame.depth, DepthImage::Float32(_));
        let is_along_ray = self.config.distance == DistanceAlong::Ray;
        let kernel = TSDF[usize::from(has_color)][usize::from(is_metres)][usize::from(is_along_ray)];
        let [x, y, z] = axes;
        let warps = x.div_ceil(WARP_TILES) * y.div_ceil(TILE_Y) * z.div_ceil(TILE_Z);
        let blocks = warps.div_ceil(TSDF_BLOCK as usize / 32) as u32;
        // SAFETY: the buffers have the sizes that the kernel accesses, and live until the stream is synchronized.
        unsafe { self.gpu.launch(kernel, [blocks, 1, 1], TSDF_BLOCK, &params) }
    }

    fn frame_params(&self, frame: &DepthFrame<'_>) -> FrameParams<'_> {
        let images = &self.images;
        let (camera, range) = (&frame.camera, frame.range);
        let from_grid: RigidTransform<f32> = frame.pose.inverse().rounded();
        let mut rotation = [0.0; 9];
        rotation.copy_from_slice(from_grid.rotation.as_flattened());
        let (unit, least_raw, raw_count) = match frame.depth {
            DepthImage::UInt16(_, unit) => {
                let depth = |raw: u32| raw as f32 * unit;
                let first = first_raw(|raw| depth(raw) > 0.0 && depth(raw) >= range.min_m);
                let end = first_raw(|raw| depth(raw) >= range.max_m);
                (unit, first, end.saturating_sub(first))
            }
            DepthImage::Float32(_) => (0.0, 0, 0),
        };
        FrameParams {
            rotation,
            translation: from_grid.translation,
            focal: camera.focal_px,
            principal: camera.principal_px,
            planes: self.planes(frame, &from_grid),
            depths: images.depths.pointer(),
            rgb: images.rgb.pointer(),
            ratios: images.ratios.pointer(),
            width: camera.width as u32,
            height: camera.height as u32,
            unit,
            least_raw,
            raw_count,
            min_m: range.min_m,
            max_m: range.max_m,
            unused: 0,
        }
    }

    /// The planes around the first cells of the tiles that a camera sees, in cells of the window. They are moved outwards by more
    /// than what rounding moves.
    fn planes(&self, frame: &DepthFrame<'_>, from_grid: &RigidTransform<f32>) -> [[f32; 4]; PLANES] {
        let camera = &frame.camera;
        let row = |i: usize| {
            let [x, y, z] = from_grid.rotation[i];
            [x, y, z, from_grid.translation[i]].map(f64::from)
        };
        let sum = |a: [f64; 4], s: f64, b: [f64; 4], t: f64| std::array::from_fn(|i| s * a[i] + t * b[i]);
        let forward = row(2);
        let far = f64::from(frame.range.max_m + self.config.truncation_m);
        let mut planes = [[0.0; 4]; PLANES];
        planes[0] = forward;
        planes[1] = sum(forward, -1.0, [0.0, 0.0, 0.0, far], 1.0);
        for (axis, pixels) in [camera.width, camera.height].into_iter().enumerate() {
            let focal = f64::from(camera.focal_px[axis]);
            let before = f64::from(camera.principal_px[axis]) + 0.5;
            planes[2 + 2 * axis] = sum(row(axis), focal, forward, before);
            planes[3 + 2 * axis] = sum(row(axis), -focal, forward, pixels as f64 - before);
        }
        let cells = self.window.shape().axes().iter().sum::<usize>() as f64;
        let away = from_grid.translation.map(|t| f64::from(t.abs())).iter().sum::<f64>() / self.voxel_size_m;
        let half = [WARP_TILES, TILE_Y, TILE_Z].map(|cells| cells as f64 / 2.0);
        planes.map(|plane| {
            let norm = (plane[0] * plane[0] + plane[1] * plane[1] + plane[2] * plane[2]).sqrt();
            let [a, b, c, d] = plane.map(|value| value / norm);
            let middle = half[0] * a + half[1] * b + half[2] * c;
            let reach = half[0] * a.abs() + half[1] * b.abs() + half[2] * c.abs();
            [a, b, c, d / self.voxel_size_m + middle + reach + 1e-4 * (cells + away)].map(|value| value as f32)
        })
    }

    /// Copies the state to the host.
    ///
    /// # Errors
    /// The driver's error.
    pub fn fetch(&self) -> Result<Vec<u32>, DeviceFault> {
        let mut state = vec![0u32; self.window.shape().cells()];
        self.state.fetch(0, bytemuck::cast_slice_mut(&mut state))?;
        Ok(state)
    }

    /// Copies the colours to the host: of each slot red, green and blue in 1/256, and the weight.
    ///
    /// # Errors
    /// The driver's error.
    pub fn fetch_color(&self) -> Result<Vec<[u16; 4]>, DeviceFault> {
        let mut color =
            vec![[0u16; 4]; self.color.capacity().min(self.window.shape().cells() * COLOR_BYTES) / COLOR_BYTES];
        self.color.fetch(0, bytemuck::cast_slice_mut(&mut color))?;
        Ok(color)
    }
}

/// The first value of a uint16 depth for which `is_reached`, which no greater value undoes; [`NO_DEPTH`] if there is none.
fn first_raw(is_reached: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (1, NO_DEPTH);
    while low < high {
        let middle = (low + high) / 2;
        if is_reached(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

impl ImageBufs {
    fn upload(&mut self, frame: &DepthFrame<'_>, distance: DistanceAlong) -> Result<(), DeviceFault> {
        let put = |buf: &mut DeviceBuf, bytes: &[u8]| {
            buf.reserve(bytes.len())?;
            // SAFETY: the caller synchronizes the stream before it returns to the owner of the images.
            unsafe { buf.upload(0, bytes) }
        };
        let pixels = frame.camera.pixels();
        match frame.depth {
            DepthImage::UInt16(raw, _) => {
                assert_eq!(raw.len(), pixels, "number of depths");
                put(&mut self.depths, bytemuck::cast_slice(raw))?;
            }
            DepthImage::Float32(depths) => {
                assert_eq!(depths.len(), pixels, "number of depths");
                put(&mut self.depths, bytemuck::cast_slice(depths))?;
            }
        }
        if let Some(rgb) = frame.rgb {
            assert_eq!(rgb.len(), pixels, "number of colours");
            put(&mut self.rgb, rgb.as_flattened())?;
        }
        if distance == DistanceAlong::Ray {
            let ratios = frame.camera.ray_ratios();
            put(&mut self.ratios, bytemuck::cast_slice(&ratios))?;
            self.ratios.gpu().synchronize()?;
        }
        Ok(())
    }
}

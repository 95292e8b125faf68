//! Poses, Jacobians, twists and manipulability of many rows of joints in device memory, with the same bits as
//! [`Model`].

use super::params::{Chain, Form, JacobiansParams, Link, PosesParams, kernel, kernel_for};
use robocache_device::Primitive;
use robocache_device::gpu::{Budget, DeviceBuf, DeviceFault, DevicePtr, DeviceSlice, Gpu};
use robocache_geometry::Real;
use robocache_kinematics::{Frame, Model, parts};

/// Forward kinematics of a chain on a device, in one float type.
pub struct GpuModel<R> {
    gpu: Gpu,
    chain: Chain<R>,
    form: Form,
    links: Vec<parts::Link<R>>,
}

/// Links of a chain, chosen for [`GpuModel::link_poses`], as a table in the memory of a device.
pub struct GpuLinks {
    memory: DeviceBuf,
    count: usize,
}

/// Threads of a block of the kernels for poses.
pub(super) const POSES_BLOCK: u32 = 128;
/// Threads of a block of the kernel for poses of links.
pub(super) const LINKS_BLOCK: u32 = 64;
/// Threads of a block of the kernels for Jacobians of six or seven joints that turn.
pub(super) const JACOBIANS_BLOCK: u32 = 64;
/// Threads of a block of the kernels for Jacobians, twists and manipulability of any chain.
pub(super) const JACOBIANS_ANY_BLOCK: u32 = 32;

/// Number of links whose poses a block writes.
pub(super) const LINKS_AT_A_TIME: u32 = 8;

/// Alignment, bytes, of an output of Jacobians that is written in chunks.
const CHUNK: usize = 16;

impl<R: Real + Primitive> GpuModel<R> {
    /// Prepares the chain of a model for a device.
    pub fn new(model: &Model<R>, gpu: &Gpu) -> Self {
        Self {
            gpu: gpu.clone(),
            chain: Chain::new(model),
            form: Form::of(model),
            links: model.link_parts().to_vec(),
        }
    }

    /// Enqueues the computation of [`Model::poses`] from `q` `[rows, n]` to `poses` `[rows, 7]`. The poses of invalid
    /// rows are NaN.
    ///
    /// # Errors
    /// [`DeviceFault::Slice`] if a slice has the wrong size or type, or is on another device; the driver's error.
    ///
    /// # Safety
    /// The memory of the slices lives until the stream is synchronized, and the two do not overlap.
    pub unsafe fn poses(&self, q: DeviceSlice<'_>, poses: DeviceSlice<'_>) -> Result<(), DeviceFault> {
        let rows = self.rows(q);
        let params = PosesParams {
            chain: self.chain,
            joints: self.expect("q", q, rows * self.chain.joints())?,
            poses: self.expect("poses", poses, rows * 7)?,
            links: DevicePtr::NULL,
            rows: rows as u64,
            link_count: 0,
            unused: 0,
        };
        let kernel = kernel_for!(R, self.form, "poses", "poses_any");
        // SAFETY: the slices were checked; the rest is the caller's promise.
        unsafe { self.gpu.launch(kernel, grid(rows, POSES_BLOCK), POSES_BLOCK, &params) }
    }

    /// Copies some links of the chain to the device, chosen by their indices in
    /// [`Chain::links`](robocache_kinematics::Chain::links).
    ///
    /// # Errors
    /// The device has too little memory, or the driver fails.
    ///
    /// # Panics
    /// If no link has one of the indices.
    pub fn links(&self, links: &[usize]) -> Result<GpuLinks, DeviceFault> {
        let table = links.iter().enumerate();
        let mut table: Vec<Link<R>> = table
            .map(|(place, &link)| Link::new(&self.links[link], place))
            .collect();
        table.sort_by_key(Link::segments);
        let bytes = size_of_val(table.as_slice());
        let mut memory = DeviceBuf::new(&self.gpu, &Budget::new(None));
        memory.reserve(bytes)?;
        // SAFETY: a `Link` has no padding: its numbers have one or two sizes, and its own size is a multiple of the larger.
        let table = unsafe { std::slice::from_raw_parts(table.as_ptr().cast::<u8>(), bytes) };
        // SAFETY: the stream is synchronized before the table is dropped.
        unsafe { memory.upload(0, table) }?;
        self.gpu.synchronize()?;
        Ok(GpuLinks {
            memory,
            count: links.len(),
        })
    }

    /// Enqueues the computation of [`Model::link_poses`] from `q` `[rows, n]` to `poses` `[rows, links, 7]`. The poses
    /// of invalid rows are NaN.
    ///
    /// # Errors
    /// The errors of [`poses`](Self::poses).
    ///
    /// # Safety
    /// As [`poses`](Self::poses), also for the memory of the links, which are of this model.
    pub unsafe fn link_poses(
        &self,
        q: DeviceSlice<'_>,
        links: &GpuLinks,
        poses: DeviceSlice<'_>,
    ) -> Result<(), DeviceFault> {
        let rows = self.rows(q);
        let params = PosesParams {
            chain: self.chain,
            joints: self.expect("q", q, rows * self.chain.joints())?,
            poses: self.expect("poses", poses, rows * links.count * 7)?,
            links: links.memory.pointer(),
            rows: rows as u64,
            link_count: links.count as u32,
            unused: 0,
        };
        let kernel = kernel!(R, "links");
        let [blocks, ..] = grid(rows, LINKS_BLOCK);
        let groups = params.link_count.div_ceil(LINKS_AT_A_TIME);
        // SAFETY: the slices were checked; the rest is the caller's promise.
        unsafe { self.gpu.launch(kernel, [blocks, groups, 1], LINKS_BLOCK, &params) }
    }

    /// Enqueues the computation of [`Model::jacobian`] of each row, from `q` `[rows, n]` to `out` `[rows, 6, n]`. The
    /// Jacobians of invalid rows are NaN.
    ///
    /// # Errors
    /// The errors of [`poses`](Self::poses).
    ///
    /// # Safety
    /// As [`poses`](Self::poses).
    pub unsafe fn jacobians(&self, q: DeviceSlice<'_>, frame: Frame, out: DeviceSlice<'_>) -> Result<(), DeviceFault> {
        let rows = self.rows(q);
        let out = self.expect("out", out, rows * 6 * self.chain.joints())?;
        let form = if out.is_aligned_to(CHUNK) { self.form } else { Form::Any };
        let kernel = kernel_for!(R, form, "jacobians", "jacobians_any");
        let block = match form {
            Form::Any => JACOBIANS_ANY_BLOCK,
            Form::Six | Form::Seven => JACOBIANS_BLOCK,
        };
        let params = self.jacobians_params(q, DevicePtr::NULL, frame, out)?;
        // SAFETY: the slices were checked; the rest is the caller's promise.
        unsafe { self.gpu.launch(kernel, grid(rows, block), block, &params) }
    }

    /// Enqueues the computation of [`Model::twists`] from `q` and `dq` `[rows, n]` to `out` `[rows, 6]`. The twists of
    /// invalid rows are NaN.
    ///
    /// # Errors
    /// The errors of [`poses`](Self::poses).
    ///
    /// # Safety
    /// As [`poses`](Self::poses).
    pub unsafe fn twists(
        &self,
        q: DeviceSlice<'_>,
        dq: DeviceSlice<'_>,
        frame: Frame,
        out: DeviceSlice<'_>,
    ) -> Result<(), DeviceFault> {
        let rows = self.rows(q);
        let out = self.expect("out", out, rows * 6)?;
        let dq = self.expect("dq", dq, rows * self.chain.joints())?;
        let params = self.jacobians_params(q, dq, frame, out)?;
        let (kernel, block) = (kernel!(R, "twists_any"), JACOBIANS_ANY_BLOCK);
        // SAFETY: the slices were checked; the rest is the caller's promise.
        unsafe { self.gpu.launch(kernel, grid(rows, block), block, &params) }
    }

    /// Enqueues the computation of [`Model::manipulabilities`] from `q` `[rows, n]` to `out` `[rows]`. The values of
    /// invalid rows are NaN.
    ///
    /// # Errors
    /// The errors of [`poses`](Self::poses).
    ///
    /// # Safety
    /// As [`poses`](Self::poses).
    pub unsafe fn manipulabilities(&self, q: DeviceSlice<'_>, out: DeviceSlice<'_>) -> Result<(), DeviceFault> {
        let rows = self.rows(q);
        let out = self.expect("out", out, rows)?;
        let params = self.jacobians_params(q, DevicePtr::NULL, Frame::Base, out)?;
        let (kernel, block) = (kernel!(R, "manipulabilities_any"), JACOBIANS_ANY_BLOCK);
        // SAFETY: the slices were checked; the rest is the caller's promise.
        unsafe { self.gpu.launch(kernel, grid(rows, block), block, &params) }
    }

    fn jacobians_params<'a>(
        &self,
        q: DeviceSlice<'a>,
        velocities: DevicePtr<'a>,
        frame: Frame,
        out: DevicePtr<'a>,
    ) -> Result<JacobiansParams<'a, R>, DeviceFault> {
        let rows = self.rows(q);
        Ok(JacobiansParams {
            chain: self.chain,
            joints: self.expect("q", q, rows * self.chain.joints())?,
            velocities,
            out,
            rows: rows as u64,
            frame: frame as u32,
            unused: 0,
        })
    }

    /// Number of whole rows of joints in `q`.
    fn rows(&self, q: DeviceSlice<'_>) -> usize {
        q.len() / self.chain.joints()
    }

    fn expect<'a>(
        &self,
        tensor: &'static str,
        slice: DeviceSlice<'a>,
        len: usize,
    ) -> Result<DevicePtr<'a>, DeviceFault> {
        Ok(slice.expect(tensor, R::DTYPE, len, &self.gpu)?.pointer())
    }
}

/// A CUDA grid of blocks of `block` threads, with one thread for each row.
pub(super) fn grid(rows: usize, block: u32) -> [u32; 3] {
    [rows.div_ceil(block as usize) as u32, 1, 1]
}

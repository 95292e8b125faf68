//! Makes one grid at a time, of messages, in the caller's memory. The messages stay borrowed until the device has read
//! them, after an error as well.

use super::super::plan::Plan;
use super::super::spec::{GridClouds, Spec};
use super::super::{Channel, CloudError, VoxelCounters, VoxelGrid, VoxelLayout, VoxelizeConfig};
use super::builder::GridBuilder;
use super::memory::Product;
use super::params::{CloudParams, Fields};
use super::points::{CloudsOnDevice, cloud_params};
use super::readback::Head;
use super::source::{CloudForm, Destination, describe};
use super::{VoxelizeError, scatter, spec_for_device};
use robocache_device::gpu::{Budget, DeviceBuf, DeviceFault, Gpu, PinnedBuf};
use robocache_device::{Dtype, Element};
use robocache_stream::{HostCloud, Layout, Message, PointCloud, PointCloudError};
use std::cell::{Cell, RefCell};

/// Makes grids of clouds on a CUDA device, as [`CpuVoxelizer`](super::super::CpuVoxelizer) does on the CPU and with the
/// same bits: [`gather`](Self::gather), then any of the `write_` methods, any number of times.
///
/// Its memory, on the device and page-locked, grows with the largest grid so far, and is reused. After an error of the
/// device, the next [`begin`](Self::begin) starts anew.
pub struct GpuVoxelizer {
    spec: Spec,
    dtype: Dtype,
    cloud_facts: GridClouds,
    builder: GridBuilder,
    /// Device memory for the points of each cloud that is uploaded from the host.
    points: Vec<DeviceBuf>,
    clouds: usize,
    /// True if the device may still read the clouds of a grid that was not finished.
    is_pending: bool,
    /// Page-locked host copy of the occupied cells and their features, from which a dense grid is written.
    rows: RefCell<PinnedBuf>,
    saturated: Cell<u64>,
    voxels: usize,
    output: Layout,
}

impl GpuVoxelizer {
    /// Creates a voxelizer for a configuration on a device, of whose memory it holds at most `max_bytes`; `None`: no
    /// limit.
    ///
    /// # Errors
    /// The errors of [`VoxelizeConfig::validate`]; more channels or fields than the kernels take; the driver's error.
    pub fn new(config: &VoxelizeConfig, gpu: &Gpu, max_bytes: Option<usize>) -> Result<Self, VoxelizeError> {
        let spec = spec_for_device(config)?;
        let budget = Budget::new(max_bytes);
        let product = match spec.layout {
            VoxelLayout::Bits => Product::Bits,
            VoxelLayout::Coo => Product::Rows { coords: true },
            VoxelLayout::Dense => Product::Rows { coords: false },
        };
        let mut cloud_facts = GridClouds::default();
        cloud_facts.clear(&spec.plan);
        Ok(Self {
            builder: GridBuilder::new(&spec, gpu, &budget, product)?,
            cloud_facts,
            points: Vec::new(),
            clouds: 0,
            is_pending: false,
            rows: PinnedBuf::new(gpu).into(),
            saturated: Cell::new(0),
            voxels: 0,
            output: spec.output(config.dtype),
            dtype: config.dtype,
            spec,
        })
    }

    /// The geometry of the grid: origin, cell size and shape.
    pub fn grid(&self) -> &VoxelGrid {
        &self.spec.grid
    }

    /// The channels, in the order of the output.
    pub fn channels(&self) -> &[Channel] {
        &self.spec.channels
    }

    /// The device that the voxelizer runs on.
    pub fn gpu(&self) -> &Gpu {
        self.builder.gpu()
    }

    /// Bytes of device memory that the voxelizer holds.
    pub fn used_bytes(&self) -> usize {
        self.builder.budget().used()
    }

    /// Budget in which the voxelizer's device memory counts.
    pub fn budget(&self) -> &Budget {
        self.builder.budget()
    }

    /// Starts a grid without points. From now on, the previous grid can't be written.
    ///
    /// # Errors
    /// The device has too little memory, or the driver fails.
    pub fn begin(&mut self) -> Result<(), DeviceFault> {
        if self.is_pending {
            self.builder.gpu().synchronize()?;
        }
        (self.clouds, self.is_pending) = (0, false);
        self.voxels = 0;
        self.cloud_facts.clear(&self.spec.plan);
        self.builder.begin(1, None)
    }

    /// Checks that a cloud has the fields that the channels are computed from.
    ///
    /// # Errors
    /// The error with which [`add`](Self::add) would refuse the cloud.
    pub fn check(&self, cloud: &PointCloud<'_>) -> Result<(), CloudError> {
        self.spec.check(cloud)
    }

    /// Makes a grid of messages, each with the index of its input, by [`begin`](Self::begin), [`add`](Self::add) and
    /// [`finish`](Self::finish). Messages that can't be added are handed to `refused`, and the grid is made of the others.
    ///
    /// # Errors
    /// The device has too little memory, or the driver fails.
    ///
    /// # Panics
    /// If an index is not the index of an input.
    pub fn gather<'a>(
        &mut self,
        messages: impl IntoIterator<Item = (usize, &'a Message)>,
        refused: impl FnMut(usize, CloudError),
    ) -> Result<VoxelCounters, DeviceFault> {
        let clouds = messages.into_iter();
        self.gather_clouds(
            clouds.map(|(input, message)| (input, HostCloud::from_message(message))),
            refused,
        )
    }

    /// Makes a grid of clouds as [`gather`](Self::gather) makes a grid of messages.
    pub(in super::super) fn gather_clouds<'a>(
        &mut self,
        clouds: impl Iterator<Item = (usize, Result<HostCloud<'a>, PointCloudError>)>,
        mut refused: impl FnMut(usize, CloudError),
    ) -> Result<VoxelCounters, DeviceFault> {
        let gather = || {
            self.begin()?;
            for (input, cloud) in clouds {
                // SAFETY: the messages are borrowed until `finish` has waited for them, or the stream is synchronized.
                let added = cloud
                    .map_err(VoxelizeError::from)
                    .and_then(|cloud| unsafe { self.add(input, &cloud.into()) });
                match added {
                    Ok(()) => {}
                    Err(VoxelizeError::Cloud(error)) => refused(input, error),
                    Err(VoxelizeError::Gpu(error)) => return Err(error),
                    Err(VoxelizeError::Config(error)) => unreachable!("the configuration was checked: {error}"),
                }
            }
            self.finish()
        };
        let counters = gather();
        if counters.is_err() {
            // The device may still read the messages. The first error is the one to report.
            let _ = self.builder.gpu().synchronize();
        }
        counters
    }

    /// Adds the points of a cloud of the input with index `input`.
    ///
    /// # Errors
    /// The reason why the cloud can't be part of the grid; the driver's error, after which the grid is lost.
    ///
    /// # Panics
    /// If `input` is not the index of an input.
    ///
    /// # Safety
    /// The device reads page-locked memory by itself: the cloud's memory is neither written nor freed until
    /// [`finish`](Self::finish) or the next [`begin`](Self::begin) has returned.
    pub unsafe fn add(&mut self, input: usize, cloud: &PointCloud<'_>) -> Result<(), VoxelizeError> {
        if let PointCloud::Device(cloud) = cloud {
            self.builder.gpu().check(cloud.buffer().gpu())?;
        }
        self.cloud_facts.add(&self.spec, cloud)?;
        if cloud.is_empty() {
            return Ok(());
        }
        self.is_pending = true;
        let mut params = cloud_params(&self.spec, input);
        let mut fields = Fields::default();
        match cloud {
            PointCloud::Host(cloud) => {
                if self.clouds == self.points.len() {
                    let points = DeviceBuf::new(self.builder.gpu(), self.builder.budget());
                    self.points.push(points);
                }
                let points = &mut self.points[self.clouds];
                self.clouds += 1;
                // SAFETY: as the caller promises.
                unsafe { upload(&self.spec.plan, cloud, points, &mut params, &mut fields) }?;
            }
            PointCloud::Device(cloud) => describe(&self.spec.plan, cloud, &mut params, &mut fields)?,
        }
        let clouds = CloudsOnDevice {
            cloud: params,
            fields,
            longest: cloud.len(),
            total: cloud.len(),
        };
        // SAFETY: the points stay unchanged until the next grid, which first waits for this one.
        unsafe { self.builder.add(&self.spec, clouds) }?;
        Ok(())
    }

    /// Computes the cells of the grid, and returns the counts of its points.
    ///
    /// # Errors
    /// The device has too little memory, or the driver fails. The grid is then lost.
    pub fn finish(&mut self) -> Result<VoxelCounters, DeviceFault> {
        let points = self.cloud_facts.points;
        // SAFETY: as in `add`.
        unsafe { self.builder.finish(&self.spec, &self.cloud_facts, points, Head::Read) }?;
        self.builder.readback.wait()?;
        (self.clouds, self.is_pending) = (0, false);
        if self.spec.layout != VoxelLayout::Bits {
            self.voxels = self.builder.readback.first_row(1);
        }
        if self.spec.layout == VoxelLayout::Coo {
            self.output.rows = self.voxels;
        }
        Ok(self.builder.readback.counters(0, points))
    }

    /// Number of values of kept points that channels leave out because they are not finite, or beyond the bound: one for
    /// each field beside x, y and z. The fields are in the order in which the channels first name them. Waits until the
    /// values are counted.
    ///
    /// # Errors
    /// The driver's error.
    pub fn unusable(&self) -> Result<&[u64], DeviceFault> {
        if self.spec.plan.fields.is_empty() {
            return Ok(&[]);
        }
        self.builder.readback.wait_for_unusable()?;
        Ok(self.builder.readback.unusable(0))
    }

    /// Number of values beyond the range of the last written dense grid's type, written as the greatest or least value
    /// of the type.
    pub fn saturated(&self) -> u64 {
        self.saturated.get()
    }

    /// Number of occupied cells in the output; 0 in layout `bits`, where the cells are not counted.
    pub fn voxels(&self) -> usize {
        self.voxels
    }

    /// The columns of the output, and its number of rows for the grid that was finished last.
    pub fn layout(&self) -> &Layout {
        &self.output
    }

    /// Writes the occupied cells in cell order: the cell indices x, y, z to `coords`, and a value for each channel to
    /// `features`, cell by cell.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Panics
    /// If `coords` does not have 3 elements for each of the [`voxels`](Self::voxels), or `features` not C elements for
    /// each; if the layout is not `coo`.
    pub fn write_coo(&self, coords: &mut [i32], features: &mut [f32]) -> Result<(), DeviceFault> {
        let columns = self.spec.channels.len();
        assert_eq!(
            self.spec.layout,
            VoxelLayout::Coo,
            "the layout that the voxelizer was made for"
        );
        assert_eq!(coords.len(), self.voxels * 3, "three coordinates for each voxel");
        assert_eq!(features.len(), self.voxels * columns, "one feature for each channel");
        DeviceBuf::fetch_each([
            (self.builder.rows.coords(), 0, bytemuck::cast_slice_mut(coords)),
            (self.builder.rows.features(), 0, bytemuck::cast_slice_mut(features)),
        ])
    }

    /// Writes every byte of the bitmap: cell `i` is bit `i % 8`, least significant first, of byte `i / 8`.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Panics
    /// If `out` does not have ceil(X * Y * Z / 8) bytes.
    pub fn write_bits(&self, out: &mut [u8]) -> Result<(), DeviceFault> {
        assert_eq!(out.len(), self.spec.grid.cells().div_ceil(8), "one bit for each cell");
        let (bitmap, at) = self.builder.memory.bitmap(0);
        DeviceBuf::fetch_each([(bitmap, at, out)])
    }

    /// Writes every element of the tensor `[C, X, Y, Z]`: 0 in all channels of a cell without points. Only the occupied
    /// cells are copied from the device: they are far fewer bytes.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Panics
    /// If `out` does not have C * X * Y * Z elements, or the layout is not `dense`.
    pub fn write_dense<E: Element>(&self, out: &mut [E]) -> Result<(), DeviceFault> {
        let columns = self.spec.channels.len();
        assert_eq!(
            self.spec.layout,
            VoxelLayout::Dense,
            "the layout that the voxelizer was made for"
        );
        assert_eq!(
            out.len(),
            self.spec.grid.cells() * columns,
            "one element for each channel of each cell"
        );
        let mut rows = self.rows.borrow_mut();
        let [order, features] = self.builder.fetch_rows(self.voxels, columns, &mut rows)?;
        self.saturated.set(scatter(order, features, columns, out));
        Ok(())
    }

    /// Writes the grid to the beginning of `out`, which grows if needed: the tensor `[C, X, Y, Z]` of the
    /// configuration's type, or the bitmap. Waits until the copy is done.
    ///
    /// # Errors
    /// `out` is on another device; too little device memory; the driver's error.
    ///
    /// # Panics
    /// If the layout is `coo`: see [`write_coo_on_device`](Self::write_coo_on_device).
    pub fn write_on_device(&mut self, out: &mut DeviceBuf) -> Result<(), DeviceFault> {
        self.builder.gpu().check(out.gpu())?;
        let cells = self.spec.grid.cells();
        match self.spec.layout {
            VoxelLayout::Coo => panic!("the layout `coo` has two columns"),
            VoxelLayout::Bits => {
                let bytes = cells.div_ceil(8);
                out.reserve(bytes)?;
                self.builder.gpu().synchronize()?;
                let (bitmap, at) = self.builder.memory.bitmap(0);
                out.copy_from(0, bitmap, at, bytes)?;
                out.gpu().synchronize()
            }
            VoxelLayout::Dense => {
                let bytes = cells * self.spec.channels.len() * self.dtype.size();
                out.reserve(bytes)?;
                out.clear(0, bytes)?;
                // The stream of `out` may be another one.
                out.gpu().synchronize()?;
                // SAFETY: `out` was just made as large as that, and is borrowed until the stream is synchronized.
                unsafe {
                    self.builder
                        .write_dense(&self.spec, &self.cloud_facts, self.dtype, out.pointer())
                }?;
                self.builder.gpu().synchronize()?;
                self.saturated.set(self.builder.readback.saturated(0));
                Ok(())
            }
        }
    }

    /// Writes the occupied cells to the beginning of two buffers on the device, as [`write_coo`](Self::write_coo) does
    /// on the host. The buffers grow if needed. Waits until the copies are done.
    ///
    /// # Errors
    /// A buffer is on another device; too little device memory; the driver's error.
    ///
    /// # Panics
    /// If the layout is not `coo`.
    pub fn write_coo_on_device(&self, coords: &mut DeviceBuf, features: &mut DeviceBuf) -> Result<(), DeviceFault> {
        assert_eq!(
            self.spec.layout,
            VoxelLayout::Coo,
            "the layout that the voxelizer was made for"
        );
        self.builder.gpu().synchronize()?;
        let rows = &self.builder.rows;
        let pieces = [
            (coords, rows.coords(), 3 * size_of::<i32>()),
            (features, rows.features(), self.spec.channels.len() * size_of::<f32>()),
        ];
        for (to, from, row_bytes) in pieces {
            self.builder.gpu().check(to.gpu())?;
            let bytes = self.voxels * row_bytes;
            to.reserve(bytes)?;
            to.copy_from(0, from, 0, bytes)?;
            to.gpu().synchronize()?;
        }
        Ok(())
    }
}

/// Enqueues the copy of a cloud to the device, and writes the address, stride and type of each of its fields to
/// `params` and `fields`.
///
/// # Safety
/// The cloud's memory is neither written nor freed until the stream is synchronized.
unsafe fn upload<'a>(
    plan: &Plan,
    cloud: &HostCloud<'_>,
    points: &'a mut DeviceBuf,
    params: &mut CloudParams<'a>,
    fields: &mut Fields<'a>,
) -> Result<(), VoxelizeError> {
    let form = CloudForm::of(plan, cloud)?;
    points.reserve(form.bytes(cloud.len()))?;
    let points = &*points;
    let to = Destination {
        buffer: points,
        first: 0,
        points: cloud.len(),
    };
    // SAFETY: as the caller promises.
    unsafe { form.upload(plan, cloud, to) }?;
    form.describe(points.pointer(), cloud.len(), params, fields);
    Ok(())
}

//! A voxel grid that has been computed from its clouds and is still to be written. If the device fails before the grid
//! is written, the CPU recomputes the grid.

use super::backends::{Backends, Clouds, GatherRecord};
use super::collector::Collector;
use super::{Channel, CloudError, VoxelCounters, VoxelGrid, VoxelLayout};
use robocache_device::Device;
use robocache_device::gpu::{Budget, DeviceFault, Gpu};
use robocache_stream::{DeviceColumn, Layout, Payload};
use std::time::{Duration, Instant};

/// A voxel grid that has been computed from its clouds and can now be [written](Self::write).
pub struct GatheredGrid<'a> {
    backends: &'a mut Backends,
    clouds: Clouds<'a>,
    /// The collector that selected the clouds; `None` if the caller selected them.
    collector: Option<&'a Collector>,
    stamp_ns: i64,
    made: GatherRecord,
    /// Time that computing and writing the grid have taken so far.
    compute_time: Duration,
}

impl<'a> GatheredGrid<'a> {
    /// Computes a grid from clouds. `collector` is the collector that selected the clouds; `None` if the
    /// caller selected them.
    pub(super) fn new(
        backends: &'a mut Backends,
        mut collector: Option<&'a mut Collector>,
        clouds: Clouds<'a>,
        mut stamp_ns: i64,
        start: Instant,
    ) -> Self {
        let made = backends.gather(clouds);
        if let Some(collector) = &mut collector {
            for (input, _) in &backends.refused {
                stamp_ns = collector.refuse(*input);
            }
        }
        Self {
            backends,
            clouds,
            collector: collector.map(|collector| &*collector),
            stamp_ns,
            made,
            compute_time: start.elapsed(),
        }
    }

    /// The stamp of the grid, ns: the newest stamp of its clouds. If clouds were refused, the stamp can be newer than
    /// the remaining clouds, so that the stamps of grids increase.
    pub fn stamp_ns(&self) -> i64 {
        self.stamp_ns
    }

    /// Validity of each input: 1 if a cloud of it is in the grid, else 0. Empty if the caller chose the clouds.
    pub fn inputs_valid(&self) -> &[i64] {
        self.collector.map_or(&[], Collector::inputs_valid)
    }

    /// Age of each input's cloud: the stamp of the grid minus the stamp of the cloud, ns; -1 if the grid has no cloud of
    /// the input. Empty if the caller chose the clouds.
    pub fn inputs_age_ns(&self) -> &[i64] {
        self.collector.map_or(&[], Collector::inputs_age_ns)
    }

    /// The least and the greatest finite coordinate of the grid's clouds on each axis, before any extrinsic. `None` if an
    /// axis has no finite coordinate. Reads all points.
    pub fn bounds_of_clouds(&self) -> Option<[[f32; 2]; 3]> {
        let mut bounds = [[f32::INFINITY, f32::NEG_INFINITY]; 3];
        let mut values = Vec::new();
        for cloud in self.clouds.iter().filter_map(|(_, cloud)| cloud.ok()) {
            values.resize(cloud.len(), 0.0);
            for (field, [least, greatest]) in cloud.xyz().iter().zip(&mut bounds) {
                field.to_f32(0, &mut values);
                for &value in values.iter().filter(|value| value.is_finite()) {
                    (*least, *greatest) = (least.min(value), greatest.max(value));
                }
            }
        }
        let is_known = bounds.iter().all(|[least, greatest]| least <= greatest);
        is_known.then_some(bounds)
    }

    /// Returns by how much this grid is older than the grid before it, ns; `None` if it is not older. A grid is older
    /// only if the clock of the grid before is gone, as [`Collector`] defines.
    pub fn back_ns(&self) -> Option<i64> {
        self.collector.and_then(Collector::back_ns)
    }

    /// Indices of the inputs whose waiting clouds were dropped when this grid was made: they follow a clock that is
    /// gone, as [`Collector`] defines. Empty if the caller chose the clouds.
    pub fn left_out(&self) -> &[usize] {
        self.collector.map_or(&[], Collector::left_out)
    }

    /// The clouds that could not be part of the grid: for each, the index of its input and the reason.
    pub fn refused(&self) -> &[(usize, CloudError)] {
        &self.backends.refused
    }

    /// The columns and the number of rows of the payload that [`write`](Self::write) fills.
    pub fn layout(&self) -> &Layout {
        &self.backends.output
    }

    /// Writes the grid to `payload`. If the device fails, the CPU first recomputes the grid.
    ///
    /// # Panics
    /// If the payload has another [`layout`](Self::layout).
    pub fn write(&mut self, payload: &mut Payload<'_>) {
        let start = Instant::now();
        self.backends.write(&mut self.made, self.clouds, payload);
        self.compute_time += start.elapsed();
        let GatherRecord { work, device, .. } = self.made;
        self.backends.gpu.took(work, device, self.compute_time);
    }

    /// The device that holds the grid, and the budget that limits its memory. `None` if the CPU computed the grid, or
    /// if grids are not to stay on the device.
    pub fn on_device(&mut self) -> Option<(Gpu, Budget)> {
        let stays = self.backends.stays_on_device && self.made.device != Device::Cpu;
        let on_gpu = self.backends.gpu.on_gpu().filter(|_| stays)?;
        Some((on_gpu.gpu().clone(), on_gpu.budget().clone()))
    }

    /// Writes the grid to columns in the memory of its device, and waits until the copy is done. The columns are those
    /// of the grid's [`layout`](Self::layout).
    ///
    /// # Errors
    /// The device has too little memory, or the driver fails. The grid can still be [written](Self::write) to the host.
    ///
    /// # Panics
    /// If the columns have another layout.
    pub fn write_on_device(&mut self, columns: &mut [DeviceColumn]) -> Result<(), DeviceFault> {
        let start = Instant::now();
        let backends = &mut *self.backends;
        if let Some(on_gpu) = backends.gpu.on_gpu() {
            match (backends.layout, columns) {
                (VoxelLayout::Coo, [coords, features]) => {
                    on_gpu.write_coo_on_device(&mut coords.memory, &mut features.memory)?;
                }
                (VoxelLayout::Dense | VoxelLayout::Bits, [only]) => on_gpu.write_on_device(&mut only.memory)?,
                (layout, columns) => panic!("{} columns for the layout `{}`", columns.len(), layout.name()),
            }
            backends.saturated = on_gpu.saturated();
            backends.unusable.clear();
            backends.unusable.extend_from_slice(on_gpu.unusable()?);
            self.made.device_bytes = Some(on_gpu.used_bytes());
        }
        self.compute_time += start.elapsed();
        Ok(())
    }

    /// Records that the grid could not be passed on in device memory. If the device had too little memory, the next
    /// grids are passed on in host memory for a while.
    pub fn failed_to_hand_on(&mut self, error: &DeviceFault) {
        // Any other fault of the device shows when the grid is written to the host.
        if error.is_memory() {
            self.backends.gpu.failed_to_hand_on(error);
        }
    }

    /// Counts of the grid's points: points kept, and points dropped for each reason.
    pub fn counters(&self) -> VoxelCounters {
        self.made.counters
    }

    /// The geometry of the grid: origin, cell size and shape.
    pub fn grid(&self) -> &VoxelGrid {
        self.backends.cpu.grid()
    }

    /// The channels, in the order of the output.
    pub fn channels(&self) -> &[Channel] {
        self.backends.cpu.channels()
    }

    /// Returns the name of each field beside x, y and z that channels need, and a description of its usable values.
    /// Fields are in the order in which the channels first name them.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.backends.cpu.fields()
    }

    /// Number of unusable values of each of the [`fields`](Self::fields), which the field's channels leave out. A value
    /// of a kept point is unusable if it is not finite, or is beyond the bound in the field's description. Known once
    /// the grid is written.
    pub fn unusable(&self) -> &[u64] {
        &self.backends.unusable
    }

    /// Number of values of a dense grid beyond the range of its element type, which are written as the type's greatest
    /// or least value. Known once the grid is written.
    pub fn saturated(&self) -> u64 {
        self.backends.saturated
    }

    /// The device that computed the grid, or the CPU. Final once the grid is written, because the CPU recomputes the
    /// grid if the device fails.
    pub fn device(&self) -> Device {
        self.made.device
    }

    /// Time that computing and writing the grid took, without the time between the two calls.
    pub fn compute_time(&self) -> Duration {
        self.compute_time
    }

    /// Bytes of device memory that the voxelizer uses; `None` if the CPU computed the grid. Known once the
    /// grid is written.
    pub fn device_bytes(&self) -> Option<usize> {
        self.made.device_bytes
    }
}

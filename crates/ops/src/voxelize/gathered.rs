//! A grid whose clouds are gathered, and which is still to be written. If the device fails before the grid is written,
//! the CPU makes the same grid again.

use super::backends::{Backends, Clouds, GatherRecord};
use super::collector::Collector;
use super::{Channel, CloudError, VoxelCounters, VoxelGrid, VoxelLayout};
use robocache_device::Device;
use robocache_device::gpu::{Budget, DeviceFault, Gpu};
use robocache_stream::{DeviceColumn, Layout, Payload};
use std::time::{Duration, Instant};

/// A grid whose clouds are gathered, and which can now be [written](Self::write).
pub struct GatheredGrid<'a> {
    backends: &'a mut Backends,
    clouds: Clouds<'a>,
    /// The collector that found the grid due; `None` if the caller chose the clouds.
    collector: Option<&'a Collector>,
    stamp_ns: i64,
    made: GatherRecord,
    /// Time that gathering and writing the grid have taken so far.
    compute_time: Duration,
}

impl<'a> GatheredGrid<'a> {
    /// Gathers the clouds of a grid. `collector` is the collector that found the grid due; `None` if the caller chose
    /// the clouds.
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

    /// Stamp of the grid before this grid, minus this grid's stamp, ns, if the clock of the grid before counts as gone.
    /// `None` if this grid is not older.
    pub fn back_ns(&self) -> Option<i64> {
        self.collector.and_then(Collector::back_ns)
    }

    /// Indices of the inputs whose waiting clouds were dropped when this grid was made, because their clock counts as
    /// gone. Empty if the caller chose the clouds.
    pub fn left_out(&self) -> &[usize] {
        self.collector.map_or(&[], Collector::left_out)
    }

    /// The clouds that could not be part of the grid: for each, the index of its input and the reason.
    pub fn refused(&self) -> &[(usize, CloudError)] {
        &self.backends.refused
    }

    /// The columns and the number of rows of the payload that [`write`](Self::write) needs.
    pub fn layout(&self) -> &Layout {
        &self.backends.output
    }

    /// Writes the payload. If the device fails, the CPU makes the grid again.
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

    /// The device that holds the grid, and the budget of its memory. `None` if the CPU made the grid, or if grids are
    /// not to stay on the device.
    pub fn on_device(&mut self) -> Option<(Gpu, Budget)> {
        let stays = self.backends.stays_on_device && self.made.device != Device::Cpu;
        let on_gpu = self.backends.gpu.on_gpu().filter(|_| stays)?;
        Some((on_gpu.gpu().clone(), on_gpu.budget().clone()))
    }

    /// Writes the payload to columns of the grid's [`layout`](Self::layout) in the memory of the grid's device, and
    /// waits until the copy is done.
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

    /// Reports that the grid could not be passed on in device memory. If the device had too little memory, grids are
    /// passed on in host memory for a while.
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

    /// The fields beside x, y and z that channels are computed from, in the order in which the channels first name them.
    /// Each has a description of its usable values.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.backends.cpu.fields()
    }

    /// Number of values of kept points that the channels of each of the [`fields`](Self::fields) leave out. These are
    /// values that are not finite, or are beyond the bound in the field's description. Known once the grid is written.
    pub fn unusable(&self) -> &[u64] {
        &self.backends.unusable
    }

    /// Number of values beyond the range of a dense grid's type, written as the greatest or least value of the type.
    /// Known once the grid is written.
    pub fn saturated(&self) -> u64 {
        self.backends.saturated
    }

    /// The device that made the grid, or the CPU. Final once the grid is written.
    pub fn device(&self) -> Device {
        self.made.device
    }

    /// Time that gathering and writing the grid took, without the time between the calls.
    pub fn compute_time(&self) -> Duration {
        self.compute_time
    }

    /// Bytes of device memory that the operation holds; `None` if the CPU made the grid. Known once the grid is written.
    pub fn device_bytes(&self) -> Option<usize> {
        self.made.device_bytes
    }
}

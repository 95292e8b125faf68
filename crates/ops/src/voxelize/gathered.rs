//! A grid whose clouds are gathered.

use super::backends::{Backends, Clouds, Made};
use super::collector::Collector;
use super::{Channel, CloudError, VoxelCounters, VoxelGrid, VoxelLayout};
use robocache_device::Device;
use robocache_device::gpu::{Budget, DeviceFault, Gpu};
use robocache_stream::{DeviceColumn, Layout, Payload};
use std::time::{Duration, Instant};

/// A grid of which the clouds are gathered, to be written: [`write`](Self::write).
pub struct GatheredGrid<'a> {
    backends: &'a mut Backends,
    clouds: Clouds<'a>,
    /// The collector that found the grid due; `None` if its clouds were given.
    collector: Option<&'a Collector>,
    stamp_ns: i64,
    made: Made,
    /// The time that it has taken so far.
    compute_time: Duration,
}

impl<'a> GatheredGrid<'a> {
    /// Gathers clouds, which `collector` has found due if there is one.
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

    /// The newest stamp in it, ns.
    pub fn stamp_ns(&self) -> i64 {
        self.stamp_ns
    }

    /// One number for each input: 1 if a cloud of it is in the grid, else 0. Empty where the clouds were given.
    pub fn inputs_valid(&self) -> &[i64] {
        self.collector.map_or(&[], Collector::inputs_valid)
    }

    /// For each input the stamp of the grid minus that of its cloud, ns; -1 where none is in it. Empty where the clouds
    /// were given.
    pub fn inputs_age_ns(&self) -> &[i64] {
        self.collector.map_or(&[], Collector::inputs_age_ns)
    }

    /// The least and the greatest finite coordinate of its clouds on each axis, before any extrinsic; `None` where there is
    /// none. It goes through all points.
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

    /// Time by which it is before the grid before it, ns: the clouds of that one were of a clock that is gone.
    pub fn back_ns(&self) -> Option<i64> {
        self.collector.and_then(Collector::back_ns)
    }

    /// The inputs of which a cloud waited that is of that clock: no grid has it.
    pub fn left_out(&self) -> &[usize] {
        self.collector.map_or(&[], Collector::left_out)
    }

    /// The clouds that could not be part of it after all, each with its input and why.
    pub fn refused(&self) -> &[(usize, CloudError)] {
        &self.backends.refused
    }

    /// The form and size of the payload.
    pub fn layout(&self) -> &Layout {
        &self.backends.output
    }

    /// Writes the payload. Where the device fails meanwhile, the CPU makes the grid again.
    ///
    /// # Panics
    /// If the payload has another [`layout`](Self::layout).
    pub fn write(&mut self, payload: &mut Payload<'_>) {
        let start = Instant::now();
        self.backends.write(&mut self.made, self.clouds, payload);
        self.compute_time += start.elapsed();
        let Made { work, device, .. } = self.made;
        self.backends.gpu.took(work, device, self.compute_time);
    }

    /// The device that the grid is on, if it is to be left there, and the budget that its memory counts in.
    pub fn on_device(&mut self) -> Option<(Gpu, Budget)> {
        let stays = self.backends.stays_on_device && self.made.device != Device::Cpu;
        let on_gpu = self.backends.gpu.on_gpu().filter(|_| stays)?;
        Some((on_gpu.gpu().clone(), on_gpu.budget().clone()))
    }

    /// Writes the payload to columns of its [`layout`](Self::layout) in memory of its device. It is there on return.
    ///
    /// # Errors
    /// No memory; what the driver says. The grid can still be [written](Self::write) to the host.
    ///
    /// # Panics
    /// If the columns are of another layout.
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

    /// Notes that it could not be handed on where it is. If memory was short, grids leave the device for a while.
    pub fn failed_to_hand_on(&mut self, error: &DeviceFault) {
        // What else is lost shows when it is written to the host.
        if error.is_memory() {
            self.backends.gpu.failed_to_hand_on(error);
        }
    }

    /// The counts of its points, by what became of them.
    pub fn counters(&self) -> VoxelCounters {
        self.made.counters
    }

    /// The grid that it fills.
    pub fn grid(&self) -> &VoxelGrid {
        self.backends.cpu.grid()
    }

    /// The channels, in the order of the output.
    pub fn channels(&self) -> &[Channel] {
        self.backends.cpu.channels()
    }

    /// The fields beside x, y and z that channels are computed from, in the order in which the channels first name them,
    /// each with the values that its channels can take, in words.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.backends.cpu.fields()
    }

    /// The number of values of points that are kept which the channels of each of the [`fields`](Self::fields) leave out. Known
    /// once the grid is written.
    pub fn unusable(&self) -> &[u64] {
        &self.backends.unusable
    }

    /// The number of values that the type of a dense grid can't hold: its greatest or least stands instead. Known once the grid is
    /// written.
    pub fn saturated(&self) -> u64 {
        self.backends.saturated
    }

    /// The device that it was made on. Final once the grid is written.
    pub fn device(&self) -> Device {
        self.made.device
    }

    /// The time that it took, from the call that gathered it on, without the time between its calls.
    pub fn compute_time(&self) -> Duration {
        self.compute_time
    }

    /// Bytes of device memory that the operation holds, where the grid was made on a device. Known once it is written.
    pub fn device_bytes(&self) -> Option<usize> {
        self.made.device_bytes
    }
}

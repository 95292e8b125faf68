//! Computes each voxel grid on the CPU or on a device, and chooses between the two. Both give the same bits, so the CPU
//! recomputes a grid if the device fails.

use super::gpu::{GpuVoxelizer, VoxelizeError};
use super::{CloudError, ConfigError, CpuVoxelizer, VoxelCounters, VoxelLayout, VoxelizeConfig};
use half::{bf16, f16};
use robocache_device::gpu::{DeviceFault, Gpu};
use robocache_device::{Backend, Device, Dtype, Placement, Work};
use robocache_stream::{HostCloud, Layout, Message, Payload, PointCloudError};

/// Total size of a grid's clouds, bytes, below which [`Placement`] `auto` always uses the CPU: it finishes before a
/// device could start.
const CPU_BYTES: usize = 1 << 14;

/// The point clouds of a grid, each with the index of its input.
#[derive(Clone, Copy)]
pub(super) enum Clouds<'a> {
    Given(&'a [(usize, &'a Message)]),
    One(usize, HostCloud<'a>),
    /// Indices of the inputs with a cloud in the grid, and the waiting clouds of all inputs, by input index.
    Waiting(&'a [usize], &'a [Message]),
}

/// The CPU's and the device's voxelizer, with the output layout, the refused clouds and the counts of the last grid.
pub(super) struct Backends {
    pub(super) cpu: CpuVoxelizer,
    pub(super) gpu: Backend<GpuVoxelizer>,
    pub(super) layout: VoxelLayout,
    dtype: Dtype,
    pub(super) stays_on_device: bool,
    pub(super) output: Layout,
    pub(super) refused: Vec<(usize, CloudError)>,
    pub(super) unusable: Vec<u64>,
    pub(super) saturated: u64,
}

/// Facts about a computed grid: counts of its points, the CPU or device that computed it, device memory in use, and
/// bytes of its clouds.
#[derive(Clone, Copy)]
pub(super) struct GatherRecord {
    pub(super) counters: VoxelCounters,
    pub(super) device: Device,
    pub(super) device_bytes: Option<usize>,
    /// Bytes of the grid's clouds. Past compute times for this size decide whether the CPU or the device computes
    /// the next grid.
    pub(super) work: usize,
}

impl<'a> Clouds<'a> {
    pub(super) fn iter(self) -> impl Iterator<Item = (usize, Result<HostCloud<'a>, PointCloudError>)> {
        let len = match self {
            Self::Given(clouds) => clouds.len(),
            Self::One(..) => 1,
            Self::Waiting(inputs, _) => inputs.len(),
        };
        (0..len).map(move |i| match self {
            Self::Given(clouds) => (clouds[i].0, HostCloud::from_message(clouds[i].1)),
            Self::One(input, cloud) => (input, Ok(cloud)),
            Self::Waiting(inputs, clouds) => (inputs[i], HostCloud::from_message(&clouds[inputs[i]])),
        })
    }

    /// Total bytes of the clouds' messages.
    fn bytes(self) -> usize {
        match self {
            Self::Given(clouds) => clouds.iter().map(|(_, cloud)| cloud.bytes()).sum(),
            Self::One(_, cloud) => cloud.bytes(),
            Self::Waiting(inputs, clouds) => inputs.iter().map(|&input| clouds[input].bytes()).sum(),
        }
    }
}

impl Backends {
    pub(super) fn new(config: &VoxelizeConfig, placement: &Placement) -> Result<Self, ConfigError> {
        let cpu = CpuVoxelizer::new(config)?;
        let on_gpu = |gpus: &[Gpu]| GpuVoxelizer::new(config, &gpus[0], placement.max_bytes());
        let on_gpu = Backend::new("voxelize", placement, CPU_BYTES, on_gpu).map_err(|error| match error {
            VoxelizeError::Config(error) => error,
            error => ConfigError::new("device", error.to_string()),
        })?;
        Ok(Self {
            output: cpu.layout().clone(),
            cpu,
            gpu: on_gpu,
            layout: config.layout,
            dtype: config.dtype,
            stays_on_device: false,
            refused: Vec::new(),
            unusable: Vec::new(),
            saturated: 0,
        })
    }

    /// Computes a grid from clouds on the faster of the CPU and the device. If grids are to stay in device memory, the
    /// device computes it.
    pub(super) fn gather(&mut self, clouds: Clouds<'_>) -> GatherRecord {
        self.unusable.clear();
        self.saturated = 0;
        let work = clouds.bytes();
        let (stays, refused) = (self.stays_on_device, &mut self.refused);
        let mut gathering = Gathering { clouds, refused };
        let ((counters, rows), device) = self.gpu.run(&mut gathering, &mut self.cpu, work, stays);
        self.output.rows = rows;
        GatherRecord {
            counters,
            device,
            device_bytes: None,
            work,
        }
    }

    /// Writes the grid that was computed from `clouds` to `payload`. If the device fails, the CPU first
    /// recomputes the grid.
    pub(super) fn write(&mut self, made: &mut GatherRecord, clouds: Clouds<'_>, payload: &mut Payload<'_>) {
        let mut writing = Writing {
            layout: self.layout,
            dtype: self.dtype,
            payload,
            unusable: &mut self.unusable,
        };
        if let (Device::Gpu(..), Some(on_gpu)) = (made.device, self.gpu.on_gpu()) {
            match writing.on_gpu(on_gpu) {
                Ok(saturated) => {
                    self.saturated = saturated;
                    made.device_bytes = Some(on_gpu.used_bytes());
                    return;
                }
                Err(error) => self.gpu.failed(made.work, error),
            }
            let refused = &mut self.refused;
            (made.counters, self.output.rows) = Gathering { clouds, refused }.on_cpu(&mut self.cpu);
            made.device = Device::Cpu;
        }
        self.saturated = writing.on_cpu(&mut self.cpu);
    }
}

/// Work for the CPU or the device: computes a grid from its clouds. The result is the counts of the points, and the
/// number of rows of the grid's payload.
struct Gathering<'a> {
    clouds: Clouds<'a>,
    refused: &'a mut Vec<(usize, CloudError)>,
}

impl Work for Gathering<'_> {
    type Cpu = CpuVoxelizer;
    type Gpu = GpuVoxelizer;
    type Done = (VoxelCounters, usize);
    type Fault = DeviceFault;

    fn on_cpu(&mut self, cpu: &mut CpuVoxelizer) -> Self::Done {
        self.refused.clear();
        let refuse = |input, error| self.refused.push((input, error));
        let counters = cpu.gather_clouds(self.clouds.iter(), refuse);
        (counters, cpu.layout().rows)
    }

    fn on_gpu(&mut self, gpu: &mut GpuVoxelizer) -> Result<Self::Done, DeviceFault> {
        self.refused.clear();
        let refuse = |input, error| self.refused.push((input, error));
        let counters = gpu.gather_clouds(self.clouds.iter(), refuse)?;
        Ok((counters, gpu.layout().rows))
    }
}

/// Work for the CPU or the device: writes a computed grid to a payload. The result is the number of values beyond the
/// range of the grid's element type.
struct Writing<'a, 'b> {
    layout: VoxelLayout,
    dtype: Dtype,
    payload: &'a mut Payload<'b>,
    unusable: &'a mut Vec<u64>,
}

impl Work for Writing<'_, '_> {
    type Cpu = CpuVoxelizer;
    type Gpu = GpuVoxelizer;
    type Done = u64;
    type Fault = DeviceFault;

    fn on_cpu(&mut self, cpu: &mut CpuVoxelizer) -> u64 {
        match (self.layout, self.dtype) {
            (VoxelLayout::Bits, _) => cpu.write_bits(self.payload.column(0)),
            (VoxelLayout::Coo, _) => {
                let (coords, features) = self.payload.columns();
                cpu.write_coo(coords, features);
            }
            (VoxelLayout::Dense, Dtype::Float16) => cpu.write_dense::<f16>(self.payload.column(0)),
            (VoxelLayout::Dense, Dtype::BFloat16) => cpu.write_dense::<bf16>(self.payload.column(0)),
            (VoxelLayout::Dense, _) => cpu.write_dense::<f32>(self.payload.column(0)),
        }
        self.unusable.clear();
        self.unusable.extend_from_slice(cpu.unusable());
        cpu.saturated()
    }

    fn on_gpu(&mut self, gpu: &mut GpuVoxelizer) -> Result<u64, DeviceFault> {
        match (self.layout, self.dtype) {
            (VoxelLayout::Bits, _) => gpu.write_bits(self.payload.column(0)),
            (VoxelLayout::Coo, _) => {
                let (coords, features) = self.payload.columns();
                gpu.write_coo(coords, features)
            }
            (VoxelLayout::Dense, Dtype::Float16) => gpu.write_dense::<f16>(self.payload.column(0)),
            (VoxelLayout::Dense, Dtype::BFloat16) => gpu.write_dense::<bf16>(self.payload.column(0)),
            (VoxelLayout::Dense, _) => gpu.write_dense::<f32>(self.payload.column(0)),
        }?;
        self.unusable.clear();
        self.unusable.extend_from_slice(gpu.unusable()?);
        Ok(gpu.saturated())
    }
}

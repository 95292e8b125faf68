//! The operation itself: clouds in, grids out, on whichever device is quicker.

use super::collector::{Arrival, Collector};
use super::cuda::{CudaVoxelizer, VoxelizeError};
use super::{
    Channel, Cloud, CloudError, ConfigError, CpuVoxelizer, VoxelCounters, VoxelGrid, VoxelLayout, VoxelizeConfig,
};
use half::{bf16, f16};
use robocache_device::cuda::{Budget, CudaError, DeviceBuf, Gpu};
use robocache_device::{Backend, Device, Dtype, Placement};
use robocache_stream::{Layout, Message, Payload};
use robocache_time::is_stamp_in_range;
use std::time::{Duration, Instant};

/// Makes voxel grids of point clouds, on the CPU or on a device.
///
/// Clouds go in with [`push`](Self::push), as they come by the inputs of the configuration. The one that completes a
/// grid gives back a [`GatheredGrid`], to be written to memory of the caller's: [`Collector`] says when that is. Clouds
/// that make a grid by themselves go to [`gather`](Self::gather).
///
/// Both backends give the same bits. With [`Placement`] `auto` each grid is made where grids of its size were quicker. A
/// device that runs out of memory is left alone for a while; one that fails for good is given up. Whatever happens, the
/// CPU makes the grid again of the same clouds.
///
/// ```
/// use robocache_device::{Dtype, Placement};
/// use robocache_ops::voxelize::{Channel, VoxelInput, VoxelizeConfig, Voxelizer};
/// use robocache_stream::{Cells, ColumnLayout, Layout, Message, Payload};
///
/// let config = VoxelizeConfig {
///     origin_m: [0.0; 3],
///     voxel_size_m: [1.0; 3],
///     shape: [4, 4, 4],
///     channels: vec![Channel::Count, Channel::Mean("x".into())],
///     inputs: vec![VoxelInput { input: "lidar".into(), ..VoxelInput::default() }],
///     ..VoxelizeConfig::default()
/// };
/// let mut voxelizer = Voxelizer::new(&config, &Placement::cpu("an example"))?;
///
/// // Two points, a column for each coordinate.
/// let column = |name: &'static str| ColumnLayout { name: name.into(), dtype: Dtype::Float32, cells: Cells::One };
/// let layout = Layout { rows: 2, columns: ["x", "y", "z"].map(column).into() };
/// let mut cloud = Message::default();
/// cloud.write(&layout, |payload, header| {
///     for (i, values) in [[0.25f32, 0.75], [0.5; 2], [0.5; 2]].iter().enumerate() {
///         payload.column(i).copy_from_slice(values);
///     }
///     header.timestamp_ns.set(1_000_000);
/// });
///
/// let mut voxels = Message::default();
/// let pushed = voxelizer.push(0, &cloud)?;
/// if let Some(mut grid) = pushed.grid {
///     grid.write(&mut Payload::in_message(&mut voxels, grid.layout()));
///     assert_eq!(grid.counters().points_kept, 2);
/// }
/// assert_eq!(voxels.columns()[0].data.as_slice::<i32>(), [0, 0, 0]);
/// assert_eq!(voxels.columns()[1].data.as_slice::<f32>(), [2.0, 0.5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Voxelizer {
    backends: Backends,
    collector: Collector,
    /// The clouds that wait, where there are several inputs.
    waiting: Vec<Message>,
    /// The inputs whose clouds make the grid at hand.
    used: Vec<usize>,
}

/// What became of a cloud that was taken.
pub struct Pushed<'a> {
    /// Clouds that this one puts out of use.
    pub unused: Option<Unused>,
    /// The grid that it completes.
    pub grid: Option<GatheredGrid<'a>>,
}

/// A cloud that is in no grid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unused {
    /// It is no cloud, or not one that the channels can be computed from.
    #[error(transparent)]
    Cloud(#[from] CloudError),
    /// It has no stamp. A node gives such a message the time of its publication.
    #[error("no `timestamp_ns` (needed: the capture time, ns)")]
    NoStamp,
    /// Its stamp is no time.
    #[error("stamp {0} ns is out of range (allowed: +-2^61)")]
    Stamp(i64),
    /// Of two clouds of an input that wait for the others only the newer one is used.
    #[error("a newer cloud came before the other inputs had theirs: the older one is in no grid")]
    Superseded,
    /// One of its input that is as new is in a grid already.
    #[error("a cloud is not newer than the last one of its input that is in a grid: dropped")]
    Late,
    /// There is no grid any more that it would be in: it waited for clouds of other inputs, or for one from after the last
    /// grid.
    #[error("a cloud still waited for those of the other inputs: it is in no grid")]
    Left,
    /// So many clouds are from before a clock was set back.
    #[error("the clock was set back{}", match .0 {
        0 => String::new(),
        clouds => format!(": {clouds} clouds from before are in no grid"),
    })]
    Jumped(usize),
}

/// A grid of which the clouds are gathered, to be written: [`write`](Self::write).
pub struct GatheredGrid<'a> {
    backends: &'a mut Backends,
    clouds: Clouds<'a>,
    /// Where the grid was due and not asked for.
    collector: Option<&'a Collector>,
    stamp_ns: i64,
    made: Made,
    /// How long it has taken so far.
    compute_time: Duration,
}

/// The clouds of a grid, each with the input that it came by.
#[derive(Clone, Copy)]
enum Clouds<'a> {
    Given(&'a [(usize, &'a Message)]),
    One(usize, &'a Message),
    /// Those that wait of these inputs.
    Waiting(&'a [usize], &'a [Message]),
}

/// The two implementations, and what is known of the grid that was made last.
struct Backends {
    cpu: CpuVoxelizer,
    cuda: Backend<CudaVoxelizer>,
    layout: VoxelLayout,
    dtype: Dtype,
    stays_on_device: bool,
    output: Layout,
    refused: Vec<(usize, CloudError)>,
    unusable: Vec<u64>,
    saturated: u64,
}

/// How a grid was gathered.
#[derive(Clone, Copy)]
struct Made {
    counters: VoxelCounters,
    device: Device,
    device_bytes: Option<usize>,
    /// Bytes of its clouds.
    work: usize,
}

/// With [`Placement`] `auto`, clouds of fewer bytes always stay on the CPU, which is done before a device has started.
const CPU_BYTES: usize = 1 << 14;

impl Voxelizer {
    /// A voxelizer of that configuration, on the first device of `placement`.
    ///
    /// # Errors
    /// The key that is not allowed, or that a device that was asked for by name has no room for.
    pub fn new(config: &VoxelizeConfig, placement: &Placement) -> Result<Self, ConfigError> {
        let (inputs, memory) = (config.inputs.len(), placement.host_memory());
        Ok(Self {
            backends: Backends::new(config, placement)?,
            collector: Collector::new(config),
            waiting: (0..inputs).map(|_| Message::new(&memory)).collect(),
            used: Vec::with_capacity(inputs),
        })
    }

    /// The grid.
    pub fn grid(&self) -> &VoxelGrid {
        self.backends.cpu.grid()
    }

    /// The channels, in the order of the output.
    pub fn channels(&self) -> &[Channel] {
        self.backends.cpu.channels()
    }

    /// The form and size of the payload; of layout `coo` the rows are those of the grid that was gathered last.
    pub fn layout(&self) -> &Layout {
        &self.backends.output
    }

    /// Takes a cloud of the `input`-th input, and gathers the grid that it completes.
    ///
    /// With one input that is a grid of this cloud, which is not copied. With several the clouds that wait are copied, and
    /// the newest cloud of each input makes the grid.
    ///
    /// # Errors
    /// Why the cloud is in no grid. Nothing else happened.
    ///
    /// # Panics
    /// If there is no such input.
    pub fn push<'a>(&'a mut self, input: usize, cloud: &'a Message) -> Result<Pushed<'a>, Unused> {
        let start = Instant::now();
        self.check(cloud)?;
        let stamp_ns = *cloud.header.timestamp_ns.get().ok_or(Unused::NoStamp)?;
        if !is_stamp_in_range(stamp_ns) {
            return Err(Unused::Stamp(stamp_ns));
        }
        let unused = match self.collector.arrived(input, stamp_ns) {
            Arrival::Waits => None,
            Arrival::Replaces => Some(Unused::Superseded),
            Arrival::Jumped { dropped } => Some(Unused::Jumped(dropped)),
            Arrival::Superseded => return Err(Unused::Superseded),
            Arrival::Late => return Err(Unused::Late),
        };
        let grid = if self.waiting.len() == 1 {
            let clouds = Clouds::One(input, cloud);
            self.collector
                .take()
                .map(|stamp_ns| GatheredGrid::of_due(&mut self.backends, &mut self.collector, clouds, stamp_ns, start))
        } else {
            self.waiting[input].copy_from(cloud);
            self.gather_due()
        };
        Ok(Pushed { unused, grid })
    }

    /// Nothing more comes by an input: it holds no grid up any more. Gathers the grid that is due for that.
    ///
    /// # Panics
    /// If there is no such input.
    pub fn close(&mut self, input: usize) -> Option<GatheredGrid<'_>> {
        self.collector.closed(input);
        self.gather_due()
    }

    /// Clouds come by an input, again. Gathers the grid that is due, if one is.
    ///
    /// # Panics
    /// If there is no such input.
    pub fn open(&mut self, input: usize) -> Option<GatheredGrid<'_>> {
        self.collector.opened(input);
        self.gather_due()
    }

    /// The inputs of which a cloud waits for the next grid.
    pub fn waiting(&self) -> impl Iterator<Item = usize> {
        (0..self.waiting.len()).filter(|&input| self.collector.waits(input))
    }

    fn gather_due(&mut self) -> Option<GatheredGrid<'_>> {
        if !self.collector.due() {
            return None;
        }
        let start = Instant::now();
        self.used.clear();
        let inputs = 0..self.waiting.len();
        self.used.extend(inputs.filter(|&input| self.collector.waits(input)));
        let stamp_ns = self.collector.take()?;
        let clouds = Clouds::Waiting(&self.used, &self.waiting);
        let grid = GatheredGrid::of_due(&mut self.backends, &mut self.collector, clouds, stamp_ns, start);
        Some(grid)
    }

    /// Gathers a grid of these clouds, each with the input that it came by, whatever their stamps and whatever waits.
    ///
    /// # Panics
    /// If there is no such input.
    pub fn gather<'a>(&'a mut self, clouds: &'a [(usize, &'a Message)]) -> GatheredGrid<'a> {
        let start = Instant::now();
        let stamps = clouds.iter().map(|(_, cloud)| cloud.timestamp_ns());
        let stamp_ns = stamps.max().unwrap_or(0);
        let clouds = Clouds::Given(clouds);
        GatheredGrid {
            made: self.backends.gather(clouds),
            backends: &mut self.backends,
            clouds,
            collector: None,
            stamp_ns,
            compute_time: start.elapsed(),
        }
    }

    /// Whether a message is a cloud that can be part of a grid.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, message: &Message) -> Result<(), CloudError> {
        self.backends.cpu.check(&Cloud::from_message(message)?)
    }

    /// Sets how long a cloud waits for those of the other inputs; `None`: for ever.
    ///
    /// # Errors
    /// If it is no duration.
    pub fn set_max_wait_ms(&mut self, ms: Option<f64>) -> Result<(), ConfigError> {
        self.collector.set_max_wait_ms(ms)
    }

    /// The device that grids can be left on: none where the CPU makes them, while memory for them is short, or where the
    /// layout is `coo`, whose size is known too late.
    pub fn output_gpu(&mut self) -> Option<&Gpu> {
        match self.backends.layout {
            VoxelLayout::Coo => None,
            _ => self.backends.cuda.output_gpu(),
        }
    }

    /// Whether grids are to be left on [`output_gpu`](Self::output_gpu), from the next one on. They are then made there,
    /// where they are not too small for that.
    pub fn leave_on_device(&mut self, stays: bool) {
        self.backends.stays_on_device = stays;
    }

    /// Why it should not go on, once: a device that was asked for by name is lost. The CPU did the work meanwhile.
    pub fn take_lost(&mut self) -> Option<CudaError> {
        self.backends.cuda.take_lost()
    }
}

impl<'a> GatheredGrid<'a> {
    fn of_due(
        backends: &'a mut Backends,
        collector: &'a mut Collector,
        clouds: Clouds<'a>,
        mut stamp_ns: i64,
        start: Instant,
    ) -> Self {
        let made = backends.gather(clouds);
        for (input, _) in &backends.refused {
            stamp_ns = collector.refuse(*input);
        }
        Self {
            backends,
            clouds,
            collector: Some(collector),
            stamp_ns,
            made,
            compute_time: start.elapsed(),
        }
    }

    /// The newest stamp in it, ns.
    pub fn stamp_ns(&self) -> i64 {
        self.stamp_ns
    }

    /// For each input 1 if a cloud of it is in the grid, else 0. Empty where the clouds were given.
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
        let clouds = self
            .clouds
            .iter()
            .filter_map(|(_, cloud)| Cloud::from_message(cloud).ok());
        for cloud in clouds {
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

    /// By how much it is before the grid before it, ns: the clouds of that one were of a clock that is gone.
    pub fn back_ns(&self) -> Option<i64> {
        self.collector.and_then(Collector::back_ns)
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
        self.backends.cuda.took(work, device, self.compute_time);
    }

    /// The device that the grid is on, if it is to be left there, and the budget that its memory counts in.
    pub fn on_device(&mut self) -> Option<(Gpu, Budget)> {
        let stays = self.backends.stays_on_device && self.made.device != Device::Cpu;
        let cuda = self.backends.cuda.resident().filter(|_| stays)?;
        Some((cuda.gpu().clone(), cuda.budget().clone()))
    }

    /// Writes the payload to memory of its device, from the beginning, which grows to it. It is there on return.
    ///
    /// # Errors
    /// No memory; what the driver says. The grid can still be [written](Self::write) to the host.
    ///
    /// # Panics
    /// If the layout is `coo`.
    pub fn write_on_device(&mut self, memory: &mut DeviceBuf) -> Result<(), CudaError> {
        let start = Instant::now();
        let backends = &mut *self.backends;
        if let Some(cuda) = backends.cuda.resident() {
            cuda.write_on_device(memory)?;
            backends.saturated = cuda.saturated();
            backends.unusable.clear();
            backends.unusable.extend_from_slice(cuda.unusable()?);
            self.made.device_bytes = Some(cuda.used_bytes());
        }
        self.compute_time += start.elapsed();
        Ok(())
    }

    /// It could not be handed on where it is. Where memory was short, grids leave the device for a while.
    pub fn failed_to_hand_on(&mut self, error: &CudaError) {
        // What else is lost shows when it is written to the host.
        if error.is_memory() {
            self.backends.cuda.failed_to_hand_on(error);
        }
    }

    /// What became of the points.
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

    /// For each of the [`fields`](Self::fields): how many values of points that are kept its channels leave out. Known
    /// once the grid is written.
    pub fn unusable(&self) -> &[u64] {
        &self.backends.unusable
    }

    /// How many values the type of a dense grid can't hold: its greatest or least stands instead. Known once the grid is
    /// written.
    pub fn saturated(&self) -> u64 {
        self.backends.saturated
    }

    /// Where it was made. Final once the grid is written.
    pub fn device(&self) -> Device {
        self.made.device
    }

    /// How long it took, from the call that gathered it on, without the time between its calls.
    pub fn compute_time(&self) -> Duration {
        self.compute_time
    }

    /// Bytes of device memory that the operation holds, where the grid was made on a device. Known once it is written.
    pub fn device_bytes(&self) -> Option<usize> {
        self.made.device_bytes
    }
}

impl<'a> Clouds<'a> {
    fn iter(self) -> impl Iterator<Item = (usize, &'a Message)> + Clone {
        let len = match self {
            Self::Given(clouds) => clouds.len(),
            Self::One(..) => 1,
            Self::Waiting(inputs, _) => inputs.len(),
        };
        (0..len).map(move |i| match self {
            Self::Given(clouds) => clouds[i],
            Self::One(input, cloud) => (input, cloud),
            Self::Waiting(inputs, clouds) => (inputs[i], &clouds[inputs[i]]),
        })
    }
}

impl Backends {
    fn new(config: &VoxelizeConfig, placement: &Placement) -> Result<Self, ConfigError> {
        let cpu = CpuVoxelizer::new(config)?;
        let cuda = |gpus: &[Gpu]| CudaVoxelizer::new(config, &gpus[0], placement.max_bytes());
        let cuda = Backend::new("voxelize", placement, CPU_BYTES, cuda).map_err(|error| match error {
            VoxelizeError::Config(error) => error,
            error => ConfigError::new("device", error.to_string()),
        })?;
        Ok(Self {
            output: cpu.layout().clone(),
            cpu,
            cuda,
            layout: config.layout,
            dtype: config.dtype,
            stays_on_device: false,
            refused: Vec::new(),
            unusable: Vec::new(),
            saturated: 0,
        })
    }

    /// Gathers clouds on the device that is quicker, or the one that the grid stays on.
    fn gather(&mut self, clouds: Clouds<'_>) -> Made {
        self.unusable.clear();
        self.saturated = 0;
        let work = clouds.iter().map(|(_, cloud)| cloud.bytes()).sum();
        let mut gathered = None;
        if let Some(cuda) = self.cuda.cuda(work, self.stays_on_device) {
            self.refused.clear();
            match cuda.gather(clouds.iter(), |input, error| self.refused.push((input, error))) {
                Ok(counters) => {
                    self.output.rows = cuda.layout().rows;
                    gathered = Some((counters, self.cuda.device()));
                }
                Err(error) => self.cuda.failed(work, error),
            }
        }
        let (counters, device) = gathered.unwrap_or_else(|| (self.gather_on_cpu(clouds), Device::Cpu));
        Made {
            counters,
            device,
            device_bytes: None,
            work,
        }
    }

    fn gather_on_cpu(&mut self, clouds: Clouds<'_>) -> VoxelCounters {
        self.refused.clear();
        let refuse = |input, error| self.refused.push((input, error));
        let counters = self.cpu.gather(clouds.iter(), refuse);
        self.output.rows = self.cpu.layout().rows;
        counters
    }

    fn write(&mut self, made: &mut Made, clouds: Clouds<'_>, payload: &mut Payload<'_>) {
        if let (Device::Cuda(_), Some(cuda)) = (made.device, self.cuda.resident()) {
            let written = write_from_device(cuda, self.layout, self.dtype, payload);
            match written.and_then(|()| cuda.unusable()) {
                Ok(unusable) => {
                    self.unusable.extend_from_slice(unusable);
                    self.saturated = cuda.saturated();
                    made.device_bytes = Some(cuda.used_bytes());
                    return;
                }
                Err(error) => self.cuda.failed(made.work, error),
            }
            made.counters = self.gather_on_cpu(clouds);
            made.device = Device::Cpu;
        }
        let cpu = &mut self.cpu;
        match (self.layout, self.dtype) {
            (VoxelLayout::Bits, _) => cpu.write_bits(payload.column(0)),
            (VoxelLayout::Coo, _) => {
                let (coords, features) = payload.columns();
                cpu.write_coo(coords, features);
            }
            (VoxelLayout::Dense, Dtype::Float16) => cpu.write_dense::<f16>(payload.column(0)),
            (VoxelLayout::Dense, Dtype::BFloat16) => cpu.write_dense::<bf16>(payload.column(0)),
            (VoxelLayout::Dense, _) => cpu.write_dense::<f32>(payload.column(0)),
        }
        self.unusable.clear();
        self.unusable.extend_from_slice(cpu.unusable());
        self.saturated = cpu.saturated();
    }
}

fn write_from_device(
    cuda: &CudaVoxelizer,
    layout: VoxelLayout,
    dtype: Dtype,
    payload: &mut Payload<'_>,
) -> Result<(), CudaError> {
    match (layout, dtype) {
        (VoxelLayout::Bits, _) => cuda.write_bits(payload.column(0)),
        (VoxelLayout::Coo, _) => {
            let (coords, features) = payload.columns();
            cuda.write_coo(coords, features)
        }
        (VoxelLayout::Dense, Dtype::Float16) => cuda.write_dense::<f16>(payload.column(0)),
        (VoxelLayout::Dense, Dtype::BFloat16) => cuda.write_dense::<bf16>(payload.column(0)),
        (VoxelLayout::Dense, _) => cuda.write_dense::<f32>(payload.column(0)),
    }
}

//! Operation `voxelize`: computes grids from clouds on the CPU or on a device, whichever is faster. The choice does not
//! change a bit of a grid.

use super::backends::{Backends, Clouds};
use super::collector::{Arrival, Collector};
use super::gathered::GatheredGrid;
use super::{CloudError, ConfigError, VoxelizeConfig};
use robocache_device::Placement;
use robocache_device::gpu::{DeviceFault, Gpu};
use robocache_stream::{HostCloud, Layout, Message};
use robocache_time::{is_stamp_in_range, ms_to_ns};
use std::time::Instant;

/// Computes voxel grids from point clouds, on the CPU or on a device.
///
/// [`push`](Self::push) adds a cloud of a configured input. If the cloud completes a grid, by the rules of
/// [`Collector`], the call computes the grid and returns a [`GatheredGrid`], which the caller writes to its own memory.
/// [`gather`](Self::gather) computes a grid from given clouds.
///
/// The CPU and the device compute the same bits. With [`Placement`] `auto`, each grid is computed where grids of its
/// size have been faster. If a device runs out of memory, the CPU takes over for a while. If the device fails for good,
/// the CPU takes over for the rest of the run. In both cases the CPU recomputes the failed grid.
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
    /// Value of `latency_ms` of each input, in ns, which is subtracted from the stamps of its clouds.
    latencies: Vec<i64>,
    /// The waiting cloud of each input; stale if no cloud waits. Not used with a single input.
    waiting: Vec<Message>,
    /// Indices of the inputs whose clouds make the current grid.
    grid_inputs: Vec<usize>,
}

/// Result of pushing a cloud.
pub struct PushOutcome<'a> {
    /// Waiting clouds that get into no grid, because the pushed cloud replaces them or its stamp shows a clock jump;
    /// `None` if there are none.
    pub unused: Option<DroppedCloud>,
    /// The grid that the pushed cloud completes; `None` if the cloud waits.
    pub grid: Option<GatheredGrid<'a>>,
}

/// The reason why a cloud is in no grid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DroppedCloud {
    /// The message is not a cloud, or the channels can't be computed from the cloud.
    #[error(transparent)]
    Cloud(#[from] CloudError),
    /// The cloud has no stamp. A node gives such a message the time of its publication.
    #[error("no `timestamp_ns` (needed: the capture time, ns)")]
    NoStamp,
    /// The stamp, ns, is out of range: its magnitude exceeds 2^61.
    #[error("stamp {0} ns is out of range (allowed: +-2^61): stamps are ns since 1970")]
    Stamp(i64),
    /// A newer cloud of the same input arrived before a grid was made, and takes the place of this cloud.
    #[error(
        "a newer cloud of this input came before the other inputs had clouds: the older cloud is in no grid (`max_wait_ms` limits the wait)"
    )]
    Superseded,
    /// The cloud is not newer than the last cloud of its input that is in a grid.
    #[error(
        "a cloud is dropped: its stamp is not newer than that of a grid's cloud of this input (needed: ascending stamps)"
    )]
    Late,
    /// The cloud was still waiting when the dataflow ended: for clouds of other inputs, or for a cloud newer than
    /// the last grid.
    #[error("a cloud still waited for other clouds at the end, and is in no grid")]
    Left,
    /// A clock was set back: this number of waiting clouds, with stamps of the former clock, get into no grid.
    #[error("the clock was set back by more than `reset_ms`: grids begin anew by its new stamps{}", match .0 {
        0 => String::new(),
        clouds => format!(", and {clouds} clouds from before are in no grid"),
    })]
    Jumped(usize),
}

impl Voxelizer {
    /// Creates a voxelizer for a configuration, on the CPU or on the first device of `placement`.
    ///
    /// # Errors
    /// Returns the invalid key of `config`, or the reason why `placement` can't be used.
    pub fn new(config: &VoxelizeConfig, placement: &Placement) -> Result<Self, ConfigError> {
        let (inputs, memory) = (config.inputs.len(), placement.host_memory());
        Ok(Self {
            backends: Backends::new(config, placement)?,
            collector: Collector::new(config),
            latencies: config.inputs.iter().map(|input| ms_to_ns(input.latency_ms)).collect(),
            waiting: (0..inputs).map(|_| Message::new(&memory)).collect(),
            grid_inputs: Vec::with_capacity(inputs),
        })
    }

    /// The columns and the number of rows of the payload. In layout `coo`, the number of rows is that of the
    /// last computed grid.
    pub fn layout(&self) -> &Layout {
        &self.backends.output
    }

    /// Adds a cloud of the input with index `input`, and computes the grid that the cloud completes, if any.
    ///
    /// With one input, each cloud makes a grid and is not copied. With several inputs, the cloud is copied to wait, and
    /// the newest cloud of each input makes the grid.
    ///
    /// # Errors
    /// The reason why the cloud is in no grid. The cloud then neither replaces a waiting cloud nor makes a grid.
    ///
    /// # Panics
    /// If `input` is not the index of an input.
    pub fn push<'a>(&'a mut self, input: usize, cloud: &'a Message) -> Result<PushOutcome<'a>, DroppedCloud> {
        let start = Instant::now();
        let points = self.read(cloud)?;
        let stamp_ns = points.stamp_ns().ok_or(DroppedCloud::NoStamp)?;
        if !is_stamp_in_range(stamp_ns) {
            return Err(DroppedCloud::Stamp(stamp_ns));
        }
        let unused = match self.collector.arrived(input, stamp_ns - self.latencies[input]) {
            Arrival::Waits => None,
            Arrival::Replaces => Some(DroppedCloud::Superseded),
            Arrival::Jumped { dropped } => Some(DroppedCloud::Jumped(dropped)),
            Arrival::Superseded => return Err(DroppedCloud::Superseded),
            Arrival::Late => return Err(DroppedCloud::Late),
        };
        let grid = if self.waiting.len() == 1 {
            let (clouds, stamp_ns) = (Clouds::One(input, points), self.collector.take());
            let (backends, collector) = (&mut self.backends, &mut self.collector);
            stamp_ns.map(|stamp_ns| GatheredGrid::new(backends, Some(collector), clouds, stamp_ns, start))
        } else {
            self.waiting[input].copy_from(cloud);
            self.gather_due()
        };
        Ok(PushOutcome { unused, grid })
    }

    /// Closes an input, so that no grid waits for it. If a grid is then due, computes and returns it.
    ///
    /// # Panics
    /// If `input` is not the index of an input.
    pub fn close(&mut self, input: usize) -> Option<GatheredGrid<'_>> {
        self.collector.closed(input);
        self.gather_due()
    }

    /// Opens an input again, so that grids wait for its clouds. If a grid is due nevertheless, computes and returns it.
    ///
    /// # Panics
    /// If `input` is not the index of an input.
    pub fn open(&mut self, input: usize) -> Option<GatheredGrid<'_>> {
        self.collector.opened(input);
        self.gather_due()
    }

    /// Indices of the inputs with a cloud that waits for the next grid, ascending.
    pub fn waiting(&self) -> impl Iterator<Item = usize> {
        (0..self.waiting.len()).filter(|&input| self.collector.waits(input))
    }

    /// True if a grid is due but not computed, as after a change of `max_wait_ms`.
    pub fn is_due(&self) -> bool {
        self.collector.due()
    }

    /// Computes and returns the grid that is due; `None` if no grid is due.
    pub fn gather_due(&mut self) -> Option<GatheredGrid<'_>> {
        if !self.is_due() {
            return None;
        }
        let start = Instant::now();
        self.grid_inputs.clear();
        let stamp_ns = self.collector.take()?;
        let is_in = self.collector.inputs_valid().iter().enumerate();
        self.grid_inputs
            .extend(is_in.filter(|(_, valid)| **valid == 1).map(|(input, _)| input));
        let clouds = Clouds::Waiting(&self.grid_inputs, &self.waiting);
        let (backends, collector) = (&mut self.backends, &mut self.collector);
        Some(GatheredGrid::new(backends, Some(collector), clouds, stamp_ns, start))
    }

    /// Computes a grid from these clouds, each with the index of its input. Their stamps and the waiting clouds
    /// do not matter.
    ///
    /// # Panics
    /// If an index is not the index of an input.
    pub fn gather<'a>(&'a mut self, clouds: &'a [(usize, &'a Message)]) -> GatheredGrid<'a> {
        let start = Instant::now();
        let stamps = clouds
            .iter()
            .map(|(input, cloud)| cloud.timestamp_ns().saturating_sub(self.latencies[*input]));
        let stamp_ns = stamps.max().unwrap_or(0);
        let clouds = Clouds::Given(clouds);
        GatheredGrid::new(&mut self.backends, None, clouds, stamp_ns, start)
    }

    /// Checks that a message is a cloud that can be part of a grid.
    ///
    /// # Errors
    /// The reason why the message can't be part of a grid.
    pub fn check(&self, message: &Message) -> Result<(), CloudError> {
        self.read(message).map(|_| ())
    }

    fn read<'a>(&self, message: &'a Message) -> Result<HostCloud<'a>, CloudError> {
        let cloud = HostCloud::from_message(message)?;
        self.backends.cpu.check(&cloud)?;
        Ok(cloud)
    }

    /// Sets how long a cloud waits for the clouds of the other inputs, ms; `None`: for ever. The change can make
    /// a grid [due](Self::is_due).
    ///
    /// # Errors
    /// If `ms` is not a duration.
    pub fn set_max_wait_ms(&mut self, ms: Option<f64>) -> Result<(), ConfigError> {
        self.collector.set_max_wait_ms(ms)
    }

    /// The device on which grids can stay; `None` if the CPU computes all grids, or while device memory is short.
    pub fn output_gpu(&mut self) -> Option<&Gpu> {
        self.backends.gpu.output_gpu()
    }

    /// Sets whether grids stay in the memory of [`output_gpu`](Self::output_gpu), from the next grid on. If so, the
    /// device computes all grids, except those whose clouds are too small for it.
    pub fn leave_on_device(&mut self, stays: bool) {
        self.backends.stays_on_device = stays;
    }

    /// Returns the loss of a device that the configuration names, once; the node should then stop. `None` if no device
    /// was lost. Until the node stops, the CPU computes the grids.
    pub fn take_lost(&mut self) -> Option<DeviceFault> {
        self.backends.gpu.take_lost()
    }
}

//! The operation itself: clouds in, grids out, on whichever device is quicker.

use super::backends::{Backends, Clouds};
use super::collector::{Arrival, Collector};
use super::gathered::GatheredGrid;
use super::{CloudError, ConfigError, VoxelizeConfig};
use robocache_device::Placement;
use robocache_device::gpu::{DeviceFault, Gpu};
use robocache_stream::{HostCloud, Layout, Message};
use robocache_time::{is_stamp_in_range, ms_to_ns};
use std::time::Instant;

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
    /// The `latency_ms` of each input, ns.
    latencies: Vec<i64>,
    /// The clouds that wait, if there are several inputs.
    waiting: Vec<Message>,
    /// The inputs whose clouds make the grid at hand.
    used: Vec<usize>,
}

/// Results of a cloud that was taken.
pub struct Pushed<'a> {
    /// Clouds that this one puts out of use.
    pub unused: Option<Unused>,
    /// The grid that it completes.
    pub grid: Option<GatheredGrid<'a>>,
}

/// A cloud that is in no grid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unused {
    /// A message that is not a cloud, or not one that the channels can be computed from.
    #[error(transparent)]
    Cloud(#[from] CloudError),
    /// A cloud without a stamp. A node gives such a message the time of its publication.
    #[error("no `timestamp_ns` (needed: the capture time, ns)")]
    NoStamp,
    /// A stamp that is not a time.
    #[error("stamp {0} ns is out of range (allowed: +-2^61)")]
    Stamp(i64),
    /// The older of two clouds of an input that wait for the others.
    #[error("a newer cloud came before the other inputs had theirs: the older one is in no grid")]
    Superseded,
    /// One of its input that is as new is in a grid already.
    #[error("a cloud is not newer than the last one of its input that is in a grid: dropped")]
    Late,
    /// A cloud that no grid will have any more: it waited for clouds of other inputs, or for one from after the last
    /// grid.
    #[error("a cloud still waited for those of the other inputs: it is in no grid")]
    Left,
    /// Clouds from before a clock was set back, and their number.
    #[error("the clock was set back{}", match .0 {
        0 => String::new(),
        clouds => format!(": {clouds} clouds from before are in no grid"),
    })]
    Jumped(usize),
}

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
            latencies: config.inputs.iter().map(|input| ms_to_ns(input.latency_ms)).collect(),
            waiting: (0..inputs).map(|_| Message::new(&memory)).collect(),
            used: Vec::with_capacity(inputs),
        })
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
    /// The reason why no grid has the cloud. Nothing else happened.
    ///
    /// # Panics
    /// If there is no such input.
    pub fn push<'a>(&'a mut self, input: usize, cloud: &'a Message) -> Result<Pushed<'a>, Unused> {
        let start = Instant::now();
        let points = self.read(cloud)?;
        let stamp_ns = points.stamp_ns().ok_or(Unused::NoStamp)?;
        if !is_stamp_in_range(stamp_ns) {
            return Err(Unused::Stamp(stamp_ns));
        }
        let unused = match self.collector.arrived(input, stamp_ns - self.latencies[input]) {
            Arrival::Waits => None,
            Arrival::Replaces => Some(Unused::Superseded),
            Arrival::Jumped { dropped } => Some(Unused::Jumped(dropped)),
            Arrival::Superseded => return Err(Unused::Superseded),
            Arrival::Late => return Err(Unused::Late),
        };
        let grid = if self.waiting.len() == 1 {
            let (clouds, stamp_ns) = (Clouds::One(input, points), self.collector.take());
            let (backends, collector) = (&mut self.backends, &mut self.collector);
            stamp_ns.map(|stamp_ns| GatheredGrid::new(backends, Some(collector), clouds, stamp_ns, start))
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

    /// True if a grid is due and has not been gathered: after a change of `max_wait_ms`.
    pub fn is_due(&self) -> bool {
        self.collector.due()
    }

    /// Gathers the grid that is due, if one is.
    pub fn gather_due(&mut self) -> Option<GatheredGrid<'_>> {
        if !self.is_due() {
            return None;
        }
        let start = Instant::now();
        self.used.clear();
        let stamp_ns = self.collector.take()?;
        let is_in = self.collector.inputs_valid().iter().enumerate();
        self.used
            .extend(is_in.filter(|(_, valid)| **valid == 1).map(|(input, _)| input));
        let clouds = Clouds::Waiting(&self.used, &self.waiting);
        let (backends, collector) = (&mut self.backends, &mut self.collector);
        Some(GatheredGrid::new(backends, Some(collector), clouds, stamp_ns, start))
    }

    /// Gathers a grid of these clouds, each with the input that it came by, whatever their stamps and whatever waits.
    ///
    /// # Panics
    /// If there is no such input.
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
    /// The problem with it.
    pub fn check(&self, message: &Message) -> Result<(), CloudError> {
        self.read(message).map(|_| ())
    }

    fn read<'a>(&self, message: &'a Message) -> Result<HostCloud<'a>, CloudError> {
        let cloud = HostCloud::from_message(message)?;
        self.backends.cpu.check(&cloud)?;
        Ok(cloud)
    }

    /// Sets how long a cloud waits for those of the other inputs; `None`: for ever. A grid may be [due](Self::is_due) then.
    ///
    /// # Errors
    /// If it is not a duration.
    pub fn set_max_wait_ms(&mut self, ms: Option<f64>) -> Result<(), ConfigError> {
        self.collector.set_max_wait_ms(ms)
    }

    /// The device that grids can be left on: none if the CPU makes them, or while memory for them is short.
    pub fn output_gpu(&mut self) -> Option<&Gpu> {
        self.backends.gpu.output_gpu()
    }

    /// Sets if grids are to be left on [`output_gpu`](Self::output_gpu), from the next one on. They are then made there,
    /// if they are not too small for that.
    pub fn leave_on_device(&mut self, stays: bool) {
        self.backends.stays_on_device = stays;
    }

    /// The reason why it should not go on, once: a device that was asked for by name is lost. The CPU did the work meanwhile.
    pub fn take_lost(&mut self) -> Option<DeviceFault> {
        self.backends.gpu.take_lost()
    }
}

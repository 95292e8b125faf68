//! Plugin `voxelize`: publishes point clouds as voxel grids.
//!
//! Each cloud that is in no grid is counted once, with the reason.

use super::watch::{CHECK_EVERY, StreamWatch};
use super::{add, number_or_null};
use crate::app::{AppError, BuildContext, Change, Dropped, Fault, HealthIssue, Level, Operation, Outbox, Value, Wake};
use robocache_device::{Dtype, Placement};
use robocache_ops::voxelize::{DroppedCloud, GatheredGrid, PushOutcome, VoxelLayout, VoxelizeConfig, Voxelizer};
use robocache_ops::{self as ops, ConfigError, voxelize};
use robocache_stream::{Header, Layout, Message, Selection, form};
use robocache_time::{ms_to_ns, ns_to_s};
use std::time::{Duration, Instant};

plugin! {
    /// Plugin that publishes the clouds of `voxelize:` as voxel grids, on the output `voxels`.
    VoxelizePlugin(VoxelizeConfig), "voxelize": "Publishes point clouds as voxel grids, `voxels`."
}

fn build(config: VoxelizeConfig, context: &mut BuildContext<'_>) -> Result<(), AppError> {
    check_size(&config, context).map_err(|error| context.refused(&error))?;
    let operation = Voxelize::new(context.name(), config, context.placement());
    let operation = operation.map_err(|error| context.refused(&error))?;
    add(
        context,
        operation.about.inputs.clone(),
        vec!["voxels".into()],
        operation,
    )
}

/// Checks that a voxel grid of fixed size is not too large for a message. The size of a `coo` grid depends on its clouds, so it
/// is not checked.
fn check_size(config: &VoxelizeConfig, context: &BuildContext<'_>) -> Result<(), ConfigError> {
    config.validate()?;
    let Some(bytes) = config.message_bytes() else {
        return Ok(());
    };
    let (shape, layout) = (config.shape, config.layout);
    let in_words = |problem| format!("{shape:?} as `{layout}` is {bytes} bytes a grid ({problem})");
    let too_large = |problem| ConfigError::new("shape", in_words(problem));
    context.check_message_size("voxels", bytes).map_err(too_large)
}

struct Voxelize {
    name: String,
    voxelizer: Voxelizer,
    /// State of each input: true if the input is open, and the watch over its messages.
    streams: Vec<(bool, StreamWatch)>,
    start: Option<Instant>,
    about: GridOutput,
}

/// Watch for empty grids: the problem of the last grid if it had no point, and the inputs whose clouds were in it.
#[derive(Default)]
struct EmptyGrids {
    health_issue: Option<HealthIssue>,
    inputs: Vec<bool>,
    looked: Option<Instant>,
}

/// Shortest time between two searches for the cause of empty grids.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl EmptyGrids {
    /// Checks a grid that was published, and warns with the reason if no point is in it.
    fn look(&mut self, grid: &GatheredGrid<'_>, out: &mut Outbox<'_>) {
        let counters = grid.counters();
        if counters.points_kept > 0 {
            self.health_issue = None;
            return;
        }
        let now = Instant::now();
        let is_due = |looked: Instant| now.saturating_duration_since(looked) >= LOOK_EVERY;
        if self.health_issue.is_none() || self.looked.is_none_or(is_due) {
            self.looked = Some(now);
            self.inputs.clear();
            self.inputs.extend(grid.inputs_valid().iter().map(|&valid| valid == 1));
            self.health_issue = Some(HealthIssue {
                level: Level::Warn,
                what: "its grids are empty".to_owned(),
                cause: why_empty(grid),
            });
        }
        if let Some(health_issue) = &self.health_issue {
            let inputs = self.inputs.iter().enumerate().filter(|(_, is_in)| **is_in);
            inputs.for_each(|(input, _)| out.warn_seldom(input, "empty grids", health_issue));
        }
    }
}

/// Returns the reason why a grid has no point in it, as text.
fn why_empty(grid: &GatheredGrid<'_>) -> String {
    let counters = grid.counters();
    if counters.points_in == 0 {
        return "its clouds have no points".to_owned();
    }
    let Some(bounds) = grid.bounds_of_clouds() else {
        return format!("none of its {} points is finite", counters.points_in);
    };
    let cells = grid.grid();
    let edges = std::array::from_fn::<_, 3, _>(|axis| {
        let least = cells.origin_m()[axis];
        [least, least + cells.shape()[axis] as f32 * cells.voxel_size_m()[axis]]
    });
    let furthest = |bounds: &[[f32; 2]; 3]| bounds.as_flattened().iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let (far, reach) = (furthest(&bounds), furthest(&edges));
    let text = |[[x0, x1], [y0, y1], [z0, z1]]: [[f32; 2]; 3]| {
        format!("x {x0:.1} to {x1:.1}, y {y0:.1} to {y1:.1}, z {z0:.1} to {z1:.1}")
    };
    let (came, allowed) = (text(bounds), text(edges));
    let unit = match far > 10.0 * reach && far <= 10_000.0 * reach {
        true => ": in millimetres? (needed: metres)",
        false => "",
    };
    format!("all points are outside, at {came}, and the grid is {allowed}{unit}")
}

/// Metadata of the output `voxels`, and state that is kept from one grid to the next.
struct GridOutput {
    form: Layout,
    empty: EmptyGrids,
    inputs: Vec<String>,
    selections: Vec<Selection>,
    layout: VoxelLayout,
    dtype: Dtype,
    /// True if there is one input, without an extrinsic: the grid is then in the frame of its cloud.
    keeps_frame: bool,
    frame_id: String,
    /// Age of a cloud in its grid above which a warning says that the clouds' clocks differ, ns.
    reset_ns: i64,
}

impl Voxelize {
    fn new(name: &str, config: VoxelizeConfig, placement: &Placement) -> Result<Self, ConfigError> {
        let voxelizer = Voxelizer::new(&config, placement)?;
        let keeps_frame = matches!(config.inputs.as_slice(), [only] if only.extrinsic.is_none());
        let (now, inputs) = (Instant::now(), config.inputs.iter());
        Ok(Self {
            name: name.to_owned(),
            streams: inputs
                .map(|input| (true, StreamWatch::new(&input.input, now)))
                .collect(),
            start: None,
            about: GridOutput {
                form: voxelizer.layout().clone(),
                empty: EmptyGrids::default(),
                selections: config.selections().collect(),
                inputs: config.inputs.into_iter().map(|input| input.input).collect(),
                layout: config.layout,
                dtype: config.dtype,
                keeps_frame,
                frame_id: String::new(),
                reset_ns: ms_to_ns(config.reset_ms),
            },
            voxelizer,
        })
    }

    /// Leaves the next grid on the GPU if all consumers read it there.
    fn look_where_grids_go(&mut self, out: &Outbox<'_>) {
        let gpu = self.voxelizer.output_gpu();
        let stays = gpu.is_some_and(|gpu| out.is_wanted_on_device(0, gpu));
        self.voxelizer.leave_on_device(stays);
    }

    fn end_where_device_is_lost(&mut self, out: &mut Outbox<'_>) {
        if let Some(error) = self.voxelizer.take_lost() {
            out.end(error);
        }
    }
}

/// Counts a cloud of an input, and warns if its stamp can't be a capture time.
fn came(stream: &mut StreamWatch, input: usize, message: &Message, out: &mut Outbox<'_>) {
    let now = Instant::now();
    stream.came(now);
    let header = &message.header;
    // A cloud without a stamp of its own has the time of its publication.
    let Some(stamp_ns) = header.timestamp_ns.get().filter(|_| !header.is_unstamped()) else {
        return;
    };
    let kind = stream.judge(now, stamp_ns, out.times.arrival_ns);
    if kind.is_some() || stream.stamp_problem.is_none() {
        stream.health_issue = None;
        stream.set_stamp_ailment();
    }
    if let Some(kind) = kind {
        out.warn(input, kind, stream.stamp_problem.as_deref().unwrap_or_default());
    }
}

/// Counts clouds of an input that are in no grid, once each, and logs why.
fn leave_out(input: usize, unused: &DroppedCloud, out: &mut Outbox<'_>) {
    let (why, clouds) = match unused {
        DroppedCloud::Cloud(_) => (Dropped::Length, 1),
        DroppedCloud::Superseded | DroppedCloud::Left => (Dropped::Overflow, 1),
        DroppedCloud::NoStamp | DroppedCloud::Stamp(_) | DroppedCloud::Late => (Dropped::Stamp, 1),
        DroppedCloud::Jumped(clouds) => (Dropped::Stamp, *clouds),
    };
    (0..clouds).for_each(|_| out.dropped(input, why));
    match unused {
        DroppedCloud::Superseded => out.warn(input, "superseded clouds", unused),
        DroppedCloud::Late => out.warn(input, "late clouds", unused),
        DroppedCloud::Left => out.warn(input, "clouds left at the end", unused),
        DroppedCloud::Jumped(_) => out.warn(input, "clock jumps back", unused),
        DroppedCloud::Cloud(_) | DroppedCloud::NoStamp | DroppedCloud::Stamp(_) => out.fault(input, unused),
    }
}

/// Publishes a grid, and reports the clouds and values that are not in it.
fn publish(mut grid: GatheredGrid<'_>, about: &mut GridOutput, out: &mut Outbox<'_>) {
    for (input, error) in grid.refused() {
        out.dropped(*input, Dropped::Length);
        out.fault(*input, error);
    }
    for &input in grid.left_out() {
        leave_out(input, &DroppedCloud::Jumped(1), out);
    }
    warn_of_clocks(&grid, about, out);
    about.form.rows = grid.layout().rows;
    if !send_on_device(&mut grid, about, out) {
        out.send(0, &about.form, |payload, header| {
            grid.write(payload);
            describe(&grid, about, header);
        });
    }
    if let Some(mut figures) = out.figures() {
        figures.observation(None);
        let inputs = grid.inputs_age_ns().iter().zip(grid.inputs_valid()).enumerate();
        inputs.for_each(|(input, (&age_ns, &valid))| figures.observed(input, age_ns, valid == 1));
        figures.computed(grid.compute_time(), grid.device(), grid.device_bytes().unwrap_or(0));
        figures.points(grid.counters());
    }
    about.empty.look(&grid, out);
    for ((field, usable), &count) in grid.fields().zip(grid.unusable()) {
        if count > 0 {
            let text = format_args!("{count} values of `{field}` are left out of its channels (usable: {usable})");
            out.fault_of_output(0, count, text);
        }
    }
    if grid.saturated() > 0 {
        let (count, dtype) = (grid.saturated(), about.dtype);
        let message = format_args!(
            "{count} values are beyond {dtype}: its greatest or least is in their places (`dtype: float32` holds more)"
        );
        out.fault_of_output(0, count, message);
    }
}

/// Warns if grids go back in time, or if a cloud is more than `reset_ms` older than the newest cloud of its grid.
fn warn_of_clocks(grid: &GatheredGrid<'_>, about: &GridOutput, out: &mut Outbox<'_>) {
    let ages = || grid.inputs_age_ns().iter().enumerate();
    if let (Some(back_ns), Some((input, _))) = (grid.back_ns(), ages().find(|(_, age)| **age == 0)) {
        let back = ns_to_s(back_ns);
        let text = format_args!("grids go back by {back:.3} s and follow its clouds");
        out.warn(input, "grids that go back", text);
    }
    for (input, &age_ns) in ages().filter(|(_, age)| **age > about.reset_ns) {
        let (age, cause) = (ns_to_s(age_ns), "it was held up, or their clocks differ");
        let text = format_args!("its cloud is {age:.3} s older than the newest of its grid: {cause}");
        out.warn_seldom(input, "clouds far behind", text);
    }
}

/// Publishes a grid that stays on its device. Returns false if the grid is on the host, or if the device fails.
fn send_on_device(grid: &mut GatheredGrid<'_>, about: &GridOutput, out: &mut Outbox<'_>) -> bool {
    let Some((gpu, budget)) = grid.on_device() else {
        return false;
    };
    let sent = out.send_on_device(0, &about.form, (&gpu, &budget), |columns, header| {
        grid.write_on_device(columns)?;
        describe(grid, about, header);
        Ok(())
    });
    if let Err(error) = &sent {
        grid.failed_to_hand_on(error);
    }
    sent.is_ok()
}

fn describe(grid: &GatheredGrid<'_>, about: &GridOutput, header: &mut Header) {
    let channels = grid.channels();
    let cells = grid.grid().shape().map(|n| n as i64);
    header.timestamp_ns.set(grid.stamp_ns());
    form::channels.set(header, channels);
    form::origin_m.set(header, grid.grid().origin_m().map(f64::from));
    form::voxel_size_m.set(header, grid.grid().voxel_size_m().map(f64::from));
    form::grid_shape.set(header, cells);
    grid.counters().describe(header);
    voxelize::key::unusable.set(header, grid.unusable().iter().map(|&count| count as i64));
    voxelize::key::saturated.set(header, grid.saturated() as i64);
    voxelize::key::inputs.set(header, &about.inputs);
    voxelize::key::inputs_valid.set(header, grid.inputs_valid());
    voxelize::key::inputs_age_ns.set(header, grid.inputs_age_ns());
    ops::key::device.set(header, grid.device());
    ops::key::compute_us.set(header, grid.compute_time().as_secs_f64() * 1e6);
    match about.layout {
        VoxelLayout::Dense => {
            header.shape.set(std::iter::once(channels.len() as i64).chain(cells));
            header.dtype.set(about.dtype);
        }
        VoxelLayout::Bits => {
            header.shape.set(cells);
            header.dtype.set(Dtype::UInt8);
        }
        VoxelLayout::Coo => {}
    }
    if let Some(bytes) = grid.device_bytes() {
        ops::key::device_bytes.set(header, bytes as i64);
    }
    if !about.frame_id.is_empty() {
        header.frame_id.set(&about.frame_id);
    }
}

impl Operation for Voxelize {
    fn input(&mut self, input: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        self.look_where_grids_go(out);
        let pushed = self.voxelizer.push(input, message);
        match &pushed {
            Err(DroppedCloud::Cloud(_)) => self.streams[input].1.refused += 1,
            _ => came(&mut self.streams[input].1, input, message, out),
        }
        let (unused, grid) = match pushed {
            Ok(PushOutcome { unused, grid }) => (unused, grid),
            Err(unused) => (Some(unused), None),
        };
        if let Some(unused) = &unused {
            leave_out(input, unused, out);
        }
        if self.about.keeps_frame {
            let frame_id = message.header.frame_id.get().unwrap_or_default();
            frame_id.clone_into(&mut self.about.frame_id);
        }
        if let Some(grid) = grid {
            publish(grid, &mut self.about, out);
        }
        self.end_where_device_is_lost(out);
        Ok(())
    }

    fn selection(&self, input: usize) -> Selection {
        self.about.selections[input].clone()
    }

    fn changed(&mut self, input: usize, to: Change, out: &mut Outbox<'_>) {
        self.look_where_grids_go(out);
        self.streams[input].0 = to == Change::Opened;
        let grid = match to {
            Change::Closed => self.voxelizer.close(input),
            Change::Opened => self.voxelizer.open(input),
        };
        if let Some(grid) = grid {
            publish(grid, &mut self.about, out);
        }
        self.end_where_device_is_lost(out);
    }

    fn health_issue(&self, input: usize) -> Option<&HealthIssue> {
        let empty = &self.about.empty;
        let is_in = empty.inputs.get(input).is_some_and(|&is_in| is_in);
        let of_stream = self.streams[input].1.health_issue.as_ref();
        of_stream.or(empty.health_issue.as_ref().filter(|_| is_in))
    }

    fn unreadable(&mut self, input: usize, messages: u64) {
        self.streams[input].1.refused += messages;
    }

    /// Warns of the inputs that have been silent for too long.
    fn wake(&mut self, now: Instant, _: &mut Outbox<'_>) -> Result<Wake, Fault> {
        let start = *self.start.get_or_insert(now);
        for (is_open, stream) in &mut self.streams {
            if *is_open {
                stream.warn_if_quiet([now, start], &self.name, "");
            }
        }
        Ok(Wake::At(now + CHECK_EVERY))
    }

    fn finish(&mut self, out: &mut Outbox<'_>) -> Result<(), Fault> {
        for input in self.voxelizer.waiting() {
            leave_out(input, &DroppedCloud::Left, out);
        }
        Ok(())
    }

    /// True if a grid is due because `max_wait_ms` was changed.
    fn has_more(&self) -> bool {
        self.voxelizer.is_due()
    }

    fn resume(&mut self, _: Option<&Message>, out: &mut Outbox<'_>) -> Result<(), Fault> {
        self.look_where_grids_go(out);
        if let Some(grid) = self.voxelizer.gather_due() {
            publish(grid, &mut self.about, out);
        }
        self.end_where_device_is_lost(out);
        Ok(())
    }

    fn parameter(&mut self, key: &str, value: &Value) -> Result<bool, Fault> {
        if key != "max_wait_ms" {
            return Ok(false);
        }
        self.voxelizer.set_max_wait_ms(number_or_null(value)?)?;
        Ok(true)
    }
}

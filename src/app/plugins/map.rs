//! Plugin `map`: keeps a map of depth images and clouds, and publishes its products.
//!
//! Each frame that is not in the map is counted once, with the reason.

use super::watch::{CHECK_EVERY, StreamWatch};
use super::{add, number_or_null};
use crate::app::{AppError, BuildContext, Change, Dropped, Fault, HealthIssue, Operation, Outbox, Value, Wake};
use robocache_device::Device;
use robocache_ops::map::{self, DroppedFrame, DroppedFrames, Map, MapConfig, MapCounters, MapProduct, MapStep, Shape};
use robocache_ops::pose::{PushedPose, for_each_pose};
use robocache_ops::{self as ops, ConfigError, voxelize};
use robocache_stream::{Header, Layout, Message, Payload, Selection, form};
use robocache_time::ms_to_ns;
use std::time::{Duration, Instant};

plugin! {
    /// Keeps the map of `map:`, and publishes its products, such as `tsdf`, under their names.
    MapPlugin(MapConfig), "map": "Keeps surfaces, free space and distances over time."
}

fn build(config: MapConfig, context: &mut BuildContext<'_>) -> Result<(), AppError> {
    // Messages that dora can't carry are refused before the memory of the volumes is taken.
    Shape::new(config.shape).map_err(|error| context.refused(&error))?;
    for (i, product) in config.outputs.iter().enumerate() {
        let (values, dtype) = product.values(config.shape);
        let bytes = values * dtype.size();
        let in_words = |problem| {
            format!(
                "`{product}` of {:?} cells is {bytes} bytes a message ({problem})",
                config.shape
            )
        };
        let too_large = |problem| ConfigError::new(format!("outputs[{i}]"), in_words(problem));
        let checked = context.check_message_size(product.name(), bytes).map_err(too_large);
        checked.map_err(|error| context.refused(&error))?;
    }
    let map = Map::new(&config).map_err(|error| context.refused(&error))?;
    let frames = config
        .inputs
        .iter()
        .map(|input| (input.input.clone(), input.selection()));
    let poses = config.poses.values().map(|pose| (pose.input.clone(), pose.selection()));
    let (inputs, selections): (Vec<String>, Vec<Selection>) = frames.chain(poses).unzip();
    let outputs = map.products().iter().map(|product| product.name().to_owned()).collect();
    let now = Instant::now();
    let operation = MapOperation {
        name: context.name().to_owned(),
        frames: config.inputs.len(),
        streams: inputs
            .iter()
            .map(|input| (true, StreamWatch::new(input, now)))
            .collect(),
        selections,
        frame_id: config.frame.clone().unwrap_or_default(),
        voxel_size_m: config.voxel_size_m,
        start: None,
        compute_time: Duration::ZERO,
        map,
    };
    add(context, inputs, outputs, operation)
}

struct MapOperation {
    name: String,
    map: Map,
    /// Number of inputs that are frames. The inputs behind them are poses.
    frames: usize,
    /// State of each input: true if the input is open, and the watch over its messages.
    streams: Vec<(bool, StreamWatch)>,
    selections: Vec<Selection>,
    frame_id: String,
    voxel_size_m: f64,
    start: Option<Instant>,
    /// Time that the steps since the last publication took.
    compute_time: Duration,
}

impl MapOperation {
    /// Does the steps that are due, and publishes the products of those that are to be published.
    fn advance(&mut self, out: &mut Outbox<'_>) {
        while !out.is_full() {
            let start = Instant::now();
            let Some(step) = self.map.step() else { return };
            self.compute_time += start.elapsed();
            for (input, pose, why) in &step.unposed {
                let text = format_args!("it is not in the map: the pose `{pose}` is missing at its time: {why}");
                if *input < self.frames {
                    out.dropped(*input, Dropped::Stamp);
                    out.warn(*input, "frames without a pose", text);
                } else {
                    out.warn(
                        *input,
                        "no pose to follow",
                        format_args!("the map stays where it is: {why}"),
                    );
                }
            }
            if step.is_published {
                self.publish(&step, out);
            }
        }
    }

    fn publish(&mut self, step: &MapStep, out: &mut Outbox<'_>) {
        let counters = self.map.take_counters();
        for output in 0..self.map.products().len() {
            let product = self.map.products()[output];
            if !out.is_wanted(output) {
                continue;
            }
            let (values, dtype) = product.values(self.map.window().shape().axes());
            out.send(output, &Layout::flat(dtype, values), |payload, header| {
                let start = Instant::now();
                self.write(product, payload);
                let compute_time = self.compute_time + start.elapsed();
                self.describe(product, step, &counters, compute_time, header);
            });
        }
        if let Some(mut figures) = out.figures() {
            figures.observation(None);
            figures.computed(self.compute_time, Device::Cpu, 0);
        }
        self.compute_time = Duration::ZERO;
    }

    fn write(&mut self, product: MapProduct, payload: &mut Payload<'_>) {
        match product {
            MapProduct::Occupancy => self.map.write_occupancy(payload.column(0)),
            MapProduct::Bits => self.map.write_bits(payload.column(0)),
            _ => self.map.write_f32(product, payload.column(0)),
        }
    }

    fn describe(
        &self,
        product: MapProduct,
        step: &MapStep,
        counters: &MapCounters,
        compute_time: Duration,
        header: &mut Header,
    ) {
        let window = self.map.window();
        let (mut cells, mut voxel) = (window.shape().axes().map(|n| n as i64), [self.voxel_size_m; 3]);
        let mut origin = self.map.origin_m();
        if product == MapProduct::EsdfSlice {
            // One cell as high as the band of obstacles.
            let [low, high] = self.map.band();
            origin[2] = self.map.anchor().unwrap_or_default()[2] + low as f64 * voxel[2];
            voxel[2] *= high.saturating_sub(low).max(1) as f64;
            cells[2] = 1;
        }
        header.timestamp_ns.set(step.stamp_ns);
        if product == MapProduct::Bits {
            header.shape.set(cells);
        } else {
            header.shape.set(std::iter::once(1).chain(cells));
        }
        form::channels.set(header, &[product.channel()]);
        header.dtype.set(product.values(window.shape().axes()).1);
        form::origin_m.set(header, origin);
        form::voxel_size_m.set(header, voxel);
        form::grid_shape.set(header, cells);
        map::key::corner_cell.set(header, window.corner());
        map::key::frames_fused.set(header, counters.frames as i64);
        map::key::late_frames.set(header, counters.late_frames as i64);
        map::key::frames_extrapolated.set(header, counters.extrapolated_frames as i64);
        map::key::dropped_unposed.set(header, counters.dropped_unposed as i64);
        map::key::cells_scrolled.set(header, counters.cells_scrolled as i64);
        voxelize::key::points_in.set(header, counters.rays.points_in as i64);
        ops::key::dropped_nonfinite.set(header, counters.rays.dropped_nonfinite as i64);
        map::key::rays.set(header, counters.rays.rays as i64);
        map::key::rays_clipped.set(header, counters.rays.rays_clipped as i64);
        ops::key::epoch.set(header, self.map.epoch());
        ops::key::device.set(header, Device::Cpu);
        ops::key::compute_us.set(header, compute_time.as_secs_f64() * 1e6);
        if !self.frame_id.is_empty() {
            header.frame_id.set(&self.frame_id);
        }
    }

    fn frame(&mut self, input: usize, message: &Message, out: &mut Outbox<'_>) {
        match self.map.push(input, message) {
            Ok(dropped) => {
                came(&mut self.streams[input].1, input, message, out);
                leave_out(input, &dropped, out);
            }
            Err(why) => match &why {
                DroppedFrame::Late(_) | DroppedFrame::Again => {
                    came(&mut self.streams[input].1, input, message, out);
                    out.dropped(input, Dropped::Stamp);
                    out.warn(input, "late frames", &why);
                }
                DroppedFrame::NoStamp | DroppedFrame::Stamp(_) => {
                    came(&mut self.streams[input].1, input, message, out);
                    out.dropped(input, Dropped::Stamp);
                    out.fault(input, &why);
                }
                _ => {
                    self.streams[input].1.refused += 1;
                    out.dropped(input, Dropped::Length);
                    out.fault(input, &why);
                }
            },
        }
        self.advance(out);
    }

    fn poses(&mut self, input: usize, message: &Message, out: &mut Outbox<'_>) {
        let mut is_any = false;
        let read = for_each_pose(message, |stamp_ns, position, rotation| {
            let pose = input - self.frames;
            let (pushed, dropped) = self.map.push_pose(pose, stamp_ns, position, rotation);
            leave_out(input, &dropped, out);
            is_any |= matches!(pushed, PushedPose::Kept | PushedPose::Late | PushedPose::Jumped);
            refuse_pose(input, pushed, out);
            self.advance(out);
        });
        if is_any {
            came(&mut self.streams[input].1, input, message, out);
        } else {
            self.streams[input].1.refused += 1;
        }
        if let Err(error) = read {
            out.dropped(input, Dropped::Length);
            out.fault(input, error);
        }
    }
}

/// Counts a pose that is dropped or late, and logs why.
fn refuse_pose(input: usize, pushed: PushedPose, out: &mut Outbox<'_>) {
    match pushed {
        PushedPose::Kept | PushedPose::Jumped => {}
        PushedPose::Late => {
            out.warn(
                input,
                "late poses",
                "a pose is late: poses of its time have been used already",
            );
        }
        PushedPose::Again => {
            out.dropped(input, Dropped::Stamp);
            out.warn(
                input,
                "poses of one time",
                "a pose is dropped: one with its stamp has come already (needed: a stamp of its own for each)",
            );
        }
        PushedPose::BadStamp(stamp_ns) => {
            out.dropped(input, Dropped::Stamp);
            out.fault(input, DroppedFrame::Stamp(stamp_ns));
        }
        PushedPose::BadValue(i, value) => {
            let why = if value.is_finite() {
                Dropped::Range
            } else {
                Dropped::NonFinite
            };
            out.dropped(input, why);
            out.fault(
                input,
                format_args!("value {i} of a pose is {value} (allowed: finite, positions up to 1e8 m)"),
            );
        }
        PushedPose::BadNorm(norm) => {
            out.dropped(input, Dropped::Range);
            out.fault(
                input,
                format_args!("the quaternion of a pose has the norm {norm} (needed: x, y, z, w of norm 1)"),
            );
        }
    }
}

/// Counts frames that waited and are dropped, and warns if the clock of `input` was set back.
fn leave_out(input: usize, dropped: &DroppedFrames, out: &mut Outbox<'_>) {
    for &frame in &dropped.overflow {
        out.dropped(frame, Dropped::Overflow);
        out.warn(
            frame,
            "frames that waited too long",
            "it is dropped: more than 256 MiB of frames wait for other inputs (`max_wait_ms` limits the wait)",
        );
    }
    if let Some(jumped) = &dropped.jumped {
        jumped.iter().for_each(|&frame| out.dropped(frame, Dropped::Stamp));
        let frames = jumped.len();
        let text = format_args!(
            "the clock was set back by more than `reset_ms`: the map begins anew, empty, and {frames} frames that waited are dropped"
        );
        out.warn(input, "clock jumps back", text);
    }
}

/// Counts a message of an input, and warns if its stamp can't be a capture time.
fn came(stream: &mut StreamWatch, input: usize, message: &Message, out: &mut Outbox<'_>) {
    let now = Instant::now();
    stream.came(now);
    let header = &message.header;
    let newest = message.stamps().last().copied();
    let Some(stamp_ns) = newest.filter(|_| header.timestamp_ns.is_present() && !header.is_unstamped()) else {
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

impl Operation for MapOperation {
    fn input(&mut self, input: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        match input < self.frames {
            true => self.frame(input, message, out),
            false => self.poses(input, message, out),
        }
        Ok(())
    }

    fn selection(&self, input: usize) -> Selection {
        self.selections[input].clone()
    }

    fn changed(&mut self, input: usize, to: Change, out: &mut Outbox<'_>) {
        self.streams[input].0 = to == Change::Opened;
        self.map.set_open(input, to == Change::Opened);
        self.advance(out);
    }

    fn health_issue(&self, input: usize) -> Option<&HealthIssue> {
        self.streams[input].1.health_issue.as_ref()
    }

    fn unreadable(&mut self, input: usize, messages: u64) {
        self.streams[input].1.refused += messages;
    }

    /// Warns of the inputs that are quiet.
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
        for input in self.map.waiting() {
            out.dropped(input, Dropped::Overflow);
            out.warn(
                input,
                "frames left at the end",
                "it still waited for other inputs at the end, and is not in the map",
            );
        }
        Ok(())
    }

    /// True if a step is due because `max_wait_ms` was changed.
    fn has_more(&self) -> bool {
        self.map.is_due()
    }

    fn resume(&mut self, _: Option<&Message>, out: &mut Outbox<'_>) -> Result<(), Fault> {
        self.advance(out);
        Ok(())
    }

    fn parameter(&mut self, key: &str, value: &Value) -> Result<bool, Fault> {
        if key != "max_wait_ms" {
            return Ok(false);
        }
        let ms = number_or_null(value)?;
        if let Some(ms) = ms {
            ops::duration_ns(|| "max_wait_ms".into(), ms)?;
        }
        self.map.set_max_wait(ms.map(ms_to_ns));
        Ok(true)
    }
}

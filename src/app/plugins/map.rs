//! Plugin `map`: builds a map from depth images and clouds, and publishes surfaces, free space or distances from it.
//!
//! Each frame that is not in the map is counted once, with the reason.

use super::watch::{CHECK_EVERY, StreamWatch};
use super::{add, number_or_null};
use crate::app::{
    AppError, BuildContext, Change, Diagnosis, Dropped, Fault, HealthIssue, Level, Operation, Outbox, Value, Wake,
};
use robocache_device::Device;
use robocache_ops::map::{
    self, DroppedFrame, DroppedFrames, Map, MapConfig, MapCounters, MapProduct, MapStep, Shape, Unseen,
};
use robocache_ops::pose::{PushedPose, for_each_pose};
use robocache_ops::{self as ops, ConfigError, voxelize};
use robocache_stream::{Header, Layout, Message, Payload, Selection, form};
use robocache_time::{ms_to_ns, ns_to_s};
use std::time::{Duration, Instant};

plugin! {
    /// Plugin that builds the map of `map:` from depth images and clouds. Each of its products, such as `tsdf`, is an output of
    /// that name.
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
        late: vec![0; inputs.len()],
        last_step: now,
        issue: None,
        selections,
        frame_id: config.frame.clone().unwrap_or_default(),
        voxel_size_m: config.voxel_size_m,
        start: None,
        compute_time: Duration::ZERO,
        map,
    };
    add(context, inputs, outputs, operation)
}

/// Shortest time without a step, though frames wait, after which the input is named that they wait for.
const MIN_STALL: Duration = Duration::from_secs(2);
/// Distance of the newest stamps of two streams, beside three of their intervals, beyond which their clocks count as different.
const MIN_CLOCK_DIFFERENCE: Duration = Duration::from_secs(1);

struct MapOperation {
    name: String,
    map: Map,
    /// Number of inputs with frames, which are depth images or clouds. The inputs after them have poses.
    frames: usize,
    /// State of each input: true if the input is open, and the watch over its messages.
    streams: Vec<(bool, StreamWatch)>,
    /// Number of late messages of each input.
    late: Vec<u64>,
    /// Time of the last step, or of the start.
    last_step: Instant,
    /// Input because of which the map stands still or is wrong, and the problem; `None` if there is no problem.
    issue: Option<(usize, HealthIssue)>,
    selections: Vec<Selection>,
    frame_id: String,
    voxel_size_m: f64,
    start: Option<Instant>,
    /// Compute time of the map's steps since its products were last published. A step adds all frames of one capture time.
    compute_time: Duration,
}

impl MapOperation {
    /// Runs the map's steps that are due. A step adds all frames of one capture time. Publishes the map's products after every
    /// step that `emit_every` selects.
    fn advance(&mut self, out: &mut Outbox<'_>) {
        while !out.is_full() {
            let start = Instant::now();
            let Some(step) = self.map.step() else { return };
            self.compute_time += start.elapsed();
            self.last_step = start;
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
            for &(input, why) in &step.unseen {
                warn_of_unseen(input, why, out);
            }
            if step.is_published {
                self.publish(&step, out);
            }
        }
    }

    /// Finds the input that the map has waited for since its last step, if that is too long, though frames wait.
    fn stall(&self, now: Instant, start: Instant) -> Option<(usize, HealthIssue)> {
        let waited = now.saturating_duration_since(self.last_step.max(start));
        let (input, behind_ns) = self.map.held_back_by().filter(|_| waited >= MIN_STALL)?;
        let stream = &self.streams[input].1;
        let why = match (stream.quiet(now, start), behind_ns) {
            (Some(quiet), _) => format!("it {}", stream.silence(quiet)),
            (None, Some(behind)) => format!(
                "its newest stamp is {:.3} s behind the frames that wait: it comes late, or the clocks differ",
                ns_to_s(behind)
            ),
            (None, None) => "none of its messages can be used".to_owned(),
        };
        let issue = HealthIssue {
            level: Level::Error,
            what: format!("no step of the map for {:.1} s", waited.as_secs_f64()),
            cause: format!("{why} (`max_wait_ms` limits the wait)"),
        };
        Some((input, issue))
    }

    /// Finds a live stream of poses whose stamps are too far from those of every stream of frames to be of one clock.
    fn other_clock(&self, now: Instant) -> Option<(usize, HealthIssue)> {
        let of_clock = |input: usize| {
            let (is_open, stream) = &self.streams[input];
            let newest = self.map.newest_ns(input).filter(|_| *is_open)?;
            let (first, last) = stream.first.zip(stream.last)?;
            let steps = u32::try_from(stream.samples.max(2) - 1).unwrap_or(u32::MAX);
            let interval = last.saturating_duration_since(first) / steps;
            // The stamps of a stream that is silent stand still, whatever its clock.
            let is_live = now.saturating_duration_since(last) < MIN_CLOCK_DIFFERENCE / 2 + 3 * interval;
            is_live.then_some((newest, interval))
        };
        (self.frames..self.streams.len()).find_map(|pose| {
            let (newest, interval) = of_clock(pose)?;
            let distances = (0..self.frames).filter_map(|frame| {
                let (frame, other) = of_clock(frame)?;
                Some((newest.saturating_sub(frame), interval.max(other)))
            });
            let (distance, interval) = distances.min_by_key(|(distance, _)| distance.unsigned_abs())?;
            let far = MIN_CLOCK_DIFFERENCE + 3 * interval;
            (u128::from(distance.unsigned_abs()) > far.as_nanos()).then(|| {
                let side = if distance > 0 { "ahead of" } else { "behind" };
                let issue = HealthIssue {
                    level: Level::Warn,
                    what: format!("its newest pose is {:.3} s {side} every frame", ns_to_s(distance).abs()),
                    cause:
                        "the clocks differ, or it comes late (`latency_ms`, or the operation `clock`, puts them right)"
                            .to_owned(),
                };
                (pose, issue)
            })
        })
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
                    self.late[input] += 1;
                    came(&mut self.streams[input].1, input, message, out);
                    out.dropped(input, Dropped::Stamp);
                    out.warn(input, "late frames", &why);
                }
                DroppedFrame::Former => {
                    came(&mut self.streams[input].1, input, message, out);
                    out.dropped(input, Dropped::Stamp);
                    out.warn(input, "frames of the former clock", &why);
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
            is_any |= matches!(
                pushed,
                PushedPose::Kept | PushedPose::Late | PushedPose::Outdated | PushedPose::Jumped
            );
            self.late[input] += u64::from(matches!(pushed, PushedPose::Late | PushedPose::Outdated));
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
        PushedPose::Outdated => {
            out.dropped(input, Dropped::Stamp);
            out.warn(
                input,
                "outdated poses",
                "a pose is dropped: a newer one serves all frames to come, or it is of the clock before that was set back",
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

/// Counts waiting frames of an input that were dropped, and warns if the clock of `input` was set back.
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

/// Warns of a frame that changed nothing in the map.
fn warn_of_unseen(input: usize, why: Unseen, out: &mut Outbox<'_>) {
    match why {
        Unseen::NoDepth => out.warn(
            input,
            "images without depths",
            "it changes nothing: no depth of it is within `depth_m` (is `unit_m` the unit of its depths?)",
        ),
        Unseen::NoPoint => out.warn(
            input,
            "clouds out of range",
            "it changes nothing: no point of it is within `max_range_m` (are its points in metres?)",
        ),
        Unseen::Outside([x, y, z]) => out.warn(
            input,
            "frames outside of the map",
            format_args!(
                "it changes nothing: the sensor is outside of the map, at [{x:.2}, {y:.2}, {z:.2}] m, and so is all that it measured \
                 (are its pose, `extrinsic` and `origin_m` in metres, and the pose from the sensor to the world?)"
            ),
        ),
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
        let of_map = self.issue.as_ref().filter(|(of, _)| *of == input);
        of_map
            .map(|(_, issue)| issue)
            .or(self.streams[input].1.health_issue.as_ref())
    }

    fn diagnosis(&self, input: usize) -> Diagnosis {
        Diagnosis {
            late: self.late[input],
            epoch: self.map.epoch(),
            ..Diagnosis::default()
        }
    }

    fn unreadable(&mut self, input: usize, messages: u64) {
        self.streams[input].1.refused += messages;
    }

    /// Warns of inputs that have been silent for too long, and of an input because of which the map stands still or is wrong.
    fn wake(&mut self, now: Instant, out: &mut Outbox<'_>) -> Result<Wake, Fault> {
        let start = *self.start.get_or_insert(now);
        for (is_open, stream) in &mut self.streams {
            if *is_open {
                stream.warn_if_quiet([now, start], &self.name, "");
            }
        }
        self.issue = self.stall(now, start).or_else(|| self.other_clock(now));
        if let Some((input, issue)) = &self.issue {
            let kind = match issue.level {
                Level::Error => "maps that stand still",
                _ => "poses of another clock",
            };
            out.warn_seldom(*input, kind, issue);
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

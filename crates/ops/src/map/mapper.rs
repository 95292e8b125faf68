//! Operation `map`: fuses depth images and clouds of several inputs into a map, in the order of their capture times.

use super::config::{MapConfig, MapProduct, Obstacles};
use super::distance::{DistanceTransform, metres};
use super::frame::{DepthFrame, DepthImage};
use super::occupancy::{Occupancy, RayBundle, RayCounters};
use super::sequence::{Arrival, Sequence};
use super::spec::{DecaySpec, InputSpec, Spec};
use super::tsdf::Tsdf;
use super::volume::{Bits, Window};
use crate::ConfigError;
use crate::pose::{NoPose, PoseTrack, PushedPose};
use robocache_device::{Dtype, Values};
use robocache_geometry::RigidTransform;
use robocache_stream::{HostCloud, Message, PointCloudError};
use robocache_time::{is_stamp_in_range, ms_to_ns};
use std::collections::BTreeMap;

/// Greatest total size of the waiting depth images and clouds, bytes, with [`OVERHEAD`] added for each.
const MAX_WAITING_BYTES: usize = 256 << 20;
/// Bytes that a waiting depth image or cloud counts in addition to its payload.
const OVERHEAD: usize = 4096;
/// Largest number of messages whose memory is kept for later frames. A small frame may take the memory of a large one, so more
/// of them would hold far more than [`MAX_WAITING_BYTES`].
const MAX_SPARE: usize = 4;

/// Fuses depth images and clouds (frames) over time into a map of signed distances, occupancy, or both.
///
/// [`push`](Self::push) accepts frames, and [`push_pose`](Self::push_pose) poses; the inputs may alternate in
/// any order. After each, the caller repeats [`step`](Self::step) until it returns `None`. A step fuses all
/// frames of one capture time, and steps are in time order. If frames arrive within `max_wait_ms`, their order
/// of arrival changes nothing.
pub struct Map {
    spec: Spec,
    sequence: Sequence,
    tracks: Vec<PoseTrack>,
    pose_latencies: Vec<i64>,
    /// Frames that wait for their step, by capture time, ns, and index of the input.
    waiting: BTreeMap<(i64, usize), Message>,
    /// Messages of past steps, whose memory is reused for frames that arrive.
    spare: Vec<Message>,
    waiting_bytes: usize,
    tsdf: Option<Tsdf>,
    occupancy: Option<Occupancy>,
    /// World point, metres, from which cell indices are counted, if the map follows a pose. `None` until that
    /// pose is known.
    anchor: Option<[f64; 3]>,
    window: Window,
    /// Index of the decay period in which the last step was, for signed distances and for occupancy. `None` before a
    /// step, or without decay.
    periods: [Option<i64>; 2],
    /// Number of steps since the start, or since a clock was last set back.
    steps: u64,
    epoch: i64,
    counters: MapCounters,
    distances: Distances,
    points: Vec<[f32; 3]>,
}

/// Scratch memory of the distance transforms.
#[derive(Debug, Default)]
struct Distances {
    transform: DistanceTransform,
    squares: Vec<i32>,
}

/// Counts since the last call of [`Map::take_counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapCounters {
    /// Number of depth images and clouds that were fused.
    pub frames: u64,
    /// Number of late depth images and clouds, which were dropped because data of the same or a later time
    /// was already processed.
    pub late_frames: u64,
    /// Number of fused depth images and clouds whose pose was extrapolated from an older sample.
    pub extrapolated_frames: u64,
    /// Number of depth images and clouds that were dropped because the sensor's pose at their time is unknown.
    pub dropped_unposed: u64,
    /// Number of cells that were cleared because the map moved.
    pub cells_scrolled: u64,
    /// Counts of the clouds' points and of the rays to them.
    pub rays: RayCounters,
}

/// The reason why a depth image or cloud is not fused into the map.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DroppedFrame {
    /// The message has no stamp. A node gives such a message the time of its publication.
    #[error("no `timestamp_ns` (needed: the capture time, ns)")]
    NoStamp,
    /// The stamp, ns, is out of range: its magnitude exceeds 2^61.
    #[error("stamp {0} ns is out of range (allowed: +-2^61): stamps are ns since 1970")]
    Stamp(i64),
    /// The input has clouds, and the message is not a cloud.
    #[error(transparent)]
    Cloud(#[from] PointCloudError),
    /// The input has depth images, and the payload is not a flat array of uint16 or float32.
    #[error("{0} came (needed: a flat array of uint16 or float32 depths)")]
    NotDepths(String),
    /// The number of depths in the message differs from the camera's number of pixels.
    #[error("{len} depths came (needed: {height} rows of {width}, as in `camera`)")]
    Size {
        /// Number of depths in the message.
        len: usize,
        /// Width of the camera's image, pixels.
        width: usize,
        /// Height of the camera's image, pixels.
        height: usize,
    },
    /// The `shape` in the message's metadata differs from the camera's `[height, width]`.
    #[error("the image is of shape {shape:?} (needed: [{height}, {width}], as in `camera`)")]
    Shape {
        /// Value of `shape` in the message's metadata.
        shape: Vec<i64>,
        /// Width of the camera's image, pixels.
        width: usize,
        /// Height of the camera's image, pixels.
        height: usize,
    },
    /// A depth image or cloud of the same input with the same capture time already waits.
    #[error("a frame is dropped: one with its stamp has come already (needed: a stamp of its own for each frame)")]
    Again,
    /// The frame is from before the clock of another input was set back.
    #[error("a frame is dropped: its stamp is of the clock before that was set back")]
    Former,
    /// Data of the same or a later time was already processed. The value is the time of the newest processed data minus
    /// that of this message, ns.
    #[error("a frame is dropped: the map is {:.3} s past it already (`max_wait_ms` limits the wait)", robocache_time::ns_to_s(*.0))]
    Late(i64),
}

/// Frames that were waiting for their step and have been dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DroppedFrames {
    /// Input index of each frame that was dropped because more than 256 MiB of frames were waiting.
    pub overflow: Vec<usize>,
    /// Input index of each frame that was dropped because a clock was set back, which also empties the map. `None`: no
    /// clock was set back.
    pub jumped: Option<Vec<usize>>,
}

/// Result of a step of the map, which fuses all frames of one capture time.
#[derive(Clone, Debug, PartialEq)]
pub struct MapStep {
    /// Capture time of the step's frames, ns.
    pub stamp_ns: i64,
    /// True if the outputs are to be published now: after every `emit_every`-th step, if the map's position is known.
    pub is_published: bool,
    /// Inputs whose frames were dropped because a pose is unknown: index of the input, name of the pose, and reason. An
    /// index beyond the frame inputs means the pose that the map follows.
    pub unposed: Vec<(usize, String, NoPose)>,
    /// Inputs whose frames changed nothing in the map, and the reason.
    pub unseen: Vec<(usize, Unseen)>,
}

/// Reason why a fused frame changed nothing in the map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unseen {
    /// No depth is within `depth_m`.
    NoDepth,
    /// No point is within `max_range_m`.
    NoPoint,
    /// The sensor, at this position in the world, metres, is outside of the map, and nothing that it measured is inside.
    Outside([f64; 3]),
}

impl Map {
    /// Creates an empty map, with the volumes that `config` selects.
    ///
    /// # Errors
    /// The first key of `config` whose value is not allowed, the value, and the allowed values.
    pub fn new(config: &MapConfig) -> Result<Self, ConfigError> {
        let spec = Spec::new(config)?;
        let (shape, voxel) = (spec.shape, spec.voxel_size_m);
        Ok(Self {
            sequence: Sequence::new(spec.inputs.len(), config.poses.len(), spec.max_wait_ns),
            tracks: config.poses.values().map(PoseTrack::new).collect::<Result<_, _>>()?,
            pose_latencies: config.poses.values().map(|pose| ms_to_ns(pose.latency_ms)).collect(),
            waiting: BTreeMap::new(),
            spare: Vec::new(),
            waiting_bytes: 0,
            tsdf: spec
                .tsdf
                .map(|(config, _)| Tsdf::new(config, shape, voxel, false))
                .transpose()?,
            occupancy: spec
                .occupancy
                .map(|(config, _)| Occupancy::new(&config, shape, voxel))
                .transpose()?,
            anchor: None,
            window: Window::new(shape),
            periods: [None; 2],
            steps: 0,
            epoch: 0,
            counters: MapCounters::default(),
            distances: Distances::default(),
            points: Vec::new(),
            spec,
        })
    }

    /// Adds a depth image or cloud of the input with index `input` to the waiting frames. Returns the waiting frames
    /// that are dropped in consequence.
    ///
    /// # Errors
    /// The reason why the new frame is dropped.
    ///
    /// # Panics
    /// If `input` is not the index of an input.
    pub fn push(&mut self, input: usize, message: &Message) -> Result<DroppedFrames, DroppedFrame> {
        let spec = &self.spec.inputs[input];
        spec.check(message)?;
        let stamp = message.header.timestamp_ns.get().ok_or(DroppedFrame::NoStamp)?;
        if !is_stamp_in_range(stamp) {
            return Err(DroppedFrame::Stamp(stamp));
        }
        let stamp = stamp - spec.latency_ns;
        if self.sequence.is_former(input, stamp) {
            return Err(DroppedFrame::Former);
        }
        let newest = self.sequence.newest(input);
        let has_jumped = newest.is_some_and(|newest| newest.saturating_sub(stamp) > self.spec.reset_ns);
        let mut dropped = DroppedFrames {
            jumped: has_jumped.then(|| self.jump(input, stamp)),
            overflow: Vec::new(),
        };
        match self.sequence.arrived(input, stamp) {
            Arrival::Waits => {}
            Arrival::Again => {
                self.counters.late_frames += 1;
                return Err(DroppedFrame::Again);
            }
            Arrival::Late => {
                self.counters.late_frames += 1;
                let past = self.sequence.done().map_or(0, |done| done.saturating_sub(stamp));
                return Err(DroppedFrame::Late(past));
            }
        }
        let mut kept = self.spare.pop().unwrap_or_default();
        kept.copy_from(message);
        self.waiting_bytes += kept.bytes() + OVERHEAD;
        self.waiting.insert((stamp, input), kept);
        while self.waiting_bytes > MAX_WAITING_BYTES && !self.is_due() {
            let Some(oldest) = self.sequence.drop_oldest() else {
                break;
            };
            dropped.overflow.push(oldest.1);
            if let Some(message) = self.waiting.remove(&oldest) {
                self.recycle(message);
            }
        }
        Ok(dropped)
    }

    /// Adds a sample of the pose with index `pose`, in the order of their names: stamp, ns, position, metres, and
    /// quaternion x, y, z, w. Returns what was done with the sample, and the frames that are dropped if the sample
    /// shows that a clock was set back.
    ///
    /// # Panics
    /// If `pose` is not the index of a pose.
    pub fn push_pose(
        &mut self,
        pose: usize,
        stamp_ns: i64,
        position: [f64; 3],
        rotation: [f64; 4],
    ) -> (PushedPose, DroppedFrames) {
        let stamp = stamp_ns.saturating_sub(self.pose_latencies[pose]);
        let input = self.spec.inputs.len() + pose;
        if self.sequence.is_former(input, stamp) {
            return (PushedPose::Outdated, DroppedFrames::default());
        }
        let pushed = self.tracks[pose].push(stamp, position, rotation);
        let mut dropped = DroppedFrames::default();
        match pushed {
            PushedPose::BadStamp(_) | PushedPose::BadValue(..) | PushedPose::BadNorm(_) => return (pushed, dropped),
            PushedPose::Jumped => dropped.jumped = Some(self.jump(input, stamp)),
            PushedPose::Kept | PushedPose::Late | PushedPose::Outdated | PushedPose::Again => {}
        }
        self.sequence.saw(input, stamp);
        (pushed, dropped)
    }

    /// Closes or reopens an input. Steps do not wait for a closed input. The index of a pose is its index among the
    /// poses plus the number of frame inputs.
    ///
    /// # Panics
    /// If `input` is not the index of an input.
    pub fn set_open(&mut self, input: usize, is_open: bool) {
        self.sequence.set_open(input, is_open);
    }

    /// Sets how long a frame waits for other inputs and for poses, ns, measured by the stamps; `None`: for ever.
    pub fn set_max_wait(&mut self, max_wait_ns: Option<i64>) {
        self.sequence.set_max_wait(max_wait_ns);
    }

    /// True if [`step`](Self::step) would do a step now.
    pub fn is_due(&self) -> bool {
        self.sequence.due().is_some()
    }

    /// Iterates over the frames that wait for their step, and returns the input index of each.
    pub fn waiting(&self) -> impl Iterator<Item = usize> {
        self.sequence.waiting().map(|(_, input)| input)
    }

    /// Finds the open input that the oldest waiting frame waits for, and how far its newest stamp is behind that frame, ns. The
    /// distance is `None` if the input has sent nothing. The result is `None` if no frame waits. Poses have the indices after the
    /// frame inputs.
    pub fn held_back_by(&self) -> Option<(usize, Option<i64>)> {
        self.sequence.held_back_by()
    }

    /// Newest capture time of an input, ns; `None` before its first message. Poses have the indices after the frame inputs.
    pub fn newest_ns(&self, input: usize) -> Option<i64> {
        self.sequence.newest(input)
    }

    /// Does the oldest step that is due: fuses its frames into the map. Returns `None` if no step is due.
    pub fn step(&mut self) -> Option<MapStep> {
        let time = self.sequence.due()?;
        let inputs = self.sequence.take(time);
        let messages: Vec<Message> = inputs
            .iter()
            .filter_map(|&input| self.waiting.remove(&(time, input)))
            .collect();
        let mut unposed = Vec::new();
        self.follow(time, &mut unposed);
        self.decay(time);
        let (mut placed, mut extrapolated) = (Vec::with_capacity(inputs.len()), 0);
        for (&input, message) in inputs.iter().zip(&messages) {
            match self.place(input, time) {
                Ok((pose, is_extrapolated)) => {
                    extrapolated += u64::from(is_extrapolated);
                    placed.push((&self.spec.inputs[input], pose, message));
                }
                Err((pose, why)) => unposed.push((input, pose, why)),
            }
        }
        let fused = placed.len() as u64;
        let unseen = inputs
            .iter()
            .filter(|input| unposed.iter().all(|(of, ..)| of != *input))
            .zip(&placed)
            .filter_map(|(&input, (spec, pose, message))| Some((input, self.unseen(spec, pose, message)?)))
            .collect();
        let (tsdf, occupancy) = (&mut self.tsdf, &mut self.occupancy);
        self.counters.rays += fuse(&placed, tsdf.as_mut(), occupancy.as_mut(), &mut self.points);
        self.counters.frames += fused;
        self.counters.extrapolated_frames += extrapolated;
        self.counters.dropped_unposed += unposed
            .iter()
            .filter(|(input, ..)| *input < self.spec.inputs.len())
            .count() as u64;
        messages.into_iter().for_each(|message| self.recycle(message));
        self.tracks.iter_mut().for_each(|track| track.forget_before(time));
        self.steps += 1;
        Some(MapStep {
            stamp_ns: time,
            is_published: self.steps.is_multiple_of(self.spec.emit_every) && self.anchor().is_some(),
            unposed,
            unseen,
        })
    }

    /// Returns the counts since the previous call, and resets them.
    pub fn take_counters(&mut self) -> MapCounters {
        std::mem::take(&mut self.counters)
    }

    /// Number of times that a clock was set back, which empties the map.
    pub fn epoch(&self) -> i64 {
        self.epoch
    }

    /// Returns the box of cells that the map holds. Cell indices are counted from the [anchor](Self::anchor).
    pub fn window(&self) -> Window {
        self.window
    }

    /// Returns the world point, metres, from which cell indices are counted. It is `origin_m`, unless the map
    /// follows a pose. Then it is the first position of that pose, rounded down to whole metres, and `None` until
    /// the pose is known.
    pub fn anchor(&self) -> Option<[f64; 3]> {
        match self.spec.follow {
            None => Some(self.spec.origin_m),
            Some(_) => self.anchor,
        }
    }

    /// Returns the map's corner of least coordinates in the world, metres.
    pub fn origin_m(&self) -> [f64; 3] {
        let (anchor, corner) = (self.anchor().unwrap_or_default(), self.window.corner());
        std::array::from_fn(|axis| anchor[axis] + corner[axis] as f64 * self.spec.voxel_size_m)
    }

    /// Lists the outputs to publish, in the order of the configuration.
    pub fn products(&self) -> &[MapProduct] {
        &self.spec.products
    }

    /// Writes the values of a float32 output: `tsdf`, `weight`, `esdf` or `esdf_slice`.
    ///
    /// # Panics
    /// If the output is not float32 or the map lacks it; if the length of `out` is not the number of its values.
    pub fn write_f32(&mut self, product: MapProduct, out: &mut [f32]) {
        let (spec, window) = (&self.spec, self.window);
        match product {
            MapProduct::Tsdf => {
                let tsdf = self.tsdf.as_ref().expect("a map with signed distances");
                window.unrolled(tsdf.state(), out, |state| tsdf.distance_of(state));
            }
            MapProduct::Weight => {
                let tsdf = self.tsdf.as_ref().expect("a map with signed distances");
                window.unrolled(tsdf.state(), out, |state| (state >> 16) as f32 / 256.0);
            }
            MapProduct::Esdf | MapProduct::EsdfSlice => {
                let esdf = spec.esdf.expect("a map with distances");
                let mut sites = self.obstacles(esdf.from);
                if product == MapProduct::EsdfSlice {
                    let (corner, cells) = (self.window.corner()[2], self.spec.shape.axes()[2] as i64);
                    let [low, high] = self
                        .band()
                        .map(|layer| layer.saturating_sub(corner).clamp(0, cells) as usize);
                    sites = sites.flattened(low, high);
                }
                let voxel = self.spec.voxel_size_m as f32;
                let Distances { transform, squares } = &mut self.distances;
                squares.resize(out.len(), 0);
                transform.squared(&sites, esdf.limit, squares);
                for (out, &square) in out.iter_mut().zip(squares.iter()) {
                    let is_far = square as u32 > esdf.limit;
                    *out = if is_far { esdf.max_m } else { metres(square, voxel) };
                }
            }
            MapProduct::Occupancy | MapProduct::Bits => panic!("`{product}` is not float32"),
        }
    }

    /// Writes the output `occupancy`: the probability that each cell is occupied, in percent; -1 for a cell that
    /// was never observed.
    ///
    /// # Panics
    /// If the map has no occupancy, or the length of `out` is not the number of cells.
    pub fn write_occupancy(&self, out: &mut [i8]) {
        let occupancy = self.occupancy.as_ref().expect("a map with occupancy");
        self.window.unrolled(occupancy.state(), out, Occupancy::percent_of);
    }

    /// Writes the output `bits`, the set of occupied cells: cell `i` is bit `i % 8`, least significant first,
    /// of byte `i / 8`.
    ///
    /// # Panics
    /// If `out` does not have one byte for every 8 cells, rounded up.
    pub fn write_bits(&self, out: &mut [u8]) {
        let from = match self.spec.occupancy {
            Some(_) => Obstacles::Occupancy,
            None => Obstacles::Tsdf,
        };
        self.obstacles(from).pack(out);
    }

    /// Returns the set of occupied cells of the volume `from`; an empty set if the map lacks this volume.
    fn obstacles(&self, from: Obstacles) -> Bits {
        match (from, &self.tsdf, &self.occupancy) {
            (Obstacles::Tsdf, Some(tsdf), _) => tsdf.occupied(0.0),
            (Obstacles::Occupancy, _, Some(occupancy)) => occupancy.occupied(),
            _ => Bits::new(self.window.shape()),
        }
    }

    /// Returns the horizontal layers of cells whose centres lie in the height band of `esdf_slice`: index of the first,
    /// and index after the last. Indices are along z, counted from the anchor. Without `slice_m` the band has all
    /// layers of the map.
    pub fn band(&self) -> [i64; 2] {
        let (corner, cells) = (self.window.corner()[2], self.spec.shape.axes()[2] as i64);
        match self.spec.esdf.and_then(|esdf| esdf.slice_m) {
            None => [corner, corner + cells],
            Some(slice_m) => layers(slice_m, self.anchor().unwrap_or_default()[2], self.spec.voxel_size_m),
        }
    }

    /// Empties the map after the clock of `input` was set back to `stamp`, ns. Returns the input index of each waiting
    /// frame that is dropped.
    fn jump(&mut self, input: usize, stamp: i64) -> Vec<usize> {
        let until = stamp.saturating_add(self.spec.reset_ns);
        let dropped = self.sequence.jump(input, until);
        for at in &dropped {
            if let Some(message) = self.waiting.remove(at) {
                self.recycle(message);
            }
        }
        self.tracks.iter_mut().for_each(|track| track.jump(until));
        self.anchor = None;
        self.periods = [None; 2];
        self.steps = 0;
        self.epoch += 1;
        self.clear();
        dropped.into_iter().map(|(_, input)| input).collect()
    }

    /// Replaces the volumes by empty ones.
    fn clear(&mut self) {
        let (shape, voxel) = (self.spec.shape, self.spec.voxel_size_m);
        self.window = Window::new(shape);
        // The memory of the volumes is given back before others are made.
        (self.tsdf, self.occupancy) = (None, None);
        // The configurations were accepted when the map was made.
        self.tsdf = self
            .spec
            .tsdf
            .and_then(|(config, _)| Tsdf::new(config, shape, voxel, false).ok());
        self.occupancy = self
            .spec
            .occupancy
            .and_then(|(config, _)| Occupancy::new(&config, shape, voxel).ok());
    }

    /// Returns the reason why a frame changes nothing in the map. A frame with a measurement in the map, or with its sensor in it,
    /// gives `None`. The `pose` is that of the sensor, relative to the corner of the map.
    fn unseen(&self, spec: &InputSpec, pose: &RigidTransform<f64>, message: &Message) -> Option<Unseen> {
        let axes = self.spec.shape.axes();
        let is_inside =
            |at: [f64; 3]| (0..3).all(|axis| (0.0..axes[axis] as f64 * self.spec.voxel_size_m).contains(&at[axis]));
        let (mut is_any, mut is_seen) = (false, is_inside(pose.translation));
        let mut measured = |point: [f64; 3]| {
            is_any = true;
            is_seen |= is_inside(pose.apply(point));
            is_seen
        };
        let none = match spec.camera {
            Some((camera, unit, range)) => {
                let depths = depths_of(message).ok()?;
                let metres = |i: usize| match depths.dtype() {
                    Dtype::UInt16 => match depths.as_slice::<u16>()[i] {
                        u16::MAX => 0.0,
                        raw => f32::from(raw) * unit,
                    },
                    _ => depths.as_slice::<f32>()[i],
                };
                let pixels = (0..depths.len()).map(|i| (i, metres(i)));
                let used = pixels.filter(|&(_, depth)| depth > 0.0 && depth >= range.min_m && depth < range.max_m);
                let point = |(i, depth): (usize, f32)| {
                    let pixel = [i % camera.width, i / camera.width];
                    let slope = |axis: usize| {
                        (pixel[axis] as f64 - f64::from(camera.principal_px[axis])) / f64::from(camera.focal_px[axis])
                    };
                    let depth = f64::from(depth);
                    [slope(0) * depth, slope(1) * depth, depth]
                };
                used.map(point).any(&mut measured);
                Unseen::NoDepth
            }
            None => {
                let cloud = HostCloud::from_message(message)
                    .ok()
                    .filter(|cloud| !cloud.is_empty())?;
                let max_range_m = f64::from(self.spec.occupancy?.0.max_range_m);
                let is_used = |point: &[f64; 3]| {
                    let square: f64 = point.iter().map(|metres| metres * metres).sum();
                    square > 0.0 && square <= max_range_m * max_range_m
                };
                let points = points_of(&cloud).map(|point| point.map(f64::from));
                points.filter(is_used).any(&mut measured);
                Unseen::NoPoint
            }
        };
        if !is_any {
            return Some(none);
        }
        let origin = self.origin_m();
        let at = std::array::from_fn(|axis| origin[axis] + pose.translation[axis]);
        (!is_seen).then_some(Unseen::Outside(at))
    }

    fn recycle(&mut self, message: Message) {
        self.waiting_bytes -= message.bytes() + OVERHEAD;
        if self.spare.len() < MAX_SPARE {
            self.spare.push(message);
        }
    }

    /// Moves the map so that the pose that it follows is in its middle. Along an axis on which the pose is within a
    /// cell of the middle, the map does not move.
    fn follow(&mut self, time: i64, unposed: &mut Vec<(usize, String, NoPose)>) {
        let Some(pose) = self.spec.follow else { return };
        let is_first = self.anchor.is_none();
        let at = |anchor| Ok(self.tracks[pose].at(time, anchor)?.pose.translation);
        let first = || Ok(at([0.0; 3])?.map(f64::floor));
        let placed = self
            .anchor
            .map_or_else(first, Ok)
            .and_then(|anchor| Ok((anchor, at(anchor)?)));
        let at = match placed {
            Ok((anchor, at)) => {
                self.anchor = Some(anchor);
                at
            }
            Err(why) => {
                unposed.push((self.spec.inputs.len() + pose, self.spec.poses[pose].clone(), why));
                return;
            }
        };
        let axes = self.spec.shape.axes();
        let before = self.window.corner();
        let corner = std::array::from_fn(|axis| {
            let cell = (at[axis] / self.spec.voxel_size_m).floor() as i64;
            let corner = cell - axes[axis] as i64 / 2;
            if !is_first && corner.abs_diff(before[axis]) <= 1 {
                before[axis]
            } else {
                corner
            }
        });
        let entered = self.window.move_to(corner, &mut [(); 0], ());
        debug_assert_eq!(entered, 0, "the window itself has no slots");
        let of_tsdf = self.tsdf.as_mut().map_or(0, |tsdf| tsdf.move_to(corner));
        let of_occupancy = self.occupancy.as_mut().map_or(0, |occupancy| occupancy.move_to(corner));
        if !is_first {
            self.counters.cells_scrolled += of_tsdf.max(of_occupancy);
        }
    }

    /// Decays the volumes once for each decay period that has passed since the last step.
    fn decay(&mut self, time: i64) {
        let passed = |decay: Option<DecaySpec>, period: &mut Option<i64>| {
            let decay = decay?;
            let now = time.div_euclid(decay.period_ns);
            let times = period.replace(now).map_or(0, |before| now.abs_diff(before));
            (times > 0).then_some((decay.part, times))
        };
        let [of_tsdf, of_occupancy] = &mut self.periods;
        if let (Some((_, decay)), Some(tsdf)) = (self.spec.tsdf, &mut self.tsdf)
            && let Some((part, times)) = passed(decay, of_tsdf)
        {
            tsdf.fade(part, times);
        }
        if let (Some((_, decay)), Some(occupancy)) = (self.spec.occupancy, &mut self.occupancy)
            && let Some((part, times)) = passed(decay, of_occupancy)
        {
            occupancy.fade(u32::try_from(times).unwrap_or(u32::MAX).saturating_mul(part));
        }
    }

    /// Returns the pose of an input's sensor at a time, with the origin at the map's corner, and true if it was
    /// extrapolated from an older sample. If a pose is unknown, returns its name and the reason.
    fn place(&self, input: usize, time: i64) -> Result<(RigidTransform<f64>, bool), (String, NoPose)> {
        let spec = &self.spec.inputs[input];
        let Some(anchor) = self.anchor() else {
            let pose = self.spec.follow.unwrap_or_default();
            let why = self.tracks[pose].at(time, [0.0; 3]).err().unwrap_or(NoPose::Empty);
            return Err((self.spec.poses[pose].clone(), why));
        };
        let (mut frame, is_extrapolated) = match spec.pose {
            None => {
                let translation = anchor.map(|metres| -metres);
                let identity = RigidTransform::identity();
                (
                    RigidTransform {
                        translation,
                        ..identity
                    },
                    false,
                )
            }
            Some(pose) => {
                let at = self.tracks[pose].at(time, anchor);
                let at = at.map_err(|why| (self.spec.poses[pose].clone(), why))?;
                (at.pose, at.is_extrapolated)
            }
        };
        let corner = self.window.corner();
        for (axis, metres) in frame.translation.iter_mut().enumerate() {
            *metres -= corner[axis] as f64 * self.spec.voxel_size_m;
        }
        Ok((frame.compose(&spec.extrinsic), is_extrapolated))
    }
}

/// Returns the layers of cells whose centres lie between two heights, metres in the world: index of the first, and
/// index after the last. Indices are along z, counted from the height `anchor`, metres.
pub(super) fn layers(slice_m: [f64; 2], anchor: f64, voxel_size_m: f64) -> [i64; 2] {
    slice_m.map(|height| ((height - anchor) / voxel_size_m - 0.5).ceil() as i64)
}

/// Fuses the frames of a step into the volumes. Each frame has its input and the pose of its sensor. `points`
/// is scratch memory.
fn fuse(
    frames: &[(&InputSpec, RigidTransform<f64>, &Message)],
    tsdf: Option<&mut Tsdf>,
    occupancy: Option<&mut Occupancy>,
    points: &mut Vec<[f32; 3]>,
) -> RayCounters {
    let images: Vec<DepthFrame<'_>> = frames
        .iter()
        .filter_map(|(spec, pose, message)| spec.image(*pose, message))
        .collect();
    if let Some(tsdf) = tsdf {
        tsdf.integrate(&images);
    }
    let Some(occupancy) = occupancy else {
        return RayCounters::default();
    };
    points.clear();
    let mut bundles = Vec::new();
    for (spec, pose, message) in frames {
        if spec.camera.is_none()
            && let Ok(cloud) = HostCloud::from_message(message)
        {
            let first = points.len();
            let pose: RigidTransform<f32> = pose.rounded();
            append_points(&cloud, &pose, points);
            bundles.push((pose.translation, first..points.len()));
        }
    }
    let bundles: Vec<RayBundle<'_>> = bundles
        .into_iter()
        .map(|(origin, places)| RayBundle {
            origin,
            points: &points[places],
        })
        .collect();
    occupancy.scan(&bundles, &images)
}

/// Transforms the points of a cloud by `pose`, and appends them to `points`. A point at 0, 0, 0 of the sensor stands for a ray
/// that did not come back, and becomes NaN.
fn append_points(cloud: &HostCloud<'_>, pose: &RigidTransform<f32>, points: &mut Vec<[f32; 3]>) {
    points.extend(points_of(cloud).map(|point| match point {
        [0.0, 0.0, 0.0] => [f32::NAN; 3],
        _ => pose.apply(point),
    }));
}

/// Iterates over the points of a cloud, metres, in the frame of the sensor.
fn points_of(cloud: &HostCloud<'_>) -> impl Iterator<Item = [f32; 3]> {
    const BLOCK: usize = 1024;
    let mut columns = [[0f32; BLOCK]; 3];
    (0..cloud.len()).map(move |i| {
        if i % BLOCK == 0 {
            let count = BLOCK.min(cloud.len() - i);
            for (column, field) in columns.iter_mut().zip(cloud.xyz()) {
                field.to_f32(i, &mut column[..count]);
            }
        }
        let [x, y, z] = &columns;
        [x[i % BLOCK], y[i % BLOCK], z[i % BLOCK]]
    })
}

impl InputSpec {
    /// Checks that a message is what this input needs: a point cloud, or a depth image of the camera's size.
    fn check(&self, message: &Message) -> Result<(), DroppedFrame> {
        let Some((camera, ..)) = self.camera else {
            HostCloud::from_message(message)?;
            return Ok(());
        };
        let depths = depths_of(message)?;
        let (width, height) = (camera.width, camera.height);
        let shape = message.header.shape.get().unwrap_or_default();
        let wanted = [height as i64, width as i64];
        if !matches!(shape, [] | [_] | [_, _, 1] | [_, _]) || shape.len() > 1 && shape[..2] != wanted {
            let shape = shape.to_vec();
            return Err(DroppedFrame::Shape { shape, width, height });
        }
        match depths.len() == camera.pixels() {
            true => Ok(()),
            false => Err(DroppedFrame::Size {
                len: depths.len(),
                width,
                height,
            }),
        }
    }

    /// Returns the depth image in a checked message; `None` if the input has clouds.
    fn image<'a>(&self, pose: RigidTransform<f64>, message: &'a Message) -> Option<DepthFrame<'a>> {
        let (camera, unit, range) = self.camera?;
        let depths = depths_of(message).ok()?;
        Some(DepthFrame {
            camera,
            pose,
            depth: match depths.dtype() {
                Dtype::UInt16 => DepthImage::UInt16(depths.as_slice(), unit),
                _ => DepthImage::Float32(depths.as_slice()),
            },
            range,
            rgb: None,
        })
    }
}

/// Returns the depths in a message: a flat array of uint16 or float32.
fn depths_of(message: &Message) -> Result<Values<'_>, DroppedFrame> {
    match message.flat() {
        Some(values) if matches!(values.dtype(), Dtype::UInt16 | Dtype::Float32) => Ok(values),
        Some(values) => Err(DroppedFrame::NotDepths(format!("an array of {}", values.dtype()))),
        None => Err(DroppedFrame::NotDepths("a struct".into())),
    }
}

#[cfg(test)]
#[path = "mapper/tests.rs"]
mod tests;

//! Operation `map`: fuses the frames of several inputs into the volumes of a map, in the order of their times.

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

/// Greatest number of bytes of the frames that wait, with [`OVERHEAD`] for each.
const MAX_WAITING_BYTES: usize = 256 << 20;
/// Bytes that a waiting frame takes beside its payload.
const OVERHEAD: usize = 4096;

/// A map that is kept over time: fuses depth images and clouds into its volumes.
///
/// [`push`](Self::push) takes the frames and [`push_pose`](Self::push_pose) the poses, in any order. After each,
/// [`step`](Self::step) does the steps that are due: all frames of one time, in the order of the times. So the order of arrival
/// changes nothing, as long as frames come within `max_wait_ms`.
pub struct Map {
    spec: Spec,
    sequence: Sequence,
    tracks: Vec<PoseTrack>,
    pose_latencies: Vec<i64>,
    /// Frames that wait for their step, by their times and inputs.
    waiting: BTreeMap<(i64, usize), Message>,
    /// Messages whose memory is used again.
    spare: Vec<Message>,
    waiting_bytes: usize,
    tsdf: Option<Tsdf>,
    occupancy: Option<Occupancy>,
    /// The point of the world that the cells are counted from; `None` before a map that follows a pose has one.
    anchor: Option<[f64; 3]>,
    window: Window,
    /// Number of the period of each decay in which the last step was: of signed distances and of occupancy.
    periods: [Option<i64>; 2],
    /// Number of steps since the clock was set back.
    steps: u64,
    epoch: i64,
    counters: MapCounters,
    distances: Distances,
    points: Vec<[f32; 3]>,
}

/// Memory of distance transforms.
#[derive(Debug, Default)]
struct Distances {
    transform: DistanceTransform,
    squares: Vec<i32>,
}

/// Counts since the map was last published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapCounters {
    /// Number of frames that were fused.
    pub frames: u64,
    /// Number of frames that came after a step of their time or of a later one.
    pub late_frames: u64,
    /// Number of fused frames whose pose is that of an older sample.
    pub extrapolated_frames: u64,
    /// Number of frames at whose time a pose was missing.
    pub dropped_unposed: u64,
    /// Number of cells that the map forgot because it moved.
    pub cells_scrolled: u64,
    /// Counts of the points of clouds.
    pub rays: RayCounters,
}

/// The reason why a message is not part of the map.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DroppedFrame {
    /// The message has no stamp. A node gives such a message the time of its publication.
    #[error("no `timestamp_ns` (needed: the capture time, ns)")]
    NoStamp,
    /// The stamp, ns, is out of range.
    #[error("stamp {0} ns is out of range (allowed: +-2^61): stamps are ns since 1970")]
    Stamp(i64),
    /// The message is not a cloud.
    #[error(transparent)]
    Cloud(#[from] PointCloudError),
    /// The payload is not a flat array of depths.
    #[error("{0} came (needed: a flat array of uint16 or float32 depths)")]
    NotDepths(String),
    /// The number of depths is not that of the camera's pixels.
    #[error("{len} depths came (needed: {height} rows of {width}, as in `camera`)")]
    Size {
        /// Number of depths.
        len: usize,
        /// Number of columns of the camera.
        width: usize,
        /// Number of rows of the camera.
        height: usize,
    },
    /// The image's shape, by its metadata, is not that of the camera.
    #[error("the image is of shape {shape:?} (needed: [{height}, {width}], as in `camera`)")]
    Shape {
        /// The shape that came.
        shape: Vec<i64>,
        /// Number of columns of the camera.
        width: usize,
        /// Number of rows of the camera.
        height: usize,
    },
    /// A frame of its input and its time waits already.
    #[error("a frame is dropped: one with its stamp has come already (needed: a stamp of its own for each frame)")]
    Again,
    /// A frame came after a step of its time or of a later one.
    #[error("a frame is dropped: the map is {:.3} s past it already (`max_wait_ms` limits the wait)", robocache_time::ns_to_s(*.0))]
    Late(i64),
}

/// Frames that waited for their step, and are dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DroppedFrames {
    /// The input of each frame that is dropped because more than 256 MiB wait.
    pub overflow: Vec<usize>,
    /// The input of each frame that is dropped because the clock was set back, so that the map is empty. `None` if it was not.
    pub jumped: Option<Vec<usize>>,
}

/// A step that was done: all frames of one time.
#[derive(Clone, Debug, PartialEq)]
pub struct MapStep {
    /// Time of the frames, ns.
    pub stamp_ns: i64,
    /// True if the products are to be published: each `emit_every`-th step.
    pub is_published: bool,
    /// Inputs whose frames are not in the map, with the name of the pose that is missing at their time, and why. Inputs behind
    /// those of frames are poses: the one that the map follows.
    pub unposed: Vec<(usize, String, NoPose)>,
}

impl Map {
    /// Makes an empty map.
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

    /// Takes a frame of the input with index `input`.
    ///
    /// # Errors
    /// The reason why the frame is not part of the map.
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
        let newest = self.sequence.newest(input);
        let has_jumped = newest.is_some_and(|newest| newest.saturating_sub(stamp) > self.spec.reset_ns);
        let mut dropped = DroppedFrames {
            jumped: has_jumped.then(|| self.jump(input, stamp)),
            overflow: Vec::new(),
        };
        match self.sequence.arrived(input, stamp) {
            Arrival::Waits => {}
            Arrival::Again => return Err(DroppedFrame::Again),
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

    /// Takes a sample of the pose with index `pose`, in the order of their names: its stamp, ns, and a position and a quaternion.
    /// Returns what became of it, and the frames that are dropped if it shows that the clock was set back.
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
        let pushed = self.tracks[pose].push(stamp, position, rotation);
        let mut dropped = DroppedFrames::default();
        match pushed {
            PushedPose::BadStamp(_) | PushedPose::BadValue(..) | PushedPose::BadNorm(_) => return (pushed, dropped),
            PushedPose::Jumped => dropped.jumped = Some(self.jump(input, stamp)),
            PushedPose::Kept | PushedPose::Late | PushedPose::Again => {}
        }
        self.sequence.saw(input, stamp);
        (pushed, dropped)
    }

    /// Closes an input, or opens it again. Poses have the indices behind the inputs of frames. No step waits for a closed input.
    ///
    /// # Panics
    /// If `input` is not the index of an input.
    pub fn set_open(&mut self, input: usize, is_open: bool) {
        self.sequence.set_open(input, is_open);
    }

    /// Sets the time that a frame waits for other inputs, ns; `None`: for ever.
    pub fn set_max_wait(&mut self, max_wait_ns: Option<i64>) {
        self.sequence.set_max_wait(max_wait_ns);
    }

    /// True if a step is due.
    pub fn is_due(&self) -> bool {
        self.sequence.due().is_some()
    }

    /// Number of frames that wait for their step, of each input.
    pub fn waiting(&self) -> impl Iterator<Item = usize> {
        self.sequence.waiting().map(|(_, input)| input)
    }

    /// Does the next step that is due; `None` if there is none.
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
        })
    }

    /// Counts since the last call.
    pub fn take_counters(&mut self) -> MapCounters {
        std::mem::take(&mut self.counters)
    }

    /// Number of times that the map was emptied because a clock was set back.
    pub fn epoch(&self) -> i64 {
        self.epoch
    }

    /// The cells that the map holds, counted from the [anchor](Self::anchor).
    pub fn window(&self) -> Window {
        self.window
    }

    /// The point of the world from which cells are counted: `origin_m`. Of a map that follows a pose it is the first position of
    /// that pose, rounded down to whole metres; `None` before there is one.
    pub fn anchor(&self) -> Option<[f64; 3]> {
        match self.spec.follow {
            None => Some(self.spec.origin_m),
            Some(_) => self.anchor,
        }
    }

    /// The corner of the map with the least coordinates, metres, in the world.
    pub fn origin_m(&self) -> [f64; 3] {
        let (anchor, corner) = (self.anchor().unwrap_or_default(), self.window.corner());
        std::array::from_fn(|axis| anchor[axis] + corner[axis] as f64 * self.spec.voxel_size_m)
    }

    /// The products that are published, in the order of the configuration.
    pub fn products(&self) -> &[MapProduct] {
        &self.spec.products
    }

    /// Writes a product of float32 values: `tsdf`, `weight`, `esdf`, `esdf_slice`.
    ///
    /// # Panics
    /// If `out` has another length than the product, or the product is of another type, or not one of this map.
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

    /// Writes the product `occupancy`: the probability that a cell is occupied, in percent, and -1 where it is not known.
    ///
    /// # Panics
    /// If the map has no occupancy, or `out` has another length than its cells.
    pub fn write_occupancy(&self, out: &mut [i8]) {
        let occupancy = self.occupancy.as_ref().expect("a map with occupancy");
        self.window.unrolled(occupancy.state(), out, Occupancy::percent_of);
    }

    /// Writes the product `bits`: cell `i` is bit `i % 8`, least significant first, of byte `i / 8`.
    ///
    /// # Panics
    /// If `out` has another length than the product.
    pub fn write_bits(&self, out: &mut [u8]) {
        let from = match self.spec.occupancy {
            Some(_) => Obstacles::Occupancy,
            None => Obstacles::Tsdf,
        };
        self.obstacles(from).pack(out);
    }

    /// The occupied cells of a volume.
    fn obstacles(&self, from: Obstacles) -> Bits {
        match (from, &self.tsdf, &self.occupancy) {
            (Obstacles::Tsdf, Some(tsdf), _) => tsdf.occupied(0.0),
            (Obstacles::Occupancy, _, Some(occupancy)) => occupancy.occupied(),
            _ => Bits::new(self.window.shape()),
        }
    }

    /// The layers along z, counted from the anchor, whose cells have their centres in the band of `esdf_slice`: the first one, and
    /// the one behind the last. Without `slice_m` they are those of the map.
    pub fn band(&self) -> [i64; 2] {
        let (corner, cells) = (self.window.corner()[2], self.spec.shape.axes()[2] as i64);
        match self.spec.esdf.and_then(|esdf| esdf.slice_m) {
            None => [corner, corner + cells],
            Some(slice_m) => layers(slice_m, self.anchor().unwrap_or_default()[2], self.spec.voxel_size_m),
        }
    }

    /// Begins anew after the clock of an input was set back to `stamp`. Returns the input of each waiting frame that is dropped.
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

    /// Empties the volumes.
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

    fn recycle(&mut self, message: Message) {
        self.waiting_bytes -= message.bytes() + OVERHEAD;
        self.spare.push(message);
    }

    /// Moves the map after the pose that it follows. The map stays where it is while the pose is within a cell of its middle.
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

    /// Forgets a part of what the cells know for each period that has passed since the last step.
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

    /// The pose of an input's sensor at a time, from the corner of the map on, and true if it is that of an older sample. If a pose is
    /// missing, its name, and why.
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

/// The layers of cells along z, counted from `anchor`, whose centres lie between two heights: the first one, and the one behind
/// the last.
pub(super) fn layers(slice_m: [f64; 2], anchor: f64, voxel_size_m: f64) -> [i64; 2] {
    slice_m.map(|height| ((height - anchor) / voxel_size_m - 0.5).ceil() as i64)
}

/// Fuses the frames of a step, each with its input and the pose of its sensor, into the volumes.
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

/// Appends the points of a cloud, moved by `pose`.
fn append_points(cloud: &HostCloud<'_>, pose: &RigidTransform<f32>, points: &mut Vec<[f32; 3]>) {
    const BLOCK: usize = 1024;
    let mut columns = [[0f32; BLOCK]; 3];
    for from in (0..cloud.len()).step_by(BLOCK) {
        let count = BLOCK.min(cloud.len() - from);
        for (column, field) in columns.iter_mut().zip(cloud.xyz()) {
            field.to_f32(from, &mut column[..count]);
        }
        let [x, y, z] = &columns;
        points.extend((0..count).map(|i| pose.apply([x[i], y[i], z[i]])));
    }
}

impl InputSpec {
    /// Checks that a message is a frame of this input.
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

    /// The depth image of a message that was checked; `None` for a cloud.
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

/// The depths of an image's message.
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

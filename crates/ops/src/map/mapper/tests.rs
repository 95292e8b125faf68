//! Tests of maps: random sensor rigs, compared with their frames fused one by one, and small cases whose cells can be
//! counted by hand.

use super::*;
use crate::map::{CameraSection, Decay, EsdfSection, MapInput, OccupancySection, TsdfSection};
use crate::pose::PoseConfig;
use robocache_stream::Layout;

const MS: i64 = 1_000_000;
const WIDTH: usize = 12;
const HEIGHT: usize = 10;

/// Generator of pseudo-random numbers, from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    /// Returns a number in 0..1, a multiple of 1/1024.
    fn part(&mut self) -> f64 {
        self.below(1024) as f64 / 1024.0
    }
}

fn camera() -> CameraSection {
    CameraSection {
        width: WIDTH,
        height: HEIGHT,
        focal_px: [8.0, 8.0],
        principal_px: [5.5, 4.5],
        unit_m: 0.001,
        depth_m: [0.1, 5.0],
        min_cell_m: 0.05,
    }
}

fn input(name: &str, pose: Option<&str>, camera: Option<CameraSection>) -> MapInput {
    MapInput {
        input: name.into(),
        from: None,
        latency_ms: 0.0,
        pose: pose.map(String::from),
        extrinsic: None,
        camera,
    }
}

fn tsdf() -> TsdfSection {
    TsdfSection {
        truncation_m: 0.3,
        distance: Default::default(),
        weight: Default::default(),
        max_weight: 64,
        decay: None,
    }
}

fn occupancy() -> OccupancySection {
    OccupancySection {
        hit: 0.7,
        miss: 0.4,
        clamp: [0.1192, 0.971],
        max_range_m: 4.0,
        band_m: None,
        decay: None,
    }
}

/// Configures a map of a camera and a lidar on a moving base, and of a camera that is fixed in the world.
fn config() -> MapConfig {
    let base = PoseConfig {
        input: "odometry".into(),
        extrapolate_ms: 5.0,
        ..PoseConfig::default()
    };
    MapConfig {
        voxel_size_m: 0.125,
        shape: [16, 20, 12],
        poses: [("base".to_owned(), base)].into(),
        inputs: vec![
            input("wrist", Some("base"), Some(camera())),
            input("lidar", Some("base"), None),
            input("wall", None, Some(camera())),
        ],
        tsdf: Some(tsdf()),
        occupancy: Some(occupancy()),
        esdf: Some(EsdfSection {
            from: Obstacles::Occupancy,
            max_distance_m: 1.0,
            slice_m: Some([0.25, 0.75]),
        }),
        outputs: MapProduct::ALL.to_vec(),
        emit_every: 1,
        reset_ms: 1000.0,
        ..MapConfig::default()
    }
}

fn image(stamp_ns: i64, depths: &[u16]) -> Message {
    let mut message = Message::default();
    message.write(&Layout::flat(Dtype::UInt16, depths.len()), |payload, header| {
        payload.column(0).copy_from_slice(depths);
        header.timestamp_ns.set(stamp_ns);
        header.shape.set([HEIGHT as i64, WIDTH as i64]);
    });
    message
}

fn cloud(stamp_ns: i64, points: &[[f32; 3]]) -> Message {
    let mut message = Message::default();
    message.write(&Layout::flat(Dtype::Float32, points.len() * 3), |payload, header| {
        payload.column(0).copy_from_slice(points.as_flattened());
        header.timestamp_ns.set(stamp_ns);
        header.shape.set([points.len() as i64, 3]);
        header.fields.set(["x", "y", "z"]);
    });
    message
}

/// A message to send to a map: a frame with its input index, or a pose with its stamp, ns, position and quaternion.
enum Sent {
    Frame(usize, Message),
    Pose(i64, [f64; 3], [f64; 4]),
}

/// Creates random messages of four inputs: two depth cameras, a lidar, and the base's poses, each in the order of its
/// stamps. `shift`, metres, moves the base.
fn rig(random: &mut Random, shift: f64) -> [Vec<Sent>; 4] {
    let stamps = |random: &mut Random, period: usize| {
        let mut at = 20 * MS;
        (0..6 + random.below(10))
            .map(|_| {
                at += MS * (1 + random.below(2 * period)) as i64;
                at
            })
            .collect::<Vec<_>>()
    };
    let depths =
        |random: &mut Random| -> Vec<u16> { (0..WIDTH * HEIGHT).map(|_| (random.part() * 3000.0) as u16).collect() };
    let wrist = stamps(random, 10)
        .into_iter()
        .map(|at| Sent::Frame(0, image(at, &depths(random))))
        .collect();
    let lidar = stamps(random, 15)
        .into_iter()
        .map(|at| {
            let points: Vec<_> = (0..30)
                .map(|_| [0; 3].map(|_: u8| (5.0 * random.part() - 2.0) as f32))
                .collect();
            Sent::Frame(1, cloud(at, &points))
        })
        .collect();
    let wall = stamps(random, 12)
        .into_iter()
        .map(|at| Sent::Frame(2, image(at, &depths(random))))
        .collect();
    let mut at = 0;
    let base = (0..60)
        .map(|_| {
            at += MS * (1 + random.below(8)) as i64;
            let position = [random.part() + shift, random.part() - shift, random.part() + shift];
            let rotation = [random.part(), random.part() - 0.5, random.part(), 1.0];
            Sent::Pose(at, position, rotation)
        })
        .collect();
    [wrist, lidar, wall, base]
}

fn send(map: &mut Map, sent: &Sent) {
    match sent {
        Sent::Frame(input, message) => {
            map.push(*input, message).unwrap();
        }
        Sent::Pose(stamp, position, rotation) => {
            map.push_pose(0, *stamp, *position, *rotation);
        }
    }
}

/// Returns the values of all outputs of a map, as bytes.
fn products(map: &mut Map) -> Vec<u8> {
    let (cells, slice) = (map.window().shape().cells(), map.window().shape().runs());
    let mut all = Vec::new();
    for product in [
        MapProduct::Tsdf,
        MapProduct::Weight,
        MapProduct::Esdf,
        MapProduct::EsdfSlice,
    ] {
        let mut out = vec![f32::NAN; if product == MapProduct::EsdfSlice { slice } else { cells }];
        map.write_f32(product, &mut out);
        assert!(out.iter().all(|value| value.is_finite()), "{product}");
        all.extend(bytemuck::cast_slice::<f32, u8>(&out));
    }
    let mut percent = vec![-2i8; cells];
    map.write_occupancy(&mut percent);
    all.extend(percent.iter().map(|&percent| percent as u8));
    let mut bits = vec![0xff; cells.div_ceil(8)];
    map.write_bits(&mut bits);
    all.extend(bits);
    all
}

/// Sends all messages in a random order that keeps the order within each input. Returns each step with the map's
/// outputs after it, and the map.
fn run(config: &MapConfig, sent: &[Vec<Sent>; 4], random: &mut Random) -> (Vec<(MapStep, Vec<u8>)>, Map) {
    let mut map = Map::new(config).unwrap();
    let mut next = [0; 4];
    let mut steps = Vec::new();
    loop {
        let open: Vec<usize> = (0..4).filter(|&input| next[input] < sent[input].len()).collect();
        if open.is_empty() {
            break;
        }
        let input = open[random.below(open.len())];
        send(&mut map, &sent[input][next[input]]);
        next[input] += 1;
        if next[input] == sent[input].len() {
            map.set_open(input, false);
        }
        while let Some(step) = map.step() {
            steps.push((step, products(&mut map)));
        }
    }
    (steps, map)
}

#[test]
fn the_order_of_arrival_changes_nothing() {
    let mut random = Random(1);
    for case in 0..9 {
        let sent = rig(&mut random, 0.0);
        let config = MapConfig {
            follow: (case % 2 == 0).then(|| "base".into()),
            emit_every: 1 + case % 3,
            ..config()
        };
        let (expected, mut map) = run(&config, &sent, &mut random);
        assert!(expected.len() > 10 && map.take_counters().frames > 10, "case {case}");
        for _ in 0..4 {
            assert!(run(&config, &sent, &mut random).0 == expected, "case {case}");
        }
    }
}

#[test]
fn frames_are_fused_in_the_order_of_their_times_with_the_poses_at_these() {
    let mut random = Random(2);
    for case in 0..40 {
        let sent = rig(&mut random, 0.0);
        let config = config();
        let (steps, mut map) = run(&config, &sent, &mut random);
        let spec = Spec::new(&config).unwrap();
        let mut track = PoseTrack::new(&config.poses["base"]).unwrap();
        let mut frames: Vec<(i64, usize, &Message)> = Vec::new();
        for sent in sent.iter().flatten() {
            match sent {
                Sent::Frame(input, message) => frames.push((message.timestamp_ns(), *input, message)),
                Sent::Pose(stamp, position, rotation) => {
                    track.push(*stamp, *position, *rotation);
                }
            }
        }
        frames.sort_by_key(|&(stamp, input, _)| (stamp, input));
        let mut tsdf = Tsdf::new(spec.tsdf.unwrap().0, spec.shape, spec.voxel_size_m, false).unwrap();
        let mut occupancy = Occupancy::new(&spec.occupancy.unwrap().0, spec.shape, spec.voxel_size_m).unwrap();
        let mut unposed = 0;
        for step in frames.chunk_by(|a, b| a.0 == b.0) {
            let (mut images, mut bundles) = (Vec::new(), Vec::new());
            for (stamp, input, message) in step {
                let pose = match *input {
                    2 => RigidTransform::identity(),
                    _ => match track.at(*stamp, [0.0; 3]) {
                        Ok(at) => at.pose,
                        Err(_) => {
                            unposed += 1;
                            continue;
                        }
                    },
                };
                match *input {
                    1 => {
                        let pose: RigidTransform<f32> = pose.rounded();
                        let values = message.flat().unwrap().as_slice::<f32>().to_vec();
                        let points: Vec<_> = values.as_chunks().0.iter().map(|&point| pose.apply(point)).collect();
                        bundles.push((pose.translation, points));
                    }
                    _ => images.push(spec.inputs[*input].image(pose, message).unwrap()),
                }
            }
            tsdf.integrate(&images);
            let bundles: Vec<_> = bundles
                .iter()
                .map(|(origin, points)| RayBundle {
                    origin: *origin,
                    points,
                })
                .collect();
            occupancy.scan(&bundles, &images);
        }
        let times: Vec<i64> = frames
            .iter()
            .map(|frame| frame.0)
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect();
        assert!(steps.iter().map(|(step, _)| step.stamp_ns).eq(times), "case {case}");
        assert_eq!(map.tsdf.as_ref().unwrap().state(), tsdf.state(), "case {case}");
        assert_eq!(
            map.occupancy.as_ref().unwrap().state(),
            occupancy.state(),
            "case {case}"
        );
        let counters = map.take_counters();
        assert_eq!(
            (counters.frames, counters.dropped_unposed),
            ((frames.len() - unposed) as u64, unposed as u64)
        );
        assert_eq!(counters.late_frames, 0);
    }
}

#[test]
fn a_world_that_is_moved_changes_no_bit() {
    for case in 0..10 {
        let steps = |shift: f64| {
            let mut random = Random(case);
            let mut config = MapConfig {
                follow: Some("base".into()),
                ..config()
            };
            // The camera that stands still would have to be moved, too.
            config.inputs.pop();
            let mut sent = rig(&mut random, shift);
            sent[2].clear();
            let steps = run_two(&config, &sent);
            steps
                .into_iter()
                .map(|(step, bytes)| (step.stamp_ns, bytes))
                .collect::<Vec<_>>()
        };
        assert!(steps(0.0) == steps(100_000.0), "case {case}");
    }
}

/// Sends all poses, then the frames of the inputs 0 and 1. Returns each step with the map's signed distances and
/// obstacle distances after it.
fn run_two(config: &MapConfig, sent: &[Vec<Sent>; 4]) -> Vec<(MapStep, Vec<u8>)> {
    let mut map = Map::new(config).unwrap();
    let mut steps = Vec::new();
    for sent in [&sent[3], &sent[0], &sent[1]].into_iter().flatten() {
        send(&mut map, sent);
    }
    (0..3).for_each(|input| map.set_open(input, false));
    while let Some(step) = map.step() {
        let mut bytes = Vec::new();
        let mut out = vec![0f32; map.window().shape().cells()];
        map.write_f32(MapProduct::Tsdf, &mut out);
        bytes.extend(bytemuck::cast_slice::<f32, u8>(&out));
        map.write_f32(MapProduct::Esdf, &mut out);
        bytes.extend(bytemuck::cast_slice::<f32, u8>(&out));
        steps.push((step, bytes));
    }
    assert!(map.take_counters().frames > 5);
    steps
}

const STILL: [f64; 4] = [0.0, 0.0, 0.0, 1.0];

/// Configures a map of a lidar on a moving base, which follows the base.
fn following() -> MapConfig {
    let mut config = config();
    config.inputs = vec![input("lidar", Some("base"), None)];
    config.tsdf = None;
    config.follow = Some("base".into());
    config.outputs = vec![MapProduct::Occupancy];
    config
}

/// Sends a pose and a cloud with the same stamp, and does the step.
fn scan(map: &mut Map, stamp_ns: i64, position: [f64; 3], points: &[[f32; 3]]) -> MapStep {
    map.push_pose(0, stamp_ns, position, STILL);
    map.push(0, &cloud(stamp_ns, points)).unwrap();
    map.step().unwrap()
}

/// Returns the occupancy, in percent, of each cell that was observed, by the world coordinates of the cell's corner in
/// units of 1/8 m, the edge of a cell.
fn known(map: &Map) -> BTreeMap<[i64; 3], i8> {
    let [nx, ny, nz] = map.window().shape().axes();
    let mut percent = vec![0i8; nx * ny * nz];
    map.write_occupancy(&mut percent);
    let origin = map.origin_m();
    (0..percent.len())
        .filter(|&cell| percent[cell] >= 0)
        .map(|cell| {
            let place = [cell / nz / ny, cell / nz % ny, cell % nz];
            (
                std::array::from_fn(|axis| ((origin[axis] + 0.125 * place[axis] as f64) * 8.0) as i64),
                percent[cell],
            )
        })
        .collect()
}

#[test]
fn a_map_follows_its_pose_by_whole_cells() {
    let mut map = Map::new(&following()).unwrap();
    assert_eq!(map.anchor(), None);
    // The sensor is in cell (8, 16, -4) of 1/8 m, the hit in the cell behind the next one.
    scan(&mut map, 0, [1.0625, 2.0625, -0.4375], &[[0.25, 0.0, 0.0]]);
    assert_eq!(map.anchor(), Some([1.0, 2.0, -1.0]));
    assert_eq!(
        map.origin_m(),
        [1.0 - 8.0 * 0.125, 2.0 - 10.0 * 0.125, -0.5 - 6.0 * 0.125]
    );
    let first = [([8, 16, -4], 40), ([9, 16, -4], 40), ([10, 16, -4], 70)].into();
    assert_eq!(known(&map), first);
    // Up to one cell away it stays.
    scan(&mut map, MS, [1.1875, 2.0625, -0.4375], &[]);
    assert_eq!((map.origin_m()[0], known(&map)), (0.0, first.clone()));
    scan(&mut map, 2 * MS, [1.3125, 2.0625, -0.4375], &[]);
    assert_eq!((map.origin_m()[0], known(&map)), (0.25, first));
    let counters = map.take_counters();
    assert_eq!((counters.frames, counters.cells_scrolled), (3, 2 * 20 * 12));
    // The cells that left are not known when they come back.
    scan(&mut map, 3 * MS, [10.0, 2.0625, -0.4375], &[]);
    scan(&mut map, 4 * MS, [1.0625, 2.0625, -0.4375], &[]);
    assert_eq!(known(&map), BTreeMap::new());
}

#[test]
fn cells_are_forgotten_by_the_stamps() {
    let mut config = following();
    config.occupancy = Some(OccupancySection {
        decay: Some(Decay {
            period_ms: 10.0,
            part: 0.5,
        }),
        ..occupancy()
    });
    let mut map = Map::new(&config).unwrap();
    let at = [0.0625; 3];
    scan(&mut map, 5 * MS, at, &[[0.125, 0.0, 0.0]]);
    let percents = |map: &Map| known(map).into_values().collect::<Vec<_>>();
    assert_eq!(percents(&map), [40, 70]);
    scan(&mut map, 9 * MS, at, &[]);
    assert_eq!(percents(&map), [40, 70]);
    // Half of the log-odds of a hit: to 0.4 / 0.6 * sqrt(0.7 / 0.3), and to sqrt(0.7 / 0.3).
    scan(&mut map, 10 * MS, at, &[]);
    assert_eq!(percents(&map), [50, 60]);
    scan(&mut map, 31 * MS, at, &[]);
    assert_eq!(percents(&map), [50, 50]);
}

#[test]
fn a_clock_that_is_set_back_empties_the_map() {
    let mut map = Map::new(&following()).unwrap();
    scan(&mut map, 5000 * MS, [0.0625; 3], &[[0.125, 0.0, 0.0]]);
    map.push(0, &cloud(5010 * MS, &[])).unwrap();
    let pushed = map.push(0, &cloud(0, &[])).unwrap();
    assert_eq!((pushed.overflow, pushed.jumped), (vec![], Some(vec![0])));
    assert_eq!((map.epoch(), map.anchor(), map.step()), (1, None, None));
    // The pose's clock goes back, too: that is the same jump.
    assert_eq!(map.push_pose(0, 0, [3.5; 3], STILL).0, PushedPose::Kept);
    let step = map.step().unwrap();
    assert_eq!((step.stamp_ns, map.epoch(), map.anchor()), (0, 1, Some([3.0; 3])));
    assert_eq!(known(&map), BTreeMap::new());
}

#[test]
fn frames_that_are_late_or_without_a_pose_are_counted() {
    let mut config = following();
    config.max_wait_ms = Some(20.0);
    let mut map = Map::new(&config).unwrap();
    map.push(0, &cloud(0, &[])).unwrap();
    assert_eq!(map.push(0, &cloud(0, &[])), Err(DroppedFrame::Again));
    map.push(0, &cloud(20 * MS, &[])).unwrap();
    let step = map.step().unwrap();
    let follow = (1, "base".to_owned(), NoPose::Empty);
    assert_eq!(
        (step.is_published, step.unposed),
        (false, vec![follow, (0, "base".to_owned(), NoPose::Empty)])
    );
    assert_eq!(map.step(), None);
    assert_eq!(map.push(0, &cloud(-MS, &[])), Err(DroppedFrame::Late(MS)));
    // The pose holds for 5 ms.
    map.push_pose(0, 16 * MS, [0.0625; 3], STILL);
    map.set_max_wait(Some(0));
    let step = map.step().unwrap();
    assert_eq!((step.is_published, step.unposed), (true, vec![]));
    let counters = map.take_counters();
    assert_eq!(
        (counters.frames, counters.late_frames, counters.dropped_unposed),
        (1, 2, 1)
    );
    assert_eq!(counters.extrapolated_frames, 1);
}

#[test]
fn messages_that_are_not_frames() {
    let mut map = Map::new(&config()).unwrap();
    let mut problem = |input: usize, message: &Message| map.push(input, message).unwrap_err().to_string();
    assert_eq!(
        problem(0, &image(0, &[1; 7])),
        "7 depths came (needed: 10 rows of 12, as in `camera`)"
    );
    let mut turned = image(0, &[1; WIDTH * HEIGHT]);
    turned.header.shape.set([WIDTH as i64, HEIGHT as i64]);
    assert_eq!(
        problem(0, &turned),
        "the image is of shape [12, 10] (needed: [10, 12], as in `camera`)"
    );
    let bytes = Message::default();
    assert_eq!(
        problem(0, &bytes),
        "a struct came (needed: a flat array of uint16 or float32 depths)"
    );
    let mut unstamped = image(0, &[1; WIDTH * HEIGHT]);
    unstamped.header.timestamp_ns.clear();
    assert_eq!(
        problem(0, &unstamped),
        "no `timestamp_ns` (needed: the capture time, ns)"
    );
}

#[test]
fn configurations_that_are_refused() {
    let problem = |change: &dyn Fn(&mut MapConfig)| {
        let mut config = config();
        change(&mut config);
        Map::new(&config)
            .err()
            .map_or("accepted".into(), |error| error.to_string())
    };
    for (change, expected) in [
        (&(|_: &mut MapConfig| ()) as &dyn Fn(&mut MapConfig), "accepted"),
        (
            &|config| config.inputs[0].pose = Some("bas".into()),
            "inputs[0].pose: `bas` is not one of `poses:`, did you mean `base`? (there: base)",
        ),
        (
            &|config| config.inputs.iter_mut().for_each(|input| input.pose = None),
            "poses.base: nothing is fixed to it (needed: `pose: base` at an input, or `follow: base`)",
        ),
        (
            &|config| config.inputs[0].from = robocache_yaml::from_str("{ stamp: header }").ok(),
            "inputs[0].from: is not supported with `camera` (allowed: depth images as flat arrays)",
        ),
        (
            &|config| config.tsdf.as_mut().unwrap().truncation_m = 0.06,
            "tsdf.truncation_m: 0.06 (allowed: half of `voxel_size_m`, 0.125, or more: else surfaces have holes)",
        ),
        (
            &|config| config.occupancy.as_mut().unwrap().band_m = Some(0.01),
            "occupancy.band_m: 0.01 (allowed: half of `voxel_size_m`, 0.125, or more: else surfaces have holes)",
        ),
        (
            &|config| {
                config.follow = Some("base".into());
                config.esdf.as_mut().unwrap().slice_m = Some([0.11, 0.12]);
            },
            "esdf.slice_m: [0.11, 0.12] is lower than a cell (needed with `follow`: at least `voxel_size_m`, 0.125, so that it has \
             the centre of a cell wherever the map is)",
        ),
        (&|config| config.inputs.clear(), "inputs: is empty (at least one input)"),
        (
            &|config| config.inputs[2].input = "odometry".into(),
            "inputs[2].input: `odometry` is listed twice (allowed: each input once)",
        ),
        (
            &|config| config.inputs[0].camera.as_mut().unwrap().focal_px[1] = 0.0,
            "inputs[0].camera.focal_px: [8, 0] (allowed: 0.001 to 1000000, or minus that)",
        ),
        (
            &|config| config.inputs[0].camera.as_mut().unwrap().depth_m = [2.0, 1.0],
            "inputs[0].camera.depth_m: [2, 1] (allowed: the least depth, 0 or more, and the greatest, up to 10000 m)",
        ),
        (
            &|config| config.esdf.as_mut().unwrap().slice_m = Some([1.0, 0.5]),
            "esdf.slice_m: [1, 0.5] (allowed: +-100000000 m, the lower height first)",
        ),
        (
            &|config| config.tsdf = None,
            "outputs[0]: `tsdf` needs the section `tsdf:`",
        ),
        (
            &|config| config.outputs.push(MapProduct::Bits),
            "outputs[6]: `bits` is listed twice (allowed: each product once)",
        ),
        (
            &|config| config.esdf.as_mut().unwrap().slice_m = Some([2.0, 3.0]),
            "esdf.slice_m: [2, 3] has no centre of a cell (the map is from 0 to 1.5 m)",
        ),
        (
            &|config| config.esdf.as_mut().unwrap().max_distance_m = 0.1,
            "esdf.max_distance_m: 0.1 (allowed: `voxel_size_m`, 0.125, up to 1e7 m)",
        ),
        (
            &|config| config.emit_every = 0,
            "emit_every: 0 is not allowed (at least 1)",
        ),
        (
            &|config| config.max_wait_ms = Some(-1.0),
            "max_wait_ms: -1 is not a duration (allowed: 0 to 1e12 ms)",
        ),
        (
            &|config| {
                config.follow = Some("base".into());
                config.origin_m = Some([0.0; 3]);
            },
            "origin_m: [0.0, 0.0, 0.0] has no effect with `follow`, which places the map",
        ),
    ] {
        assert_eq!(problem(change), expected);
    }
    let product: Result<MapProduct, _> = robocache_yaml::from_str("esdf_slise");
    assert!(product.unwrap_err().to_string().contains("did you mean `esdf_slice`"));
}

#[test]
fn all_of_an_input_whose_clock_was_set_back_is_forgotten() {
    let mut config = config();
    config.inputs.remove(2);
    let mut map = Map::new(&config).unwrap();
    let depths = [1000; WIDTH * HEIGHT];
    // The lidar is silent, so that the images and poses of five seconds wait.
    for ms in (0..=5000).step_by(500) {
        map.push(0, &image(ms * MS, &depths)).unwrap();
        map.push_pose(0, ms * MS, [ms as f64; 3], STILL);
    }
    // The clock goes back by two seconds: images and poses up to 4000 ms are of the former clock, too.
    let dropped = map.push(0, &image(3000 * MS, &depths)).unwrap();
    assert_eq!(dropped.jumped, Some(vec![0; 11]));
    assert_eq!(map.tracks[0].newest_ns(), None);
    map.push_pose(0, 3000 * MS, [0.0; 3], STILL);
    map.push(1, &cloud(3000 * MS, &[])).unwrap();
    let step = map.step().unwrap();
    assert_eq!(
        (step.stamp_ns, step.unposed, map.take_counters().frames),
        (3000 * MS, vec![], 2)
    );
    assert_eq!((map.epoch(), map.step()), (1, None));
}

#[test]
fn a_pose_stream_alone_may_be_set_back() {
    let mut config = following();
    config.poses.get_mut("base").unwrap().reset_ms = 100.0;
    let mut map = Map::new(&config).unwrap();
    map.push_pose(0, 5000 * MS, [0.0; 3], STILL);
    map.push(0, &cloud(5010 * MS, &[])).unwrap();
    // By the map's own `reset_ms` the frame is of the same clock still.
    let (pushed, dropped) = map.push_pose(0, 4500 * MS, [0.0; 3], STILL);
    assert_eq!((pushed, dropped.jumped), (PushedPose::Jumped, Some(vec![])));
    assert_eq!(map.step(), None);
    map.push_pose(0, 5020 * MS, [0.0; 3], STILL);
    assert_eq!(map.step().unwrap().unposed, []);
    // A stamp that can't be makes no clock.
    let (pushed, dropped) = map.push_pose(0, i64::MAX, [0.0; 3], STILL);
    assert_eq!(
        (pushed, dropped),
        (PushedPose::BadStamp(i64::MAX), DroppedFrames::default())
    );
    assert_eq!(
        map.push_pose(0, i64::MIN, [0.0; 3], STILL).0,
        PushedPose::BadStamp(i64::MIN)
    );
}

#[test]
fn the_band_of_obstacles_does_not_move_with_the_map() {
    let mut config = following();
    config.esdf = Some(EsdfSection {
        from: Obstacles::Occupancy,
        max_distance_m: 0.5,
        slice_m: Some([0.0625, 0.5]),
    });
    config.outputs = vec![MapProduct::EsdfSlice];
    let mut map = Map::new(&config).unwrap();
    for (i, z) in [0.0, 0.3, -0.4, 5.0].into_iter().enumerate() {
        scan(
            &mut map,
            i as i64 * MS,
            [0.0625, 0.0625, z],
            &[[0.25, 0.0, 0.2 - z as f32]],
        );
        // The layers with centres at 0.0625, 0.1875, 0.3125 and 0.4375 m.
        assert_eq!(map.band(), [0, 4], "{z}");
        let mut distances = vec![0f32; 16 * 20];
        map.write_f32(MapProduct::EsdfSlice, &mut distances);
        // The point is two cells ahead of the middle; at the end the band is below the map.
        let expected = if z == 5.0 { 0.5 } else { 0.25 };
        assert_eq!(distances[8 * 20 + 10], expected, "{z}");
        assert!(distances.iter().all(|&metres| metres <= 0.5));
    }
}

#[test]
fn the_oldest_of_too_many_frames_are_dropped() {
    let mut config = following();
    config.inputs = vec![input("lidar", Some("base"), None), input("rear", Some("base"), None)];
    let mut map = Map::new(&config).unwrap();
    let points = vec![[1.0f32, 0.0, 0.0]; 4 << 20];
    let bytes = points.len() * 12 + OVERHEAD;
    let held = MAX_WAITING_BYTES / bytes;
    let mut overflow = Vec::new();
    for i in 0..held as i64 + 2 {
        overflow.extend(map.push(0, &cloud(i * MS, &points)).unwrap().overflow);
    }
    assert_eq!(overflow, [0, 0]);
    assert_eq!(map.waiting().count(), held);
    // A frame that makes a step due is not dropped.
    map.push_pose(0, 100 * MS, [0.0; 3], STILL);
    let dropped = map.push(1, &cloud(2 * MS, &points)).unwrap();
    assert_eq!((dropped, map.is_due()), (DroppedFrames::default(), true));
}

#[test]
fn frames_that_change_nothing_are_named_with_the_reason() {
    let unseen = |map: &mut Map| map.step().unwrap().unseen;
    // The map is at the origin, and its cloud sensor 3 m away from it, with an input of a camera that is in it.
    let mut config = following();
    config.follow = None;
    config.max_wait_ms = Some(0.0);
    let mut map = Map::new(&config).unwrap();
    let mut seen = |stamp_ns: i64, at: [f64; 3], points: &[[f32; 3]]| {
        map.push_pose(0, stamp_ns, at, STILL);
        map.push(0, &cloud(stamp_ns, points)).unwrap();
        unseen(&mut map)
    };
    assert_eq!(seen(10 * MS, [0.5; 3], &[[0.25, 0.0, 0.0]]), []);
    // A sensor in the map frees cells, whatever it sees.
    assert_eq!(seen(20 * MS, [0.5; 3], &[[1.5, 0.0, 0.0]]), []);
    let outside = Unseen::Outside([-3.0, 0.5, 0.5]);
    assert_eq!(seen(30 * MS, [-3.0, 0.5, 0.5], &[[-0.5, 0.0, 0.0]]), [(0, outside)]);
    // Millimetres, and rays that did not come back.
    assert_eq!(
        seen(40 * MS, [0.5; 3], &[[2500.0, 0.0, 0.0], [0.0; 3]]),
        [(0, Unseen::NoPoint)]
    );
    assert_eq!(seen(50 * MS, [0.5; 3], &[]), []);
    let counters = map.take_counters();
    assert_eq!((counters.rays.points_in, counters.rays.dropped_nonfinite), (5, 1));
}

#[test]
fn messages_of_the_former_clock_do_not_come_into_the_new_map() {
    const LATER: i64 = 7_200_000;
    let mut config = config();
    config.inputs.remove(2);
    config.max_wait_ms = Some(50.0);
    let mut map = Map::new(&config).unwrap();
    let depths = [1000; WIDTH * HEIGHT];
    map.push_pose(0, LATER * MS, [0.0; 3], STILL);
    map.push(0, &image(LATER * MS, &depths)).unwrap();
    map.push(1, &cloud(LATER * MS, &[])).unwrap();
    assert_eq!(map.step().unwrap().unposed, []);
    // The clock goes back by two hours. A cloud and a pose of the former clock still come.
    let dropped = map.push(0, &image(10 * MS, &depths)).unwrap();
    assert_eq!(dropped.jumped, Some(vec![]));
    assert_eq!(map.push(1, &cloud((LATER + 100) * MS, &[])), Err(DroppedFrame::Former));
    assert_eq!(
        map.push_pose(0, (LATER + 10) * MS, [5.0; 3], STILL).0,
        PushedPose::Outdated
    );
    assert_eq!(map.step(), None);
    map.push(1, &cloud(10 * MS, &[])).unwrap();
    assert_eq!(map.push_pose(0, 10 * MS, [0.0; 3], STILL).0, PushedPose::Kept);
    let step = map.step().unwrap();
    assert_eq!((step.stamp_ns, step.unposed, map.epoch()), (10 * MS, vec![], 1));
}

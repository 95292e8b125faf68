//! Diagnostics of a graph: planted faults appear in the row of their input, with the reason.

use crate::common::{MS, Recorder, input, sample};
use robocache::app::{Change, Graph, Level, Report, Row};
use robocache::stream::Message;
use std::thread::sleep;
use std::time::{Duration, Instant};

struct Robot {
    graph: Graph,
    sink: Recorder,
    now: Instant,
}

impl Robot {
    fn new(config: &str) -> Self {
        let mut graph = crate::common::graph(config).unwrap();
        graph.gather_diagnostics();
        Self {
            graph,
            sink: Recorder::default(),
            now: Instant::now(),
        }
    }

    fn comes(&mut self, name: &str, message: &Message) {
        self.graph.message(input(&self.graph, name), message, &mut self.sink);
    }

    /// Advances the time by `seconds`, and wakes the operations that depend on the clock.
    fn wake_after(&mut self, seconds: f64) {
        self.now += Duration::from_secs_f64(seconds);
        self.graph.wake(self.now, true, &mut self.sink).unwrap();
    }

    /// Advances the time by `seconds` without a message, and returns the report.
    fn report_after(&mut self, seconds: f64) -> Report {
        self.now += Duration::from_secs_f64(seconds);
        self.graph.report(self.now).unwrap()
    }
}

fn row<'a>(report: &'a Report, input: &str) -> &'a Row {
    report.inputs.iter().find(|row| row.input == input).unwrap()
}

fn said(report: &Report, input: &str) -> (Level, String) {
    let row = row(report, input);
    (row.level, row.message.clone())
}

const FUSE: &str = "plugins: [fuse: { rate_hz: 100, max_wait_ms: 20, modalities: [
    { input: force, dim: 2, interpolation: linear, max_gap_ms: 50 },
    { input: camera, dim: 1, interpolation: previous, max_age_ms: 30 } ] }]";

/// Sends a sample of both streams every 10 ms, up to `to_ms`.
fn warm(robot: &mut Robot, to_ms: i64) {
    for ms in (0..=to_ms).step_by(10) {
        robot.comes("force", &sample(ms * MS, &[1.0, 2.0]));
        robot.comes("camera", &sample(ms * MS, &[1.0]));
    }
}

#[test]
fn nothing_is_reported_that_was_not_asked_for() {
    let mut graph = crate::common::graph(FUSE).unwrap();
    assert!(graph.report(Instant::now()).is_none());
}

#[test]
fn a_healthy_stream_has_its_figures() {
    let mut robot = Robot::new(FUSE);
    for ms in (0..=200).step_by(10) {
        let mut message = sample(1_700_000_000_000 * MS + ms * MS, &[1.0, 2.0]);
        message.arrival_ns = Some(message.timestamp_ns() + 3 * MS);
        robot.comes("force", &message);
        robot.comes("camera", &sample(message.timestamp_ns(), &[1.0]));
    }
    let report = robot.report_after(0.5);
    assert_eq!(
        (report.version, report.level, &*report.message),
        (Report::VERSION, Level::Ok, "")
    );
    assert_eq!(report.observations as usize, robot.sink.sent.len());
    assert_eq!((report.wait_p50_ns, &*report.device), (Some(0), "cpu"));
    assert!(report.compute_p50_us.unwrap() > 0.0);
    let force = row(&report, "force");
    assert_eq!(
        (&*force.operation, force.messages, force.rate_hz.round()),
        ("fuse", 21, 40.0)
    );
    let within = |ns: Option<i64>, ms: i64| (ns.unwrap() - ms * MS).abs() < ms * MS / 100;
    assert!(
        within(force.period_p50_ns, 10) && within(force.delay_p99_ns, 3),
        "{force:?}"
    );
    assert_eq!(
        (force.age_p50_ns, force.age_max_ns, force.valid_share),
        (Some(0), Some(0), Some(1.0))
    );
    assert_eq!(
        (force.late, force.faults, force.gaps, force.out_of_order, force.epoch),
        (0, 0, 0, 0, 0)
    );
    assert_eq!(row(&report, "camera").delay_p50_ns, None, "nobody says when it came");
}

#[test]
fn a_stream_that_stops_is_stale_and_one_that_goes_on_is_not() {
    let mut robot = Robot::new(FUSE);
    assert_eq!(said(&robot.report_after(1.0), "force"), (Level::Ok, String::new()));
    let report = robot.report_after(1.5);
    assert_eq!(
        said(&report, "force"),
        (Level::Stale, "nothing has come for 2.5 s since the start".into())
    );
    assert_eq!(report.message, "`force`: nothing has come for 2.5 s since the start");
    warm(&mut robot, 100);
    robot.now = Instant::now();
    assert_eq!(robot.report_after(1.0).level, Level::Ok);
    sleep(Duration::from_millis(100));
    robot.comes("camera", &sample(110 * MS, &[1.0]));
    let report = robot.report_after(1.05);
    assert_eq!(
        said(&report, "force"),
        (Level::Stale, "nothing has come for 2.1 s".into())
    );
    assert_eq!(row(&report, "camera").level, Level::Ok);
    robot
        .graph
        .changed(input(&robot.graph, "force"), Change::Closed, &mut robot.sink);
    let report = robot.report_after(1.0);
    assert_eq!(
        said(&report, "force"),
        (Level::Stale, "it is closed: nothing will come any more".into())
    );
}

#[test]
fn bad_messages_are_errors_that_say_what_came() {
    let mut robot = Robot::new(FUSE);
    warm(&mut robot, 100);
    robot.comes("force", &sample(110 * MS, &[1.0, 2.0, 3.0]));
    robot.comes("force", &sample(120 * MS, &[1.0, f32::NAN]));
    robot.comes("camera", &sample(1 << 62, &[1.0]));
    let mut contradicts = sample(130 * MS, &[1.0]);
    contradicts.header.shape.set([2]);
    robot.comes("camera", &contradicts);
    let report = robot.report_after(1.0);
    assert_eq!(report.level, Level::Error);
    let force = row(&report, "force");
    assert_eq!(
        (
            force.faults,
            force.dropped_length,
            force.dropped_nonfinite,
            force.dropped_stamp
        ),
        (2, 1, 1, 0)
    );
    let (level, words) = said(&report, "force");
    assert_eq!(level, Level::Error);
    assert!(words.starts_with("2 faults: a sample has 3 values, not 2"), "{words}");
    let camera = row(&report, "camera");
    assert_eq!(
        (camera.faults, camera.dropped_stamp, camera.level),
        (2, 1, Level::Error)
    );
    // Without new faults the level falls to a warning; the counts stay.
    warm(&mut robot, 10);
    let report = robot.report_after(1.0);
    assert_eq!(
        (row(&report, "force").level, row(&report, "force").faults),
        (Level::Warn, 2)
    );
}

#[test]
fn what_is_late_out_of_order_or_too_far_apart_is_warned_of() {
    let mut robot = Robot::new(FUSE);
    warm(&mut robot, 100);
    assert_eq!(robot.report_after(1.0).level, Level::Ok);
    for ms in [200, 210, 205, 95] {
        robot.comes("force", &sample(ms * MS, &[1.0, 2.0]));
    }
    let report = robot.report_after(0.5);
    let force = row(&report, "force");
    assert_eq!(
        (force.level, force.late, force.out_of_order, force.gaps),
        (Level::Warn, 1, 2, 1)
    );
    for words in ["1 late", "2 out of order", "a gap of 100.0 ms (`max_gap_ms` 50)"] {
        assert!(force.message.contains(words), "{}", force.message);
    }
    let camera = row(&report, "camera");
    assert!(camera.valid_share.unwrap() < 1.0);
    assert!(camera.message.contains("(`max_age_ms` 30)"), "{}", camera.message);
}

#[test]
fn a_clock_that_jumps_is_said_once() {
    let mut robot = Robot::new(FUSE);
    warm(&mut robot, 100);
    robot.report_after(0.5);
    robot.comes("force", &sample(-10_000 * MS, &[1.0, 2.0]));
    let report = robot.report_after(0.5);
    let force = row(&report, "force");
    assert_eq!((force.level, force.epoch, force.out_of_order), (Level::Warn, 1, 0));
    assert!(force.message.contains("a clock jumped (epoch 1)"), "{}", force.message);
    assert!(!row(&robot.report_after(0.5), "force").message.contains("jumped"));
}

#[test]
fn an_input_that_is_asked_by_requests_may_be_silent() {
    let config = "plugins: [fuse: { rate_hz: 100, trigger: { request: ask }, modalities: [
        { input: a, dim: 1, interpolation: previous } ] }]";
    let report = Robot::new(config).report_after(60.0);
    assert_eq!(
        (row(&report, "ask").level, row(&report, "a").level),
        (Level::Ok, Level::Stale)
    );
}

#[test]
fn operations_of_a_node_have_rows_of_their_own_and_grids_their_points() {
    let config = "plugins: [
        voxelize: { origin_m: [0, 0, 0], voxel_size_m: [1, 1, 1], shape: [4, 4, 4], channels: [occupancy],
                    layout: dense, inputs: [{ input: lidar }] },
        fuse: { rate_hz: 10, modalities: [{ input: lidar_state, dim: 1, interpolation: previous }],
                attach: [{ input: voxels }] } ]";
    let mut robot = Robot::new(config);
    for ms in [0, 100, 200] {
        let mut cloud = sample(ms * MS, &[0.5, 0.5, 0.5, 9.0, 0.0, 0.0, f32::NAN, 0.0, 0.0]);
        cloud.header.shape.set([3, 3]);
        robot.comes("lidar", &cloud);
        robot.comes("lidar_state", &sample(ms * MS, &[1.0]));
    }
    let report = robot.report_after(1.0);
    let rows: Vec<_> = report
        .inputs
        .iter()
        .map(|row| (&*row.operation, &*row.input, row.messages))
        .collect();
    assert_eq!(
        rows,
        [
            ("voxelize", "lidar", 3),
            ("fuse", "lidar_state", 3),
            ("fuse", "voxels", 3)
        ]
    );
    assert_eq!(row(&report, "voxels").valid_share, Some(1.0));
    let points = report.points.unwrap();
    assert_eq!(
        (
            points.points_in,
            points.points_kept,
            points.dropped_outside,
            points.dropped_nonfinite
        ),
        (9, 3, 3, 3)
    );
}

#[test]
fn a_clock_says_where_it_stands() {
    let mut robot = Robot::new("plugins: [clock: { inputs: [{ input: imu }] }]");
    for i in 0..3000 {
        let mut message = sample(i * 10 * MS, &[1.0]);
        message.arrival_ns = Some(message.timestamp_ns() + 5_000 * MS + i * 200);
        robot.comes("imu", &message);
    }
    let report = robot.report_after(1.0);
    let imu = row(&report, "imu");
    assert!((imu.clock_offset_ns.unwrap() - 5_000 * MS).abs() < MS, "{imu:?}");
    assert!((imu.clock_skew_ppm.unwrap() - 20.0).abs() < 0.5, "{imu:?}");
}

/// Stamps of a device that are off by a minute are not a fault if robocache-clock converts them to host time.
#[test]
fn a_clock_that_is_put_right_is_no_reason_to_warn() {
    for delay_ms in [60_000, -60_000] {
        let mut robot = Robot::new("plugins: [clock: { inputs: [{ input: imu, lock_s: 1 }] }]");
        for i in 0..200 {
            let mut message = sample(i * 10 * MS, &[1.0]);
            message.arrival_ns = Some((i * 10 + delay_ms) * MS);
            robot.comes("imu", &message);
        }
        assert_eq!(said(&robot.report_after(0.5), "imu"), (Level::Ok, String::new()));
    }
}

#[test]
fn sets_are_counted_and_what_is_in_none() {
    let mut robot =
        Robot::new("plugins: [group: { policy: epsilon, max_span_ms: 5, inputs: [{ input: a }, { input: b }] }]");
    for ms in [0, 100, 50, 200] {
        robot.comes("a", &sample(ms * MS, &[1.0]));
        robot.comes("b", &sample((ms + 1) * MS, &[1.0]));
    }
    let report = robot.report_after(1.0);
    assert_eq!(report.observations, 3);
    assert_eq!(
        (row(&report, "a").dropped_stamp, row(&report, "a").out_of_order),
        (1, 1)
    );
}

#[test]
fn a_stamp_that_is_refused_counts_in_no_figure_of_stamps() {
    let mut robot = Robot::new(FUSE);
    warm(&mut robot, 200);
    robot.report_after(0.5);
    robot.comes("camera", &sample(1 << 62, &[1.0]));
    robot.comes("camera", &sample(195 * MS, &[1.0]));
    robot.comes("camera", &sample(210 * MS, &[1.0]));
    let report = robot.report_after(0.5);
    let camera = row(&report, "camera");
    assert_eq!((camera.dropped_stamp, camera.out_of_order, camera.gaps), (1, 1, 0));
    assert!(camera.period_p99_ns.unwrap() < 11 * MS, "{camera:?}");
}

#[test]
fn stamps_of_a_clock_that_is_ahead_or_behind_are_warned_of() {
    for (delay_ms, words) in [
        (60_000, "its stamps are 60.0 s behind the clock of this host"),
        (-60_000, "its stamps are up to 60.0 s ahead of the clock of this host"),
        (4_000, ""),
        (-900, ""),
        (
            -86_400_000,
            "its stamps are up to 86400.0 s ahead of the clock of this host",
        ),
        // A day behind means a recording.
        (86_400_000, ""),
    ] {
        let mut robot = Robot::new(FUSE);
        for i in 0..20 {
            let mut message = sample(i * 10 * MS, &[1.0]);
            message.arrival_ns = Some((i * 10 + delay_ms) * MS);
            robot.comes("camera", &message);
            robot.comes("force", &sample(i * 10 * MS, &[1.0, 2.0]));
        }
        let (level, said) = said(&robot.report_after(0.5), "camera");
        let wanted = if words.is_empty() { Level::Ok } else { Level::Warn };
        assert_eq!((level, said.as_str()), (wanted, words), "{delay_ms}");
    }
}

#[test]
fn a_device_whose_clock_is_estimated_may_be_ahead_and_so_may_the_estimate_be_a_little() {
    let mut robot = Robot::new("plugins: [clock: { inputs: [{ input: imu, lock_s: 1 }] }]");
    for i in 0..300 {
        let mut message = sample(i * 10 * MS, &[1.0]);
        message.arrival_ns = Some(message.timestamp_ns() - 60_000 * MS + (i % 3) * 200_000);
        robot.comes("imu", &message);
    }
    assert_eq!(said(&robot.report_after(0.5), "imu"), (Level::Ok, String::new()));
    // An operation that takes the estimated stamps, which are 0.3 ms ahead of the arrival.
    let mut robot = Robot::new(FUSE);
    for i in 0..50 {
        let stamp = (1_700_000_000_000 + i * 10) * MS;
        for (name, values) in [("force", &[1.0, 2.0][..]), ("camera", &[1.0])] {
            let mut message = sample(stamp, values);
            message.arrival_ns = Some(stamp - 300_000);
            robot.comes(name, &message);
        }
    }
    assert_eq!(robot.report_after(0.5).level, Level::Ok);
}

#[test]
fn ages_are_told_however_long_they_are() {
    let config = FUSE.replace(", max_age_ms: 30", "");
    let mut robot = Robot::new(&config);
    robot.comes("camera", &sample(0, &[1.0]));
    for ms in (0..200).step_by(10) {
        robot.comes("force", &sample(ms * MS, &[1.0, 2.0]));
    }
    // The stamps of `force` go on by two days, in steps that are not jumps.
    for hours in 1..=48 {
        robot.comes("force", &sample(hours * 3_600_000 * MS, &[1.0, 2.0]));
    }
    let report = robot.report_after(0.5);
    let camera = row(&report, "camera");
    assert!(camera.age_max_ns.unwrap() > 3_600_000 * MS, "{camera:?}");
}

#[test]
fn a_grid_without_a_point_is_warned_of_with_the_unit() {
    let config = "plugins: [voxelize: { origin_m: [-2, -2, -2], voxel_size_m: [1, 1, 1], shape: [4, 4, 4],
        channels: [occupancy], layout: dense, inputs: [{ input: lidar }] }]";
    let mut robot = Robot::new(config);
    let cloud = |ms: i64, scale: f32| {
        let mut cloud = sample(
            ms * MS,
            &[
                0.5 * scale,
                0.5 * scale,
                0.5 * scale,
                -1.5 * scale,
                1.0 * scale,
                -0.4 * scale,
            ],
        );
        cloud.header.shape.set([2, 3]);
        cloud
    };
    robot.comes("lidar", &cloud(0, 1.0));
    assert_eq!(said(&robot.report_after(0.1), "lidar"), (Level::Ok, String::new()));
    robot.comes("lidar", &cloud(100, 1000.0));
    assert_eq!(
        said(&robot.report_after(0.1), "lidar"),
        (
            Level::Warn,
            "its grids are empty: all points are outside, at x -1500.0 to 500.0, y 500.0 to 1000.0, z -400.0 to 500.0, and the grid is \
             x -2.0 to 2.0, y -2.0 to 2.0, z -2.0 to 2.0: in millimetres? (needed: metres)"
                .into()
        )
    );
    let counted = robot
        .graph
        .faults()
        .find(|(site, _)| *site == "voxelize: input `lidar`");
    assert_eq!(counted, Some(("voxelize: input `lidar`", 1)));
    robot.comes("lidar", &cloud(200, f32::NAN));
    robot.comes("lidar", &cloud(300, 1.0));
    assert_eq!(said(&robot.report_after(0.1), "lidar"), (Level::Ok, String::new()));
}

const LIDARS: &str = "plugins: [voxelize: { origin_m: [-2, -2, -2], voxel_size_m: [1, 1, 1], shape: [4, 4, 4],
    channels: [occupancy], layout: dense, reset_ms: 1000, inputs: [INPUTS] }]";

/// Makes the message of a cloud with a single point.
fn cloud(stamp_ns: i64) -> Message {
    let mut cloud = sample(stamp_ns, &[0.5, 0.5, 0.5]);
    cloud.header.shape.set([1, 3]);
    cloud
}

#[test]
fn clouds_whose_stamps_are_no_times_are_told() {
    let mut robot = Robot::new(&LIDARS.replace("INPUTS", "{ input: lidar }"));
    for stamp_ns in [i64::MIN, i64::MAX, (1 << 61) + 1] {
        robot.comes("lidar", &cloud(stamp_ns));
    }
    let report = robot.report_after(0.1);
    let (level, words) = said(&report, "lidar");
    assert!(
        level == Level::Error && words.contains("is out of range (allowed: +-2^61)"),
        "{words}"
    );
    assert_eq!((row(&report, "lidar").dropped_stamp, robot.sink.sent.len()), (3, 0));
    robot.comes("lidar", &cloud(1 << 61));
    assert_eq!(robot.sink.sent.len(), 1);

    let mut robot = Robot::new(&LIDARS.replace("INPUTS", "{ input: lidar }"));
    let mut message = cloud(1_700_000_000_000_000);
    message.arrival_ns = Some(1_700_000_000_000 * MS);
    robot.comes("lidar", &message);
    let (level, words) = said(&robot.report_after(0.1), "lidar");
    assert_eq!(level, Level::Warn);
    assert!(
        words.contains(
            "its stamps are not capture times: its first stamp is 1700000000000000: the time in microseconds"
        ),
        "{words}"
    );
}

#[test]
fn a_lidar_whose_clock_is_set_back_is_no_fault() {
    let mut robot = Robot::new(&LIDARS.replace("INPUTS", "{ input: front }, { input: rear }"));
    for ms in [10_000, 10_100] {
        robot.comes("front", &cloud(ms * MS));
        robot.comes("rear", &cloud(ms * MS));
    }
    robot.comes("front", &cloud(0));
    let report = robot.report_after(0.1);
    assert_eq!(row(&report, "front").faults, 0);
    let causes: Vec<_> = robot.graph.causes().map(|(_, count, words)| (count, words)).collect();
    assert_eq!(
        causes,
        [(
            1,
            "the clock was set back by more than `reset_ms`: grids begin anew by its new stamps"
        )]
    );
}

/// Sends messages of the camera whose stamps `stamp` computes from their times of arrival, and well-formed messages of `force`.
fn send_with_stamps(robot: &mut Robot, stamp: impl Fn(i64) -> i64) {
    let now_ns = 1_700_000_000_000 * MS;
    for i in 0..40 {
        let came_ns = now_ns + i * 10 * MS;
        for (name, stamp_ns, values) in [("force", came_ns, &[1.0, 2.0][..]), ("camera", stamp(came_ns), &[1.0])] {
            let mut message = sample(stamp_ns, values);
            message.arrival_ns = Some(came_ns + MS);
            robot.comes(name, &message);
        }
    }
}

#[test]
fn no_observation_is_an_error_of_the_input_that_is_to_blame() {
    let config = FUSE.replace("max_wait_ms: 20, ", "");
    for (stamp, words) in [
        (
            (|ns| ns / 1_000_000_000) as fn(i64) -> i64,
            "`camera`: its first stamp is 1700000000: the time in seconds",
        ),
        (
            |ns| ns - 10_000 * MS,
            "`camera` is 10.000 s of capture time behind `force`",
        ),
    ] {
        let mut robot = Robot::new(&config);
        robot.wake_after(0.0);
        send_with_stamps(&mut robot, stamp);
        assert!(robot.sink.sent.is_empty());
        robot.now = Instant::now() + Duration::from_millis(1500);
        robot.wake_after(0.6);
        let report = robot.report_after(0.0);
        let (level, why) = said(&report, "camera");
        assert!(level >= Level::Error && why.contains("no observation for 2."), "{why}");
        assert!(why.contains(words) || level == Level::Stale, "{why}");
        assert_eq!((report.level, report.observation_rate_hz), (Level::Stale, Some(0.0)));
    }
}

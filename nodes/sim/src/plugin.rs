//! Plugin that publishes the simulated robot's samples in the order and at the pace of their schedule.
//!
//! A sample is computed when it is published, from its true capture time, and only if its output is wired to an input.

use crate::config::SimConfig;
use crate::lidar::{Lidar, PointBuffers};
use crate::schedule::{Event, Schedule, Sensor};
use crate::signals::{CAMERA_DIM, camera_features, proprio, wrench};
use crate::table::{DEPTH_HEIGHT, DEPTH_WIDTH, DepthCamera, camera_pose_values};
use robocache::app::{AppError, BuildContext, Fault, Outbox, Plugin, Source, Wake};
use robocache::device::Dtype;
use robocache::ops::ConfigError;
use robocache::stream::{Cells, ColumnLayout, Layout};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Plugin that publishes the sensors of a simulated robot, as the section `sim:` sets them.
pub struct SimPlugin;

impl Plugin for SimPlugin {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn about(&self) -> &'static str {
        "Publishes the camera features, joints, force, lidar and depth images of a simulated robot."
    }

    fn build(&self, context: &mut BuildContext<'_>) -> Result<(), AppError> {
        let config: SimConfig = context.config()?;
        let refused = |error: crate::config::ConfigError| {
            context.refused(&ConfigError::new(
                error.key.trim_start_matches("sim."),
                format!("{} is not allowed (allowed: {})", error.value, error.allowed),
            ))
        };
        config.validate().map_err(refused)?;
        let outputs = Sensor::ALL.iter().map(|stream| stream.id().to_owned()).collect();
        let robot = Robot {
            config,
            running: None,
            lidar: Lidar::new(),
            points: PointBuffers::for_sweep(),
            cloud: cloud_layout(),
            depth_camera: DepthCamera::new(),
        };
        context.add_source(outputs, robot);
        Ok(())
    }
}

struct Robot {
    config: SimConfig,
    running: Option<Running>,
    lidar: Lidar,
    points: PointBuffers,
    cloud: Layout,
    depth_camera: DepthCamera,
}

struct Running {
    schedule: std::iter::Peekable<Schedule>,
    switched_on: Instant,
    start_ns: i64,
}

impl Source for Robot {
    fn wake(&mut self, now: Instant, out: &mut Outbox<'_>) -> Result<Wake, Fault> {
        if self.running.is_none() {
            self.running = Some(Running::switch_on(&mut self.config, now)?);
        }
        let Some(running) = &mut self.running else {
            return Ok(Wake::Done);
        };
        let Some(event) = running.schedule.peek().copied() else {
            return Ok(Wake::Done);
        };
        let time = running.time_of(&event);
        if self.config.real_time && time > Instant::now() {
            return Ok(Wake::At(time));
        }
        running.schedule.next();
        self.publish(&event, out);
        Ok(Wake::At(now))
    }
}

impl Running {
    fn switch_on(config: &mut SimConfig, now: Instant) -> Result<Self, Fault> {
        let wall_clock = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let start_ns = *config.start_ns.get_or_insert(i64::try_from(wall_clock.as_nanos())?);
        Ok(Self {
            schedule: Schedule::new(config)?.peekable(),
            switched_on: now,
            start_ns,
        })
    }

    fn time_of(&self, event: &Event) -> Instant {
        let since_start = u64::try_from(event.publish_ns - self.start_ns).unwrap_or(0);
        self.switched_on + Duration::from_nanos(since_start)
    }
}

impl Robot {
    fn publish(&mut self, event: &Event, out: &mut Outbox<'_>) {
        let output = event.sensor as usize;
        if !out.is_wanted(output) {
            return;
        }
        match event.sensor {
            Sensor::Camera => {
                let mut features = [0.0; CAMERA_DIM];
                camera_features(event.true_ns, &mut features);
                publish_tensor(event, &features, out);
            }
            Sensor::Force => publish_tensor(event, &wrench(event.true_ns), out),
            Sensor::Proprio => publish_tensor(event, &proprio(event.true_ns), out),
            Sensor::Lidar => {
                let points = &mut self.points;
                self.lidar.cast(event.true_ns, points);
                self.cloud.rows = points.len();
                out.send(output, &self.cloud, |payload, header| {
                    for (i, column) in [&points.x, &points.y, &points.z, &points.intensity]
                        .into_iter()
                        .enumerate()
                    {
                        payload.column(i).copy_from_slice(column);
                    }
                    payload.column(4).copy_from_slice(&points.ring);
                    payload.column(5).copy_from_slice(&points.t_ns);
                    header.timestamp_ns.set(event.stamp_ns);
                    header.frame_id.set("lidar");
                });
            }
            Sensor::Depth => {
                let layout = Layout::flat(Dtype::UInt16, DEPTH_HEIGHT * DEPTH_WIDTH);
                out.send(output, &layout, |payload, header| {
                    self.depth_camera.render(event.true_ns, payload.column(0));
                    header.timestamp_ns.set(event.stamp_ns);
                    header.shape.set([DEPTH_HEIGHT as i64, DEPTH_WIDTH as i64]);
                    header.frame_id.set("depth_camera");
                });
            }
            Sensor::CameraPose => {
                let values = camera_pose_values(event.true_ns);
                out.send(
                    output,
                    &Layout::flat(Dtype::Float64, values.len()),
                    |payload, header| {
                        payload.column(0).copy_from_slice(&values);
                        header.timestamp_ns.set(event.stamp_ns);
                        header.shape.set([values.len() as i64]);
                        header.frame_id.set("table");
                    },
                );
            }
        }
    }
}

fn publish_tensor(event: &Event, values: &[f32], out: &mut Outbox<'_>) {
    out.send(
        event.sensor as usize,
        &Layout::flat(Dtype::Float32, values.len()),
        |payload, header| {
            payload.column(0).copy_from_slice(values);
            header.timestamp_ns.set(event.stamp_ns);
            header.shape.set([values.len() as i64]);
        },
    );
}

fn cloud_layout() -> Layout {
    let column = |(name, dtype): (&'static str, Dtype)| ColumnLayout {
        name: name.into(),
        dtype,
        cells: Cells::One,
    };
    let columns = [
        ("x", Dtype::Float32),
        ("y", Dtype::Float32),
        ("z", Dtype::Float32),
        ("intensity", Dtype::Float32),
        ("ring", Dtype::UInt16),
        ("t_ns", Dtype::UInt32),
    ];
    Layout {
        rows: 0,
        columns: columns.map(column).into(),
    }
}

//! Schedule of the whole robot's samples, in the order in which they are published.
//!
//! A stream's samples do not depend on the settings of the other streams.

use crate::clock::{StreamClock, Times};
use crate::config::{ConfigError, SimConfig};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The sensors of the robot; each has an output of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Sensor {
    /// The camera: [`crate::signals::camera_features`].
    Camera,
    /// The force and torque sensor at the wrist: [`crate::signals::wrench`].
    Force,
    /// The joints, tool and gripper of the arm: [`crate::signals::proprio`].
    Proprio,
    /// The lidar: [`crate::lidar::Lidar::cast`].
    Lidar,
    /// The depth camera: [`crate::table::DepthCamera::render`].
    Depth,
    /// The pose of the depth camera: [`crate::table::camera_pose_values`].
    CameraPose,
}

impl Sensor {
    /// All sensors, in the order in which ties in publishing time are broken.
    pub const ALL: [Self; 6] = [
        Self::Camera,
        Self::Force,
        Self::Proprio,
        Self::Lidar,
        Self::Depth,
        Self::CameraPose,
    ];

    /// Output id of the sensor, and its key in the config.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Camera => "camera",
            Self::Force => "force",
            Self::Proprio => "proprio",
            Self::Lidar => "lidar",
            Self::Depth => "depth",
            Self::CameraPose => "camera_pose",
        }
    }
}

/// A sample of one sensor, with its times in ns since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// True time of the publication, ns.
    pub publish_ns: i64,
    /// Sensor that captured the sample.
    pub sensor: Sensor,
    /// True time of the capture, ns; of a lidar sweep, the time of its first column.
    pub true_ns: i64,
    /// Time of the capture by the sensor's own clock, ns: the message's `timestamp_ns`.
    pub stamp_ns: i64,
}

/// The samples of a robot in publishing order; ends after `duration_s` of nominal capture time, or never.
///
/// Nothing is allocated after [`Schedule::new`].
pub struct Schedule {
    lanes: Vec<Lane>,
    end_ns: i64,
}

/// One sensor's clock, and its samples that are captured but not published.
struct Lane {
    sensor: Sensor,
    clock: StreamClock,
    /// Publication time, true capture time and stamp, ns, of each sample that is captured but not published. The heap's first entry
    /// is the next to be published.
    in_flight: BinaryHeap<Reverse<(i64, i64, i64)>>,
}

impl Schedule {
    /// Makes the schedule of the robot that `config` describes, switched on at `config.start_ns`, or at 0.
    ///
    /// # Errors
    /// The errors of [`SimConfig::validate`].
    pub fn new(config: &SimConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let start_ns = config.start_ns.unwrap_or(0);
        let streams = &config.streams;
        let lane = |sensor: Sensor| {
            let settings = match sensor {
                Sensor::Camera => &streams.camera,
                Sensor::Force => &streams.force,
                Sensor::Proprio => &streams.proprio,
                Sensor::Lidar => &streams.lidar,
                Sensor::Depth => &streams.depth,
                Sensor::CameraPose => &streams.camera_pose,
            };
            let clock = StreamClock::new(settings.as_ref()?, config.seed, sensor as u64, start_ns);
            let in_flight = BinaryHeap::with_capacity(clock.in_flight_max());
            Some(Lane {
                sensor,
                clock,
                in_flight,
            })
        };
        let end_ns = match config.duration_s {
            Some(duration_s) => start_ns + (duration_s * 1e9).round() as i64,
            None => i64::MAX,
        };
        Ok(Self {
            lanes: Sensor::ALL.into_iter().filter_map(lane).collect(),
            end_ns,
        })
    }
}

impl Lane {
    /// Captures the sensor's next sample, and returns true. Returns false, and captures nothing, if the sample can't be published
    /// at `until_ns` or before, or if its nominal capture time is not before `end_ns`.
    fn advance(&mut self, until_ns: i64, end_ns: i64) -> bool {
        if self.clock.nominal_ns() >= end_ns || self.clock.earliest_publish_ns() > until_ns {
            return false;
        }
        if let Some(Times {
            true_ns,
            stamp_ns,
            publish_ns,
        }) = self.clock.capture()
        {
            self.in_flight.push(Reverse((publish_ns, true_ns, stamp_ns)));
        }
        true
    }

    fn first_publish_ns(&self) -> Option<i64> {
        self.in_flight.peek().map(|Reverse((publish_ns, ..))| *publish_ns)
    }
}

impl Iterator for Schedule {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            let first = self
                .lanes
                .iter()
                .enumerate()
                .filter_map(|(i, lane)| Some((lane.first_publish_ns()?, i)))
                .min();
            // if no sample waits, as in an outage, only the stream that is furthest behind goes on: the streams stay in step
            let until_ns = match first {
                Some((publish_ns, _)) => publish_ns,
                None => {
                    let running = self.lanes.iter().filter(|lane| lane.clock.nominal_ns() < self.end_ns);
                    running.map(|lane| lane.clock.earliest_publish_ns()).min()?
                }
            };
            let mut advanced = false;
            for lane in &mut self.lanes {
                advanced |= lane.advance(until_ns, self.end_ns);
            }
            if let (Some((_, i)), false) = (first, advanced) {
                let lane = &mut self.lanes[i];
                let sensor = lane.sensor;
                return lane
                    .in_flight
                    .pop()
                    .map(|Reverse((publish_ns, true_ns, stamp_ns))| Event {
                        publish_ns,
                        sensor,
                        true_ns,
                        stamp_ns,
                    });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Dropout, StreamConfig, Streams};

    fn events(config: &SimConfig) -> Vec<Event> {
        Schedule::new(config).expect("valid").collect()
    }

    fn of(events: &[Event], sensor: Sensor) -> Vec<Event> {
        events.iter().copied().filter(|event| event.sensor == sensor).collect()
    }

    fn seconds(duration_s: f64) -> SimConfig {
        SimConfig {
            duration_s: Some(duration_s),
            ..SimConfig::default()
        }
    }

    #[test]
    fn a_robot_without_faults_is_a_timeline() {
        let off = Streams {
            camera: None,
            force: None,
            proprio: None,
            lidar: None,
            depth: None,
            camera_pose: None,
        };
        let streams = Streams {
            force: Some(StreamConfig {
                latency_ms: 3.0,
                ..StreamConfig::ideal(500.0)
            }),
            lidar: Some(StreamConfig {
                clock_offset_ms: 1.0,
                ..StreamConfig::ideal(10.0)
            }),
            ..off
        };
        let config = SimConfig {
            start_ns: Some(0),
            duration_s: Some(0.006),
            streams,
            ..SimConfig::default()
        };
        let ms = |publish: i64, sensor, captured: i64, stamp: i64| Event {
            publish_ns: publish * 1_000_000,
            sensor,
            true_ns: captured * 1_000_000,
            stamp_ns: stamp * 1_000_000,
        };
        let want = [
            ms(0, Sensor::Lidar, 0, 1),
            ms(3, Sensor::Force, 0, 0),
            ms(5, Sensor::Force, 2, 2),
            ms(7, Sensor::Force, 4, 4),
        ];
        assert_eq!(events(&config), want);
    }

    #[test]
    fn events_come_in_publishing_order_at_their_rates() {
        let events = events(&seconds(10.0));
        assert!(events.is_sorted_by_key(|event| event.publish_ns));
        assert_eq!(of(&events, Sensor::Force).len(), 10_000);
        assert_eq!(of(&events, Sensor::Proprio).len(), 5_000);
        assert_eq!(of(&events, Sensor::Lidar).len(), 100);
        // one in a hundred camera samples of 300 or 301 is lost
        let camera = of(&events, Sensor::Camera).len();
        assert!((288..=301).contains(&camera), "{camera}");
        for sensor in Sensor::ALL {
            assert!(of(&events, sensor).is_sorted_by(|a, b| a.stamp_ns < b.stamp_ns));
        }
    }

    /// Compares the schedule, which merges the sensors' samples as it goes, with a list of all samples that is sorted at the end.
    #[test]
    fn the_merge_equals_a_sort_even_where_messages_overtake_each_other() {
        let mut config = seconds(3.0);
        let messy = |rate_hz: f64| {
            Some(StreamConfig {
                jitter_ms: 0.1,
                latency_ms: 30.0,
                latency_jitter_ms: 20.0,
                drop_rate: 0.3,
                dropouts: vec![Dropout {
                    start_s: 0.5,
                    duration_s: 1.2,
                }],
                ..StreamConfig::ideal(rate_hz)
            })
        };
        config.streams.force = messy(1_000.0);
        config.streams.proprio = messy(500.0);
        let settings = [
            &config.streams.camera,
            &config.streams.force,
            &config.streams.proprio,
            &config.streams.lidar,
            &config.streams.depth,
            &config.streams.camera_pose,
        ];
        let mut want = Vec::new();
        for (sensor, settings) in Sensor::ALL.into_iter().zip(settings) {
            let settings = settings.as_ref().expect("on");
            let mut clock = StreamClock::new(settings, config.seed, sensor as u64, 0);
            while clock.nominal_ns() < 3_000_000_000 {
                want.extend(clock.capture().map(|t| (t.publish_ns, sensor, t.true_ns, t.stamp_ns)));
            }
        }
        want.sort();
        let got: Vec<_> = events(&config)
            .into_iter()
            .map(|e| (e.publish_ns, e.sensor, e.true_ns, e.stamp_ns))
            .collect();
        assert_eq!(got, want);
        let force: Vec<_> = got.iter().filter(|event| event.1 == Sensor::Force).collect();
        assert!(!force.is_sorted_by_key(|event| event.3), "overtaken");
    }

    #[test]
    fn one_seed_is_one_run_and_another_seed_another() {
        let run = |seed| events(&SimConfig { seed, ..seconds(2.0) });
        assert_eq!(run(1), run(1));
        for sensor in Sensor::ALL {
            assert_ne!(of(&run(1), sensor), of(&run(2), sensor));
        }
    }

    #[test]
    fn a_stream_is_the_same_whatever_the_others_do() {
        let mut config = seconds(2.0);
        let before = events(&config);
        config.streams.camera = None;
        config.streams.lidar = Some(StreamConfig {
            jitter_ms: 5.0,
            drop_rate: 0.5,
            ..StreamConfig::lidar()
        });
        let after = events(&config);
        assert!(of(&after, Sensor::Camera).is_empty());
        assert_eq!(of(&before, Sensor::Force), of(&after, Sensor::Force));
        assert_eq!(of(&before, Sensor::Proprio), of(&after, Sensor::Proprio));
        assert_ne!(of(&before, Sensor::Lidar), of(&after, Sensor::Lidar));
    }

    #[test]
    fn a_drop_out_is_empty_and_ends() {
        let mut config = seconds(3.0);
        let dropouts = vec![Dropout {
            start_s: 1.0,
            duration_s: 1.0,
        }];
        config.streams.force = Some(StreamConfig {
            dropouts,
            ..StreamConfig::force()
        });
        let since: Vec<_> = of(&events(&config), Sensor::Force)
            .iter()
            .map(|event| event.true_ns)
            .collect();
        assert_eq!(since.len(), 2_000);
        // half a period is more than the jitter
        assert!(!since.iter().any(|t| (999_500_000..1_999_500_000).contains(t)));
    }

    #[test]
    fn without_a_duration_it_goes_on() {
        assert_eq!(
            Schedule::new(&SimConfig::default())
                .expect("valid")
                .take(100_000)
                .count(),
            100_000
        );
    }

    #[test]
    fn a_wrong_config_is_refused() {
        let mut config = SimConfig::default();
        config.streams.camera = Some(StreamConfig {
            rate_hz: 0.0,
            ..StreamConfig::camera()
        });
        let error = Schedule::new(&config).err().expect("refused");
        assert_eq!(error.key, "sim.streams.camera.rate_hz");
    }
}

//! Kinematic chain from one link of a robot to another: constant transforms and moving joints. A chain that was built has 1 to
//! [`MAX_JOINTS`] moving joints, and each joint has a lower limit below its upper one.

use crate::build::build;
use crate::error::ChainError;
use crate::urdf;
use robocache_geometry::RigidTransform;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::path::Path;

/// Largest number of moving joints that a chain may have.
pub const MAX_JOINTS: usize = 16;

/// Range of norms with which four numbers count as a unit quaternion: other numbers, such as joints, seldom have such a norm.
pub const UNIT_NORMS: RangeInclusive<f64> = 0.99..=1.01;

/// Configuration of a chain: its first and last link in a URDF, and values that replace those of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChainConfig {
    /// Name of the first link of the chain. Poses are given in its frame.
    pub base: String,
    /// Name of the last link of the chain, whose pose is computed. It is a descendant of `base`.
    pub tip: String,
    /// Names of the joints, in the order of a row of joint values; `None` for the order from the base to the tip. A joint
    /// outside the chain has to be named here if joints of the chain mimic it.
    pub joints: Option<Vec<String>>,
    /// Lower and upper limits by the names of joints, radians or metres. They replace the limits in the file.
    pub limits: BTreeMap<String, [f64; 2]>,
    /// Pose of the tool in the frame of the tip, metres; `None` if poses are those of the tip itself.
    pub tool: Option<RigidTransform<f64>>,
}

/// Motion that a joint allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JointKind {
    /// Turns about its axis, between two limits.
    Revolute,
    /// Turns about its axis, without limits.
    Continuous,
    /// Slides along its axis, between two limits.
    Prismatic,
}

/// A joint of a chain that has a value in each row of joint values.
#[derive(Clone, Debug, PartialEq)]
pub struct Joint {
    /// Name of the joint in the URDF.
    pub name: String,
    /// Motion of the joint: a turn, with or without limits, or a slide.
    pub kind: JointKind,
    /// Lower and upper limit of the joint, radians or metres. For a continuous joint they are the largest values for which
    /// poses are computed, -8,192 and 8,192.
    pub limits: [f64; 2],
}

impl Joint {
    /// Returns the ends of the range over which initial guesses of inverse kinematics are spread, radians or metres: the
    /// limits, or -pi and pi for a continuous joint.
    pub(crate) fn range(&self) -> [f64; 2] {
        match self.kind {
            JointKind::Continuous => [-std::f64::consts::PI, std::f64::consts::PI],
            JointKind::Revolute | JointKind::Prismatic => self.limits,
        }
    }
}

/// A moving joint of the chain, with the constant transform before it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Segment {
    /// Frame whose z axis is the joint's axis, relative to the frame that the previous segment moves. For the first segment, it
    /// is relative to the base.
    pub frame: RigidTransform<f64>,
    pub kind: JointKind,
    /// Index of the joint that gives the segment's value, in [`Chain::joints`].
    pub joint: usize,
    pub mimic: Option<Mimic>,
}

/// Rule of a joint that mimics another joint: `multiplier` times the other joint's value, plus `offset`, radians or metres.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mimic {
    pub multiplier: f64,
    pub offset: f64,
}

/// A link of the chain. Its frame is relative to the frame that the last segment above the link moves.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Link {
    pub name: String,
    /// Number of segments between the base and the link.
    pub segments: usize,
    pub frame: RigidTransform<f64>,
}

/// Kinematic chain from a base link to a tip link of a robot.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    pub(crate) segments: Vec<Segment>,
    /// Frame of the tip, or of its tool, relative to the frame that the last segment moves.
    pub(crate) tip: RigidTransform<f64>,
    pub(crate) links: Vec<Link>,
    pub(crate) joints: Vec<Joint>,
    pub(crate) warnings: Vec<String>,
}

/// Opens a regular file, also through a symbolic link. A pipe or a device is refused, as opening it may block for ever.
fn open(path: &Path) -> io::Result<File> {
    let kind = std::fs::metadata(path)?;
    if kind.is_file() {
        return File::open(path);
    }
    let (kind, came) = match kind.is_dir() {
        true => (io::ErrorKind::IsADirectory, "a folder"),
        false => (io::ErrorKind::Other, "a pipe, a socket or a device"),
    };
    Err(io::Error::new(
        kind,
        format!("{came} (allowed: a file, or a link to one)"),
    ))
}

impl Chain {
    /// Reads the chain from the link `base` to the link `tip` from the text of a URDF. Errors name the text `file`.
    ///
    /// # Errors
    /// Names the file, the line and the joint, the value found and the values allowed.
    pub fn from_urdf(text: &str, file: &str, base: &str, tip: &str) -> Result<Self, ChainError> {
        let config = ChainConfig {
            base: base.to_owned(),
            tip: tip.to_owned(),
            ..ChainConfig::default()
        };
        Self::new(text, file, &config)
    }

    /// Reads the chain that a configuration chooses from a URDF file.
    ///
    /// # Errors
    /// If [`read_text`](Self::read_text) or [`from_urdf`](Self::from_urdf) would fail.
    pub fn read(path: &Path, config: &ChainConfig) -> Result<Self, ChainError> {
        Self::new(&Self::read_text(path)?, &path.display().to_string(), config)
    }

    /// Reads the text of a URDF file, for [`new`](Self::new).
    ///
    /// # Errors
    /// If the file is not a regular file, can't be read, is too long, or is not UTF-8.
    pub fn read_text(path: &Path) -> Result<String, ChainError> {
        let file = || path.display().to_string();
        let (mut bytes, most) = (Vec::new(), urdf::MAX_BYTES);
        // One byte more than is allowed is enough to refuse the file.
        let read = open(path).and_then(|opened| opened.take(most as u64 + 1).read_to_end(&mut bytes));
        read.map_err(|source| ChainError::Io { file: file(), source })?;
        if bytes.len() > most {
            return Err(ChainError::File {
                file: file(),
                problem: format!("more than {most} bytes (allowed: up to {most})"),
            });
        }
        String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            let (before, after) = error.as_bytes().split_at(at);
            ChainError::Element {
                file: file(),
                line: 1 + before.iter().filter(|&&byte| byte == b'\n').count() as u32,
                problem: format!("the byte {:#04x} is not UTF-8 (allowed: text in UTF-8)", after[0]),
            }
        })
    }

    /// Reads the chain that a configuration chooses from the text of a URDF. Errors name the text `file`.
    ///
    /// # Errors
    /// If [`from_urdf`](Self::from_urdf) would fail.
    pub fn new(text: &str, file: &str, config: &ChainConfig) -> Result<Self, ChainError> {
        build(text, file, config)
    }

    /// Joints that have a value in each row of joint values, in the order of the row. Joints that are fixed, or that mimic
    /// others, are absent.
    pub fn joints(&self) -> &[Joint] {
        &self.joints
    }

    /// Returns a copy of the chain with each joint's limits moved outwards by `by` at either end, radians or metres, but not
    /// beyond 8,192.
    pub(crate) fn with_wider_limits(&self, by: f64) -> Self {
        let (mut chain, most) = (self.clone(), robocache_geometry::polynomial::MAX_ANGLE);
        for joint in &mut chain.joints {
            let [lower, upper] = joint.limits;
            joint.limits = [(lower - by).max(-most), (upper + by).min(most)];
        }
        chain
    }

    /// Names of the links, from the base to the tip.
    pub fn links(&self) -> impl ExactSizeIterator<Item = &str> {
        self.links.iter().map(|link| link.name.as_str())
    }

    /// Warnings about doubtful values in the URDF, one line each, with file, line and joint; empty if there are none.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

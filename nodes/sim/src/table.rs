//! A table with things on it, and a depth camera that circles around them: [`camera_pose`], [`DepthCamera::render`].
//!
//! The frame is the table's: z up, metres, the origin on the middle of the table's top. Nothing here moves but the camera, so that
//! the truth is known anywhere: [`distance_m`].

use crate::scene::Bounds;
use crate::turns::phase;
use robocache::geometry::RigidTransform;
use robocache::geometry::angle::sin_cos_of_turns;

/// Number of columns of the depth camera.
pub const DEPTH_WIDTH: usize = 160;
/// Number of rows of the depth camera.
pub const DEPTH_HEIGHT: usize = 120;
/// Focal length of the depth camera along columns and rows, pixels.
pub const DEPTH_FOCAL_PX: f64 = 140.0;
/// Principal point of the depth camera, pixels: the middle of the image.
pub const DEPTH_PRINCIPAL_PX: [f64; 2] = [79.5, 59.5];
/// Unit of the depths, metres.
pub const DEPTH_UNIT_M: f64 = 0.001;
/// Greatest depth that is measured, metres. A pixel that sees nothing up to there is 0.
pub const DEPTH_MAX_M: f64 = 3.0;
/// Number of values of the camera's pose: a position, metres, and a quaternion x, y, z, w.
pub const POSE_DIM: usize = 7;

/// Height of the floor, metres.
pub const FLOOR_Z: f64 = -0.75;
/// The boxes: the table's top, and a box on it.
pub const BOXES: [Bounds<3>; 2] = [
    Bounds {
        min: [-0.6, -0.4, -0.04],
        max: [0.6, 0.4, 0.0],
    },
    Bounds {
        min: [-0.25, -0.1, 0.0],
        max: [-0.05, 0.12, 0.15],
    },
];
/// The ball on the table: its centre, and its radius, metres.
pub const BALL: ([f64; 3], f64) = ([0.2, 0.05, 0.09], 0.09);

/// The point that the camera looks at, metres.
const TARGET: [f64; 3] = [0.0, 0.0, 0.05];
/// Distance of the camera from the axis of its circle, and its mean height, metres.
const CIRCLE: [f64; 2] = [0.7, 0.55];

/// The pose of the camera on the table at `t_ns`: x to the right of the image, y down, z forward.
///
/// The camera circles around the things in 12 s, at heights between 0.45 and 0.65 m, and looks at them.
pub fn camera_pose(t_ns: i64) -> RigidTransform<f64> {
    let (sine, cosine) = sin_cos_of_turns(phase(t_ns, 12_000_000_000));
    let (bob, _) = sin_cos_of_turns(phase(t_ns, 4_000_000_000));
    let position = [CIRCLE[0] * cosine, CIRCLE[0] * sine, CIRCLE[1] + 0.1 * bob];
    let forward = unit(std::array::from_fn(|axis| TARGET[axis] - position[axis]));
    // Level: the camera does not roll.
    let right = unit([forward[1], -forward[0], 0.0]);
    let down = [
        forward[1] * right[2] - forward[2] * right[1],
        forward[2] * right[0] - forward[0] * right[2],
        forward[0] * right[1] - forward[1] * right[0],
    ];
    RigidTransform {
        rotation: std::array::from_fn(|axis| [right[axis], down[axis], forward[axis]]),
        translation: position,
    }
}

/// The pose as a sample: x, y, z, and a quaternion x, y, z, w.
pub fn camera_pose_values(t_ns: i64) -> [f64; POSE_DIM] {
    let pose = camera_pose(t_ns);
    let ([x, y, z], [qx, qy, qz, qw]) = (pose.translation, pose.quaternion());
    [x, y, z, qx, qy, qz, qw]
}

/// Distance of a point from the nearest surface, metres, negative inside of a body and below the floor.
pub fn distance_m(point: [f64; 3]) -> f64 {
    let ball = norm(std::array::from_fn(|axis| point[axis] - BALL.0[axis])) - BALL.1;
    let boxes = BOXES.iter().map(|of| {
        let beyond: [f64; 3] = std::array::from_fn(|axis| (of.min[axis] - point[axis]).max(point[axis] - of.max[axis]));
        let outside = norm(beyond.map(|metres| metres.max(0.0)));
        let inside = beyond[0].max(beyond[1]).max(beyond[2]).min(0.0);
        outside + inside
    });
    boxes.fold(ball.min(point[2] - FLOOR_Z), f64::min)
}

/// The depth camera: the directions of its pixels. Rendering does not change it.
pub struct DepthCamera {
    /// Directions of the pixels, by rows, of depth 1.
    rays: Vec<[f64; 3]>,
}

impl Default for DepthCamera {
    fn default() -> Self {
        Self::new()
    }
}

impl DepthCamera {
    /// Computes the directions of the pixels.
    pub fn new() -> Self {
        let slope = |axis: usize, pixel: usize| (pixel as f64 - DEPTH_PRINCIPAL_PX[axis]) / DEPTH_FOCAL_PX;
        let row = |v: usize| (0..DEPTH_WIDTH).map(move |u| [slope(0, u), slope(1, v), 1.0]);
        Self {
            rays: (0..DEPTH_HEIGHT).flat_map(row).collect(),
        }
    }

    /// Writes the depths that the camera sees at `t_ns`, by rows from the top, in units of [`DEPTH_UNIT_M`].
    ///
    /// # Panics
    /// If `depths` does not have a value for each pixel.
    pub fn render(&self, t_ns: i64, depths: &mut [u16]) {
        assert_eq!(depths.len(), self.rays.len(), "number of pixels");
        let pose = camera_pose(t_ns);
        for (depth, ray) in depths.iter_mut().zip(&self.rays) {
            let direction = pose.rotation.map(|[x, y, z]| (x * ray[0] + y * ray[1]) + z * ray[2]);
            *depth = match depth_m(pose.translation, direction) {
                Some(metres) => (metres / DEPTH_UNIT_M).round() as u16,
                None => 0,
            };
        }
    }
}

/// Number of steps along `direction` from `origin` to the first surface: the depth of a direction of depth 1. `None` if there is no
/// surface up to [`DEPTH_MAX_M`].
fn depth_m(origin: [f64; 3], direction: [f64; 3]) -> Option<f64> {
    let mut nearest = DEPTH_MAX_M;
    let floor = (FLOOR_Z - origin[2]) / direction[2];
    if floor > 0.0 {
        nearest = nearest.min(floor);
    }
    let apart: [f64; 3] = std::array::from_fn(|axis| origin[axis] - BALL.0[axis]);
    let (a, b) = (dot(direction, direction), dot(direction, apart));
    // A ray that passes the ball has the square root NaN, which is not above 0.
    let root = b * b - a * (dot(apart, apart) - BALL.1 * BALL.1);
    let sphere = (-b - root.sqrt()) / a;
    if sphere > 0.0 {
        nearest = nearest.min(sphere);
    }
    for of in &BOXES {
        let (mut enters, mut leaves) = (0.0f64, f64::INFINITY);
        for axis in 0..3 {
            let [at_min, at_max] = [of.min[axis], of.max[axis]].map(|face| (face - origin[axis]) / direction[axis]);
            enters = enters.max(at_min.min(at_max));
            leaves = leaves.min(at_min.max(at_max));
        }
        if enters <= leaves {
            nearest = nearest.min(enters);
        }
    }
    (nearest < DEPTH_MAX_M).then_some(nearest)
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    (a[0] * b[0] + a[1] * b[1]) + a[2] * b[2]
}

fn norm(a: [f64; 3]) -> f64 {
    dot(a, a).sqrt()
}

fn unit(a: [f64; 3]) -> [f64; 3] {
    let norm = norm(a);
    a.map(|component| component / norm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_depth_ends_on_a_surface_and_nothing_is_before_it() {
        let camera = DepthCamera::new();
        let mut depths = vec![0; camera.rays.len()];
        let mut seen = 0;
        for t_ns in (0..12).map(|s| s * 1_000_000_000) {
            camera.render(t_ns, &mut depths);
            let pose = camera_pose(t_ns);
            for (&depth, ray) in depths.iter().zip(&camera.rays) {
                if depth == 0 {
                    continue;
                }
                seen += 1;
                let at = |metres: f64| pose.apply(ray.map(|component| component * metres));
                let metres = f64::from(depth) * DEPTH_UNIT_M;
                assert!(distance_m(at(metres)).abs() < 0.6e-3 * norm(*ray), "{t_ns} {ray:?}");
                for part in [0.25, 0.5, 0.75, 0.9] {
                    assert!(distance_m(at(part * metres)) > 0.0, "{t_ns} {ray:?} {part}");
                }
            }
        }
        assert!(seen > 12 * 12_000, "{seen} pixels see something");
    }

    #[test]
    fn the_camera_looks_at_the_things_and_does_not_roll() {
        for t_ns in (0..24).map(|i| i * 500_000_000) {
            let pose = camera_pose(t_ns);
            let ahead = norm(std::array::from_fn(|axis| TARGET[axis] - pose.translation[axis]));
            let seen = pose.apply([0.0, 0.0, ahead]);
            assert!(norm(std::array::from_fn(|axis| seen[axis] - TARGET[axis])) < 1e-12);
            assert!(pose.rotation[2][0].abs() < 1e-15, "x is level");
            assert!(pose.rotation[2][1] < 0.0, "y is down");
        }
    }

    #[test]
    fn distances_by_hand() {
        assert_eq!(distance_m([0.0, 0.35, 0.1]), 0.1);
        assert_eq!(distance_m([0.0, 0.0, -0.02]), -0.02);
        assert!((distance_m([0.2, 0.05, 0.28]) - 0.1).abs() < 1e-15);
        assert_eq!(distance_m([3.0, 3.0, -0.5]), 0.25);
    }
}

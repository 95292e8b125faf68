//! The hall around the lidar: walls with openings, half a roof, and standing and moving bodies.
//!
//! The frame is the lidar's: x forward, y left, z up, metres, the origin in the sensor. Motion is a closed form of true time
//! and repeats each [`crate::signals::CYCLE_NS`].

use crate::turns::phase;
use robocache::geometry::angle::sin_cos_of_turns;

/// An axis-aligned rectangle (`N` = 2) or box (`N` = 3), borders included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds<const N: usize> {
    /// Lower corner, m: the smallest coordinate along each axis.
    pub min: [f64; N],
    /// Upper corner, m: the largest coordinate along each axis.
    pub max: [f64; N],
}

impl<const N: usize> Bounds<N> {
    const fn new(min: [f64; N], max: [f64; N]) -> Self {
        Self { min, max }
    }

    /// True if the point `p` is inside or on the border.
    pub fn contains(&self, p: [f64; N]) -> bool {
        (0..N).all(|i| self.min[i] <= p[i] && p[i] <= self.max[i])
    }
}

/// The hall's inside: floor 1.8 m below the sensor, top of the walls 1.6 m above. All bodies are inside it.
pub const ROOM: Bounds<3> = Bounds::new([-12.0, -9.0, -1.8], [14.0, 9.0, 1.6]);
/// Open gate in the wall at x = 14 (corners in y, z): a ray through it has no return.
pub const GATE: Bounds<2> = Bounds::new([-2.0, -1.8], [2.0, 1.2]);
/// Window in the wall at y = 9 (corners in x, z): a ray through it has no return.
pub const WINDOW: Bounds<2> = Bounds::new([2.0, -0.8], [6.0, 1.4]);
/// Area without a roof (corners in x, y; all but the rear): a ray through it has no return.
pub const SKY: Bounds<2> = Bounds::new([-5.5, -9.0], [14.0, 9.0]);

/// Share of the light that the floor reflects, 0 to 1.
pub const FLOOR_REFLECTIVITY: f64 = 0.25;
/// Share of the light that the walls reflect, 0 to 1.
pub const WALL_REFLECTIVITY: f64 = 0.6;
/// Share of the light that the roof reflects, 0 to 1.
pub const ROOF_REFLECTIVITY: f64 = 0.8;

/// Shape and position of a body in the hall, in the lidar's frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Solid {
    /// Upright cylinder, such as a pillar or the person.
    Cylinder {
        /// Centre of the axis in x and y, m.
        centre: [f64; 2],
        /// Radius of the cylinder, m.
        radius: f64,
        /// Heights of the bottom and the top, m, in this order.
        z: [f64; 2],
    },
    /// Axis-aligned box, such as the crate or the cart.
    Box(Bounds<3>),
    /// Sphere: the ball.
    Sphere {
        /// Centre of the sphere, m.
        centre: [f64; 3],
        /// Radius of the sphere, m.
        radius: f64,
    },
}

/// A body in the hall at one instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Body {
    /// Shape and position of the body.
    pub solid: Solid,
    /// Share of the light that the body reflects, 0 to 1.
    pub reflectivity: f64,
}

const fn pillar(x: f64, y: f64) -> Body {
    let z = [ROOM.min[2], ROOM.max[2]];
    Body {
        solid: Solid::Cylinder {
            centre: [x, y],
            radius: 0.3,
            z,
        },
        reflectivity: 0.5,
    }
}

/// Bodies that stand still: four pillars as high as the walls and a crate.
pub const STANDING: [Body; 5] = [
    pillar(4.5, 2.5),
    pillar(4.5, -2.5),
    pillar(-4.5, 2.5),
    pillar(-4.5, -2.5),
    Body {
        solid: Solid::Box(Bounds::new([-11.0, 6.0, -1.8], [-9.0, 8.0, -0.6])),
        reflectivity: 0.35,
    },
];

/// Moving bodies at `t_ns`: someone walking (a cylinder), a cart (a box) and a ball in the air.
///
/// The person circles the sensor at 3 m in 12 s, and the cart goes round the pillars on an ellipse in 20 s. The ball circles at
/// 7 m in 6 s (7.3 m/s) and bobs, mostly against the sky. All go counter-clockwise and are at y = 0, x > 0 (the cart: x < 0) at
/// every multiple of a minute.
pub fn moving(t_ns: i64) -> [Body; 3] {
    let at = |period_ms: i64| sin_cos_of_turns(phase(t_ns, period_ms * 1_000_000));
    let (person_s, person_c) = at(12_000);
    let (cart_s, cart_c) = at(20_000);
    let (ball_s, ball_c) = at(6_000);
    let (bob, _) = at(2_000);
    let (cart_x, cart_y) = (-8.5 * cart_c, -6.0 * cart_s);
    [
        Body {
            solid: Solid::Cylinder {
                centre: [3.0 * person_c, 3.0 * person_s],
                radius: 0.3,
                z: [-1.8, -0.05],
            },
            reflectivity: 0.4,
        },
        Body {
            solid: Solid::Box(Bounds::new(
                [cart_x - 0.6, cart_y - 0.4, -1.8],
                [cart_x + 0.6, cart_y + 0.4, -0.8],
            )),
            reflectivity: 0.7,
        },
        Body {
            solid: Solid::Sphere {
                centre: [7.0 * ball_c, 7.0 * ball_s, 1.0 + 0.15 * bob],
                radius: 0.4,
            },
            reflectivity: 0.9,
        },
    ]
}

//! A spinning lidar of 64 rings x 1024 columns, ray-cast into the [`crate::scene`].
//!
//! A sweep takes 100 ms, counter-clockwise from +x. Each column is fired at its own instant and sees the moving bodies where
//! they are at that instant, so a sweep is skewed as a real one is. There is no range noise: a point lies on its surface to
//! f32 rounding.

use crate::scene::{
    Bounds, FLOOR_REFLECTIVITY, GATE, ROOF_REFLECTIVITY, ROOM, SKY, STANDING, Solid, WALL_REFLECTIVITY, WINDOW, moving,
};
use robocache::geometry::angle::sin_cos_of_turns;

/// Number of the lidar's laser rings (elevations), which are numbered from the top.
pub const RINGS: usize = 64;
/// Number of columns (azimuths) in a sweep of the lidar.
pub const COLUMNS: usize = 1024;
/// Duration of one sweep of the lidar, ns.
pub const SWEEP_NS: i64 = 100_000_000;
/// Elevation of the topmost laser ring (number 0), degrees.
pub const TOP_DEG: f64 = 15.0;
/// Elevation of the lowest laser ring (the last number), degrees.
pub const BOTTOM_DEG: f64 = -25.0;

/// The points of a sweep: one vector per field, all of the same length. They are in firing order: column by column, each from
/// the top ring down. Rays without a return are left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PointBuffers {
    /// x of each point, m, forward from the sensor.
    pub x: Vec<f32>,
    /// y of each point, m, to the left of the sensor.
    pub y: Vec<f32>,
    /// z of each point, m, up from the sensor.
    pub z: Vec<f32>,
    /// Intensity of each point: the surface's reflectivity times the cosine of the angle of incidence, `0..=1`.
    pub intensity: Vec<f32>,
    /// Number of the laser ring that measured each point, 0 at the top.
    pub ring: Vec<u16>,
    /// Time at which each point's column was fired, ns since the start of the sweep.
    pub t_ns: Vec<u32>,
}

impl PointBuffers {
    /// Makes empty buffers with room for a full sweep, so that [`Lidar::cast`] never allocates.
    pub fn for_sweep() -> Self {
        let n = RINGS * COLUMNS;
        Self {
            x: Vec::with_capacity(n),
            y: Vec::with_capacity(n),
            z: Vec::with_capacity(n),
            intensity: Vec::with_capacity(n),
            ring: Vec::with_capacity(n),
            t_ns: Vec::with_capacity(n),
        }
    }

    /// Number of points in the sweep.
    pub fn len(&self) -> usize {
        self.x.len()
    }

    /// True if no ray of the sweep had a return.
    pub fn is_empty(&self) -> bool {
        self.x.is_empty()
    }

    fn clear(&mut self) {
        self.x.clear();
        self.y.clear();
        self.z.clear();
        self.intensity.clear();
        self.ring.clear();
        self.t_ns.clear();
    }
}

/// Time at which the lidar fires column `column`, ns since the start of the sweep.
pub fn column_t_ns(column: usize) -> u32 {
    (column as i64 * SWEEP_NS / COLUMNS as i64) as u32
}

/// Azimuth of the lidar's column `column` in turns, `[0, 1)`, counter-clockwise from +x.
pub fn azimuth_turns(column: usize) -> f64 {
    column as f64 / COLUMNS as f64
}

/// Elevation of the laser ring `ring` in turns, positive above the horizon.
pub fn elevation_turns(ring: usize) -> f64 {
    (TOP_DEG + (BOTTOM_DEG - TOP_DEG) * ring as f64 / (RINGS - 1) as f64) / 360.0
}

/// Sine, cosine and tangent of a laser ring's elevation.
#[derive(Clone, Copy)]
struct Ring {
    sin: f64,
    cos: f64,
    tan: f64,
}

/// Hit of a ray: its horizontal distance, m, and the share of the ray's light that comes back, 0 to 1.
#[derive(Clone, Copy)]
struct Hit {
    distance: f64,
    intensity: f64,
}

/// Simulated lidar, with the directions of its beams. Casting a sweep does not change it.
pub struct Lidar {
    rings: [Ring; RINGS],
    columns: [[f64; 2]; COLUMNS],
}

impl Default for Lidar {
    fn default() -> Self {
        Self::new()
    }
}

impl Lidar {
    /// Computes the beam directions.
    pub fn new() -> Self {
        Self {
            rings: std::array::from_fn(|ring| {
                let (sin, cos) = sin_cos_of_turns(elevation_turns(ring));
                Ring {
                    sin,
                    cos,
                    tan: sin / cos,
                }
            }),
            columns: std::array::from_fn(|column| {
                let (sin, cos) = sin_cos_of_turns(azimuth_turns(column));
                [cos, sin]
            }),
        }
    }

    /// Casts the sweep that starts at `t0_ns` (true time) into `points`, and replaces their contents.
    pub fn cast(&self, t0_ns: i64, points: &mut PointBuffers) {
        points.clear();
        for (column, &direction) in self.columns.iter().enumerate() {
            let t_ns = column_t_ns(column);
            let slice = Slice::new(direction, t0_ns + i64::from(t_ns));
            for (ring_index, ring) in self.rings.iter().enumerate() {
                let Some(hit) = slice.cast(ring) else { continue };
                points.x.push((direction[0] * hit.distance) as f32);
                points.y.push((direction[1] * hit.distance) as f32);
                points.z.push((ring.tan * hit.distance) as f32);
                points.intensity.push(hit.intensity as f32);
                points.ring.push(ring_index as u16);
                points.t_ns.push(t_ns);
            }
        }
    }
}

/// The scene cut by the vertical half-plane of one column, so that its rays need only 2-D tests.
struct Slice {
    direction: [f64; 2],
    wall: Wall,
    prisms: [Option<Prism>; BODIES],
    balls: [Option<Ball>; BODIES],
}

const BODIES: usize = STANDING.len() + 3;

/// The wall that the column's half-plane meets.
struct Wall {
    distance: f64,
    /// Cosine of the angle at which the column meets the wall, seen from above: 1 if head-on.
    cos: f64,
    opening: Option<Bounds<2>>,
    /// Position along the wall at which the column meets it, m.
    along: f64,
}

/// A cylinder or box, cut by the column: it fills the heights `z` between two horizontal distances, m.
struct Prism {
    near: f64,
    far: f64,
    z: [f64; 2],
    /// Cosine of the angle at which the column meets the side at `near`, seen from above: 1 if head-on.
    cos: f64,
    reflectivity: f64,
}

/// A sphere that the column passes through.
struct Ball {
    centre: [f64; 3],
    radius: f64,
    reflectivity: f64,
}

impl Slice {
    fn new(direction: [f64; 2], t_ns: i64) -> Self {
        let mut prisms = [const { None }; BODIES];
        let mut balls = [const { None }; BODIES];
        for (i, body) in STANDING.into_iter().chain(moving(t_ns)).enumerate() {
            let reflectivity = body.reflectivity;
            let span = match body.solid {
                Solid::Cylinder { centre, radius, z } => circle_span(direction, centre, radius).map(|span| (span, z)),
                Solid::Box(b) => box_span(direction, &b).map(|span| (span, [b.min[2], b.max[2]])),
                Solid::Sphere { centre, radius } => {
                    if circle_span(direction, [centre[0], centre[1]], radius).is_some() {
                        balls[i] = Some(Ball {
                            centre,
                            radius,
                            reflectivity,
                        });
                    }
                    None
                }
            };
            prisms[i] = span.map(|([near, far, cos], z)| Prism {
                near,
                far,
                z,
                cos,
                reflectivity,
            });
        }
        Self {
            direction,
            wall: Wall::new(direction),
            prisms,
            balls,
        }
    }

    fn cast(&self, ring: &Ring) -> Option<Hit> {
        let mut best = Hit {
            distance: f64::INFINITY,
            intensity: 0.0,
        };
        let mut offer = |hit: Hit| {
            if hit.distance < best.distance {
                best = hit;
            }
        };
        self.prisms
            .iter()
            .flatten()
            .filter_map(|prism| prism.hit(ring))
            .for_each(&mut offer);
        self.balls
            .iter()
            .flatten()
            .filter_map(|ball| ball.hit(self.direction, ring))
            .for_each(&mut offer);
        // the room is convex and all bodies are inside it: a body is hit before the room's surfaces
        if best.distance.is_finite() {
            Some(best)
        } else {
            self.room(ring)
        }
    }

    /// Returns the ray's hit on the floor, the roof or the wall; `None` if the ray leaves the hall through an opening.
    fn room(&self, ring: &Ring) -> Option<Hit> {
        let height = self.wall.distance * ring.tan;
        if height < ROOM.min[2] {
            return Some(Hit {
                distance: ROOM.min[2] / ring.tan,
                intensity: FLOOR_REFLECTIVITY * ring.sin.abs(),
            });
        }
        if height > ROOM.max[2] {
            let distance = ROOM.max[2] / ring.tan;
            let open = SKY.contains(self.direction.map(|c| c * distance));
            return (!open).then_some(Hit {
                distance,
                intensity: ROOF_REFLECTIVITY * ring.sin,
            });
        }
        let open = self
            .wall
            .opening
            .is_some_and(|opening| opening.contains([self.wall.along, height]));
        let intensity = WALL_REFLECTIVITY * self.wall.cos * ring.cos;
        (!open).then_some(Hit {
            distance: self.wall.distance,
            intensity,
        })
    }
}

impl Wall {
    fn new(direction: [f64; 2]) -> Self {
        // distance to the wall ahead along each axis; infinite if the direction has no part along it
        let ahead = |axis: usize| {
            let bound = if direction[axis] > 0.0 {
                ROOM.max[axis]
            } else {
                ROOM.min[axis]
            };
            if direction[axis] == 0.0 {
                f64::INFINITY
            } else {
                bound / direction[axis]
            }
        };
        let (x, y) = (ahead(0), ahead(1));
        let (distance, axis) = if x <= y { (x, 0) } else { (y, 1) };
        let opening = match axis {
            0 if direction[0] > 0.0 => Some(GATE),
            1 if direction[1] > 0.0 => Some(WINDOW),
            _ => None,
        };
        Self {
            distance,
            cos: direction[axis].abs(),
            opening,
            along: distance * direction[1 - axis],
        }
    }
}

impl Prism {
    fn hit(&self, ring: &Ring) -> Option<Hit> {
        let height = self.near * ring.tan;
        if self.z[0] <= height && height <= self.z[1] {
            return Some(Hit {
                distance: self.near,
                intensity: self.reflectivity * self.cos * ring.cos,
            });
        }
        // the ray passes the near side above the top or below the bottom: it hits that face if it reaches the face before the
        // far side
        let face = if height > self.z[1] { self.z[1] } else { self.z[0] };
        let distance = face / ring.tan;
        (self.near < distance && distance < self.far).then(|| Hit {
            distance,
            intensity: self.reflectivity * ring.sin.abs(),
        })
    }
}

impl Ball {
    fn hit(&self, direction: [f64; 2], ring: &Ring) -> Option<Hit> {
        let ray = [direction[0] * ring.cos, direction[1] * ring.cos, ring.sin];
        let dot = |a: [f64; 3], b: [f64; 3]| a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
        let ahead = dot(ray, self.centre);
        let half_chord_2 = ahead * ahead - dot(self.centre, self.centre) + self.radius * self.radius;
        if half_chord_2 < 0.0 || ahead < 0.0 {
            return None;
        }
        let half_chord = half_chord_2.sqrt();
        // where the ray enters, ray . normal is -half_chord / radius
        let intensity = self.reflectivity * half_chord / self.radius;
        Some(Hit {
            distance: (ahead - half_chord) * ring.cos,
            intensity,
        })
    }
}

/// Distances at which a horizontal ray from the origin enters and leaves a circle, m, and the cosine of incidence at the entry.
/// `None` if the ray misses the circle.
fn circle_span(direction: [f64; 2], centre: [f64; 2], radius: f64) -> Option<[f64; 3]> {
    let ahead = direction[0] * centre[0] + direction[1] * centre[1];
    let beside = direction[0] * centre[1] - direction[1] * centre[0];
    let half_chord_2 = radius * radius - beside * beside;
    if half_chord_2 < 0.0 || ahead < 0.0 {
        return None;
    }
    let half_chord = half_chord_2.sqrt();
    Some([ahead - half_chord, ahead + half_chord, half_chord / radius])
}

/// Distances at which a horizontal ray from the origin enters and leaves a box, m, and the cosine of incidence at the entry. `None`
/// if the ray misses the box.
fn box_span(direction: [f64; 2], bounds: &Bounds<3>) -> Option<[f64; 3]> {
    let (mut near, mut far, mut cos) = (0.0, f64::INFINITY, 0.0);
    for (axis, d) in direction.into_iter().enumerate() {
        let (min, max) = (bounds.min[axis], bounds.max[axis]);
        if d == 0.0 {
            if min > 0.0 || max < 0.0 {
                return None;
            }
            continue;
        }
        let (a, b) = (min / d, max / d);
        let (enter, leave) = if a <= b { (a, b) } else { (b, a) };
        if enter > near {
            (near, cos) = (enter, d.abs());
        }
        far = f64::min(far, leave);
    }
    (near < far).then_some([near, far, cos])
}

#[cfg(test)]
mod tests;

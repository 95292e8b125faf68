//! Point clouds: a room with pillars, as a spinning lidar sees it, and points at random places. `gpu_peers/scene.py` makes the
//! same sweeps.

use crate::random::Random;

/// Makes the points of a lidar's sweep of a room, m: `columns` times `beams` points in firing order. The sensor has moved
/// `step` times before. The room has walls, floor, ceiling and pillars.
pub fn sweep(step: usize, beams: usize, columns: usize) -> Vec<[f32; 3]> {
    let mut random = Random::new(step as u64);
    let (cx, cy) = (0.4 * step as f32, -0.3 * step as f32);
    let mut points = Vec::with_capacity(beams * columns);
    for column in 0..columns {
        let (sin, cos) = (std::f32::consts::TAU * column as f32 / columns as f32).sin_cos();
        for beam in 0..beams {
            let (rise, run) = (0.39 - 0.78 * beam as f32 / beams as f32).sin_cos();
            let (dx, dy, dz) = (cos * run, sin * run, rise);
            let to = |d: f32, near: f32, far: f32, from: f32| match d {
                d if d > 1e-6 => (far - from) / d,
                d if d < -1e-6 => (near - from) / d,
                _ => f32::INFINITY,
            };
            let mut range = to(dx, -23.0, 24.5, cx)
                .min(to(dy, -19.0, 22.0, cy))
                .min(to(dz, -1.7, 5.0, 0.0));
            for pillar in 0..12 {
                let (px, py) = (
                    -18.0 + 12.0 * (pillar % 4) as f32 - cx,
                    -14.0 + 12.0 * (pillar / 4) as f32 - cy,
                );
                // Distance at which the ray meets a vertical cylinder with a radius of 0.4 m.
                let (a, b, c) = (run * run, cos * px + sin * py, px * px + py * py - 0.16);
                let root = b * b - c;
                if root > 0.0 && b > 0.0 {
                    range = range.min((b - root.sqrt()) / a.sqrt());
                }
            }
            let range = range + 0.02 * (random.unit() - 0.5);
            points.push([cx + range * dx, cy + range * dy, range * dz]);
        }
    }
    points
}

/// Makes random points in a cube with edges of `extent_m` around the origin.
pub fn uniform(seed: usize, points: usize, extent_m: f32) -> Vec<[f32; 3]> {
    let mut random = Random::new(seed as u64);
    let mut anywhere = || (random.unit() - 0.5) * extent_m;
    (0..points).map(|_| [anywhere(), anywhere(), anywhere()]).collect()
}

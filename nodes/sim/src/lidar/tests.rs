//! Tests of the ray caster: each point is on a surface of the scene at the time of its column, and hits agree with
//! sphere tracing.

use super::*;
use std::collections::HashMap;

const T0: i64 = 1_700_000_000_123_456_789;

/// The ray of a ring and column as a unit vector, computed with the platform's own sine and cosine.
fn ray(ring: usize, column: usize) -> [f64; 3] {
    let (sa, ca) = (azimuth_turns(column) * std::f64::consts::TAU).sin_cos();
    let (se, ce) = (elevation_turns(ring) * std::f64::consts::TAU).sin_cos();
    [ce * ca, ce * sa, se]
}

fn norm<const N: usize>(v: [f64; N]) -> f64 {
    v.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// Signed distance from a point to a solid, m. Outside it is exact; inside it is negative, and may be only a bound of the distance.
fn distance_to(solid: &Solid, p: [f64; 3]) -> f64 {
    match *solid {
        Solid::Sphere { centre, radius } => norm([0, 1, 2].map(|i| p[i] - centre[i])) - radius,
        Solid::Cylinder { centre, radius, z } => {
            let side = norm([p[0] - centre[0], p[1] - centre[1]]) - radius;
            let cap = f64::max(z[0] - p[2], p[2] - z[1]);
            if side > 0.0 && cap > 0.0 {
                norm([side, cap])
            } else {
                side.max(cap)
            }
        }
        Solid::Box(Bounds { min, max }) => {
            let q = [0, 1, 2].map(|i| f64::max(min[i] - p[i], p[i] - max[i]));
            let inside = q.into_iter().fold(f64::NEG_INFINITY, f64::max);
            if inside > 0.0 {
                norm(q.map(|v| v.max(0.0)))
            } else {
                inside
            }
        }
    }
}

/// Distance from a point inside the hall to the nearest surface at `t_ns`, m.
fn distance(p: [f64; 3], t_ns: i64) -> f64 {
    let room = (0..3).map(|i| f64::min(p[i] - ROOM.min[i], ROOM.max[i] - p[i]));
    let bodies = STANDING
        .into_iter()
        .chain(moving(t_ns))
        .map(|body| distance_to(&body.solid, p));
    room.chain(bodies).fold(f64::INFINITY, f64::min)
}

fn through_opening(p: [f64; 3]) -> bool {
    let on = |axis: usize, wall: f64| (p[axis] - wall).abs() < 1e-6;
    on(0, ROOM.max[0]) && GATE.contains([p[1], p[2]])
        || on(1, ROOM.max[1]) && WINDOW.contains([p[0], p[2]])
        || on(2, ROOM.max[2]) && SKY.contains([p[0], p[1]])
}

fn points(t0_ns: i64) -> PointBuffers {
    let mut points = PointBuffers::for_sweep();
    Lidar::new().cast(t0_ns, &mut points);
    points
}

#[test]
fn every_point_lies_on_a_surface_as_it_is_at_the_points_own_time() {
    let points = points(T0);
    for i in 0..points.len() {
        let p = [points.x[i], points.y[i], points.z[i]].map(f64::from);
        let off = distance(p, T0 + i64::from(points.t_ns[i]));
        assert!(off.abs() < 2e-6, "point {i} {p:?} is {off} m off");
    }
}

/// Sphere tracing steps along a ray by the distance to the nearest surface: slow, and shares no formula with
/// the caster.
#[test]
fn the_caster_agrees_with_sphere_tracing() {
    for sweep in 0..3 {
        let t0_ns = T0 + sweep * 1_900_000_000;
        let points = points(t0_ns);
        let cast: HashMap<_, _> = (0..points.len())
            .map(|i| ((points.ring[i] as usize, points.t_ns[i]), i))
            .collect();
        for column in (sweep as usize..COLUMNS).step_by(5) {
            let t_ns = column_t_ns(column);
            for ring in 0..RINGS {
                let direction = ray(ring, column);
                let mut range = 0.0;
                let end = loop {
                    let p = direction.map(|c| c * range);
                    let step = distance(p, t0_ns + i64::from(t_ns));
                    if step < 1e-9 {
                        break p;
                    }
                    range += step;
                };
                let got = cast
                    .get(&(ring, t_ns))
                    .map(|&i| [points.x[i], points.y[i], points.z[i]].map(f64::from));
                match got {
                    None => assert!(
                        through_opening(end),
                        "ring {ring} column {column}: no return at {end:?}"
                    ),
                    Some(p) => {
                        assert!(
                            !through_opening(end),
                            "ring {ring} column {column}: {p:?} through an opening"
                        );
                        let off = norm([0, 1, 2].map(|i| p[i] - end[i]));
                        assert!(off < 1e-5, "ring {ring} column {column}: {p:?}, traced {end:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_sweep_is_in_firing_order_with_times_from_its_start() {
    let points = points(T0);
    assert_eq!(
        [column_t_ns(0), column_t_ns(1), column_t_ns(512), column_t_ns(1023)],
        [0, 97_656, 50_000_000, 99_902_343]
    );
    let keys: Vec<_> = points.t_ns.iter().zip(&points.ring).collect();
    assert!(keys.is_sorted_by(|a, b| a < b));
    let fields = [
        points.y.len(),
        points.z.len(),
        points.intensity.len(),
        points.ring.len(),
        points.t_ns.len(),
    ];
    assert_eq!(fields, [points.len(); 5]);
}

#[test]
fn some_rays_have_no_return_and_how_many_varies() {
    // 20 sweeps over 6 s: the ball goes round once
    let counts: Vec<_> = (0..20).map(|i| points(T0 + i * 300_000_000).len()).collect();
    let all = RINGS * COLUMNS;
    assert!(
        counts.iter().all(|&n| n > all * 8 / 10 && n < all * 9 / 10),
        "{counts:?}"
    );
    let differ = counts.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(differ >= 10, "{counts:?}");
}

#[test]
fn ring_0_meets_the_roof_behind_and_the_last_ring_the_floor() {
    let points = points(0);
    let top = points
        .t_ns
        .iter()
        .position(|&t_ns| t_ns == column_t_ns(512))
        .expect("not empty");
    let want = -1.6 / 15f32.to_radians().tan();
    assert_eq!(points.ring[top], 0);
    assert!((points.x[top] - want).abs() < 1e-5 && (points.z[top] - 1.6).abs() < 1e-6);
    // 1.8 m down at 25 degrees is 3.860 m out, to the left; ahead at t = 0 the person stands at 2.7 m
    let last_of = |column| {
        points
            .t_ns
            .iter()
            .rposition(|&t_ns| t_ns == column_t_ns(column))
            .expect("not empty")
    };
    let lowest = last_of(256);
    assert_eq!(points.ring[lowest], 63);
    let want = 1.8 / 25f32.to_radians().tan();
    assert!((points.y[lowest] - want).abs() < 1e-5 && (points.z[lowest] + 1.8).abs() < 1e-6);
    let want = 0.25 * 25f32.to_radians().sin();
    assert!((points.intensity[lowest] - want).abs() < 1e-6 && points.x[lowest] == 0.0);
    let person = last_of(0);
    assert_eq!((points.x[person], points.y[person]), (2.7, 0.0));
}

#[test]
fn intensities_are_shares() {
    let points = points(T0);
    assert!(points.intensity.iter().all(|i| (0.0..=1.0).contains(i)));
}

#[test]
fn the_ball_moves_within_a_sweep() {
    // 7.3 m/s for the 97.66 us of one column
    let [a, b] = [0, 97_656].map(|dt| moving(T0 + dt)[2].solid);
    let (Solid::Sphere { centre: a, .. }, Solid::Sphere { centre: b, .. }) = (a, b) else {
        panic!("the third moving body is the ball")
    };
    let moved = norm([0, 1, 2].map(|i| a[i] - b[i]));
    assert!((7e-4..8e-4).contains(&moved), "{moved}");
}

#[test]
fn the_same_time_gives_the_same_bits_and_used_buffers_do_not_matter() {
    let lidar = Lidar::new();
    let mut used = PointBuffers::default();
    lidar.cast(T0 + 5, &mut used);
    lidar.cast(T0, &mut used);
    assert_eq!(used, points(T0));
    assert_ne!(used, points(T0 + SWEEP_NS));
}

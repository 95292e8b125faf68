use robocache_geometry::Real;

/// The most that a float32 may be past the limit that it stands for, radians or metres.
pub(crate) const ROUNDING: f64 = 1e-6;

/// Rounds limits inwards to a type: to its outermost values that lie within.
pub(crate) fn inwards<R: Real>([lower, upper]: [f64; 2]) -> [R; 2] {
    let (lowest, highest) = (R::from_f64(lower), R::from_f64(upper));
    [
        if lowest.to_f64() < lower {
            lowest.next_up()
        } else {
            lowest
        },
        if highest.to_f64() > upper {
            highest.next_down()
        } else {
            highest
        },
    ]
}

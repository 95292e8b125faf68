use robocache_geometry::Real;

/// Largest distance by which a joint at its limit may lie past the limit after rounding to float32, radians or metres.
pub(crate) const ROUNDING: f64 = 1e-6;

/// Rounds a lower and an upper limit to a float type, inwards: to the outermost values of the type that lie within the limits.
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

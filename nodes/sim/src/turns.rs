//! Phase of a periodic motion at a time in int64 ns, in turns.

/// Phase of `t_ns` in a cycle of `period_ns`, in turns, in `[0, 1)`.
///
/// The remainder is taken in integers, so a stamp of 1.7e18 ns loses nothing.
pub fn phase(t_ns: i64, period_ns: i64) -> f64 {
    t_ns.rem_euclid(period_ns) as f64 / period_ns as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phase_keeps_nanoseconds_at_epoch_sized_stamps() {
        let t = 1_700_000_000_000_000_000;
        assert_eq!(phase(t + 1, 1_000_000_000), 1e-9);
        assert_eq!(phase(-1, 4), 0.75);
    }
}

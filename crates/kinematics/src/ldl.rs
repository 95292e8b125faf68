use robocache_geometry::Real;

/// A symmetric matrix as the product L D L^T of a unit lower triangle and a diagonal.
pub(crate) struct Ldl<R, const M: usize> {
    lower: [[R; M]; M],
    /// The diagonal D.
    pub pivots: [R; M],
    inverses: [R; M],
}

impl<R: Real, const M: usize> Ldl<R, M> {
    /// Decomposes the matrix with the lower triangle `a`, column by column. A pivot below `least` is set to it.
    #[inline(always)]
    #[expect(
        clippy::needless_range_loop,
        reason = "indices as in the formulas; iterators take 13 % longer"
    )]
    pub fn new(mut a: [[R; M]; M], least: R) -> Self {
        let (mut pivots, mut inverses) = ([R::default(); M], [R::default(); M]);
        for h in 0..M {
            let pivot = if a[h][h] < least { least } else { a[h][h] };
            let inverse = R::from_f64(1.0) / pivot;
            (pivots[h], inverses[h]) = (pivot, inverse);
            // The column before its division by the pivot.
            let mut column = [R::default(); M];
            for i in h + 1..M {
                column[i] = a[i][h];
                a[i][h] = column[i] * inverse;
            }
            for i in h + 1..M {
                for k in h + 1..=i {
                    a[i][k] = a[i][k] - a[i][h] * column[k];
                }
            }
        }
        Self {
            lower: a,
            pivots,
            inverses,
        }
    }

    /// The solution of (L D L^T) x = y.
    #[inline(always)]
    pub fn solve(&self, mut y: [R; M]) -> [R; M] {
        for i in 1..M {
            for k in 0..i {
                y[i] = y[i] - self.lower[i][k] * y[k];
            }
        }
        for i in (0..M).rev() {
            y[i] = y[i] * self.inverses[i];
            for k in i + 1..M {
                y[i] = y[i] - self.lower[k][i] * y[k];
            }
        }
        y
    }
}

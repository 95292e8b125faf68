use robocache_geometry::Real;

/// Symmetric matrix, decomposed into the product L D L^T of a unit lower triangular matrix and a diagonal one.
pub(crate) struct Ldl<R, const M: usize> {
    lower: [[R; M]; M],
    /// Diagonal of the decomposition: the entries of D.
    pub pivots: [R; M],
    inverses: [R; M],
}

impl<R: Real, const M: usize> Ldl<R, M> {
    /// Decomposes the symmetric matrix whose lower triangle is `a`, column by column. A pivot below `least` is replaced
    /// by `least`.
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

    /// Returns the solution x of (L D L^T) x = y.
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

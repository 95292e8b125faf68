//! Sums and extremes of the points of each cell, on the CPU. A value that a sum can't hold is split over two sums or
//! counted as unusable.

use super::kernels::{self, BLOCK, Block, Exceptions, Row};
use super::plan::{NamedField, Plan, Source};
use super::quantum;
use robocache_stream::HostField;

/// Sums and extremes of each occupied cell, and one more element for all points in cells past `max_voxels`.
pub(super) struct Sums {
    /// Sums of the coordinates, and count of the points, of each cell, by the cell's rank.
    pub(super) rows: Vec<Row>,
    /// Sums of each field, for each cell by its rank; empty for a field of which no channel needs the mean.
    pub(super) fields: Vec<Vec<i64>>,
    /// Greatest or least values, as integer keys (`order_key`): for each extreme, one key for each cell by its rank.
    pub(super) extremes: Vec<Vec<i32>>,
    /// Values of each field that do not fit the cell's sum or are unusable, by the cell's rank; empty if
    /// there are none.
    pub(super) exceptions: Vec<Vec<Exceptions>>,
    /// Number of occupied cells, plus one for the points in cells past `max_voxels`.
    len: usize,
    /// Exponents s of the scales 2^s of x, y and z.
    axis_bits: [i32; 3],
    /// Exponents s of the scales 2^s of the fields.
    field_bits: Vec<i32>,
    block: Box<FieldBlock>,
}

/// Values of a field in a block of points.
struct FieldBlock {
    /// Values from which the extremes are taken; NaN if unusable.
    values: [f32; BLOCK],
    /// Values from which the mean is computed; 0 if unusable.
    exact: [f64; BLOCK],
    /// Values scaled and rounded to the integers that are summed.
    fixed: [i64; BLOCK],
}

impl Sums {
    pub(super) fn new(plan: &Plan) -> Self {
        let fields = plan.fields.len();
        Self {
            rows: Vec::new(),
            fields: vec![Vec::new(); fields],
            extremes: vec![Vec::new(); plan.extremes.len()],
            exceptions: vec![Vec::new(); fields],
            len: 0,
            axis_bits: [0; 3],
            field_bits: vec![0; fields],
            block: Box::new(FieldBlock {
                values: [0.0; BLOCK],
                exact: [0.0; BLOCK],
                fixed: [0; BLOCK],
            }),
        }
    }

    /// Sets the sums of `occupied` cells to 0. `bits` gives the exponent s of each source, whose values are
    /// scaled by 2^s.
    pub(super) fn begin(&mut self, plan: &Plan, occupied: usize, bits: impl Fn(Source) -> i32) {
        self.len = occupied + 1;
        self.axis_bits = [0, 1, 2].map(|axis| bits(Source::Axis(axis)));
        for (field, s) in self.field_bits.iter_mut().enumerate() {
            *s = bits(Source::Field(field));
        }
        if plan.counts {
            // Cleared here, and not when read, so that the rows are in the cache when points are added to them.
            self.rows.clear();
            self.rows.resize(self.len, Row::default());
        }
        for (field, sums) in plan.fields.iter().zip(&mut self.fields) {
            sums.clear();
            sums.resize(if field.mean { self.len } else { 0 }, 0);
        }
        for (extreme, keys) in plan.extremes.iter().zip(&mut self.extremes) {
            keys.clear();
            keys.resize(self.len, if extreme.greatest { i32::MIN } else { i32::MAX });
        }
        self.exceptions.iter_mut().for_each(Vec::clear);
    }

    /// Counts the points of a block, and adds their coordinates. A coordinate that the plan does not need may be empty
    /// in `xyz`.
    pub(super) fn add_points(&mut self, plan: &Plan, block: Block<'_>, xyz: [&[f32]; 3]) {
        if plan.axis_sums() > 0 {
            kernels::add_points(&mut self.rows, block, xyz, self.axis_bits.map(quantum::power_of_two));
        } else if plan.counts {
            kernels::add_ones(&mut self.rows, block);
        }
        for (extreme, keys) in plan.extremes.iter().zip(&mut self.extremes) {
            if let Source::Axis(axis) = extreme.source {
                kernels::add_extreme(keys, block, xyz[axis], extreme.greatest);
            }
        }
    }

    /// Adds the values of the `i`-th field of the plan to the cells' sums and extremes. The block is `n` points of a
    /// cloud from point `from` on.
    pub(super) fn add_field(
        &mut self,
        plan: &Plan,
        i: usize,
        values: &HostField<'_>,
        [from, n]: [usize; 2],
        block: Block<'_>,
    ) {
        let (field, values_of_block) = (&plan.fields[i], &mut *self.block);
        let scale = quantum::power_of_two(self.field_bits[i]);
        values_of_block.read(field, values, from, n);
        if values_of_block.has_exceptions(field, scale, n) {
            let exceptions = &mut self.exceptions[i];
            exceptions.resize(self.len, Exceptions::default());
            values_of_block.move_to_exceptions(field, scale, block, exceptions);
        }
        if field.mean {
            kernels::fix(&values_of_block.exact[..n], scale, &mut values_of_block.fixed);
            kernels::add_fixed(&mut self.fields[i], block, &values_of_block.fixed);
        }
        for (extreme, keys) in plan.extremes.iter().zip(&mut self.extremes) {
            if extreme.source == Source::Field(i) {
                kernels::add_extreme(keys, block, &values_of_block.values[..n], extreme.greatest);
            }
        }
    }

    /// Writes the number of unusable values of each field, except in cells past `max_voxels`.
    pub(super) fn count_unusable(&mut self, unusable: &mut [u64]) {
        for (unusable, exceptions) in unusable.iter_mut().zip(&mut self.exceptions) {
            exceptions.truncate(self.len - 1);
            *unusable = exceptions.iter().map(|of_cell| of_cell.unusable as u64).sum();
        }
    }

    /// Returns the value that 1 stands for in the integer sum of a coordinate or field: 2^-s.
    pub(super) fn unit(&self, source: Source) -> f64 {
        quantum::power_of_two(-match source {
            Source::Axis(axis) => self.axis_bits[axis],
            Source::Field(field) => self.field_bits[field],
        })
    }
}

impl FieldBlock {
    /// Reads `n` values of a field from point `from` on: as float32 for extremes, as float64 for the mean.
    fn read(&mut self, plan: &NamedField, values: &HostField<'_>, from: usize, n: usize) {
        if plan.extreme {
            values.to_f32(from, &mut self.values[..n]);
        }
        if plan.mean {
            values.to_f64(from, &mut self.exact[..n]);
        }
    }

    /// True if a value of the block does not fit its cell's sum, or is unusable.
    fn has_exceptions(&self, plan: &NamedField, scale: f64, n: usize) -> bool {
        match plan.mean {
            true => kernels::any_beyond(&self.exact[..n], quantum::SMALL / scale),
            false => kernels::any_nonfinite(&self.values[..n]),
        }
    }

    /// Moves unusable values, and the high bits of values that do not fit the sum, from the block to the exceptions
    /// of their cells.
    #[cold]
    fn move_to_exceptions(&mut self, plan: &NamedField, scale: f64, block: Block<'_>, exceptions: &mut [Exceptions]) {
        for (i, slot) in block.points() {
            let scaled = self.exact[i] * scale;
            let (is_whole, is_usable) = match plan.mean {
                true => (scaled.abs() <= quantum::SMALL, scaled.abs() <= quantum::LARGE),
                false => (self.values[i].is_finite(), self.values[i].is_finite()),
            };
            if is_whole {
                continue;
            }
            let of_cell = &mut exceptions[slot];
            if is_usable {
                let (high, low) = quantum::split(kernels::round_large(scaled));
                of_cell.high += high;
                self.exact[i] = low as f64 / scale;
            } else {
                of_cell.unusable += 1;
                (self.values[i], self.exact[i]) = (f32::NAN, 0.0);
            }
        }
    }
}

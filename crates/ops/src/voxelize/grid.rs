//! Geometry of a voxel grid. The CPU and the device find a point's cell with the same float32 values.

/// A box of equal cells, defined by its origin, the edges of a cell, and the number of cells along each axis.
#[derive(Clone, Debug, PartialEq)]
pub struct VoxelGrid {
    origin: [f32; 3],
    voxel_size: [f32; 3],
    inverse: [f32; 3],
    shape: [usize; 3],
}

impl VoxelGrid {
    pub(super) fn new(origin: [f32; 3], voxel_size: [f32; 3], shape: [usize; 3]) -> Self {
        Self {
            origin,
            voxel_size,
            inverse: voxel_size.map(|size| 1.0f32 / size),
            shape,
        }
    }

    /// The corner of the grid with the least coordinates, metres.
    pub fn origin_m(&self) -> [f32; 3] {
        self.origin
    }

    /// The edges of a cell, metres.
    pub fn voxel_size_m(&self) -> [f32; 3] {
        self.voxel_size
    }

    /// `1 / voxel_size_m` in float32. A point's offset from the origin, metres, times this is its position in cells.
    pub(crate) fn inverse(&self) -> [f32; 3] {
        self.inverse
    }

    /// Number of cells along x, y and z.
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// Number of cells of the grid, occupied or not; at most 2^32.
    pub fn cells(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns the exponent s: a coordinate along `axis` is summed as the integer nearest to `coordinate * 2^s`.
    ///
    /// s is `38 - ceil(log2(A))`, with A the greater magnitude of the grid's two corners on that axis. A scaled
    /// coordinate is therefore at most 2^38, apart from the rounding of the index. The sum of 2^22 scaled coordinates
    /// is less than 2^63.
    pub(crate) fn coordinate_bits(&self, axis: usize) -> i32 {
        let least = f64::from(self.origin[axis]);
        let greatest = least + self.shape[axis] as f64 * f64::from(self.voxel_size[axis]);
        38 - ceil_log2(least.abs().max(greatest.abs()))
    }
}

/// Returns the smallest n with `2^n >= value`. `value` must be a positive normal number.
fn ceil_log2(value: f64) -> i32 {
    let bits = value.to_bits();
    let floor = (bits >> 52) as i32 - 1023;
    floor + i32::from(bits & ((1 << 52) - 1) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_of_sums_follows_the_greater_corner() {
        assert_eq!(ceil_log2(1.0), 0);
        assert_eq!(ceil_log2(1.5), 1);
        assert_eq!(ceil_log2(0.5), -1);
        assert_eq!(ceil_log2(0.2), -2);
        assert_eq!(ceil_log2(64.0), 6);
        // x reaches from -51.2 to 51.2, y from 0 to 64, z from -8 to -4.
        let grid = VoxelGrid::new([-51.2, 0.0, -8.0], [0.2, 1.0, 0.5], [512, 64, 8]);
        assert_eq!([0, 1, 2].map(|axis| grid.coordinate_bits(axis)), [32, 32, 35]);
    }
}

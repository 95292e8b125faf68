//! Point clouds of the occupied cells of voxel grids, for viewers. A cell is a point at its centre, and empty cells give
//! no points.

use super::encoder::Cdr;
use robocache_device::{Dtype, Values};
use robocache_stream::{Message, form};

/// Origin and cell size of a voxel grid, m, and its number of cells along each axis.
struct Grid {
    origin_m: [f64; 3],
    size_m: [f64; 3],
    shape: [usize; 3],
}

impl Grid {
    fn of(message: &Message) -> Option<Self> {
        let header = &message.header;
        let shape = form::grid_shape.get(header)?.iter();
        let shape = shape.map(|&n| usize::try_from(n).ok());
        Some(Self {
            origin_m: form::origin_m.get(header)?.try_into().ok()?,
            size_m: form::voxel_size_m.get(header)?.try_into().ok()?,
            shape: shape.collect::<Option<Vec<_>>>()?.try_into().ok()?,
        })
    }

    fn cells(&self) -> usize {
        self.shape.iter().copied().fold(1, usize::saturating_mul)
    }

    /// The longest edge of a cell, m.
    fn edge(&self) -> f64 {
        self.size_m.iter().copied().fold(0.0, f64::max)
    }

    /// Returns the centre of a cell, m, by its indices along the axes.
    fn centre(&self, cell: [f64; 3]) -> [f32; 3] {
        std::array::from_fn(|axis| (self.origin_m[axis] + (cell[axis] + 0.5) * self.size_m[axis]) as f32)
    }

    /// Returns the centre of a cell, m, by its row-major index in the grid.
    fn centre_of(&self, cell: usize) -> [f32; 3] {
        let [_, y, z] = self.shape;
        self.centre([cell / (y * z), cell / z % y, cell % z].map(|at| at as f64))
    }
}

/// Encodes the occupied cells of a voxel grid as a point cloud, and appends it to `data`. Returns `None` if the message can't
/// be drawn as a cloud.
pub(super) fn cloud(message: &Message, data: &mut Cdr) -> Option<()> {
    let grid = Grid::of(message)?;
    let names = form::channels.get(&message.header).unwrap_or_default();
    if names.iter().any(|name| ["x", "y", "z"].contains(&name.as_str())) {
        return None;
    }
    let mut points: Vec<f32> = Vec::new();
    let with_channels = match (message.column("coords"), message.column("features"), message.flat()) {
        (Some(coords), Some(features), _) if coords.dtype == Dtype::Int32 && features.dtype == Dtype::Float32 => {
            let (coords, features) = (coords.values(), features.values());
            if features.len() != message.rows * names.len() || coords.len() != message.rows * 3 {
                return None;
            }
            let rows = coords.as_slice::<i32>().chunks_exact(3).enumerate();
            for (row, cell) in rows {
                points.extend(grid.centre([0, 1, 2].map(|axis| f64::from(cell[axis]))));
                points.extend(&features.as_slice::<f32>()[row * names.len()..(row + 1) * names.len()]);
            }
            true
        }
        (_, _, Some(values)) if values.dtype() == Dtype::UInt8 && values.len() == grid.cells().div_ceil(8) => {
            let bits = values.as_slice::<u8>();
            let occupied = (0..grid.cells()).filter(|cell| bits[cell / 8] >> (cell % 8) & 1 == 1);
            occupied.for_each(|cell| points.extend(grid.centre_of(cell)));
            false
        }
        (_, _, Some(values)) if values.len() == grid.cells().checked_mul(names.len())? && !names.is_empty() => {
            dense(&grid, values, names, &mut points);
            true
        }
        _ => return None,
    };
    let mut columns = vec![("x", Dtype::Float32), ("y", Dtype::Float32), ("z", Dtype::Float32)];
    if with_channels {
        columns.extend(names.iter().map(|name| (name.as_str(), Dtype::Float32)));
    }
    let count = points.len() / columns.len();
    data.cloud(message, &columns, count, |out| {
        out.extend_from_slice(bytemuck::cast_slice(&points))
    });
    Some(())
}

/// Appends the centre and the channels of each cell of `[C, X, Y, Z]` with a value other than 0. For a map of occupancy or
/// distances, these are the cells of obstacles instead.
fn dense(grid: &Grid, values: Values<'_>, names: &[String], points: &mut Vec<f32>) {
    let (cells, channels, edge) = (grid.cells(), names.len(), grid.edge() as f32);
    let mut floats = vec![0.0; values.len()];
    values.to_f32(&mut floats);
    // Cells that no frame has seen have the greatest distance.
    let far = floats.iter().copied().fold(0.0, f32::max);
    let is_point = |value: f32| match names {
        [name] if name == "occupancy_percent" => value > 50.0,
        [name] if name == "esdf" || name == "esdf_slice" => value == 0.0,
        [name] if name == "tsdf" => value.abs() < edge.min(far),
        _ => value != 0.0,
    };
    for cell in 0..cells {
        let of_cell = || (0..channels).map(|channel| floats[channel * cells + cell]);
        if of_cell().any(is_point) {
            points.extend(grid.centre_of(cell));
            points.extend(of_cell());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_map_the_obstacles_are_points() {
        let grid = Grid {
            origin_m: [0.0; 3],
            size_m: [0.5; 3],
            shape: [1, 1, 5],
        };
        let heights = |name: &str, values: [f32; 5]| {
            let mut points = Vec::new();
            dense(&grid, Values::from_f32(&values), &[name.to_owned()], &mut points);
            points
                .as_chunks::<4>()
                .0
                .iter()
                .map(|point| point[2])
                .collect::<Vec<f32>>()
        };
        assert_eq!(
            heights("occupancy_percent", [-1.0, 40.0, 50.0, 51.0, 97.0]),
            [1.75, 2.25]
        );
        assert_eq!(heights("esdf", [0.5, 0.0, 0.5, 1.0, 0.0]), [0.75, 2.25]);
        assert_eq!(heights("tsdf", [1.0, 0.4, -0.2, -0.7, 1.0]), [0.75, 1.25]);
        assert_eq!(heights("mean_z", [1.0, 0.0, -0.2, 0.0, 0.0]), [0.25, 1.25]);
    }
}

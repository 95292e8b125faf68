//! Clouds of the occupied cells of voxel grids, for viewers. A cell is a point at its centre, and empty cells give no points.

use super::encoder::Cdr;
use robocache_device::{Dtype, Values};
use robocache_stream::{Message, form};

/// Origin and size of a grid's cells, m, and number of cells along each axis.
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

/// Writes the occupied cells of a voxel grid as a cloud of points to `data`; `None` if the message can't be drawn as a cloud.
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
            dense(&grid, values, names.len(), &mut points);
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

/// Appends the centres and channels of the cells of `[C, X, Y, Z]` that have a value other than 0.
fn dense(grid: &Grid, values: Values<'_>, channels: usize, points: &mut Vec<f32>) {
    let cells = grid.cells();
    let mut floats = vec![0.0; values.len()];
    values.to_f32(&mut floats);
    for cell in 0..cells {
        let of_cell = || (0..channels).map(|channel| floats[channel * cells + cell]);
        if of_cell().any(|value| value != 0.0) {
            points.extend(grid.centre_of(cell));
            points.extend(of_cell());
        }
    }
}

//! Point clouds as arguments of Python calls, and the results of voxelizing them. A cloud is checked when it is imported: each
//! of its arrays has one entry per point.

use crate::array::Array;
use crate::arrays::Arrays;
use crate::element::{Element, Place};
use crate::tensor::Tensor;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use robocache::device::Dtype;
use robocache::ops::voxelize::{VoxelCounters, VoxelLayout, VoxelizeConfig};
use robocache::stream::{Cells, ColumnLayout, Layout, Message};

/// A cloud as Python passes it: the name of its input, the names of its fields, and its arrays. The arrays are one array
/// `[N, C]`, or an array `[N]` for each field. The input may be `None` if the configuration has only one.
pub type Given<'py> = (Option<String>, Vec<String>, Vec<Bound<'py, PyAny>>);

/// A checked cloud: `points` points with the values of `fields`. `input` is the index of the input in the configuration.
pub struct CloudArrays {
    pub input: usize,
    pub fields: Vec<String>,
    pub arrays: Vec<Array>,
    pub points: usize,
    /// True if `arrays` is one array `[N, C]`, false if it is an array `[N]` for each field.
    pub is_tensor: bool,
}

impl CloudArrays {
    /// Imports and checks the arrays of a cloud. Errors call the cloud `name`.
    pub fn take(name: &str, input: usize, given: &Given<'_>, arrays: &Arrays) -> PyResult<Self> {
        let (_, fields, objects) = given;
        let take = |object: &Bound<'_, PyAny>, name: String| -> PyResult<Array> {
            let array = arrays.take(&name, object)?;
            array.expect_dtype(&name, &Dtype::ALL)?;
            Ok(array)
        };
        let is_tensor = objects.len() == 1 && fields.len() != 1;
        if is_tensor {
            let array = take(&objects[0], name.to_owned())?;
            let &[points, columns] = array.shape() else {
                let words = format!("`{name}` has shape {:?} (allowed: [N, C])", array.shape());
                return Err(PyValueError::new_err(words));
            };
            if fields.len() != columns {
                return Err(PyValueError::new_err(format!(
                    "`{name}` has shape {:?}, and `fields` {} names (allowed: one for each column)",
                    array.shape(),
                    fields.len()
                )));
            }
            return Ok(Self {
                input,
                fields: fields.clone(),
                arrays: vec![array],
                points,
                is_tensor,
            });
        }
        let columns = fields.iter().zip(objects);
        let columns = columns.map(|(field, object)| take(object, format!("{name}: {field}")));
        let columns = columns.collect::<PyResult<Vec<_>>>()?;
        let points = columns.first().map_or(0, Array::len);
        for (field, column) in fields.iter().zip(&columns) {
            if column.shape() != [points] {
                return Err(PyValueError::new_err(format!(
                    "`{name}: {field}` has shape {:?} (allowed: [{points}], as its first field has)",
                    column.shape()
                )));
            }
        }
        Ok(Self {
            input,
            fields: fields.clone(),
            arrays: columns,
            points,
            is_tensor,
        })
    }

    /// Kind of memory that holds the cloud: the host's, or that of a GPU. `None` if its arrays are in different memories.
    pub fn place(&self) -> Option<Place> {
        let first = self.arrays.first()?.place();
        self.arrays.iter().all(|array| array.place() == first).then_some(first)
    }

    /// Copies the cloud, which must be on the host, to a message as a lidar node would send it, with the stamp 0.
    pub fn message(&self) -> Message {
        let column = |name: String, array: &Array| ColumnLayout {
            name: name.into(),
            dtype: match array.element() {
                Element::Number(dtype) => dtype,
                Element::Bool => Dtype::UInt8,
            },
            cells: Cells::One,
        };
        let layout = match self.is_tensor {
            true => Layout {
                rows: self.arrays[0].len(),
                columns: vec![column(String::new(), &self.arrays[0])],
            },
            false => Layout {
                rows: self.points,
                columns: self
                    .fields
                    .iter()
                    .zip(&self.arrays)
                    .map(|(name, array)| column(name.clone(), array))
                    .collect(),
            },
        };
        let mut message = Message::default();
        message.write(&layout, |payload, header| {
            for (i, array) in self.arrays.iter().enumerate() {
                payload.column::<u8>(i).copy_from_slice(array.bytes());
            }
            header.timestamp_ns.set(0);
            if self.is_tensor {
                header.shape.set(self.arrays[0].shape().iter().map(|&n| n as i64));
                header.fields.set(&self.fields);
            }
        });
        message
    }
}

/// A voxel grid and its counters, in Rust. The Python class `Grid` is made of them.
pub struct GridParts {
    /// Tensors of the grid: `coords` and `features` in the layout `coo`, otherwise `values` alone.
    pub tensors: Vec<Tensor>,
    pub counters: VoxelCounters,
    /// Number of values that were clamped to the range of the grid's type.
    pub saturated: u64,
    /// Number of values that channels left out, by field.
    pub unusable: Vec<(String, u64)>,
}

/// Shape of the tensor `values`: `[C, X, Y, Z]` in the layout `dense`, and the number of bytes in the layout `bits`.
pub fn values_shape(config: &VoxelizeConfig) -> Vec<usize> {
    let [x, y, z] = config.shape;
    match config.layout {
        VoxelLayout::Bits => vec![(x * y * z).div_ceil(8)],
        _ => vec![config.channels.len(), x, y, z],
    }
}

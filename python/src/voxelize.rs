//! Voxelize over clouds.

use crate::arrays::{Array, Arrays};
use crate::config::{Source, placement, refusal};
use crate::element::{Element, Place};
use crate::tensor::Tensor;
use crate::threads;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use robocache::app::AppError;
use robocache::device::{Dtype, HostBuf, Placement};
use robocache::ops::ConfigError;
use robocache::ops::voxelize::{VoxelCounters, VoxelLayout, VoxelizeConfig, Voxelizer};
use robocache::stream::{Cells, ColumnLayout, Layout, Message};

/// One grid, of one or more clouds.
#[pyclass(frozen, get_all, module = "robocache")]
pub struct Grid {
    /// `dense`: `[C, X, Y, Z]`. `bits`: uint8 `[ceil(X * Y * Z / 8)]`. `coo`: `None`.
    pub values: Option<Py<Tensor>>,
    /// `coo`: int32 `[V, 3]`.
    pub coords: Option<Py<Tensor>>,
    /// `coo`: float32 `[V, C]`.
    pub features: Option<Py<Tensor>>,
    /// What became of the points.
    pub counters: Vec<(&'static str, u64)>,
    /// Values that channels left out, by field.
    pub unusable: Vec<(String, u64)>,
    /// The channels' names.
    pub channels: Vec<String>,
    pub layout: &'static str,
    pub origin_m: [f32; 3],
    pub voxel_size_m: [f32; 3],
    pub shape: [usize; 3],
}

/// A cloud as Python hands it over: its input, the names of its fields, and either one array `[N, C]` or one `[N]` for
/// each field.
type Given<'py> = (Option<String>, Vec<String>, Vec<Bound<'py, PyAny>>);

/// A cloud that was taken.
pub struct CloudArrays {
    pub input: usize,
    pub fields: Vec<String>,
    pub arrays: Vec<Array>,
    pub points: usize,
    /// Whether it is one tensor `[N, C]`.
    pub is_tensor: bool,
}

impl CloudArrays {
    fn take(name: &str, input: usize, given: &Given<'_>, arrays: &Arrays) -> PyResult<Self> {
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

    /// Whether all of it is there.
    pub fn place(&self) -> Option<Place> {
        let first = self.arrays.first()?.place();
        self.arrays.iter().all(|array| array.place() == first).then_some(first)
    }

    /// The cloud as a message on the host.
    fn message(&self) -> Message {
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

/// A section as it is used: the configuration, and where its grids may be made.
fn read(source: &Source, placement: Placement) -> Result<(VoxelizeConfig, Voxelizer), AppError> {
    source.build("voxelize", placement, |app| {
        let config: VoxelizeConfig = app.config()?;
        let refused = |error: ConfigError| app.refused(&error);
        config.validate().map_err(refused)?;
        if let Some(bytes) = config.message_bytes() {
            let words = |problem| {
                ConfigError::new(
                    "shape",
                    format!("{:?} is {bytes} bytes a grid ({problem})", config.shape),
                )
            };
            app.check_message_size("voxels", bytes)
                .map_err(words)
                .map_err(refused)?;
        }
        let voxelizer = Voxelizer::new(&config, app.placement()).map_err(refused)?;
        Ok((config, voxelizer))
    })
}

/// Makes one grid of clouds.
#[pyfunction]
#[pyo3(signature = (clouds, config, device=None, stream=None))]
pub fn voxelize(
    py: Python<'_>,
    clouds: Vec<Given<'_>>,
    config: Source,
    device: Option<&str>,
    stream: Option<isize>,
) -> PyResult<Grid> {
    let placement = placement(device)?;
    let (read, voxelizer) = py.detach(|| self::read(&config, placement)).map_err(refusal)?;
    let inputs: Vec<&str> = read.inputs.iter().map(|input| input.input.as_str()).collect();
    let arrays = Arrays::new(stream);
    let is_one = clouds.len() == 1;
    let taken = clouds.iter().enumerate().map(|(i, given)| {
        let name = if is_one {
            "points".to_owned()
        } else {
            format!("points[{i}]")
        };
        let input = match &given.0 {
            None if inputs.len() == 1 => 0,
            None => {
                let words = format!("`{name}` names no input (allowed: {})", inputs.join(", "));
                return Err(PyValueError::new_err(words));
            }
            Some(input) => inputs.iter().position(|name| name == input).ok_or_else(|| {
                PyValueError::new_err(format!(
                    "`{name}` is of input `{input}` (allowed: {})",
                    inputs.join(", ")
                ))
            })?,
        };
        CloudArrays::take(&name, input, given, &arrays)
    });
    let taken = taken.collect::<PyResult<Vec<_>>>()?;
    let places: Vec<Option<Place>> = taken.iter().map(CloudArrays::place).collect();
    let is_on_host = places.iter().all(|place| *place == Some(Place::Host));
    if is_on_host {
        return on_host(py, &read, voxelizer, &taken);
    }
    let ([cloud], [Some(Place::Cuda(_))], true) = (&taken[..], &places[..], read.inputs.len() == 1) else {
        return Err(PyValueError::new_err(
            "several clouds, or fields in several places, with one on a device (allowed there: one cloud, a `config` of one \
             input; bring the others to the host)",
        ));
    };
    if !cloud.is_tensor {
        return Err(PyValueError::new_err(
            "`points` is a dict of fields on a device (allowed there: one array [N, C])",
        ));
    }
    let stream = arrays.into_stream()?;
    let made = py.detach(|| stream.voxelize(&read, cloud))?;
    made.into_grid(py, &read)
}

/// A grid before Python has it.
pub struct Made {
    /// `coords` and `features`, or `values` alone.
    pub tensors: Vec<Tensor>,
    pub counters: VoxelCounters,
    pub saturated: u64,
    pub unusable: Vec<(String, u64)>,
}

impl Made {
    fn into_grid(self, py: Python<'_>, config: &VoxelizeConfig) -> PyResult<Grid> {
        let mut tensors = self.tensors.into_iter().map(|tensor| Py::new(py, tensor));
        let mut next = || tensors.next().transpose();
        let (values, coords, features) = match config.layout {
            VoxelLayout::Coo => (None, next()?, next()?),
            _ => (next()?, None, None),
        };
        let counters = self.counters;
        Ok(Grid {
            values,
            coords,
            features,
            counters: vec![
                ("points_in", counters.points_in),
                ("points_kept", counters.points_kept),
                ("dropped_nonfinite", counters.dropped_nonfinite),
                ("dropped_outside", counters.dropped_outside),
                ("dropped_overflow", counters.dropped_overflow),
                ("saturated", self.saturated),
            ],
            unusable: self.unusable,
            channels: config.channels.iter().map(ToString::to_string).collect(),
            layout: match config.layout {
                VoxelLayout::Dense => "dense",
                VoxelLayout::Bits => "bits",
                VoxelLayout::Coo => "coo",
            },
            origin_m: config.origin_m,
            voxel_size_m: config.voxel_size_m,
            shape: config.shape,
        })
    }
}

/// The shape of what is not `coo`.
pub fn values_shape(config: &VoxelizeConfig) -> Vec<usize> {
    let [x, y, z] = config.shape;
    match config.layout {
        VoxelLayout::Bits => vec![(x * y * z).div_ceil(8)],
        _ => vec![config.channels.len(), x, y, z],
    }
}

fn on_host(
    py: Python<'_>,
    config: &VoxelizeConfig,
    mut voxelizer: Voxelizer,
    clouds: &[CloudArrays],
) -> PyResult<Grid> {
    let make = || {
        let messages: Vec<Message> = clouds.iter().map(CloudArrays::message).collect();
        for (i, message) in messages.iter().enumerate() {
            voxelizer
                .check(message)
                .map_err(|error| PyValueError::new_err(format!("`points[{i}]`: {error}")))?;
        }
        let given: Vec<(usize, &Message)> = clouds.iter().map(|cloud| cloud.input).zip(&messages).collect();
        let mut answer = Message::default();
        let mut grid = voxelizer.gather(&given);
        if let Some((input, error)) = grid.refused().first() {
            let name = &config.inputs[*input].input;
            return Err(PyValueError::new_err(format!("the cloud of `{name}`: {error}")));
        }
        let layout = grid.layout().clone();
        answer.write(&layout, |payload, _| grid.write(payload));
        let unusable = grid
            .fields()
            .map(|(name, _)| name.to_owned())
            .zip(grid.unusable().to_vec())
            .collect();
        let (counters, saturated) = (grid.counters(), grid.saturated());
        if let Some(error) = voxelizer.take_lost() {
            return Err(PyRuntimeError::new_err(error.to_string()));
        }
        let channels = config.channels.len();
        let tensors = answer.columns_mut().iter_mut().map(|column| {
            let memory: HostBuf = std::mem::take(&mut column.data);
            let rows = layout.rows;
            let shape = match (config.layout, column.name.as_str()) {
                (VoxelLayout::Coo, "coords") => vec![rows, 3],
                (VoxelLayout::Coo, _) => vec![rows, channels],
                _ => values_shape(config),
            };
            Tensor::of_host(memory, column.dtype, &shape)
        });
        Ok(Made {
            tensors: tensors.collect(),
            counters,
            saturated,
            unusable,
        })
    };
    py.detach(|| threads::share(make))??.into_grid(py, config)
}

//! Voxelize for point clouds in Python. A single cloud `[N, C]` on a GPU is voxelized there; all other clouds must be on the
//! host. Counters and grids are those of a node for the same clouds.

use crate::arrays::Arrays;
use crate::cloud::{CloudArrays, Given, GridParts, values_shape};
use crate::config::{Source, placement, refusal};
use crate::element::Place;
use crate::on_device;
use crate::tensor::Tensor;
use crate::threads;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use robocache::app::AppError;
use robocache::device::{HostBuf, Placement};
use robocache::ops::ConfigError;
use robocache::ops::voxelize::{VoxelLayout, VoxelizeConfig, Voxelizer};
use robocache::stream::Message;

/// A voxel grid made of one or more clouds.
#[pyclass(frozen, get_all, module = "robocache")]
pub struct Grid {
    /// Cells in the layout `dense`, `[C, X, Y, Z]`, or `bits`, uint8 `[ceil(X * Y * Z / 8)]`; `None` in the layout `coo`.
    pub values: Option<Py<Tensor>>,
    /// Indices x y z of the V occupied cells in the layout `coo`, int32 `[V, 3]`; otherwise `None`.
    pub coords: Option<Py<Tensor>>,
    /// Values of the V occupied cells in the layout `coo`, float32 `[V, C]`; otherwise `None`.
    pub features: Option<Py<Tensor>>,
    /// Pairs of a counter's name, such as `points_kept` or `dropped_outside`, and its number of points.
    pub counters: Vec<(&'static str, u64)>,
    /// Pairs of a field and the number of its values that channels left out.
    pub unusable: Vec<(String, u64)>,
    /// Names of the C channels, in the order of the values.
    pub channels: Vec<String>,
    pub layout: &'static str,
    pub origin_m: [f32; 3],
    pub voxel_size_m: [f32; 3],
    pub shape: [usize; 3],
}

/// Reads the section `voxelize`, and makes a voxelizer for the devices of `placement`.
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

/// Makes one voxel grid from one or more clouds.
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
    let ([cloud], [Some(Place::Gpu(..))], true) = (&taken[..], &places[..], read.inputs.len() == 1) else {
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
    let made = py.detach(|| on_device::voxelize(&stream, &read, cloud))?;
    made.into_grid(py, &read)
}

impl GridParts {
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
        Ok(GridParts {
            tensors: tensors.collect(),
            counters,
            saturated,
            unusable,
        })
    };
    py.detach(|| threads::share(make))??.into_grid(py, config)
}

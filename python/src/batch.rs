//! Sizes of a batch of trajectories, on which the arrays of times, values and targets must agree.

use crate::array::Array;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use robocache::device::Dtype;

/// Element types that the values of a trajectory may have.
const FLOATS: [Dtype; 4] = [Dtype::Float32, Dtype::Float64, Dtype::Float16, Dtype::BFloat16];

/// Sizes of a batch of trajectories. Each row is one trajectory; all rows have equal numbers of samples and of targets.
pub struct BatchShape {
    /// Number of rows; `None` for one trajectory without an axis of rows.
    pub rows: Option<usize>,
    pub samples: usize,
    pub targets: usize,
    /// Number of values in a sample; `None` if samples are single values and `values` has no axis for them.
    pub dim: Option<usize>,
    /// True if `targets_ns` is `[T]`: all rows have the same targets.
    pub is_shared: bool,
    pub dtype: Dtype,
}

impl BatchShape {
    /// Returns the sizes of a batch, from the shapes of its arrays. Refuses arrays whose shapes or types do not fit together.
    pub fn of(times: &Array, values: &Array, targets: &Array) -> PyResult<Self> {
        times.expect_dtype(&"times_ns", &[Dtype::Int64])?;
        targets.expect_dtype(&"targets_ns", &[Dtype::Int64])?;
        let dtype = values.expect_dtype(&"values", &FLOATS)?;
        let refused = |name: &str, came: &[usize], allowed: String| {
            PyValueError::new_err(format!("`{name}` has shape {came:?} (allowed: {allowed})"))
        };
        let (rows, samples) = match *times.shape() {
            [samples] => (None, samples),
            [rows, samples] => (Some(rows), samples),
            _ => return Err(refused("times_ns", times.shape(), "[S], [B, S]".to_owned())),
        };
        let (leading, dim) = match (rows, values.shape()) {
            (None, [s]) => ([None, Some(*s)], None),
            (None, [s, dim]) => ([None, Some(*s)], Some(*dim)),
            (Some(_), [b, s]) => ([Some(*b), Some(*s)], None),
            (Some(_), [b, s, dim]) => ([Some(*b), Some(*s)], Some(*dim)),
            _ => ([None, None], None),
        };
        if leading != [rows, Some(samples)] || dim == Some(0) {
            let lead: Vec<usize> = rows.into_iter().chain([samples]).collect();
            let allowed = format!("{lead:?}, or with an axis of one or more values behind that");
            return Err(refused(
                "values",
                values.shape(),
                format!("with `times_ns` {:?}: {allowed}", times.shape()),
            ));
        }
        let (targets, is_shared) = match (rows, targets.shape()) {
            (_, &[count]) => (count, true),
            (Some(rows), &[b, count]) if b == rows => (count, false),
            (None, came) => return Err(refused("targets_ns", came, "[T]".to_owned())),
            (Some(rows), came) => return Err(refused("targets_ns", came, format!("[T], [{rows}, T]"))),
        };
        Ok(Self {
            rows,
            samples,
            targets,
            dim,
            is_shared,
            dtype,
        })
    }

    /// Shape of the mask `valid`: `[B, T]`, or `[T]` for one trajectory.
    pub fn valid_shape(&self) -> Vec<usize> {
        self.rows.into_iter().chain([self.targets]).collect()
    }

    /// Shape of the resampled values: `[B, T, D]`, without B for one trajectory and without D for single values.
    pub fn values_shape(&self) -> Vec<usize> {
        self.valid_shape().into_iter().chain(self.dim).collect()
    }

    /// Returns the targets of all rows, ns, concatenated; targets that all rows share are repeated for each row.
    pub fn spread(&self, targets: &[i64]) -> Vec<i64> {
        match self.is_shared {
            true => targets.repeat(self.rows.unwrap_or(1)),
            false => targets.to_vec(),
        }
    }
}

//! The native part of the Python package `robocache`.

mod arrays;
mod config;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "no_cuda.rs"]
mod cuda;
mod dlpack;
mod element;
mod extent;
mod observe;
mod recording;
mod resample;
mod ring;
mod tensor;
mod threads;
mod voxelize;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::observe::{Observed, observe, observe_recording};
    #[pymodule_export]
    use crate::recording::{Messages, read_samples, recorded_streams, recording_problems};
    #[pymodule_export]
    use crate::resample::{resample, resample_ragged};
    #[pymodule_export]
    use crate::ring::{ProducerGone, Resident, RingError, StaleError, TornError, ring_counters, take};
    #[pymodule_export]
    use crate::tensor::Tensor;
    #[pymodule_export]
    use crate::voxelize::{Grid, voxelize};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::threads::init();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

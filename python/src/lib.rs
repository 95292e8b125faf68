//! The native part of the Python package `robocache`, the module `robocache._native`. It is not a public interface: the package
//! checks arguments and wraps results.

mod actions;
mod array;
mod arrays;
mod batch;
mod chain_on_device;
mod cloud;
mod config;
mod dlpack;
mod element;
mod extent;
mod inverse;
mod kinematics;
mod observe;
mod observed;
mod on_device;
mod protocol;
mod recording;
mod resample;
mod ring;
mod rows;
mod run;
mod stream;
mod tensor;
mod threads;
mod voxelize;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::actions::convert_actions;
    #[pymodule_export]
    use crate::inverse::{InverseConfig, ik, ik_all, ik_path};
    #[pymodule_export]
    use crate::kinematics::{Chain, read_urdf};
    #[pymodule_export]
    use crate::observe::{observe, observe_recording};
    #[pymodule_export]
    use crate::observed::Observed;
    #[pymodule_export]
    use crate::recording::{Messages, read_samples, recorded_streams, recording_problems};
    #[pymodule_export]
    use crate::resample::{resample, resample_ragged};
    #[pymodule_export]
    use crate::ring::{ProducerGone, RingError, SlotPayload, StaleError, TornError, ring_counters, take};
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

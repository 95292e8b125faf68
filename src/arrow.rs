//! The parts of Arrow that the library uses, under the names of the crate `arrow`, which would bring its compute kernels
//! along: half of the time of a build.

pub(crate) use arrow_buffer as buffer;
pub(crate) use arrow_ipc as ipc;

pub(crate) mod array {
    pub(crate) use arrow_array::cast::AsArray;
    pub(crate) use arrow_array::*;
    pub(crate) use arrow_data::ArrayData;
}

pub(crate) mod datatypes {
    pub(crate) use arrow_array::types::*;
    pub(crate) use arrow_schema::*;
}

pub(crate) mod error {
    pub(crate) use arrow_schema::ArrowError;
}

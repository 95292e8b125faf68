//! The compiled kernels, a constant for each file of `kernels/`.

use super::Image;

include!(concat!(env!("OUT_DIR"), "/images.rs"));

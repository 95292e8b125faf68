//! The GPU kernels of robocache: a constant for each `.cu` file, which holds its compiled code.
//!
//! ```
//! const APPEND: robocache_kernels::Kernel = robocache_kernels::FUSE.kernel("fuse_append");
//! assert_eq!((APPEND.image.name, APPEND.name), ("fuse", "fuse_append"));
//! ```
//!
//! Without the features `cuda` and `hip` an image holds no code.

/// The compiled kernels of one file.
#[derive(Clone, Copy, Debug)]
pub struct Image {
    /// The name of the file.
    pub name: &'static str,
    /// Fat binary with machine code for several architectures and PTX for the others.
    pub cuda13: &'static [u8],
    /// Fat binary with PTX alone, for drivers of CUDA 12, which refuse the other.
    pub cuda12: &'static [u8],
    /// Code objects for AMD's families of GPUs, one each, compressed with Zstandard. A device loads that of its family.
    pub hip: &'static [&'static [u8]],
}

impl Image {
    /// Names a kernel of this file.
    pub const fn kernel(self, name: &'static str) -> Kernel {
        Kernel { image: self, name }
    }
}

/// A function that runs on a device.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// The file that it stands in.
    pub image: Image,
    /// Its name there.
    pub name: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/images.rs"));

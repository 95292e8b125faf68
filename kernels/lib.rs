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
    /// The file's name, without its extension.
    pub name: &'static str,
    /// Fat binary with machine code for several architectures and PTX for the others.
    pub cuda13: &'static [u8],
    /// Fat binary with PTX alone, for drivers of CUDA 12, which refuse `cuda13`.
    pub cuda12: &'static [u8],
    /// Code objects, one for each family of AMD GPUs, compressed with Zstandard. A device loads the one of its family.
    pub hip: &'static [&'static [u8]],
}

impl Image {
    /// Returns the kernel of this name in the file.
    pub const fn kernel(self, name: &'static str) -> Kernel {
        Kernel { image: self, name }
    }
}

/// A function that runs on a device.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// The file that defines the kernel.
    pub image: Image,
    /// The kernel's name in that file.
    pub name: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/images.rs"));

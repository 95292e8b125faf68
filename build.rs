//! The one build script of the workspace: it embeds the compiled kernels into the package `kernels`, in whose folder it
//! stands, since a package is published from its own folder alone.

include!("kernels/build.rs");

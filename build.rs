//! The one build script of the workspace, which embeds the compiled kernels into the package `kernels`. It is in that package's
//! folder, since a package is published from its own folder alone.

include!("kernels/build.rs");

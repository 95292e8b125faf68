//! Streams as one tensor: every modality at the same targets, side by side.
//!
//! It is [`align`](crate::align) with one output, by [`Aligner::new`](crate::align::Aligner::new); the
//! configuration is the same.

/// The section `fuse:` of a configuration.
pub type FuseConfig = super::align::AlignConfig;

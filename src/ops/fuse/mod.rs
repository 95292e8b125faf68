//! Aligned streams as one tensor: every modality at the same targets, side by side.
//!
//! When an observation is due, and what the value of a stream at a target is, is the matter of
//! [`align`](crate::ops::align); the configuration is the same.

pub mod cpu;

/// The section `fuse:` of a configuration.
pub type FuseConfig = super::align::AlignConfig;

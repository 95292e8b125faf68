//! Operation `fuse`: puts sensor streams on common timestamps, side by side in one tensor.
//!
//! [`Aligner::fused`](crate::align::Aligner::fused) implements it: `fuse` is [`align`](crate::align) with one output
//! instead of one for each modality. Both operations have the same configuration type.

/// Section `fuse:` of a configuration. It may have the key `attach`, which the section `align:` refuses.
pub type FuseConfig = super::align::AlignConfig;

//! Aligned streams as one tensor.

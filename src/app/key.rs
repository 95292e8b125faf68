//! All metadata keys of robocache, in a module for each operation or payload form that writes them.

pub use super::diagnostics::key as diagnostics;

use robocache_ops::{self as ops, align, clock, group, kinematics, map, resample, voxelize};
use robocache_stream::{self as stream, form, ring};

/// Returns the name of each metadata key, with dora's name for the type of its value.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    let blocks = [
        stream::key::ALL,
        form::ALL,
        ring::ALL,
        ops::key::ALL,
        align::key::ALL,
        clock::key::ALL,
        group::key::ALL,
        kinematics::key::ALL,
        map::key::ALL,
        resample::key::ALL,
        voxelize::key::ALL,
        diagnostics::ALL,
    ];
    blocks.into_iter().flatten().copied()
}

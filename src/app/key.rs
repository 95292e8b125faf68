//! All metadata keys that robocache knows, each in the block of the operation or form that writes it.

pub use super::diagnostics::key as diagnostics;

use robocache_ops::{self as ops, align, clock, group, kinematics, map, resample, voxelize};
use robocache_stream::{self as stream, form, ring};

/// The name of each key, with the type of its value as dora names it.
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

//! Batches of trajectories, on the CPU and on a device.

use crate::batch::{self, Shape};
use crate::rows::{Rows, Scope};
use crate::timing;
use robocache::device::{Dtype, HostBuf};
use robocache::ops::resample::{ResampleConfig, Resampler, Trajectories};
use robocache::stream::Message;
use std::error::Error;

/// Trajectories, samples, targets, values of a sample.
const SHAPES: [(usize, usize, usize, usize); 5] = [
    (32, 50, 32, 16),
    (64, 4096, 1024, 32),
    (16, 4096, 1024, 32),
    (256, 512, 256, 256),
    (1024, 512, 512, 128),
];

/// The shapes of the comparison with others.
pub fn shapes() -> impl Iterator<Item = Shape> {
    [Dtype::BFloat16, Dtype::Float32].into_iter().flat_map(|dtype| {
        SHAPES.map(|(rows, samples, targets, dim)| Shape {
            rows,
            samples,
            targets,
            dim,
            dtype,
        })
    })
}

/// A batch and the memory that its answer goes to.
pub struct Set {
    pub message: Message,
    pub values: HostBuf,
    pub valid: HostBuf,
}

/// Sets to rotate through.
pub fn sets(shape: &Shape) -> Vec<Set> {
    let set = |seed| {
        let (mut values, mut valid) = (HostBuf::default(), HostBuf::default());
        values.resize(shape.rows * shape.targets * shape.dim * shape.dtype.size());
        valid.resize(shape.rows * shape.targets);
        Set {
            message: batch::message(shape, seed),
            values,
            valid,
        }
    };
    (0..timing::sets_for(shape.touched_bytes()) as u64).map(set).collect()
}

/// What must move for the first of the sets.
pub fn bytes(shape: &Shape, sets: &[Set]) -> usize {
    let column = |name| sets[0].message.column(name).map_or(&[][..], |c| c.data.as_slice());
    batch::unique_bytes(shape, column("timestamps_ns"), column("targets_ns"))
}

/// Measures all shapes on the CPU.
pub fn cpu(rows: &mut Rows) -> Result<(), Box<dyn Error>> {
    let mut resampler = Resampler::new(&ResampleConfig::default())?;
    for shape in shapes() {
        let mut sets = sets(&shape);
        for set in &sets {
            Trajectories::from_message(&set.message)?;
        }
        let times = timing::host(sets.len(), |at| {
            let Set { message, values, valid } = &mut sets[at];
            if let Ok(batch) = Trajectories::from_message(message) {
                let counters = resampler.run(&batch, values.bytes_mut(), valid.bytes_mut());
                assert_eq!(counters.invalid, 0, "every target is within its trajectory");
            }
        });
        rows.add(
            "resample",
            &shape.config(),
            "cpu",
            Scope::Host,
            times,
            bytes(&shape, &sets),
        );
    }
    Ok(())
}

//! Batches of trajectories at their targets.

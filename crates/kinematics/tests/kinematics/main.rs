//! Tests of chains, poses, Jacobians and inverse kinematics, on small robots whose poses a reader can check and on URDFs of
//! real arms.

#![allow(clippy::unwrap_used)]

mod actions;
mod arms;
mod forward;
mod inverse;
mod posture;
mod random;
mod robots;
mod urdf;

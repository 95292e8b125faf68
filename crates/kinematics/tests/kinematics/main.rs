//! Chains, poses, Jacobians and joints, on small robots whose poses a reader can check and on the arms of others.

#![allow(clippy::unwrap_used)]

mod actions;
mod arms;
mod forward;
mod inverse;
mod posture;
mod random;
mod robots;
mod urdf;

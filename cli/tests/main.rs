//! Tests of the command `robocache`. They are in one binary, since each test binary links the whole library.

#![allow(clippy::unwrap_used)]

mod broken;
mod channels;
mod check;
mod common;
mod doctor;
mod info;
mod kinematics;
mod new;
mod offsets;
mod report;
mod top;
mod r#try;
mod whole;

//! Tests of the command, in one binary, as each binary links the whole engine.

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

//! Tests that the simulated robot's samples are true, and that it allocates nothing.

mod no_alloc;
mod truth;

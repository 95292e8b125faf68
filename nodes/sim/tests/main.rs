//! Tests that the samples of the simulated robot are those of its motion, and that it allocates no memory per message.

mod no_alloc;
mod table;
mod truth;

//! The simulated robot: what it sends is true, and it allocates nothing.

mod no_alloc;
mod truth;

//! Every robocache plugin in one process.
fn main() {}

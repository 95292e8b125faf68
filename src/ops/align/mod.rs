//! Streams on common timestamps.

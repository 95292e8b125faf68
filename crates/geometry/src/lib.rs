//! Geometry of rigid bodies: vectors, rotations and transforms, with the same bits on every machine.
//!
//! ```
//! use robocache_geometry::RigidTransform;
//!
//! // A quarter turn about z, then 1 m along x.
//! let pose = RigidTransform::new([0.0, 0.0, 0.5f64.sqrt(), 0.5f64.sqrt()], [1.0, 0.0, 0.0]);
//! let [x, y, z] = pose.apply([2.0, 0.0, 0.0]);
//! assert!((x - 1.0).abs() < 1e-15 && (y - 2.0).abs() < 1e-15 && z == 0.0);
//! ```

#![warn(unreachable_pub)]

pub mod angle;
pub mod polynomial;
pub mod quaternion;
mod real;
mod rigid;
pub mod vector;

pub use real::Real;
pub use rigid::RigidTransform;

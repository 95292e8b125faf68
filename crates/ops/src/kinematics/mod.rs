//! Operation `kinematics`: computes poses, Jacobians and twists for rows of joints, or joints for rows of poses, with
//! [`Kinematics`]. If a row has no result, its values are NaN and its `valid` is 0.
//!
//! ```
//! use robocache_device::Dtype;
//! use robocache_kinematics::Chain;
//! use robocache_ops::kinematics::{Kinematics, KinematicsEntry, Product};
//! use robocache_stream::{Layout, Message};
//!
//! # let urdf = r#"<robot name="arm"><link name="base"/><link name="tip"/><joint name="slide" type="prismatic"><parent link="base"/>
//! # <child link="tip"/><axis xyz="0 0 1"/><limit lower="0" upper="1"/></joint></robot>"#;
//! // One joint, which slides along z.
//! let chain = Chain::from_urdf(urdf, "arm.urdf", "base", "tip")?;
//! let entry = KinematicsEntry {
//!     input: "joints".into(),
//!     chain: "arm".into(),
//!     make: vec![Product::Pose],
//!     ..KinematicsEntry::default()
//! };
//! let mut kinematics = Kinematics::new(&entry, 0, &chain)?;
//!
//! let (mut message, mut pose) = (Message::default(), Message::default());
//! message.write(&Layout::flat(Dtype::Float64, 1), |payload, header| {
//!     payload.column(0).copy_from_slice(&[0.25]);
//!     header.timestamp_ns.set(7);
//! });
//! kinematics.read(&message)?;
//! let mut layout = Layout::default();
//! kinematics.layout_into(Product::Pose, &mut layout);
//! pose.write(&layout, |payload, header| {
//!     kinematics.write(Product::Pose, payload);
//!     kinematics.describe(Product::Pose, &message, header);
//! });
//! assert_eq!(pose.flat().unwrap().as_slice::<f64>(), [0.0, 0.0, 0.25, 0.0, 0.0, 0.0, 1.0]);
//! assert_eq!((pose.timestamp_ns(), pose.header.frame_id.get()), (7, Some("base")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod config;
mod error;
mod forward;
pub mod gpu;
mod inverse;
pub mod key;
mod operation;
mod places;
mod rows;
mod spec;
mod work;

pub use config::{KinematicsConfig, KinematicsEntry, Product};
pub use error::InputError;
pub use operation::Kinematics;
pub(crate) use places::check_order_of_pose;
pub use robocache_kinematics::{Chain, ChainSource, Frame, InverseConfig};
pub use rows::{Implausible, Reason, RefusedRow, Unnamed};

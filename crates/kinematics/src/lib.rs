//! Kinematics of a robot's chains, read from its URDF: poses and Jacobians from joints, and joints from poses.
//!
//! ```
//! use robocache_kinematics::{Chain, InverseConfig, Model, Solver};
//!
//! # let urdf = r#"<robot name="arm"><link name="base"/><link name="upper"/><link name="lower"/><link name="tip"/>
//! # <joint name="shoulder" type="revolute"><parent link="base"/><child link="upper"/>
//! # <axis xyz="0 0 1"/><limit lower="-3" upper="3"/></joint>
//! # <joint name="elbow" type="revolute"><parent link="upper"/><child link="lower"/>
//! # <origin xyz="0 0 0.5" rpy="1.5707963267948966 0 0"/><axis xyz="0 0 1"/><limit lower="-3" upper="3"/></joint>
//! # <joint name="hand" type="prismatic"><parent link="lower"/><child link="tip"/>
//! # <axis xyz="1 0 0"/><limit lower="0.1" upper="0.6"/></joint></robot>"#;
//! let chain = Chain::from_urdf(urdf, "arm.urdf", "base", "tip")?;
//! let model = Model::<f64>::new(&chain);
//! let pose = model.pose(&[0.3, 0.5, 0.4]).ok_or("a value is not finite or too large")?;
//!
//! let solver = Solver::<f64>::new(&chain, &InverseConfig::default())?;
//! let mut joints = [0.0; 3];
//! let answer = solver.solve(&pose, None, &mut joints);
//! assert!(answer.valid && answer.position_error_m < 1e-4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Chain`] is read once, in float64. A [`Model`] computes with it in float32 or float64: [poses](Model::pose), [frames of
//! links](Model::links), [Jacobians](Model::jacobian). A [`Solver`] finds joints for poses, and for [whole
//! trajectories](Solver::solve_along). [`actions`] turns chunks of a policy's actions from one meaning into another.
//!
//! # Bits
//!
//! All results come from additions, multiplications, divisions and square roots in a stated order; sine and cosine are the
//! [polynomials](robocache_geometry::polynomial) of `geometry`. So the bits are the same on every machine. The bits of a row
//! depend neither on its batch nor on the number of threads.

pub mod actions;
mod batch;
mod build;
mod chain;
mod error;
mod inverse;
mod jacobian;
mod lanes;
mod ldl;
mod limits;
mod model;
pub mod parts;
mod source;
mod urdf;

pub use chain::{Chain, ChainConfig, Joint, JointKind, MAX_JOINTS, UNIT_NORMS};
pub use error::ChainError;
pub use inverse::{Answer, InverseConfig, InverseError, MAX_DISTANCE, Select, Solver, Task, Track};
pub use jacobian::{Frame, Twist};
pub use model::{Model, Pose};
pub use source::{ChainSource, ToolConfig};

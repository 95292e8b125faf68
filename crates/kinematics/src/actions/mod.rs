//! Actions of policies: the meanings of their numbers, and conversions from one meaning to another.
//!
//! ```
//! use robocache_kinematics::actions::{Conversion, ConversionConfig, Kind};
//!
//! // A chunk of two steps of two joints, whose values are offsets to where the robot was.
//! let conversion = Conversion::new(&ConversionConfig::new(Kind::Relative, Kind::Delta), None)?;
//! let mut deltas = [0.0; 4];
//! conversion.convert(&[0.1, 0.2, 0.4, 0.2], 2, &[1.0, 2.0], &mut deltas)?;
//! assert!((deltas[2] - 0.3).abs() < 1e-15 && deltas[3].abs() < 1e-15);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod conversion;
mod error;
mod pose;
mod rotation;
mod value;

pub use conversion::{Conversion, ConversionConfig, Kind, Widths};
pub use error::{ConversionError, StepError};
pub use pose::{DeltaFrame, PoseKind};
pub use rotation::RotationForm;
pub use value::ValueKind;

//! Reads the poses of a message.

use super::track::POSE_VALUES;
use crate::kinematics::check_order_of_pose;
use robocache_stream::{Message, SamplesError};

/// Number of values of an odometry message: a pose, followed by velocities, which are ignored.
const ODOMETRY_VALUES: usize = 13;

/// Reason why a message has no poses.
#[derive(Debug, thiserror::Error)]
pub enum PoseError {
    /// The payload can't be read as samples.
    #[error(transparent)]
    Samples(#[from] SamplesError),
    /// A sample has this number of values, which is neither 7 (a pose) nor 13 (odometry).
    #[error(
        "{0} values a sample came (needed: 7, x y z and the quaternion x y z w; or 13, with the velocities of odometry)"
    )]
    Width(usize),
    /// The values have these names, which are not those of a pose in the order x y z, quaternion x y z w.
    #[error("the values are {0} (needed: x y z and the quaternion in the order x y z w)")]
    Order(String),
}

/// Calls `take` with each pose of a message: its stamp, ns, its position, m, and its quaternion x, y, z, w. Skips rows whose
/// `valid` is 0.
///
/// # Errors
/// [`PoseError`] if the message has no poses.
pub fn for_each_pose(message: &Message, mut take: impl FnMut(i64, [f64; 3], [f64; 4])) -> Result<(), PoseError> {
    let values = message
        .data()
        .flat_len()
        .ok_or(SamplesError::Struct { dim: POSE_VALUES })?;
    let width = values / message.stamps().len().max(1);
    if ![POSE_VALUES, ODOMETRY_VALUES].contains(&width) {
        return Err(PoseError::Width(width));
    }
    let names = message.header.fields.get().unwrap_or_default();
    check_order_of_pose(names, &[]).map_err(|_| PoseError::Order(robocache_yaml::listed(names)))?;
    let mut row = Vec::with_capacity(width);
    for sample in message.samples(width)? {
        row.clear();
        sample.values.to_f64(&mut row);
        let [x, y, z, qx, qy, qz, qw] = std::array::from_fn(|i| row[i]);
        take(sample.stamp_ns, [x, y, z], [qx, qy, qz, qw]);
    }
    Ok(())
}

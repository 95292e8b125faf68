//! The types of ROS that are written.

use super::interfaces;
use super::types::{self, Type};
use std::sync::Arc;

/// A type of ROS.
pub(super) struct Standard {
    pub name: &'static str,
    /// For a type of numbers alone, the fields that a sample has of it.
    pub columns: &'static [&'static str],
}

pub(super) const JOINT_STATE: Standard = Standard {
    name: "sensor_msgs/msg/JointState",
    columns: &[],
};
pub(super) const POINT_CLOUD2: Standard = Standard {
    name: "sensor_msgs/msg/PointCloud2",
    columns: &[],
};
pub(super) const STRING: Standard = Standard {
    name: "std_msgs/msg/String",
    columns: &[],
};
pub(super) const POSE_STAMPED: Standard = Standard {
    name: "geometry_msgs/msg/PoseStamped",
    columns: &[
        "pose.position.x",
        "pose.position.y",
        "pose.position.z",
        "pose.orientation.x",
        "pose.orientation.y",
        "pose.orientation.z",
        "pose.orientation.w",
    ],
};
/// Types of numbers alone, whose columns are those that a sample is made of when it is read.
pub(super) const SAMPLES: [Standard; 5] = [
    POSE_STAMPED,
    Standard {
        name: "geometry_msgs/msg/TwistStamped",
        columns: &[
            "twist.linear.x",
            "twist.linear.y",
            "twist.linear.z",
            "twist.angular.x",
            "twist.angular.y",
            "twist.angular.z",
        ],
    },
    Standard {
        name: "geometry_msgs/msg/WrenchStamped",
        columns: &[
            "wrench.force.x",
            "wrench.force.y",
            "wrench.force.z",
            "wrench.torque.x",
            "wrench.torque.y",
            "wrench.torque.z",
        ],
    },
    Standard {
        name: "sensor_msgs/msg/Imu",
        columns: &[
            "linear_acceleration.x",
            "linear_acceleration.y",
            "linear_acceleration.z",
            "angular_velocity.x",
            "angular_velocity.y",
            "angular_velocity.z",
            "orientation.x",
            "orientation.y",
            "orientation.z",
            "orientation.w",
        ],
    },
    Standard {
        name: "nav_msgs/msg/Odometry",
        columns: &[
            "pose.pose.position.x",
            "pose.pose.position.y",
            "pose.pose.position.z",
            "pose.pose.orientation.x",
            "pose.pose.orientation.y",
            "pose.pose.orientation.z",
            "pose.pose.orientation.w",
            "twist.twist.linear.x",
            "twist.twist.linear.y",
            "twist.twist.linear.z",
            "twist.twist.angular.x",
            "twist.twist.angular.y",
            "twist.twist.angular.z",
        ],
    },
];

/// What a pose's values are called where nobody named them by ROS.
const POSES: [[&str; 7]; 3] = [
    ["x", "y", "z", "qx", "qy", "qz", "qw"],
    [
        "transform.translation.x",
        "transform.translation.y",
        "transform.translation.z",
        "transform.rotation.x",
        "transform.rotation.y",
        "transform.rotation.z",
        "transform.rotation.w",
    ],
    [
        "translation.x",
        "translation.y",
        "translation.z",
        "rotation.x",
        "rotation.y",
        "rotation.z",
        "rotation.w",
    ],
];

impl Standard {
    /// The type that samples with values of these names are of.
    pub fn of_samples(names: &[String]) -> Option<&'static Self> {
        const POSE: &Standard = &SAMPLES[0];
        let are = |columns: &[&str]| names.iter().map(String::as_str).eq(columns.iter().copied());
        if POSES.iter().any(|pose| are(pose)) {
            return Some(POSE);
        }
        static ALL: [Standard; 5] = SAMPLES;
        ALL.iter().find(|standard| are(standard.columns))
    }

    /// Its `ros2msg` schema.
    pub fn schema(&self) -> String {
        interfaces::schema(self.name).unwrap_or_default()
    }

    /// Its type, read.
    pub fn parsed(&self) -> Result<Arc<Type>, String> {
        types::from_ros2msg(self.name, &self.schema())
    }
}

/// The fields of a type of ours, behind those that all of them have.
pub(super) fn own_schema(columns: &str) -> String {
    let fields = "std_msgs/Header header\nint64 timestamp_ns\nint64[] shape\nstring[] names\nint64[] timestamps_ns\n\
                  int64[] valid\nint64[] age_ns\nstring metadata\nuint32 rows\n";
    interfaces::describe(&format!("{fields}{columns}"))
}

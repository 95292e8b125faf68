//! Structs that other software sends, by the names of their fields.

use arrow_schema::Fields;

/// Where the coordinate frame stands: in messages of ROS, and in dora's std types.
pub const FRAMES: [&str; 2] = [ROS_FRAME, STD_FRAME];
const ROS_FRAME: &str = "header.frame_id";
const STD_FRAME: &str = "frame_id";

/// A struct of which a sample is made.
#[derive(Debug)]
pub(super) struct Known {
    /// What it is.
    pub name: &'static str,
    /// Its fields, in any order.
    fields: &'static [&'static str],
    /// What is taken.
    pub columns: &'static [&'static str],
    /// The names of the elements of what is taken.
    pub names: Option<&'static str>,
}

const fn known(
    name: &'static str,
    fields: &'static [&'static str],
    columns: &'static [&'static str],
    names: Option<&'static str>,
) -> Known {
    Known {
        name,
        fields,
        columns,
        names,
    }
}

/// Every struct of which samples are made.
const SAMPLES: [Known; 12] = [
    known(
        "std/control/v1/JointState",
        &["names", "positions", "velocities", "efforts"],
        &["positions"],
        Some("names"),
    ),
    known(
        "std/math/v1/Pose",
        &["position", "orientation"],
        &["position", "orientation"],
        None,
    ),
    known(
        "std/math/v1/Transform",
        &["translation", "rotation"],
        &["translation", "rotation"],
        None,
    ),
    known(
        "std/control/v1/Twist",
        &["linear", "angular"],
        &["linear", "angular"],
        None,
    ),
    known(
        "std/control/v1/Odometry",
        &["pose", "twist", "frame_id"],
        &["pose.position", "pose.orientation", "twist.linear", "twist.angular"],
        None,
    ),
    known(
        "sensor_msgs/JointState",
        &["header", "name", "position", "velocity", "effort"],
        &["position"],
        Some("name"),
    ),
    known(
        "sensor_msgs/Imu",
        &[
            "header",
            "orientation",
            "orientation_covariance",
            "angular_velocity",
            "angular_velocity_covariance",
            "linear_acceleration",
            "linear_acceleration_covariance",
        ],
        &["linear_acceleration", "angular_velocity", "orientation"],
        None,
    ),
    // Those of every other type have the same fields.
    known("std_msgs/Float64MultiArray", &["layout", "data"], &["data"], None),
    known(
        "geometry_msgs/WrenchStamped",
        &["header", "wrench"],
        &["wrench.force", "wrench.torque"],
        None,
    ),
    known(
        "geometry_msgs/PoseStamped",
        &["header", "pose"],
        &["pose.position", "pose.orientation"],
        None,
    ),
    known(
        "geometry_msgs/TwistStamped",
        &["header", "twist"],
        &["twist.linear", "twist.angular"],
        None,
    ),
    known(
        "nav_msgs/Odometry",
        &["header", "child_frame_id", "pose", "twist"],
        &[
            "pose.pose.position",
            "pose.pose.orientation",
            "twist.twist.linear",
            "twist.twist.angular",
        ],
        None,
    ),
];

/// The fields of a `sensor_msgs/PointCloud2`.
const POINT_CLOUD2: [&str; 9] = [
    "header",
    "height",
    "width",
    "fields",
    "is_bigendian",
    "point_step",
    "row_step",
    "data",
    "is_dense",
];
/// Those of a `livox_ros_driver2/CustomMsg`.
const LIVOX: [&str; 6] = ["header", "timebase", "point_num", "lidar_id", "rsvd", "points"];
/// Those of a `foxglove.PointCloud`.
const FOXGLOVE: [&str; 6] = ["timestamp", "frame_id", "pose", "point_stride", "fields", "data"];
/// Those of a `std/media/v1/PointCloud`.
const STD_CLOUD: [&str; 3] = ["points", "width", "height"];

/// A struct that is a cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KnownCloud {
    PointCloud2,
    Livox,
    Foxglove,
    Std,
}

impl KnownCloud {
    pub fn name(self) -> &'static str {
        match self {
            Self::PointCloud2 => "sensor_msgs/PointCloud2",
            Self::Livox => "livox_ros_driver2/CustomMsg",
            Self::Foxglove => "foxglove.PointCloud",
            Self::Std => "std/media/v1/PointCloud",
        }
    }
}

/// The struct of samples that has these fields.
pub(super) fn sample(fields: &Fields) -> Option<&'static Known> {
    SAMPLES.iter().find(|known| are(fields, known.fields))
}

/// The cloud that has these fields.
pub(super) fn cloud(fields: &Fields) -> Option<KnownCloud> {
    let clouds = [
        (&POINT_CLOUD2[..], KnownCloud::PointCloud2),
        (&LIVOX, KnownCloud::Livox),
        (&FOXGLOVE, KnownCloud::Foxglove),
        (&STD_CLOUD, KnownCloud::Std),
    ];
    let found = clouds.iter().find(|(names, _)| are(fields, names));
    found.map(|&(_, cloud)| cloud)
}

fn are(fields: &Fields, names: &[&str]) -> bool {
    fields.len() == names.len() && names.iter().all(|name| fields.find(name).is_some())
}

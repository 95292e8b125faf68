//! Structs that other software sends, such as ROS messages, recognised by the names of their fields.
//!
//! A struct is recognised only if it has exactly the fields of a known type, in any order.

use arrow_schema::Fields;

/// Paths of the coordinate frame's name: in structs of ROS messages, and in structs of dora's std types.
pub const FRAMES: [&str; 2] = [ROS_FRAME, STD_FRAME];
const ROS_FRAME: &str = "header.frame_id";
const STD_FRAME: &str = "frame_id";

/// Type of struct that is read as a sample, and the fields that are read from it.
#[derive(Debug)]
pub(super) struct SampleType {
    /// Name of the type, such as `sensor_msgs/Imu`.
    pub name: &'static str,
    /// Paths of the fields that are read, in the order of the sample's values.
    pub columns: Vec<&'static str>,
    /// Field that lists the names of the elements that are read; `None` if elements have no names.
    pub names: Option<&'static str>,
    /// Field that lists the velocities of the elements that are read; `None` if the type has no velocities.
    pub velocities: Option<&'static str>,
}

/// Structs that are read as samples, one a line: name of the type, fields in any order, paths that are read, field of element
/// names, and field of velocities. Multi-arrays of every other element type have the fields of `std_msgs/Float64MultiArray`.
const SAMPLES: &str = "\
std/control/v1/JointState      | names positions velocities efforts | positions | names | velocities
std/math/v1/Pose               | position orientation | position orientation |
std/math/v1/Transform          | translation rotation | translation rotation |
std/control/v1/Twist           | linear angular | linear angular |
std/control/v1/Odometry        | pose twist frame_id | pose.position pose.orientation twist.linear twist.angular |
sensor_msgs/JointState         | header name position velocity effort | position | name | velocity
sensor_msgs/Imu                | header orientation orientation_covariance angular_velocity angular_velocity_covariance \
                                 linear_acceleration linear_acceleration_covariance \
                               | linear_acceleration angular_velocity orientation |
std_msgs/Float64MultiArray     | layout data | data |
geometry_msgs/WrenchStamped    | header wrench | wrench.force wrench.torque |
geometry_msgs/PoseStamped      | header pose | pose.position pose.orientation |
geometry_msgs/TwistStamped     | header twist | twist.linear twist.angular |
nav_msgs/Odometry              | header child_frame_id pose twist \
                               | pose.pose.position pose.pose.orientation twist.twist.linear twist.twist.angular |";

/// Structs that are read as clouds: type, name of the type, and fields in any order.
const CLOUDS: [(CloudType, &str, &str); 4] = [
    (
        CloudType::PointCloud2,
        "sensor_msgs/PointCloud2",
        "header height width fields is_bigendian point_step row_step data is_dense",
    ),
    (
        CloudType::Livox,
        "livox_ros_driver2/CustomMsg",
        "header timebase point_num lidar_id rsvd points",
    ),
    (
        CloudType::Foxglove,
        "foxglove.PointCloud",
        "timestamp frame_id pose point_stride fields data",
    ),
    (CloudType::Std, "std/media/v1/PointCloud", "points width height"),
];

/// Type of struct that is read as a cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloudType {
    PointCloud2,
    Livox,
    Foxglove,
    Std,
}

/// Finds the type of sample that has exactly these fields; `None` if no type has.
pub(super) fn sample(fields: &Fields) -> Option<SampleType> {
    SAMPLES.lines().find_map(|line| {
        let mut parts = line.split('|').map(str::trim);
        let (name, all) = (parts.next()?, parts.next()?);
        let columns = parts.next()?.split_whitespace().collect();
        let names = parts.next().filter(|names| !names.is_empty());
        let velocities = parts.next();
        are(fields, all).then_some(SampleType {
            name,
            columns,
            names,
            velocities,
        })
    })
}

/// Finds the type of cloud that has exactly these fields, and the name of the type; `None` if no type has.
pub(super) fn cloud(fields: &Fields) -> Option<(CloudType, &'static str)> {
    let found = CLOUDS.iter().find(|(_, _, names)| are(fields, names));
    found.map(|&(cloud, name, _)| (cloud, name))
}

fn are(fields: &Fields, names: &str) -> bool {
    let mut names = names.split_whitespace();
    fields.len() == names.clone().count() && names.all(|name| fields.find(name).is_some())
}

//! The types of ROS that are written, as rosbag2 describes them.

use super::types::{self, Type};
use std::sync::Arc;

const HEADER: (&str, &str) = ("std_msgs/Header", "builtin_interfaces/Time stamp\nstring frame_id\n");
const TIME: (&str, &str) = ("builtin_interfaces/Time", "int32 sec\nuint32 nanosec\n");
const POINT: (&str, &str) = ("geometry_msgs/Point", "float64 x\nfloat64 y\nfloat64 z\n");
const VECTOR: (&str, &str) = ("geometry_msgs/Vector3", "float64 x\nfloat64 y\nfloat64 z\n");
const QUATERNION: (&str, &str) = (
    "geometry_msgs/Quaternion",
    "float64 x 0\nfloat64 y 0\nfloat64 z 0\nfloat64 w 1\n",
);
const POSE: (&str, &str) = (
    "geometry_msgs/Pose",
    "geometry_msgs/Point position\ngeometry_msgs/Quaternion orientation\n",
);
const TWIST: (&str, &str) = (
    "geometry_msgs/Twist",
    "geometry_msgs/Vector3 linear\ngeometry_msgs/Vector3 angular\n",
);

/// A type of ROS: its name, its fields, and the types that these are of.
pub(super) struct Standard {
    pub name: &'static str,
    fields: &'static str,
    parts: &'static [(&'static str, &'static str)],
    /// For a type of numbers alone, the fields that a sample has of it.
    pub columns: &'static [&'static str],
}

pub(super) const JOINT_STATE: Standard = Standard {
    name: "sensor_msgs/msg/JointState",
    fields: "std_msgs/Header header\nstring[] name\nfloat64[] position\nfloat64[] velocity\nfloat64[] effort\n",
    parts: &[HEADER, TIME],
    columns: &[],
};
pub(super) const POINT_CLOUD2: Standard = Standard {
    name: "sensor_msgs/msg/PointCloud2",
    fields: "std_msgs/Header header\nuint32 height\nuint32 width\nsensor_msgs/PointField[] fields\nbool is_bigendian\n\
             uint32 point_step\nuint32 row_step\nuint8[] data\nbool is_dense\n",
    parts: &[
        HEADER,
        TIME,
        (
            "sensor_msgs/PointField",
            "uint8 INT8=1\nuint8 UINT8=2\nuint8 INT16=3\nuint8 UINT16=4\nuint8 INT32=5\nuint8 UINT32=6\nuint8 FLOAT32=7\n\
             uint8 FLOAT64=8\nstring name\nuint32 offset\nuint8 datatype\nuint32 count\n",
        ),
    ],
    columns: &[],
};
pub(super) const STRING: Standard = Standard {
    name: "std_msgs/msg/String",
    fields: "string data\n",
    parts: &[],
    columns: &[],
};
pub(super) const POSE_STAMPED: Standard = Standard {
    name: "geometry_msgs/msg/PoseStamped",
    fields: "std_msgs/Header header\ngeometry_msgs/Pose pose\n",
    parts: &[HEADER, TIME, POSE, POINT, QUATERNION],
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
        fields: "std_msgs/Header header\ngeometry_msgs/Twist twist\n",
        parts: &[HEADER, TIME, TWIST, VECTOR],
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
        fields: "std_msgs/Header header\ngeometry_msgs/Wrench wrench\n",
        parts: &[
            HEADER,
            TIME,
            (
                "geometry_msgs/Wrench",
                "geometry_msgs/Vector3 force\ngeometry_msgs/Vector3 torque\n",
            ),
            VECTOR,
        ],
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
        fields: "std_msgs/Header header\ngeometry_msgs/Quaternion orientation\nfloat64[9] orientation_covariance\n\
                 geometry_msgs/Vector3 angular_velocity\nfloat64[9] angular_velocity_covariance\n\
                 geometry_msgs/Vector3 linear_acceleration\nfloat64[9] linear_acceleration_covariance\n",
        parts: &[HEADER, TIME, QUATERNION, VECTOR],
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
        fields: "std_msgs/Header header\nstring child_frame_id\ngeometry_msgs/PoseWithCovariance pose\n\
                 geometry_msgs/TwistWithCovariance twist\n",
        parts: &[
            HEADER,
            TIME,
            (
                "geometry_msgs/PoseWithCovariance",
                "geometry_msgs/Pose pose\nfloat64[36] covariance\n",
            ),
            POSE,
            POINT,
            QUATERNION,
            (
                "geometry_msgs/TwistWithCovariance",
                "geometry_msgs/Twist twist\nfloat64[36] covariance\n",
            ),
            TWIST,
            VECTOR,
        ],
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
        describe(self.fields, self.parts)
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
    describe(&format!("{fields}{columns}"), &[HEADER, TIME])
}

fn describe(fields: &str, parts: &[(&str, &str)]) -> String {
    let mut schema = fields.to_owned();
    for (name, fields) in parts {
        let rule = "=".repeat(80);
        schema.push_str(&format!("{rule}\nMSG: {name}\n{fields}"));
    }
    schema
}

//! ROS message types for samples that are written. A type is used only if it has a field for every value of the sample.

use super::interfaces;
use super::types::{self, Type};
use arrow_schema::DataType;
use robocache_stream::{Path, Recognised, recognise};
use std::sync::{Arc, LazyLock};

pub(super) const JOINT_STATE: &str = "sensor_msgs/msg/JointState";
pub(super) const POINT_CLOUD2: &str = "sensor_msgs/msg/PointCloud2";
pub(super) const STRING: &str = "std_msgs/msg/String";

/// A ROS message type that consists of a header and numbers.
#[derive(Debug)]
pub(super) struct Standard {
    pub name: &'static str,
    pub of: Arc<Type>,
    /// Paths of the number fields that hold the values of a sample, in their order.
    pub columns: Vec<String>,
}

/// ROS message types for samples, PoseStamped first.
static SAMPLES: LazyLock<Vec<Standard>> = LazyLock::new(|| {
    let names = [
        "geometry_msgs/msg/PoseStamped",
        "geometry_msgs/msg/TwistStamped",
        "geometry_msgs/msg/WrenchStamped",
        "sensor_msgs/msg/Imu",
        "nav_msgs/msg/Odometry",
    ];
    names.into_iter().filter_map(Standard::new).collect()
});

/// Prefixes of value names that mark a pose: before `x`, `y`, `z` of the position, and before `x`, `y`, `z`, `w` of the
/// rotation. The names of the fields of PoseStamped mark a pose, too.
const POSES: [[&str; 2]; 3] = [
    ["", "q"],
    ["transform.translation.", "transform.rotation."],
    ["translation.", "rotation."],
];

impl PartialEq for Standard {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Standard {
    fn new(name: &'static str) -> Option<Self> {
        let of = types::from_ros2msg(name, &schema(name)).ok()?;
        let fields = of.arrow_fields();
        let Some(Recognised::Sample(parts, None)) = recognise(&fields) else {
            return None;
        };
        let mut columns = Vec::new();
        for part in parts {
            if let DataType::Struct(axes) = Path::find(part, &fields).ok()?.1.data_type() {
                columns.extend(axes.iter().map(|axis| format!("{part}.{}", axis.name())));
            }
        }
        Some(Self { name, of, columns })
    }

    /// Returns the ROS message type for samples whose values have these names; `None` if no type has them.
    pub(super) fn of_samples(names: &[String]) -> Option<&'static Self> {
        let is_pose = |[position, rotation]: &[&str; 2]| {
            let values = [position; 3].into_iter().zip(["x", "y", "z"]);
            let values = values.chain([rotation; 4].into_iter().zip(["x", "y", "z", "w"]));
            let mut named = values.zip(names);
            names.len() == 7 && named.all(|((before, axis), name)| name.strip_prefix(before) == Some(axis))
        };
        match POSES.iter().any(is_pose) {
            true => SAMPLES.first(),
            false => SAMPLES.iter().find(|standard| standard.columns == names),
        }
    }
}

/// Returns the `ros2msg` schema of a message type; an empty string if the type is not known.
pub(super) fn schema(name: &str) -> String {
    interfaces::schema(name).unwrap_or_default()
}

/// Makes the schema of a message type of robocache, of the form `exact`: the fields that all such types have, and
/// then `columns`.
pub(super) fn own_schema(columns: &str) -> String {
    let fields = "std_msgs/Header header\nint64 timestamp_ns\nint64[] shape\nstring[] names\nint64[] timestamps_ns\n\
                  int64[] valid\nint64[] age_ns\nstring metadata\nuint32 rows\n";
    interfaces::describe(&format!("{fields}{columns}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        names.into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn every_type_of_samples_has_its_columns() {
        let widths = SAMPLES.iter().map(|standard| (standard.name, standard.columns.len()));
        let wanted = [
            ("geometry_msgs/msg/PoseStamped", 7),
            ("geometry_msgs/msg/TwistStamped", 6),
            ("geometry_msgs/msg/WrenchStamped", 6),
            ("sensor_msgs/msg/Imu", 10),
            ("nav_msgs/msg/Odometry", 13),
        ];
        assert!(widths.eq(wanted));
        assert_eq!(
            SAMPLES[3].columns[..4],
            names([
                "linear_acceleration.x",
                "linear_acceleration.y",
                "linear_acceleration.z",
                "angular_velocity.x"
            ])
        );
        for standard in SAMPLES.iter() {
            assert_eq!(Standard::of_samples(&standard.columns), Some(standard));
        }
        let poses = [
            names(["x", "y", "z", "qx", "qy", "qz", "qw"]),
            names("translation.x translation.y translation.z rotation.x rotation.y rotation.z rotation.w".split(' ')),
        ];
        for mut pose in poses {
            assert_eq!(Standard::of_samples(&pose), SAMPLES.first());
            pose.pop();
            assert_eq!(Standard::of_samples(&pose), None);
        }
    }
}

//! ROS message definitions that are built into robocache: of the types that it writes, and of types in bags without
//! definitions. The definitions of all nested types are included.

use std::collections::{BTreeMap, VecDeque};
use std::sync::LazyLock;

/// Name of the encoding of a schema that is built into robocache, and not read from the file.
pub(super) const BUILT_IN: &str = "robocache";

/// Separator line of a `ros2msg` schema, between the fields of one type and the next type.
const RULE: &str = "================================================================================";

/// Field definitions of each built-in type, as lines of text, by the type's name.
static ALL: LazyLock<BTreeMap<&str, &str>> = LazyLock::new(|| {
    let types = include_str!("interfaces.msg").split("MSG: ").skip(1);
    types.filter_map(|of| of.split_once('\n')).collect()
});

/// Returns the `ros2msg` schema of a built-in type, such as `sensor_msgs/msg/Imu`; `None` if the type is not built in.
pub(super) fn schema(name: &str) -> Option<String> {
    let fields = ALL.get(name.replacen("/msg/", "/", 1).as_str())?;
    Some(describe(fields))
}

/// Makes the `ros2msg` schema of a type with these fields, and of the types nested in it.
pub(super) fn describe(fields: &str) -> String {
    let mut text = fields.to_owned();
    let mut taken = Vec::new();
    let mut next: VecDeque<&str> = parts(fields).collect();
    while let Some(part) = next.pop_front() {
        if !taken.contains(&part) {
            taken.push(part);
            let fields = ALL[part];
            text.push_str(&format!("{RULE}\nMSG: {part}\n{fields}"));
            next.extend(parts(fields));
        }
    }
    text
}

/// Lists the built-in types of the fields in `fields`, which has one field a line.
fn parts(fields: &str) -> impl Iterator<Item = &'static str> {
    let of = fields.lines().filter_map(|line| line.split([' ', '[']).next());
    of.filter_map(|of| ALL.get_key_value(of).map(|(name, _)| *name))
}

#[cfg(test)]
mod tests {
    use super::super::types::from_ros2msg;
    use super::*;

    #[test]
    fn every_type_is_whole() {
        assert_eq!(ALL.len(), 114);
        for name in ALL.keys() {
            let schema = schema(name).unwrap();
            from_ros2msg(name, &schema).unwrap();
        }
        let pose = schema("geometry_msgs/msg/PoseStamped").unwrap();
        let names: Vec<&str> = pose.lines().filter_map(|line| line.strip_prefix("MSG: ")).collect();
        let parts = ["std_msgs/Header", "geometry_msgs/Pose", "builtin_interfaces/Time"];
        assert_eq!(
            names,
            [&parts[..], &["geometry_msgs/Point", "geometry_msgs/Quaternion"]].concat()
        );
        assert_eq!(schema("velodyne_msgs/msg/VelodyneScan"), None);
    }
}

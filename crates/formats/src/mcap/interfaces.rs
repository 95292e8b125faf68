//! Types of ROS that robocache knows itself: those that it writes, and those of bags without descriptions. Each type is complete:
//! all types within it are known, too.

use std::collections::{BTreeMap, VecDeque};
use std::sync::LazyLock;

/// Name of the encoding of a schema that is not from the file: robocache knows its type itself.
pub(super) const BUILT_IN: &str = "robocache";

/// Line that stands in a schema between the fields of a type and the next type.
const RULE: &str = "================================================================================";

/// Fields of each type, as lines of text, by the type's name.
static ALL: LazyLock<BTreeMap<&str, &str>> = LazyLock::new(|| {
    let types = include_str!("interfaces.msg").split("MSG: ").skip(1);
    types.filter_map(|of| of.split_once('\n')).collect()
});

/// Returns the `ros2msg` schema of a type, such as `sensor_msgs/msg/Imu`; `None` if the type is not known.
pub(super) fn schema(name: &str) -> Option<String> {
    let fields = ALL.get(name.replacen("/msg/", "/", 1).as_str())?;
    Some(describe(fields))
}

/// Makes the `ros2msg` schema of a type with these fields, and of the types within it.
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

/// Lists the types that `fields` uses and that robocache knows itself. `fields` has one field a line.
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

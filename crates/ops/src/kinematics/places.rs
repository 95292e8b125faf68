//! Finds a chain's joints among the names of a message's values. A position that is missing or ambiguous is an error,
//! never a guess.

use super::InputError;
use robocache_yaml::{did_you_mean, listed};

/// Indices of each joint's position and velocity in a row of values, found by the names of the values.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Names of the values of the last message, to which the indices apply.
    fields: Vec<String>,
    state: State,
    positions: Vec<usize>,
    /// Index of each joint's velocity; empty unless every joint has a velocity.
    velocities: Vec<usize>,
}

/// Result of the last search for a chain's joints among the names of a message's values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum State {
    #[default]
    Nothing,
    /// No joint was found among the names.
    Unnamed,
    /// Each joint was found among the names.
    Named,
}

/// Words before a joint's name that mark its position, as in `position.elbow`.
const POSITIONS: [&str; 2] = ["position", "positions"];
/// Words before a joint's name that mark its velocity, as in `velocity.elbow`.
const VELOCITIES: [&str; 2] = ["velocity", "velocities"];

impl Places {
    /// Finds the index of each joint's position among the names of a message's values. Also finds the velocities, if every
    /// joint has one.
    pub(super) fn find_joints(&mut self, fields: &[String], joints: &[String]) -> Result<(), InputError> {
        if self.state == State::Named && self.fields == fields {
            return Ok(());
        }
        self.state = State::Nothing;
        self.positions.clear();
        self.velocities.clear();
        for joint in joints {
            self.positions.push(position(fields, joint)?);
        }
        let velocities = joints.iter().map(|joint| velocity(fields, joint));
        self.velocities.extend(velocities.flatten());
        if self.velocities.len() < joints.len() {
            self.velocities.clear();
        }
        self.keep(fields, State::Named);
        Ok(())
    }

    /// Finds the joints among the names of values that are all joint positions, or positions and velocities. Returns false if
    /// no name is that of a joint: the values are then in the chain's order. Refuses the names of a rotation.
    pub(super) fn find_joints_if_named(&mut self, fields: &[String], joints: &[String]) -> Result<bool, InputError> {
        if self.state != State::Nothing && self.fields == fields {
            return Ok(self.state == State::Named);
        }
        let is_of_joint = |field: &String| joints.iter().any(|joint| path_of(field, joint).is_some());
        if !fields.iter().any(is_of_joint) {
            if fields.iter().any(|field| is_of_quaternion(field, fields)) {
                self.state = State::Nothing;
                return Err(InputError::Rotation { found: listed(fields) });
            }
            self.keep(fields, State::Unnamed);
            return Ok(false);
        }
        let n = joints.len();
        match fields.split_at_checked(n) {
            // Each name stands twice, first for a position and then for a velocity.
            Some((positions, velocities)) if positions == velocities => {
                self.find_joints(positions, joints)?;
                self.velocities.extend(self.positions.iter().map(|place| n + place));
            }
            _ => self.find_joints(fields, joints)?,
        }
        let is_in_order = self.positions.iter().copied().eq(0..n);
        if self.velocities.is_empty() && is_in_order && fields.len() == 2 * n {
            self.velocities.extend(n..2 * n);
        }
        self.keep(fields, State::Named);
        Ok(true)
    }

    fn keep(&mut self, fields: &[String], state: State) {
        self.fields.resize_with(fields.len(), String::new);
        for (to, field) in self.fields.iter_mut().zip(fields) {
            to.clone_from(field);
        }
        self.state = state;
    }

    /// Returns the names of the last message's values, if none is the name of a joint. `None` also if all names are mere
    /// indices, such as `joint[0]`.
    pub(super) fn unnamed(&self) -> Option<&[String]> {
        let is_name = |field: &String| !field.ends_with(']');
        (self.state == State::Unnamed && self.fields.iter().any(is_name)).then_some(&self.fields)
    }

    /// Index of each joint's position in a row of values, in the order of the chain.
    pub(super) fn positions(&self) -> &[usize] {
        &self.positions
    }

    /// Index of each joint's velocity in a row of values, in the order of the chain; `None` if a joint has no velocity.
    pub(super) fn velocities(&self) -> Option<&[usize]> {
        (!self.velocities.is_empty()).then_some(&self.velocities)
    }
}

/// Returns the path before a joint's name, such as `position` in `position.elbow`; `None` if the value's name does not end in
/// the joint's.
fn path_of<'a>(field: &'a str, joint: &str) -> Option<&'a str> {
    let path = field.strip_suffix(joint)?;
    match path {
        "" => Some(path),
        path => path.strip_suffix('.'),
    }
}

fn ends_in(path: &str, words: [&str; 2]) -> bool {
    path.rsplit('.').next().is_some_and(|last| words.contains(&last))
}

/// Returns the index of the value whose name marks it as the joint's velocity; `None` unless there is exactly one.
fn velocity(fields: &[String], joint: &str) -> Option<usize> {
    let is_velocity = |field: &String| path_of(field, joint).is_some_and(|path| ends_in(path, VELOCITIES));
    let mut places = (0..fields.len()).filter(|&i| is_velocity(&fields[i]));
    places.next().filter(|_| places.next().is_none())
}

/// Returns the index of a joint's position: the value with exactly the joint's name. If there is none: the value named as its
/// position, or else the only value whose name ends in the joint's.
fn position(fields: &[String], joint: &str) -> Result<usize, InputError> {
    let paths = || (fields.iter().enumerate()).filter_map(|(i, field)| Some((i, path_of(field, joint)?)));
    let mut own = paths().filter(|(_, path)| path.is_empty());
    let mut named_positions = paths().filter(|(_, path)| ends_in(path, POSITIONS));
    let mut not_velocities = paths().filter(|(_, path)| !ends_in(path, VELOCITIES));
    let of_kind: [&mut dyn Iterator<Item = (usize, &str)>; 3] = [&mut own, &mut named_positions, &mut not_velocities];
    for places in of_kind {
        match (places.next(), places.next()) {
            (None, _) => {}
            (Some((place, _)), None) => return Ok(place),
            (Some((first, _)), Some((second, _))) => {
                return Err(InputError::Ambiguous {
                    joint: joint.to_owned(),
                    found: format!("`{}` and `{}`", fields[first], fields[second]),
                });
            }
        }
    }
    Err(InputError::Missing {
        joint: joint.to_owned(),
        hint: did_you_mean(joint, fields),
        found: listed(fields),
    })
}

/// Words before the last letter (x, y, z or w) in the names of a quaternion's values, as in `quat.x`.
const QUATERNIONS: [&str; 4] = ["q", "quat", "quaternion", "orientation"];

/// True if `field` names a value of a quaternion. Either its own name shows this, as `qx` and `orientation.w` do, or `fields`
/// has the same name with each of the last letters x, y, z and w.
fn is_of_quaternion(field: &str, fields: &[String]) -> bool {
    let Some((stem, letter)) = field.char_indices().next_back().map(|(at, last)| (&field[..at], last)) else {
        return false;
    };
    if !"xyzwXYZW".contains(letter) {
        return false;
    }
    let word = stem.trim_end_matches(['.', '_', '/']).rsplit(['.', '_', '/']).next();
    let has_word = word.is_some_and(|word| QUATERNIONS.iter().any(|known| word.eq_ignore_ascii_case(known)));
    let is_of = |other: &String, letter: char| other.strip_prefix(stem).is_some_and(|rest| rest.chars().eq([letter]));
    has_word
        || ['x', 'y', 'z', 'w']
            .iter()
            .all(|&letter| fields.iter().any(|other| is_of(other, letter)))
}

/// Last letters of the names of a pose's values, in their order: the position, and then the quaternion.
const LAST_LETTERS: [u8; 7] = *b"xyzxyzw";

/// Checks that the names of a pose's values end in x y z, x y z w, in this order. Refuses other orders, such as a quaternion w
/// x y z, and names of joints. Accepts names whose last letters give no order.
pub(crate) fn check_order_of_pose(fields: &[String], joints: &[String]) -> Result<(), InputError> {
    let Some(names) = fields.get(..LAST_LETTERS.len()) else {
        return Ok(());
    };
    let last = |name: &String| name.as_bytes().last().map(u8::to_ascii_lowercase);
    let says_order = names
        .iter()
        .all(|name| last(name).is_some_and(|letter| LAST_LETTERS.contains(&letter)));
    let is_joint = |name: &String| joints.iter().any(|joint| path_of(name, joint).is_some());
    let is_other = says_order || names.iter().any(is_joint);
    match is_other && !names.iter().map(last).eq(LAST_LETTERS.map(Some)) {
        true => Err(InputError::PoseOrder { found: listed(names) }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_joints(fields: &[&str]) -> Result<(Vec<usize>, Option<Vec<usize>>), String> {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let mut places = Places::default();
        places
            .find_joints(&owned(fields), &owned(&["a", "b"]))
            .map_err(|error| error.to_string())?;
        Ok((places.positions().to_vec(), places.velocities().map(<[_]>::to_vec)))
    }

    #[test]
    fn joints_are_found_by_their_names() {
        assert_eq!(find_joints(&["b", "c", "a"]), Ok((vec![2, 0], None)));
        let named = ["velocity.a", "position.b", "velocity.b", "effort.a", "position.a"];
        assert_eq!(find_joints(&named), Ok((vec![4, 1], Some(vec![0, 2]))));
        // The velocity of only one joint is ignored.
        assert_eq!(find_joints(&["a", "b", "state.velocities.a"]), Ok((vec![0, 1], None)));
        assert_eq!(find_joints(&["state.a", "state.b"]), Ok((vec![0, 1], None)));
        assert_eq!(
            find_joints(&["a", "bb"]),
            Err("joint `b` is not among the `fields` (there: a, bb)".to_owned())
        );
        assert_eq!(
            find_joints(&["velocity.a", "b"]),
            Err("joint `a` is not among the `fields` (there: velocity.a, b)".to_owned())
        );
        // Two values for one joint: neither is taken.
        let two = find_joints(&["a", "b", "a"]);
        assert!(
            two.as_ref()
                .is_err_and(|told| told.starts_with("joint `a` may be `a` and `a` of the `fields`")),
            "{two:?}"
        );
        let two = find_joints(&["left.position.a", "right.position.a", "b"]);
        assert!(two.is_err_and(|told| told.contains("may be `left.position.a` and `right.position.a`")));
        assert_eq!(
            find_joints(&["a", "b", "left.velocity.a", "right.velocity.a", "velocity.b"]),
            Ok((vec![0, 1], None))
        );
        assert_eq!(
            find_joints(&["wanted.a", "effort.a", "b"]),
            Err(
                "joint `a` may be `wanted.a` and `effort.a` of the `fields` (allowed: its name, or one that ends in \
                 `position.a`)"
                    .to_owned()
            )
        );
    }

    #[test]
    fn values_that_are_said_to_be_joints_are_found_by_names_that_name_joints() {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let mut places = Places::default();
        let mut find_joints = |fields: &[&str]| {
            let is_named = places.find_joints_if_named(&owned(fields), &owned(&["a", "b"]));
            let velocities = places.velocities().map(<[_]>::to_vec);
            is_named.map(|is_named| is_named.then(|| (places.positions().to_vec(), velocities)))
        };
        for _ in 0..2 {
            assert_eq!(find_joints(&["b", "a"]), Ok(Some((vec![1, 0], None))));
            assert_eq!(find_joints(&["b", "a"]), Ok(Some((vec![1, 0], None))));
            // No joint is named: the values are in the chain's order.
            assert_eq!(find_joints(&["joint[0]", "joint[1]"]), Ok(None));
            assert_eq!(find_joints(&[]), Ok(None));
        }
        assert_eq!(
            find_joints(&["b", "a", "b", "a"]),
            Ok(Some((vec![1, 0], Some(vec![3, 2]))))
        );
        assert_eq!(
            find_joints(&["a", "b", "da", "db"]),
            Ok(Some((vec![0, 1], Some(vec![2, 3]))))
        );
        assert_eq!(
            find_joints(&["a", "velocity.a", "b", "velocity.b"]),
            Ok(Some((vec![0, 2], Some(vec![1, 3]))))
        );
        // Nothing says which are the velocities.
        assert_eq!(find_joints(&["a", "da", "b", "db"]), Ok(Some((vec![0, 2], None))));
        // If only one joint is named, `channels` or the names are wrong.
        assert!(find_joints(&["a", "gripper"]).is_err());
    }

    #[test]
    fn names_of_no_joint_are_told_and_those_of_a_rotation_are_refused() {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let mut places = Places::default();
        let mut find_joints = |fields: &[&str]| {
            let is_named = places.find_joints_if_named(&owned(fields), &owned(&["a", "b"]));
            let unnamed = places.unnamed().map(<[_]>::len);
            is_named.map(|_| unnamed).map_err(|error| error.to_string())
        };
        for _ in 0..2 {
            assert_eq!(find_joints(&["state.0", "state.1"]), Ok(Some(2)));
            assert_eq!(find_joints(&["b", "a"]), Ok(None));
        }
        // These names tell nothing.
        assert_eq!(find_joints(&["position[0]", "position[1]"]), Ok(None));
        assert_eq!(find_joints(&[]), Ok(None));
        // Coordinates may be the joints of a gantry.
        assert_eq!(find_joints(&["x", "y"]), Ok(Some(2)));
        for fields in [
            &["z", "qx"][..],
            &["position.z", "orientation.x"],
            &["tool_qw", "tool_qx"],
            &["Quaternion/W", "a0"],
            &["x", "y", "z", "w"],
            &["rotation.x", "rotation.y", "rotation.z", "rotation.w"],
        ] {
            let told = find_joints(fields).unwrap_err();
            let wanted = format!(
                "the `fields` of the joints are {}, those of a rotation",
                fields.join(", ")
            );
            assert!(told.starts_with(&wanted), "{told}");
        }
        // A joint may have such a name.
        let mut places = Places::default();
        let named = places.find_joints_if_named(&owned(&["qx", "qw"]), &owned(&["qw", "qx"]));
        assert_eq!((named, places.positions()), (Ok(true), &[1, 0][..]));
    }

    #[test]
    fn poses_whose_names_say_another_order_are_refused() {
        let check =
            |names: [&str; 7]| check_order_of_pose(&names.map(str::to_owned), &["x".to_owned(), "j1".to_owned()]);
        let pose = [
            "position.x",
            "position.y",
            "position.z",
            "orientation.x",
            "orientation.y",
            "orientation.z",
            "orientation.w",
        ];
        assert_eq!(check(pose), Ok(()));
        assert_eq!(check(["x", "y", "z", "qX", "qY", "qZ", "qW"]), Ok(()));
        // These names tell no order.
        assert_eq!(
            check([
                "pose[0]", "pose[1]", "pose[2]", "pose[3]", "pose[4]", "pose[5]", "pose[6]"
            ]),
            Ok(())
        );
        let told = check(["j1", "j2", "j3", "j4", "j5", "j6", "j7"])
            .unwrap_err()
            .to_string();
        assert!(told.starts_with("the `fields` of the pose are j1, j2"), "{told}");
        let told = check(["x", "y", "z", "qw", "qx", "qy", "qz"]).unwrap_err().to_string();
        let wanted = "the `fields` of the pose are x, y, z, qw, qx, qy, qz (needed: the position x y z, and then the quaternion x y z w)";
        assert_eq!(told, wanted);
    }
}

use super::InputError;
use robocache_yaml::{did_you_mean, listed};

/// Places of a chain's joints in a row of values, by the names of the values.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The names of the last message.
    fields: Vec<String>,
    is_known: bool,
    positions: Vec<usize>,
    /// Empty if the names have no velocity for some joint.
    velocities: Vec<usize>,
}

/// Last parts of the names of positions and velocities that stand beside one another.
const POSITIONS: [&str; 2] = ["position", "positions"];
const VELOCITIES: [&str; 2] = ["velocity", "velocities"];

impl Places {
    /// Finds the joints among the names of a message's values.
    pub(super) fn look(&mut self, fields: &[String], joints: &[String]) -> Result<(), InputError> {
        if self.is_known && self.fields == fields {
            return Ok(());
        }
        self.is_known = false;
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
        self.fields.clear();
        self.fields.extend_from_slice(fields);
        self.is_known = true;
        Ok(())
    }

    /// The place of each joint's position.
    pub(super) fn positions(&self) -> &[usize] {
        &self.positions
    }

    /// The place of each joint's velocity, if all have one.
    pub(super) fn velocities(&self) -> Option<&[usize]> {
        (!self.velocities.is_empty()).then_some(&self.velocities)
    }
}

/// The path before a joint's name, if a value has that name or one that ends so.
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

fn velocity(fields: &[String], joint: &str) -> Option<usize> {
    let is_velocity = |field: &String| path_of(field, joint).is_some_and(|path| ends_in(path, VELOCITIES));
    fields.iter().position(is_velocity)
}

/// The value of a joint's name; else the one that says that it is its position; else the only one whose name ends so.
fn position(fields: &[String], joint: &str) -> Result<usize, InputError> {
    if let Some(place) = fields.iter().position(|field| field == joint) {
        return Ok(place);
    }
    let paths = || (fields.iter().enumerate()).filter_map(|(i, field)| Some((i, path_of(field, joint)?)));
    if let Some((place, _)) = paths().find(|(_, path)| ends_in(path, POSITIONS)) {
        return Ok(place);
    }
    let mut others = paths().filter(|(_, path)| !ends_in(path, VELOCITIES));
    match (others.next(), others.next()) {
        (Some((place, _)), None) => Ok(place),
        (None, _) => Err(InputError::Missing {
            joint: joint.to_owned(),
            hint: did_you_mean(joint, fields),
            came: listed(fields),
        }),
        (Some((first, _)), Some((second, _))) => Err(InputError::Ambiguous {
            joint: joint.to_owned(),
            came: format!("`{}` and `{}`", fields[first], fields[second]),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(fields: &[&str]) -> Result<(Vec<usize>, Option<Vec<usize>>), String> {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let mut places = Places::default();
        places
            .look(&owned(fields), &owned(&["a", "b"]))
            .map_err(|error| error.to_string())?;
        Ok((places.positions().to_vec(), places.velocities().map(<[_]>::to_vec)))
    }

    #[test]
    fn joints_are_found_by_their_names() {
        assert_eq!(look(&["b", "c", "a"]), Ok((vec![2, 0], None)));
        let named = ["velocity.a", "position.b", "velocity.b", "effort.a", "position.a"];
        assert_eq!(look(&named), Ok((vec![4, 1], Some(vec![0, 2]))));
        // A velocity of one joint alone is none.
        assert_eq!(look(&["a", "b", "state.velocities.a"]), Ok((vec![0, 1], None)));
        assert_eq!(look(&["state.a", "state.b"]), Ok((vec![0, 1], None)));
        assert_eq!(
            look(&["a", "bb"]),
            Err("joint `b` is not among the `fields` (there: a, bb)".to_owned())
        );
        assert_eq!(
            look(&["velocity.a", "b"]),
            Err("joint `a` is not among the `fields` (there: velocity.a, b)".to_owned())
        );
        assert_eq!(
            look(&["wanted.a", "effort.a", "b"]),
            Err(
                "joint `a` may be `wanted.a` and `effort.a` of the `fields` (allowed: its name, or one that ends in \
                 `position.a`)"
                    .to_owned()
            )
        );
    }
}

//! Warnings about interpolation modes that give wrong values for joints or poses of `kinematics:`, such as `linear` for a
//! quaternion. The modes `previous` and `nearest`, which return a sample itself, get no warning.

use robocache::ops::align::{AlignConfig, ChannelGroupConfig, ModalityConfig};
use robocache::ops::kinematics::Product;
use robocache::time::{Interpolation, QuaternionOrder};

/// Range of the quaternion's channels in a pose, `[first, end]`.
const QUATERNION: [usize; 2] = [3, 7];

/// Finds modalities of `config` whose interpolation makes wrong values. Returns the key and the problem of each. `product_of`
/// returns what an input holds, such as poses, if `kinematics:` publishes the input.
pub fn warnings(config: &AlignConfig, product_of: impl Fn(&str) -> Option<Product>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (m, modality) in config.modalities.iter().enumerate() {
        let problem_of: fn(&str, &ChannelGroupConfig) -> Option<String> = match product_of(&modality.input) {
            Some(Product::Joints) => problem_of_joints,
            Some(Product::Pose) => problem_of_pose,
            Some(Product::Jacobian | Product::Twist) | None => continue,
        };
        for (at, group) in rules(modality) {
            let problem = problem_of(&modality.input, &group);
            found.extend(problem.map(|problem| (format!("modalities[{m}]{at}.interpolation"), problem)));
        }
    }
    found
}

/// Lists the channel groups of a modality, each with its key and the settings that it inherits. A modality without groups is
/// one group of all channels.
fn rules(modality: &ModalityConfig) -> Vec<(String, ChannelGroupConfig)> {
    let whole = ChannelGroupConfig {
        channels: [0, modality.dim],
        interpolation: modality.interpolation,
        order: modality.order,
        ..ChannelGroupConfig::default()
    };
    if modality.groups.is_empty() {
        return vec![(String::new(), whole)];
    }
    let of_group = |(g, group): (usize, &ChannelGroupConfig)| {
        let mut group = group.clone();
        group.interpolation = group.interpolation.or(modality.interpolation);
        group.order = group.order.or(modality.order);
        (format!(".groups[{g}]"), group)
    };
    modality.groups.iter().enumerate().map(of_group).collect()
}

/// The interpolation of a channel group; `None` if it is `previous` or `nearest`, which return a sample itself.
fn interpolating_mode(group: &ChannelGroupConfig) -> Option<Interpolation> {
    let takes_one = |mode: &Interpolation| matches!(mode, Interpolation::Previous | Interpolation::Nearest);
    group.interpolation.filter(|mode| !takes_one(mode))
}

fn problem_of_joints(input: &str, group: &ChannelGroupConfig) -> Option<String> {
    let mode = interpolating_mode(group)?.name();
    Some(format!(
        "`{mode}`, and `{input}` are joints that `make: joints` finds: where `branch` goes up the arm takes another posture, and joints \
         between the two reach no pose that came (allowed: previous, nearest)"
    ))
}

fn problem_of_pose(input: &str, group: &ChannelGroupConfig) -> Option<String> {
    let mode = interpolating_mode(group)?;
    let ([first, end], [from, to]) = (group.channels, QUATERNION);
    let is_slerp = mode == Interpolation::Slerp && group.order.unwrap_or_default() == QuaternionOrder::Xyzw;
    if end <= from || first >= to || is_slerp && group.channels == QUATERNION {
        return None;
    }
    let (mode, order) = match mode {
        Interpolation::Slerp if group.order == Some(QuaternionOrder::Wxyz) => (mode.name(), " in the order wxyz"),
        _ => (mode.name(), ""),
    };
    Some(format!(
        "`{mode}`{order} of the channels [{first}, {end}], and the channels [3, 7] of `{input}` are the quaternion x y z w, whose signs \
         change as w >= 0 (allowed: a group `channels: [3, 7], interpolation: slerp`; previous, nearest)"
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn found(modality: &str, product: Product) -> Vec<String> {
        let config = format!("rate_hz: 50\nmodalities: [{{ input: arm, {modality} }}]");
        let config: AlignConfig = serde_yaml::from_str(&config).unwrap();
        let found = warnings(&config, |input| (input == "arm").then_some(product));
        found
            .into_iter()
            .map(|(key, problem)| format!("{key}: {problem}"))
            .collect()
    }

    #[test]
    fn joints_are_taken_as_they_were_found() {
        let joints = |modality: &str| found(modality, Product::Joints);
        for mode in ["linear", "cubic", "pchip", "angle"] {
            let told = joints(&format!("dim: 6, interpolation: {mode}"));
            let wanted =
                format!("modalities[0].interpolation: `{mode}`, and `arm` are joints that `make: joints` finds");
            assert!(told.len() == 1 && told[0].starts_with(&wanted), "{told:?}");
        }
        let groups = "dim: 6, interpolation: previous, groups: [{ channels: [0, 5] }, { channels: [5, 6], interpolation: linear }]";
        let told = joints(groups);
        assert!(
            told.len() == 1 && told[0].starts_with("modalities[0].groups[1].interpolation: `linear`"),
            "{told:?}"
        );
        assert!(joints("dim: 6, interpolation: previous").is_empty());
        assert!(joints("dim: 6, interpolation: nearest").is_empty());
        assert!(found("dim: 6, interpolation: linear", Product::Twist).is_empty());
        let other = "rate_hz: 50\nmodalities: [{ input: arm, dim: 6, interpolation: linear }]";
        assert!(warnings(&serde_yaml::from_str(other).unwrap(), |_| None).is_empty());
    }

    #[test]
    fn a_quaternion_is_interpolated_as_one() {
        let pose = |modality: &str| found(&format!("dim: 7, {modality}"), Product::Pose);
        let groups = |of: &str| {
            pose(&format!(
                "groups: [{{ channels: [0, 3], interpolation: linear }}, {of}]"
            ))
        };
        for fine in [
            "{ channels: [3, 7], interpolation: slerp }",
            "{ channels: [3, 7], interpolation: slerp, order: xyzw }",
            "{ channels: [3, 7], interpolation: previous }",
        ] {
            assert_eq!(groups(fine), Vec::<String>::new());
        }
        let told = pose("interpolation: linear");
        let wanted = "modalities[0].interpolation: `linear` of the channels [0, 7], and the channels [3, 7] of `arm` are the quaternion";
        assert!(told.len() == 1 && told[0].starts_with(wanted), "{told:?}");
        for (of, wanted) in [
            (
                "{ channels: [3, 7], interpolation: cubic }",
                "`cubic` of the channels [3, 7]",
            ),
            (
                "{ channels: [3, 6], interpolation: rotvec }, { channels: [6, 7], interpolation: previous }",
                "`rotvec` of the channels [3, 6]",
            ),
            (
                "{ channels: [3, 7], interpolation: slerp, order: wxyz }",
                "`slerp` in the order wxyz of the channels [3, 7]",
            ),
        ] {
            let told = groups(of);
            let wanted = format!("modalities[0].groups[1].interpolation: {wanted}");
            assert!(told.len() == 1 && told[0].starts_with(&wanted), "{told:?}");
        }
    }
}

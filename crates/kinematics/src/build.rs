//! Building of a chain from the links and joints of a URDF. A value of the file that can't be used is an error with file, line
//! and joint; a value of the configuration is an error with its key. A doubtful value is used, and becomes a warning.

use crate::chain::{Chain, ChainConfig, Joint, JointKind, Link, MAX_JOINTS, Mimic, Segment};
use crate::error::ChainError;
use crate::limits::inwards;
use crate::urdf::{self, Urdf, UrdfJoint, UrdfOrigin};
use robocache_geometry::RigidTransform;
use robocache_geometry::polynomial::MAX_ANGLE;
use robocache_yaml::{did_you_mean, listed};
use std::collections::HashMap;

/// A moving joint of the chain, and its leader: the joint that it mimics. A joint that mimics none is its own leader.
struct Moving<'a> {
    joint: UrdfJoint<'a>,
    kind: JointKind,
    leader: UrdfJoint<'a>,
    mimic: Option<Mimic>,
}

/// Reads the chain that `config` chooses from `text`, the text of a URDF. Errors name the text `file`.
pub(crate) fn build(text: &str, file: &str, config: &ChainConfig) -> Result<Chain, ChainError> {
    let refused = |problem| ChainError::File {
        file: file.to_owned(),
        problem,
    };
    let document = urdf::parse(text, file)?;
    let urdf = Urdf::new(file, &document)?;
    let path = urdf.path(&config.base, &config.tip)?;
    let moving = moving(&path)?;
    if !(1..=MAX_JOINTS).contains(&moving.len()) {
        let (base, tip, count) = (&config.base, &config.tip, moving.len());
        return Err(refused(format!(
            "{count} joints move between `{base}` and `{tip}` (allowed: 1 to {MAX_JOINTS}; choose another `base` or `tip`)"
        )));
    }
    let moving = moving
        .into_iter()
        .map(|(joint, kind)| follow(&urdf, joint, kind))
        .collect::<Result<Vec<_>, _>>()?;
    let order = order(&moving, config).map_err(refused)?;
    let mut warnings = Vec::new();
    let joints = order
        .iter()
        .map(|leader| joint(leader, config, &mut warnings))
        .collect::<Result<Vec<_>, _>>()?;
    check_names_of_limits(config, &joints).map_err(refused)?;
    for moving in &moving {
        warn_mimic(moving, &joints, &mut warnings)?;
    }
    let mut chain = Chain {
        segments: Vec::with_capacity(moving.len()),
        tip: RigidTransform::identity(),
        links: Vec::with_capacity(path.len() + 1),
        joints,
        warnings,
    };
    let open = add_frames(&mut chain, &config.base, &path, &moving)?;
    chain.tip = tip(open, config).map_err(refused)?;
    Ok(chain)
}

/// Lists the moving joints of a path, with the motion of each.
fn moving<'a>(path: &[UrdfJoint<'a>]) -> Result<Vec<(UrdfJoint<'a>, JointKind)>, ChainError> {
    let mut moving = Vec::new();
    for joint in path {
        if let Some(kind) = joint.kind()? {
            moving.push((*joint, kind));
        }
    }
    Ok(moving)
}

/// Adds the segments and links of a path to a chain. Returns the product of the constant transforms after the last
/// moving joint.
fn add_frames(
    chain: &mut Chain,
    base: &str,
    path: &[UrdfJoint<'_>],
    moving: &[Moving<'_>],
) -> Result<PendingTransform, ChainError> {
    let names = chain.joints.iter().map(|joint| joint.name.clone());
    let index: HashMap<String, usize> = names.zip(0..).collect();
    let mut moving = moving.iter().peekable();
    let mut open = PendingTransform::default();
    add_link(chain, base, &open);
    for joint in path {
        let origin = joint.origin()?;
        warn_units(joint, &origin, &mut chain.warnings);
        open.append(&origin.transform());
        if let Some(moving) = moving.next_if(|moving| moving.joint.name == joint.name) {
            let (axis, length) = joint.axis()?;
            if (length - 1.0).abs() > AXIS_TOLERANCE {
                let warning = format!("its axis has length {length}, and is taken as one of length 1");
                chain.warnings.push(joint.warning(&warning));
            }
            let turned = turned_to_z(axis);
            open.append(&turned);
            chain.segments.push(Segment {
                frame: open.take(),
                kind: moving.kind,
                joint: index[moving.leader.name],
                mimic: moving.mimic,
            });
            open.append(&turned.inverse());
        }
        add_link(chain, joint.child, &open);
    }
    Ok(open)
}

/// Warns if the origin of a joint may be in millimetres or degrees.
fn warn_units(joint: &UrdfJoint<'_>, origin: &UrdfOrigin, warnings: &mut Vec<String>) {
    let is_beyond = |values: [f64; 3], most| values.iter().any(|value| value.abs() > most);
    if is_beyond(origin.translation, FAR) {
        let [x, y, z] = origin.translation;
        warnings.push(joint.warning(&format!(
            "origin xyz {x} {y} {z} is more than {FAR} m away: are they millimetres? They are to be metres"
        )));
    }
    if is_beyond(origin.angles, TWO_TURNS) {
        let [r, p, y] = origin.angles;
        warnings.push(joint.warning(&format!(
            "origin rpy {r} {p} {y} is more than two turns: are they degrees? They are to be radians"
        )));
    }
}

/// Largest difference of an axis' length from 1 without a warning.
const AXIS_TOLERANCE: f64 = 1e-3;

fn add_link(chain: &mut Chain, name: &str, open: &PendingTransform) {
    chain.links.push(Link {
        name: name.to_owned(),
        segments: chain.segments.len(),
        frame: open.transform(),
    });
}

/// Returns the frame of the tip, or of the tool if there is one, relative to the frame that the last segment moves.
fn tip(mut open: PendingTransform, config: &ChainConfig) -> Result<RigidTransform<f64>, String> {
    if let Some(tool) = &config.tool {
        let mut numbers = tool.rotation.as_flattened().iter().chain(&tool.translation);
        if !numbers.all(|x| x.is_finite()) {
            return Err("a tool whose pose is not finite (allowed: finite numbers)".to_owned());
        }
        if let Some(far) = tool.translation.iter().find(|x| x.abs() > urdf::MAX_DISTANCE) {
            let most = urdf::MAX_DISTANCE;
            return Err(format!("a tool at {far:e} m (allowed: -{most:e} to {most:e})"));
        }
        open.append(tool);
    }
    Ok(open.take())
}

/// Checks that each name in the configuration's `limits` is that of a joint.
fn check_names_of_limits(config: &ChainConfig, joints: &[Joint]) -> Result<(), String> {
    let names: Vec<_> = joints.iter().map(|joint| &joint.name).collect();
    match config.limits.keys().find(|name| !names.contains(name)) {
        Some(name) => {
            let (hint, allowed) = (did_you_mean(name, &names), listed(&names));
            Err(format!("`limits` names `{name}`{hint} (allowed: {allowed})"))
        }
        None => Ok(()),
    }
}

/// Product of the constant transforms since the last moving joint; `None` if there is none yet.
#[derive(Default)]
struct PendingTransform(Option<RigidTransform<f64>>);

impl PendingTransform {
    /// Multiplies the product by a transform from the right. The first transform becomes the product as it is, without a
    /// multiplication by the identity.
    fn append(&mut self, next: &RigidTransform<f64>) {
        self.0 = Some(match &self.0 {
            Some(product) => product.compose(next),
            None => *next,
        });
    }

    fn transform(&self) -> RigidTransform<f64> {
        self.0.unwrap_or_else(RigidTransform::identity)
    }

    fn take(&mut self) -> RigidTransform<f64> {
        let transform = self.transform();
        self.0 = None;
        transform
    }
}

/// Follows a joint's mimics to its leader, the joint whose value is given. A mimic of a mimic becomes a mimic of the leader.
fn follow<'a>(urdf: &Urdf<'a>, joint: UrdfJoint<'a>, kind: JointKind) -> Result<Moving<'a>, ChainError> {
    let mut whole: Option<Mimic> = None;
    let mut at = joint;
    let mut steps = 0;
    while let Some(mimic) = at.mimic()? {
        steps += 1;
        let Some(leader) = urdf.joint(mimic.leader) else {
            return Err(at.error(format!(
                "it mimics `{}`, which is not a joint of the file (needed: a joint of this name)",
                mimic.leader
            )));
        };
        if leader.kind()?.is_none() {
            return Err(at.error(format!(
                "it mimics `{}`, which is fixed (allowed: a joint that moves)",
                mimic.leader
            )));
        }
        if steps > urdf.joints() {
            return Err(joint.error(format!(
                "the mimics that it follows form a circle, in which `{}` lies (needed: a leader without a <mimic>)",
                leader.name
            )));
        }
        let multiplier = whole.map_or(1.0, |mimic| mimic.multiplier);
        whole = Some(Mimic {
            multiplier: multiplier * mimic.multiplier,
            offset: multiplier * mimic.offset + whole.map_or(0.0, |mimic| mimic.offset),
        });
        at = leader;
    }
    if let Some(mimic) = whole
        && !(mimic.multiplier.abs() <= MAX_MULTIPLIER && mimic.offset.is_finite())
    {
        return Err(joint.error(format!(
            "it follows with the multiplier {:e} (allowed: -{MAX_MULTIPLIER:e} to {MAX_MULTIPLIER:e}, with those of mimics between)",
            mimic.multiplier
        )));
    }
    Ok(Moving {
        joint,
        kind,
        leader: at,
        mimic: whole,
    })
}

/// Largest distance by which a mimic may exceed its limits without a warning, radians or metres: numbers in files are rounded.
const ROUNDING: f64 = 1e-6;

/// Warns if a joint that mimics can exceed its own limits while its leader is within the leader's limits. Limits of mimics are
/// not enforced.
fn warn_mimic(moving: &Moving<'_>, joints: &[Joint], warnings: &mut Vec<String>) -> Result<(), ChainError> {
    let leader = joints.iter().find(|joint| joint.name == moving.leader.name);
    let (Some(mimic), Some(leader), false) = (moving.mimic, leader, moving.kind == JointKind::Continuous) else {
        return Ok(());
    };
    let Some(limits) = moving.joint.limits()? else {
        return Ok(());
    };
    let ends = leader.limits.map(|limit| mimic.multiplier * limit + mimic.offset);
    let [lowest, highest] = [ends[0].min(ends[1]), ends[0].max(ends[1])];
    let [lower, upper] = limits.range;
    if lowest < lower - ROUNDING || highest > upper + ROUNDING {
        let name = &leader.name;
        let hint = match leader.kind {
            JointKind::Continuous => String::new(),
            JointKind::Revolute | JointKind::Prismatic => format!(" (narrow those of `{name}` by `limits`)"),
        };
        warnings.push(moving.joint.warning(&format!(
            "limits of mimics are not kept: those of `{name}` lead it to {lowest} and {highest}, its own are {lower} and {upper}{hint}"
        )));
    }
    Ok(())
}

/// Returns the joints that have a value in each row of joint values, in the order of the configuration's `joints`, or from the
/// base on without `joints`. A leader outside the chain is refused unless `joints` names it.
fn order<'a>(moving: &[Moving<'a>], config: &ChainConfig) -> Result<Vec<UrdfJoint<'a>>, String> {
    let mut found: Vec<UrdfJoint<'a>> = Vec::new();
    let own = moving.iter().filter(|moving| moving.mimic.is_none());
    let followers = moving.iter().filter(|moving| moving.mimic.is_some());
    for Moving { leader, .. } in own.clone().chain(followers) {
        if !found.iter().any(|joint| joint.name == leader.name) {
            found.push(*leader);
        }
    }
    let names: Vec<_> = found.iter().map(|joint| joint.name).collect();
    let Some(wanted) = &config.joints else {
        return match found.get(own.count()) {
            Some(outside) => Err(format!(
                "joint `{}` does not lie between `{}` and `{}`, but mimics there follow it: name the joints (`joints`: {})",
                outside.name,
                config.base,
                config.tip,
                listed(&names)
            )),
            None => Ok(found),
        };
    };
    let mut ordered = Vec::new();
    for (i, name) in wanted.iter().enumerate() {
        let Some(at) = found.iter().position(|joint| joint.name == name.as_str()) else {
            let (hint, allowed) = (did_you_mean(name, &names), listed(&names));
            return Err(format!(
                "`joints` names `{name}`, which does not move the tip{hint} (allowed: {allowed})"
            ));
        };
        if wanted[..i].contains(name) {
            return Err(format!("`joints` names `{name}` twice (allowed: once)"));
        }
        ordered.push(found[at]);
    }
    match names.iter().find(|name| !wanted.iter().any(|other| other == *name)) {
        Some(missing) => Err(format!("`joints` lacks `{missing}` (needed: {})", listed(&names))),
        None => Ok(ordered),
    }
}

/// Two turns, radians. Larger limits of a revolute joint, or larger angles of an origin, may be in degrees and give a warning.
const TWO_TURNS: f64 = 12.6;

/// Largest coordinate of an origin without a warning, metres: a larger one may be in millimetres.
const FAR: f64 = 100.0;

/// Largest multiplier of a mimic. This bound keeps results far from the ends of float32.
const MAX_MULTIPLIER: f64 = 1e6;

/// Makes a [`Joint`] from a joint of the URDF. Checks its limits, and adds warnings about doubtful ones.
fn joint(joint: &UrdfJoint<'_>, config: &ChainConfig, warnings: &mut Vec<String>) -> Result<Joint, ChainError> {
    let mut tell = |text: String| warnings.push(joint.warning(&text));
    let configured = config.limits.get(joint.name).copied();
    let kind = match joint.kind()? {
        Some(kind) => kind,
        None => return Err(joint.error("it is fixed")),
    };
    let mut only = None;
    let limits = match (kind, configured) {
        (JointKind::Continuous, Some(_)) => {
            return Err(joint.error("`limits` of a continuous joint (allowed: none)"));
        }
        (JointKind::Continuous, None) => {
            if joint.limits()?.is_some() {
                tell("limits of a continuous joint are ignored".to_owned());
            }
            [-MAX_ANGLE, MAX_ANGLE]
        }
        (_, Some(limits)) => limits,
        (_, None) => {
            let limits = joint.limits()?.ok_or_else(|| {
                joint.error("no limits (needed: <limit lower=\"...\" upper=\"...\">, or `limits` of the configuration)")
            })?;
            only = limits.only;
            limits.range
        }
    };
    let [lower, upper] = limits;
    let is_range = lower < upper;
    if !is_range {
        return Err(joint.error(format!(
            "limits {lower} and {upper} (allowed: a lower one and then a higher one; `limits` of the configuration take their place)"
        )));
    }
    if !(lower < MAX_ANGLE && upper > -MAX_ANGLE) {
        return Err(joint.error(format!(
            "limits {lower} and {upper} (allowed: within -{MAX_ANGLE} and {MAX_ANGLE})"
        )));
    }
    if let Some(given) = only {
        tell(format!(
            "only its `{given}` limit is given, and the other is taken as 0"
        ));
    }
    let limits = [lower.max(-MAX_ANGLE), upper.min(MAX_ANGLE)];
    if limits != [lower, upper] {
        let [lowest, highest] = limits;
        tell(format!(
            "limits {} and {} are brought to {lowest} and {highest}, as poses are computed for",
            short(lower),
            short(upper)
        ));
    } else if kind == JointKind::Revolute && (lower < -TWO_TURNS || upper > TWO_TURNS) {
        tell(format!(
            "limits {lower} and {upper} are more than two turns: are they degrees? They are to be radians"
        ));
    }
    let [lowest, highest] = inwards::<f32>(limits);
    if lowest > highest {
        return Err(joint.error(format!(
            "no float32 lies between its limits {lower} and {upper} (needed: limits further apart)"
        )));
    }
    Ok(Joint {
        name: joint.name.to_owned(),
        kind,
        limits,
    })
}

/// Formats a number, a large one with an exponent.
fn short(number: f64) -> String {
    match number.abs() < 1e10 {
        true => number.to_string(),
        false => format!("{number:e}"),
    }
}

/// Returns a rotation that turns the z axis to a unit vector, after Duff et al., Building an orthonormal basis, revisited,
/// Journal of Computer Graphics Techniques 6(1), 2017. The rotation is exact for axes along a coordinate.
fn turned_to_z([x, y, z]: [f64; 3]) -> RigidTransform<f64> {
    let sign = if z < 0.0 { -1.0 } else { 1.0 };
    let scale = -1.0 / (sign + z);
    let product = (x * y) * scale;
    RigidTransform {
        rotation: [
            [1.0 + sign * ((x * x) * scale), product, x],
            [sign * product, sign + (y * y) * scale, y],
            [-sign * x, -y, z],
        ],
        translation: [0.0; 3],
    }
}

//! Checked entry of the section `kinematics:`, with the shapes, value names and coordinate frames of its products.

use super::{KinematicsEntry, Product};
use crate::{ConfigError, check_from, refused};
use robocache_kinematics::{Chain, Frame, Joint, JointKind};
use robocache_stream::{FromConfig, Selection};
use robocache_yaml::{did_you_mean, listed};
use std::f64::consts::TAU;

/// Names of a pose's values, as in the type `std/math/v1/Pose`.
const POSE: [&str; 7] = [
    "position.x",
    "position.y",
    "position.z",
    "orientation.x",
    "orientation.y",
    "orientation.z",
    "orientation.w",
];
/// Names of a twist's values, as in the type `std/control/v1/Twist`.
const TWIST: [&str; 6] = [
    "linear.x",
    "linear.y",
    "linear.z",
    "angular.x",
    "angular.y",
    "angular.z",
];

const POSE_VALUES: usize = POSE.len();
const TWIST_VALUES: usize = TWIST.len();

/// A checked entry of the section `kinematics:`, with values derived from it and its chain.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub products: Vec<Product>,
    /// Names of the joints, in the order of the chain.
    pub joints: Vec<String>,
    pub limits: Vec<[f64; 2]>,
    /// Plausible range of each joint's value: its limits, widened by a full turn on either side. The range of a continuous or
    /// prismatic joint is infinite.
    pub plausible: Vec<[f64; 2]>,
    pub frame: Frame,
    pub selection: Selection,
    pub channels: Option<Channels>,
    /// Name of the chain's base link, in whose frame poses are given.
    pub base: String,
}

/// Range `first..end` of each sample's values that is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Channels {
    pub first: usize,
    pub end: usize,
}

impl Spec {
    /// Checks an entry against its chain. Errors name the entry by `at`, its index in the list `kinematics:`.
    pub(super) fn new(entry: &KinematicsEntry, at: usize, chain: &Chain) -> Result<Self, ConfigError> {
        let at = format!("[{at}]");
        if entry.input.is_empty() {
            return refused(format!("{at}.input"), "it is empty (allowed: the name of an input)");
        }
        check_products(entry).map_err(|problem| ConfigError::new(format!("{at}.make"), problem))?;
        let makes = |product| entry.make.contains(&product);
        let is_inverse = makes(Product::Joints);
        if entry.frame.is_some() && !makes(Product::Jacobian) && !makes(Product::Twist) {
            let problem = "no product of the entry uses it (allowed with: jacobian, twist)";
            return refused(format!("{at}.frame"), problem);
        }
        if entry.inverse.is_some() && !is_inverse {
            let problem = "no product of the entry uses it (allowed with: joints)";
            return refused(format!("{at}.inverse"), problem);
        }
        let joints: Vec<String> = chain.joints().iter().map(|joint| joint.name.clone()).collect();
        let from = entry.from.clone();
        let width = if is_inverse { POSE_VALUES } else { joints.len() };
        check_from(&at, from.as_ref(), Some(width_of(from.as_ref()).unwrap_or(width)))?;
        let has_twist = makes(Product::Twist);
        let widths = [width, if has_twist { 2 * width } else { width }];
        let channels = entry.channels.map(|channels| Channels::new(channels, widths));
        let channels = channels.transpose();
        let channels = channels.map_err(|problem| ConfigError::new(format!("{at}.channels"), problem))?;
        if let (None, false, Some(names)) = (channels, is_inverse, from.as_ref().and_then(|from| from.names.as_ref()))
            && let Some(joint) = joints.iter().find(|joint| !names.order.contains(joint))
        {
            let (hint, there) = (did_you_mean(joint, &names.order), listed(&names.order));
            let problem = format!("the joint `{joint}` of the chain is not there{hint} (there: {there})");
            return refused(format!("{at}.from.names.order"), problem);
        }
        let selection = match (channels, is_inverse) {
            (Some(_), _) => Selection::named_samples(from),
            (None, true) => Selection::samples(POSE_VALUES, from),
            (None, false) => Selection::joints(joints.clone(), has_twist, from),
        };
        Ok(Self {
            products: entry.make.clone(),
            frame: entry.frame.unwrap_or_default(),
            limits: chain.joints().iter().map(|joint| joint.limits).collect(),
            plausible: chain.joints().iter().map(plausible).collect(),
            base: chain.links().next().unwrap_or_default().to_owned(),
            selection,
            channels,
            joints,
        })
    }

    /// Returns the shape of one row of `product`, such as 7 values for a pose.
    pub(super) fn shape(&self, product: Product) -> &'static [Side] {
        match product {
            Product::Pose => &[Side::Length(POSE_VALUES)],
            Product::Jacobian => &[Side::Length(TWIST_VALUES), Side::Joints],
            Product::Twist => &[Side::Length(TWIST_VALUES)],
            Product::Joints => &[Side::Joints],
        }
    }

    pub(super) fn length(&self, side: Side) -> usize {
        match side {
            Side::Length(length) => length,
            Side::Joints => self.joints.len(),
        }
    }

    /// Returns the number of values in one row of `product`, such as 7 for a pose.
    pub(super) fn width(&self, product: Product) -> usize {
        self.shape(product).iter().map(|&side| self.length(side)).product()
    }

    /// Returns the names of the values along the last axis of `product`.
    pub(super) fn fields(&self, product: Product) -> Fields<'_> {
        match product {
            Product::Pose => Fields::Fixed(&POSE),
            Product::Twist => Fields::Fixed(&TWIST),
            Product::Jacobian | Product::Joints => Fields::Joints(&self.joints),
        }
    }

    /// Returns the name of the coordinate frame of `product`. `None` for joints, which have no frame, and in the tool's axes,
    /// which have no name.
    pub(super) fn frame_id(&self, product: Product) -> Option<&str> {
        match (product, self.frame) {
            (Product::Joints, _) | (Product::Jacobian | Product::Twist, Frame::Tool) => None,
            _ => Some(&self.base),
        }
    }
}

impl Channels {
    /// Checks that the range `first..end` has one of the two `widths`: number of values without and with velocities.
    fn new([first, end]: [usize; 2], widths: [usize; 2]) -> Result<Self, String> {
        if widths.contains(&end.saturating_sub(first)) {
            return Ok(Self { first, end });
        }
        let allowed = match widths {
            [one, other] if one == other => format!("{one} values"),
            [one, other] => format!("{one} values, or {other} with velocities"),
        };
        Err(format!("[{first}, {end}] (allowed: [first, end] of {allowed})"))
    }
}

/// Length of one axis in the shape of a pose, Jacobian, twist or row of joints: a fixed length, or the number of joints.
#[derive(Clone, Copy, Debug)]
pub(super) enum Side {
    Length(usize),
    Joints,
}

/// Names of the values along the last axis of a pose, Jacobian, twist or row of joints: fixed names, or the names of
/// the joints.
pub(super) enum Fields<'a> {
    Fixed(&'static [&'static str]),
    Joints(&'a [String]),
}

/// Returns the plausible range of a joint's value, radians: its limits, widened by a full turn on either side. The range of a
/// continuous or prismatic joint is infinite.
fn plausible(joint: &Joint) -> [f64; 2] {
    match joint.kind {
        JointKind::Revolute => [joint.limits[0] - TAU, joint.limits[1] + TAU],
        JointKind::Continuous | JointKind::Prismatic => [f64::NEG_INFINITY, f64::INFINITY],
    }
}

/// Returns the number of values that `from` selects by name from each sample; `None` if it selects none by name.
fn width_of(from: Option<&FromConfig>) -> Option<usize> {
    let from = from?;
    let names = from.names.as_ref()?;
    Some(names.order.len() * from.columns.len())
}

fn check_products(entry: &KinematicsEntry) -> Result<(), String> {
    const ALLOWED: &str = "allowed: `joints`, or any of `pose`, `jacobian`, `twist`";
    let products = &entry.make;
    if products.is_empty() {
        return Err(format!("it is empty ({ALLOWED})"));
    }
    if let Some(i) = (0..products.len()).find(|&i| products[..i].contains(&products[i])) {
        return Err(format!("`{}` is listed twice (allowed: once)", products[i].name()));
    }
    match products.len() > 1 && products.contains(&Product::Joints) {
        true => Err(format!(
            "`joints` are found for poses, and the other products are computed from joints ({ALLOWED})"
        )),
        false => Ok(()),
    }
}

/// Checks the prefix of the names of an entry's outputs. An error has the key that gives the prefix, `name` or `chain`, and a
/// description of the problem.
pub(super) fn check_name(entry: &KinematicsEntry) -> Result<(), (&'static str, String)> {
    let name = entry.own_name();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !name.is_empty() && name.chars().all(is_name) {
        return Ok(());
    }
    const ALLOWED: &str = "allowed: letters a to z, digits, `_` and `-`";
    Err(match entry.name {
        Some(_) => ("name", format!("`{name}` is not a name ({ALLOWED})")),
        None => (
            "chain",
            format!("`{name}` can't be the prefix of an output's name ({ALLOWED}; or set `name`)"),
        ),
    })
}

//! The links and joints of a URDF file, checked as far as a chain needs them.

use crate::chain::JointKind;
use crate::error::ChainError;
use robocache_geometry::RigidTransform;
use robocache_geometry::polynomial::{MAX_ANGLE, sin_cos};
use robocache_yaml::did_you_mean;
use roxmltree::{Document, Node, ParsingOptions};
use std::collections::{HashMap, HashSet};

/// Largest size of a URDF that is read, bytes.
pub(crate) const MAX_BYTES: usize = 16 << 20;
/// Largest number of elements, texts and comments in a URDF.
const MAX_NODES: u32 = 1 << 20;
/// Largest coordinate of an origin or of a tool, metres.
pub(crate) const MAX_DISTANCE: f64 = 1e6;
/// Smallest length of an axis that has a direction, and largest length whose square is finite in float64.
const AXIS_LENGTHS: [f64; 2] = [1e-6, 1e150];

/// Parses the text of a URDF; errors name it `file`. A text that is too long, or has too many elements, is refused.
pub(crate) fn parse<'a>(text: &'a str, file: &str) -> Result<Document<'a>, ChainError> {
    if text.len() > MAX_BYTES {
        return Err(refused(
            file,
            format!("{} bytes (allowed: up to {MAX_BYTES})", text.len()),
        ));
    }
    let options = ParsingOptions {
        nodes_limit: MAX_NODES,
        ..ParsingOptions::default()
    };
    Document::parse_with_options(text, options).map_err(|error| match error {
        roxmltree::Error::DtdDetected => refused(
            file,
            "it has a DTD (allowed: XML without <!DOCTYPE ...>; entities are not read)",
        ),
        roxmltree::Error::NodesLimitReached => refused(file, format!("more than {MAX_NODES} elements and texts")),
        roxmltree::Error::UnknownNamespace(prefix, at) if prefix == "xacro" => ChainError::Element {
            file: file.to_owned(),
            line: at.row,
            problem: XACRO.to_owned(),
        },
        error => refused(file, format!("not XML: {error} (needed: a URDF)")),
    })
}

const XACRO: &str = "it is a xacro file (expand it first: xacro FILE > robot.urdf)";

fn refused(file: &str, problem: impl Into<String>) -> ChainError {
    ChainError::File {
        file: file.to_owned(),
        problem: problem.into(),
    }
}

/// Links and joints of a URDF. Each joint has a unique name, a parent link and a child link. Each link has at most one
/// parent joint.
pub(crate) struct Urdf<'a> {
    file: &'a str,
    document: &'a Document<'a>,
    links: Vec<&'a str>,
    joints: HashMap<&'a str, UrdfJoint<'a>>,
    /// Parent joint of each link, by the name of the link.
    above: HashMap<&'a str, UrdfJoint<'a>>,
}

/// A joint of a URDF. Its numbers are read only when they are needed: joints outside the chain may lack them.
#[derive(Clone, Copy)]
pub(crate) struct UrdfJoint<'a> {
    file: &'a str,
    document: &'a Document<'a>,
    node: Node<'a, 'a>,
    /// Name of the joint in the URDF.
    pub name: &'a str,
    /// Name of the parent link.
    pub parent: &'a str,
    /// Name of the child link, which the joint moves.
    pub child: &'a str,
}

/// Limits of a joint in the URDF, radians or metres.
pub(crate) struct UrdfLimits {
    /// Lower and upper limit of the joint, radians or metres; 0 for a limit that the file does not give.
    pub range: [f64; 2],
    /// Name of the limit, `lower` or `upper`, if the file gives only one; `None` if it gives both.
    pub only: Option<&'static str>,
}

/// Rule of a joint that mimics another: `multiplier` times the value of `leader`, plus `offset`, radians or metres.
pub(crate) struct UrdfMimic<'a> {
    pub leader: &'a str,
    pub multiplier: f64,
    pub offset: f64,
}

/// Frame of a joint in its parent's frame: `xyz`, metres, and `rpy`, radians.
pub(crate) struct UrdfOrigin {
    pub translation: [f64; 3],
    pub angles: [f64; 3],
}

impl UrdfOrigin {
    /// Computes the transform: the rotation Rz Ry Rx by the angles, and the translation.
    pub fn transform(&self) -> RigidTransform<f64> {
        let [(sr, cr), (sp, cp), (sy, cy)] = self.angles.map(sin_cos);
        RigidTransform {
            rotation: [
                [cy * cp, (cy * sp) * sr - sy * cr, (cy * sp) * cr + sy * sr],
                [sy * cp, (sy * sp) * sr + cy * cr, (sy * sp) * cr - cy * sr],
                [-sp, cp * sr, cp * cr],
            ],
            translation: self.translation,
        }
    }
}

impl<'a> Urdf<'a> {
    /// Finds the links and joints of a parsed URDF, which are the direct children of `robot`.
    pub fn new(file: &'a str, document: &'a Document<'a>) -> Result<Self, ChainError> {
        let root = document.root_element();
        let mut urdf = Self {
            file,
            document,
            links: Vec::new(),
            joints: HashMap::new(),
            above: HashMap::new(),
        };
        if root.tag_name().name() != "robot" {
            let name = root.tag_name().name();
            return Err(urdf.error(root, format!("the first element is <{name}> (allowed: <robot>)")));
        }
        let mut known = HashSet::new();
        for element in root.children().filter(Node::is_element) {
            if element.tag_name().namespace().is_some_and(|uri| uri.contains("xacro")) {
                return Err(urdf.error(element, XACRO));
            }
            if element.has_tag_name("link") {
                let name = urdf.name_of(element)?;
                if !known.insert(name) {
                    return Err(urdf.error(element, format!("a second link `{name}` (allowed: each name once)")));
                }
                urdf.links.push(name);
            }
        }
        for element in root.children().filter(|child| child.has_tag_name("joint")) {
            urdf.add(element, &known)?;
        }
        Ok(urdf)
    }

    fn add(&mut self, node: Node<'a, 'a>, links: &HashSet<&str>) -> Result<(), ChainError> {
        let mut joint = UrdfJoint {
            file: self.file,
            document: self.document,
            node,
            name: self.name_of(node)?,
            parent: "",
            child: "",
        };
        joint.parent = joint.link("parent", links)?;
        joint.child = joint.link("child", links)?;
        if self.joints.insert(joint.name, joint).is_some() {
            return Err(joint.error("a second joint of this name (allowed: each name once)"));
        }
        match self.above.insert(joint.child, joint) {
            Some(other) => Err(joint.error(format!(
                "link `{}` is the child of joint `{}`, too (allowed: one parent)",
                joint.child, other.name
            ))),
            None => Ok(()),
        }
    }

    fn name_of(&self, element: Node<'a, 'a>) -> Result<&'a str, ChainError> {
        let name = element.attribute("name").filter(|name| !name.is_empty());
        name.ok_or_else(|| {
            let tag = element.tag_name().name();
            self.error(element, format!("a <{tag}> without a name (needed: name=\"...\")"))
        })
    }

    fn error(&self, element: Node<'_, '_>, problem: impl Into<String>) -> ChainError {
        ChainError::Element {
            file: self.file.to_owned(),
            line: line(self.document, element),
            problem: problem.into(),
        }
    }

    /// Number of joints in the file.
    pub fn joints(&self) -> usize {
        self.joints.len()
    }

    /// Finds a joint by its name; `None` if the file does not have it.
    pub fn joint(&self, name: &str) -> Option<UrdfJoint<'a>> {
        self.joints.get(name).copied()
    }

    /// Lists the joints from the link `base` down to the link `tip`, in this order.
    pub fn path(&self, base: &str, tip: &str) -> Result<Vec<UrdfJoint<'a>>, ChainError> {
        for link in [base, tip] {
            if !self.links.contains(&link) {
                let hint = did_you_mean(link, &self.links);
                return Err(refused(
                    self.file,
                    format!("no link `{link}`{hint} (allowed as `base` and `tip`: links of the file)"),
                ));
            }
        }
        let mut path = Vec::new();
        let mut link = tip;
        while link != base {
            let Some(&joint) = self.above.get(link) else {
                return Err(refused(
                    self.file,
                    format!(
                        "link `{tip}` does not lie below `{base}`: the topmost link above it is `{link}` (needed: a `base` above the `tip`)"
                    ),
                ));
            };
            if path.len() == self.joints.len() {
                return Err(joint.error(format!("the joints above `{tip}` form a circle (allowed: a tree)")));
            }
            path.push(joint);
            link = joint.parent;
        }
        self.check_circle(base)?;
        path.reverse();
        Ok(path)
    }

    /// Checks that the joints above a link do not form a cycle that leads back to the link.
    fn check_circle(&self, link: &str) -> Result<(), ChainError> {
        let mut above = self.above.get(link);
        for _ in 0..self.joints.len() {
            match above {
                Some(joint) if joint.parent == link => {
                    return Err(joint.error(format!("the joints above `{link}` form a circle (allowed: a tree)")));
                }
                Some(joint) => above = self.above.get(joint.parent),
                None => break,
            }
        }
        Ok(())
    }
}

impl<'a> UrdfJoint<'a> {
    /// Makes an error that names the file, the line and the joint.
    pub fn error(&self, problem: impl Into<String>) -> ChainError {
        ChainError::Joint {
            file: self.file.to_owned(),
            line: line(self.document, self.node),
            joint: self.name.to_owned(),
            problem: problem.into(),
        }
    }

    /// Formats a warning about the joint, with its file and line.
    pub fn warning(&self, text: &str) -> String {
        self.error(text).to_string()
    }

    /// Returns a child element of the joint; `None` if there is none. A second element of the same name is refused.
    fn element(&self, name: &str) -> Result<Option<Node<'a, 'a>>, ChainError> {
        let mut elements = self.node.children().filter(|child| child.has_tag_name(name));
        let element = elements.next();
        match elements.next() {
            Some(_) => Err(self.error(format!("a second <{name}> (allowed: one)"))),
            None => Ok(element),
        }
    }

    fn attribute(&self, element: &str, name: &str) -> Result<Option<&'a str>, ChainError> {
        Ok(self.element(element)?.and_then(|element| element.attribute(name)))
    }

    /// Checks that a child element has only the attributes `allowed`: any other attribute could change the chain, and is
    /// not read.
    fn expect_attributes(&self, element: &str, allowed: &[&str]) -> Result<(), ChainError> {
        let Some(node) = self.element(element)? else {
            return Ok(());
        };
        match node.attributes().find(|given| !allowed.contains(&given.name())) {
            Some(other) => Err(self.error(format!(
                "{element} {} `{}` (allowed: {})",
                other.name(),
                other.value(),
                allowed.join(", ")
            ))),
            None => Ok(()),
        }
    }

    fn link(&self, element: &str, links: &HashSet<&str>) -> Result<&'a str, ChainError> {
        let Some(name) = self.attribute(element, "link")? else {
            return Err(self.error(format!("no <{element} link=\"...\">")));
        };
        match links.contains(name) {
            true => Ok(name),
            false => Err(self.error(format!(
                "its {element} `{name}` is not a link of the file (needed: a <link> of this name)"
            ))),
        }
    }

    /// Reads the motion that the joint allows; `None` if the joint is fixed.
    pub fn kind(&self) -> Result<Option<JointKind>, ChainError> {
        match self.node.attribute("type") {
            Some("fixed") => Ok(None),
            Some("revolute") => Ok(Some(JointKind::Revolute)),
            Some("continuous") => Ok(Some(JointKind::Continuous)),
            Some("prismatic") => Ok(Some(JointKind::Prismatic)),
            other => Err(self.error(format!(
                "type `{}` (allowed in a chain: fixed, revolute, continuous, prismatic)",
                other.unwrap_or_default()
            ))),
        }
    }

    /// Reads the numbers of a child element's attribute. A magnitude above `most` is refused. Returns `otherwise` if the
    /// element or the attribute is absent.
    fn numbers<const N: usize>(
        &self,
        element: &str,
        attribute: &str,
        most: f64,
        otherwise: [f64; N],
    ) -> Result<[f64; N], ChainError> {
        let Some(text) = self.attribute(element, attribute)? else {
            return Ok(otherwise);
        };
        let wrong = |allowed: String| self.error(format!("{element} {attribute} `{text}` (allowed: {allowed})"));
        let count = || match N {
            1 => wrong("a number".to_owned()),
            _ => wrong(format!("{N} numbers")),
        };
        let mut words = text.split_ascii_whitespace();
        let mut values = [0.0; N];
        for value in &mut values {
            let word = words.next().and_then(|word| word.parse::<f64>().ok());
            *value = word.ok_or_else(count)?;
            if !value.is_finite() {
                return Err(wrong("finite numbers".to_owned()));
            }
            if value.abs() > most {
                return Err(wrong(format!("up to {most:e}")));
            }
        }
        match words.next() {
            Some(_) => Err(count()),
            None => Ok(values),
        }
    }

    fn number(&self, element: &str, attribute: &str, otherwise: f64) -> Result<f64, ChainError> {
        self.numbers(element, attribute, f64::MAX, [otherwise])
            .map(|[value]| value)
    }

    /// Reads the frame of the joint in its parent's frame.
    pub fn origin(&self) -> Result<UrdfOrigin, ChainError> {
        self.expect_attributes("origin", &["xyz", "rpy"])?;
        Ok(UrdfOrigin {
            translation: self.numbers("origin", "xyz", MAX_DISTANCE, [0.0; 3])?,
            angles: self.numbers("origin", "rpy", MAX_ANGLE, [0.0; 3])?,
        })
    }

    /// Reads the axis of the joint, with norm 1, and the norm that the axis has in the file.
    pub fn axis(&self) -> Result<([f64; 3], f64), ChainError> {
        let [shortest, longest] = AXIS_LENGTHS;
        self.expect_attributes("axis", &["xyz"])?;
        let axis = self.numbers("axis", "xyz", longest, [1.0, 0.0, 0.0])?;
        let length = robocache_geometry::vector::norm(axis);
        match length {
            1.0 => Ok((axis, length)),
            _ if length >= shortest => Ok((axis.map(|x| x / length), length)),
            _ => Err(self.error(format!("an axis of length {length:e} (allowed: from {shortest:e} on)"))),
        }
    }

    /// Reads the limits of the joint; `None` if the file gives no limit.
    pub fn limits(&self) -> Result<Option<UrdfLimits>, ChainError> {
        let given = |name| Ok(self.attribute("limit", name)?.is_some());
        let only = match (given("lower")?, given("upper")?) {
            (false, false) => return Ok(None),
            (true, false) => Some("lower"),
            (false, true) => Some("upper"),
            (true, true) => None,
        };
        let number = |name| self.number("limit", name, 0.0);
        Ok(Some(UrdfLimits {
            range: [number("lower")?, number("upper")?],
            only,
        }))
    }

    /// Reads the rule by which the joint mimics another; `None` if the joint does not mimic.
    pub fn mimic(&self) -> Result<Option<UrdfMimic<'a>>, ChainError> {
        if self.element("mimic")?.is_none() {
            return Ok(None);
        }
        let Some(leader) = self.attribute("mimic", "joint")? else {
            return Err(self.error("a <mimic> without a joint (needed: joint=\"...\")"));
        };
        self.expect_attributes("mimic", &["joint", "multiplier", "offset"])?;
        Ok(Some(UrdfMimic {
            leader,
            multiplier: self.number("mimic", "multiplier", 1.0)?,
            offset: self.number("mimic", "offset", 0.0)?,
        }))
    }
}

fn line(document: &Document<'_>, node: Node<'_, '_>) -> u32 {
    document.text_pos_at(node.range().start).row
}

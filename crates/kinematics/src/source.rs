//! Description of a chain in a configuration file. A key that is not known is refused, so that a typing error is never ignored.

use crate::chain::{Chain, ChainConfig, UNIT_NORMS};
use crate::error::ChainError;
use crate::urdf;
use robocache_geometry::RigidTransform;
use robocache_geometry::vector::norm;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A chain and the URDF of its robot: an entry of the section `chains:` of a configuration file.
///
/// ```
/// use robocache_kinematics::ChainSource;
///
/// let text = "{ urdf: arm.urdf, base: base, tip: hand, tool: { translation_m: [0, 0, 0.1] } }";
/// let source: ChainSource = robocache_yaml::from_str(text)?;
/// assert_eq!(source.config()?.tool.map(|tool| tool.translation), Some([0.0, 0.0, 0.1]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChainSource {
    /// Path of the URDF. A relative path counts from the folder of the configuration file.
    pub urdf: PathBuf,
    /// Name of the link in whose frame poses are given: [`ChainConfig::base`].
    pub base: String,
    /// Name of the link whose pose is computed: [`ChainConfig::tip`].
    pub tip: String,
    /// Names of the joints in the order of a row of joint values: [`ChainConfig::joints`].
    pub joints: Option<Vec<String>>,
    /// Lower and upper limits by the names of joints, which replace the limits in the URDF: [`ChainConfig::limits`].
    #[serde(default)]
    pub limits: BTreeMap<String, [f64; 2]>,
    /// Pose of the tool in the frame of the tip; `None` if poses are those of the tip itself: [`ChainConfig::tool`].
    pub tool: Option<ToolConfig>,
}

/// Pose of a tool in the frame of the tip: the key `tool` of a [`ChainSource`].
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolConfig {
    /// Position of the tool in the frame of the tip, metres.
    pub translation_m: [f64; 3],
    /// Rotation of the tool from the frame of the tip: a quaternion of norm 1, to within 1 %.
    pub rotation_xyzw: [f64; 4],
}

impl Default for ToolConfig {
    /// Returns the identity: a tool whose frame is that of the tip.
    fn default() -> Self {
        Self {
            translation_m: [0.0; 3],
            rotation_xyzw: [0.0, 0.0, 0.0, 1.0],
        }
    }
}

impl ToolConfig {
    fn transform(&self) -> Result<RigidTransform<f64>, String> {
        let (rotation, translation) = (self.rotation_xyzw, self.translation_m);
        let norm = norm(rotation);
        if !UNIT_NORMS.contains(&norm) {
            return Err(format!(
                "tool.rotation_xyzw: {rotation:?} has the norm {norm} (allowed: a quaternion x, y, z, w of norm 1, to within 1 %)"
            ));
        }
        let most = urdf::MAX_DISTANCE;
        if !translation.iter().all(|x| x.abs() <= most) {
            return Err(format!(
                "tool.translation_m: {translation:?} (allowed: -{most:e} to {most:e})"
            ));
        }
        Ok(RigidTransform::new(rotation, translation))
    }
}

impl ChainSource {
    /// Converts this entry of the configuration file to the configuration of a chain.
    ///
    /// # Errors
    /// If the tool's pose is not allowed: names the key, the value found and the values allowed.
    pub fn config(&self) -> Result<ChainConfig, String> {
        Ok(ChainConfig {
            base: self.base.clone(),
            tip: self.tip.clone(),
            joints: self.joints.clone(),
            limits: self.limits.clone(),
            tool: self.tool.map(|tool| tool.transform()).transpose()?,
        })
    }

    /// Reads the chain from its URDF. A relative path counts from `folder`.
    ///
    /// # Errors
    /// If [`config`](Self::config) or [`Chain::read`] fails.
    pub fn read(&self, folder: &Path) -> Result<Chain, String> {
        let config = self.config()?;
        Chain::read(&folder.join(&self.urdf), &config).map_err(|error| match error {
            ChainError::Io { .. } => format!("urdf: {error}"),
            ChainError::File { .. } | ChainError::Element { .. } | ChainError::Joint { .. } => error.to_string(),
        })
    }
}

//! Converter of joints to poses, or of poses to joints, in the samples of a stream. A sample that can't be converted gets NaN
//! in their place and is not valid. Its other values stay.

use super::config::ChainConfig;
use eyre::bail;
use robocache::ops::ConfigError;
use robocache::ops::kinematics::{Chain, Kinematics, KinematicsEntry, Product};
use robocache::stream::{Layout, Message, Selection};

/// Number of values in a pose: x, y, z and a quaternion.
const POSE_VALUES: usize = 7;

/// Converter that replaces joints in a sample by the pose that they reach, or a pose by joints that reach it. The other values
/// of the sample do not change.
pub struct ChainConverter {
    product: Product,
    kinematics: Kinematics,
    /// Names of the chain's joints, in the chain's order.
    joints: Vec<String>,
    /// Range of the values that are replaced, `[first, end]`; all values if `None`.
    channels: Option<[usize; 2]>,
    layout: Layout,
    product_layout: Layout,
    /// The poses or joints that were computed from the last message.
    made: Message,
    /// The last message, with the computed values in place of those that they replace.
    converted: Message,
    fields: Vec<String>,
    /// Number of samples for which no pose or joints could be computed; `why` is the reason for the first.
    refused: u64,
    why: Option<String>,
    /// Description of the first value that is far beyond the limits of its joint; `None` if there was none.
    implausible: Option<String>,
    /// Description of `fields` that name no joint, so that values were matched to joints by position; `None` if all match.
    unnamed: Option<String>,
    /// Number of jumps between solutions of the inverse kinematics, and the stamp of the first, ns; `None` if there was none.
    changes: Option<(u64, i64)>,
}

impl ChainConverter {
    /// Creates the converter that the configuration of a feature describes.
    ///
    /// # Errors
    /// Names the key, its value and what is allowed.
    pub fn new(product: Product, feature: &str, config: &ChainConfig, chain: &Chain) -> Result<Self, ConfigError> {
        let entry = KinematicsEntry {
            input: feature.to_owned(),
            chain: config.chain.clone(),
            channels: config.channels,
            inverse: config.inverse.clone(),
            make: vec![product],
            ..KinematicsEntry::default()
        };
        let of_entry = |error: ConfigError| ConfigError::new(error.key.trim_start_matches("[0]."), error.problem);
        Ok(Self {
            product,
            kinematics: Kinematics::new(&entry, 0, chain).map_err(of_entry)?,
            joints: chain.joints().iter().map(|joint| joint.name.clone()).collect(),
            channels: config.channels,
            layout: Layout::default(),
            product_layout: Layout::default(),
            made: Message::default(),
            converted: Message::default(),
            fields: Vec::new(),
            refused: 0,
            why: None,
            implausible: None,
            unnamed: None,
            changes: None,
        })
    }

    /// The key in a feature's configuration that sets this conversion: `pose_of` or `joints_of`.
    pub fn key(&self) -> &'static str {
        match self.product {
            Product::Joints => "joints_of",
            _ => "pose_of",
        }
    }

    /// The number of samples for which no pose or joints could be computed, and the reason for the first; `None` if there is none.
    pub fn lost(&self) -> Option<(u64, &str)> {
        self.why.as_deref().map(|why| (self.refused, why))
    }

    /// Describes the first value that is far beyond the limits of its joint; `None` if there is none.
    pub fn implausible(&self) -> Option<&str> {
        self.implausible.as_deref()
    }

    /// Describes `fields` that name no joint, so that values were matched to joints by position; `None` if all match.
    pub fn unnamed(&self) -> Option<&str> {
        self.unnamed.as_deref()
    }

    /// The number of jumps between solutions of the inverse kinematics, and the stamp of the first, ns; `None` if there is none.
    pub fn changes(&self) -> Option<(u64, i64)> {
        self.changes
    }

    /// The name of a converted stream in the dataset, such as `arm_pose`: the stream's name, and the quantity that was computed.
    pub fn name_of(&self, stream: &str) -> String {
        format!("{stream}_{}", self.product.name())
    }

    /// Columns of a message that hold the joints or the pose; the section `kinematics:` selects them in the same way.
    pub fn selection(&self) -> &Selection {
        self.kinematics.selection()
    }

    /// Converts the samples of a message. A sample that can't be converted gets NaN in place of the pose or the joints, and is not
    /// valid.
    ///
    /// # Errors
    /// The reason why the message can't be converted.
    pub fn convert(&mut self, message: &Message) -> eyre::Result<&Message> {
        let Some(values) = message.flat() else {
            bail!("a struct (allowed: a tensor, or a struct that `kinematics:` takes)");
        };
        let rows = message.stamps().len().max(1);
        let width = values.len() / rows;
        let taken = match self.product {
            Product::Joints => POSE_VALUES,
            _ => self.joints.len(),
        };
        let [first, end] = self.channels.unwrap_or([0, width]);
        if self.channels.is_none() && width != taken {
            let allowed = match self.product {
                Product::Joints => "x y z qx qy qz qw".to_owned(),
                _ => self.joints.join(", "),
            };
            bail!(
                "{width} values a sample (allowed: {taken}, {allowed}; or `channels: [first, end]` of `{}` says which they are)",
                self.key()
            );
        }
        self.kinematics.read(message)?;
        if self.implausible.is_none() {
            self.implausible = self.kinematics.implausible().map(|value| value.to_string());
        }
        if self.unnamed.is_none() {
            self.unnamed = self.kinematics.unnamed().map(|unnamed| unnamed.to_string());
        }
        self.kinematics.layout_into(self.product, &mut self.product_layout);
        let (kinematics, product) = (&mut self.kinematics, self.product);
        self.made.write(&self.product_layout, |payload, header| {
            kinematics.write(product, payload);
            kinematics.describe(product, message, header);
        });
        for refused in kinematics.refused() {
            self.refused += 1;
            self.why.get_or_insert_with(|| refused.to_string());
        }
        if let Some((count, row)) = kinematics.changes() {
            let (before, first_ns) = self.changes.unwrap_or((0, message.stamps()[row]));
            self.changes = Some((before + count, first_ns));
        }
        let Some(product) = self.made.flat() else {
            return Ok(&self.made);
        };
        let size = product.dtype().size();
        let product_width = product.len() / rows;
        let new_width = first + product_width + (width - end);
        self.layout = Layout::flat(product.dtype(), rows * new_width);
        let before = values.bytes().chunks_exact((width * size).max(1));
        let made = product.bytes().chunks_exact(product_width * size);
        let of_made = &self.made.header;
        self.fields.clear();
        let names = message.header.fields.get().unwrap_or_default();
        if names.len() == width {
            self.fields.extend_from_slice(&names[..first]);
            self.fields.extend_from_slice(of_made.fields.get().unwrap_or_default());
            self.fields.extend_from_slice(&names[end..]);
        } else if new_width == product_width {
            self.fields.extend_from_slice(of_made.fields.get().unwrap_or_default());
        }
        let fields = &self.fields;
        self.converted.write(&self.layout, |payload, header| {
            let converted = payload.column::<u8>(0).chunks_exact_mut(new_width * size);
            for ((before, made), converted) in before.zip(made).zip(converted) {
                let (ahead, rest) = converted.split_at_mut(first * size);
                let (place, behind) = rest.split_at_mut(product_width * size);
                ahead.copy_from_slice(&before[..first * size]);
                place.copy_from_slice(made);
                behind.copy_from_slice(&before[end * size..]);
            }
            header.copy_from(of_made);
            let has_rows = of_made.timestamps_ns.get().is_some_and(|stamps| !stamps.is_empty());
            let sides = has_rows.then_some(rows as i64).into_iter();
            header.shape.set(sides.chain([new_width as i64]));
            header.fields.clear();
            if !fields.is_empty() {
                header.fields.set(fields);
            }
        });
        Ok(&self.converted)
    }
}

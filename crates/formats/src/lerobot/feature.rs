//! Features: the columns of a LeRobot dataset, with name, type and shape. A feature that LeRobot can't open is refused before
//! anything is written.

use crate::Error;
use arrow_schema::{DataType, Field};
use robocache_device::Dtype;
use std::sync::Arc;

/// Largest number of axes that LeRobot allows for a feature.
const MOST_AXES: usize = 5;

/// A feature of each frame: one column of a dataset.
#[derive(Clone, Debug, PartialEq)]
pub struct Feature {
    /// Name of the feature, such as `observation.state`. LeRobot gives a policy the features named `observation...` as input
    /// and those named `action...` as output. A policy does not use other features.
    pub name: String,
    /// Type of the feature's elements.
    pub kind: Kind,
    /// Shape of the feature in one frame: `[D]`, `[K, D]`, or `[height, width, channels]` for images.
    pub shape: Vec<usize>,
    /// Names of the elements along an axis, such as those of joints; empty if they have none.
    pub names: Vec<String>,
}

/// Type of a feature's elements, which decides how they are stored in a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Numbers of the given element type. A dataset can't hold float16 or bfloat16.
    Numbers(Dtype),
    /// Booleans, in memory as bytes of 0 or 1.
    Bool,
    /// An image of uint8, gray or RGB; a PNG in the files.
    Image,
    /// Any other type, by its name in `info.json`, such as `video` or `string`: robocache can't read it.
    Other(String),
}

impl Kind {
    /// Returns the kind with this name in `info.json`; `Other` if the name is not known.
    pub(super) fn from_name(name: &str) -> Self {
        match (name, Dtype::from_name(name)) {
            ("bool", _) => Self::Bool,
            ("image", _) => Self::Image,
            (_, Some(dtype)) if Self::Numbers(dtype).is_written() => Self::Numbers(dtype),
            _ => Self::Other(name.to_owned()),
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Numbers(dtype) => dtype.name(),
            Self::Bool => "bool",
            Self::Image => "image",
            Self::Other(name) => name,
        }
    }

    /// Returns the type of the elements in memory; `None` for a type that robocache can't read.
    pub(super) fn dtype(&self) -> Option<Dtype> {
        match self {
            Self::Numbers(dtype) => Some(*dtype),
            Self::Bool | Self::Image => Some(Dtype::UInt8),
            Self::Other(_) => None,
        }
    }

    fn is_written(&self) -> bool {
        !matches!(self, Self::Other(_) | Self::Numbers(Dtype::Float16 | Dtype::BFloat16))
    }
}

impl Feature {
    /// Describes a feature whose elements have no names.
    pub fn new(name: impl Into<String>, kind: Kind, shape: impl Into<Vec<usize>>) -> Self {
        Self {
            name: name.into(),
            kind,
            shape: shape.into(),
            names: Vec::new(),
        }
    }

    /// Sets the names of the feature's elements, and returns the feature.
    pub fn with_names(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.names = names.into_iter().map(Into::into).collect();
        self
    }

    /// Number of elements that the feature has in a frame: the product of its shape.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// True if a frame has no elements, which is not allowed in a dataset.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of bytes that the feature's elements of one frame take in memory.
    pub(super) fn bytes(&self) -> usize {
        self.len() * self.kind.dtype().map_or(0, Dtype::size)
    }

    /// True if the shape is `[1]`: LeRobot's loader gives a single number for a frame, not an array.
    pub(super) fn is_scalar(&self) -> bool {
        self.shape == [1]
    }

    /// Checks that LeRobot allows the feature's name and shape.
    pub(super) fn check(&self) -> Result<(), Error> {
        let refused = |problem: String| Err(Error::feature(&self.name, problem));
        if self.name.is_empty() || self.name.contains('/') || self.name.ends_with("_is_pad") {
            let allowed = "allowed: text without `/` that does not end with `_is_pad`";
            return refused(format!("it is not a name of a feature ({allowed})"));
        }
        let elements = self.shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n));
        let is_small = elements.is_some_and(|elements| (1..=1 << 28).contains(&elements));
        if !is_small || self.shape.len() > MOST_AXES {
            let allowed = format!("1 to {MOST_AXES} axes, each of 1 or more, 2^28 elements in all");
            return refused(format!("`shape` is {:?} (allowed: {allowed})", self.shape));
        }
        if self.kind == Kind::Image && !matches!(self.shape[..], [_, _, 1 | 3]) {
            let allowed = "[height, width, channels] with 1 or 3 channels";
            return refused(format!("`shape` of an image is {:?} (allowed: {allowed})", self.shape));
        }
        Ok(())
    }

    /// Checks that LeRobot allows the feature's name and shape, and that elements of its type can be written.
    pub(super) fn check_written(&self) -> Result<(), Error> {
        self.check()?;
        if !self.kind.is_written() {
            let allowed = "float32, float64, int8 to int64, uint8 to uint64, bool, image";
            let problem = format!(
                "type `{}` can't be written to a dataset (allowed: {allowed})",
                self.kind.name()
            );
            return Err(Error::feature(&self.name, problem));
        }
        Ok(())
    }

    /// Returns the Arrow type of the feature's column in LeRobot's files.
    pub(super) fn arrow_type(&self) -> DataType {
        let element = match &self.kind {
            Kind::Image => {
                let fields = [("bytes", DataType::Binary), ("path", DataType::Utf8)];
                let fields = fields.map(|(name, kind)| Field::new(name, kind, true));
                return DataType::Struct(fields.into_iter().collect());
            }
            Kind::Bool => DataType::Boolean,
            kind => kind.dtype().map_or(DataType::Null, Dtype::arrow_type),
        };
        match self.shape.as_slice() {
            [1] => element,
            [n] => DataType::FixedSizeList(element_of(element), *n as i32),
            axes => axes.iter().fold(element, |inner, _| DataType::List(element_of(inner))),
        }
    }
}

/// Makes the Arrow field for the elements of a list column, with the name that Arrow's C++ library gives it.
pub(super) fn element_of(kind: DataType) -> Arc<Field> {
    Arc::new(Field::new("element", kind, true))
}

/// Lists the columns that every dataset has in addition to its features, such as `timestamp`, in the order in which the writer
/// adds them.
pub(super) fn bookkeeping() -> [Feature; 5] {
    let whole = |name: &str| Feature::new(name, Kind::Numbers(Dtype::Int64), [1]);
    [
        Feature::new(TIMESTAMP, Kind::Numbers(Dtype::Float32), [1]),
        whole(FRAME_INDEX),
        whole(EPISODE_INDEX),
        whole(INDEX),
        whole(TASK_INDEX),
    ]
}

/// True if `name` is a column that every dataset has in addition to its features, such as `timestamp`.
pub(super) fn is_bookkeeping(name: &str) -> bool {
    bookkeeping().iter().any(|feature| feature.name == name)
}

pub(super) const TIMESTAMP: &str = "timestamp";
pub(super) const FRAME_INDEX: &str = "frame_index";
pub(super) const EPISODE_INDEX: &str = "episode_index";
pub(super) const INDEX: &str = "index";
pub(super) const TASK_INDEX: &str = "task_index";

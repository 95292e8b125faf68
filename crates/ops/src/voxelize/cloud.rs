use super::quantum;
use half::{bf16, f16};
use robocache_device::{Dtype, Values};
use robocache_stream::{Cells, Message};

/// The points of a message, read where they lie.
///
/// A message is a cloud if it is a flat tensor `[N, C]` with `fields`, or a struct with one column per field: N rows of
/// a number each, or one row of lists of N numbers. `x`, `y` and `z` must be among the fields. A tensor `[N, 3]` without
/// `fields` is x, y, z; without a `shape`, N follows from the length and the `fields`.
#[derive(Clone, Copy)]
pub struct Cloud<'a> {
    message: &'a Message,
    tensor: Option<Values<'a>>,
    columns: usize,
    points: usize,
    xyz: [Field<'a>; 3],
}

/// The values of one field of a cloud, in the order of its points.
#[derive(Clone, Copy, Debug)]
pub struct Field<'a> {
    values: Values<'a>,
    first: usize,
    stride: usize,
    is_wide: bool,
}

/// A message that is no cloud, or not the cloud that the channels need.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloudError {
    /// A tensor has no names for its columns.
    #[error(
        "a tensor without `fields` must have the `shape` [N, 3], x y z, but its shape is {shape:?} and its length {length}"
    )]
    NoFields {
        /// The shape that came.
        shape: Vec<i64>,
        /// The elements that came.
        length: usize,
    },
    /// The shape belongs neither to the fields nor to the length.
    #[error("shape {shape:?} does not fit: {length} elements with {fields} fields must be [{}, {fields}]", length / fields)]
    Shape {
        /// The shape that came.
        shape: Vec<i64>,
        /// The elements that came.
        length: usize,
        /// How many fields there are.
        fields: usize,
    },
    /// The elements are no whole number of points.
    #[error("{length} elements are no whole number of points of {fields} fields")]
    Length {
        /// The elements that came.
        length: usize,
        /// How many fields there are.
        fields: usize,
    },
    /// A field that is needed is not there.
    #[error("no field `{name}`: the cloud has {}", list(fields))]
    Missing {
        /// The field.
        name: String,
        /// Those that came.
        fields: Vec<String>,
    },
    /// A field that is needed is of a type that is no number.
    #[error("field `{name}` is {came} ({why})")]
    Type {
        /// The field.
        name: String,
        /// Its Arrow type.
        came: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A field is there twice.
    #[error("field `{name}` is there twice (each once)")]
    Twice {
        /// The field.
        name: String,
    },
    /// A column is not one number for each point.
    #[error("column `{name}` has {length} values of {dtype} for {rows} points (one number for each point)")]
    Column {
        /// The column.
        name: String,
        /// Its values.
        length: usize,
        /// Their type.
        dtype: Dtype,
        /// The rows of the struct.
        rows: usize,
    },
    /// The clouds of one grid have a field in types whose sums have different scales.
    #[error(
        "field `{name}` is {dtype} here, but an earlier cloud of the grid has it as {}: \
         for mean_{name} all inputs must give 32- and 64-bit integers, or none",
        if *wide { "a float or an 8- or 16-bit integer" } else { "a 32- or 64-bit integer" }
    )]
    Types {
        /// The field.
        name: String,
        /// Its type in this cloud.
        dtype: Dtype,
        /// Whether that is a 32- or 64-bit integer.
        wide: bool,
    },
    /// A grid can't take more points.
    #[error("{points} points in one grid are too many (at most 2^22)")]
    TooMany {
        /// The points with those of this cloud.
        points: usize,
    },
}

fn list(fields: &[String]) -> String {
    if fields.is_empty() {
        "none".to_owned()
    } else {
        fields.join(", ")
    }
}

const XYZ: [&str; 3] = ["x", "y", "z"];

impl<'a> Cloud<'a> {
    /// Reads a message as a cloud. Nothing is copied or allocated.
    ///
    /// # Errors
    /// A [`CloudError`] that says what came and what is allowed.
    pub fn from_message(message: &'a Message) -> Result<Self, CloudError> {
        let tensor = message.flat();
        let (columns, points) = match tensor {
            Some(values) => tensor_size(message, values.len())?,
            None => (message.columns().len(), struct_size(message)),
        };
        let mut cloud = Self {
            message,
            tensor,
            columns,
            points,
            xyz: [Field::none(); 3],
        };
        for (axis, name) in XYZ.into_iter().enumerate() {
            cloud.xyz[axis] = cloud.field(name)?;
        }
        Ok(cloud)
    }

    /// How many points there are.
    pub fn len(&self) -> usize {
        self.points
    }

    /// Whether there are no points.
    pub fn is_empty(&self) -> bool {
        self.points == 0
    }

    /// The coordinates as they came.
    pub fn xyz(&self) -> &[Field<'a>; 3] {
        &self.xyz
    }

    /// The field of that name.
    ///
    /// # Errors
    /// [`CloudError::Missing`], [`CloudError::Type`] or [`CloudError::Twice`], or [`CloudError::Column`] if it is not one
    /// number for each point.
    pub fn field(&self, name: &str) -> Result<Field<'a>, CloudError> {
        let mut columns = (0..self.columns).filter(|&i| self.name(i) == name);
        let Some(i) = columns.next() else {
            return Err(self.no_field(name));
        };
        if columns.next().is_some() {
            return Err(CloudError::Twice { name: name.to_owned() });
        }
        if let (Some(values), Some(column)) = (self.tensor, self.message.columns().first()) {
            return Ok(Field {
                values,
                first: i,
                stride: self.columns,
                is_wide: quantum::is_wide(column.integers.unwrap_or(column.dtype)),
            });
        }
        let column = &self.message.columns()[i];
        if self.is_text(i) {
            return Err(CloudError::Type {
                name: name.to_owned(),
                came: "text".to_owned(),
                why: "allowed: arrays of floats or integers",
            });
        }
        let values = column.values();
        let is_one_each = matches!(column.cells, Cells::One | Cells::Fixed(1)) || self.message.rows == 1;
        if !is_one_each || values.len() != self.points {
            return Err(CloudError::Column {
                name: name.to_owned(),
                length: values.len(),
                dtype: column.dtype,
                rows: self.points,
            });
        }
        Ok(Field {
            values,
            first: 0,
            stride: 1,
            is_wide: quantum::is_wide(column.integers.unwrap_or(column.dtype)),
        })
    }

    fn no_field(&self, name: &str) -> CloudError {
        let skipped = self.message.skipped();
        match skipped.iter().find(|skipped| skipped.field.name() == name) {
            Some(skipped) => CloudError::Type {
                name: name.to_owned(),
                came: skipped.field.data_type().to_string(),
                why: skipped.reason,
            },
            None => CloudError::Missing {
                name: name.to_owned(),
                fields: (0..self.columns)
                    .filter(|&i| !self.is_text(i))
                    .map(|i| self.name(i).to_owned())
                    .collect(),
            },
        }
    }

    /// The values of all columns, interleaved, and how many columns there are, if it is a tensor.
    pub(super) fn tensor(&self) -> Option<(Values<'a>, usize)> {
        self.tensor.map(|values| (values, self.columns))
    }

    /// Whether a column is one of text, which is no field.
    fn is_text(&self, i: usize) -> bool {
        let column = self.message.columns().get(i);
        column.is_some_and(|column| matches!(column.cells, Cells::Text(_)))
    }

    fn name(&self, i: usize) -> &'a str {
        match self.tensor {
            Some(_) if self.message.header.fields.is_empty() => XYZ[i],
            Some(_) => &self.message.header.fields[i],
            None => &self.message.columns()[i].name,
        }
    }
}

/// Points of a struct: its rows, or the values of a list in its only row.
fn struct_size(message: &Message) -> usize {
    match message.column(XYZ[0]) {
        Some(x) if message.rows == 1 => x.values().len(),
        _ => message.rows,
    }
}

/// Columns and points of a tensor of `length` elements.
fn tensor_size(message: &Message, length: usize) -> Result<(usize, usize), CloudError> {
    let shape = &message.header.shape;
    let fields = match message.header.fields.len() {
        // No points are none in any reading.
        0 if shape.is_empty() && length == 0 => 3,
        0 if shape.len() == 2 && shape[1] == 3 => 3,
        0 => {
            return Err(CloudError::NoFields {
                shape: shape.to_vec(),
                length,
            });
        }
        named => named,
    };
    if !length.is_multiple_of(fields) {
        return Err(CloudError::Length { length, fields });
    }
    let points = length / fields;
    if !shape.is_empty() && shape[..] != [points as i64, fields as i64] {
        return Err(CloudError::Shape {
            shape: shape.to_vec(),
            length,
            fields,
        });
    }
    Ok((fields, points))
}

impl<'a> Field<'a> {
    fn none() -> Self {
        Self {
            values: Values::new(Dtype::UInt8, &[]),
            first: 0,
            stride: 1,
            is_wide: false,
        }
    }

    /// The values of the field, and of the other fields of a tensor.
    pub(super) fn values(&self) -> Values<'a> {
        self.values
    }

    /// The index of the first point's value among the values.
    pub(super) fn first(&self) -> usize {
        self.first
    }

    /// Whether it came as 32- or 64-bit integers: as such it is summed.
    pub(super) fn is_wide(&self) -> bool {
        self.is_wide
    }

    /// The type of its values.
    pub fn dtype(&self) -> Dtype {
        self.values.dtype()
    }

    /// The values from point `from` on as they lie, if they are contiguous float32.
    pub fn as_f32(&self, from: usize) -> Option<&'a [f32]> {
        (self.stride == 1 && self.dtype() == Dtype::Float32)
            .then(|| &self.values.as_slice::<f32>()[self.first + from..])
    }

    /// Converts the values from point `from` on to the nearest float32 until `out` is full.
    pub fn to_f32(&self, from: usize, out: &mut [f32]) {
        self.values
            .strided_to_f32(self.first + from * self.stride, self.stride, out);
    }

    /// Converts the values from point `from` on to the nearest float64 until `out` is full.
    pub fn to_f64(&self, from: usize, out: &mut [f64]) {
        macro_rules! read {
            ($T:ty, $v:ident => $value:expr) => {{
                let source = &self.values.as_slice::<$T>()[self.first + from * self.stride..];
                for (to, $v) in out.iter_mut().zip(source.iter().step_by(self.stride)) {
                    *to = $value;
                }
            }};
        }
        match self.dtype() {
            Dtype::Float32 => read!(f32, v => f64::from(*v)),
            Dtype::Float64 => read!(f64, v => *v),
            Dtype::Float16 => read!(f16, v => v.to_f64()),
            Dtype::BFloat16 => read!(bf16, v => v.to_f64()),
            Dtype::Int8 => read!(i8, v => f64::from(*v)),
            Dtype::Int16 => read!(i16, v => f64::from(*v)),
            Dtype::Int32 => read!(i32, v => f64::from(*v)),
            Dtype::Int64 => read!(i64, v => *v as f64),
            Dtype::UInt8 => read!(u8, v => f64::from(*v)),
            Dtype::UInt16 => read!(u16, v => f64::from(*v)),
            Dtype::UInt32 => read!(u32, v => f64::from(*v)),
            Dtype::UInt64 => read!(u64, v => *v as f64),
        }
    }
}

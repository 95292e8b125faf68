use super::Float;
use arrow_schema::DataType;
use bytemuck::Pod;
use half::{bf16, f16};
use robocache_yaml::did_you_mean;
use serde::{Deserialize, Deserializer, de};
use std::fmt;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Dtype {
    Float32,
    Float64,
    Float16,
    /// Travels in Arrow as UInt16 bits.
    BFloat16,
    Int8,
    Int16,
    Int32,
    Int64,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
}

impl Dtype {
    /// Every element type, in the order of the documentation.
    pub const ALL: [Self; 12] = [
        Self::Float32,
        Self::Float64,
        Self::Float16,
        Self::BFloat16,
        Self::Int8,
        Self::Int16,
        Self::Int32,
        Self::Int64,
        Self::UInt8,
        Self::UInt16,
        Self::UInt32,
        Self::UInt64,
    ];

    /// Its number in the kernels: that of `enum Dtype` of kernels/types.cuh, which is in the order of [`Self::ALL`].
    pub fn code(self) -> u32 {
        Self::ALL.iter().position(|&each| each == self).unwrap_or(0) as u32
    }

    /// The name used in messages and configuration, such as `float32`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Float64 => "float64",
            Self::Float16 => "float16",
            Self::BFloat16 => "bfloat16",
            Self::Int8 => "int8",
            Self::Int16 => "int16",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::UInt8 => "uint8",
            Self::UInt16 => "uint16",
            Self::UInt32 => "uint32",
            Self::UInt64 => "uint64",
        }
    }

    /// The type of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Checks that memory of this type may be taken as elements of `T`: as what it is, as bytes, or bfloat16 as the uint16
    /// that it travels as.
    ///
    /// # Panics
    /// If it may not.
    #[track_caller]
    pub fn assert_is<T: Primitive>(self) {
        let is_bits = T::DTYPE == Self::UInt16 && self == Self::BFloat16;
        assert!(
            T::DTYPE == self || T::DTYPE == Self::UInt8 || is_bits,
            "the elements are {self}, not {}",
            T::DTYPE
        );
    }

    /// Bytes an element takes.
    pub const fn size(self) -> usize {
        match self {
            Self::Int8 | Self::UInt8 => 1,
            Self::Float16 | Self::BFloat16 | Self::Int16 | Self::UInt16 => 2,
            Self::Float32 | Self::Int32 | Self::UInt32 => 4,
            Self::Float64 | Self::Int64 | Self::UInt64 => 8,
        }
    }

    /// The Arrow type that it travels as.
    pub const fn arrow_type(self) -> DataType {
        match self {
            Self::Float32 => DataType::Float32,
            Self::Float64 => DataType::Float64,
            Self::Float16 => DataType::Float16,
            Self::BFloat16 | Self::UInt16 => DataType::UInt16,
            Self::Int8 => DataType::Int8,
            Self::Int16 => DataType::Int16,
            Self::Int32 => DataType::Int32,
            Self::Int64 => DataType::Int64,
            Self::UInt8 => DataType::UInt8,
            Self::UInt32 => DataType::UInt32,
            Self::UInt64 => DataType::UInt64,
        }
    }

    /// Whether it is one of the float types an operation can publish: float32, float16, bfloat16.
    pub const fn is_output(self) -> bool {
        matches!(self, Self::Float32 | Self::Float16 | Self::BFloat16)
    }

    /// The largest number of this float type.
    pub const fn largest(self) -> f64 {
        match self {
            Self::Float16 => f16::MAX.to_f64_const(),
            Self::BFloat16 => bf16::MAX.to_f64_const(),
            Self::Float64 => f64::MAX,
            _ => f32::MAX as f64,
        }
    }

    /// Whether the nearest value of this float type is finite.
    pub fn holds(self, value: f32) -> bool {
        match self {
            Self::Float16 => f16::from_f32(value).is_finite(),
            Self::BFloat16 => bf16::from_f32(value).is_finite(),
            _ => value.is_finite(),
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Dtype {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        match Self::from_name(&name) {
            Some(dtype) if dtype.is_output() => Ok(dtype),
            _ => Err(de::Error::custom(format!(
                "`{name}` can't be published{} (allowed: float32, float16, bfloat16)",
                did_you_mean(&name, &["float32", "float16", "bfloat16"])
            ))),
        }
    }
}

/// A Rust type that elements can be read and written as.
pub trait Primitive: Pod {
    /// What it is called in messages.
    const DTYPE: Dtype;
}

macro_rules! primitives {
    ($($T:ty: $dtype:ident),* $(,)?) => {
        $(impl Primitive for $T {
            const DTYPE: Dtype = Dtype::$dtype;
        })*
    };
}

primitives! {
    f32: Float32, f64: Float64, f16: Float16, bf16: BFloat16, i8: Int8, i16: Int16, i32: Int32, i64: Int64,
    u8: UInt8, u16: UInt16, u32: UInt32, u64: UInt64,
}

/// A float type that an operation can publish: float32, float16 or bfloat16.
pub trait Element: Float<Real = f32> {
    /// The value as float32, exactly.
    fn to_f32(self) -> f32 {
        self.to_real()
    }
}

impl<T: Float<Real = f32>> Element for T {}

/// Host elements of a type known at run time.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    dtype: Dtype,
    bytes: &'a [u8],
}

/// Runs `$body` with `$T` bound to the Rust type of a [`Dtype`].
macro_rules! with_type {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            Dtype::Float32 => {
                type $T = f32;
                $body
            }
            Dtype::Float64 => {
                type $T = f64;
                $body
            }
            Dtype::Float16 => {
                type $T = f16;
                $body
            }
            Dtype::BFloat16 => {
                type $T = bf16;
                $body
            }
            Dtype::Int8 => {
                type $T = i8;
                $body
            }
            Dtype::Int16 => {
                type $T = i16;
                $body
            }
            Dtype::Int32 => {
                type $T = i32;
                $body
            }
            Dtype::Int64 => {
                type $T = i64;
                $body
            }
            Dtype::UInt8 => {
                type $T = u8;
                $body
            }
            Dtype::UInt16 => {
                type $T = u16;
                $body
            }
            Dtype::UInt32 => {
                type $T = u32;
                $body
            }
            Dtype::UInt64 => {
                type $T = u64;
                $body
            }
        }
    };
}

trait AsF32: Copy {
    fn as_f32(self) -> f32;
}

macro_rules! as_f32 {
    ($($T:ty),*) => {$(
        impl AsF32 for $T {
            #[inline]
            fn as_f32(self) -> f32 {
                self as f32
            }
        }
    )*};
}
as_f32!(f32, f64, i8, i16, i32, i64, u8, u16, u32, u64);

impl AsF32 for f16 {
    #[inline]
    fn as_f32(self) -> f32 {
        self.to_f32()
    }
}

impl AsF32 for bf16 {
    #[inline]
    fn as_f32(self) -> f32 {
        self.to_f32()
    }
}

impl<'a> Values<'a> {
    /// Elements of `dtype` in `bytes`, which must be aligned for them and hold a whole number of them.
    ///
    /// # Panics
    /// If it is not so.
    pub fn new(dtype: Dtype, bytes: &'a [u8]) -> Self {
        let size = dtype.size();
        assert!(
            bytes.len().is_multiple_of(size) && (bytes.as_ptr() as usize).is_multiple_of(size),
            "{} bytes at {:p} are no aligned {dtype} elements",
            bytes.len(),
            bytes.as_ptr()
        );
        Self { dtype, bytes }
    }

    /// float32 elements.
    pub fn from_f32(values: &'a [f32]) -> Self {
        Self::new(Dtype::Float32, bytemuck::cast_slice(values))
    }

    /// The type of the elements.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The raw bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The elements, of type `T`, or their bytes, of type `u8`.
    ///
    /// # Panics
    /// If they are of another type.
    #[track_caller]
    pub fn as_slice<T: Primitive>(&self) -> &'a [T] {
        self.dtype.assert_is::<T>();
        bytemuck::cast_slice(self.bytes)
    }

    /// Elements `from..to`.
    pub fn slice(&self, from: usize, to: usize) -> Self {
        let size = self.dtype.size();
        Self {
            dtype: self.dtype,
            bytes: &self.bytes[from * size..to * size],
        }
    }

    /// Converts each element to the nearest float32, into `out`, which has as many.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn to_f32(&self, out: &mut [f32]) {
        assert_eq!(out.len(), self.len(), "one float32 for each element");
        self.strided_to_f32(0, 1, out);
    }

    /// Converts elements `first`, `first + stride`, ... to the nearest float32 until `out` is full.
    pub fn strided_to_f32(&self, first: usize, stride: usize, out: &mut [f32]) {
        with_type!(self.dtype, T => {
            let source: &[T] = bytemuck::cast_slice(self.bytes);
            if stride == 1 {
                for (to, from) in out.iter_mut().zip(&source[first..]) {
                    *to = from.as_f32();
                }
            } else {
                for (to, from) in out.iter_mut().zip(source[first.min(source.len())..].iter().step_by(stride)) {
                    *to = from.as_f32();
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sizes_belong_together() {
        for dtype in Dtype::ALL {
            assert_eq!(Dtype::from_name(dtype.name()), Some(dtype));
            assert_eq!(with_type!(dtype, T => size_of::<T>()), dtype.size());
        }
        assert_eq!(Dtype::from_name("float8"), None);
    }

    #[test]
    fn every_type_becomes_float32() {
        fn check<T: Pod>(dtype: Dtype, values: [T; 3]) {
            let mut out = [0.0; 3];
            let values = Values::new(dtype, bytemuck::cast_slice(&values));
            values.to_f32(&mut out);
            assert_eq!(out, [1.0, 2.0, 3.0], "{dtype}");
            let mut last = [0.0];
            values.strided_to_f32(2, 2, &mut last);
            assert_eq!(last, [3.0]);
        }
        check(Dtype::Float32, [1.0f32, 2.0, 3.0]);
        check(Dtype::Float64, [1.0f64, 2.0, 3.0]);
        check(Dtype::Float16, [1.0, 2.0, 3.0].map(f16::from_f32));
        check(Dtype::BFloat16, [1.0, 2.0, 3.0].map(bf16::from_f32));
        check(Dtype::Int8, [1i8, 2, 3]);
        check(Dtype::Int16, [1i16, 2, 3]);
        check(Dtype::Int32, [1i32, 2, 3]);
        check(Dtype::Int64, [1i64, 2, 3]);
        check(Dtype::UInt8, [1u8, 2, 3]);
        check(Dtype::UInt16, [1u16, 2, 3]);
        check(Dtype::UInt32, [1u32, 2, 3]);
        check(Dtype::UInt64, [1u64, 2, 3]);
    }
}

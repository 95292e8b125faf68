//! Types of elements, and views of host memory whose element type is known at run time. Elements are never read as another type,
//! except as bytes, and bfloat16 as its bits.

use super::Float;
use arrow_schema::DataType;
use bytemuck::Pod;
use half::{bf16, f16};
use robocache_yaml::did_you_mean;
use serde::{Deserialize, Deserializer, de};
use std::fmt;

/// Declares the types of elements: each with its Rust type, and with its name in messages and configuration.
macro_rules! dtypes {
    ($($(#[$doc:meta])* $dtype:ident $T:ty: $name:literal),* $(,)?) => {
        /// Type of a tensor's elements, as messages and configurations name it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum Dtype {
            $($(#[$doc])* $dtype,)*
        }

        impl Dtype {
            /// Every element type. The index of a type is its [`code`](Self::code) in the kernels.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$dtype),*];

            /// The name used in messages and configuration, such as `float32`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$dtype => $name,)*
                }
            }

            /// Size of an element, bytes.
            pub const fn size(self) -> usize {
                match self {
                    $(Self::$dtype => size_of::<$T>(),)*
                }
            }
        }

        $(impl Primitive for $T {
            const DTYPE: Dtype = Dtype::$dtype;
        })*
    };
}

dtypes! {
    Float32 f32: "float32",
    Float64 f64: "float64",
    Float16 f16: "float16",
    /// bfloat16, which Arrow lacks: messages carry its bits as uint16.
    BFloat16 bf16: "bfloat16",
    Int8 i8: "int8",
    Int16 i16: "int16",
    Int32 i32: "int32",
    Int64 i64: "int64",
    UInt8 u8: "uint8",
    UInt16 u16: "uint16",
    UInt32 u32: "uint32",
    UInt64 u64: "uint64",
}

impl Dtype {
    /// The type's number in the kernels, as in `enum Dtype` of kernels/types.cuh: its index in [`Self::ALL`].
    pub fn code(self) -> u32 {
        Self::ALL.iter().position(|&each| each == self).unwrap_or(0) as u32
    }

    /// Looks up a type by its name in messages, such as `float32`; `None` if no type has the name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Checks that elements of this type may be read as `T`: as the same type, as bytes, or bfloat16 as its uint16 bits.
    ///
    /// # Panics
    /// If elements of this type may not be read as `T`.
    #[track_caller]
    pub fn assert_is<T: Primitive>(self) {
        let is_bits = T::DTYPE == Self::UInt16 && self == Self::BFloat16;
        assert!(
            T::DTYPE == self || T::DTYPE == Self::UInt8 || is_bits,
            "the elements are {self}, not {}",
            T::DTYPE
        );
    }

    /// The Arrow type of the elements in messages.
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

    /// True if operations can publish the type: float32, float16 or bfloat16.
    pub const fn is_output(self) -> bool {
        matches!(self, Self::Float32 | Self::Float16 | Self::BFloat16)
    }

    /// Largest finite number of this float type; for an integer type the largest float32.
    pub const fn largest(self) -> f64 {
        match self {
            Self::Float16 => f16::MAX.to_f64_const(),
            Self::BFloat16 => bf16::MAX.to_f64_const(),
            Self::Float64 => f64::MAX,
            _ => f32::MAX as f64,
        }
    }

    /// True if `value`, rounded to this float type, is finite.
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
    /// The element type that this Rust type stands for.
    const DTYPE: Dtype;
}

/// A float type that an operation can publish: float32, float16 or bfloat16.
pub trait Element: Float<Real = f32> {
    /// The value as float32, exactly.
    fn to_f32(self) -> f32 {
        self.to_real()
    }
}

impl<T: Float<Real = f32>> Element for T {}

/// View of elements in host memory, whose type is known at run time only.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    dtype: Dtype,
    bytes: &'a [u8],
}

/// Runs `$body` with `$T` bound to the Rust type of a [`Dtype`].
macro_rules! with_type {
    ($dtype:expr, $T:ident => $body:expr) => {
        with_type!($dtype, $T => $body; Float32 f32, Float64 f64, Float16 f16, BFloat16 bf16, Int8 i8, Int16 i16, Int32 i32,
            Int64 i64, UInt8 u8, UInt16 u16, UInt32 u32, UInt64 u64)
    };
    ($dtype:expr, $T:ident => $body:expr; $($variant:ident $type:ty),*) => {
        match $dtype {
            $(Dtype::$variant => {
                type $T = $type;
                $body
            })*
        }
    };
}

trait AsFloat: Copy {
    fn as_f32(self) -> f32;
    fn as_f64(self) -> f64;
}

macro_rules! as_float {
    ($($T:ty),*) => {$(
        impl AsFloat for $T {
            #[inline]
            fn as_f32(self) -> f32 {
                self as f32
            }

            #[inline]
            fn as_f64(self) -> f64 {
                self as f64
            }
        }
    )*};
}
as_float!(f32, f64, i8, i16, i32, i64, u8, u16, u32, u64);

impl AsFloat for f16 {
    #[inline]
    fn as_f32(self) -> f32 {
        self.to_f32()
    }

    #[inline]
    fn as_f64(self) -> f64 {
        self.to_f64()
    }
}

impl AsFloat for bf16 {
    #[inline]
    fn as_f32(self) -> f32 {
        self.to_f32()
    }

    #[inline]
    fn as_f64(self) -> f64 {
        self.to_f64()
    }
}

impl<'a> Values<'a> {
    /// Views `bytes` as elements of `dtype`.
    ///
    /// # Panics
    /// If the bytes are not aligned, or do not hold a whole number of elements.
    pub fn new(dtype: Dtype, bytes: &'a [u8]) -> Self {
        let size = dtype.size();
        assert!(
            bytes.len().is_multiple_of(size) && (bytes.as_ptr() as usize).is_multiple_of(size),
            "{} bytes at {:p} are not aligned {dtype} elements",
            bytes.len(),
            bytes.as_ptr()
        );
        Self { dtype, bytes }
    }

    /// Views a slice of float32.
    pub fn from_f32(values: &'a [f32]) -> Self {
        Self::new(Dtype::Float32, bytemuck::cast_slice(values))
    }

    /// The type of the elements.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes of all elements, in the byte order of the machine.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The elements as a slice of their type `T`, as bytes (`u8`), or of bfloat16 as its bits (`u16`).
    ///
    /// # Panics
    /// If the elements are of another type.
    #[track_caller]
    pub fn as_slice<T: Primitive>(&self) -> &'a [T] {
        self.dtype.assert_is::<T>();
        bytemuck::cast_slice(self.bytes)
    }

    /// View of elements `from..to`. Panics if there are fewer elements than `to`.
    pub fn slice(&self, from: usize, to: usize) -> Self {
        let size = self.dtype.size();
        Self {
            dtype: self.dtype,
            bytes: &self.bytes[from * size..to * size],
        }
    }

    /// Converts each element to the nearest float32, into `out` of the same length.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn to_f32(&self, out: &mut [f32]) {
        assert_eq!(out.len(), self.len(), "one float32 for each element");
        self.strided_to_f32(0, 1, out);
    }

    /// Appends each element to `out`, as the nearest float64.
    pub fn to_f64(&self, out: &mut Vec<f64>) {
        with_type!(self.dtype, T => out.extend(self.as_slice::<T>().iter().map(|value| value.as_f64())));
    }

    /// Writes element `i` as text, in the fewest digits that read back as the same value.
    ///
    /// # Errors
    /// The error of `out`.
    pub fn write(&self, i: usize, out: &mut impl fmt::Write) -> fmt::Result {
        with_type!(self.dtype, T => write!(out, "{}", self.as_slice::<T>()[i]))
    }

    /// Converts elements `first`, `first + stride`, ... to the nearest float32 until `out` is full or no element is left.
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
    fn every_type_becomes_floats_and_text() {
        fn check<T: Pod>(dtype: Dtype, values: [T; 3]) {
            assert_eq!(dtype.size(), size_of::<T>());
            let mut out = [0.0; 3];
            let values = Values::new(dtype, bytemuck::cast_slice(&values));
            values.to_f32(&mut out);
            assert_eq!(out, [1.0, 2.0, 3.0], "{dtype}");
            let mut doubles = vec![0.5];
            values.to_f64(&mut doubles);
            assert_eq!(doubles, [0.5, 1.0, 2.0, 3.0], "{dtype}");
            let mut text = String::new();
            values.write(2, &mut text).unwrap();
            assert_eq!(text, "3", "{dtype}");
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

//! Arrangement of clouds' fields, in messages and on a device. Clouds are uploaded as they lie in the message; only
//! wide tensors are packed.

use super::super::plan::Plan;
use super::params::{CloudParams, Column, Fields, Form, MAX_FIELDS};
use robocache_device::Dtype;
use robocache_device::gpu::{DeviceBuf, DeviceFault, DevicePtr};
use robocache_stream::{DeviceCloud, DeviceCloudError, DeviceField, HostCloud, PointCloudError};

const MAX_COLUMNS: usize = 3 + MAX_FIELDS;

/// Alignment of columns on a device, bytes.
const ALIGNMENT: usize = 256;

/// Type and position of a field that the channels need: x, y or z, or a field of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Needed {
    dtype: Dtype,
    /// Index of the field's value among a point's interleaved values; 0 if fields are not interleaved.
    first: usize,
}

fn names(plan: &Plan) -> impl Iterator<Item = &str> {
    let fields = plan.fields.iter().map(|field| field.name.as_str());
    ["x", "y", "z"].into_iter().chain(fields)
}

/// Arrangement of a cloud's fields. Clouds with equal arrangements can be put one after the other on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CloudForm {
    needed: [Needed; MAX_COLUMNS],
    count: usize,
    /// Number of columns of a tensor; 0: each field has an array of its own.
    interleaved: usize,
    /// True if only the needed columns of a tensor are sent, because it has more than twice as many.
    is_packed: bool,
}

/// Buffer that a cloud is copied to, and the position of the cloud in it.
#[derive(Clone, Copy)]
pub(super) struct Destination<'a> {
    pub(super) buffer: &'a DeviceBuf,
    /// Index of the cloud's first point among the points in the buffer.
    pub(super) first: usize,
    /// Number of points of all clouds in the buffer.
    pub(super) points: usize,
}

impl CloudForm {
    /// Reads the arrangement of a cloud's fields. Fails if a needed field is missing.
    pub(super) fn of(plan: &Plan, cloud: &HostCloud<'_>) -> Result<Self, PointCloudError> {
        let interleaved = cloud.tensor().map_or(0, |(_, columns)| columns);
        let mut form = Self {
            needed: [Needed {
                dtype: Dtype::Float32,
                first: 0,
            }; MAX_COLUMNS],
            count: 3 + plan.fields.len(),
            interleaved,
            is_packed: false,
        };
        form.is_packed = interleaved > 2 * form.count;
        for (needed, name) in form.needed.iter_mut().zip(names(plan)) {
            let field = cloud.field(name)?;
            *needed = Needed {
                dtype: field.field_type().dtype,
                first: if interleaved > 0 { field.first() } else { 0 },
            };
        }
        Ok(form)
    }

    /// Number of elements from point to point, if fields are interleaved on the device.
    fn columns(&self) -> usize {
        if self.is_packed { self.count } else { self.interleaved }
    }

    /// Byte offset of the `i`-th needed field in a buffer of `points` points, and the bytes from one value to the next.
    fn offset_and_stride(&self, i: usize, points: usize) -> (usize, usize) {
        let size = self.needed[i].dtype.size();
        if self.interleaved > 0 {
            let first = if self.is_packed { i } else { self.needed[i].first };
            return (first * size, self.columns() * size);
        }
        let before = &self.needed[..i];
        let bytes = |needed: &Needed| (points * needed.dtype.size()).next_multiple_of(ALIGNMENT);
        (before.iter().map(bytes).sum(), size)
    }

    /// Bytes of device memory that `points` points take.
    pub(super) fn bytes(&self, points: usize) -> usize {
        if self.interleaved > 0 {
            return (points * self.columns() * self.needed[0].dtype.size()).next_multiple_of(ALIGNMENT);
        }
        let (last, size) = self.offset_and_stride(self.count - 1, points);
        last + (points * size).next_multiple_of(ALIGNMENT)
    }

    /// Writes the address, stride and type of each field of `points` points, which lie from `begin` on, to `cloud` and
    /// `fields`.
    pub(super) fn describe<'a>(
        &self,
        begin: DevicePtr<'a>,
        points: usize,
        cloud: &mut CloudParams<'a>,
        fields: &mut Fields<'a>,
    ) {
        for i in 0..self.count {
            let (at, stride) = self.offset_and_stride(i, points);
            let column = Column {
                data: begin.offset(at),
                stride: stride as u32,
                dtype: self.needed[i].dtype.code(),
            };
            match i {
                0..3 => cloud.axes[i] = column,
                _ => fields[i - 3] = column,
            }
        }
    }

    /// Enqueues the copy of a cloud that has this arrangement.
    ///
    /// # Safety
    /// The message, whose memory may be page-locked, is neither written nor freed until the stream is synchronized.
    pub(super) unsafe fn upload(
        &self,
        plan: &Plan,
        cloud: &HostCloud<'_>,
        to: Destination<'_>,
    ) -> Result<(), DeviceFault> {
        let Destination { buffer, first, points } = to;
        if let Some((values, _)) = cloud.tensor() {
            let row = self.columns() * self.needed[0].dtype.size();
            let at = first * row;
            if !self.is_packed {
                // SAFETY: as the caller promises.
                return unsafe { buffer.upload(at, values.bytes()) };
            }
            let from_row = self.interleaved * self.needed[0].dtype.size();
            let pack = |byte: usize, to: &mut [u8]| self.pack(&values.bytes()[byte / row * from_row..], to);
            return buffer.upload_made(at, (cloud.len() * row, row), &pack);
        }
        for (i, name) in names(plan).enumerate() {
            // The arrangement was read from the same fields, so no field is missing.
            let Ok(field) = cloud.field(name) else { continue };
            let (begin, size) = self.offset_and_stride(i, points);
            // SAFETY: as the caller promises.
            unsafe { buffer.upload(begin + first * size, field.values().bytes()) }?;
        }
        Ok(())
    }

    /// Copies the needed columns of a tensor's first points: as many points as fit `to`.
    fn pack(&self, from: &[u8], to: &mut [u8]) {
        let size = self.needed[0].dtype.size();
        let rows = from.chunks_exact(self.interleaved * size);
        for (from, to) in rows.zip(to.chunks_exact_mut(self.count * size)) {
            for (needed, to) in self.needed[..self.count].iter().zip(to.chunks_exact_mut(size)) {
                to.copy_from_slice(&from[needed.first * size..][..size]);
            }
        }
    }
}

/// The arrangement of a cloud's coordinates, which selects the fastest kernel.
pub(super) fn kernel_form(cloud: &CloudParams<'_>) -> Form {
    let [x, y, z] = cloud.axes;
    let float32 = Dtype::Float32.code();
    let are_neighbours = y.data == x.data.offset(4) && z.data == x.data.offset(8);
    if !are_neighbours || cloud.axes.iter().any(|axis| axis.dtype != float32) {
        return Form::Any;
    }
    match x.stride {
        12 => Form::Packed3,
        16 if x.data.is_aligned_to(16) => Form::Packed4,
        _ => Form::Any,
    }
}

/// Writes the address, stride and type of each needed field of points on a device to `cloud` and `fields`.
pub(super) fn describe<'a>(
    plan: &Plan,
    points: &DeviceCloud<'a>,
    cloud: &mut CloudParams<'a>,
    fields: &mut Fields<'a>,
) -> Result<(), PointCloudError> {
    let column = |name: &str| {
        let field = points.field(name)?;
        Ok::<_, PointCloudError>(Column {
            data: points.buffer().pointer().offset(field.at),
            stride: field.stride as u32,
            dtype: field.dtype.code(),
        })
    };
    cloud.axes = [column("x")?, column("y")?, column("z")?];
    for (to, field) in fields.iter_mut().zip(&plan.fields) {
        *to = column(&field.name)?;
    }
    Ok(())
}

/// Clouds of the same number of points each, one after the other in the memory of a device.
#[derive(Clone, Copy)]
pub struct DeviceClouds<'a> {
    /// The points of all clouds, as one cloud.
    pub(super) all: DeviceCloud<'a>,
    pub(super) clouds: usize,
    /// Number of points of each cloud.
    pub(super) points: usize,
}

/// The reason why clouds on a device can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceInputError {
    /// Values lie outside the buffer, or are not aligned to their type.
    #[error(transparent)]
    Field(#[from] DeviceCloudError),
    /// More clouds or points than the kernels can count.
    #[error(
        "{clouds} clouds of {points} points are too many (allowed: at most 65535 clouds, and 2^32 - 2 points in all)"
    )]
    TooMany {
        /// The number of clouds.
        clouds: usize,
        /// Number of points of each cloud.
        points: usize,
    },
}

/// Greatest number of clouds of one launch.
pub(super) const MAX_CLOUDS: usize = 65_535;

impl<'a> DeviceClouds<'a> {
    /// Describes `clouds` clouds of `points` points each in a buffer. `fields` must include `x`, `y` and `z`.
    ///
    /// # Errors
    /// [`DeviceInputError`] if a field is not within the buffer or not aligned, or if there are too many clouds or points.
    pub fn new(
        buffer: &'a DeviceBuf,
        clouds: usize,
        points: usize,
        fields: &'a [DeviceField<'a>],
    ) -> Result<Self, DeviceInputError> {
        let total = clouds.checked_mul(points).filter(|&n| n < u32::MAX as usize);
        let Some(total) = total.filter(|_| clouds <= MAX_CLOUDS) else {
            return Err(DeviceInputError::TooMany { clouds, points });
        };
        Ok(Self {
            all: DeviceCloud::new(buffer, total, fields)?,
            clouds,
            points,
        })
    }
}

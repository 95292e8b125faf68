//! Buffers of the frames of a LeRobot dataset that are not written yet, one for each feature. A frame enters the statistics
//! when it is written: a dropped frame never counts.

use super::feature::element_of;
use super::meta::lists_of;
use super::stats::Stats;
use super::{Feature, Kind, image};
use crate::Error;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, FixedSizeListArray, StringArray, StructArray, make_array,
};
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_data::ArrayData;
use arrow_schema::DataType;
use rayon::prelude::*;
use robocache_device::{Dtype, Values};
use std::sync::Arc;

/// Frames of one feature that are not written yet, and the feature's statistics.
pub(super) struct Column {
    pub feature: Feature,
    pub stats: Stats,
    /// Elements of the buffered frames, row-major; for images, their pixels.
    data: MutableBuffer,
}

impl Column {
    pub(super) fn new(feature: Feature) -> Self {
        let stats = match feature.kind {
            Kind::Image => Stats::of_images(feature.shape[2]),
            _ => Stats::of_numbers(&feature.shape),
        };
        let data = MutableBuffer::new(0);
        Self { feature, stats, data }
    }

    /// Appends the elements of one frame to the buffer. The caller has checked the number of bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.data.extend_from_slice(bytes);
    }

    /// Number of bytes in the buffer.
    pub(super) fn waiting(&self) -> usize {
        self.data.len()
    }

    /// Drops all buffered frames after the first `frames`.
    pub(super) fn truncate(&mut self, frames: usize) {
        self.data.truncate(frames * self.feature.bytes());
    }

    /// Empties the buffer: adds the frames to the statistics, and returns them as an Arrow array for the file.
    pub(super) fn flush(&mut self) -> Result<ArrayRef, Error> {
        let data: Buffer = std::mem::take(&mut self.data).into();
        let (feature, stats) = (&self.feature, &mut self.stats);
        if feature.kind == Kind::Image {
            let images: Vec<&[u8]> = data.chunks_exact(feature.bytes()).collect();
            let count = || images.iter().for_each(|pixels| stats.add_image(pixels));
            rayon::join(count, || images_of(&images, feature)).1
        } else {
            let mut values = Vec::new();
            Values::new(feature.kind.dtype().unwrap_or(Dtype::UInt8), &data).to_f64(&mut values);
            stats.add_numbers(&values);
            Ok(numbers_of(data, feature))
        }
    }
}

/// Converts the buffer of a feature that is not an image to an Arrow array of the type [`Feature::arrow_type`].
fn numbers_of(data: Buffer, feature: &Feature) -> ArrayRef {
    let elements = data.len() / feature.kind.dtype().map_or(1, Dtype::size);
    let flat: ArrayRef = if feature.kind == Kind::Bool {
        Arc::new(BooleanArray::from_iter(data.iter().map(|&value| Some(value != 0))))
    } else {
        let kind = feature.kind.dtype().unwrap_or(Dtype::UInt8).arrow_type();
        let array = ArrayData::builder(kind).len(elements).add_buffer(data);
        // SAFETY: the buffer has that many elements of the type, and a number has no other demands.
        make_array(unsafe { array.build_unchecked() })
    };
    match feature.shape.as_slice() {
        [1] => flat,
        [n] => {
            let element = element_of(flat.data_type().clone());
            Arc::new(FixedSizeListArray::new(element, *n as i32, flat, None))
        }
        axes => lists_of(flat, axes),
    }
}

fn images_of(images: &[&[u8]], feature: &Feature) -> Result<ArrayRef, Error> {
    let files = images.par_iter().map(|pixels| image::encode(pixels, &feature.shape));
    let files: Result<Vec<Vec<u8>>, String> = files.collect();
    let files = files.map_err(|problem| Error::feature(&feature.name, problem))?;
    let DataType::Struct(fields) = feature.arrow_type() else {
        unreachable!("an image is a struct")
    };
    let bytes = BinaryArray::from_iter_values(&files);
    let path = StringArray::new_null(files.len());
    Ok(Arc::new(StructArray::new(
        fields,
        vec![Arc::new(bytes), Arc::new(path)],
        None,
    )))
}

//! Conversion of images of ROS and Foxglove to tensors `[H, W, C]`, or to the bytes of a compressed image. Pixels keep their
//! values: rows lose their padding, and big-endian values become little-endian.

use super::row;
use super::tally::Unfit;
use super::types::has_all;
use arrow_array::StructArray;
use arrow_array::types::{UInt8Type, UInt32Type};
use arrow_schema::Fields;
use robocache_device::Dtype;
use robocache_stream::{Cells, Message, MetadataRef};

/// Names of the fields by which a `sensor_msgs/Image` and a `foxglove.RawImage` are recognised.
const IMAGES: [&[&str]; 2] = [
    &["header", "height", "width", "encoding", "is_bigendian", "step", "data"],
    &["timestamp", "frame_id", "width", "height", "encoding", "step", "data"],
];
/// Names of the fields by which a `sensor_msgs/CompressedImage` and a `foxglove.CompressedImage` are recognised.
const COMPRESSED: [&[&str]; 2] = [
    &["header", "format", "data"],
    &["timestamp", "frame_id", "data", "format"],
];
/// Key of the metadata under which dora's nodes give the encoding of an image.
const ENCODING: &str = "encoding";

/// Kind of an image: pixels, or a compressed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    Compressed,
}

impl Kind {
    /// Returns the kind of image in messages with these fields; `None` if the names of the fields are not those of an image.
    pub(super) fn of(fields: &Fields) -> Option<Self> {
        let are = |kinds: [&[&str]; 2]| kinds.iter().any(|names| has_all(fields, names));
        match (are(IMAGES), are(COMPRESSED)) {
            (true, _) => Some(Self::Plain),
            (_, true) => Some(Self::Compressed),
            _ => None,
        }
    }

    /// Copies the image in a message to the payload of `message`. Pixels become `[H, W, C]`, without the padding at the end of
    /// rows. A compressed image becomes its bytes.
    pub(super) fn read(self, payload: &StructArray, message: &mut Message) -> Result<(), Unfit> {
        let useless = |problem: &str| Unfit::Useless(problem.to_owned());
        let text = |name: &str| row::text(payload, name);
        let number = |name: &str| Some(row::number::<UInt32Type>(payload, name)? as usize);
        let data = row::list::<UInt8Type>(payload, "data").ok_or_else(|| useless("`data` is not a list of uint8"))?;
        if self == Self::Compressed {
            let format = text("format").ok_or_else(|| useless("`format` is not text"))?;
            message.header.other.set(ENCODING).assign(MetadataRef::String(format));
            message.rows = data.len();
            message.add_column("", Dtype::UInt8, Cells::One).data.copy_from(data);
            return Ok(());
        }
        let encoding = text("encoding").ok_or_else(|| useless("`encoding` is not text"))?;
        let parts = [number("height"), number("width"), number("step")];
        let [Some(height), Some(width), Some(step)] = parts else {
            return Err(useless("`height`, `width` or `step` is not a uint32"));
        };
        let (dtype, channels) =
            pixel(encoding).ok_or_else(|| useless(&format!("encoding `{encoding}`, whose pixels are not known")))?;
        let is_big = row::number::<UInt8Type>(payload, "is_bigendian").is_some_and(|flag| flag != 0);
        let row = width.saturating_mul(channels * dtype.size());
        if row > step || step.checked_mul(height).is_none_or(|all| all > data.len()) && height > 0 {
            return Err(Unfit::Broken(format!(
                "{height} rows of {step} bytes in {} (needed: {row} a row for {width} pixels of `{encoding}`)",
                data.len()
            )));
        }
        message.header.other.set(ENCODING).assign(MetadataRef::String(encoding));
        message.header.shape.set([height as i64, width as i64, channels as i64]);
        message.rows = height * width * channels;
        let column = message.add_column("", dtype, Cells::One);
        if row == step {
            column.data.copy_from(&data[..row * height]);
        } else {
            column.data.resize(row * height);
            let rows = column.data.bytes_mut().chunks_exact_mut(row.max(1));
            rows.zip(data.chunks(step.max(1)))
                .for_each(|(to, from)| to.copy_from_slice(&from[..row]));
        }
        if is_big && dtype.size() > 1 {
            let values = column.data.bytes_mut().chunks_exact_mut(dtype.size());
            values.for_each(<[u8]>::reverse);
        }
        Ok(())
    }
}

/// Returns the element type and the number of channels of an encoding in `sensor_msgs/image_encodings.hpp`, such as `rgb8`;
/// `None` if the encoding is not known.
fn pixel(encoding: &str) -> Option<(Dtype, usize)> {
    Some(match encoding {
        "mono8" => (Dtype::UInt8, 1),
        "rgb8" | "bgr8" => (Dtype::UInt8, 3),
        "rgba8" | "bgra8" => (Dtype::UInt8, 4),
        "mono16" => (Dtype::UInt16, 1),
        "rgb16" | "bgr16" => (Dtype::UInt16, 3),
        "rgba16" | "bgra16" => (Dtype::UInt16, 4),
        "yuv422" | "yuv422_yuy2" | "uyvy" | "yuyv" => (Dtype::UInt8, 2),
        _ if encoding.starts_with("bayer_") && encoding.ends_with("16") => (Dtype::UInt16, 1),
        _ if encoding.starts_with("bayer_") => (Dtype::UInt8, 1),
        _ => {
            let (bits, rest) = encoding.split_at_checked(encoding.find(|c: char| !c.is_ascii_digit())?)?;
            let channels = match rest.get(1..)?.strip_prefix('C')? {
                "" => 1,
                channels => channels.parse().ok().filter(|channels| (1..=64).contains(channels))?,
            };
            let dtype = match (bits, rest.get(..1)?) {
                ("8", "U") => Dtype::UInt8,
                ("8", "S") => Dtype::Int8,
                ("16", "U") => Dtype::UInt16,
                ("16", "S") => Dtype::Int16,
                ("32", "S") => Dtype::Int32,
                ("32", "F") => Dtype::Float32,
                ("64", "F") => Dtype::Float64,
                _ => return None,
            };
            (dtype, channels)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_of_opencv_and_of_ros() {
        let cases = [
            ("rgb8", Some((Dtype::UInt8, 3))),
            ("16UC1", Some((Dtype::UInt16, 1))),
            ("32FC", Some((Dtype::Float32, 1))),
            ("8SC4", Some((Dtype::Int8, 4))),
            ("64FC12", Some((Dtype::Float64, 12))),
            ("bayer_rggb16", Some((Dtype::UInt16, 1))),
            ("8UC0", None),
            ("24UC1", None),
            ("", None),
            ("8", None),
            ("8é", None),
            ("nv21", None),
        ];
        for (encoding, pixels) in cases {
            assert_eq!(pixel(encoding), pixels, "{encoding}");
        }
    }
}

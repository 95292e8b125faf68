//! Encoding and decoding of PNG images. The decoded pixels are those that were encoded, and the decoder's memory is bounded.

use png::{BitDepth, ColorType, Compression, Decoder, Encoder, Transformations};
use std::io::Cursor;

/// Largest number of bytes that the decoder may allocate for an image.
const MOST_BYTES: usize = 1 << 28;

/// Encodes an image of uint8 as PNG; `shape` is `[height, width, channels]` with 1 or 3 channels.
pub(super) fn encode(pixels: &[u8], shape: &[usize]) -> Result<Vec<u8>, String> {
    let (height, width, channels) = (shape[0], shape[1], shape[2]);
    let size = |n: usize| u32::try_from(n).map_err(|_| format!("{n} pixels along an edge are too many for a PNG"));
    let mut file = Vec::with_capacity(pixels.len() / 2);
    let mut encoder = Encoder::new(&mut file, size(width)?, size(height)?);
    encoder.set_color(if channels == 1 {
        ColorType::Grayscale
    } else {
        ColorType::Rgb
    });
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(Compression::Fast);
    let mut writer = encoder.write_header().map_err(|error| error.to_string())?;
    writer.write_image_data(pixels).map_err(|error| error.to_string())?;
    writer.finish().map_err(|error| error.to_string())?;
    Ok(file)
}

/// Decodes a PNG to its pixels, row-major. A PNG of another shape than `shape` is refused.
pub(super) fn decode(file: &[u8], shape: &[usize]) -> Result<Vec<u8>, String> {
    let mut decoder = Decoder::new_with_limits(Cursor::new(file), png::Limits { bytes: MOST_BYTES });
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    let mut reader = decoder
        .read_info()
        .map_err(|error| format!("it is not a PNG: {error}"))?;
    let (color, _) = reader.output_color_type();
    let found = [
        reader.info().height as usize,
        reader.info().width as usize,
        color.samples(),
    ];
    if found != shape {
        return Err(format!(
            "the PNG is {found:?} (allowed: {shape:?}, as meta/info.json says)"
        ));
    }
    let mut pixels = vec![0; shape.iter().product()];
    let wrong = |error: png::DecodingError| format!("the PNG can't be decoded: {error}");
    reader.next_frame(&mut pixels).map_err(wrong)?;
    Ok(pixels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_come_back() {
        for channels in [1, 3] {
            let shape = [5, 7, channels];
            let pixels: Vec<u8> = (0..5 * 7 * channels).map(|i| (i * 37 % 256) as u8).collect();
            let file = encode(&pixels, &shape).unwrap();
            assert_eq!(decode(&file, &shape).unwrap(), pixels);
            let error = decode(&file, &[7, 5, channels]).unwrap_err();
            assert_eq!(
                error,
                format!("the PNG is {shape:?} (allowed: [7, 5, {channels}], as meta/info.json says)")
            );
            assert!(decode(&file[..file.len() / 2], &shape).is_err());
        }
        assert!(
            decode(b"GIF89a", &[1, 1, 1])
                .unwrap_err()
                .starts_with("it is not a PNG")
        );
    }
}

//! A minute of a real drive, if the folder `shared/data` is beside the repository.

use super::{Pairs, config};
use crate::support::{Random, gpu, ran, random_cases, say};
use robocache::device::Values;
use std::path::{Path, PathBuf};

/// Reads the float64 elements of a `.npy` file, row-major.
fn read(path: &Path) -> Vec<f64> {
    let bytes = std::fs::read(path).unwrap();
    let header = u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
    let (text, data) = bytes[10..].split_at(header);
    let text = std::str::from_utf8(text).unwrap();
    assert!(text.contains("'<f8'"), "{}: {text}", path.display());
    let elements: Vec<f64> = data
        .chunks_exact(8)
        .map(|element| f64::from_le_bytes(element.try_into().unwrap()))
        .collect();
    if text.contains("'fortran_order': False") {
        return elements;
    }
    let shape = text.split(['(', ')']).nth(1).unwrap();
    let rows: usize = shape.split(',').next().unwrap().trim().parse().unwrap();
    let columns = elements.len() / rows;
    (0..elements.len())
        .map(|i| elements[i % columns * rows + i / columns])
        .collect()
}

#[test]
fn the_windows_of_a_real_drive_are_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let found = ["../shared/data", "../../shared/data"]
        .map(|folder| {
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join(folder)
                .join("comma2k19_drive_1min")
        })
        .into_iter()
        .find(|folder: &PathBuf| folder.is_dir());
    let Some(folder) = found else {
        say("gpu: skipped the recordings: ../shared/data is absent");
        return;
    };
    // Radar has several rows with the same time.
    let streams = [
        "CAN_speed",
        "CAN_wheel_speed",
        "CAN_radar",
        "IMU_accelerometer",
        "IMU_gyro",
        "GNSS_live_gnss_ublox",
    ];
    let mut samples = Vec::new();
    let mut dims = Vec::new();
    for (stream, name) in streams.iter().enumerate() {
        let times = read(&folder.join(format!("{name}_t.npy")));
        let values = read(&folder.join(format!("{name}_value.npy")));
        dims.push(values.len() / times.len());
        let rows = times.iter().zip(values.chunks_exact(values.len() / times.len()));
        samples.extend(rows.map(|(&time, row)| ((time * 1e9) as i64, stream, row.iter().map(|&v| v as f32).collect())));
    }
    samples.sort_by_key(|(stamp, _, _): &(i64, usize, Vec<f32>)| *stamp);
    // Takes a few seconds of the drive, or all of it.
    samples.truncate(samples.len() / if random_cases(0) == 0 { 40 } else { 1 });
    let mut pairs = Pairs::new(&config(&format!(
        "{{ rate_hz: 20, window: 16, stride: 2, max_wait_ms: 50, dtype: bfloat16, modalities: [\
             {{ input: speed, dim: {}, interpolation: linear, max_gap_ms: 30 }},\
             {{ input: wheels, dim: {}, interpolation: linear }},\
             {{ input: radar, dim: {}, interpolation: previous, max_age_ms: 100 }},\
             {{ input: accelerometer, dim: {}, interpolation: nearest, max_age_ms: 5 }},\
             {{ input: gyro, dim: {}, interpolation: linear, latency_ms: 3 }},\
             {{ input: gnss, dim: {}, interpolation: previous, wait: false }}] }}",
        dims[0], dims[1], dims[2], dims[3], dims[4], dims[5]
    )));
    let random = &mut Random(0);
    for (stamp, stream, row) in &samples {
        let row = Values::from_f32(row);
        // Samples of the wheels come on the device.
        let _ = match stream {
            1 => pairs.push_on_device(*stream, *stamp, row),
            _ => pairs.push(*stream, *stamp, row),
        };
        pairs.check_due(random);
    }
    ran(&gpu, "fuse: windows of a real drive", pairs.windows);
}

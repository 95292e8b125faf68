//! Tests of incoming samples: types, order, duplicates, and samples that are dropped.

use super::{MS, SampleError, Script, Values};
use half::{bf16, f16};
use robocache_device::Dtype;

#[test]
fn samples_may_be_of_any_numeric_type() {
    let mut t = Script::new("", &["input: a, dim: 2"]);
    let f16s = [f16::from_f32(0.5), f16::from_f32(-2.0)];
    let bf16s = [bf16::from_f32(1.5), bf16::from_f32(-3.0)];
    let samples: [(Dtype, &[u8], &str); 9] = [
        (Dtype::Float64, bytemuck::cast_slice(&[0.1f64, -1e-40]), "0.1,-0"),
        (Dtype::Float16, bytemuck::cast_slice(&f16s), "0.5,-2"),
        (Dtype::BFloat16, bytemuck::cast_slice(&bf16s), "1.5,-3"),
        (Dtype::Int8, bytemuck::cast_slice(&[-128i8, 127]), "-128,127"),
        (Dtype::UInt8, &[0, 255], "0,255"),
        (Dtype::Int16, bytemuck::cast_slice(&[-300i16, 300]), "-300,300"),
        (Dtype::UInt16, bytemuck::cast_slice(&[1u16, 65535]), "1,65535"),
        (Dtype::Int32, bytemuck::cast_slice(&[-7i32, 16_777_217]), "-7,16777216"),
        (
            Dtype::Int64,
            bytemuck::cast_slice(&[1i64 << 40, -1]),
            "1099511600000,-1",
        ),
    ];
    for (i, (dtype, bytes, shown)) in samples.into_iter().enumerate() {
        let ms = 10 * i as i64;
        t.try_push("a", ms * MS, Values::new(dtype, bytes)).unwrap();
        // -1e-40 is a denormal in float32 and shown in full
        let shown = shown.replace("-0", &(-1e-40f64 as f32).to_string());
        t.falls_due(&[&format!("{ms}: a={shown}@0")]);
    }
}

#[test]
fn samples_are_sorted_whatever_order_they_come_in() {
    let mut t = Script::new("", &["input: a, interpolation: linear", "input: clock"]);
    for (ms, value) in [(0, 0.0), (30, 30.0), (6, 60.0), (14, 20.0)] {
        t.push("a", ms, value, &[]);
    }
    t.push("clock", 10, 0.0, &["10: a=40@4 clock=0@0"]);
}

#[test]
fn of_two_with_the_same_time_the_later_arrival_wins() {
    let mut t = Script::new("", &["input: a", "input: clock"]);
    t.push("a", 8, 1.0, &[]);
    t.push("a", 12, 2.0, &[]);
    t.push("a", 8, 3.0, &[]);
    t.push("clock", 10, 0.0, &["10: a=3@2 clock=0@0"]);
}

#[test]
fn what_is_not_finite_is_dropped_and_the_stream_goes_on() {
    let mut t = Script::new("", &["input: a, dim: 3"]);
    t.push_all("a", 0, &[1.0, 2.0, 3.0], &["0: a=1,2,3@0"]);
    for (channel, value) in [(0, f32::NAN), (1, f32::INFINITY), (2, f32::NEG_INFINITY)] {
        let mut sample = [9.0; 3];
        sample[channel] = value;
        let error = t.try_push("a", 10 * MS, Values::from_f32(&sample)).unwrap_err();
        assert!(
            matches!(error, SampleError::NonFinite { channel: at, .. } if at == channel),
            "{error}"
        );
        t.falls_due(&[]);
    }
    let too_large = [0.0, 1e300, 0.0];
    let error = t
        .try_push(
            "a",
            10 * MS,
            Values::new(Dtype::Float64, bytemuck::cast_slice(&too_large)),
        )
        .unwrap_err();
    assert_eq!(error.to_string(), "value 1 of a sample is inf, not finite in float32");
    t.push_all("a", 20, &[4.0, 5.0, 6.0], &["10: a=1,2,3@10", "20: a=4,5,6@0"]);
}

#[test]
fn a_sample_of_the_wrong_length_is_dropped_with_both_lengths_said() {
    let mut t = Script::new("", &["input: a, dim: 3"]);
    for sample in [&[][..], &[1.0, 2.0], &[0.0; 6]] {
        let error = t.try_push("a", 0, Values::from_f32(sample)).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("a sample has {} values, not 3 (`dim`)", sample.len())
        );
        t.falls_due(&[]);
    }
    t.push_all("a", 0, &[1.0, 2.0, 3.0], &["0: a=1,2,3@0"]);
}

/// A dropped sample neither brings its stream past a target nor opens a closed stream.
#[test]
fn a_dropped_sample_does_not_open_a_closed_input() {
    let mut t = Script::new("", &["input: a", "input: b"]);
    t.close("b", &[]);
    t.try_push("b", 0, Values::from_f32(&[f32::NAN])).unwrap_err();
    t.push("a", 0, 1.0, &["0: a=1@0 b=0!@-"]);
}

/// Samples of 1 MiB: a stream may hold 64 of them while it waits for another stream.
#[test]
fn what_waits_for_another_stream_is_bounded() {
    let dim = 1 << 18;
    let mut t = Script::new("", &[&format!("input: a, dim: {dim}"), "input: b"]);
    let sample = |ms: i64| vec![ms as f32; dim];
    for ms in 0..64 {
        assert!(!t.push_all("a", ms, &sample(ms), &[]).overflowed, "{ms}");
    }
    assert!(t.push_all("a", 64, &sample(64), &[]).overflowed);
    assert!(t.push_all("a", 65, &sample(65), &[]).overflowed);
    // 0 and 1 are dropped, so that the samples of a begin at 2, and the first target is 10
    t.timeline.push(1, 0, Values::from_f32(&[0.0])).unwrap();
    assert_eq!(t.timeline.due(), None);
    t.timeline.push(1, 10 * MS, Values::from_f32(&[0.0])).unwrap();
    assert_eq!(t.timeline.due().map(|target| target.time_ns), Some(10 * MS));
}

#[test]
fn a_long_run_forgets_what_no_window_needs() {
    let mut t = Script::new("window: 4", &["input: a", "input: b, interpolation: linear"]);
    for k in 0..5000i64 {
        t.timeline
            .push(0, 3 * k * MS, Values::from_f32(&[(3 * k) as f32]))
            .unwrap();
        t.timeline
            .push(1, 7 * k * MS / 2, Values::from_f32(&[3.5 * k as f32]))
            .unwrap();
        let mut last = None;
        while let Some(target) = t.timeline.due() {
            last = Some(t.show(&target));
        }
        // a at multiples of 3, b at multiples of 3.5, such as 14959 = 3.5 * 4274 and 14980 = 3.5 * 4280
        if 3 * k == 14991 {
            let shown = "14960: a=14958@2 b=14960@1 | 14970: a=14970@0 b=14970@0.5 | \
                14980: a=14979@1 b=14980@0 | 14990: a=14988@2 b=14990@3";
            assert_eq!(last.as_deref(), Some(shown));
        }
    }
}

#[test]
fn streams_whose_rows_are_on_a_device_begin_anew_when_it_is_lost() {
    use super::Notice;
    use crate::align::gpu::DeviceSample;
    use robocache_device::gpu::{Budget, DeviceBuf, Gpu, Kind};
    use robocache_stream::{Cells, DeviceColumn};

    let mut t = Script::new("", &["input: a, dim: 2", "input: b"]);
    let Some(on_gpu) = &mut t.on_gpu else { return };
    let gpu = Gpu::open(Kind::Cuda, 0).unwrap();
    let mut memory = DeviceBuf::new(&gpu, &Budget::new(None));
    memory.reserve(8).unwrap();
    memory.clear(0, 8).unwrap();
    gpu.synchronize().unwrap();
    let tensor = DeviceColumn {
        name: String::new(),
        dtype: Dtype::Float32,
        cells: Cells::One,
        len: 2,
        memory,
    };
    let sample = DeviceSample::of(&tensor, 0..2).unwrap();
    let timeline = &mut t.timeline;
    on_gpu.push(timeline, 0, 0, sample).ok().unwrap();
    let refused = timeline.push(0, 5 * MS, Values::from_f32(&[1.0, 2.0])).unwrap_err();
    assert_eq!(refused, SampleError::OnDevice);
    timeline.forget_rows_on_device(None);
    let notices: Vec<Notice> = timeline.take_notices().collect();
    let (modality, samples) = (0, 1);
    assert_eq!(notices, [Notice::SamplesLost { modality, samples }]);
    // Samples on the host go on.
    t.push("b", 15, 4.0, &[]);
    t.push_all("a", 18, &[7.0, 8.0], &[]);
    t.push("b", 25, 5.0, &[]);
    t.push_all("a", 30, &[9.0, 9.0], &["20: a=7,8@2 b=4@5"]);
}

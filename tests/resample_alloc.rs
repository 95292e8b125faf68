//! Resampling allocates nothing once it has seen its largest trajectory.

#[path = "common/counting.rs"]
mod counting;

use counting::allocations;
use robocache::device::{Dtype, HostBuf};
use robocache::ops::resample::{CpuResampler, ResampleConfig, Trajectories};
use robocache::stream::{Cells, Layout, Message};

fn add(message: &mut Message, name: &str, dtype: Dtype, bytes: &[u8], rows: usize) {
    let len = bytes.len() / dtype.size();
    let column = message.add_column(name, dtype, Cells::Ragged(len));
    column.data.copy_from(bytes);
    column.offsets.extend((0..=rows).map(|row| (row * len / rows) as i32));
}

#[test]
fn nothing_is_allocated_in_steady_state() {
    const ROWS: usize = 3;
    const SAMPLES: usize = 500;
    const DIM: usize = 5;
    let times: Vec<i64> = (0..ROWS * SAMPLES).map(|i| (i % SAMPLES / 2 * 10) as i64).collect();
    let mut values = vec![1.0f32; ROWS * SAMPLES * DIM];
    values[77] = f32::NAN;
    let targets: Vec<i64> = (0..ROWS * 200).map(|i| (i * 37 % 2600) as i64).collect();
    let mut message = Message::default();
    message.rows = ROWS;
    message.header.dim.set(DIM as i64);
    add(
        &mut message,
        "timestamps_ns",
        Dtype::Int64,
        bytemuck::cast_slice(&times),
        ROWS,
    );
    add(
        &mut message,
        "values",
        Dtype::Float32,
        bytemuck::cast_slice(&values),
        ROWS,
    );
    add(
        &mut message,
        "targets_ns",
        Dtype::Int64,
        bytemuck::cast_slice(&targets),
        ROWS,
    );

    let mut resampler = CpuResampler::new(&ResampleConfig::default()).unwrap();
    let mut layout = Layout::flat(Dtype::UInt8, 0);
    let (mut out, mut valid) = (HostBuf::default(), HostBuf::default());
    let (mut value_offsets, mut valid_offsets) = ([0; ROWS + 1], [0; ROWS + 1]);
    let mut step = || {
        let batch = Trajectories::from_message(&message).unwrap();
        batch.layout_into(&mut layout);
        batch.offsets_into(&mut value_offsets, &mut valid_offsets);
        out.resize(batch.output_bytes());
        valid.resize(batch.targets());
        let counters = resampler.run(&batch, out.bytes_mut(), valid.bytes_mut());
        assert_eq!(counters.dropped_nonfinite, 1);
    };
    step();
    let before = allocations();
    assert!(before > 0, "the counter counts");
    for _ in 0..10 {
        step();
    }
    assert_eq!(allocations(), before);
}

//! Resampling allocates no memory once it has seen its largest trajectory.

use crate::counting::allocations;
use robocache::device::{Dtype, Placement};
use robocache::ops::resample::{ResampleConfig, Resampler};
use robocache::stream::{Cells, Layout, Message, Payload};

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

    let mut resampler = Resampler::new(&ResampleConfig::default(), &Placement::cpu("a test")).unwrap();
    let (mut layout, mut answer) = (Layout::default(), Message::default());
    let mut step = || {
        let batch = resampler.read(&message).unwrap();
        batch.layout_into(&mut layout);
        let done = resampler.run(&batch, &mut Payload::in_message(&mut answer, &layout));
        assert_eq!(done.counters.dropped_nonfinite, 1);
    };
    step();
    let before = allocations();
    assert!(before > 0, "the counter counts");
    for _ in 0..10 {
        step();
    }
    assert_eq!(allocations(), before);
}

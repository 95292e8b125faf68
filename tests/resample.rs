//! Resampling on the CPU: the cases that all backends share, and which batches are accepted.

#[macro_use]
#[path = "common/resample.rs"]
pub mod cases;

use cases::{message, row};
use half::{bf16, f16};
use robocache::device::{Dtype, Placement};
use robocache::ops::resample::{CpuResampler, ResampleConfig, Trajectories, TrajectoriesError};
use robocache::stream::{Cells, Layout, Message};

resample_cases!(|| Placement::cpu("a test"), 400);

#[test]
fn the_layout_of_the_answer_has_a_row_for_each_trajectory() {
    let message = message::<f16>(&[row(&[], &[], &[1, 2]), row(&[], &[], &[]), row(&[], &[], &[3])], 4);
    let batch = Trajectories::from_message(&message).unwrap();
    let mut layout = Layout::flat(Dtype::UInt8, 0);
    batch.layout_into(&mut layout);
    assert_eq!(layout.rows, 3);
    assert_eq!(layout.columns.len(), 2);
    let (values, valid) = (&layout.columns[0], &layout.columns[1]);
    assert_eq!(
        (&*values.name, values.dtype, values.cells),
        ("values", Dtype::Float16, Cells::Ragged(12))
    );
    assert_eq!(
        (&*valid.name, valid.dtype, valid.cells),
        ("valid", Dtype::UInt8, Cells::Ragged(3))
    );
    assert_eq!(batch.output_bytes(), 24);
    let (mut values, mut valid) = ([0; 4], [0; 4]);
    batch.offsets_into(&mut values, &mut valid);
    assert_eq!((values, valid), ([0, 8, 8, 12], [0, 2, 2, 3]));
}

fn refused(message: &Message) -> TrajectoriesError {
    Trajectories::from_message(message).err().expect("it is wrong")
}

#[test]
fn a_message_that_is_no_batch_is_refused_with_what_came_and_what_is_allowed() {
    let good = row(&[0, 1], &[0.0; 4], &[0]);
    let check = |error: TrajectoriesError, words: &[&str]| {
        let text = error.to_string();
        for word in words {
            assert!(text.contains(word), "`{text}` does not say `{word}`");
        }
    };

    check(
        refused(&Message::default()),
        &["no column `timestamps_ns`", "no columns", "`targets_ns` List<Int64>"],
    );
    let mut flat = Message::default();
    flat.add_column("", Dtype::Float32, Cells::One);
    check(refused(&flat), &["a flat float32 array"]);

    let mut wrong = message::<f32>(std::slice::from_ref(&good), 2);
    wrong.columns_mut()[0].dtype = Dtype::UInt64;
    check(refused(&wrong), &["`timestamps_ns` is List<uint64>", "List<Int64>"]);
    wrong = message::<f32>(std::slice::from_ref(&good), 2);
    wrong.columns_mut()[1].dtype = Dtype::Int32;
    check(
        refused(&wrong),
        &["`values` is List<int32>", "Float32 | Float64 | Float16"],
    );
    wrong = message::<bf16>(std::slice::from_ref(&good), 2);
    wrong.columns_mut()[1].dtype = Dtype::UInt16;
    check(
        refused(&wrong),
        &["`values` is List<uint16>", "metadata `dtype` bfloat16"],
    );
    wrong = message::<f32>(std::slice::from_ref(&good), 2);
    wrong.columns_mut()[2].cells = Cells::Fixed(1);
    check(refused(&wrong), &["`targets_ns` is FixedSizeList<int64, 1>"]);

    check(
        refused(&message::<f32>(std::slice::from_ref(&good), 0)),
        &["`dim` is 0 or absent", "at least 1"],
    );
    let empty = row(&[], &[], &[0]);
    check(
        refused(&message::<f32>(&[empty, good.clone(), good], 3)),
        &[
            "`dim` fits no row",
            "row 1: 4 values for 2 timestamps",
            "2 times `dim` 3",
        ],
    );
    let huge = row(&[], &[], &[0, 1]);
    check(
        refused(&message::<f32>(&[huge], 1 << 30)),
        &["2 targets of `dim` 1073741824"],
    );
}

/// A message of a few bytes would otherwise cause an answer of gigabytes.
#[test]
fn a_large_dim_that_no_sample_shows_is_refused() {
    let (empty, most) = (row(&[], &[], &[0]), 1 << 16);
    let mut null = message::<f32>(&[row(&[0], &[1.0], &[0]), empty.clone()], 1 << 29);
    null.columns_mut()[1].null_rows.push(0);
    for (message, lists) in [
        (
            message::<f32>(std::slice::from_ref(&empty), 1 << 29),
            "0 timestamps and 0 values",
        ),
        (null, "1 timestamps and 1 values"),
    ] {
        let refused = Trajectories::from_message(&message).err().unwrap().to_string();
        let expected = format!(
            "metadata `dim` is 536870912, but no row has samples with 536870912 values: the lists hold {lists} (allowed \
             without samples: up to 65536)"
        );
        assert_eq!(refused, expected);
    }
    let shown = row(&[0], &vec![1.0; most + 1], &[0]);
    for (row, dim) in [(empty.clone(), most), (shown, most + 1)] {
        let message = message::<f32>(&[row, empty.clone()], dim);
        assert_eq!(
            Trajectories::from_message(&message).unwrap().output_bytes(),
            2 * dim * 4
        );
    }
}

/// A large batch is checked on all cores, a small batch on one. The results are the same.
#[test]
fn a_large_batch_is_read_as_its_rows_are() {
    const SAMPLES: i64 = 1 << 13;
    let times = |row: i64| (0..SAMPLES).map(|i| row + i * 10).collect::<Vec<_>>();
    let whole = |row: i64| self::row(&times(row), &vec![row as f64; SAMPLES as usize], &[row, row + 5]);
    let mut rows: Vec<_> = (0..40).map(whole).collect();
    let read = |rows: &[cases::Row]| {
        let message = message::<f32>(rows, 1);
        let batch = Trajectories::from_message(&message).unwrap();
        let refused = batch.refused().iter();
        refused
            .map(|refused| (refused.row, refused.problem.to_string()))
            .collect::<Vec<_>>()
    };
    let bits = |rows: &[cases::Row]| {
        let message = message::<f32>(rows, 1);
        let batch = Trajectories::from_message(&message).unwrap();
        let (mut values, mut valid) = (vec![0; batch.output_bytes()], vec![0; batch.targets()]);
        let mut resampler = CpuResampler::new(&ResampleConfig::default()).unwrap();
        resampler.run(&batch, &mut values, &mut valid);
        (values, valid)
    };
    let one_by_one = |rows: &[cases::Row]| {
        let each = rows.iter().map(|row| bits(std::slice::from_ref(row)));
        each.reduce(|a, b| ([a.0, b.0].concat(), [a.1, b.1].concat())).unwrap()
    };
    assert!(read(&rows).is_empty());
    assert_eq!(bits(&rows), one_by_one(&rows));
    // Two samples of one time, of which the last one counts.
    rows[33].times[1] = rows[33].times[0];
    rows[33].values[1] = -1.0;
    assert!(read(&rows).is_empty());
    assert_eq!(bits(&rows), one_by_one(&rows));
    rows[7].times.swap(100, 101);
    rows[21].times[SAMPLES as usize - 1] = i64::MAX;
    let (came, refused) = (read(&rows), |row: usize| read(&rows[row..=row]).remove(0).1);
    assert_eq!(came, [(7, refused(7)), (21, refused(21))]);
    assert_eq!(bits(&rows), one_by_one(&rows));
}

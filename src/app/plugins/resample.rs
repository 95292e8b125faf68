//! Plugin `resample`: interpolates batches of trajectories at their target times.
//!
//! A row that can't be used gets a result that is not valid, and is counted. The other rows of its batch are not affected.

use super::add;
use crate::app::{AppError, BuildContext, Fault, Operation, Outbox};
use robocache_device::Device;
use robocache_ops::resample::{ResampleConfig, Resampler};
use robocache_ops::{self as ops, resample};
use robocache_stream::{Layout, Message};
use std::time::Duration;

plugin! {
    /// Plugin that resamples the batches of the input `trajectories` at their targets, and publishes them as `resampled`.
    ResamplePlugin(ResampleConfig), "resample": "Resamples batches of `trajectories` at their targets, as `resampled`."
}

fn build(config: ResampleConfig, context: &mut BuildContext<'_>) -> Result<(), AppError> {
    let resampler = Resampler::new(&config, context.placement()).map_err(|error| context.refused(&error))?;
    let operation = Resample {
        resampler,
        layout: Layout::default(),
    };
    add(
        context,
        vec!["trajectories".into()],
        vec!["resampled".into()],
        operation,
    )
}

struct Resample {
    resampler: Resampler,
    layout: Layout,
}

impl Operation for Resample {
    fn input(&mut self, _: usize, message: &Message, out: &mut Outbox<'_>) -> Result<(), Fault> {
        let batch = self.resampler.read(message)?;
        for refused in batch.refused() {
            out.fault(0, format_args!("{refused}: its targets are answered as not valid"));
        }
        let (mut overflows, mut computed) = (0, (Duration::ZERO, Device::Cpu));
        batch.layout_into(&mut self.layout);
        let layout = std::mem::take(&mut self.layout);
        out.send(0, &layout, |payload, header| {
            let resampled = self.resampler.run(&batch, payload);
            let counters = resampled.counters;
            overflows = counters.dropped_overflow;
            computed = (resampled.compute_time, resampled.device);
            if let Some(stamp) = message.header.timestamp_ns.get() {
                header.timestamp_ns.set(stamp);
            }
            header.dim.set(batch.dim() as i64);
            header.dtype.set(batch.dtype());
            resample::key::targets.set(header, counters.targets as i64);
            resample::key::invalid.set(header, counters.invalid as i64);
            ops::key::dropped_nonfinite.set(header, counters.dropped_nonfinite as i64);
            ops::key::dropped_overflow.set(header, counters.dropped_overflow as i64);
            resample::key::refused_rows.set(header, batch.refused().len() as i64);
            ops::key::device.set(header, resampled.device);
            ops::key::compute_us.set(header, resampled.compute_time.as_secs_f64() * 1e6);
            if let Device::Gpu(..) = resampled.device {
                ops::key::device_bytes.set(header, self.resampler.device_bytes() as i64);
            }
        });
        self.layout = layout;
        if let Some(mut figures) = out.figures() {
            figures.observation(None);
            figures.computed(computed.0, computed.1, self.resampler.device_bytes());
        }
        if overflows > 0 {
            let (dtype, largest) = (batch.dtype(), batch.dtype().largest());
            out.fault(
                0,
                format_args!(
                    "{overflows} results are past what {dtype} holds ({largest:e}): they are not valid (needed: smaller values, or \
                     `values` of a type that holds more)"
                ),
            );
        }
        if let Some(error) = self.resampler.take_lost() {
            out.end(error);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::{App, Config, Graph, Sink};
    use half::f16;
    use robocache_device::Dtype;
    use robocache_stream::{Cells, Header, Payload};
    use std::path::Path;

    /// Sink that keeps the last message.
    #[derive(Default)]
    struct Last {
        message: Message,
        sent: usize,
    }

    impl Sink for Last {
        fn send(
            &mut self,
            _: &str,
            layout: &Layout,
            fill: &mut dyn FnMut(&mut Payload<'_>, &mut Header),
        ) -> Result<(), Fault> {
            self.message.write(layout, fill);
            self.sent += 1;
            Ok(())
        }
    }

    fn graph(section: &str) -> Graph {
        let text = format!("device: cpu\nplugins: [resample: {section}]");
        let config = Config::parse(Path::new("robot.yml"), &text).unwrap();
        App::new()
            .with_config(config)
            .add_plugin(ResamplePlugin::default())
            .build(|_| true)
            .unwrap()
    }

    /// Makes a batch with a row for each of `last_ns`: samples at 0 and at that time, and a target at 5 ns.
    fn batch(dtype: Dtype, values: &[u8], value_offsets: &[i32], last_ns: &[i64]) -> Message {
        let rows = last_ns.len();
        let mut message = Message::default();
        message.rows = rows;
        message.header.dim.set(1);
        let mut add = |name: &str, dtype: Dtype, bytes: &[u8], offsets: &[i32]| {
            let column = message.add_column(name, dtype, Cells::Ragged(bytes.len() / dtype.size()));
            column.data.copy_from(bytes);
            column.offsets.extend_from_slice(offsets);
        };
        let times: Vec<i64> = last_ns.iter().flat_map(|&last| [0, last]).collect();
        let twos: Vec<i32> = (0..=rows as i32).map(|row| 2 * row).collect();
        let ones: Vec<i32> = (0..=rows as i32).collect();
        add("timestamps_ns", Dtype::Int64, bytemuck::cast_slice(&times), &twos);
        add("values", dtype, values, value_offsets);
        add(
            "targets_ns",
            Dtype::Int64,
            bytemuck::cast_slice(&vec![5i64; rows]),
            &ones,
        );
        message
    }

    fn faults(graph: &Graph) -> u64 {
        graph.faults().map(|(_, count)| count).sum()
    }

    #[test]
    fn a_row_that_makes_no_sense_is_answered_and_counted() {
        let (mut graph, mut last) = (graph("{ fill_value: -1 }"), Last::default());
        let values = [0.0f32, 10.0, 1.0, 2.0, 3.0, 4.0, 5.0, 3e38, -3e38, 0.0, 30.0];
        let offsets = [0, 2, 4, 7, 9, 11];
        let message = batch(
            Dtype::Float32,
            bytemuck::cast_slice(&values),
            &offsets,
            &[10, -10, 10, 10, 10],
        );
        graph.message(0, &message, &mut last);
        let column = |name: &str| last.message.column(name).unwrap();
        assert_eq!(column("values").data.as_slice::<f32>(), [5.0, -1.0, -1.0, -1.0, 15.0]);
        assert_eq!(column("valid").data.as_slice::<u8>(), [1, 0, 0, 0, 1]);
        assert_eq!(
            (
                resample::key::invalid.get(&last.message.header),
                resample::key::refused_rows.get(&last.message.header)
            ),
            (Some(3), Some(2))
        );
        assert_eq!(ops::key::dropped_overflow.get(&last.message.header), Some(1));
        // The two refused rows, and the overflow between 3e38 and -3e38.
        assert_eq!(faults(&graph), 3);
    }

    #[test]
    fn a_row_with_a_null_is_answered_and_counted() {
        let (mut graph, mut last) = (graph("{ fill_value: -1 }"), Last::default());
        let values = [0.0f32, 10.0, 1.0, 2.0, 3.0, 30.0];
        let mut message = batch(
            Dtype::Float32,
            bytemuck::cast_slice(&values),
            &[0, 2, 4, 6],
            &[10, 10, 10],
        );
        message.columns_mut()[2].null_rows.push(0);
        message.columns_mut()[0].null_rows.push(1);
        graph.message(0, &message, &mut last);
        let column = |name: &str| last.message.column(name).unwrap();
        assert_eq!(column("values").data.as_slice::<f32>(), [-1.0, -1.0, 16.5]);
        assert_eq!(column("valid").data.as_slice::<u8>(), [0, 0, 1]);
        assert_eq!(
            (resample::key::refused_rows.get(&last.message.header), faults(&graph)),
            (Some(2), 2)
        );
    }

    #[test]
    fn a_fill_value_that_the_batch_cannot_hold_is_refused() {
        let (mut graph, mut last) = (graph("{ fill_value: 1e5 }"), Last::default());
        let halves = [0.0, 10.0].map(f16::from_f32);
        graph.message(
            0,
            &batch(Dtype::Float16, bytemuck::cast_slice(&halves), &[0, 2], &[10]),
            &mut last,
        );
        assert_eq!((last.sent, faults(&graph)), (0, 1));
        let singles = [0.0f32, 10.0];
        graph.message(
            0,
            &batch(Dtype::Float32, bytemuck::cast_slice(&singles), &[0, 2], &[10]),
            &mut last,
        );
        assert_eq!((last.sent, faults(&graph)), (1, 1));
    }
}

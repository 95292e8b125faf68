//! Report of a node's diagnostics: a row for each input, and values for the node as a whole.
//!
//! The macro `columns!` is the only list of a row's columns: the struct, the layout and the payload follow from it.

use super::key;
use robocache_device::{Dtype, Primitive};
use robocache_ops::{self as ops, voxelize::VoxelCounters};
use robocache_stream::{Cells, ColumnLayout, Header, Layout, Payload};
use serde::{Deserialize, Serialize};
use std::fmt;

/// State of an input or a node, as in ROS's `diagnostic_msgs/DiagnosticStatus`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Nothing is wrong with the input.
    #[default]
    Ok = 0,
    /// Samples of the input are lost, late or outside their limits.
    Warn = 1,
    /// Messages of the input can't be used, or no result comes because of it.
    Error = 2,
    /// No messages come from the input, or it is closed.
    Stale = 3,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Stale => "stale",
        })
    }
}

/// Defines [`Row`], its layout and its payload from one list of columns: meaning, name and type of each.
macro_rules! columns {
    ($($(#[doc = $doc:literal])+ $name:ident: $Type:ty,)+) => {
        /// State and statistics of one input of one operation.
        ///
        /// Counts start with the node. Rates, shares and percentiles are over the last 5 to 10 seconds. An unknown value is
        /// `None`, and in a message -1, or NaN for a float.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Row {
            $($(#[doc = $doc])+ pub $name: $Type,)+
        }

        impl Report {
            /// Layout of the report's payload: a struct with a row for each input.
            pub fn layout(&self) -> Layout {
                Layout {
                    rows: self.inputs.len(),
                    columns: vec![$(ColumnLayout {
                        name: stringify!($name).into(),
                        dtype: <$Type as Cell>::DTYPE,
                        cells: <$Type as Cell>::cells(self.inputs.iter().map(|row| &row.$name)),
                    }),+],
                }
            }

            /// Writes the rows to a payload of the report's [`layout`](Self::layout).
            pub fn write(&self, payload: &mut Payload<'_>) {
                let mut column = 0..;
                $(<$Type as Cell>::write(payload, column.next().unwrap_or(0), self.inputs.iter().map(|row| &row.$name));)+
            }
        }
    };
}

columns! {
    /// Name of the operation that takes the input.
    operation: String,
    /// Name of the input.
    input: String,
    /// State of the input since the last report.
    level: Level,
    /// Reason for `level`, as text; empty if nothing is wrong.
    message: String,
    /// Number of messages that were received since the start.
    messages: u64,
    /// Messages received per second.
    rate_hz: f64,
    /// Median step from one capture time to the next newer one, ns.
    period_p50_ns: Option<i64>,
    /// 99th percentile of the step from one capture time to the next newer one, ns.
    period_p99_ns: Option<i64>,
    /// Median age of the newest sample at the targets of observations, ns.
    age_p50_ns: Option<i64>,
    /// 99th percentile of the age of the newest sample at the targets of observations, ns.
    age_p99_ns: Option<i64>,
    /// Greatest age of the newest sample at the targets of observations, ns.
    age_max_ns: Option<i64>,
    /// Median delay from the capture time to the arrival at the node, ns; `None` if the capture times are of another clock.
    delay_p50_ns: Option<i64>,
    /// 99th percentile of the delay from the capture time to the arrival at the node, ns; `None` as for the median.
    delay_p99_ns: Option<i64>,
    /// Share of the observations in which the input is valid, 0 to 1.
    valid_share: Option<f64>,
    /// Number of late samples, which arrived after the observation of their target was published.
    late: u64,
    /// Number of faults of the input's messages since the start, as the log counts them.
    faults: u64,
    /// Number of messages or samples that were dropped since the start because too many waited.
    dropped_overflow: u64,
    /// Number of messages or samples that were dropped since the start for a NaN or an infinity.
    dropped_nonfinite: u64,
    /// Number of messages or samples that were dropped since the start for a wrong length or shape.
    dropped_length: u64,
    /// Number of messages or samples that were dropped since the start for a wrong or missing timestamp.
    dropped_stamp: u64,
    /// Number of rows that were dropped since the start for a value beyond the limits of the computation.
    dropped_range: u64,
    /// Number of poses that were dropped since the start because no joints were found for them.
    dropped_unreachable: u64,
    /// Number of messages since the start whose capture time is before the capture time of an earlier message.
    out_of_order: u64,
    /// Number of gaps since the start: steps from one capture time to the next that are longer than 1.5 times the median step.
    gaps: u64,
    /// Epoch of the operation's results: a count that goes up by one at each clock jump.
    epoch: i64,
    /// Host time minus device time, ns; `None` if the operation does not estimate the device's clock.
    clock_offset_ns: Option<i64>,
    /// Excess of the host clock's rate over the device clock's, parts per million; `None` if the operation does not estimate
    /// the device's clock.
    clock_skew_ppm: Option<f64>,
}

/// State of a node and of its inputs at one time, for the output `diagnostics` and the status file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of the report's fields: [`Report::VERSION`].
    pub version: u32,
    /// Id of the node in its dataflow.
    pub node: String,
    /// Time of the report, ns since 1970.
    pub timestamp_ns: i64,
    /// True in the last report of a node that ended without an error.
    pub ended: bool,
    /// Level of the worst input.
    pub level: Level,
    /// Reason for `level`, as text that names the input; empty if nothing is wrong.
    pub message: String,
    /// Number of observations, message sets and voxel grids that were published since the start.
    pub observations: u64,
    /// Observations, message sets and voxel grids per second, over the last 5 to 10 seconds; `None` if unknown.
    #[serde(default)]
    pub observation_rate_hz: Option<f64>,
    /// Median time from an observation's target to the newest stamp that had been received when it was published, ns.
    pub wait_p50_ns: Option<i64>,
    /// 99th percentile of the time from an observation's target to the newest stamp that had been received when it was
    /// published, ns.
    pub wait_p99_ns: Option<i64>,
    /// Median compute time of a result, over all operations, us.
    pub compute_p50_us: Option<f64>,
    /// 99th percentile of the compute time of a result, over all operations, us.
    pub compute_p99_us: Option<f64>,
    /// Largest number of messages of one input that waited in its queue at the same time, since the last report.
    pub queue_depth: u64,
    /// Counts of the points that were kept and dropped, of all voxel grids together; `None` if there are no grids.
    pub points: Option<VoxelCounters>,
    /// Device on which results are computed: a GPU if any operation uses one, else the CPU.
    pub device: String,
    /// Device memory that the operations hold, bytes.
    pub device_bytes: u64,
    /// A row for each input of each operation.
    pub inputs: Vec<Row>,
}

impl Report {
    /// Value of the field `version` in reports of this library.
    pub const VERSION: u32 = 1;

    /// Writes the values for the node as a whole to the header of the report's message.
    pub fn describe(&self, header: &mut Header) {
        header.timestamp_ns.set(self.timestamp_ns);
        key::node.set(header, &self.node);
        key::level.set(header, self.level as i64);
        key::message.set(header, &self.message);
        key::observations.set(header, self.observations as i64);
        if let Some(rate_hz) = self.observation_rate_hz {
            key::observation_rate_hz.set(header, rate_hz);
        }
        for (key, ns) in [
            (key::wait_p50_ns, self.wait_p50_ns),
            (key::wait_p99_ns, self.wait_p99_ns),
        ] {
            ns.into_iter().for_each(|ns| key.set(header, ns));
        }
        for (key, us) in [
            (key::compute_p50_us, self.compute_p50_us),
            (key::compute_p99_us, self.compute_p99_us),
        ] {
            us.into_iter().for_each(|us| key.set(header, us));
        }
        if let Some(points) = self.points {
            points.describe(header);
        }
        key::queue_depth.set(header, self.queue_depth as i64);
        ops::key::device.set(header, &self.device);
        ops::key::device_bytes.set(header, self.device_bytes as i64);
    }
}

/// Type of a field of [`Row`], which is sent as a column of the payload.
trait Cell {
    const DTYPE: Dtype;

    fn cells<'a>(_: impl Iterator<Item = &'a Self>) -> Cells
    where
        Self: 'a,
    {
        Cells::One
    }

    fn write<'a>(payload: &mut Payload<'_>, column: usize, values: impl Iterator<Item = &'a Self>)
    where
        Self: 'a;
}

/// Implements `Cell` for a type of fixed size. Each value is converted to the type after `as`, which is the type of the column.
macro_rules! cell {
    ($Type:ty as $As:ty: |$value:ident| $convert:expr) => {
        impl Cell for $Type {
            const DTYPE: Dtype = <$As as Primitive>::DTYPE;

            fn write<'a>(payload: &mut Payload<'_>, column: usize, values: impl Iterator<Item = &'a Self>) {
                for (to, $value) in payload.column::<$As>(column).iter_mut().zip(values) {
                    *to = $convert;
                }
            }
        }
    };
}

cell!(u64 as u64: |value| *value);
cell!(i64 as i64: |value| *value);
cell!(f64 as f64: |value| *value);
cell!(Option<i64> as i64: |value| value.unwrap_or(-1));
cell!(Option<f64> as f64: |value| value.unwrap_or(f64::NAN));
cell!(Level as u8: |value| *value as u8);

impl Cell for String {
    const DTYPE: Dtype = Dtype::UInt8;

    fn cells<'a>(values: impl Iterator<Item = &'a Self>) -> Cells {
        Cells::Text(values.map(String::len).sum())
    }

    fn write<'a>(payload: &mut Payload<'_>, column: usize, values: impl Iterator<Item = &'a Self>) {
        let (mut at, mut row) = (0, 0);
        payload.offsets(column)[0] = 0;
        for text in values {
            let end = at + text.len();
            payload.column::<u8>(column)[at..end].copy_from_slice(text.as_bytes());
            (at, row) = (end, row + 1);
            payload.offsets(column)[row] = end as i32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use robocache_stream::Message;

    #[test]
    fn a_report_is_a_struct_with_a_row_for_each_input() {
        let row = |input: &str, level| Row {
            input: input.into(),
            level,
            period_p50_ns: Some(10),
            ..Row::default()
        };
        let report = Report {
            node: "fuse".into(),
            level: Level::Stale,
            inputs: vec![row("force", Level::Ok), row("camera", Level::Stale)],
            ..Report::default()
        };
        let mut message = Message::default();
        message.write(&report.layout(), |payload, header| {
            report.write(payload);
            report.describe(header);
        });
        message.check().unwrap();
        assert_eq!(message.rows, 2);
        let texts: Vec<&str> = message.column("input").unwrap().texts().unwrap().collect();
        assert_eq!(texts, ["force", "camera"]);
        assert_eq!(message.column(key::level.name).unwrap().data.bytes(), [0, 3]);
        let numbers = |name: &str| message.column(name).unwrap().data.as_slice::<i64>().to_vec();
        assert_eq!(
            (numbers("period_p50_ns"), numbers("age_max_ns")),
            (vec![10, 10], vec![-1, -1])
        );
        let share: &[f64] = message.column("valid_share").unwrap().data.as_slice();
        assert!(share.iter().all(|share| share.is_nan()));
        assert_eq!(
            (key::node.get(&message.header), key::level.get(&message.header)),
            (Some("fuse"), Some(3))
        );
        assert!(key::wait_p50_ns.get(&message.header).is_none());
        message.write(&Report::default().layout(), |payload, _| {
            Report::default().write(payload)
        });
        assert_eq!(message.rows, 0);
    }
}

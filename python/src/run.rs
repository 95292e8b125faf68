//! Run of an aligner over whole streams. Samples are pushed one by one, and targets that become due are computed in between, as
//! in a node. So the observations are the same.

use crate::array::Array;
use crate::arrays::Arrays;
use crate::extent::{Merge, Stamps};
use crate::recording::unreadable;
use crate::rows::DistinctRows;
use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use robocache::device::{Dtype, Values};
use robocache::ops::align::{Aligner, AttachError, Attached, PushError, PushOutcome, SampleError, Target};
use robocache::stream::recording::Indexed;
use robocache::stream::{Message, Selection};
use std::collections::TryReserveError;
use std::fmt::Display;

/// Aligner of a run, with the observations that it has made so far.
pub struct Run {
    pub aligner: Aligner,
    pub rows: Vec<DistinctRows>,
    pub epochs: Vec<i64>,
    pub late_samples: i64,
    /// Numbers of dropped samples or messages for each stream, in the order of `REASONS`.
    pub dropped: Vec<[u64; REASONS.len()]>,
    /// Attached messages that are kept for later targets, each by its index in the stream.
    attached: Attached<usize>,
    /// Index of each row's message, and the message's age at the row's target, ns, for each attached stream. Both are -1 for a
    /// row without a message.
    pub members: Vec<[Vec<i64>; 2]>,
    /// Buffer for the bytes of one window.
    window: Vec<u8>,
}

/// Reasons for which samples and messages are dropped, as Python names them.
pub const REASONS: [&str; 5] = [
    "nonfinite",
    "no_rotation",
    "stamp_out_of_range",
    "wrong_length",
    "max_held_mb",
];

/// Bytes that a node counts for an attached message, in addition to its payload, towards the limit `max_held_mb`.
const OVERHEAD: usize = 4096;

/// Samples of one stream as arrays on the host: stamps, int64 `[S]`, ns, and values `[S, dim]`.
pub struct Samples {
    pub name: String,
    pub times: Array,
    values: Array,
    dtype: Dtype,
    dim: usize,
}

impl Run {
    /// Reserves memory for the estimated numbers of observations and rows; `MemoryError` if there is not enough.
    pub fn new(aligner: Aligner, (observations, rows): (usize, usize)) -> PyResult<Self> {
        let missing = |error: TryReserveError| {
            PyMemoryError::new_err(format!("{observations} observations with {rows} rows: {error}"))
        };
        let outputs = 0..aligner.outputs().len();
        let outputs = outputs.map(|output| DistinctRows::new(&aligner, output, rows, observations));
        let made = outputs.collect::<Result<Vec<_>, _>>().map_err(missing)?;
        let mut epochs = Vec::new();
        epochs.try_reserve_exact(observations).map_err(missing)?;
        Ok(Self {
            rows: made,
            epochs,
            late_samples: 0,
            dropped: vec![[0; REASONS.len()]; aligner.timeline().inputs().count()],
            attached: Attached::new(aligner.timeline()),
            members: vec![Default::default(); aligner.timeline().attached().len()],
            window: Vec::new(),
            aligner,
        })
    }

    /// Handles the result of pushing a sample of the stream `modality`. Counts a sample that can't be used as dropped, and
    /// stores the observations that are due. A device error ends the run.
    fn pushed(&mut self, modality: usize, pushed: Result<PushOutcome, PushError>) -> PyResult<()> {
        match pushed {
            Ok(_) => {}
            Err(PushError::Sample(error)) => {
                let reason = match error {
                    SampleError::NonFinite { .. } => 0,
                    SampleError::NoRotation { .. } => 1,
                    SampleError::StampOutOfRange(_) => 2,
                    SampleError::WrongLength { .. } => 3,
                    SampleError::OnDevice => return Err(PyValueError::new_err(error.to_string())),
                };
                self.dropped[modality][reason] += 1;
            }
            Err(error @ PushError::Device(_)) => return Err(PyRuntimeError::new_err(error.to_string())),
        }
        self.take_due()
    }

    /// Adds the message with the index `number` of an attached stream, and stores the observations that are due.
    fn attach(&mut self, stream: usize, number: usize, message: &Message) -> PyResult<()> {
        let bytes = message.bytes() + OVERHEAD;
        let arrival = self
            .attached
            .push(&mut self.aligner, stream, message.timestamp_ns(), bytes, || number);
        let dropped = &mut self.dropped[self.aligner.timeline().modalities() + stream];
        match arrival {
            Ok(arrival) => dropped[4] += arrival.dropped as u64,
            Err(AttachError::Stamp(_)) => dropped[2] += 1,
            Err(AttachError::TooLarge { .. }) => dropped[4] += 1,
        }
        self.take_due()
    }

    fn take_due(&mut self) -> PyResult<()> {
        while let Some(target) = self.aligner.due() {
            self.take(target);
        }
        match self.aligner.take_lost() {
            Some(error) => Err(PyRuntimeError::new_err(error.to_string())),
            None => Ok(()),
        }
    }

    fn take(&mut self, target: Target) {
        self.epochs.push(target.epoch);
        let mut window = self.aligner.window(target);
        for rows in &mut self.rows {
            self.window.resize(window.output(rows.output).bytes(), 0);
            window.write(rows.output, &mut self.window);
            rows.add(&self.window, window.masks());
        }
        self.attached.select(window.timeline(), &target);
        while self.attached.next_released().is_some() {}
        let streams = self.members.len();
        for (stream, [numbers, ages]) in self.members.iter_mut().enumerate() {
            let members: Vec<i64> = self.attached.members(stream).map(|&number| number as i64).collect();
            let of_rows = |list: &'_ [i64]| list.iter().skip(stream).step_by(streams).copied().collect::<Vec<_>>();
            let number = |at: i64| usize::try_from(at).map_or(-1, |at| members[at]);
            numbers.extend(of_rows(self.attached.index()).into_iter().map(number));
            ages.extend(of_rows(self.attached.age_ns()));
        }
    }

    /// Closes the streams one after the other, as the inputs of a node end. Stores the observations that waited for
    /// later samples.
    fn finish(&mut self) -> PyResult<()> {
        for stream in 0..self.aligner.timeline().inputs().count() {
            self.aligner.close(stream);
            self.take_due()?;
        }
        let timeline = self.aligner.timeline();
        self.late_samples = (0..timeline.modalities())
            .map(|modality| timeline.late_samples(modality))
            .sum();
        Ok(())
    }

    /// Pushes the samples of all arrays, merged by `stamps`, and finishes the run.
    pub fn over_arrays(&mut self, streams: &[Samples], stamps: &[Stamps<'_>]) -> PyResult<()> {
        for (modality, at, stamp_ns) in Merge::new(stamps) {
            let samples = &streams[modality];
            let values = Values::new(samples.dtype, samples.values.bytes());
            let values = values.slice(at * samples.dim, (at + 1) * samples.dim);
            let pushed = self.aligner.push(modality, stamp_ns, values);
            self.pushed(modality, pushed)?;
        }
        self.finish()
    }

    /// Pushes the messages of all recorded streams, merged by `stamps`, and finishes the run. Errors name the recording `path`.
    pub fn over_messages(
        &mut self,
        streams: &mut [Indexed],
        selections: &[Selection],
        stamps: &[Stamps<'_>],
        path: &str,
    ) -> PyResult<()> {
        let mut message = Message::default();
        for (modality, at, _) in Merge::new(stamps) {
            let words = |problem: &dyn Display| {
                let name = stamps[modality].name;
                PyValueError::new_err(format!("{path}: stream `{name}`: {problem}"))
            };
            streams[modality].read(at, &mut message).map_err(unreadable)?;
            message.check().map_err(|error| words(&error))?;
            let restamped = selections[modality].restamp(&mut message.header);
            restamped.map_err(|error| words(&error))?;
            if let Some(attached) = modality.checked_sub(self.aligner.timeline().modalities()) {
                self.attach(attached, at, &message)?;
                continue;
            }
            let samples = self.aligner.samples(modality, &message);
            let mut samples = samples.map_err(|error| words(&error))?;
            while let Some(pushed) = self.aligner.push_next(&mut samples, &message) {
                self.pushed(modality, pushed)?;
            }
        }
        self.finish()
    }
}

impl Samples {
    /// Imports the arrays of the stream `name`, copies them to the host if necessary, and checks their shapes. Samples must
    /// have `dim` values.
    pub fn new(
        name: &str,
        times: &Bound<'_, PyAny>,
        values: &Bound<'_, PyAny>,
        dim: usize,
        arrays: &Arrays,
    ) -> PyResult<Self> {
        let (times_name, values_name) = (format!("{name}: times_ns"), format!("{name}: values"));
        let times = arrays.take_to_host(&times_name, times)?;
        let values = arrays.take_to_host(&values_name, values)?;
        times.expect_dtype(&times_name, &[Dtype::Int64])?;
        let dtype = values.expect_dtype(&values_name, &Dtype::ALL)?;
        let &[samples] = times.shape() else {
            return Err(PyValueError::new_err(format!(
                "`{times_name}` has shape {:?} (allowed: [S])",
                times.shape()
            )));
        };
        let fits = match *values.shape() {
            [rows] => dim == 1 && rows == samples,
            [rows, columns] => rows == samples && columns == dim,
            _ => false,
        };
        if !fits {
            return Err(PyValueError::new_err(format!(
                "`{values_name}` has shape {:?} (allowed with `dim` {dim} and {samples} times: [{samples}, {dim}]{})",
                values.shape(),
                if dim == 1 {
                    format!(" or [{samples}]")
                } else {
                    String::new()
                }
            )));
        }
        Ok(Self {
            name: name.to_owned(),
            times,
            values,
            dtype,
            dim,
        })
    }
}

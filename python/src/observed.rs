//! The Python class `Observed`, with all observations of a run. It holds distinct rows, and indices from which Python
//! makes windows.

use crate::element::Element;
use crate::extent::Stamps;
use crate::run::{REASONS, Run};
use crate::tensor::Tensor;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use robocache::device::Dtype;

/// The observations of whole streams, row by row. A row that several windows contain is stored once.
#[pyclass(frozen, get_all, module = "robocache")]
pub struct Observed {
    /// Names of the modalities, in the order of the columns.
    modalities: Vec<String>,
    /// Bounds of the modalities, M + 1 numbers: modality m is columns `offsets[m]..offsets[m + 1]`.
    offsets: Vec<i64>,
    /// Values of the U distinct rows, `[U, D]`.
    values: Py<Tensor>,
    /// Validity masks of the distinct rows, bool `[U, M]`.
    valid: Py<Tensor>,
    /// Time from the newest sample at or before a row's target to the target, ns, int64 `[U, M]`; -1 without such a sample.
    age_ns: Py<Tensor>,
    /// Targets of the distinct rows, ns, int64 `[U]`.
    timestamps_ns: Py<Tensor>,
    /// Indices of the distinct rows that make each window, oldest first, int64 `[N, T]`.
    index: Py<Tensor>,
    /// Epoch of each observation, which goes up by one at each clock jump, int64 `[N]`.
    epoch: Py<Tensor>,
    /// Number of late samples: those that came after their target was made, or closer than `min_period_ms` to another sample.
    late_samples: i64,
    /// Number of samples that could not be used, for each pair of a modality and a reason that occurred.
    dropped: Vec<(String, &'static str, u64)>,
    /// Inputs of `attach:` for which the caller gave no stream. They are left out.
    left_out: Vec<String>,
    /// Attached streams: the name of the output, the name of the stream, the index of each row's message in the stream, and
    /// that message's age at the row's target, ns. Index and age are int64 `[N, T]`, -1 for a row without a message.
    attached: Vec<(String, String, Py<Tensor>, Py<Tensor>)>,
    /// Name, range and counts of the stamps of each stream that has any.
    spans: Vec<Span>,
    /// Warnings about streams whose stamps are ahead of, or behind, those of the other streams, one line each.
    off: Vec<String>,
    /// True if messages reached the aligner in the order of their arrival, false if in the order of their stamps.
    by_arrival: bool,
}

/// Name of a stream, its smallest stamp, its largest stamp, the number of stamps, and the number of stamps below the stamp
/// before. The last number is 0 unless the last stamp is below the first. A message of several samples has one stamp.
pub type Span = (String, i64, i64, usize, usize);

/// Facts about the streams of a run, which become fields of [`Observed`].
#[derive(Default)]
pub struct StreamFacts {
    pub left_out: Vec<String>,
    pub spans: Vec<Span>,
    pub off: Vec<String>,
    pub by_arrival: bool,
}

/// Makes an `Observed` for each output of a finished run. Values that are not valid become `invalid`; `None` keeps the
/// `fill_value`. `sources` are the names of the streams.
pub fn observed(
    py: Python<'_>,
    run: Run,
    sources: &[String],
    about: &StreamFacts,
    invalid: Option<f32>,
) -> PyResult<Vec<Observed>> {
    let timeline = run.aligner.timeline();
    let names: Vec<String> = timeline.inputs().map(str::to_owned).collect();
    let (dtype, window, first) = (timeline.dtype(), timeline.window(), timeline.modalities());
    if let Some(number) = invalid.filter(|number| !number.is_nan() && !dtype.holds(*number)) {
        return Err(PyValueError::new_err(format!(
            "`invalid` is {number}, which {dtype} can't hold (allowed: None, NaN, a number that it can)"
        )));
    }
    let observations = run.epochs.len();
    let tensor = |tensor: Tensor| Py::new(py, tensor);
    let mut attached = Vec::new();
    for (i, (spec, [numbers, ages])) in timeline.attached().iter().zip(run.members).enumerate() {
        let of_rows = |list| tensor(Tensor::of_vec(list, Dtype::Int64, &[observations, window]));
        let source = sources[first + i].clone();
        attached.push((spec.output.clone(), source, of_rows(numbers)?, of_rows(ages)?));
    }
    let epoch = Py::new(py, Tensor::of_vec(run.epochs, Dtype::Int64, &[observations]))?;
    let mut observed = Vec::with_capacity(run.rows.len());
    for mut rows in run.rows {
        let of = &run.aligner.outputs()[rows.output];
        let (count, modalities) = (rows.times.len(), rows.modalities);
        if let Some(number) = invalid {
            rows.fill(of.offsets(), dtype, number);
        }
        let dropped = of.modalities().chain(first..names.len()).flat_map(|modality| {
            let counts = REASONS.iter().zip(run.dropped[modality]);
            let counts = counts.filter(|(_, count)| *count > 0);
            let name = &names[modality];
            counts.map(move |(reason, count)| (name.clone(), *reason, count))
        });
        observed.push(Observed {
            modalities: names[of.modalities()].to_vec(),
            offsets: of.offsets().to_vec(),
            dropped: dropped.collect(),
            values: tensor(Tensor::of_host(rows.values, dtype, &[count, rows.columns]))?,
            valid: tensor(Tensor::of_vec(rows.valid, Element::Bool, &[count, modalities]))?,
            age_ns: tensor(Tensor::of_vec(rows.age_ns, Dtype::Int64, &[count, modalities]))?,
            timestamps_ns: tensor(Tensor::of_vec(rows.times, Dtype::Int64, &[count]))?,
            index: tensor(Tensor::of_vec(rows.index, Dtype::Int64, &[observations, window]))?,
            epoch: epoch.clone_ref(py),
            late_samples: run.late_samples,
            left_out: about.left_out.clone(),
            attached: attached
                .iter()
                .map(|(output, source, numbers, ages)| {
                    (
                        output.clone(),
                        source.clone(),
                        numbers.clone_ref(py),
                        ages.clone_ref(py),
                    )
                })
                .collect(),
            spans: about.spans.clone(),
            off: about.off.clone(),
            by_arrival: about.by_arrival,
        });
    }
    Ok(observed)
}

/// Returns the [`Span`] of each stream; streams without a stamp are left out.
pub fn spans(streams: &[Stamps<'_>]) -> Vec<Span> {
    let spans = streams.iter().filter_map(|of| {
        let (least, greatest) = (of.stamps_ns.iter().min()?, of.stamps_ns.iter().max()?);
        let back = of.stamps_ns.windows(2).filter(|pair| pair[1] < pair[0]).count();
        let is_back = of.stamps_ns.last() < of.stamps_ns.first();
        let back = if is_back { back } else { 0 };
        Some((of.name.to_owned(), *least, *greatest, of.stamps_ns.len(), back))
    });
    spans.collect()
}

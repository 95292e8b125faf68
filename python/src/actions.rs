//! Conversion of chunks of actions in arrays, such as from poses to joints. If one chunk is refused, nothing is returned. The
//! error names the same chunk whatever the number of threads.

use crate::arrays::Arrays;
use crate::kinematics::{Chain, Number, Rows, filled, with_type};
use crate::tensor::Tensor;
use crate::threads;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rayon::prelude::*;
use robocache::device::Dtype;
use robocache::kinematics::actions::{
    Conversion, ConversionConfig, ConversionError, DeltaFrame, Kind, RotationForm, StepError,
};

/// Converts chunks of actions, `[..., T, d]`, from `kind` to `to`. The array `reference` is the state at the start of a chunk:
/// `[r]` for all chunks or `[..., r]` for each. An error is raised if the conversion needs a reference and gets `None`.
#[pyfunction]
#[pyo3(signature = (actions, kind, to, reference, chain, rotation, to_rotation, frame, step_ns))]
#[allow(clippy::too_many_arguments, reason = "Python names them")]
pub fn convert_actions(
    py: Python<'_>,
    actions: &Bound<'_, PyAny>,
    kind: &str,
    to: &str,
    reference: Option<&Bound<'_, PyAny>>,
    chain: Option<&Bound<'_, Chain>>,
    rotation: &str,
    to_rotation: &str,
    frame: &str,
    step_ns: Option<i64>,
) -> PyResult<Tensor> {
    let arrays = Arrays::new(None);
    let actions = Rows::take_any(&arrays, "actions", actions)?;
    actions.expect_on_host("actions", "actions are not converted")?;
    let config = ConversionConfig {
        rotation: rotation_of("rotation", rotation)?,
        to_rotation: rotation_of("to_rotation", to_rotation)?,
        frame: match frame {
            "tool" => DeltaFrame::Tool,
            "base" => DeltaFrame::Base,
            _ => return Err(refused("frame", &format!("{frame:?} (allowed: tool, base)"))),
        },
        step_ns,
        tolerance: match actions.dtype {
            Dtype::Float64 => TOLERANCE,
            _ => SINGLE_TOLERANCE,
        },
        ..ConversionConfig::new(kind_of("kind", kind)?, kind_of("to", to)?)
    };
    let conversion = Conversion::new(&config, chain.map(|chain| &chain.get().chain)).map_err(refusal)?;
    let Some((&steps, leading)) = actions.leading().split_last() else {
        return Err(PyValueError::new_err(format!(
            "`actions` has shape {:?} (allowed: [..., T, d])",
            actions.shape()
        )));
    };
    let widths = conversion.widths(actions.width()).map_err(refusal)?;
    let reference = match (widths.reference, reference) {
        (None, _) => None,
        (Some(width), None) => {
            let words = format!("None (needed from `{kind}` to `{to}`: [{width}] or [..., {width}])");
            return Err(refused("reference", &words));
        }
        (Some(width), Some(reference)) => {
            let meaning = match (chain, config.kind) {
                (Some(_), _) => "the joints",
                (None, Kind::Pose | Kind::RelativePose | Kind::DeltaPose) => "x y z qx qy qz qw",
                (None, _) => "the values",
            };
            let reference = Rows::take(&arrays, "reference", reference, width, meaning)?;
            reference.expect_on_host("reference", "actions are not converted")?;
            reference.expect_type_of("reference", "actions", &actions)?;
            reference.expect_for_each("reference", "chunks", leading)?;
            Some(reference)
        }
    };
    let job = Job {
        conversion,
        actions,
        reference,
        steps,
        width: widths.result,
    };
    with_type!(job.actions, job.run(py))
}

/// Tolerance of the inverse kinematics for float64 actions: largest distance between a wanted and a reached pose, m and rad.
const TOLERANCE: f64 = 1e-8;
/// Tolerance of the inverse kinematics for float32 actions, whose poses are rounded, m and rad.
const SINGLE_TOLERANCE: f64 = 2e-6;
/// Smallest number of chunks that a thread converts at a time. Up to this number, the calling thread converts all chunks itself.
const CHUNKS_AT_A_TIME: usize = 16;

/// One call of `convert_actions`: the conversion, and the arrays to convert.
struct Job {
    conversion: Conversion,
    actions: Rows,
    reference: Option<Rows>,
    /// Number of steps in a chunk, T.
    steps: usize,
    /// Number of values in each step of the result.
    width: usize,
}

impl Job {
    fn run<R: Number>(&self, py: Python<'_>) -> PyResult<Tensor> {
        let of_chunk = self.steps * self.width;
        let chunks = self.actions.count().checked_div(self.steps).unwrap_or(0);
        let mut results = filled(R::default(), chunks, of_chunk)?;
        if !results.is_empty() {
            let convert = |(chunk, results): (usize, &mut [R])| self.convert(chunk, results);
            let done = py.detach(|| {
                threads::share(|| {
                    if chunks <= CHUNKS_AT_A_TIME {
                        return results.chunks_exact_mut(of_chunk).enumerate().try_for_each(convert);
                    }
                    let chunks = results.par_chunks_exact_mut(of_chunk).enumerate();
                    // Finds the refused chunk with the least index, whichever thread is first.
                    let refused = chunks
                        .with_min_len(CHUNKS_AT_A_TIME)
                        .map(convert)
                        .find_first(Result::is_err);
                    refused.unwrap_or(Ok(()))
                })
            })?;
            done.map_err(|(chunk, error)| self.refused(chunk, &error))?;
        }
        Ok(self.actions.tensor(results, &[self.width]))
    }

    fn convert<R: Number>(&self, chunk: usize, results: &mut [R]) -> Result<(), (usize, StepError)> {
        let width = self.actions.width();
        let of_chunk = self.steps * width;
        let exact = |values: &[R]| values.iter().map(|x| x.to_f64()).collect::<Vec<f64>>();
        let actions = exact(&self.actions.values::<R>()[chunk * of_chunk..][..of_chunk]);
        let reference = self.reference.as_ref().map_or_else(Vec::new, |reference| {
            let row = if reference.leading().is_empty() { 0 } else { chunk };
            exact(&reference.values::<R>()[row * reference.width()..][..reference.width()])
        });
        let mut converted = vec![0.0; results.len()];
        let done = self.conversion.convert(&actions, width, &reference, &mut converted);
        done.map_err(|error| (chunk, error))?;
        for (i, (result, converted)) in results.iter_mut().zip(converted).enumerate() {
            *result = R::from_f64(converted);
            if !result.is_finite() {
                let problem = format!("the result {converted:e} is too large");
                let step = i / self.width;
                return Err((chunk, StepError::Step { step, problem }));
            }
        }
        Ok(())
    }

    /// Makes the `ValueError` for a refused chunk, with its index in the caller's array `actions` or `reference`.
    fn refused(&self, chunk: usize, error: &StepError) -> PyErr {
        let (_, leading) = self.actions.leading().split_last().unwrap_or((&0, &[]));
        let mut rest = chunk;
        let mut at: Vec<usize> = leading
            .iter()
            .rev()
            .map(|&n| {
                let index = rest % n;
                rest /= n;
                index
            })
            .collect();
        at.reverse();
        let (name, at, problem) = match error {
            StepError::Step { step, problem } => {
                at.push(*step);
                ("actions", at, problem)
            }
            StepError::Reference(problem) => {
                let is_shared = self
                    .reference
                    .as_ref()
                    .is_none_or(|reference| reference.leading().is_empty());
                ("reference", if is_shared { Vec::new() } else { at }, problem)
            }
        };
        let at = if at.is_empty() {
            String::new()
        } else {
            format!("{at:?}")
        };
        PyValueError::new_err(format!("`{name}{at}`: {problem}"))
    }
}

fn kind_of(name: &str, kind: &str) -> PyResult<Kind> {
    let found = Kind::ALL.into_iter().find(|of| of.name() == kind);
    found.ok_or_else(|| {
        let allowed = Kind::ALL.map(Kind::name).join(", ");
        refused(name, &format!("{kind:?} (allowed: {allowed})"))
    })
}

fn rotation_of(name: &str, rotation: &str) -> PyResult<RotationForm> {
    let found = RotationForm::ALL.into_iter().find(|of| of.name() == rotation);
    found.ok_or_else(|| {
        let allowed = RotationForm::ALL.map(RotationForm::name).join(", ");
        refused(name, &format!("{rotation:?} (allowed: {allowed})"))
    })
}

fn refusal(error: ConversionError) -> PyErr {
    match error.key {
        "actions" => PyValueError::new_err(format!("`actions` has {}", error.problem)),
        key => refused(key, &error.problem),
    }
}

fn refused(name: &str, problem: &str) -> PyErr {
    PyValueError::new_err(format!("`{name}` is {problem}"))
}

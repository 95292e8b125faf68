//! What align and fuse share: samples out of messages, live parameters, and the metadata of an observation.

use crate::app::{Change, Fault, Outbox, Parameter, Parameters, Payload, Value};
use crate::device::{Device, Dtype, Element};
use crate::ops::align::{Aligner, Masks, Target};
use crate::stream::{Layout, Message};
use half::{bf16, f16};
use std::time::Instant;

/// Why a message holds no samples.
#[derive(Debug, thiserror::Error)]
enum SamplesError {
    #[error("the payload is a struct (allowed: a flat array of samples of {dim} values)")]
    Struct { dim: usize },
    #[error("{stamps} `timestamps_ns` with {values} values (allowed: {dim} values for each)")]
    Stamps { stamps: usize, values: usize, dim: usize },
}

/// Puts the samples of a message into the histories, and calls `emit` for each observation that falls due.
pub(super) fn push_samples(
    aligner: &mut Aligner,
    input: usize,
    message: &Message,
    out: &mut Outbox<'_>,
    mut emit: impl FnMut(&Aligner, &Target, &mut Outbox<'_>),
) -> Result<(), Fault> {
    let dim = aligner.dim(input);
    let values = message.flat().ok_or(SamplesError::Struct { dim })?;
    let one = [message.timestamp_ns];
    let stamps = match message.timestamps_ns.as_slice() {
        [] => one.as_slice(),
        several if values.len() == several.len() * dim => several,
        several => {
            return Err(SamplesError::Stamps {
                stamps: several.len(),
                values: values.len(),
                dim,
            }
            .into());
        }
    };
    let parts = message.valid.len() / stamps.len();
    for (row, &stamp) in stamps.iter().enumerate() {
        // A row that an aligning node upstream says nothing of is no sample.
        if message.valid[row * parts..(row + 1) * parts].contains(&0) {
            continue;
        }
        let sample = if stamps.len() == 1 {
            values
        } else {
            values.slice(row * dim, (row + 1) * dim)
        };
        match aligner.push(input, stamp, sample) {
            Ok(pushed) => {
                if let Some(delta) = pushed.jumped_ns {
                    let seconds = delta as f64 * 1e-9;
                    out.fault(
                        input,
                        format_args!("the clock jumped by {seconds} s: the grid starts anew"),
                    );
                }
                if pushed.overflowed {
                    out.fault(
                        input,
                        "too much waits for another stream: the oldest sample was dropped",
                    );
                }
            }
            Err(error) => out.fault(input, error),
        }
        emit_due(aligner, out, &mut emit);
    }
    Ok(())
}

/// Takes note that an input closed or opened.
pub(super) fn change(
    aligner: &mut Aligner,
    input: usize,
    change: Change,
    out: &mut Outbox<'_>,
    mut emit: impl FnMut(&Aligner, &Target, &mut Outbox<'_>),
) {
    match change {
        Change::Closed => aligner.close(input),
        Change::Opened => aligner.open(input),
    }
    emit_due(aligner, out, &mut emit);
}

fn emit_due(aligner: &mut Aligner, out: &mut Outbox<'_>, emit: &mut impl FnMut(&Aligner, &Target, &mut Outbox<'_>)) {
    while let Some(target) = aligner.due() {
        emit(aligner, &target, out);
    }
}

/// Sets `max_wait_ms` or `<input>.latency_ms`, with or without the section's name and `modalities.` before it.
pub(super) fn set_parameter(aligner: &mut Aligner, section: &str, key: &str, value: &Value) -> Result<bool, Fault> {
    let key = key
        .strip_prefix(section)
        .and_then(|key| key.strip_prefix('.'))
        .unwrap_or(key);
    let key = key.strip_prefix("modalities.").unwrap_or(key);
    if key == "max_wait_ms" {
        let wait = match value {
            Value::Null => None,
            value => Some(value.as_f64().ok_or("it must be a number or null")?),
        };
        aligner.set_max_wait_ms(wait)?;
        return Ok(true);
    }
    let Some((input, "latency_ms")) = key.rsplit_once('.') else {
        return Ok(false);
    };
    let Some(modality) = aligner.inputs().position(|name| name == input) else {
        return Ok(false);
    };
    aligner.set_latency_ms(modality, value.as_f64().ok_or("it must be a number")?)?;
    Ok(true)
}

/// What stands in the columns of an output: modality m is columns `offsets[m]..offsets[m + 1]`.
pub(super) struct Columns {
    pub names: Vec<String>,
    pub offsets: Vec<i64>,
    pub layout: Layout,
}

impl Columns {
    /// The columns of these modalities side by side.
    pub fn new(aligner: &Aligner, modalities: std::ops::Range<usize>) -> Self {
        let mut offsets = vec![0];
        let mut columns = 0;
        for modality in modalities.clone() {
            columns += aligner.dim(modality);
            offsets.push(columns as i64);
        }
        Self {
            names: aligner
                .inputs()
                .map(str::to_owned)
                .skip(modalities.start)
                .take(modalities.len())
                .collect(),
            offsets,
            layout: Layout::flat(aligner.dtype(), aligner.window() * columns),
        }
    }
}

/// Writes an observation into a payload of the aligner's element type, times it, and gives its metadata.
pub(super) fn observe(
    aligner: &Aligner,
    target: &Target,
    device: Device,
    columns: &Columns,
    masks: &mut Masks,
    payload: &mut Payload<'_>,
    fill: impl Fill,
) -> Parameters {
    let Columns { names, offsets, .. } = columns;
    let start = Instant::now();
    match aligner.dtype() {
        Dtype::Float16 => fill.fill::<f16>(aligner, target, payload.column(0), masks),
        Dtype::BFloat16 => fill.fill::<bf16>(aligner, target, payload.column(0), masks),
        _ => fill.fill::<f32>(aligner, target, payload.column(0), masks),
    }
    let compute_us = start.elapsed().as_secs_f64() * 1e6;
    let width = offsets.last().copied().unwrap_or(0);
    let entries = [
        ("shape", Parameter::ListInt(vec![aligner.window() as i64, width])),
        ("dtype", Parameter::String(aligner.dtype().name().into())),
        ("timestamp_ns", Parameter::Integer(target.time_ns)),
        ("timestamps_ns", Parameter::ListInt(masks.timestamps_ns.clone())),
        ("modalities", Parameter::ListString(names.clone())),
        ("offsets", Parameter::ListInt(offsets.clone())),
        ("valid", Parameter::ListInt(masks.valid.clone())),
        ("age_ns", Parameter::ListInt(masks.age_ns.clone())),
        ("epoch", Parameter::Integer(target.epoch)),
        ("late_samples", Parameter::Integer(target.late_samples)),
        ("device", Parameter::String(device.to_string())),
        ("compute_us", Parameter::Float(compute_us)),
    ];
    entries
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// What writes the values of an observation, for each element type.
pub(super) trait Fill {
    fn fill<E: Element>(&self, aligner: &Aligner, target: &Target, out: &mut [E], masks: &mut Masks);
}

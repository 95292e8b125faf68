//! Store for the rows of windows, in which a row that several windows contain is stored once. Rows are the same only if time,
//! values, masks and ages have the same bits.

use robocache::device::{Dtype, HostBuf};
use robocache::ops::align::{Aligner, Masks};
use std::collections::{HashMap, TryReserveError};

/// The distinct rows of one output of an aligner, in the order in which windows first contain them. `index` has the
/// indices of the rows that make each window.
pub struct DistinctRows {
    pub output: usize,
    pub columns: usize,
    pub modalities: usize,
    pub values: HostBuf,
    pub valid: Vec<u8>,
    pub age_ns: Vec<i64>,
    pub times: Vec<i64>,
    pub index: Vec<i64>,
    /// Index of the row that was stored last for each target. The key is the target, ns.
    newest: HashMap<i64, usize>,
    row_bytes: usize,
}

impl DistinctRows {
    /// Reserves memory for `rows` distinct rows and the indices of `observations` windows; an error if there is not enough.
    pub fn new(aligner: &Aligner, output: usize, rows: usize, observations: usize) -> Result<Self, TryReserveError> {
        let source = &aligner.outputs()[output];
        let mut made = Self {
            output,
            columns: source.columns(),
            modalities: source.modalities().len(),
            values: HostBuf::default(),
            valid: Vec::new(),
            age_ns: Vec::new(),
            times: Vec::new(),
            index: Vec::new(),
            newest: HashMap::new(),
            row_bytes: source.columns() * aligner.timeline().dtype().size(),
        };
        made.values.try_reserve(rows.saturating_mul(made.row_bytes))?;
        made.valid.try_reserve_exact(rows.saturating_mul(made.modalities))?;
        made.age_ns.try_reserve_exact(rows.saturating_mul(made.modalities))?;
        made.times.try_reserve_exact(rows)?;
        made.newest.try_reserve(rows)?;
        let window = aligner.timeline().window();
        made.index.try_reserve_exact(observations.saturating_mul(window))?;
        Ok(made)
    }

    /// Stores those rows of a window that are not stored yet, and appends the indices of all its rows to `index`.
    pub fn add(&mut self, window: &[u8], masks: &Masks) {
        for (row, &time) in masks.timestamps_ns.iter().enumerate() {
            let values = &window[row * self.row_bytes..][..self.row_bytes];
            let valid = &masks.valid[row * self.modalities..][..self.modalities];
            let age_ns = &masks.age_ns[row * self.modalities..][..self.modalities];
            let known = self.newest.get(&time).copied();
            let same = known.filter(|&known| self.is(known, values, valid, age_ns));
            let at = same.unwrap_or_else(|| {
                let at = self.times.len();
                let end = self.values.len();
                self.values.resize(end + values.len());
                self.values.bytes_mut()[end..].copy_from_slice(values);
                self.valid.extend(valid.iter().map(|&valid| valid as u8));
                self.age_ns.extend_from_slice(age_ns);
                self.times.push(time);
                self.newest.insert(time, at);
                at
            });
            self.index.push(at as i64);
        }
    }

    /// Writes `number` to the values of modalities that are not valid. Modality m is columns `offsets[m]..offsets[m + 1]`.
    pub fn fill(&mut self, offsets: &[i64], dtype: Dtype, number: f32) {
        let element = match dtype {
            Dtype::Float16 => half::f16::from_f32(number).to_le_bytes().to_vec(),
            Dtype::BFloat16 => half::bf16::from_f32(number).to_le_bytes().to_vec(),
            _ => number.to_le_bytes().to_vec(),
        };
        let size = element.len();
        for (row, valid) in self.valid.chunks_exact(self.modalities.max(1)).enumerate() {
            for (ends, _) in offsets.windows(2).zip(valid).filter(|(_, valid)| **valid == 0) {
                let at = row * self.row_bytes;
                let cells = at + ends[0] as usize * size..at + ends[1] as usize * size;
                let cells = &mut self.values.bytes_mut()[cells];
                cells
                    .chunks_exact_mut(size)
                    .for_each(|cell| cell.copy_from_slice(&element));
            }
        }
    }

    /// True if the stored row `row` has exactly these values, masks and ages, bit for bit.
    fn is(&self, row: usize, values: &[u8], valid: &[i64], age_ns: &[i64]) -> bool {
        let masks = row * self.modalities..(row + 1) * self.modalities;
        self.values.bytes()[row * self.row_bytes..][..self.row_bytes] == *values
            && self.age_ns[masks.clone()] == *age_ns
            && self.valid[masks]
                .iter()
                .zip(valid)
                .all(|(&known, &valid)| i64::from(known) == valid)
    }
}

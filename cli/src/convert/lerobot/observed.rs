//! Observations of fuse that wait to become frames of a dataset. Only the newest row of each is kept, as float32.

use robocache::app::{Fault, Sink};
use robocache::device::Dtype;
use robocache::ops::{self, align};
use robocache::stream::{Header, Layout, Message, Payload, form};
use std::collections::{HashMap, VecDeque};

/// The newest row of an observation.
#[derive(Default)]
pub struct Observation {
    pub target_ns: i64,
    pub epoch: i64,
    /// Validity of each modality at the target.
    pub valid: Vec<bool>,
    /// Age of each modality's newest sample at the target, ns; -1 if there is no sample.
    pub age_ns: Vec<i64>,
    /// Bytes of the values of all modalities, float32.
    row: Vec<u8>,
    /// Offset in `row` at which each modality begins, bytes, and the end of the last modality.
    offsets: Vec<usize>,
}

impl Observation {
    /// Returns the values of a modality in the row, float32, as bytes.
    pub fn of(&self, modality: usize) -> &[u8] {
        &self.row[self.offsets[modality]..self.offsets[modality + 1]]
    }
}

/// Sink that queues the observations of fuse until they become frames. Of all other outputs it keeps the names of the values.
pub struct ObservationQueue {
    output: String,
    /// Names of the values of all outputs other than `output`, by the output's name, from its first message.
    pub names: HashMap<String, Vec<String>>,
    /// Observations that are not frames yet, in the order in which they were published.
    pub due: VecDeque<Observation>,
    /// Used observations whose memory later observations reuse.
    pub free: Vec<Observation>,
    memory: Message,
}

impl ObservationQueue {
    pub fn new(output: String) -> Self {
        Self {
            output,
            names: HashMap::new(),
            due: VecDeque::new(),
            free: Vec::new(),
            memory: Message::default(),
        }
    }
}

impl Sink for ObservationQueue {
    fn send(
        &mut self,
        output: &str,
        layout: &Layout,
        fill: &mut dyn FnMut(&mut Payload<'_>, &mut Header),
    ) -> Result<(), Fault> {
        if output != self.output {
            if !self.names.contains_key(output) {
                self.memory.write(layout, fill);
                let fields = self.memory.header.fields.get().unwrap_or_default();
                self.names.insert(output.to_owned(), fields.to_vec());
            }
            return Ok(());
        }
        self.memory.write(layout, fill);
        let header = &self.memory.header;
        let Some(values) = self.memory.flat().filter(|_| align::key::error.get(header).is_none()) else {
            return Ok(());
        };
        let valid = header.valid.get().unwrap_or_default();
        let age_ns = form::age_ns.get(header).unwrap_or_default();
        let offsets = align::key::offsets.get(header).unwrap_or_default();
        let modalities = form::modalities.get(header).map_or(0, <[String]>::len);
        let columns = offsets.last().map_or(0, |&columns| columns as usize);
        let newest = values.slice(values.len() - columns, values.len());
        let mut observation = self.free.pop().unwrap_or_default();
        observation.target_ns = self.memory.timestamp_ns();
        observation.epoch = ops::key::epoch.get(header).unwrap_or(0);
        observation.valid.clear();
        let valid = &valid[valid.len() - modalities..];
        observation.valid.extend(valid.iter().map(|&valid| valid == 1));
        observation.age_ns.clear();
        observation
            .age_ns
            .extend_from_slice(&age_ns[age_ns.len() - modalities..]);
        observation.offsets.clear();
        observation
            .offsets
            .extend(offsets.iter().map(|&column| column as usize * size_of::<f32>()));
        observation.row.clear();
        if newest.dtype() == Dtype::Float32 {
            observation.row.extend_from_slice(newest.bytes());
        } else {
            // A dataset can't hold float16 and bfloat16; float32 represents all of their values.
            let mut wide = vec![0.0; columns];
            newest.to_f32(&mut wide);
            observation
                .row
                .extend(wide.iter().flat_map(|value| value.to_le_bytes()));
        }
        self.due.push_back(observation);
        Ok(())
    }
}

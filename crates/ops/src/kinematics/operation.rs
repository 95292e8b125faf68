//! Computes the products (poses, Jacobians, twists, or joints) of one configured entry from messages. If a row has no product,
//! its values are NaN and its `valid` is 0.

use super::rows::{Implausible, Reason, RefusedRow, RowState, Unnamed};
use super::spec::{Fields, Spec};
use super::work::{ForwardWork, InverseWork};
use super::{InputError, KinematicsEntry, Product, key};
use crate::{ConfigError, align};
use robocache_device::{Device, Dtype};
use robocache_kinematics::{Chain, InverseError};
use robocache_stream::{Cells, Header, Layout, Message, Payload, Selection, form};
use std::time::{Duration, Instant};

/// Operation of one entry of the section `kinematics:`. It computes on the CPU, in the float type of the message: float32
/// or float64.
#[derive(Debug)]
pub struct Kinematics {
    spec: Spec,
    work: Work,
    /// State of each row of the last message.
    states: Vec<RowState>,
    dtype: Dtype,
    /// True if the last message has a stamp for each row; false if it is a single sample with one stamp.
    has_rows: bool,
    compute_time: Duration,
    /// Names of the joints, or of a pose's values, with which refused rows are reported.
    names: Vec<String>,
}

#[derive(Debug)]
enum Work {
    Forward(Box<ForwardWork>),
    Inverse(Box<InverseWork>),
}

impl Kinematics {
    /// Checks an entry and creates its operation for `chain`. Errors name the entry by `at`, its index in the
    /// list `kinematics:`.
    ///
    /// # Errors
    /// The key whose value is not allowed, the value, and the allowed values.
    pub fn new(entry: &KinematicsEntry, at: usize, chain: &Chain) -> Result<Self, ConfigError> {
        let spec = Spec::new(entry, at, chain)?;
        let work = match spec.products.contains(&Product::Joints) {
            false => Work::Forward(Box::new(ForwardWork::new(chain))),
            true => {
                let config = entry.inverse.clone().unwrap_or_default();
                let refused =
                    |InverseError { key, problem }| ConfigError::new(format!("[{at}].inverse.{key}"), problem);
                Work::Inverse(Box::new(InverseWork::new(chain, &config).map_err(refused)?))
            }
        };
        let names = match &work {
            Work::Forward(_) => spec.joints.clone(),
            Work::Inverse(_) => match spec.fields(Product::Pose) {
                Fields::Fixed(names) => names.iter().map(|&name| name.to_owned()).collect(),
                Fields::Joints(names) => names.to_vec(),
            },
        };
        Ok(Self {
            spec,
            work,
            states: Vec::new(),
            dtype: Dtype::Float64,
            has_rows: false,
            compute_time: Duration::ZERO,
            names,
        })
    }

    /// Returns the products (poses, Jacobians, twists, or joints) of the entry, in the order of its outputs.
    pub fn products(&self) -> &[Product] {
        &self.spec.products
    }

    /// Selection of the values and stamps that the operation reads from a message.
    pub fn selection(&self) -> &Selection {
        &self.spec.selection
    }

    /// Returns the name of the chain's base link, in whose frame poses are given.
    pub fn base(&self) -> &str {
        &self.spec.base
    }

    /// Reads the rows of a message, from which [`write`](Self::write) computes poses, Jacobians, twists or joints.
    ///
    /// # Errors
    /// The reason why no product can be computed from the message. After an error, the products of the message before
    /// can't be written either.
    pub fn read(&mut self, message: &Message) -> Result<(), InputError> {
        self.states.clear();
        self.compute_time = Duration::ZERO;
        self.dtype = match &mut self.work {
            Work::Forward(work) => work.read(message, &self.spec, &mut self.states)?,
            Work::Inverse(work) => work.read(message, &self.spec, &mut self.states)?,
        };
        self.has_rows = message.header.timestamps_ns.get().is_some_and(|rows| !rows.is_empty());
        Ok(())
    }

    /// True if the last message read has the values from which `product` is computed. A twist needs velocities.
    pub fn has(&self, product: Product) -> bool {
        match &self.work {
            Work::Forward(work) => product != Product::Twist || work.has_velocities(),
            Work::Inverse(_) => true,
        }
    }

    /// Sets `layout` to the layout of `product` for the last message read, and reuses the memory of `layout`.
    pub fn layout_into(&self, product: Product, layout: &mut Layout) {
        layout.rows = self.states.len() * self.spec.width(product);
        match layout.columns.as_mut_slice() {
            [only] if only.cells == Cells::One => only.dtype = self.dtype,
            _ => *layout = Layout::flat(self.dtype, layout.rows),
        }
    }

    /// Computes `product` for each row of the last message read, and writes it to the payload. A row without a result
    /// becomes NaN.
    ///
    /// # Panics
    /// If the payload does not have the [layout](Self::layout_into) of the product.
    pub fn write(&mut self, product: Product, payload: &mut Payload<'_>) {
        let start = Instant::now();
        match &mut self.work {
            Work::Forward(work) => work.write(product, self.spec.frame, self.dtype, &mut self.states, payload),
            Work::Inverse(work) => work.write(self.dtype, &mut self.states, payload),
        }
        self.compute_time += start.elapsed();
    }

    /// Writes the header of `product`, which was [written](Self::write) before. Stamps, `epoch` and all other metadata that do
    /// not describe the payload are copied from `message`, the last message read.
    pub fn describe(&self, product: Product, message: &Message, header: &mut Header) {
        header.copy_from(&message.header);
        for (key, _) in form::ALL {
            header.remove(key);
        }
        header.remove(align::key::offsets.name);
        header.remove(crate::key::device_bytes.name);
        header.dim.clear();
        let rows = self.has_rows.then_some(self.states.len());
        let sides = self.spec.shape(product).iter().map(|&side| self.spec.length(side));
        header.shape.set(rows.into_iter().chain(sides).map(|size| size as i64));
        header.dtype.set(self.dtype);
        match self.spec.fields(product) {
            Fields::Fixed(names) => header.fields.set(names),
            Fields::Joints(names) => header.fields.set(names),
        }
        match self.spec.frame_id(product) {
            Some(frame) => header.frame_id.set(frame),
            None => header.frame_id.clear(),
        }
        header
            .valid
            .set(self.states.iter().map(|state| i64::from(state.has(product))));
        let count = |is_it: fn(&Reason) -> bool| {
            let reasons = self.states.iter().filter_map(|state| state.reason(product));
            reasons.filter(|reason| is_it(reason)).count() as i64
        };
        crate::key::dropped_nonfinite.set(header, count(Reason::is_nonfinite));
        key::dropped_range.set(header, count(Reason::is_range));
        crate::key::device.set(header, Device::Cpu);
        crate::key::compute_us.set(header, self.compute_time.as_secs_f64() * 1e6);
        match &self.work {
            Work::Forward(work) => {
                let implausible = work.implausible_rows(self.dtype, &self.spec, &self.states);
                key::implausible.set(header, implausible as i64);
            }
            Work::Inverse(work) => {
                key::dropped_unreachable.set(header, count(Reason::is_unreachable));
                work.describe(self.dtype, header);
            }
        }
    }

    /// Returns the refused rows of the last message read, in ascending order. Poses for which no joints were found are included
    /// once the joints were [written](Self::write).
    pub fn refused(&self) -> impl Iterator<Item = RefusedRow<'_>> {
        self.states.iter().enumerate().filter_map(|(row, state)| match state {
            RowState::Refused(reason) => Some(RefusedRow {
                row,
                reason: *reason,
                names: &self.names,
            }),
            _ => None,
        })
    }

    /// Returns the first joint position of the last message that is more than a full turn beyond its limits, and may be in
    /// degrees. `None` if there is none.
    pub fn implausible(&self) -> Option<Implausible<'_>> {
        let Work::Forward(work) = &self.work else { return None };
        let (joint, value) = work.implausible(self.dtype, &self.spec, &self.states)?;
        Some(Implausible {
            joint: &self.spec.joints[joint],
            value,
            limits: self.spec.limits[joint],
        })
    }

    /// Returns the names of the last message's values if none is the name of a joint: the values are then taken in the chain's
    /// order. Returns `None` if joints were found by name, or the values have no names.
    pub fn unnamed(&self) -> Option<Unnamed<'_>> {
        match &self.work {
            Work::Forward(work) => work.unnamed(&self.spec),
            Work::Inverse(_) => None,
        }
    }

    /// Returns the number of rows last [written](Self::write) whose joints jumped, and the index of the first such row. A jump
    /// is a step above `max_joint_step` from the previous answer. `None` without a jump.
    pub fn changes(&self) -> Option<(u64, usize)> {
        match &self.work {
            Work::Forward(_) => None,
            Work::Inverse(work) => work.changes(self.dtype),
        }
    }

    /// Returns the time taken by [`write`](Self::write) so far for the last message read.
    pub fn compute_time(&self) -> Duration {
        self.compute_time
    }
}

//! Forward and inverse kinematics for both float types. Each message is computed in the float type of its values.

use super::InputError;
use super::forward::{Forward, Order};
use super::inverse::Inverse;
use super::places::{Places, check_order_of_pose};
use super::rows::{RowState, Unnamed};
use super::spec::{Channels, Spec};
use super::{InverseConfig, Product};
use robocache_device::Dtype;
use robocache_kinematics::{Chain, Frame, InverseError};
use robocache_stream::{Header, Message, Payload, SampleRows, SamplesError};

/// Forward kinematics for messages of either float type: computes poses, Jacobians and twists from joints.
#[derive(Debug)]
pub(super) struct ForwardWork {
    places: Places,
    has_velocities: bool,
    single: Forward<f32>,
    double: Forward<f64>,
}

/// Inverse kinematics for messages of either float type: finds joints for poses.
#[derive(Debug)]
pub(super) struct InverseWork {
    /// The float32 solver; an error if the tolerances are too fine for float32.
    single: Result<Inverse<f32>, InverseError>,
    double: Inverse<f64>,
    /// Float type of the last message; `None` before the first message.
    dtype: Option<Dtype>,
    epoch: Option<i64>,
}

impl ForwardWork {
    pub(super) fn new(chain: &Chain) -> Self {
        Self {
            places: Places::default(),
            has_velocities: false,
            single: Forward::new(chain),
            double: Forward::new(chain),
        }
    }

    /// True if the last message read has velocities, and the entry asks for a twist.
    pub(super) fn has_velocities(&self) -> bool {
        self.has_velocities
    }

    /// Returns the first joint position outside its plausible range in the last message read, as the joint's index and the
    /// position. `dtype` is the float type of the message.
    pub(super) fn implausible(&self, dtype: Dtype, spec: &Spec, states: &[RowState]) -> Option<(usize, f64)> {
        match dtype {
            Dtype::Float32 => self.single.implausible(&spec.plausible, states),
            _ => self.double.implausible(&spec.plausible, states),
        }
    }

    /// Counts the rows of the last message read with a joint position outside its plausible range. `dtype` is the float type of
    /// the message.
    pub(super) fn implausible_rows(&self, dtype: Dtype, spec: &Spec, states: &[RowState]) -> usize {
        match dtype {
            Dtype::Float32 => self.single.implausible_rows(&spec.plausible, states),
            _ => self.double.implausible_rows(&spec.plausible, states),
        }
    }

    /// Returns the names of the last message's values, if `channels` is configured and none is the name of a joint.
    pub(super) fn unnamed<'a>(&'a self, spec: &'a Spec) -> Option<Unnamed<'a>> {
        let fields = self.places.unnamed().filter(|_| spec.channels.is_some())?;
        Some(Unnamed {
            fields,
            joints: &spec.joints,
        })
    }

    /// Computes `product` for the last message read, and writes it to the payload. `dtype` is the float type of the message.
    pub(super) fn write(
        &self,
        product: Product,
        frame: Frame,
        dtype: Dtype,
        states: &mut [RowState],
        payload: &mut Payload<'_>,
    ) {
        match dtype {
            Dtype::Float32 => self.single.write(product, frame, states, payload),
            _ => self.double.write(product, frame, states, payload),
        }
    }

    /// Reads a message, and sets the state of each of its rows. Returns the float type of its values.
    pub(super) fn read(
        &mut self,
        message: &Message,
        spec: &Spec,
        states: &mut Vec<RowState>,
    ) -> Result<Dtype, InputError> {
        let (rows, n) = (message.stamps().len(), spec.joints.len());
        let has_twist = spec.products.contains(&Product::Twist);
        let fields = message.header.fields.get().unwrap_or_default();
        let (order, width) = if let Some(Channels { first, end }) = spec.channels {
            let width = width_with(message, end)?;
            let names = fields.get(first..end).unwrap_or_default();
            let order = match self.places.find_joints_if_named(names, &spec.joints)? {
                false => Order::in_chain(first, end - first > n),
                true => Order::named(first, &self.places, has_twist),
            };
            (order, width)
        } else if fields.is_empty() {
            let has_velocities = has_twist && message.data().flat_len() == Some(rows * 2 * n);
            (
                Order::in_chain(0, has_velocities),
                if has_velocities { 2 * n } else { n },
            )
        } else {
            self.places.find_joints(fields, &spec.joints)?;
            (Order::named(0, &self.places, has_twist), fields.len())
        };
        let (samples, dtype) = samples(message, width)?;
        self.has_velocities = order.has_velocities;
        states.resize(rows, RowState::Masked);
        match dtype {
            Dtype::Float32 => self.single.read(samples, order, states),
            _ => self.double.read(samples, order, states),
        }
        Ok(dtype)
    }
}

impl InverseWork {
    pub(super) fn new(chain: &Chain, config: &InverseConfig) -> Result<Self, InverseError> {
        Ok(Self {
            single: Inverse::new(chain, config),
            double: Inverse::new(chain, config)?,
            dtype: None,
            epoch: None,
        })
    }

    /// Finds joints for the poses of the last message read, and writes them to the payload. `dtype` is the float type of
    /// the message.
    pub(super) fn write(&mut self, dtype: Dtype, states: &mut [RowState], payload: &mut Payload<'_>) {
        match (&mut self.single, dtype) {
            (Ok(single), Dtype::Float32) => single.write(states, payload),
            _ => self.double.write(states, payload),
        }
    }

    /// Returns the number of written rows whose joints jumped by more than `max_joint_step`, and the index of the first such
    /// row. Returns `None` without a jump. The float type of the message is `dtype`.
    pub(super) fn changes(&self, dtype: Dtype) -> Option<(u64, usize)> {
        match (&self.single, dtype) {
            (Ok(single), Dtype::Float32) => single.changes(),
            _ => self.double.changes(),
        }
    }

    /// Writes the metadata of the joints: the number of jumps so far (`branch`), and the position and rotation errors of
    /// each row.
    pub(super) fn describe(&self, dtype: Dtype, header: &mut Header) {
        match (&self.single, dtype) {
            (Ok(single), Dtype::Float32) => single.describe(header),
            _ => self.double.describe(header),
        }
    }

    /// Reads a message, and sets the state of each of its rows. Returns the float type of its values.
    pub(super) fn read(
        &mut self,
        message: &Message,
        spec: &Spec,
        states: &mut Vec<RowState>,
    ) -> Result<Dtype, InputError> {
        let (first, width) = match spec.channels {
            None => (0, spec.width(Product::Pose)),
            Some(Channels { first, end }) => (first, width_with(message, end)?),
        };
        let (samples, dtype) = samples(message, width)?;
        let fields = message.header.fields.get().unwrap_or_default();
        check_order_of_pose(fields.get(first..).unwrap_or_default(), &spec.joints)?;
        if let (Dtype::Float32, Err(error)) = (dtype, &self.single) {
            return Err(InputError::TooFine(error.clone()));
        }
        // A new epoch follows a clock jump: the trajectory starts anew.
        let epoch = crate::key::epoch.get(&message.header);
        let is_new = epoch != self.epoch;
        self.epoch = epoch;
        if let (Ok(single), Some(last)) = (&mut self.single, self.dtype.replace(dtype)) {
            match (last, dtype) {
                (Dtype::Float32, Dtype::Float64) => self.double.follow(single),
                (Dtype::Float64, Dtype::Float32) => single.follow(&self.double),
                _ => {}
            }
        }
        states.resize(message.stamps().len(), RowState::Masked);
        match (&mut self.single, dtype) {
            (Ok(single), Dtype::Float32) => single.read(samples, first, is_new, states),
            _ => self.double.read(samples, first, is_new, states),
        }
        Ok(dtype)
    }
}

/// Returns the number of values of each sample of a message. Refuses samples of fewer than `end` values.
fn width_with(message: &Message, end: usize) -> Result<usize, InputError> {
    let values = message.data().flat_len().unwrap_or(0);
    let width = match last_side(message) {
        Some(side) => side,
        None => values / message.stamps().len(),
    };
    match width >= end {
        true => Ok(width),
        false => Err(InputError::Narrow { width, end }),
    }
}

/// The length of the last axis of a message's shape; `None` if the message has no shape.
fn last_side(message: &Message) -> Option<usize> {
    let side = *message.header.shape.get()?.last()?;
    usize::try_from(side).ok()
}

/// Returns the samples of a message, of `width` values each, and their float type. Refuses samples that are matrices, because
/// each row of a matrix would need its own stamp.
fn samples(message: &Message, width: usize) -> Result<(SampleRows<'_>, Dtype), InputError> {
    let samples = message.samples(width)?;
    if last_side(message).is_some_and(|side| side != width) {
        let error = SamplesError::Shape {
            shape: message.header.shape.get().unwrap_or_default().to_vec(),
            samples: message.stamps().len(),
            dim: width,
        };
        return Err(error.into());
    }
    let dtype = message.flat().map(|values| values.dtype());
    match dtype {
        Some(dtype @ (Dtype::Float32 | Dtype::Float64)) => Ok((samples, dtype)),
        _ => Err(InputError::Type(dtype)),
    }
}

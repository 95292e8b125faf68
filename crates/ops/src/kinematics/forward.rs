//! Computes poses, Jacobians and twists on the CPU from rows of joints, in one float type. If a row has no result, its values
//! are NaN, never values of an earlier message.

use super::Product;
use super::places::Places;
use super::rows::{Reason, RowState};
use robocache_device::Primitive;
use robocache_geometry::Real;
use robocache_kinematics::{Chain, Frame, Model};
use robocache_stream::{Payload, SampleRows};

/// Forward kinematics of one chain on the CPU, with the joints of the last message.
#[derive(Debug)]
pub(super) struct Forward<R> {
    model: Model<R>,
    /// Joint positions of the last message, row after row.
    q: Vec<R>,
    /// Joint velocities of the last message, row after row; empty if velocities are absent or not needed.
    dq: Vec<R>,
}

/// Order of the joints in a row of values. It is given by the names of the values, or is the chain's order with all positions
/// before all velocities.
#[derive(Clone, Copy)]
pub(super) struct Order<'a> {
    pub named: Option<&'a Places>,
    /// Index of the first value of a sample that is read.
    pub first: usize,
    pub has_velocities: bool,
}

impl<'a> Order<'a> {
    /// Creates an order by the names of values. The indices in `places` count from value `first` of a sample. Velocities are
    /// read only if `has_twist`.
    pub(super) fn named(first: usize, places: &'a Places, has_twist: bool) -> Self {
        Self {
            named: Some(places),
            first,
            has_velocities: has_twist && places.velocities().is_some(),
        }
    }

    /// Creates the order of the chain's joints, from value `first` of a sample on: all positions, followed by all velocities
    /// if `has_velocities`.
    pub(super) fn in_chain(first: usize, has_velocities: bool) -> Self {
        Self {
            named: None,
            first,
            has_velocities,
        }
    }
}

impl<R: Real + Primitive> Forward<R> {
    pub(super) fn new(chain: &Chain) -> Self {
        Self {
            model: Model::new(chain),
            q: Vec::new(),
            dq: Vec::new(),
        }
    }

    /// Reads the joints of a message's samples, and sets the state of their rows. `states` has one entry for each row of
    /// the message.
    pub(super) fn read(&mut self, samples: SampleRows<'_>, order: Order<'_>, states: &mut [RowState]) {
        let n = self.model.joints();
        let all = states.len() * n;
        for (values, len) in [
            (&mut self.q, all),
            (&mut self.dq, if order.has_velocities { all } else { 0 }),
        ] {
            values.clear();
            values.resize(len, R::default());
        }
        for sample in samples {
            let values = &sample.values.as_slice::<R>()[order.first..];
            let at = sample.row * n..(sample.row + 1) * n;
            let gather = |to: &mut [R], places: &[usize]| {
                to.iter_mut().zip(places).for_each(|(to, &place)| *to = values[place]);
            };
            match order.named {
                None => self.q[at.clone()].copy_from_slice(&values[..n]),
                Some(places) => gather(&mut self.q[at.clone()], places.positions()),
            }
            if let Some(to) = self.dq.get_mut(at) {
                match order.named {
                    None => to.copy_from_slice(&values[n..][..n]),
                    Some(places) => gather(to, places.velocities().unwrap_or_default()),
                }
            }
            states[sample.row] = self.judge(sample.row);
        }
    }

    fn judge(&self, row: usize) -> RowState {
        let q = self.row(&self.q, row);
        let not_finite = |values: &[R]| values.iter().position(|value| !value.is_finite());
        if let Some(index) = not_finite(q) {
            let value = q[index].to_f64();
            return RowState::Refused(Reason::NonFinite { index, value });
        }
        if !self.model.takes(q) {
            // A mimic may have multiplied any of the values: the reason names the largest value.
            let largest = (0..q.len()).max_by(|&a, &b| q[a].abs().to_f64().total_cmp(&q[b].abs().to_f64()));
            let index = largest.unwrap_or(0);
            let value = q[index].to_f64();
            return RowState::Refused(Reason::Range { index, value });
        }
        let dq = self.row(&self.dq, row);
        match not_finite(dq) {
            None => RowState::Good,
            Some(index) => RowState::Refused(Reason::Velocity {
                index,
                value: dq[index].to_f64(),
            }),
        }
    }

    /// Finds the first joint position outside `ranges`, among the rows from which a pose can be computed. Returns the index of
    /// the joint and the position; `None` if all positions are within their ranges.
    pub(super) fn implausible(&self, ranges: &[[f64; 2]], states: &[RowState]) -> Option<(usize, f64)> {
        self.rows_with_pose(states).find_map(|row| self.outside(row, ranges))
    }

    /// Counts the rows from which a pose can be computed and which have a joint position outside `ranges`.
    pub(super) fn implausible_rows(&self, ranges: &[[f64; 2]], states: &[RowState]) -> usize {
        self.rows_with_pose(states)
            .filter(|&row| self.outside(row, ranges).is_some())
            .count()
    }

    /// Returns the indices of the rows from which a pose can be computed.
    fn rows_with_pose(&self, states: &[RowState]) -> impl Iterator<Item = usize> {
        let is_seen = |state: &RowState| match state {
            RowState::Good | RowState::Refused(Reason::Velocity { .. }) => true,
            RowState::Masked | RowState::Refused(_) => false,
        };
        (0..states.len()).filter(move |&row| is_seen(&states[row]))
    }

    /// Finds the first joint position of one row outside `ranges`. Returns the index of the joint and the position; `None` if
    /// all positions are within their ranges.
    fn outside(&self, row: usize, ranges: &[[f64; 2]]) -> Option<(usize, f64)> {
        let mut values = self.row(&self.q, row).iter().map(|value| value.to_f64()).enumerate();
        values.find(|&(joint, value)| !(ranges[joint][0]..=ranges[joint][1]).contains(&value))
    }

    /// Returns the values of one row from `values`, which has a value for each joint of every row; empty if `values` is empty.
    fn row<'a>(&self, values: &'a [R], row: usize) -> &'a [R] {
        let n = self.model.joints();
        values.get(row * n..(row + 1) * n).unwrap_or_default()
    }

    /// Computes `product` (a pose, Jacobian or twist) for each row and writes it to the payload. A row from which it can't be
    /// computed becomes NaN. A row whose twist is too large for the float type is refused.
    pub(super) fn write(&self, product: Product, frame: Frame, states: &mut [RowState], payload: &mut Payload<'_>) {
        let values: &mut [R] = payload.column(0);
        let nan = R::from_f64(f64::NAN);
        let width = values.len() / states.len().max(1);
        for (row, (state, to)) in states.iter_mut().zip(values.chunks_exact_mut(width.max(1))).enumerate() {
            let (q, dq) = (self.row(&self.q, row), self.row(&self.dq, row));
            let is_made = state.has(product)
                && match product {
                    Product::Pose => self.model.pose(q).map(|pose| to.copy_from_slice(&pose)).is_some(),
                    Product::Jacobian => self.model.jacobian(q, frame, to).is_some(),
                    Product::Twist if dq.is_empty() => false,
                    Product::Twist => {
                        let twist = self.model.twist(q, dq, frame);
                        let twist = twist.filter(|twist| twist.iter().all(|value| value.is_finite()));
                        if twist.is_none() {
                            *state = RowState::Refused(fastest(dq));
                        }
                        twist.map(|twist| to.copy_from_slice(&twist)).is_some()
                    }
                    Product::Joints => false,
                };
            if !is_made {
                to.fill(nan);
            }
        }
    }
}

/// Returns the reason to refuse a row whose twist is too large: it names the joint velocity furthest from 0.
fn fastest<R: Real>(dq: &[R]) -> Reason {
    let of = |index: usize| dq[index].to_f64();
    let index = (0..dq.len())
        .max_by(|&a, &b| of(a).abs().total_cmp(&of(b).abs()))
        .unwrap_or(0);
    Reason::Velocity {
        index,
        value: of(index),
    }
}

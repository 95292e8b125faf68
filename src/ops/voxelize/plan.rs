//! What has to be gathered for a list of channels: each thing once, and nothing that no channel asks for.

use super::Channel;
use super::kernels::{TABLE_COUNT, TABLE_ONE};

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A coordinate in the frame of the grid.
    Axis(usize),
    /// A field, by its index in [`Plan::fields`].
    Field(usize),
}

/// A field other than the coordinates.
#[derive(Debug)]
pub(super) struct NamedField {
    pub(super) name: String,
    /// Whether a mean of it is asked for.
    pub(super) mean: bool,
    /// Whether an extreme of it is asked for.
    pub(super) extreme: bool,
}

/// What is kept for each cell to be the greatest or the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extreme {
    pub(super) source: Source,
    pub(super) greatest: bool,
}

/// How a channel is made of what was gathered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Output {
    One,
    Count,
    /// Sum plane over count.
    Mean(usize),
    /// The extreme of that index.
    Extreme(usize),
}

#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) fields: Vec<NamedField>,
    /// The sources of the sum planes from 1 on; plane 0 is the count.
    pub(super) sums: Vec<Source>,
    pub(super) extremes: Vec<Extreme>,
    pub(super) outputs: Vec<Output>,
    /// Whether there is a count.
    pub(super) counts: bool,
    /// The coordinates that are needed once the cell is known.
    pub(super) axes: [bool; 3],
}

impl Plan {
    pub(super) fn new(channels: &[Channel]) -> Self {
        let mut plan = Self::default();
        // x, y, z come first, in this order, so that the three are summed in one pass.
        for (axis, name) in ["x", "y", "z"].into_iter().enumerate() {
            if channels
                .iter()
                .any(|c| matches!(c, Channel::Mean(field) if field == name))
            {
                plan.sums.push(Source::Axis(axis));
            }
        }
        for channel in channels {
            let output = match channel {
                Channel::Occupancy => Output::One,
                Channel::Count => Output::Count,
                Channel::Mean(name) => {
                    let source = plan.source(name, |field| field.mean = true);
                    Output::Mean(1 + index_of(&mut plan.sums, source))
                }
                Channel::Max(name) | Channel::Min(name) => {
                    let source = plan.source(name, |field| field.extreme = true);
                    let greatest = matches!(channel, Channel::Max(_));
                    Output::Extreme(index_of(&mut plan.extremes, Extreme { source, greatest }))
                }
            };
            plan.counts |= matches!(output, Output::Count | Output::Mean(_));
            plan.outputs.push(output);
        }
        plan
    }

    /// Sums for each cell, the count among them.
    pub(super) fn stride(&self) -> usize {
        usize::from(self.counts) + self.sums.len()
    }

    /// The sums of coordinates, which come before those of fields.
    pub(super) fn axis_sums(&self) -> usize {
        self.sums.len() - self.field_sums()
    }

    /// The sums of fields.
    pub(super) fn field_sums(&self) -> usize {
        self.fields.iter().filter(|field| field.mean).count()
    }

    /// Of channels that are made of the row of a cell alone, for each its entry in the table of
    /// [`kernels::features`](super::kernels::features).
    pub(super) fn table(&self) -> Option<Vec<u8>> {
        let entry = |output: &Output| match *output {
            Output::One => Some(TABLE_ONE),
            Output::Count => Some(TABLE_COUNT),
            Output::Mean(plane) => match self.sums[plane - 1] {
                Source::Axis(axis) => Some(axis as u8),
                Source::Field(_) => None,
            },
            Output::Extreme(_) => None,
        };
        let entries = self.outputs.iter().map(entry).collect::<Option<_>>();
        entries.filter(|_| self.counts)
    }

    /// Whether the first sums are x, y and z.
    pub(super) fn sums_all_axes(&self) -> bool {
        self.sums
            .starts_with(&[Source::Axis(0), Source::Axis(1), Source::Axis(2)])
    }

    fn source(&mut self, name: &str, need: impl FnOnce(&mut NamedField)) -> Source {
        if let Some(axis) = ["x", "y", "z"].iter().position(|axis| *axis == name) {
            self.axes[axis] = true;
            return Source::Axis(axis);
        }
        let i = self.fields.iter().position(|field| field.name == name);
        let i = i.unwrap_or_else(|| {
            self.fields.push(NamedField {
                name: name.to_owned(),
                mean: false,
                extreme: false,
            });
            self.fields.len() - 1
        });
        need(&mut self.fields[i]);
        Source::Field(i)
    }
}

/// The index of a thing in a list, to which it is added if it is not there yet.
fn index_of<T: PartialEq>(list: &mut Vec<T>, thing: T) -> usize {
    list.iter().position(|known| *known == thing).unwrap_or_else(|| {
        list.push(thing);
        list.len() - 1
    })
}

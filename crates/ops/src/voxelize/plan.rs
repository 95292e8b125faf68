//! What has to be gathered for a list of channels: each thing once, and nothing that no channel asks for.

use super::Channel;
use super::channel::Output;

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
            let output = channel.output(&mut plan);
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

    /// The columns of the table that the channels are, where all are made of the row of a cell alone: see
    /// [`kernels::features`](super::kernels::features).
    pub(super) fn table(&self) -> Option<Vec<u8>> {
        let columns = self.outputs.iter().map(|output| output.table_column(self));
        columns.collect::<Option<_>>().filter(|_| self.counts)
    }

    /// The plane of the sum of a field or coordinate, from which a mean is made.
    pub(super) fn sum_plane(&mut self, field: &str) -> usize {
        self.counts = true;
        let source = self.source(field, |field| field.mean = true);
        1 + index_of(&mut self.sums, source)
    }

    /// The index of the greatest or least value of a field or coordinate.
    pub(super) fn extreme(&mut self, field: &str, greatest: bool) -> usize {
        let source = self.source(field, |field| field.extreme = true);
        index_of(&mut self.extremes, Extreme { source, greatest })
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

//! Plan of the sums and extremes that each cell accumulates: those that the channels need, each one once.

/// Coordinate or field from which a sum or an extreme (greatest or least value) is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Coordinate in the frame of the grid: 0 is x, 1 is y, 2 is z.
    Axis(usize),
    /// Field, by its index in [`Plan::fields`].
    Field(usize),
}

/// Field other than x, y and z, and whether channels need its mean, an extreme, or both.
#[derive(Debug)]
pub(super) struct NamedField {
    pub(super) name: String,
    /// True if a channel needs the field's mean.
    pub(super) mean: bool,
    /// True if a channel needs the field's greatest or least value.
    pub(super) extreme: bool,
}

/// Greatest or least value of a coordinate or field, which each cell keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extreme {
    pub(super) source: Source,
    /// True for the greatest value, false for the least value.
    pub(super) greatest: bool,
}

/// Sums and extremes that each cell accumulates, with the fields and coordinates that they need.
///
/// The methods only append to the lists, so an index that they return stays valid.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Fields that channels need, in the order in which channels first named them.
    pub(super) fields: Vec<NamedField>,
    /// Sources of the sums: element `i` is the source of a cell's sum `i + 1`. Sum 0 is the count of points.
    pub(super) sums: Vec<Source>,
    /// Extremes that each cell keeps.
    pub(super) extremes: Vec<Extreme>,
    /// True if cells accumulate sum 0, the count of points. Every mean needs the count.
    pub(super) counts: bool,
    /// True, for x, y and z, if a sum or an extreme needs the coordinate. Finding the cell of a point does not count
    /// as a need.
    pub(super) axes: [bool; 3],
}

impl Plan {
    /// Returns the number of sums that each cell has, the count included.
    pub(super) fn stride(&self) -> usize {
        usize::from(self.counts) + self.sums.len()
    }

    /// Returns the number of sums of coordinates.
    pub(super) fn axis_sums(&self) -> usize {
        self.sums.len() - self.field_sums()
    }

    /// Returns the number of sums of fields.
    pub(super) fn field_sums(&self) -> usize {
        self.fields.iter().filter(|field| field.mean).count()
    }

    /// Adds the sum of a field or coordinate, and the count, to the plan, because a mean needs both. Returns the index
    /// of the sum, 1 or greater.
    pub(super) fn sum_plane(&mut self, field: &str) -> usize {
        self.counts = true;
        let source = self.source(field, |field| field.mean = true);
        1 + find_or_push(&mut self.sums, source)
    }

    /// Adds the greatest (or, if `greatest` is false, the least) value of a field or coordinate. Returns its index in
    /// [`Plan::extremes`].
    pub(super) fn extreme(&mut self, field: &str, greatest: bool) -> usize {
        let source = self.source(field, |field| field.extreme = true);
        find_or_push(&mut self.extremes, Extreme { source, greatest })
    }

    /// Returns true if the first three sums are x, y and z, in this order.
    pub(super) fn sums_all_axes(&self) -> bool {
        self.sums
            .starts_with(&[Source::Axis(0), Source::Axis(1), Source::Axis(2)])
    }

    /// Finds the source with this name, or adds it, and records that it is needed: for a coordinate in `axes`, for a
    /// field by calling `need`.
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

/// Returns the index of `item` in `list`, and appends it first if it is missing.
fn find_or_push<T: PartialEq>(list: &mut Vec<T>, item: T) -> usize {
    list.iter().position(|known| *known == item).unwrap_or_else(|| {
        list.push(item);
        list.len() - 1
    })
}

//! Parts of a batch, each for a device or a stream of its own. The parts are consecutive, and cover all rows.

use super::super::trajectories::Rows;
use std::ops::Range;

impl Rows<'_> {
    /// Cuts the rows into `parts` parts of about the same work.
    pub(crate) fn cut(&self, parts: usize) -> impl Iterator<Item = Range<usize>> {
        cut(self.len(), parts, |row| {
            self.samples_of(row).len() + self.targets_of(row).len()
        })
    }

    /// Bytes that the rows and their answer take on a device, without validity, tiles and padding.
    pub(crate) fn bytes(&self) -> usize {
        (self.times.len() + self.targets.len()) * (size_of::<i64>() + self.row_bytes())
    }
}

/// Cuts `items` items into `shares` consecutive ranges of about the same work. The ranges cover all items; some may be
/// empty. `work` is the cost of an item, in any unit.
fn cut(items: usize, shares: usize, work: impl Fn(usize) -> usize) -> impl Iterator<Item = Range<usize>> {
    assert!(shares > 0, "one device at least");
    let total: usize = (0..items).map(&work).sum();
    let (mut end, mut done) = (0, 0);
    (1..=shares).map(move |share| {
        let start = end;
        while end < items && (share == shares || done < total * share / shares) {
            done += work(end);
            end += 1;
        }
        start..end
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(items: usize, shares: usize, work: impl Fn(usize) -> usize) -> Vec<Range<usize>> {
        super::cut(items, shares, work).collect()
    }

    #[test]
    fn shares_cover_everything_in_order_with_about_the_same_work() {
        assert_eq!(cut(6, 2, |_| 5), [0..3, 3..6]);
        assert_eq!(cut(4, 3, |item| [90, 1, 1, 8][item]), [0..1, 1..1, 1..4]);
        assert_eq!(
            cut(3, 2, |item| [4, 4, 0][item]),
            [0..1, 1..3],
            "what costs nothing is not left out"
        );
        assert_eq!(cut(0, 2, |_| 1), [0..0, 0..0]);
        assert_eq!(cut(2, 1, |_| 0), vec![0..2; 1]);
        for items in 0..20 {
            for shares in 1..6 {
                let ranges = cut(items, shares, |item| item % 3);
                assert_eq!(ranges.len(), shares);
                let covered: Vec<usize> = ranges.into_iter().flatten().collect();
                assert_eq!(covered, Vec::from_iter(0..items));
            }
        }
    }
}

//! Work that several devices share: cut it into a range for each, run the ranges on a thread each, join.

use std::ops::Range;

/// Cuts `items` items into consecutive ranges of about the same work, one for each of `shares`. The ranges cover all
/// items; those at the end may be empty. `work` is what an item costs, in any unit.
pub fn cut(items: usize, shares: usize, work: impl Fn(usize) -> usize) -> Vec<Range<usize>> {
    assert!(shares > 0, "one device at least");
    let total: usize = (0..items).map(&work).sum();
    let (mut start, mut end, mut done) = (0, 0, 0);
    (1..=shares)
        .map(|share| {
            start = end;
            while end < items && (share == shares || done < total * share / shares) {
                done += work(end);
                end += 1;
            }
            start..end
        })
        .collect()
}

/// Runs each of `works` on a thread of its own, and gives the results in the same order when all are done. A single one
/// runs on the calling thread. A panic goes on in the caller.
pub fn run_each<W: Send, T: Send>(works: Vec<W>, run: impl Fn(W) -> T + Sync) -> Vec<T> {
    if works.len() == 1 {
        return works.into_iter().map(run).collect();
    }
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = works.into_iter().map(|work| scope.spawn(move || run(work))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, T>| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect()
    })
}

/// Cuts the first `len` elements off a slice.
pub fn split_off<'a, T>(slice: &mut &'a mut [T], len: usize) -> &'a mut [T] {
    let (own, rest) = std::mem::take(slice).split_at_mut(len);
    *slice = rest;
    own
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn results_come_in_the_order_of_the_work() {
        let (mut one, mut other) = (vec![0; 2], vec![0; 3]);
        let sums = run_each(vec![&mut one, &mut other], |part| {
            part.fill(7);
            part.iter().sum::<i32>()
        });
        assert_eq!(sums, [14, 21]);
        assert_eq!(run_each(vec![3], |n| n + 1), [4]);
    }
}

//! Merging neighbours, best first: the loop that byte pair encoding and SentencePiece share.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// No neighbour on this side.
const NONE: u32 = u32::MAX;

/// A part of the text that has not been merged into the part before it.
#[derive(Clone, Copy, Debug)]
struct Part<T> {
    value: T,
    previous: u32,
    next: u32,
    /// How many merges have changed this part, so that a planned merge can tell that it is out of date.
    version: u32,
}

/// A merge of two neighbours that was possible when it was planned. The best one has the smallest key, and among equals
/// the leftmost goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Planned {
    key: u32,
    left: u32,
    left_version: u32,
    right: u32,
    right_version: u32,
}

/// A row of parts and the merges planned among them. Reused from text to text for its memory.
pub(crate) struct Merger<T> {
    parts: Vec<Part<T>>,
    planned: BinaryHeap<Reverse<Planned>>,
}

impl<T> Default for Merger<T> {
    fn default() -> Self {
        Self { parts: Vec::new(), planned: BinaryHeap::new() }
    }
}

impl<T: Copy> Merger<T> {
    /// Merges neighbours in `row` for as long as `merge` allows, and gives what is left to `out`, in order.
    ///
    /// `merge(left, right)` says how urgent the merge of two neighbours is (small keys first) and what it gives. The time
    /// is that of sorting, whatever the row: a part is planned for at most twice a merge.
    pub(crate) fn run(
        &mut self,
        row: impl Iterator<Item = T>,
        mut merge: impl FnMut(T, T) -> Option<(u32, T)>,
        mut out: impl FnMut(T),
    ) {
        self.parts.clear();
        self.planned.clear();
        self.parts.extend(row.enumerate().map(|(at, value)| {
            let at = at as u32;
            Part { value, previous: at.wrapping_sub(1), next: at + 1, version: 0 }
        }));
        let Some(last) = self.parts.last_mut() else { return };
        last.next = NONE;
        let mut first_plans = Vec::with_capacity(self.parts.len());
        for left in 1..self.parts.len() as u32 {
            first_plans.extend(self.plan(left - 1, left, &mut merge).map(Reverse));
        }
        self.planned.extend(first_plans);
        while let Some(Reverse(planned)) = self.planned.pop() {
            let (left, right) = (self.parts[planned.left as usize], self.parts[planned.right as usize]);
            if left.version != planned.left_version || right.version != planned.right_version {
                continue;
            }
            let Some((_, value)) = merge(left.value, right.value) else { continue };
            let merged = &mut self.parts[planned.left as usize];
            merged.value = value;
            merged.next = right.next;
            merged.version += 1;
            // A part that was merged away never matches a plan again.
            self.parts[planned.right as usize].version = NONE;
            if right.next != NONE {
                self.parts[right.next as usize].previous = planned.left;
                let plan = self.plan(planned.left, right.next, &mut merge);
                self.planned.extend(plan.map(Reverse));
            }
            if left.previous != NONE {
                let plan = self.plan(left.previous, planned.left, &mut merge);
                self.planned.extend(plan.map(Reverse));
            }
        }
        let mut at = 0;
        while at != NONE {
            let part = self.parts[at as usize];
            out(part.value);
            at = part.next;
        }
    }

    /// The merge of two neighbours, if there is one.
    fn plan(&self, left: u32, right: u32, merge: &mut impl FnMut(T, T) -> Option<(u32, T)>) -> Option<Planned> {
        let (a, b) = (self.parts[left as usize], self.parts[right as usize]);
        let (key, _) = merge(a.value, b.value)?;
        Some(Planned { key, left, left_version: a.version, right, right_version: b.version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Merges two letters into one by a list of rules, the first the most urgent.
    fn merged(text: &str, rules: &[(&str, char)]) -> String {
        let mut out = String::new();
        let rule = |a: char, b: char| {
            let at = rules.iter().position(|(pair, _)| pair.chars().eq([a, b]))?;
            Some((at as u32, rules[at].1))
        };
        Merger::default().run(text.chars(), rule, |char| out.push(char));
        out
    }

    #[test]
    fn best_first_then_leftmost() {
        assert_eq!(merged("", &[]), "");
        assert_eq!(merged("a", &[("aa", 'A')]), "a");
        assert_eq!(merged("aaa", &[("aa", 'A')]), "Aa");
        assert_eq!(merged("aaaa", &[("AA", 'X'), ("aa", 'A')]), "X");
        assert_eq!(merged("abc", &[("bc", 'B'), ("ab", 'A')]), "aB");
        assert_eq!(merged("abcabc", &[("bc", 'B'), ("aB", 'X'), ("XX", 'Y')]), "Y");
    }
}

//! Finding the tokens that are matched in the text as they stand: special and user-defined ones.

use crate::vocab::Vocab;

/// A stretch of a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fragment<'a> {
    /// Text to be tokenised.
    Text(&'a [u8]),
    /// A token that stands in the text.
    Token(u32),
}

/// A set of tokens to look for.
pub(crate) struct Matcher {
    /// The tokens in the order of their bytes, so that a prefix is a range.
    sorted: Vec<u32>,
    /// Whether a token starts with this byte.
    starts: [bool; 256],
}

impl Matcher {
    /// A matcher for `ids`; tokens without bytes are left out.
    pub(crate) fn new(vocab: &Vocab, ids: impl Iterator<Item = u32>) -> Self {
        let mut sorted: Vec<u32> = ids.filter(|&id| !vocab.text(id).is_empty()).collect();
        sorted.sort_unstable_by_key(|&id| (vocab.text(id), id));
        let mut starts = [false; 256];
        for &id in &sorted {
            starts[usize::from(vocab.text(id)[0])] = true;
        }
        Self { sorted, starts }
    }

    /// Cuts `text` at the tokens of the set.
    ///
    /// Longer tokens go first, over the whole text, and each takes its occurrences from the left; this is llama.cpp's
    /// rule, and differs from "the longest at the leftmost place" where tokens overlap.
    pub(crate) fn split<'a>(&self, vocab: &Vocab, text: &'a [u8]) -> Vec<Fragment<'a>> {
        let mut fragments = if text.is_empty() { Vec::new() } else { vec![Fragment::Text(text)] };
        for id in self.occurring(vocab, text) {
            let token = vocab.text(id);
            let mut cut = Vec::with_capacity(fragments.len());
            for fragment in fragments {
                match fragment {
                    Fragment::Text(text) => cut_at(text, token, id, &mut cut),
                    token => cut.push(token),
                }
            }
            fragments = cut;
        }
        fragments
    }

    /// The tokens of the set that occur anywhere in the text, longest first. They are few, the set may hold thousands.
    fn occurring(&self, vocab: &Vocab, text: &[u8]) -> Vec<u32> {
        let mut found = Vec::new();
        let mut seen = vec![false; self.sorted.len()];
        for start in 0..text.len() {
            if !self.starts[usize::from(text[start])] {
                continue;
            }
            let (mut low, mut high) = (0, self.sorted.len());
            for (depth, &byte) in text[start..].iter().enumerate() {
                let range = &self.sorted[low..high];
                let at = |id: &u32| vocab.text(*id).get(depth).copied();
                high = low + range.partition_point(|id| at(id) <= Some(byte));
                low += range.partition_point(|id| at(id) < Some(byte));
                // A token that ends here is the first of those which share its bytes (or follows its twins).
                for (place, id) in self.sorted[low..high].iter().enumerate() {
                    if vocab.text(*id).len() > depth + 1 {
                        break;
                    }
                    if !std::mem::replace(&mut seen[low + place], true) {
                        found.push(*id);
                    }
                }
                if low == high {
                    break;
                }
            }
        }
        found.sort_unstable_by_key(|&id| (std::cmp::Reverse(vocab.text(id).len()), id));
        found
    }
}

/// Appends `text` cut at each `token`.
fn cut_at<'a>(text: &'a [u8], token: &[u8], id: u32, out: &mut Vec<Fragment<'a>>) {
    let mut rest = text;
    while let Some(at) = find(rest, token) {
        if at > 0 {
            out.push(Fragment::Text(&rest[..at]));
        }
        out.push(Fragment::Token(id));
        rest = &rest[at + token.len()..];
    }
    if !rest.is_empty() {
        out.push(Fragment::Text(rest));
    }
}

/// Where `needle`, which is not empty, first occurs.
fn find(text: &[u8], needle: &[u8]) -> Option<usize> {
    let (first, last) = (needle[0], text.len().checked_sub(needle.len())?);
    let mut at = 0;
    while at <= last {
        at += text[at..=last].iter().position(|&byte| byte == first)?;
        if text[at..].starts_with(needle) {
            return Some(at);
        }
        at += 1;
    }
    None
}

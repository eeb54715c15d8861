//! SentencePiece with scores: neighbours are merged into the best token there is, and bytes stand in for the rest.

use crate::heap::Merger;
use crate::text_map::TextMap;
use crate::vocab::{Vocab, WORD_MARK};

/// The encoder.
pub(crate) struct Spm {
    ids: TextMap,
    /// Merge keys by id: smaller is better, from the scores.
    keys: Vec<u32>,
    /// The token of each byte, or the unknown token, or nothing.
    byte_ids: Vec<Option<u32>>,
    /// The longest token, in bytes: longer texts need not be looked up.
    longest: usize,
}

/// A stretch of the escaped text.
#[derive(Clone, Copy)]
struct Span {
    start: u32,
    length: u32,
}

impl Span {
    fn of(self, text: &[u8]) -> &[u8] {
        &text[self.start as usize..][..self.length as usize]
    }
}

/// A key that orders scores from the highest to the lowest.
fn key(score: f32) -> u32 {
    // Adding zero makes the two zeros equal.
    let bits = (score + 0.0).to_bits();
    // Bits of floats order like integers once negative ones are reversed.
    let ascending = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    !ascending
}

/// The number of bytes that a character starting with `first` should have. Deliberately blind to what follows, as in
/// llama.cpp: a stray byte may take its neighbours along into byte tokens.
fn claimed_length(first: u8) -> usize {
    match first >> 4 {
        0b1100 | 0b1101 => 2,
        0b1110 => 3,
        0b1111 => 4,
        _ => 1,
    }
}

impl Spm {
    /// Builds the encoder. There are as many `scores` as tokens; `unknown` stands for bytes that have no token.
    pub(crate) fn new(vocab: &Vocab, scores: &[f32], unknown: Option<u32>) -> Self {
        let mut ids = TextMap::with_capacity(vocab.len());
        let mut longest = 0;
        for id in vocab.ids() {
            let text = vocab.text(id);
            // An empty text would match everywhere.
            if !text.is_empty() {
                longest = longest.max(text.len());
                ids.insert(id, text, |id| vocab.text(id));
            }
        }
        let find = |text: &[u8]| ids.find(text, |id| vocab.text(id));
        let byte_ids = (0..=255u8)
            .map(|byte| find(format!("<0x{byte:02X}>").as_bytes()).or_else(|| find(&[byte])).or(unknown))
            .collect();
        Self { ids, keys: scores.iter().map(|&score| key(score)).collect(), byte_ids, longest }
    }

    /// Appends the tokens of `text`, in which special tokens are not looked for. `space_first` puts a space before it.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &[u8], space_first: bool, out: &mut Vec<u32>) {
        let mut escaped = Vec::with_capacity(text.len() + text.len() / 4 + 3);
        if space_first {
            escaped.extend_from_slice(WORD_MARK.as_bytes());
        }
        for &byte in text {
            match byte {
                b' ' => escaped.extend_from_slice(WORD_MARK.as_bytes()),
                _ => escaped.push(byte),
            }
        }
        let mut at = 0;
        let characters = std::iter::from_fn(|| {
            let length = claimed_length(*escaped.get(at)?).min(escaped.len() - at);
            at += length;
            Some(Span { start: (at - length) as u32, length: length as u32 })
        });
        let find = |span: Span| {
            if span.length as usize > self.longest {
                return None;
            }
            self.ids.find(span.of(&escaped), |id| vocab.text(id))
        };
        let merge = |left: Span, right: Span| {
            let both = Span { start: left.start, length: left.length + right.length };
            find(both).map(|id| (self.keys[id as usize], both))
        };
        Merger::default().run(characters, merge, |span| match find(span) {
            Some(id) => out.push(id),
            None => out.extend(span.of(&escaped).iter().filter_map(|&byte| self.byte_ids[usize::from(byte)])),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::key;

    #[test]
    fn keys_order_scores_downwards() {
        let scores = [f32::INFINITY, 3.5, 1.0, 0.0, -0.5, -1000.0, f32::NEG_INFINITY];
        assert!(scores.windows(2).all(|pair| key(pair[0]) < key(pair[1])));
        assert_eq!(key(0.0), key(-0.0));
    }
}

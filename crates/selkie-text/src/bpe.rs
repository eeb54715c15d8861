//! Byte-level byte pair encoding, as GPT-2 introduced it.

use hashbrown::{DefaultHashBuilder, HashMap};

use crate::bytes::{char_of_byte, repair};
use crate::error::{Error, Result, one_line};
use crate::heap::Merger;
use crate::pretokenize::PreTokenizer;
use crate::text_map::TextMap;
use crate::vocab::Vocab;

/// Where the vocabulary has no token for a byte. It merges with nothing and is left out of the result.
const NO_TOKEN: u32 = u32::MAX;

/// What two neighbours become.
#[derive(Clone, Copy)]
struct Merge {
    /// The place in the list of merges; earlier ones go first.
    rank: u32,
    /// The token they make.
    id: u32,
}

/// The encoder.
pub(crate) struct Bpe {
    pre: PreTokenizer,
    /// The token of each single byte.
    byte_ids: [u32; 256],
    merges: HashMap<u64, Merge>,
    /// Tokens by their bytes, where a piece that is a token needs no merging.
    whole: Option<TextMap>,
}

/// The key of a pair of tokens.
fn pair(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

impl Bpe {
    /// Builds the encoder from tokens and merges, both as the file writes them: in the printable byte alphabet.
    pub(crate) fn new(pre: PreTokenizer, tokens: &[&[u8]], merges: &[&[u8]], vocab: &Vocab) -> Result<Self> {
        let mut ids = TextMap::with_capacity(tokens.len());
        for (id, text) in tokens.iter().enumerate() {
            ids.insert(id as u32, text, |id| tokens[id as usize]);
        }
        let find = |text: &[u8]| ids.find(text, |id| tokens[id as usize]);
        let mut byte_ids = [NO_TOKEN; 256];
        for (byte, id) in (0..=255).zip(&mut byte_ids) {
            let mut text = [0; 2];
            *id = find(char_of_byte(byte).encode_utf8(&mut text).as_bytes()).unwrap_or(NO_TOKEN);
        }
        let mut table = HashMap::with_capacity_and_hasher(merges.len(), DefaultHashBuilder::default());
        let mut joined = Vec::with_capacity(64);
        let mut previous = NO_TOKEN;
        for (rank, merge) in merges.iter().enumerate() {
            let missing = |what: &str, text: &[u8]| {
                let (merge, text) = (String::from_utf8_lossy(merge), String::from_utf8_lossy(text));
                let what = format!("merge {rank} `{merge}`: {what} `{text}` is not in the vocabulary");
                Error::vocabulary("merges", one_line(&what))
            };
            // The separator is a space that is not the first byte: some vocabularies merge things that start with one.
            let Some(space) = merge.iter().skip(1).position(|&byte| byte == b' ') else {
                let what = format!("merge {rank} `{}` is not two tokens", String::from_utf8_lossy(merge));
                return Err(Error::vocabulary("merges", one_line(&what)));
            };
            let (left, right) = (&merge[..=space], &merge[space + 2..]);
            joined.clear();
            joined.extend_from_slice(left);
            joined.extend_from_slice(right);
            // Merges were learnt in the order in which their tokens were numbered, so the next one is a good guess.
            let guess = previous.wrapping_add(1);
            previous = if tokens.get(guess as usize).is_some_and(|text| *text == joined) {
                guess
            } else {
                find(&joined).ok_or_else(|| missing("its result", &joined))?
            };
            let left_id = find(left).ok_or_else(|| missing("its left part", left))?;
            let right_id = find(right).ok_or_else(|| missing("its right part", right))?;
            // A merge that is listed twice keeps its first rank.
            table.entry(pair(left_id, right_id)).or_insert(Merge { rank: rank as u32, id: previous });
        }
        let whole = pre.whole_words.then(|| {
            let mut whole = TextMap::with_capacity(vocab.len());
            for id in vocab.ids() {
                whole.insert(id, vocab.text(id), |id| vocab.text(id));
            }
            whole
        });
        Ok(Self { pre, byte_ids, merges: table, whole })
    }

    /// Appends the tokens of `text`, in which special tokens are not looked for.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &[u8], out: &mut Vec<u32>) {
        let text = repair(text);
        let mut merger = Merger::default();
        for range in self.pre.split(&text) {
            let word = &text[range];
            if let Some(whole) = &self.whole
                && let Some(id) = whole.find(word, |id| vocab.text(id))
            {
                out.push(id);
                continue;
            }
            if let &[byte] = word {
                out.extend(Some(self.byte_ids[usize::from(byte)]).filter(|&id| id != NO_TOKEN));
                continue;
            }
            let row = word.iter().map(|&byte| self.byte_ids[usize::from(byte)]);
            let merge = |left, right| self.merges.get(&pair(left, right)).map(|merge| (merge.rank, merge.id));
            merger.run(row, merge, |id| out.extend(Some(id).filter(|&id| id != NO_TOKEN)));
        }
    }
}

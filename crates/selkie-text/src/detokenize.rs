//! Text from a stream of tokens.

use std::ops::Deref;

use crate::error::Result;
use crate::tokenizer::Tokenizer;

/// Turns tokens into text as they come, never splitting a character.
///
/// A token may hold a part of a character only; its bytes wait for the rest. All pieces together are what
/// [`Tokenizer::decode`] gives for all ids, with bytes that are no text replaced by U+FFFD.
///
/// `T` is a reference or a shared pointer to the tokenizer.
#[derive(Debug)]
pub struct Detokenizer<T> {
    tokenizer: T,
    skip_special: bool,
    at_start: bool,
    /// Bytes that have not been given out: after a push, the beginning of a character.
    pending: Vec<u8>,
    text: String,
}

impl<T: Deref<Target = Tokenizer>> Detokenizer<T> {
    /// A detokenizer for a whole text. With `skip_special`, control tokens are left out.
    pub fn new(tokenizer: T, skip_special: bool) -> Self {
        Self { tokenizer, skip_special, at_start: true, pending: Vec::new(), text: String::new() }
    }

    /// The same for the rest of a text: a space at the start is a space.
    #[must_use]
    pub fn continuing(self) -> Self {
        Self { at_start: false, ..self }
    }

    /// The text that `id` completes, often none.
    ///
    /// # Errors
    /// [`UnknownId`](crate::Error::UnknownId) for an id outside the vocabulary; nothing is lost then.
    pub fn push(&mut self, id: u32) -> Result<&str> {
        self.tokenizer.append_piece(id, self.skip_special, &mut self.at_start, &mut self.pending)?;
        self.text.clear();
        let mut done = 0;
        while done < self.pending.len() {
            let rest = &self.pending[done..];
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    self.text.push_str(valid);
                    done += rest.len();
                }
                Err(error) => {
                    let (valid, rest) = rest.split_at(error.valid_up_to());
                    self.text.push_str(&String::from_utf8_lossy(valid));
                    done += valid.len();
                    // Without a length the character may still be completed.
                    let Some(length) = error.error_len() else { break };
                    self.text.push(char::REPLACEMENT_CHARACTER);
                    done += length.min(rest.len());
                }
            }
        }
        self.pending.drain(..done);
        Ok(&self.text)
    }

    /// What is left at the end: U+FFFD if the last character is incomplete. The detokenizer is ready for another text.
    pub fn finish(&mut self) -> &str {
        self.text.clear();
        if !self.pending.is_empty() {
            self.text.push(char::REPLACEMENT_CHARACTER);
            self.pending.clear();
        }
        self.at_start = true;
        &self.text
    }
}

//! A conversation's state as a value.

use selkie_model::State;

use crate::Result;

/// The tokens of one sequence and the state that they left in the model.
///
/// It is a value: forked, it goes on twice; given new tokens that begin as the old ones did, only the rest is computed.
pub struct Session {
    pub(crate) state: State,
    pub(crate) tokens: Vec<u32>,
    pub(crate) capacity: usize,
}

impl Session {
    /// The tokens whose positions the state holds.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Positions that there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// A copy: what happens to one no longer touches the other.
    pub fn fork(&self) -> Session {
        Session { state: self.state.fork(), tokens: self.tokens.clone(), capacity: self.capacity }
    }

    /// Goes back to the longest beginning that `tokens` shares with it, and returns how long that is. At least one of
    /// `tokens` is left to compute, since its logits are wanted.
    ///
    /// # Errors
    /// Where a recurrent state cannot go back.
    pub fn keep_common(&mut self, tokens: &[u32]) -> Result<usize> {
        let same = self.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let same = same.min(tokens.len().saturating_sub(1));
        self.state.rewind(same)?;
        self.tokens.truncate(same);
        Ok(same)
    }

    /// Forgets everything.
    ///
    /// # Errors
    /// Never today; an executor's state may refuse.
    pub fn clear(&mut self) -> Result<()> {
        self.state.rewind(0)?;
        self.tokens.clear();
        Ok(())
    }

    /// Bytes that the state holds.
    pub fn bytes(&self) -> usize {
        self.state.bytes()
    }
}

//! A conversation's state as a value.

use selkie_model::State;

use crate::TokenHash;

/// The tokens of one sequence and the state that they left in the model.
///
/// It is a value: forked, it goes on twice; given new tokens that begin as the old ones did, only the rest is computed
/// ([`Model::generate`](crate::Model::generate)); saved, it goes on in another process
/// ([`Model::snapshot`](crate::Model::snapshot)).
pub struct Session {
    pub(crate) state: State,
    pub(crate) before: Before,
    pub(crate) tokens: Vec<u32>,
    pub(crate) pending: Vec<u32>,
    pub(crate) capacity: usize,
}

/// Tokens that the state holds before those that are known: a saved state may come without its ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Before {
    pub count: usize,
    pub hash: TokenHash,
}

impl Session {
    pub(crate) fn new(state: State, capacity: usize) -> Self {
        Self { state, before: Before::default(), tokens: vec![], pending: vec![], capacity }
    }

    /// How many tokens the state holds.
    pub fn len(&self) -> usize {
        self.before.count + self.tokens.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tokens that the state holds; where it was restored without its ids, those since then.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Tokens that belong to the sequence, but not to the state yet: what generation chose last.
    pub fn pending(&self) -> &[u32] {
        &self.pending
    }

    /// Positions that there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// A copy: what happens to one no longer touches the other.
    pub fn fork(&self) -> Session {
        Session {
            state: self.state.fork(),
            before: self.before,
            tokens: self.tokens.clone(),
            pending: self.pending.clone(),
            capacity: self.capacity,
        }
    }

    /// Bytes that the state holds.
    pub fn bytes(&self) -> usize {
        self.state.bytes()
    }

    /// The hash over all tokens that the state holds.
    pub fn token_hash(&self) -> TokenHash {
        self.before.hash.then(&self.tokens)
    }

    /// Forgets the last `n` tokens, which were not told to anybody; the first of them is pending then.
    ///
    /// # Errors
    /// Where the state cannot go back. Nothing has changed then.
    pub(crate) fn take_back(&mut self, n: usize) -> selkie_model::Result<()> {
        if n > 0 {
            self.state.rewind(self.len() - n)?;
            self.pending = self.tokens.split_off(self.tokens.len() - n);
            self.pending.truncate(1);
        }
        Ok(())
    }

    /// The length of the longest beginning that the held tokens share with `tokens`, and which the session then knows by
    /// its ids.
    pub(crate) fn shared(&mut self, tokens: &[u32]) -> usize {
        if self.before.count > 0 {
            let Some(first) = tokens.get(..self.before.count) else { return 0 };
            if TokenHash::of(first) != self.before.hash {
                return 0;
            }
            self.tokens.splice(0..0, first.iter().copied());
            self.before = Before::default();
        }
        self.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count()
    }
}

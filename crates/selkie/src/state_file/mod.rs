//! The state of a sequence in a file.
//!
//! A file is a safetensors file, so that other tools can look into it. Its metadata:
//!
//! | key | value |
//! | --- | --- |
//! | `format` | `selkie state` |
//! | `version` | `1` |
//! | `model` | the [model's id](crate::Model::id) |
//! | `adapter` | the adapter's id; empty where there is none |
//! | `positions` | tokens that the state holds, in 20 digits with zeros in front |
//! | `token_hash` | their [hash](TokenHash), 64 hexadecimal digits |
//!
//! Its tensors:
//!
//! | name | type and shape | |
//! | --- | --- | --- |
//! | `slot.N.NAME` | f32, or f16 for caches | array NAME of slot N of the plan ([`Slot::planes`](selkie_model::plan::Slot::planes)); `selkie plan` names the slots |
//! | `pending` | u32 `[n]` | tokens that come next but are not in the state yet: what generation chose last |
//! | `ids` | u32 `[positions]` | the tokens that the state holds; optional |
//! | `text` | u8 `[bytes]` | JSON of whoever wrote the file; optional |
//!
//! `ids` and `text` are the text section. Without it a state of recurrent layers has the same size after ten tokens as
//! after ten thousand, and goes on all the same: the hash still tells whether a text begins with its tokens. Tokens of a
//! recurrent state cannot be taken back once it was saved. States are the same whatever executor made them.

mod read;
mod write;

use selkie_formats::Tensor;
use selkie_model::{Snapshot, plan};
use serde_json::Value;

use crate::{Error, Model, Result, Session, TokenHash, block_on, session::Before};

const FORMAT: &str = "selkie state";
const VERSION: u32 = 1;

/// A sequence's state apart from model and executor, as it is in a file.
#[derive(Clone, Debug)]
pub struct SavedState {
    /// What errors call it: the file that it came from.
    pub name: String,
    /// The id of the model.
    pub model: String,
    /// The id of the adapter; empty without one.
    pub adapter: String,
    /// Tokens that the state holds.
    pub positions: usize,
    /// Their hash.
    pub token_hash: TokenHash,
    /// Tokens that come next but are not in the state yet.
    pub pending: Vec<u32>,
    /// The tokens that the state holds, where they are known and kept.
    pub ids: Option<Vec<u32>>,
    /// What else is kept: messages, say.
    pub text: Option<Value>,
    /// The arrays of the state, `slot.N.NAME`.
    pub planes: Vec<(String, Tensor)>,
}

impl SavedState {
    fn error(&self, what: impl Into<String>) -> Error {
        Error::SavedState { file: self.name.clone(), what: what.into() }
    }

    /// The state as the plan's slots have it.
    fn snapshot(&self, slots: &[plan::Slot]) -> Result<Snapshot> {
        let wanted = plane_names(slots, self.positions);
        if let Some((name, _)) = self.planes.iter().find(|(name, _)| !wanted.contains(name)) {
            return Err(self.error(format!("has `{name}`, which the model's state has not")));
        }
        let plane = |name: &String| {
            let found = self.planes.iter().find(|(found, _)| found == name);
            found.map(|(_, plane)| plane.clone()).ok_or_else(|| self.error(format!("`{name}` is missing")))
        };
        let planes = wanted.iter().map(plane).collect::<Result<_>>()?;
        let snapshot = Snapshot { positions: self.positions, planes };
        snapshot.check(slots).map_err(|error| self.error(error.to_string()))?;
        Ok(snapshot)
    }
}

/// What a state's arrays are called, in the order of a [`Snapshot`]'s.
fn plane_names(slots: &[plan::Slot], positions: usize) -> Vec<String> {
    let names = |(n, slot): (usize, &plan::Slot)| {
        slot.planes(positions).into_iter().map(move |(name, _)| format!("slot.{n}.{name}"))
    };
    slots.iter().enumerate().flat_map(names).collect()
}

/// There are no adapters yet.
const NO_ADAPTER: &str = "";

impl Model {
    /// The session's state as a value that can be kept, with its ids where the session knows them. What it holds later
    /// does not change it.
    ///
    /// A session without [pending](Session::pending) tokens gives up its last one for that where it can, since going on
    /// without new tokens takes the logits of one.
    ///
    /// # Errors
    /// Where the model's or the state's bytes cannot be read.
    pub fn snapshot(&self, session: &Session) -> Result<SavedState> {
        block_on(self.snapshot_async(session))
    }

    /// As [`snapshot`](Self::snapshot).
    ///
    /// # Errors
    /// As there.
    pub async fn snapshot_async(&self, session: &Session) -> Result<SavedState> {
        if session.pending.is_empty() && !session.tokens.is_empty() {
            let mut shorter = session.fork();
            let last = shorter.tokens.pop();
            match shorter.state.rewind(shorter.len()) {
                Ok(()) => shorter.pending.extend(last),
                Err(selkie_model::Error::Rewind { .. }) => shorter.tokens.extend(last),
                Err(error) => return Err(error.into()),
            }
            return self.snapshot_as_it_is(&shorter).await;
        }
        self.snapshot_as_it_is(session).await
    }

    async fn snapshot_as_it_is(&self, session: &Session) -> Result<SavedState> {
        let snapshot = session.state.snapshot().await?;
        let names = plane_names(&plan::plan(&self.spec).slots, snapshot.positions);
        Ok(SavedState {
            name: "saved state".into(),
            model: self.id_async().await?.to_owned(),
            adapter: NO_ADAPTER.into(),
            positions: snapshot.positions,
            token_hash: session.token_hash(),
            pending: session.pending.clone(),
            ids: (session.before.count == 0).then(|| session.tokens.clone()),
            text: None,
            planes: names.into_iter().zip(snapshot.planes).collect(),
        })
    }

    /// A session that goes on from a saved state, with room for `capacity` tokens in all.
    ///
    /// # Errors
    /// Where the state is of another model or adapter, or does not fit into `capacity`; and as
    /// [`session`](Self::session).
    pub fn restore(&self, saved: &SavedState, capacity: usize) -> Result<Session> {
        block_on(self.restore_async(saved, capacity))
    }

    /// As [`restore`](Self::restore).
    ///
    /// # Errors
    /// As there.
    pub async fn restore_async(&self, saved: &SavedState, capacity: usize) -> Result<Session> {
        let other = |kind, saved_id: &str, found: &str| Error::OtherModel {
            file: saved.name.clone(),
            kind,
            saved: saved_id.into(),
            model: self.name().into(),
            found: found.into(),
        };
        if saved.model != self.id_async().await? {
            return Err(other("model", &saved.model, self.id_async().await?));
        }
        if saved.adapter != NO_ADAPTER {
            return Err(other("adapter", &saved.adapter, "without one"));
        }
        self.check_context(capacity)?;
        let tokens = saved.positions.saturating_add(saved.pending.len());
        if tokens > capacity {
            return Err(Error::PromptTooLong { tokens, capacity });
        }
        let snapshot = saved.snapshot(&plan::plan(&self.spec).slots)?;
        let state = self.executor.restore(&snapshot, capacity).await?;
        let mut session = Session::new(state, capacity);
        match &saved.ids {
            Some(ids) => session.tokens = ids.clone(),
            None => session.before = Before { count: saved.positions, hash: saved.token_hash },
        }
        session.pending = saved.pending.clone();
        Ok(session)
    }
}

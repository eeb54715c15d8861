//! What every executor offers: a forward pass over a batch of sequences, each with its state.

use std::{any::Any, ops::Range};

use selkie_formats::{LocalFuture, Tensor};

use crate::{Error, OpTime, Result, plan::Slot, sampling::SamplingParams};

/// How far back a state can go: the tokens that speculation, or an edit of the last words, may take back.
pub const MAX_REWIND: usize = 32;

/// The state of one sequence: attention caches and recurrent states, with the number of positions that they hold.
///
/// A state is a value: it can be forked, and it belongs to the executor that made it.
pub struct State {
    positions: usize,
    data: Box<dyn StateData>,
}

/// An executor's part of a [`State`].
pub trait StateData: Any {
    /// A copy that shares nothing that changes.
    fn fork(&self) -> Box<dyn StateData>;

    /// Bytes held.
    fn bytes(&self) -> usize;

    /// The executor's name, for messages.
    fn executor(&self) -> &'static str;

    /// Forgets every position from `positions` on. On an error nothing has changed.
    ///
    /// # Errors
    /// Where a recurrent state cannot go back that far.
    fn rewind(&mut self, positions: usize) -> Result<()>;

    /// A copy of every array of every slot, in the layout of [`Slot::planes`](crate::plan::Slot::planes): f32, caches f16
    /// where they are held so. A GPU answers later, and a browser cannot wait for it.
    ///
    /// # Errors
    /// Where the device cannot be read.
    fn planes(&self) -> LocalFuture<'_, Result<Vec<Tensor>>>;

    /// For the executor to find its own type.
    fn as_any_mut(&mut self) -> &mut dyn Any;

    /// For the executor to find its own type.
    fn as_any(&self) -> &dyn Any;
}

impl State {
    /// A state that holds no position yet.
    pub fn new(data: Box<dyn StateData>) -> Self {
        Self { positions: 0, data }
    }

    /// A state that holds `positions` already.
    pub fn restored(data: Box<dyn StateData>, positions: usize) -> Self {
        Self { positions, data }
    }

    /// How many positions it holds.
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// A copy: what happens to one no longer touches the other.
    pub fn fork(&self) -> State {
        State { positions: self.positions, data: self.data.fork() }
    }

    /// Forgets every position from `positions` on. Attention caches go back to any; recurrent states up to
    /// [`MAX_REWIND`] positions, or to where they were restored.
    ///
    /// # Errors
    /// Where it holds fewer, or a recurrent state cannot go back that far. Nothing has changed then.
    pub fn rewind(&mut self, positions: usize) -> Result<()> {
        if positions > self.positions {
            return Err(Error::Batch(format!("cannot rewind to {positions}: the state holds {}", self.positions)));
        }
        self.data.rewind(positions)?;
        self.positions = positions;
        Ok(())
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.data.bytes()
    }

    /// What it holds as a value that any executor of the same model can [restore](Executor::restore).
    ///
    /// # Errors
    /// Where the device cannot be read.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        Ok(Snapshot { positions: self.positions, planes: self.data.planes().await? })
    }

    /// The executor's own data.
    ///
    /// # Errors
    /// Where another executor made this state.
    pub fn data<T: StateData>(&self, executor: &str) -> Result<&T> {
        let found = self.data.executor();
        self.data.as_any().downcast_ref().ok_or_else(|| foreign(executor, found))
    }

    /// The executor's own data, to change.
    ///
    /// # Errors
    /// Where another executor made this state.
    pub fn data_mut<T: StateData>(&mut self, executor: &str) -> Result<&mut T> {
        let found = self.data.executor();
        self.data.as_any_mut().downcast_mut().ok_or_else(|| foreign(executor, found))
    }

    /// Called by executors once `rows` more positions are in.
    pub fn advance(&mut self, rows: usize) {
        self.positions += rows;
    }
}

fn foreign(wanted: &str, found: &str) -> Error {
    Error::ForeignState { wanted: wanted.into(), found: found.into() }
}

/// A state apart from its executor: what is kept on disk, and what passes between executors.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Positions held.
    pub positions: usize,
    /// Every array of every slot, as [`Slot::planes`](crate::plan::Slot::planes) says.
    pub planes: Vec<Tensor>,
}

impl Snapshot {
    /// Checks it against a plan's slots.
    ///
    /// # Errors
    /// Names the array that differs, with both shapes.
    pub fn check(&self, slots: &[Slot]) -> Result<()> {
        let wanted = slots.iter().enumerate().flat_map(|(slot, s)| {
            s.planes(self.positions).into_iter().map(move |(name, shape)| (format!("{name} of slot {slot}"), shape))
        });
        let mut found = self.planes.iter();
        for (name, shape) in wanted {
            let plane = found.next().ok_or_else(|| Error::Snapshot(format!("{name} is missing")))?;
            if plane.shape != shape {
                return Err(Error::Snapshot(format!("{name} is {:?}, and the model's is {shape:?}", plane.shape)));
            }
        }
        match found.count() {
            0 => Ok(()),
            n => Err(Error::Snapshot(format!("{n} arrays more than the model has"))),
        }
    }
}

/// Some rows of a batch which belong to one sequence, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Rows of the batch.
    pub rows: Range<usize>,
}

/// What a forward pass is given: rows of token ids, each row in one sequence.
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    /// Token ids, one a row.
    pub ids: &'a [u32],
    /// The sequences, which cover the rows in order; as many as there are states.
    pub sequences: &'a [Sequence],
    /// Rows whose output is wanted, ascending.
    pub outputs: &'a [usize],
    /// What is wanted of them.
    pub want: Want,
}

/// What a forward pass gives for each output row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Logits, `[outputs, vocab_size]`.
    Logits,
    /// The final norm's output, `[outputs, d_model]`.
    Hidden,
}

/// Rows that a forward pass gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Values a row.
    pub width: usize,
    /// `[outputs, width]`.
    pub values: Vec<f32>,
}

impl Output {
    /// Row `i`.
    pub fn row(&self, i: usize) -> &[f32] {
        &self.values[i * self.width..(i + 1) * self.width]
    }
}

impl Batch<'_> {
    /// Checks what every executor relies on.
    ///
    /// # Errors
    /// Names what does not fit: no rows, ids outside the vocabulary, sequences that do not cover the rows or are not as
    /// many as the states, output rows that do not ascend.
    pub fn check(&self, vocab_size: usize, states: usize) -> Result<()> {
        let bad = |what: String| Err(Error::Batch(what));
        if self.ids.is_empty() {
            return bad("there are no tokens".into());
        }
        if let Some(&id) = self.ids.iter().find(|&&id| id as usize >= vocab_size) {
            return Err(Error::TokenId { id, vocab_size });
        }
        if self.sequences.len() != states {
            return bad(format!("{} sequences but {states} states", self.sequences.len()));
        }
        let mut row = 0;
        for sequence in self.sequences {
            if sequence.rows.start != row || sequence.rows.end < row {
                return bad(format!("rows {:?} do not follow row {row}", sequence.rows));
            }
            row = sequence.rows.end;
        }
        if row != self.ids.len() {
            return bad(format!("sequences cover {row} of {} rows", self.ids.len()));
        }
        if !self.outputs.is_sorted_by(|a, b| a < b) || self.outputs.last().is_some_and(|&r| r >= self.ids.len()) {
            return bad(format!("output rows {:?} do not ascend below {}", self.outputs, self.ids.len()));
        }
        Ok(())
    }
}

/// How an executor that chooses tokens itself is to choose: as [`sample`](crate::sampling::sample) would, with the number
/// of [`uniform`](crate::sampling::uniform) for `seed`, `sequence` and the positions that the state holds at that moment.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'a> {
    /// Which tokens may be chosen, and how likely each is.
    pub params: &'a SamplingParams,
    /// The generator's key.
    pub seed: u64,
    /// The sequence that the generator's numbers are for.
    pub sequence: u64,
    /// Tokens after which nothing is chosen.
    pub stop: &'a [u32],
}

/// Something that runs a plan.
pub trait Executor {
    /// `reference`, `cpu` or `gpu`.
    fn name(&self) -> &'static str;

    /// What it runs on, for people.
    fn device(&self) -> String;

    /// A state for one new sequence of up to `capacity` positions. Later, since a GPU only says later whether there is room.
    ///
    /// # Errors
    /// Where there is no room for it.
    fn new_state(&self, capacity: usize) -> LocalFuture<'_, Result<State>>;

    /// A state that continues a snapshot, with room for `capacity` positions in all. It cannot go back past the snapshot.
    ///
    /// # Errors
    /// Where the snapshot is not of this model's shapes, or there is no room.
    fn restore<'a>(&'a self, snapshot: &'a Snapshot, capacity: usize) -> LocalFuture<'a, Result<State>>;

    /// Runs the batch; each sequence continues its state, which advances by its rows.
    ///
    /// # Errors
    /// Where the batch is malformed or a state is full or foreign; states are then as before. Where an op itself fails, a
    /// state may be lost, and says so from then on ([`Error::LostState`]).
    fn forward<'a>(
        &'a mut self,
        batch: &'a Batch<'a>,
        states: &'a mut [&'a mut State],
    ) -> LocalFuture<'a, Result<Output>>;

    /// Feeds `last`, chooses a token, feeds that, and so on, in one submit where it can. Gives what it chose: at least one
    /// token and at most `n`, fewer where a submit would take too long; the first of `choice.stop` is the last of them. The
    /// state advances by the tokens that were fed, which are `last` and all that were chosen but the last: as many as are
    /// given. For those it can go back ([`State::rewind`]).
    ///
    /// `None` where this executor leaves choosing to its caller, always or with these parameters (penalties look at tokens
    /// that it does not know); nothing has happened then.
    ///
    /// # Errors
    /// Where `last` is outside the vocabulary, or the state is foreign or has no room for `n` positions more; it is then as
    /// before. Where an op itself fails, as [`forward`](Self::forward).
    fn generate<'a>(
        &'a mut self,
        last: u32,
        n: usize,
        choice: &'a Choice<'a>,
        state: &'a mut State,
    ) -> LocalFuture<'a, Result<Option<Vec<u32>>>> {
        let _ = (last, n, choice, state);
        Box::pin(async { Ok(None) })
    }

    /// Switches the measuring of every op's time on, from nothing, or off. What cannot measure ignores it.
    fn profile(&mut self, on: bool) {
        let _ = on;
    }

    /// The times since measuring began or was last asked for; empty where nothing is measured.
    fn take_profile(&mut self) -> Vec<OpTime> {
        vec![]
    }
}

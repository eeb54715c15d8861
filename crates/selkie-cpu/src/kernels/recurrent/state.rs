//! States that cannot be undone, with what it takes to go back a little: a copy of the state from some tokens ago, and
//! the inputs since.

use std::{ops::Range, sync::Arc};

use super::{MAX_REWIND, beyond_reach};
use crate::{
    Pool,
    error::{Result, expect},
};

/// The most inputs of an op.
const MAX_INPUTS: usize = 8;

/// A recurrence with its weights, over planes of numbers in the order that suits its kernel.
pub trait Recurrence {
    /// Values of a token in each input.
    fn widths(&self) -> &[usize];

    /// Values of a token in the result.
    fn outputs(&self) -> usize;

    /// Values in each plane of the portable state.
    fn planes(&self) -> Vec<usize>;

    /// The planes before the first token.
    fn fresh(&self) -> Vec<Vec<f32>>;

    /// Takes in `rows` tokens; sizes are checked.
    fn advance(&self, pool: &Pool, planes: &mut [Vec<f32>], rows: usize, inputs: &[&[f32]], out: &mut [f32]);

    /// Working planes in the portable order.
    fn export(&self, planes: &[Vec<f32>]) -> Vec<Vec<f32>>;

    /// The reverse; sizes are checked.
    fn import(&self, planes: &[Vec<f32>]) -> Vec<Vec<f32>>;
}

/// A state as it was.
#[derive(Clone, Debug)]
struct Mark {
    /// Tokens since the beginning.
    at: usize,
    planes: Vec<Vec<f32>>,
}

/// The state of one sequence in a recurrence, which can forget up to [`MAX_REWIND`] tokens.
///
/// Copies are made at multiples of `MAX_REWIND` tokens and the last two kept, with the inputs since the older one.
#[derive(Debug)]
pub struct RecurrentState<R> {
    op: Arc<R>,
    planes: Vec<Vec<f32>>,
    /// Tokens since the state was made or set.
    tokens: usize,
    /// One or two, older first; forks share them.
    marks: Vec<Arc<Mark>>,
    /// For each input the rows since the oldest mark.
    inputs: Vec<Vec<f32>>,
    /// The planes are still those before the last rewinding: the next use computes them anew.
    stale: bool,
}

impl<R> Clone for RecurrentState<R> {
    fn clone(&self) -> Self {
        Self {
            op: self.op.clone(),
            planes: self.planes.clone(),
            tokens: self.tokens,
            marks: self.marks.clone(),
            inputs: self.inputs.clone(),
            stale: self.stale,
        }
    }
}

impl<R: Recurrence> RecurrentState<R> {
    /// The state before the first token.
    pub fn new(op: Arc<R>) -> Self {
        let inputs = vec![Vec::new(); op.widths().len()];
        Self { planes: op.fresh(), tokens: 0, marks: Vec::new(), inputs, stale: false, op }
    }

    /// Takes in rows of every input and writes their results.
    ///
    /// # Errors
    /// Where the sizes do not fit; nothing is changed then.
    pub(crate) fn advance(&mut self, pool: &Pool, inputs: &[&[f32]], out: &mut [f32]) -> Result<()> {
        let op = self.op.clone();
        let rows = out.len().checked_div(op.outputs()).unwrap_or(0);
        expect("recurrent result", "values", rows * op.outputs(), out.len())?;
        for (input, width) in inputs.iter().zip(op.widths()) {
            expect("recurrent input", "values", rows * width, input.len())?;
        }
        self.settle(pool);
        // The marks that will be wanted at the end, and that lie in this piece. One at the very end can wait until
        // something follows: until then the planes themselves are it.
        let end = self.tokens + rows;
        let newer = end / MAX_REWIND * MAX_REWIND;
        let older = newer.saturating_sub(MAX_REWIND);
        let mut done = 0;
        for at in [older, newer] {
            if (self.tokens + done..end).contains(&at) && self.marks.last().is_none_or(|mark| mark.at < at) {
                let upto = at - self.tokens;
                // Nobody goes back to before the older one.
                self.piece(pool, done..upto, at > older, inputs, out);
                self.mark(at, older);
                done = upto;
            }
        }
        self.piece(pool, done..rows, true, inputs, out);
        self.tokens = end;
        Ok(())
    }

    /// Takes in some of the rows, and maybe keeps them.
    fn piece(&mut self, pool: &Pool, rows: Range<usize>, keep: bool, inputs: &[&[f32]], out: &mut [f32]) {
        if rows.is_empty() {
            return;
        }
        let op = &*self.op;
        let mut parts = [&[][..]; MAX_INPUTS];
        for ((part, input), width) in parts.iter_mut().zip(inputs).zip(op.widths()) {
            *part = &input[rows.start * width..rows.end * width];
        }
        let parts = &parts[..inputs.len()];
        let out = &mut out[rows.start * op.outputs()..rows.end * op.outputs()];
        op.advance(pool, &mut self.planes, rows.len(), parts, out);
        if keep {
            for (kept, part) in self.inputs.iter_mut().zip(parts) {
                kept.extend_from_slice(part);
            }
        }
    }

    /// Keeps the planes as those after `at` tokens, and drops what was kept for tokens before `oldest`.
    fn mark(&mut self, at: usize, oldest: usize) {
        let spare = self.marks.iter().take_while(|mark| mark.at < oldest).count();
        // The memory of one that nobody else has is used again.
        let mut planes =
            self.marks.drain(..spare).next_back().and_then(Arc::into_inner).map_or(vec![], |mark| mark.planes);
        planes.clone_from(&self.planes);
        self.marks.push(Arc::new(Mark { at, planes }));
        let from = self.marks[0].at;
        for (kept, width) in self.inputs.iter_mut().zip(self.op.widths()) {
            // They end at `at`.
            kept.drain(..kept.len() - (at - from) * width);
        }
    }

    /// How many tokens [`rewind`](Self::rewind) can forget now: [`MAX_REWIND`] before the furthest token it was at, if so
    /// many came since the state was made or set.
    pub fn reach(&self) -> usize {
        self.marks.first().map_or(0, |mark| self.tokens - mark.at).min(MAX_REWIND)
    }

    /// Forgets the last `n` tokens.
    ///
    /// # Errors
    /// Where they are more than [`reach`](Self::reach).
    pub fn rewind(&mut self, n: usize) -> Result<()> {
        let reach = self.reach();
        if n > reach {
            return Err(beyond_reach(n, reach));
        }
        if n > 0 {
            self.tokens -= n;
            self.stale = true;
            // There is one at or before any token within reach.
            let usable = self.marks.iter().take_while(|mark| mark.at <= self.tokens).count();
            self.marks.truncate(usable);
            let from = self.marks[0].at;
            for (kept, width) in self.inputs.iter_mut().zip(self.op.widths()) {
                kept.truncate((self.tokens - from) * width);
            }
        }
        Ok(())
    }

    /// Computes the planes from the newest mark on, where they are stale.
    fn settle(&mut self, pool: &Pool) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        let (oldest, newest) = (&self.marks[0], &self.marks[self.marks.len() - 1]);
        self.planes.clone_from(&newest.planes);
        let (skipped, rows) = (newest.at - oldest.at, self.tokens - newest.at);
        let kept = self.inputs.iter().zip(self.op.widths());
        let inputs: Vec<&[f32]> = kept.map(|(kept, width)| &kept[skipped * width..]).collect();
        // What the tokens gave was given out before.
        let mut out = vec![0.0; rows * self.op.outputs()];
        self.op.advance(pool, &mut self.planes, rows, &inputs, &mut out);
    }

    /// The state as it is kept, in the op's documented layouts.
    pub fn planes(&self) -> Vec<Vec<f32>> {
        if self.stale {
            let mut settled = self.clone();
            settled.settle(&Pool::new(1));
            return settled.planes();
        }
        self.op.export(&self.planes)
    }

    /// Takes up a state from [`planes`](Self::planes). What was before it cannot be rewound to.
    ///
    /// # Errors
    /// Where the sizes do not fit; nothing is changed then.
    pub fn set_planes(&mut self, planes: &[Vec<f32>]) -> Result<()> {
        let wanted = self.op.planes();
        expect("recurrent state", "planes", wanted.len(), planes.len())?;
        for (plane, &wanted) in planes.iter().zip(&wanted) {
            expect("plane of a recurrent state", "values", wanted, plane.len())?;
        }
        self.planes = self.op.import(planes);
        self.tokens = 0;
        self.marks.clear();
        self.inputs.iter_mut().for_each(Vec::clear);
        self.stale = false;
        Ok(())
    }

    /// Memory in use; what forks share counts for each.
    pub fn bytes(&self) -> usize {
        let planes = self.planes.iter().chain(self.marks.iter().flat_map(|mark| &mark.planes));
        4 * planes.chain(&self.inputs).map(Vec::capacity).sum::<usize>()
    }
}

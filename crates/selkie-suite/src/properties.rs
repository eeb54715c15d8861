//! Properties that hold for every model: how a sequence is cut, saved and batched does not show in what comes out.

use std::f32::consts::TAU;

use selkie_model::{Batch, Sequence, Snapshot, State, Want};

use crate::Subject;

/// A few numbers that look random, the same in every run.
struct Numbers(u64);

impl Numbers {
    /// One of `0..below`.
    fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }
}

impl Subject {
    /// One piece = pieces of any lengths = restored from a saved state between them, in outputs and in the final state.
    pub(crate) fn check_splits(&mut self, ids: &[u32], logits: &[f32], tolerance: f32) {
        let mut whole = pollster::block_on(self.executor.new_state(ids.len())).expect("a state");
        self.forward(ids, &mut whole);
        let whole = pollster::block_on(whole.snapshot()).expect("a snapshot");
        for seed in 0..4 {
            let mut numbers = Numbers(seed);
            let mut state = pollster::block_on(self.executor.new_state(ids.len())).expect("a state");
            let (mut got, mut cuts, mut rest) = (vec![], vec![], ids);
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(1 + numbers.below(rest.len().min(11)));
                got.extend(self.forward(piece, &mut state).values);
                rest = behind;
                if numbers.below(2) == 0 {
                    let saved = pollster::block_on(state.snapshot()).expect("a snapshot");
                    state = pollster::block_on(self.executor.restore(&saved, ids.len())).expect("a restored state");
                    cuts.push(ids.len() - rest.len());
                }
            }
            self.near(&got, logits, tolerance, &format!("in pieces (seed {seed}), restored after {cuts:?}"));
            let last = pollster::block_on(state.snapshot()).expect("a snapshot");
            self.same_state(&last, &whole, tolerance, &format!("in pieces (seed {seed}), restored after {cuts:?}"));
        }
    }

    /// Sequences of different lengths, some new and some a token on, give in one batch what each gives alone.
    pub(crate) fn check_mixed_batches(&mut self, ids: &[u32], tolerance: f32) {
        // What each holds already, what comes with the batch, and one token after it.
        let cases = [(0..0, 0..7, 7), (0..5, 5..6, 6), (3..10, 10..19, 19), (2..22, 22..23, 23)];
        let started: Vec<State> = cases
            .iter()
            .map(|(past, ..)| {
                let mut state = pollster::block_on(self.executor.new_state(ids.len())).expect("a state");
                if !past.is_empty() {
                    self.forward(&ids[past.clone()], &mut state);
                }
                state
            })
            .collect();
        let alone: Vec<(Vec<f32>, Vec<f32>)> = cases
            .iter()
            .zip(&started)
            .map(|((_, now, next), state)| {
                let mut state = state.fork();
                let now = self.forward(&ids[now.clone()], &mut state).values;
                (now, self.forward(&ids[*next..next + 1], &mut state).values)
            })
            .collect();
        for order in [[0, 1, 2, 3], [2, 0, 3, 1], [3, 2, 1, 0]] {
            let mut states: Vec<State> = order.iter().map(|&i| started[i].fork()).collect();
            let now: Vec<&[u32]> = order.iter().map(|&i| &ids[cases[i].1.clone()]).collect();
            let wanted: Vec<f32> = order.iter().flat_map(|&i| alone[i].0.iter().copied()).collect();
            let rows: Vec<usize> = (0..now.iter().map(|ids| ids.len()).sum()).collect();
            let got = self.batch_of(&now, &mut states, &rows);
            self.near(&got, &wanted, tolerance, &format!("sequences {order:?} in one batch"));
            // The next tokens, and only every other sequence's output.
            let next: Vec<&[u32]> = order.iter().map(|&i| &ids[cases[i].2..cases[i].2 + 1]).collect();
            let wanted: Vec<f32> = [1, 3].iter().flat_map(|&at| alone[order[at]].1.iter().copied()).collect();
            let got = self.batch_of(&next, &mut states, &[1, 3]);
            self.near(&got, &wanted, tolerance, &format!("sequences {order:?} a token later"));
        }
    }

    /// One forward pass over several sequences.
    fn batch_of(&mut self, pieces: &[&[u32]], states: &mut [State], outputs: &[usize]) -> Vec<f32> {
        let ids = pieces.concat();
        let mut at = 0;
        let sequences: Vec<Sequence> = pieces
            .iter()
            .map(|piece| {
                at += piece.len();
                Sequence { rows: at - piece.len()..at }
            })
            .collect();
        let batch = Batch { ids: &ids, sequences: &sequences, outputs, want: Want::Logits };
        let mut states: Vec<&mut State> = states.iter_mut().collect();
        let output = pollster::block_on(self.executor.forward(&batch, &mut states));
        output.unwrap_or_else(|e| panic!("{}: {e}", self.what)).values
    }

    /// Two states hold the same, each array within its share of the tolerance.
    fn same_state(&self, got: &Snapshot, wanted: &Snapshot, tolerance: f32, how: &str) {
        let what = &self.what;
        assert_eq!(got.positions, wanted.positions, "{what}: {how}: positions");
        got.check(&self.slots).unwrap_or_else(|e| panic!("{what}: {how}: {e}"));
        let names = self.slots.iter().enumerate().flat_map(|(slot, s)| {
            s.planes(got.positions).into_iter().map(move |(name, _)| (name, format!("{name} of slot {slot}")))
        });
        for (((name, place), got), wanted) in names.zip(&got.planes).zip(&wanted.planes) {
            let (got, wanted) = (got.to_f32().expect("numbers"), wanted.to_f32().expect("numbers"));
            assert_eq!(got.len(), wanted.len(), "{what}: {how}: {place}");
            let largest = wanted.iter().fold(1.0, |a: f32, b| a.max(b.abs()));
            for (i, (g, w)) in got.iter().zip(&wanted).enumerate() {
                let mut off = (g - w).abs();
                if name == "angle" {
                    off = off.min(TAU - off);
                }
                assert!(off <= tolerance * largest, "{what}: {how}: {place}, value {i}: {g}, not {w}");
            }
        }
    }
}

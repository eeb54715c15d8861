//! The one test suite that every executor runs: each fixture in one piece, in pieces, saved and restored, in batches of
//! many kinds, greedily and rewound.
//!
//! An executor's own test names itself and calls [`run`] over [`DENSE`] and [`RECURRENT`], and [`run_mbjs`] over
//! [`MBJS`]. Panics are how tests fail here.

mod fixture;
mod mbjs;
mod properties;

use std::path::PathBuf;

use selkie_model::{
    Batch, Executor, LoadedWeights, ModelSpec, Output, Sequence, State, Want,
    plan::{self, Slot},
};

pub use fixture::{Case, Expected, Files};
pub use mbjs::{MBJS, MbjsCase, run_mbjs};

/// Makes the executor under test.
pub type Make<'a> = &'a dyn Fn(ModelSpec, LoadedWeights) -> Box<dyn Executor>;

/// The project's fixtures.
pub fn fixtures() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures"))
}

/// The dense transformer cases of `fixtures/hf`, and Mixtral.
pub const DENSE: &[&str] = &[
    "gemma2",
    "gemma3-text",
    "granite",
    "k256-llama",
    "llama-bf16",
    "llama-f16",
    "llama-gqa",
    "llama-rope-linear",
    "llama-rope-llama3",
    "llama-rope-yarn",
    "llama-tied-bias",
    "mistral-swa",
    "mixtral",
    "olmo2",
    "phi3",
    "qwen2-bias",
    "qwen3-qknorm",
    "smollm3-nope",
];

/// The cases of `fixtures/hf` with mixtures of experts, or compressed caches.
pub const MIXTURES: &[&str] = &[
    "deepseek2-lite",
    "deepseek2-yarn",
    "deepseek3-halves",
    "deepseek3-mla",
    "gptoss",
    "granitemoe",
    "k256-qwen3moe",
    "olmoe",
    "qwen2moe-shared",
    "qwen3moe",
    "qwen3moe-sparse",
];

/// The cases of `fixtures/hf` with recurrent layers, alone or among attention.
pub const RECURRENT: &[&str] = &[
    "bamba",
    "falcon-h1",
    "falcon-h1-normed",
    "falcon-mamba",
    "granitehybrid-dense",
    "granitemoehybrid",
    "jamba",
    "k256-mamba2",
    "lfm2",
    "lfm2-moe",
    "mamba",
    "mamba2-g1",
    "mamba2-g2",
    "nemotron-h",
    "nemotron-h-moe",
    "qwen3next",
    "qwen3next-dense",
    "ssm-mamba1",
    "ssm-mamba2",
    "ssm-mamba3-attention",
    "ssm-mamba3-mimo",
    "ssm-mamba3-mimo-normed",
    "ssm-mamba3-siso",
    "zamba2",
    "zamba2-two-blocks",
];

/// Runs every form of the fixture `name` on the executor that `make` makes.
pub fn run(name: &str, make: Make<'_>) {
    let case = Case::open(name);
    assert!(!case.forms.is_empty(), "{name}: no form of the model was found");
    for form in &case.forms {
        let (spec, weights) = form.load();
        let slots = plan::plan(&spec).slots;
        let mut subject = Subject { executor: make(spec, weights), slots, what: format!("{name}/{}", form.name) };
        subject.check(&case, &form.expected());
    }
}

/// An executor with what it is about, for messages.
struct Subject {
    executor: Box<dyn Executor>,
    /// What its states hold.
    slots: Vec<Slot>,
    what: String,
}

impl Subject {
    fn check(&mut self, case: &Case, expected: &Expected) {
        let ids = &expected.seq.ids;
        let whole = self.pieces(ids, ids.len());
        self.near(&whole, &expected.seq.logits, case.tolerance, "in one piece");
        for piece in [1, 5] {
            let got = self.pieces(ids, piece);
            self.near(&got, &expected.seq.logits, case.tolerance, &format!("in pieces of {piece}"));
        }
        self.check_rewind(ids, &expected.seq.logits, case.tolerance);
        self.check_splits(ids, &expected.seq.logits, case.tolerance);
        self.check_mixed_batches(ids, case.tolerance);
        if let Some(one) = &expected.one {
            let got = self.pieces(&one.ids, 1);
            self.near(&got, &one.logits, case.tolerance, "a single token");
        }
        if let Some(batch) = &expected.batch {
            let got = self.batch(&batch.ids, 2);
            self.near(&got, &batch.logits, case.tolerance, "two sequences in a batch");
        }
        if let Some(greedy) = &expected.greedy {
            self.check_greedy(greedy, case);
        }
    }

    fn forward(&mut self, ids: &[u32], state: &mut State) -> Output {
        let rows: Vec<usize> = (0..ids.len()).collect();
        let sequences = [Sequence { rows: 0..ids.len() }];
        let batch = Batch { ids, sequences: &sequences, outputs: &rows, want: Want::Logits };
        let mut states = [state];
        pollster::block_on(self.executor.forward(&batch, &mut states)).unwrap_or_else(|e| panic!("{}: {e}", self.what))
    }

    /// Logits of every row, fed `piece` tokens at a time.
    fn pieces(&mut self, ids: &[u32], piece: usize) -> Vec<f32> {
        let mut state = pollster::block_on(self.executor.new_state(ids.len())).expect("a state");
        let got: Vec<f32> = ids.chunks(piece).flat_map(|ids| self.forward(ids, &mut state).values).collect();
        assert_eq!(state.positions(), ids.len(), "{}", self.what);
        got
    }

    /// A state which went astray and was rewound goes on as if it had not, and so does a fork of it.
    fn check_rewind(&mut self, ids: &[u32], logits: &[f32], tolerance: f32) {
        let width = logits.len() / ids.len();
        let half = ids.len() / 2;
        let mut state = pollster::block_on(self.executor.new_state(ids.len())).expect("a state");
        self.forward(&ids[..half], &mut state);
        let mut fork = state.fork();
        let astray: Vec<u32> = ids[half..].iter().rev().copied().collect();
        self.forward(&astray, &mut state);
        state.rewind(half).expect("a rewind");
        for state in [&mut state, &mut fork] {
            let got = self.forward(&ids[half..], state);
            self.near(&got.values, &logits[half * width..], tolerance, "after a rewind or a fork");
        }
    }

    fn batch(&mut self, ids: &[u32], sequences: usize) -> Vec<f32> {
        let len = ids.len() / sequences;
        let mut states: Vec<State> =
            (0..sequences).map(|_| pollster::block_on(self.executor.new_state(len)).expect("a state")).collect();
        let mut states: Vec<&mut State> = states.iter_mut().collect();
        let sequences: Vec<Sequence> = (0..sequences).map(|s| Sequence { rows: s * len..(s + 1) * len }).collect();
        let rows: Vec<usize> = (0..ids.len()).collect();
        let batch = Batch { ids, sequences: &sequences, outputs: &rows, want: Want::Logits };
        pollster::block_on(self.executor.forward(&batch, &mut states)).expect("a batch").values
    }

    fn check_greedy(&mut self, greedy: &fixture::Greedy, case: &Case) {
        let mut state =
            pollster::block_on(self.executor.new_state(greedy.prompt.len() + greedy.tokens.len())).expect("a state");
        let mut output = self.forward(&greedy.prompt, &mut state);
        let width = output.width;
        for (i, &wanted) in greedy.tokens.iter().enumerate() {
            let last = output.row(output.values.len() / width - 1);
            self.near(last, &greedy.logits[i * width..][..width], case.tolerance, &format!("greedy token {i}"));
            let best = (0..width).max_by(|&a, &b| last[a].total_cmp(&last[b])).unwrap_or(0) as u32;
            assert!(!case.greedy_required || best == wanted, "{}: greedy token {i}: {best}, not {wanted}", self.what);
            output = self.forward(&[wanted], &mut state);
        }
    }

    fn near(&self, got: &[f32], wanted: &[f32], tolerance: f32, how: &str) {
        assert_eq!(got.len(), wanted.len(), "{}: {how}: number of logits", self.what);
        let worst = got
            .iter()
            .zip(wanted)
            .map(|(g, w)| (g - w).abs())
            .fold(0.0, |a: f32, b| if b > a || b.is_nan() { b } else { a });
        assert!(worst <= tolerance, "{}: {how}: off by {worst}, where {tolerance} is allowed", self.what);
    }
}

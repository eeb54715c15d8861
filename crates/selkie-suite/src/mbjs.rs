//! The cases of `fixtures/mbjs`: hybrids of the npm package, against what it computed (repaired, the normative profile)
//! and against the same mathematics in f64 (reference).

use std::path::PathBuf;

use selkie_formats::{Checkpoint, mbjs::Config};
use selkie_model::{Batch, LoadedWeights, MAX_REWIND, ModelSpec, Sequence, Want, families, plan};
use serde_json::Value;

use super::{Make, Subject, fixture};

/// The cases of `fixtures/mbjs`.
pub const MBJS: &[&str] = &[
    "at-1head-d16",
    "at-4heads-batch2",
    "at-dhead32",
    "at-ffn",
    "hy-all-batch2",
    "hy-all-init-v3",
    "hy-jamba",
    "hy-len1",
    "m1-batch2-v3",
    "m1-init",
    "m1-long",
    "m1-scaled",
    "m1-v1-file",
    "m2-chunk8",
    "m2-dhead1",
    "m2-groups2-batch2",
    "m2-init",
    "m2-scaled",
    "m3-chunk5",
    "m3-groups2-mimo2-batch2",
    "m3-init",
    "m3-scaled",
    "train-at",
    "train-m1",
    "train-m2",
    "train-m3",
];

/// The profiles that an engine has to give.
const PROFILES: [&str; 2] = ["repaired", "reference"];

/// One case.
pub struct MbjsCase {
    folder: PathBuf,
    /// Its `config.json`: the model, and what was recorded.
    pub about: Value,
    /// Its `expected.json`.
    pub expected: Value,
    /// The model in `config.json`.
    pub config: Config,
    values: Checkpoint,
}

impl MbjsCase {
    /// Reads `fixtures/mbjs/NAME`.
    pub fn open(name: &str) -> Self {
        let folder = crate::fixtures().join("mbjs").join(name);
        let about = fixture::json(&folder.join("config.json"));
        let config = Config::from_json(name, about.clone()).unwrap_or_else(|e| panic!("{e}"));
        let values = fixture::source(&folder.join("expected.safetensors"));
        let values = pollster::block_on(Checkpoint::open_safetensors(vec![values], None)).expect("expected values");
        Self { about, expected: fixture::json(&folder.join("expected.json")), config, values, folder }
    }

    /// The checkpoint that the numbers were computed from.
    pub fn checkpoint(&self) -> Checkpoint {
        let source = fixture::source(&self.folder.join("model.mbjs"));
        pollster::block_on(Checkpoint::open_mbjs(source, &self.config)).unwrap_or_else(|e| panic!("{e}"))
    }

    /// The model's spec and weights.
    pub fn load(&self) -> (ModelSpec, LoadedWeights) {
        let checkpoint = self.checkpoint();
        let spec = families::read(&checkpoint, None).unwrap_or_else(|e| panic!("{}: {e}", self.config.name()));
        let weights = pollster::block_on(spec.weights.load(&checkpoint)).expect("weights");
        (spec, weights)
    }

    /// Sequences, and the length of each.
    pub fn batch(&self) -> (usize, usize) {
        let number = |key: &str| self.about[key].as_u64().expect(key) as usize;
        (number("batch"), number("seqLen"))
    }

    /// Ids of all sequences, one after another.
    pub fn ids(&self) -> Vec<u32> {
        list(&self.expected["ids"])
    }

    /// The values of `logits.repaired`, `embed.reference` and the like.
    pub fn values(&self, name: &str) -> Vec<f32> {
        pollster::block_on(self.values.load(name)).expect(name).to_f32().expect(name)
    }

    /// The largest difference that is allowed from such values.
    pub fn tolerance(&self, of: &str) -> f32 {
        self.about["tolerance"][of].as_f64().expect("a tolerance") as f32
    }

    /// Prompt and greedy continuation, in one list, with the prompt's length.
    pub fn greedy(&self) -> Option<(Vec<u32>, usize)> {
        let generate = self.expected.get("generate")?;
        Some((list(&generate["greedy"]["repaired"]), list(&generate["prompt"]).len()))
    }
}

/// A JSON list of ids.
fn list(value: &Value) -> Vec<u32> {
    value.as_array().expect("ids").iter().map(|id| id.as_u64().expect("an id") as u32).collect()
}

/// Runs the case `name` on the executor that `make` makes.
pub fn run_mbjs(name: &str, make: Make<'_>) {
    let case = MbjsCase::open(name);
    let (spec, weights) = case.load();
    let slots = plan::plan(&spec).slots;
    let mut subject = Subject { executor: make(spec, weights), slots, what: format!("mbjs/{name}") };
    let (sequences, len) = case.batch();
    let ids = case.ids();
    assert_eq!(ids.len(), sequences * len, "{name}");
    for profile in PROFILES {
        let (logits, allowed) = (case.values(&format!("logits.{profile}")), case.tolerance(profile));
        let got = subject.batch(&ids, sequences);
        subject.near(&got, &logits, allowed, &format!("{profile}, as a batch"));
        let width = logits.len() / sequences;
        for (ids, logits) in ids.chunks(len).zip(logits.chunks(width)) {
            for piece in [1, 5, len] {
                let got = subject.pieces(ids, piece);
                subject.near(&got, logits, allowed, &format!("{profile}, in pieces of {piece}"));
            }
            subject.check_splits(ids, logits, allowed);
            if len > 1 {
                // No more than what a state can go back.
                let part = len.min(2 * MAX_REWIND);
                subject.check_rewind(&ids[..part], &logits[..part * logits.len() / len], allowed);
            }
            if len >= 24 {
                subject.check_mixed_batches(ids, allowed);
            }
        }
        let embedding = subject.embed(&ids[..len]);
        let wanted = case.values(&format!("embed.{profile}"));
        subject.near(&embedding, &wanted, case.tolerance("embed"), &format!("{profile}, embedding"));
    }
    if let Some((tokens, prompt)) = case.greedy() {
        subject.check_tokens(&tokens, prompt);
    }
}

impl Subject {
    /// The mean over positions of the final norm's output, L2-normalised.
    fn embed(&mut self, ids: &[u32]) -> Vec<f32> {
        let mut state = pollster::block_on(self.executor.new_state(ids.len())).expect("a state");
        let sequences = [Sequence { rows: 0..ids.len() }];
        let outputs: Vec<usize> = (0..ids.len()).collect();
        let batch = Batch { ids, sequences: &sequences, outputs: &outputs, want: Want::Hidden };
        let hidden = pollster::block_on(self.executor.forward(&batch, &mut [&mut state])).expect("hidden rows");
        let mut mean = vec![0.0f32; hidden.width];
        (0..ids.len()).for_each(|row| mean.iter_mut().zip(hidden.row(row)).for_each(|(m, v)| *m += v));
        let norm = mean.iter().map(|v| v * v).sum::<f32>().sqrt();
        mean.iter().map(|m| m / norm).collect()
    }

    /// Each of `tokens` after the prompt is the likeliest.
    fn check_tokens(&mut self, tokens: &[u32], prompt: usize) {
        let mut state = pollster::block_on(self.executor.new_state(tokens.len())).expect("a state");
        let mut output = self.forward(&tokens[..prompt], &mut state);
        for (i, &wanted) in tokens.iter().enumerate().skip(prompt) {
            let last = output.row(output.values.len() / output.width - 1);
            let best = (0..output.width).rev().max_by(|&a, &b| last[a].total_cmp(&last[b])).unwrap_or(0) as u32;
            assert_eq!(best, wanted, "{}: token {i}", self.what);
            output = self.forward(&[wanted], &mut state);
        }
    }
}

//! Tokens that the device chooses, several at once, are those that the host chooses one by one.

use std::sync::OnceLock;

use selkie_gpu::{Gpu, GpuExecutor, GpuOptions, RunOptions};
use selkie_model::{
    Batch, Choice, Error, Executor, SamplingParams, Sequence, State, Want,
    sampling::{sample, uniform},
};
use selkie_suite::Case;

/// Attention of several kinds, and recurrent layers.
const MODELS: &[&str] =
    &["llama-gqa", "gemma2", "mistral-swa", "mamba", "mamba2-g2", "ssm-mamba3-attention", "qwen3next-dense", "jamba"];
const PROMPT: [u32; 10] = [40, 77, 114, 151, 188, 25, 62, 99, 136, 173];
const SEED: u64 = 7;

/// One device for all tests, so that kernels are made once.
fn gpu() -> Gpu {
    static GPU: OnceLock<Gpu> = OnceLock::new();
    let open = || {
        let options = GpuOptions { software: true, ..GpuOptions::default() };
        pollster::block_on(Gpu::open(&options)).expect("a GPU, or Mesa's lavapipe")
    };
    GPU.get_or_init(open).clone()
}

fn executor(gpu: Gpu, name: &str) -> GpuExecutor {
    let case = Case::open(name);
    let (spec, weights) = case.forms.first().expect("a form of the model").load();
    let options = RunOptions { exact: true, max_positions: 1024, block_rows: 64, ..RunOptions::default() };
    pollster::block_on(GpuExecutor::new(gpu, &spec, weights, &options)).expect("an executor")
}

fn random() -> SamplingParams {
    SamplingParams { temperature: 1.2, top_k: 60, top_p: 0.97, min_p: 0.001, ..SamplingParams::default() }
}

/// Feeds tokens; gives the logits of the last one.
fn feed(executor: &mut GpuExecutor, ids: &[u32], state: &mut State) -> Vec<f32> {
    let sequences = [Sequence { rows: 0..ids.len() }];
    let batch = Batch { ids, sequences: &sequences, outputs: &[ids.len() - 1], want: Want::Logits };
    pollster::block_on(executor.forward(&batch, &mut [state])).expect("logits").values
}

fn chosen(logits: &[f32], choice: &Choice<'_>, state: &State) -> u32 {
    sample(logits, choice.params, &[], uniform(choice.seed, choice.sequence, state.positions() as u64))
}

/// A state that holds `prompt`, and the token that comes after it.
fn start(executor: &mut GpuExecutor, prompt: &[u32], choice: &Choice<'_>) -> (State, u32) {
    let mut state = pollster::block_on(executor.new_state(prompt.len() + 600)).expect("a state");
    let logits = feed(executor, prompt, &mut state);
    let first = chosen(&logits, choice, &state);
    (state, first)
}

/// Up to `n` more tokens, one by one.
fn one_by_one(executor: &mut GpuExecutor, n: usize, choice: &Choice<'_>, last: u32, state: &mut State) -> Vec<u32> {
    let mut ids = vec![last];
    while ids.len() <= n && (ids.len() == 1 || !choice.stop.contains(&ids[ids.len() - 1])) {
        let logits = feed(executor, &ids[ids.len() - 1..], state);
        ids.push(chosen(&logits, choice, state));
    }
    ids.split_off(1)
}

/// The same, eight at once; also how many came each time.
fn at_once(
    executor: &mut GpuExecutor,
    n: usize,
    choice: &Choice<'_>,
    last: u32,
    state: &mut State,
) -> (Vec<u32>, Vec<usize>) {
    let mut ids = vec![last];
    let mut counts = vec![];
    while ids.len() <= n && (ids.len() == 1 || !choice.stop.contains(&ids[ids.len() - 1])) {
        let before = state.positions();
        let (last, wanted) = (ids[ids.len() - 1], (n + 1 - ids.len()).min(8));
        let made = pollster::block_on(executor.generate(last, wanted, choice, state)).expect("tokens").expect("chosen");
        assert!(!made.is_empty() && made.len() <= wanted);
        assert_eq!(state.positions(), before + made.len());
        counts.push(made.len());
        ids.extend(made);
    }
    (ids.split_off(1), counts)
}

/// Whether states are the same but for rounding: what is read again comes in one block.
fn near(a: &State, b: &State) -> bool {
    let (a, b) = (arrays(a).concat(), arrays(b).concat());
    a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-4 * (1.0 + b.abs()))
}

fn arrays(state: &State) -> Vec<Vec<f32>> {
    let snapshot = pollster::block_on(state.snapshot()).expect("a snapshot");
    snapshot.planes.iter().map(|plane| plane.to_f32().expect("numbers")).collect()
}

#[test]
fn several_tokens_are_those_one_by_one() {
    for name in MODELS {
        let mut executor = executor(gpu(), name);
        for params in [SamplingParams::default(), random()] {
            let choice = Choice { params: &params, seed: SEED, sequence: 3, stop: &[] };
            // Over the positions at which attention is cut in parts, too.
            let long: Vec<u32> = PROMPT.iter().copied().cycle().take(245).collect();
            for prompt in [&PROMPT[..], &long] {
                let (mut state, first) = start(&mut executor, prompt, &choice);
                let mut other = state.fork();
                let wanted = one_by_one(&mut executor, 45, &choice, first, &mut state);
                let (got, counts) = at_once(&mut executor, 45, &choice, first, &mut other);
                assert_eq!(got, wanted, "{name}, {params:?}, {counts:?}");
                assert!(arrays(&other) == arrays(&state), "{name}, {params:?}");
            }
        }
    }
}

#[test]
fn a_sequence_ends_with_its_end() {
    for name in MODELS {
        let mut executor = executor(gpu(), name);
        for params in [SamplingParams::default(), random()] {
            let free = Choice { params: &params, seed: SEED, sequence: 0, stop: &[] };
            let (state, first) = start(&mut executor, &PROMPT, &free);
            let all = one_by_one(&mut executor, 24, &free, first, &mut state.fork());
            // Once it is known how long a token takes, eight come at once.
            at_once(&mut executor, 2, &free, first, &mut state.fork());
            for stop in [0, 3, 7, 8] {
                let end = [u32::MAX, all[stop], all[stop]];
                let at = all.iter().position(|id| *id == all[stop]).expect("itself");
                let choice = Choice { stop: &end, ..free };
                let (mut state, mut other) = (state.fork(), state.fork());
                let wanted = one_by_one(&mut executor, 24, &choice, first, &mut state);
                let (got, counts) = at_once(&mut executor, 24, &choice, first, &mut other);
                assert_eq!((&got, &got[..]), (&wanted, &all[..=at]), "{name}, {counts:?}");
                assert!(arrays(&other) == arrays(&state), "{name} that ends after {at}");
                // It goes on after its end.
                let (got, _) = at_once(&mut executor, 23 - at, &free, all[at], &mut other);
                assert_eq!(got, all[at + 1..], "{name}");
            }
        }
    }
}

#[test]
fn tokens_can_be_taken_back() {
    for name in MODELS {
        let mut executor = executor(gpu(), name);
        let params = random();
        let choice = Choice { params: &params, seed: SEED, sequence: 0, stop: &[] };
        let (mut state, first) = start(&mut executor, &PROMPT, &choice);
        let (all, _) = at_once(&mut executor, 80, &choice, first, &mut state);
        for back in [1, 5, 8, 31] {
            let mut other = state.fork();
            other.rewind(state.positions() - back).expect("a rewind");
            let (again, _) = at_once(&mut executor, back, &choice, all[79 - back], &mut other);
            assert_eq!(again, all[80 - back..], "{name}, {back} back");
            assert!(near(&other, &state), "{name}, {back} back");
        }
    }
}

#[test]
fn what_cannot_be_changes_nothing() {
    let mut executor = executor(gpu(), MODELS[0]);
    let params = SamplingParams::default();
    let choice = Choice { params: &params, seed: 0, sequence: 0, stop: &[] };
    let mut state = pollster::block_on(executor.new_state(20)).expect("a state");
    feed(&mut executor, &PROMPT, &mut state);
    let before = arrays(&state);
    let mut ask = |last: u32, n: usize, choice: &Choice<'_>| {
        let asked = pollster::block_on(executor.generate(last, n, choice, &mut state));
        assert!(state.positions() == 10 && arrays(&state) == before);
        asked
    };
    assert!(matches!(ask(100_000, 1, &choice), Err(Error::TokenId { id: 100_000, .. })));
    assert!(matches!(ask(1, 11, &choice), Err(Error::Context { wanted: 21, capacity: 20 })));
    let penalty = SamplingParams { frequency_penalty: 0.5, ..SamplingParams::default() };
    assert!(matches!(ask(1, 8, &Choice { params: &penalty, ..choice }), Ok(None)));
    assert!(matches!(ask(1, 8, &Choice { stop: &[2; 49], ..choice }), Ok(None)));

    let (ids, _) = at_once(&mut executor, 10, &choice, 1, &mut state);
    assert_eq!((ids.len(), state.positions()), (10, 20), "all the room there is");
}

/// A device of its own: others' buffers would be counted too.
fn own_gpu() -> Gpu {
    let options = GpuOptions { software: true, ..GpuOptions::default() };
    pollster::block_on(Gpu::open(&options)).expect("a GPU, or Mesa's lavapipe")
}

#[test]
fn tokens_need_no_new_buffers() {
    let gpu = own_gpu();
    for name in [MODELS[0], "mamba"] {
        let mut executor = executor(gpu.clone(), name);
        let params = random();
        let choice = Choice { params: &params, seed: SEED, sequence: 0, stop: &[] };
        let (mut state, first) = start(&mut executor, &PROMPT, &choice);
        let made = gpu.counts().made();
        let (ids, counts) = at_once(&mut executor, 500, &choice, first, &mut state);
        assert_eq!((ids.len(), gpu.counts().made()), (500, made), "{name}");
        assert!(counts.contains(&8), "{name}: {counts:?}");
    }
}

#[test]
fn what_is_closed_leaves_nothing_behind() {
    let gpu = own_gpu();
    let held = || (gpu.counts().buffers(), gpu.counts().bytes());
    let before = held();
    for i in 0..100 {
        let mut executor = executor(gpu.clone(), MODELS[0]);
        let mut state = pollster::block_on(executor.new_state(64)).expect("a state");
        let open = held();
        assert!(open > before);
        feed(&mut executor, &PROMPT, &mut state);
        let choice = Choice { params: &random(), seed: i, sequence: 0, stop: &[] };
        at_once(&mut executor, 3, &choice, 1, &mut state);
        assert_eq!(held(), open);
        drop((executor, state));
        assert_eq!(held(), before, "closed for time {i}");
    }
}

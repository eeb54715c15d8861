//! Tokens that an executor chooses, several at once, are those that are chosen one by one, whatever happens on the way.

use std::{cell::RefCell, fs, path::PathBuf, rc::Rc};

use selkie_formats::{LocalFuture, Tensor};
use selkie_model::{Batch, Executor, Output, Result as ModelResult, Sequence, Snapshot, State, Want};

use super::*;
use crate::{Backend, OpenOptions, SavedState};

/// Attention, recurrent layers, and both in one model. They have a tokenizer, whose token 1 ends a text.
const MODELS: [&str; 3] = ["llama-gqa", "mamba", "jamba"];
const EOS: u32 = 1;
const SEED: u64 = 7;

/// The CPU executor, which may choose tokens itself.
struct Choosing {
    inner: Box<dyn Executor>,
    /// How many tokens it chooses at once; `None` leaves choosing to its caller.
    at_once: Option<usize>,
    /// The token that comes where the state holds so many, whatever the model says.
    forced: Vec<(usize, u32)>,
    log: Rc<RefCell<Log>>,
}

/// What an executor had to do.
#[derive(Default)]
struct Log {
    /// How many tokens it was asked to choose, each time.
    asked: Vec<usize>,
    /// Rows that it computed.
    rows: usize,
}

impl Executor for Choosing {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn device(&self) -> String {
        self.inner.device()
    }

    fn new_state(&self, capacity: usize) -> LocalFuture<'_, ModelResult<State>> {
        self.inner.new_state(capacity)
    }

    fn restore<'a>(&'a self, snapshot: &'a Snapshot, capacity: usize) -> LocalFuture<'a, ModelResult<State>> {
        self.inner.restore(snapshot, capacity)
    }

    fn forward<'a>(
        &'a mut self,
        batch: &'a Batch<'a>,
        states: &'a mut [&'a mut State],
    ) -> LocalFuture<'a, ModelResult<Output>> {
        Box::pin(async move {
            self.log.borrow_mut().rows += batch.ids.len();
            let holds = states[0].positions() + batch.ids.len();
            let mut output = self.inner.forward(batch, states).await?;
            if let Some((_, id)) = self.forced.iter().find(|(at, _)| *at == holds) {
                let last = output.values.len() - output.width;
                output.values[last + *id as usize] = 1e9;
            }
            Ok(output)
        })
    }

    fn generate<'a>(
        &'a mut self,
        mut last: u32,
        n: usize,
        choice: &'a Choice<'a>,
        state: &'a mut State,
    ) -> LocalFuture<'a, ModelResult<Option<Vec<u32>>>> {
        Box::pin(async move {
            self.log.borrow_mut().asked.push(n);
            assert_eq!((choice.seed, choice.sequence), (SEED, 0));
            let Some(at_once) = self.at_once else { return Ok(None) };
            let mut chosen = vec![];
            while chosen.len() < n.min(at_once) {
                let (ids, sequences) = ([last], [Sequence { rows: 0..1 }]);
                let batch = Batch { ids: &ids, sequences: &sequences, outputs: &[0], want: Want::Logits };
                let logits = self.forward(&batch, &mut [&mut *state]).await?.values;
                let uniform = uniform(choice.seed, choice.sequence, state.positions() as u64);
                last = sample(&logits, choice.params, &[], uniform);
                chosen.push(last);
                if choice.stop.contains(&last) {
                    break;
                }
            }
            Ok(Some(chosen))
        })
    }
}

fn fixture(name: &str) -> PathBuf {
    selkie_suite::fixtures().join("hf").join(name)
}

/// What a continuation gave, and what it left.
#[derive(Debug, PartialEq)]
struct Left {
    ids: Vec<u32>,
    text: String,
    /// The text as it was told.
    told: Vec<String>,
    finish: Finish,
    tokens: Vec<u32>,
    pending: Vec<u32>,
    positions: usize,
}

/// A model's path and how its text goes on: what is compared.
#[derive(Clone)]
struct Case {
    path: PathBuf,
    capacity: usize,
    options: GenerateOptions,
    forced: Vec<(usize, u32)>,
    /// Ends the text at this event.
    cancel_at: Option<usize>,
    /// Starts from a saved state without its ids.
    restored: bool,
}

const PROMPT: [u32; 10] = [40, 77, 114, 151, 188, 25, 62, 99, 136, 173];

impl Case {
    /// 21 likeliest tokens after ten.
    fn new(name: &str) -> Self {
        let options = GenerateOptions { max_tokens: 21, seed: SEED, ..GenerateOptions::default() };
        let path = fixture(name).join("model.gguf");
        Self { path, capacity: 100, options, forced: vec![], cancel_at: None, restored: false }
    }

    /// Token `n` of those that are made is `id`.
    fn forced(mut self, n: usize, id: u32) -> Self {
        self.forced.push((PROMPT.len() + n, id));
        self
    }

    fn cancelled(self, event: usize) -> Self {
        Self { cancel_at: Some(event), ..self }
    }

    fn sampled(mut self) -> Self {
        self.options.sampling =
            SamplingParams { temperature: 1.2, top_k: 60, top_p: 0.97, ..SamplingParams::default() };
        self
    }

    /// Runs it, and goes on after it; gives what each left behind, the state's arrays at the end, and what the executor did.
    fn run(&self, at_once: Option<usize>) -> (Vec<Result<Left, String>>, Vec<Tensor>, Log) {
        let exact = OpenOptions { backend: Backend::Cpu, exact: true, threads: Some(1), ..OpenOptions::default() };
        let log = Rc::new(RefCell::new(Log::default()));
        let forced = self.forced.clone();
        let wrap = |inner| Box::new(Choosing { inner, at_once, forced, log: log.clone() }) as Box<dyn Executor>;
        let mut model = Model::open(&self.path, &exact).expect("a model").with_executor(wrap);
        let mut session = model.session(self.capacity).expect("a session");
        let mut prompt = &PROMPT[..];
        if self.restored {
            model.feed(&mut session, &PROMPT[..7]).expect("fed");
            let saved = SavedState { ids: None, ..model.snapshot(&session).expect("a state") };
            session = model.restore(&saved, self.capacity).expect("restored");
            prompt = &PROMPT[7..];
        }
        let after = GenerateOptions { max_tokens: 11, ..self.options.clone() };
        let mut left = vec![];
        for (more, options, cancel_at) in [(prompt, &self.options, self.cancel_at), (&[], &after, None)] {
            let mut told = vec![];
            let generated = model.extend(&mut session, more, options, &mut |event| {
                if let Event::Text(text) = event {
                    told.push(text.to_owned());
                }
                if cancel_at.is_some_and(|at| told.len() > at) {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
            assert_eq!(session.state.positions(), session.len(), "the session's tokens are those of its state");
            let (tokens, pending) = (session.tokens.clone(), session.pending.clone());
            left.push(match generated {
                Ok(Generated { ids, text, finish, .. }) => {
                    Ok(Left { ids, text, told, finish, tokens, pending, positions: session.state.positions() })
                }
                Err(error) => Err(format!("{error} after {told:?}, with {tokens:?} and {pending:?}")),
            });
        }
        let state = pollster::block_on(session.state.snapshot()).expect("a snapshot").planes;
        (left, state, log.take())
    }

    /// Holds several tokens at once to one by one; gives what the first continuation left, and what the executor
    /// did, one by one and otherwise.
    fn check(&self, at_once: usize) -> (Result<Left, String>, [Log; 2]) {
        let (mut wanted, wanted_state, one_by_one) = self.run(None);
        let (got, state, several) = self.run(Some(at_once));
        assert_eq!(got, wanted);
        for (got, wanted) in state.iter().zip(&wanted_state) {
            assert_eq!(got.shape, wanted.shape);
            let (got, wanted) = (got.to_f32().expect("numbers"), wanted.to_f32().expect("numbers"));
            let off = got.iter().zip(&wanted).map(|(g, w)| (g - w).abs()).fold(0.0, f32::max);
            assert!(off < 1e-5, "a state is off by {off}");
        }
        (wanted.remove(0), [one_by_one, several])
    }
}

#[test]
fn several_tokens_are_those_one_by_one() {
    for name in MODELS {
        let greedy = Case::new(name);
        let (left, [_, log]) = greedy.check(8);
        let left = left.expect("a text");
        // The first token comes from the prompt's logits, and 20 are left; then one that was pending, and 10.
        assert_eq!(log.asked, [8, 8, 4, 8, 2], "{name}");
        assert_eq!((left.ids.len(), left.finish, left.positions), (21, Finish::Length, 30), "{name}");
        assert_eq!((&left.tokens[10..], &left.pending[..]), left.ids.split_at(20), "{name}");
        assert!(!left.text.is_empty());
        let (sampled, _) = greedy.clone().sampled().check(8);
        assert_ne!(sampled.expect("a text").ids, left.ids, "{name}");
        // An executor may give fewer than it is asked for.
        let (_, [_, log]) = greedy.check(3);
        assert_eq!(log.asked, [8, 8, 8, 8, 8, 5, 2, 8, 7, 4, 1], "{name}");
        let restored = Case { restored: true, ..greedy };
        assert_eq!(restored.check(8).0.expect("a text").ids, left.ids, "{name}");
    }
}

#[test]
fn a_text_ends_where_its_end_is_chosen() {
    for name in MODELS {
        // Token 0 comes from the prompt; then 1 to 8 at once, and 9 to 16.
        for at in [0, 1, 4, 8, 9, 12] {
            for case in [Case::new(name), Case::new(name).sampled()] {
                let case = case.forced(at, EOS);
                let (left, logs) = case.check(8);
                let left = left.expect("a text");
                assert_eq!(logs[0].rows, logs[1].rows, "{name}: nothing is computed after the end");
                assert_eq!((left.finish, left.ids.len(), left.pending), (Finish::Stop, at + 1, vec![EOS]), "{name}");
                let mut on = case;
                on.options.ignore_eos = true;
                let left = on.check(8).0.expect("a text");
                assert_eq!((left.finish, left.ids.len(), left.ids[at]), (Finish::Length, 21, EOS), "{name}");
            }
        }
    }
}

#[test]
fn a_text_that_was_cancelled_holds_what_was_told() {
    for name in MODELS {
        for at in 0..12 {
            for restored in [false, true] {
                let case = Case { restored, ..Case::new(name).sampled().cancelled(at) };
                let left = case.check(8).0.expect("a text");
                assert_eq!(
                    (left.finish, left.ids.len(), left.positions),
                    (Finish::Cancelled, at + 1, 10 + at),
                    "{name}"
                );
            }
        }
    }
}

#[test]
fn a_text_ends_where_there_is_no_more_room() {
    for name in MODELS {
        let case = Case { capacity: PROMPT.len() + 13, ..Case::new(name) };
        let (left, [_, log]) = case.check(8);
        let left = left.expect("a text");
        assert_eq!(log.asked, [8, 5], "{name}");
        assert_eq!((left.finish, left.ids.len(), left.positions), (Finish::Length, 14, 23), "{name}");
        let mut none = Case::new(name);
        none.options.max_tokens = 0;
        let left = none.check(8).0.expect("a text");
        assert_eq!((left.finish, left.ids.len(), left.pending.len()), (Finish::Length, 0, 0), "{name}");
    }
}

/// A token that the tokenizer does not know comes up among several.
#[test]
fn an_error_in_the_text_leaves_what_was_told() {
    let folder = tempfile::tempdir().expect("a folder");
    for file in ["config.json", "model.safetensors"] {
        fs::copy(fixture("mamba").join(file), folder.path().join(file)).expect(file);
    }
    let tokenizer = fs::read(fixture("tokenizer").join("tokenizer.json")).expect("a tokenizer");
    let mut tokenizer: serde_json::Value = serde_json::from_slice(&tokenizer).expect("JSON");
    let model = &mut tokenizer["model"];
    let gone = model["merges"].as_array_mut().and_then(Vec::pop).expect("a merge");
    let gone = [0, 1].map(|i| gone[i].as_str().expect("a part")).concat();
    let id = model["vocab"].as_object_mut().and_then(|vocab| vocab.remove(&gone)).expect("an entry");
    let id = id.as_u64().expect("an id") as u32;
    fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).expect("written");
    for at in [0, 1, 3, 8] {
        let case = Case { path: folder.path().to_owned(), ..Case::new("mamba") }.forced(at, id);
        let error = case.check(8).0.expect_err("an unknown token");
        assert!(error.ends_with(&format!("and [{id}]")), "{error}");
    }
}

#[test]
fn executors_choose_where_nothing_looks_at_each_token() {
    let asked = |change: &dyn Fn(&mut GenerateOptions)| {
        let mut case = Case::new(MODELS[0]);
        change(&mut case.options);
        case.check(8).1[1].asked.len()
    };
    assert_eq!(asked(&|options| options.stop = vec![String::new()]), 5);
    assert_eq!(asked(&|options| options.sampling.min_p = 0.1), 5);
    assert_eq!(asked(&|options| options.stop = vec!["no such text".into()]), 0);
    assert_eq!(asked(&|options| options.sampling.repetition_penalty = 1.1), 0);
    assert_eq!(asked(&|options| options.sampling.logit_bias = vec![(3, 1.0)]), 0);
    // One that declines is not asked again.
    assert_eq!(Case::new(MODELS[0]).run(None).2.asked, [8, 8]);
    // One that gives nothing does not keep its caller for ever.
    let nothing = Case::new(MODELS[0]).run(Some(0)).0.remove(0).expect_err("nothing was chosen");
    assert!(nothing.starts_with("op `generate`: 0 tokens were chosen, where 1 to 8 are asked for"), "{nothing}");
}

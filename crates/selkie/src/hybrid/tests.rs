use std::{cell::RefCell, rc::Rc};

use selkie_formats::LocalFuture;
use selkie_model::{Batch, Executor, Output, Result as ModelResult, Snapshot, State};

use super::*;

/// An executor that notes how many rows it is given.
struct Counting {
    inner: Box<dyn Executor>,
    rows: Rc<RefCell<Vec<usize>>>,
}

impl Executor for Counting {
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
        self.rows.borrow_mut().push(batch.ids.len());
        self.inner.forward(batch, states)
    }
}

fn hybrid(layers: impl IntoIterator<Item = HybridLayer>) -> Hybrid {
    HybridConfig::new(64, 16, layers).d_state(4).seed(3).build(&OpenOptions::default()).expect("a model")
}

/// The rows of each pass that `n` new tokens after a prompt of `prompt` take.
fn rows(mut hybrid: Hybrid, prompt: usize, n: usize) -> Vec<usize> {
    let rows = Rc::new(RefCell::new(vec![]));
    hybrid.model = hybrid.model.with_executor(|inner| Box::new(Counting { inner, rows: rows.clone() }));
    let ids: Vec<u32> = (0..prompt as u32).map(|id| id % 64).collect();
    let made = hybrid.generate(&ids, n, &HybridSampling { seed: Some(1), ..HybridSampling::default() }).expect("ids");
    assert_eq!((made.len(), &made[..prompt]), (prompt + n, &ids[..]));
    rows.take()
}

/// Of the prompt each token is computed once, and of the others each once, however many there are before it; nothing that
/// the state holds grows.
#[test]
fn a_token_costs_the_same_at_every_position() {
    let recurrent = || hybrid([HybridLayer::mamba1(), HybridLayer::mamba2(), HybridLayer::mamba3()]);
    for prompt in [1, 10, 500] {
        assert_eq!(rows(recurrent(), prompt, 6), [&[prompt][..], &[1; 5]].concat());
    }
    let bytes = |model: &mut Hybrid, positions: usize| {
        let model = model.model();
        let mut session = model.session(10_000).expect("a session");
        for ids in vec![1; positions].chunks(400) {
            model.feed(&mut session, ids).expect("logits");
        }
        session.bytes()
    };
    let mut model = recurrent();
    // What it can go back to is more at some positions than at others, but not the more the later.
    let (early, late) = (bytes(&mut model, 40), bytes(&mut model, 4000));
    assert!(late < early + early / 10, "{early} bytes after 40 tokens, {late} after 4000");
    // With attention the cache grows, but no token is computed twice.
    let mixed = hybrid([HybridLayer::mamba1(), HybridLayer::attention()]);
    assert_eq!(rows(mixed, 100, 4), [100, 1, 1, 1]);
}

#[test]
fn no_new_tokens_are_none() {
    let mut model = hybrid([HybridLayer::mamba1()]);
    assert_eq!(model.generate(&[1, 2], 0, &HybridSampling::default()).expect("ids"), [1, 2]);
}

//! The executor: a model on a GPU.

use std::rc::Rc;

use selkie_formats::LocalFuture;
use selkie_model::{
    Batch, Choice, Error, Executor, ModelSpec, OpTime, Output, Plan, Result, Snapshot, State, weights::WeightSource,
};

use crate::{
    Gpu,
    engine::{Engine, NAME, RunOptions},
    state::Slots,
};

/// Runs a model on a GPU.
pub struct GpuExecutor {
    engine: Rc<Engine>,
}

impl GpuExecutor {
    /// An executor for `spec` over its loaded weights.
    ///
    /// # Errors
    /// Where there is no room, or an op or block format has no kernel.
    pub async fn new(
        gpu: Gpu,
        spec: &ModelSpec,
        weights: impl Into<WeightSource<'_>>,
        options: &RunOptions,
    ) -> Result<Self> {
        Ok(Self { engine: Rc::new(Engine::new(gpu, spec, weights.into(), options).await?) })
    }

    /// As [`new`](Self::new), with a plan that is given.
    ///
    /// # Errors
    /// As there.
    pub async fn with_plan(
        gpu: Gpu,
        spec: &ModelSpec,
        plan: Plan,
        weights: impl Into<WeightSource<'_>>,
        options: &RunOptions,
    ) -> Result<Self> {
        Ok(Self { engine: Rc::new(Engine::with_plan(gpu, spec, plan, weights.into(), options).await?) })
    }

    /// An executor for a model that is on its device already.
    pub(crate) fn of(engine: Rc<Engine>) -> Self {
        Self { engine }
    }

    /// The model on the device.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// As [`engine`](Self::engine), to keep.
    pub fn share(&self) -> Rc<Engine> {
        self.engine.clone()
    }

    async fn run(&self, batch: &Batch<'_>, states: &mut [&mut State]) -> Result<Output> {
        batch.check(self.engine.spec.vocab_size, states.len())?;
        let mut own = Vec::with_capacity(states.len());
        for (state, sequence) in states.iter().zip(batch.sequences) {
            let slots: &Slots = state.data(NAME)?;
            slots.check_room(state.positions() + sequence.rows.len())?;
            own.push(slots);
        }
        let output = self.engine.run(batch, &own).await?;
        for (state, sequence) in states.iter_mut().zip(batch.sequences) {
            state.advance(sequence.rows.len());
        }
        Ok(output)
    }

    async fn choose(&self, last: u32, n: usize, choice: &Choice<'_>, state: &mut State) -> Result<Option<Vec<u32>>> {
        let vocab_size = self.engine.spec.vocab_size;
        if last as usize >= vocab_size {
            return Err(Error::TokenId { id: last, vocab_size });
        }
        let slots: &Slots = state.data(NAME)?;
        slots.check_room(state.positions() + n)?;
        let chosen = self.engine.generate(last, n, choice, slots).await?;
        state.advance(chosen.as_ref().map_or(0, Vec::len));
        Ok(chosen)
    }
}

impl Executor for GpuExecutor {
    fn name(&self) -> &'static str {
        NAME
    }

    fn device(&self) -> String {
        self.engine.gpu.describe()
    }

    fn new_state(&self, capacity: usize) -> LocalFuture<'_, Result<State>> {
        Box::pin(async move { Ok(State::new(Box::new(self.engine.new_state(capacity).await?))) })
    }

    fn restore<'a>(&'a self, snapshot: &'a Snapshot, capacity: usize) -> LocalFuture<'a, Result<State>> {
        Box::pin(async move {
            let restored = self.engine.restore(snapshot, capacity).await?;
            Ok(State::restored(Box::new(restored), snapshot.positions))
        })
    }

    fn forward<'a>(
        &'a mut self,
        batch: &'a Batch<'a>,
        states: &'a mut [&'a mut State],
    ) -> LocalFuture<'a, Result<Output>> {
        Box::pin(self.run(batch, states))
    }

    fn profile(&mut self, on: bool) {
        self.engine.measure(on);
    }

    fn take_profile(&mut self) -> Vec<OpTime> {
        self.engine.take_times()
    }

    fn generate<'a>(
        &'a mut self,
        last: u32,
        n: usize,
        choice: &'a Choice<'a>,
        state: &'a mut State,
    ) -> LocalFuture<'a, Result<Option<Vec<u32>>>> {
        Box::pin(self.choose(last, n, choice, state))
    }
}

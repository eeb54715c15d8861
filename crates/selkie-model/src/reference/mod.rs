//! The reference executor: the specification of every op, in plain loops.
//!
//! It is written to be read, and to be right: every other executor is held to it, and it is held to the fixtures. Each
//! op stands in [`ops`] with its gradient. Arithmetic is in `T`, f64 unless f32 is asked for.

pub mod ops;
mod real;
mod recurrent;
mod state;

use selkie_formats::LocalFuture;

pub use real::Real;
use state::{Caches, Entry};

use crate::{
    Batch, Error, Executor, LoadedWeights, ModelSpec, OpTime, Output, Plan, Profile, Result, Snapshot, State, Want,
    plan::{AttentionOp, BufferId, Op, Product, Rows, plan},
    rope::Frequencies,
};

const NAME: &str = "reference";

/// Runs a plan op by op, in plain loops and `T` arithmetic.
pub struct Reference<T: Real = f64> {
    spec: ModelSpec,
    plan: Plan,
    weights: LoadedWeights,
    buffers: Vec<Vec<T>>,
    profile: Profile,
}

impl<T: Real> Reference<T> {
    /// An executor for `spec` over its loaded weights.
    pub fn new(spec: ModelSpec, weights: LoadedWeights) -> Self {
        let plan = plan(&spec);
        Self::with_plan(spec, plan, weights)
    }

    /// As [`new`](Self::new), with a plan that is given: fused ones run too, each fused op by its definition.
    pub fn with_plan(spec: ModelSpec, plan: Plan, weights: LoadedWeights) -> Self {
        let buffers = vec![Vec::new(); plan.buffers.len()];
        Self { spec, plan, weights, buffers, profile: Profile::default() }
    }

    fn run(&mut self, batch: &Batch<'_>, states: &mut [&mut State]) -> Result<Output> {
        batch.check(self.spec.vocab_size, states.len())?;
        let mut caches = Vec::with_capacity(states.len());
        let mut pasts = Vec::with_capacity(states.len());
        for (state, sequence) in states.iter_mut().zip(batch.sequences) {
            let past = state.positions();
            let own: &mut Caches<T> = state.data_mut(NAME)?;
            own.check_room(past + sequence.rows.len())?;
            pasts.push(past);
            caches.push(own);
        }
        // A failed pass leaves states as they were; here a copy is the plainest way.
        let before: Vec<Caches<T>> = caches.iter().map(|cache| (**cache).clone()).collect();
        let wanted = match batch.want {
            Want::Logits => self.plan.logits,
            Want::Hidden => self.plan.hidden,
        };
        let ops = std::mem::take(&mut self.plan.ops);
        let mut run = Ok(());
        for op in &ops {
            let started = self.profile.start();
            run = self.op(op, batch, &pasts, &mut caches);
            self.profile.stop(op.name(), started);
            if run.is_err() || op.outputs().contains(&wanted) {
                break;
            }
        }
        self.plan.ops = ops;
        if let Err(error) = run {
            caches.into_iter().zip(before).for_each(|(cache, before)| *cache = before);
            return Err(error);
        }
        for (cache, sequence) in caches.into_iter().zip(batch.sequences) {
            cache.advance(sequence.rows.len());
        }
        for (state, sequence) in states.iter_mut().zip(batch.sequences) {
            state.advance(sequence.rows.len());
        }
        let values = self.buffers[wanted.0 as usize].iter().map(|v| v.to_f64() as f32).collect();
        Ok(Output { width: self.plan.buffer(wanted).width, values })
    }

    fn rows(&self, buffer: BufferId, batch: &Batch<'_>) -> usize {
        match self.plan.buffer(buffer).rows {
            Rows::All => batch.ids.len(),
            Rows::Outputs => batch.outputs.len(),
        }
    }

    fn read(&self, buffer: BufferId) -> &[T] {
        &self.buffers[buffer.0 as usize]
    }

    /// Runs one op. Its output is made apart and put in place last, since ops are pure.
    fn op(&mut self, op: &Op, batch: &Batch<'_>, pasts: &[usize], caches: &mut [&mut Caches<T>]) -> Result<()> {
        let (out, values) = match op {
            Op::Embed { table, scale, out } => {
                (*out, ops::embed(batch.ids, self.weights.get(*table), T::from_f32(*scale))?)
            }
            Op::RmsNorm { x, weight, group, eps, out } => {
                let eps = T::from_f32(*eps);
                let values = match weight {
                    Some(weight) => ops::rms_norm(self.read(*x), &self.vector(*weight)?, *group, eps),
                    None => ops::rms_norm_plain(self.read(*x), *group, eps),
                };
                (*out, values)
            }
            Op::Linear { x, product } => (product.out, self.product(*x, product)?),
            Op::Rope { x, rope, head_dim, out } => (*out, self.rope(*x, *rope, *head_dim, batch, pasts)?),
            Op::Attention(a) => (a.out, self.attention(a, batch, pasts, caches)?),
            Op::Activate { x, activation, out } => {
                (*out, self.read(*x).iter().map(|&v| ops::activate(v, *activation)).collect())
            }
            Op::ScaleRows { x, gate, out } => {
                (*out, ops::scale_rows(self.read(*x), self.read(*gate), self.plan.buffer(*x).width))
            }
            Op::JoinHeads { a, b, n_heads, out } => {
                let [a_dim, b_dim] = [*a, *b].map(|id| self.plan.buffer(id).width / n_heads);
                (*out, ops::join_heads(self.read(*a), self.read(*b), a_dim, b_dim))
            }
            Op::HeadLinear { x, weight, n_heads, out } => {
                (*out, ops::head_linear(self.read(*x), self.weights.get(*weight), *n_heads)?)
            }
            Op::RankExpand { x, weight, head_dim, out } => {
                let n_heads = self.weights.get(*weight).shape[0];
                (*out, ops::rank_expand(self.read(*x), &self.vector(*weight)?, n_heads, *head_dim))
            }
            Op::RankReduce { x, weight, head_dim, out } => {
                let n_heads = self.weights.get(*weight).shape[0];
                (*out, ops::rank_reduce(self.read(*x), &self.vector(*weight)?, n_heads, *head_dim))
            }
            Op::Glu { gate, up, activation, out } => (*out, ops::glu(self.read(*gate), self.read(*up), *activation)),
            Op::Mixture { x, mixture, out } => (*out, ops::mixture(self.read(*x), mixture, &self.weights)?),
            Op::Add { x, y, scale, out } => (*out, ops::add(self.read(*x), self.read(*y), T::from_f32(*scale))),
            Op::Scale { x, scale, out } => (*out, ops::scale(self.read(*x), T::from_f32(*scale))),
            Op::Clamp { x, limit, out } => (*out, ops::clamp(self.read(*x), T::from_f32(*limit))),
            Op::SoftCap { x, cap, out } => (*out, ops::soft_cap(self.read(*x), T::from_f32(*cap))),
            Op::TakeRows { x, out } => {
                let width = self.plan.buffer(*x).width;
                (*out, ops::take_rows(self.read(*x), width, batch.outputs))
            }
            Op::Linears { x, products } => {
                for product in products {
                    self.buffers[product.out.0 as usize] = self.product(*x, product)?;
                }
                return Ok(());
            }
            Op::LinearGlu { x, gate, up, activation, out } => {
                let (gate, up) = (self.product(*x, gate)?, self.product(*x, up)?);
                (*out, ops::glu(&gate, &up, *activation))
            }
            Op::LinearAdd { x, weight, bias, residual, scale, out } => {
                let y = self.product(*x, &Product { weight: *weight, bias: *bias, out: *out })?;
                (*out, ops::add(self.read(*residual), &y, T::from_f32(*scale)))
            }
            recurrent => self.recurrent(recurrent, batch, caches)?,
        };
        let wanted = self.rows(out, batch) * self.plan.buffer(out).width;
        if values.len() != wanted {
            let what = format!("gave {} values where the plan has {wanted}", values.len());
            return Err(Error::Op { op: op.name().into(), what });
        }
        self.buffers[out.0 as usize] = values;
        Ok(())
    }

    fn product(&self, x: BufferId, product: &Product) -> Result<Vec<T>> {
        let bias = product.bias.map(|id| self.weights.get(id).to_f32()).transpose()?;
        ops::linear(self.read(x), self.weights.get(product.weight), bias.as_deref())
    }

    fn rope(&self, x: BufferId, rope: usize, head_dim: usize, batch: &Batch<'_>, pasts: &[usize]) -> Result<Vec<T>> {
        let width = self.plan.buffer(x).width;
        let spec = &self.spec.ropes[rope];
        let mut values = self.read(x).to_vec();
        for (sequence, &past) in batch.sequences.iter().zip(pasts) {
            let frequencies: Frequencies = spec.frequencies(past + sequence.rows.len(), &self.weights)?;
            for (i, row) in sequence.rows.clone().enumerate() {
                let angles: Vec<(T, T)> =
                    frequencies.cos_sin(past + i).map(|(cos, sin)| (T::from_f32(cos), T::from_f32(sin))).collect();
                for head in values[row * width..(row + 1) * width].chunks_exact_mut(head_dim) {
                    ops::rope(head, &angles, spec.pairing);
                }
            }
        }
        Ok(values)
    }

    fn attention(
        &self,
        a: &AttentionOp,
        batch: &Batch<'_>,
        pasts: &[usize],
        caches: &mut [&mut Caches<T>],
    ) -> Result<Vec<T>> {
        let (q, k, v) = (self.read(a.q), self.read(a.k), self.read(a.v));
        let [q_width, k_width, v_width] = [a.q, a.k, a.v].map(|id| self.plan.buffer(id).width);
        let sinks = a.sinks.map(|id| self.vector(id)).transpose()?;
        let shape = ops::AttentionShape::of(a);
        let mut out = vec![];
        for ((sequence, &past), own) in batch.sequences.iter().zip(pasts).zip(caches) {
            let Entry::Cache(cache) = &mut own.slots[a.cache.0 as usize] else {
                return Err(Error::Op { op: "attention".into(), what: "its slot is no cache".into() });
            };
            let rows = |width: usize| sequence.rows.start * width..sequence.rows.end * width;
            cache.k.extend_from_slice(&k[rows(k_width)]);
            cache.v.extend_from_slice(&v[rows(v_width)]);
            let queries = &q[rows(q_width)];
            out.extend(ops::attention_with_sinks(queries, &cache.k, &cache.v, sinks.as_deref(), past, &shape));
        }
        Ok(out)
    }
}

impl<T: Real> Executor for Reference<T> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn device(&self) -> String {
        format!("one thread, plain loops in f{}", 8 * size_of::<T>())
    }

    fn new_state(&self, capacity: usize) -> LocalFuture<'_, Result<State>> {
        Box::pin(async move { Ok(State::new(Box::new(Caches::<T>::new(&self.plan.slots, capacity)))) })
    }

    fn restore<'a>(&'a self, snapshot: &'a Snapshot, capacity: usize) -> LocalFuture<'a, Result<State>> {
        Box::pin(async move {
            let caches = Caches::<T>::restore(&self.plan.slots, snapshot, capacity)?;
            Ok(State::restored(Box::new(caches), snapshot.positions))
        })
    }

    fn forward<'a>(
        &'a mut self,
        batch: &'a Batch<'a>,
        states: &'a mut [&'a mut State],
    ) -> LocalFuture<'a, Result<Output>> {
        Box::pin(async move { self.run(batch, states) })
    }

    fn profile(&mut self, on: bool) {
        self.profile.switch(on);
    }

    fn take_profile(&mut self) -> Vec<OpTime> {
        self.profile.take()
    }
}

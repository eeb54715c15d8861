//! Runs a plan with the kernels of this crate.
//!
//! The fused plan is walked op by op; each op is one or two parallel regions of the pool. Buffers lie in the places that
//! the plan's memory planner gave them, which grow to the largest batch seen and are then used again.

mod heads;
mod mixture;
mod recurrent;
mod state;
mod weights;

use selkie_formats::LocalFuture;
use selkie_model::{
    Batch, Error, Executor, LoadedWeights, ModelSpec, OpTime, Output, Plan, Profile, Result, Snapshot, State, Want,
    WeightId,
    plan::{AttentionOp, BufferId, Op, Places, Product, Rows, fuse, places, plan},
};

use crate::{
    Activation, Activations, Attention, Pairing, Pool, Q8, attention,
    executor::{
        recurrent::{SlotOp, SlotState},
        state::Slots,
        weights::Loaded,
    },
    kernels,
};

const NAME: &str = "cpu";

/// How a [`CpuExecutor`] runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuOptions {
    /// Threads, the caller among them; one for each physical core where `None`.
    pub threads: Option<usize>,
    /// f32 activations and caches, where the default rounds activations to 8 bits for quantised weights, and caches to
    /// f16.
    pub exact: bool,
}

/// The CPU executor: SIMD kernels, threads, weights as they lie in the file.
pub struct CpuExecutor {
    spec: ModelSpec,
    plan: Plan,
    /// What each slot of the plan belongs to.
    slot_ops: Vec<SlotOp>,
    places: Places,
    weights: Loaded,
    pool: Pool,
    exact: bool,
    buffers: Vec<Vec<f32>>,
    scratch: Scratch,
    profile: Profile,
}

/// Room that ops use inside themselves.
#[derive(Default)]
struct Scratch {
    q8: Q8,
    products: Vec<f32>,
    angles: Vec<Angles>,
    mixture: mixture::Scratch,
}

/// Cosines and sines of a batch's positions for one rotary embedding, `[rows, n_dims / 2]`.
#[derive(Default)]
struct Angles {
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl CpuExecutor {
    /// An executor for `spec` over its loaded weights.
    ///
    /// # Errors
    /// Where a weight's type cannot be multiplied with.
    pub fn new(spec: &ModelSpec, weights: LoadedWeights, options: &CpuOptions) -> Result<Self> {
        Self::with_plan(spec, fuse(plan(spec)), weights, options)
    }

    /// As [`new`](Self::new), with a plan that is given.
    ///
    /// # Errors
    /// As there.
    pub fn with_plan(spec: &ModelSpec, plan: Plan, weights: LoadedWeights, options: &CpuOptions) -> Result<Self> {
        let places = places(&plan);
        let weights = Loaded::new(&plan, spec, weights)?;
        let slot_ops = SlotOp::of(&plan, &weights).map_err(|e| op_failed("load", &e))?;
        let pool = Pool::new(options.threads.unwrap_or_else(Pool::default_threads));
        let buffers = vec![Vec::new(); places.places.len()];
        Ok(Self {
            spec: spec.clone(),
            plan,
            slot_ops,
            places,
            weights,
            pool,
            exact: options.exact,
            buffers,
            scratch: Scratch::default(),
            profile: Profile::default(),
        })
    }

    fn run(&mut self, batch: &Batch<'_>, states: &mut [&mut State]) -> Result<Output> {
        batch.check(self.spec.vocab_size, states.len())?;
        let mut caches = Vec::with_capacity(states.len());
        let mut pasts = Vec::with_capacity(states.len());
        for (state, sequence) in states.iter_mut().zip(batch.sequences) {
            let past = state.positions();
            let own: &mut Slots = state.data_mut(NAME)?;
            own.check_room(past + sequence.rows.len())?;
            pasts.push(past);
            caches.push(own);
        }
        for (place, &(rows, width)) in self.places.places.iter().enumerate() {
            let rows = row_count(rows, batch);
            if self.buffers[place].len() < rows * width {
                self.buffers[place].resize(rows * width, 0.0);
            }
        }
        self.fill_angles(batch, &pasts)?;
        let wanted = match batch.want {
            Want::Logits => self.plan.logits,
            Want::Hidden => self.plan.hidden,
        };
        let ops = std::mem::take(&mut self.plan.ops);
        let mut run = Ok(());
        for op in &ops {
            let started = self.profile.start();
            run = self.op(op, batch, &mut caches);
            self.profile.stop(op.name(), started);
            if run.is_err() || op.outputs().contains(&wanted) {
                break;
            }
        }
        self.plan.ops = ops;
        if let Err(error) = run {
            caches.iter_mut().for_each(|cache| cache.roll_back());
            return Err(error);
        }
        for (cache, sequence) in caches.iter_mut().zip(batch.sequences) {
            cache.advance(sequence.rows.len());
        }
        for (state, sequence) in states.iter_mut().zip(batch.sequences) {
            state.advance(sequence.rows.len());
        }
        let width = self.plan.buffer(wanted).width;
        Ok(Output { width, values: self.read(wanted, batch).to_vec() })
    }

    /// The angles of every row, which all layers share.
    fn fill_angles(&mut self, batch: &Batch<'_>, pasts: &[usize]) -> Result<()> {
        self.scratch.angles.resize_with(self.spec.ropes.len(), Angles::default);
        for (rope, angles) in self.spec.ropes.iter().zip(&mut self.scratch.angles) {
            angles.cos.clear();
            angles.sin.clear();
            for (sequence, &past) in batch.sequences.iter().zip(pasts) {
                let frequencies = rope.frequencies(past + sequence.rows.len(), &self.weights.all)?;
                for i in 0..sequence.rows.len() {
                    for (cos, sin) in frequencies.cos_sin(past + i) {
                        angles.cos.push(cos);
                        angles.sin.push(sin);
                    }
                }
            }
        }
        Ok(())
    }

    fn slots(&self, capacity: usize) -> Result<Slots> {
        Slots::new(&self.plan.slots, &self.slot_ops, self.pool.isa(), capacity, self.exact)
            .map_err(|e| op_failed("state", &e))
    }

    fn place(&self, buffer: BufferId) -> usize {
        // The planner gives a place to each buffer that an op writes, and ops read no other.
        self.places.of(buffer).unwrap_or(0)
    }

    fn len(&self, buffer: BufferId, batch: &Batch<'_>) -> usize {
        let buffer = self.plan.buffer(buffer);
        row_count(buffer.rows, batch) * buffer.width
    }

    fn read(&self, buffer: BufferId, batch: &Batch<'_>) -> &[f32] {
        &self.buffers[self.place(buffer)][..self.len(buffer, batch)]
    }

    /// Runs `work` with the executor and `out`'s room, which is taken from its place meanwhile; `over` is copied into it
    /// first, unless it lies there already.
    fn write(
        &mut self,
        out: BufferId,
        over: Option<BufferId>,
        batch: &Batch<'_>,
        work: impl FnOnce(&mut Self, &mut [f32]) -> Result<()>,
    ) -> Result<()> {
        let (place, len) = (self.place(out), self.len(out, batch));
        let mut room = std::mem::take(&mut self.buffers[place]);
        if let Some(x) = over.filter(|x| self.place(*x) != place) {
            room[..len].copy_from_slice(self.read(x, batch));
        }
        let done = work(self, &mut room[..len]);
        self.buffers[place] = room;
        done
    }

    fn op(&mut self, op: &Op, batch: &Batch<'_>, caches: &mut [&mut Slots]) -> Result<()> {
        match op {
            Op::Embed { table, scale, out } => {
                self.write(*out, None, batch, |e, out| e.embed(*table, *scale, batch, out))
            }
            Op::RmsNorm { x, weight, group, eps, out } => self.write(*out, None, batch, |e, out| {
                let weight = weight.map(|id| e.weights.vector(id));
                let width = e.plan.buffer(*x).width;
                kernels::vector::rms_norm(&e.pool, e.read(*x, batch), weight, width, *group, *eps, out)
                    .map_err(op_error(op))
            }),
            Op::Linear { x, product } => self.products(op, *x, std::slice::from_ref(product), batch),
            Op::Linears { x, products } => self.products(op, *x, products, batch),
            Op::LinearGlu { x, gate, up, activation, out } => self.write(*out, None, batch, |e, out| {
                let gated = gate.bias.is_none() && up.bias.is_none();
                if !gated {
                    return e.biased_glu(op, *x, [gate, up], kind(*activation), batch, out);
                }
                let mut q8 = std::mem::take(&mut e.scratch.q8);
                let input = e.activations(*x, batch, &mut q8).map_err(op_error(op));
                let (gate, up) = (e.weights.matrix(gate.weight), e.weights.matrix(up.weight));
                let done = input.and_then(|input| {
                    kernels::matmul::matmul_gated(&e.pool, &input, kind(*activation), gate, up, out)
                        .map_err(op_error(op))
                });
                e.scratch.q8 = q8;
                done
            }),
            Op::LinearAdd { x, weight, bias, residual, scale, out } => {
                self.write(*out, Some(*residual), batch, |e, out| {
                    let product = Product { weight: *weight, bias: *bias, out: *x };
                    if *scale == 1.0 {
                        return e.product(op, *x, &product, true, batch, out);
                    }
                    let mut y = std::mem::take(&mut e.scratch.products);
                    y.resize(out.len(), 0.0);
                    let done = e
                        .product(op, *x, &product, false, batch, &mut y)
                        .and_then(|()| kernels::vector::add_scaled(&e.pool, out, &y, *scale).map_err(op_error(op)));
                    e.scratch.products = y;
                    done
                })
            }
            Op::Rope { x, rope, head_dim, out } => self.write(*out, Some(*x), batch, |e, out| {
                let heads = e.plan.buffer(*x).width / head_dim;
                let Angles { cos, sin } = &e.scratch.angles[*rope];
                let pairing = match e.spec.ropes[*rope].pairing {
                    selkie_model::rope::Pairing::Halves => Pairing::Halves,
                    selkie_model::rope::Pairing::Interleaved => Pairing::Interleaved,
                };
                kernels::vector::rope(&e.pool, out, heads, *head_dim, cos, sin, pairing).map_err(op_error(op))
            }),
            Op::Attention(a) => {
                self.write(a.out, None, batch, |e, out| e.attention(a, batch, caches, out).map_err(op_error(op)))
            }
            Op::Activate { x, activation, out } => self.write(*out, Some(*x), batch, |e, out| {
                kernels::vector::activate(&e.pool, kind(*activation), out);
                Ok(())
            }),
            Op::CausalConv { .. }
            | Op::SelectiveScan(_)
            | Op::Ssd(_)
            | Op::Mamba3(_)
            | Op::Cssd(_)
            | Op::DeltaRule(_) => self.recurrent(op, batch, caches),
            Op::ScaleRows { .. }
            | Op::JoinHeads { .. }
            | Op::HeadLinear { .. }
            | Op::RankExpand { .. }
            | Op::RankReduce { .. } => self.heads(op, batch),
            Op::Glu { gate, up, activation, out } => self.write(*out, Some(*gate), batch, |e, out| {
                kernels::vector::gate(&e.pool, kind(*activation), out, e.read(*up, batch)).map_err(op_error(op))
            }),
            Op::Mixture { x, mixture, out } => self.write(*out, None, batch, |e, out| {
                let mut scratch = std::mem::take(&mut e.scratch.mixture);
                let done = mixture::run(&e.pool, e.read(*x, batch), mixture, &e.weights, e.exact, &mut scratch, out);
                e.scratch.mixture = scratch;
                done.map_err(op_error(op))
            }),
            Op::Add { x, y, scale, out } => self.write(*out, Some(*x), batch, |e, out| {
                kernels::vector::add_scaled(&e.pool, out, e.read(*y, batch), *scale).map_err(op_error(op))
            }),
            Op::Scale { x, scale, out } => self.write(*out, Some(*x), batch, |e, out| {
                kernels::vector::scale(&e.pool, out, *scale);
                Ok(())
            }),
            Op::Clamp { x, limit, out } => self.write(*out, Some(*x), batch, |_, out| {
                out.iter_mut().for_each(|v| *v = v.clamp(-limit, *limit));
                Ok(())
            }),
            Op::SoftCap { x, cap, out } => self.write(*out, Some(*x), batch, |_, out| {
                out.iter_mut().for_each(|v| *v = cap * (*v / cap).tanh());
                Ok(())
            }),
            Op::TakeRows { x, out } => self.write(*out, None, batch, |e, out| {
                let width = e.plan.buffer(*x).width;
                let x = e.read(*x, batch);
                for (out, &row) in out.chunks_exact_mut(width).zip(batch.outputs) {
                    out.copy_from_slice(&x[row * width..][..width]);
                }
                Ok(())
            }),
        }
    }

    fn embed(&self, table: WeightId, scale: f32, batch: &Batch<'_>, out: &mut [f32]) -> Result<()> {
        let table = self.weights.matrix(table);
        for (row, &id) in out.chunks_exact_mut(table.inputs()).zip(batch.ids) {
            table.row(self.pool.isa(), id as usize, row).map_err(|e| op_failed("embed", &e))?;
            if scale != 1.0 {
                row.iter_mut().for_each(|v| *v *= scale);
            }
        }
        Ok(())
    }

    /// The rows of `x` for products: rounded to 8 bits, unless exactness is asked for.
    fn activations<'a>(&'a self, x: BufferId, batch: &Batch<'_>, q8: &'a mut Q8) -> crate::Result<Activations<'a>> {
        let (width, x) = (self.plan.buffer(x).width, self.read(x, batch));
        if self.exact { Activations::exact(x, width) } else { Activations::fast(&self.pool, x, width, q8) }
    }

    /// Products of one input, each into its own buffer.
    fn products(&mut self, op: &Op, x: BufferId, products: &[Product], batch: &Batch<'_>) -> Result<()> {
        let mut rooms: Vec<Vec<f32>> = vec![];
        for product in products {
            let place = self.place(product.out);
            rooms.push(std::mem::take(&mut self.buffers[place]));
        }
        let mut q8 = std::mem::take(&mut self.scratch.q8);
        let done = self.activations(x, batch, &mut q8).and_then(|input| {
            let mut list: Vec<kernels::matmul::Product<'_>> = products
                .iter()
                .zip(&mut rooms)
                .map(|(product, room)| {
                    let out = &mut room[..self.len(product.out, batch)];
                    let bias = product.bias.map(|id| self.weights.vector(id));
                    kernels::matmul::Product { weight: self.weights.matrix(product.weight), bias, out, add: false }
                })
                .collect();
            kernels::matmul::matmul(&self.pool, &input, &mut list)
        });
        self.scratch.q8 = q8;
        for (product, room) in products.iter().zip(rooms) {
            let place = self.place(product.out);
            self.buffers[place] = room;
        }
        done.map_err(op_error(op))
    }

    /// One product into `out`, added to what is there where `add` says so.
    fn product(
        &mut self,
        op: &Op,
        x: BufferId,
        product: &Product,
        add: bool,
        batch: &Batch<'_>,
        out: &mut [f32],
    ) -> Result<()> {
        let mut q8 = std::mem::take(&mut self.scratch.q8);
        let bias = product.bias.map(|id| self.weights.vector(id));
        let done = self.activations(x, batch, &mut q8).and_then(|input| {
            let weight = self.weights.matrix(product.weight);
            kernels::matmul::matmul(&self.pool, &input, &mut [kernels::matmul::Product { weight, bias, out, add }])
        });
        self.scratch.q8 = q8;
        done.map_err(op_error(op))
    }

    /// Gate and up have biases: two products, then the gate.
    fn biased_glu(
        &mut self,
        op: &Op,
        x: BufferId,
        [gate, up]: [&Product; 2],
        activation: Activation,
        batch: &Batch<'_>,
        out: &mut [f32],
    ) -> Result<()> {
        let mut ups = std::mem::take(&mut self.scratch.products);
        ups.resize(out.len(), 0.0);
        let done = self
            .product(op, x, gate, false, batch, out)
            .and_then(|()| self.product(op, x, up, false, batch, &mut ups))
            .and_then(|()| kernels::vector::gate(&self.pool, activation, out, &ups).map_err(op_error(op)));
        self.scratch.products = ups;
        done
    }

    fn attention(
        &mut self,
        a: &AttentionOp,
        batch: &Batch<'_>,
        caches: &mut [&mut Slots],
        out: &mut [f32],
    ) -> crate::Result<()> {
        let [q_width, k_width, v_width] = [a.q, a.k, a.v].map(|id| self.plan.buffer(id).width);
        let out_width = self.plan.buffer(a.out).width;
        let (q, k, v) = (self.read(a.q, batch), self.read(a.k, batch), self.read(a.v, batch));
        let sinks = a.sinks.map(|id| self.weights.vector(id));
        let kind = Attention { heads: a.n_heads, scale: a.scale, softcap: a.softcap, window: a.window, sinks };
        for (sequence, own) in batch.sequences.iter().zip(caches) {
            let rows = |width: usize| sequence.rows.start * width..sequence.rows.end * width;
            let SlotState::Cache(cache) = &mut own.slots[a.cache.0 as usize] else {
                return Err(crate::Error::Parameter("attention's slot is no cache"));
            };
            let past = cache.len();
            cache.append(self.pool.isa(), &k[rows(k_width)], &v[rows(v_width)])?;
            attention(&self.pool, &kind, &q[rows(q_width)], cache, past, &mut out[rows(out_width)])?;
        }
        Ok(())
    }
}

fn row_count(rows: Rows, batch: &Batch<'_>) -> usize {
    match rows {
        Rows::All => batch.ids.len(),
        Rows::Outputs => batch.outputs.len(),
    }
}

fn op_error(op: &Op) -> impl Fn(crate::Error) -> Error {
    let name = op.name();
    move |error| op_failed(name, &error)
}

fn op_failed(name: &str, error: &crate::Error) -> Error {
    Error::Op { op: name.into(), what: error.to_string() }
}

fn kind(activation: selkie_model::spec::Activation) -> Activation {
    match activation {
        selkie_model::spec::Activation::Silu => Activation::Silu,
        selkie_model::spec::Activation::GeluTanh => Activation::GeluTanh,
        selkie_model::spec::Activation::GeluErf => Activation::GeluErf,
        selkie_model::spec::Activation::Relu => Activation::Relu,
        selkie_model::spec::Activation::ReluSquared => Activation::ReluSquared,
        selkie_model::spec::Activation::Sigmoid => Activation::Sigmoid,
        selkie_model::spec::Activation::Identity => Activation::Identity,
    }
}

impl Executor for CpuExecutor {
    fn name(&self) -> &'static str {
        NAME
    }

    fn device(&self) -> String {
        format!("{} threads of {}", self.pool.threads(), self.pool.isa().name())
    }

    fn new_state(&self, capacity: usize) -> LocalFuture<'_, Result<State>> {
        Box::pin(async move { Ok(State::new(Box::new(self.slots(capacity)?))) })
    }

    fn restore<'a>(&'a self, snapshot: &'a Snapshot, capacity: usize) -> LocalFuture<'a, Result<State>> {
        Box::pin(async move {
            let mut slots = self.slots(capacity)?;
            slots.restore(snapshot)?;
            Ok(State::restored(Box::new(slots), snapshot.positions))
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

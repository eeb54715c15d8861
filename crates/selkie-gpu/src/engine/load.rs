//! A model comes onto its device: its plan is compiled, its weights are put there, and every buffer that passes need is made.

use std::cell::{Cell, RefCell};

use selkie_model::{
    ModelSpec, Plan, Stage, WeightId,
    plan::{Rows, fuse, plan},
    rope::RopeSpec,
    weights::WeightSource,
};

use super::{Engine, Inputs, MAX_SEQUENCES, Ready, RunOptions};
use crate::{
    Buffer, Flavours, Gpu,
    compile::{Program, Regime, Target, View, compile, compile_block},
    gpu::Use,
    kernels::sample::{self, Around, Sampler},
    memory::Memory,
    self_test,
    state::PlaneShape,
    table::{Bound, Ref, STEP_STRIDE, Step, Table},
    weights::{Needed, UPLOAD_AT_ONCE},
};

impl Inputs {
    async fn new(gpu: &Gpu, spec: &ModelSpec, rows: usize, most_outputs: usize) -> crate::Result<Self> {
        let mut end = MAX_SEQUENCES as u64 * STEP_STRIDE;
        let mut take = |bytes: usize| {
            let start = end;
            end += (bytes as u64).max(16).next_multiple_of(STEP_STRIDE);
            start
        };
        let ids = take(4 * rows);
        let outputs = take(4 * most_outputs);
        let angles = spec.ropes.iter().map(|rope| (take(8 * rows * (rope.n_dims / 2)), rope.n_dims / 2)).collect();
        let buffer = gpu.buffer("inputs", end, Use::Inputs).await?;
        Ok(Self { buffer, ids, outputs, angles, bytes: end })
    }
}

impl Engine {
    /// Compiles the model's plan, puts its weights on the device and makes every buffer that passes will need. Where the
    /// kernels that rest on more than WebGPU promises cannot be made, or fail a test, the plain ones take their place.
    ///
    /// # Errors
    /// Where there is no room, an op or block format has no kernel, or plain kernels fail, too.
    pub async fn new(
        gpu: Gpu,
        spec: &ModelSpec,
        weights: WeightSource<'_>,
        options: &RunOptions,
    ) -> crate::Result<Self> {
        let plan = fuse(plan(spec));
        let made = Self::tested(gpu.clone(), spec, plan.clone(), &weights, options, true).await;
        match made {
            Err(error @ (crate::Error::SelfTest(_) | crate::Error::Kernel { .. }))
                if gpu.flavours() != Flavours::default() =>
            {
                tracing::warn!("plain kernels run on {}, since of its own ones {error}", gpu.name());
                Self::tested(gpu.plain(), spec, plan, &weights, options, true).await
            }
            made => made,
        }
    }

    /// As [`new`](Self::new), with a plan that is given, and without a test.
    ///
    /// # Errors
    /// As there, and where a kernel cannot be made.
    pub async fn with_plan(
        gpu: Gpu,
        spec: &ModelSpec,
        plan: Plan,
        weights: WeightSource<'_>,
        options: &RunOptions,
    ) -> crate::Result<Self> {
        Self::tested(gpu, spec, plan, &weights, options, false).await
    }

    async fn tested(
        gpu: Gpu,
        spec: &ModelSpec,
        plan: Plan,
        weights: &WeightSource<'_>,
        options: &RunOptions,
        test: bool,
    ) -> crate::Result<Self> {
        let mut memory = None;
        let made = Self::make(gpu.clone(), spec, plan, weights, options, &mut memory, test).await;
        made.map_err(|error| match (error, memory) {
            // Whatever did not fit, it is the sum that has to become smaller.
            (crate::Error::OutOfMemory { .. }, Some(memory)) => memory.refused(&gpu),
            (error, _) => error,
        })
    }

    /// Leaves in `memory` what the model needs, as soon as that is known.
    async fn make(
        gpu: Gpu,
        spec: &ModelSpec,
        plan: Plan,
        weights: &WeightSource<'_>,
        options: &RunOptions,
        memory: &mut Option<Memory>,
        test: bool,
    ) -> crate::Result<Self> {
        let target = |regime| Target { regime, limits: gpu.limits(), flavours: gpu.flavours(), exact: options.exact };
        let mut needed = Needed::new(spec, Some(weights), gpu.limits());
        let most_outputs = options.block_outputs.max(1);
        let positions = options.max_positions;
        let token = compile(spec, &plan, target(Regime::Token), 1, positions, &mut needed)?;
        let (block, rows) =
            compile_block(spec, &plan, target(Regime::Block), options.block_rows, positions, &mut needed)?;
        // Both programs use the same room: a pass is of one of them.
        let place_bytes = |program: &Program, i: usize| {
            program.places.get(i).map_or(0, |&(of, width)| {
                let rows = if of == Rows::All { rows } else { most_outputs };
                4 * (rows * width) as u64
            })
        };
        let place_sizes: Vec<u64> = (0..token.places.len().max(block.places.len()))
            .map(|i| place_bytes(&token, i).max(place_bytes(&block, i)))
            .collect();
        let scratch_size = |i| [&token, &block].iter().filter_map(|p| p.scratch.get(i)).max().copied().unwrap_or(16);
        let scratch_sizes: Vec<u64> = (0..token.scratch.len().max(block.scratch.len())).map(scratch_size).collect();
        let shapes: Vec<Vec<PlaneShape>> = plan.slots.iter().map(|slot| PlaneShape::of(slot, options.exact)).collect();
        let widest = spec.vocab_size.max(spec.d_model).next_multiple_of(4);
        let readback_bytes = 4 * (most_outputs * widest) as u64;
        let asked = options.context.min(positions);
        let needs = Memory {
            weights: needed.bytes(),
            state: shapes.iter().flatten().map(|shape| shape.bytes(asked.max(1)) * shape.copies()).sum(),
            positions: asked,
            values: place_sizes.iter().chain(&scratch_sizes).chain(&sample::bytes(token.logits.width)).sum(),
            staging: readback_bytes + UPLOAD_AT_ONCE as u64,
        };
        if test {
            tracing::debug!("the model needs {needs} on {}", gpu.name());
            needs.check(&gpu)?;
            self_test::check(&gpu, spec, weights, options.exact).await?;
        }
        *memory = Some(needs);
        let resident = needed.upload(&gpu, weights, &options.watch).await?;
        // All that passes still need on the host.
        let kept: Vec<WeightId> = spec.ropes.iter().flat_map(RopeSpec::weights).collect();
        let rope_weights = weights.only(&spec.weights, &kept).await.map_err(crate::Error::from)?;

        let mut places = vec![];
        for bytes in place_sizes {
            places.push(gpu.buffer("values", bytes, Use::Storage).await?);
        }
        let mut scratch = vec![];
        for bytes in scratch_sizes {
            scratch.push(gpu.buffer("scratch", bytes, Use::Storage).await?);
        }
        let inputs = Inputs::new(&gpu, spec, rows, most_outputs).await?;
        let resolve = |of: Ref| -> Bound {
            let part = |offset: u64, bytes: usize| Bound {
                buffer: inputs.buffer.clone(),
                range: offset..offset + (bytes as u64).max(16),
            };
            match of {
                Ref::Place(i) => Bound::all(&places[i]),
                Ref::Scratch(i) => Bound::all(&scratch[i]),
                Ref::Matrix(id, chunk) => resident.matrices[id.0][chunk].clone(),
                Ref::Vector(id) => resident.vectors[id.0].clone(),
                Ref::Grids => resident.grids.clone().unwrap_or_else(|| Bound::all(&inputs.buffer)),
                Ref::Ids => part(inputs.ids, 4 * rows),
                Ref::Outputs => part(inputs.outputs, 4 * most_outputs),
                Ref::Angles(rope) => part(inputs.angles[rope].0, 8 * rows * inputs.angles[rope].1),
            }
        };
        let planes = |slot: selkie_model::plan::SlotId| plan.slots[slot.0 as usize].planes(1).len();
        let mut ready = vec![];
        let kernels = (token.rows.len() + block.rows.len()) as u64;
        let made = Cell::new(0);
        let made_one = || {
            made.set(made.get() + 1);
            options.watch.tell(Stage::Compile, made.get(), kernels).map_err(crate::Error::from)
        };
        for program in [token, block] {
            let (until_hidden, hidden, logits) = (program.until_hidden, program.hidden, program.logits);
            let table = Table::watched(&gpu, program.rows, &planes, &resolve, &made_one).await?;
            let view = |view: View| (places[view.place].clone(), view);
            ready.push(Ready { table, until_hidden, hidden: view(hidden), logits: view(logits) });
        }
        let mut ready = ready.into_iter();
        let (Some(token), Some(block)) = (ready.next(), ready.next()) else {
            return Err(crate::Error::Op { op: "plan".into(), what: "was not compiled".into() });
        };
        let layout = gpu.step_layout(0);
        let step_group = gpu.device().create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("step"),
            layout: &layout,
            entries: &[step_entry(&inputs.buffer)],
        });
        let sampler = Sampler::new(
            &gpu,
            &Around {
                logits: &token.logits.0,
                offset: token.logits.1.offset,
                width: token.logits.1.width,
                inputs: &inputs.buffer,
                ids: inputs.ids,
                tokens: MAX_SEQUENCES,
            },
        )
        .await?;
        let readback = gpu.buffer("readback", readback_bytes, Use::Readback).await?;
        places.extend(scratch);
        Ok(Self {
            spec: spec.clone(),
            plan,
            rope_weights,
            exact: options.exact,
            max_positions: options.max_positions,
            memory: needs,
            token,
            block,
            inputs,
            step_group,
            readback,
            sampler,
            token_time: Cell::default(),
            resident,
            _places: places,
            shapes,
            block_rows: Cell::new(rows),
            most_rows: rows,
            most_outputs,
            words: RefCell::default(),
            measuring: Cell::new(false),
            profile: RefCell::default(),
            gpu,
        })
    }
}

pub(super) fn step_entry(inputs: &Buffer) -> wgpu::BindGroupEntry<'_> {
    wgpu::BindGroupEntry {
        binding: 0,
        resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer: inputs.raw(),
            offset: 0,
            size: wgpu::BufferSize::new(size_of::<Step>() as u64),
        }),
    }
}

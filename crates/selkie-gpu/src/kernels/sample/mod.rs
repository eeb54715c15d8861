//! Choosing a token on the device, as [`selkie_model::sampling`] does on the host, from the logits in two dispatches for the
//! likeliest one and in four for a random one. The last writes the id where the next token's pass reads it.
//!
//! Likelihoods are found in f32 and added up as whole numbers of 2^-44 of the likeliest one's, so the order of additions does not
//! matter and nothing is lost. Random choices are those of [`sample`](selkie_model::sampling::sample) but where a threshold (the
//! uniform number's, top-p's or min-p's) falls within the rounding of likelihoods, about 1e-6 of the whole mass, and where two
//! likelihoods differ by less than f32 tells. Tokens 2^45 times less likely than the likeliest are never chosen.

#[cfg(test)]
mod test;

use std::sync::Arc;

use selkie_model::Choice;

use crate::{
    Buffer, Error, Gpu, Result, Shader,
    compile::row,
    gpu::Use,
    kernels::Binds,
    preprocess::Defines,
    table::{Bound, Count, Grid, Ref, Row, Run, STEP_STRIDE, Sizes, Table, Timers},
};

/// Values that a workgroup looks at; `CHUNK` in choice.wgsl.
const CHUNK: usize = 1024;
/// Words of what is counted and added up: `tally` in tally.wgsl.
const TALLY: usize = 4 + 3 * 768;
/// Ids that may end a sequence.
const MAX_STOPS: usize = 48;
/// The rank of a likelihood of 2^-45, the last that has any mass.
const LAST_RANK: u32 = 45 << 23;

/// What is said of a token; `Choice` in choice.wgsl.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
struct Record {
    seed: [u32; 2],
    sequence: [u32; 2],
    position: [u32; 2],
    token: u32,
    stops: u32,
    temperature: f32,
    reach: f32,
    most: f32,
    last_rank: u32,
    top_k: u32,
    top_p: u32,
    whole: u32,
    unused: u32,
    stop: [u32; MAX_STOPS],
}

impl Record {
    /// Of the token that follows `position - 1` others.
    fn new(choice: &Choice<'_>, token: usize, position: u64) -> Self {
        let params = choice.params;
        let words = |n: u64| [n as u32, (n >> 32) as u32];
        let mut stop = [0; MAX_STOPS];
        stop[..choice.stop.len()].copy_from_slice(choice.stop);
        // As the host's sampler takes it.
        let temperature = params.temperature.max(1e-7);
        let below = 1f32.to_bits().saturating_sub(params.min_p.to_bits());
        let top_p = (f64::from(params.top_p) * 2f64.powi(32)) as u32;
        Self {
            seed: words(choice.seed),
            sequence: words(choice.sequence),
            position: words(position),
            token: token as u32,
            stops: choice.stop.len() as u32,
            temperature,
            reach: (32.0 * temperature).min(1e38),
            most: (3e38 * temperature).min(f32::MAX),
            last_rank: below.min(LAST_RANK),
            top_k: if params.top_k == 0 { u32::MAX } else { u32::try_from(params.top_k).unwrap_or(u32::MAX) },
            top_p,
            whole: u32::from(params.top_p >= 1.0),
            unused: 0,
            stop,
        }
    }
}

/// Whether tokens can be chosen so on the device: penalties and biases look at tokens that it does not know.
pub(crate) fn can(choice: &Choice<'_>) -> bool {
    !choice.params.changes_logits() && choice.params.check().is_ok() && choice.stop.len() <= MAX_STOPS
}

/// Bytes of what passes between the dispatches, for a vocabulary of `width`: the chunks' largest logits, what is counted and
/// added up, ranks, and the tokens that are gathered.
pub(crate) fn bytes(width: usize) -> [u64; 4] {
    [8 * width.div_ceil(CHUNK), 4 * TALLY, 4 * width, 8 * width].map(|bytes| bytes as u64)
}

/// Where the logits are, and where a chosen id goes.
pub(crate) struct Around<'a> {
    /// Where logits are: `[width]` from `offset` on.
    pub logits: &'a Arc<Buffer>,
    /// The first.
    pub offset: usize,
    /// The vocabulary's size.
    pub width: usize,
    /// What passes are told: steps, [`STEP_STRIDE`] apart, and ids.
    pub inputs: &'a Arc<Buffer>,
    /// Where ids start in it, in bytes.
    pub ids: u64,
    /// Tokens of a submit at most.
    pub tokens: usize,
}

/// The kernels that choose tokens, made ready.
pub(crate) struct Sampler {
    likeliest: Table,
    random: Table,
    records: Arc<Buffer>,
    group: wgpu::BindGroup,
    _scratch: Vec<Arc<Buffer>>,
}

impl Sampler {
    /// Makes them ready for one model.
    ///
    /// # Errors
    /// Where there is no room, or a kernel cannot be made.
    pub async fn new(gpu: &Gpu, around: &Around<'_>) -> Result<Self> {
        let chunks = around.width.div_ceil(CHUNK);
        if chunks > gpu.limits().workgroups as usize {
            let what = format!("{} tokens are too many to choose from", around.width);
            return Err(Error::Op { op: "sample".into(), what });
        }
        let mut scratch = vec![];
        for bytes in bytes(around.width) {
            scratch.push(gpu.buffer("choosing a token", bytes, Use::Storage).await?);
        }
        let resolve = |of: Ref| match of {
            Ref::Scratch(i) => Bound::all(&scratch[i]),
            Ref::Ids => Bound::all(around.inputs),
            _ => Bound::all(around.logits),
        };
        let [likeliest, random] = rows(around.offset, around.width, around.ids);
        let likeliest = Table::new(gpu, likeliest, &|_| 0, &resolve).await?;
        let random = Table::new(gpu, random, &|_| 0, &resolve).await?;
        let records = gpu.buffer("choices", around.tokens as u64 * STEP_STRIDE, Use::Uniform).await?;
        let entry = wgpu::BufferBinding {
            buffer: records.raw(),
            offset: 0,
            size: wgpu::BufferSize::new(size_of::<Record>() as u64),
        };
        let group = gpu.device().create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("choice"),
            layout: &gpu.step_layout(0),
            entries: &[wgpu::BindGroupEntry { binding: 0, resource: wgpu::BindingResource::Buffer(entry) }],
        });
        Ok(Self { likeliest, random, records, group, _scratch: scratch })
    }

    /// Says how the next `n` tokens are chosen; the first is at `position`.
    pub fn write(&self, gpu: &Gpu, choice: &Choice<'_>, position: usize, n: usize) {
        let records: Vec<Record> = (0..n).map(|token| Record::new(choice, token, (position + token) as u64)).collect();
        gpu.queue().write_buffer(self.records.raw(), 0, bytemuck::cast_slice(&records));
    }

    /// Chooses token `token` of a submit.
    pub fn encode(
        &self,
        pass: &mut wgpu::ComputePass<'_>,
        choice: &Choice<'_>,
        token: usize,
        timers: Option<&mut Timers>,
    ) {
        let certain = choice.params.temperature == 0.0 || choice.params.top_k == 1;
        let table = if certain { &self.likeliest } else { &self.random };
        // Grids are the model's, so no fold and no size is needed.
        let run = Run {
            rows: 0..table.rows().len(),
            limit: u32::MAX,
            sequences: &[Sizes::default()],
            first_step: token,
            step: &self.group,
            states: &[],
        };
        table.encode(pass, &run, timers);
    }
}

/// Every shader here, for tests.
pub fn shaders() -> Vec<Shader> {
    rows(0, 1, 0).into_iter().flatten().map(|row| row.shader).collect()
}

/// The dispatches for the likeliest token, and for a random one.
fn rows(offset: usize, width: usize, ids: u64) -> [Vec<Row>; 2] {
    let chunks = width.div_ceil(CHUNK);
    let [offset, width, many, ids] = [offset, width, chunks, ids as usize / 4].map(|size| size as u32);
    let [parts, tally, ranks, list] = [0, 1, 2, 3].map(Ref::Scratch);
    let logits = Ref::Place(0);
    let row = |file, params: &[u32], binds: Binds, groups| {
        let made = row("sample", file, binds.defines);
        Row { params: params.to_vec(), bindings: binds.list, grid: Grid::Line(Count::fixed(groups)), ..made }
    };
    let binds = |read: &[(&str, Ref)], write: &[(&str, Ref)]| {
        let mut binds = Binds::new(Defines::new());
        read.iter().for_each(|&(name, of)| binds.read(name, of));
        write.iter().for_each(|&(name, of)| binds.write(name, of));
        binds
    };
    let likeliest = vec![
        row("kernels/sample/largest.wgsl", &[offset, width], binds(&[("LOGITS", logits)], &[("PARTS", parts)]), chunks),
        row("kernels/sample/greedy.wgsl", &[many, ids], binds(&[("PARTS", parts)], &[("INPUTS", Ref::Ids)]), 1),
    ];
    let random = vec![
        row(
            "kernels/sample/largest.wgsl",
            &[offset, width],
            binds(&[("LOGITS", logits)], &[("PARTS", parts), ("TALLY", tally)]),
            chunks,
        ),
        row(
            "kernels/sample/tally.wgsl",
            &[offset, width, many],
            binds(&[("LOGITS", logits), ("PARTS", parts)], &[("RANKS", ranks), ("TALLY", tally)]),
            chunks,
        ),
        row(
            "kernels/sample/gather.wgsl",
            &[width],
            binds(&[("RANKS", ranks)], &[("TALLY", tally), ("LIST", list)]),
            chunks,
        ),
        row(
            "kernels/sample/choose.wgsl",
            &[ids],
            binds(&[("TALLY", tally), ("LIST", list)], &[("INPUTS", Ref::Ids)]),
            1,
        ),
    ];
    [likeliest, random]
}

//! Tokens that the device chooses, against those that the host chooses.

use selkie_model::{
    SamplingParams,
    sampling::{sample, uniform},
};

use super::*;
use crate::GpuOptions;

/// Tokens of a submit.
const AT_ONCE: usize = 63;

/// A device, and a place for the logits of up to so many tokens.
struct Rig {
    gpu: Gpu,
    logits: Arc<Buffer>,
    inputs: Arc<Buffer>,
    readback: Arc<Buffer>,
    sampler: Sampler,
    width: usize,
}

/// Values that stand before the logits.
const OFFSET: usize = 4;
/// Where ids are, in bytes.
const IDS: u64 = 64 * STEP_STRIDE;

impl Rig {
    fn new(gpu: &Gpu, width: usize) -> Self {
        let buffer = |name, bytes, purpose| pollster::block_on(gpu.buffer(name, bytes, purpose)).expect(name);
        let logits = buffer("logits", 4 * (OFFSET + width) as u64, Use::Storage);
        let inputs = buffer("inputs", IDS + 256, Use::Inputs);
        let readback = buffer("readback", IDS + 256, Use::Readback);
        let around = Around { logits: &logits, offset: OFFSET, width, inputs: &inputs, ids: IDS, tokens: 64 };
        let sampler = pollster::block_on(Sampler::new(gpu, &around)).expect("a sampler");
        Self { gpu: gpu.clone(), logits, inputs, readback, sampler, width }
    }

    /// What is chosen from the same logits in each way at each position, and for each whether the sequence has ended.
    fn choose(&self, logits: &[f32], choices: &[(Choice<'_>, u64)]) -> Vec<(u32, bool)> {
        assert!(logits.len() == self.width && choices.len() <= AT_ONCE);
        let queue = self.gpu.queue();
        queue.write_buffer(self.logits.raw(), 4 * OFFSET as u64, bytemuck::cast_slice(logits));
        queue.write_buffer(self.inputs.raw(), 0, &vec![0; self.inputs.bytes() as usize]);
        let records: Vec<Record> =
            choices.iter().enumerate().map(|(token, (choice, at))| Record::new(choice, token, *at)).collect();
        queue.write_buffer(self.sampler.records.raw(), 0, bytemuck::cast_slice(&records));
        let mut encoder = self.gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            for (token, (choice, _)) in choices.iter().enumerate() {
                self.sampler.encode(&mut pass, choice, token, None);
            }
        }
        let bytes = self.inputs.bytes();
        encoder.copy_buffer_to_buffer(self.inputs.raw(), 0, self.readback.raw(), 0, bytes);
        queue.submit([encoder.finish()]);
        let read = self.gpu.read(&self.readback, 0..bytes, |bytes| bytemuck::pod_collect_to_vec::<_, u32>(bytes));
        let words = pollster::block_on(read).expect("words");
        let done = |token: usize| words[(token + 1) * STEP_STRIDE as usize / 4 + 5] != 0;
        (0..choices.len()).map(|token| (words[IDS as usize / 4 + token + 1], done(token))).collect()
    }
}

fn gpu() -> Gpu {
    let options = GpuOptions { software: true, ..GpuOptions::default() };
    pollster::block_on(Gpu::open(&options)).expect("a GPU, or Mesa's lavapipe")
}

/// Numbers in [0, 1), the same each time.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1u32 << 24) as f32
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[(self.next() * of.len() as f32) as usize]
    }

    /// Nearly normal.
    fn normal(&mut self) -> f32 {
        (0..6).map(|_| self.next() - 0.5).sum::<f32>() * 2f32.sqrt()
    }
}

/// Logits of many kinds.
fn logits(width: usize, kind: usize, noise: &mut Noise) -> Vec<f32> {
    let scale = noise.pick(&[0.5, 2.0, 5.0]);
    let mut made: Vec<f32> = (0..width).map(|_| scale * noise.normal()).collect();
    match kind {
        // A few that stand out, as a model's do.
        1 => (0..width.min(9)).for_each(|i| made[i * 7 % width] += 12.0 + 0.5 * i as f32),
        // Many equal ones.
        2 => made.iter_mut().for_each(|logit| *logit = logit.round()),
        3 => made.fill(-3.25),
        // What is no number, and infinities.
        4 => made.iter_mut().step_by(3).for_each(|logit| *logit = f32::NAN),
        5 => made.iter_mut().skip(1).step_by(2).for_each(|logit| *logit = f32::NEG_INFINITY),
        6 => made.fill(f32::NAN),
        7 => made.iter_mut().skip(1).step_by(2).for_each(|logit| *logit = f32::INFINITY),
        8 => made.fill(f32::NEG_INFINITY),
        // Large and tiny ones, zeros of both signs.
        9 => made.iter_mut().for_each(|logit| *logit *= 1e30),
        10 => made.iter_mut().for_each(|logit| *logit *= 1e-42),
        11 => made.iter_mut().enumerate().for_each(|(i, logit)| *logit = if i % 2 == 0 { -0.0 } else { 0.0 }),
        _ => {}
    }
    made
}
const KINDS: usize = 12;

fn params(noise: &mut Noise) -> SamplingParams {
    SamplingParams {
        temperature: noise.pick(&[0.05, 0.7, 0.8, 1.0, 1.0, 1.3, 3.0, 50.0]),
        top_k: noise.pick(&[0, 0, 2, 5, 40, 300, 5000, 1_000_000]),
        top_p: noise.pick(&[1.0, 1.0, 0.99, 0.9, 0.5, 0.05, 1e-9]),
        min_p: noise.pick(&[0.0, 0.0, 0.0, 0.01, 0.3, 1.0]),
        ..SamplingParams::default()
    }
}

/// Whether `id` may be the choice where the host's thresholds are off by the rounding of likelihoods. All in f64.
fn may_be(id: u32, logits: &[f32], params: &SamplingParams, uniform: f32) -> bool {
    const OFF: f64 = 2e-6;
    let temperature = f64::from(params.temperature);
    let max = logits.iter().copied().filter(|l| !l.is_nan()).fold(f32::NEG_INFINITY, f32::max);
    let e = |id: usize| {
        let logit = logits[id];
        if logit.is_nan() { 0.0 } else { ((f64::from(logit) - f64::from(max)) / temperature).exp() }
    };
    // Quotients are rounded before they are subtracted.
    let off = OFF + 2e-7 * f64::from(max).abs() / temperature;
    let total: f64 = (0..logits.len()).map(e).sum();
    let mut order: Vec<(f64, usize)> = (0..logits.len()).map(|id| (e(id), id)).filter(|c| c.0 > 0.0).collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    // The mass that is kept, at least and at most.
    let kept = |loose: f64| {
        let mut mass = 0.0;
        for (n, &(e, _)) in order.iter().enumerate() {
            let full = params.top_p < 1.0 && mass >= total * (f64::from(params.top_p) + loose);
            if full || (params.top_k > 0 && n >= params.top_k) || e < f64::from(params.min_p) * (1.0 - loose) {
                break;
            }
            mass += e;
        }
        mass
    };
    let u = f64::from(uniform);
    let (least, most) = (u * kept(-off) - off * total, u * kept(off) + off * total);
    let own = e(id as usize);
    let same = |other: usize| logits[other] == logits[id as usize];
    let before: f64 =
        order.iter().filter(|c| c.0 > own * (1.0 + off) || (same(c.1) && c.1 < id as usize)).map(|c| c.0).sum();
    let upto: f64 =
        order.iter().filter(|c| c.0 > own * (1.0 - off) && !(same(c.1) && c.1 > id as usize)).map(|c| c.0).sum();
    own > 0.0 && before <= most && upto >= least
}

#[test]
fn random_choices_are_the_hosts() {
    let gpu = gpu();
    let mut noise = Noise(1);
    for (width, sets, per_set) in [(1, 12, 8), (7, 36, 63), (1000, 60, 63), (2049, 36, 63), (151_936, 12, 20)] {
        let rig = Rig::new(&gpu, width);
        // Where all that may be chosen is equally likely, thresholds between two tokens are the rule.
        let equal = |kind: usize| [3, 10, 11].contains(&kind);
        let (mut off, mut all) = (0, 0);
        for set in 0..sets {
            let logits = logits(width, set % KINDS, &mut noise);
            let ways: Vec<SamplingParams> = (0..per_set).map(|_| params(&mut noise)).collect();
            let choices: Vec<(Choice<'_>, u64)> = ways
                .iter()
                .enumerate()
                .map(|(i, params)| (Choice { params, seed: (set as u64) << 31, sequence: 3, stop: &[] }, 17 * i as u64))
                .collect();
            let got = rig.choose(&logits, &choices);
            for ((choice, position), (id, _)) in choices.iter().zip(got) {
                let u = uniform(choice.seed, choice.sequence, *position);
                let want = sample(&logits, choice.params, &[], u);
                all += 1;
                if id != want {
                    off += usize::from(!equal(set % KINDS));
                    let what =
                        format!("{width} logits of kind {}, {:?}, {u}: {id}, not {want}", set % KINDS, choice.params);
                    assert!(may_be(id, &logits, choice.params, u), "{what}");
                }
            }
        }
        println!("{width}: {off} of {all} are others");
        assert!(off * 500 <= all, "{width}: {off} of {all} are others");
    }
}

#[test]
fn the_likeliest_is_the_hosts() {
    let gpu = gpu();
    let mut noise = Noise(2);
    let certain = SamplingParams { temperature: 0.7, top_k: 1, ..SamplingParams::default() };
    for width in [1, 7, 1000, 1024, 1025, 151_936] {
        let rig = Rig::new(&gpu, width);
        for kind in 0..KINDS {
            let mut logits = logits(width, kind, &mut noise);
            // Equal ones far apart, the largest of all.
            if kind == 0 {
                [width / 3, width - 1, width / 2].iter().for_each(|&i| logits[i] = 1e9);
            }
            for params in [&SamplingParams::default(), &certain] {
                let choice = Choice { params, seed: 0, sequence: 0, stop: &[] };
                let want = sample(&logits, params, &[], 0.5);
                assert_eq!(rig.choose(&logits, &[(choice, 1)]), [(want, false)], "{width} logits of kind {kind}");
            }
        }
    }
}

/// With equal logits and powers of two nothing is rounded, however many there are in a bin and whatever is cut off.
#[test]
fn equal_logits_go_by_their_ids() {
    let gpu = gpu();
    let width = 65_536;
    let rig = Rig::new(&gpu, width);
    let logits = vec![1.5; width];
    let ways = [(0, 1.0, 0.0), (0, 0.5, 0.0), (0, 0.25, 1.0), (1000, 1.0, 0.0), (1024, 0.5, 0.5), (2, 1.0, 0.0)];
    let ways = ways.map(|(top_k, top_p, min_p)| SamplingParams {
        temperature: 0.5,
        top_k,
        top_p,
        min_p,
        ..SamplingParams::default()
    });
    for params in &ways {
        let choices: Vec<_> =
            (0..20).map(|i| (Choice { params, seed: 5, sequence: 1 << 40, stop: &[] }, (i << 32) + i)).collect();
        for ((choice, position), got) in choices.iter().zip(rig.choose(&logits, &choices)) {
            let u = uniform(choice.seed, choice.sequence, *position);
            assert_eq!(got.0, sample(&logits, params, &[], u), "{params:?}, {u}");
        }
    }
}

#[test]
fn a_sequence_ends_with_the_first_stop() {
    let gpu = gpu();
    let rig = Rig::new(&gpu, 7);
    let mut logits = vec![0.0; 7];
    logits[5] = 3.0;
    let (greedy, random) =
        (SamplingParams::default(), SamplingParams { temperature: 0.01, ..SamplingParams::default() });
    let many: Vec<u32> = (0..MAX_STOPS as u32).map(|i| MAX_STOPS as u32 + 4 - i).collect();
    for params in [&greedy, &random] {
        for (stop, ends) in [(&[][..], false), (&[4, 6], false), (&[4, 5], true), (&many, true), (&many[..47], false)] {
            // The second token is told of it, and the third, which has no stop, keeps it.
            let choices = [&[][..], stop, &[]].map(|stop| (Choice { params, seed: 0, sequence: 0, stop }, 0));
            assert_eq!(rig.choose(&logits, &choices), [(5, false), (5, ends), (5, ends)], "{stop:?}");
        }
    }
}

#[test]
fn what_looks_at_other_tokens_is_left_to_the_host() {
    let choosable =
        |params: &SamplingParams, stops: usize| can(&Choice { params, seed: 0, sequence: 0, stop: &vec![1; stops] });
    let plain = SamplingParams { temperature: 0.7, top_k: 40, top_p: 0.9, min_p: 0.05, ..SamplingParams::default() };
    assert!(choosable(&plain, MAX_STOPS) && !choosable(&plain, MAX_STOPS + 1));
    assert!(!choosable(&SamplingParams { presence_penalty: 0.1, ..plain.clone() }, 0));
    assert!(!choosable(&SamplingParams { logit_bias: vec![(1, 1.0)], ..plain.clone() }, 0));
    assert!(!choosable(&SamplingParams { temperature: f32::NAN, ..plain }, 0));
}

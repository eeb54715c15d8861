//! `selkie bench`: tokens a second.

use std::{cmp::Reverse, time::Instant};

use anyhow::Result;
use selkie::{
    Backend, Model, SamplingParams, Session, block_on,
    cpu::{Pool, read_bandwidth},
    gpu::{Gpu, GpuOptions, compile::Regime},
    model_spec::{Choice, OpTime},
};
use serde_json::{Value, json};

use crate::{
    args::{Run, usage},
    open,
    terminal::print_line,
};

/// Arguments of `bench`.
#[derive(clap::Args)]
pub struct Args {
    /// A name, `hf:OWNER/REPO/FILE`, or a path
    model: String,
    /// Tokens of a prompt; 0 leaves the test out
    #[arg(short, default_value_t = 512, value_name = "N")]
    prompt: usize,
    /// Tokens made one after another; 0 leaves the test out
    #[arg(short = 'n', default_value_t = 128, value_name = "N")]
    new: usize,
    /// Runs of each test, after one that does not count
    #[arg(short, default_value_t = 5, value_name = "N")]
    runs: usize,
    /// Show as well where the time goes, by kind of op
    #[arg(long)]
    kernels: bool,
    /// Print a JSON line a test
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    run: Run,
}

/// What is measured: a prompt that is read at once, or tokens one by one.
struct Test {
    name: String,
    ids: Vec<u32>,
    /// Tokens of one forward pass.
    step: usize,
}

/// What came of a test.
struct Outcome {
    /// Tokens a second of each run.
    rates: Vec<f64>,
    /// Tokens between two answers at most, where the executor chose them itself.
    at_once: Option<usize>,
    /// Of the device's read bandwidth, where that is a bound.
    share: Option<f64>,
    /// Dispatches of a token, on a GPU.
    dispatches: Option<usize>,
    /// The time of each kind of op, where it is asked for.
    kernels: Option<Vec<OpTime>>,
}

/// Bytes a second that the GPU reads on which the model will run, where it is known to run on one.
fn measure_gpu(run: &Run) -> Result<Option<f64>> {
    if run.backend != Backend::Gpu {
        return Ok(None);
    }
    let options = GpuOptions { device: run.device.clone(), software: true, ..GpuOptions::default() };
    // Where there is none, opening the model says so.
    let Ok(gpu) = block_on(Gpu::open(&options)) else { return Ok(None) };
    Ok(Some(block_on(gpu.measure())?.read))
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    if args.runs == 0 || (args.prompt == 0 && args.new == 0) {
        return usage("there is nothing to measure");
    }
    // Before the load: beside a model of many gigabytes a card reads the measure's buffer at half its speed.
    let measured = measure_gpu(&args.run)?;
    let started = Instant::now();
    let mut model = open::model_for(&args.model, &args.run, false, Some(args.prompt.max(args.new)))?;
    let load = started.elapsed().as_secs_f64();
    let bandwidth = match (model.gpu(), measured) {
        (Some(_), Some(measured)) => measured,
        (Some(engine), None) => block_on(engine.gpu().measure())?.read,
        (None, _) => read_bandwidth(args.run.threads.map_or_else(Pool::default_threads, usize::from)),
    };
    if !args.json {
        print_line(format_args!(
            "{} on {} ({}), loaded in {:.0} ms; memory reads at {:.1} GB/s",
            model.name(),
            model.backend(),
            model.device(),
            load * 1e3,
            bandwidth / 1e9,
        ))?;
    }
    let tests = [("prefill", args.prompt, args.prompt), ("decode", args.new, 1)];
    let mut session = model.session(args.prompt.max(args.new))?;
    for (kind, tokens, step) in tests.into_iter().filter(|(_, tokens, _)| *tokens > 0) {
        let test = Test { name: format!("{kind} {tokens}"), ids: ids(&model, tokens), step };
        let (rates, at_once) = test.measure(args.runs, &mut model, &mut session)?;
        // A prompt's rows share each weight that is read: there the memory is no bound.
        let share = (step == 1).then(|| median(&rates) * model.spec().bytes_per_token() as f64 / bandwidth);
        let dispatches = model.gpu().filter(|_| step == 1).map(|engine| engine.table(Regime::Token).rows().len());
        let kernels = if args.kernels { Some(test.profile(&mut model, &mut session)?) } else { None };
        let outcome = Outcome { rates, at_once, share, dispatches, kernels };
        if args.json {
            print_line(test.to_json(&outcome))?;
        } else {
            test.report(&outcome)?;
        }
    }
    Ok(())
}

/// Ids from a fixed sequence: what they are changes no speed, but a repeated one would leave caches warm.
fn ids(model: &Model, n: usize) -> Vec<u32> {
    let vocabulary = model.spec().vocab_size as u64;
    (0..n as u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) % vocabulary).map(|id| id as u32).collect()
}

impl Test {
    /// Feeds the ids, or makes as many tokens as an answer's are made: by the executor itself, several at once, where it
    /// chooses them. Gives how many those were at most.
    fn run(&self, model: &mut Model, session: &mut Session) -> selkie::Result<Option<usize>> {
        model.clear(session)?;
        let likeliest = SamplingParams { temperature: 0.0, ..SamplingParams::default() };
        let choice = Choice { params: &likeliest, seed: 0, sequence: 0, stop: &[] };
        let (mut done, mut last, mut most) = (0, self.ids[0], None);
        while self.step == 1 && done < self.ids.len() {
            let Some(chosen) = model.choose(session, last, self.ids.len() - done, &choice)? else { break };
            done += chosen.len();
            most = most.max(Some(chosen.len()));
            last = chosen.last().copied().unwrap_or(last);
        }
        self.ids[done..].chunks(self.step).try_for_each(|ids| model.feed(session, ids).map(|_| ()))?;
        Ok(most)
    }

    /// Tokens a second of each run but the first, and how many the executor chose at once.
    fn measure(&self, runs: usize, model: &mut Model, session: &mut Session) -> Result<(Vec<f64>, Option<usize>)> {
        let (mut rates, mut at_once) = (vec![], None);
        for run in 0..=runs {
            let started = Instant::now();
            at_once = self.run(model, session)?;
            if run > 0 {
                rates.push(self.ids.len() as f64 / started.elapsed().as_secs_f64());
            }
        }
        Ok((rates, at_once))
    }

    /// The time of each kind of op in a run of its own, since measuring it costs time too. The longest is first.
    fn profile(&self, model: &mut Model, session: &mut Session) -> Result<Vec<OpTime>> {
        model.profile(true);
        let run = self.run(model, session);
        let mut kernels = model.take_profile();
        model.profile(false);
        run?;
        kernels.sort_by_key(|kernel| Reverse(kernel.time));
        Ok(kernels)
    }

    fn to_json(&self, outcome: &Outcome) -> Value {
        let mut line = json!({
            "test": self.name,
            "tokens_per_second": median(&outcome.rates),
            "runs": outcome.rates,
            "bandwidth_share": outcome.share,
        });
        if self.step == 1 {
            line["tokens_at_once"] = outcome.at_once.unwrap_or(1).into();
        }
        if let Some(dispatches) = outcome.dispatches {
            line["dispatches_per_token"] = dispatches.into();
        }
        if let Some(kernels) = &outcome.kernels {
            let kernel = |k: &OpTime| json!({"op": k.op, "runs": k.runs, "ms": k.time.as_secs_f64() * 1e3});
            line["kernels"] = kernels.iter().map(kernel).collect();
        }
        line
    }

    fn report(&self, outcome: &Outcome) -> Result<()> {
        let rates = &outcome.rates;
        let (least, most) = rates.iter().fold((f64::INFINITY, 0.0f64), |(l, m), &r| (l.min(r), m.max(r)));
        let share = outcome.share.map(|s| format!("{:.0} % of the memory's read bandwidth", s * 100.0));
        let how = (self.step == 1).then(|| match outcome.at_once {
            Some(n) => format!("up to {n} tokens between two answers"),
            None => "one by one".into(),
        });
        let dispatches = outcome.dispatches.map(|n| format!("{n} dispatches a token"));
        let notes: Vec<String> = [share, how, dispatches].into_iter().flatten().collect();
        let (name, median) = (&self.name, median(rates));
        let line = format!("{name:<14} {median:>9.1} tokens/s   ({least:.1} to {most:.1})   {}", notes.join(", "));
        print_line(line.trim_end())?;
        let Some(kernels) = &outcome.kernels else { return Ok(()) };
        if kernels.is_empty() {
            print_line("  nothing here measures the time of kernels")?;
        }
        let all: f64 = kernels.iter().map(|kernel| kernel.time.as_secs_f64()).sum();
        for OpTime { op, runs, time } in kernels {
            let time = time.as_secs_f64();
            print_line(format_args!(
                "  {op:<12} {:>9.1} ms {:>5.1} %   {runs:>6} of {:>8.1} us",
                time * 1e3,
                time / all * 100.0,
                time / *runs as f64 * 1e6,
            ))?;
        }
        Ok(())
    }
}

fn median(rates: &[f64]) -> f64 {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { (sorted[half - 1] + sorted[half]) / 2.0 }
}

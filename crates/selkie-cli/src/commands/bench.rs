//! `selkie bench`: tokens a second.

use std::time::Instant;

use anyhow::Result;
use selkie::{
    Model, Session,
    cpu::{Pool, read_bandwidth},
};
use serde_json::json;

use crate::{
    args::{Run, usage},
    open,
};

/// Arguments of `bench`.
#[derive(clap::Args)]
pub struct Args {
    /// A name, `hf:OWNER/REPO/FILE`, or a path
    model: String,
    /// Tokens of a prompt; 0 leaves the test out
    #[arg(short, default_value_t = 512, value_name = "N")]
    prompt: usize,
    /// Tokens made one by one; 0 leaves the test out
    #[arg(short = 'n', default_value_t = 128, value_name = "N")]
    new: usize,
    /// Runs of each test, after one that does not count
    #[arg(short, default_value_t = 5, value_name = "N")]
    runs: usize,
    /// Print a JSON line a test
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    run: Run,
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    if args.runs == 0 || args.prompt + args.new == 0 {
        return usage("there is nothing to measure");
    }
    let started = Instant::now();
    let mut model = open::model(&args.model, &args.run, false)?;
    let load = started.elapsed().as_secs_f64();
    let threads = args.run.threads.map_or_else(Pool::default_threads, usize::from);
    let bandwidth = read_bandwidth(threads);
    let weights = model.spec().bytes_per_token();
    if !args.json {
        println!(
            "{} on {} ({}), loaded in {:.0} ms; memory reads at {:.1} GB/s",
            model.name(),
            model.backend(),
            model.device(),
            load * 1e3,
            bandwidth / 1e9,
        );
    }
    // Ids from a fixed sequence: what they are changes no speed, but a repeated one would leave caches warm.
    let vocabulary = model.spec().vocab_size as u64;
    let ids = |n: usize| -> Vec<u32> {
        (0..n as u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) % vocabulary).map(|id| id as u32).collect()
    };
    let capacity = args.prompt.max(args.new);
    let mut session = model.session(capacity)?;
    if args.prompt > 0 {
        let ids = ids(args.prompt);
        let rates = measure(args.runs, args.prompt, &mut model, &mut session, |model, session| {
            model.feed(session, &ids).map(|_| ())
        })?;
        report(&format!("prefill {}", args.prompt), &rates, None, args.json);
    }
    if args.new > 0 {
        let ids = ids(args.new);
        let rates = measure(args.runs, args.new, &mut model, &mut session, |model, session| {
            ids.iter().try_for_each(|id| model.feed(session, &[*id]).map(|_| ()))
        })?;
        let share = median(&rates) * weights as f64 / bandwidth;
        report(&format!("decode {}", args.new), &rates, Some(share), args.json);
    }
    Ok(())
}

/// Tokens a second of each run but the first.
fn measure(
    runs: usize,
    tokens: usize,
    model: &mut Model,
    session: &mut Session,
    body: impl Fn(&mut Model, &mut Session) -> selkie::Result<()>,
) -> Result<Vec<f64>> {
    let mut rates = vec![];
    for run in 0..=runs {
        session.clear()?;
        let started = Instant::now();
        body(model, session)?;
        if run > 0 {
            rates.push(tokens as f64 / started.elapsed().as_secs_f64());
        }
    }
    Ok(rates)
}

fn median(rates: &[f64]) -> f64 {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { (sorted[half - 1] + sorted[half]) / 2.0 }
}

fn report(test: &str, rates: &[f64], share: Option<f64>, as_json: bool) {
    let (median, least) = (median(rates), rates.iter().copied().fold(f64::INFINITY, f64::min));
    let most = rates.iter().copied().fold(0.0, f64::max);
    if as_json {
        println!("{}", json!({"test": test, "tokens_per_second": median, "runs": rates, "bandwidth_share": share}));
        return;
    }
    let share = share.map_or(String::new(), |s| format!("   {:.0} % of the memory's read bandwidth", s * 100.0));
    println!("{test:<14} {median:>9.1} tokens/s   ({least:.1} to {most:.1}){share}");
}

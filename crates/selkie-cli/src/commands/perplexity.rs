//! `selkie perplexity`: how well a model predicts a text.

use std::{io::IsTerminal, path::PathBuf};

use anyhow::{Context, Result, bail};
use selkie::{model_spec::Want, text::EncodeOptions};
use serde_json::json;

use crate::{
    args::{Run, read_file},
    open, progress,
    terminal::print_line,
};

/// Arguments of `perplexity`.
#[derive(clap::Args)]
pub struct Args {
    /// A name, `hf:OWNER/REPO/FILE`, or a path
    model: String,
    /// The text
    file: PathBuf,
    /// Tokens a window; the second half of each is scored
    #[arg(long, default_value_t = 512, value_name = "N", value_parser = clap::value_parser!(u32).range(4..))]
    context: u32,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    run: Run,
}

/// Runs the command: consecutive windows, each scored from its middle on, so that every scored token has context.
pub fn run(args: Args) -> Result<()> {
    let text = read_file(&args.file)?;
    let mut model = open::model_for(&args.model, &args.run, true, Some(args.context as usize))?;
    let tokenizer = model.text().tokenizer()?.clone();
    let ids = tokenizer
        .encode(&text, EncodeOptions { add_special: true, parse_special: false })
        .with_context(|| args.model.clone())?;
    let window = args.context as usize;
    let windows = ids.len() / window;
    if windows == 0 {
        bail!("{}: {} tokens do not fill a window of {window}", args.file.display(), ids.len());
    }
    let bar = progress::bar(Some(windows as u64), "window {pos} of {len} {bar:32} {eta} {msg}");
    let first = window / 2;
    let outputs: Vec<usize> = (first..window - 1).collect();
    let (mut sum, mut count) = (0.0, 0usize);
    let mut running = vec![];
    let mut session = model.session(window)?;
    for chunk in ids.chunks_exact(window) {
        let mut chunk = chunk.to_vec();
        if let Some(bos) = tokenizer.bos().filter(|_| tokenizer.adds_bos()) {
            chunk[0] = bos;
        }
        model.clear(&mut session)?;
        let logits = model.rows(&mut session, &chunk, &outputs, Want::Logits)?;
        for (row, &position) in logits.chunks_exact(model.spec().vocab_size).zip(&outputs) {
            sum -= log_probability(row, chunk[position + 1]);
            count += 1;
        }
        running.push((sum / count as f64).exp());
        bar.set_message(format!("perplexity {:.4}", running[running.len() - 1]));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let perplexity = (sum / count as f64).exp();
    if args.json {
        print_line(json!({"perplexity": perplexity, "windows": windows, "scored": count, "running": running}))?;
    } else if std::io::stdout().is_terminal() {
        print_line(format_args!(
            "perplexity {perplexity:.4} over {windows} windows of {window} tokens ({count} scored)"
        ))?;
    } else {
        print_line(format_args!("{perplexity:.6}"))?;
    }
    Ok(())
}

/// The natural logarithm of `id`'s probability.
fn log_probability(logits: &[f32], id: u32) -> f64 {
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|&l| (f64::from(l) - max).exp()).sum();
    f64::from(logits[id as usize]) - max - sum.ln()
}

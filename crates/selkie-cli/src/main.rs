//! `selkie`: language models in the terminal.

mod answer;
mod args;
mod beside;
mod commands;
mod open;
mod progress;
mod quiet;
mod reading;
mod terminal;
mod whole_file;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Run, inspect and convert language models, on the machine that you have.
#[derive(Parser)]
#[command(name = "selkie", version, about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Talk with a model, or get one answer when a prompt is given
    Chat(commands::chat::Args),
    /// Continue a text
    Generate(commands::generate::Args),
    /// Write the logits of every position to a safetensors file
    Logits(commands::logits::Args),
    /// Print a text's embedding: mean over positions, L2-normalised
    Embed(commands::embed::Args),
    /// Turn text into token ids
    Tokenize(commands::tokenize::TokenizeArgs),
    /// Turn token ids into text
    Detokenize(commands::tokenize::DetokenizeArgs),
    /// Print the prompt that a chat template makes of messages
    Template(commands::template::Args),
    /// Show what a model's files hold
    Inspect(commands::inspect::Args),
    /// Print the forward pass as a list
    Plan(commands::plan::Args),
    /// Measure tokens a second
    Bench(commands::bench::Args),
    /// Measure how well a model predicts a text
    Perplexity(commands::perplexity::Args),
    /// Convert between formats and quantisations
    Convert(commands::convert::Args),
    /// Make a hybrid of fresh weights from a configuration
    Init(commands::init::Args),
    /// Download a model
    Pull(commands::pull::Args),
    /// List the models that have names, and those that are here
    List(commands::list::Args),
    /// Show what can run models on this machine
    Devices(commands::devices::Args),
}

fn main() -> ExitCode {
    quiet::quieten_drivers();
    terminal::start_log();
    let result = match Cli::parse().command {
        Command::Chat(args) => commands::chat::run(args),
        Command::Generate(args) => commands::generate::run(args),
        Command::Logits(args) => commands::logits::run(args),
        Command::Embed(args) => commands::embed::run(args),
        Command::Tokenize(args) => commands::tokenize::tokenize(args),
        Command::Detokenize(args) => commands::tokenize::detokenize(args),
        Command::Template(args) => commands::template::run(args),
        Command::Inspect(args) => commands::inspect::run(args),
        Command::Plan(args) => commands::plan::run(args),
        Command::Bench(args) => commands::bench::run(args),
        Command::Perplexity(args) => commands::perplexity::run(args),
        Command::Convert(args) => commands::convert::run(args),
        Command::Init(args) => commands::init::run(args),
        Command::Pull(args) => commands::pull::run(args),
        Command::List(args) => commands::list::run(args),
        Command::Devices(args) => commands::devices::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has gone: no reason to complain to the others.
        Err(error) if terminal::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::note(one_line(&format!("selkie: {error:#}")));
            ExitCode::from(if error.is::<args::Usage>() { 2 } else { 1 })
        }
    }
}

/// A message as one line: what files and users put into it may hold line breaks and escapes, and go on for ever.
fn one_line(message: &str) -> String {
    const LONGEST: usize = 2000;
    let mut line = String::new();
    for piece in message.split(['\n', '\r']).map(str::trim).filter(|piece| !piece.is_empty()) {
        if !line.is_empty() {
            line.push_str(if line.ends_with(':') { " " } else { "; " });
        }
        piece.chars().for_each(|c| if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) });
    }
    match line.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

//! Arguments that commands share. Flags mean the same everywhere.

use std::{fs, io::Read, path::PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use selkie::{Backend, SamplingParams};

/// Wrong usage that the argument parser cannot see; the exit code is 2.
#[derive(Debug)]
pub struct Usage(pub String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// What runs the model, and how.
#[derive(Args, Clone)]
pub struct Run {
    /// What runs the model: auto (a GPU where there is one that takes it, else the CPU), cpu, gpu or reference
    #[arg(long, default_value = "auto", value_name = "NAME")]
    pub backend: Backend,
    /// Threads of the CPU executor [default: one for each physical core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Which GPU, by a part of its name or its number in `selkie devices`
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// f32 activations and caches, for comparison with references
    #[arg(long)]
    pub exact: bool,
    /// Round activations where that is quicker
    #[arg(long, conflicts_with = "exact")]
    pub fast: bool,
    /// A configuration in place of the one beside the weights
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// How tokens are chosen.
#[derive(Args, Clone)]
pub struct Sampling {
    /// How freely tokens are chosen; 0 always takes the likeliest
    #[arg(long, value_name = "T", default_value_t = 0.3)]
    pub temperature: f32,
    /// Choose among this many of the likeliest tokens; 0 is all
    #[arg(long, value_name = "K", default_value_t = 40)]
    pub top_k: usize,
    /// Choose among the likeliest tokens up to this much of the whole probability
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    pub top_p: f32,
    /// Choose among tokens at least this likely, relative to the likeliest
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub min_p: f32,
    /// Divide the logits of tokens that occurred; 1 is none [default: 1.1 in chat, else 1]
    #[arg(long, value_name = "X")]
    pub repetition_penalty: Option<f32>,
    /// Take this off a token's logit for each time that it occurred
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    pub frequency_penalty: f32,
    /// Take this off a token's logit once it occurred
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    pub presence_penalty: f32,
    /// How many of the last tokens penalties look at; 0 is all
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub penalty_window: usize,
    /// Add to a token's logit: ID=BIAS, as often as needed
    #[arg(long, value_name = "ID=BIAS", value_parser = parse_bias, allow_hyphen_values = true)]
    pub logit_bias: Vec<(u32, f32)>,
    /// The same seed gives the same text [default: another each time]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Stop where this text comes up, as often as needed
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
}

impl Sampling {
    /// The parameters, checked. `repetition_penalty` is the command's default.
    pub fn params(&self, repetition_penalty: f32) -> Result<SamplingParams> {
        let params = SamplingParams {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty.unwrap_or(repetition_penalty),
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            penalty_window: self.penalty_window,
            logit_bias: self.logit_bias.clone(),
        };
        params.check().map_err(|e| Usage(e.to_string()))?;
        Ok(params)
    }

    /// The seed, or one that differs each time.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.map_or(0, |since| since.as_nanos() as u64)
        })
    }
}

fn parse_bias(text: &str) -> Result<(u32, f32), String> {
    let (id, bias) = text.split_once('=').ok_or("expected ID=BIAS")?;
    let id = id.trim().parse().map_err(|_| format!("`{id}` is no token id"))?;
    let bias = bias.trim().parse().map_err(|_| format!("`{bias}` is no number"))?;
    Ok((id, bias))
}

/// Token ids: `1,2,3`, or nothing.
#[derive(Clone, Debug, Default)]
pub struct Ids(pub Vec<u32>);

impl std::str::FromStr for Ids {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let trimmed = text.trim().trim_start_matches('[').trim_end_matches(']');
        if trimmed.trim().is_empty() {
            return Ok(Ids::default());
        }
        let id = |part: &str| part.trim().parse().map_err(|_| format!("`{}` is no token id", part.trim()));
        trimmed.split(',').map(id).collect::<Result<_, _>>().map(Ids)
    }
}

/// The text of an argument, or of standard input where it is missing and something is piped in.
pub fn text_or_stdin(argument: Option<String>) -> Result<Option<String>> {
    use std::io::IsTerminal;
    if argument.is_some() || std::io::stdin().is_terminal() { Ok(argument) } else { read_stdin().map(Some) }
}

/// All of standard input, which has to be UTF-8.
pub fn read_stdin() -> Result<String> {
    let mut bytes = vec![];
    std::io::stdin().read_to_end(&mut bytes).context("standard input")?;
    String::from_utf8(bytes).context("standard input")
}

/// The largest file that is read whole.
const LARGEST: u64 = 1 << 30;

/// The bytes of a plain file: pipes may never end, and devices do not.
pub fn read_file(path: &std::path::Path) -> Result<Vec<u8>> {
    let read = || -> Result<Vec<u8>> {
        let found = fs::metadata(path)?;
        if !found.is_file() {
            bail!("is not a file");
        }
        if found.len() > LARGEST {
            bail!("{} bytes are more than are read at once ({LARGEST})", found.len());
        }
        Ok(fs::read(path)?)
    };
    read().with_context(|| path.display().to_string())
}

/// A JSON file.
pub fn read_json(path: &std::path::Path) -> Result<serde_json::Value> {
    serde_json::from_slice(&read_file(path)?).with_context(|| path.display().to_string())
}

/// A wrong use of flags.
pub fn usage<T>(what: impl Into<String>) -> Result<T> {
    bail!(Usage(what.into()))
}

//! `selkie init`: a freshly initialised hybrid.

use std::path::PathBuf;

use anyhow::{Result, bail};
use selkie::{
    formats::mbjs::{Config, MbjsOptions, MbjsWriter, initial, seed_of},
    random_seed,
};

use crate::{args::read_file, beside, terminal, whole_file};

/// Arguments of `init`.
#[derive(clap::Args)]
pub struct Args {
    /// The model's configuration: JSON as the npm package has it, at the top or under a key `model`
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Where the weights go; the configuration goes beside them, unless one is there
    #[arg(long, value_name = "FILE.mbjs")]
    out: PathBuf,
    /// What the weights are drawn from [default: the configuration's seed, else another each time]
    #[arg(long, value_name = "N", value_parser = parse_seed, allow_negative_numbers = true)]
    seed: Option<u32>,
    /// Half precision
    #[arg(long)]
    fp16: bool,
    /// No checksum at the end
    #[arg(long)]
    no_trailer: bool,
}

/// Any number, as the package takes them: the fraction is dropped, and the rest wraps at 2^32.
fn parse_seed(text: &str) -> Result<u32, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    number.map(seed_of).ok_or_else(|| format!("`{text}` is no number"))
}

/// Runs the command. One parameter is in memory at a time.
pub fn run(args: Args) -> Result<()> {
    whole_file::refuse_input(&args.out, [args.config.as_path()])?;
    // Any other ending would make a file that is opened as something else.
    let ending = args.out.extension().and_then(|ending| ending.to_str());
    if !matches!(ending, Some("mbjs" | "bin")) {
        bail!("{}: an MBJS file ends in .mbjs or .bin", args.out.display());
    }
    let config = Config::parse(&args.config.display().to_string(), &read_file(&args.config)?)?;
    let seed = args.seed.or(config.seed()).unwrap_or_else(|| random_seed() as u32);
    let options = MbjsOptions { version: if args.fp16 { 3 } else { 2 }, trailer: !args.no_trailer };
    let mut values = 0;
    terminal::catch_interrupts();
    whole_file::write(&args.out, |out| {
        let mut writer = MbjsWriter::new(out, &config, options)?;
        for parameter in initial(&config, seed) {
            let (_, fresh) = parameter?;
            writer.write(&fresh)?;
            values += fresh.len();
            if terminal::interrupted() {
                bail!("interrupted");
            }
        }
        Ok(writer.finish()?)
    })?;
    beside::put_config(&args.out, &config, Some(seed))?;
    terminal::note(format_args!("{} layers, {values} values, seed {seed}", config.layers().len()));
    Ok(())
}

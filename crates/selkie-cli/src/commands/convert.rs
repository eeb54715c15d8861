//! `selkie convert`: between formats and quantisations.

use std::{ops::ControlFlow, path::PathBuf};

use anyhow::{Result, bail};
use selkie::{
    convert::{Conversion, FileFormat, TYPES},
    formats::DType,
};

use crate::{beside, open, progress, terminal, whole_file};

/// Arguments of `convert`.
#[derive(clap::Args)]
pub struct Args {
    /// A name, `hf:OWNER/REPO/FILE`, or a path
    input: String,
    /// The file to write; its ending is its format: .gguf, .safetensors or .mbjs
    output: PathBuf,
    /// What matrices are stored as [default: as they are]
    #[arg(long = "type", value_name = "TYPE")]
    dtype: Option<String>,
    /// A configuration in place of the one beside the weights
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Runs the command. The file appears under its name when it is whole.
pub fn run(args: Args) -> Result<()> {
    let dtype = args.dtype.as_deref().map(parse_type).transpose()?;
    let opened = open::headers(&args.input, args.config.as_deref())?;
    let ending = args.output.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let Some(format) = FileFormat::from_ending(ending) else {
        bail!("{}: the ending has to be .gguf, .safetensors or .mbjs", args.output.display());
    };
    whole_file::refuse_input(&args.output, opened.files.all())?;
    let conversion = Conversion::new(&opened, format, dtype)?;
    terminal::catch_interrupts();
    if let Some(note) = conversion.note() {
        terminal::note(note);
    }
    let bar = progress::bar(Some(conversion.tensors() as u64), "tensor {pos} of {len} {bar:32} {eta}");
    whole_file::write(&args.output, |out| {
        let mut go_on = |done: usize| {
            bar.set_position(done as u64);
            if terminal::interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        Ok(conversion.write(out, &mut go_on)?)
    })?;
    bar.finish_and_clear();
    match conversion.mbjs_config() {
        Some(config) => beside::put_config(&args.output, config, None),
        None => Ok(()),
    }
}

fn parse_type(name: &str) -> Result<DType> {
    match DType::from_name(name).filter(|dtype| TYPES.contains(dtype)) {
        Some(dtype) => Ok(dtype),
        None => {
            let known: Vec<&str> = TYPES.iter().map(|dtype| dtype.name()).collect();
            bail!(crate::args::Usage(format!("--type {name} is none of {}", known.join(", "))))
        }
    }
}

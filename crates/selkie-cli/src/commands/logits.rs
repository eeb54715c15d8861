//! `selkie logits`: every position's logits, for comparison with other implementations.

use std::{collections::BTreeMap, fs::File, io::BufWriter, path::PathBuf};

use anyhow::{Context, Result};
use selkie::formats::{DType, TensorSpec, safetensors::SafetensorsWriter};

use crate::{
    args::{Ids, Run, read_json},
    open, whole_file,
};

/// Arguments of `logits`.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("input").required(true).args(["ids", "prompt", "batch"])))]
pub struct Args {
    /// A name, `hf:OWNER/REPO/FILE`, or a path
    model: String,
    /// Token ids: 1,2,3
    #[arg(long)]
    ids: Option<Ids>,
    /// A text; the model's special tokens are added, none is parsed in it
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// A JSON list of id lists, run as one batch
    #[arg(long, value_name = "FILE")]
    batch: Option<PathBuf>,
    /// Feed this many tokens at a time through the state
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    chunk: Option<u32>,
    /// Where tensors `ids` and `logits` go (`ids.K` and `logits.K` for a batch)
    #[arg(long, value_name = "FILE.safetensors")]
    out: PathBuf,
    #[command(flatten)]
    run: Run,
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let mut model = open::model(&args.model, &args.run, true)?;
    let lists = match (&args.ids, &args.prompt, &args.batch) {
        (Some(ids), _, _) => vec![ids.0.clone()],
        (_, Some(text), _) => vec![model.text().encode(text, true)?],
        (_, _, Some(file)) => serde_json::from_value(read_json(file)?)
            .with_context(|| format!("{}: expected a list of lists of token ids", file.display()))?,
        _ => vec![],
    };
    if lists.is_empty() || lists.iter().any(Vec::is_empty) {
        return Err(selkie::Error::EmptyPrompt.into());
    }
    // Past the context that a model was made for too: what it computes there can be compared like anything else.
    let piece = args.chunk.map_or(usize::MAX, |n| n as usize);
    let logits = model.batch_logits(&lists, piece)?;
    let name = |what: &str, k: usize| if args.batch.is_some() { format!("{what}.{k}") } else { what.to_owned() };
    let mut tensors = vec![];
    for (k, (ids, logits)) in lists.iter().zip(&logits).enumerate() {
        tensors.push((name("ids", k), DType::I32, vec![ids.len()], le_bytes(ids.iter().map(|id| id.to_le_bytes()))));
        let shape = vec![ids.len(), model.spec().vocab_size];
        tensors.push((name("logits", k), DType::F32, shape, le_bytes(logits.iter().map(|v| v.to_le_bytes()))));
    }
    let inputs = args.batch.as_deref().into_iter().chain(model.opened().files.all());
    whole_file::refuse_input(&args.out, inputs)?;
    whole_file::write(&args.out, |out| write(out, &tensors))
}

fn le_bytes(values: impl Iterator<Item = [u8; 4]>) -> Vec<u8> {
    values.flatten().collect()
}

fn write(out: BufWriter<File>, tensors: &[(String, DType, Vec<usize>, Vec<u8>)]) -> Result<BufWriter<File>> {
    let specs: Vec<TensorSpec> = tensors
        .iter()
        .map(|(name, dtype, shape, _)| TensorSpec { name: name.clone(), dtype: *dtype, shape: shape.clone() })
        .collect();
    let mut out = SafetensorsWriter::new(out, &BTreeMap::new(), &specs)?;
    tensors.iter().try_for_each(|(_, _, _, bytes)| out.write(bytes))?;
    Ok(out.finish()?)
}

//! `selkie inspect`: what a model's files hold.

use std::io::Write;

use anyhow::Result;
use selkie::{
    Opened,
    formats::{TensorInfo, gguf::Value},
};
use serde_json::json;

use crate::open;

/// Arguments of `inspect`.
#[derive(clap::Args)]
pub struct Args {
    /// A name, `hf:OWNER/REPO/FILE`, or a path
    model: String,
    /// Leave the list of tensors out
    #[arg(long)]
    no_tensors: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    /// A configuration in place of the one beside the weights
    #[arg(long, value_name = "FILE")]
    config: Option<std::path::PathBuf>,
}

/// Metadata values longer than this are cut.
const SHOWN: usize = 72;

/// Runs the command. Files that are no model of a known family are shown as well: the last line says so.
pub fn run(args: Args) -> Result<()> {
    let opened = open::headers(&args.model, args.config.as_deref())?;
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", to_json(&opened)?)?;
        return Ok(());
    }
    for file in &opened.files.weights {
        writeln!(out, "{}", file.display())?;
    }
    writeln!(out)?;
    for (key, value) in settings(&opened) {
        writeln!(out, "  {key:<48} {}", cut(&value))?;
    }
    let tensors = opened.checkpoint.tensors();
    if !args.no_tensors {
        writeln!(out)?;
        for tensor in tensors {
            writeln!(out, "  {:<48} {:<8} {:>11}  {:?}", tensor.name, tensor.dtype, bytes(size(tensor)), tensor.shape)?;
        }
    }
    for unknown in &opened.checkpoint.unknown {
        writeln!(out, "  {:<48} {:<8} cannot be read", unknown.name, unknown.dtype)?;
    }
    let values: usize = tensors.iter().map(TensorInfo::elements).sum();
    let stored: u64 = tensors.iter().map(size).sum();
    writeln!(out)?;
    writeln!(out, "{} tensors, {:.1}M values, {}", tensors.len(), values as f64 / 1e6, bytes(stored))?;
    writeln!(out, "id {}", opened.model_id()?)?;
    match opened.spec() {
        Ok(spec) => writeln!(
            out,
            "{}: {} layers of width {}, vocabulary {}, context {}",
            spec.architecture,
            spec.layers.len(),
            spec.d_model,
            spec.vocab_size,
            spec.context.map_or("not told".into(), |c| c.to_string()),
        )?,
        Err(error) => writeln!(out, "not a model that can run here: {error}")?,
    }
    Ok(())
}

fn size(tensor: &TensorInfo) -> u64 {
    tensor.range.end - tensor.range.start
}

/// The settings of either format, as text.
fn settings(opened: &Opened) -> Vec<(String, String)> {
    if let Some(metadata) = &opened.checkpoint.gguf {
        return metadata.iter().map(|(key, value)| (key.to_owned(), show(value))).collect();
    }
    let fields = opened.config.as_ref().and_then(|c| c.as_object());
    fields.into_iter().flatten().map(|(key, value)| (key.clone(), value.to_string())).collect()
}

fn show(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        Value::Array(array) => match array.as_strings() {
            Some(strings) => {
                let first: Vec<String> = strings.iter().take(6).map(|s| format!("{s:?}")).collect();
                format!("{} strings: {}…", strings.len(), first.join(", "))
            }
            None => format!("{} values of {}", array.len(), value.type_name()),
        },
        other => other
            .as_bool()
            .map(|b| b.to_string())
            .or_else(|| other.as_i64().map(|n| n.to_string()))
            .or_else(|| other.as_u64().map(|n| n.to_string()))
            .or_else(|| other.as_f32().map(|n| n.to_string()))
            .unwrap_or_else(|| other.type_name().to_owned()),
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// A size for people.
pub fn bytes(n: u64) -> String {
    match n {
        0..1_000 => format!("{n} B"),
        1_000..1_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", n as f64 / 1e6),
        _ => format!("{:.2} GB", n as f64 / 1e9),
    }
}

fn to_json(opened: &Opened) -> Result<serde_json::Value> {
    let tensors: Vec<_> = opened
        .checkpoint
        .tensors()
        .iter()
        .map(|t| json!({"name": t.name, "type": t.dtype.name(), "shape": t.shape, "bytes": size(t)}))
        .collect();
    let settings: serde_json::Map<_, _> = settings(opened).into_iter().map(|(k, v)| (k, v.into())).collect();
    let spec = opened.spec().ok().map(|spec| {
        json!({
            "architecture": spec.architecture,
            "layers": spec.layers.len(),
            "d_model": spec.d_model,
            "vocab_size": spec.vocab_size,
            "context": spec.context,
        })
    });
    Ok(json!({
        "files": opened.files.weights.iter().map(|f| f.display().to_string()).collect::<Vec<_>>(),
        "id": opened.model_id()?,
        "settings": settings,
        "tensors": tensors,
        "model": spec,
    }))
}

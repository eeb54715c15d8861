//! `selkie embed`: a text as a vector.

use std::io::Write;

use anyhow::Result;
use serde_json::json;

use crate::{
    args::{Ids, Run, text_or_stdin, usage},
    open,
};

/// Arguments of `embed`.
#[derive(clap::Args)]
pub struct Args {
    /// A name, `hf:OWNER/REPO/FILE`, or a path
    model: String,
    /// Texts, one embedding each; standard input is one text
    #[arg(conflicts_with = "ids")]
    texts: Vec<String>,
    /// Token ids in place of texts: 1,2,3
    #[arg(long)]
    ids: Option<Ids>,
    /// Always on: each text gives one JSON line
    #[arg(long, hide = true)]
    json: bool,
    #[command(flatten)]
    run: Run,
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let _ = args.json;
    let mut texts = args.texts;
    if texts.is_empty() && args.ids.is_none() {
        match text_or_stdin(None)? {
            Some(text) => texts.push(text),
            None => return usage("there is nothing to embed: give TEXT, --ids, or text on standard input"),
        }
    }
    let mut model = open::model(&args.model, &args.run, true)?;
    let lists = match args.ids {
        Some(ids) => vec![ids.0],
        None => texts.iter().map(|text| model.text().encode(text, true)).collect::<Result<_, _>>()?,
    };
    let mut out = std::io::stdout().lock();
    for ids in lists {
        writeln!(out, "{}", json!({ "embedding": model.embed(&ids)? }))?;
    }
    Ok(())
}

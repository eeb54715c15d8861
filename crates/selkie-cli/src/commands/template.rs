//! `selkie template`: the prompt that a chat template renders.

use std::{path::PathBuf, rc::Rc};

use anyhow::{Result, bail};
use selkie::TextSide;
use serde_json::{Value, json};

use crate::{
    args::read_json,
    open,
    terminal::{print_exactly, print_line},
};

/// Arguments of `template`.
#[derive(clap::Args)]
pub struct Args {
    /// A name, `hf:OWNER/REPO/FILE`, or a path
    model: String,
    /// A JSON array of messages
    #[arg(long, value_name = "FILE.json")]
    messages: PathBuf,
    /// A JSON array of tools
    #[arg(long, value_name = "FILE.json")]
    tools: Option<PathBuf>,
    /// Do not begin the assistant's turn
    #[arg(long)]
    no_generation_prompt: bool,
    /// Print a JSON object with the prompt and its ids
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let messages = read_json(&args.messages)?;
    if !messages.as_array().is_some_and(|list| list.iter().all(Value::is_object)) {
        bail!("{}: expected a list of messages", args.messages.display());
    }
    let tools = args.tools.as_deref().map(read_json).transpose()?;
    let opened = open::headers(&args.model, None)?;
    let text = TextSide::new(Rc::new(opened));
    let prompt = text.render_chat(&messages, tools.as_ref(), !args.no_generation_prompt)?;
    if args.json {
        print_line(json!({ "prompt": prompt, "ids": text.encode_prompt(&prompt)? }))?;
        return Ok(());
    }
    Ok(print_exactly(prompt.as_bytes())?)
}

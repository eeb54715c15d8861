//! `selkie tokenize` and `selkie detokenize`.

use std::io::Write;

use anyhow::{Context, Result};
use selkie::text::EncodeOptions;
use serde_json::json;

use crate::{
    args::{Ids, text_or_stdin, usage},
    open,
    terminal::{print_exactly, print_line},
};

/// Arguments of `tokenize`.
#[derive(clap::Args)]
pub struct TokenizeArgs {
    /// A name, `hf:OWNER/REPO/FILE`, or a path
    model: String,
    /// The text; read from standard input where it is missing
    text: Option<String>,
    /// Add the tokens with which the model wants a text to begin and end
    #[arg(long)]
    add_special: bool,
    /// Take special tokens that are written in the text for what they say
    #[arg(long)]
    parse_special: bool,
    /// Print a JSON object with ids and pieces
    #[arg(long)]
    json: bool,
}

/// Arguments of `detokenize`.
#[derive(clap::Args)]
pub struct DetokenizeArgs {
    /// A name, `hf:OWNER/REPO/FILE`, or a path
    model: String,
    /// Token ids: 1,2,3
    ids: Ids,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// Runs `tokenize`.
pub fn tokenize(args: TokenizeArgs) -> Result<()> {
    let Some(text) = text_or_stdin(args.text)? else {
        return usage("there is nothing to tokenize: give TEXT, or text on standard input");
    };
    let tokenizer = open::headers(&args.model, None)?.tokenizer()?;
    let options = EncodeOptions { add_special: args.add_special, parse_special: args.parse_special };
    let ids = tokenizer.encode(text.as_bytes(), options).with_context(|| args.model.clone())?;
    let mut out = std::io::stdout().lock();
    if args.json {
        let pieces = ids
            .iter()
            .map(|&id| Ok(String::from_utf8_lossy(&tokenizer.piece(id)?).into_owned()))
            .collect::<Result<Vec<_>>>()?;
        writeln!(out, "{}", json!({ "ids": ids, "pieces": pieces }))?;
    } else {
        let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
        writeln!(out, "{}", ids.join(","))?;
    }
    Ok(())
}

/// Runs `detokenize`: the bytes themselves, special tokens written out.
pub fn detokenize(args: DetokenizeArgs) -> Result<()> {
    let tokenizer = open::headers(&args.model, None)?.tokenizer()?;
    let bytes = tokenizer.decode(&args.ids.0, false).with_context(|| args.model.clone())?;
    if args.json {
        print_line(json!({ "text": String::from_utf8_lossy(&bytes) }))?;
        return Ok(());
    }
    Ok(print_exactly(&bytes)?)
}

//! `selkie pull`: download a model.

use anyhow::Result;
use serde_json::json;

use crate::{open, terminal::print_line};

/// Arguments of `pull`.
#[derive(clap::Args)]
pub struct Args {
    /// A name, or `hf:OWNER/REPO/FILE[@REVISION]`
    name: String,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the command; prints where the model is.
pub fn run(args: Args) -> Result<()> {
    crate::terminal::catch_interrupts();
    let path = open::fetch(&args.name)?;
    if args.json {
        print_line(json!({ "path": path.display().to_string() }))?;
    } else {
        print_line(path.display())?;
    }
    Ok(())
}

//! `selkie pull`: download a model.

use anyhow::Result;

use crate::{open, terminal::print_line};

/// Arguments of `pull`.
#[derive(clap::Args)]
pub struct Args {
    /// A name, or `hf:OWNER/REPO/FILE[@REVISION]`
    name: String,
}

/// Runs the command; prints where the model is.
pub fn run(args: Args) -> Result<()> {
    crate::terminal::catch_interrupts();
    print_line(open::fetch(&args.name)?.display())?;
    Ok(())
}

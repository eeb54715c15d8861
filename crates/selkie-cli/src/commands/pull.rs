//! `selkie pull`: download a model.

use anyhow::Result;

use crate::open;

/// Arguments of `pull`.
#[derive(clap::Args)]
pub struct Args {
    /// A name, or `hf:OWNER/REPO/FILE[@REVISION]`
    name: String,
}

/// Runs the command; prints where the model is.
pub fn run(args: Args) -> Result<()> {
    crate::terminal::catch_interrupts();
    println!("{}", open::fetch(&args.name)?.display());
    Ok(())
}

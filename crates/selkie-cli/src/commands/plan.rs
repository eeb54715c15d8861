//! `selkie plan`: the forward pass as a list.

use std::path::PathBuf;

use anyhow::Result;
use selkie::model_spec::plan::{fuse, plan};
use serde_json::json;

use crate::{
    open,
    terminal::{print_exactly, print_line},
};

/// Arguments of `plan`.
#[derive(clap::Args)]
pub struct Args {
    /// A name, `hf:OWNER/REPO/FILE`, or a path
    model: String,
    /// Show the list as executors run it
    #[arg(long)]
    fused: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    /// A configuration in place of the one beside the weights
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let spec = open::headers(&args.model, args.config.as_deref())?.spec()?;
    let plan = if args.fused { fuse(plan(&spec)) } else { plan(&spec) };
    if args.json {
        let ops: Vec<&str> = plan.ops.iter().map(|op| op.name()).collect();
        let text = plan.print(&spec);
        print_line(json!({ "layers": plan.layers, "ops": ops, "text": text }))?;
        return Ok(());
    }
    Ok(print_exactly(plan.print(&spec).as_bytes())?)
}

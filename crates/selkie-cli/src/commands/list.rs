//! `selkie list`: the models that have names, and those that are here.

use anyhow::Result;
use selkie::models::{self, FetchOptions};
use serde_json::json;

use crate::{commands::inspect::bytes, terminal::print_line};

/// Arguments of `list`.
#[derive(clap::Args)]
pub struct Args {
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let here = models::list(&FetchOptions::from_env());
    if args.json {
        let here: Vec<_> = here
            .iter()
            .map(|m| json!({"model": m.spec.to_string(), "path": m.path.display().to_string(), "bytes": m.size}))
            .collect();
        let named: Vec<_> = models::table()
            .iter()
            .map(|m| json!({"name": m.name, "bytes": m.size, "sha256": m.sha256, "about": m.about, "licence": m.licence}))
            .collect();
        print_line(json!({ "here": here, "named": named }))?;
        return Ok(());
    }
    print_line("Models with names:")?;
    for model in models::table() {
        print_line(format_args!(
            "  {:<14} {:>10}  {} ({})",
            model.name,
            bytes(model.size),
            model.about,
            model.licence
        ))?;
    }
    print_line("\nHere:")?;
    if here.is_empty() {
        print_line("  none yet; `selkie pull NAME` brings one")?;
    }
    for model in here {
        print_line(format_args!("  {:<14} {:>10}  {}", model.spec, bytes(model.size), model.path.display()))?;
    }
    Ok(())
}

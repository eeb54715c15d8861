//! `selkie devices`: what can run models here.

use anyhow::Result;
use selkie::cpu::{Isa, Pool, read_bandwidth};
use serde_json::json;

use crate::terminal::print_line;

/// Arguments of `devices`.
#[derive(clap::Args)]
pub struct Args {
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let threads = Pool::default_threads();
    let sets: Vec<&str> = Isa::available().iter().map(|isa| isa.name()).collect();
    let bandwidth = read_bandwidth(threads);
    if args.json {
        let cpu = json!({"threads": threads, "instruction_sets": sets, "read_bytes_per_second": bandwidth});
        print_line(json!({ "cpu": cpu }))?;
        return Ok(());
    }
    print_line(format_args!(
        "cpu        {threads} threads; {}; memory reads at {:.1} GB/s",
        sets.join(", "),
        bandwidth / 1e9
    ))?;
    print_line("reference  one thread, plain loops: the specification, for comparison")?;
    print_line("gpu        not in this build")?;
    Ok(())
}

//! `selkie devices`: what can run models here.

use anyhow::Result;
use selkie::{
    block_on,
    cpu::{Isa, Pool, read_bandwidth},
    gpu::{Found, Gpu, GpuOptions, Measured, devices},
};
use serde_json::{Value, json};

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
    let gpus = block_on(devices());
    if args.json {
        let cpu = json!({"threads": threads, "instruction_sets": sets, "read_bytes_per_second": bandwidth});
        let gpus: Vec<Value> = gpus.iter().enumerate().map(|(number, gpu)| to_json(number, gpu)).collect();
        print_line(json!({ "cpu": cpu, "gpus": gpus }))?;
        return Ok(());
    }
    print_line(format_args!(
        "cpu        {threads} threads; {}; memory reads at {:.1} GB/s",
        sets.join(", "),
        bandwidth / 1e9
    ))?;
    print_line("reference  one thread, plain loops: the specification, for comparison")?;
    if gpus.is_empty() {
        print_line("gpu        none was found")?;
    }
    for (number, gpu) in gpus.iter().enumerate() {
        report(number, gpu)?;
    }
    Ok(())
}

fn measure(number: usize) -> Result<Measured, selkie::gpu::Error> {
    let options = GpuOptions { device: Some(number.to_string()), ..GpuOptions::default() };
    block_on(async { Gpu::open(&options).await?.measure().await })
}

/// What it has beyond the portable floor, of that which kernels use.
fn features(gpu: &Found) -> Vec<String> {
    let flavours = gpu.flavours;
    let subgroups = flavours.subgroup.map(|size| format!("subgroups of {size}"));
    let named = [
        (flavours.f16, "f16"),
        (flavours.cooperative, "cooperative matrices of 16x16x16"),
        (flavours.packed_dot, "packed dot products"),
        (gpu.timestamps, "timestamps"),
    ];
    subgroups.into_iter().chain(named.iter().filter(|(has, _)| *has).map(|(_, name)| name.to_string())).collect()
}

fn report(number: usize, gpu: &Found) -> Result<()> {
    let kind = if gpu.is_software() { "software that plays a GPU" } else { gpu.kind() };
    print_line(format_args!("gpu {number:<6} {}: {kind}; {}, {}", gpu.name(), gpu.interface(), gpu.driver()))?;
    let features = features(gpu);
    let features = if features.is_empty() { "nothing beyond the portable floor".into() } else { features.join(", ") };
    print_line(format_args!("           has {features}"))?;
    let mega = |bytes: u64| bytes >> 20;
    print_line(format_args!(
        "           allows buffers of {} MiB, {} MiB of one in a kernel, {} KiB of workgroup memory, workgroups of {}",
        mega(gpu.limits.buffer),
        mega(gpu.limits.binding),
        gpu.limits.workgroup_memory >> 10,
        gpu.limits.invocations,
    ))?;
    let micros = |time: std::time::Duration| time.as_secs_f64() * 1e6;
    match measure(number) {
        Ok(measured) => print_line(format_args!(
            "           reads at {:.1} GB/s; a dispatch takes {:.1} us, a submit with its answer {:.0} us",
            measured.read / 1e9,
            micros(measured.dispatch),
            micros(measured.round_trip),
        ))?,
        Err(error) => print_line(format_args!("           cannot be used: {error}"))?,
    }
    Ok(())
}

fn to_json(number: usize, gpu: &Found) -> Value {
    let (flavours, limits) = (gpu.flavours, gpu.limits);
    let mut shown = json!({
        "number": number,
        "name": gpu.name(),
        "kind": gpu.kind(),
        "software": gpu.is_software(),
        "interface": gpu.interface(),
        "driver": gpu.driver(),
        "features": {
            "subgroup_size": flavours.subgroup,
            "f16": flavours.f16,
            "cooperative_matrix_16x16x16": flavours.cooperative,
            "packed_dot": flavours.packed_dot,
            "timestamps": gpu.timestamps,
        },
        "limits": {
            "binding_bytes": limits.binding,
            "buffer_bytes": limits.buffer,
            "workgroup_memory_bytes": limits.workgroup_memory,
            "workgroup_invocations": limits.invocations,
            "workgroups_per_dimension": limits.workgroups,
            "storage_buffers": limits.storage_buffers,
        },
    });
    match measure(number) {
        Ok(measured) => {
            shown["read_bytes_per_second"] = measured.read.into();
            shown["dispatch_seconds"] = measured.dispatch.as_secs_f64().into();
            shown["round_trip_seconds"] = measured.round_trip.as_secs_f64().into();
        }
        Err(error) => shown["error"] = error.to_string().into(),
    }
    shown
}

//! `selkie convert`: between formats and quantisations.

use std::{collections::BTreeMap, fs::File, io::BufWriter, path::PathBuf};

use anyhow::{Result, bail};
use selkie::{
    Opened,
    formats::{
        DType, Tensor, TensorInfo, TensorSpec,
        gguf::{GgufOptions, GgufWriter, Metadata, Value},
        quant,
        safetensors::SafetensorsWriter,
    },
};

use crate::{open, progress, terminal, whole_file};

/// Arguments of `convert`.
#[derive(clap::Args)]
pub struct Args {
    /// A name, `hf:OWNER/REPO/FILE`, or a path
    input: String,
    /// The file to write; its ending is its format
    output: PathBuf,
    /// What matrices are stored as [default: as they are]
    #[arg(long = "type", value_name = "TYPE")]
    dtype: Option<String>,
}

/// Types that there is an encoder for.
const TYPES: &[DType] = &[
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::Q8_0,
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q4_K,
    DType::Q5_K,
    DType::Q6_K,
];

/// Runs the command. The file appears under its name when it is whole.
pub fn run(args: Args) -> Result<()> {
    let wanted = args.dtype.as_deref().map(parse_type).transpose()?;
    let opened = open::headers(&args.input, None)?;
    let from_gguf = opened.checkpoint.gguf.is_some();
    let to_gguf = match args.output.extension().and_then(|e| e.to_str()) {
        Some("gguf") => true,
        Some("safetensors") => false,
        _ => bail!("{}: the ending has to be .gguf or .safetensors", args.output.display()),
    };
    if from_gguf != to_gguf {
        bail!("converting between GGUF and safetensors is not possible yet: only their types can be changed");
    }
    whole_file::refuse_input(&args.output, opened.files.all())?;
    let jobs: Vec<Job<'_>> =
        opened.checkpoint.tensors().iter().map(|info| Job { info, dtype: target(info, wanted, to_gguf) }).collect();
    terminal::catch_interrupts();
    note_other_types(&jobs, wanted);
    whole_file::write(&args.output, |out| write(&opened, &jobs, out))
}

/// Says how many matrices could not become what was wanted.
fn note_other_types(jobs: &[Job<'_>], wanted: Option<DType>) {
    let Some(wanted) = wanted.filter(|dtype| dtype.is_quantised()) else { return };
    let others: Vec<&Job<'_>> = jobs.iter().filter(|job| job.dtype != wanted && job.dtype != job.info.dtype).collect();
    if let Some(first) = others.first() {
        let (n, len, name) = (others.len(), wanted.block_len(), &first.info.name);
        let row = first.info.shape.last().copied().unwrap_or(0);
        terminal::note(format_args!(
            "{n} matrices (`{name}` first) are stored as {}: rows of {row} do not fill {wanted}'s blocks of {len}",
            first.dtype
        ));
    }
}

struct Job<'a> {
    info: &'a TensorInfo,
    dtype: DType,
}

fn parse_type(name: &str) -> Result<DType> {
    match DType::from_name(name).filter(|dtype| TYPES.contains(dtype)) {
        Some(dtype) => Ok(dtype),
        None => {
            let known: Vec<&str> = TYPES.iter().map(|dtype| dtype.name()).collect();
            bail!(crate::args::Usage(format!("--type {name} is none of {}", known.join(", "))))
        }
    }
}

/// Matrices become what is wanted where their rows fill its blocks, else the nearest type that they fill. Lists, routers
/// and what is no weight stay as they are: they are small and matter much.
fn target(info: &TensorInfo, wanted: Option<DType>, to_gguf: bool) -> DType {
    let Some(wanted) = wanted else { return info.dtype };
    let weight = matches!(info.dtype, DType::F32 | DType::F16 | DType::BF16) || info.dtype.is_quantised();
    let precious = info.shape.len() < 2 || info.name.contains("ffn_gate_inp") || info.name.contains("norm");
    if !weight || (precious && wanted.is_quantised()) || (precious && to_gguf) {
        return info.dtype;
    }
    let row = info.shape.last().copied().unwrap_or(0);
    [wanted, DType::Q8_0, DType::F16].into_iter().find(|dtype| dtype.row_bytes(row).is_some()).unwrap_or(info.dtype)
}

fn write(opened: &Opened, jobs: &[Job<'_>], out: BufWriter<File>) -> Result<BufWriter<File>> {
    let specs: Vec<TensorSpec> = jobs
        .iter()
        .map(|job| TensorSpec { name: job.info.name.clone(), dtype: job.dtype, shape: job.info.shape.clone() })
        .collect();
    match &opened.checkpoint.gguf {
        Some(metadata) => {
            let metadata = with_file_type(metadata, jobs);
            let mut out = GgufWriter::new(out, GgufOptions::default(), &metadata, &specs)?;
            each(opened, jobs, |bytes| Ok(out.write(bytes)?))?;
            Ok(out.finish()?)
        }
        None => {
            if let Some(job) = jobs.iter().find(|job| job.dtype.is_quantised()) {
                bail!("{}: safetensors has no type {}", job.info.name, job.dtype);
            }
            let mut notes: BTreeMap<String, String> = opened.checkpoint.notes.clone();
            notes.entry("format".into()).or_insert_with(|| "pt".into());
            let mut out = SafetensorsWriter::new(out, &notes, &specs)?;
            each(opened, jobs, |bytes| Ok(out.write(bytes)?))?;
            Ok(out.finish()?)
        }
    }
}

/// Reads, converts and writes tensor by tensor: one is in memory at a time.
fn each(opened: &Opened, jobs: &[Job<'_>], mut write: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let bar = progress::bar(Some(jobs.len() as u64), "tensor {pos} of {len} {bar:32} {eta}");
    for job in jobs {
        let tensor = selkie::block_on(opened.checkpoint.read(job.info))?;
        write(&convert(&tensor, job)?)?;
        bar.inc(1);
        if terminal::interrupted() {
            bail!("interrupted");
        }
    }
    bar.finish_and_clear();
    Ok(())
}

fn convert(tensor: &Tensor, job: &Job<'_>) -> Result<bytes::Bytes> {
    if tensor.dtype == job.dtype {
        return Ok(tensor.bytes.clone());
    }
    let named = |what: String| anyhow::anyhow!("tensor `{}`: {what}", job.info.name);
    let values = tensor.to_f32().map_err(|e| named(e.to_string()))?;
    let len = job.dtype.row_bytes(values.len()).ok_or_else(|| named(format!("cannot be stored as {}", job.dtype)))?;
    let mut out = vec![0; len];
    quant::encode(job.dtype, &values, &mut out).map_err(|e| named(e.to_string()))?;
    Ok(out.into())
}

/// GGUF names the type that most of a file has; the numbers are those of llama.cpp's `llama_ftype`.
fn with_file_type(metadata: &Metadata, jobs: &[Job<'_>]) -> Metadata {
    let mut counts: BTreeMap<DType, usize> = BTreeMap::new();
    jobs.iter().filter(|job| job.info.shape.len() > 1).for_each(|job| {
        *counts.entry(job.dtype).or_default() += 1;
    });
    let most = counts.into_iter().max_by_key(|(_, count)| *count).map(|(dtype, _)| dtype);
    let number = match most {
        Some(DType::F32) => 0,
        Some(DType::F16) => 1,
        Some(DType::Q4_0) => 2,
        Some(DType::Q4_1) => 3,
        Some(DType::Q8_0) => 7,
        Some(DType::Q5_0) => 8,
        Some(DType::Q5_1) => 9,
        Some(DType::Q4_K) => 15,
        Some(DType::Q5_K) => 17,
        Some(DType::Q6_K) => 18,
        Some(DType::BF16) => 32,
        _ => return metadata.clone(),
    };
    let mut metadata = metadata.clone();
    metadata.set("general.file_type", Value::U32(number));
    metadata
}

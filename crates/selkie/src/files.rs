//! From a path to the files of a model, opened.

use std::{
    fs,
    path::{Path, PathBuf},
    rc::Rc,
};

use selkie_formats::{
    ByteSource, Checkpoint, PartName, gguf, mbjs, parse_lenient_json, safetensors::ShardIndex, sibling_names,
};
use selkie_model::{ModelSpec, families};
use selkie_text::{GgufVocab, HuggingFaceFiles, Tokenizer};
use serde_json::Value;

#[cfg(feature = "native")]
use crate::MappedFile;
use crate::{Error, Result, block_on, convert::tokenizer as kept, model_id::model_id};

/// The files of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelFiles {
    /// What messages call the model: the path that it was opened by.
    pub name: String,
    /// The files with weights, in order.
    pub weights: Vec<PathBuf>,
    /// `model.safetensors.index.json`, which says what lies in which shard.
    pub index: Option<PathBuf>,
    /// `config.json`, for formats that keep no settings in the weights.
    pub config: Option<PathBuf>,
    /// Where `tokenizer.json` and its companions may be.
    pub folder: PathBuf,
}

impl ModelFiles {
    /// Finds the files that belong to `path`: a `.gguf` (the others of a split one too), a `.safetensors`, `.mbjs` or
    /// `.bin` with `config.json` beside it, or a folder with these. `config` overrides the configuration.
    ///
    /// # Errors
    /// Where nothing is there, or nothing that looks like a model.
    pub fn find(path: &Path, config: Option<&Path>) -> Result<Self> {
        let name = path.display().to_string();
        let error = |what: &str| Error::File { path: name.clone(), what: what.into() };
        if !path.exists() {
            return Err(error("there is no such file"));
        }
        let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new(".")) }.to_owned();
        let index_path = folder.join("model.safetensors.index.json");
        let [single, mbjs] = ["model.safetensors", "model.mbjs"].map(|name| folder.join(name));
        let (weights, index) = if !path.is_dir() && !path.ends_with("model.safetensors.index.json") {
            (split_parts(path), None)
        } else if index_path.is_file() {
            let index = ShardIndex::parse(&index_path.display().to_string(), &read(&index_path)?)?;
            (index.shards.iter().map(|shard| folder.join(shard)).collect(), Some(index_path))
        } else if single.is_file() {
            (vec![single], None)
        } else if mbjs.is_file() {
            (vec![mbjs], None)
        } else if let Some(gguf) = only_gguf(&folder) {
            (split_parts(&gguf), None)
        } else {
            let what = "holds no model.safetensors (nor its index), no model.mbjs, and not exactly one .gguf model";
            return Err(error(what));
        };
        let beside = folder.join("config.json");
        let config = config.map(Path::to_owned).or_else(|| beside.is_file().then_some(beside));
        Ok(Self { name, weights, index, config, folder })
    }

    /// Every file that is read: weights, index and configuration.
    pub fn all(&self) -> impl Iterator<Item = &Path> {
        self.weights.iter().chain(&self.index).chain(&self.config).map(PathBuf::as_path)
    }

    /// Opens the files and reads their headers.
    ///
    /// # Errors
    /// Where a file cannot be mapped or its header is malformed.
    #[cfg(feature = "native")]
    pub fn open(self) -> Result<Opened> {
        let sources = self.weights.iter().map(|path| Ok(Rc::new(MappedFile::open(path)?) as Rc<dyn ByteSource>));
        let weights = sources.collect::<Result<Vec<_>>>()?;
        let named = |path: &PathBuf| -> Result<_> { Ok((path.display().to_string(), read(path)?)) };
        let index = self.index.as_ref().map(named).transpose()?;
        let config = self.config.as_ref().map(named).transpose()?;
        let sources = ModelSources { name: self.name.clone(), weights, index, config, text_files: None };
        Ok(Opened { files: self, ..block_on(sources.open())? })
    }
}

/// The files of a model that something other than paths leads to: downloads, or what a page was given.
#[derive(Default)]
pub struct ModelSources {
    /// What messages call the model.
    pub name: String,
    /// The files with weights, in order.
    pub weights: Vec<Rc<dyn ByteSource>>,
    /// `model.safetensors.index.json`, with what messages call it.
    pub index: Option<(String, Vec<u8>)>,
    /// `config.json`, with what messages call it.
    pub config: Option<(String, Vec<u8>)>,
    /// What the text side needs, where the weights' files do not hold it.
    pub text_files: Option<TextFiles>,
}

/// Files of a model's text side.
#[derive(Clone, Debug, Default)]
pub struct TextFiles {
    /// `tokenizer.json`.
    pub tokenizer: Vec<u8>,
    /// `tokenizer_config.json`.
    pub config: Option<Vec<u8>>,
    /// `chat_template.jinja`.
    pub chat_template: Option<Vec<u8>>,
}

impl ModelSources {
    /// Reads the headers.
    ///
    /// # Errors
    /// Where one is malformed, or a source fails.
    pub async fn open(self) -> Result<Opened> {
        let files = ModelFiles { name: self.name.clone(), ..ModelFiles::default() };
        if let Some(source) = self.mbjs_source().await? {
            return self.open_mbjs(source, files).await;
        }
        let mut checkpoint = match &self.index {
            Some((name, bytes)) => {
                let index = ShardIndex::parse(name, bytes)?;
                Checkpoint::open_safetensors(self.weights, Some(&index)).await?
            }
            None => Checkpoint::open(self.weights).await?,
        };
        let text_files = self.text_files;
        if checkpoint.gguf.is_some() {
            return Ok(Opened { files, checkpoint, config: None, text_files });
        }
        let config = match &self.config {
            Some((name, bytes)) => Some((name, parse_lenient_json(name, bytes)?)),
            None => None,
        };
        // The parameters of an MBJS model may lie in a safetensors file that does not say so.
        if let Some((name, json)) = config.as_ref().filter(|(_, json)| mbjs::Config::is_in(json)) {
            checkpoint.mbjs = Some(mbjs::Config::from_json(name, json.clone())?);
        }
        let config = match (config, &checkpoint.mbjs) {
            (_, Some(config)) => Some(Value::Object(config.json().clone())),
            (Some((_, json)), None) => Some(json.get("model").filter(|m| m.is_object()).cloned().unwrap_or(json)),
            (None, None) => None,
        };
        Ok(Opened { files, checkpoint, config, text_files })
    }

    /// The file where it is an MBJS file, or has to be one by its ending.
    async fn mbjs_source(&self) -> Result<Option<Rc<dyn ByteSource>>> {
        let [source] = &self.weights[..] else { return Ok(None) };
        let magic = source.read(0..source.len().min(4)).await?;
        let ending = Path::new(source.name()).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let what = match ending {
            _ if magic[..] == mbjs::MAGIC => return Ok(Some(source.clone())),
            "mbjs" if magic[..] != gguf::MAGIC => "not an MBJS file",
            "bin" if magic[..] != gguf::MAGIC => {
                "not an MBJS file; other files of this ending, such as PyTorch's, have to be converted to safetensors first"
            }
            _ => return Ok(None),
        };
        Err(Error::File { path: source.name().to_owned(), what: what.to_owned() })
    }

    /// Opens an MBJS file by its configuration.
    async fn open_mbjs(self, source: Rc<dyn ByteSource>, files: ModelFiles) -> Result<Opened> {
        let Some((name, json)) = &self.config else {
            let what = "an MBJS file does not hold its model's configuration: put that beside it as config.json, or name \
                        it with --config";
            return Err(Error::File { path: self.name, what: what.to_owned() });
        };
        let config = mbjs::Config::from_json(name, parse_lenient_json(name, json)?)?;
        let checkpoint = Checkpoint::open_mbjs(source, &config).await?;
        let config = Some(Value::Object(config.json().clone()));
        Ok(Opened { files, checkpoint, config, text_files: self.text_files })
    }
}

/// The files of a model, opened: headers are read, weights are not.
pub struct Opened {
    /// Where they are.
    pub files: ModelFiles,
    /// Their tensors.
    pub checkpoint: Checkpoint,
    /// The configuration beside them.
    pub config: Option<Value>,
    /// What the text side needs, where it is in memory; else it lies in the folder, if anywhere.
    pub text_files: Option<TextFiles>,
}

impl Opened {
    /// The schedule of layers.
    ///
    /// # Errors
    /// Where the family is not known, or settings and tensors do not make a model.
    pub fn spec(&self) -> Result<ModelSpec> {
        families::read(&self.checkpoint, self.config.as_ref())
            .map_err(|error| Error::Checkpoint { file: self.files.name.clone(), error })
    }

    /// What tells the model from others: a hash of its settings, its table of tensors and a little of each tensor's bytes
    /// (32 hexadecimal digits). Where the files lie and how they are read makes no difference.
    ///
    /// # Errors
    /// Where the files cannot be read.
    pub fn model_id(&self) -> Result<String> {
        block_on(self.model_id_async())
    }

    /// As [`model_id`](Self::model_id).
    ///
    /// # Errors
    /// As there.
    pub async fn model_id_async(&self) -> Result<String> {
        model_id(&self.checkpoint, self.config.as_ref()).await
    }

    /// The tokenizer: the file's own, else `tokenizer.json` beside it.
    ///
    /// # Errors
    /// Where there is none, or it is malformed.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        if let Some(metadata) = &self.checkpoint.gguf {
            let model = metadata.get_str("tokenizer.ggml.model");
            let listed = model.is_some_and(|model| model != "none" && model != "no_vocab");
            let config = metadata.get_str(kept::CONFIG);
            // The model's own files tell more than lists, where both of them are there.
            if let Some(tokenizer) = metadata.get_str(kept::TOKENIZER).filter(|_| config.is_some() || !listed) {
                let files = HuggingFaceFiles {
                    tokenizer: tokenizer.as_bytes(),
                    config: config.map(str::as_bytes),
                    chat_template: metadata.get_str(kept::TEMPLATE),
                };
                return Tokenizer::from_huggingface(&files).map_err(|error| Error::text(&self.files.name, error));
            }
            if listed {
                let read = GgufVocab::from_metadata(metadata).and_then(|vocab| Tokenizer::from_gguf(&vocab));
                return read.map_err(|error| Error::text(&self.files.name, error));
            }
        }
        let Some(TextFiles { tokenizer, config, chat_template }) = self.text_files()? else {
            return Err(Error::NoTokenizer(self.files.name.clone()));
        };
        let chat_template = chat_template.as_deref().map(str::from_utf8).transpose();
        let chat_template = chat_template.map_err(|e| Error::File {
            path: self.files.folder.join("chat_template.jinja").display().to_string(),
            what: e.to_string(),
        })?;
        Tokenizer::from_huggingface(&HuggingFaceFiles {
            tokenizer: &tokenizer,
            config: config.as_deref(),
            chat_template,
        })
        .map_err(|error| Error::text(&self.files.name, error))
    }

    /// The files of the text side, where there is a tokenizer among them.
    fn text_files(&self) -> Result<Option<TextFiles>> {
        // A model in memory has no files, beside which something could lie.
        if self.text_files.is_some() || self.files.weights.is_empty() {
            return Ok(self.text_files.clone());
        }
        let file = |name: &str| {
            let path = self.files.folder.join(name);
            if path.is_file() { read(&path).map(Some) } else { Ok(None) }
        };
        let Some(tokenizer) = file("tokenizer.json")? else { return Ok(None) };
        let (config, chat_template) = (file("tokenizer_config.json")?, file("chat_template.jinja")?);
        Ok(Some(TextFiles { tokenizer, config, chat_template }))
    }
}

/// A file beside the weights; pipes and devices, which may never end, are none.
fn read(path: &Path) -> Result<Vec<u8>> {
    let error = |what: String| Error::File { path: path.display().to_string(), what };
    if !fs::metadata(path).map_err(|e| error(e.to_string()))?.is_file() {
        return Err(error("is not a file".into()));
    }
    fs::read(path).map_err(|e| error(e.to_string()))
}

/// The file itself, or every part where its name says that it is one of several.
fn split_parts(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    match sibling_names(name).filter(|_| PartName::parse(name).is_some()) {
        Some(names) => names.iter().map(|name| path.with_file_name(name)).collect(),
        None => vec![path.to_owned()],
    }
}

/// The GGUF model in a folder: a single file, or the first of the parts of one.
fn only_gguf(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    let ggufs = entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "gguf"));
    let mut ggufs: Vec<PathBuf> = ggufs.collect();
    ggufs.sort();
    let first = ggufs.first()?;
    let parts = split_parts(first);
    ggufs.iter().all(|gguf| parts.contains(gguf)).then(|| first.clone())
}

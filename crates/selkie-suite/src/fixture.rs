//! A fixture of `fixtures/hf`: the forms of one model, and what they must give.

use std::{fs, path::Path, path::PathBuf, rc::Rc};

use selkie_formats::{ByteSource, Checkpoint, MemorySource, parse_lenient_json, safetensors::ShardIndex};
use selkie_model::{LoadedWeights, ModelSpec, families};
use serde_json::Value;

/// One folder of `fixtures/hf`.
pub struct Case {
    /// Largest difference of a logit.
    pub tolerance: f32,
    /// Whether greedy tokens must be equal.
    pub greedy_required: bool,
    /// The files of the model: safetensors under either configuration, GGUF, quantised twins.
    pub forms: Vec<Files>,
}

/// One form of a model.
pub struct Files {
    /// For messages.
    pub name: String,
    folder: PathBuf,
    weights: Vec<String>,
    config: Option<&'static str>,
    expected: String,
}

/// Ids and the logits of every row.
pub struct Sequence {
    /// Token ids, of all sequences one after another.
    pub ids: Vec<u32>,
    /// `[rows, vocab_size]`.
    pub logits: Vec<f32>,
}

/// A greedy continuation.
pub struct Greedy {
    /// What is continued.
    pub prompt: Vec<u32>,
    /// The tokens that follow.
    pub tokens: Vec<u32>,
    /// The logits that chose each, `[tokens, vocab_size]`.
    pub logits: Vec<f32>,
}

/// What a model must give.
pub struct Expected {
    /// One sequence.
    pub seq: Sequence,
    /// A single token.
    pub one: Option<Sequence>,
    /// Two sequences of equal length.
    pub batch: Option<Sequence>,
    /// A greedy continuation.
    pub greedy: Option<Greedy>,
}

impl Case {
    /// Reads `fixtures/hf/NAME`.
    pub fn open(name: &str) -> Self {
        let folder = crate::fixtures().join("hf").join(name);
        let about = json(&folder.join("expected.json"));
        let mut forms = vec![];
        let mut weights: Vec<String> = files(&folder, ".safetensors");
        weights.retain(|f| f.starts_with("model"));
        if !weights.is_empty() {
            for config in ["config.json", "config.legacy.json"].into_iter().filter(|f| folder.join(f).exists()) {
                forms.push(Files {
                    name: format!("safetensors with {config}"),
                    folder: folder.clone(),
                    weights: weights.clone(),
                    config: Some(config),
                    expected: "expected.safetensors".into(),
                });
            }
        }
        for gguf in files(&folder, ".gguf") {
            let twin = gguf.trim_start_matches("model").trim_end_matches(".gguf").to_owned();
            forms.push(Files {
                name: gguf.clone(),
                folder: folder.clone(),
                weights: vec![gguf],
                config: None,
                expected: format!("expected{twin}.safetensors"),
            });
        }
        Self {
            tolerance: about["tolerance_abs"].as_f64().expect("tolerance_abs") as f32,
            greedy_required: about.get("greedy_required").and_then(Value::as_bool).unwrap_or(true),
            forms,
        }
    }
}

impl Files {
    /// The model's spec and weights.
    pub fn load(&self) -> (ModelSpec, LoadedWeights) {
        let sources = self.weights.iter().map(|file| source(&self.folder.join(file))).collect();
        let config = self.config.map(|file| json(&self.folder.join(file)));
        let index = self.folder.join("model.safetensors.index.json");
        let index = index.exists().then(|| ShardIndex::parse("index", &read(&index)).expect("an index"));
        pollster::block_on(async {
            let checkpoint = match self.config {
                Some(_) => Checkpoint::open_safetensors(sources, index.as_ref()).await,
                None => Checkpoint::open_gguf(sources).await,
            }
            .unwrap_or_else(|e| panic!("{}: {e}", self.name));
            let spec = families::read(&checkpoint, config.as_ref()).unwrap_or_else(|e| panic!("{}: {e}", self.name));
            let weights = spec.weights.load(&checkpoint).await.expect("weights");
            (spec, weights)
        })
    }

    /// What this form must give.
    pub fn expected(&self) -> Expected {
        let file = source(&self.folder.join(&self.expected));
        let file = pollster::block_on(Checkpoint::open_safetensors(vec![file], None)).expect("expected values");
        let floats = |name: &str| pollster::block_on(file.load(name)).expect(name).to_f32().expect(name);
        let ids = |name: &str| -> Vec<u32> {
            let bytes = pollster::block_on(file.load(name)).expect(name).bytes;
            bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
        };
        let sequence = |name: &str| {
            let (i, l) = (format!("{name}.input_ids"), format!("{name}.logits"));
            file.get(&i).map(|_| Sequence { ids: ids(&i), logits: floats(&l) })
        };
        Expected {
            seq: sequence("seq").expect("seq"),
            one: sequence("one"),
            batch: sequence("batch"),
            greedy: file.get("greedy.prompt").map(|_| Greedy {
                prompt: ids("greedy.prompt"),
                tokens: ids("greedy.tokens"),
                logits: floats("greedy.logits"),
            }),
        }
    }
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

pub(crate) fn json(path: &Path) -> Value {
    parse_lenient_json(&path.display().to_string(), &read(path)).expect("JSON")
}

pub(crate) fn source(path: &Path) -> Rc<dyn ByteSource> {
    Rc::new(MemorySource::new(path.display().to_string(), read(path)))
}

fn files(folder: &Path, ending: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let names = entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|n| n.ends_with(ending)).collect();
    names.sort();
    names
}

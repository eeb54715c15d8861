//! What the tests of the command share: running it apart from the person's own files, and small models.

#![allow(dead_code, reason = "not every test uses all of it")]

use std::{
    fs::{self, File},
    io::{BufWriter, Read, Write},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use selkie::{
    MappedFile, ModelFiles, block_on,
    formats::{
        Checkpoint, TensorSpec,
        gguf::{GgufOptions, GgufWriter, Value},
    },
};
use tempfile::TempDir;

/// A file or folder of `fixtures/`.
pub fn fixture(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(path).display().to_string()
}

/// A JSON file of `fixtures/`.
pub fn fixture_json(path: &str) -> serde_json::Value {
    serde_json::from_slice(&fs::read(fixture(path)).expect(path)).expect(path)
}

/// `selkie` with a home of its own and without a network.
pub fn command(args: &[&str]) -> Command {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("home");
    let mut command = Command::new(env!("CARGO_BIN_EXE_selkie"));
    command.args(args).env("SELKIE_HOME", home.join("selkie")).env("HF_HOME", home.join("hub"));
    command.env("HF_HUB_OFFLINE", "1").env_remove("SELKIE_LOG").stdin(Stdio::null());
    command
}

/// What came of running it with `input` on standard input.
pub fn run_with(args: &[&str], input: &[u8]) -> Output {
    let mut command = command(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("selkie starts");
    // A command that does not read its input closes it.
    let _ = child.stdin.take().expect("a pipe").write_all(input);
    child.wait_with_output().expect("selkie ends")
}

/// The bytes on standard output of a run that has to succeed.
pub fn bytes(args: &[&str]) -> Vec<u8> {
    succeeded(args, command(args).output().expect("selkie runs"))
}

/// As [`bytes`], as text.
pub fn text(args: &[&str]) -> String {
    String::from_utf8(bytes(args)).expect("UTF-8")
}

/// As [`text`], with `input` on standard input.
pub fn text_with(args: &[&str], input: &[u8]) -> String {
    String::from_utf8(succeeded(args, run_with(args, input))).expect("UTF-8")
}

/// As [`text`], as one JSON value.
pub fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&text(args)).unwrap_or_else(|e| panic!("{args:?}: {e}"))
}

/// As [`text`], as a JSON value a line.
pub fn json_lines(args: &[&str]) -> Vec<serde_json::Value> {
    text(args).lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{args:?}: {e}"))).collect()
}

fn succeeded(args: &[&str], output: Output) -> Vec<u8> {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {}\n{errors}", output.status);
    output.stdout
}

/// What a run says that has to fail: exit code 1, nothing on standard output, one line on standard error, given here
/// without `selkie: ` before it.
pub fn failure(args: &[&str]) -> String {
    one_line(args, command(args).output().expect("selkie runs"))
}

/// As [`failure`], with `input` on standard input.
pub fn failure_with(args: &[&str], input: &[u8]) -> String {
    one_line(args, run_with(args, input))
}

fn one_line(args: &[&str], output: Output) -> String {
    let errors = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(1), "{args:?}: {errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{args:?}");
    let line = errors.strip_suffix('\n').and_then(|line| line.strip_prefix("selkie: "));
    let line = line.filter(|line| !line.contains('\n') && !line.is_empty());
    line.unwrap_or_else(|| panic!("{args:?}: not one line: {errors:?}")).to_owned()
}

/// Runs it with flags that make no sense: exit code 2.
pub fn wrong_usage(args: &[&str]) -> String {
    let output = command(args).output().expect("selkie runs");
    let errors = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
    assert!(output.stdout.is_empty(), "{args:?}");
    errors
}

/// Tensors of a safetensors file.
pub struct Tensors(Checkpoint);

impl Tensors {
    /// Opens the file.
    pub fn open(path: impl AsRef<Path>) -> Self {
        Self(ModelFiles::find(path.as_ref(), None).and_then(ModelFiles::open).expect("a tensor file").checkpoint)
    }

    /// The tensors' names, sorted.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.0.tensors().iter().map(|tensor| tensor.name.as_str()).collect();
        names.sort_unstable();
        names
    }

    /// A tensor's shape.
    pub fn shape(&self, name: &str) -> Vec<usize> {
        self.0.get(name).expect(name).shape.clone()
    }

    /// A tensor of token ids.
    pub fn ids(&self, name: &str) -> Vec<u32> {
        let bytes = block_on(self.0.load(name)).expect(name).bytes;
        bytes.as_chunks::<4>().0.iter().map(|id| u32::from_le_bytes(*id)).collect()
    }

    /// As [`ids`](Self::ids), as they are typed.
    pub fn typed(&self, name: &str) -> String {
        typed(&self.ids(name))
    }

    /// A tensor of floating-point numbers.
    pub fn floats(&self, name: &str) -> Vec<f32> {
        block_on(self.0.load(name)).expect(name).to_f32().expect(name)
    }
}

/// Ids as `--ids` takes them.
pub fn typed(ids: &[u32]) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// The largest difference of two lists.
pub fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// A folder that goes when the test ends.
pub struct Folder(TempDir);

impl Folder {
    /// An empty folder.
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Writes a file; gives its path.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        fs::write(self.0.path().join(name), bytes).expect("written");
        self.path(name)
    }

    /// Copies a fixture; gives its path.
    pub fn copy(&self, from: &str, name: &str) -> String {
        self.write(name, fs::read(fixture(from)).expect(from))
    }
}

/// A chat template of one line a message.
pub const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}\
                            {% if add_generation_prompt %}assistant: {% endif %}";

/// A small model that holds conversations, of random weights: it babbles. Its context is longer than the fixture's.
pub fn chat_model(folder: &Folder, template: &str) -> String {
    let changes =
        [("tokenizer.chat_template", Value::String(template.into())), ("llama.context_length", Value::U32(1 << 20))];
    changed_model(folder, "hf/llama-gqa/model.gguf", &changes)
}

/// A GGUF fixture with other settings.
pub fn changed_model(folder: &Folder, from: &str, changes: &[(&str, Value)]) -> String {
    let source = MappedFile::open(fixture(from).as_ref()).expect(from);
    let checkpoint = block_on(Checkpoint::open(vec![std::rc::Rc::new(source)])).expect(from);
    let mut metadata = checkpoint.gguf.clone().expect("metadata");
    changes.iter().for_each(|(key, value)| {
        metadata.set(*key, value.clone());
    });
    let spec =
        |t: &selkie::formats::TensorInfo| TensorSpec { name: t.name.clone(), dtype: t.dtype, shape: t.shape.clone() };
    let specs: Vec<TensorSpec> = checkpoint.tensors().iter().map(spec).collect();
    let path = PathBuf::from(folder.path("chat.gguf"));
    let out = BufWriter::new(File::create(&path).expect("created"));
    let mut out = GgufWriter::new(out, GgufOptions::default(), &metadata, &specs).expect("a header");
    for tensor in checkpoint.tensors() {
        out.write(&block_on(checkpoint.read(tensor)).expect("read").bytes).expect("written");
    }
    out.finish().expect("written").flush().expect("written");
    path.display().to_string()
}

/// The text side of SmolLM2, which the repository keeps without weights.
pub fn smollm2_text(folder: &Folder) -> String {
    let file = File::open(fixture("text/smollm2.gguf.gz")).expect("a fixture");
    let mut bytes = vec![];
    flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).expect("unpacked");
    folder.write("smollm2.gguf", bytes)
}

//! What a MODEL argument means: a name, a file on the hub, or a path.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::error::{Error, Result};
use super::table::{ModelEntry, table};

/// A model, before anybody has looked whether it is here.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelRef {
    /// A row of the [`table`](super::table()).
    Name(&'static ModelEntry),
    /// A file on the hub.
    Hub(HubFile),
    /// A file or folder that exists.
    Path(PathBuf),
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelRef::Name(entry) => f.write_str(entry.name),
            ModelRef::Hub(file) => file.fmt(f),
            ModelRef::Path(path) => path.display().fmt(f),
        }
    }
}

/// A file on the Hugging Face hub, written `hf:OWNER/REPO/FILE[@REVISION]`.
///
/// The parts hold nothing that could lead out of a folder, so paths may be made of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HubFile {
    /// Who owns the repository.
    pub owner: String,
    /// The repository's name.
    pub repo: String,
    /// The file's path inside the repository, with slashes.
    pub file: String,
    /// A branch, a tag or a commit; the branch `main` if none.
    pub revision: Option<String>,
}

impl HubFile {
    /// The revision to ask the hub for.
    pub fn revision_or_main(&self) -> &str {
        self.revision.as_deref().unwrap_or("main")
    }
}

impl fmt::Display for HubFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hf:{}/{}/{}", self.owner, self.repo, self.file)?;
        match &self.revision {
            Some(revision) => write!(f, "@{revision}"),
            None => Ok(()),
        }
    }
}

/// Reads `[hf:]OWNER/REPO/FILE[@REVISION]`. The last `@` starts the revision.
impl FromStr for HubFile {
    type Err = Error;

    fn from_str(spec: &str) -> Result<Self> {
        let wrong = |what: String| Error::Spec { spec: spec.to_owned(), what };
        let rest = spec.strip_prefix("hf:").unwrap_or(spec);
        let (path, revision) = match rest.rsplit_once('@') {
            Some((path, revision)) => (path, Some(revision)),
            None => (rest, None),
        };
        let mut parts = path.splitn(3, '/');
        let (Some(owner), Some(repo), Some(file)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(wrong(
                "a file on the hub is written hf:OWNER/REPO/FILE, with @REVISION after it if you like".into(),
            ));
        };
        for (what, part) in [("owner", owner), ("repository", repo)] {
            let plain = part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
            // The hub forbids `--`, which separates owner and repository in its cache's folder names.
            if !plain || part.is_empty() || part.starts_with('.') || part.contains("..") || part.contains("--") {
                return Err(wrong(format!("`{part}` is not the name of {what} on the hub")));
            }
        }
        check_path(file).map_err(|what| wrong(format!("the file `{file}` {what}")))?;
        if let Some(revision) = revision {
            check_path(revision).map_err(|what| wrong(format!("the revision `{revision}` {what}")))?;
        }
        let own = str::to_owned;
        Ok(Self { owner: own(owner), repo: own(repo), file: own(file), revision: revision.map(own) })
    }
}

/// Whether `path` (with slashes) stays inside the folder it is joined to, on every system. `Err` says why not.
pub(super) fn check_path(path: &str) -> Result<(), String> {
    if path.chars().any(|c| c.is_control() || "\\:*?\"<>|".contains(c)) {
        return Err("has characters that no file name should have".into());
    }
    if path.split('/').any(|part| part.is_empty() || part.trim_end_matches(['.', ' ']).is_empty()) {
        return Err("is not a path inside a repository".into());
    }
    Ok(())
}

/// What a MODEL argument means.
///
/// A path that exists wins; then comes `hf:OWNER/REPO/FILE[@REVISION]`; then the names of the
/// [`table`](super::table()), in upper or lower case. Looks at the disk for the first rule, never at the network.
///
/// # Errors
///
/// [`Error::UnknownName`] with the names that are spelt alike, [`Error::NoSuchPath`] for what can only be a path,
/// [`Error::Spec`] for a malformed `hf:`.
pub fn resolve(spec: &str) -> Result<ModelRef> {
    if spec.trim().is_empty() {
        return Err(Error::Spec { spec: spec.to_owned(), what: "give a name, hf:OWNER/REPO/FILE or a path".into() });
    }
    if Path::new(spec).exists() {
        return Ok(ModelRef::Path(spec.into()));
    }
    if spec.starts_with("hf:") {
        return spec.parse().map(ModelRef::Hub);
    }
    if let Some(entry) = table().iter().find(|entry| entry.name.eq_ignore_ascii_case(spec)) {
        return Ok(ModelRef::Name(entry));
    }
    let extension = Path::new(spec).extension().and_then(|e| e.to_str()).unwrap_or("");
    if spec.contains(['/', '\\']) || ["gguf", "safetensors", "mbjs", "bin"].contains(&extension) {
        return Err(Error::NoSuchPath { path: spec.into() });
    }
    Err(Error::UnknownName { name: spec.to_owned(), closest: closest(spec) })
}

/// The names spelt most like `name`, the closest first; all names if none is alike.
fn closest(name: &str) -> Vec<&'static str> {
    let name = name.to_ascii_lowercase();
    let mut scored: Vec<(usize, &'static str)> = (table().iter())
        .map(|entry| {
            let related = entry.name.starts_with(&name) || name.starts_with(entry.name);
            (if related { 0 } else { distance(&name, entry.name) }, entry.name)
        })
        .collect();
    scored.sort();
    let limit = name.chars().count().max(4) / 2;
    let alike: Vec<_> = scored.iter().filter(|(score, _)| *score <= limit).map(|(_, name)| *name).collect();
    if alike.is_empty() { table().iter().map(|entry| entry.name).collect() } else { alike }
}

/// How many characters must be inserted, removed or replaced to make `b` of `a`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(spec: &str) -> HubFile {
        spec.parse().expect("a hub file")
    }

    #[test]
    fn hub_files() {
        let file = hub("hf:owner/repo.v1/sub/dir/model.gguf@refs/pr/7");
        assert_eq!((file.owner.as_str(), file.repo.as_str()), ("owner", "repo.v1"));
        assert_eq!(file.file, "sub/dir/model.gguf");
        assert_eq!(file.revision_or_main(), "refs/pr/7");
        assert_eq!(file.to_string(), "hf:owner/repo.v1/sub/dir/model.gguf@refs/pr/7");
        assert_eq!(hub("hf:o/r/f.gguf").revision_or_main(), "main");
    }

    #[test]
    fn hub_files_stay_inside() {
        for spec in [
            "hf:",
            "hf:o",
            "hf:o/r",
            "hf:o/r/",
            "hf:o/r/f@",
            "hf:../r/f",
            "hf:o/../f",
            "hf:o/r/../f",
            "hf:o/r/a/../../f",
            "hf:o/r//f",
            "hf:o/r/c:f",
            "hf:o/r/a\\..\\f",
            "hf:o/r/f@../x",
            "hf:o/r/. /f",
            "hf:a--b/r/f",
            "hf:o/r/a\nb",
        ] {
            assert!(spec.parse::<HubFile>().is_err(), "{spec:?}");
        }
    }

    #[test]
    fn arguments() {
        assert!(matches!(resolve("SmolLM2"), Ok(ModelRef::Name(entry)) if entry.name == "smollm2"));
        assert!(matches!(resolve("."), Ok(ModelRef::Path(_))));
        assert!(matches!(resolve("hf:o/r/f"), Ok(ModelRef::Hub(_))));
        assert!(matches!(resolve("nowhere/model.gguf"), Err(Error::NoSuchPath { .. })));
        assert!(matches!(resolve(" "), Err(Error::Spec { .. })));
        let error = resolve("smolm2").expect_err("misspelt").to_string();
        assert!(error.contains("did you mean smollm2?"), "{error}");
        let error = resolve("gemma").expect_err("a prefix").to_string();
        assert!(error.contains("did you mean gemma3-270m?"), "{error}");
        let error = resolve("entirely-different").expect_err("unknown").to_string();
        assert!(error.contains("smollm2, gemma3-270m"), "{error}");
    }
}

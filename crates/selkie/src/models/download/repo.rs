//! The files of a hub repository that belong together.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::Fail;
use super::disk::{Expected, Lock, disk, is_as_expected};
use super::http::Client;
use super::hub;
use super::hub_cache::{Found, RepoCache, is_plain};
use super::options::FetchOptions;
use crate::models::error::{Error, Result};
use crate::models::name::{HubFile, check_path};
use crate::models::progress::Progress;

/// What lies beside weights that do not carry it themselves. Fetched where it exists.
const COMPANIONS: [&str; 5] =
    ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"];

const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

impl HubFile {
    /// Another file of the same repository and revision. [`Error::Spec`] if `file` is no path inside a repository.
    fn renamed(&self, file: &str) -> Result<Self> {
        check_path(file).map_err(|what| Error::Spec { spec: self.to_string(), what: format!("`{file}` {what}") })?;
        Ok(Self { file: file.to_owned(), ..self.clone() })
    }

    /// The file `name` in the same folder.
    fn beside(&self, name: &str) -> Result<Self> {
        match self.file.rsplit_once('/') {
            Some((folder, _)) => self.renamed(&format!("{folder}/{name}")),
            None => self.renamed(name),
        }
    }

    /// The file's name without its folders.
    pub(super) fn base_name(&self) -> &str {
        self.file.rsplit('/').next().unwrap_or(&self.file)
    }
}

/// Brings `file` and what belongs to it; says what to open.
pub(super) fn fetch(file: &HubFile, options: &FetchOptions, progress: &mut dyn Progress) -> Result<PathBuf> {
    let cache = options.hub_cache.as_deref().ok_or(Error::NoHome { what: "set HF_HOME (or HOME)" })?;
    let repo = RepoCache::new(cache, file);
    let mut visit = Visit { repo, options, client: None, revision: file.revision_or_main(), commit: None };
    visit.all(file, progress).map_err(|fail| match fail {
        Fail::Stop(error) => error,
        Fail::Absent(why) | Fail::Source(why) | Fail::Broken(why) => {
            Error::Unavailable { model: file.to_string(), attempts: vec![why] }
        }
    })
}

/// One look at a repository. All its files come from one commit, even if the branch moves meanwhile.
struct Visit<'a> {
    repo: RepoCache,
    options: &'a FetchOptions,
    client: Option<Client<'a>>,
    revision: &'a str,
    commit: Option<String>,
}

impl Visit<'_> {
    fn all(&mut self, file: &HubFile, progress: &mut dyn Progress) -> Result<PathBuf, Fail> {
        if let Some(parts) = split_parts(&file.file) {
            let mut first = None;
            for part in parts {
                let path = self.one(&file.renamed(&part)?, progress)?;
                first.get_or_insert(path);
            }
            return first.ok_or_else(|| Fail::Source(format!("{file} names no part")));
        }
        let weights = match self.one(file, progress) {
            // Large models have an index of shards instead.
            Err(Fail::Absent(why)) if file.base_name() == WEIGHTS => {
                let index = self.one(&file.beside(INDEX)?, progress);
                self.shards(
                    file,
                    &index.map_err(|fail| if is_absent(&fail) { Fail::Absent(why) } else { fail })?,
                    progress,
                )?
            }
            Ok(path) if file.base_name() == INDEX => self.shards(file, &path, progress)?,
            other => other?,
        };
        let is_folder = [WEIGHTS, INDEX].contains(&file.base_name());
        if !is_folder && !file.file.ends_with(".mbjs") {
            return Ok(weights);
        }
        for name in COMPANIONS {
            match self.one(&file.beside(name)?, progress) {
                Ok(_) | Err(Fail::Absent(_)) => {}
                Err(Fail::Source(why) | Fail::Broken(why)) => {
                    // The weights are here. Whoever opens them knows whether the rest is needed.
                    progress.note(&format!("{name}: {why}"));
                    break;
                }
                Err(stop) => return Err(stop),
            }
        }
        Ok(if is_folder { weights.parent().map(Path::to_owned).unwrap_or(weights) } else { weights })
    }

    /// Brings the shards that an index lists, and gives the index back.
    fn shards(&mut self, file: &HubFile, index: &Path, progress: &mut dyn Progress) -> Result<PathBuf, Fail> {
        let text = fs::read(index).map_err(disk(index))?;
        let malformed = || Fail::Source(format!("{}: this is no index of shards", index.display()));
        let json: serde_json::Value = serde_json::from_slice(&text).map_err(|_| malformed())?;
        let map = json.get("weight_map").and_then(|map| map.as_object()).ok_or_else(malformed)?;
        let shards: BTreeSet<&str> = map.values().filter_map(|shard| shard.as_str()).collect();
        for shard in shards {
            self.one(&file.beside(shard)?, progress)?;
        }
        Ok(index.to_owned())
    }

    /// Brings one file.
    fn one(&mut self, file: &HubFile, progress: &mut dyn Progress) -> Result<PathBuf, Fail> {
        let known = match &self.commit {
            Some(commit) => Some(commit.clone()),
            None if self.options.refresh => None,
            None => self.repo.commit_of(self.revision),
        };
        let absent = || Fail::Absent(format!("{}/{} has no file {}", file.owner, file.repo, file.file));
        if let Some(commit) = known {
            match self.repo.find(&commit, &file.file) {
                Found::Here(path) => {
                    self.commit = Some(commit);
                    return Ok(path);
                }
                Found::Absent => return Err(absent()),
                Found::Unknown => {}
            }
        }
        if self.options.offline {
            return Err(Fail::Source(format!("{} is not here, and HF_HUB_OFFLINE forbids the network", file.file)));
        }
        let asked = self.commit.clone().unwrap_or_else(|| self.revision.to_owned());
        let options = self.options;
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(Client::new(options)?),
        };
        let described = match hub::describe(client, file, &asked, progress) {
            Err(Fail::Absent(why)) => {
                if let Some(commit) = &self.commit {
                    self.repo.remember_absent(commit, &file.file)?;
                }
                return Err(Fail::Absent(why));
            }
            other => other?,
        };
        let plain = |word: Option<String>| word.filter(|word| is_plain(word));
        let (Some(commit), Some(etag)) = (plain(described.commit), plain(described.etag)) else {
            return Err(Fail::Source(format!("{} does not answer as the hub does", options.endpoint)));
        };
        let here = || matches!(self.repo.find(&commit, &file.file), Found::Here(_));
        let blob = self.repo.blob(&etag);
        // Bytes that are here have been checked when they came; their name is their checksum.
        let size = Expected { size: described.expected.size, sha256: None };
        if !here() && !is_as_expected(&blob, &size, progress)? {
            let lock = Lock::acquire(&self.repo.lock(&etag), file.base_name(), progress)?;
            // The one who held the lock may have brought it.
            if !here() && !is_as_expected(&blob, &size, progress)? {
                hub::download(client, file, &commit, &described.expected, &lock, &blob, progress)?;
            }
        }
        let path =
            if here() { self.repo.pointer(&commit, &file.file) } else { self.repo.link(&etag, &commit, &file.file)? };
        self.repo.remember(self.revision, &commit)?;
        self.commit = Some(commit);
        Ok(path)
    }
}

fn is_absent(fail: &Fail) -> bool {
    matches!(fail, Fail::Absent(_))
}

/// All parts of a split GGUF, if `file` is one of them: `…-00002-of-00005.gguf`.
fn split_parts(file: &str) -> Option<Vec<String>> {
    let stem = file.strip_suffix(".gguf")?;
    let (stem, total) = stem.rsplit_once("-of-")?;
    let (stem, number) = stem.rsplit_once('-')?;
    let digits = |text: &str| text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(number) || !digits(total) {
        return None;
    }
    let count: u32 = total.parse().ok()?;
    let number: u32 = number.parse().ok()?;
    (1..=count).contains(&number).then(|| (1..=count).map(|i| format!("{stem}-{i:05}-of-{total}.gguf")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours() {
        let file: HubFile = "hf:o/r/sub/m.gguf@v2".parse().expect("a hub file");
        assert_eq!(file.base_name(), "m.gguf");
        assert_eq!(
            file.beside("config.json").map(|f| f.to_string()).ok().as_deref(),
            Some("hf:o/r/sub/config.json@v2")
        );
        assert!(file.beside("../../x").is_err() && file.renamed("/x").is_err());
    }

    #[test]
    fn parts() {
        assert_eq!(
            split_parts("q4/m-00002-of-00003.gguf"),
            Some((1..=3).map(|i| format!("q4/m-0000{i}-of-00003.gguf")).collect())
        );
        for whole in
            ["m.gguf", "m-1-of-2.gguf", "m-00004-of-00003.gguf", "m-00000-of-00000.gguf", "m-00001-of-00002.bin"]
        {
            assert_eq!(split_parts(whole), None, "{whole}");
        }
    }
}

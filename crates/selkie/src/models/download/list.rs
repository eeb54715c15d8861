//! What is here.

use std::fs;
use std::path::{Path, PathBuf};

use super::find_name;
use super::hub_cache::RepoCache;
use super::options::FetchOptions;
use crate::models::name::HubFile;
use crate::models::progress::Quiet;
use crate::models::table::table;

/// A model whose files are here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalModel {
    /// What to give as MODEL: a name, or `hf:OWNER/REPO/FILE`, with `@COMMIT` unless that is what `main` stands for.
    pub spec: String,
    /// The weights' file. Of several parts or shards, the first part or the index.
    pub path: PathBuf,
    /// Bytes of the weights, all parts or shards together.
    pub size: u64,
}

/// The models that are here: named ones in the table's order, then those in the hub's cache, sorted.
///
/// Weights in other formats, half-fetched files, and folders that cannot be read are left out.
pub fn list(options: &FetchOptions) -> Vec<LocalModel> {
    let mut found = Vec::new();
    for entry in table() {
        if let Ok(Some(path)) = find_name(entry, options, &mut Quiet) {
            found.push(LocalModel { spec: entry.name.into(), path, size: entry.size });
        }
    }
    let named: Vec<PathBuf> = found.iter().map(|model| model.path.clone()).collect();
    let mut cached = options.hub_cache.as_deref().map(in_hub_cache).unwrap_or_default();
    cached.retain(|model| !named.contains(&model.path));
    cached.sort_by(|a, b| a.spec.cmp(&b.spec));
    found.extend(cached);
    found
}

fn in_hub_cache(cache: &Path) -> Vec<LocalModel> {
    let mut found = Vec::new();
    for (name, folder) in children(cache) {
        let Some((owner, repo)) = name.strip_prefix("models--").and_then(|name| name.split_once("--")) else {
            continue;
        };
        for (commit, snapshot) in children(&folder.join("snapshots")) {
            let mut files = Vec::new();
            collect(&snapshot, "", 0, &mut files);
            for (file, path, bytes) in &files {
                let Some(size) = weights_size(file, *bytes, &files) else { continue };
                // What is not well-formed has not been put there by the hub's tools.
                let Ok(mut spec) = format!("{owner}/{repo}/{file}@{commit}").parse::<HubFile>() else { continue };
                if RepoCache::new(cache, &spec).commit_of("main").is_some_and(|main| main == commit) {
                    spec.revision = None;
                }
                found.push(LocalModel { spec: spec.to_string(), path: path.clone(), size });
            }
        }
    }
    found
}

/// A file's path inside its snapshot, its path here, its bytes.
type Item = (String, PathBuf, u64);

/// The bytes of the weights that `file` stands for. `None` if it is no weights, or only a part of some.
fn weights_size(file: &str, bytes: u64, all: &[Item]) -> Option<u64> {
    let sum = |stem: &str, ending: &str| {
        let parts = all.iter().filter(|(name, ..)| name.strip_prefix(stem).is_some_and(|rest| rest.ends_with(ending)));
        parts.map(|(_, _, bytes)| bytes).sum()
    };
    if let Some(stem) = file.strip_suffix(".safetensors.index.json") {
        return Some(sum(&format!("{stem}-"), ".safetensors"));
    }
    let (stem, ending) = file.rsplit_once('.')?;
    if !["gguf", "safetensors", "mbjs"].contains(&ending) {
        return None;
    }
    match stem.rsplit_once("-of-") {
        Some((start, total)) if total.len() == 5 && total.bytes().all(|b| b.is_ascii_digit()) => {
            let stem = start.strip_suffix("00001").filter(|_| ending == "gguf")?;
            Some(sum(stem, &format!("-of-{total}.gguf")))
        }
        _ => Some(bytes),
    }
}

/// All files below `folder`, without those whose link leads nowhere.
fn collect(folder: &Path, prefix: &str, depth: usize, files: &mut Vec<Item>) {
    for (name, path) in children(folder) {
        let Ok(meta) = fs::metadata(&path) else { continue };
        if meta.is_file() {
            files.push((format!("{prefix}{name}"), path, meta.len()));
        } else if depth < 8 {
            collect(&path, &format!("{prefix}{name}/"), depth + 1, files);
        }
    }
}

fn children(folder: &Path) -> Vec<(String, PathBuf)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()).filter_map(|e| Some((e.file_name().into_string().ok()?, e.path()))).collect()
}

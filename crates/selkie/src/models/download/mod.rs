//! Making sure that a model's files are here.

mod disk;
mod http;
mod hub;
mod hub_cache;
mod list;
mod options;
mod pip;
mod repo;

use std::fs;
use std::path::{Path, PathBuf};

use self::disk::{Expected, Lock, is_as_expected};
use self::http::Client;
use self::hub_cache::{Found, RepoCache};
use crate::models::error::{Error, Result};
use crate::models::name::{HubFile, ModelRef};
use crate::models::progress::Progress;
use crate::models::table::{ModelEntry, Source};

pub use self::list::{LocalModel, list};
pub use self::options::{FetchOptions, Timeouts};

/// Why something did not come, and so what to do next.
enum Fail {
    /// The server says that there is no such file.
    Absent(String),
    /// The source cannot help.
    Source(String),
    /// The connection did not come about or broke: the same source may do better later.
    Broken(String),
    /// No other source would do better.
    Stop(Error),
}

impl From<Error> for Fail {
    fn from(error: Error) -> Self {
        Fail::Stop(error)
    }
}

/// [`Error::Cancelled`] once `progress` says so.
fn stop_if_cancelled(progress: &dyn Progress, what: &str) -> Result<()> {
    if progress.cancelled() { Err(Error::Cancelled { what: what.to_owned() }) } else { Ok(()) }
}

/// Makes sure that a model is here, and says where: the file to open, or the folder with its `config.json`.
///
/// What is here already is used without any network, and a path is only looked at. Otherwise the sources are tried in
/// order; the reason why one was given up is told in one line by [`Progress::note`].
///
/// Of an `hf:` model all files come that belong together: the parts of a split GGUF (the first is returned), the shards
/// of a `model.safetensors.index.json`, and configuration and tokenizer beside `model.safetensors` (the folder is
/// returned) or a `.mbjs`.
///
/// # Errors
///
/// [`Error::Unavailable`] if every source failed, [`Error::Disk`] if the disk refuses, [`Error::Cancelled`],
/// [`Error::NoSuchPath`], [`Error::NoHome`] if `options` name no folder to keep files in.
pub fn fetch(model: &ModelRef, options: &FetchOptions, progress: &mut dyn Progress) -> Result<PathBuf> {
    match model {
        ModelRef::Path(path) if path.exists() => Ok(path.clone()),
        ModelRef::Path(path) => Err(Error::NoSuchPath { path: path.clone() }),
        ModelRef::Hub(file) => repo::fetch(file, options, progress),
        ModelRef::Name(entry) => fetch_name(entry, options, progress),
    }
}

fn fetch_name(entry: &'static ModelEntry, options: &FetchOptions, progress: &mut dyn Progress) -> Result<PathBuf> {
    if let Some(path) = find_name(entry, options, progress)? {
        return Ok(path);
    }
    let unavailable = |attempts| Error::Unavailable { model: entry.name.into(), attempts };
    if options.offline {
        return Err(unavailable(vec!["it is not here, and HF_HUB_OFFLINE forbids the network".into()]));
    }
    let home = options.selkie_home.as_deref().ok_or(Error::NoHome { what: "set SELKIE_HOME (or HOME)" })?;
    let lock = Lock::acquire(&home.join("locks").join(format!("{}.lock", entry.name)), entry.name, progress)?;
    // The one who held the lock may have brought it.
    if let Some(path) = find_name(entry, options, progress)? {
        return Ok(path);
    }
    let dest = place(home, entry);
    let mut attempts: Vec<String> = Vec::new();
    for source in entry.sources {
        if let Some(line) = attempts.last() {
            progress.note(&format!("{line}; trying {}", describe(source)));
        }
        let why = match from_source(source, entry, options, &lock, &dest, progress) {
            Ok(()) => return Ok(dest),
            Err(Fail::Stop(error)) => return Err(error),
            Err(Fail::Absent(why) | Fail::Source(why) | Fail::Broken(why)) => why,
        };
        attempts.push(format!("{}: {why}", describe(source)));
    }
    Err(unavailable(attempts))
}

fn from_source(
    source: &Source,
    entry: &ModelEntry,
    options: &FetchOptions,
    lock: &Lock,
    dest: &Path,
    progress: &mut dyn Progress,
) -> Result<(), Fail> {
    let expected = expected(entry);
    match source {
        Source::Hub(spec) => {
            let file: HubFile = spec.parse()?;
            let client = Client::new(options)?;
            hub::download(&client, &file, file.revision_or_main(), &expected, lock, dest, progress)
        }
        Source::Wheels(wheels) => pip::fetch(wheels, entry, options, lock, dest, progress),
    }
}

/// What a named file must be.
fn expected(entry: &ModelEntry) -> Expected {
    Expected { size: Some(entry.size), sha256: Some(entry.sha256.to_owned()) }
}

/// Where a named file lives.
fn place(home: &Path, entry: &ModelEntry) -> PathBuf {
    home.join("models").join(entry.name).join(entry.file)
}

/// A source in a few words.
fn describe(source: &Source) -> String {
    match source {
        Source::Hub(spec) => {
            // A pinned commit says nothing to people.
            format!("hf:{}", spec.split('@').next().unwrap_or(spec))
        }
        Source::Wheels([one]) => format!("pip package {}=={}", one.package, one.version),
        Source::Wheels(wheels) => {
            let first = wheels.first().map_or("", |wheel| wheel.package);
            format!("pip packages {first} and {} more", wheels.len().saturating_sub(1))
        }
    }
}

/// Looks for a named file in both caches.
fn find_name(entry: &ModelEntry, options: &FetchOptions, progress: &mut dyn Progress) -> Result<Option<PathBuf>> {
    // In our folder a file has its name only after its checksum was right, so the size is enough to know it again.
    if let Some(home) = &options.selkie_home {
        let path = place(home, entry);
        if fs::metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() == entry.size) {
            return Ok(Some(path));
        }
    }
    let Some(cache) = &options.hub_cache else { return Ok(None) };
    for source in entry.sources {
        let Source::Hub(spec) = source else { continue };
        let file: HubFile = spec.parse()?;
        let repo = RepoCache::new(cache, &file);
        let Some(commit) = repo.commit_of(file.revision_or_main()) else { continue };
        let Found::Here(path) = repo.find(&commit, &file.file) else { continue };
        // The hub's tools name the bytes by their checksum. Bytes under any other name are read.
        let named = fs::read_link(&path).is_ok_and(|blob| blob.file_name().is_some_and(|name| name == entry.sha256));
        let expected = Expected { sha256: expected(entry).sha256.filter(|_| !named), ..expected(entry) };
        if is_as_expected(&path, &expected, progress)? {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

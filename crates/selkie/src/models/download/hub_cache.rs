//! The hub's cache on this disk, laid out as the hub's Python client does it.
//!
//! ```text
//! HUB_CACHE/
//!   .locks/models--OWNER--REPO/ETAG.lock
//!   models--OWNER--REPO/
//!     blobs/ETAG                    the bytes; named by their SHA-256 (large files) or Git hash (small ones)
//!     refs/REVISION                 the commit that a branch or tag stood for when it was last asked
//!     snapshots/COMMIT/FILE         a relative link to ../../blobs/ETAG
//!     .no_exist/COMMIT/FILE         empty: the hub has said that there is no such file
//! ```
//!
//! Where links cannot be made (Windows without developer mode) the bytes themselves lie in `snapshots`.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::disk::{disk, make_parent};
use crate::models::error::Result;
use crate::models::name::HubFile;

/// A repository's folder in the cache.
pub(super) struct RepoCache {
    cache: PathBuf,
    name: String,
}

/// What the cache knows about a file at a commit.
pub(super) enum Found {
    /// It is here.
    Here(PathBuf),
    /// The hub has said that it does not exist.
    Absent,
    /// Nothing.
    Unknown,
}

impl RepoCache {
    pub(super) fn new(cache: &Path, file: &HubFile) -> Self {
        Self { cache: cache.to_owned(), name: format!("models--{}--{}", file.owner, file.repo) }
    }

    fn folder(&self) -> PathBuf {
        self.cache.join(&self.name)
    }

    /// The commit that `revision` stands for, as far as is known here.
    pub(super) fn commit_of(&self, revision: &str) -> Option<String> {
        if is_commit(revision) {
            return Some(revision.to_owned());
        }
        let commit = fs::read_to_string(self.folder().join("refs").join(revision)).ok()?;
        Some(commit.trim().to_owned()).filter(|commit| is_plain(commit))
    }

    /// Looks for a file.
    pub(super) fn find(&self, commit: &str, file: &str) -> Found {
        let path = self.pointer(commit, file);
        if path.is_file() {
            Found::Here(path)
        } else if self.folder().join(".no_exist").join(commit).join(file).exists() {
            Found::Absent
        } else {
            Found::Unknown
        }
    }

    /// Where a file is opened.
    pub(super) fn pointer(&self, commit: &str, file: &str) -> PathBuf {
        self.folder().join("snapshots").join(commit).join(file)
    }

    /// Where its bytes lie.
    pub(super) fn blob(&self, etag: &str) -> PathBuf {
        self.folder().join("blobs").join(etag)
    }

    /// The file whose lock is the right to write the bytes.
    pub(super) fn lock(&self, etag: &str) -> PathBuf {
        self.cache.join(".locks").join(&self.name).join(format!("{etag}.lock"))
    }

    /// Remembers what `revision` stands for.
    pub(super) fn remember(&self, revision: &str, commit: &str) -> Result<()> {
        if revision == commit {
            return Ok(());
        }
        let path = self.folder().join("refs").join(revision);
        if fs::read_to_string(&path).is_ok_and(|known| known.trim() == commit) {
            return Ok(());
        }
        make_parent(&path)?;
        // A reader that meets a half-written commit takes it for none, and asks the hub.
        fs::write(&path, commit).map_err(disk(&path))
    }

    /// Remembers that a file does not exist.
    pub(super) fn remember_absent(&self, commit: &str, file: &str) -> Result<()> {
        let path = self.folder().join(".no_exist").join(commit).join(file);
        make_parent(&path)?;
        fs::write(&path, []).map_err(disk(&path))
    }

    /// Makes `pointer(commit, file)` lead to `blob(etag)`.
    pub(super) fn link(&self, etag: &str, commit: &str, file: &str) -> Result<PathBuf> {
        let (blob, path) = (self.blob(etag), self.pointer(commit, file));
        make_parent(&path)?;
        let target = Path::new("../../").join("../".repeat(file.matches('/').count())).join("blobs").join(etag);
        // A link that leads elsewhere, or nowhere, is replaced.
        if fs::read_link(&path).is_ok_and(|old| old != target) {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(disk(&path)(error)),
                _ => {}
            }
        }
        match symlink(&target, &path) {
            Ok(()) => Ok(path),
            // Another process may do the same at the same time.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(path),
            Err(_) => match fs::rename(&blob, &path) {
                Err(error) if !path.is_file() => Err(disk(&path)(error)),
                _ => Ok(path),
            },
        }
    }
}

#[cfg(unix)]
fn symlink(target: &Path, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, path)
}

#[cfg(windows)]
fn symlink(target: &Path, path: &Path) -> io::Result<()> {
    // Windows does not follow a link with slashes in it.
    std::os::windows::fs::symlink_file(target.to_string_lossy().replace('/', "\\"), path)
}

#[cfg(not(any(unix, windows)))]
fn symlink(_: &Path, _: &Path) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

/// Whether `revision` is a full commit hash, which stands for itself for ever.
fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Whether a word that a server has sent can be a file's name as it is.
pub(super) fn is_plain(word: &str) -> bool {
    let plain = word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    plain && !word.is_empty() && word.len() <= 128 && !word.starts_with('.')
}

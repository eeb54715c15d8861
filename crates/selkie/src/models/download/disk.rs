//! Files that are being written: the lock, the `.part`, the check, the rename.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::{Fail, stop_if_cancelled};
use crate::models::error::{Error, Result};
use crate::models::progress::Progress;

/// The system's words, in our words where theirs are unclear.
pub(super) fn disk(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |error| {
        let what = match error.kind() {
            ErrorKind::StorageFull => "the disk is full".into(),
            ErrorKind::QuotaExceeded => "the disk quota is used up".into(),
            ErrorKind::PermissionDenied => "permission denied".into(),
            ErrorKind::ReadOnlyFilesystem => "the disk is read-only".into(),
            _ => error.to_string(),
        };
        Error::Disk { path, what }
    }
}

/// Makes the folder that `path` lies in.
pub(super) fn make_parent(path: &Path) -> Result<()> {
    let parent = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(disk(parent))
}

/// `path` with `suffix` behind its last part.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The right to write one file. Given back when dropped, or by the system when the process dies.
///
/// The lock's file is never removed: removing it while another process waits for it would give two processes the lock.
pub(super) struct Lock(Option<File>);

impl Lock {
    /// Waits until nobody else holds the lock whose file is `path`; `what` is for the note about it.
    pub(super) fn acquire(path: &Path, what: &str, progress: &mut dyn Progress) -> Result<Self> {
        make_parent(path)?;
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path).map_err(disk(path))?;
        let mut told = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self(Some(file))),
                Err(TryLockError::WouldBlock) => {}
                // Some network disks cannot lock. Then everybody writes a `.part` of their own.
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => return Ok(Self(None)),
                Err(TryLockError::Error(error)) => return Err(disk(path)(error)),
            }
            if !told {
                progress.note(&format!("{what}: waiting for another process that is fetching it"));
                told = true;
            }
            stop_if_cancelled(progress, what)?;
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Where the bytes of `dest` gather.
    pub(super) fn part_path(&self, dest: &Path) -> PathBuf {
        match &self.0 {
            Some(_) => with_suffix(dest, ".part"),
            None => with_suffix(dest, &format!(".{}.part", std::process::id())),
        }
    }
}

/// What a file must be. `None` is not checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Expected {
    /// Bytes.
    pub(super) size: Option<u64>,
    /// 64 lower-case hexadecimal digits.
    pub(super) sha256: Option<String>,
}

/// A file that is not whole yet. Dropped, it stays on the disk, to go on from.
pub(super) struct PartFile {
    path: PathBuf,
    file: File,
    hash: Sha256,
    len: u64,
    /// Whether some of its bytes come from an earlier run.
    resumed: bool,
}

/// A point in a [`PartFile`] that it can come back to.
pub(super) struct Mark {
    hash: Sha256,
    len: u64,
}

impl PartFile {
    /// Opens what an earlier transfer has left at `path`, or starts an empty file.
    pub(super) fn open(path: &Path, what: &str, progress: &mut dyn Progress) -> Result<Self> {
        make_parent(path)?;
        let mut options = OpenOptions::new();
        // Read to the end first, so that the file's position is right for appending.
        let mut file = options.create(true).truncate(false).read(true).write(true).open(path).map_err(disk(path))?;
        let (hash, len) = hash_of(&mut file, path, what, progress)?;
        Ok(Self { path: path.to_owned(), file, hash, len, resumed: len > 0 })
    }

    /// How many bytes are here.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Whether some of the bytes come from an earlier run.
    pub(super) fn resumed(&self) -> bool {
        self.resumed
    }

    /// Forgets all bytes.
    pub(super) fn restart(&mut self) -> Result<()> {
        self.file.set_len(0).and_then(|()| self.file.rewind()).map_err(disk(&self.path))?;
        (self.hash, self.len, self.resumed) = (Sha256::new(), 0, false);
        Ok(())
    }

    /// Where the file stands, to come back to.
    pub(super) fn mark(&self) -> Mark {
        Mark { hash: self.hash.clone(), len: self.len }
    }

    /// Forgets what has been added since `mark`.
    pub(super) fn back_to(&mut self, mark: Mark) -> Result<()> {
        self.file
            .set_len(mark.len)
            .and_then(|()| self.file.seek(SeekFrom::Start(mark.len)))
            .map_err(disk(&self.path))?;
        (self.hash, self.len) = (mark.hash, mark.len);
        Ok(())
    }

    /// Adds bytes at the end.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(disk(&self.path))?;
        self.hash.update(bytes);
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Checks the file and gives it its name. A file that is not what it must be is deleted: [`Fail::Source`].
    pub(super) fn commit(self, expected: &Expected, dest: &Path) -> Result<(), Fail> {
        let sha256 = hex(&self.hash.finalize());
        let wrong = if expected.size.is_some_and(|size| size != self.len) {
            Some(format!("{} bytes came instead of {}", self.len, expected.size.unwrap_or_default()))
        } else if expected.sha256.as_ref().is_some_and(|wanted| *wanted != sha256) {
            Some(format!("wrong checksum: SHA-256 {sha256} instead of {}", expected.sha256.as_deref().unwrap_or("")))
        } else {
            None
        };
        if let Some(wrong) = wrong {
            drop(self.file);
            fs::remove_file(&self.path).map_err(disk(&self.path))?;
            return Err(Fail::Source(wrong));
        }
        // The bytes must be on the disk before the name is: after a power cut a file with its final name is whole.
        self.file.sync_all().map_err(disk(&self.path))?;
        drop(self.file);
        make_parent(dest)?;
        fs::rename(&self.path, dest).map_err(disk(dest))?;
        // The name itself should be there too. Not every system can flush a folder, and nothing is lost if it cannot.
        #[cfg(unix)]
        let _ = dest.parent().map(|dir| File::open(dir).and_then(|dir| dir.sync_all()));
        Ok(())
    }

    /// Deletes the file.
    pub(super) fn discard(self) -> Result<()> {
        drop(self.file);
        fs::remove_file(&self.path).map_err(disk(&self.path))
    }
}

/// Whether the file at `path` is what it must be. Reads it if a checksum is wanted.
pub(super) fn is_as_expected(path: &Path, expected: &Expected, progress: &mut dyn Progress) -> Result<bool> {
    let Ok(mut file) = File::open(path) else { return Ok(false) };
    let len = file.metadata().map_err(disk(path))?.len();
    if expected.size.is_some_and(|size| size != len) {
        return Ok(false);
    }
    let Some(wanted) = &expected.sha256 else { return Ok(true) };
    let (hash, _) = hash_of(&mut file, path, &path.display().to_string(), progress)?;
    Ok(hex(&hash.finalize()) == *wanted)
}

/// Reads `file` from where it stands to its end: the hash so far and the number of bytes.
fn hash_of(file: &mut File, path: &Path, what: &str, progress: &mut dyn Progress) -> Result<(Sha256, u64)> {
    let (mut hash, mut len) = (Sha256::new(), 0);
    let mut buffer = vec![0; 1 << 18];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok((hash, len)),
            Ok(n) => {
                hash.update(&buffer[..n]);
                len += n as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(disk(path)(error)),
        }
        stop_if_cancelled(progress, what)?;
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disks_words() {
        for (kind, words) in [
            (ErrorKind::StorageFull, "/m/x.gguf.part: the disk is full"),
            (ErrorKind::PermissionDenied, "/m/x.gguf.part: permission denied"),
            (ErrorKind::ReadOnlyFilesystem, "/m/x.gguf.part: the disk is read-only"),
        ] {
            assert_eq!(disk(Path::new("/m/x.gguf.part"))(kind.into()).to_string(), words);
        }
    }

    #[test]
    fn a_mark_undoes_what_came_after() {
        let folder = tempfile::tempdir().expect("a folder");
        let (part, dest) = (folder.path().join("x.part"), folder.path().join("x"));
        let mut file = PartFile::open(&part, "x", &mut crate::models::Quiet).expect("opened");
        file.append(b"abc").expect("written");
        let mark = file.mark();
        file.append(b"wrong").expect("written");
        file.back_to(mark).expect("back");
        file.append(b"def").expect("written");
        let whole = Expected { size: Some(6), sha256: Some(hex(&Sha256::digest(b"abcdef"))) };
        assert!(file.commit(&whole, &dest).is_ok());
        assert_eq!(fs::read(&dest).expect("there"), b"abcdef");
        assert!(!part.exists());
    }
}

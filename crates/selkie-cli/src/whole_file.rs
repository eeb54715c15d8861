//! Files that appear under their name when they are whole.

use std::{
    fs::{self, File},
    io::BufWriter,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

/// Writes the file at `path` with what `write` gives back: first beside it, under a name ending in `.part`, then renamed.
/// What is no plain file (`/dev/null`, a pipe) is written to as it is.
///
/// # Errors
/// Names the path. Nothing of the new file is left then, and an old one is as it was.
pub fn write(path: &Path, write: impl FnOnce(BufWriter<File>) -> Result<BufWriter<File>>) -> Result<()> {
    replace(path, write).with_context(|| path.display().to_string())
}

fn replace(path: &Path, write: impl FnOnce(BufWriter<File>) -> Result<BufWriter<File>>) -> Result<()> {
    // Through a link to the file that it means: renaming would replace the link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        write(BufWriter::new(File::options().write(true).open(&path)?))?.into_inner().map_err(|e| e.into_error())?;
        return Ok(());
    }
    let part = beside(&path);
    let written = write(BufWriter::new(File::create(&part)?))
        .and_then(|out| Ok(out.into_inner().map_err(|e| e.into_error())?.sync_all()?))
        .and_then(|()| Ok(fs::rename(&part, &path)?));
    if written.is_err() {
        // The error that is reported is the one of writing.
        let _ = fs::remove_file(&part);
    }
    written
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_failure_leaves_the_old_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.json");
        let text = |text: &'static str| {
            move |mut out: BufWriter<File>| {
                out.write_all(text.as_bytes())?;
                Ok(out)
            }
        };
        write(&path, text("old")).expect("written");
        let failed = write(&path, |mut out| {
            out.write_all(b"half")?;
            anyhow::bail!("the sea is rough")
        });
        assert_eq!(format!("{:#}", failed.unwrap_err()), format!("{}: the sea is rough", path.display()));
        assert_eq!(fs::read_to_string(&path).expect("read"), "old");
        write(&path, text("new")).expect("written");
        assert_eq!(fs::read_to_string(&path).expect("read"), "new");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }
}

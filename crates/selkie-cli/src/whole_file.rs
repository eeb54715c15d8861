//! Files that appear under their name when they are whole.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::BufWriter,
    path::Path,
};

use anyhow::{Context, Result, bail};

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
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut prefix = OsString::from(".");
    prefix.push(path.file_name().unwrap_or_default());
    // A name of its own: two that write the same file at once each finish theirs, and the last one stays.
    let part = part_file(&prefix).tempfile_in(folder)?;
    let out = write(BufWriter::new(part.as_file().try_clone()?))?;
    out.into_inner().map_err(|e| e.into_error())?.sync_all()?;
    part.persist(&path).map_err(|e| e.error)?;
    Ok(())
}

fn part_file(prefix: &OsStr) -> tempfile::Builder<'_, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix).suffix(".part");
    #[cfg(unix)]
    {
        // As any file that a program makes: what the user's mask leaves of it.
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    builder
}

/// Refuses an output that is one of the inputs, under whatever name.
///
/// # Errors
/// Names the output.
pub fn refuse_input<'a>(output: &Path, inputs: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    for input in inputs {
        // Where either cannot be looked at, they are not the same.
        if same_file::is_same_file(input, output).unwrap_or(false) {
            bail!("{}: would be written over itself: it is read as well", output.display());
        }
    }
    Ok(())
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

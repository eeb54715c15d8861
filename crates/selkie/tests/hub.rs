//! Files of the hub, from a hub on this machine.
#![cfg(feature = "download")]

mod support;

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use selkie::models::{self, Error, FetchOptions, ModelRef, Quiet};
use support::*;
use tempfile::{TempDir, tempdir};

struct Setting {
    folder: TempDir,
    hub: Hub,
    options: FetchOptions,
}

fn setting() -> Setting {
    let (folder, hub) = (tempdir().expect("a folder"), Hub::start());
    let options = options(&folder, &hub);
    Setting { folder, hub, options }
}

impl Setting {
    fn fetch(&self, spec: &str) -> Result<PathBuf, Error> {
        self.fetch_with(spec, &mut Log::default())
    }

    fn fetch_with(&self, spec: &str, log: &mut Log) -> Result<PathBuf, Error> {
        models::fetch(&models::resolve(spec)?, &self.options, log)
    }

    fn repo(&self) -> PathBuf {
        self.folder.path().join("hf/hub/models--o--r")
    }

    fn parts(&self) -> Vec<PathBuf> {
        let all = files_below(self.folder.path());
        all.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "part")).collect()
    }

    /// The only line of the error.
    fn refusal(&self, spec: &str) -> String {
        match self.fetch(spec) {
            Err(Error::Unavailable { mut attempts, .. }) if attempts.len() == 1 => attempts.remove(0),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_large_file_comes_from_the_cdn_into_the_hubs_layout() {
    let mut s = setting();
    let bytes = noise(300_000, 1);
    s.hub.put("sub/m.gguf", &bytes);
    s.options.token = Some("hf_secret".into());
    s.hub.state().token = Some("hf_secret".into());
    let mut log = Log::default();
    let path = s.fetch_with("hf:o/r/sub/m.gguf", &mut log).expect("fetched");

    assert_eq!(fs::read(&path).expect("there"), bytes);
    assert_eq!(path, s.repo().join("snapshots").join(MAIN).join("sub/m.gguf"));
    assert_eq!(fs::read(s.repo().join("blobs").join(sha256(&bytes))).expect("the blob"), bytes);
    assert_eq!(fs::read_to_string(s.repo().join("refs/main")).expect("the ref"), MAIN);
    #[cfg(unix)]
    assert_eq!(
        fs::read_link(&path).expect("a link"),
        PathBuf::from(format!("../../../blobs/{}", sha256(&bytes))),
        "links are relative: the cache may move"
    );
    assert_eq!(log.transfers, [("m.gguf".to_owned(), Some(300_000), 300_000)]);
    assert!(s.parts().is_empty());

    let seen = s.hub.seen();
    assert!(seen.iter().any(|seen| seen.on_cdn));
    for seen in &seen {
        assert_eq!(seen.header("authorization").is_some(), !seen.on_cdn, "the token is for the hub alone: {seen:?}");
        assert_eq!(seen.header("accept-encoding"), Some("identity"));
    }
    // What is here needs no network.
    assert_eq!(s.fetch("hf:o/r/sub/m.gguf").expect("here"), path);
    assert_eq!(s.hub.seen().len(), seen.len());
}

#[test]
fn a_small_file_comes_from_the_hub_itself() {
    let s = setting();
    s.hub.put_at(MAIN, "config.json", b"{}", false);
    let path = s.fetch("hf:o/r/config.json").expect("fetched");
    assert_eq!(fs::read(&path).expect("there"), b"{}");
    assert!(s.repo().join("blobs").join(&sha256(b"{}")[..40]).is_file());
}

#[test]
fn a_file_that_another_tool_has_fetched_is_found() {
    let s = setting();
    let snapshot = s.repo().join("snapshots").join(MAIN);
    fs::create_dir_all(&snapshot).expect("made");
    fs::create_dir_all(s.repo().join("refs")).expect("made");
    fs::write(s.repo().join("refs/main"), MAIN).expect("written");
    fs::write(snapshot.join("m.gguf"), b"theirs").expect("written");
    assert_eq!(s.fetch("hf:o/r/m.gguf").expect("found"), snapshot.join("m.gguf"));
    assert_eq!(s.fetch(&format!("hf:o/r/m.gguf@{MAIN}")).expect("found"), snapshot.join("m.gguf"));
    assert!(s.hub.seen().is_empty());
}

#[test]
fn a_cut_connection_is_taken_up_where_it_broke() {
    let s = setting();
    let bytes = noise(500_000, 2);
    s.hub.put("m.gguf", &bytes);
    s.hub.state().cuts = vec![100_000, 150_000];
    let mut log = Log::default();
    let path = s.fetch_with("hf:o/r/m.gguf", &mut log).expect("fetched");
    assert_eq!(fs::read(path).expect("there"), bytes);
    assert_eq!(s.hub.ranges(), [None, Some("bytes=100000-".into()), Some("bytes=250000-".into())]);
    assert_eq!(log.notes.len(), 2, "{:?}", log.notes);
    assert!(log.notes[0].contains("cut the connection"), "{:?}", log.notes);
    assert_eq!(log.transfers, [("m.gguf".to_owned(), Some(500_000), 500_000)]);
}

#[test]
fn an_interrupted_download_leaves_a_part_and_the_next_run_goes_on() {
    let mut s = setting();
    s.options.retries = 0;
    let bytes = noise(500_000, 3);
    s.hub.put("m.gguf", &bytes);
    s.hub.state().cuts = vec![200_000];
    assert!(s.refusal("hf:o/r/m.gguf").contains("cut the connection"));
    assert_eq!(files_below(s.folder.path()), s.parts(), "nothing but the .part is there");
    assert_eq!(fs::metadata(&s.parts()[0]).expect("there").len(), 200_000);

    let mut log = Log::default();
    let path = s.fetch_with("hf:o/r/m.gguf", &mut log).expect("fetched");
    assert_eq!(fs::read(path).expect("there"), bytes);
    assert_eq!(s.hub.ranges().last(), Some(&Some("bytes=200000-".to_owned())));
    assert_eq!(log.transfers, [("m.gguf".to_owned(), Some(500_000), 500_000)], "what was here is counted");
    assert!(s.parts().is_empty());
}

#[test]
fn a_server_that_ignores_ranges_makes_it_start_again() {
    let s = setting();
    let bytes = noise(400_000, 4);
    s.hub.put("m.gguf", &bytes);
    s.hub.state().cuts = vec![100_000];
    s.hub.state().ignore_range = true;
    let mut log = Log::default();
    let path = s.fetch_with("hf:o/r/m.gguf", &mut log).expect("fetched");
    assert_eq!(fs::read(path).expect("there"), bytes);
    assert!(log.notes.iter().any(|note| note.contains("starting again")), "{:?}", log.notes);
    assert_eq!(log.transfers.last(), Some(&("m.gguf".to_owned(), Some(400_000), 400_000)));
}

#[test]
fn a_file_with_the_wrong_checksum_is_refused_and_removed() {
    let s = setting();
    s.hub.put("m.gguf", &noise(100_000, 5));
    s.hub.state().instead = Some(noise(100_000, 6));
    assert!(s.refusal("hf:o/r/m.gguf").contains("wrong checksum"));
    assert!(files_below(s.folder.path()).is_empty());

    s.hub.state().instead = Some(noise(100_001, 6));
    assert!(s.refusal("hf:o/r/m.gguf").contains("more bytes"));
    assert!(files_below(s.folder.path()).is_empty());
}

#[test]
fn a_damaged_part_is_thrown_away_once() {
    let s = setting();
    let bytes = noise(100_000, 7);
    s.hub.put("m.gguf", &bytes);
    let blobs = s.repo().join("blobs");
    fs::create_dir_all(&blobs).expect("made");
    for damaged in [vec![0; 60_000], vec![0; 100_000], vec![0; 100_001]] {
        fs::write(blobs.join(format!("{}.part", sha256(&bytes))), damaged).expect("written");
        let mut log = Log::default();
        let path = s.fetch_with("hf:o/r/m.gguf", &mut log).expect("fetched");
        assert_eq!(fs::read(path).expect("there"), bytes);
        assert!(log.notes[0].contains("starting again"), "{:?}", log.notes);
        fs::remove_dir_all(s.repo().join("snapshots")).expect("removed");
        fs::remove_dir_all(&blobs).expect("removed");
        fs::create_dir_all(&blobs).expect("made");
    }
}

#[test]
fn refusals_are_one_clear_line() {
    let mut s = setting();
    s.hub.put("m.gguf", b"x");
    let refused = |status, code| {
        s.hub.state().refuse = Some((status, code));
        let line = s.refusal("hf:o/r/m.gguf");
        assert!(line.contains("127.0.0.1") && line.contains(&status.to_string()) && !line.contains('\n'), "{line}");
        line
    };
    assert!(refused(401, "").contains("set HF_TOKEN"));
    assert!(refused(403, "GatedRepo").contains("HF_TOKEN"));
    assert!(refused(404, "RepoNotFound").contains("no repository o/r"));
    assert!(refused(404, "RevisionNotFound").contains("no revision main"));
    assert!(refused(404, "EntryNotFound").contains("no file m.gguf"));
    refused(503, "");
    s.options.token = Some("wrong".into());
    s.hub.state().refuse = None;
    s.hub.state().token = Some("right".into());
    assert!(s.refusal("hf:o/r/m.gguf").contains("the token in HF_TOKEN is not accepted"));
    s.options.token = Some("bad\ntoken".into());
    assert!(s.refusal("hf:o/r/m.gguf").contains("characters it must not have"));
    assert!(files_below(s.folder.path()).is_empty());
    let error = s.fetch("hf:o/r/m.gguf").expect_err("refused").to_string();
    assert!(error.ends_with("A model file that is already here works offline: -m PATH"), "{error}");
}

#[test]
fn what_cannot_be_reached_is_given_up_soon() {
    let mut s = setting();
    let started = Instant::now();
    s.options.timeouts.answer = Duration::from_millis(400);
    s.options.timeouts.stall = Duration::from_millis(400);
    s.options.timeouts.connect = Duration::from_secs(2);
    s.hub.put("m.gguf", &noise(300_000, 8));
    s.hub.state().hang = true;
    assert!(s.refusal("hf:o/r/m.gguf").contains("has stopped answering"));
    s.hub.state().hang = false;
    // The bytes stop coming: what has come stays.
    s.hub.state().stall_body = true;
    s.options.retries = 0;
    assert!(s.refusal("hf:o/r/m.gguf").contains("has stopped answering"));
    assert_eq!(fs::metadata(&s.parts()[0]).expect("there").len(), 150_000);

    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    s.options.endpoint = format!("http://{free}");
    assert!(s.refusal("hf:o/r/m.gguf").contains("cannot be reached: the connection is refused"));
    s.options.endpoint = "http://no-such-host.invalid".into();
    assert!(s.refusal("hf:o/r/m.gguf").contains("no-such-host.invalid cannot be reached"));
    s.options.endpoint = "nonsense".into();
    assert!(s.refusal("hf:o/r/m.gguf").contains("no web address"));
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[test]
fn cancelling_stops_at_once_and_keeps_what_came() {
    let s = setting();
    s.hub.put("m.gguf", &noise(300_000, 9));
    s.hub.state().stall_body = true;
    let mut log = Log { cancel_after: Some(100_000), ..Log::default() };
    assert!(matches!(s.fetch_with("hf:o/r/m.gguf", &mut log), Err(Error::Cancelled { .. })));
    assert_eq!(log.finished, 1);
    assert!(fs::metadata(&s.parts()[0]).expect("there").len() >= 100_000);
    // While nothing comes, too.
    s.hub.state().hang = true;
    let started = Instant::now();
    let mut log = Log { cancel_at: Some(started + Duration::from_millis(300)), ..Log::default() };
    assert!(matches!(s.fetch_with("hf:o/r/m.gguf", &mut log), Err(Error::Cancelled { .. })));
    assert!(started.elapsed() < Duration::from_secs(10), "long before the timeout");
}

#[test]
fn revisions() {
    let s = setting();
    s.hub.put("m.gguf", b"first");
    s.hub.put_at(V2, "m.gguf", b"second", true);
    let read = |spec: &str| fs::read(s.fetch(spec).expect("fetched")).expect("there");
    assert_eq!(read("hf:o/r/m.gguf"), b"first");
    assert_eq!(read("hf:o/r/m.gguf@v2"), b"second");
    assert_eq!(read(&format!("hf:o/r/m.gguf@{V2}")), b"second");
    assert_eq!(fs::read_to_string(s.repo().join("refs/v2")).expect("the ref"), V2);
    assert!(s.refusal("hf:o/r/m.gguf@v3").contains("no revision v3"));
}

#[test]
fn a_branch_that_has_moved_is_seen_when_asked_for() {
    let mut s = setting();
    s.hub.put("m.gguf", b"first");
    s.hub.put_at(V2, "m.gguf", b"second", true);
    s.fetch("hf:o/r/m.gguf").expect("fetched");
    s.hub.state().branches.insert("main".into(), V2.into());
    let read = |s: &Setting| fs::read(s.fetch("hf:o/r/m.gguf").expect("fetched")).expect("there");
    assert_eq!(read(&s), b"first");
    s.options.refresh = true;
    assert_eq!(read(&s), b"second");
    let loads = s.hub.ranges().len();
    assert_eq!(read(&s), b"second");
    assert_eq!(s.hub.ranges().len(), loads, "the bytes were here");
    s.options.refresh = false;
    assert_eq!(read(&s), b"second");
}

#[test]
fn redirects_within_the_hub_keep_the_token() {
    let mut s = setting();
    s.options.token = Some("hf_secret".into());
    s.hub.state().token = Some("hf_secret".into());
    s.hub.put("m.gguf", b"renamed");
    let path = s.fetch("hf:old/name/m.gguf").expect("fetched");
    assert_eq!(fs::read(path).expect("there"), b"renamed");
    assert!(s.refusal("hf:round/round/m.gguf").contains("redirects in circles"));
}

#[test]
fn a_hub_without_head_is_asked_with_get() {
    let s = setting();
    s.hub.put("m.gguf", b"large");
    s.hub.put_at(MAIN, "config.json", b"small", false);
    s.hub.state().no_head = true;
    for (file, bytes) in [("m.gguf", "large"), ("config.json", "small")] {
        assert_eq!(fs::read(s.fetch(&format!("hf:o/r/{file}")).expect("fetched")).expect("there"), bytes.as_bytes());
    }
}

#[test]
fn a_hostile_hub_cannot_write_elsewhere() {
    let s = setting();
    s.hub.put("m.gguf", b"x");
    s.hub.state().commit_header = Some("../../../evil".into());
    assert!(s.refusal("hf:o/r/m.gguf").contains("does not answer as the hub does"));
    s.hub.state().commit_header = None;
    let index = br#"{"weight_map": {"a": "../../../../evil.safetensors"}}"#;
    s.hub.put_at(MAIN, "model.safetensors.index.json", index, false);
    assert!(matches!(s.fetch("hf:o/r/model.safetensors"), Err(Error::Spec { .. })));
    assert!(!files_below(s.folder.path()).iter().any(|path| path.to_string_lossy().contains("evil")));
}

#[test]
fn two_at_once_fetch_once() {
    let s = setting();
    let bytes = noise(300_000, 10);
    s.hub.put("m.gguf", &bytes);
    s.hub.state().delay = Duration::from_secs(1);
    let notes: Vec<String> = thread::scope(|scope| {
        let run = || {
            let mut log = Log::default();
            let path = s.fetch_with("hf:o/r/m.gguf", &mut log).expect("fetched");
            assert_eq!(fs::read(path).expect("there"), bytes);
            log.notes
        };
        let both = [scope.spawn(run), scope.spawn(run)];
        both.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    assert_eq!(s.hub.ranges().len(), 1, "one of them downloads");
    assert_eq!(notes, ["m.gguf: waiting for another process that is fetching it"]);
}

#[test]
fn all_parts_of_a_split_gguf_come() {
    let s = setting();
    for i in 1..=3 {
        s.hub.put(&format!("q/m-0000{i}-of-00003.gguf"), &noise(1000 * i, i as u64));
    }
    let path = s.fetch("hf:o/r/q/m-00002-of-00003.gguf").expect("fetched");
    assert!(path.ends_with("q/m-00001-of-00003.gguf"));
    assert_eq!(fs::read(path.with_file_name("m-00003-of-00003.gguf")).expect("there"), noise(3000, 3));
    let here = models::list(&s.options);
    assert_eq!(here.len(), 1, "{here:?}");
    assert_eq!((here[0].spec.as_str(), here[0].size), ("hf:o/r/q/m-00001-of-00003.gguf", 6000));
    assert_eq!(here[0].path, path);
}

#[test]
fn safetensors_come_with_configuration_and_tokenizer() {
    let s = setting();
    s.hub.put("sub/model.safetensors", b"weights");
    s.hub.put_at(MAIN, "sub/config.json", b"{}", false);
    s.hub.put_at(MAIN, "sub/tokenizer.json", b"[]", false);
    let folder = s.fetch("hf:o/r/sub/model.safetensors").expect("fetched");
    assert_eq!(folder, s.repo().join("snapshots").join(MAIN).join("sub"));
    let names: Vec<_> =
        files_below(&folder).iter().map(|path| path.file_name().unwrap_or_default().to_owned()).collect();
    assert_eq!(names, ["config.json", "model.safetensors", "tokenizer.json"]);
    // What does not exist is remembered, so this needs no network.
    let seen = s.hub.seen().len();
    assert_eq!(s.fetch("hf:o/r/sub/model.safetensors").expect("here"), folder);
    assert_eq!(s.hub.seen().len(), seen);
    let here = models::list(&s.options);
    assert_eq!((here.len(), here[0].spec.as_str(), here[0].size), (1, "hf:o/r/sub/model.safetensors", 7));
}

#[test]
fn an_index_brings_its_shards() {
    let s = setting();
    let index =
        br#"{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}"#;
    s.hub.put_at(MAIN, "model.safetensors.index.json", index, false);
    s.hub.put("model-00001-of-00002.safetensors", b"one");
    s.hub.put("model-00002-of-00002.safetensors", b"three");
    s.hub.put_at(MAIN, "config.json", b"{}", false);
    let folder = s.fetch("hf:o/r/model.safetensors").expect("fetched");
    assert_eq!(fs::read(folder.join("model-00002-of-00002.safetensors")).expect("there"), b"three");
    assert!(folder.join("config.json").is_file());
    assert_eq!(s.fetch("hf:o/r/model.safetensors.index.json").expect("here"), folder);
    let here = models::list(&s.options);
    assert_eq!((here.len(), here[0].spec.as_str(), here[0].size), (1, "hf:o/r/model.safetensors.index.json", 8));
}

#[test]
fn offline_says_so() {
    let mut s = setting();
    s.options.offline = true;
    assert!(s.refusal("hf:o/r/m.gguf").contains("HF_HUB_OFFLINE"));
    assert!(s.hub.seen().is_empty());
}

#[test]
fn the_disks_refusals_name_the_file() {
    let mut s = setting();
    s.hub.put("m.gguf", b"x");
    let blocked = s.folder.path().join("a-file");
    fs::write(&blocked, b"").expect("written");
    s.options.hub_cache = Some(blocked.join("hub"));
    let error = s.fetch("hf:o/r/m.gguf").expect_err("no folder can be made");
    assert!(matches!(&error, Error::Disk { .. }), "{error:?}");
    assert!(error.to_string().contains("a-file") && !error.to_string().contains('\n'), "{error}");
    s.options.hub_cache = None;
    assert!(matches!(s.fetch("hf:o/r/m.gguf"), Err(Error::NoHome { .. })));
}

#[test]
fn paths_are_only_looked_at() {
    let s = setting();
    let path = s.folder.path().to_owned();
    assert_eq!(models::fetch(&ModelRef::Path(path.clone()), &s.options, &mut Quiet).expect("there"), path);
    let gone = ModelRef::Path(path.join("gone"));
    assert!(matches!(models::fetch(&gone, &s.options, &mut Quiet), Err(Error::NoSuchPath { .. })));
}

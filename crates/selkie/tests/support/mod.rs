//! A hub with its CDN on this machine, and a progress that remembers.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use selkie::models::{FetchOptions, Progress};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// What `main` stands for.
pub const MAIN: &str = "1111111111111111111111111111111111111111";
/// What `v2` stands for.
pub const V2: &str = "2222222222222222222222222222222222222222";

/// A request as the server saw it.
#[derive(Debug, Clone)]
pub struct Seen {
    pub on_cdn: bool,
    pub method: String,
    pub path: String,
    pub headers: HashMap<String, String>,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

#[derive(Clone)]
pub struct Blob {
    pub bytes: Vec<u8>,
    /// Large files are on the CDN.
    pub large: bool,
}

/// How the servers behave.
#[derive(Default)]
pub struct State {
    /// `(commit, file)` of the repository `o/r`.
    pub files: HashMap<(String, String), Blob>,
    pub branches: HashMap<String, String>,
    pub seen: Vec<Seen>,
    /// After how many bytes the CDN cuts its next answers.
    pub cuts: Vec<usize>,
    pub ignore_range: bool,
    /// What the CDN sends instead of the file.
    pub instead: Option<Vec<u8>>,
    /// What the hub answers instead: status and `X-Error-Code`.
    pub refuse: Option<(u16, &'static str)>,
    /// Accept, never answer.
    pub hang: bool,
    /// Stop in the middle of the body, keeping the connection.
    pub stall_body: bool,
    pub no_head: bool,
    /// Said instead of the commit.
    pub commit_header: Option<String>,
    /// Time that the CDN takes for an answer.
    pub delay: Duration,
    pub token: Option<String>,
}

pub struct Hub {
    pub endpoint: String,
    state: Arc<Mutex<State>>,
}

impl Hub {
    pub fn start() -> Self {
        let listen = || TcpListener::bind("127.0.0.1:0").expect("a port");
        let (hub, cdn) = (listen(), listen());
        let port = |listener: &TcpListener| listener.local_addr().expect("an address").port();
        let endpoint = format!("http://127.0.0.1:{}", port(&hub));
        let cdn_port = port(&cdn);
        let branches = [("main", MAIN), ("v2", V2)].map(|(name, commit)| (name.to_owned(), commit.to_owned()));
        let state = Arc::new(Mutex::new(State { branches: branches.into(), ..State::default() }));
        for (listener, on_cdn) in [(hub, false), (cdn, true)] {
            let state = state.clone();
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let state = state.clone();
                    thread::spawn(move || serve(stream, &state, on_cdn, cdn_port));
                }
            });
        }
        Self { endpoint, state }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("not poisoned")
    }

    /// Puts a large file on the branch `main`.
    pub fn put(&self, file: &str, bytes: &[u8]) {
        self.put_at(MAIN, file, bytes, true);
    }

    pub fn put_at(&self, commit: &str, file: &str, bytes: &[u8], large: bool) {
        self.state().files.insert((commit.into(), file.into()), Blob { bytes: bytes.into(), large });
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.state().seen.clone()
    }

    /// What was asked of the CDN: the `Range` of each request.
    pub fn ranges(&self) -> Vec<Option<String>> {
        self.seen().iter().filter(|seen| seen.on_cdn).map(|seen| seen.header("range").map(str::to_owned)).collect()
    }
}

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that do not repeat.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn serve(stream: TcpStream, state: &Mutex<State>, on_cdn: bool, cdn_port: u16) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let seen = Seen { on_cdn, method, path, headers };
    let mut state = state.lock().ok()?;
    state.seen.push(seen.clone());
    if state.hang {
        drop(state);
        thread::sleep(Duration::from_secs(30));
        return None;
    }
    if on_cdn { cdn(stream, &seen, state) } else { hub(stream, &seen, state, cdn_port) }
}

fn hub(mut stream: TcpStream, seen: &Seen, state: MutexGuard<'_, State>, cdn_port: u16) -> Option<()> {
    let mut answer = |status: u16, headers: &str, body: &[u8]| {
        let body = if seen.method == "HEAD" { &[] } else { body };
        write!(stream, "HTTP/1.1 {status} x\r\nConnection: close\r\n{headers}\r\n").ok()?;
        stream.write_all(body).ok()
    };
    if state.no_head && seen.method == "HEAD" {
        return answer(405, "Content-Length: 0\r\n", b"");
    }
    let refused = state.refuse.or_else(|| {
        let wanted = state.token.as_ref().map(|token| format!("Bearer {token}"))?;
        (seen.header("authorization") != Some(&wanted)).then_some((401, "RepoNotFound"))
    });
    if let Some((status, code)) = refused {
        return answer(status, &format!("X-Error-Code: {code}\r\nContent-Length: 0\r\n"), b"");
    }
    // A renamed repository.
    if let Some(rest) = seen.path.strip_prefix("/old/name/") {
        return answer(307, &format!("Location: /o/r/{rest}\r\nContent-Length: 0\r\n"), b"");
    }
    if seen.path.starts_with("/round/") {
        return answer(302, &format!("Location: {}\r\nContent-Length: 0\r\n", seen.path), b"");
    }
    let Some((revision, file)) = seen.path.strip_prefix("/o/r/resolve/").and_then(|rest| rest.split_once('/')) else {
        return answer(404, "X-Error-Code: RepoNotFound\r\nContent-Length: 0\r\n", b"");
    };
    let commit = state.branches.get(revision).cloned().unwrap_or(revision.to_owned());
    if !state.files.keys().any(|(known, _)| *known == commit) {
        return answer(404, "X-Error-Code: RevisionNotFound\r\nContent-Length: 0\r\n", b"");
    }
    let Some(blob) = state.files.get(&(commit.clone(), file.to_owned())) else {
        return answer(404, "X-Error-Code: EntryNotFound\r\nContent-Length: 0\r\n", b"");
    };
    let (sha, len) = (sha256(&blob.bytes), blob.bytes.len());
    let commit = state.commit_header.as_ref().unwrap_or(&commit);
    if blob.large {
        let place = format!("http://127.0.0.1:{cdn_port}/{sha}?file={file}&commit={commit}");
        let linked = format!("X-Linked-Etag: \"{sha}\"\r\nX-Linked-Size: {len}\r\nX-Repo-Commit: {commit}\r\n");
        let text = "Found. Redirecting";
        answer(302, &format!("Location: {place}\r\n{linked}Content-Length: {}\r\n", text.len()), text.as_bytes())
    } else {
        let etag = format!("ETag: \"{}\"\r\nX-Repo-Commit: {commit}\r\nContent-Length: {len}\r\n", &sha[..40]);
        answer(200, &etag, &blob.bytes)
    }
}

fn cdn(mut stream: TcpStream, seen: &Seen, mut state: MutexGuard<'_, State>) -> Option<()> {
    let sha = seen.path.trim_start_matches('/').split('?').next()?.to_owned();
    let blob = state.files.values().find(|blob| sha256(&blob.bytes) == sha)?.bytes.clone();
    let bytes = state.instead.clone().unwrap_or(blob);
    let from = seen.header("range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    let from: Option<usize> = from.filter(|_| !state.ignore_range);
    let cut = if state.cuts.is_empty() { None } else { Some(state.cuts.remove(0)) };
    let (delay, stall) = (state.delay, state.stall_body);
    drop(state);
    thread::sleep(delay);
    let head = match from {
        Some(from) if from >= bytes.len() => {
            let none = format!("Content-Range: bytes */{}\r\nContent-Length: 0", bytes.len());
            return write!(stream, "HTTP/1.1 416 x\r\nConnection: close\r\n{none}\r\n\r\n").ok();
        }
        Some(from) => format!("206 x\r\nContent-Range: bytes {from}-{}/{}", bytes.len() - 1, bytes.len()),
        None => "200 OK".into(),
    };
    let body = &bytes[from.unwrap_or(0)..];
    write!(stream, "HTTP/1.1 {head}\r\nConnection: close\r\nETag: \"of-the-cdn\"\r\n").ok()?;
    write!(stream, "Content-Length: {}\r\n\r\n", body.len()).ok()?;
    if stall {
        stream.write_all(&body[..body.len() / 2]).ok()?;
        thread::sleep(Duration::from_secs(30));
        return None;
    }
    stream.write_all(&body[..cut.unwrap_or(body.len()).min(body.len())]).ok()
}

/// Options for one test: folders of its own, short waits, no pip.
pub fn options(folder: &TempDir, hub: &Hub) -> FetchOptions {
    let mut options = FetchOptions::default();
    options.selkie_home = Some(folder.path().join("selkie"));
    options.hub_cache = Some(folder.path().join("hf/hub"));
    options.endpoint = hub.endpoint.clone();
    options.pip = Vec::new();
    // Long enough for a busy machine; tests of the timeouts themselves set shorter ones.
    options.timeouts.stall = Duration::from_secs(20);
    options.timeouts.answer = Duration::from_secs(20);
    options.timeouts.retry = Duration::from_millis(1);
    options
}

/// Remembers what it is told; cancels when told to.
#[derive(Default)]
pub struct Log {
    pub notes: Vec<String>,
    /// What was begun: name, total, bytes counted.
    pub transfers: Vec<(String, Option<u64>, u64)>,
    pub finished: usize,
    /// Cancel once so many bytes are here.
    pub cancel_after: Option<u64>,
    /// Cancel from then on.
    pub cancel_at: Option<Instant>,
}

impl Progress for Log {
    fn begin(&mut self, what: &str, total: Option<u64>) {
        assert_eq!(self.finished, self.transfers.len(), "{what} begins before the last transfer is finished");
        self.transfers.push((what.into(), total, 0));
    }
    fn advance(&mut self, bytes: u64) {
        self.transfers.last_mut().expect("begun").2 += bytes;
    }
    fn note(&mut self, line: &str) {
        assert!(!line.contains('\n'), "{line:?} is one line");
        self.notes.push(line.into());
    }
    fn finish(&mut self) {
        self.finished += 1;
        assert_eq!(self.finished, self.transfers.len());
    }
    fn cancelled(&self) -> bool {
        let here = self.transfers.last().map_or(0, |transfer| transfer.2);
        self.cancel_after.is_some_and(|limit| here >= limit) || self.cancel_at.is_some_and(|at| Instant::now() > at)
    }
}

/// All files below `folder`, except locks.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(files_below(&path));
        } else if path.extension().is_none_or(|extension| extension != "lock") {
            found.push(path);
        }
    }
    found.sort();
    found
}

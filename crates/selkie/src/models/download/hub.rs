//! The Hugging Face hub's way of handing out files.
//!
//! `GET ENDPOINT/OWNER/REPO/resolve/REVISION/FILE` answers a small file directly, and a large one with a redirect to a
//! host that holds the bytes. The answer at the hub's own address says what the file is: `X-Repo-Commit`, and for large
//! files `X-Linked-Etag` (its SHA-256) and `X-Linked-Size`; for small ones the `ETag` is a Git hash.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::disk::{Expected, Lock, PartFile};
use super::http::{Answer, Client, host, text};
use super::options::FetchOptions;
use super::{Fail, stop_if_cancelled};
use crate::models::error::Result;
use crate::models::name::HubFile;
use crate::models::progress::Progress;

/// What the hub says about a file.
pub(super) struct Description {
    /// The commit that the revision stands for.
    pub(super) commit: Option<String>,
    /// The name of the file's bytes, without quotes.
    pub(super) etag: Option<String>,
    /// What the bytes must be.
    pub(super) expected: Expected,
}

impl Description {
    fn of(answer: &Answer) -> Self {
        // The hub's own words first: another host may say anything.
        let hub_says = |name: &str| {
            let hops = answer.redirects.iter().chain([&answer.headers]);
            hops.filter_map(|headers| text(headers, name)).next().map(str::to_owned)
        };
        let etag = hub_says("x-linked-etag").or_else(|| answer.header("etag").map(str::to_owned));
        let etag = etag.map(|etag| etag.trim_start_matches("W/").trim_matches('"').to_owned());
        let linked_size = hub_says("x-linked-size");
        // A redirect's own `Content-Length` is about its own few bytes.
        let own_size = answer.header("content-length").filter(|_| answer.status == 200);
        let size = linked_size.as_deref().or(own_size).and_then(|size| size.parse().ok());
        let is_sha256 = |etag: &&String| etag.len() == 64 && etag.bytes().all(|b| b.is_ascii_hexdigit());
        let sha256 = etag.as_ref().filter(is_sha256).map(|etag| etag.to_ascii_lowercase());
        Self { commit: hub_says("x-repo-commit"), etag, expected: Expected { size, sha256 } }
    }
}

/// Asks what `file` is at `revision`, without its bytes. [`Fail::Absent`] if the repository has no such file.
pub(super) fn describe(
    client: &Client,
    file: &HubFile,
    revision: &str,
    progress: &dyn Progress,
) -> Result<Description, Fail> {
    let url = address(client.options, file, revision);
    let is_description = |headers: &ureq::http::HeaderMap| headers.contains_key("x-linked-etag");
    let mut answer = client.send("HEAD", &url, 0, is_description, progress)?;
    if matches!(answer.status, 405 | 501) {
        answer = client.send("GET", &url, 0, is_description, progress)?;
    }
    match answer.status {
        200 | 300..400 => Ok(Description::of(&answer)),
        _ => Err(refusal(&answer, client.options, file, revision)),
    }
}

/// Brings `file` to `dest`: goes on from what is there, checks, renames.
///
/// The caller holds `lock`. What `expected` says is checked against what the hub says, too, before the bytes come.
pub(super) fn download(
    client: &Client,
    file: &HubFile,
    revision: &str,
    expected: &Expected,
    lock: &Lock,
    dest: &Path,
    progress: &mut dyn Progress,
) -> Result<(), Fail> {
    loop {
        let mut part = PartFile::open(&lock.part_path(dest), file.base_name(), progress)?;
        let mut transfer = Transfer { client, file, revision, expected, begun: false };
        let result = transfer.run(&mut part, progress);
        if transfer.begun {
            progress.finish();
        }
        if let Err(fail) = result {
            // An empty file is nothing to go on from.
            if part.len() == 0 {
                part.discard()?;
            }
            return Err(fail);
        }
        let resumed = part.resumed();
        match part.commit(expected, dest) {
            // The bytes of the earlier run were damaged. They are gone now, so this happens once.
            Err(Fail::Source(why)) if resumed => progress.note(&format!("{}: {why}; starting again", file.base_name())),
            result => return result,
        }
    }
}

/// One file on its way.
struct Transfer<'a> {
    client: &'a Client<'a>,
    file: &'a HubFile,
    revision: &'a str,
    expected: &'a Expected,
    /// Whether the progress has been told: not before the source has said that it will send.
    begun: bool,
}

impl Transfer<'_> {
    /// Transfers until all bytes are here; takes a broken transfer up again. What never got going is given up at once.
    fn run(&mut self, part: &mut PartFile, progress: &mut dyn Progress) -> Result<(), Fail> {
        let (mut failures, mut got_going) = (0, false);
        loop {
            if self.expected.size.is_some_and(|size| part.len() > size) {
                self.restart(part, "what was here is longer than the file", progress)?;
            }
            let before = part.len();
            let why = match self.pass(part, progress) {
                Ok(true) => return Ok(()),
                Ok(false) => continue,
                Err(Fail::Broken(why)) => why,
                Err(other) => return Err(other),
            };
            if part.len() > before {
                (failures, got_going) = (0, true);
            }
            failures += 1;
            if !got_going || failures > self.client.options.retries {
                return Err(Fail::Broken(why));
            }
            progress.note(&format!("{why}; going on from byte {}", part.len()));
            pause(self.client.options.timeouts.retry, progress, self.file.base_name())?;
        }
    }

    /// One request for the bytes that are missing. `false`: they must be asked for again, from the start.
    fn pass(&mut self, part: &mut PartFile, progress: &mut dyn Progress) -> Result<bool, Fail> {
        if self.expected.size == Some(part.len()) {
            return Ok(true);
        }
        let from = part.len();
        let url = address(self.client.options, self.file, self.revision);
        let mut answer = self.client.send("GET", &url, from, |_| false, progress)?;
        let sender = host(&answer.url);
        match answer.status {
            200 if from > 0 => self.restart(part, "the server cannot go on where it stopped", progress)?,
            200 => {}
            206 if starts_at(&answer) == Some(from) => {}
            206 | 416 if from > 0 => {
                self.restart(part, "the server cannot go on there", progress)?;
                return Ok(false);
            }
            429 | 500.. => return Err(Fail::Broken(format!("{sender} answers {}", answer.status))),
            _ => return Err(refusal(&answer, self.client.options, self.file, self.revision)),
        }
        let stated = Description::of(&answer).expected.sha256;
        if let (Some(wanted), Some(stated)) = (&self.expected.sha256, stated)
            && *wanted != stated
        {
            return Err(Fail::Source(format!("wrong checksum: the hub states SHA-256 {stated} instead of {wanted}")));
        }
        if !self.begun {
            self.begun = true;
            progress.begin(self.file.base_name(), self.expected.size);
            progress.advance(part.len());
        }
        while let Some(bytes) = answer.next(progress)? {
            if self.expected.size.is_some_and(|size| part.len() + bytes.len() as u64 > size) {
                part.restart()?;
                return Err(Fail::Source(format!("{sender} sends more bytes than the file has")));
            }
            part.append(&bytes)?;
            progress.advance(bytes.len() as u64);
        }
        match self.expected.size {
            Some(size) if part.len() < size => {
                Err(Fail::Broken(format!("{sender} has cut the connection after {} of {size} bytes", part.len())))
            }
            _ => Ok(true),
        }
    }

    fn restart(&mut self, part: &mut PartFile, why: &str, progress: &mut dyn Progress) -> Result<()> {
        part.restart()?;
        progress.note(&format!("{}: {why}; starting again", self.file.base_name()));
        if self.begun {
            progress.finish();
            self.begun = false;
        }
        Ok(())
    }
}

/// The first byte of a partial answer.
fn starts_at(answer: &Answer) -> Option<u64> {
    answer.header("content-range")?.trim().strip_prefix("bytes ")?.split('-').next()?.trim().parse().ok()
}

/// Waits, unless cancelled.
pub(super) fn pause(time: Duration, progress: &dyn Progress, what: &str) -> Result<()> {
    let start = Instant::now();
    loop {
        stop_if_cancelled(progress, what)?;
        let left = time.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(Duration::from_millis(100)));
    }
}

fn address(options: &FetchOptions, file: &HubFile, revision: &str) -> String {
    let HubFile { owner, repo, file, .. } = file;
    format!("{}/{owner}/{repo}/resolve/{}/{}", options.endpoint, escaped(revision, ""), escaped(file, "/"))
}

/// `text` as part of an address; the bytes of `kept` stay too.
fn escaped(text: &str, kept: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || kept.as_bytes().contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// A status that is no success, in one line.
fn refusal(answer: &Answer, options: &FetchOptions, file: &HubFile, revision: &str) -> Fail {
    let (host, status) = (host(&answer.url), answer.status);
    let repo = format!("{}/{}", file.owner, file.repo);
    let code = answer.header("x-error-code").unwrap_or("");
    let line = match (status, code) {
        (401, _) if options.token.is_some() => {
            format!("{host} answers 401: the token in HF_TOKEN is not accepted, or there is no {repo}")
        }
        (401, _) => {
            format!("{host} answers 401: {repo} is private or gated, or does not exist; set HF_TOKEN to a token for it")
        }
        (403, _) if options.token.is_some() => {
            format!("{host} answers 403: the token's owner has no access to {repo} (its page tells how to get it)")
        }
        (403, _) => format!("{host} answers 403: access to {repo} is denied; it may need a token in HF_TOKEN"),
        (404, "RepoNotFound") => format!("{host} answers 404: there is no repository {repo}"),
        (404, "RevisionNotFound") => format!("{host} answers 404: {repo} has no revision {revision}"),
        (404, _) => return Fail::Absent(format!("{host} answers 404: {repo} has no file {} at {revision}", file.file)),
        _ => format!("{host} answers {status}"),
    };
    Fail::Source(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_escaped() {
        let file: HubFile = "hf:o/r/a b/c#d+ü.gguf@refs/pr/1".parse().expect("a hub file");
        let options = FetchOptions { endpoint: "http://hub.test".into(), ..FetchOptions::default() };
        assert_eq!(
            address(&options, &file, file.revision_or_main()),
            "http://hub.test/o/r/resolve/refs%2Fpr%2F1/a%20b/c%23d%2B%C3%BC.gguf"
        );
    }
}

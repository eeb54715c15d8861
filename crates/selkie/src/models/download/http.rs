//! Asking a web server for a file, in a way that can be cancelled.

use std::fs;
use std::io::Read;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use ureq::http::{HeaderMap, Request, Uri};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Timeout};

use super::options::FetchOptions;
use super::{Fail, stop_if_cancelled};
use crate::models::error::Result;
use crate::models::progress::Progress;

/// How often a wait is interrupted to ask whether to stop.
const POLL: Duration = Duration::from_millis(100);
/// How many redirects in a row are followed.
const MAX_REDIRECTS: usize = 8;
/// Bytes handed over at a time.
const CHUNK: usize = 1 << 17;

/// A web client that knows which host may see the token.
pub(super) struct Client<'a> {
    agent: Agent,
    pub(super) options: &'a FetchOptions,
}

/// A server's answer up to its body.
pub(super) struct Answer {
    /// The address it came from, after redirects.
    pub(super) url: Uri,
    /// The status.
    pub(super) status: u16,
    /// The headers.
    pub(super) headers: HeaderMap,
    /// Headers of the redirects that the hub's own address answered with on the way.
    pub(super) redirects: Vec<HeaderMap>,
    body: Receiver<Event>,
}

enum Event {
    Head(u16, HeaderMap),
    Data(Vec<u8>),
    End,
    Failed(String),
}

impl<'a> Client<'a> {
    pub(super) fn new(options: &'a FetchOptions) -> Result<Self, Fail> {
        let timeouts = &options.timeouts;
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("selkie/", env!("CARGO_PKG_VERSION")))
            .timeout_resolve(Some(timeouts.connect))
            .timeout_connect(Some(timeouts.connect))
            .timeout_recv_response(Some(timeouts.answer))
            .timeout_per_read(Some(timeouts.stall))
            .timeout_per_write(Some(timeouts.stall));
        if !options.env_proxy {
            config = config.proxy(None);
        }
        if let Some(path) = &options.ca_file {
            let wrong = |what: String| Fail::Source(format!("certificates in {}: {what}", path.display()));
            let pem = fs::read(path).map_err(|error| wrong(error.to_string()))?;
            let certificates: Vec<_> = parse_pem(&pem)
                .filter_map(|item| match item {
                    Ok(PemItem::Certificate(certificate)) => Some(certificate),
                    _ => None,
                })
                .collect();
            if certificates.is_empty() {
                return Err(wrong("none found".into()));
            }
            config =
                config.tls_config(TlsConfig::builder().root_certs(RootCerts::Specific(certificates.into())).build());
        }
        Ok(Self { agent: config.build().into(), options })
    }

    /// Sends a `HEAD` or `GET`, for the bytes from `from` on if that is not 0, and follows redirects by hand.
    ///
    /// The token goes only to the hub's own address. With `stop_at`, a redirect for which it says true is the answer.
    pub(super) fn send(
        &self,
        method: &'static str,
        url: &str,
        from: u64,
        stop_at: impl Fn(&HeaderMap) -> bool,
        progress: &dyn Progress,
    ) -> Result<Answer, Fail> {
        let endpoint = parse(&self.options.endpoint)?;
        let mut url = parse(url)?;
        let mut redirects = Vec::new();
        for _ in 0..=MAX_REDIRECTS {
            let at_home = origin(&url) == origin(&endpoint);
            let mut request = Request::builder().method(method).uri(url.clone()).header("accept-encoding", "identity");
            if from > 0 {
                request = request.header("range", format!("bytes={from}-"));
            }
            if let Some(token) = self.options.token.as_ref().filter(|_| at_home) {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            let request = request.body(()).map_err(|_| {
                Fail::Source(format!("{}: the token or the address has characters it must not have", host(&url)))
            })?;
            let mut answer = self.one(request, url.clone(), progress)?;
            let is_redirect = matches!(answer.status, 301 | 302 | 303 | 307 | 308);
            if !is_redirect || (at_home && stop_at(&answer.headers)) {
                answer.redirects = redirects;
                return Ok(answer);
            }
            let location = answer.headers.get("location").and_then(|value| value.to_str().ok()).unwrap_or("");
            let next = join(&url, location)?;
            if url.scheme_str() == Some("https") && next.scheme_str() != Some("https") {
                return Err(Fail::Source(format!("{} redirects to an unencrypted address", host(&url))));
            }
            if at_home {
                redirects.push(answer.headers);
            }
            url = next;
        }
        Err(Fail::Source(format!("{} redirects in circles", host(&url))))
    }

    /// One request, without following anything. It runs on its own thread, so that a wait can be cancelled.
    fn one(&self, request: Request<()>, url: Uri, progress: &dyn Progress) -> Result<Answer, Fail> {
        let (sender, body) = sync_channel(4);
        let (agent, name) = (self.agent.clone(), host(&url));
        thread::spawn(move || {
            // A failed send means that nobody listens any more: the thread ends.
            let _ = converse(&agent, request, &name, &sender);
        });
        let mut answer = Answer { url, status: 0, headers: HeaderMap::new(), redirects: Vec::new(), body };
        match answer.wait(progress)? {
            Event::Head(status, headers) => (answer.status, answer.headers) = (status, headers),
            Event::Failed(why) => return Err(Fail::Broken(why)),
            Event::Data(_) | Event::End => return Err(Fail::Broken(format!("{}: no answer", host(&answer.url)))),
        }
        Ok(answer)
    }
}

impl Answer {
    /// The next bytes of the body, `None` after the last.
    pub(super) fn next(&mut self, progress: &dyn Progress) -> Result<Option<Vec<u8>>, Fail> {
        match self.wait(progress)? {
            Event::Data(bytes) => Ok(Some(bytes)),
            Event::End | Event::Head(..) => Ok(None),
            Event::Failed(why) => Err(Fail::Broken(why)),
        }
    }

    /// A header as text.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        text(&self.headers, name)
    }

    fn wait(&self, progress: &dyn Progress) -> Result<Event, Fail> {
        loop {
            stop_if_cancelled(progress, &host(&self.url))?;
            match self.body.recv_timeout(POLL) {
                Ok(event) => return Ok(event),
                // The other thread's own timeouts see to it that this ends.
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Fail::Broken(format!("{}: the transfer broke off", host(&self.url))));
                }
            }
        }
    }
}

/// A header as text.
pub(super) fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// The other thread's part: asks, and hands over what comes. `None` when nobody listens any more.
fn converse(agent: &Agent, request: Request<()>, host: &str, to: &SyncSender<Event>) -> Option<()> {
    let is_head = request.method() == "HEAD";
    let mut response = match agent.run(request) {
        Ok(response) => response,
        Err(error) => return to.send(Event::Failed(in_words(&error, host))).ok(),
    };
    to.send(Event::Head(response.status().as_u16(), response.headers().clone())).ok()?;
    if is_head {
        return to.send(Event::End).ok();
    }
    let mut reader = response.body_mut().as_reader();
    loop {
        let mut bytes = vec![0; CHUNK];
        match reader.read(&mut bytes) {
            Ok(0) => return to.send(Event::End).ok(),
            Ok(n) => {
                bytes.truncate(n);
                to.send(Event::Data(bytes)).ok()?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return to.send(Event::Failed(in_words(&ureq::Error::from(error), host))).ok(),
        }
    }
}

/// A transport error in one short line.
fn in_words(error: &ureq::Error, host: &str) -> String {
    use std::io::ErrorKind::{ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable, UnexpectedEof};
    let unreachable = |why: &str| format!("{host} cannot be reached: {why}");
    match error {
        ureq::Error::HostNotFound => unreachable("its name is not known"),
        ureq::Error::Timeout(Timeout::Resolve) => unreachable("looking up its name took too long"),
        ureq::Error::Timeout(Timeout::Connect) => unreachable("no connection in time"),
        ureq::Error::Timeout(_) => format!("{host} has stopped answering"),
        ureq::Error::Io(io) => match io.kind() {
            ConnectionRefused => unreachable("the connection is refused"),
            HostUnreachable | NetworkUnreachable => unreachable("there is no way to it from here"),
            ConnectionReset | UnexpectedEof => format!("{host} has cut the connection"),
            // The standard library has no kind for it, and each system its own words behind the colon.
            _ if io.to_string().contains("failed to lookup address") => unreachable("its name is not known"),
            _ => first_line(host, &io.to_string()),
        },
        other => first_line(host, &other.to_string()),
    }
}

fn first_line(host: &str, text: &str) -> String {
    format!("{host}: {}", text.lines().next().unwrap_or("the transfer failed"))
}

/// The host with its port, for people.
pub(super) fn host(url: &Uri) -> String {
    // Never the part before an `@`: it may hold a password.
    let port = url.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}{port}", url.host().unwrap_or("?"))
}

/// Scheme, host and port: what must be equal for a token to be sent.
fn origin(url: &Uri) -> (Option<&str>, Option<String>, Option<u16>) {
    let default = if url.scheme_str() == Some("https") { 443 } else { 80 };
    (url.scheme_str(), url.host().map(str::to_ascii_lowercase), url.port_u16().or(Some(default)))
}

fn parse(url: &str) -> Result<Uri, Fail> {
    match url.parse::<Uri>() {
        Ok(uri) if uri.host().is_some() && matches!(uri.scheme_str(), Some("http" | "https")) => Ok(uri),
        _ => Err(Fail::Source(format!("`{url}` is no web address"))),
    }
}

/// Where `location`, found at `base`, leads.
fn join(base: &Uri, location: &str) -> Result<Uri, Fail> {
    let scheme = base.scheme_str().unwrap_or("https");
    let authority = base.authority().map_or("", |authority| authority.as_str());
    let location = location.split('#').next().unwrap_or("");
    if location.is_empty() {
        return Err(Fail::Source(format!("{} redirects to nowhere", host(base))));
    }
    if location.contains("://") && !location.starts_with(['/', '?']) {
        parse(location)
    } else if let Some(rest) = location.strip_prefix("//") {
        parse(&format!("{scheme}://{rest}"))
    } else if location.starts_with('/') {
        parse(&format!("{scheme}://{authority}{location}"))
    } else {
        let folder = base.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        parse(&format!("{scheme}://{authority}{folder}/{location}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_join() {
        let base = parse("https://hub.test:8080/o/r/resolve/main/f").unwrap_or_default();
        for (location, wanted) in [
            ("https://cdn.test/x?a=b", "https://cdn.test/x?a=b"),
            ("//cdn.test/x", "https://cdn.test/x"),
            ("/api/x?u=http://y", "https://hub.test:8080/api/x?u=http://y"),
            ("g", "https://hub.test:8080/o/r/resolve/main/g"),
        ] {
            assert_eq!(join(&base, location).map(|uri| uri.to_string()).unwrap_or_default(), wanted);
        }
        assert!(join(&base, "").is_err() && join(&base, "ftp://x/y").is_err());
    }

    #[test]
    fn origins() {
        let same = |a: &str, b: &str| origin(&parse(a).unwrap_or_default()) == origin(&parse(b).unwrap_or_default());
        assert!(same("https://Hub.test/x", "https://hub.test:443/y"));
        assert!(!same("https://hub.test", "http://hub.test"));
        assert!(!same("http://hub.test:1", "http://hub.test:2"));
        assert!(!same("https://hub.test", "https://hub.test.evil"));
    }
}

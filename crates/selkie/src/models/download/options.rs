//! Where to look, whom to ask, how long to wait: everything the environment decides, read in one place.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long to wait for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// For looking up a host's name, and again for connecting to it.
    pub connect: Duration,
    /// For the start of an answer.
    pub answer: Duration,
    /// For the next bytes of an answer.
    pub stall: Duration,
    /// For any file of pip's to grow. Pip keeps its own, shorter timeouts (`stall` is handed to it).
    pub pip: Duration,
    /// Before a broken transfer is taken up again.
    pub retry: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let secs = Duration::from_secs;
        Self { connect: secs(5), answer: secs(10), stall: secs(15), pip: secs(180), retry: secs(1) }
    }
}

/// How [`fetch`](crate::models::fetch()) finds and gets files.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FetchOptions {
    /// Selkie's own folder: named models live in `models/` below it. (`SELKIE_HOME`)
    pub selkie_home: Option<PathBuf>,
    /// The hub's cache: holds `models--OWNER--REPO` folders. (`HF_HUB_CACHE`, or `hub` below `HF_HOME`)
    pub hub_cache: Option<PathBuf>,
    /// The hub's address, without a slash at the end. (`HF_ENDPOINT`)
    pub endpoint: String,
    /// Sent to the hub's address and to nobody else. (`HF_TOKEN`, or the file `HF_TOKEN_PATH`, or `token` below `HF_HOME`)
    pub token: Option<String>,
    /// PEM file of the certificate authorities to trust instead of the built-in ones. (`SSL_CERT_FILE`)
    pub ca_file: Option<PathBuf>,
    /// Whether `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` count.
    pub env_proxy: bool,
    /// Never use the network. (`HF_HUB_OFFLINE`)
    pub offline: bool,
    /// Ask the hub whether a branch has moved, even if its files are here.
    pub refresh: bool,
    /// The ways to call pip, the first that works is used. Each is a program with its first arguments.
    pub pip: Vec<Vec<OsString>>,
    /// How often a transfer that breaks is taken up again without having got any further.
    pub retries: u32,
    /// How long to wait for what.
    pub timeouts: Timeouts,
}

impl Default for FetchOptions {
    /// The public hub, the machine's pip, no token, no folders: nothing of the environment.
    fn default() -> Self {
        let ways: &[&[&str]] = &[&["pip"], &["pip3"], &["python3", "-m", "pip"], &["python", "-m", "pip"]];
        Self {
            selkie_home: None,
            hub_cache: None,
            endpoint: "https://huggingface.co".into(),
            token: None,
            ca_file: None,
            env_proxy: false,
            offline: false,
            refresh: false,
            pip: ways.iter().map(|way| way.iter().map(OsString::from).collect()).collect(),
            retries: 3,
            timeouts: Timeouts::default(),
        }
    }
}

impl FetchOptions {
    /// What the environment says. Reads variables and the hub's token file.
    pub fn from_env() -> Self {
        Self::from_vars(|name| std::env::var_os(name), std::env::home_dir())
    }

    /// What `var` says, for a user whose home is `home`.
    fn from_vars(var: impl Fn(&str) -> Option<OsString>, home: Option<PathBuf>) -> Self {
        let path = |name: &str| var(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let text = |name: &str| {
            let value = var(name)?.into_string().ok()?;
            let value = value.trim();
            (!value.is_empty()).then(|| value.to_owned())
        };
        let in_home = |below: &str| home.as_ref().map(|home| home.join(below));
        // The hub's client uses these two on every system, ours each system's own place.
        let dot_cache = path("XDG_CACHE_HOME").or_else(|| in_home(".cache"));
        let caches = if cfg!(target_os = "macos") {
            in_home("Library/Caches")
        } else if cfg!(windows) {
            path("LOCALAPPDATA").or_else(|| in_home("AppData/Local"))
        } else {
            dot_cache.clone()
        };
        let hf_home = path("HF_HOME").or_else(|| dot_cache.map(|dir| dir.join("huggingface")));
        let token_file = path("HF_TOKEN_PATH").or_else(|| Some(hf_home.as_ref()?.join("token")));
        let defaults = Self::default();
        Self {
            selkie_home: path("SELKIE_HOME").or_else(|| caches.map(|dir| dir.join("selkie"))),
            hub_cache: path("HF_HUB_CACHE").or_else(|| Some(hf_home?.join("hub"))),
            endpoint: text("HF_ENDPOINT").map_or(defaults.endpoint, |url| url.trim_end_matches('/').to_owned()),
            token: text("HF_TOKEN").or_else(|| token_in(&token_file?)),
            ca_file: path("SSL_CERT_FILE"),
            env_proxy: true,
            offline: text("HF_HUB_OFFLINE")
                .is_some_and(|value| ["1", "on", "yes", "true"].contains(&value.to_ascii_lowercase().as_str())),
            ..Self::default()
        }
    }
}

fn token_in(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let token = text.trim();
    (!token.is_empty()).then(|| token.to_owned())
}

/// Everything but the token.
impl fmt::Debug for FetchOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FetchOptions")
            .field("selkie_home", &self.selkie_home)
            .field("hub_cache", &self.hub_cache)
            .field("endpoint", &self.endpoint)
            .field("token", &self.token.as_ref().map(|_| "(secret)"))
            .field("ca_file", &self.ca_file)
            .field("env_proxy", &self.env_proxy)
            .field("offline", &self.offline)
            .field("refresh", &self.refresh)
            .field("pip", &self.pip)
            .field("retries", &self.retries)
            .field("timeouts", &self.timeouts)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(vars: &[(&str, &str)]) -> FetchOptions {
        let find = |name: &str| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value));
        FetchOptions::from_vars(find, Some("/home/me".into()))
    }

    #[test]
    fn defaults() {
        let options = options(&[]);
        assert_eq!(options.endpoint, "https://huggingface.co");
        assert_eq!(options.hub_cache.as_deref(), Some(Path::new("/home/me/.cache/huggingface/hub")));
        assert_eq!(options.token, None);
        #[cfg(target_os = "linux")]
        assert_eq!(options.selkie_home.as_deref(), Some(Path::new("/home/me/.cache/selkie")));
    }

    #[test]
    fn variables_win() {
        let options = options(&[
            ("SELKIE_HOME", "/s"),
            ("HF_HOME", "/h"),
            ("HF_ENDPOINT", "http://mirror/"),
            ("HF_TOKEN", " hf_secret\n"),
            ("HF_HUB_OFFLINE", "1"),
        ]);
        assert_eq!(options.selkie_home.as_deref(), Some(Path::new("/s")));
        assert_eq!(options.hub_cache.as_deref(), Some(Path::new("/h/hub")));
        assert_eq!(options.endpoint, "http://mirror");
        assert_eq!(options.token.as_deref(), Some("hf_secret"));
        assert!(options.offline);
        assert!(!format!("{options:?}").contains("hf_secret"));
    }

    #[test]
    fn the_token_file_is_read() {
        let dir = tempfile::tempdir().expect("a folder");
        fs::write(dir.path().join("token"), "hf_from_file\n").expect("written");
        let home = dir.path().to_str().expect("UTF-8");
        assert_eq!(options(&[("HF_HOME", home)]).token.as_deref(), Some("hf_from_file"));
        assert_eq!(options(&[("HF_HOME", home), ("HF_TOKEN", "hf_direct")]).token.as_deref(), Some("hf_direct"));
    }

    #[test]
    fn no_home_is_no_folder() {
        let options = FetchOptions::from_vars(|_| None, None);
        assert_eq!((options.selkie_home, options.hub_cache), (None, None));
    }
}

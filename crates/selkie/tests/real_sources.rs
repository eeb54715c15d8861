//! Fetches the named models for real: `cargo test -p selkie --test real_sources -- --ignored --nocapture`.
#![cfg(feature = "download")]

use std::time::Instant;

use selkie::models::{self, FetchOptions, ModelRef, Progress};

#[derive(Default)]
struct Report {
    what: String,
    total: Option<u64>,
    done: u64,
    told: u64,
}

impl Progress for Report {
    fn begin(&mut self, what: &str, total: Option<u64>) {
        (self.what, self.total, self.done, self.told) = (what.into(), total, 0, 0);
        println!("{what}: {total:?} bytes");
    }
    fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        let tenth = self.total.map_or(0, |total| self.done * 10 / total.max(1));
        if tenth > self.told {
            self.told = tenth;
            println!("{}: {} bytes", self.what, self.done);
        }
    }
    fn note(&mut self, line: &str) {
        println!("note: {line}");
    }
    fn finish(&mut self) {
        assert_eq!(self.total, Some(self.done), "all bytes of {} were reported", self.what);
    }
}

#[test]
#[ignore = "downloads 350 MB"]
fn named_models_arrive() {
    let home = tempfile::tempdir().expect("a folder");
    let mut options = FetchOptions::from_env();
    options.selkie_home = Some(home.path().join("selkie"));
    options.hub_cache = Some(home.path().join("hub"));
    for entry in models::table() {
        let started = Instant::now();
        // The library checks size and checksum itself; a wrong file would be an error here.
        let path = models::fetch(&ModelRef::Name(entry), &options, &mut Report::default()).expect("fetched");
        println!("{} after {:.1} s: {}", entry.name, started.elapsed().as_secs_f32(), path.display());
        let started = Instant::now();
        assert_eq!(models::fetch(&ModelRef::Name(entry), &options, &mut Report::default()).expect("here"), path);
        assert!(started.elapsed().as_millis() < 100);
    }
    let here = models::list(&options);
    println!("{here:#?}");
    assert_eq!(here.len(), models::table().len());
}

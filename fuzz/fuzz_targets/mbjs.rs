//! Any text as a configuration and any bytes as an MBJS file of it: refused in one line, or read, and written to a file
//! that reads the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use selkie_formats::{
    Checkpoint, MemorySource,
    mbjs::{self, Config, MbjsFile, MbjsOptions},
};
use selkie_fuzz::{now, read_all, source};

fuzz_target!(|data: &[u8]| {
    // The configuration ends at the first zero byte, which JSON has not.
    let split = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (json, file) = data.split_at(split);
    let config = match Config::parse("config.json", json) {
        Ok(config) => config,
        Err(error) => return assert!(error.to_string().starts_with("config.json: ")),
    };
    let again = Config::from_json("config.json", config.json().clone().into()).expect("what a configuration keeps");
    assert_eq!(again, config);
    let bytes = file.get(1..).unwrap_or_default();
    let file = match now(MbjsFile::read(&MemorySource::new("fuzz", bytes.to_vec()), &config)) {
        Ok(file) => file,
        Err(error) => return assert!(error.to_string().starts_with("fuzz: ")),
    };
    let checkpoint = now(Checkpoint::open_mbjs(source(bytes), &config)).expect("a file that was read");
    read_all(&checkpoint);
    // Version 1 is read for any schedule, but written for one of Mamba-1 alone.
    let version = if file.version == 1 { 2 } else { file.version };
    let options = MbjsOptions { version, trailer: file.trailer };
    let written = now(mbjs::write(Vec::new(), &config, options, &checkpoint)).expect("what was read");
    let again = now(Checkpoint::open_mbjs(source(&written), &config)).expect("what was written");
    let twice = now(mbjs::write(Vec::new(), &config, options, &again)).expect("what was read again");
    assert_eq!(written, twice);
});

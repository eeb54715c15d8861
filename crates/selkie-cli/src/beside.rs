//! The configuration that an MBJS file needs beside it.

use std::{fs, path::Path};

use anyhow::Result;
use selkie::formats::mbjs::Config;
use serde_json::{Value, to_vec_pretty};

use crate::{args::read_file, terminal, whole_file};

/// Puts `config` beside `output`, as `config.json`, so that the output can be opened; `seed` is what its weights were drawn
/// from. One that is there stays: where it describes another model, a note says what to do.
///
/// # Errors
/// Where it cannot be written.
pub fn put_config(output: &Path, config: &Config, seed: Option<u32>) -> Result<()> {
    if !fs::metadata(output)?.is_file() {
        return Ok(());
    }
    let path = output.with_file_name("config.json");
    if path.exists() {
        let there = read_file(&path).ok().and_then(|bytes| Config::parse("config.json", &bytes).ok());
        if !there.is_some_and(|there| same_model(&there, config)) {
            terminal::note(format_args!(
                "{} is of another model and stays as it is: {} needs its own, given with --config",
                path.display(),
                output.display()
            ));
        }
        return Ok(());
    }
    let mut json = config.json().clone();
    if let Some(seed) = seed {
        json.insert("seed".to_owned(), seed.into());
    }
    let mut text = to_vec_pretty(&Value::Object(json))?;
    text.push(b'\n');
    whole_file::write(&path, |mut out| {
        std::io::Write::write_all(&mut out, &text)?;
        Ok(out)
    })
}

/// Whether two configurations are of models with the same parameters that run the same.
fn same_model(a: &Config, b: &Config) -> bool {
    let about = |config: &Config| (config.vocab_size(), config.d_model(), config.eos_id());
    about(a) == about(b) && a.layers() == b.layers()
}

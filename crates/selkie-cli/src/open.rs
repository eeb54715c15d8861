//! From a MODEL argument to a model.

use std::path::PathBuf;

use anyhow::Result;
use selkie::{
    Backend, Model, ModelFiles, OpenOptions, Opened,
    models::{self, FetchOptions},
};

use crate::{
    args::{Run, usage},
    progress::Bar,
};

/// The files of MODEL on disk: a path as it is, a name or `hf:…` fetched where it is not here yet.
pub fn fetch(model: &str) -> Result<PathBuf> {
    Ok(models::fetch(&models::resolve(model)?, &FetchOptions::from_env(), &mut Bar::new())?)
}

/// MODEL with its headers read.
pub fn headers(model: &str, config: Option<&std::path::Path>) -> Result<Opened> {
    Ok(ModelFiles::find(&fetch(model)?, config)?.open()?)
}

/// MODEL ready to run. `exact` is the command's default.
pub fn model(model: &str, run: &Run, exact: bool) -> Result<Model> {
    model_for(model, run, exact, None)
}

/// As [`model`], for a session of so many positions.
pub fn model_for(model: &str, run: &Run, exact: bool, context: Option<usize>) -> Result<Model> {
    let options = OpenOptions {
        backend: run.backend,
        device: run.device.clone(),
        threads: run.threads.map(usize::from),
        exact: (exact || run.exact) && !run.fast,
        context,
        config: run.config.clone(),
        ..OpenOptions::default()
    };
    if run.device.is_some() && run.backend != Backend::Gpu {
        return usage("--device names a GPU: it goes with --backend gpu");
    }
    Ok(Model::open(&fetch(model)?, &options)?)
}

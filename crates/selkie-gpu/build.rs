//! Gathers every `.wgsl` file under `src` into one table, so that adding a shader is adding a file.

use std::{env, error::Error, fmt::Write as _, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let root = env::var("CARGO_MANIFEST_DIR")?;
    println!("cargo::rerun-if-changed=src");
    let mut files = vec![];
    gather(Path::new(&root).join("src").as_path(), "", &mut files)?;
    files.sort();
    let mut table = String::from("&[\n");
    for (name, path) in files {
        writeln!(table, "    ({name:?}, include_str!({path:?})),")?;
    }
    table.push_str("]\n");
    fs::write(Path::new(&env::var("OUT_DIR")?).join("shaders.rs"), table)?;
    Ok(())
}

/// Files below `folder`, named from `src` on with forward slashes.
fn gather(folder: &Path, prefix: &str, files: &mut Vec<(String, String)>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = format!("{prefix}{}", path.file_name().and_then(|n| n.to_str()).ok_or("a name that is no text")?);
        if path.is_dir() {
            gather(&path, &format!("{name}/"), files)?;
        } else if path.extension().is_some_and(|e| e == "wgsl") {
            files.push((name, path.to_str().ok_or("a path that is no text")?.to_owned()));
        }
    }
    Ok(())
}

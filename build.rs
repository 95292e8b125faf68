//! Embeds the compiled kernels, `kernels/*.fatbin`, into the package `kernels`, with its feature `cuda`.
//!
//! They are checked in, so that building needs no CUDA. With `ROBOCACHE_NVCC=path` they are compiled anew from
//! `kernels/*.cu` by that compiler instead, all but those for drivers of CUDA 12; a compiler that merely lies on the PATH
//! is never taken, since two machines would then build two programs.

use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=.");
    println!("cargo::rerun-if-env-changed=ROBOCACHE_NVCC");
    let is_cuda = env::var_os("CARGO_FEATURE_CUDA").is_some();
    let kernels = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let nvcc = env::var_os("ROBOCACHE_NVCC");

    let mut sources: Vec<PathBuf> = fs::read_dir(&kernels)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    sources.retain(|path| path.extension().is_some_and(|extension| extension == "cu"));
    sources.sort();

    let mut images = String::new();
    for source in sources {
        let name = source
            .file_stem()
            .and_then(|name| name.to_str())
            .ok_or("a kernel's name is no UTF-8")?;
        let [cuda13, cuda12] = match &nvcc {
            _ if !is_cuda => ["&[]".to_owned(), "&[]".to_owned()],
            Some(nvcc) => [
                compile(
                    nvcc.as_ref(),
                    &kernels,
                    &source,
                    &out.join(name).with_extension("fatbin"),
                )?,
                source.with_extension("cuda12.fatbin"),
            ]
            .map(embedded),
            None => [source.with_extension("fatbin"), source.with_extension("cuda12.fatbin")].map(embedded),
        };
        writeln!(images, "/// The kernels of `{name}.cu`.")?;
        writeln!(
            images,
            "pub const {}: Image = Image {{ name: {name:?}, cuda13: {cuda13}, cuda12: {cuda12} }};",
            name.to_uppercase(),
        )?;
    }
    fs::write(out.join("images.rs"), images)?;
    Ok(())
}

fn embedded(file: PathBuf) -> String {
    format!("include_bytes!({file:?})")
}

fn compile(nvcc: &Path, kernels: &Path, source: &Path, fatbin: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let status = Command::new(nvcc)
        .arg("--options-file")
        .arg(kernels.join("nvcc.options"))
        .arg("--output-file")
        .args([fatbin, source])
        .status()
        .map_err(|error| format!("ROBOCACHE_NVCC: {} can't be run: {error}", nvcc.display()))?;
    if !status.success() {
        return Err(format!("{} could not compile {}", nvcc.display(), source.display()).into());
    }
    Ok(fatbin.to_owned())
}

//! Embeds the compiled kernels, `kernels/*.fatbin`, with the feature `cuda`.
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
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=kernels");
    println!("cargo::rerun-if-env-changed=ROBOCACHE_NVCC");
    if env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return Ok(());
    }
    let kernels = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("kernels");
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
        let fatbin = match &nvcc {
            Some(nvcc) => compile(
                Path::new(nvcc),
                &kernels,
                &source,
                &out.join(name).with_extension("fatbin"),
            )?,
            None => source.with_extension("fatbin"),
        };
        writeln!(images, "/// The kernels of `kernels/{name}.cu`.")?;
        writeln!(
            images,
            "pub const {}: Image = Image::new({name:?}, include_bytes!({fatbin:?}), include_bytes!({:?}));",
            name.to_uppercase(),
            source.with_extension("cuda12.fatbin")
        )?;
    }
    fs::write(out.join("images.rs"), images)?;
    Ok(())
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

//! Embeds the compiled kernels into the package `kernels`: `kernels/*.fatbin` with its feature `cuda`,
//! `kernels/hip/*.hsaco.zst` with its feature `hip`.
//!
//! The images are checked in, so that building needs neither CUDA nor ROCm. With `ROBOCACHE_NVCC=path`, that compiler compiles the
//! images for CUDA 13 anew from `kernels/*.cu`. A compiler on the PATH is never used: two machines would then build two different
//! programs.

use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=.");
    println!("cargo::rerun-if-env-changed=ROBOCACHE_NVCC");
    let [is_cuda, is_hip] = ["CARGO_FEATURE_CUDA", "CARGO_FEATURE_HIP"].map(|feature| env::var_os(feature).is_some());
    let kernels = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let nvcc = env::var_os("ROBOCACHE_NVCC");

    let mut images = String::new();
    let hip_images = files(&kernels.join("hip"), "zst")?;
    for source in files(&kernels, "cu")? {
        let name = source
            .file_stem()
            .and_then(|name| name.to_str())
            .ok_or("a kernel's name is not UTF-8")?;
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
        let begins = format!("{name}.");
        let of_name = |path: &&PathBuf| {
            is_hip
                && path
                    .file_name()
                    .is_some_and(|file| file.to_string_lossy().starts_with(&begins))
        };
        let hip: Vec<String> = hip_images.iter().filter(of_name).cloned().map(embedded).collect();
        writeln!(images, "/// The kernels of `{name}.cu`.")?;
        writeln!(
            images,
            "pub const {}: Image = Image {{ name: {name:?}, cuda13: {cuda13}, cuda12: {cuda12}, hip: &[{}] }};",
            name.to_uppercase(),
            hip.join(", "),
        )?;
    }
    fs::write(out.join("images.rs"), images)?;
    Ok(())
}

/// Lists the files of a folder with this extension, sorted.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let paths = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    let mut files = paths.collect::<Result<Vec<_>, _>>()?;
    files.retain(|path| path.extension().is_some_and(|came| came == extension));
    files.sort();
    Ok(files)
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

//! Machines without usable CUDA get a report, not a panic: each fake driver of tests/emulator runs in a process of its own.
//! The tests build the drivers, and skip without make or a C++ compiler.

use crate::common::process_of;
use robocache::device::gpu::{Gpu, Kind, Params, device_count, images};
use std::env;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// Runs a process with the driver of `target/<folder>` and the environment variables `settings`. Returns the report
/// of the process.
fn said_with(folder: &str, settings: &[(&str, &str)]) -> String {
    said("says_what_is_there", folder, settings)
}

/// Builds the drivers once. Returns false if the tools that build them are missing.
pub fn has_drivers() -> bool {
    static BUILT: OnceLock<bool> = OnceLock::new();
    *BUILT.get_or_init(|| {
        let compiler = env::var("CXX").unwrap_or("g++".into());
        for tool in ["make", &compiler] {
            if let Err(error) = Command::new(tool).arg("--version").output() {
                // Not `eprintln!`, which the test harness captures.
                let _ = writeln!(io::stderr(), "cuda_fallback: skipped, {tool} can't be run: {error}");
                return false;
            }
        }
        let make = Command::new("make")
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(["-j", "2", "-f", "tests/emulator/Makefile", "plain", "hip", "broken"])
            .output()
            .expect("make runs");
        assert!(make.status.success(), "{}", String::from_utf8_lossy(&make.stderr));
        true
    })
}

fn said(test: &str, folder: &str, settings: &[(&str, &str)]) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target").join(folder);
    let output = process_of(&format!("cuda_fallback::{test}"))
        .arg("--ignored")
        .env("LD_LIBRARY_PATH", folder)
        .envs(settings.iter().copied())
        .output()
        .expect("the test runs itself");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let said = text.split_once("SAID: ").expect("what it said").1;
    said.lines().next().unwrap_or_default().to_owned()
}

#[test]
#[ignore = "is run by the others, with a driver each"]
fn says_what_is_there() {
    let opened = Gpu::open(Kind::Cuda, 1).map(|gpu| gpu.ordinal());
    println!(
        "\nSAID: {:?}, {}",
        device_count(Kind::Cuda),
        opened.expect_err("there is no second device")
    );
}

#[test]
fn a_device() {
    if !has_drivers() {
        return;
    }
    let said = said_with("emulator", &[]);
    assert!(said.starts_with("Ok(1), "), "{said}");
}

#[test]
fn no_device() {
    if !has_drivers() {
        return;
    }
    let said = said_with("emulator", &[("EMULATOR_DEVICES", "0")]);
    assert!(said.starts_with("Err(NoDevice(Cuda)), "), "{said}");
}

#[test]
fn an_old_driver() {
    if !has_drivers() {
        return;
    }
    let said = said_with("emulator", &[("EMULATOR_DRIVER_VERSION", "11080")]);
    assert!(
        said.starts_with("Err(DriverTooOld { kind: Cuda, came: 11080, needed: 12000 }), "),
        "{said}"
    );
    let allowed = "the CUDA driver supports CUDA 11.8, too old (allowed: a driver of CUDA 12.0 or newer)";
    assert!(said.ends_with(allowed), "{said}");
}

/// Launches a kernel twice in a process with the driver of `target/<folder>`, which reports the CUDA version `version`. Returns
/// the report of the process.
fn launched_with(folder: &str, version: &str) -> String {
    said("launches_a_kernel", folder, &[("EMULATOR_DRIVER_VERSION", version)])
}

#[test]
#[ignore = "is run by the others, with a driver each"]
fn launches_a_kernel() {
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct EmptyParams {
        unused: u32,
    }
    // SAFETY: it is `EmptyParams` of kernels/empty.cu.
    unsafe impl Params for EmptyParams {}

    let gpu = Gpu::open(Kind::Cuda, 0).unwrap();
    let [first, last] = [gpu.event().unwrap(), gpu.event().unwrap()];
    first.record().unwrap();
    for _ in 0..2 {
        let empty = images::EMPTY.kernel("empty");
        // SAFETY: these are the kernel's parameters, and there is no address in them.
        unsafe { gpu.launch(empty, [1, 1, 1], 1, &EmptyParams { unused: 0 }).unwrap() };
    }
    last.record().unwrap();
    gpu.synchronize().unwrap();
    let took = last.elapsed_us(&first).unwrap();
    println!("\nSAID: launched, {}", took >= 0.0);
}

/// The emulator refuses a kernel image that a driver of CUDA 12 could not load. It also refuses an early launch of a kernel
/// that does not wait for the kernel before it.
#[test]
fn drivers_of_cuda_12_take_the_kernels_that_are_for_them() {
    if !has_drivers() {
        return;
    }
    for version in ["12000", "12020", "12040", "12060", "12090"] {
        assert_eq!(
            launched_with("emulator-cuda-12", version),
            "launched, true",
            "{version}"
        );
        assert_eq!(launched_with("emulator", version), "launched, true", "{version}");
    }
    assert_eq!(launched_with("emulator", "13000"), "launched, true");
}

#[test]
fn a_driver_that_lacks_a_function() {
    if !has_drivers() {
        return;
    }
    let said = said_with("emulator-no-symbol", &[]);
    assert!(
        said.starts_with(r#"Err(MissingSymbol(Cuda, "cuStreamBeginCapture_v2")), "#),
        "{said}"
    );
}

#[test]
fn a_driver_that_does_nothing() {
    if !has_drivers() {
        return;
    }
    let said = said_with("emulator-no-device", &[]);
    assert!(said.starts_with("Err("), "{said}");
}

//! The device that a process chooses or refuses on machines with AMD's driver, with AMD's and NVIDIA's, or with a driver
//! that does not work. Each test runs the fake drivers of tests/emulator in a process. Without make or a C++ compiler
//! the tests skip.

use crate::common::process_of;
use crate::cuda_fallback::has_drivers;
use robocache::device::{DeviceChoice, Placement};
use std::env;
use std::path::Path;

/// Runs a process with the fake drivers in `folders` below `target`. Returns the device that it chooses for each setting of
/// `device:` in `choices`.
fn resolved(folders: &[&str], choices: &str, settings: &[(&str, &str)]) -> Vec<String> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("target");
    let folders: Vec<String> = folders
        .iter()
        .map(|folder| target.join(folder).display().to_string())
        .collect();
    let output = process_of("hip_fallback::says_which_devices_it_takes")
        .arg("--ignored")
        .env("LD_LIBRARY_PATH", folders.join(":"))
        .env("CHOICES", choices)
        .env_remove("EMULATOR_DEVICES")
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let said = text.lines().filter_map(|line| line.strip_prefix("SAID: "));
    said.map(str::to_owned).collect()
}

#[test]
#[ignore = "is run by the others, with drivers each"]
fn says_which_devices_it_takes() {
    println!();
    for text in env::var("CHOICES").unwrap().split(',') {
        let choice = DeviceChoice::parse(text).unwrap();
        match Placement::resolve(choice, None) {
            Ok(placement) => println!("SAID: {placement}"),
            Err(error) => println!("SAID: {error}"),
        }
    }
}

#[test]
fn amd_alone_must_be_named() {
    if !has_drivers() {
        return;
    }
    let said = resolved(&["emulator-hip"], "auto,hip,hip:0,hip:1,cuda", &[]);
    let expected = [
        "cpu (auto: no CUDA driver was found (libcuda.so.1 can't be loaded from the library path; a container needs `--gpus \
         all` or `--runtime nvidia`); hip:0 is there, and must be named)",
        "hip:0 Emulated GPU (asked for; not verified on a device, see docs/gpu.md)",
        "hip:0 Emulated GPU (asked for; not verified on a device, see docs/gpu.md)",
        "`hip:1` can't be used: there is no device hip:1 (allowed: hip:0 to hip:0) (allowed on any machine: auto, cpu)",
        "`cuda` can't be used: no CUDA driver was found (libcuda.so.1 can't be loaded from the library path; a container \
         needs `--gpus all` or `--runtime nvidia`); there is hip:0 (allowed on any machine: auto, cpu)",
    ];
    assert_eq!(said, expected);
}

#[test]
fn auto_takes_cuda_of_two_vendors_and_each_is_had_by_its_name() {
    if !has_drivers() {
        return;
    }
    let said = resolved(&["emulator", "emulator-hip"], "auto,hip,cuda", &[]);
    let expected = [
        "cuda:0 Emulated GPU (auto: work that is large enough to be quicker there)",
        "hip:0 Emulated GPU (asked for; not verified on a device, see docs/gpu.md)",
        "cuda:0 Emulated GPU (asked for)",
    ];
    assert_eq!(said, expected);
}

#[test]
fn a_driver_of_amd_that_can_not_be_used_says_why() {
    if !has_drivers() {
        return;
    }
    let hip = |folder: &str, settings: &[(&str, &str)]| resolved(&[folder], "hip", settings).remove(0);
    let cases = [
        (
            hip("emulator", &[]),
            "no AMD driver was found (libamdhip64.so can't be loaded from the library path; ROCm installs it in \
             /opt/rocm/lib); there is cuda:0",
        ),
        (
            hip("emulator-hip", &[("EMULATOR_DEVICES", "0")]),
            "the AMD driver has no device (`HIP_VISIBLE_DEVICES` may hide it, and its user must be of the group `render`)",
        ),
        (
            hip("emulator-hip", &[("EMULATOR_HIP_VERSION", "60300000")]),
            "the AMD driver supports HIP 6.3, too old (allowed: a driver of HIP 6.4 or newer)",
        ),
        (
            hip("emulator-hip-no-symbol", &[]),
            "the AMD driver has no function hipGraphLaunch: it is too old or damaged (install a newer one)",
        ),
        (
            hip("emulator-hip", &[("EMULATOR_HIP_FAIL", "1")]),
            "the AMD driver does not start: hipErrorUnknown (999)",
        ),
    ];
    for (said, reason) in cases {
        let expected = format!("`hip` can't be used: {reason} (allowed on any machine: auto, cpu)");
        assert_eq!(said, expected);
    }
}

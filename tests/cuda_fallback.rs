//! What is said of a machine where CUDA can't be used, and that nothing panics there: the fake drivers of
//! tests/emulator, which `make emulator` builds, each in a process of its own.

use robocache::device::cuda::{Gpu, device_count};
use std::env;
use std::path::Path;
use std::process::Command;

/// What a process says that finds the driver of `target/<folder>`, on a machine that `settings` describe.
fn said_with(folder: &str, settings: &[(&str, &str)]) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target").join(folder);
    assert!(
        folder.join("libcuda.so.1").exists(),
        "{} lacks its driver: run `make emulator`",
        folder.display()
    );
    let output = Command::new(env::current_exe().expect("the test's own path"))
        .args(["--exact", "says_what_is_there", "--ignored", "--nocapture"])
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
    let opened = Gpu::open(1).map(|gpu| gpu.ordinal());
    println!(
        "\nSAID: {:?}, {}",
        device_count(),
        opened.expect_err("there is no second device")
    );
}

#[test]
fn a_device() {
    let said = said_with("emulator", &[]);
    assert!(said.starts_with("Ok(1), "), "{said}");
}

#[test]
fn no_device() {
    let said = said_with("emulator", &[("EMULATOR_DEVICES", "0")]);
    assert!(said.starts_with("Err(NoDevice), "), "{said}");
}

#[test]
fn an_old_driver() {
    let said = said_with("emulator", &[("EMULATOR_DRIVER_VERSION", "12040")]);
    assert!(
        said.starts_with("Err(DriverTooOld { came: 12040, needed: 13000 }), "),
        "{said}"
    );
}

#[test]
fn a_driver_that_lacks_a_function() {
    let said = said_with("emulator-no-symbol", &[]);
    assert!(
        said.starts_with(r#"Err(MissingSymbol("cuStreamBeginCapture_v2")), "#),
        "{said}"
    );
}

#[test]
fn a_driver_that_does_nothing() {
    let said = said_with("emulator-no-device", &[]);
    assert!(said.starts_with("Err("), "{said}");
}

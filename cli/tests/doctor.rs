//! Tests of `robocache doctor` on made-up machines, and with the fake drivers of tests/emulator.

use crate::common::{Done, Folder, command, done, root};
use serde_json::Value;
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::sync::OnceLock;

/// A made-up machine: the root of its files, a folder of programs, and its environment.
struct Machine {
    folder: Folder,
    settings: Vec<(&'static str, String)>,
}

impl Machine {
    /// Creates a machine that has shared memory, the right version of dora, and the Python package.
    fn new() -> Self {
        let folder = Folder::new();
        std::fs::create_dir_all(folder.path("root/dev")).unwrap();
        symlink("/dev/shm", folder.path("root/dev/shm")).unwrap();
        let machine = Self {
            folder,
            settings: Vec::new(),
        };
        machine.program("dora", &format!("echo dora-cli {}", robocache::dora::VERSION));
        machine.program("python3", &format!("echo {}", env!("CARGO_PKG_VERSION")));
        machine
    }

    fn program(&self, name: &str, script: &str) {
        let path = self
            .folder
            .write(&format!("bin/{name}"), &format!("#!/bin/sh\n{script}\n"));
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    fn with(mut self, key: &'static str, value: impl ToString) -> Self {
        self.settings.push((key, value.to_string()));
        self
    }

    fn doctor(&self, words: &[&str]) -> Done {
        let (root, bin) = (self.folder.path("root"), self.folder.path("bin"));
        let mut command = command(["doctor".as_ref(), "--root".as_ref(), root.as_os_str()]);
        done(
            command
                .args(words)
                .env("PATH", bin)
                .env_remove("LD_LIBRARY_PATH")
                .envs(self.settings.clone()),
        )
    }

    /// Runs `robocache doctor`. Returns the exit code, and the name, the level and the finding of each check.
    fn checks(&self) -> (i32, Vec<(String, String, String)>) {
        let done = self.doctor(&["--json"]);
        let text = |check: &Value, key: &str| check[key].as_str().unwrap().to_owned();
        let checks = done.json()["checks"].as_array().unwrap().clone();
        let checks = checks
            .iter()
            .map(|check| (text(check, "name"), text(check, "level"), text(check, "found")));
        (done.code, checks.collect())
    }

    #[track_caller]
    fn says(&self, code: i32, name: &str, level: &str, found: &str) {
        let (came, checks) = self.checks();
        let check = checks.iter().find(|(check, ..)| check == name);
        let (_, at, words) = check.unwrap_or_else(|| panic!("{name}: {checks:#?}"));
        assert!(at == level && words.contains(found), "{name}: {at}: {words}");
        assert_eq!(came, code, "{checks:#?}");
    }
}

#[test]
fn a_machine_that_has_everything_is_well() {
    let machine = Machine::new();
    let (code, checks) = machine.checks();
    assert_eq!(code, 0, "{checks:#?}");
    let names: Vec<&str> = checks.iter().map(|(name, ..)| name.as_str()).collect();
    let all = [
        "dora",
        "shared memory",
        "NVIDIA driver",
        "AMD driver",
        "clock",
        "open files",
        "locked memory",
        "Python package",
    ];
    assert!(all.iter().all(|name| names.contains(name)), "{names:?}");
    let text = machine.doctor(&[]).out;
    assert!(
        text.contains(&format!("ok: dora: dora-cli {}\n", robocache::dora::VERSION)),
        "{text}"
    );
    assert!(text.contains("0 errors, "), "{text}");
}

#[test]
fn dora_must_be_there_and_of_its_version() {
    let machine = Machine::new();
    machine.program("dora", "echo dora-cli 0.3.9");
    machine.says(1, "dora", "error", "dora-cli 0.3.9 (allowed: 1.1.0");
    std::fs::remove_file(machine.folder.path("bin/dora")).unwrap();
    machine.says(1, "dora", "error", "`dora` can't be run");
}

#[test]
fn the_python_package_may_be_missing_or_another_one() {
    let machine = Machine::new();
    machine.program("python3", "echo 0.0.1");
    machine.says(0, "Python package", "warning", "0.0.1 (this command is 0.1.0)");
    machine.program(
        "python3",
        "echo \"ModuleNotFoundError: No module named 'robocache'\" >&2; exit 1",
    );
    machine.says(0, "Python package", "note", "No module named 'robocache'");
}

#[test]
fn a_container_without_shared_memory_is_not_fit() {
    let machine = Machine::new();
    let shm = machine.folder.path("root/dev/shm");
    std::fs::remove_file(&shm).unwrap();
    machine.says(1, "shared memory", "error", "No such file or directory");
    machine.folder.write("root/dev/shm", "");
    machine.says(1, "shared memory", "error", "is not a folder");
}

/// Runs with 64 MiB of shared memory, the default of containers, in a mount namespace. Skipped if the system does not
/// allow one.
#[test]
fn little_shared_memory_is_a_warning() {
    let machine = Machine::new();
    let mount = "mount -t tmpfs -o size=64m none /dev/shm";
    let run = |script: String| Command::new("unshare").args(["-rm", "sh", "-c", &script]).output();
    if !run(mount.to_owned()).is_ok_and(|output| output.status.success()) {
        let _ = writeln!(io::stderr(), "doctor: skipped, no mount namespace can be made here");
        return;
    }
    let (root, bin) = (machine.folder.path("root"), env!("CARGO_BIN_EXE_robocache"));
    let output = run(format!("{mount} && {bin} doctor --root {}", root.display())).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("warning: shared memory: ") && text.contains("--shm-size=1g"),
        "{text}"
    );
}

#[test]
fn files_of_the_system_are_read_where_they_are() {
    let machine = Machine::new();
    let governor = "root/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
    machine.folder.write(governor, "powersave\n");
    machine.says(0, "governor", "warning", "powersave (allowed on a robot: performance");
    machine.folder.write(governor, "performance\n");
    machine.says(0, "governor", "ok", "performance");
    machine.folder.write(
        "root/etc/nv_tegra_release",
        "# R36 (release), REVISION: 4.3, GCID: 38968081\nmore\n",
    );
    machine.says(
        0,
        "Jetson Linux",
        "note",
        "R36 (release), REVISION: 4.3, GCID: 38968081",
    );
    // The kernel module is there, but its library is not.
    let module = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 2025\n";
    machine.folder.write("root/proc/driver/nvidia/version", module);
    let (_, checks) = machine.checks();
    let driver = checks.iter().find(|(name, ..)| name == "NVIDIA driver").unwrap();
    assert!(driver.2.contains("580.65.06"), "{driver:?}");
}

/// Builds the fake GPU drivers, once. Returns false if `make` or the compiler is missing.
fn has_drivers() -> bool {
    static BUILT: OnceLock<bool> = OnceLock::new();
    *BUILT.get_or_init(|| {
        let compiler = std::env::var("CXX").unwrap_or("g++".into());
        for tool in ["make", &compiler] {
            if let Err(error) = Command::new(tool).arg("--version").output() {
                let _ = writeln!(io::stderr(), "doctor: skipped, {tool} can't be run: {error}");
                return false;
            }
        }
        let mut make = Command::new("make");
        make.current_dir(root())
            .args(["-j", "2", "-f", "tests/emulator/Makefile", "plain", "hip", "broken"]);
        let made = make.output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        true
    })
}

fn with_driver(folder: &str) -> Machine {
    Machine::new().with("LD_LIBRARY_PATH", root().join("target").join(folder).display())
}

#[test]
fn each_device_makes_the_grid_of_the_cpu() {
    if !has_drivers() {
        return;
    }
    let machine = with_driver("emulator").with("EMULATOR_DEVICES", 2);
    machine.says(0, "NVIDIA driver", "ok", "CUDA 13.0, 2 devices");
    for device in ["cuda:0", "cuda:1"] {
        machine.says(0, device, "ok", "the same as the CPU's");
    }
}

#[test]
fn a_device_that_fails_or_a_driver_that_is_too_old_is_an_error() {
    if !has_drivers() {
        return;
    }
    let fails = with_driver("emulator").with("EMULATOR_FAIL_LAUNCH", 1);
    fails.says(1, "cuda:0", "error", "CUDA_ERROR_ILLEGAL_ADDRESS");
    let old = with_driver("emulator-cuda-12").with("EMULATOR_DRIVER_VERSION", 11_080);
    old.says(1, "NVIDIA driver", "error", "CUDA 11.8, too old");
    with_driver("emulator-no-symbol").says(1, "NVIDIA driver", "error", "no function cuStreamBeginCapture_v2");
    with_driver("emulator")
        .with("EMULATOR_DEVICES", 0)
        .says(0, "NVIDIA driver", "note", "everything runs on the CPU");
}

#[test]
fn the_devices_of_amd_are_looked_at_as_those_of_nvidia_are() {
    if !has_drivers() {
        return;
    }
    let machine = with_driver("emulator-hip").with("EMULATOR_DEVICES", 2);
    machine.says(0, "AMD driver", "ok", "HIP 6.4, 2 devices; not verified on a device");
    machine.says(
        0,
        "NVIDIA driver",
        "note",
        "no CUDA driver was found (libcuda.so.1 can't be loaded from the library path; a container needs",
    );
    for device in ["hip:0", "hip:1"] {
        machine.says(0, device, "ok", "the same as the CPU's");
    }
    let fails = with_driver("emulator-hip").with("EMULATOR_FAIL_LAUNCH", 1);
    fails.says(1, "hip:0", "error", "hipErrorIllegalAddress");
    let other = with_driver("emulator-hip").with("EMULATOR_HIP_FAMILY", 1);
    other.says(1, "hip:0", "error", "hipErrorNoBinaryForGpu (209)");
    let old = with_driver("emulator-hip").with("EMULATOR_HIP_VERSION", 50_200_000);
    old.says(
        1,
        "AMD driver",
        "error",
        "HIP 5.2, too old (allowed: a driver of HIP 6.4 or newer)",
    );
    with_driver("emulator-hip-no-symbol").says(1, "AMD driver", "error", "no function hipGraphLaunch");
    // The kernel module is there, but its library is not.
    let machine = Machine::new();
    machine.folder.write("root/dev/kfd", "");
    machine.says(
        1,
        "AMD driver",
        "error",
        "/dev/kfd is there, and no AMD driver was found",
    );
}

/// Makes each of the driver's first 60 calls fail, one in each run. A failed call that only releases resources changes nothing.
#[test]
fn whichever_call_of_hip_fails_a_device_that_can_not_be_used_is_told() {
    if !has_drivers() {
        return;
    }
    let mut told = 0;
    for call in 1..=60 {
        let (code, checks) = with_driver("emulator-hip").with("EMULATOR_HIP_FAIL", call).checks();
        let rows = checks
            .iter()
            .filter(|(name, ..)| name == "AMD driver" || name == "hip:0");
        let wrong: Vec<_> = rows.filter(|(_, level, _)| level != "ok").collect();
        let is_named =
            |(_, level, found): &&(String, String, String)| level == "error" && found.contains("hipErrorUnknown (999)");
        assert!(wrong.iter().all(is_named), "call {call}: {checks:#?}");
        assert_eq!(code == 1, !wrong.is_empty(), "call {call}: {checks:#?}");
        told += wrong.len();
    }
    assert!(told > 20, "{told} of 60 calls");
}

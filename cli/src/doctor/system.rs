//! Checks the operating system: shared memory, clock, limits, governor and release. It only reads.

use super::Check;
use crate::output::{Level, bytes, figure};
use rustix::fs::{Access, access, statvfs};
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Free shared memory that a dataflow with point clouds needs, bytes, for dora's pools and robocache's rings.
const SHARED_MEMORY: u64 = 256 << 20;
/// Number of open files, sockets included, that a node needs in a dataflow of dozens of nodes.
const OPEN_FILES: u64 = 1024;
/// Largest error of the clock at which stamps of several machines can still be compared, us.
const CLOCK_ERROR_US: i64 = 10_000;

pub fn shared_memory(root: &Path) -> Check {
    let name = "shared memory";
    let path = root.join("dev/shm");
    let place = path.display();
    let metadata = match fs::metadata(&path) {
        Ok(metadata) if metadata.is_dir() => metadata,
        Ok(_) => {
            return Check::new(
                Level::Error,
                name,
                format!("{place} is not a folder (allowed: a tmpfs)"),
            );
        }
        Err(error) => return Check::new(Level::Error, name, format!("{place}: {error} (allowed: a tmpfs)")),
    };
    if access(&path, Access::WRITE_OK).is_err() {
        return Check::new(
            Level::Error,
            name,
            format!("{place} can't be written to (allowed: mode 1777)"),
        );
    }
    let (size, free) = match statvfs(&path) {
        Ok(stat) => (stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize),
        Err(error) => return Check::new(Level::Error, name, format!("{place}: {error}")),
    };
    let mode = metadata.permissions().mode() & 0o7777;
    let found = format!("{place}: {}, {} free, mode {mode:o}", bytes(size), bytes(free));
    if free < SHARED_MEMORY {
        let advice = "allowed: 256 MiB free or more; of a container `--shm-size=1g` or `--ipc=host`";
        return Check::new(Level::Warning, name, format!("{found} ({advice})"));
    }
    match mode {
        0o1777 => Check::new(Level::Ok, name, found),
        _ => Check::new(
            Level::Warning,
            name,
            format!("{found} (allowed: mode 1777, for nodes of several users)"),
        ),
    }
}

/// Checks that the real-time clock is synchronized.
pub fn clock() -> Check {
    let name = "clock";
    // SAFETY: all zeros are a valid `timex`, and mean that nothing is to be set.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes to `timex` alone.
    let state = unsafe { libc::adjtimex(&mut timex) };
    if state < 0 {
        let error = std::io::Error::last_os_error();
        return Check::new(Level::Note, name, format!("it can't be asked: {error}"));
    }
    let is_synchronized = state != libc::TIME_ERROR && timex.status & libc::STA_UNSYNC == 0;
    let in_ns = timex.status & libc::STA_NANO != 0;
    let offset_us = timex.offset as f64 * if in_ns { 1e-3 } else { 1.0 };
    let found = format!(
        "offset {} us, at most {} ms off",
        figure(offset_us),
        figure(timex.maxerror as f64 / 1e3)
    );
    if !is_synchronized {
        let advice =
            "allowed: chrony, ntpd, systemd-timesyncd or ptp; one machine alone with its own sensors needs none";
        return Check::new(Level::Warning, name, format!("nothing disciplines it ({advice})"));
    }
    if timex.maxerror > CLOCK_ERROR_US {
        return Check::new(
            Level::Warning,
            name,
            format!("{found} (allowed: 10 ms, where stamps are of several machines)"),
        );
    }
    Check::new(Level::Ok, name, found)
}

pub fn limits() -> [Check; 2] {
    let in_words = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string());
    let files = getrlimit(Resource::Nofile);
    let found = format!("{}, up to {}", in_words(files.current), in_words(files.maximum));
    let files = if files.current.is_some_and(|limit| limit < OPEN_FILES) {
        Check::new(
            Level::Warning,
            "open files",
            format!("{found} (allowed: {OPEN_FILES} or more, `ulimit -n`)"),
        )
    } else {
        Check::new(Level::Ok, "open files", found)
    };
    let locked = getrlimit(Resource::Memlock);
    let in_bytes = locked.current.map_or_else(|| "unlimited".to_owned(), bytes);
    [files, Check::new(Level::Ok, "locked memory", in_bytes)]
}

/// Checks the governor of the CPU's clock rate; `None` if the kernel does not name it.
pub fn governor(root: &Path) -> Option<Check> {
    let cores = fs::read_dir(root.join("sys/devices/system/cpu")).ok()?;
    let files = cores.filter_map(|core| Some(core.ok()?.path().join("cpufreq/scaling_governor")));
    let mut governors: Vec<String> = files
        .filter_map(|file| Some(fs::read_to_string(file).ok()?.trim().to_owned()))
        .collect();
    governors.sort();
    governors.dedup();
    if governors.is_empty() {
        return None;
    }
    let found = governors.join(", ");
    Some(match governors.as_slice() {
        [only] if only == "performance" => Check::new(Level::Ok, "governor", found),
        _ if governors.iter().any(|governor| governor == "powersave") => {
            let advice = "allowed on a robot: performance, `cpupower frequency-set -g performance`";
            Check::new(Level::Warning, "governor", format!("{found} ({advice})"))
        }
        _ => Check::new(Level::Note, "governor", format!("{found} (performance answers sooner)")),
    })
}

/// Reports the release of Jetson Linux; `None` if the machine runs another system.
pub fn jetson(root: &Path) -> Option<Check> {
    let text = fs::read_to_string(root.join("etc/nv_tegra_release")).ok()?;
    let line = text.lines().next().unwrap_or_default().trim_start_matches('#').trim();
    Some(Check::new(Level::Note, "Jetson Linux", line))
}

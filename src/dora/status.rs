//! The status file of a node, with its newest report.
//!
//! A reader always finds a complete report, the newest or the one before it. A slow or full disk never holds up a running node.

use super::NodeError;
use crate::app::Report;
use dora_node_api::serde_json;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Reads the folder of status files from `ROBOCACHE_STATUS`, for a configuration that does not name one. An empty variable
/// counts as not set.
pub(super) fn folder_of_env() -> Option<PathBuf> {
    let folder = std::env::var_os("ROBOCACHE_STATUS")?;
    (!folder.is_empty()).then(|| folder.into())
}

/// Time that an ending node waits for its last report to be written.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Writer of reports to the node's status file, on a thread of its own because a disk may be slow.
pub(super) struct Status {
    reports: SyncSender<Report>,
    thread: JoinHandle<()>,
}

impl Status {
    /// Starts the writer of a node's status file in this folder, which is made if it is missing.
    ///
    /// # Errors
    /// No file can be written there.
    pub(super) fn new(folder: &Path, node: &str) -> Result<Self, NodeError> {
        let refused = |error: std::io::Error| {
            let needed = "needed: a folder that the node can write to";
            NodeError::Config(format!("status: {}: {error} ({needed})", folder.display()))
        };
        std::fs::create_dir_all(folder).map_err(refused)?;
        let files = Files::new(folder, node);
        files
            .write(b"")
            .and_then(|()| std::fs::remove_file(&files.temporary))
            .map_err(refused)?;
        // One report may wait while one is written.
        let (reports, written) = sync_channel(1);
        let thread = std::thread::Builder::new().name("status".into());
        let thread = thread.spawn(move || write_each(&written, &files)).map_err(refused)?;
        Ok(Self { reports, thread })
    }

    /// Hands a report to the writer. The report is dropped if the disk is slower than reports come.
    pub(super) fn put(&self, report: Report) {
        drop(self.reports.try_send(report));
    }

    /// Hands over the last report, and waits until it is written, for [`END_TIMEOUT`] at most.
    pub(super) fn end(self, report: Report) {
        let deadline = Instant::now() + END_TIMEOUT;
        let mut report = Some(report);
        while let Some(last) = report.take()
            && let Err(std::sync::mpsc::TrySendError::Full(last)) = self.reports.try_send(last)
            && Instant::now() < deadline
        {
            report = Some(last);
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(self.reports);
        while !self.thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Paths of a node's status file, and of the temporary file that becomes it.
struct Files {
    /// Path of the status file.
    last: PathBuf,
    /// Path of the temporary file, which no other process uses.
    temporary: PathBuf,
}

impl Files {
    fn new(folder: &Path, node: &str) -> Self {
        // An id may have characters that the name of a file can't have.
        let name = node.replace(['/', '\0'], "_");
        Self {
            last: folder.join(format!("{name}.json")),
            temporary: folder.join(format!(".{name}.{}", std::process::id())),
        }
    }

    /// Writes `text` to a new temporary file. An existing file is removed first, and never written to.
    fn write(&self, text: &[u8]) -> std::io::Result<()> {
        // An earlier process with the same process id may have left its temporary file behind.
        let _ = std::fs::remove_file(&self.temporary);
        File::options()
            .write(true)
            .create_new(true)
            .open(&self.temporary)?
            .write_all(text)
    }

    /// Replaces the file, so that readers find this report or the one before it, whole. If writing fails, the temporary file is
    /// removed: on a full disk it would take the room that the next report needs.
    fn put(&self, report: &Report) -> std::io::Result<()> {
        let text = serde_json::to_vec(report)?;
        // Somebody who cleans up may have removed the folder.
        if let Some(folder) = self.last.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let put = self.write(&text);
        put.and_then(|()| std::fs::rename(&self.temporary, &self.last))
            .inspect_err(|_| drop(std::fs::remove_file(&self.temporary)))
    }
}

/// Writes reports to the status file as they come. A failure is logged once, and again only after a success.
fn write_each(reports: &Receiver<Report>, files: &Files) {
    let mut is_said = false;
    for report in reports {
        match files.put(&report) {
            Ok(()) => is_said = false,
            Err(error) => {
                if !is_said {
                    tracing::warn!("status: {}: {error}", files.last.display());
                }
                is_said = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::Row;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("robocache-status-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    fn report(i: u64) -> Report {
        let row = |input: usize| Row {
            input: format!("input {input}"),
            message: "x".repeat(500),
            messages: i,
            ..Row::default()
        };
        Report {
            version: Report::VERSION,
            node: "fuse".into(),
            observations: i,
            inputs: (0..(i % 20) as usize).map(row).collect(),
            ..Report::default()
        }
    }

    #[test]
    fn a_reader_finds_a_whole_report_each_time() {
        let folder = folder("whole");
        let files = {
            std::fs::create_dir_all(&folder).unwrap();
            Files::new(&folder, "a/b")
        };
        files.put(&report(0)).unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let writer = std::thread::spawn({
            let done = done.clone();
            move || {
                let mut i = 0;
                while !done.load(Ordering::Relaxed) {
                    i += 1;
                    files.put(&report(i)).unwrap();
                }
                i
            }
        });
        let path = folder.join("a_b.json");
        let mut newest = 0;
        for _ in 0..10_000 {
            let read: Report = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            assert!(read.observations >= newest);
            newest = read.observations;
            assert_eq!(read, report(newest));
        }
        done.store(true, Ordering::Relaxed);
        assert!(writer.join().unwrap() > 0 && newest > 0);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_can_not_be_written_is_refused_at_the_start() {
        let folder = folder("refused");
        std::fs::write(&folder, "").unwrap();
        let words = Status::new(&folder, "fuse").err().unwrap().to_string();
        assert!(words.contains(&folder.display().to_string()), "{words}");
        std::fs::remove_file(folder).unwrap();
    }

    #[test]
    fn a_report_that_has_no_place_leaves_nothing_behind_and_a_folder_that_went_comes_again() {
        let folder = folder("gone");
        let status = Status::new(&folder, "fuse").unwrap();
        std::fs::remove_dir(&folder).unwrap();
        status.end(report(1));
        assert!(folder.join("fuse.json").is_file());
        // A folder with the file's name can't be written over.
        let files = Files::new(&folder, "taken");
        std::fs::create_dir_all(files.last.join("in the way")).unwrap();
        assert!(files.put(&report(1)).is_err());
        assert!(!files.temporary.exists());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_last_report_is_there_when_it_ends() {
        let folder = folder("last");
        let status = Status::new(&folder, "fuse").unwrap();
        for i in 0..100 {
            status.put(report(i));
        }
        status.end(Report {
            ended: true,
            ..report(100)
        });
        let read: Report = serde_json::from_slice(&std::fs::read(folder.join("fuse.json")).unwrap()).unwrap();
        assert!(read.ended && read.observations == 100);
        std::fs::remove_dir_all(folder).unwrap();
    }
}

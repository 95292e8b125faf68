//! Settings of dora's transport, and the wait at a node's end until consumers have read its last messages.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Settings of zenoh with a queue 16 batches deep and a wait of 100 ms. By default dora drops what zenoh can't send within 1
/// ms, and the queue is two batches deep. A burst then loses messages unseen if a consumer is not scheduled at once.
const ZENOH_OVERLAY: &str = r#"{"transport":{"link":{"tx":{"queue":{
    "size":{"real_time":16},
    "congestion_control":{"drop":{"wait_before_drop":100000}}
}}}}}"#;

const OVERLAY_VARIABLE: &str = "DORA_ZENOH_CONFIG_OVERLAY";

/// File of settings for dora's transport, removed when this value is dropped. Its name can't be guessed, and only this user can
/// read it.
pub(super) struct Overlay(Option<(File, Option<PathBuf>)>);

impl Overlay {
    /// Sets up the transport of this process before the node starts: sets `DORA_ZENOH_CONFIG_OVERLAY` to a file of settings. It
    /// changes nothing if the operator has set that variable or `ZENOH_CONFIG`. Nor does it if the process has a second thread,
    /// which may read the environment meanwhile.
    pub(super) fn set() -> Self {
        if std::env::var_os(OVERLAY_VARIABLE).is_some() || std::env::var_os("ZENOH_CONFIG").is_some() {
            return Self(None);
        }
        if threads() > 1 {
            tracing::warn!(
                "there is a second thread already, so the transport stays as it is; bursts may lose messages \
                 (needed: no thread before the node starts)"
            );
            return Self(None);
        }
        match Self::write() {
            Ok((overlay, path)) => {
                // SAFETY: this is the only thread, so nothing reads the environment at the same time.
                unsafe { std::env::set_var(OVERLAY_VARIABLE, path) };
                overlay
            }
            Err(error) => {
                tracing::warn!(
                    "{}: {error}; bursts may lose messages (needed: a folder for a small file, which TMPDIR names)",
                    std::env::temp_dir().display()
                );
                Self(None)
            }
        }
    }

    /// Writes the file of settings, and returns the path at which it can be read.
    fn write() -> std::io::Result<(Self, PathBuf)> {
        let mut options = File::options();
        options.write(true).create_new(true);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        // A new `RandomState` has random keys.
        let random = || RandomState::new().build_hasher().finish();
        let name = format!("robocache-zenoh-{:016x}{:016x}.json5", random(), random());
        let path = std::env::temp_dir().join(name);
        let mut file = options.open(&path)?;
        if let Err(error) = file.write_all(ZENOH_OVERLAY.as_bytes()) {
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        // If an open file can be read without its name, remove the name: then nothing stays behind, however this ends.
        let open = PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file)));
        if std::fs::read(&open).is_ok_and(|text| text == ZENOH_OVERLAY.as_bytes()) {
            std::fs::remove_file(&path)?;
            return Ok((Self(Some((file, None))), open));
        }
        Ok((Self(Some((file, Some(path.clone())))), path))
    }
}

/// Number of threads of this process; 1 if the system does not give it.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

impl Drop for Overlay {
    fn drop(&mut self) {
        if let Some((_, Some(path))) = &self.0 {
            // A file left behind in the temporary folder harms nobody.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Waits until the processes on this machine have read what this one sent them, for `limit` at the most.
///
/// Otherwise the last messages are lost: the daemon tells consumers that their input closed before they have read the
/// data, and shared memory goes with the process that made it.
pub(super) fn wait_until_read(limit: Duration) {
    const POLL: Duration = Duration::from_millis(2);
    /// Number of successive polls that have to find no unread bytes. Data in flight between two sockets is in neither queue, so
    /// one poll is not enough.
    const QUIET_POLLS: u32 = 5;
    let start = Instant::now();
    let mut quiet = 0;
    while quiet < QUIET_POLLS {
        match unread_bytes() {
            Some(0) => quiet += 1,
            Some(_) => quiet = 0,
            None => return,
        }
        if start.elapsed() > limit {
            tracing::warn!(
                "consumers have not read everything within {} s: the last messages may be lost",
                limit.as_secs()
            );
            return;
        }
        std::thread::sleep(POLL);
    }
}

/// Number of bytes that this process has sent over TCP, and that no process on this machine has read; `None` without `/proc`.
fn unread_bytes() -> Option<u64> {
    let own = own_sockets()?;
    let mut sockets = HashMap::new();
    for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let Ok(text) = std::fs::read_to_string(file) else {
            continue;
        };
        for line in text.lines().skip(1) {
            if let Some((ends, socket)) = parse_socket(line) {
                sockets.insert(ends, socket);
            }
        }
    }
    let unread = sockets
        .iter()
        .filter(|(_, socket)| own.contains(&socket.inode))
        .map(|((local, remote), socket)| {
            let peer = sockets.get(&(remote.clone(), local.clone()));
            socket.sending + peer.map_or(0, |peer| peer.received)
        });
    Some(unread.sum())
}

struct Socket {
    sending: u64,
    received: u64,
    inode: u64,
}

/// Parses a line of `/proc/net/tcp`: local and remote address, and the socket with the bytes in its two queues. `None` for a
/// socket that is not connected.
fn parse_socket(line: &str) -> Option<((String, String), Socket)> {
    const CONNECTED: [&str; 4] = ["01", "04", "05", "08"];
    let columns: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, local, remote, state, queues, _, _, _, _, inode, ..] = columns.as_slice() else {
        return None;
    };
    let (sending, received) = queues.split_once(':')?;
    let socket = Socket {
        sending: u64::from_str_radix(sending, 16).ok()?,
        received: u64::from_str_radix(received, 16).ok()?,
        inode: inode.parse().ok()?,
    };
    CONNECTED
        .contains(state)
        .then(|| (((*local).to_owned(), (*remote).to_owned()), socket))
}

fn own_sockets() -> Option<HashSet<u64>> {
    let files = std::fs::read_dir("/proc/self/fd").ok()?;
    let inode = |file: std::fs::DirEntry| {
        let target = std::fs::read_link(file.path()).ok()?;
        target
            .to_str()?
            .strip_prefix("socket:[")?
            .strip_suffix(']')?
            .parse()
            .ok()
    };
    Some(files.flatten().filter_map(inode).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_overlay_can_be_read_and_leaves_nothing_that_others_could_take() {
        let files = || -> HashSet<PathBuf> {
            let all = std::fs::read_dir(std::env::temp_dir())
                .unwrap()
                .flatten()
                .map(|file| file.path());
            all.filter(|path| path.to_string_lossy().contains("robocache-zenoh-"))
                .collect()
        };
        let before = files();
        let (overlay, path) = Overlay::write().unwrap();
        let (other, _) = Overlay::write().unwrap();
        for _ in 0..2 {
            assert_eq!(std::fs::read_to_string(&path).unwrap(), ZENOH_OVERLAY);
        }
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(files(), before);
        drop((overlay, other));
        assert_eq!(files(), before);
    }

    #[test]
    fn what_a_peer_has_not_read_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        sender.write_all(&[7; 1000]).unwrap();
        let waited = Instant::now();
        wait_until_read(Duration::from_millis(50));
        assert!(waited.elapsed() >= Duration::from_millis(50));
        receiver.read_exact(&mut [0; 1000]).unwrap();
        let waited = Instant::now();
        wait_until_read(Duration::from_secs(20));
        assert!(waited.elapsed() < Duration::from_secs(10));
    }
}

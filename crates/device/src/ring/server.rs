//! The socket of a ring: a process that may read the ring gets the ring's file descriptors here. The end of a connection tells
//! either side that the other died.
//!
//! A sequential-packet Unix socket with an abstract name. A consumer sends `RCR1` and a byte, `m` to map the ring, or `h` to get
//! payloads *by the host*: through host memory, since it can't map the ring. The answer is `RCR1`, a status and the consumer's
//! column (u32 each): the index of its page of leases. With the answer come the file descriptors of the control page, of the slots
//! and, if the consumer has a column, of that page.

use super::control::{Control, Leases, NOBODY};
use super::{MAX_CONSUMERS, RingError};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::Pid;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const MAGIC: &[u8; 4] = b"RCR1";
/// Largest number of connections of a ring, whether their consumers can lease slots, can only read, or get payloads through host
/// memory.
const MAX_CONNECTIONS: usize = 64;
/// Largest number of connections of one process to a ring, so that the process can't keep others out. A process needs one.
const MAX_OF_PROCESS: usize = 16;
const NO_COLUMN: u32 = u32::MAX;
/// Longest time for which a consumer waits for the producer's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Request of a consumer: the byte that it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Asks for the file descriptors to map the ring.
    Map = b'm' as isize,
    /// Asks for payloads through host memory, as the consumer can't map the ring.
    Host = b'h' as isize,
}

/// State that a ring's writer shares with the thread of the ring's socket.
pub(super) struct Served {
    pub control: Control,
    /// Pages of leases, one for each consumer that can lease slots; the index is the consumer's `column`.
    pub leases: [Leases; MAX_CONSUMERS],
    /// File descriptor of the slots' memory, which consumers get.
    pub memory_file: OwnedFd,
    /// Number of connected consumers that asked for payloads through host memory.
    pub by_host: AtomicUsize,
    /// Number of connected consumers that map the ring, whether they can lease slots or not.
    pub mapped: AtomicUsize,
    /// Largest number of consumers that were connected and mapped the ring at the same time, so far. A consumer that is restarted
    /// is thus not counted twice.
    pub came: AtomicUsize,
}

/// Owner of the thread that answers the requests at a ring's socket. Dropping the value ends the thread and every connection.
///
/// A forked process has the sockets, too, but not the thread. So the process that made the sockets shuts them down: closing them in
/// one process would end nothing.
pub(super) struct Server {
    /// One end of a socket pair. The thread polls the other end, and stops when this end is shut down.
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
    pid: u32,
}

impl Server {
    pub(super) fn start(name: &str, served: Arc<Served>) -> Result<Self, RingError> {
        let os = |what| move |error: rustix::io::Errno| RingError::os(name, what, error);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(os("its socket can't be made"))?;
        let address =
            SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(os("its name is not valid for a socket"))?;
        rustix::net::bind(&listener, &address).map_err(os("its socket can't be bound"))?;
        rustix::net::listen(&listener, 16).map_err(os("its socket can't be listened to"))?;
        let (stop, stopped) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .map_err(os("the sockets that stop its thread can't be made"))?;
        let thread = std::thread::Builder::new().name("ring".into()).spawn({
            let answering = ServerThread {
                name: name.to_owned(),
                served,
                listener,
                connections: Vec::new(),
            };
            move || answering.run(&stopped)
        });
        let thread = thread.map_err(|error| RingError::os(name, "its thread can't be started", error))?;
        Ok(Self {
            stop,
            thread: Some(thread),
            pid: std::process::id(),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.pid != std::process::id() {
            // A forked process does not have the thread.
            return std::mem::forget(thread);
        }
        let _ = rustix::net::shutdown(&self.stop, Shutdown::Both);
        // The thread logs its errors, and panics nowhere.
        let _ = thread.join();
    }
}

/// Server's end of a connection, and what its consumer has asked for.
struct Connection {
    socket: OwnedFd,
    pid: Pid,
    is_mapped: bool,
    is_by_host: bool,
    column: Option<usize>,
}

struct ServerThread {
    name: String,
    served: Arc<Served>,
    listener: OwnedFd,
    connections: Vec<Connection>,
}

impl ServerThread {
    fn run(mut self, stopped: &OwnedFd) {
        loop {
            let count = 2 + self.connections.len();
            let mut polled: [PollFd<'_>; 2 + MAX_CONNECTIONS] = std::array::from_fn(|i| match i {
                0 => PollFd::new(stopped, PollFlags::IN),
                1 => PollFd::new(&self.listener, PollFlags::IN),
                // Entries after the last one are not polled.
                i => PollFd::new(
                    self.connections.get(i - 2).map_or(stopped, |it| &it.socket),
                    PollFlags::IN,
                ),
            });
            let ready = match rustix::event::poll(&mut polled[..count], None) {
                Ok(_) => polled.map(|fd| !fd.revents().is_empty()),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => {
                    tracing::warn!(
                        "ring `{}`: its consumers can't be polled, and none is let in: {error}; it is tried again in 0.2 s",
                        self.name
                    );
                    std::thread::sleep(Duration::from_millis(200));
                    let end = rustix::net::recv(stopped, &mut [0; 1], RecvFlags::DONTWAIT);
                    std::array::from_fn(|i| i == 0 && matches!(end, Ok((0, _))))
                }
            };
            if ready[0] {
                let sockets = self.connections.iter().map(|it| &it.socket).chain([&self.listener]);
                for socket in sockets {
                    let _ = rustix::net::shutdown(socket, Shutdown::Both);
                }
                return;
            }
            // Requests are handled from the oldest connection on: a consumer that is gone gives up its column before another asks
            // for one.
            let mut i = 0;
            for &is_ready in &ready[2..count] {
                match is_ready && !self.handle_request(i) {
                    true => self.forget(i),
                    false => i += 1,
                }
            }
            if ready[1] {
                self.accept();
            }
        }
    }

    fn accept(&mut self) {
        match rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => {
                let peer = rustix::net::sockopt::socket_peercred(&socket);
                let own = rustix::process::geteuid();
                let admitted = peer.ok().filter(|peer| peer.uid == own).map(|peer| peer.pid);
                let admitted = admitted.ok_or(Status::OtherUser).and_then(|pid| self.admit(pid));
                match admitted {
                    Err(status) => drop(send(&socket, status, None, &[])),
                    Ok(pid) => self.connections.push(Connection {
                        socket,
                        pid,
                        is_mapped: false,
                        is_by_host: false,
                        column: None,
                    }),
                }
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => {}
            Err(error) => {
                // Most often no file descriptor is left. The consumer waits in the socket's queue.
                tracing::warn!(
                    "ring `{}`: a consumer can't be let in: {error}; it waits, and is let in once that is over \
                     (if this node has too many files open: raise `ulimit -n`)",
                    self.name
                );
                std::thread::sleep(Duration::from_millis(200));
            }
        }
    }

    /// Returns `pid` if one more connection of that process is allowed, else the status by which to refuse it.
    fn admit(&self, pid: Pid) -> Result<Pid, Status> {
        let of_process = self.connections.iter().filter(|connection| connection.pid == pid);
        if of_process.count() >= MAX_OF_PROCESS {
            return Err(Status::OfProcess);
        }
        match self.connections.len() {
            ..MAX_CONNECTIONS => Ok(pid),
            _ => Err(Status::Full),
        }
    }

    /// Reads and answers the request on connection `i`. Returns false if the consumer is gone, or its request is not valid.
    fn handle_request(&mut self, i: usize) -> bool {
        let mut bytes = [0; 16];
        let connection = &mut self.connections[i];
        let came = match rustix::net::recv(&connection.socket, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return false,
            Ok((came, _)) => &bytes[..came.min(bytes.len())],
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return true,
            Err(_) => return false,
        };
        if came.len() != 5 || &came[..4] != MAGIC || connection.is_mapped || connection.is_by_host {
            return false;
        }
        match came[4] {
            b'h' => {
                connection.is_by_host = true;
                self.served.by_host.fetch_add(1, Ordering::SeqCst);
                send(&connection.socket, Status::Welcome, None, &[]).is_ok()
            }
            b'm' => {
                let taken = |column: &usize| self.connections.iter().any(|other| other.column == Some(*column));
                let column = (0..MAX_CONSUMERS).find(|column| !taken(column));
                let leases = column.map(|column| &self.served.leases[column]);
                if let Some(leases) = leases {
                    leases.reset(0);
                }
                let mapped = self.served.mapped.fetch_add(1, Ordering::SeqCst) + 1;
                self.served.came.fetch_max(mapped, Ordering::SeqCst);
                let connection = &mut self.connections[i];
                (connection.is_mapped, connection.column) = (true, column);
                let (page, slots) = (self.served.control.file(), self.served.memory_file.as_fd());
                let sent = match leases {
                    Some(leases) => send(
                        &connection.socket,
                        Status::Welcome,
                        column,
                        &[page, slots, leases.file()],
                    ),
                    None => send(&connection.socket, Status::Welcome, None, &[page, slots]),
                };
                sent.is_ok()
            }
            _ => false,
        }
    }

    /// Removes connection `i`, whose consumer is gone: clears the consumer's leases, and frees its page of leases for another
    /// consumer.
    fn forget(&mut self, i: usize) {
        let gone = self.connections.remove(i);
        if gone.is_by_host {
            self.served.by_host.fetch_sub(1, Ordering::SeqCst);
        }
        if let Some(column) = gone.column {
            self.served.leases[column].reset(NOBODY);
        }
        if gone.is_mapped {
            self.served.mapped.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Welcome = 0,
    OtherUser = 1,
    Full = 2,
    OfProcess = 3,
}

impl Status {
    /// Each status that refuses a connection, and the reason that the consumer's error gives.
    const REFUSALS: [(Self, &str); 3] = [
        (Self::OtherUser, "it is of another user (allowed: that of the producer)"),
        (Self::Full, "it has 64 consumers already (allowed: 64)"),
        (
            Self::OfProcess,
            "this process has 16 connections to it already (needed: one, kept for all messages of the ring)",
        ),
    ];
}

fn send(socket: &OwnedFd, status: Status, column: Option<usize>, files: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(MAGIC);
    bytes[4..8].copy_from_slice(&(status as u32).to_le_bytes());
    bytes[8..].copy_from_slice(&column.map_or(NO_COLUMN, |column| column as u32).to_le_bytes());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        rights.push(SendAncillaryMessage::ScmRights(files));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut rights, flags)?;
    Ok(())
}

/// Consumer's end of a connection. Closing it gives up the consumer's leases.
pub(super) struct Client {
    socket: OwnedFd,
}

/// Server's answer to a consumer that it lets in.
pub(super) struct Welcome {
    pub client: Client,
    pub column: Option<usize>,
    /// File descriptors of the control page, of the slots and, if the consumer can lease slots, of its page of leases. Empty for
    /// `Request::Host`.
    pub files: Vec<OwnedFd>,
}

impl Client {
    /// Connects to the server of a ring, sends a request, and waits up to 5 s for the answer.
    pub(super) fn connect(ring: &str, request: Request) -> Result<Welcome, RingError> {
        let os = |what| move |error: rustix::io::Errno| RingError::os(ring, what, error);
        let no_descriptors = |error| match error {
            rustix::io::Errno::MFILE | rustix::io::Errno::NFILE => RingError::no_descriptors(ring),
            error => RingError::os(ring, "a socket can't be made", error),
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(no_descriptors)?;
        let address =
            SocketAddrUnix::new_abstract_name(ring.as_bytes()).map_err(os("its name is not valid for a socket"))?;
        let end = Instant::now() + ANSWER_TIMEOUT;
        loop {
            match rustix::net::connect(&socket, &address) {
                Ok(()) => break,
                Err(rustix::io::Errno::CONNREFUSED) => return Err(RingError::producer_gone(ring)),
                // The queue of the socket is full: other consumers wait to be let in.
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) if Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(RingError::os(ring, "its socket can't be connected to", error)),
            }
        }
        let peer =
            rustix::net::sockopt::socket_peercred(&socket).map_err(os("the user of its producer can't be read"))?;
        let own = rustix::process::geteuid();
        if peer.uid != own {
            return Err(RingError::OtherUser {
                ring: ring.to_owned(),
                came: peer.uid.as_raw(),
                expected: own.as_raw(),
            });
        }
        let client = Self { socket };
        let mut asked = [0; 5];
        asked[..4].copy_from_slice(MAGIC);
        asked[4] = request as u8;
        match rustix::net::send(&client.socket, &asked, SendFlags::NOSIGNAL) {
            // A producer that refuses closes the socket before it reads a request. Its answer can still be received.
            Ok(_) | Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => client.answer(ring, request, end),
            Err(error) => Err(RingError::os(ring, "the request can't be sent to its producer", error)),
        }
    }

    fn answer(self, ring: &str, request: Request, end: Instant) -> Result<Welcome, RingError> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let wait = rustix::event::Timespec::try_from(left).ok();
            match rustix::event::poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], wait.as_ref()) {
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    return Err(RingError::os(
                        ring,
                        "the answer of its producer can't be waited for",
                        error,
                    ));
                }
            }
        }
        let mut bytes = [0; 12];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let mut receive = || rustix::net::recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut rights, flags);
        let came = match receive() {
            // The producer closed the socket before it read the request. This error comes once, before its answer.
            Err(rustix::io::Errno::CONNRESET) => receive(),
            other => other,
        };
        let came = came.map_err(|error| match error {
            rustix::io::Errno::CONNRESET => RingError::producer_gone(ring),
            error => RingError::os(ring, "its producer does not answer (allowed: within 5 s)", error),
        })?;
        let files: Vec<OwnedFd> = rights
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(files) => Some(files),
                _ => None,
            })
            .flatten()
            .collect();
        if came.bytes == 0 {
            return Err(RingError::producer_gone(ring));
        }
        if came.bytes != bytes.len() || &bytes[..4] != MAGIC {
            return Err(RingError::protocol(
                ring,
                format!("an answer of {} bytes came", came.bytes),
            ));
        }
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let status = word(4);
        if status != Status::Welcome as u32 {
            let known = Status::REFUSALS
                .into_iter()
                .find(|&(refusal, _)| refusal as u32 == status);
            return Err(RingError::Refused {
                ring: ring.to_owned(),
                why: known.map_or(
                    "for a reason of a later version (needed: the same version of robocache at both ends)",
                    |(_, why)| why,
                ),
            });
        }
        let column = Some(word(8) as usize).filter(|&column| column < MAX_CONSUMERS);
        let expected = match request {
            Request::Map => 2 + usize::from(column.is_some()),
            Request::Host => 0,
        };
        if files.len() < expected {
            // The system drops file descriptors for which this process has no room.
            return Err(RingError::no_descriptors(ring));
        }
        let client = self;
        Ok(Welcome { client, column, files })
    }

    /// True if the producer has closed the connection.
    pub(super) fn is_closed(&self) -> bool {
        let now = Some(rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 });
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        let asked = rustix::event::poll(&mut polled, now.as_ref());
        asked.is_ok_and(|ready| ready > 0)
    }
}

//! Helpers of the processes of the ring tests: the producers, the consumers, and the parent that starts them.

#[path = "../common/random.rs"]
mod random;

pub use random::Random;
use robocache::device::gpu::{Budget, Gpu, Kind};
use robocache::device::ring::{Lossless, RingConfig, RingWriter, Ticket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Child, Command};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub const ROLE: &str = "ROBOCACHE_TEST_RING_ROLE";
/// Environment variable that is set if the ring processes run under a tool such as compute-sanitizer.
pub const UNDER: &str = "ROBOCACHE_TEST_RING_UNDER";
/// Number of consumers of a ring: one more than the four that can lease slots.
pub const CONSUMERS: usize = 5;

pub fn messages() -> u64 {
    std::env::var("ROBOCACHE_TEST_RING_MESSAGES").map_or(20_000, |text| text.parse().unwrap())
}

pub fn is_on_device() -> bool {
    std::env::var_os("ROBOCACHE_TEST_RING_DEVICE").is_some_and(|it| it == "1")
}

/// Makes the configuration of a ring without losses: before the writer overwrites a payload, it waits up to `timeout` until
/// `consumers` consumers have taken it.
pub fn lossless(slots: usize, consumers: usize, timeout: Duration) -> RingConfig {
    RingConfig {
        slots,
        lossless: Some(Lossless { consumers, timeout }),
    }
}

/// Makes a writer of a ring: in shared memory, or on the first CUDA device if `ROBOCACHE_TEST_RING_DEVICE` is 1.
pub fn writer(output: &str, config: RingConfig) -> RingWriter {
    if !is_on_device() {
        return RingWriter::shared(output, None, config);
    }
    RingWriter::on_device(output, &Gpu::open(Kind::Cuda, 0).unwrap(), &Budget::new(None), config).unwrap()
}

/// Returns the 64-bit word at index `i` of payload `number`.
pub fn word(number: u64, i: usize) -> u64 {
    (number ^ (i as u64).rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

pub fn payload(number: u64, words: usize) -> Vec<u8> {
    (0..words).flat_map(|i| word(number, i).to_le_bytes()).collect()
}

/// Describes the columns of a payload in the format of the ring: one column of `bytes` bytes, whose name is the payload's
/// number. `tests/gpu/ring_torch.py` reads that number.
pub fn descriptor(number: u64, bytes: usize) -> String {
    format!("rows {bytes}\nuint8 1 {number}")
}

impl Random {
    /// Makes a generator of random numbers that differ from run to run.
    pub fn new(salt: u64) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        Self(now ^ (u64::from(std::process::id()) << 40) ^ salt)
    }

    pub fn under(&mut self, n: u64) -> u64 {
        self.bits() % n
    }
}

/// Process that a socket belongs to: the parent, the producer, or a consumer by its index.
#[derive(Clone, Copy)]
pub enum SocketOwner {
    Parent,
    Producer,
    Consumer(usize),
}

pub fn address(tag: &str, whose: SocketOwner) -> SocketAddr {
    let name = match whose {
        SocketOwner::Parent => format!("robocache.test/{tag}/parent"),
        SocketOwner::Producer => format!("robocache.test/{tag}/producer"),
        SocketOwner::Consumer(i) => format!("robocache.test/{tag}/consumer/{i}"),
    };
    SocketAddr::from_abstract_name(name).unwrap()
}

pub fn bind(tag: &str, whose: SocketOwner) -> UnixDatagram {
    UnixDatagram::bind_addr(&address(tag, whose)).unwrap()
}

/// Formats a ticket and the number of its payload as the text of a datagram.
pub fn ticket_text(number: u64, ticket: &Ticket<'_>) -> String {
    let Ticket {
        ring,
        slot,
        generation,
        nbytes,
    } = ticket;
    format!("{number} {slot} {generation} {nbytes} {ring}")
}

pub fn parse_ticket(text: &str) -> (u64, Ticket<'_>) {
    let mut words = text.splitn(5, ' ');
    let mut next = || words.next().unwrap();
    let number = next().parse().unwrap();
    let ticket = Ticket {
        slot: next().parse().unwrap(),
        generation: next().parse().unwrap(),
        nbytes: next().parse().unwrap(),
        ring: next().into(),
    };
    (number, ticket)
}

/// Resources that this process holds: open file descriptors, and memory mappings of rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    pub descriptors: usize,
    pub mappings: usize,
}

pub fn holding() -> Holding {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    Holding {
        // One of them is that of the folder itself, while it is read.
        descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count(),
        mappings: maps.lines().filter(|line| line.contains("memfd:robocache")).count(),
    }
}

/// Returns the resident memory of this process, kB.
pub fn resident_kb() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Starts this test binary in another process, with a role in the environment.
pub fn spawn(role: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "role", "--nocapture", "--test-threads", "1", "--quiet"])
        .env(ROLE, role)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

//! Producers and consumers of a ring that are killed while they work.

use crate::support::*;
use std::collections::BTreeMap;
use std::os::unix::net::UnixDatagram;
use std::process::Child;
use std::time::{Duration, Instant};

/// Counters from the reports of the other processes: the sum of each, by its name.
struct Reports {
    socket: UnixDatagram,
    sums: BTreeMap<String, u64>,
}

impl Reports {
    fn new(tag: &str) -> Self {
        let socket = bind(tag, SocketOwner::Parent);
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        Self {
            socket,
            sums: BTreeMap::new(),
        }
    }

    fn of(&self, name: &str) -> u64 {
        self.sums.get(name).copied().unwrap_or(0)
    }

    /// Receives reports up to the time `until`, and adds their counters to the sums.
    fn listen(&mut self, until: Instant) {
        let mut text = [0; 256];
        while Instant::now() < until {
            let Ok(came) = self.socket.recv(&mut text) else {
                continue;
            };
            let words: Vec<&str> = std::str::from_utf8(&text[..came]).unwrap().split(' ').collect();
            for pair in words.chunks(2) {
                *self.sums.entry(pair[0].to_owned()).or_default() += pair[1].parse::<u64>().unwrap();
            }
        }
    }

    /// Waits for the end of a process, and adds the counters of the reports that arrive meanwhile.
    fn end(&mut self, mut child: Child) {
        let start = Instant::now();
        while child.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < Duration::from_secs(180), "a process does not end");
            self.listen(Instant::now() + Duration::from_millis(5));
        }
        assert!(child.wait().unwrap().success(), "a process failed: {:?}", self.sums);
        self.listen(Instant::now() + Duration::from_millis(1));
    }
}

fn tag(what: &str) -> String {
    format!("{what}/{}", std::process::id())
}

/// Kills a process. Panics if it has ended before.
fn kill(child: &mut Child) {
    assert!(
        child.try_wait().unwrap().is_none(),
        "a process ended before it was killed"
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn processes_that_are_killed_never_let_another_value_through() {
    let tag = tag("killed");
    let (mut reports, mut random) = (Reports::new(&tag), Random::new(0));
    let consumer = |i: usize| spawn(&format!("consumer {tag} {i}"));
    let mut consumers: Vec<Child> = (0..CONSUMERS).map(consumer).collect();
    let mut producers = 1;
    let mut producer = spawn(&format!("producer {tag} {producers}"));
    let mut killed = 0;
    while reports.of("published") < messages() {
        // A process takes up to this time to start, and longer on a device.
        let longest_ms = if is_on_device() { 2000 } else { 60 };
        reports.listen(Instant::now() + Duration::from_millis(5 + random.under(longest_ms)));
        match random.under(3) {
            0 => {
                kill(&mut producer);
                producers += 1;
                producer = spawn(&format!("producer {tag} {producers}"));
            }
            _ => {
                let i = random.under(CONSUMERS as u64) as usize;
                kill(&mut consumers[i]);
                consumers[i] = consumer(i);
            }
        }
        killed += 1;
    }
    // The last consumers take some payloads before they end.
    reports.listen(Instant::now() + Duration::from_millis(200));
    let end = |whose| reports.socket.send_to_addr(b"end", &address(&tag, whose)).unwrap();
    end(SocketOwner::Producer);
    reports.end(producer);
    for (i, child) in consumers.into_iter().enumerate() {
        reports
            .socket
            .send_to_addr(b"end", &address(&tag, SocketOwner::Consumer(i)))
            .unwrap();
        reports.end(child);
    }
    println!("{killed} processes were killed; {:?}", reports.sums);
    for what in ["copied", "stale", "torn"] {
        assert!(reports.of(what) > 0, "nothing was {what}");
    }
}

#[test]
fn processes_of_a_lossless_ring_lose_nothing_and_one_that_is_killed_is_not_waited_for() {
    let tag = tag("lossless");
    let messages = messages() / 10;
    let mut reports = Reports::new(&tag);
    let first = spawn(&format!("lossless-consumer {tag} 0 first"));
    let mut second = spawn(&format!("lossless-consumer {tag} 1 first"));
    let start = Instant::now();
    while reports.of("ready") < 2 {
        assert!(start.elapsed() < Duration::from_secs(180), "no consumers");
        reports.listen(Instant::now() + Duration::from_millis(1));
    }
    let producer = spawn(&format!("lossless-producer {tag} {messages}"));
    for part in [1, 2] {
        while reports.of("published") < messages * part / 4 {
            assert!(start.elapsed() < Duration::from_secs(300), "{:?}", reports.sums);
            reports.listen(Instant::now() + Duration::from_millis(1));
        }
        kill(&mut second);
        reports.listen(Instant::now() + Duration::from_millis(20));
        second = spawn(&format!("lossless-consumer {tag} 1 later"));
    }
    while reports.of("done") < 1 || reports.of("ready") < 4 {
        assert!(start.elapsed() < Duration::from_secs(300), "{:?}", reports.sums);
        reports.listen(Instant::now() + Duration::from_millis(1));
    }
    for i in [0, 1] {
        reports
            .socket
            .send_to_addr(b"end", &address(&tag, SocketOwner::Consumer(i)))
            .unwrap();
    }
    reports.end(first);
    reports.end(second);
    assert_eq!(reports.of("took"), 2 * messages, "both took the last one");
    reports
        .socket
        .send_to_addr(b"end", &address(&tag, SocketOwner::Producer))
        .unwrap();
    reports.end(producer);
    println!("lossless: {:?}", reports.sums);
    assert!(reports.of("rings") > 4);
    // A death is known at once, except that of a consumer that has not opened the newest ring yet.
    assert!(reports.of("timed_out") <= 2, "{:?}", reports.sums);
    // For a consumer that lives, the producer would wait 30 s.
    assert!(reports.of("longest") < 25_000, "{:?}", reports.sums);
}

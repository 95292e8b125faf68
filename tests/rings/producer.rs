//! Producer process of a ring: publishes payloads whose words follow from the payload's number, and sends tickets
//! to the consumers.

use crate::support::*;
use robocache::device::ring::{RingConfig, RingWriter, Ticket};
use std::time::{Duration, Instant};

fn publish(writer: &mut RingWriter, number: u64, words: usize) -> Ticket<'static> {
    let bytes = payload(number, words);
    // Writes in two steps: a reader that comes in between finds half of the payload.
    let half = bytes.len() / 16 * 8;
    let published = writer.publish(&descriptor(number, bytes.len()), bytes.len(), |slot| {
        slot.write(0, &bytes[..half])?;
        slot.write(half, &bytes[half..])
    });
    published.unwrap().into_owned()
}

/// Publishes until the message `end`. The upper 32 bits of a payload's number are `which`. A ticket is dropped if the
/// consumer's socket is full.
pub fn run(tag: &str, which: u64) {
    let socket = bind(tag, SocketOwner::Producer);
    socket.set_nonblocking(true).unwrap();
    let parent = address(tag, SocketOwner::Parent);
    let consumers: Vec<_> = (0..CONSUMERS).map(|i| address(tag, SocketOwner::Consumer(i))).collect();
    let mut random = Random::new(which);
    let config = RingConfig {
        slots: 3 + random.under(4) as usize,
        ..RingConfig::default()
    };
    drop(writer("test", config));
    let before = holding();
    let mut ring = writer("test", config);
    // A payload that is larger than any before needs a new ring.
    let (mut largest, mut unreported) = (64, 0);
    for number in which << 32.. {
        if random.under(2000) == 0 {
            largest = (largest * 2).min(8192);
        }
        let words = match random.under(16) {
            0 => random.under(largest),
            _ => random.under(64),
        };
        let text = ticket_text(number, &publish(&mut ring, number, words as usize));
        for consumer in &consumers {
            let _ = socket.send_to_addr(text.as_bytes(), consumer);
        }
        if random.under(64) == 0 {
            std::thread::sleep(Duration::from_micros(random.under(200)));
        }
        unreported += 1;
        if unreported >= 100
            && socket
                .send_to_addr(format!("published {unreported}").as_bytes(), &parent)
                .is_ok()
        {
            unreported = 0;
        }
        if unreported == 50 && socket.recv(&mut [0; 16]).is_ok() {
            break;
        }
    }
    socket.set_nonblocking(false).unwrap();
    let counters = ring.counters();
    drop(ring);
    // A tool under which the process runs opens files of its own.
    if std::env::var_os(UNDER).is_none() {
        assert_eq!(holding(), before, "a producer gives back what it had");
    }
    let text = format!(
        "published {unreported} leased {} rings {}",
        counters.overwritten_leased, counters.rings
    );
    socket.send_to_addr(text.as_bytes(), &parent).unwrap();
}

/// Publishes `messages` payloads to two consumers. No payload is lost while both of them live.
pub fn run_lossless(tag: &str, messages: u64) {
    let socket = bind(tag, SocketOwner::Producer);
    let consumers = [0, 1].map(|i| address(tag, SocketOwner::Consumer(i)));
    let mut ring = writer("test", lossless(3, 2, Duration::from_secs(30)));
    let (mut longest, parent) = (Duration::ZERO, address(tag, SocketOwner::Parent));
    for number in 0..messages {
        // Makes four rings before any consumer has opened the first, and now and then one more.
        let words = if number < 4 {
            100 << number
        } else {
            1600 + 2 * number as usize
        };
        let start = Instant::now();
        let ticket = publish(&mut ring, number, words);
        if number > 16 {
            longest = longest.max(start.elapsed());
        }
        for consumer in &consumers {
            // Waits for room. Sending fails if the consumer is dead.
            let _ = socket.send_to_addr(ticket_text(number, &ticket).as_bytes(), consumer);
        }
        if number.is_multiple_of(10) {
            socket
                .send_to_addr(format!("published {}", 10).as_bytes(), &parent)
                .unwrap();
        }
    }
    socket.send_to_addr(b"done 1", &parent).unwrap();
    // Waits until the consumers have ended.
    socket.recv(&mut [0; 16]).unwrap();
    let timed_out = ring.counters().timed_out;
    let text = format!(
        "longest {} timed_out {timed_out} rings {}",
        longest.as_millis(),
        ring.counters().rings
    );
    socket.send_to_addr(text.as_bytes(), &parent).unwrap();
}

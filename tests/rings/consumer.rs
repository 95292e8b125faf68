//! Consumer process of a ring: takes payloads, copies them or uses them in place, and checks the words that it read by
//! the payload's number.

use crate::support::{self, *};
use robocache::device::ring::{Readers, RingError, RingPayload, SlotMemory};
use std::time::{Duration, Instant};

#[derive(Default)]
struct Counts {
    copied: u64,
    used: u64,
    stale: u64,
    torn: u64,
    gone: u64,
}

impl Counts {
    fn text(&self) -> String {
        let Self {
            copied,
            used,
            stale,
            torn,
            gone,
        } = self;
        format!("copied {copied} used {used} stale {stale} torn {torn} gone {gone}")
    }
}

fn is_right(number: u64, bytes: &[u8]) -> bool {
    let words = bytes.chunks(8).enumerate();
    words
        .into_iter()
        .all(|(i, bytes)| bytes == word(number, i).to_le_bytes())
}

/// Checks the 64-bit words of a payload in its slot, without a copy: one half at once, the other half after `pause`. Returns
/// true if all words are those of payload `number`.
fn use_where_it_lies(taken: &RingPayload, number: u64, pause: Duration) -> bool {
    let words = taken.len() / 8;
    let SlotMemory::Shared(bytes) = taken.memory() else {
        panic!("a payload on a device");
    };
    let first = bytes.as_ptr().cast::<u64>();
    let read = |range: std::ops::Range<usize>| {
        // SAFETY: the slot is mapped for as long as `taken` is there, and its words are aligned.
        range
            .into_iter()
            .all(|i| unsafe { first.add(i).read_volatile() }.to_le() == word(number, i))
    };
    let before = read(0..words / 2);
    std::thread::sleep(pause);
    before && read(words / 2..words)
}

fn copied(taken: &RingPayload) -> Result<Vec<u8>, RingError> {
    let mut bytes = vec![0; taken.len()];
    taken.copy_to(0, &mut bytes)?;
    Ok(bytes)
}

/// Takes payloads until the message `end`. The index `which` sets how long the consumer pauses between them.
pub fn run(tag: &str, which: usize) {
    let socket = bind(tag, SocketOwner::Consumer(which));
    socket.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let parent = address(tag, SocketOwner::Parent);
    let slowest_us = [1, 30, 300, 2000, 1][which];
    let mut random = Random::new(which as u64);
    let before = holding();
    let (mut readers, mut counts, mut held) = (Readers::default(), Counts::default(), Vec::<(RingPayload, u64)>::new());
    let (mut text, mut unreported) = ([0; 512], 0);
    loop {
        let came = socket.recv(&mut text).expect("a ticket within 120 s");
        if &text[..came] == b"end" {
            break;
        }
        let (number, ticket) = parse_ticket(std::str::from_utf8(&text[..came]).unwrap());
        let mut wait = |most: u64| Duration::from_micros(random.under(most));
        let pause = wait(slowest_us);
        let taken = readers.take(&ticket);
        match taken.and_then(|taken| Ok((taken.descriptor()?, taken))) {
            Ok((descriptor, taken)) => {
                assert_eq!(*descriptor, *support::descriptor(number, ticket.nbytes));
                assert_eq!(taken.len(), ticket.nbytes);
                held.push((taken, number));
            }
            Err(RingError::Stale { .. }) => counts.stale += 1,
            Err(RingError::Torn { .. }) => counts.torn += 1,
            Err(RingError::ProducerGone { .. }) => counts.gone += 1,
            Err(error) => panic!("{error}"),
        }
        // Holds several payloads for a while.
        while held.len() as u64 > random.under(4) {
            let (taken, number) = held.swap_remove(random.under(held.len() as u64) as usize);
            if taken.gpu().is_some() || random.under(2) == 0 {
                std::thread::sleep(pause);
                match copied(&taken) {
                    Ok(bytes) => {
                        assert!(is_right(number, &bytes), "a copy of {number} is of another payload");
                        counts.copied += 1;
                    }
                    Err(RingError::Torn { .. }) => counts.torn += 1,
                    Err(error) => panic!("{error}"),
                }
            } else {
                let is_right = use_where_it_lies(&taken, number, pause);
                match taken.is_intact() {
                    true => {
                        assert!(is_right, "{number} was used, is intact, and is of another payload");
                        counts.used += 1;
                    }
                    false => counts.torn += 1,
                }
            }
        }
        unreported += 1;
        if unreported == 50 {
            unreported = 0;
            socket
                .send_to_addr(std::mem::take(&mut counts).text().as_bytes(), &parent)
                .unwrap();
            assert!(holding().mappings <= 2 * 64 + 8, "rings that are gone are closed");
        }
    }
    drop((readers, held));
    let now = holding();
    assert_eq!(now.mappings, before.mappings, "a consumer unmaps what it had");
    // The driver keeps the descriptors that it opened for itself.
    assert!(now.descriptors <= before.descriptors + 16 * usize::from(is_on_device()));
    socket.send_to_addr(counts.text().as_bytes(), &parent).unwrap();
}

/// Takes every payload in order until the message `end`. If `is_first`, the first payload must be number 0; otherwise the
/// consumer connects late and may miss the first payloads.
pub fn run_lossless(tag: &str, which: usize, is_first: bool) {
    let socket = bind(tag, SocketOwner::Consumer(which));
    socket.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let parent = address(tag, SocketOwner::Parent);
    socket.send_to_addr(b"ready 1", &parent).unwrap();
    let mut random = Random::new(which as u64);
    let (mut readers, mut text, mut next) = (Readers::default(), [0; 512], is_first.then_some(0));
    loop {
        let came = socket.recv(&mut text).expect("a ticket within 120 s");
        if &text[..came] == b"end" {
            break;
        }
        let (number, ticket) = parse_ticket(std::str::from_utf8(&text[..came]).unwrap());
        if number == 0 {
            // This consumer comes late.
            std::thread::sleep(Duration::from_millis(100));
        }
        let taken = match readers.take(&ticket) {
            Ok(taken) => taken,
            Err(RingError::Stale { .. } | RingError::Torn { .. } | RingError::ProducerGone { .. })
                if next.is_none() =>
            {
                continue;
            }
            Err(error) => panic!("consumer {which} lost payload {number}: {error}"),
        };
        assert_eq!(number, *next.get_or_insert(number), "in order, and every one");
        next = Some(number + 1);
        let until = Instant::now() + Duration::from_micros(random.under(200 * (which as u64 + 1)));
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        assert!(is_right(number, &copied(&taken).expect("nothing is overwritten")));
    }
    socket
        .send_to_addr(format!("took {}", next.unwrap_or(0)).as_bytes(), &parent)
        .unwrap();
}

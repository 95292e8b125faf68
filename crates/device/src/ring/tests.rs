//! Tests of the writer, the readers and the server of a ring, within one process.

#![allow(clippy::unwrap_used)]

use super::*;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::time::{Duration, Instant};

const NBYTES: usize = 1000;

fn writer(slots: usize) -> RingWriter {
    let config = RingConfig {
        slots,
        ..RingConfig::default()
    };
    RingWriter::shared("test", None, config)
}

/// Publishes a payload whose bytes all have one value.
fn publish(writer: &mut RingWriter, value: u8) -> Ticket<'static> {
    let published = writer.publish(&value.to_string(), NBYTES, |slot| slot.write(0, &[value; NBYTES]));
    published.unwrap().into_owned()
}

fn copied(taken: &RingPayload) -> Result<u8, RingError> {
    let mut bytes = [0; NBYTES];
    taken.copy_to(0, &mut bytes)?;
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "of two payloads");
    assert_eq!(*taken.descriptor()?, *bytes[0].to_string());
    Ok(bytes[0])
}

/// Waits until another thread has made `is_so` true.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_is_published_is_taken_until_it_is_overwritten() {
    let mut writer = writer(3);
    let tickets: Vec<Ticket<'static>> = (0..5).map(|value| publish(&mut writer, value)).collect();
    let reader = RingReader::open(&tickets[4].ring, None).unwrap();
    let values = tickets
        .iter()
        .map(|ticket| reader.take(ticket).and_then(|taken| copied(&taken)));
    let values: Vec<_> = values.collect();
    for stale in &values[..2] {
        assert!(matches!(stale, Err(RingError::Stale { .. })), "{stale:?}");
    }
    for (value, expected) in values[2..].iter().zip(2..) {
        assert_eq!(*value.as_ref().unwrap(), expected);
    }
    let counters = reader.counters();
    assert_eq!((counters.taken, counters.stale, counters.torn), (3, 2, 0));
}

#[test]
fn a_slot_in_use_is_passed_over_while_there_is_another() {
    let mut writer = writer(3);
    let ticket = publish(&mut writer, 7);
    let reader = RingReader::open(&ticket.ring, None).unwrap();
    let (held, again) = (reader.take(&ticket).unwrap(), reader.take(&ticket).unwrap());
    (0..20).for_each(|value| drop(publish(&mut writer, value)));
    assert_eq!(copied(&held).unwrap(), 7);
    drop(held);
    (0..20).for_each(|value| drop(publish(&mut writer, value)));
    assert_eq!(copied(&again).unwrap(), 7, "the other one holds it still");
    drop(again);
    (0..3).for_each(|value| drop(publish(&mut writer, value)));
    assert!(matches!(reader.take(&ticket), Err(RingError::Stale { .. })));
    assert_eq!(writer.counters().overwritten_leased, 0);
}

#[test]
fn a_reader_that_holds_every_slot_does_not_stop_the_writer_and_finds_out() {
    let mut writer = writer(2);
    let first = publish(&mut writer, 1);
    let reader = RingReader::open(&first.ring, None).unwrap();
    let first = reader.take(&first).unwrap();
    let second = reader.take(&publish(&mut writer, 2)).unwrap();
    let third = publish(&mut writer, 3);
    assert_eq!(writer.counters().overwritten_leased, 1);
    assert!(!first.is_intact(), "the oldest was given up");
    assert!(matches!(copied(&first), Err(RingError::Torn { .. })));
    assert_eq!(copied(&second).unwrap(), 2);
    assert_eq!(copied(&reader.take(&third).unwrap()).unwrap(), 3);
    drop(first);
    assert_eq!(reader.counters().torn, 1);
}

#[test]
fn four_readers_can_hold_slots_and_a_fifth_can_read() {
    let mut writer = writer(4);
    let ticket = publish(&mut writer, 1);
    let readers: Vec<RingReader> = (0..5).map(|_| RingReader::open(&ticket.ring, None).unwrap()).collect();
    let can_lease: Vec<bool> = readers.iter().map(RingReader::can_lease).collect();
    assert_eq!(can_lease, [true, true, true, true, false]);
    assert_eq!(copied(&readers[4].take(&ticket).unwrap()).unwrap(), 1);
    let held = readers[4].take(&ticket).unwrap();
    (0..4).for_each(|value| drop(publish(&mut writer, value)));
    assert!(!held.is_intact(), "nothing held it");
    drop((held, readers));
    until("a column is free again", || {
        RingReader::open(&ticket.ring, None).unwrap().can_lease()
    });
}

#[test]
fn the_leases_of_a_reader_that_is_gone_are_gone() {
    let mut writer = writer(2);
    let ticket = publish(&mut writer, 1);
    let welcome = super::server::Client::connect(&ticket.ring, super::server::Request::Map).unwrap();
    let leases = super::control::Leases::open(welcome.files.into_iter().nth(2).unwrap(), &ticket.ring).unwrap();
    let lease = leases.lease(ticket.slot);
    lease.store(ticket.generation, std::sync::atomic::Ordering::SeqCst);
    // Ends the connection as a killed process would.
    drop(welcome.client);
    until("the lease is gone", || {
        lease.load(std::sync::atomic::Ordering::SeqCst) == 0
    });
    (0..3).for_each(|value| drop(publish(&mut writer, value)));
    assert_eq!(writer.counters().overwritten_leased, 0);
}

#[test]
fn a_slot_whose_filling_panicked_does_not_come_back_for_a_late_lease() {
    let mut writer = writer(2);
    let (ticket, _) = (publish(&mut writer, 1), publish(&mut writer, 2));
    let welcome = super::server::Client::connect(&ticket.ring, super::server::Request::Map).unwrap();
    let leases = super::control::Leases::open(welcome.files.into_iter().nth(2).unwrap(), &ticket.ring).unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = writer.publish("", NBYTES, |_| panic!("on purpose"));
    }));
    assert!(panicked.is_err());
    let lease = leases.lease(ticket.slot);
    lease.store(ticket.generation, std::sync::atomic::Ordering::SeqCst);
    let next = publish(&mut writer, 3);
    assert_eq!((next.slot, writer.counters().overwritten_leased), (ticket.slot, 0));
}

#[test]
fn a_payload_larger_than_a_slot_makes_a_new_ring_and_the_old_one_can_be_read_meanwhile() {
    let mut writer = writer(2);
    let small = publish(&mut writer, 1);
    let large = writer
        .publish("", 100_000, |slot| slot.write(99_999, &[9]))
        .unwrap()
        .into_owned();
    assert_ne!(small.ring, large.ring);
    assert_eq!(
        copied(&RingReader::open(&small.ring, None).unwrap().take(&small).unwrap()).unwrap(),
        1
    );
    let mut readers = Readers::default();
    let mut last = [0];
    readers.take(&large).unwrap().copy_to(99_999, &mut last).unwrap();
    assert_eq!((last, writer.counters().rings), ([9], 2));
    (0..3).for_each(|value| drop(publish(&mut writer, value)));
    let gone = RingReader::open(&small.ring, None).map(|_| ());
    assert!(matches!(gone, Err(RingError::ProducerGone { .. })), "{gone:?}");
}

#[test]
fn what_was_mapped_can_be_read_after_the_writer_is_gone() {
    let mut writer = writer(2);
    let ticket = publish(&mut writer, 5);
    let reader = RingReader::open(&ticket.ring, None).unwrap();
    assert!(!reader.is_closed());
    drop(writer);
    assert!(reader.is_closed());
    assert_eq!(copied(&reader.take(&ticket).unwrap()).unwrap(), 5);
    assert!(matches!(
        RingReader::open(&ticket.ring, None).map(|_| ()),
        Err(RingError::ProducerGone { .. })
    ));
}

#[test]
fn a_payload_that_could_not_be_written_is_never_taken() {
    let mut writer = writer(2);
    let ticket = publish(&mut writer, 1);
    let reader = RingReader::open(&ticket.ring, None).unwrap();
    let failed = |slot: &mut SlotMut<'_>| {
        slot.write(0, &[8; 500])?;
        Err(RingError::ProducerGone { ring: "a test".into() })
    };
    assert!(writer.publish("", NBYTES, failed).is_err());
    let invented = Ticket {
        slot: 1,
        generation: 4,
        ..ticket.clone()
    };
    assert!(matches!(reader.take(&invented), Err(RingError::Stale { .. })));
    assert_eq!(copied(&reader.take(&ticket).unwrap()).unwrap(), 1);
    assert_eq!(copied(&reader.take(&publish(&mut writer, 2)).unwrap()).unwrap(), 2);
}

#[test]
fn a_lossless_writer_waits_for_every_consumer_and_loses_nothing() {
    let lossless = Lossless {
        consumers: 2,
        timeout: Duration::from_secs(20),
    };
    let config = RingConfig {
        slots: 3,
        lossless: Some(lossless),
    };
    let mut writer = RingWriter::shared("test", None, config);
    let (senders, threads): (Vec<_>, Vec<_>) = [0, 3]
        .into_iter()
        .map(|slow| {
            let (sender, receiver) = std::sync::mpsc::channel::<Ticket<'static>>();
            let thread = std::thread::spawn(move || {
                let mut readers = Readers::default();
                let take = |ticket: Ticket<'static>| {
                    let taken = readers.take(&ticket).unwrap();
                    std::thread::sleep(Duration::from_micros(slow * 100));
                    copied(&taken).unwrap()
                };
                receiver.into_iter().map(take).collect::<Vec<u8>>()
            });
            (sender, thread)
        })
        .unzip();
    for value in 0..200 {
        let ticket = publish(&mut writer, value);
        senders.iter().for_each(|sender| sender.send(ticket.clone()).unwrap());
    }
    drop(senders);
    for thread in threads {
        assert_eq!(thread.join().unwrap(), Vec::from_iter(0..200));
    }
    assert_eq!(
        (writer.counters().timed_out, writer.counters().overwritten_leased),
        (0, 0)
    );
}

#[test]
fn a_lossless_writer_can_wait_at_its_end_for_consumers_that_come_late() {
    let lossless = Lossless {
        consumers: 1,
        timeout: Duration::from_secs(20),
    };
    let config = RingConfig {
        slots: 3,
        lossless: Some(lossless),
    };
    let mut writer = RingWriter::shared("test", None, config);
    let mut tickets = vec![publish(&mut writer, 1), publish(&mut writer, 2)];
    let large = writer.publish("", 100_000, |slot| slot.write(0, &[3])).unwrap();
    tickets.push(large.into_owned());
    let consumer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        let mut readers = Readers::default();
        tickets.iter().try_for_each(|ticket| readers.take(ticket).map(drop))
    });
    assert!(writer.wait_until_taken());
    drop(writer);
    consumer.join().unwrap().unwrap();
}

#[test]
fn a_lossless_writer_goes_on_without_a_consumer_that_does_not_come_or_dies() {
    let timeout = Duration::from_millis(50);
    let config = RingConfig {
        slots: 2,
        lossless: Some(Lossless { consumers: 1, timeout }),
    };
    let mut writer = RingWriter::shared("test", None, config);
    let start = Instant::now();
    (0..10).for_each(|value| drop(publish(&mut writer, value)));
    assert_eq!(writer.counters().timed_out, 1, "it is waited for once");
    let ticket = publish(&mut writer, 1);
    let reader = RingReader::open(&ticket.ring, None).unwrap();
    let taken = reader.take(&ticket).unwrap();
    publish(&mut writer, 2);
    publish(&mut writer, 3);
    assert_eq!(writer.counters().timed_out, 2, "it held the slot");
    drop((taken, reader));
    (0..10).for_each(|value| drop(publish(&mut writer, value)));
    assert!(writer.counters().timed_out <= 3 && start.elapsed() < Duration::from_secs(5));
}

#[test]
fn tickets_and_rings_that_make_no_sense_are_refused() {
    let mut writer = writer(2);
    let ticket = publish(&mut writer, 1);
    let reader = RingReader::open(&ticket.ring, None).unwrap();
    let of = |slot, generation, nbytes| Ticket {
        ring: ticket.ring.clone(),
        slot,
        generation,
        nbytes,
    };
    for wrong in [
        of(2, 2, 1),
        of(0, 0, 1),
        of(0, 3, 1),
        of(0, 2, 1 << 30),
        of(usize::MAX, 2, 1),
    ] {
        let refused = reader.take(&wrong).map(|_| ()).unwrap_err().to_string();
        assert!(
            refused.contains("allowed: slot below 2, even generation from 2, up to 1024 bytes"),
            "{refused}"
        );
    }
    for name in ["", "robocache.ring/1/nobody", &"x".repeat(300)] {
        assert!(RingReader::open(name, None).is_err());
    }
    assert_eq!(copied(&reader.take(&ticket).unwrap()).unwrap(), 1);
}

/// Starts a false producer, which sends `answer` to its first consumer.
fn impostor(name: &str, answer: Vec<u8>) -> std::thread::JoinHandle<()> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
    rustix::net::listen(&socket, 1).unwrap();
    std::thread::spawn(move || {
        let peer = rustix::net::accept(&socket).unwrap();
        let _ = rustix::net::send(&peer, &answer, SendFlags::NOSIGNAL);
    })
}

#[test]
fn an_answer_that_makes_no_sense_is_an_error() {
    let answers = [
        (vec![], "its producer is gone"),
        (vec![1; 12], "allowed: robocache.ring/1"),
        (b"RCR1\0\0\0\0\0\0\0\0".to_vec(), "too few file descriptors are left"),
        (b"RCR1\x01\0\0\0\0\0\0\0".to_vec(), "it is of another user"),
        (b"RCR1\x02\0\0\0\0\0\0\0".to_vec(), "64 consumers"),
        (b"RCR1\x03\0\0\0\0\0\0\0".to_vec(), "this process has 16 connections"),
        (b"RCR1\x07\0\0\0\0\0\0\0".to_vec(), "a later version"),
    ];
    for (i, (answer, expected)) in answers.into_iter().enumerate() {
        let name = format!("robocache.test/impostor/{}/{i}", std::process::id());
        let thread = impostor(&name, answer);
        let refused = RingReader::open(&name, None).map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}, not {expected}");
        thread.join().unwrap();
    }
}

#[test]
fn a_consumer_that_makes_no_sense_is_put_out() {
    let mut writer = writer(2);
    let ticket = publish(&mut writer, 1);
    let connect = || {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::connect(
            &socket,
            &SocketAddrUnix::new_abstract_name(ticket.ring.as_bytes()).unwrap(),
        )
        .unwrap();
        socket
    };
    for nonsense in [&b"x"[..], b"RCR1", b"RCR1z", b"RCR1mm", &[0; 500]] {
        let socket = connect();
        rustix::net::send(&socket, nonsense, SendFlags::NOSIGNAL).unwrap();
        let mut answer = [0; 16];
        let end = rustix::net::recv(&socket, &mut answer, rustix::net::RecvFlags::empty());
        assert!(matches!(end, Ok((0, _)) | Err(_)), "{end:?}");
    }
    assert_eq!(
        copied(&RingReader::open(&ticket.ring, None).unwrap().take(&ticket).unwrap()).unwrap(),
        1
    );
}

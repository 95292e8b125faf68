//! Peers of a ring that misbehave, and systems that run out of resources.

use crate::support::{Random, holding, lossless, messages, resident_kb, spawn};
use robocache::device::ring::{
    MAX_DESCRIPTOR, Readers, RingConfig, RingError, RingPayload, RingReader, RingWriter, Ticket,
};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Lock for tests that count resources of the whole process, or fork it, so that they run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn writer(slots: usize) -> RingWriter {
    let config = RingConfig {
        slots,
        ..RingConfig::default()
    };
    RingWriter::shared("test", None, config)
}

fn publish(writer: &mut RingWriter, value: u8, nbytes: usize) -> Ticket<'static> {
    let published = writer.publish("", nbytes, |slot| slot.write(0, &vec![value; nbytes]));
    published.unwrap().into_owned()
}

fn value(taken: &RingPayload) -> Result<u8, RingError> {
    let mut byte = [0];
    taken.copy_to(0, &mut byte)?;
    Ok(byte[0])
}

fn socket(name: &str) -> (OwnedFd, SocketAddrUnix) {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    (
        socket.unwrap(),
        SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap(),
    )
}

fn listening(name: &str, backlog: i32) -> OwnedFd {
    let (socket, address) = socket(name);
    rustix::net::bind(&socket, &address).unwrap();
    rustix::net::listen(&socket, backlog).unwrap();
    socket
}

/// Runs a function in a forked process, and returns the exit status.
fn forked(child: impl FnOnce() -> i32) -> i32 {
    let pid = fork(child);
    let mut status = 0;
    // SAFETY: a child of this process, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert!(libc::WIFEXITED(status), "the child was killed: {status}");
    libc::WEXITSTATUS(status)
}

fn fork(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child uses no lock that a thread of the parent may hold, and ends here.
    match unsafe { libc::fork() } {
        // SAFETY: it ends at once. A child that hangs is ended by the alarm.
        0 => unsafe {
            libc::alarm(300);
            libc::_exit(child())
        },
        pid => {
            assert!(pid > 0, "no process");
            pid
        }
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A process that holds many connections to a ring. The producer accepted `let_in` of them. Dropping the value
/// kills the process.
struct Crowd {
    pid: i32,
    let_in: usize,
}

impl Crowd {
    fn of(ring: &str, connections: usize) -> Self {
        let (result_reader, result_writer) = std::io::pipe().unwrap();
        let mut sockets: Vec<_> = (0..connections).map(|_| socket(ring)).collect();
        let pid = fork(|| {
            let mut let_in = 0u8;
            for (socket, address) in &sockets {
                let is_connected = rustix::net::connect(socket, address).is_ok();
                let _ = rustix::net::send(socket, b"RCR1m", SendFlags::NOSIGNAL);
                let mut answer = [0; 12];
                let mut receive = || rustix::net::recv(&*socket, &mut answer, rustix::net::RecvFlags::empty());
                let is_answered = receive().or_else(|_| receive()).is_ok();
                let_in += u8::from(is_connected && is_answered && answer[4] == 0);
            }
            let _ = rustix::io::write(&result_writer, &[let_in]);
            // Stays until it is killed.
            // SAFETY: it waits for a signal.
            unsafe { libc::pause() }
        });
        sockets.clear();
        drop(result_writer);
        let mut let_in = [0];
        assert_eq!(rustix::io::read(&result_reader, &mut let_in).unwrap(), 1);
        let let_in = let_in[0].into();
        Self { pid, let_in }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // SAFETY: a child of this process.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

fn refusal(ring: &str) -> String {
    RingReader::open(ring, None).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn a_process_that_takes_all_it_can_keeps_nobody_out() {
    let _alone = alone();
    let mut writer = writer(2);
    let ticket = publish(&mut writer, 1, 8);
    let crowd = Crowd::of(&ticket.ring, 64);
    assert_eq!(crowd.let_in, 16);
    let readers: Vec<RingReader> = (0..16).map(|_| RingReader::open(&ticket.ring, None).unwrap()).collect();
    for _ in 0..200 {
        let refused = refusal(&ticket.ring);
        assert!(
            refused.contains("this process has 16 connections to it already"),
            "{refused}"
        );
    }
    assert_eq!(value(&readers[15].take(&ticket).unwrap()).unwrap(), 1);
    drop(readers);
    until("its connections end with it", || {
        RingReader::open(&ticket.ring, None).is_ok()
    });
}

#[test]
fn a_65th_consumer_is_told_why_it_is_not_let_in() {
    let _alone = alone();
    let mut writer = writer(2);
    let ticket = publish(&mut writer, 1, 8);
    let mut crowds: Vec<Crowd> = (0..4).map(|_| Crowd::of(&ticket.ring, 16)).collect();
    assert!(crowds.iter().all(|crowd| crowd.let_in == 16));
    for _ in 0..200 {
        let refused = refusal(&ticket.ring);
        assert!(refused.contains("it has 64 consumers already"), "{refused}");
    }
    crowds.pop();
    until("there is room again", || RingReader::open(&ticket.ring, None).is_ok());
}

#[test]
fn a_producer_that_lets_nobody_in_is_not_waited_for_without_an_end() {
    let name = format!("robocache.test/asleep/{}", std::process::id());
    let _listener = listening(&name, 1);
    let start = Instant::now();
    let open = || {
        let refused = RingReader::open(&name, None).map(|_| ()).unwrap_err();
        assert!(matches!(refused, RingError::Os { .. }), "{refused}");
        start.elapsed()
    };
    let took = std::thread::scope(|scope| {
        let opening = [(); 6].map(|()| scope.spawn(open));
        opening.map(|opening| opening.join().unwrap())
    });
    // All wait at once: one after the other, the last of six would wait six times as long as the first.
    let [least, most] = [took.iter().min().unwrap(), took.iter().max().unwrap()];
    assert!(*most < *least * 7 / 5, "{took:?}");
}

#[test]
fn signals_do_not_end_the_wait_for_an_answer() {
    let _alone = alone();
    extern "C" fn nothing(_: i32) {}
    // SAFETY: a handler that does nothing, without SA_RESTART.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        assert_eq!(
            libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()),
            0
        );
    }
    let mut writer = writer(2);
    let ticket = publish(&mut writer, 1, 8);
    // SAFETY: this thread's own handle.
    let own = unsafe { libc::pthread_self() };
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                // SAFETY: the thread waits for this one.
                unsafe { libc::pthread_kill(own, libc::SIGUSR1) };
                std::thread::sleep(Duration::from_micros(20));
            }
        });
        let opened = (0..500).try_for_each(|_| RingReader::open(&ticket.ring, None)?.take(&ticket).map(drop));
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        opened.unwrap();
    });
}

#[test]
fn peers_that_say_nothing_or_leave_half_way_hold_up_nobody() {
    let mut writer = writer(2);
    let ticket = publish(&mut writer, 1, 8);
    let connect = |request: &[u8]| {
        let (socket, address) = socket(&ticket.ring);
        rustix::net::connect(&socket, &address).unwrap();
        rustix::net::send(&socket, request, SendFlags::NOSIGNAL).unwrap();
        socket
    };
    let open = || {
        let start = Instant::now();
        for _ in 0..50 {
            assert_eq!(
                value(&RingReader::open(&ticket.ring, None).unwrap().take(&ticket).unwrap()).unwrap(),
                1
            );
        }
        start.elapsed()
    };
    let without = open();
    let silent: Vec<OwnedFd> = (0..10)
        .map(|_| {
            let (socket, address) = socket(&ticket.ring);
            rustix::net::connect(&socket, &address).unwrap();
            socket
        })
        .collect();
    // These consumers never read their answers.
    (0..100).for_each(|_| drop(connect(b"RCR1m")));
    // The producer gives up a silent peer after seconds.
    let with = open();
    assert!(
        with < Duration::from_secs(2) + 20 * without,
        "{with:?}, {without:?} without them"
    );
    drop(writer);
    drop(silent);
}

#[test]
fn a_writer_that_is_dropped_while_consumers_come_is_gone_for_them() {
    for _ in 0..100 {
        let mut writer = writer(2);
        let ticket = publish(&mut writer, 1, 8);
        let come = || loop {
            match RingReader::open(&ticket.ring, None) {
                Ok(_) => {}
                Err(RingError::ProducerGone { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(come);
            scope.spawn(come);
            std::thread::sleep(Duration::from_micros(300));
            drop(writer);
        });
    }
}

/// Connects to a ring as a consumer. Returns the connection, and the file descriptors of the ring's memory that
/// the producer sent.
fn files_of(ring: &str) -> (OwnedFd, Vec<OwnedFd>) {
    let (socket, address) = socket(ring);
    rustix::net::connect(&socket, &address).unwrap();
    rustix::net::send(&socket, b"RCR1m", SendFlags::NOSIGNAL).unwrap();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut rights = rustix::net::RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 12];
    let mut into = [std::io::IoSliceMut::new(&mut bytes)];
    rustix::net::recvmsg(&socket, &mut into, &mut rights, rustix::net::RecvFlags::CMSG_CLOEXEC).unwrap();
    let files = rights.drain().flat_map(|message| match message {
        rustix::net::RecvAncillaryMessage::ScmRights(files) => files.collect::<Vec<_>>(),
        _ => vec![],
    });
    (socket, files.collect())
}

/// A process of the same user can reopen any of its files for writing by the name in `/proc`. So a seal, not the descriptor,
/// must protect the slots and the control page.
#[test]
fn what_a_producer_writes_nobody_else_can_by_whatever_way() {
    use std::os::fd::AsRawFd;
    let mut writer = writer(3);
    let ticket = publish(&mut writer, 7, 64);
    let (_socket, files) = files_of(&ticket.ring);
    assert_eq!(files.len(), 3);
    for (file, is_own) in files.iter().zip([false, false, true]) {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let opened = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        for file in [file, &OwnedFd::from(opened)] {
            assert_eq!(rustix::io::pwrite(file, &[0], 100).is_ok(), is_own);
            let map = |protection| {
                let flags = rustix::mm::MapFlags::SHARED;
                // SAFETY: a new mapping, which nobody reads or writes.
                let mapped = unsafe { rustix::mm::mmap(std::ptr::null_mut(), 512, protection, flags, file, 0) };
                mapped.map(|address| {
                    // SAFETY: as above.
                    let made = unsafe { rustix::mm::mprotect(address, 512, rustix::mm::MprotectFlags::WRITE) };
                    // SAFETY: the mapping of this function.
                    unsafe { rustix::mm::munmap(address, 512) }.unwrap();
                    made.is_ok()
                })
            };
            use rustix::mm::ProtFlags;
            assert_eq!(map(ProtFlags::READ | ProtFlags::WRITE).is_ok(), is_own);
            assert_eq!(
                map(ProtFlags::READ).unwrap(),
                is_own,
                "a mapping to read that becomes one to write"
            );
            // Nobody can change the size or take the seal away either.
            assert!(rustix::fs::ftruncate(file, 0).is_err() && rustix::fs::ftruncate(file, 1 << 20).is_err());
            assert!(rustix::fs::fcntl_add_seals(file, rustix::fs::SealFlags::WRITE).is_err());
        }
    }
    assert_eq!(
        value(&RingReader::open(&ticket.ring, None).unwrap().take(&ticket).unwrap()).unwrap(),
        7
    );
    publish(&mut writer, 8, 64);
}

#[test]
fn leases_full_of_garbage_stop_neither_the_writer_nor_other_consumers() {
    let mut writer = writer(3);
    let ticket = publish(&mut writer, 1, 64);
    let (socket, files) = files_of(&ticket.ring);
    let honest = RingReader::open(&ticket.ring, None).unwrap();
    let mut random = Random::new(0);
    for round in 0..2000u64 {
        let garbage: Vec<u8> = (0..4096).map(|_| random.under(3) as u8 * 0x7f).collect();
        // Every second round writes what looks like a lease of a generation that exists.
        let word = (2 * round + random.under(4)).to_le_bytes();
        let (bytes, at) = match round.is_multiple_of(2) {
            true => (&garbage[..], 0),
            false => (&word[..], 8 * random.under(50)),
        };
        rustix::io::pwrite(&files[2], bytes, at).unwrap();
        let ticket = publish(&mut writer, round as u8, 64);
        let taken = honest.take(&ticket).unwrap();
        (0..2).for_each(|_| drop(publish(&mut writer, 0, 64)));
        assert_eq!(value(&taken).unwrap(), round as u8, "what is held stays");
    }
    drop(socket);
    let ticket = publish(&mut writer, 77, 64);
    assert_eq!(
        value(&RingReader::open(&ticket.ring, None).unwrap().take(&ticket).unwrap()).unwrap(),
        77
    );
}

#[test]
fn payloads_of_no_bytes_and_descriptors_of_the_largest_size_are_published() {
    let mut writer = writer(2);
    let text = "ä".repeat(MAX_DESCRIPTOR / 2);
    let ticket = writer.publish(&text, 0, |_| Ok(())).unwrap().into_owned();
    let mut readers = Readers::default();
    let taken = readers.take(&ticket).unwrap();
    assert!(taken.is_empty() && *taken.descriptor().unwrap() == *text);
    taken.copy_to(0, &mut []).unwrap();
}

#[test]
fn a_payload_of_a_ring_that_was_replaced_is_held_for_as_long_as_it_is_used() {
    let mut writer = writer(2);
    let mut readers = Readers::default();
    let taken: Vec<RingPayload> = (1..10u8)
        .map(|i| {
            let ticket = publish(&mut writer, i, 1000 << i);
            readers.take(&ticket).unwrap()
        })
        .collect();
    drop((writer, readers));
    for (taken, expected) in taken.iter().zip(1..) {
        assert_eq!(value(taken).unwrap(), expected);
    }
}

#[test]
fn rings_that_grow_with_every_payload_are_there_for_as_long_as_messages_are_under_way() {
    let mut writer = writer(4);
    let tickets: Vec<Ticket<'static>> = (0..4).map(|i| publish(&mut writer, i, 1000 << i)).collect();
    let mut readers = Readers::default();
    for (ticket, expected) in tickets.iter().zip(0..) {
        assert_eq!(value(&readers.take(ticket).unwrap()).unwrap(), expected);
    }
}

#[test]
fn a_consumer_that_dies_before_the_others_come_is_not_counted_for_them() {
    // A process that another test forks meanwhile would keep the connection.
    let _alone = alone();
    let timeout = Duration::from_millis(200);
    let mut writer = RingWriter::shared("test", None, lossless(2, 2, timeout));
    let ticket = publish(&mut writer, 1, 8);
    (0..2).for_each(|_| drop(RingReader::open(&ticket.ring, None).unwrap()));
    publish(&mut writer, 2, 8);
    let start = Instant::now();
    publish(&mut writer, 3, 8);
    assert!(start.elapsed() >= timeout, "the second consumer is still to come");
}

#[test]
fn nonsense_in_a_ticket_does_not_let_a_lossless_writer_go_on() {
    let timeout = Duration::from_millis(200);
    let mut writer = RingWriter::shared("test", None, lossless(2, 1, timeout));
    let ticket = publish(&mut writer, 1, 8);
    let reader = RingReader::open(&ticket.ring, None).unwrap();
    for generation in [3, 1 << 40, u64::MAX - 1, u64::MAX] {
        let nonsense = Ticket {
            generation,
            ..ticket.clone()
        };
        assert!(reader.take(&nonsense).is_err());
    }
    publish(&mut writer, 2, 8);
    let start = Instant::now();
    publish(&mut writer, 3, 8);
    assert!(start.elapsed() >= timeout, "it has not taken the first one");
}

#[test]
fn a_ticket_of_another_generation_leaves_a_slot_that_is_held_alone() {
    let mut writer = writer(4);
    let first = publish(&mut writer, 0, 8);
    let reader = RingReader::open(&first.ring, None).unwrap();
    let (is_done, mut held) = (std::sync::atomic::AtomicBool::new(false), None);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                for slot in 0..4 {
                    let other = Ticket { slot, ..first.clone() };
                    drop(reader.take(&other));
                }
            }
        });
        for value in 0..20_000 {
            let ticket = publish(&mut writer, value as u8, 8);
            if value % 1000 == 999 {
                drop(held.replace(reader.take(&ticket).unwrap()));
            }
        }
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    drop(held);
    assert_eq!(reader.counters().torn, 0, "its slot was held");
}

#[test]
fn a_child_that_is_forked_gives_up_nothing_of_its_parent() {
    let _alone = alone();
    let mut writer = writer(3);
    let ticket = publish(&mut writer, 7, 8);
    let reader = RingReader::open(&ticket.ring, None).unwrap();
    let held = reader.take(&ticket).unwrap();
    let child = {
        let (held, reader, ticket) = (&held, &reader, &ticket);
        forked(move || {
            // SAFETY: the copy of the child, which ends without dropping the other.
            drop(unsafe { std::ptr::read(held) });
            i32::from(!matches!(reader.take(ticket).map(|taken| value(&taken)), Ok(Ok(7))))
        })
    };
    assert_eq!(child, 0, "a child reads what is mapped");
    (0..20).for_each(|i| drop(publish(&mut writer, i, 8)));
    assert_eq!(value(&held).unwrap(), 7, "the child gave up the parent's lease");
}

#[test]
fn a_writer_ends_for_everybody_where_its_process_was_forked() {
    let _alone = alone();
    let mut writer = writer(2);
    let ticket = publish(&mut writer, 1, 8);
    let reader = RingReader::open(&ticket.ring, None).unwrap();
    let child = fork(|| {
        std::thread::sleep(Duration::from_secs(250));
        0
    });
    let dropped = std::thread::spawn(move || drop(writer));
    until("the writer's end", || dropped.is_finished());
    until("its consumers know", || reader.is_closed());
    assert!(matches!(
        RingReader::open(&ticket.ring, None).map(|_| ()),
        Err(RingError::ProducerGone { .. })
    ));
    // SAFETY: a child of this process.
    unsafe {
        let ended = libc::waitpid(child, std::ptr::null_mut(), libc::WNOHANG);
        assert_eq!(ended, 0, "nobody waited for the child");
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
}

#[test]
fn a_child_that_is_forked_can_drop_its_copy_of_a_writer() {
    let _alone = alone();
    let mut writer = writer(2);
    let ticket = publish(&mut writer, 1, 8);
    let child = {
        let writer = &writer;
        forked(move || {
            // SAFETY: the copy of the child, which ends without dropping the other.
            drop(unsafe { std::ptr::read(writer) });
            0
        })
    };
    assert_eq!(child, 0);
    assert_eq!(
        value(&RingReader::open(&ticket.ring, None).unwrap().take(&ticket).unwrap()).unwrap(),
        1
    );
}

#[test]
fn processes_of_another_user_are_refused_by_either_side() {
    if !rustix::process::geteuid().is_root() {
        println!("ring: skipped, only root can become another user");
        return;
    }
    let _alone = alone();
    // SAFETY: another user, in a process of its own.
    let be_nobody = || assert_eq!(unsafe { libc::syscall(libc::SYS_setuid, 65534) }, 0);
    let mut writer = writer(2);
    let ticket = publish(&mut writer, 1, 8);
    let consumer = forked(|| {
        be_nobody();
        let refused = RingReader::open(&ticket.ring, None).map(|_| ());
        i32::from(!matches!(
            refused,
            Err(RingError::OtherUser {
                came: 0,
                expected: 65534,
                ..
            })
        ))
    });
    assert_eq!(consumer, 0);
    // A consumer that asks all the same gets no descriptors.
    let asking = forked(|| {
        be_nobody();
        let (socket, address) = socket(&ticket.ring);
        if rustix::net::connect(&socket, &address).is_err() {
            return 2;
        }
        let _ = rustix::net::send(&socket, b"RCR1m", SendFlags::NOSIGNAL);
        let mut bytes = [0; 12];
        let mut receive = || rustix::net::recv(&socket, &mut bytes, rustix::net::RecvFlags::empty());
        let came = receive().or_else(|_| receive());
        i32::from(came.is_err() || bytes[4] != 1)
    });
    assert_eq!(asking, 0);
}

#[test]
fn opening_and_dropping_leaves_nothing_behind() {
    let _alone = alone();
    let rounds = messages() / 10;
    let (mut writer, mut readers) = (writer(2), Readers::default());
    let ticket = publish(&mut writer, 1, 8);
    let round = |i: u64, readers: &mut Readers| {
        drop(RingReader::open(&ticket.ring, None).unwrap().take(&ticket).unwrap());
        // Another producer, with a new ring each time.
        if i.is_multiple_of(10) {
            let mut other = RingWriter::shared("another", None, RingConfig::default());
            let ticket = publish(&mut other, 1, 8);
            assert_eq!(value(&readers.take(&ticket).unwrap()).unwrap(), 1);
        }
        assert!(
            readers
                .take(&Ticket {
                    ring: format!("no such ring {i}").into(),
                    ..ticket.clone()
                })
                .is_err()
        );
    };
    (0..200).for_each(|i| round(i, &mut readers));
    let (before, memory) = (holding(), resident_kb());
    (0..rounds).for_each(|i| round(i, &mut readers));
    // This includes what other tests hold meanwhile.
    let (now, grown) = (holding(), resident_kb().saturating_sub(memory));
    println!("{rounds} rounds: {before:?} before, {now:?} after, {grown} kB more");
    assert!(grown < 8 << 10, "{grown} kB");
    drop((writer, readers));
}

#[test]
fn where_no_descriptors_are_left_both_sides_say_so_and_go_on_later() {
    let mut child = spawn("few-descriptors");
    assert!(child.wait().unwrap().success());
}

/// Runs a producer and a consumer with few file descriptors. Needs a process of its own, since the limit is for
/// the whole process.
pub fn with_few_descriptors() {
    let limit = |more: Option<u64>| {
        let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        // The lowest descriptors are in use.
        let next = std::fs::File::open("/dev/null").unwrap();
        use std::os::fd::AsRawFd;
        limit.current = more.map_or(limit.maximum, |more| Some(next.as_raw_fd() as u64 + more));
        drop(next);
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    };
    let raise = || {
        let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        limit.current = limit.maximum;
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    };
    let mut other = writer(2);
    let before = holding();
    // A writer needs ten descriptors: two for its slots, one for the control page and four for leases, and its sockets.
    for more in 0..10 {
        limit(Some(more));
        let refused = other.publish("", 8, |_| Ok(())).map(|_| ()).unwrap_err();
        raise();
        assert!(refused.to_string().contains("Too many open files"), "{refused}");
        assert_eq!(holding(), before, "{more} descriptors were left");
    }
    let ticket = publish(&mut other, 1, 8);
    let before = holding();
    drop(RingReader::open(&ticket.ring, None).unwrap());
    until("the connection's end", || holding() == before);
    // A reader needs four descriptors, and its producer, here in the same process, one more in between.
    limit(Some(0));
    let refused = RingReader::open(&ticket.ring, None).map(|_| ());
    raise();
    assert!(matches!(refused, Err(RingError::NoDescriptors { .. })), "{refused:?}");
    for more in [2, 3, 4] {
        limit(Some(more));
        let refused = RingReader::open(&ticket.ring, None).map(|_| ());
        raise();
        assert!(
            matches!(refused, Err(RingError::NoDescriptors { .. })),
            "{more}: {refused:?}"
        );
        until("the connection's end", || holding() == before);
    }
    // The producer has no descriptor to let the reader in, which waits until there is one.
    limit(Some(1));
    let opened = std::thread::scope(|scope| {
        let opening = scope.spawn(|| RingReader::open(&ticket.ring, None));
        std::thread::sleep(Duration::from_millis(300));
        raise();
        opening.join().unwrap()
    });
    assert_eq!(value(&opened.unwrap().take(&ticket).unwrap()).unwrap(), 1);
    until("the connection's end", || holding() == before);
}

"""Tests of payloads in rings, from a producer that is written here, byte by byte, without robocache."""

import fcntl
import gc
import os
import secrets
import signal
import socket
import struct
import threading

import numpy as np
import pytest

import robocache
from robocache import _native

ROUNDS = int(os.environ.get("ROBOCACHE_TEST_RING_MESSAGES", "20000")) // 4
STRIDE = 4096


class Producer:
    """A ring of shared memory in the format `robocache.ring/1`: its control page and its socket."""

    def __init__(self, slots: int = 4) -> None:
        self.name = f"robocache.test/{os.getpid()}/{secrets.token_hex(8)}"
        self.slots = self.memory("slots", slots * STRIDE)
        self.page = self.memory("page", 4096 + 1024 * slots)
        self.leases = [self.memory("leases", 4096) for _ in range(4)]
        head = b"RCR1" + struct.pack("<IIIQQ16xI", 1, slots, 0, STRIDE, 1, os.getpid())
        os.pwrite(self.page, head, 0)
        self.newest, self.count = 0, slots
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(f"\0{self.name}")
        self.listener.listen()
        self.peers: list[socket.socket] = []
        self.thread = threading.Thread(target=self.answer, daemon=True)
        self.thread.start()

    @staticmethod
    def memory(name: str, size: int) -> int:
        file = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(file, size)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        return file

    def answer(self) -> None:
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            if peer.recv(16) == b"RCR1m":
                column = len(self.peers) if len(self.peers) < 4 else 2**32 - 1
                self.peers.append(peer)
                files = [self.page, self.slots, *self.leases[column : column + 1]]
                socket.send_fds(peer, [b"RCR1" + struct.pack("<II", 0, column)], files)

    def publish(self, value: int, descriptor: bytes = b"rows 1000\nuint8 1 ", nbytes: int = 1024) -> tuple:
        slot = self.newest // 2 % self.count
        os.pwrite(self.page, struct.pack("<Q", self.newest + 1), 128 + 64 * slot)
        os.pwrite(self.page, struct.pack("<I", len(descriptor)) + descriptor, 4096 + 1024 * slot)
        os.pwrite(self.slots, bytes([value]) * nbytes, slot * STRIDE)
        self.newest += 2
        os.pwrite(self.page, struct.pack("<Q", self.newest), 128 + 64 * slot)
        return self.name, slot, self.newest, nbytes

    def die(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        for one in (self.listener, *self.peers):
            one.close()
        for file in (self.page, self.slots, *self.leases):
            os.close(file)


@pytest.fixture
def producer():
    made = Producer()
    yield made
    made.die()


def value(resident) -> int:
    bytes_ = np.from_dlpack(resident.columns[""])
    assert bytes_.shape == (1000,) and (bytes_ == bytes_[0]).all()
    return int(bytes_[0])


def resident_kb() -> int:
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


def test_many_threads_take_and_none_gets_another_payload(producer):
    tickets = [(producer.publish(0), 0)]
    problems, done = [], threading.Event()

    def take(copy: bool) -> None:
        while not done.is_set():
            ticket, expected = tickets[-1]
            try:
                resident = _native.take(*ticket, copy=copy)
                seen = np.array(np.from_dlpack(resident.columns[""]))
                if resident.is_intact and not (seen == expected).all():
                    problems.append((ticket, expected, seen))
            except (_native.StaleError, _native.TornError):
                pass
            except BaseException as error:  # noqa: BLE001
                problems.append(error)

    threads = [threading.Thread(target=take, args=(i % 2 == 0,)) for i in range(8)]
    [thread.start() for thread in threads]
    for i in range(ROUNDS // 4):
        tickets.append((producer.publish(i % 256), i % 256))
    done.set()
    [thread.join() for thread in threads]
    assert not problems, problems[0]


def test_children_that_are_forked_take_for_themselves_whatever_their_parent_does_meanwhile(producer):
    ticket = producer.publish(7)
    assert value(_native.take(*ticket)) == 7
    done = threading.Event()

    def take() -> None:
        while not done.is_set():
            _native.take(*ticket)
            with pytest.raises(_native.ProducerGone):
                _native.take("no such ring", 0, 2, 8)

    threads = [threading.Thread(target=take) for _ in range(4)]
    [thread.start() for thread in threads]
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                # The default action ends a child that waits for ever.
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(5)
                os._exit(0 if value(_native.take(*ticket)) == 7 else 1)
            assert os.waitpid(child, 0)[1] == 0, "a child can't take"
    finally:
        done.set()
        [thread.join() for thread in threads]


def test_views_outlive_all_else():
    producer = Producer()
    ticket = producer.publish(9)
    resident = _native.take(*ticket, copy=False)
    array = np.from_dlpack(resident.columns[""])
    assert not array.flags.writeable
    del resident
    producer.die()
    gc.collect()
    assert (array == 9).all()
    assert value(_native.take(*ticket)) == 9, "what is mapped is there after the producer"
    gone = Producer()
    ticket = gone.publish(1)
    gone.die()
    with pytest.raises(_native.ProducerGone):
        _native.take(*ticket)
    assert (array == 9).all()


def test_a_fifth_consumer_gets_copies_and_no_views(producer):
    """Views of slots are refused: without a lease nothing would hold the slot, or tell that it was overwritten."""
    producer.peers += [socket.socket() for _ in range(4)]
    ticket = producer.publish(5)
    with pytest.raises(robocache.RingError, match=r"4 other consumers can hold its slots, and this one can't \(allowed: a copy, by `copy=True`\)"):
        _native.take(*ticket, copy=False)
    assert value(_native.take(*ticket)) == 5


@pytest.mark.parametrize("copy", [True, False])
def test_a_payload_is_taken_once(producer, copy):
    before = _native.ring_counters()
    resident = _native.take(*producer.publish(3), copy=copy)
    assert value(resident) == 3 and resident.is_intact
    counted = _native.ring_counters()
    assert counted["taken"] == before["taken"] + 1
    assert counted["copied"] == before["copied"] + copy


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"slot": -1}, OverflowError),
        ({"slot": 2**64}, OverflowError),
        ({"slot": 2**64 - 1}, _native.RingError),
        ({"generation": -2}, OverflowError),
        ({"generation": 0}, _native.RingError),
        ({"generation": 3}, _native.RingError),
        ({"generation": 2**64 - 1}, _native.RingError),
        ({"nbytes": 2**64 - 1}, _native.RingError),
        ({"nbytes": 8}, _native.RingError),
        ({"ring": ""}, _native.RingError),
        ({"ring": "\0"}, _native.RingError),
        ({"ring": "x" * 10_000}, _native.RingError),
        ({"ring": b"bytes"}, TypeError),
        ({"slot": 1.5}, TypeError),
    ],
)
def test_tickets_that_make_no_sense_are_refused(producer, change, error):
    keys = ("ring", "slot", "generation", "nbytes")
    ticket = dict(zip(keys, producer.publish(1), strict=True))
    with pytest.raises(error):
        _native.take(**{**ticket, **change})
    assert value(_native.take(**ticket)) == 1


@pytest.mark.parametrize(
    "descriptor",
    [
        b"",
        b"\xff\xfe",
        b"rows 1000",
        b"rows 1025\nuint8 1 ",
        b"rows 17592186044415\nuint8 x17592186044415 a",
        b"rows 1\nfloat32 ~4611686018427387904 a",
        b"rows 18446744073709551615\nfloat32 ~1 a",
        b"rows -1\nuint8 1 ",
    ],
)
def test_descriptors_that_make_no_sense_are_refused_or_empty(producer, descriptor):
    ticket = producer.publish(1, descriptor)
    try:
        assert not _native.take(*ticket).columns
    except _native.RingError as error:
        assert "a payload described as" in str(error)


def test_refused_tickets_leave_nothing_behind(producer):
    ticket = producer.publish(1)

    def refused(i: int) -> None:
        for wrong in ((f"no such ring {i}", 0, 2, 8), (ticket[0], 99, 2, 8), (ticket[0], 0, 4, 8)):
            with pytest.raises(_native.RingError):
                _native.take(*wrong)

    [refused(i) for i in range(300)]
    files, memory = len(os.listdir("/proc/self/fd")), resident_kb()
    [refused(i) for i in range(ROUNDS // 4)]
    assert len(os.listdir("/proc/self/fd")) == files
    assert resident_kb() - memory < 4096


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"ring": b"x"}, "ring is b'x', expected a string"),
        ({"slot": True}, "slot is True, expected an integer"),
        ({"slot": 1.5}, "slot is 1.5, expected an integer"),
        ({"generation": None}, "generation is None, expected an integer"),
        ({"nbytes": -1}, r"are \[0, 2, -1\], expected 0 to 2\^64 - 1"),
        ({"slot": 2**64}, r"are \[18446744073709551616, 2, 8\], expected 0 to 2\^64 - 1"),
    ],
)
def test_a_ticket_that_is_none_is_refused_by_name(changed, words):
    ticket = {"residence": "shared", "ring": "x", "slot": 0, "generation": 2, "nbytes": 8, **changed}
    with pytest.raises(robocache.MessageError, match=words):
        robocache.open_tensor({"type": "INPUT", "value": None, "metadata": ticket})
    for key in changed:
        absent = {name: value for name, value in ticket.items() if name != key}
        with pytest.raises(robocache.MessageError, match=f"metadata has no '{key}'"):
            robocache.open_tensor({"type": "INPUT", "value": None, "metadata": absent})

"""Readers of cold history: whoever answers them, they get the same bytes; and what is not for them comes back."""

import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from brokers import NOW_MS, LocalBroker, fetch_request, from_offset
from fetch_readers import Reader, key_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.broker.fastpath import fetch as fetch_fast_path
from tailrace.broker.fastpath.fetch import HandoffRange
from tailrace.broker.fetch.sessions import FetchSession
from tailrace.protocol.fetch_wire import EPOCH_MAX
from tailrace.protocol.frame import decode_response
from tailrace.protocol.messages.fetch import FetchResponse
from tailrace.records.control import Marker, encode_marker
from tailrace.records.record import Record, encode_batch
from tailrace.server.handoff import worker
from tailrace.server.handoff.helper_process import message_of
from tailrace.server.handoff.messages import READY, HandedOff, Returned
from tailrace.server.handoff.worker import Conversation
from tailrace.util import children

VERSIONS = (5, 11, 12, 13, 17)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("cold")) as local, pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch_fast_path, "HANDOFF_BYTES_MIN", 1)
        local.create_topic(partitions=2)
        for number in range(120):
            local.produce(*[bytes([number]) * (7 * number) for _ in range(1 + number % 3)])
            if number in (39, 79):
                local.log().roll()
        for _ in range(20):  # more than sockets take
            local.produce(bytes(100_000), partition=1)
        local.log(index=1).roll()
        local.produce(b"active", partition=1)
        yield local


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalBroker]:
    """One with a topic and nothing in it."""
    monkeypatch.setattr(fetch_fast_path, "HANDOFF_BYTES_MIN", 1)
    with LocalBroker(tmp_path) as local:
        local.create_topic()
        yield local


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """More of it than a broker has: the machine may be busy."""
    timeval = struct.pack("@ll", 0, 300_000)

    def set_patience(sock: socket.socket) -> None:
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            sock.setsockopt(socket.SOL_SOCKET, option, timeval)

    monkeypatch.setattr(worker, "set_patience", set_patience)


class HandedOffReader:
    """A client whose connection is handed off: `theirs` is its end of it."""

    def __init__(self, local: LocalBroker, version: int = 12, partition: int = 0, **options: Any) -> None:
        self.reader = Reader(local)
        self.partition = partition
        self.version = version
        self.options = options
        self.session_id = 0
        self.answer(self.request(0))  # from which it is learnt
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.theirs.settimeout(10)
        self.returned: Returned | None = None
        self._thread: threading.Thread | None = None

    def request(self, offset: int, **others: Any) -> bytes:
        """Without its length."""
        topic = key_of(self.reader.local, self.version)
        request = fetch_request(from_offset(offset, self.partition), topic=topic, **{**self.options, **others})
        return self.reader.frame(request, self.version).tobytes()

    def begin_session(self) -> None:
        answer = self.answer(self.request(0, session_epoch=0))
        self.session_id = decode_response(FetchResponse, self.version, answer[4:])[1].session_id
        self.answer(self.next_request(0))  # from which it is learnt

    @property
    def session(self) -> FetchSession:
        session = self.reader.local.broker.fetch_sessions.find(self.session_id)
        assert session is not None
        return session

    def next_request(self, offset: int, epoch: int | None = None) -> bytes:
        """Of the session."""
        epoch = self.session.epoch if epoch is None else epoch
        return self.request(offset, session_id=self.session_id, session_epoch=epoch)

    def answer(self, frame: bytes) -> bytes:
        """What the broker says to that."""
        answer = self.reader.long(memoryview(frame))
        assert answer is not None
        return answer

    def range_ahead(self, frame: bytes, most: int = 1 << 30) -> HandoffRange | None:
        return self.reader.repeated.range_ahead(memoryview(frame), most)

    def may_be_handed_off(self, frame: bytes) -> bool:
        ahead = self.range_ahead(frame)
        if ahead is not None:
            ahead.records.release()
        return ahead is not None

    def hand_off(self, frame: bytes, most: int = 1 << 30) -> None:
        ahead = self.range_ahead(frame, most)
        assert ahead is not None
        handed_off, file = message_of(7, ahead)
        handed_off = HandedOff.decode(handed_off.encode())
        descriptor = os.dup(file)
        ahead.records.release()

        def converse() -> None:
            with socket.socket(fileno=os.dup(self.ours.fileno())) as client:
                self.returned = Returned.decode(Conversation(handed_off, client, descriptor).run().encode())
            os.close(descriptor)

        self._thread = threading.Thread(target=converse)
        self._thread.start()

    def send(self, frame: bytes) -> None:
        self.theirs.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.theirs.recv(count - len(data))
            assert more, "it was closed"
            data += more
        return data

    def take_back(self) -> Returned:
        assert self._thread is not None
        self._thread.join(10)
        assert self.returned is not None
        assert not os.get_blocking(self.ours.fileno())
        assert not self.returned.error
        return self.returned

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()

    def __enter__(self) -> "HandedOffReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def next_offset(reader: HandedOffReader, offset: int, limit: int) -> int:
    found = reader.reader.local.log().read(offset, limit)
    assert found is not None
    with found:
        return found.next_offset


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(
    version=st.sampled_from(VERSIONS),
    isolation=st.sampled_from([0, 1]),
    limit=st.sampled_from([0, 1, 700, 5_000, 20_000]),
    offset=st.integers(0, 260),  # there are 240
)
def test_a_reader_gets_the_same_bytes_as_from_the_broker_itself(
    local: LocalBroker, version: int, isolation: int, limit: int, offset: int
) -> None:
    with HandedOffReader(local, version, isolation_level=isolation, max_bytes=limit) as reader:
        if not reader.may_be_handed_off(frame := reader.request(offset)):
            return
        bases = (one.base_offset for one in local.log().segments)
        end = next((base for base in bases if base > offset), local.log().high_watermark)
        reader.hand_off(frame)
        for _ in range(5):
            expected = reader.answer(frame)
            assert reader.receive(len(expected)) == expected
            offset = next_offset(reader, offset, limit)
            if offset >= end:
                break
            reader.send(frame := reader.request(offset))
        reader.theirs.shutdown(socket.SHUT_WR)
        reader.take_back()


@pytest.mark.parametrize("version", [7, 12, 13, 17])
@pytest.mark.parametrize("first", [2, EPOCH_MAX - 1])
def test_a_reader_with_a_session_gets_the_same_bytes_and_its_epochs_are_counted(
    local: LocalBroker, version: int, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "HANDED_OFF_S", 60.0)  # the machine may be busy
    with HandedOffReader(local, version, max_bytes=2_000) as reader:
        reader.begin_session()
        reader.session.epoch, offset = first, 0
        reader.hand_off(frame := reader.next_request(0))
        for _ in range(4):
            expected = reader.answer(frame)  # which advances the session, as it does for one that is not handed off
            assert reader.receive(len(expected)) == expected
            offset = next_offset(reader, offset, 2_000)
            reader.send(frame := reader.next_request(offset))
        expected = reader.answer(frame)
        assert reader.receive(len(expected)) == expected
        returned = reader.take_back()
        assert len(returned.seconds) == 5
        assert (returned.epoch, returned.offset) == (reader.session.epoch, offset)


@pytest.mark.parametrize("wrong", [0, -1, 2, 4, EPOCH_MAX])
def test_an_epoch_out_of_turn_comes_back_as_it_was(local: LocalBroker, wrong: int) -> None:
    with HandedOffReader(local, max_bytes=2_000) as reader:
        reader.begin_session()
        assert reader.session.epoch == 2
        reader.hand_off(frame := reader.next_request(4))
        reader.receive(len(reader.answer(frame)))
        reader.send(frame := reader.next_request(next_offset(reader, 4, 2_000), wrong))
        returned = reader.take_back()
        assert returned.unread == struct.pack(">i", len(frame)) + frame
        assert (returned.epoch, returned.offset) == (3, 4)


def test_an_offset_that_no_batch_can_have_is_the_brokers_matter(fresh: LocalBroker) -> None:
    """The base offset is not in a batch's checksum: it may rot behind everybody's back."""
    for _ in range(10):
        fresh.produce(bytes(100))
    with HandedOffReader(fresh, max_bytes=500) as reader:
        ahead = reader.range_ahead(frame := reader.request(0))
        assert ahead is not None
        ahead.records.release()
        log = Path(fresh.log().segments[0].log.path)
        batch = fresh.log().size // 10
        for first in range(batch, 10 * batch, batch):  # the broker itself looks at the first one
            with log.open("r+b") as file:
                file.seek(first)
                file.write(b"\x7f" + b"\xff" * 7)
        reader.hand_off(frame)
        returned = reader.take_back()
        assert returned.unread == struct.pack(">i", len(frame)) + frame
        assert not returned.seconds


def test_most_is_answered_without_the_broker(local: LocalBroker) -> None:
    with HandedOffReader(local, max_bytes=2_000) as reader:
        reader.hand_off(frame := reader.request(0))
        offset, sizes = 0, []
        while True:
            expected = reader.answer(frame)
            assert reader.receive(len(expected)) == expected
            sizes.append(len(expected))
            offset = next_offset(reader, offset, 2_000)
            if offset >= local.log().segments[1].base_offset:
                break
            reader.send(frame := reader.request(offset))
        reader.send(last := reader.request(offset))
        returned = reader.take_back()
        assert len(sizes) > 5
        assert len(returned.seconds) == len(sizes)
        assert returned.bytes_out == sum(sizes)
        assert returned.unread == struct.pack(">i", len(last)) + last, "what follows is not in this file"
        assert returned.bytes_in == len(sizes) * (len(last) + 4)
        assert returned.unsent is None


@pytest.mark.parametrize(
    "other", ["another offset", "another limit", "another client", "another key", "half a request", "two requests"]
)
def test_what_is_not_the_next_request_comes_back_as_it_was(local: LocalBroker, other: str) -> None:
    with HandedOffReader(local, max_bytes=2_000) as reader:
        reader.hand_off(frame := reader.request(0))
        expected = reader.answer(frame)
        assert reader.receive(len(expected)) == expected
        follower = next_offset(reader, 0, 2_000)
        frame = reader.request(follower)
        sent = {
            "another offset": reader.request(follower + 1),
            "another limit": reader.request(follower, max_bytes=3_000),
            "another client": frame.replace(b"reader", b"writer"),
            "another key": b"\x00\x03" + frame[2:],
            "half a request": frame[:-7],
            "two requests": frame,
        }[other]
        data = struct.pack(">i", len(sent) if other != "half a request" else len(frame)) + sent
        behind = b"of another" if other == "two requests" else b""
        reader.theirs.sendall(data + behind)
        if other == "two requests":
            reader.receive(len(reader.answer(frame)))
            data = behind
        returned = reader.take_back()
        assert returned.unread == data
        assert returned.unsent is None


def test_a_client_that_pauses_comes_back(local: LocalBroker) -> None:
    with HandedOffReader(local, max_bytes=2_000) as reader:
        reader.hand_off(frame := reader.request(0))
        reader.receive(len(reader.answer(frame)))
        returned = reader.take_back()
        assert (returned.unread, returned.unsent) == (b"", None)
        assert len(returned.seconds) == 1


@pytest.mark.parametrize("is_full", [True, False])
@pytest.mark.parametrize("version", [11, 12])
def test_of_an_answer_that_a_client_does_not_take_the_rest_comes_back(
    local: LocalBroker, version: int, is_full: bool
) -> None:
    with HandedOffReader(local, version, partition=1) as reader:
        frame = reader.request(0)
        expected = reader.answer(frame)
        filled = fill(reader.ours) if is_full else 0
        reader.hand_off(frame)
        returned = reader.take_back()
        assert bool(returned.bytes_out) == (not is_full)
        assert returned.unsent is not None
        head, position, size, after = returned.unsent
        assert bool(head) == is_full
        taken = reader.receive(filled + returned.bytes_out)[filled:]
        log = Path(local.log(index=1).segments[0].log.path).read_bytes()
        assert taken + head + log[position : position + size] + after == expected


def fill(sock: socket.socket) -> int:
    """Fills the socket until it takes nothing more, and returns how many bytes that took."""
    count = 0
    try:
        while True:
            count += sock.send(bytes(1 << 16))
    except BlockingIOError:
        return count


def test_an_answer_ends_before_what_may_not_be_served(local: LocalBroker) -> None:
    with HandedOffReader(local, max_bytes=2_000) as reader:
        frame = reader.request(0)
        first = len(reader.answer(frame))
        reader.hand_off(frame, most=3_000)
        assert len(reader.receive(first)) == first
        reader.send(last := reader.request(next_offset(reader, 0, 2_000)))
        (size,) = struct.unpack(">i", reader.receive(4))
        reader.receive(size)
        returned = reader.take_back()
        assert first + size + 4 < 3_500
        assert returned.unread in (b"", struct.pack(">i", len(last)) + last)


def test_a_hand_off_ends_after_so_many_answers(local: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "ANSWERS_MAX", 2)
    with HandedOffReader(local, max_bytes=2_000) as reader:
        reader.hand_off(frame := reader.request(0))
        reader.receive(len(reader.answer(frame)))
        reader.send(frame := reader.request(next_offset(reader, 0, 2_000)))
        reader.receive(len(reader.answer(frame)))
        assert len(reader.take_back().seconds) == 2


@pytest.mark.parametrize("is_cold", [False, True])
def test_a_hand_off_ends_in_time_however_slowly_a_client_reads_a_large_response(
    local: LocalBroker, monkeypatch: pytest.MonkeyPatch, is_cold: bool
) -> None:
    """Which is not the client's fault."""
    monkeypatch.setattr(worker, "HANDED_OFF_S", 0.02)
    monkeypatch.setattr(worker, "PIECE_BYTES", 1 << 16)
    monkeypatch.setattr(worker, "read_ahead", lambda *_: not is_cold)
    send_file = Conversation._send_file

    def send_slowly(self: Conversation, position: int, size: int) -> int:
        time.sleep(0.005)
        return send_file(self, position, size)

    monkeypatch.setattr(Conversation, "_send_file", send_slowly)
    with HandedOffReader(local, partition=1, max_bytes=2_000_000) as reader:
        whole = len(reader.answer(frame := reader.request(0)))
        reader.hand_off(frame)
        reader.theirs.settimeout(0.02)
        taken = 0
        while reader.returned is None or taken < reader.returned.bytes_out:
            with suppress(TimeoutError):  # it may be over by now
                taken += len(reader.theirs.recv(1 << 20))
        returned = reader.take_back()
        assert taken < whole
        assert returned.unsent is not None
        assert not returned.was_slow


def test_a_client_that_takes_nothing_is_slow(local: LocalBroker) -> None:
    with HandedOffReader(local, partition=1, max_bytes=2_000_000) as reader:
        fill(reader.ours)
        reader.hand_off(reader.request(0))
        assert reader.take_back().was_slow


@pytest.mark.parametrize("length", [1, 2, 3, 4, 30])
def test_what_cannot_be_the_next_request_is_not_waited_for(
    local: LocalBroker, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    """Another request may be shorter, and there may be nothing behind it."""
    monkeypatch.setattr(worker, "HANDED_OFF_S", 60.0)
    monkeypatch.setattr(worker, "set_patience", lambda _: None)
    with HandedOffReader(local, max_bytes=2_000) as reader:
        reader.hand_off(frame := reader.request(0))
        reader.receive(len(reader.answer(frame)))
        reader.theirs.sendall(other := (struct.pack(">i", 0x01020304) + bytes(26))[:length])
        assert reader.take_back().unread == other


def test_a_hand_off_does_not_outlast_its_time_for_a_request_that_arrives_in_drops(
    local: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "HANDED_OFF_S", 0.2)
    monkeypatch.setattr(worker, "set_patience", lambda _: None)
    with HandedOffReader(local, max_bytes=2_000) as reader:
        reader.hand_off(frame := reader.request(0))
        reader.receive(len(reader.answer(frame)))
        follower = struct.pack(">i", len(frame)) + reader.request(next_offset(reader, 0, 2_000))
        sent = 0
        while reader.returned is None:
            assert sent < len(follower), "it was waited for"
            reader.theirs.sendall(follower[sent : sent + 1])
            sent += 1
            time.sleep(0.02)
        assert follower.startswith(reader.take_back().unread)


def test_a_client_that_is_gone_is_an_error(local: LocalBroker) -> None:
    with HandedOffReader(local, max_bytes=2_000) as reader:
        reader.theirs.close()
        reader.hand_off(reader.request(0))
        assert reader._thread is not None
        reader._thread.join(10)
        assert reader.returned is not None
        assert reader.returned.error


def test_nothing_is_handed_off_of_what_lies_behind_the_end(local: LocalBroker) -> None:
    with HandedOffReader(local, max_bytes=500) as reader:
        assert not reader.may_be_handed_off(reader.request(local.log().high_watermark))
        assert not reader.may_be_handed_off(reader.request(local.log().high_watermark + 5))


@pytest.mark.parametrize("is_rolled", [False, True])
def test_of_the_segment_that_is_written_to_all_is_handed_off_that_readers_may_see(
    fresh: LocalBroker, is_rolled: bool
) -> None:
    """And what is appended meanwhile is none of it, nor what stands in a segment behind it."""
    for number in range(10):
        fresh.produce(bytes([number]) * 100)
    log, end = fresh.log(), fresh.log().high_watermark
    visible = log.size
    with HandedOffReader(fresh, max_bytes=1_000) as reader:
        first = reader.request(0)
        expected = reader.answer(first)
        if is_rolled:
            log.roll()
        log.append(encode_batch([Record(0, NOW_MS, None, bytes(100))]), NOW_MS)
        assert log.high_watermark == end < log.end_offset
        ahead = reader.range_ahead(first)
        assert ahead is not None
        assert (ahead.records.length, ahead.records.next_offset) == (visible, end)
        ahead.records.release()
        reader.hand_off(first)
        received, offset = reader.receive(len(expected)), next_offset(reader, 0, 1_000)
        assert received == expected
        while offset < end:
            reader.send(frame := reader.request(offset))
            answer = reader.answer(frame)
            assert reader.receive(len(answer)) == answer
            offset = next_offset(reader, offset, 1_000)
        reader.send(last := reader.request(end))
        assert reader.take_back().unread == struct.pack(">i", len(last)) + last, "it is the broker's to answer"


def test_a_read_committed_consumer_is_not_handed_off_with_an_open_transaction(
    fresh: LocalBroker,
) -> None:
    for _ in range(10):
        fresh.produce(bytes(100))
    log, record = fresh.log(), Record(0, NOW_MS, None, bytes(100))
    log.append(encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True), NOW_MS)
    fresh.produce(b"behind it")
    assert log.last_stable_offset < log.high_watermark
    with HandedOffReader(fresh, max_bytes=500, isolation_level=1) as reader:
        assert not reader.may_be_handed_off(reader.request(0))
    with HandedOffReader(fresh, max_bytes=500) as reader:
        assert reader.may_be_handed_off(reader.request(0))


@pytest.mark.parametrize("max_wait_ms", [0, 60_000])
def test_less_than_a_reader_would_wait_for_is_the_brokers_to_answer(fresh: LocalBroker, max_wait_ms: int) -> None:
    for _ in range(7):
        fresh.produce(bytes(100))
    limit = fresh.log().size * 5 // 7
    with HandedOffReader(fresh, max_bytes=limit, min_bytes=limit // 2, max_wait_ms=max_wait_ms) as reader:
        reader.hand_off(first := reader.request(0))
        expected = reader.answer(first)
        assert reader.receive(len(expected)) == expected
        assert next_offset(reader, 0, limit) == 5
        reader.send(frame := reader.request(5))
        if max_wait_ms:
            assert reader.take_back().unread == struct.pack(">i", len(frame)) + frame
            assert reader.take_back().bytes_out == len(expected)
        else:
            expected = reader.answer(frame)
            assert reader.receive(len(expected)) == expected
            assert len(reader.take_back().seconds) == 2


def test_what_nobody_has_checked_since_the_start_is_not_handed_off(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as local:
        local.create_topic()
        for _ in range(10):
            local.produce(bytes(100))
    with LocalBroker(tmp_path) as local:
        log = local.log()
        assert log.range_ahead(0, 1 << 30, up_to=log.high_watermark) is None
        found = log.read(0, 1 << 30)  # which checks them
        assert found is not None
        ahead = log.range_ahead(0, 1 << 30, up_to=log.high_watermark)
        assert ahead is not None
        with found, ahead.records as records:
            assert records.length == found.length == log.size


def test_nothing_is_handed_off_that_was_not_checked(fresh: LocalBroker) -> None:
    for _ in range(30):
        fresh.produce(bytes(100))
    fresh.log().roll()
    fresh.produce(b"active")
    with HandedOffReader(fresh, max_bytes=500) as reader:
        assert reader.may_be_handed_off(reader.request(1))
        segment = fresh.log().segments[0]
        segment.checks.distrust(0, segment.size, segment.size)
        assert not reader.may_be_handed_off(reader.request(1))


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_read_committed_consumer_is_not_handed_off_with_aborted_transactions(
    fresh: LocalBroker, is_sealed: bool
) -> None:
    fresh.produce(b"first")
    log, record = fresh.log(), Record(0, NOW_MS, None, bytes(100))
    log.append(encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True), NOW_MS)
    log.append(encode_marker(Marker.ABORT, 7, 0, 0, NOW_MS), NOW_MS)
    for _ in range(10):
        fresh.produce(bytes(100))
    if is_sealed:
        log.roll()
    fresh.produce(b"active")
    assert log.last_stable_offset == log.high_watermark
    with HandedOffReader(fresh, max_bytes=500, isolation_level=1) as reader:
        assert not reader.may_be_handed_off(reader.request(0))
    with HandedOffReader(fresh, max_bytes=500) as reader:
        assert reader.may_be_handed_off(reader.request(0))


FORMER = "tailrace.server.history_reader"  # by which a running broker of the release before starts it


@pytest.mark.parametrize("module", ["tailrace.server.handoff.worker", FORMER])
def test_the_helper_process_reports_that_it_is_ready_and_ends_with_its_broker(module: str) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        command = children.command(module, str(theirs.fileno()))
        with subprocess.Popen(command, pass_fds=[theirs.fileno()]) as process:
            ours.settimeout(30)
            assert Returned.decode(ours.recv(1 << 14)).number == READY
            ours.shutdown(socket.SHUT_RDWR)
            assert process.wait(30) == 0


def test_a_process_whose_broker_is_gone_ends_without_a_word() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.close()
    command = children.command("tailrace.server.handoff.worker", str(theirs.fileno()))
    with theirs:
        done = subprocess.run(command, pass_fds=[theirs.fileno()], capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == ("", "")

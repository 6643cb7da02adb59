"""The outbox: bytes and slices in their order, whatever the socket takes at a time, and nothing held in the end."""

import asyncio
import math
import os
import socket
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from nodes import LOOPS

from tailrace.server.counters import Counters
from tailrace.server.net import outbox as sending
from tailrace.server.net import thread_send
from tailrace.server.net.chunks import PIECE_BYTES, length_of
from tailrace.server.net.outbox import COPIED_BYTES_MAX, LOOP_BYTES_MAX, Outbox
from tailrace.server.net.thread_send import ThreadSend
from tailrace.server.threads import Workers

BY_THREAD, BY_SENDER, BY_LOOP = {"tailrace-test-0"}, {"tailrace-test-send-0"}, {"MainThread"}


class FakeSlice:
    """A slice of memory. `cold` bytes at its start are not in the page cache: sending them waits for a disk."""

    def __init__(self, data: bytes, cold: int = 0) -> None:
        self.data = data
        self.cold = cold
        self.is_cold_behind = False  # what follows it in its file
        self.senders: set[str] = set()  # the threads that have sent some of it
        self.released = 0
        self.sent_cold: list[int] = []  # up to where
        self.hold: threading.Event | None = None
        self.error: Exception | None = None

    @property
    def length(self) -> int:
        return len(self.data)

    @property
    def next_offset(self) -> int:
        return 0

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        raise NotImplementedError

    def read_cached(self, start: int = 0, size: int | None = None) -> bytes | None:
        assert not self.released
        return None if start < self.cold else self.data[start : start + (self.length if size is None else size)]

    def send_to(self, descriptor: int, start: int, size: int) -> int:
        assert not self.released
        self.senders.add(threading.current_thread().name)
        if start < self.cold:
            self._wait(start)
        sock = socket.socket(fileno=descriptor)
        try:
            count = sock.send(self.data[start : start + size])
        finally:
            sock.detach()
        if start < self.cold:
            self.sent_cold.append(start + count)
        return count

    def send_cached_to(self, descriptor: int, start: int, size: int) -> int | None:
        return None if start < self.cold else self.send_to(descriptor, start, size)

    def read_ahead(self, start: int, size: int) -> bool:
        return not self.is_cold_behind

    def _wait(self, start: int) -> None:
        assert threading.current_thread().name.startswith("tailrace-test"), "the loop must not wait for a disk"
        if self.hold is not None:
            self.hold.wait(10)
        if self.error is not None:
            raise self.error

    def release(self) -> None:
        self.released += 1


class Setup:
    def __init__(self, timeout_s: float = 10.0) -> None:
        self.loop = asyncio.get_running_loop()
        ours, self.theirs = socket.socketpair()
        self.socket = ours
        ours.setblocking(False)
        self.theirs.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 << 10)
        self.workers = Workers(self.loop, "test", 2)
        self.senders = Workers(self.loop, "test-send", 2)
        self.metrics = SimpleNamespace(bytes_in=0, bytes_out=0)
        self.sent = 0
        self.errors: list[Exception] = []
        self.outbox = Outbox(
            self.loop,
            ours,
            self.workers,
            self.senders,
            cast(Counters, self.metrics),
            timeout_s=timeout_s,
            on_sent=self._on_sent,
            on_error=self._on_error,
        )

    def _on_sent(self) -> None:
        self.sent += 1

    def _on_error(self, error: Exception) -> None:
        self.errors.append(error)
        self.outbox.close()

    def put(self, *parts: Any) -> None:
        self.outbox.put(parts)
        self.outbox.send()

    async def receive(self, count: int) -> bytes:
        data = b""
        async with asyncio.timeout(10):
            while len(data) < count:
                data += await self.loop.sock_recv(self.theirs, 1 << 16)
        return data

    def close(self) -> None:
        self.outbox.close()
        self.socket.close()
        self.theirs.close()
        self.workers.stop()
        self.senders.stop()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0.001)


@pytest.fixture(params=LOOPS)
def on_loop(request: pytest.FixtureRequest) -> Callable[[Callable[..., Any]], None]:
    def run(main: Callable[[Setup], Any], **options: Any) -> None:
        async def in_loop() -> None:
            setup = Setup(**options)
            try:
                await main(setup)
            finally:
                setup.close()
                await asyncio.sleep(0.01)

        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(in_loop())

    return run


def pattern(size: int, seed: int = 0) -> bytes:
    return bytes((n * 7 + seed) % 251 for n in range(min(size, 251))) * (size // 251 + 1)


def piece(size: int, seed: int = 0) -> bytes:
    return pattern(size, seed)[:size]


def test_a_small_answer_goes_at_once(on_loop: Any) -> None:
    async def main(setup: Setup) -> None:
        setup.put(b"abc", b"", bytearray(b"def"), memoryview(b"ghi"))
        assert setup.outbox.is_empty
        assert await setup.receive(9) == b"abcdefghi"
        assert setup.sent == 0, "nobody has waited"
        assert setup.metrics.bytes_out == 9

    on_loop(main)


def test_parts_of_all_kinds_and_sizes_arrive_in_order(on_loop: Any) -> None:
    async def main(setup: Setup) -> None:
        slices = [
            FakeSlice(piece(100, 1)),
            FakeSlice(piece(COPIED_BYTES_MAX, 2)),
            FakeSlice(piece(COPIED_BYTES_MAX + 1, 3)),
            FakeSlice(piece(3 * PIECE_BYTES + 5, 4)),
            FakeSlice(piece(50, 5), cold=50),
            FakeSlice(piece(2 * PIECE_BYTES + 9, 6), cold=PIECE_BYTES),
        ]
        parts: list[Any] = [b"start"]
        for number, one in enumerate(slices):
            parts += [one, piece(number * 3000, 9)]
        expected = b"".join(part if isinstance(part, bytes) else part.data for part in parts)
        setup.put(*parts)
        assert not setup.outbox.is_empty
        assert await setup.receive(len(expected)) == expected
        await until(lambda: setup.sent == 1)
        assert setup.outbox.is_empty
        assert [one.released for one in slices] == [1] * len(slices)
        assert setup.metrics.bytes_out == len(expected)

    on_loop(main)


def test_a_thousand_small_parts(on_loop: Any) -> None:
    async def main(setup: Setup) -> None:
        slices = [FakeSlice(piece(100 + n, n)) for n in range(1000)]
        setup.put(*slices)
        expected = b"".join(one.data for one in slices)
        assert await setup.receive(len(expected)) == expected
        assert all(one.released == 1 for one in slices)

    on_loop(main)


def test_others_have_their_turn_between_thousands_of_small_parts(on_loop: Any) -> None:
    async def main(setup: Setup) -> None:
        setup.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        slices = [FakeSlice(b"x") for _ in range(5000)]
        setup.put(*slices)
        turn = sending.TURN_BYTES // sending.SLICE_BYTES
        assert sum(one.released for one in slices) <= turn + sending.GATHERED_MAX
        assert await setup.receive(5000) == b"x" * 5000
        await until(lambda: setup.outbox.is_empty)
        assert all(one.released == 1 for one in slices)

    on_loop(main)


def test_what_is_cold_is_sent_by_a_thread_as_much_as_the_socket_takes(on_loop: Any) -> None:
    async def main(setup: Setup) -> None:
        cold = FakeSlice(piece(2 * PIECE_BYTES + 7), cold=3 * PIECE_BYTES)
        setup.put(b"head", cold)
        assert await setup.receive(4 + cold.length) == b"head" + cold.data
        await until(lambda: bool(cold.released))
        assert cold.released == 1
        assert cold.sent_cold == sorted(cold.sent_cold)
        assert cold.sent_cold[-1] == cold.length

    on_loop(main)


def test_a_client_that_does_not_read_is_not_buffered_for(on_loop: Any) -> None:
    async def main(setup: Setup) -> None:
        slices = [FakeSlice(piece(COPIED_BYTES_MAX, n)) for n in range(100)]
        setup.put(*slices)
        await asyncio.sleep(0.05)
        assert not setup.outbox.is_empty
        held = sum(length_of(part) for part in setup.outbox._chunks if isinstance(part, bytes | bytearray | memoryview))
        assert held <= sending.GATHERED_BYTES + COPIED_BYTES_MAX
        assert sum(one.released for one in slices) < 20
        assert setup.sent == 0

    on_loop(main)


def test_its_time_is_up_when_it_takes_nothing(on_loop: Any) -> None:
    async def main(setup: Setup) -> None:
        large = FakeSlice(piece(4 * PIECE_BYTES))
        setup.put(large)
        await asyncio.sleep(0.4)
        (error,) = setup.errors
        assert isinstance(error, TimeoutError)
        assert large.released == 1

    on_loop(main, timeout_s=0.2)


def test_one_that_takes_a_little_now_and_then_has_more_time(on_loop: Any) -> None:
    async def main(setup: Setup) -> None:
        setup.put(FakeSlice(piece(PIECE_BYTES)))
        for _ in range(6):
            await asyncio.sleep(0.1)
            await setup.receive(100_000)
        assert setup.errors == []

    on_loop(main, timeout_s=0.3)


def test_closed_while_blocked(on_loop: Any) -> None:
    async def main(setup: Setup) -> None:
        large, behind = FakeSlice(piece(LOOP_BYTES_MAX)), FakeSlice(b"x")
        setup.put(large, behind)
        setup.outbox.close()
        assert (large.released, behind.released) == (1, 1)
        descriptor = setup.socket.fileno()
        assert not setup.loop.remove_writer(descriptor), "its writer is gone"
        await asyncio.sleep(0.05)
        assert setup.errors == []
        assert setup.sent == 0

    on_loop(main, timeout_s=0.02)


def test_closed_while_a_thread_sends(on_loop: Any) -> None:
    async def main(setup: Setup) -> None:
        cold, behind = FakeSlice(piece(1000), cold=1000), FakeSlice(b"x")
        cold.hold = threading.Event()
        setup.put(cold, behind)
        setup.outbox.close()
        assert (cold.released, behind.released) == (0, 1), "not while it is being sent"
        setup.socket.close()
        pair = socket.socketpair()  # one of them has its number now
        cold.hold.set()
        await until(lambda: not setup.workers.under_way)
        assert setup.theirs.recv(2000) == cold.data
        for one in pair:
            one.setblocking(False)
            with pytest.raises(BlockingIOError):
                one.recv(1)
        for one in pair:
            one.close()
        assert cold.released == 1
        assert setup.sent == 0
        setup.outbox.send()

    on_loop(main)


def test_a_disk_that_fails_ends_it(on_loop: Any) -> None:
    async def main(setup: Setup) -> None:
        cold = FakeSlice(piece(1000), cold=1000)
        cold.error = OSError("rotten")
        setup.put(b"head", cold)
        await until(lambda: bool(setup.errors))
        assert setup.errors == [cold.error]
        assert cold.released == 1

    on_loop(main)


def test_a_file_that_has_become_shorter_ends_it(on_loop: Any) -> None:
    async def main(setup: Setup) -> None:
        short = FakeSlice(piece(PIECE_BYTES))
        short.send_to = lambda descriptor, start, size: 0  # type: ignore[method-assign]
        setup.put(short)
        await until(lambda: bool(setup.errors))
        assert isinstance(setup.errors[0], OSError)
        assert short.released == 1

    on_loop(main)


@pytest.mark.parametrize("is_cold_behind", [True, False])
def test_a_thread_begins_with_what_follows_while_a_disk_has_to_be_asked_for_it(
    on_loop: Any, is_cold_behind: bool
) -> None:
    async def main(setup: Setup) -> None:
        first, second = FakeSlice(piece(PIECE_BYTES, 1), cold=1), FakeSlice(piece(LOOP_BYTES_MAX, 2))
        first.is_cold_behind = is_cold_behind
        setup.put(first)
        assert await setup.receive(PIECE_BYTES) == first.data
        setup.put(second)
        assert await setup.receive(LOOP_BYTES_MAX) == second.data
        assert second.senders == (BY_THREAD if is_cold_behind else BY_LOOP)

    on_loop(main)


def test_what_is_large_is_sent_by_a_thread_although_it_is_in_memory(on_loop: Any) -> None:
    async def main(setup: Setup) -> None:
        large, small = FakeSlice(piece(LOOP_BYTES_MAX + 1, 1)), FakeSlice(piece(LOOP_BYTES_MAX, 2))
        setup.put(b"head", large)
        assert await setup.receive(4 + large.length) == b"head" + large.data
        setup.put(small)
        assert await setup.receive(small.length) == small.data
        assert (large.senders, small.senders) == (BY_SENDER, BY_LOOP)

    on_loop(main)


def test_the_loop_sends_if_all_sender_threads_are_busy_and_cold_reads_use_others(
    on_loop: Any,
) -> None:
    async def main(setup: Setup) -> None:
        hold = threading.Event()
        for _ in range(2):
            setup.senders.submit(lambda: cast(None, hold.wait(10)), lambda: None)
        warm, cold = FakeSlice(piece(PIECE_BYTES, 1)), FakeSlice(piece(PIECE_BYTES, 2), cold=1)
        setup.put(warm, cold)
        assert await setup.receive(2 * PIECE_BYTES) == warm.data + cold.data
        hold.set()
        assert (warm.senders, cold.senders) == (BY_LOOP, BY_THREAD)

    on_loop(main)


def test_a_slow_client_holds_no_thread_until_it_is_tried_again(on_loop: Any) -> None:
    async def main(setup: Setup) -> None:
        slow, soon, later = (FakeSlice(piece(PIECE_BYTES, n)) for n in range(3))
        setup.put(slow)
        await until(lambda: not setup.senders.under_way)  # although the client takes nothing
        assert await setup.receive(slow.length) == slow.data
        setup.put(soon)
        assert await setup.receive(soon.length) == soon.data
        setup.outbox._slow_until -= sending.SLOW_S
        setup.put(later)
        assert await setup.receive(later.length) == later.data
        assert (slow.senders, soon.senders, later.senders) == (BY_SENDER | BY_LOOP, BY_LOOP, BY_SENDER)

    on_loop(main)


def test_a_client_that_takes_little_of_what_is_cold_holds_no_thread_for_long(on_loop: Any) -> None:
    async def main(setup: Setup) -> None:
        first = FakeSlice(piece(2 * PIECE_BYTES, 1), cold=1)
        first.is_cold_behind = True
        setup.put(first)
        await until(lambda: not setup.senders.under_way)  # although the client takes nothing
        assert first.senders == BY_SENDER | BY_LOOP, "the rest does not wait for a thread"
        assert await setup.receive(first.length) == first.data

    on_loop(main)


# Several slices


@pytest.fixture
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that all of a run has room in a socket, and nobody has to take it meanwhile."""
    monkeypatch.setattr(thread_send, "CLIENT_S", 10.0)
    monkeypatch.setattr(sending, "COPIED_BYTES_MAX", 100)
    monkeypatch.setattr(sending, "LOOP_BYTES_MAX", 1000)


def hand_overs(setup: Setup, workers: Workers) -> list[object]:
    setup.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 200 << 10)
    seen: list[object] = []
    submit = workers.submit
    workers.submit = lambda work, done: seen.append(work) or submit(work, done)  # type: ignore[method-assign, func-returns-value]
    return seen


def slices_and_bytes(count: int) -> tuple[list[FakeSlice], list[Any], bytes]:
    slices = [FakeSlice(piece(10_000, n)) for n in range(count)]
    parts: list[Any] = [b"start"]
    for one in slices:
        parts += [one, memoryview(b"between")]
    return slices, parts, b"".join(part.data if isinstance(part, FakeSlice) else bytes(part) for part in parts)


@pytest.mark.parametrize(("run_bytes", "runs"), [(1 << 20, 1), (15_000, 3)])
@pytest.mark.usefixtures("small_is_large")
def test_several_slices_are_sent_by_a_thread_before_it_comes_back(
    on_loop: Any, monkeypatch: pytest.MonkeyPatch, run_bytes: int, runs: int
) -> None:
    monkeypatch.setattr(sending, "THREAD_SEND_BYTES", run_bytes)

    async def main(setup: Setup) -> None:
        handed_over = hand_overs(setup, setup.senders)
        slices, parts, expected = slices_and_bytes(5)
        setup.put(*parts)
        await until(lambda: setup.sent == 1)
        assert await setup.receive(len(expected)) == expected
        assert len(handed_over) == runs
        assert [(one.released, one.senders) for one in slices] == [(1, BY_SENDER)] * 5
        assert setup.metrics.bytes_out == len(expected)

    on_loop(main)


@pytest.mark.usefixtures("small_is_large")
def test_a_run_ends_before_what_is_small_and_before_what_is_cold(on_loop: Any) -> None:
    async def main(setup: Setup) -> None:
        hand_overs(setup, setup.senders)
        first, small, second, cold, third = (FakeSlice(piece(size, size)) for size in (5000, 1000, 5001, 5002, 5003))
        cold.is_cold_behind = True
        setup.put(first, b"-", small, b"-", second, b"-", cold, b"-", third)
        await until(lambda: setup.sent == 1)
        expected = b"-".join(one.data for one in (first, small, second, cold, third))
        assert await setup.receive(len(expected)) == expected
        assert (first.senders, small.senders, second.senders) == (BY_SENDER, BY_LOOP, BY_SENDER)
        assert (cold.senders, third.senders) == (BY_THREAD, BY_THREAD)

    on_loop(main)


@pytest.mark.usefixtures("small_is_large")
def test_what_a_thread_sends_is_let_go_once_when_it_is_closed_meanwhile(on_loop: Any) -> None:
    async def main(setup: Setup) -> None:
        hand_overs(setup, setup.senders)
        slices, parts, _ = slices_and_bytes(3)
        slices[1].cold, slices[1].hold = 1, threading.Event()
        behind = FakeSlice(piece(1000, 9))  # too small for the run
        setup.put(*parts, behind)
        await until(lambda: slices[1].senders == BY_SENDER)
        setup.outbox.close()
        assert [one.released for one in (*slices, behind)] == [0, 0, 0, 1]
        slices[1].hold.set()
        await until(lambda: not setup.senders.under_way)
        assert [one.released for one in (*slices, behind)] == [1, 1, 1, 1]

    on_loop(main)


@pytest.mark.usefixtures("small_is_large")
def test_an_error_amid_a_run_ends_it_and_all_is_let_go_once(on_loop: Any) -> None:
    async def main(setup: Setup) -> None:
        hand_overs(setup, setup.senders)
        slices, parts, _ = slices_and_bytes(3)
        slices[1].cold, slices[1].error = 1, OSError("the disk is gone")
        setup.put(*parts)
        await until(lambda: bool(setup.errors))
        assert setup.errors == [slices[1].error]
        assert [one.released for one in slices] == [1, 1, 1]

    on_loop(main)


@pytest.mark.parametrize("taken_of", ["a slice", "the bytes before it"])
@pytest.mark.usefixtures("small_is_large")
def test_what_a_client_takes_in_part_amid_a_run_goes_on_where_it_stopped(
    on_loop: Any, monkeypatch: pytest.MonkeyPatch, taken_of: str
) -> None:
    if taken_of == "a slice":
        send_to = FakeSlice.send_to
        monkeypatch.setattr(FakeSlice, "send_to", lambda one, fd, start, size: send_to(one, fd, start, min(size, 6001)))
    else:
        send_bytes = ThreadSend._send_bytes

        def little(run: ThreadSend, data: memoryview) -> bool:
            send_bytes(run, data[:3])
            return False

        monkeypatch.setattr(ThreadSend, "_send_bytes", little)

    async def main(setup: Setup) -> None:
        hand_overs(setup, setup.senders)
        slices, parts, expected = slices_and_bytes(4)
        setup.put(*parts)
        await until(lambda: setup.sent == 1)
        assert await setup.receive(len(expected)) == expected
        assert [one.released for one in slices] == [1] * 4
        assert setup.metrics.bytes_out == len(expected)

    on_loop(main)


def test_who_may_wait_for_a_disk_sends_a_piece_and_comes_back(on_loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_send, "CLIENT_S", 10.0)

    async def main(setup: Setup) -> None:
        handed_over = hand_overs(setup, setup.workers)
        large = FakeSlice(piece(3 * PIECE_BYTES))
        setup.outbox.is_cold = True
        setup.put(large)
        assert await setup.receive(large.length) == large.data
        assert len(handed_over) == 1, "the rest was in memory"

    on_loop(main)


@pytest.mark.usefixtures("small_is_large")
def test_the_end_of_an_answer_is_sent_when_the_thread_is_back(on_loop: Any) -> None:
    """A client that has all of it sends its next request, and no thread may be in its way then."""

    async def main(setup: Setup) -> None:
        handed_over = hand_overs(setup, setup.senders)
        _, parts, expected = slices_and_bytes(2)
        setup.put(*parts)
        run = setup.outbox._thread_send
        assert run is not None
        assert [isinstance(part, FakeSlice) for part in run.chunks] == [True, False, True]
        assert len(handed_over) == 1
        await until(lambda: setup.sent == 1)
        assert await setup.receive(len(expected)) == expected

    on_loop(main)


def test_a_socket_is_as_it_was_when_a_thread_has_sent(on_loop: Any) -> None:
    async def main(setup: Setup) -> None:
        cold = FakeSlice(piece(1000), cold=1000)
        setup.put(cold)
        assert await setup.receive(1000) == cold.data
        await until(lambda: not setup.workers.under_way)
        assert not os.get_blocking(setup.socket.fileno())

    on_loop(main)


def test_a_slice_of_nothing_is_let_go_at_once(on_loop: Any) -> None:
    async def main(setup: Setup) -> None:
        nothing = FakeSlice(b"")
        setup.put(b"head", nothing, b"tail")
        assert nothing.released == 1
        assert await setup.receive(8) == b"headtail"

    on_loop(main)


def test_a_client_that_is_gone_ends_it(on_loop: Any) -> None:
    async def main(setup: Setup) -> None:
        large = FakeSlice(piece(PIECE_BYTES))
        setup.put(large)
        setup.theirs.close()
        await until(lambda: bool(setup.errors))
        assert isinstance(setup.errors[0], ConnectionError)
        assert large.released == 1

    on_loop(main)


def test_others_have_their_turn_while_a_client_takes_all_as_fast_as_it_comes(
    on_loop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(setup: Setup) -> None:
        sizes: list[int] = []

        class Endless(FakeSlice):
            def send_to(self, descriptor: int, start: int, size: int) -> int:
                sizes.append(size)
                return size

        endless = Endless(b"")
        monkeypatch.setattr(Endless, "length", 64 * PIECE_BYTES)
        monkeypatch.setattr(Endless, "read_cached", lambda *_: b"x")
        setup.outbox._slow_until = math.inf  # or a thread would send it
        setup.put(endless)
        assert sum(sizes) <= sending.TURN_BYTES + PIECE_BYTES
        await until(lambda: setup.outbox.is_empty)
        assert sum(sizes) == 64 * PIECE_BYTES
        assert setup.sent == 1

    on_loop(main)

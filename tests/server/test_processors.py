"""Processors that are kept awake: while somebody waits for each of many answers, and not for long after that."""

import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nodes import RunningNode
from raw_client import RawClient, a_produce

from tailrace.server import processors
from tailrace.server.flusher.pace import DiskPace
from tailrace.server.processors import KEPT_S, SOME, SOON_S, Processors

AWAKE, AS_EVER = 0, -1
ANY = 100_000
CONFIGS = {"tailrace.awake.processors": str(ANY)}
Asked = Callable[[], list[int]]


class Loop:
    """Whose timers are called by hand."""

    def __init__(self) -> None:
        self.timers: list[Callable[[], None]] = []

    def call_later(self, delay: float, call: Any, *arguments: Any) -> "Loop":
        assert delay == KEPT_S
        self.timers.append(lambda: call(*arguments))
        return self

    def cancel(self) -> None:
        self.timers.pop()


def opened(loop: Loop, most: int = ANY) -> Processors:
    made = Processors(loop, most)  # type: ignore[arg-type]
    made.open()
    return made


def needed(kept: Processors, count: int, pause_s: float, begin: float = 100.0) -> float:
    """So often; returns when the last was."""
    for number in range(count):
        kept.are_needed(begin + number * pause_s)
    return begin + (count - 1) * pause_s


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What was asked of the machine, with a file in the place of the device."""
    path = tmp_path / "device"
    path.touch()
    monkeypatch.setattr(processors, "DEVICE", str(path))

    return lambda: [wish for (wish,) in struct.iter_unpack("=i", path.read_bytes())]


# By moments


def test_they_are_kept_awake_when_moments_have_come_one_soon_after_the_other(asked: Asked) -> None:
    loop = Loop()
    kept = opened(loop)
    needed(kept, SOME, SOON_S / 2)
    assert asked() == []
    needed(kept, SOME + 1, SOON_S / 2, begin=200.0)
    assert asked() == [AWAKE]
    needed(kept, 10 * SOME, SOON_S / 2, begin=200.1)
    assert asked() == [AWAKE], "once is enough"
    assert len(loop.timers) == 1
    kept.close()
    assert loop.timers == []


def test_moments_that_are_far_from_each_other_are_not_worth_it(asked: Asked) -> None:
    kept = opened(Loop())
    needed(kept, 10 * SOME, SOON_S * 1.1)
    for number in range(10):
        needed(kept, SOME, SOON_S / 2, begin=200.0 + number)
    assert asked() == []
    kept.close()


def test_they_may_sleep_when_there_was_no_moment_for_a_while_and_are_kept_awake_again_when_it_is_worth_it(
    asked: Asked,
) -> None:
    loop = Loop()
    kept = opened(loop)
    last = needed(kept, 2 * SOME, SOON_S / 2)
    loop.timers.pop()()
    assert asked() == [AWAKE], "there were some since it began"
    kept.are_needed(last + KEPT_S)
    loop.timers.pop()()
    assert asked() == [AWAKE]
    loop.timers.pop()()
    assert asked() == [AWAKE, AS_EVER]
    assert loop.timers == []
    needed(kept, 2 * SOME, SOON_S / 2, begin=300.0)
    assert asked() == [AWAKE, AS_EVER, AWAKE]
    kept.close()


@pytest.mark.parametrize("most", [0, (os.cpu_count() or 1) - 1])
def test_where_they_are_more_than_the_operator_allows_they_sleep_as_ever(asked: Asked, most: int) -> None:
    kept = opened(Loop(), most)
    needed(kept, 10 * SOME, 0)
    assert asked() == []
    kept.close()


@pytest.mark.parametrize("device", ["/dev/full", "/nowhere/at/all"])
def test_who_may_not_ask_for_it_or_is_not_heard_does_without(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setattr(processors, "DEVICE", device)
    loop = Loop()
    kept = opened(loop)
    needed(kept, 10 * SOME, 0)
    assert device not in open_files()
    while loop.timers:
        loop.timers.pop()()
    kept.close()


def test_somebody_who_was_forked_does_not_keep_them_awake_for_us(asked: Asked) -> None:
    """He has the device open, too, so that to close it is not enough."""
    kept = opened(Loop())
    needed(kept, 2 * SOME, 0)
    kept.close()
    assert asked() == [AWAKE, AS_EVER]


# By a broker


@pytest.fixture
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Client and broker share an interpreter, and the machine is busy with other tests: later is soon, too."""
    monkeypatch.setattr("tailrace.server.net.busy_poll.SOON_S", 10.0)
    monkeypatch.setattr(processors, "SOON_S", 10.0)
    monkeypatch.setattr("tailrace.server.node.SETTLED_S", 0.0)


def ask_again_and_again(node: RunningNode, acks: int, count: int = 200) -> None:
    with RawClient(node.address) as client:
        frame = client.frame(a_produce(b"value", acks=acks), 12)
        for _ in range(count):
            client.socket.sendall(frame)
            client.receive_frame()


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline, "somebody goes on asking"
        time.sleep(0.01)


@pytest.mark.usefixtures("no_hurry")
def test_a_broker_keeps_them_awake_for_a_client_that_asks_again_at_once_and_not_for_long_after_that(
    tmp_path: Path, asked: Asked
) -> None:
    with RunningNode(tmp_path / "data", CONFIGS) as node:
        node.create_topic()
        ask_again_and_again(node, acks=1)
        until(lambda: asked()[-1:] == [AS_EVER])
        before = len(asked())
        ask_again_and_again(node, acks=1)
        until(lambda: len(asked()) > before and asked()[-1] == AS_EVER)
        assert asked() == len(asked()) // 2 * [AWAKE, AS_EVER]


@pytest.mark.usefixtures("no_hurry")
def test_a_broker_keeps_them_awake_while_its_loop_waits_for_one_commit_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: Asked
) -> None:
    monkeypatch.setattr(DiskPace, "is_quick", True)
    monkeypatch.setattr("tailrace.server.net.busy_poll.Wakefulness.answered", lambda *_: None)
    with RunningNode(tmp_path / "data", CONFIGS | {"tailrace.journal.bytes": "1000000"}) as node:
        node.create_topic()
        deadline = time.monotonic() + 20
        while AWAKE not in asked():  # there is a journal before long
            ask_again_and_again(node, acks=-1, count=20)
            assert time.monotonic() < deadline


@pytest.mark.usefixtures("no_hurry")
def test_a_broker_that_stops_asks_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: Asked) -> None:
    monkeypatch.setattr(processors, "KEPT_S", 100.0)
    with RunningNode(tmp_path / "data", CONFIGS) as node:
        node.create_topic()
        ask_again_and_again(node, acks=1)
        assert asked() == [AWAKE]
        assert processors.DEVICE in open_files()
        node.stop()
        assert asked() == [AWAKE, AS_EVER]
        assert processors.DEVICE not in open_files()


def open_files() -> set[str]:
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            found.add(str(link.readlink()))
        except FileNotFoundError:  # the directory itself, by now
            continue
    return found


def latency() -> int:
    """What all that have asked the kernel want together, in microseconds."""
    with open(processors.DEVICE, "rb", buffering=0) as device:
        return int(struct.unpack("=i", device.read(4))[0])


@pytest.mark.skipif(not os.access(processors.DEVICE, os.R_OK | os.W_OK), reason="the device is not ours to write")
def test_the_kernel_takes_it_and_forgets_it_when_the_device_is_closed() -> None:
    loop = Loop()
    kept = opened(loop)
    until(lambda: latency() > 0)  # a broker of another test may ask just now
    needed(kept, SOME + 1, 0)
    assert latency() == 0
    loop.timers.pop()()
    until(lambda: latency() > 0)
    needed(kept, SOME + 1, 0)
    assert latency() == 0
    kept.close()
    until(lambda: latency() > 0)

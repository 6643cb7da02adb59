"""Staying awake: for one that asks again and again without a pause, and for nobody else."""

import asyncio
import time
from typing import Any

import pytest
from nodes import LOOPS

from tailrace.server.net.busy_poll import (
    BUSY_POLL_S,
    LOOKS_AT_CLIENT,
    PAUSE_REQUESTS,
    SOON_REQUESTS_MIN,
    SOON_S,
    BusyPoll,
)

HELD_UP_S = 1.0  # the response is that much in the future: the test may be held up for as long


class CountingLoop:
    def __init__(self) -> None:
        self.looks: list[Any] = []

    def call_soon(self, look: Any) -> None:
        self.looks.append(look)


class Client:
    def __init__(self, answer_at: int = 0) -> None:
        self.looks = 0
        self.answer_at = answer_at  # which of the looks finds something
        self.wakefulness: BusyPoll | None = None

    def look(self) -> bool:
        self.looks += 1
        if self.looks != self.answer_at:
            return False
        if self.wakefulness is not None:
            now = time.perf_counter()
            self.wakefulness.answered(self, now, now)
        return True


def awake_on(loop: Any) -> BusyPoll:
    return BusyPoll(loop)


def ask(wakefulness: BusyPoll, client: Client, count: int, pause_s: float) -> None:
    now = time.perf_counter()
    for number in range(count):
        began = now + number * (pause_s + 0.00001)
        wakefulness.answered(client, began, began + 0.00001)


def test_after_some_that_come_soon_the_loop_stays_awake_and_not_for_long() -> None:
    loop = CountingLoop()
    wakefulness = awake_on(loop)
    client = Client()
    ask(wakefulness, client, SOON_REQUESTS_MIN, SOON_S / 2)
    assert loop.looks == []
    ask(wakefulness, client, SOON_REQUESTS_MIN, SOON_S / 2)
    assert len(loop.looks) == 1, "one is enough"
    time.sleep(2 * BUSY_POLL_S + 2 * SOON_REQUESTS_MIN * SOON_S)
    loop.looks.pop()()
    assert loop.looks == [], "nothing came"


def test_it_is_alone_with_who_asks_again_and_again_until_somebody_else_does() -> None:
    wakefulness, client, other = awake_on(CountingLoop()), Client(), Client()
    ask(wakefulness, client, SOON_REQUESTS_MIN, SOON_S / 2)
    assert not wakefulness.is_alone_with(client), "it is not known yet"
    ask(wakefulness, client, SOON_REQUESTS_MIN, SOON_S / 2)
    assert wakefulness.is_alone_with(client)
    assert not wakefulness.is_alone_with(other)
    ask(wakefulness, other, 1, 0)
    assert not wakefulness.is_alone_with(client)
    ask(wakefulness, client, 2 * SOON_REQUESTS_MIN, SOON_S / 2)
    wakefulness.disturbed()
    assert not wakefulness.is_alone_with(client)


def test_a_client_that_takes_its_time_is_not_waited_for() -> None:
    loop = CountingLoop()
    ask(awake_on(loop), Client(), 100, 2 * SOON_S)
    assert loop.looks == []


def test_clients_that_take_turns_are_not_waited_for() -> None:
    loop = CountingLoop()
    wakefulness = awake_on(loop)
    clients = [Client(), Client()]
    for number in range(100):
        ask(wakefulness, clients[number % 2], 1, 0)
    assert loop.looks == []


def test_where_there_is_other_work_it_is_not_waited_for_a_while() -> None:
    loop = CountingLoop()
    wakefulness = awake_on(loop)
    client = Client()
    wakefulness.disturbed()
    ask(wakefulness, client, PAUSE_REQUESTS, 0)
    assert loop.looks == []
    ask(wakefulness, client, SOON_REQUESTS_MIN + 1, 0)
    assert len(loop.looks) == 1
    wakefulness.disturbed()
    loop.looks.pop()()
    assert loop.looks == [], "it ends at once"


@pytest.mark.parametrize("name", LOOPS)
def test_on_a_real_loop_it_ends_and_others_have_their_turns_meanwhile(name: str) -> None:
    async def main() -> None:
        wakefulness = awake_on(asyncio.get_running_loop())
        ask(wakefulness, Client(), 2 * SOON_REQUESTS_MIN, 0)
        assert wakefulness._is_awake
        turns = 0
        while wakefulness._is_awake:
            await asyncio.sleep(0)
            turns += 1
        assert turns

    with asyncio.Runner(loop_factory=LOOPS[name]) as runner:
        runner.run(main())


@pytest.mark.parametrize("answer_at", [0, 3])
def test_the_client_is_looked_at_until_it_has_asked_and_then_everybody(answer_at: int) -> None:
    loop, client = CountingLoop(), Client(answer_at)
    wakefulness = client.wakefulness = awake_on(loop)
    now = time.perf_counter()
    for _ in range(2 * SOON_REQUESTS_MIN):
        wakefulness.answered(client, now, now)
    wakefulness.answered(client, now, now + HELD_UP_S)
    loop.looks.pop()()
    assert client.looks == (answer_at or LOOKS_AT_CLIENT)
    assert len(loop.looks) == 1, "the others have their turn"


@pytest.mark.parametrize("answer_at", [0, 1, 2])
def test_busy_polling_yields_the_processor_once_per_response(monkeypatch: pytest.MonkeyPatch, answer_at: int) -> None:
    """The client may be waiting for it, and can ask no sooner."""
    loop, client = CountingLoop(), Client(answer_at)
    wakefulness = client.wakefulness = awake_on(loop)
    looks_before: list[int] = []
    monkeypatch.setattr("tailrace.server.net.busy_poll.sched_yield", lambda: looks_before.append(client.looks))
    now = time.perf_counter()
    for _ in range(2 * SOON_REQUESTS_MIN):
        wakefulness.answered(client, now, now)
    wakefulness.answered(client, now, now + HELD_UP_S)
    loop.looks.pop()()
    assert looks_before == ([] if answer_at == 1 else [1])
    if answer_at == 0:
        loop.looks.pop()()
        assert looks_before == [1], "it is still the same answer"


def test_busy_polling_pauses_while_a_request_waits_for_the_disk() -> None:
    loop, client = CountingLoop(), Client(answer_at=2)  # which is not told of
    wakefulness = awake_on(loop)
    now = time.perf_counter()
    for _ in range(2 * SOON_REQUESTS_MIN):
        wakefulness.answered(client, now, now)
    wakefulness.answered(client, now, now + HELD_UP_S)
    loop.looks.pop()()
    assert client.looks == 2
    assert loop.looks == []
    wakefulness.answered(client, now + HELD_UP_S, time.perf_counter())
    assert len(loop.looks) == 1, "now it is"

"""The budget: what all connections hold together stays below a limit, and nobody waits for ever."""

from asyncio import AbstractEventLoop
from typing import Any, cast

from tailrace.server.net.connection import Connection
from tailrace.server.net.limits import FIRST_BYTES, FIRST_BYTES_SCARCE, Budget

LIMIT = 1000
TIMEOUT_S = 30.0


class Timer:
    def __init__(self, loop: "Clock", at: float, call: Any) -> None:
        self.at, self.call, self.loop = at, call, loop

    def cancel(self) -> None:
        if self in self.loop.timers:
            self.loop.timers.remove(self)


class Clock:
    """As much of a loop as a budget needs; time passes when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []
        self.soon: list[Any] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, function: Any, *arguments: Any) -> Timer:
        timer = Timer(self, self.now + delay, lambda: function(*arguments))
        self.timers.append(timer)
        return timer

    def call_soon(self, function: Any) -> None:
        self.soon.append(function)

    def run(self, seconds: float = 0.0) -> None:
        end = self.now + seconds
        while True:
            while self.soon:
                self.soon.pop(0)()
            due = min((timer for timer in self.timers if timer.at <= end), key=lambda timer: timer.at, default=None)
            if due is None:
                self.now = end
                return
            self.now = max(self.now, due.at)
            due.cancel()
            due.call()


class Client:
    """A connection that wants to grow, and tries when it is told to."""

    def __init__(self, setup: "Setup") -> None:
        self.setup = setup
        self.size = 0
        self.wanted = 0
        self.error: Exception | None = None

    def wants(self, size: int) -> bool:
        self.wanted = size
        self.answer()
        return self.size == size

    def answer(self) -> None:
        wants_more = self.error is None and self.wanted > self.size
        if wants_more and self.setup.budget.may_hold(cast(Connection, self), self.wanted):
            self.size = self.wanted

    def fail(self, error: Exception) -> None:
        self.error = error
        self.lets_go()

    def lets_go(self) -> None:
        self.size = self.wanted = 0
        self.setup.budget.holds(cast(Connection, self), 0)


class Setup:
    def __init__(self) -> None:
        self.clock = Clock()
        self.budget = Budget(cast(AbstractEventLoop, self.clock), LIMIT, TIMEOUT_S)

    def client(self, size: int = 0) -> Client:
        client = Client(self)
        if size:
            self.budget.holds(cast(Connection, client), size)
            client.size = client.wanted = size
        return client


def test_what_is_held_adds_up() -> None:
    setup = Setup()
    first, second = setup.client(300), setup.client(400)
    assert setup.budget.total == 700
    assert first.wants(500)
    assert setup.budget.total == 900
    second.lets_go()
    second.lets_go()
    assert setup.budget.total == 500


def test_one_at_a_time_may_go_beyond() -> None:
    setup = Setup()
    first, second, third = setup.client(500), setup.client(400), setup.client(10)
    assert first.wants(700)
    assert not second.wants(500)
    assert first.wants(5000)
    assert not third.wants(20)
    first.lets_go()
    setup.clock.run()
    assert (second.size, third.size) == (500, 20)
    assert setup.clock.timers == []


def test_who_goes_beyond_waits_until_others_let_go() -> None:
    setup = Setup()
    first, second, third = setup.client(300), setup.client(300), setup.client(300)
    assert first.wants(500)
    assert not second.wants(500)
    third.lets_go()
    setup.clock.run()
    assert second.size == 500
    assert setup.clock.timers == []


def test_buffers_begin_small_when_half_is_taken() -> None:
    setup = Setup()
    assert setup.budget.first_bytes() == FIRST_BYTES
    setup.client(LIMIT // 2)
    assert setup.budget.first_bytes() == FIRST_BYTES_SCARCE


def test_one_that_stands_still_goes_so_that_others_can() -> None:
    setup = Setup()
    still = setup.client(600)
    beyond, busy = setup.client(200), setup.client(200)
    assert beyond.wants(500)
    assert not busy.wants(600)
    setup.clock.run(TIMEOUT_S)
    assert still.error is not None
    assert beyond.error is None
    setup.clock.run(TIMEOUT_S)
    assert beyond.error is not None
    assert busy.error is None
    assert busy.size == 600


def test_where_all_get_on_the_one_that_waits_goes() -> None:
    setup = Setup()
    beyond, waiting = setup.client(500), setup.client(300)
    assert beyond.wants(1000)
    assert not waiting.wants(600)
    for size in range(1100, 1600, 100):
        setup.clock.run(TIMEOUT_S / 5)
        if waiting.error is None:
            setup.budget.holds(cast(Connection, waiting), 300 + size % 7)  # it gets on, too, with what it may have
        assert beyond.wants(size)
    setup.clock.run(TIMEOUT_S / 5)
    assert beyond.error is None
    assert waiting.error is not None


def test_a_wait_does_not_begin_anew_with_every_try() -> None:
    setup = Setup()
    beyond, waiting, other = setup.client(900), setup.client(10), setup.client(50)
    assert beyond.wants(2000)
    assert not waiting.wants(900)
    for size in range(10):
        setup.clock.run(TIMEOUT_S / 5)
        assert beyond.wants(2001 + size)
        other.lets_go()  # which tells the one that waits to try
        setup.budget.holds(cast(Connection, other), 50)
    assert waiting.error is not None


def test_one_that_needs_too_much_does_not_hold_up_those_behind() -> None:
    setup = Setup()
    beyond, large, small, holder = setup.client(500), setup.client(10), setup.client(10), setup.client(480)
    assert beyond.wants(600)
    assert not large.wants(900)
    assert not small.wants(100)
    holder.lets_go()
    setup.clock.run()
    assert (large.size, small.size) == (10, 100)
    beyond.lets_go()
    setup.clock.run()
    assert large.size == 900


def test_one_that_is_closed_waits_no_more() -> None:
    setup = Setup()
    setup.client(900).wants(1001)
    waiting = setup.client(50)
    assert not waiting.wants(500)
    waiting.lets_go()
    assert setup.clock.timers == []
    setup.clock.run(TIMEOUT_S - 1)
    assert waiting.error is None

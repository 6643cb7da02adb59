"""Deadlines of requests: each rings once, when its time is up, by one timer for all."""

import asyncio
from collections import deque
from typing import Any

import pytest
from nodes import LOOPS

from tailrace.broker.core.delayed import DelayedResponse
from tailrace.protocol.frame import RequestHeader
from tailrace.server.net.pending import Deadlines, Pending


class Line:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.pending: deque[Pending] = deque()
        self.due: list[Pending] = []
        self.deadlines = Deadlines(self.loop, self.pending, self.due.append)

    def add(self, wait_ms: int) -> Pending:
        one = Pending(RequestHeader(0, 12, 1, None, 0), 0.0)
        one.later = DelayedResponse(wait_ms)
        self.pending.append(one)
        self.deadlines.watch(one, wait_ms)
        return one


@pytest.fixture(params=LOOPS)
def on_loop(request: pytest.FixtureRequest) -> Any:
    def run(main: Any) -> None:
        async def in_loop() -> None:
            await main(Line())

        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(in_loop())

    return run


def test_each_rings_once_in_the_order_of_the_deadlines_although_nobody_resolves_them(on_loop: Any) -> None:
    async def main(line: Line) -> None:
        late, early, at_once = line.add(60), line.add(20), line.add(0)
        await asyncio.sleep(0.2)
        assert line.due == [at_once, early, late]

    on_loop(main)


def test_what_is_answered_before_its_time_does_not_ring_and_what_comes_later_does(on_loop: Any) -> None:
    async def main(line: Line) -> None:
        answered = line.add(30)
        line.pending.remove(answered)
        answered.later = None
        second = line.add(80)
        await asyncio.sleep(0.05)
        assert line.due == []
        await asyncio.sleep(0.15)
        assert line.due == [second]

    on_loop(main)


def test_many_requests_one_after_the_other_take_one_timer(on_loop: Any) -> None:
    async def main(line: Line) -> None:
        set_at = []
        for _ in range(100):
            one = line.add(10_000)
            set_at.append(line.deadlines._timer)
            line.pending.remove(one)
            one.later = None
        assert len(set(map(id, set_at))) == 1
        line.deadlines.cancel()

    on_loop(main)


def test_after_a_cancel_nothing_rings(on_loop: Any) -> None:
    async def main(line: Line) -> None:
        line.add(10)
        line.deadlines.cancel()
        await asyncio.sleep(0.05)
        assert line.due == []

    on_loop(main)

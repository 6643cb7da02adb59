"""Workers: threads come when they are needed, what they did comes back on the loop, and at a stop they are gone."""

import asyncio
import threading
import weakref
from collections.abc import Callable

import pytest
from nodes import LOOPS

from tailrace.server.threads import Workers


@pytest.fixture(params=LOOPS)
def loop_factory(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    return LOOPS[request.param]


def run(factory: Callable[[], asyncio.AbstractEventLoop], main: Callable[[Workers], object], count: int = 2) -> None:
    async def in_loop() -> None:
        workers = Workers(asyncio.get_running_loop(), "test", count)
        try:
            await main(workers)  # type: ignore[misc]
        finally:
            workers.stop()
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("tailrace-test")]

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(in_loop())


def threads() -> int:
    return sum(thread.name.startswith("tailrace-test") for thread in threading.enumerate())


def waits_for(event: threading.Event) -> None:
    event.wait()


def test_threads_are_started_when_all_others_are_busy(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main(workers: Workers) -> None:
        assert threads() == 0
        hold, done = threading.Event(), asyncio.Event()
        for expected in (1, 2, 2):
            workers.submit(lambda: waits_for(hold), lambda: None)
            assert threads() == expected
        assert workers.under_way == 3
        workers.submit(lambda: None, done.set)
        hold.set()
        await done.wait()
        while workers.under_way:
            await asyncio.sleep(0.001)
        again = asyncio.Event()
        workers.submit(lambda: None, again.set)
        await again.wait()
        assert threads() == 2

    run(loop_factory, main)


def test_one_thread_is_enough_for_one_after_the_other(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main(workers: Workers) -> None:
        for _ in range(5):
            done = asyncio.Event()
            workers.submit(lambda: None, done.set)
            await done.wait()
        assert threads() == 1

    run(loop_factory, main, count=4)


def test_work_runs_in_a_thread_and_what_follows_on_the_loop(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main(workers: Workers) -> None:
        where: list[threading.Thread] = []
        done = asyncio.Event()

        def finish() -> None:
            where.append(threading.current_thread())
            done.set()

        workers.submit(lambda: where.append(threading.current_thread()), finish)
        await done.wait()
        assert where[0] is not where[1]
        assert where[1] is threading.current_thread()

    run(loop_factory, main)


def test_work_that_fails_comes_back_too(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture
) -> None:
    async def main(workers: Workers) -> None:
        for _ in range(3):
            done = asyncio.Event()
            workers.submit(lambda: 1 // 0, done.set)  # type: ignore[arg-type, return-value]
            await done.wait()
        assert workers.under_way == 0
        assert threads() == 1

    run(loop_factory, main)
    assert caplog.text.count("ZeroDivisionError") == 3


def test_an_idle_thread_keeps_nothing_of_what_it_did(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    class Job:
        def run(self) -> None:
            pass

    async def main(workers: Workers) -> None:
        job = Job()
        gone = weakref.ref(job)
        workers.submit(job.run, lambda: None)
        del job
        while workers.under_way:
            await asyncio.sleep(0.001)
        for _ in range(1000):
            if gone() is None:
                return
            await asyncio.sleep(0.001)
        raise AssertionError("the thread has it still")

    run(loop_factory, main)


def test_not_even_what_is_no_exception_ends_a_thread(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture
) -> None:
    class Panic(BaseException):
        """As a library that is not written in Python may raise it."""

    def panic() -> None:
        raise Panic

    async def main(workers: Workers) -> None:
        for _ in range(3):
            done = asyncio.Event()
            workers.submit(panic, done.set)
            await asyncio.wait_for(done.wait(), 20)
        assert workers.under_way == 0
        assert threads() == 1

    run(loop_factory, main)
    assert caplog.text.count("a job failed") == 3


def test_a_stop_waits_for_all_that_was_submitted(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    ran: list[int] = []
    back: list[int] = []

    async def main(workers: Workers) -> None:
        for number in range(20):
            workers.submit(lambda number=number: ran.append(number), lambda number=number: back.append(number))  # type: ignore[misc]
        workers.stop()
        assert sorted(ran) == list(range(20))
        await asyncio.sleep(0.01)
        assert sorted(back) == list(range(20))

    run(loop_factory, main)


def test_threads_that_come_back_to_a_closed_loop_end() -> None:
    hold = threading.Event()
    loop = asyncio.new_event_loop()
    workers = Workers(loop, "test", 1)
    workers.submit(lambda: waits_for(hold), lambda: None)
    loop.close()
    hold.set()
    for thread in list(workers._threads):
        thread.join(5)
        assert not thread.is_alive()


def test_a_thread_whose_work_came_back_at_once_is_seen(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main(workers: Workers) -> None:
        back = asyncio.Event()
        workers.submit(lambda: None, back.set)
        await back.wait()
        assert not workers.under_way
        assert workers.is_at_work
        workers.stop()
        assert not workers.is_at_work

    run(loop_factory, main)

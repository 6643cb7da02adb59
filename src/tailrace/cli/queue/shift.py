"""The loop of `tailrace queue work`: acquires messages, runs the command for each, and acknowledges them.

This thread does all that concerns the broker. A run has a thread of its own, which only hands it over when it has
ended.
"""

import os
import signal
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tailrace.cli.common import output
from tailrace.cli.common.output import Failure
from tailrace.cli.common.topics.offsets import Partition
from tailrace.cli.queue.here import Here
from tailrace.cli.queue.requests import ClientError, Delivery, Outcome, Result, failures
from tailrace.cli.queue.worker import Task, outcome_of
from tailrace.util.shutdown import SIGNALS

WORDS = {Outcome.ACCEPT: "accepted", Outcome.REJECT: "rejected", Outcome.RELEASE: "released"}

_POLL_SECONDS = 1.0
_DRAIN_SECONDS = 0.5  # between two looks whether all is finished
_PATIENCE_SECONDS = 1.0  # for a broker, before a warning


class Shift:
    def __init__(self, here: Here, name: str, topic: str, command: list[str], concurrency: int, *, drain: bool) -> None:
        self._here = here
        self._name = name
        self._topic = topic
        self._command = command
        self._concurrency = concurrency
        self._drains = drain
        self._consumer = here.requests.consumer(name, topic)
        self._running: set[Task] = set()
        self._ended: deque[Task] = deque()
        self._counts: Counter[Outcome] = Counter()
        self._signals = 0
        self._looked = 0.0  # whether all is finished
        self._away_since: float | None = None
        self._has_warned = False

    def run(self) -> Counter[Outcome]:
        """Returns how many messages had which outcome."""
        try:
            with self._signalled(), failures():
                while self._goes_on():
                    free = 0 if self._stops else self._concurrency - len(self._running)
                    for delivery in self._consumer.poll(free, _POLL_SECONDS):
                        task = Task(self._command, delivery, self._hand_over)
                        self._running.add(task)
                        task.start()
                    self._acknowledge()
                    self._report()
        finally:
            for task in self._running:
                task.stop()
            self._consumer.close()
            self._report()
        return self._counts

    # Steps

    def _goes_on(self) -> bool:
        if self._running or self._ended or not self._consumer.is_settled:
            return True
        return not self._stops and not (self._drains and self._is_drained())

    def _is_drained(self) -> bool:
        """Whether every message of the topic is finished, by whatever worker."""
        now = time.monotonic()
        if now < self._looked + _DRAIN_SECONDS or self._consumer.held:
            return False
        self._looked = now
        offsets = self._here.offsets_of(self._name, self._topic).values()
        if any(one.unfinished is None for one in offsets):
            raise Failure("the broker does not tell what is unfinished, so --drain cannot end")
        return not any(one.unfinished for one in offsets)

    def _acknowledge(self) -> None:
        while self._ended:
            task = self._ended.popleft()
            self._running.discard(task)
            outcome = Outcome.RELEASE if task.status is None else outcome_of(task.status)
            if outcome is not Outcome.ACCEPT:
                output.warn(f"{_place(task.delivery)}: {_ending(task)}: {WORDS[outcome]}")
            self._consumer.acknowledge(task.delivery, outcome)

    def _report(self) -> None:
        for result in self._consumer.results():
            self._take(result)
        for damage in self._consumer.damage():
            output.warn(f"rejected: {damage}")
        self._watch(self._consumer.trouble)

    def _take(self, result: Result) -> None:
        place = _place(result.delivery)
        if result.outcome is Outcome.RENEW:
            return
        if result.outcome is None:
            output.warn(f"{place}: not ours any more, and tried again ({result.error}); its command goes on")
        elif result.error is None:
            self._counts[result.outcome] += 1
        else:
            output.warn(f"{place}: {WORDS[result.outcome]}, which may not count ({result.error})")

    def _watch(self, trouble: ClientError | None) -> None:
        """Brokers that are away are waited for, and named once."""
        now = time.monotonic()
        if trouble is None:
            if self._has_warned:
                output.warn("a broker answers again")
            self._away_since, self._has_warned = None, False
        elif self._away_since is None:
            self._away_since = now
        elif not self._has_warned and now > self._away_since + _PATIENCE_SECONDS:
            output.warn(f"waiting for a broker: {trouble}")
            self._has_warned = True

    # Other threads, and signals

    def _hand_over(self, task: Task) -> None:
        self._ended.append(task)
        self._consumer.wake()

    @property
    def _stops(self) -> bool:
        return self._signals > 0

    @contextmanager
    def _signalled(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        """The first one: takes no more. The second one: ends what runs. The third one: ends this process."""
        self._signals += 1
        self._consumer.wake()
        if self._signals == 1 and self._running:
            left = output.plural(len(self._running), "message")
            os.write(2, f"tailrace: finishing {left}; again: ends and releases them\n".encode())
        elif self._signals == 2:
            for task in list(self._running):
                task.stop()
        elif self._signals > 2:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


def _place(delivery: Delivery) -> str:
    return f"{Partition(*delivery.at)} at offset {delivery.offset}, attempt {delivery.attempt}"


def _ending(task: Task) -> str:
    if task.status is None:
        return task.trouble or "not run"
    if task.status < 0:
        return f"killed by {signal.Signals(-task.status).name}"
    return f"exit code {task.status}"

"""A group of three that grows, loses a member by kill -9, and goes on: every parcel is packed, and what is packed twice
is what the killed one had not committed.
"""

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import TypeAlias

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from demo.clients import PacedProducer
from demo.screen import Screen
from demo.worker import GROUP, TOPIC

PARTITIONS = 6
PARCELS_PER_SECOND = 1000
STABLE_SECONDS = 30.0  # for a group to share out the work
MISSED_SECONDS = 40.0  # for one that was killed to be missed
PACKED_SECONDS = 30.0

Place: TypeAlias = tuple[int, int]  # a partition and an offset


class Worker:
    """One member, and what it has said."""

    def __init__(self, number: int, bootstrap: str) -> None:
        self.name = f"packer {number}"
        self.partitions: list[int] = []
        self.done: list[Place] = []
        self.committed: dict[int, int] = {}
        self.is_killed = False
        command = [sys.executable, "-m", "demo.worker", bootstrap]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                return  # it was killed in the middle of a word
            said = json.loads(line)
            if "has" in said:
                self.partitions = said["has"]
            if "done" in said:
                self.done.append(tuple(said["done"]))
            self.committed.update(dict(said.get("committed", ())))

    def kill(self) -> None:
        """kill -9: it neither commits nor leaves."""
        self.is_killed = True
        self.close()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.join()
        if self._process.stdout is not None:
            self._process.stdout.close()

    @property
    def uncommitted(self) -> set[Place]:
        return {(partition, offset) for partition, offset in self.done if offset >= self.committed.get(partition, 0)}


class GroupView:
    """Who has which partitions, and how far they are."""

    def __init__(self, parcels: PacedProducer) -> None:
        self.parcels = parcels
        self.workers: list[Worker] = []

    @property
    def packed(self) -> set[Place]:
        return {place for worker in self.workers for place in list(worker.done)}

    def tick(self) -> None:
        pass

    def draw(self) -> RenderableType:
        table = Table.grid(padding=(0, 3))
        for justify in ("left", "left", "right", "left"):
            table.add_column(justify=justify)
        for worker in self.workers:
            owned = ["■" if index in worker.partitions else "·" for index in range(PARTITIONS)]
            state = Text("killed with kill -9", "bold red") if worker.is_killed else Text("")
            style = "dim" if worker.is_killed else "magenta"
            table.add_row(worker.name, Text(" ".join(owned), style), f"{len(worker.done):,} packed", state)
        waiting = f"{max(0, self.parcels.sent - len(self.packed)):,} of {self.parcels.sent:,} parcels wait"
        head = Text(f"{'':<11}the partitions of {TOPIC}", "dim")
        return Padding(Group(head, table, Text(waiting)), (1, 2, 0, 2))

    def line(self) -> str:
        owned = "   ".join(
            f"{worker.name}: {'killed' if worker.is_killed else ','.join(map(str, worker.partitions)) or '-'}"
            for worker in self.workers
        )
        return f"packed {len(self.packed):>6,} of {self.parcels.sent:>6,}   {owned}"


def run(bootstrap: str, screen: Screen, tailrace: Callable[..., int]) -> bool:
    """Whether every parcel was packed, and none twice but what the killed one had not committed."""
    screen.step(
        "Three consumers share a topic of six partitions. They come one after the other; one of them is "
        "killed with kill -9. Its session ends 6 s later, and the others take over."
    )
    tailrace("topic", "create", TOPIC, "-p", str(PARTITIONS), "-b", bootstrap)
    parcels = PacedProducer(bootstrap, TOPIC, "parcel", per_second=PARCELS_PER_SECOND, partitions=PARTITIONS)
    view = GroupView(parcels)
    try:
        is_shared = _play(view, bootstrap, screen)
    finally:
        parcels.finish()
        for worker in view.workers:
            worker.close()
    tailrace("group", "show", GROUP, "-b", bootstrap)
    return _count(view, screen) and is_shared


def _play(view: GroupView, bootstrap: str, screen: Screen) -> bool:
    with screen.playing(view) as let_pass:
        view.parcels.start()
        for number in range(1, 4):
            view.workers.append(Worker(number, bootstrap))
            if not _wait(lambda: _is_shared(view), STABLE_SECONDS, let_pass):
                return False
            let_pass(1.0)
        view.workers[1].kill()
        is_shared = _wait(lambda: _is_shared(view), MISSED_SECONDS, let_pass)
        let_pass(1.0)
        view.parcels.finish()
        _wait(lambda: len(view.packed) >= view.parcels.sent, PACKED_SECONDS, let_pass)
        let_pass(0.7)  # for the last commit
    return is_shared


def _is_shared(view: GroupView) -> bool:
    """Whether all partitions have one owner, and all who are alive have some."""
    alive = [worker.partitions for worker in view.workers if not worker.is_killed]
    return all(alive) and sorted(chain.from_iterable(alive)) == list(range(PARTITIONS))


def _wait(is_so: Callable[[], bool], seconds: float, let_pass: Callable[[float], None]) -> bool:
    deadline = time.monotonic() + seconds
    while not is_so() and time.monotonic() < deadline:
        let_pass(0.1)
    return is_so()


def _count(view: GroupView, screen: Screen) -> bool:
    every = [place for worker in view.workers for place in worker.done]
    packed = set(every)
    lost = view.parcels.sent - len(packed)
    twice = {place for place, count in Counter(every).items() if count > 1}
    explained = view.workers[1].uncommitted if len(view.workers) > 1 else set()
    is_good = not lost and twice <= explained
    screen.say(
        f"{len(packed):,} parcels were packed, {lost} were not. {len(twice):,} were packed twice:\n"
        f"{'just what' if twice <= explained else 'more than'} the killed one had not committed.",
        "bold green" if is_good else "bold red",
    )
    return is_good

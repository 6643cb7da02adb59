"""A queue: twenty workers on one partition. Half of them are killed, one label jams the printer each time, and one
takes long. Every other label is printed, and the one that jams is set aside.
"""

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from demo.clients import silence
from demo.screen import Screen

TOPIC, QUEUE, DEAD_LETTERS = "labels", "printers", "labels.failed"
LABELS = 160
JAMS, SLOW = 13, 7
SLOW_SECONDS = 3
AT_ONCE = 10  # labels, of each of two worker processes
DONE_SECONDS = 30.0
BAR_COLUMNS = 40
# What prints a label: it gets the label on its stdin, and its exit code says what becomes of the message.
PRINT = f"""read -r label number
[ "$number" = {JAMS} ] && exit 1
[ "$number" = {SLOW} ] && sleep {SLOW_SECONDS}
sleep 0.2
echo $number"""


class Workers:
    """A process of `tailrace queue work`, and the labels that its commands have printed."""

    def __init__(self, number: int, bootstrap: str, directory: Path) -> None:
        self.name = f"workers {number}"
        self.printed: list[int] = []
        self.is_killed = False
        words = ["queue", "work", QUEUE, TOPIC, "--concurrency", str(AT_ONCE), "--drain", "-b", bootstrap]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tailrace", *words, "--", "sh", "-c", PRINT],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=directory,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            self.printed.extend(int(line) for line in lines if line.endswith("\n"))

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """kill -9: it acknowledges nothing. What its commands are at, they finish."""
        self.is_killed = True
        self.close()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class QueueView:
    """How many labels each process has printed."""

    def __init__(self) -> None:
        self.workers: list[Workers] = []

    @property
    def printed(self) -> Counter[int]:
        return Counter(number for worker in self.workers for number in list(worker.printed))

    def tick(self) -> None:
        pass

    def draw(self) -> RenderableType:
        table = Table.grid(padding=(0, 3))
        for justify in ("left", "right", "left"):
            table.add_column(justify=justify)
        for worker in self.workers:
            bar = Text("■" * (len(worker.printed) * BAR_COLUMNS // LABELS), "dim" if worker.is_killed else "magenta")
            state = Text(" killed with kill -9", "bold red") if worker.is_killed else Text()
            table.add_row(worker.name, f"{len(worker.printed)} printed", Text.assemble(bar, state))
        return Padding(Group(table, Text(f"{len(self.printed)} of {LABELS} labels are printed")), (1, 2, 0, 2))

    def line(self) -> str:
        each = "   ".join(
            f"{worker.name}: {'killed' if worker.is_killed else len(worker.printed)}" for worker in self.workers
        )
        return f"printed {len(self.printed):>4} of {LABELS}   {each}"


def run(bootstrap: str, directory: Path, screen: Screen, tailrace: Callable[..., int]) -> bool:
    """Whether every label was printed but the one that jams, and that is a dead letter, once."""
    screen.step(
        "A queue: twenty workers take labels from one partition, one by one. Ten of them are killed, one label jams "
        f"the printer each time, and one takes {SLOW_SECONDS} s."
    )
    producer = Producer({"bootstrap.servers": bootstrap}, logger=silence)
    for number in range(LABELS):
        producer.produce(TOPIC, f"label {number}", partition=0)
    producer.flush(10)
    settings = ("--dead-letter", DEAD_LETTERS, "--attempts", "3", "--retry-delay", "200ms")
    tailrace("queue", "create", QUEUE, TOPIC, *settings, "-b", bootstrap)
    view = QueueView()
    try:
        _play(view, bootstrap, directory, screen)
    finally:
        for worker in view.workers:
            worker.close()
    return _count(view, screen, tailrace, bootstrap)


def _play(view: QueueView, bootstrap: str, directory: Path, screen: Screen) -> None:
    with screen.playing(view) as let_pass:
        view.workers = [Workers(number, bootstrap, directory) for number in (1, 2)]
        deadline = time.monotonic() + DONE_SECONDS
        while len(view.workers[0].printed) < LABELS // 4 and time.monotonic() < deadline:
            let_pass(0.05)
        view.workers[0].kill()
        while view.workers[1].is_running and time.monotonic() < deadline:
            let_pass(0.1)


def _count(view: QueueView, screen: Screen, tailrace: Callable[..., int], bootstrap: str) -> bool:
    printed = view.printed
    missing = set(range(LABELS)) - printed.keys()
    again = sum(count > 1 for count in printed.values())
    is_good = missing == {JAMS} and again <= AT_ONCE
    screen.say(
        f"{len(printed)} labels were printed, {again} of them twice: those that the killed ones were at.\n"
        f"The slow one held up none. Label {JAMS} failed three times, and was set aside:",
        "bold green" if is_good else "bold red",
    )
    tailrace("tail", DEAD_LETTERS, "--no-follow", "-b", bootstrap)
    tailrace("queue", "show", QUEUE, "-b", bootstrap)
    return is_good

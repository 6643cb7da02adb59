"""Act two: one function, live and over history. A shop sends events; two pipelines make counts of them, in a topic
and in Parquet; then the code is changed, and all is run again from the beginning, into another place.

Needs Java and PySpark; where they are missing, it says so and is left out. The act fails, and `make demo` with it, if
one event is lost or counted twice. What Spark says meanwhile goes to a file, and is shown if the act ends badly.
"""

import inspect
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType

from rich.padding import Padding
from rich.syntax import Syntax

from demo import java
from demo.broker_process import BrokerProcess
from demo.commands import start, tailrace
from demo.generator import EVENTS_PER_SECOND, TOPIC
from demo.screen import Screen

NEXT = """\
$ tailrace serve --data data                                       # a broker
$ python -m demo.generator                                         # a shop
$ tailrace run demo/pipelines.py traffic                           # live
$ tailrace tail traffic                                            # what it says
$ tailrace replay demo/pipelines.py revenue --into out/again       # over history"""


def run(screen: Screen) -> bool:
    """Whether nothing was lost; also true where there is no Java to try it with."""
    screen.title("\nAct two: one function, live and over history")
    if not java.is_there(screen):
        screen.say("So act two is left out.", "yellow")
        return True
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tailrace-demo-", ignore_cleanup_errors=True) as directory:
        broker = BrokerProcess(Path(directory))
        log = Path(directory) / "spark.log"
        try:
            with quiet(log):
                is_good = play(broker, Path(directory), screen)
        except Exception as error:  # noqa: BLE001 - whatever it is, act one has been good
            screen.say(f"{type(error).__name__}: {error}\n{log.read_text()[-2000:]}", "red")
            is_good = False
        finally:
            broker.kill()
    if is_good:
        screen.step(f"That took {time.monotonic() - began:.0f} s. To go on:")
        screen.say(NEXT, "dim")
        screen.say("docs/PIPELINES.md has the rest.")
    return is_good


def play(broker: BrokerProcess, directory: Path, screen: Screen) -> bool:
    from demo import live_scene, pipelines, replay_scene  # here, since PySpark need not be there

    screen.step("A broker, and two topics.")
    start(broker, screen)
    command = partial(tailrace, screen, directory)
    for topic, partitions in ((TOPIC, 2), (pipelines.archive.source[0], 1)):
        command("topic", "create", topic, "-p", str(partitions), "-b", broker.bootstrap)
    screen.step(
        f"A shop sends {EVENTS_PER_SECOND:,} page views and orders a second, some late and some malformed. A\n"
        "  pipeline counts them by the time at which they happened, into a topic; another one keeps\n"
        "  the counts as Parquet. The shop is open already, while Spark starts."
    )
    show_code(screen, pipelines)
    lived = live_scene.run(broker.bootstrap, directory, screen)
    try:
        is_good = replay_scene.run(broker.bootstrap, directory, lived, screen)
    finally:
        lived.spark.stop()
    return broker.stop() == 0 and is_good


def show_code(screen: Screen, module: ModuleType) -> None:
    """The first pipeline of the file, and how it reads what it reads."""
    event = next(line for line in inspect.getsource(module).splitlines() if line.startswith("EVENT"))
    code = f"{event}\n\n{inspect.getsource(module.traffic.transform).rstrip()}"
    screen.show(Padding(Syntax(code, "python", theme="ansi_dark", background_color="default"), (1, 4, 0, 4)))


@contextmanager
def quiet(path: Path) -> Iterator[None]:
    """What this process and those that it starts say to standard error goes to a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)

"""Act two: one function, live and over history. A shop sends events; two pipelines make counts of them, in a topic
and in Parquet; then the code is changed, and all is run again from the beginning, into another place.

Needs Java and PySpark; where they are missing, it says so and is left out. The act fails, and `make demo` with it, if
one event is lost or counted twice. What Spark says meanwhile goes to a file, and is shown if the act ends badly.
"""

import inspect
import tempfile
import time
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
from demo.spark_start import SparkStart

NEXT = """\
$ tailrace serve --data data                                   # a broker
$ python -m demo.generator                                     # a shop
$ tailrace run demo/pipelines.py traffic                       # live
$ tailrace tail traffic                                        # its output
$ tailrace replay demo/pipelines.py revenue --into out/again   # history"""


def run(screen: Screen, spark: SparkStart) -> bool:
    """Whether nothing was lost; also true where there is no Java to try it with. `spark` may have begun to start."""
    screen.title("\nAct two: one function, live and over history")
    if not java.is_there(screen):
        screen.say("So act two is left out.", "yellow")
        return True
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tailrace-demo-", ignore_cleanup_errors=True) as directory:
        broker = BrokerProcess(Path(directory))
        try:
            spark.begin()
            is_good = play(broker, Path(directory), spark, screen)
        except Exception as error:  # noqa: BLE001 - whatever it is, act one has been good
            screen.say(f"{type(error).__name__}: {error}\n{spark.said}", "red")
            is_good = False
        finally:
            broker.kill()
    if is_good:
        screen.step(f"That took {time.monotonic() - began:.0f} s. To go on:")
        screen.say(NEXT, "dim")
        screen.say("docs/PIPELINES.md has the rest.")
    return is_good


def play(broker: BrokerProcess, directory: Path, spark: SparkStart, screen: Screen) -> bool:
    from demo import live_scene, pipelines, replay_scene  # here, since PySpark need not be there

    screen.step("A broker, and two topics.")
    start(broker, screen)
    command = partial(tailrace, screen, directory)
    for topic, partitions in ((TOPIC, 2), (pipelines.archive.source[0], 1)):
        command("topic", "create", topic, "-p", str(partitions), "-b", broker.bootstrap)
    screen.step(
        f"A shop sends {EVENTS_PER_SECOND:,} page views and orders a second, some late and some malformed. A "
        "pipeline counts them by the time at which they happened, into a topic. Another one keeps the "
        "counts as Parquet. The shop opens before the pipelines start."
    )
    show_code(screen, pipelines)
    lived = live_scene.run(broker.bootstrap, directory, spark, screen)
    is_good = replay_scene.run(broker.bootstrap, directory, lived, screen)
    return broker.stop() == 0 and is_good


def show_code(screen: Screen, module: ModuleType) -> None:
    """The first pipeline of the file, and how it reads what it reads."""
    event = next(line for line in inspect.getsource(module).splitlines() if line.startswith("EVENT"))
    code = f"{event}\n\n{inspect.getsource(module.traffic.transform).rstrip()}"
    screen.show(Padding(Syntax(code, "python", theme="ansi_dark", background_color="default"), (1, 0, 0, 2)))

"""Act one: a broker that loses nothing. Events stream in and out, the broker is killed in the middle, all is counted;
then consumers share the work, and one of them is killed; then workers share a queue; then a consumer stops, and is not
overtaken by retention.

Everything happens in a temporary directory, through the same commands and client library that a user has. The act
fails, and `make demo` with it, if one event is lost, doubled or out of order.
"""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from demo import group_scene, queue_scene, slow_consumer_scene
from demo.broker_process import BrokerProcess
from demo.clients import EVENTS_PER_SECOND, TOPIC, Reader, Writer
from demo.commands import start, tailrace
from demo.ledger import Ledger, Verdict
from demo.screen import TICK_SECONDS, Screen, View

BEFORE_SECONDS = 4.0
AFTER_SECONDS = 4.0
READ_SECONDS = 10.0  # for the reader to come to the end
START_SECONDS = 10.0


def run(screen: Screen, intermission: Callable[[], None] = lambda: None) -> bool:
    """Whether nothing was lost. `intermission` is called when the figures that load would change have been taken."""
    screen.title("Act one: a broker that loses nothing")
    with tempfile.TemporaryDirectory(prefix="tailrace-demo-") as directory:
        broker = BrokerProcess(Path(directory))
        try:
            screen.step("A broker is started on an empty directory.")
            start(broker, screen)
            ledger = stream(broker, screen)
            is_counted = count(ledger, screen)
            screen.end_picture()
            intermission()
            is_shared = group_scene.run(broker.bootstrap, screen, partial(tailrace, screen, broker.directory))
            is_worked_on = queue_scene.run(
                broker.bootstrap, broker.directory, screen, partial(tailrace, screen, broker.directory)
            )
            is_clean = broker.stop() == 0
        finally:
            broker.kill()
        is_held = slow_consumer_scene.run(Path(directory), screen)
        is_healthy = tailrace(screen, broker.directory, "log", "verify", "data", last=1) == 0
        is_found = flip_a_bit(screen, broker.directory)
    return all((is_clean, is_counted, is_shared, is_worked_on, is_held, is_healthy, is_found))


def stream(broker: BrokerProcess, screen: Screen) -> Ledger:
    screen.step(
        f"A producer sends {EVENTS_PER_SECOND:,} numbered orders a second (idempotent, acks=all), and a consumer "
        "reads them as they come. In the middle the broker is killed with kill -9, and started again."
    )
    ledger = Ledger()
    writer = Writer(broker.bootstrap, ledger)
    reader = Reader(broker.bootstrap, ledger, writer)
    view = View(writer, reader)
    with screen.playing(view) as let_pass:
        begin(writer, reader)
        let_pass(BEFORE_SECONDS)
        broker.kill()
        view.is_killed()
        broker.start()
        while not broker.is_ready():
            let_pass(TICK_SECONDS)
        view.serves_again(broker.start_seconds)
        let_pass(AFTER_SECONDS)
        writer.finish()
        reader.finish(READ_SECONDS)
        view.tick()
    return ledger


def begin(writer: Writer, reader: Reader) -> None:
    """The topic comes into being with the first order; then there is something to read."""
    writer.start()
    deadline = time.monotonic() + START_SECONDS
    while not writer.ledger.acknowledged and time.monotonic() < deadline:
        time.sleep(0.01)
    reader.start()


def count(ledger: Ledger, screen: Screen) -> bool:
    verdict = ledger.verdict()
    screen.step("The producer has stopped. Everything is counted.")
    screen.show(table_of(verdict))
    for reason in ledger.failures[:3]:
        screen.say(f"not acknowledged: {reason}", "red")
    return verdict.is_good


def table_of(verdict: Verdict) -> Padding:
    table = Table.grid(padding=(0, 3, 0, 0))
    figures = {
        "acknowledged": (f"{verdict.acknowledged:,}", verdict.acknowledged > 0),
        "read": (f"{verdict.read:,}", verdict.read == verdict.acknowledged),
        "lost": (f"{verdict.lost:,}", not verdict.lost),
        "duplicated": (f"{verdict.duplicated:,}", not verdict.duplicated),
        "in order": ("yes" if verdict.is_in_order else "no", verdict.is_in_order),
        "each at its offset": ("no" if verdict.misplaced else "yes", not verdict.misplaced),
    }
    table.add_row(*(Text(name, "dim") for name in figures))
    table.add_row(*(Text(value, "bold green" if good else "bold red") for value, good in figures.values()))
    return Padding(table, (0, 2))


def flip_a_bit(screen: Screen, directory: Path) -> bool:
    """Whether it was found."""
    screen.step("A year later, the disk flips one bit of the log.")
    log = min((directory / "data" / f"{TOPIC}-0").glob("*.log"))
    with log.open("r+b") as file:
        position = log.stat().st_size // 4
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 4]))
    is_found = tailrace(screen, directory, "log", "verify", f"data/{TOPIC}-0") == 1
    screen.step("One batch is corrupt, and its offsets are known. A broker refuses to serve it, and serves all others.")
    return is_found

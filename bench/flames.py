"""Flame graphs of the broker under load, as SVG: where its time goes.

    python -m bench.flames [--out docs/flames] [--seconds 8] [NAME …]

py-spy, which is one of our tools for development, samples the broker, Python and C; that needs root or the right to
trace. What it finds is drawn here: one picture for each load, small and without a script, in which no path of the
machine stands. A frame's width is its share of the samples; what called it lies below it. Lines of one function are one
frame, what is less than half a percent is left out, and so are the way from `main` to the first fork, which all share,
the event loop's own frames, and threads that wait for work.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from threading import Event, Thread
from xml.sax.saxutils import escape

from bench.harness.broker_process import BrokerProcess, broker_process
from bench.harness.place import temporary_place
from bench.harness.raw_connection import RawConnection
from bench.harness.requests import round_trips

LEAST = 0.005  # of all samples
_RATE = 250  # samples a second
_WARM_UP_S = 2
_MESSAGES = 500_000  # that are there before, to be read
TOPIC = "flames"
_WIDTH, _ROW, _LETTER, _TOP, _EDGE = 1200, 17, 6.7, 44, 10
_COLOURS = {"tailrace": "#f28e4c", "Python": "#f6d365", "C": "#b4c7dc"}

_FRAME = re.compile(r"(?P<function>.*) \((?P<file>[^()]*?)(:\d+)?\)")
_IDLE = re.compile(r";_queue_SimpleQueue_get\b")  # a thread that waits for work; py-spy takes it for busy
# An address without a name, an inlined decrement, and what uvloop and libuv do between the kernel and us.
_NOISE = re.compile(r"0x[0-9a-f]+ .*|.* \((object\.h|loop\.c|core\.c|linux\.c|queue\.h|loop-watcher\.c)\)")
_PLATFORM = re.compile(r"\.cpython-\d+-[\w-]+(?=\.so)")
_LIBRARY = re.compile(r".*/(?:site-packages|dist-packages|python3\.\d+|src)/")


@dataclass(slots=True)
class Frame:
    """A function as it was called by those below it, and how many samples found it there."""

    name: str
    samples: int = 0
    callees: "dict[str, Frame]" = field(default_factory=dict)

    def add(self, stack: Iterable[str], samples: int) -> None:
        self.samples += samples
        frame = self
        for name in stack:
            frame = frame.callees.setdefault(name, Frame(name))
            frame.samples += samples

    @property
    def depth(self) -> int:
        return 1 + max((callee.depth for callee in self.callees.values()), default=0)


# Reading


def read(stacks: str) -> Frame:
    """From lines of frames and a number, as py-spy writes them with `--format raw`."""
    root = Frame("all")
    for line in stacks.splitlines():
        stack, _, samples = line.rpartition(" ")
        if not _IDLE.search(stack):
            names = map(frame_name, stack.split(";"))
            root.add([name for name, _ in groupby(names) if not _NOISE.fullmatch(name)], int(samples))
    return trimmed(root)


def frame_name(frame: str) -> str:
    """Without the line, and with nothing of where things lie on this machine."""
    found = _FRAME.fullmatch(frame)
    if found is None:
        return _within(frame)
    function = "Rust" if found["function"].startswith("_RN") else found["function"]  # whose names are for linkers
    return f"{function} ({_within(found['file'])})"


def _within(file: str) -> str:
    """A path as it is imported, or the name alone."""
    inside = _PLATFORM.sub("", _LIBRARY.sub("", file))
    return inside.rpartition("/")[2] if inside.startswith("/") else inside


def trimmed(root: Frame) -> Frame:
    """What is too small to be seen is left out, and so is what a thread does before it does one thing or another."""
    forks = {name: _fork(callee) for name, callee in root.callees.items()}
    return _without_small(Frame(root.name, root.samples, forks), LEAST * root.samples)


def _fork(frame: Frame) -> Frame:
    while len(frame.callees) == 1:
        (callee,) = frame.callees.values()
        if callee.samples < frame.samples:
            break
        frame = callee
    return frame


def _without_small(frame: Frame, least: float) -> Frame:
    callees = {name: _without_small(one, least) for name, one in frame.callees.items() if one.samples >= least}
    return Frame(frame.name, frame.samples, callees)


# Drawing


def draw(root: Frame, title: str) -> str:
    height = _TOP + root.depth * _ROW + _EDGE
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="monospace">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        f'<g font-size="14"><text x="{_EDGE}" y="18">{escape(title)}</text></g>',
        '<g font-size="11">',
        *_legend(),
        *_drawn(root, root.samples, _EDGE, height - _EDGE - _ROW),
        "</g>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _legend() -> Iterator[str]:
    for number, (kind, colour) in enumerate(_COLOURS.items()):
        x = _EDGE + 110 * number
        yield f'<rect x="{x}" y="26" width="11" height="11" fill="{colour}"/><text x="{x + 16}" y="36">{kind}</text>'


def _drawn(frame: Frame, total: int, x: float, y: float) -> Iterator[str]:
    share = frame.samples / total
    width = share * (_WIDTH - 2 * _EDGE)
    said = f"<title>{escape(frame.name)}: {100 * share:.1f} %</title>"
    box = f'<rect x="{x:.1f}" y="{y}" width="{max(width - 0.5, 0.5):.1f}" height="{_ROW - 1}" fill="{_colour(frame)}"/>'
    letters = int((width - 4) / _LETTER)
    label = frame.name if len(frame.name) <= letters else f"{frame.name[: letters - 1]}…"
    text = f'<text x="{x + 3:.1f}" y="{y + 12}">{escape(label)}</text>' if letters >= 3 else ""
    yield f"<g>{said}{box}{text}</g>"
    for callee in sorted(frame.callees.values(), key=lambda one: one.name):
        yield from _drawn(callee, total, x, y - _ROW)
        x += callee.samples / total * (_WIDTH - 2 * _EDGE)


def _colour(frame: Frame) -> str:
    if "(tailrace/" in frame.name:
        return _COLOURS["tailrace"]
    return _COLOURS["Python" if frame.name.endswith((".py)", ".pyx)")) else "C"]


# Sampling

Load = Callable[[BrokerProcess, Event], None]


def _one_in_flight(acks: int, broker: BrokerProcess, is_over: Event) -> None:
    with RawConnection(broker.host, broker.port) as connection:
        while not is_over.is_set():
            round_trips(connection, TOPIC, acks, 100)


def _produce(broker: BrokerProcess, is_over: Event) -> None:
    while not is_over.is_set():
        broker.load("produce", TOPIC, 1000, 4, "1")


def _consume(broker: BrokerProcess, is_over: Event) -> None:
    while not is_over.is_set():
        broker.load("consume", TOPIC, 1000, 60)


LOADS: dict[str, tuple[str, Load]] = {
    "ack-1": ("One small batch in flight, acks=1", partial(_one_in_flight, 1)),
    "ack-all": ("One small batch in flight, acks=all", partial(_one_in_flight, -1)),
    "produce": ("A C client produces 1 KB messages as fast as it can, acks=1", _produce),
    "consume": ("A C client consumes 1 KB messages as fast as it can", _consume),
}


def sample(pid: int, seconds: int, stacks: Path) -> None:
    command = ["py-spy", "record", "--pid", str(pid), "--duration", str(seconds), "--rate", str(_RATE)]
    options = ["--native", "--function", "--format", "raw", "--output", str(stacks)]
    subprocess.run([*command, *options], check=True, capture_output=True, timeout=seconds + 60)


@contextmanager
def _under(load: Load, broker: BrokerProcess) -> Iterator[Thread]:
    is_over = Event()
    thread = Thread(target=load, args=(broker, is_over))
    thread.start()
    try:
        yield thread
    finally:
        is_over.set()
        thread.join()


def flame(name: str, seconds: int) -> str:
    """The picture of one load."""
    title, load = LOADS[name]
    with temporary_place() as place, place.directory() as data, broker_process(data) as broker:
        stacks = Path(place.path, "stacks")
        broker.load("produce", TOPIC, 1000, 60, count=_MESSAGES)
        with _under(load, broker) as thread:
            thread.join(_WARM_UP_S)
            sample(broker.process.pid, seconds, stacks)
            assert thread.is_alive(), f"the load of {name} ended before its time"
        return draw(read(stacks.read_text()), title)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.flames", description="Draws where the broker's time goes.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(LOADS)}; all without")
    parser.add_argument("--out", type=Path, default=Path("docs/flames"), help="the directory of the pictures")
    parser.add_argument("--seconds", type=int, default=8, help="how long each is sampled")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.names or LOADS:
        path = options.out / f"{name}.svg"
        path.write_text(flame(name, options.seconds))
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())

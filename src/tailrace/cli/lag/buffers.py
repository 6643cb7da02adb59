"""`tailrace lag --buffers`: for how long topics and disks keep messages."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.cli.common import output

if TYPE_CHECKING:
    from tailrace.monitor.figures.buffers import Buffer
    from tailrace.monitor.views import View


def show_buffers(view: "View", topics: Sequence[str], sample_s: float, *, as_json: bool) -> None:
    of_topics, disks = view.buffers(topics, sample_s)
    if as_json:
        shown = {
            "topics": [{"topic": name, **_fields(buffer)} for name, buffer in of_topics.items()],
            "disks": [{"path": path, **_fields(buffer)} for path, buffer in disks.items()],
        }
        print(json.dumps(shown, indent=2))
        return
    for heading, buffers in (("TOPIC", of_topics), ("DISK", disks)):
        if buffers:
            drawn = output.table(heading, "AT THIS RATE", "AT FULL SPEED")
            for name, buffer in sorted(buffers.items(), key=lambda one: _order(one[1])):
                drawn.add_row(name, _words(buffer.today), _words(buffer.full))
            output.draw(drawn, output.console(markup=False))


def _fields(buffer: "Buffer") -> dict[str, float | None]:
    return {"today_seconds": buffer.today, "full_seconds": buffer.full}


def _words(seconds: float | None) -> str:
    return "no end" if seconds is None else output.duration(seconds)


def _order(buffer: "Buffer") -> float:
    return float("inf") if buffer.today is None else buffer.today

"""`tailrace queue peek`: the next messages of a queue that are not finished, with their state."""

import json
import os
import sys
from typing import NamedTuple

from tailrace.cli.common import messages
from tailrace.cli.common.messages import Row
from tailrace.cli.common.topics.offsets import Offsets, Partition, existing
from tailrace.cli.common.topics.ranges import OffsetRange
from tailrace.cli.queue.here import Here
from tailrace.cli.queue.reading import messages_in
from tailrace.cli.tail.printer import columns

_PLAIN = ("", "")
_DIM = ("\x1b[2m", "\x1b[0m")


class Peeked(NamedTuple):
    """State and attempt are None where the broker does not tell."""

    row: Row
    state: str | None
    attempt: int | None


def messages_of(here: Here, name: str, topic: str, count: int) -> list[Peeked]:
    """Returns the oldest messages that are not finished, up to `count`."""
    states = {Partition(*at): one for at, one in here.offsets_of(name, topic, states_max=count).items()}
    partitions = existing((at for at, one in states.items() if one.unfinished != 0), here.metadata)
    offsets = Offsets(here.brokers, here.admin)
    low, high = offsets.earliest(partitions), offsets.latest(partitions)
    spans = {at: OffsetRange(max(states[at].start or 0, low[at]), high[at]) for at in partitions}
    found: dict[Partition, list[Peeked]] = {at: [] for at in spans}
    wanted = {at for at, span in spans.items() if not span.is_empty}
    for messages_read in messages_in(here.brokers, spans) if wanted else ():
        for message in messages_read:
            row = messages.of_message(message)
            at = Partition(str(row.topic), int(row.partition or 0))
            state = states[at].state_of(int(row.offset or 0))
            if (state is None or not state.is_finished) and len(found[at]) < count:
                found[at].append(Peeked(row, state and state.name, state and state.attempt))
        wanted -= {at for at in wanted if len(found[at]) == count}
        if not wanted:
            break
    oldest = sorted((one for peeked in found.values() for one in peeked), key=lambda one: one.row.timestamp or 0)
    return oldest[:count]


def show(found: list[Peeked], *, as_json: bool) -> None:
    dim = _DIM if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else _PLAIN
    for row, state, attempt in found:
        if as_json:
            shown = json.loads(messages.to_json(row)) | {"state": state, "attempt": attempt}
            print(json.dumps(shown, ensure_ascii=False))
        else:
            known = "" if state is None else f"{state}, attempt {attempt}" if attempt else state
            print(f"{known:<22}{columns(row, many_topics=False, dim=dim).decode()}", end="")

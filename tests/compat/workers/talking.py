"""What workers on a queue share: being told what to do by each message, and telling what was done with it.

A process runs several workers, each with a share consumer of its own. Its command line has `name=value`:

    bootstrap, group, topic
    workers     how many
    locks_ms    how long a record is locked; for Java's, which renew a lock that a message holds for longer

The value of a message says what a worker does with it, in words: `accept`; `reject`; `release`; `release-to N`, which
releases it until attempt N and then accepts it; `hold SECONDS`, which accepts it after so long, at the first attempt
only: at another one it is accepted at once. Any other is accepted. What stands behind a comma is for the test only.

A line of JSON for each message, printed before it is acknowledged: `event` handled, with `worker` (its number),
`partition`, `offset`, `attempt` and `outcome`. Others: `holds` when it begins to hold one; `joined` when a worker has
subscribed, `refused` with `text` when an acknowledgement was, `left` at the end. The process ends when it reads
`leave`, or when its stdin is closed.
"""

import json
import sys
import threading
from typing import Any, NamedTuple

_lock = threading.Lock()


class Settings(NamedTuple):
    bootstrap: str
    group: str
    topic: str
    workers: int
    locks_ms: int


class Told(NamedTuple):
    """What is to be done with a message."""

    outcome: str  # accept, reject or release
    hold_s: float = 0.0


def settings() -> Settings:
    given: dict[str, Any] = dict(argument.split("=", 1) for argument in sys.argv[1:])
    return Settings(**given | {name: int(given[name]) for name in ("workers", "locks_ms")})


def told(value: bytes | None, attempt: int) -> Told:
    word, _, number = (value or b"").decode().partition(",")[0].partition(" ")
    match word:
        case "reject" | "release":
            return Told(word)
        case "release-to":
            return Told("release" if attempt < int(number) else "accept")
        case "hold" if attempt == 1:
            return Told("accept", float(number))
    return Told("accept")


def tell(event: str, **what: Any) -> None:
    with _lock:
        sys.stdout.write(json.dumps({"event": event, **what}) + "\n")
        sys.stdout.flush()

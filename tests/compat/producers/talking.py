"""What transactional producers written in Python share: a loop that does what it reads, and answers.

A producer is a process of its own, so that it can be killed. Its command line has `bootstrap=`, `id=`, which is its
transactional id, and `timeout_ms=`. Each line that it reads is a command, whose words have tabs in between:

    init                                        take over the transactional id
    begin
    send TOPIC PARTITION VALUE                  without waiting for the acknowledgement
    flush                                       wait for all acknowledgements
    offset GROUP TOPIC PARTITION OFFSET         commit an offset as part of the transaction
    commit
    abort

It answers each with a line: `done`, or what the client raised, after the word `fenced` or `failed`.
"""

import sys
from collections.abc import Callable
from typing import NamedTuple


class Settings(NamedTuple):
    bootstrap: str
    id: str
    timeout_ms: int


def settings() -> Settings:
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    return Settings(given["bootstrap"], given["id"], int(given["timeout_ms"]))


def obey(do: Callable[..., None], is_fenced: Callable[[Exception], bool]) -> None:
    """Calls `do` with the words of each line, until there are no more."""
    for line in sys.stdin:
        try:
            do(*line.rstrip("\n").split("\t"))
        except Exception as error:  # noqa: BLE001 (the test says which it expects)
            answer = f"{'fenced' if is_fenced(error) else 'failed'} {error!r}".replace("\n", " ")
        else:
            answer = "done"
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()

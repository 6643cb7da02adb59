"""From nothing to the first acknowledged message, on a bare socket: the same way on every broker."""

import subprocess
import time

from bench.processes import RawConnection
from bench.serving import open_topic, round_trips

TOPIC = "first"
_SECONDS = 120


def wait_for_first_ack(process: "subprocess.Popen[str]", host: str, port: int) -> None:
    """Tries until a message with `acks=all` is acknowledged. A port may be open well before that."""
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            with RawConnection(host, port) as connection:
                open_topic(connection, TOPIC)
                round_trips(connection, TOPIC, -1, 1)
                return
        except (OSError, EOFError, ValueError, RuntimeError) as error:
            if process.poll() is not None:
                raise RuntimeError(f"the broker ended with {process.returncode}") from error
            if time.monotonic() > deadline:
                raise RuntimeError(f"no message was acknowledged within {_SECONDS} s: {error}") from error
            time.sleep(0.005)

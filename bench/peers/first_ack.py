"""From nothing to the first acknowledged message, on a bare socket: the same way on every broker."""

import time

from bench.harness.broker_process import BrokerProcess
from bench.harness.raw_connection import RawConnection
from bench.harness.requests import open_topic, round_trips

TOPIC = "first"
_SECONDS = 120


def wait_for_first_ack(broker: BrokerProcess) -> None:
    """Tries until a message with `acks=all` is acknowledged. A port may be open well before that."""
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            with RawConnection(broker.host, broker.port) as connection:
                open_topic(connection, TOPIC)
                round_trips(connection, TOPIC, -1, 1)
                return
        except (OSError, EOFError, ValueError, RuntimeError) as error:
            if (code := broker.exit_code) is not None:
                raise RuntimeError(f"the broker ended with {code}") from error
            if time.monotonic() > deadline:
                raise RuntimeError(f"no message was acknowledged within {_SECONDS} s: {error}") from error
            time.sleep(0.005)

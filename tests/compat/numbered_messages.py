"""Numbered messages during which something happens to the broker, and whether all of them are there afterwards."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from compat.clients.confluent import ConfluentClient
from compat.contract import Message

PAUSE = 0.002  # between two messages
SIZE = 2000  # a batch of most clients has 16 KB, so that all of it takes many requests, even if it had to wait


def numbered(count: int) -> list[Message]:
    return [Message((b"%d" % n).ljust(SIZE, b"."), b"key") for n in range(count)]


def paced(count: int) -> Iterator[Message]:
    for message in numbered(count):
        time.sleep(PAUSE)
        yield message


@contextlib.contextmanager
def meanwhile(work: Callable[[], object]) -> Iterator[threading.Event]:
    """Does it in a thread and tells when it is done; what fails there fails the test."""
    errors: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 (raised below)
            errors.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield done
    finally:
        thread.join()
    for error in errors:
        raise error


def interrupted(count: int, at: int, interrupt: Callable[[], object]) -> Iterator[Message]:
    """Numbered messages; from the one `at` on, something happens while the rest are sent."""
    messages = paced(count)
    for _ in range(at):
        yield next(messages)
    with meanwhile(interrupt):
        yield from messages


def check_each_once_in_order(reference: ConfluentClient, topic: str, count: int) -> None:
    end = reference.offset(topic, "latest") or 0
    with reference.consumer(topic, 0) as consumer:
        found = [int((each.value or b"").rstrip(b".")) for each in consumer.take(end)]
    assert found == list(range(count)), f"{end} messages; missing are {sorted(set(range(count)) - set(found))}"

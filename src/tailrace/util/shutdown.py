"""Shutdown by ctrl-C or SIGTERM, as an event. A second signal ends the process at once.

Callers poll the event between two steps, or wait for it. A thread sets it, because a signal may arrive while the main
thread holds the event's lock.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def on_signals() -> threading.Event:
    """Returns an event that the first signal sets, from now on."""
    stop = threading.Event()
    signals: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        if signals:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        signals.append(number)
        threading.Thread(target=stop.set, name="stop", daemon=True).start()

    for number in SIGNALS:
        signal.signal(number, note)
    return stop


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """Yields such an event for the duration of a block. Outside the main thread, which receives the signals, it is
    never set.
    """
    if threading.current_thread() is not threading.main_thread():
        yield threading.Event()
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield on_signals()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

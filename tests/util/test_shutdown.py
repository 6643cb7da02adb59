"""Signals, in this process and in one that is to be ended."""

import os
import signal
import subprocess
import sys
import threading

from tailrace.util.shutdown import stopped_by_signals

STUBBORN = """
import os, signal, time
from tailrace.util.shutdown import on_signals
stop = on_signals()
os.kill(os.getpid(), signal.SIGTERM)
assert stop.wait(30)
print("asked", flush=True)
os.kill(os.getpid(), signal.SIGINT)
time.sleep(30)
"""


def test_the_first_signal_asks_and_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stopped_by_signals() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wait(30)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_signal_does_not_wait() -> None:
    ended = subprocess.run([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True, timeout=60)
    assert ended.stdout == "asked\n"
    assert ended.returncode == -signal.SIGINT


def test_another_thread_leaves_signals_alone() -> None:
    before, found = signal.getsignal(signal.SIGINT), []

    def look() -> None:
        with stopped_by_signals():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [before]

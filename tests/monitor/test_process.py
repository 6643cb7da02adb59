"""The monitor as a child process, without a broker."""

import json
import subprocess
import sys


def test_a_mistake_ends_it_with_a_message_and_not_with_an_abort() -> None:
    greeting = {"port": 1, "token": "", "configs": {"tailrace.alert.lag.seconds": "soon"}}
    command = [sys.executable, "-m", "tailrace.monitor"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(json.dumps(greeting).encode() + b"\n")
        process.stdin.flush()  # and it stays open, as the broker's end does
        assert process.wait(30) == 1
        assert b"tailrace.alert.lag.seconds cannot be 'soon'" in process.stderr.read()

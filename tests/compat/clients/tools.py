"""Kafka's own tools, as many as a test likes, in one Java process."""

import subprocess
import threading
from pathlib import Path

from compat import sources

SECONDS = 30


class Tools:
    """Kafka's tools in one process, told to run one after the other."""

    def __init__(self) -> None:
        command = sources.command(Path(sources.__file__).parent / "clients" / "Tools.java", ["*"])
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, *words: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = threading.Timer(SECONDS, self._process.kill)
        timer.start()
        try:
            self._process.stdin.write("\t".join(words).encode() + b"\n")
            self._process.stdin.flush()
            said = []
            while not (line := self._process.stdout.readline()).startswith(b"\0"):
                assert line, f"{words} takes too long, or ended it: {said}"
                said.append(line.decode())
        finally:
            timer.cancel()
        assert line == b"\x000\n", f"{words} ended with {line.decode().strip()}: {said}"
        return "".join(said)

    def close(self) -> None:
        try:
            self._process.communicate(timeout=SECONDS)
        finally:
            self._process.kill()
            self._process.wait()

"""Kafka's command line tools in one process, told to run one after the other: to start Java for each takes long."""

import subprocess
import threading
from pathlib import Path
from typing import NamedTuple

from compat import sources

TOOLS = "org.apache.kafka.tools"
SECONDS = 30


class Ended(NamedTuple):
    status: int
    said: str


class Tools:
    def __init__(self) -> None:
        command = sources.command(Path(__file__).parent / "clients" / "Tools.java", ["*"])
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, *words: str) -> str:
        """What it printed. It must have ended well."""
        status, said = self.attempt(*words)
        assert status == 0, f"{words} ended with {status}: {said}"
        return said

    def attempt(self, *words: str) -> Ended:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = threading.Timer(SECONDS, self._process.kill)
        timer.start()
        try:
            self._process.stdin.write("\t".join(words).encode() + b"\n")
            self._process.stdin.flush()
            said: list[str] = []
            while not (line := self._process.stdout.readline()).startswith(b"\0"):
                assert line, f"{words} takes too long, or ended it: {said}"
                if not line.startswith(b"SLF4J:"):  # which the first one says that is run
                    said.append(line.decode())
        finally:
            timer.cancel()
        return Ended(int(line[1:]), "".join(said))

    def close(self) -> None:
        try:
            self._process.communicate(timeout=SECONDS)
        finally:
            self._process.kill()
            self._process.wait()

"""Looks at the memory of process trees twice a second, in a process of its own: a thread would disturb who measures.

    python -m bench.programs.watch PID

Answers each line on its standard input with the most that the tree of PID had so far, in bytes.
"""

import select
import subprocess
import sys

from bench.harness.process_tree import memory_bytes

_EVERY_S = 0.5


class Watch:
    """The one that was started for a process."""

    def __init__(self, pid: int) -> None:
        command = [sys.executable, "-m", "bench.programs.watch", str(pid)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def peak(self) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()  # which closes its input, and so it ends


def main() -> None:
    pid, peak = int(sys.argv[1]), 0
    while True:
        asked, _, _ = select.select([sys.stdin], [], [], _EVERY_S)
        peak = max(peak, memory_bytes(pid))
        if asked:
            if not sys.stdin.readline():
                return
            print(peak, flush=True)


if __name__ == "__main__":
    main()

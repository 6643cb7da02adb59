"""What a process and all below it have taken, as the kernel counts it: CPU time and memory. Linux only."""

import os
import time
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


def tree(pid: int) -> list[int]:
    """A process and its descendants; those that end meanwhile are left out."""
    found = [pid]
    for member in found:  # grows as it goes
        for children in (_PROC / str(member) / "task").glob("*/children"):
            with suppress(OSError):
                found += map(int, children.read_text().split())
    return found


def cpu_seconds(pid: int) -> float:
    """Of all that live, to the nanosecond, and of all that have ended, to the tick."""
    total = 0.0
    for member in tree(pid):
        with suppress(OSError):
            ended = ended_children(_stat(member)) / _TICKS
            total += time.clock_gettime(_clock_of(member)) + ended
    return total


def kernel_cpu_seconds() -> float | None:
    """Of the kernel's own threads, which write to the disk for everybody; None where they are not to be seen."""
    with suppress(OSError):
        if (_PROC / "2" / "comm").read_text() == "kthreadd\n":  # the parent of them all
            return cpu_seconds(2)
    return None


def memory_bytes(pid: int) -> int:
    """What is resident now, of the whole tree. Pages that several of them share are counted for each."""
    total = 0
    for member in tree(pid):
        with suppress(OSError):
            total += resident((_PROC / str(member) / "status").read_text())
    return total


def ended_children(stat: str) -> int:
    """Ticks of user and system time of children that were waited for, by the text of `/proc/PID/stat`."""
    fields = stat.rpartition(")")[2].split()  # a program's name may hold blanks and brackets
    return int(fields[13]) + int(fields[14])


def resident(status: str) -> int:
    """Bytes, by the text of `/proc/PID/status`; none for one that has ended and was not waited for."""
    _, found, after = status.partition("VmRSS:")
    return int(after.split()[0]) << 10 if found else 0


def _stat(pid: int) -> str:
    return (_PROC / str(pid) / "stat").read_text()


def _clock_of(pid: int) -> int:
    """The number of a process's CPU clock, as Linux makes it from the process's."""
    return (~pid << 3) | 2

"""The lock on a directory: against earlier releases, Java programs, a deleted lock file and the same process."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tailrace.log.disk import locks

OURS = "from tailrace.log.disk.locks import lock; held = lock(sys.argv[1]); is_locked = held is not None"
EARLIER = """
file = open(sys.argv[1], "a+")
try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    is_locked = True
except BlockingIOError:
    is_locked = False
"""
JAVA = EARLIER.replace("flock(", "lockf(")  # what FileChannel.tryLock calls on Unix
PROGRAM = """
import fcntl, sys
{}
print(is_locked, flush=True)
sys.stdin.read()
"""


@contextmanager
def another_process(program: str, path: Path) -> Iterator[bool]:
    """Whether another process got the lock, which it holds meanwhile."""
    command = [sys.executable, "-c", PROGRAM.format(program), str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline() == "True\n"
        process.communicate("")


def gets_it(program: str, path: Path) -> bool:
    with another_process(program, path) as is_locked:
        return is_locked


@pytest.fixture(params=["of the open file", "of the process"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "of the process":
        monkeypatch.setattr(locks, "_OFD_SETLK", None)  # as on macOS
    return tmp_path / ".lock"


@pytest.mark.parametrize("program", [OURS, EARLIER, JAVA], ids=["ours", "earlier", "java"])
def test_the_lock_and_that_of_another_program_exclude_each_other(path: Path, program: str) -> None:
    with another_process(program, path) as is_locked:
        assert is_locked
        assert locks.lock(str(path)) is None
    lock = locks.lock(str(path))
    assert lock is not None
    assert not gets_it(program, path)
    lock.release()
    assert gets_it(program, path)


def test_a_second_lock_in_the_same_process_is_refused_and_keeps_the_first(path: Path) -> None:
    lock = locks.lock(str(path))
    assert lock is not None
    assert locks.lock(str(path)) is None
    assert not gets_it(JAVA, path)
    lock.release()
    lock.release()
    again = locks.lock(str(path))
    assert again is not None
    again.release()


def test_a_lock_whose_file_is_deleted_still_holds(path: Path) -> None:
    lock = locks.lock(str(path))
    assert lock is not None
    path.unlink()
    assert locks.lock(str(path)) is None
    assert not gets_it(OURS, path)
    assert not path.exists(), "who is refused makes no file"
    lock.release()
    assert gets_it(OURS, path)

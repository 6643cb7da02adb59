"""Brokers that are there to be killed: as processes, on a disk whose power can be cut, and with faults by strace."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from compat.brokers import TailraceProcess

SETTINGS = (
    "auto.create.topics.enable=false",  # else who asks for a deleted topic makes it anew
    "group.initial.rebalance.delay.ms=0",
    "group.consumer.min.heartbeat.interval.ms=100",
    "group.consumer.heartbeat.interval.ms=200",
    "group.consumer.min.session.timeout.ms=6000",
    "group.consumer.session.timeout.ms=6000",
)
PROGRAM = ("-m", "tailrace")
_OTHER_SYNC = str(Path(__file__).with_name("serve_with_other_sync.py"))
WITHOUT_SYNC = (_OTHER_SYNC, "none")
WITH_SLOW_SYNC = (_OTHER_SYNC, "slow")
ACKNOWLEDGING_EARLY = (_OTHER_SYNC, "early")


class Victim(TailraceProcess):
    """The same data directory and port from one start to the next. `under` is a command that runs it (strace)."""

    def __init__(
        self,
        directory: Path,
        *,
        program: Sequence[str] = ("-m", "tailrace"),
        data: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory, settings=settings)
        self.data: Path = data or self.data
        self.under: Sequence[str] = ()
        self._program = program

    def command(self) -> list[str]:
        serve = [*self.under, sys.executable, *self._program, "serve", "--data", str(self.data)]
        own = ("=".join(item) for item in self.configs.items())
        settings = [part for setting in (*SETTINGS, *own) for part in ("--set", setting)]
        return [*serve, "--listen", self.listen, "--metrics", "off", "--http", "off", *settings]

    def ended_with(self, *, within: float) -> int:
        """The exit status of a broker that ends by itself."""
        try:
            return self.process.wait(within)
        finally:
            self.kill()

    def live_for(self, seconds: float) -> bool:
        """Starts it, and kills it after so long, ready or not. Whether it was dead by then, by what it runs under."""
        self.start(wait=False)
        try:
            return self.process.wait(seconds) == -signal.SIGKILL
        except subprocess.TimeoutExpired:
            return False
        finally:
            self.kill()

    def verify(self) -> None:
        """Every byte on disk is right."""
        command = [sys.executable, "-m", "tailrace", "log", "verify", str(self.data)]
        verified = subprocess.run(command, capture_output=True, text=True)
        assert verified.returncode == 0, verified.stdout + verified.stderr

    @property
    def ever_said(self) -> str:
        """What it printed and logged in all starts."""
        return self.output.read_text(errors="replace")


@contextlib.contextmanager
def kept_on_failure(broker: Victim, seed: object) -> Iterator[None]:
    """Ends the broker, and where the test fails leaves its data and output to be looked at."""
    try:
        yield
    except BaseException as error:
        kept = Path(tempfile.mkdtemp(prefix="tailrace-crash-"))
        broker.close()
        for path in (broker.data, broker.output):
            if path.is_dir():
                shutil.copytree(path, kept / path.name, symlinks=True)
            elif path.exists():
                shutil.copy(path, kept)
        error.add_note(f"seed {seed}; the data directory and what the broker said are kept in {kept}")
        raise
    finally:
        broker.close()


# A disk whose power can be cut: a file system in a file. What the file holds is on disk; the rest is in memory.

IMAGE_BYTES = 96 << 20


class Disk:
    """An ext4 of its own, mounted at `path`. `commit` is after how many seconds it writes by itself."""

    def __init__(self, directory: Path, *, commit: int) -> None:
        self.path = directory / "mounted"
        self._image = directory / "image"
        self._commit = commit
        self._is_mounted = False
        self.path.mkdir()
        with self._image.open("wb") as image:
            image.truncate(IMAGE_BYTES)
        _run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", self._image)
        self.mount()

    def mount(self) -> None:
        _run("mount", "-t", "ext4", "-o", f"loop,commit={self._commit}", self._image, self.path)
        self._is_mounted = True

    def unmount(self) -> None:
        if self._is_mounted:
            _run("umount", self.path)
            self._is_mounted = False

    def sync(self) -> None:
        """Puts all that was written on disk, whether a client asked for that or not."""
        _run("sync", "-f", self.path)

    def snapshot(self) -> None:
        """Remembers what is on disk at one moment: copied again, if the system wrote meanwhile."""
        for _ in range(10):
            before = self._image.stat().st_mtime_ns
            _run("cp", "--sparse=always", self._image, self._copy)
            if self._image.stat().st_mtime_ns == before:
                return
        raise AssertionError("the disk never rests")

    def go_back(self) -> None:
        """Makes the disk what the snapshot was."""
        self.unmount()
        self._copy.rename(self._image)
        self.mount()

    @property
    def _copy(self) -> Path:
        return self._image.with_name("copy")


def _run(*command: object) -> None:
    ended = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60)
    if ended.returncode:
        raise OSError(f"{' '.join(map(str, command))}: {ended.stderr.strip()}")


@contextlib.contextmanager
def a_small_disk(path: Path, size: int) -> Iterator[Path]:
    """A file system of so many bytes, in memory, mounted at `path`. Skips the test where that cannot be."""
    if os.geteuid():
        pytest.skip("only root can mount a file system")
    path.mkdir()
    try:
        _run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path)
    except OSError as error:
        pytest.skip(f"a file system cannot be mounted here: {error}")
    try:
        yield path
    finally:
        _run("umount", path)


@contextlib.contextmanager
def a_disk(directory: Path, *, commit: int) -> Iterator[Disk]:
    """Skips the test where file systems cannot be mounted."""
    if os.geteuid():
        pytest.skip("only root can mount a file system")
    for tool in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool} on the PATH")
    directory.mkdir()
    try:
        disk = Disk(directory, commit=commit)
    except OSError as error:
        pytest.skip(f"a file system cannot be mounted here: {error}")
    try:
        yield disk
    finally:
        disk.unmount()


class VictimOnDisk(Victim):
    def __init__(
        self,
        directory: Path,
        disk: Disk,
        *,
        program: Sequence[str] = PROGRAM,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory, program=program, data=disk.path / "data", settings=settings)
        self._disk = disk

    def cut_power(self) -> None:
        """The process and all that was not on disk are gone."""
        os.kill(self.pid, signal.SIGSTOP)
        self._wait_until_stopped()
        self._disk.snapshot()
        self.kill()
        self._disk.go_back()

    def _wait_until_stopped(self) -> None:
        """A thread inside of a call to the disk stops when the call comes back."""
        deadline = time.monotonic() + 30
        while any(_state(task) != "T" for task in Path(f"/proc/{self.pid}/task").iterdir()):
            assert time.monotonic() < deadline, "it does not stop"
            time.sleep(0.001)


def _state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


# Faults by strace


def _strace_missing() -> str | None:
    if shutil.which("strace") is None:
        return "no strace on the PATH"
    tried = subprocess.run(["strace", "-qq", "-o", os.devnull, "true"], capture_output=True, text=True)
    return f"strace may not trace here: {tried.stderr.strip()}" if tried.returncode else None


needs_strace = pytest.mark.skipif(_strace_missing() is not None, reason=str(_strace_missing()))


def killed_at(call: str, number: int, output: Path) -> list[str]:
    """Runs a command and kills it when one of its threads is about to make the call for the n-th time. What is started
    is the command itself, strace being its grandchild.
    """
    trace = ["-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={number}"]
    return ["strace", "-D", "-f", "-qq", "-o", str(output), *trace, "--"]


@contextlib.contextmanager
def faulty(broker: Victim, calls: str, fault: str, *, of: Path) -> Iterator[None]:
    """While this lasts, calls of a running broker that concern a file have a fault."""
    output = broker.directory / "strace"
    trace = ["-e", f"trace={calls}", "-e", f"inject={calls}:{fault}", "-P", str(of)]
    # With -q it would not say when it is attached.
    command = ["strace", "-f", "-o", str(output), *trace, "-p", str(broker.pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as strace:
        assert strace.stderr is not None
        try:
            said = strace.stderr.readline()
            if b"attached" not in said:
                pytest.skip(f"strace cannot attach here: {said!r}")
            yield
        finally:
            strace.terminate()
            strace.communicate(timeout=30)

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import parts
import pytest

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)
hypothesis.settings.register_profile("dev", deadline=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_configure() -> None:
    try:
        parts.required()
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        for part in marker.args:
            if reason := parts.missing(part):
                give_up = pytest.fail if part in parts.required() else pytest.skip
                give_up(f"needs {part}: {reason}")


@pytest.fixture(autouse=True)
def no_signal_left_changed() -> Iterator[None]:
    """A process that dies of SIGPIPE takes all tests after this one with it."""
    yield
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN, "a broken pipe would end this process"


@pytest.fixture(scope="session", autouse=True)
def no_process_left_behind() -> Iterator[None]:
    """Whoever starts a process in a test ends it there. (Looks where the kernel lists children: Linux.)"""
    yield
    left = [command for command in _children() if "multiprocessing" not in command]  # its helpers live as long as we do
    assert not left, f"processes left behind by tests: {left}"


def _children() -> Iterator[str]:
    for task in Path("/proc/self/task").glob("*/children"):
        for pid in task.read_text().split():
            try:
                command = Path("/proc", pid, "cmdline").read_text()
            except FileNotFoundError:
                continue
            if command:  # a zombie has none
                yield command.replace("\0", " ").strip()


@pytest.fixture
def unmeasured_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that the test starts load no coverage, for tests of what is imported."""
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)

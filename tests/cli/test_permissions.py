"""Files that may not be read or written: whoever is told "Permission denied" is told of which file.

Root may do everything, so the commands run as another user.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.testing import Broker

NOBODY = 65534
SEGMENT = f"{0:020d}.log"
pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can run a command as another user")


@pytest.fixture
def data() -> Iterator[Path]:
    """A data directory that belongs to another user, stopped cleanly, in a place that this user can reach."""
    path = Path(tempfile.mkdtemp(prefix="tailrace-"))
    path.chmod(0o755)
    with Broker(data=str(path / "data")) as broker:
        broker.create_topic("orders")
    for each in (path, *path.rglob("*")):
        os.chown(each, NOBODY, NOBODY)
    yield path / "data"
    shutil.rmtree(path)


def tailrace(*arguments: str | Path) -> tuple[int, str]:
    """The exit code, and what is said on stderr and stdout."""
    command = [sys.executable, "-m", "tailrace", *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=30, user=NOBODY, group=NOBODY, extra_groups=[]
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr + done.stdout


def serve(data: Path) -> str:
    code, said = tailrace("serve", "--data", data, "--listen", "127.0.0.1:0", "--metrics", "off")
    assert code != 0
    return said


@pytest.mark.parametrize(
    "name",
    ["", "tailrace.format", ".lock", "__tailrace_metadata-0", f"__tailrace_metadata-0/{SEGMENT}"],
)
def test_a_start_names_what_it_may_not_read(data: Path, name: str) -> None:
    (data / name).chmod(0)
    os.chown(data / name, 0, 0)
    said = serve(data)
    assert "Permission denied" in said
    assert f"{data / name}" in said
    assert "--listen" not in said


def test_a_start_names_the_directory_that_it_may_not_write(data: Path) -> None:
    data.chmod(0o555)
    os.chown(data, 0, 0)
    assert f"{data}/.kafka_cleanshutdown: Permission denied" in serve(data)


def test_a_start_names_the_directory_that_it_may_not_make(data: Path) -> None:
    os.chown(data.parent, 0, 0)
    assert f"{data.parent}/new: Permission denied; --data chooses another directory" in serve(data.parent / "new")


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", f"__tailrace_metadata-0/{SEGMENT}"])
@pytest.mark.parametrize("verb", ["verify", "dump", "repair"])
def test_tools_name_what_they_may_not_read(data: Path, verb: str, name: str) -> None:
    (data / name).chmod(0)
    os.chown(data / name, 0, 0)
    code, said = tailrace("log", verb, data)
    assert code != 0
    assert f"{data / name}: Permission denied" in said


def test_a_backup_names_what_it_may_not_read_and_write(data: Path) -> None:
    os.chown(data.parent, 0, 0)
    code, said = tailrace("backup", "create", data, data.parent / "backup")
    assert (code, f"{data.parent}/backup: Permission denied" in said) == (1, True), said
    os.chown(data.parent, NOBODY, NOBODY)
    unreadable = data / "__tailrace_metadata-0" / SEGMENT
    unreadable.chmod(0)
    os.chown(unreadable, 0, 0)
    code, said = tailrace("backup", "create", data, data.parent / "backup")
    assert (code, f"{unreadable}: Permission denied" in said) == (1, True), said

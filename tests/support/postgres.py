"""A PostgreSQL server for a test: in a directory of its own, on a Unix socket, gone at the end."""

import functools
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

SECONDS = 60
USER = "nobody"  # PostgreSQL refuses to run as root


@functools.cache
def programs() -> Path | None:
    """The directory that has `initdb` and `postgres`; Debian has it off the PATH."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    return installed[-1].parent if installed else None


class Postgres:
    def __init__(self) -> None:
        # A short path: that of a Unix socket has at most 107 bytes.
        self._directory = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
        self._data = self._directory / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._user = USER if os.geteuid() == 0 else None
        if self._user is not None:
            owner = pwd.getpwnam(self._user)
            os.chown(self._directory, owner.pw_uid, owner.pw_gid)
        made = self._run("initdb", "-D", str(self._data), "-U", "test", "--auth=trust", "--no-sync")
        assert made.returncode == 0, made.stderr

    @property
    def dsn(self) -> str:
        return f"host={self._directory} user=test dbname=postgres"

    def _command(self, name: str, *words: str) -> list[str]:
        found = programs()
        assert found is not None
        return [str(found / name), *words]

    def _run(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = self._command(name, *words)
        return subprocess.run(
            command, capture_output=True, text=True, user=self._user, cwd=self._directory, timeout=SECONDS
        )

    def start(self) -> None:
        """On return it serves clients."""
        options = ("-D", str(self._data), "-k", str(self._directory), "-c", "listen_addresses=")
        with (self._directory / "output").open("ab") as output:
            self._process = subprocess.Popen(
                self._command("postgres", *options),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                user=self._user,
                cwd=self._directory,
            )
        deadline = time.monotonic() + SECONDS
        while self._run("pg_isready", "-h", str(self._directory)).returncode:
            said = (self._directory / "output").read_text()
            assert self._process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.05)

    def stop(self) -> None:
        """At once, and without a word to its clients; the next start recovers."""
        if self._process is not None:
            self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "stop")
            self._process.wait(SECONDS)
            self._process = None

    def __enter__(self) -> "Postgres":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

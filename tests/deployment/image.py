"""Runs the steps of packaging/Dockerfile without a container engine: in a directory instead of an image.

Paths of the image below OWN are moved under that directory, and exposed ports to free ones. Everything else is executed
as it stands: each RUN by a shell, each COPY as a copy, the entry point as the image's user. Instructions that this
module does not know are refused, so that none is skipped.
"""

import json
import os
import re
import shlex
import shutil
import socket
import string
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
OWN = ("build", "opt", "var")  # the top directories that the image's steps write to
_PATH = re.compile(rf"(?<![\w.:/])/(?=(?:{'|'.join(OWN)})\b)")


def instructions(dockerfile: Path) -> Iterator[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", dockerfile.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, argument = line.partition(" ")
        yield name, argument.strip()


class Image:
    """What a built image is: a file system (`root`), an environment, a user, and commands."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"
        self._tools = directory / "bin"
        self._stages: dict[str, Path] = {}
        self._stage = ""
        self.user: int | None = None
        self.ports: dict[str, int] = {}
        self.health_check: list[str] = []
        self._entry_point: list[str] = []
        self._arguments: list[str] = []
        self._make_base_image()

    def _make_base_image(self) -> None:
        """What `FROM python:…` brings: an interpreter called `python`, outside any virtual environment."""
        self._tools.mkdir(parents=True)
        python = self._tools / "python"
        python.write_text(f'#!/bin/sh\nexec {os.path.realpath(sys.executable)} "$@"\n')
        python.chmod(0o755)

    def build(self, dockerfile: Path) -> None:
        for name, argument in instructions(dockerfile):
            getattr(self, f"_{name.lower()}")(argument)

    def _from(self, argument: str) -> None:
        """Each stage begins with an empty root at the same path, as virtual environments contain their path."""
        if self._stage:
            self._stages[self._stage] = self.root.rename(self.root.with_name(f"stage-{self._stage}"))
        base, _, self._stage = argument.partition(" AS ")
        assert base.startswith("python:"), f"tests have no base image {base}"
        self.root.mkdir()
        self.environment = {"PATH": f"{self._tools}:{os.defpath}"}
        self._working_directory = self.root

    def _workdir(self, argument: str) -> None:
        self._working_directory = Path(self._moved(argument))
        self._working_directory.mkdir(parents=True, exist_ok=True)

    def _copy(self, argument: str) -> None:
        words = argument.split()
        stage = words.pop(0).removeprefix("--from=") if words[0].startswith("--") else None
        *sources, target = words
        for source in sources:
            if stage is None:
                assert f"!{source}" in (REPOSITORY / ".dockerignore").read_text().split(), f"{source} is ignored"
                origin = REPOSITORY / source
            else:
                origin = self._stages[stage] / source.lstrip("/")
            place = Path(self._moved(target)) if target.startswith("/") else self._working_directory / target
            if origin.is_dir():
                shutil.copytree(origin, place, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(origin, place)

    def _env(self, argument: str) -> None:
        for assignment in shlex.split(argument):
            name, _, value = assignment.partition("=")
            self.environment[name] = string.Template(self._moved(value)).substitute(self.environment)

    def _run(self, argument: str) -> None:
        hidden = ("PYTHON", "COVERAGE", "VIRTUAL_ENV")
        outside = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        command = ["/bin/sh", "-ec", self._moved(argument)]
        environment = outside | self.environment
        done = subprocess.run(
            command, cwd=self._working_directory, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"RUN {argument}\n{done.stdout}{done.stderr}"

    def _user(self, argument: str) -> None:
        user, _, group = argument.partition(":")
        assert user == group, "a user of its own has a group of its own"
        self.user = int(user)  # a number, so that Kubernetes can see that it is not root

    def _volume(self, argument: str) -> None:
        assert Path(self._moved(argument)).stat().st_uid == self.user

    def _expose(self, argument: str) -> None:
        for port in argument.split():
            with socket.create_server(("127.0.0.1", 0)) as free:
                self.ports[port] = free.getsockname()[1]

    def _healthcheck(self, argument: str) -> None:
        options, _, command = argument.partition("CMD ")
        assert all(option.startswith("--") for option in options.split())
        self.health_check = json.loads(command)

    def _stopsignal(self, argument: str) -> None:
        assert argument == "SIGTERM"

    def _entrypoint(self, argument: str) -> None:
        self._entry_point = json.loads(argument)

    def _cmd(self, argument: str) -> None:
        self._arguments = json.loads(argument)

    def start(self) -> "subprocess.Popen[str]":
        """The process that `docker run` of this image starts."""
        return self._popen([*self._entry_point, *self._arguments])

    def is_healthy(self) -> bool:
        return self._popen(self.health_check).wait(30) == 0

    def _popen(self, command: list[str]) -> "subprocess.Popen[str]":
        moved = [self._with_ports(self._moved(word)) for word in command]
        program = shutil.which(moved[0], path=self.environment["PATH"])
        assert program is not None, f"the image has no {moved[0]}"
        return subprocess.Popen(
            [program, *moved[1:]],
            cwd=self.root,
            env=self.environment,
            user=self.user,
            group=self.user,
            extra_groups=[],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def _moved(self, text: str) -> str:
        return _PATH.sub(f"{self.root}/", text)

    def _with_ports(self, text: str) -> str:
        for exposed, port in self.ports.items():
            text = text.replace(f":{exposed}", f":{port}")
        return text

"""Runs the code blocks of a Markdown file, in order, in one temporary directory: what the README says has to work.

    PATH=venv/bin:$PATH venv/bin/python scripts/readme_blocks.py README.md [DIRECTORY]

With DIRECTORY, the blocks run there, as those of a page about a clone of the repository have to.

```console         A command for bash follows each `$ `; it goes on in the next line after a backslash, or where that
                   begins with `> `. A command that fails stops the run. Other lines show output, and are not compared.
```console check   The output is compared too; `...` stands for anything.
```console background
                   The one command is left running, from when it has printed what is shown until the end of the run.
                   It is then told to stop (SIGTERM), and has to: with exit code 0, or by that signal.
```python          A script for the interpreter that runs this one.
```python shared    Run by one interpreter for all such blocks of the page, as in a notebook: names stay.
```python file=NAME
                   Not run, but kept as that file, for a command further down.
no-run             Anywhere in the info string: skipped. For what sets up a checkout (`make …`), nothing else.

A command that is meant to fail says so to the reader: `$ tailrace log verify damaged || echo "exit code $?"`.
"""

import doctest
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

COMMAND_SECONDS_MAX = 300  # pip installs PySpark in one of them
STOP_SECONDS_MAX = 20
BLOCK = re.compile(r"^```(?P<info>(?:console|python)\b[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


class BlockFailed(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Step:
    line: int
    argv: list[str]
    shown: str
    output_wanted: str | None
    is_background: bool = False
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """A block that becomes a file."""

    name: str
    text: str

    @property
    def shown(self) -> str:
        return f"(writes {self.name})"


def steps(markdown: str) -> Iterator[Step | Source]:
    for block in BLOCK.finditer(markdown):
        language, *flags = block["info"].split()
        line = markdown.count("\n", 0, block.start("body")) + 1
        if "no-run" in flags:
            continue
        if names := [flag.removeprefix("file=") for flag in flags if flag.startswith("file=")]:
            yield Source(names[0], block["body"])
            continue
        if language == "python":
            argv = [sys.executable, "-c", block["body"]]
            yield Step(line, argv, f"python block of line {line}", None, is_shared="shared" in flags)
            continue
        for number, command, output in commands(block["body"]):
            argv = ["bash", "-o", "pipefail", "-c", command]
            is_background = "background" in flags
            wanted = output if is_background or "check" in flags else None
            yield Step(line + number, argv, f"$ {command}", wanted, is_background)


def commands(body: str) -> Iterator[tuple[int, str, str]]:
    """Each command of a console block: the number of its line, the command, the output shown below it."""
    lines = list(enumerate(body.splitlines()))
    while lines:
        number, first = lines.pop(0)
        if not first.startswith("$ "):
            raise BlockFailed(f"a console block has to begin with a command, not with {first!r}")
        command = [first[2:]]
        while lines and (command[-1].endswith("\\") or lines[0][1].startswith("> ")):
            command.append(lines.pop(0)[1].removeprefix("> "))
        output = []
        while lines and not lines[0][1].startswith("$ "):
            output.append(lines.pop(0)[1] + "\n")
        yield number, "\n".join(command), "".join(output)


def run(step: Step, directory: Path) -> None:
    # Output goes to a file: a pipe would stay open, and be waited for, as long as a command left in the background.
    with tempfile.TemporaryFile("w+") as log:
        try:
            code = subprocess.run(
                step.argv, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=COMMAND_SECONDS_MAX
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
        log.seek(0)
        output = log.read()
    if code != 0:
        what = f"exited with {code}" if code is not None else f"ran for more than {COMMAND_SECONDS_MAX} s"
        raise BlockFailed(f"line {step.line}: {step.shown}\n{what} after printing:\n{output}")
    wanted = step.output_wanted
    if wanted is not None and not matches(wanted, output):
        raise BlockFailed(f"line {step.line}: {step.shown}\nshould print:\n{wanted}but printed:\n{output}")


def matches(wanted: str, output: str) -> bool:
    return doctest.OutputChecker().check_output(wanted, output, doctest.ELLIPSIS)


@contextmanager
def left_running(step: Step, directory: Path) -> Iterator[None]:
    """Continues when the command has printed what is shown; ends it in the end. Raises BlockFailed if either fails."""
    with tempfile.NamedTemporaryFile("w+") as log:
        # A group of its own, so that all that the command has started is told to stop.
        process = subprocess.Popen(
            step.argv, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        try:
            _wait_for_output(step, process, Path(log.name))
            yield
            if process.poll() is not None:
                said = Path(log.name).read_text()
                raise BlockFailed(
                    f"line {step.line}: {step.shown}\nended before the last command, after printing:\n{said}"
                )
        finally:
            code = _stop(process)
        if code not in (0, -signal.SIGTERM, 128 + signal.SIGTERM):
            said = Path(log.name).read_text()
            raise BlockFailed(f"line {step.line}: {step.shown}\nstopped with {code} after printing:\n{said}")


def _wait_for_output(step: Step, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + COMMAND_SECONDS_MAX
    wanted = (step.output_wanted or "").rstrip("\n") + "..."
    while True:
        is_over = process.poll() is not None or time.monotonic() > deadline
        if matches(wanted, output := log.read_text()):
            return
        if is_over:
            raise BlockFailed(
                f"line {step.line}: {step.shown}\nshould print:\n{step.output_wanted}but printed:\n{output}"
            )
        time.sleep(0.05)


class Interpreter:
    """Runs the blocks that share their names. Started by the first, ended with the page."""

    _PROGRAM = """
import json, os, sys, traceback
for _line in sys.stdin:
    try:
        exec(compile(json.loads(_line), "page", "exec"), globals())
        _done = b"0"
    except BaseException:
        traceback.print_exc()
        _done = b"1"
    sys.stdout.flush()
    os.write(int(sys.argv[1]), _done)
"""

    def __init__(self, directory: Path, running: ExitStack) -> None:
        self._log = running.enter_context(tempfile.NamedTemporaryFile("w+"))  # noqa: SIM115 - the stack closes it
        self._done, done = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", self._PROGRAM, str(done)],
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            text=True,
            pass_fds=[done],
            start_new_session=True,
        )
        os.close(done)
        running.callback(self._end)

    def run(self, step: Step) -> None:
        assert self._process.stdin is not None
        begin = self._log.seek(0, os.SEEK_END)
        self._process.stdin.write(json.dumps(step.argv[-1]) + "\n")
        self._process.stdin.flush()
        is_over, _, _ = select.select([self._done], [], [], COMMAND_SECONDS_MAX)
        if is_over and os.read(self._done, 1) == b"0":
            return
        self._log.seek(begin)
        how = "failed" if is_over else f"ran for more than {COMMAND_SECONDS_MAX} s"
        raise BlockFailed(f"line {step.line}: {step.shown}\n{how} after printing:\n{self._log.read()}")

    def _end(self) -> None:
        """It ends by itself, with what it has started, when nothing more comes."""
        assert self._process.stdin is not None
        with suppress(OSError, subprocess.TimeoutExpired):
            self._process.stdin.close()
            self._process.wait(STOP_SECONDS_MAX)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._done)


def _stop(process: "subprocess.Popen[bytes]") -> int:
    """What the process ended with, by itself or because it was told to."""
    try:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        return process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main(markdown: Path, directory: str | None = None) -> int:
    try:
        with tempfile.TemporaryDirectory() as temporary, ExitStack() as running:
            done = run_all(steps(markdown.read_text()), Path(directory or temporary), running)
    except BlockFailed as failure:
        print(f"{markdown.name}: {failure}", file=sys.stderr)
        return 1
    print(f"{markdown.name}: {done} commands work")
    return 0


def run_all(todo: Iterator[Step | Source], directory: Path, running: ExitStack) -> int:
    done, interpreter = 0, None
    for step in todo:
        print(step.shown, flush=True)
        if isinstance(step, Source):
            (directory / step.name).write_text(step.text)
            continue
        if step.is_shared:
            interpreter = interpreter or Interpreter(directory, running)
            interpreter.run(step)
        elif step.is_background:
            running.enter_context(left_running(step, directory))
        else:
            run(step, directory)
        done += 1
    return done


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:3]))

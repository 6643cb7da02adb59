"""Runs the code blocks of a Markdown file, in order, in one temporary directory: what the README says has to work.

    PATH=venv/bin:$PATH venv/bin/python scripts/readme_blocks.py README.md

```console         A command for bash follows each `$ `; it goes on in the next line after a backslash, or where that
                   begins with `> `. A command that fails stops the run. Other lines show output, and are not compared.
```console check   The output is compared too; `...` stands for anything.
```python          A script for the interpreter that runs this one.
no-run             Anywhere in the info string: skipped. For what sets up a checkout (`make …`), nothing else.

A command that is meant to fail says so to the reader: `$ tailrace log verify damaged || echo "exit code $?"`.
"""

import doctest
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMMAND_SECONDS_MAX = 120
BLOCK = re.compile(r"^```(?P<info>(?:console|python)\b[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


class BlockFailed(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Step:
    line: int
    argv: list[str]
    shown: str
    output_wanted: str | None


def steps(markdown: str) -> Iterator[Step]:
    for block in BLOCK.finditer(markdown):
        language, *flags = block["info"].split()
        line = markdown.count("\n", 0, block.start("body")) + 1
        if "no-run" in flags:
            continue
        if language == "python":
            yield Step(line, [sys.executable, "-c", block["body"]], f"python block of line {line}", None)
            continue
        for number, command, output in commands(block["body"]):
            argv = ["bash", "-o", "pipefail", "-c", command]
            yield Step(line + number, argv, f"$ {command}", output if "check" in flags else None)


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
    if wanted is not None and not doctest.OutputChecker().check_output(wanted, output, doctest.ELLIPSIS):
        raise BlockFailed(f"line {step.line}: {step.shown}\nshould print:\n{wanted}but printed:\n{output}")


def main(markdown: Path) -> int:
    done = 0
    with tempfile.TemporaryDirectory() as directory:
        try:
            for step in steps(markdown.read_text()):
                print(step.shown, flush=True)
                run(step, Path(directory))
                done += 1
        except BlockFailed as failure:
            print(f"{markdown.name}: {failure}", file=sys.stderr)
            return 1
    print(f"{markdown.name}: {done} commands work")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

"""Processes that we start: modules of our own, run by the interpreter that runs us."""

import os
import sys
from pathlib import Path

import tailrace


def command(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", module, *arguments]


def environment() -> dict[str, str]:
    """With the package where this process has found it."""
    path = [str(Path(tailrace.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}

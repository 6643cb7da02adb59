"""Processes that we start: modules of our own, run by the interpreter that runs us."""

import os
import sys

import tailrace


def command(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", module, *arguments]


def environment() -> dict[str, str]:
    """With the package where this process has found it."""
    path = [os.path.dirname(os.path.dirname(tailrace.__file__)), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}

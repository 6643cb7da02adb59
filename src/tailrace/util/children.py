"""Command line and environment of child processes that run our own modules."""

import os
import sys

import tailrace


def command(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", module, *arguments]


def environment() -> dict[str, str]:
    """Returns an environment in which a child process finds the package at the same path as this one."""
    path = [os.path.dirname(os.path.dirname(tailrace.__file__)), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}

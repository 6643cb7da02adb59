"""Command line and environment of child processes that run modules of ours."""

import os
import sys

import tailrace


def command(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", module, *arguments]


def environment() -> dict[str, str]:
    """With the package where this process has found it."""
    path = [os.path.dirname(os.path.dirname(tailrace.__file__)), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}

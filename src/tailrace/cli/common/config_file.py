"""Reads the file of `--config`, for verbs that run by themselves what a broker would start."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tailrace.cli.common.output import ExitCode, Failure


def read_configs(path: str) -> dict[str, str]:
    """Reads TOML, with dotted keys or tables, or by its suffix a file of properties. Raises Failure."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{path}: {getattr(error, 'strerror', None) or error}", ExitCode.USAGE) from None
    if path.endswith(".properties"):
        lines = [line.strip() for line in text.splitlines()]
        pairs = [line.partition("=") for line in lines if line and line[0] not in "#!"]
        return {name.strip(): value.strip() for name, _, value in pairs}
    import tomllib

    try:
        return dict(_flat("", tomllib.loads(text)))
    except tomllib.TOMLDecodeError as error:
        raise Failure(f"{path}: {error}", ExitCode.USAGE) from None


def _flat(prefix: str, tree: Mapping[str, Any]) -> "list[tuple[str, str]]":
    found: list[tuple[str, str]] = []
    for name, value in tree.items():
        if isinstance(value, dict):
            found += _flat(f"{prefix}{name}.", value)
        else:
            found.append((prefix + name, str(value).lower() if isinstance(value, bool) else str(value)))
    return found

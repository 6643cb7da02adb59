"""Modules are also named by strings (children, lazy imports, loggers, docs): each of these names has to exist."""

import re
from collections.abc import Iterator
from pathlib import Path

from tailrace.broker.configs.ignored import family_of
from tailrace.broker.configs.tables import BROKER_KEYS, TOPIC_KEYS
from tailrace.spark import _HOMES

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"(?<![\w./-])tailrace(?:\.[a-z_0-9]+)+")
NOT_MODULES = {
    "tailrace.__file__": "an attribute",
    "tailrace.format": "a file in a data directory",
    "tailrace.journal": "a file in a data directory",
    "tailrace.librdkafka": "a logger, of the client library",
    "tailrace.options": "a key in the metadata of a table's column",
    "tailrace.restored": "a file in a data directory",
    "tailrace.service": "a systemd unit",
    "tailrace.spark.pipeline": "a logger, and a property of Spark's jobs",
}


def files() -> Iterator[Path]:
    for folder, pattern in (
        ("src", "*.py"),
        ("src", "*.properties"),
        ("scripts", "*"),
        ("packaging", "*"),
        ("bench", "*.py"),
    ):
        yield from sorted(path for path in (ROOT / folder).rglob(pattern) if path.is_file())
    yield from (ROOT / name for name in ("pyproject.toml", "Makefile", "docs/OPERATING.md"))


def is_module(name: str) -> bool:
    path = ROOT / "src" / Path(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def is_attribute(name: str) -> bool:
    """By the text of the module: importing it could need a package that is not installed."""
    module, _, attribute = name.rpartition(".")
    path = ROOT / "src" / Path(*module.split("."))
    source = path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"
    defined = re.compile(rf"^(?:class |def |async def |)({attribute})\b", re.MULTILINE)
    return source.is_file() and defined.search(source.read_text()) is not None


def is_config(name: str) -> bool:
    """Also the beginning of the names of several configs."""
    return family_of(name) is not None or any(f"{key}.".startswith(f"{name}.") for key in (*BROKER_KEYS, *TOPIC_KEYS))


def names() -> dict[str, list[str]]:
    """Each name, with the files that have it."""
    found: dict[str, list[str]] = {}
    for path in files():
        for name in NAME.findall(path.read_text(errors="replace")):
            found.setdefault(name, []).append(str(path.relative_to(ROOT)))
    return found


def test_each_module_that_a_string_names_exists() -> None:
    known = (is_module, is_config, NOT_MODULES.__contains__, is_attribute)
    assert {name: paths for name, paths in names().items() if not any(check(name) for check in known)} == {}


def test_each_exception_is_needed() -> None:
    assert NOT_MODULES.keys() - names().keys() == set()


def test_each_name_that_is_imported_on_demand_has_a_module() -> None:
    assert all(is_module(f"tailrace.spark.pipelines.{home}") for home in _HOMES)

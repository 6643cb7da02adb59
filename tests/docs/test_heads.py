"""The head of each package, its reading order, has a line for each module and folder in it, and for nothing else."""

import ast
import re
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src" / "tailrace"
PACKAGES = sorted(init.parent for init in SOURCES.rglob("__init__.py"))
LISTED_BY_NAME = {"broker/apis", "protocol/messages"}  # the listing is the map: one module for each API key
MODULES_MAX = 14  # of a folder; the aim is 12
LINE = re.compile(r"^ *(?P<name>[a-z][a-z_0-9]*)(?P<suffix>/|\.py)? {2,}\S")


def entries(package: Path) -> set[str]:
    modules = {file.stem for file in package.glob("*.py")} - {"__init__", "__main__"}
    return modules | {f"{folder.parent.name}/" for folder in package.glob("*/__init__.py")}


def listed(package: Path) -> list[str]:
    """The names that begin a line of the head's lists: two spaces or more follow them."""
    head = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    lines = [line for line in map(LINE.match, head.splitlines()) if line]
    return [line["name"] + ("/" if line["suffix"] == "/" else "") for line in lines]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.relative_to(SOURCES)))
def test_the_head_of_a_package_lists_what_is_in_it(package: Path) -> None:
    if package.relative_to(SOURCES).as_posix() in LISTED_BY_NAME:
        return
    assert sorted(listed(package)) == sorted(entries(package))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.relative_to(SOURCES)))
def test_a_folder_is_small_enough_to_be_read(package: Path) -> None:
    if package.relative_to(SOURCES).as_posix() not in LISTED_BY_NAME:
        assert len([entry for entry in entries(package) if not entry.endswith("/")]) <= MODULES_MAX

"""The manual's pages: their commands are run by CI, and each page can be found."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
CI = (ROOT / ".ci" / "run").read_text()


def blocks_of(page: Path) -> list[tuple[list[str], str]]:
    return [(block["info"].split() or [""], block["body"]) for block in FENCE.finditer(page.read_text())]


def run_by_ci() -> set[str]:
    """Pages that .ci/run gives to scripts/readme_blocks.py."""
    return {Path(page).name for page in re.findall(r"[\w/]+\.md", CI)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_programs_of_a_page_are_run_by_ci(page: Path) -> None:
    runnable = [body for info, body in blocks_of(page) if info[0] in ("console", "python") and "no-run" not in info]
    if runnable:
        assert page.name in run_by_ci()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_stand_in_blocks_that_can_be_run(page: Path) -> None:
    for info, body in blocks_of(page):
        assert info[0] not in ("bash", "sh", "shell", "shell-session"), f"use console: {body}"
        if info[0] not in ("console", "text"):  # CLI.md shows help as text
            assert not re.search(r"^\$ ", body, re.MULTILINE), body


def test_the_pages_that_ci_runs_exist() -> None:
    assert run_by_ci() >= {"README.md", "OPERATING.md", "INSTALL.md"}
    assert run_by_ci() <= {page.name for page in PAGES}


def test_every_page_is_named_in_the_readme_and_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")
    assert yaml.safe_load("nav:" + navigation[2])
    for page in PAGES[1:]:
        assert f"](docs/{page.name})" in README.read_text(), f"README does not name {page.name}"
        assert re.search(rf": {page.name}$", navigation[2], re.MULTILINE), f"mkdocs.yml does not name {page.name}"


def test_the_readme_installs_before_it_uses_the_command_and_as_the_page_says() -> None:
    text = README.read_text()
    section = text.partition("\n## Install\n")[2].partition("\n## ")[0]
    commands = re.findall(r"^\$ (.+)$", section, re.MULTILINE)
    assert len(commands) == 3
    assert set(commands) <= set(re.findall(r"^\$ (.+)$", (ROOT / "docs" / "INSTALL.md").read_text(), re.MULTILINE))
    assert text.index("\n## Install\n") < text.index("$ tailrace ")


def test_no_page_of_the_project_has_a_placeholder() -> None:
    for page in [*PAGES, *ROOT.glob("*.md"), *(ROOT / "docs" / "notes").rglob("*.md")]:
        found = re.findall(r"\b(?:TODO|FIXME|TBD|XXX|[A-Z]+_FIGURE)\b", page.read_text())
        assert found == [], f"{page.name} has {found}"


PROSE = [*PAGES, *ROOT.glob("[A-Z]*.md"), *(ROOT / "docs").glob("*/**/*.md"), *(ROOT / ".github").rglob("*.md")]


@pytest.mark.parametrize("page", sorted(set(PROSE)), ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_fits_120_columns(page: Path) -> None:
    prose = FENCE.sub("", page.read_text())
    long = [line for line in prose.splitlines() if len(line) > 120 and not line.lstrip().startswith("|")]
    assert long == []


MADE = {"CLI.md", "CONFIGS.md", "PROTOCOL.md"}  # scripts write them


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in MADE], ids=lambda page: page.name)
def test_no_cell_of_a_table_is_a_paragraph(page: Path) -> None:
    for line in page.read_text().splitlines():
        if line.startswith("|"):
            assert max(map(len, re.split(r" \| ", line.strip("| ")))) <= 200, line


def test_the_readme_leaves_the_clone_before_its_first_example() -> None:
    """In the clone, pytest reads the options of the project's own tests, and plugins that only those need."""
    section = README.read_text().partition("\n## Use it\n")[2]
    assert re.findall(r"^\$ (.+)$", section, re.MULTILINE)[0].startswith("mkdir ~/tailrace-start && cd ")

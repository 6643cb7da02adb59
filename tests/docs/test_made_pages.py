"""The pages that are made from the code say what the code says now."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tailrace.cli.app import VERBS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def load_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("protocol_page")


def test_the_pages_are_what_the_script_writes(script: ModuleType) -> None:
    for name, make in script.PAGES.items():
        assert (DOCS / name).read_text() == make(), f"{name} is out of date: run scripts/protocol_page.py"


def test_the_page_of_the_command_line_is_what_the_script_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")  # the terminal's width must not matter
    page = load_script("cli_page").page()
    assert (DOCS / "CLI.md").read_text() == page, "CLI.md is out of date: run scripts/cli_page.py"


def test_every_verb_has_a_section_on_the_page_of_the_command_line() -> None:
    page = (DOCS / "CLI.md").read_text()
    for verb in VERBS:
        assert f"\n## tailrace {verb}\n" in page


def test_every_api_of_the_registry_has_a_row_and_a_section(script: ModuleType) -> None:
    page = (DOCS / "PROTOCOL.md").read_text()
    for entry in script.entries():
        assert f"| {int(entry.api.key)} | [{entry.head.name}]" in page
        assert f"\n## {entry.head.name} ({int(entry.api.key)})\n" in page


def test_a_head_without_its_parts_is_refused(script: ModuleType) -> None:
    module = SimpleNamespace(__name__="k99_nothing", __doc__="Nothing (key 99): nothing.\n\nVersions 0.")
    with pytest.raises(ValueError, match="k99_nothing"):
        script.head_of(module)


def test_links_between_the_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_tests_and_modules_that_the_pages_name_are_there() -> None:
    for page in DOCS.glob("*.md"):
        for named in re.findall(r"`((?:tests|src|scripts)/[\w/.-]+)`", page.read_text()):
            assert (ROOT / named).exists(), f"{page.name} names {named}"

"""The documentation site: it builds without a warning, and loads nothing from elsewhere."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
LOADED = re.compile(r'<(?:link|script|img|iframe)\b[^>]*?(?:src|href)="?(https?:[^" >]+)', re.IGNORECASE)


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_site", ROOT / "scripts" / "docs_site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("uri", "link", "translated"),
    [
        ("index.md", "docs/GROUPS.md", "GROUPS.md"),
        ("index.md", "docs/OPERATING.md#flags", "OPERATING.md#flags"),
        ("OPERATING.md", "../README.md", "index.md"),
        ("notes/decisions/journal.md", "../../FORMAT.md", "../../FORMAT.md"),
        ("notes/performance-diary.md", "../../bench/results/run.md", "../bench/results/run.md"),
        ("bench/results/run.md", "run-cost.svg", "run-cost.svg"),
        ("CONTRIBUTING.md", "docs/notes/decisions/index.md", "notes/decisions/index.md"),
        ("OPERATING.md", "https://example.org/docs/a.md", "https://example.org/docs/a.md"),
        ("OPERATING.md", "#flags", "#flags"),
    ],
)
def test_links_of_the_repository_become_links_of_the_site(
    hooks: ModuleType, uri: str, link: str, translated: str
) -> None:
    assert hooks.with_site_links(f"see [it]({link}).", uri) == f"see [it]({translated})."


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_loads_nothing_from_other_hosts(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len(list((ROOT / "docs").rglob("*.md")))
    for page in pages:
        assert LOADED.findall(page.read_text()) == [], page.name
    styles = "".join(style.read_text() for style in tmp_path.rglob("*.css"))
    assert not re.search(r"url\(['\"]?https?:|@import", styles)

"""The files around the code say what the Makefile and CI really do."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
VERBS = set(re.findall(r"^([a-z-]+):.*##", MAKEFILE, re.MULTILINE))


def steps_of(verb: str) -> list[str]:
    recipe = re.search(rf"^{verb}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert recipe is not None
    return [line.strip().replace("$(PY)", ".venv/bin/python") for line in recipe[1].splitlines()]


def test_the_hooks_of_pre_commit_are_the_steps_of_make_check_and_are_local() -> None:
    repositories = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repository["repo"] for repository in repositories] == ["local"]
    hooks = repositories[0]["hooks"]
    assert [hook["entry"] for hook in hooks] == steps_of("check")
    assert {hook["language"] for hook in hooks} == {"system"}


def test_the_workflow_runs_the_whole_check_and_names_what_it_leaves_out() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    steps = yaml.safe_load(text)["jobs"]["check"]["steps"]
    assert ".ci/run" in [step.get("run") for step in steps]
    comment = " ".join(line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
    left_out = set(re.findall(r"make ([a-z-]+)", comment))
    assert left_out == {verb for verb in VERBS if verb == "crash" or verb.startswith("bench")}


def test_every_make_verb_that_a_page_names_exists() -> None:
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    for page in [*pages, *(ROOT / "docs").rglob("*.md"), *(ROOT / ".github").rglob("*.md")]:
        for verb in re.findall(r"`(?:\w+=\w+ )?make ([a-z-]+)", page.read_text()):
            assert verb in VERBS, f"{page.name} names make {verb}"


def test_links_of_the_project_pages_lead_somewhere() -> None:
    for page in [ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *(ROOT / "docs" / "notes").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"

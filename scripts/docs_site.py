"""Hooks of mkdocs.yml: lets the site use the repository's files where they are.

- Pages outside docs/ (README, CHANGELOG, CONTRIBUTING, SECURITY, the newest benchmark run) join the site. Links between
  all pages are written for a reader of the repository; they are translated to the site's paths.
- Words after the language of a code block (```` ```console check ````) are for scripts/readme_blocks.py and go.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = "docs"
OUTSIDE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE")
RESULTS = "bench/results"

_LINK = re.compile(r"(!?\[[^\]]*\])\(([^)#:\s]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"^( *```\w+) .*$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name in OUTSIDE:
        files.append(_outside(name, config))
    for result in sorted((ROOT / RESULTS).iterdir()):
        level = InclusionLevel.NOT_IN_NAV if result.suffix == ".md" else InclusionLevel.INCLUDED
        files.append(_outside(f"{RESULTS}/{result.name}", config, level))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return _FENCE.sub(r"\1", with_site_links(markdown, page.file.src_uri))


def with_site_links(markdown: str, uri: str) -> str:
    """`markdown` with its relative links, which are those of the repository, as the site's page `uri` needs them."""
    here = posixpath.dirname(repository_path(uri))

    def translated(link: re.Match[str]) -> str:
        target = site_uri(posixpath.normpath(posixpath.join(here, link[2])))
        return f"{link[1]}({posixpath.relpath(target, posixpath.dirname(uri) or '.')}{link[3] or ''})"

    return _LINK.sub(translated, markdown)


def repository_path(uri: str) -> str:
    if uri == "index.md":
        return "README.md"
    return uri if uri in OUTSIDE or uri.startswith(f"{RESULTS}/") else f"{DOCS}/{uri}"


def site_uri(path: str) -> str:
    return "index.md" if path == "README.md" else path.removeprefix(f"{DOCS}/")


def _outside(path: str, config: MkDocsConfig, level: InclusionLevel = InclusionLevel.INCLUDED) -> File:
    return File.generated(config, site_uri(path), content=(ROOT / path).read_bytes(), inclusion=level)

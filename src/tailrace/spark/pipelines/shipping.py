"""Makes a zip of tailrace's Python files, for clusters that do not have it installed (`--py-files`)."""

import zipfile
from pathlib import Path

import tailrace

_PACKAGES = ("tailrace", "pyspark_tailrace")


def make_zip(path: str | Path) -> None:
    source = Path(tailrace.__file__).parent.parent
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in _PACKAGES:
            for file in sorted((source / package).rglob("*.py")):
                archive.write(file, file.relative_to(source))

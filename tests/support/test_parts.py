import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("required", "outcome"),
    [
        ("", "1 skipped"),
        ("java", "1 skipped"),
        ("java, kafka", "1 error"),
        ("kafak", "TAILRACE_REQUIRE names ['kafak']"),
    ],
    ids=["nothing required", "another part required", "this part required", "unknown part required"],
)
def test_a_missing_part_skips_unless_it_is_required(tmp_path: Path, required: str, outcome: str) -> None:
    support = Path(__file__).parent
    for path in (support.parent / "conftest.py", support / "parts.py", support / "postgres.py"):
        shutil.copy(path, tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = needs\npythonpath = .\n")
    (tmp_path / "test_it.py").write_text("import pytest\n@pytest.mark.needs('kafka')\ndef test_it(): pass\n")
    environment = os.environ | {"TAILRACE_KAFKA_JARS": str(tmp_path / "none"), "TAILRACE_REQUIRE": required}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert outcome in done.stdout + done.stderr

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.cli.common.output import ExitCode
from tailrace.server.settings import read_settings

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
PROGRAM = Path(sys.executable).with_name("tailrace")
EXPOSURE_MAX = 2.0  # of systemd's scale from 0 to 10


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that exists here; all else is as shipped."""
    text = (PACKAGING / "tailrace.service").read_text()
    assert text.count("/opt/tailrace/bin/tailrace") == 1
    unit = tmp_path / "tailrace.service"
    unit.write_text(text.replace("/opt/tailrace/bin/tailrace", str(PROGRAM)))
    return unit


def analyze(*arguments: object) -> str:
    command = ["systemd-analyze", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.needs("systemd")
def test_systemd_accepts_the_unit_without_a_warning(unit: Path) -> None:
    assert analyze("verify", "--man=no", unit) == ""


@pytest.mark.needs("systemd")
def test_systemd_notices_a_directive_that_it_does_not_know(unit: Path) -> None:
    unit.write_text(unit.read_text().replace("NoNewPrivileges=", "NoNewPrivilege="))
    assert "NoNewPrivilege" in analyze("verify", "--man=no", unit)


@pytest.mark.needs("systemd")
def test_systemd_counts_the_unit_as_hardened(unit: Path) -> None:
    report = analyze("security", "--offline=true", "--no-pager", unit)
    exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", report)
    assert exposure is not None
    assert float(exposure[1]) <= EXPOSURE_MAX


@pytest.mark.needs("systemd")
def test_systemd_accepts_the_unit_that_operating_shows_for_latency(unit: Path) -> None:
    page = (ROOT / "docs" / "OPERATING.md").read_text()
    shown = unit.with_name("tailrace-latency.service")
    shown.write_text(page.partition("```ini\n")[2].partition("```")[0])
    assert analyze("verify", "--man=no", shown) == ""


def test_the_unit_gives_up_only_on_errors_that_a_restart_cannot_fix() -> None:
    prevented = re.search(r"^RestartPreventExitStatus=(.*)", (PACKAGING / "tailrace.service").read_text(), re.MULTILINE)
    assert prevented is not None
    assert [ExitCode(int(code)) for code in prevented[1].split()] == [ExitCode.USAGE, ExitCode.REFUSED]


def test_the_units_configuration_is_the_default_with_the_state_directory() -> None:
    shipped = read_settings(config_file=str(PACKAGING / "tailrace.toml"))
    assert shipped.configs == {"log.retention.hours": "168"}
    default = read_settings(data="/var/lib/tailrace", configs=["log.retention.hours=168"])
    assert shipped._replace(metrics_is_default=True) == default


LAUNCHER = """
import ctypes, os, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):  # PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN
    sys.exit(77)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_the_broker_works_where_no_memory_is_both_writable_and_executable(tmp_path: Path) -> None:
    """As `MemoryDenyWriteExecute=` of the unit demands it."""
    serve = [str(PROGRAM), "serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--metrics", "off"]
    process = subprocess.Popen([sys.executable, "-c", LAUNCHER, *serve], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        if not (line := process.stdout.readline()) and process.wait(30) == 77:
            pytest.skip("this kernel cannot deny it (Linux 6.3 and later can)")
        assert line.startswith("listening on"), line
        subprocess.run([PROGRAM, "produce", "orders", "-b", line.split()[-1]], input="tea\n", text=True, check=True)
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == 0

"""Checks of `tailrace doctor` on the machine: limits, memory, clock, and installed versions."""

import ctypes
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path
from sysconfig import get_config_var

from tailrace import __version__
from tailrace.cli.common import output
from tailrace.cli.doctor.check import Check, ok, warning

_OPEN_FILES_WANTED = 4096
_MEMORY_WANTED = 512 << 20
_JUMP_S = 0.05
_UNSYNCHRONISED = 0x40  # STA_UNSYNC
_STATUS_AT, _TIMEX_BYTES = 40, 512  # of Linux' struct timex on 64 bits; more than it needs


def machine_checks() -> Iterator[Check]:
    yield _open_files()
    yield _memory()
    yield _clock()
    yield from _versions()


def _open_files() -> Check:
    name = "open files"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = "no limit" if soft == resource.RLIM_INFINITY else f"up to {soft:,}"
    if soft != resource.RLIM_INFINITY and soft < _OPEN_FILES_WANTED:
        possible = (
            ""
            if hard == resource.RLIM_INFINITY or hard >= _OPEN_FILES_WANTED
            else " (as root: the hard limit is lower)"
        )
        advice = f"ulimit -n 65536, or LimitNOFILE=65536 in systemd{possible}: half is for connections, half for logs"
        return warning(name, text, advice)
    return ok(name, text)


def _memory() -> Check:
    """Checks the memory that is left for a broker, and for the page cache that it depends on."""
    name = "memory"
    limits = [limit for limit in (_available(), _cgroup_limit(), _address_space()) if limit is not None]
    if not limits:
        return ok(name, "unknown: the system does not report it")
    least = min(limits)
    text = f"{output.size(least)} can be used"
    if least < _MEMORY_WANTED:
        return warning(name, text, "give it 512 MB or more: what does not fit the page cache is read from the disk")
    return ok(name, text)


def _available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return None


def _cgroup_limit() -> int | None:
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        return int(text) if text.isdigit() and int(text) < 1 << 60 else None
    return None


def _address_space() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def _clock() -> Check:
    """Timestamps, and retention by age, rest on it."""
    name = "clock"
    began = time.time() - time.monotonic()
    time.sleep(0.1)
    jump = time.time() - time.monotonic() - began
    if abs(jump) > _JUMP_S:
        return warning(
            name, f"it jumped by {jump:+.2f} s in a tenth of a second", "let one program set it: chrony, or ntpd"
        )
    synchronised = _is_synchronised()
    if synchronised is False:
        advice = "turn on chrony or systemd-timesyncd: timestamps and retention by age rest on it"
        return warning(name, "it is not synchronised", advice)
    return ok(name, "steady, and synchronised" if synchronised else "steady")


def _is_synchronised() -> bool | None:
    """Returns whether the kernel considers the clock synchronised; None if it does not say."""
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_long) != 8:
        return None
    buffer = ctypes.create_string_buffer(_TIMEX_BYTES)  # zeros: only asks
    try:
        if ctypes.CDLL(None).adjtimex(buffer) < 0:
            return None
    except (OSError, AttributeError):
        return None
    return not int.from_bytes(buffer.raw[_STATUS_AT : _STATUS_AT + 4], sys.byteorder) & _UNSYNCHRONISED


def _versions() -> Iterator[Check]:
    yield ok("tailrace", f"{__version__}, {platform.system()} {platform.machine()}")
    yield _python()
    yield _installed("uvloop", "asyncio's own loop is used", "pip install uvloop: round trips are a third faster")
    yield _record_parser()
    yield _kafka_client()
    if _version("pyspark") is not None:
        yield _spark()


def is_optimized(configured: str) -> bool:
    """Whether an interpreter was built with profile-guided optimization, by the options of its build.

    Debian sets it by other means: a build for /usr is one of a distribution.
    """
    return "--enable-optimizations" in configured or "'--prefix=/usr'" in configured


def runs_optimized() -> bool:
    return is_optimized(get_config_var("CONFIG_ARGS") or "")


def _python() -> Check:
    text = f"{platform.python_implementation()} {platform.python_version()}"
    if runs_optimized():
        return ok("python", text)
    advice = "use the system's own python3, or build it with --enable-optimizations (pyenv: PYTHON_CONFIGURE_OPTS)"
    return warning("python", f"{text}, built without optimizations: it takes half as long again", advice)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _installed(package: str, without: str, advice: str) -> Check:
    version = _version(package)
    return warning(package, without, advice) if version is None else ok(package, version)


def _record_parser() -> Check:
    name = "records"
    try:
        import_module("aiokafka.record._crecords")
    except ImportError:
        advice = "install aiokafka as a wheel for this Python: pip install --force-reinstall aiokafka"
        return warning(name, "aiokafka's compiled parser is missing: records are read thirty times slower", advice)
    return ok(name, f"compiled parser of aiokafka {_version('aiokafka')}, cramjam {_version('cramjam')}")


def _kafka_client() -> Check:
    try:
        found = import_module("confluent_kafka").libversion()[0]
    except ImportError as error:
        return warning("librdkafka", f"it cannot be loaded: {error}", "pip install --force-reinstall confluent-kafka")
    return ok("librdkafka", f"{found}, confluent-kafka {_version('confluent-kafka')}")


def _spark() -> Check:
    java = shutil.which("java", path=_java_path())
    if java is None:
        return warning(
            "spark", f"pyspark {_version('pyspark')}, but no Java", "install Java 17 or later, or set JAVA_HOME"
        )
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=5).stderr  # noqa: S603 - found by name
    except (OSError, subprocess.TimeoutExpired):
        return warning("spark", f"{java} does not run", "install Java 17 or later, or set JAVA_HOME")
    first = said.splitlines()[0] if said else "Java"
    return ok("spark", f"pyspark {_version('pyspark')}, {first}")


def _java_path() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin" if home else None

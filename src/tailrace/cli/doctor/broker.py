"""Checks of `tailrace doctor` on a broker: whether it responds, how fast, and what its metrics say.

The one request that it sends is ApiVersions in its oldest version, which every Kafka answers; so a broker is told from
anything else that has taken its port.
"""

import http.client
import os
import re
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tailrace.cli.doctor.check import Check, milliseconds, ok, percentile, problem, warning

_TIMEOUT_S = 2.0
_ROUND_TRIPS = 50
_FRAME = struct.Struct(">ihhih")  # length, API key, version, correlation id, no client id
_ANSWER = struct.Struct(">iihi")  # length, correlation id, error, how many APIs
_API_VERSIONS = 18
_SLOW_S = 0.05
_LISTEN = "0A"  # the state of a socket, as /proc/net/tcp has it
_ANSWER_BYTES_MAX = 1 << 20


class NoBroker(Exception):
    """The address has no broker. The message says what it has instead."""


def ask(connection: socket.socket, correlation_id: int) -> int:
    """Returns the number of APIs that the broker has. Raises NoBroker."""
    connection.sendall(_FRAME.pack(_FRAME.size - 4, _API_VERSIONS, 0, correlation_id, -1))
    length, correlated, error, count = _ANSWER.unpack(_receive(connection, _ANSWER.size))
    if correlated != correlation_id or error or not _ANSWER.size - 4 <= length <= _ANSWER_BYTES_MAX:
        raise NoBroker("something answers that is no broker")
    _receive(connection, length - _ANSWER.size + 4)
    return int(count)


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise NoBroker("something is there that hangs up")
        data += piece
    return data


def broker_checks(host: str, port: int, metrics: tuple[str, int], *, is_wanted: bool) -> Iterator[Check]:
    """Checks the broker. `is_wanted` where the user named it: then it is a problem if there is none."""
    name, where = "broker", f"{host}:{port}"
    try:
        with socket.create_connection((host, port), _TIMEOUT_S) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield _round_trips(connection, where)
    except ConnectionRefusedError:
        if is_wanted:
            yield problem(name, f"nothing listens at {where}", "start it: tailrace serve; or choose another: -b")
        else:
            yield from _free_ports(where, metrics)
        return
    except (NoBroker, OSError) as error:
        yield problem(name, f"{where}: {_reason(error)}{_holder(port)}", "choose another port: tailrace serve --listen")
        return
    yield from _page(metrics)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "something is there, and does not answer"
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _round_trips(connection: socket.socket, where: str) -> Check:
    took, count = [], 0
    for number in range(_ROUND_TRIPS):
        began = time.perf_counter()
        count = ask(connection, number)
        took.append(time.perf_counter() - began)
    half, most = percentile(took, 0.5), percentile(took, 0.99)
    text = f"{where} answers, {count} APIs; round trip p50 {milliseconds(half)}, p99 {milliseconds(most)}"
    if half > _SLOW_S:
        return warning("broker", text, "look at loop lag below, and at what else runs on that machine")
    return ok("broker", text)


def _free_ports(where: str, metrics: tuple[str, int]) -> Iterator[Check]:
    yield ok("broker", f"none runs at {where}, and the port is free")
    host, port = metrics
    try:
        with socket.create_server((host, port)):
            pass
    except OSError as error:
        text = f"{host}:{port}, for /metrics, is not free: {error.strerror}{_holder(port)}"
        yield warning("port", text, "tailrace serve --metrics HOST:PORT chooses another")


def _holder(port: int) -> str:
    """Returns the process that listens on a port of this machine, if that is visible."""
    sockets = _listening(port)
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's, or gone
            if any(_target(descriptor) in sockets for descriptor in (process / "fd").iterdir()):
                return f" (process {process.name}, {(process / 'comm').read_text().strip()})"
    return ""


def _listening(port: int) -> set[str]:
    """The sockets that listen there, as the descriptors of a process name them."""
    found: set[str] = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):  # not on every system
            rows = [line.split() for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
            here = [row for row in rows if row[3] == _LISTEN and int(row[1].rpartition(":")[2], 16) == port]
            found |= {f"socket:[{row[9]}]" for row in here}
    return found


def _target(descriptor: Path) -> str:
    try:
        return os.readlink(descriptor)
    except OSError:
        return ""


# What its page says


def _page(metrics: tuple[str, int]) -> Iterator[Check]:
    host, port = metrics
    try:
        text = read_page(host, port)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or error
        yield warning("health", f"no page at {host}:{port}: {reason}", "--metrics HOST:PORT says where its pages are")
        return
    yield from health(text)


def read_page(host: str, port: int) -> str:
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise http.client.HTTPException(f"it answers {response.status}")
        return response.read().decode(errors="replace")
    finally:
        connection.close()


_FAULTS = {
    "tailrace_scrub_faults_total": (
        "times what is kept beside the logs was rotten, or the disk could not read",
        "see its log for which; if it grows, look at the disk",
    ),
    "tailrace_compaction_failures_total": ("times a log could not be compacted", "see its log for which and why"),
}


def health(page: str) -> Iterator[Check]:
    """Checks the metrics of a broker."""
    offline = values(page, "tailrace_logs_offline")
    if offline is None:
        yield warning(
            "health", "the page is not that of a tailrace broker", "--metrics HOST:PORT says where its pages are"
        )
        return
    if offline:
        yield problem("health", f"{offline:.0f} logs take no appends: a disk failed", "see its log, then restart it")
    damaged = {name: found for name in damage_metrics(page) if (found := values(page, name))}
    for name, found in damaged.items():
        yield problem(
            "health", f"{name} is {found:.0f}", "tailrace log verify DATA_DIR says where, tailrace log repair helps"
        )
    is_low = bool(values(page, "tailrace_disk_is_low"))
    if is_low:
        yield problem("health", "appends are refused, as its disk is nearly full", "make room, or let it keep less")
    if not offline and not damaged and not is_low:
        yield ok("health", "no log is offline, no damage is known, and there is room on the disk")
    for name, (text, advice) in _FAULTS.items():
        if found := values(page, name):
            yield warning("health", f"{found:.0f} {text}, since its start", advice)
    yield _histogram(page, "tailrace_loop_lag_seconds", "loop lag", "too much runs on this machine, or on this broker")
    yield _histogram(page, "tailrace_flush_duration_seconds", "flush time", "the disk is slow, or shared with others")


def damage_metrics(page: str) -> list[str]:
    return sorted(set(re.findall(r"^(tailrace_\w*(?:damaged|rotten)\w*?)(?:\{[^}]*\})? ", page, re.MULTILINE)))


def values(page: str, name: str) -> float | None:
    """The sum of a metric over its labels; None where there is none."""
    found = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", page, re.MULTILINE)
    return sum(map(float, found)) if found else None


def quantile(page: str, name: str, share: float) -> float | None:
    """The upper end of the bucket that it lies in; None where nothing was measured."""
    found = re.findall(rf'^{name}_bucket\{{le="([^"]+)"\}} (\d+)$', page, re.MULTILINE)
    buckets = [(float(limit), int(count)) for limit, count in found]
    if not buckets or not buckets[-1][1]:
        return None
    return next(limit for limit, count in buckets if count >= share * buckets[-1][1])


def _histogram(page: str, metric: str, name: str, advice: str) -> Check:
    half, most = quantile(page, metric, 0.5), quantile(page, metric, 0.99)
    if half is None or most is None:
        return ok(name, "nothing was measured yet")
    text = f"p50 up to {_upper(half)}, p99 up to {_upper(most)}, since its start"
    return warning(name, text, advice) if most > 2 * _SLOW_S else ok(name, text)


def _upper(seconds: float) -> str:
    return "more than 10 s" if seconds == float("inf") else milliseconds(seconds)

"""Checks of `tailrace doctor` on the disk: its kind, its speed, its space, and its file system.

The speed is measured with a file that has no name from the moment it is open: nothing is left behind, however this
ends.
"""

import errno
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tailrace.cli.common import output
from tailrace.cli.doctor.check import Check, milliseconds, ok, percentile, problem, warning

_WRITE_BYTES, _PIECE_BYTES = 64 << 20, 1 << 20
_SECONDS_MAX = 2.0  # of each measurement
_FLUSHES_MAX = 200
_FLUSH_SLOW_S = 0.05
_FLUSH_INCREDIBLE_S = 0.000_02  # no medium does that: something answers before the bytes are safe
_RESERVE_BYTES, _RESERVE_SHARE = 1 << 30, 0.05
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs")
_UNSAFE_OPTIONS = ("nobarrier", "barrier=0", "data=writeback", "nojournal")


def disk_checks(data: Path) -> Iterator[Check]:
    directory = _nearest(data)
    yield _directory(data, directory)
    yield _file_system(directory)
    yield _space(directory)
    if os.access(directory, os.W_OK):
        yield from _measured(directory)


def _nearest(data: Path) -> Path:
    """The directory, or the nearest one above that is there: it is on the same disk."""
    path = data.absolute()
    while not path.is_dir():
        path = path.parent
    return path


def _directory(data: Path, nearest: Path) -> Check:
    name = "directory"
    if not os.access(nearest, os.W_OK | os.X_OK):
        return problem(name, f"{nearest} cannot be written", f"give it to this user: chown {os.getuid()} {nearest}")
    if nearest != data.absolute():
        return ok(name, f"{data} is not there yet; {nearest} can be written")
    if (holder := _lock_holder(data / ".lock")) is not None:
        return ok(name, f"{data} is in use by process {holder}")
    return ok(name, f"{data} can be written, and no broker has it open")


def _lock_holder(lock: Path) -> int | None:
    """The process that has the file locked. By looking: to try would lock out a broker that just starts."""
    try:
        wanted = lock.stat()
        locks = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    device = f"{os.major(wanted.st_dev):02x}:{os.minor(wanted.st_dev):02x}:{wanted.st_ino}"
    holders = (int(lock.split()[4]) for lock in locks if f" {device} " in lock)
    return next((holder for holder in holders if holder > 0), None)  # a lock of an open file has no process: -1


def mount_of(path: Path, mounts: str) -> tuple[str, str]:
    """The kind of the file system that a path is on, and its options, by what /proc/self/mountinfo says."""
    best, kind, options = "", "unknown", ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields, behind = left.split(), right.split()
        point = fields[4].replace("\\040", " ")
        if len(point) >= len(best) and path.is_relative_to(point):
            best, kind, options = point, behind[0], f"{fields[5]},{behind[2] if len(behind) > 2 else ''}"
    return kind, options


def _file_system(directory: Path) -> Check:
    name = "file system"
    try:
        kind, options = mount_of(directory.resolve(), Path("/proc/self/mountinfo").read_text())
    except OSError:
        return ok(name, "unknown: only Linux reports it")
    unsafe = [option for option in options.split(",") if option in _UNSAFE_OPTIONS]
    if kind in ("tmpfs", "ramfs"):
        return problem(
            name, f"{kind}: it is memory, and gone with the next start", "choose a directory on a disk: --data"
        )
    if unsafe:
        return problem(
            name, f"{kind}, mounted with {unsafe[0]}", "mount it without: a power cut can lose what was flushed"
        )
    if kind in _REMOTE:
        return warning(
            name, f"{kind}: it is on another machine", "choose a local disk: locks and flushes are theirs there"
        )
    if kind == "overlay":
        return warning(name, "overlay: the layer of a container, gone with it", "mount a volume for the data directory")
    if kind.startswith("fuse"):
        return warning(
            name, f"{kind}: a program stands before the disk", "choose a local disk: it decides what a flush is"
        )
    return ok(name, kind)


def _space(directory: Path) -> Check:
    """A broker refuses appends below a reserve, which is a gigabyte or a twentieth of the disk."""
    name = "space"
    found = os.statvfs(directory)
    free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    reserve = min(_RESERVE_BYTES, int(_RESERVE_SHARE * total))
    text = f"{output.size(free)} free of {output.size(total)}"
    if free <= reserve:
        return problem(
            name, f"{text}: below the reserve of {output.size(reserve)}", "delete something, or lower retention"
        )
    if found.f_files and found.f_favail < 10_000:
        return problem(
            name, f"{text}, but room for only {found.f_favail:,} files", "make a file system with more inodes"
        )
    if free < 3 * reserve or free < 0.1 * total:
        return warning(name, text, "lower retention.bytes or retention.ms before it is full")
    return ok(name, text)


def _measured(directory: Path) -> Iterator[Check]:
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            yield _write_speed(file.fileno())
            yield _flush_speed(file.fileno())
            yield _kernel(file.fileno())
    except OSError as error:
        yield problem("disk", f"a file cannot be written in {directory}: {error.strerror}", "see to the disk first")


def _write_speed(descriptor: int) -> Check:
    piece, written = os.urandom(_PIECE_BYTES), 0
    began = time.perf_counter()
    while written < _WRITE_BYTES and time.perf_counter() - began < _SECONDS_MAX:
        written += os.write(descriptor, piece)
    os.fsync(descriptor)
    speed = written / (time.perf_counter() - began)
    text = f"{output.size(int(speed))}/s written and flushed"
    if speed < 20e6:
        return warning("disk speed", text, "a broker can take no more than that: choose a faster disk")
    return ok("disk speed", text)


def _flush_speed(descriptor: int) -> Check:
    """Measures a flush: an `acks=all` waits at least that long."""
    name, piece = "flushes", os.urandom(4096)
    took: list[float] = []
    end = time.perf_counter() + _SECONDS_MAX
    sync = getattr(os, "fdatasync", os.fsync)
    while len(took) < _FLUSHES_MAX and time.perf_counter() < end:
        os.write(descriptor, piece)
        began = time.perf_counter()
        sync(descriptor)
        took.append(time.perf_counter() - began)
    half, most = percentile(took, 0.5), percentile(took, 0.99)
    text = f"p50 {milliseconds(half)}, p99 {milliseconds(most)}"
    if half < _FLUSH_INCREDIBLE_S:
        return warning(name, f"{text}: faster than any disk", "make sure that its write cache survives a power cut")
    if most > _FLUSH_SLOW_S:
        return warning(
            name, text, "each acks=all waits as long: use a disk with a safe cache, or one with no other load"
        )
    return ok(name, text)


def _kernel(descriptor: int) -> Check:
    """Checks the system calls for reading without waiting, and for sending without copying."""
    name = "kernel"
    if not hasattr(os, "RWF_NOWAIT") or not hasattr(os, "sendfile"):
        return warning(name, "no RWF_NOWAIT: all reads go through threads", "use Linux 4.14 or later")
    try:
        os.preadv(descriptor, [bytearray(512)], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        pass
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        return warning(
            name, "this file system has no RWF_NOWAIT: all reads go through threads", "ext4, xfs and btrfs have it"
        )
    return ok(name, f"Linux {os.uname().release}, with RWF_NOWAIT and sendfile")

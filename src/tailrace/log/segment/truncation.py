"""Truncation that loses nothing: truncated bytes are kept beside the log, under a name that ends in .cut.

A crash at any point leaves a log without a gap, and no byte is lost: copies are on disk before the original is
truncated, and later segments are moved away from the newest to the oldest.
"""

from collections.abc import Sequence

from tailrace.log.disk.interface import Files, join, remove_if_there
from tailrace.log.layout.names import CUT
from tailrace.log.segment.preallocation import give_back
from tailrace.log.segment.segment import Segment

_COPY_BYTES = 1 << 20


def truncate_and_keep(
    files: Files, directory: str, segment: Segment, position: int, end: int, later: Sequence[Segment]
) -> tuple[str, ...]:
    """Truncates `segment`, whose file has `end` bytes, at `position`, and moves the later segments aside. Returns the
    names of the kept files.
    """
    kept_as = []
    if position < end:
        kept_as.append(copy_aside(files, directory, segment, position, end))
    for other in reversed(later):
        kept_as.append(move_aside(files, directory, other))
    files.sync_directory(directory)
    if position < end:
        segment.truncate_file(position)
    return tuple(kept_as)


def copy_aside(files: Files, directory: str, segment: Segment, position: int, end: int) -> str:
    """Copies these bytes to a file, durably, and returns its name. An identical copy that exists already is reused."""
    name = f"{segment.name}.{position}{CUT}"
    if files.exists(join(directory, name)) and not _is_copy(files, join(directory, name), segment, position, end):
        name = unused(files, directory, name)
    copy = files.open(join(directory, name), create=True)
    try:
        for start in range(position, end, _COPY_BYTES):
            copy.write_at(start - position, segment.log.read_at(start, min(_COPY_BYTES, end - start)))
        copy.sync()
    except OSError:
        remove_if_there(files, copy.path)  # else every retry would leave another copy; the original is still whole
        raise
    finally:
        copy.close()
    files.sync_directory(directory)
    return name


def _is_copy(files: Files, path: str, segment: Segment, position: int, end: int) -> bool:
    """Returns whether the file has these bytes. After a crash they may not all be on disk, so they are written again in
    any case.
    """
    copy = files.open(path)
    try:
        return copy.size() == end - position and all(
            copy.read_at(start - position, _COPY_BYTES) == segment.log.read_at(start, min(_COPY_BYTES, end - start))
            for start in range(position, end, _COPY_BYTES)
        )
    finally:
        copy.close()


def move_aside(files: Files, directory: str, segment: Segment) -> str:
    """Renames the segment to a kept file, and returns its name. Durable once the directory is synced."""
    name = unused(files, directory, segment.name + CUT)
    give_back(segment.log)
    files.rename(segment.log.path, join(directory, name))
    segment.remove()
    return name


def unused(files: Files, directory: str, name: str) -> str:
    """Returns a name like this one that no file has."""
    candidate, number = name, 1
    while files.exists(join(directory, candidate)):
        candidate, number = f"{name}.{number}", number + 1
    return candidate

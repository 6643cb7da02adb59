"""Truncation that destroys nothing: what is cut off is kept beside the log, under a name that ends in .cut.

A crash at any point of this leaves a log without a gap, and nothing that was not kept is gone: copies are on disk
before the original is shortened, and later segments are moved away the newest first.
"""

from collections.abc import Sequence

from tailrace.log.disk.interface import Files, join, remove_if_there
from tailrace.log.layout.names import CUT
from tailrace.log.segment.preallocation import give_back
from tailrace.log.segment.segment import Segment

_COPY_BYTES = 1 << 20


def cut_off(
    files: Files, directory: str, segment: Segment, position: int, end: int, later: Sequence[Segment]
) -> tuple[str, ...]:
    """Afterwards `segment`, whose file has `end` bytes, ends at `position` and the later ones are gone; returns the
    names of what is kept of them.
    """
    kept_as = []
    if position < end:
        kept_as.append(copy_aside(files, directory, segment, position, end))
    for other in reversed(later):
        kept_as.append(move_aside(files, directory, other))
    files.sync_directory(directory)
    if position < end:
        segment.cut(position)
    return tuple(kept_as)


def copy_aside(files: Files, directory: str, segment: Segment, position: int, end: int) -> str:
    """Afterwards a copy of these bytes is on disk, under the name that is returned. One that is there stands
    for it.
    """
    name = f"{segment.name}.{position}{CUT}"
    if files.exists(join(directory, name)) and not _is_copy(files, join(directory, name), segment, position, end):
        name = unused(files, directory, name)
    copy = files.open(join(directory, name), create=True)
    try:
        for start in range(position, end, _COPY_BYTES):
            copy.write_at(start - position, segment.log.read_at(start, min(_COPY_BYTES, end - start)))
        copy.sync()
    except OSError:
        remove_if_there(files, copy.path)  # or each try would leave another one; the original is still whole
        raise
    finally:
        copy.close()
    files.sync_directory(directory)
    return name


def _is_copy(files: Files, path: str, segment: Segment, position: int, end: int) -> bool:
    """Of what a crash has left, perhaps not all is on disk: it is written once more at any rate."""
    copy = files.open(path)
    try:
        return copy.size() == end - position and all(
            copy.read_at(start - position, _COPY_BYTES) == segment.log.read_at(start, min(_COPY_BYTES, end - start))
            for start in range(position, end, _COPY_BYTES)
        )
    finally:
        copy.close()


def move_aside(files: Files, directory: str, segment: Segment) -> str:
    """Afterwards the segment is none any more, and its bytes are kept; that is on disk with the directory."""
    name = unused(files, directory, segment.name + CUT)
    give_back(segment.log)
    files.rename(segment.log.path, join(directory, name))
    segment.remove()
    return name


def unused(files: Files, directory: str, name: str) -> str:
    """A name like this one that no file has."""
    candidate, number = name, 1
    while files.exists(join(directory, candidate)):
        candidate, number = f"{name}.{number}", number + 1
    return candidate

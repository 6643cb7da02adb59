"""Ending a log early without destroying anything: what is cut off is kept beside it, under a name that ends in .cut.

A crash at any point of this leaves a log without a gap, and nothing that was not kept is gone: copies are on disk
before the original is shortened, and later segments are moved away the newest first.
"""

from collections.abc import Sequence

from tailrace.log.files import Files, join
from tailrace.log.names import CUT
from tailrace.log.segment import Segment

_COPY_BYTES = 1 << 20


def cut_off(files: Files, directory: str, segment: Segment, position: int, later: Sequence[Segment]) -> tuple[str, ...]:
    """Afterwards `segment` ends at `position` and the later ones are gone; returns the names of what is kept of
    them.
    """
    kept_as = []
    if position < segment.size:
        kept_as.append(_copy_aside(files, directory, segment, position))
    for other in reversed(later):
        kept_as.append(_move_aside(files, directory, other))
    files.sync_directory(directory)
    if position < segment.size:
        segment.cut(position)
    return tuple(kept_as)


def _copy_aside(files: Files, directory: str, segment: Segment, position: int) -> str:
    name = _unused(files, directory, f"{segment.name}.{position}{CUT}")
    copy = files.open(join(directory, name), create=True)
    try:
        for start in range(position, segment.size, _COPY_BYTES):
            copy.write_at(start - position, segment.log.read_at(start, min(_COPY_BYTES, segment.size - start)))
        copy.sync()
    finally:
        copy.close()
    files.sync_directory(directory)
    return name


def _move_aside(files: Files, directory: str, segment: Segment) -> str:
    name = _unused(files, directory, segment.name + CUT)
    files.rename(segment.log.path, join(directory, name))
    segment.remove()
    return name


def _unused(files: Files, directory: str, name: str) -> str:
    candidate, number = name, 1
    while files.exists(join(directory, candidate)):
        candidate, number = f"{name}.{number}", number + 1
    return candidate

"""Power cuts of a disk in memory: the states that it may be left in, at each call from some call on."""

from collections.abc import Iterator
from copy import copy

from tailrace.testing.recording_files import RecordingFiles


def cuts_during(files: RecordingFiles, first: int, tries: int = 12) -> Iterator[tuple[int, RecordingFiles]]:
    """States of the disk that a power cut may leave after each call from the first on, with the number of calls. Writes
    are whole or lost: a torn one before one that is whole is damage, for which the broker does not start.
    """
    seen: set[tuple[int, int]] = set()
    for after in range(first, len(files.calls) + 1):
        until = copy(files)
        until.calls = files.calls[:after]
        for seed in range(tries):
            cut = until.power_cut(seed, tears=False)
            if (after, cut.disk.fingerprint()) not in seen:
                seen.add((after, cut.disk.fingerprint()))
                yield after, cut

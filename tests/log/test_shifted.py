"""Shifted bytes in a sealed segment: every offset is served as it was stored, or named as damaged."""

import pytest
from logs import DATA, ORDERS, PARTITION, SMALL, memory_files, offsets_named, reopen, write_log
from shifted import Stored, check_reads, check_times, read_log, ways_to_shift

from tailrace.log.directory import DataDirectory
from tailrace.log.places import locate
from tailrace.log.verify import verify
from tailrace.testing.recording_files import Disk, RecordingFiles

DERIVED = ("", ".index", ".timeindex", ".sums")


def stopped() -> Disk:
    files = memory_files()
    directory = DataDirectory(files, DATA, SMALL)
    write_log(directory.create(ORDERS), 60)
    directory.close(5000)
    return files.disk


def logs_of(disk: Disk) -> list[str]:
    return sorted(name for name in disk.names if name.endswith(".log"))


@pytest.mark.parametrize("lost", DERIVED)
@pytest.mark.parametrize("max_bytes", [1, 700, 1 << 20])
def test_every_offset_of_a_shifted_segment_is_served_or_named(lost: str, max_bytes: int) -> None:
    sound = stopped()
    paths = logs_of(sound)
    stored = Stored.of([bytes(sound.file(path)) for path in paths])
    bad = []
    for number in (0, 1, len(paths) - 2):
        path = paths[number]
        for name, shift in ways_to_shift(bytes(sound.file(path))):
            disk = sound.copy()
            disk.file(path)[:] = shift.content
            if lost:
                del disk.names[path.removesuffix(".log") + lost]
            try:
                log, _ = reopen(disk)
                named = check_reads(stored, read_log(log, max_bytes))
                check_times(stored, log)
                files = RecordingFiles(disk)
                found = verify(files, locate(files, DATA))
                assert offsets_named(found.damage) == named
                assert found.damage
                touched = stored.offsets_of(shift.touched)
                if named - touched: print("MORE", number, name, sorted(named - touched), sorted(touched))
            except Exception as e:
                bad.append((number, name, type(e).__name__, str(e)[:300]))
    for b in bad: print(b)
    assert not bad, len(bad)

"""Records that no segment has any more: readers, the scrubber and `log verify` name the same offsets, and name them
once. What is compacted afterwards does not hide them.
"""

from collections.abc import Callable
from errno import EIO, EMFILE

import pytest
from compactions import CONFIG, World, batches_of, compact
from logs import (
    DATA,
    ORDERS,
    PARTITION,
    SMALL,
    memory_files,
    offsets_named,
    offsets_of,
    reopen,
    stored_batches,
    write_log,
)

from tailrace.log.compaction.messages import PassResult
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.files.checkpoints import CLEAN_SHUTDOWN
from tailrace.log.files.checksums import Gaps
from tailrace.log.files.recorded_gaps import RecordedGap, add_gaps
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.errors import StorageError
from tailrace.log.layout.names import numbered
from tailrace.log.scrub import ScrubChunk, ScrubJob
from tailrace.log.tools.locate import locate
from tailrace.log.tools.verify import verify
from tailrace.records.batch import split
from tailrace.records.compression import Codec
from tailrace.testing.faulty_files import FaultyFiles
from tailrace.testing.recording_files import Disk, RecordingFiles

Loss = Callable[[Disk, str], None]


def removed(disk: Disk, path: str) -> None:
    del disk.names[path]


def emptied(disk: Disk, path: str) -> None:
    disk.file(path).clear()


def halved(disk: Disk, path: str) -> None:
    """At the end of a batch, so that no bytes are bad."""
    content = disk.file(path)
    position, _ = list(split(bytes(content)))[1]
    del content[position:]


LOSSES = pytest.mark.parametrize("lose", [removed, emptied, halved])


def stopped() -> Disk:
    files = memory_files()
    directory = DataDirectory(files, DATA, SMALL)
    write_log(directory.create(ORDERS), 30)
    directory.close(5000)
    return files.disk


def compacted() -> Disk:
    """After a clean stop: a compacted segment, some that are not, and the active one."""
    world = World()
    for number in range(40):
        world.write([(b"key %d" % (number % 12), b"v" * 20)], Codec.NONE, -1, False)
    world.log.roll()
    world.checkpoint()
    assert isinstance(compact(world.log, world.now), PassResult)
    for number in range(20):
        world.write([(b"late %d" % number, b"x" * 100)], Codec.NONE, -1, False)
    assert world.directory is not None
    world.directory.close(world.now)
    assert isinstance(world.files, RecordingFiles)
    return world.files.disk


def logs_of(disk: Disk) -> list[str]:
    return sorted(name for name in disk.names if name.startswith(PARTITION) and name.endswith(".log"))


def verified(disk: Disk) -> set[int]:
    files = RecordingFiles(disk)
    return offsets_named(verify(files, locate(files, DATA)).damage)


def scrubbed(disk: Disk, config: LogConfig) -> set[int]:
    log, _ = reopen(disk, config)
    job = ScrubJob(log.files, [ScrubChunk(ORDERS, log, segment, 0) for segment in log.segments[:-1]])
    job.run()
    assert len(job.damage) == len(log.damage) == 1
    assert job.faults == []
    return offsets_named(log.damage)


def check(sound: Disk, path: str, lose: Loss, config: LogConfig) -> None:
    """Everything is served, or named by all who look."""
    stored = stored_batches(reopen(sound, config)[0])
    disk = sound.copy()
    lose(disk, path)
    log, _ = reopen(disk, config)
    assert log.damage == [], "a clean start does not look"
    for _ in range(2):
        assert offsets_of(stored_batches(log)) == offsets_of(stored) - offsets_named(log.damage)
        assert len(log.damage) == 1
    lost = offsets_named(log.damage)
    assert offsets_of(stored) & lost
    assert verified(disk) == scrubbed(disk, config) == lost
    disk.names.pop(f"{DATA}/{CLEAN_SHUTDOWN}")
    log, _ = reopen(disk, config)
    assert offsets_of(stored_batches(log)) == offsets_of(stored) - lost
    assert offsets_named(log.damage) in (lost, set())
    assert verified(disk) == lost


@LOSSES
@pytest.mark.parametrize("number", [0, 1, -2])
def test_a_sealed_segment_that_is_lost_is_named_once(lose: Loss, number: int) -> None:
    disk = stopped()
    check(disk, logs_of(disk)[number], lose, SMALL)


@LOSSES
@pytest.mark.parametrize("number", [0, 1, 2])
def test_so_is_one_that_is_compacted_or_lies_beside_one_that_is(lose: Loss, number: int) -> None:
    disk = compacted()
    log, _ = reopen(disk, CONFIG)
    assert [segment.derived().gaps for segment in log.segments[:2]] == [Gaps.COMPACTED, Gaps.NONE]
    check(disk, logs_of(disk)[number], lose, CONFIG)


def test_what_is_missing_is_known_no_more_once_it_lies_before_the_start() -> None:
    disk = stopped()
    removed(disk, logs_of(disk)[1])
    log, _ = reopen(disk, SMALL)
    stored_batches(log)
    (missing,) = log.damage
    log.delete_before(missing.last_offset + 1)
    assert log.damage == []


def test_a_gap_that_a_repair_has_recorded_beside_a_compacted_segment_is_none() -> None:
    disk = compacted()
    path = logs_of(disk)[1]
    first, following = (int(name.rsplit("/")[-1][:20]) for name in logs_of(disk)[1:3])
    removed(disk, path)
    add_gaps(RecordingFiles(disk), PARTITION, [RecordedGap(first, following - 1, "lost", "2026-11-18", None)])
    log, _ = reopen(disk, CONFIG)
    assert not offsets_of(stored_batches(log)) & set(range(first, following))
    assert log.damage == []
    assert verified(disk) == set()


@LOSSES
@pytest.mark.parametrize("number", [0, 1])
def test_compaction_does_not_hide_it(lose: Loss, number: int) -> None:
    disk = compacted()
    lose(disk, logs_of(disk)[number])
    log, _ = reopen(disk, CONFIG)
    compact(log, 20_000)
    assert isinstance(log.files, RecordingFiles)
    assert verified(log.files.disk) == verified(disk) != set()


class FailingReads(FaultyFiles):
    path = ""
    errno = EIO

    def called(self, kind: str, path: str) -> None:
        super().called(kind, path)
        if kind == "read_at" and path == self.path:
            raise OSError(self.errno, "it fails", path)


@pytest.mark.parametrize(("errno", "is_named"), [(EIO, True), (EMFILE, False)])
def test_a_segment_that_cannot_be_read_is_named_until_it_can(errno: int, is_named: bool) -> None:
    files = FailingReads(RecordingFiles(stopped()))
    log = DataDirectory(files, DATA, SMALL).logs[ORDERS]
    second, third = log.segments[1:3]
    files.path, files.errno = f"{PARTITION}/{numbered(second.base_offset, '.log')}", errno
    for _ in range(2):
        with pytest.raises(StorageError):
            log.read(second.base_offset, 100)
        lost = set(range(second.base_offset, third.base_offset)) if is_named else set()
        assert offsets_named(log.damage) == lost
        assert len(log.damage) == is_named
    files.path = ""
    assert batches_of(log, second.base_offset)
    assert log.damage == []


@pytest.mark.parametrize("number", [0, 1])
def test_verify_and_the_start_agree_that_a_torn_sealed_segment_is_damage(number: int) -> None:
    files = memory_files()
    directory = DataDirectory(files, DATA, SMALL)
    log = directory.create(ORDERS)
    write_log(log, 30)
    log.flush()
    log.checkpoint(5000)
    disk = files.disk.copy()
    del disk.file(logs_of(disk)[number])[-1:]
    log, report = reopen(disk, SMALL)
    assert report.truncation is None
    assert verified(disk) == offsets_named(report.damage) != set()

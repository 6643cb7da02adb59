"""Compaction with power cuts at every call, and disks that refuse any: no newest value is ever lost, no deleted key
comes back, and every producer goes on.
"""

from collections.abc import Callable
from errno import EIO, ENOSPC

import pytest
from compactions import CONFIG, World, compact
from logs import DATA, ORDERS, memory_files

from tailrace.log.compaction.messages import PassFailed, PassResult
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.layout.errors import Damaged, StorageError
from tailrace.log.layout.names import CLEANED, SWAP
from tailrace.records.compression import Codec
from tailrace.records.control import Marker
from tailrace.testing.faulty_files import FaultyFiles
from tailrace.testing.recording_files import RecordingFiles


def written(world: World) -> None:
    """Keys that are written again, deleted, and of transactions with either end, by several producers."""
    for number in range(6):
        world.write([(b"a", b"%d" % number * 20), (b"b", b"x" * 50)], Codec.NONE, -1, False)
        world.write([(b"deleted", b"y" * 30)], Codec.ZSTD, 5, False)
        world.write([(b"c", b"z" * 30)], Codec.NONE, 7, True)
        world.mark(7, Marker.COMMIT if number % 2 else Marker.ABORT)
    world.write([(b"deleted", None), (b"only once", b"1")], Codec.NONE, 5, False)
    world.log.roll()
    world.write([(b"a", b"last")], Codec.NONE, -1, False)
    world.checkpoint()


def first_pass() -> tuple[World, RecordingFiles, int]:
    """One pass, and how many calls there were before."""
    files = memory_files()
    world = World(files)
    written(world)
    made = len(files.calls)
    world.compact(128 << 20)
    world.checkpoint()
    return world, files, made


def second_pass() -> tuple[World, RecordingFiles, int]:
    """Another one, when the tombstone's horizon has passed."""
    world, files, _ = first_pass()
    for number in range(4):
        world.write([(b"d", b"%d" % number * 60), (b"a", b"again" * 10)], Codec.LZ4, 5, False)
    world.log.roll()
    world.now += 2000
    world.checkpoint()
    made = len(files.calls)
    world.compact(128 << 20)
    world.checkpoint()
    return world, files, made


def check_disk(world: World, disk: RecordingFiles) -> None:
    directory = DataDirectory(disk, DATA, CONFIG)
    log = directory.logs[ORDERS]
    assert not directory.reports[ORDERS].damage
    assert not [name for name in disk.files_in(f"{DATA}/{ORDERS}") if name.endswith((CLEANED, SWAP))]
    log.flush()
    world.check_nothing_is_lost(log)


Play = Callable[[], tuple[World, RecordingFiles, int]]


def check_every_cut(play: Play, limit: int, *, every: int = 1, recovery_limit: int = 0) -> int:
    world, files, made = play()
    checked = 0
    for calls in reversed(range(made, len(files.calls) + 1, every)):
        for disk in files.power_cuts(calls, limit=limit, seed=calls):
            has_swap = any(name.endswith(SWAP) for name in disk.files_in(f"{DATA}/{ORDERS}"))
            check_disk(world, disk)
            checked += 1
            if recovery_limit and has_swap:
                for cut in range(calls % 3, len(disk.calls) + 1, 3):
                    for again in disk.power_cuts(cut, limit=recovery_limit, seed=cut):
                        check_disk(world, again)
    return checked


@pytest.mark.parametrize("play", [first_pass, second_pass])
def test_no_power_cut_during_compaction_loses_a_newest_value_or_restores_a_key(play: Play) -> None:
    assert check_every_cut(play, limit=1, every=17) > 10


@pytest.mark.crash
@pytest.mark.timeout(900)
@pytest.mark.parametrize("play", [first_pass, second_pass])
def test_no_power_cut_of_many_more_does_either_also_during_the_recovery_from_it(play: Play) -> None:
    check_every_cut(play, limit=15)
    check_every_cut(play, limit=1, every=3, recovery_limit=1)


def test_the_harness_sees_a_swap_of_segments_that_are_not_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.log.compaction.cleaner.Group._sync", lambda _: None)
    with pytest.raises((AssertionError, Damaged)):
        check_every_cut(first_pass, limit=8)


def test_the_harness_sees_a_start_that_does_not_complete_a_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.log.recovery.recovery.finish_swaps", lambda *_: False)
    with pytest.raises(AssertionError):
        check_every_cut(first_pass, limit=8)


KINDS = ("write_at", "sync", "open", "rename", "remove", "sync_directory", "truncate", "read_at")


def compaction_with_a_fault(kind: str, error: int, after: int) -> bool:
    """Whether the fault has struck: if not, there are no more calls of the kind."""
    memory = memory_files()
    faulty = FaultyFiles(memory)
    world = World(faulty)
    written(world)
    before = faulty.count[kind]
    faulty.fail(kind, error, after=after)
    try:
        result = compact(world.log, world.now)
        assert isinstance(result, PassResult | PassFailed)
    except StorageError:
        pass
    has_struck = faulty.count[kind] - before > after
    faulty.heal()
    world.first_cleaned = dict.fromkeys(world.stored, world.now)
    world.check_nothing_is_lost(world.log)
    if world.log.offline is None:
        assert isinstance(compact(world.log, world.now), PassResult), "it does not go on"
        world.check_nothing_is_lost(world.log)
    world.directory.abandon()
    check_disk(world, RecordingFiles(memory.disk.copy()))
    return has_struck


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_fails_during_compaction_loses_nothing(kind: str) -> None:
    for after in (0, 1, 3, 6):
        compaction_with_a_fault(kind, EIO, after)


@pytest.mark.crash
@pytest.mark.timeout(600)
@pytest.mark.parametrize("error", [EIO, ENOSPC])
@pytest.mark.parametrize("kind", KINDS)
def test_no_call_that_fails_during_compaction_loses_anything(kind: str, error: int) -> None:
    after = 0
    while compaction_with_a_fault(kind, error, after):
        after += 1
    assert after

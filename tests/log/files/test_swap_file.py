"""New segments in the place of old ones: what readers, deletions and removals notice of it."""

from contextlib import suppress
from errno import EIO
from pathlib import Path

import pytest
from compactions import CONFIG, World, batches_of, compact, records_of
from logs import DATA, ORDERS, PARTITION, memory_files

from tailrace.log.compaction import jobs
from tailrace.log.compaction.child_process import LocalPass
from tailrace.log.compaction.jobs import Compaction, NextGroup, SwapJob
from tailrace.log.compaction.messages import CleanedGroup, PassResult
from tailrace.log.compaction.plan import cleanable
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.files.checkpoints import CorruptCheckpoint
from tailrace.log.files.directory_state import PartitionDirectory
from tailrace.log.files.swap_file import Swap
from tailrace.log.layout.errors import JobUnderWay, LogOffline, LogRemoved, StorageError
from tailrace.log.layout.names import CLEANED, SWAP
from tailrace.log.scan.scan import FoundBatch
from tailrace.log.tools.survey import Survey
from tailrace.records.batch import read_header
from tailrace.records.compression import Codec
from tailrace.testing.faulty_files import FaultyFiles
from tailrace.testing.recording_files import RecordingFiles


def filled(world: World, count: int = 40) -> World:
    for number in range(count):
        world.write([(b"key %d" % (number % 4), b"%d" % number * 50)], Codec.NONE, -1, False)
    world.log.roll()
    world.checkpoint()
    return world


def begun(world: World) -> tuple[Compaction, SwapJob]:
    """A pass whose first new segment is about to take its place."""
    log = world.log
    plan = cleanable(log.view, log.compacted_to, log.recovery_point_on_disk)
    compaction = Compaction(log, plan, world.now, None, lambda spec: LocalPass(log.files, spec))
    step = NextGroup(compaction)
    step.run()
    group = step.finish()
    assert isinstance(group, CleanedGroup)
    swap = compaction.begin_swap(group)
    assert swap is not None
    return compaction, swap


def on_disk(tmp_path: Path, descriptors: int) -> World:
    """On real files, of which only so many are open at once."""
    directory = DataDirectory(OperatingSystemFiles(descriptors), str(tmp_path / "data"), CONFIG)
    world = World(opened=directory)
    return filled(world)


def test_a_reader_in_the_middle_of_an_old_segment_reads_it_to_its_end() -> None:
    world = filled(World())
    piece = world.log.read(0, 300)
    assert piece is not None
    before = piece.read()
    assert isinstance(compact(world.log, world.now), PassResult)
    assert piece.read() == before
    piece.release()


def test_old_segments_stay_readable_until_the_swap_even_with_few_descriptors(
    tmp_path: Path,
) -> None:
    world = on_disk(tmp_path, descriptors=1)
    before = batches_of(world.log)
    old_view = world.log.view
    _, swap = begun(world)
    swap.run()  # from here on the files of these names are others
    assert batches_of(world.log) == before
    swap.finish()
    after = batches_of(world.log)
    assert len(after) < len(before)
    with pytest.raises(FileNotFoundError):  # rather than bytes of the new file; whoever reads looks again then
        world.log._read(old_view, 0, 10, 100, True)
    assert world.log.files.open_descriptors <= 1  # type: ignore[attr-defined]
    world.directory.close(world.now)


def test_who_looked_before_the_swap_and_reads_after_it_gets_what_is_there_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = on_disk(tmp_path, descriptors=1)
    _, swap = begun(world)
    old = world.log._read

    def overtaken(*arguments: object) -> object:
        monkeypatch.undo()
        swap.run()
        swap.finish()
        return old(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(world.log, "_read", overtaken)
    piece = world.log.read(0, 100)
    assert piece is not None
    with piece:
        assert read_header(piece.read()).base_offset > 0
    world.directory.close(world.now)


def test_a_deletion_during_a_swap_takes_nothing_of_the_new_segment() -> None:
    world = filled(World())
    _, swap = begun(world)
    start = world.log.segments[1].base_offset
    world.log.delete_before(start)
    swap.run()
    assert not world.log.condemned
    swap.finish()
    world.checkpoint()
    world.stored = {offset: record for offset, record in world.stored.items() if offset >= start}
    world.check_nothing_is_lost(world.log)
    world.log.delete_before(world.log.segments[1].base_offset)
    world.checkpoint()
    assert world.log.segments[0].name in world.files.files_in(PARTITION)
    world.reopen()
    assert not world.directory.reports[ORDERS].damage


def test_segments_that_were_deleted_during_a_pass_are_not_brought_back() -> None:
    world = filled(World())
    log = world.log
    plan = cleanable(log.view, log.compacted_to, log.recovery_point_on_disk)
    compaction = Compaction(log, plan, world.now, None, lambda spec: LocalPass(log.files, spec))
    group = compaction.next_group()
    assert isinstance(group, CleanedGroup)
    log.delete_before(log.segments[1].base_offset)
    assert compaction.begin_swap(group) is None
    compaction.end()
    assert not [name for name in world.files.files_in(PARTITION) if name.endswith(CLEANED)]


def test_a_log_that_is_removed_during_a_swap_is_gone() -> None:
    world = filled(World())
    compaction, swap = begun(world)
    removal = world.directory.begin_remove([ORDERS])
    removal.run()
    removal.finish()
    fresh = world.directory.create(ORDERS)
    swap.run()
    swap.finish()
    compaction.end()
    assert [name for name in world.files.files_in(PARTITION) if SWAP in name or CLEANED in name] == []
    assert fresh.end_offset == 0
    with pytest.raises(LogRemoved):
        world.log.read(0, 100)


def test_a_stop_waits_for_a_swap() -> None:
    world = filled(World())
    _, swap = begun(world)
    with pytest.raises(JobUnderWay):
        world.directory.close(world.now)
    swap.run()
    swap.finish()
    world.directory.close(world.now)


def test_a_swap_says_what_it_replaces_and_damage_to_it_shows() -> None:
    swap = Swap(4711, (4712, 5000), (".log", ".sums"))
    data = swap.encode()
    assert Swap.decode(4711, data) == swap
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1
        with suppress(CorruptCheckpoint, ValueError):
            assert Swap.decode(4711, bytes(damaged)) == swap, "a line may end in more than one way, and that is all"


def test_a_swap_that_cannot_be_read_is_left_alone_with_its_files() -> None:
    world = filled(World())
    world.directory.close(world.now)
    for name in ("00000000000000000000.swap", "00000000000000000000.log.cleaned"):
        file = world.files.open(f"{PARTITION}/{name}", create=True)
        file.write_at(0, b"?")
    directory = DataDirectory(world.files, DATA, CONFIG)
    world.check_nothing_is_lost(directory.logs[ORDERS])
    assert "00000000000000000000.log.cleaned" in world.files.files_in(PARTITION)


def test_snapshots_and_epochs_are_right_after_a_swap() -> None:
    world = filled(World())
    epochs = world.log.epochs.encode()
    world.compact(1 << 20)
    world.write([(b"more", b"x")], Codec.NONE, 5, False)
    world.checkpoint()
    bases = {f"{segment.base_offset:020d}" for segment in world.log.segments}
    snapshots = {name.split(".")[0] for name in world.files.files_in(PARTITION) if name.endswith(".snapshot")}
    assert snapshots <= {*bases, f"{world.log.end_offset:020d}"}
    assert world.log.epochs.encode() == epochs
    assert records_of(world.log)[-1].key == b"more"


def test_a_log_can_be_verified_in_the_middle_of_a_swap_and_after_it() -> None:
    world = filled(World(), 16)
    _, swap = begun(world)
    files = world.files
    assert isinstance(files, RecordingFiles)
    before = len(files.calls)
    swap.run()
    for calls in range(before, len(files.calls) + 1):
        (state, *_) = files.power_cuts(calls, limit=1)
        findings = list(
            Survey(
                state, PartitionDirectory(PARTITION, recovery_point=world.log.recovery_point_on_disk, start_offset=0)
            )
        )
        assert findings
        assert not [found for found in findings if not isinstance(found, FoundBatch)], calls


def test_a_deletion_after_a_half_done_swap_keeps_the_new_segment() -> None:
    faulty = FaultyFiles(memory_files())
    world = filled(World(files=faulty))
    compaction, swap = begun(world)
    second = swap._old[1]
    faulty.fail("remove", EIO, name=second.name)
    swap.run()
    with pytest.raises(LogOffline):
        swap.finish()
    compaction.end()
    start = world.log.segments[1].base_offset
    world.log.delete_before(start)
    world.directory.begin_save_offsets().run()
    world.directory.abandon()
    directory = DataDirectory(faulty, DATA, CONFIG)
    world.stored = {offset: record for offset, record in world.stored.items() if offset >= start}
    assert not directory.reports[ORDERS].damage
    world.check_nothing_is_lost(directory.logs[ORDERS])


def test_a_swap_that_fails_in_a_way_that_nobody_foresaw_has_not_been_done(monkeypatch: pytest.MonkeyPatch) -> None:
    world = filled(World())
    before = batches_of(world.log)
    _, swap = begun(world)
    monkeypatch.setattr(jobs, "announce", raise_memory_error)
    with pytest.raises(MemoryError):
        swap.run()
    with pytest.raises(StorageError):
        swap.finish()
    assert world.log.offline is None
    assert batches_of(world.log) == before
    _, swap = begun(world)
    monkeypatch.undo()
    monkeypatch.setattr(jobs, "carry_out", raise_memory_error)
    with pytest.raises(MemoryError):
        swap.run()
    with pytest.raises(LogOffline):
        swap.finish()
    assert batches_of(world.log) == before


def raise_memory_error(*_: object) -> None:
    raise MemoryError


def test_a_segment_that_cannot_be_held_is_not_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = on_disk(tmp_path, descriptors=1)
    segment = world.log.segments[0]
    monkeypatch.setattr(segment, "transactions", raise_memory_error)
    with pytest.raises(MemoryError):
        segment.hold()
    world.log.segments[1].log.read_at(0, 1)
    assert world.log.files.open_descriptors <= 1  # type: ignore[attr-defined]
    world.directory.close(world.now)

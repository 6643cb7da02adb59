"""What a repair plans and does: on a disk in memory, held against every batch that was sound before it."""

from collections.abc import Callable
from errno import EIO

import pytest
from compactions import World, compact
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import DATA, ORDERS, PARTITION, SMALL, answers, batch_of, memory_files, stored_batches, write_log

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.files.checkpoints import RECOVERY_POINTS
from tailrace.log.files.leader_epochs import FILE_NAME as EPOCHS_FILE
from tailrace.log.files.recorded_gaps import FILE_NAME as GAPS_FILE
from tailrace.log.files.recorded_gaps import read_gaps
from tailrace.log.layout.errors import LogOffline
from tailrace.log.log import Log
from tailrace.log.tools.locate import locate
from tailrace.log.tools.repair import Action, RepairPlan, complete_swaps, make_plan
from tailrace.log.tools.repair_steps import NotRepaired, carry_out
from tailrace.log.tools.verify import Verification, verify
from tailrace.records.batch import HEADER_SIZE, BatchHeader, read_header, split, stamp
from tailrace.records.compression import Codec
from tailrace.testing.faulty_files import FaultyFiles
from tailrace.testing.recording_files import Disk, RecordingFiles

NOW = "2026-11-16T10:00:00+00:00"


def stopped(batches: int = 30) -> Disk:
    files = memory_files()
    directory = DataDirectory(files, DATA, SMALL)
    write_log(directory.create(ORDERS), batches)
    directory.close(5000)
    return files.disk


def segments_of(disk: Disk) -> list[str]:
    return sorted(name for name in disk.names if name.endswith(".log") and name.startswith(PARTITION))


def batches_in(disk: Disk, path: str) -> list[tuple[int, BatchHeader]]:
    return list(split(bytes(disk.file(path))))


def opened(disk: Disk) -> Log:
    return DataDirectory(RecordingFiles(disk.copy()), DATA, SMALL).logs[ORDERS]


def readable(log: Log) -> dict[int, bytes]:
    """The batches that have records: what is missing at the end of a log has one without."""
    return {base: data for base, data in stored_batches(log).items() if read_header(data).record_count}


def planned(disk: Disk) -> RepairPlan:
    files = RecordingFiles(disk)
    plan = make_plan(files, locate(files, DATA))
    assert not files.calls, "a plan writes nothing"
    return plan


def checked(disk: Disk) -> Verification:
    files = RecordingFiles(disk)
    return verify(files, locate(files, DATA))


def repair(disk: Disk) -> RecordingFiles:
    files = RecordingFiles(disk)
    carry_out(files, make_plan(files, locate(files, DATA)), DATA, NOW)
    return files


def steps_of(plan: RepairPlan) -> list[tuple[Action, str]]:
    return [(step.action, step.file) for partition in plan.partitions for step in partition.steps]


def all_bytes(disk: Disk) -> bytes:
    return b"\0".join(bytes(disk.file(name)) for name in disk.names)


def repaired(disk: Disk, lost: set[int] | None = None) -> Log:
    """The log after a repair: all that could be read before is there, nothing is wrong any more, what was given up is
    recorded, and nothing is left to do.
    """
    before = stored_batches(opened(disk))
    end = opened(disk).end_offset
    repair(disk)
    found = checked(disk)
    assert found.healthy, found.damage
    assert not found.derived
    assert planned(disk).is_empty
    recorded = {offset for _, gap in found.gaps for offset in range(gap.first_offset, gap.last_offset + 1)}
    log = opened(disk)
    assert before.items() <= stored_batches(log).items()
    assert log.end_offset == end
    assert not log.damage
    assert not recorded & readable(log).keys()
    assert lost is None or recorded == lost
    assert [(gap.first_offset, gap.last_offset) for gap in log.recorded_gaps] == [
        (gap.first_offset, gap.last_offset) for _, gap in found.gaps
    ]
    return log


def garble(disk: Disk, path: str, position: int, size: int = 20) -> bytes:
    """Overwrites these bytes with others, and returns those."""
    content = disk.file(path)
    for at in range(position, min(position + size, len(content))):
        content[at] ^= 0x5A
    return bytes(content[position : position + size])


def offsets(header: BatchHeader) -> set[int]:
    return set(range(header.base_offset, header.next_offset))


def test_a_healthy_log_has_nothing_to_repair() -> None:
    disk = stopped()
    assert planned(disk).is_empty
    assert not repair(disk).calls


@pytest.mark.parametrize("number", [0, 1, -1], ids=["first", "second", "active"])
@pytest.mark.parametrize("which", [0, 1, -1], ids=["first batch", "second batch", "last batch"])
@pytest.mark.parametrize(
    "at", [0, 8, 12, 17, 23, HEADER_SIZE + 3], ids=["offset", "length", "epoch", "crc", "delta", "records"]
)
def test_a_rotten_batch_is_cut_out_and_kept_and_readers_pass_over_it(number: int, which: int, at: int) -> None:
    disk = stopped()
    path = segments_of(disk)[number]
    position, header = batches_in(disk, path)[which]
    sound = stored_batches(opened(disk))
    garble(disk, path, position + at, 4)
    bad = bytes(disk.file(path)[position : position + header.size])
    log = repaired(disk, offsets(header))
    gap = log.recorded_gaps[0]
    assert gap.repaired_at == NOW
    assert gap.kept_as is not None
    assert bytes(disk.file(f"{PARTITION}/{gap.kept_as}")) == bad
    assert readable(log) == {base: data for base, data in sound.items() if base != header.base_offset}


def test_several_rotten_places_are_cut_out_at_once() -> None:
    disk = stopped()
    bad = [(segments_of(disk)[path], which) for path, which in ((0, 1), (0, 4), (1, 0), (1, 1), (3, 2))]
    places = [(path, *batches_in(disk, path)[which]) for path, which in bad]
    for path, position, _ in places:
        garble(disk, path, position + HEADER_SIZE, 10)
    repaired(disk, {offset for _, _, header in places for offset in offsets(header)})


def test_all_of_a_segment_can_be_rotten() -> None:
    disk = stopped()
    path = segments_of(disk)[1]
    lost = {offset for _, header in batches_in(disk, path) for offset in offsets(header)}
    garble(disk, path, 0, len(disk.file(path)))
    repaired(disk, lost)


@pytest.mark.parametrize("path", range(4), ids=["first", "second", "third", "active"])
def test_a_flipped_bit_is_put_right_where_the_sums_prove_which(path: int) -> None:
    disk = stopped()
    name = segments_of(disk)[path]
    before = bytes(disk.file(name))
    for bit in range(3, 8 * len(before), 2503):
        disk.file(name)[bit // 8] ^= 1 << bit % 8
        assert steps_of(planned(disk)) == [(Action.HEAL, name.rpartition("/")[2])]
        repaired(disk, set())
        assert bytes(disk.file(name)) == before


@pytest.mark.parametrize("which", [0, 1, 2, -1], ids=["first", "second", "third", "active"])
def test_a_segment_that_is_missing_becomes_a_gap(which: int) -> None:
    disk = stopped()
    path = segments_of(disk)[which]
    lost = {offset for _, header in batches_in(disk, path) for offset in offsets(header)}
    del disk.names[path]
    log = repaired(disk, lost)
    assert log.recorded_gaps[0].kept_as is None
    assert log.read(min(lost), 1000) is not None, "readers get on"


def test_a_partition_without_segments_is_made_anew_where_it_ended() -> None:
    disk = stopped()
    for path in segments_of(disk):
        del disk.names[path]
    assert not checked(disk).healthy
    assert [(lost.partition, lost.next_offset) for lost in planned(disk).lost] == [(ORDERS, 85)]
    repair(disk)
    assert checked(disk).healthy
    assert planned(disk).is_empty
    log = opened(disk)
    assert (log.start_offset, log.end_offset) == (85, 85)
    assert [(gap.first_offset, gap.last_offset) for gap in log.recorded_gaps] == [(0, 84)]


def test_a_segment_that_was_shortened_ends_in_a_gap() -> None:
    disk = stopped()
    for path in (segments_of(disk)[1], segments_of(disk)[-1]):
        del disk.file(path)[batches_in(disk, path)[-2][0] :]
    repaired(disk)


def test_what_comes_after_a_repair_gets_new_offsets_and_survives_another_crash() -> None:
    disk = stopped()
    path = segments_of(disk)[-1]
    position, _ = batches_in(disk, path)[-1]
    garble(disk, path, position, 100)
    repaired(disk)
    files = RecordingFiles(disk)
    log = DataDirectory(files, DATA, SMALL).logs[ORDERS]
    assert log.append(batch_of(3), 6000).base_offset == 85
    log.flush()
    again = opened(files.disk)
    assert stored_batches(again) == stored_batches(log)
    assert not again.damage
    assert again.end_offset == 88


def test_a_segment_that_is_there_twice_is_set_aside() -> None:
    disk = stopped()
    path = segments_of(disk)[1]
    sound = stored_batches(opened(disk))
    position, header = batches_in(disk, path)[3]
    copy = f"{PARTITION}/{header.base_offset:020d}.log"
    files = RecordingFiles(disk)
    files.open(copy, create=True).write_at(0, bytes(disk.file(path)[position:]))
    assert not checked(disk).healthy
    repaired(disk, set())
    assert stored_batches(opened(disk)) == sound
    assert f"{copy}.cut" in disk.names
    assert copy not in disk.names


def test_a_segment_that_is_there_twice_in_part_gives_the_rest_a_file_of_its_own() -> None:
    disk = stopped()
    first, second = segments_of(disk)[:2]
    sound = stored_batches(opened(disk))
    position, header = batches_in(disk, first)[-2]
    copy = f"{PARTITION}/{header.base_offset:020d}.log"
    files = RecordingFiles(disk)
    files.open(copy, create=True).write_at(0, bytes(disk.file(first)[position:]) + bytes(disk.file(second)))
    files.remove(second)
    repaired(disk, set())
    assert stored_batches(opened(disk)) == sound


DERIVED_FILES = [".index", ".timeindex", ".txnindex", ".sums", ".snapshot", EPOCHS_FILE]


@pytest.mark.parametrize("suffix", DERIVED_FILES)
@pytest.mark.parametrize(
    "spoil", [lambda data: data.clear(), lambda data: data.__setitem__(len(data) // 2, 0xEE)], ids=["emptied", "rotten"]
)
def test_derived_files_are_built_anew(suffix: str, spoil: Callable[[bytearray], None]) -> None:
    disk = stopped()
    before = answers(opened(disk))
    for name in [name for name in disk.names if name.startswith(PARTITION) and name.endswith(suffix)]:
        spoil(disk.file(name))
    assert checked(disk).derived
    assert answers(repaired(disk, set())) == before


def test_a_log_without_its_derived_files_is_whole_again() -> None:
    disk = stopped()
    before = answers(opened(disk))
    for name in [name for name in disk.names if name.startswith(PARTITION) and name.endswith((".index", ".timeindex"))]:
        del disk.names[name]
    assert answers(repaired(disk, set())) == before


def test_checkpoints_that_cannot_be_read_are_set_aside() -> None:
    disk = stopped()
    disk.file(f"{DATA}/{RECOVERY_POINTS}")[0] = 0
    assert planned(disk).damaged_files == [RECOVERY_POINTS]
    repair(disk)
    assert planned(disk).is_empty
    assert f"{DATA}/{RECOVERY_POINTS}.cut" in disk.names
    assert stored_batches(opened(disk)).keys() >= {0, 83}


def test_leftovers_are_removed() -> None:
    disk = stopped()
    files = RecordingFiles(disk)
    for name in ("00000000000000000000.log.tmp", "00000000000000000077.index"):
        files.open(f"{PARTITION}/{name}", create=True)
    repaired(disk, set())
    assert not any(name.endswith((".tmp", "77.index")) for name in disk.names)


def test_gaps_that_cannot_be_read_are_set_aside_and_new_ones_recorded() -> None:
    disk = stopped()
    position, _ = batches_in(disk, segments_of(disk)[0])[1]
    garble(disk, segments_of(disk)[0], position + HEADER_SIZE, 10)
    repair(disk)
    disk.file(f"{PARTITION}/{GAPS_FILE}")[20] ^= 1
    assert "cannot read" in checked(disk).notes[0]
    position, _ = batches_in(disk, segments_of(disk)[1])[1]
    garble(disk, segments_of(disk)[1], position + HEADER_SIZE, 10)
    repair(disk)
    assert [gap.first_offset for gap in read_gaps(RecordingFiles(disk), PARTITION)] == [23]
    assert f"{PARTITION}/{GAPS_FILE}.cut" in disk.names


def test_a_torn_write_is_left_to_the_next_start() -> None:
    files = memory_files()
    directory = DataDirectory(files, DATA, SMALL)
    log = directory.create(ORDERS)
    write_log(log, 12)
    directory.checkpoint(2000)
    for _ in range(4):
        log.append(batch_of(2), 3000)
    disk = files.disk
    active = segments_of(disk)[-1]
    position, header = batches_in(disk, active)[-1]
    del disk.file(active)[position + 70 :]
    garble(disk, active, batches_in_front(disk, active, position)[1][0] + HEADER_SIZE, 10)
    torn = bytes(disk.file(active)[position:])
    plan = planned(disk)
    assert [action for action, _ in steps_of(plan)] == [Action.CUT_OUT, Action.LEAVE]
    repair(disk)
    assert bytes(disk.file(active)).endswith(torn)
    found = checked(disk)
    assert found.healthy
    assert len(found.tail) == 1
    assert len(found.gaps) == 1
    assert planned(disk).is_empty
    assert opened(disk).end_offset == header.base_offset


def batches_in_front(disk: Disk, path: str, end: int) -> list[tuple[int, BatchHeader]]:
    return list(split(bytes(disk.file(path)[:end])))


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_whatever_happens_to_the_bytes_what_is_sound_survives_a_repair(data: st.DataObject) -> None:
    disk = LOG_FOR_SPOILING.copy()
    for _ in range(data.draw(st.integers(1, 5))):
        path = data.draw(st.sampled_from(segments_of(disk) or [f"{PARTITION}/{EPOCHS_FILE}"]))
        content = disk.file(path)
        at = data.draw(st.integers(0, max(0, len(content) - 1)))
        match data.draw(st.sampled_from(["garble", "zeros", "flip", "shorten", "lose", "derived"])):
            case "garble":
                garble(disk, path, at, data.draw(st.sampled_from([1, 20, 150, 600])))
            case "zeros":
                content[at : at + 200] = bytes(len(content[at : at + 200]))
            case "flip" if content:
                content[at] ^= 1 << data.draw(st.integers(0, 7))
            case "shorten":
                del content[at:]
            case "lose" if len(segments_of(disk)) > 1:  # without any, the partition is lost
                del disk.names[path]
            case "derived":
                beside = (".index", ".timeindex", ".txnindex", ".snapshot", EPOCHS_FILE)  # the sums are the witness
                name = data.draw(st.sampled_from(sorted(name for name in disk.names if name.endswith(beside))))
                disk.file(name)[:] = disk.file(name)[: len(disk.file(name)) // 2]
    repaired(disk)


LOG_FOR_SPOILING = stopped()


def test_a_sound_batch_between_a_bad_one_and_one_of_a_wrong_epoch_survives_a_repair() -> None:
    disk = stopped()
    path = segments_of(disk)[0]
    batches = batches_in(disk, path)
    del disk.file(path)[batches[6][0] :]
    for number, at in ((2, 0), (3, 0), (5, 12)):  # two offsets, and behind a sound batch a leader epoch
        garble(disk, path, batches[number][0] + at, 1)
    sound = batches[4][1].base_offset
    assert sound in stored_batches(opened(disk))
    assert sound in stored_batches(repaired(disk))


def test_segments_that_are_there_twice_and_share_no_boundary_are_left_to_a_human() -> None:
    disk = stopped()
    path = segments_of(disk)[1]
    end = int(segments_of(disk)[2][-24:-4])
    files = RecordingFiles(disk)
    across = batch_of(9)
    stamp(across, read_header(across), end - 4, 0)
    copy = f"{PARTITION}/{end - 4:020d}.log"
    files.open(copy, create=True).write_at(0, bytes(across))
    garble(disk, segments_of(disk)[0], 400, 10)
    before = bytes(disk.file(path)), bytes(disk.file(copy))
    with pytest.raises(NotRepaired, match="Move one of the two"):
        repair(disk)
    assert (bytes(disk.file(path)), bytes(disk.file(copy))) == before


def test_neighbours_whose_offsets_are_rotten_cost_nothing_else() -> None:
    disk = stopped()
    path = segments_of(disk)[2]
    (first, one), (second, other) = batches_in(disk, path)[:2]
    garble(disk, path, first, 1)
    garble(disk, path, second + 6, 1)  # a little further ahead than the segment goes
    repaired(disk, offsets(one) | offsets(other))


@pytest.mark.parametrize(
    ("kind", "name"),
    [("rename", f"{0:020}.log"), ("rename", f"{0:020}.index"), ("remove", ".log"), ("remove", ".swap")],
)
def test_a_swap_that_was_cut_short_is_completed_before_anything_is_repaired(kind: str, name: str) -> None:
    memory = memory_files()
    faulty = FaultyFiles(memory)
    world = World(faulty)
    for number in range(40):
        world.write([(b"key %d" % (number % 30), b"%d" % number * 20)], Codec.NONE, -1, False)
    world.log.roll()
    world.checkpoint()
    faulty.fail(kind, EIO, name=name)
    with pytest.raises(LogOffline):
        compact(world.log, world.now)
    disk = memory.disk
    assert steps_of(planned(disk)) == [(Action.COMPLETE, f"{0:020}.swap")]
    assert planned(disk).is_empty, "a start does that, too"
    first = segments_of(disk)[0]
    position, header = batches_in(disk, first)[1]
    before = readable(opened(disk))
    garble(disk, first, position + HEADER_SIZE)
    files = RecordingFiles(disk)
    assert complete_swaps(files, locate(files, DATA)) == ["orders-0"]
    assert complete_swaps(files, locate(files, DATA)) == []
    repair(disk)
    assert checked(disk).healthy
    assert steps_of(planned(disk)) == []
    lost = before.keys() - readable(opened(disk)).keys()
    was_replaced = (kind, name) == ("rename", f"{0:020}.log")
    assert lost == (set() if was_replaced else {header.base_offset} & before.keys())

"""What `verify` finds in a log on disk, and that a start of the broker then finds the same."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from logs import DATA, ORDERS, PARTITION, SMALL, batch_of, memory_files, write_log

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.files.checkpoints import CLEAN_SHUTDOWN, RECOVERY_POINTS, START_OFFSETS, encode_offsets
from tailrace.log.files.checksums import Gaps, SegmentChecksums
from tailrace.log.files.leader_epochs import FILE_NAME as EPOCHS_FILE
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.names import TopicPartition
from tailrace.log.tools.locate import NoLogHere, locate
from tailrace.log.tools.verify import Verification, bytes_to_read, verify
from tailrace.records.batch import HEADER_SIZE, seal, split, stamp
from tailrace.testing.recording_files import Disk, RecordingFiles

KAFKA_SEGMENT = Path(__file__).parents[2] / "data" / "kafka-segment"


def look(disk: Disk, path: str = DATA) -> Verification:
    files = RecordingFiles(disk)
    found = verify(files, locate(files, path))
    assert not files.calls, "verify changes nothing"
    return found


def crashed(batches: int = 30, unflushed: int = 0, config: LogConfig = SMALL) -> Disk:
    """A log with a recovery point in its middle, as a killed process leaves it."""
    files = memory_files()
    directory = DataDirectory(files, DATA, config)
    log = directory.create(ORDERS)
    write_log(log, batches // 2)
    directory.checkpoint(2000)
    for number in range(batches // 2):
        log.append(batch_of(1 + number % 3, time=3000 + number), 3000)
    log.flush()
    for _ in range(unflushed):
        log.append(batch_of(2, time=5000), 5000)
    return files.disk


def stopped(batches: int = 30, config: LogConfig = SMALL) -> Disk:
    files = memory_files()
    directory = DataDirectory(files, DATA, config)
    write_log(directory.create(ORDERS), batches)
    directory.close(5000)
    return files.disk


def segments_of(disk: Disk) -> list[str]:
    return sorted(name for name in disk.names if name.endswith(".log"))


def same_as_recovery(disk: Disk) -> Verification:
    """What verify says beforehand, compared with what a start of the broker says and does."""
    found = look(disk)
    directory = DataDirectory(RecordingFiles(disk.copy()), DATA, SMALL)
    log, report = directory.logs[ORDERS], directory.reports[ORDERS]
    cut = report.truncation
    expected = [(f"{ORDERS}/{cut.file}", cut.position, cut.length, cut.first_offset)] if cut else []
    assert [(tail.file, tail.position, tail.length, tail.first_offset) for tail in found.tail] == expected
    reported = [damage._replace(file=f"{ORDERS}/{damage.file}") for damage in report.damage]
    assert all(damage in found.damage for damage in reported)
    assert all(damage in reported for damage in found.damage if damage.last_offset >= scanned_from(disk))
    assert (found.partitions[0].start_offset, found.partitions[0].end_offset) == (log.start_offset, log.end_offset)
    return found


def scanned_from(disk: Disk) -> int:
    """A start reads from the last snapshot before the recovery point on: damage before that is found by readers."""
    point = int(bytes(disk.file(f"{DATA}/{RECOVERY_POINTS}")).split()[-1])
    snapshots = [int(name.rsplit("/")[-1][:20]) for name in disk.names if name.endswith(".snapshot")]
    return max((offset for offset in snapshots if offset <= point), default=0)


def test_a_segment_written_by_kafka_is_healthy() -> None:
    files = OperatingSystemFiles()
    found = verify(files, locate(files, str(KAFKA_SEGMENT)))
    assert found.as_json() == {
        "partitions": [
            {
                "name": "kafka-segment",
                "segments": 1,
                "batches": 11,
                "records": 1033,
                "bytes": 106237,
                "start_offset": 0,
                "end_offset": 1033,
                "state": "healthy",
            }
        ],
        "lost": [],
        "damage": [],
        "tail": [],
        "derived": [],
        "gaps": [],
        "notes": [],
        "healthy": True,
    }


@pytest.mark.parametrize("make", [stopped, crashed])
def test_a_log_of_ours_is_healthy_stopped_or_killed(make: Callable[[], Disk]) -> None:
    found = look(make())
    assert found.healthy
    assert (found.tail, found.derived, found.notes) == ([], [], [])
    assert found.partitions[0].segments > 2


def test_a_partition_is_verified_alone_with_what_its_data_directory_says_of_it() -> None:
    disk = stopped()
    last = segments_of(disk)[-1]
    del disk.file(last)[-1:]
    (damage,) = look(disk, PARTITION).damage
    assert damage.file == last.rsplit("/")[-1]
    disk.names.pop(f"{DATA}/{CLEAN_SHUTDOWN}")
    disk.names.pop(f"{DATA}/{RECOVERY_POINTS}")
    assert look(disk, PARTITION).damage == [damage], "as recovery has it: what sums speak of was flushed"
    disk.names.pop(last.removesuffix(".log") + ".sums")
    found = look(disk, PARTITION)
    assert (found.damage, len(found.tail)) == ([], 1), "where nobody says what was flushed, all of it may be tail"


def test_a_tail_cut_at_any_byte_is_what_recovery_makes_of_it() -> None:
    disk = crashed(unflushed=2)
    last = segments_of(disk)[-1]
    whole = bytes(disk.file(last))
    for size in range(len(whole)):
        disk.file(last)[:] = whole[:size]
        found = same_as_recovery(disk)
        assert found.healthy or found.damage[-1].reason == "the records that should be here are missing"


def test_zeros_and_garbage_anywhere_are_what_recovery_makes_of_them() -> None:
    pristine = crashed(unflushed=2)
    lot = random.Random(3)
    for _ in range(150):
        disk = pristine.copy()
        content = disk.file(lot.choice(segments_of(disk)))
        start = lot.randrange(len(content))
        length = lot.choice([1, 20, 61, 200, len(content)])
        piece = content[start : start + length]
        piece[:] = bytes(len(piece)) if lot.random() < 0.5 else lot.randbytes(len(piece))
        content[start : start + length] = piece
        same_as_recovery(disk)


def test_a_segment_that_is_lost_is_what_recovery_makes_of_it() -> None:
    pristine = crashed()
    for lost in segments_of(pristine):
        disk = pristine.copy()
        disk.names.pop(lost)
        same_as_recovery(disk)


def test_a_segment_missing_in_the_middle_is_damage() -> None:
    disk = stopped()
    before, lost, behind = segments_of(disk)[1:4]
    disk.names.pop(lost)
    first, following = (int(path.rsplit("/")[-1][:20]) for path in (lost, behind))
    (damage,) = look(disk).damage
    assert (damage.file, damage.first_offset, damage.last_offset) == (
        f"{ORDERS}/{first:020d}.log",
        first,
        following - 1,
    )
    assert before in disk.names


def test_a_first_segment_that_is_missing_is_damage_unless_it_was_deleted() -> None:
    disk = stopped()
    disk.names.pop(segments_of(disk)[0])
    following = int(segments_of(disk)[0].rsplit("/")[-1][:20])
    (damage,) = look(disk).damage
    assert (damage.first_offset, damage.last_offset) == (0, following - 1)
    disk.file(f"{DATA}/{START_OFFSETS}")[:] = encode_offsets({ORDERS: following})
    assert look(disk).healthy


def test_a_log_without_any_of_its_segments_is_lost() -> None:
    disk = stopped()
    end = look(disk).partitions[0].end_offset
    for path in segments_of(disk):
        disk.names.pop(path)
    found = look(disk)
    assert not found.healthy
    assert [(lost.partition, lost.start_offset, lost.end_offset) for lost in found.lost] == [(ORDERS, 0, end)]
    assert [(summary.name, summary.state) for summary in found.partitions] == [(str(ORDERS), "lost")]


def test_every_bit_of_a_header_that_flips_is_blamed_on_its_batch_alone() -> None:
    disk = stopped()
    path = segments_of(disk)[1]
    content = disk.file(path)
    batches = [(position, header) for position, header in split(bytes(content))]
    position, header = batches[len(batches) // 2]
    for bit in range(8 * HEADER_SIZE):
        content[position + bit // 8] ^= 1 << bit % 8
        (damage,) = look(disk).damage
        assert (damage.position, damage.length) == (position, header.size)
        assert (damage.first_offset, damage.last_offset) == (header.base_offset, header.last_offset)
        content[position + bit // 8] ^= 1 << bit % 8


def test_bytes_that_are_not_those_sealed_are_damage_although_every_batch_passes() -> None:
    """Somebody wrote another batch in the place of one, with the same offsets and a CRC that is right."""
    disk = stopped()
    path = segments_of(disk)[1]
    content = disk.file(path)
    position, header = list(split(bytes(content)))[2]
    content[position + header.size - 2] ^= 1
    seal(content, position)
    (damage,) = look(disk).damage
    assert damage.position <= position < damage.end
    assert damage.reason == "its checksum does not match"


def test_a_batch_of_another_epoch_is_damage() -> None:
    disk = crashed()
    path = segments_of(disk)[0]
    content = disk.file(path)
    position, header = list(split(bytes(content)))[1]
    stamp(memoryview(content)[position:], header, header.base_offset, 5)
    (damage,) = look(disk).damage
    assert (damage.position, damage.reason) == (position, "its leader epoch is 5, not 0")


def test_gaps_are_damage_in_a_dense_segment_and_a_note_in_a_compacted_one() -> None:
    disk = stopped()
    path = segments_of(disk)[1]
    checksums_path = path.removesuffix(".log") + ".sums"
    content = bytes(disk.file(path))
    position, header = list(split(content))[2]
    without = content[:position] + content[position + header.size :]
    disk.file(path)[:] = without
    (damage,) = look(disk).damage
    assert (damage.position, damage.length) == (position, 0)
    assert (damage.first_offset, damage.last_offset) == (header.base_offset, header.last_offset)
    checksums = SegmentChecksums.decode(bytes(disk.file(checksums_path)))
    assert checksums is not None
    for gaps in (Gaps.COMPACTED, Gaps.REPAIRED):
        disk.file(checksums_path)[:] = checksums._replace(gaps=gaps).encode()
        found = look(disk)
        assert found.healthy
        note = f"{ORDERS}: {header.last_offset_delta + 1} offsets are missing in 1 gaps, as compaction leaves them"
        assert note in found.notes


def test_a_sealed_segment_that_lost_whole_batches_at_its_end_is_damaged() -> None:
    disk = stopped()
    path = segments_of(disk)[1]
    *_, (position, header) = split(bytes(disk.file(path)))
    del disk.file(path)[position:]
    (damage,) = look(disk).damage
    assert (damage.first_offset, damage.last_offset) == (header.base_offset, header.last_offset)


def damage_file(disk: Disk, path: str, how: str) -> None:
    content = disk.file(path)
    match how:
        case "damaged":
            content[len(content) // 2] ^= 0x10
        case "cut short":
            del content[-1:]
        case "missing":
            disk.names.pop(path)


@pytest.mark.parametrize("how", ["damaged", "cut short", "missing"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_an_index_that_is_lost_or_wrong_will_be_rebuilt_and_is_no_damage(suffix: str, how: str) -> None:
    disk = stopped()
    path = segments_of(disk)[1].removesuffix(".log") + suffix
    damage_file(disk, path, how)
    found = look(disk)
    assert found.healthy
    assert [fault.file for fault in found.derived] == [path.removeprefix(f"{DATA}/")]


@pytest.mark.parametrize("how", ["damaged", "cut short"])
@pytest.mark.parametrize("name", [".sums", ".snapshot", EPOCHS_FILE])
def test_sums_snapshots_and_epochs_that_are_wrong_will_be_rebuilt(name: str, how: str) -> None:
    disk = stopped()
    path = sorted(path for path in disk.names if path.endswith(name))[-1]
    damage_file(disk, path, how)
    found = look(disk)
    assert found.healthy
    assert [fault.file for fault in found.derived] == [path.removeprefix(f"{DATA}/")]


def test_an_index_that_is_sound_but_of_another_log_is_found_without_sums() -> None:
    disk = crashed()
    path = segments_of(disk)[0].removesuffix(".log")
    disk.names.pop(path + ".sums")
    disk.file(path + ".index")[-1] ^= 1
    assert [fault.file for fault in look(disk).derived] == [f"{path.removeprefix(f'{DATA}/')}.index"]


def test_a_data_directory_is_verified_partition_by_partition() -> None:
    files = memory_files()
    directory = DataDirectory(files, DATA, SMALL)
    for number in range(3):
        write_log(directory.create(TopicPartition("orders", number)), 5 + number)
    directory.close(5000)
    disk = files.disk
    disk.file(f"{DATA}/orders-1/{0:020d}.log")[100] ^= 1
    found = look(disk)
    assert [(partition.name, partition.state) for partition in found.partitions] == [
        ("orders-0", "healthy"),
        ("orders-1", "damaged"),
        ("orders-2", "healthy"),
    ]
    assert {damage.file for damage in found.damage} == {f"orders-1/{0:020d}.log"}


def test_checkpoints_that_cannot_be_read_are_named() -> None:
    disk = stopped()
    del disk.file(f"{DATA}/{RECOVERY_POINTS}")[3:]
    found = look(disk)
    assert found.healthy
    assert [fault.file for fault in found.derived] == [RECOVERY_POINTS]


def test_a_directory_that_holds_no_log_is_not_taken_for_one() -> None:
    disk = Disk(directories={"disk", DATA, f"{DATA}/python-3"})
    with pytest.raises(NoLogHere):
        look(disk)


def test_progress_adds_up_to_the_bytes_there_are() -> None:
    files = RecordingFiles(crashed(unflushed=1))
    places = locate(files, DATA)
    told: list[int] = []
    verify(files, places, told.append)
    assert sum(told) == bytes_to_read(files, places)


def test_a_batch_that_is_being_written_is_neither_tail_nor_damage(tmp_path: Path) -> None:
    """The file grows while it is looked at: its size was taken in the middle of a write."""
    files = OperatingSystemFiles()
    directory = DataDirectory(files, str(tmp_path), SMALL)
    log = directory.create(ORDERS)
    for _ in range(3):
        log.append(batch_of(2), 1000)
    log.flush()
    places = locate(files, str(tmp_path))
    found = verify(InTheMiddleOfAWrite(log.active.name), places)
    assert (found.damage, found.tail) == ([], [])
    assert "was being appended to" in found.notes[0]
    assert found.partitions[0].end_offset == 4
    directory.close(2000)


class InTheMiddleOfAWrite(OperatingSystemFiles):
    """Says that a file is a few bytes shorter than it is by the time it is read."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def files_in(self, directory: str) -> dict[str, int]:
        sizes = super().files_in(directory)
        return {name: size - 7 * (name == self._name) for name, size in sizes.items()}

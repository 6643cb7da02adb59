"""A data directory: one process at a time, formats it knows, and small files that are right after any stop."""

import shutil
import subprocess
import sys
from errno import EIO
from pathlib import Path

import pytest
from logs import DATA, ORDERS, PARTITION, SMALL, batch_of, memory_files, stored_batches, write_log

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.os_files import OperatingSystemFiles
from tailrace.log.files.checkpoints import CLEAN_SHUTDOWN, FORMAT_FILE, RECOVERY_POINTS, START_OFFSETS, decode_offsets
from tailrace.log.layout.errors import DirectoryInUse, ForeignDirectory, StorageError, UnknownFormat
from tailrace.log.layout.names import TopicPartition
from tailrace.records.batch import split
from tailrace.testing.faulty_files import FaultyFiles
from tailrace.testing.recording_files import Disk, RecordingFiles

NOW = 5000
KAFKA_SEGMENT = Path(__file__).parents[2] / "data" / "kafka-segment" / "00000000000000000000.log"


def open_in_another_process(path: Path) -> str:
    """What happens there: "open", or the name of the error."""
    program = f"""
from tailrace.log.directory.directory import DataDirectory
from tailrace.log.disk.os_files import OperatingSystemFiles
try:
    directory = DataDirectory(OperatingSystemFiles(), {str(path)!r})
    print("open")
    directory.close(0)
except Exception as error:
    print(type(error).__name__)
"""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


# One process at a time


def test_a_directory_that_is_open_is_refused_to_others_until_it_is_closed(tmp_path: Path) -> None:
    directory = DataDirectory(OperatingSystemFiles(), str(tmp_path / "data"))
    assert open_in_another_process(tmp_path / "data") == "DirectoryInUse"
    with pytest.raises(DirectoryInUse, match="in use"):
        DataDirectory(OperatingSystemFiles(), str(tmp_path / "data"))
    directory.close(NOW)
    assert open_in_another_process(tmp_path / "data") == "open"
    DataDirectory(OperatingSystemFiles(), str(tmp_path / "data")).close(NOW)


def test_who_is_refused_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "data"
    directory = DataDirectory(OperatingSystemFiles(), str(path))
    log = directory.create(ORDERS)
    log.append(batch_of(2), NOW)
    directory.checkpoint(NOW)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    assert open_in_another_process(path) == "DirectoryInUse"
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before
    directory.close(NOW)


def test_a_directory_that_could_not_be_opened_is_not_held(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir()
    (path / FORMAT_FILE).write_text("99\n")
    with pytest.raises(UnknownFormat):
        DataDirectory(OperatingSystemFiles(), str(path))
    files = FaultyFiles(OperatingSystemFiles())
    (path / FORMAT_FILE).unlink()
    files.fail("rename", EIO)
    with pytest.raises(StorageError):
        DataDirectory(files, str(path))
    assert open_in_another_process(path) == "open"


def test_a_stop_that_fails_lets_the_directory_go(tmp_path: Path) -> None:
    path = tmp_path / "data"
    files = FaultyFiles(OperatingSystemFiles())
    directory = DataDirectory(files, str(path))
    directory.create(ORDERS).append(batch_of(2), NOW)
    files.fail("rename", EIO, forever=True)
    with pytest.raises(StorageError):
        directory.close(NOW)
    assert not (path / CLEAN_SHUTDOWN).exists()
    assert open_in_another_process(path) == "open"


# Formats


def test_a_new_directory_is_made_and_says_its_format(tmp_path: Path) -> None:
    path = tmp_path / "not" / "there"
    DataDirectory(OperatingSystemFiles(), str(path)).close(NOW)
    assert (path / FORMAT_FILE).read_text() == "2\n"


def test_a_directory_of_an_older_format_is_raised_to_ours(tmp_path: Path) -> None:
    DataDirectory(OperatingSystemFiles(), str(tmp_path)).close(NOW)
    (tmp_path / FORMAT_FILE).write_text("1\n")
    DataDirectory(OperatingSystemFiles(), str(tmp_path)).close(NOW)
    assert (tmp_path / FORMAT_FILE).read_text() == "2\n"


def test_a_format_is_raised_before_what_needs_it_is_written_and_stays(tmp_path: Path) -> None:
    """Until then a directory can be opened by the release before."""
    directory = DataDirectory(OperatingSystemFiles(), str(tmp_path))
    for version, content in ((2, "2\n"), (3, "3\n"), (2, "3\n")):
        directory.require_format(version)
        assert directory.has_format(version)
        assert not directory.has_format(int(content) + 1)
        assert (tmp_path / FORMAT_FILE).read_text() == content
    directory.close(NOW)
    DataDirectory(OperatingSystemFiles(), str(tmp_path)).close(NOW)
    assert (tmp_path / FORMAT_FILE).read_text() == "3\n"


@pytest.mark.parametrize("content", ["5\n", "10", "0", "", "\n", "-1\n", "1.5\n", "garbage", "\xff\xfe"])
def test_a_format_that_is_newer_or_nonsense_is_refused_and_nothing_is_touched(tmp_path: Path, content: str) -> None:
    (tmp_path / FORMAT_FILE).write_bytes(content.encode("latin-1"))
    (tmp_path / CLEAN_SHUTDOWN).write_text("")
    shutil.copytree(KAFKA_SEGMENT.parent, tmp_path / "words-0")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UnknownFormat) as error:
        DataDirectory(OperatingSystemFiles(), str(tmp_path))
    assert "open it with the release that wrote it, or a newer one" in str(error.value)
    assert str(tmp_path) in str(error.value)
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before


# Directories that are not ours


def kafka_directory(path: Path) -> None:
    """As Kafka leaves it."""
    (path / "words-0").mkdir(parents=True)
    shutil.copy(KAFKA_SEGMENT, path / "words-0")
    (path / "words-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n")
    (path / "meta.properties").write_text("version=1\n")
    (path / RECOVERY_POINTS).write_text("0\n1\nwords 0 0\n")
    (path / CLEAN_SHUTDOWN).write_text('{"version":0,"brokerEpoch":7}')


def everything(path: Path) -> dict[Path, tuple[int, bytes]]:
    """When each name in a directory, and the directory itself, was last changed, and the content of files."""
    found = [path, *path.rglob("*")]
    return {one: (one.stat().st_mtime_ns, one.read_bytes() if one.is_file() else b"") for one in found}


@pytest.mark.parametrize("removed", [[], ["words-0"], ["words-0", RECOVERY_POINTS, CLEAN_SHUTDOWN]])
@pytest.mark.parametrize("has_our_format", [True, False])  # earlier releases wrote one before they refused it
def test_a_directory_of_kafka_s_is_refused_and_not_touched(
    tmp_path: Path, removed: list[str], has_our_format: bool
) -> None:
    kafka_directory(tmp_path)
    for name in removed:
        shutil.rmtree(tmp_path / name) if name == "words-0" else (tmp_path / name).unlink()
    if has_our_format:
        (tmp_path / FORMAT_FILE).write_text("2\n")
    before = everything(tmp_path)
    with pytest.raises(ForeignDirectory, match=r"is Apache Kafka's data directory: it has meta\.properties"):
        DataDirectory(OperatingSystemFiles(), str(tmp_path))
    assert everything(tmp_path) == before


@pytest.mark.parametrize("names", [["notes.txt"], ["words-0/00000000000000000000.log"], [".bashrc", "Documents/x"]])
def test_a_directory_with_something_else_in_it_is_refused_and_not_touched(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    before = everything(tmp_path)
    with pytest.raises(ForeignDirectory, match=f"not empty: it has {names[0].partition('/')[0]}") as error:
        DataDirectory(OperatingSystemFiles(), str(tmp_path))
    assert "Choose a new or an empty directory" in str(error.value)
    assert everything(tmp_path) == before


def test_what_a_file_system_and_an_interrupted_first_start_leave_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    for name in (".lock", f"{RECOVERY_POINTS}.tmp", START_OFFSETS, f"{FORMAT_FILE}.tmp"):
        (tmp_path / name).write_bytes(b"0\n0\n")
    DataDirectory(OperatingSystemFiles(), str(tmp_path)).close(NOW)
    assert (tmp_path / FORMAT_FILE).read_text() == "2\n"


def test_no_power_cut_in_the_first_start_leaves_a_directory_that_is_refused() -> None:
    files = memory_files()
    DataDirectory(files, DATA).create(ORDERS).flush()
    for after in range(len(files.calls) + 1):
        for left in files.power_cuts(after, limit=20):
            DataDirectory(left, DATA).create(TopicPartition("other", 0)).flush()


def test_a_directory_of_ours_that_lost_its_format_file_is_opened(tmp_path: Path) -> None:
    directory = DataDirectory(OperatingSystemFiles(), str(tmp_path))
    directory.create(TopicPartition("__tailrace_metadata", 0)).append(batch_of(2), NOW)
    directory.close(NOW)
    (tmp_path / FORMAT_FILE).unlink()
    (tmp_path / "meta.properties").write_text("version=1\n")  # as Kafka's tool leaves it that formats a directory
    again = DataDirectory(OperatingSystemFiles(), str(tmp_path))
    assert again.logs[TopicPartition("__tailrace_metadata", 0)].end_offset == 2
    again.close(NOW)
    assert (tmp_path / FORMAT_FILE).read_text() == "2\n"


def test_what_is_no_partition_is_left_alone(tmp_path: Path) -> None:
    DataDirectory(OperatingSystemFiles(), str(tmp_path)).close(NOW)
    strange = ["lost+found/file", "orders/00000000000000000000.log", "orders-01/x", "words-0.4f2a-delete/0.log", "-1/x"]
    for name in strange:
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(name)
    (tmp_path / "notes-7").write_text("a file, not a directory")
    directory = DataDirectory(OperatingSystemFiles(), str(tmp_path))
    assert directory.logs == {}
    directory.create(ORDERS).append(batch_of(1), NOW)
    directory.close(NOW)
    for name in strange:
        assert (tmp_path / name).read_text() == name
        assert len(list((tmp_path / name).parent.iterdir())) == 1
    assert (tmp_path / "notes-7").read_text() == "a file, not a directory"


def test_files_of_others_in_a_partition_are_left_alone(tmp_path: Path) -> None:
    directory = DataDirectory(OperatingSystemFiles(), str(tmp_path))
    write_log(directory.create(ORDERS), 10)
    directory.close(NOW)
    others = ["partition.metadata", "remote_log_snapshot", "README", "00000000000000000000.log.100.cut", "1.log"]
    for name in others:
        (tmp_path / str(ORDERS) / name).write_text(name)
    (tmp_path / str(ORDERS) / "00000000000000000007.log.tmp").write_text("half")
    for _ in range(2):
        DataDirectory(OperatingSystemFiles(), str(tmp_path)).close(NOW)
    for name in others:
        assert (tmp_path / str(ORDERS) / name).read_text() == name
    assert not (tmp_path / str(ORDERS) / "00000000000000000007.log.tmp").exists(), "what a crash left half done goes"


# Checkpoints and clean stops


def in_memory() -> tuple[RecordingFiles, DataDirectory]:
    files = memory_files()
    return files, DataDirectory(files, DATA, SMALL)


def offsets_on(disk: Disk, name: str) -> dict[TopicPartition, int]:
    return decode_offsets(bytes(disk.file(f"{DATA}/{name}")))


def test_a_checkpoint_writes_where_every_log_begins_and_where_recovery_would() -> None:
    files, directory = in_memory()
    other = TopicPartition("other", 3)
    write_log(directory.create(ORDERS), 30)
    directory.create(other).append(batch_of(5), NOW)
    directory.logs[ORDERS].flush()
    directory.logs[ORDERS].delete_before(20)
    directory.checkpoint(NOW)
    end = directory.logs[ORDERS].end_offset
    assert offsets_on(files.disk, RECOVERY_POINTS) == {ORDERS: end, other: 5}
    assert offsets_on(files.disk, START_OFFSETS) == {ORDERS: 20, other: 0}
    directory.logs[other].append(batch_of(2), NOW)
    directory.logs[other].flush()
    assert offsets_on(files.disk, RECOVERY_POINTS)[other] == 5, "a flush is no checkpoint"


def test_a_checkpoint_of_logs_that_have_not_changed_writes_their_offsets_only() -> None:
    files, directory = in_memory()
    write_log(directory.create(ORDERS), 30)
    directory.checkpoint(NOW)
    calls = len(files.calls)
    directory.checkpoint(NOW)
    written = {call.path for call in files.calls[calls:] if call.kind == "create"}
    assert written == {f"{DATA}/{name}.tmp" for name in (RECOVERY_POINTS, START_OFFSETS)}


def test_checkpoints_that_cannot_be_saved_keep_the_old_ones_and_what_was_deleted() -> None:
    memory = memory_files()
    files = FaultyFiles(memory)
    directory = DataDirectory(files, DATA, SMALL)
    log = directory.create(ORDERS)
    write_log(log, 30)
    directory.checkpoint(NOW)
    before = offsets_on(memory.disk, START_OFFSETS), set(memory.files_in(PARTITION))
    log.delete_before(log.high_watermark)
    files.fail("rename", EIO, name=START_OFFSETS)
    with pytest.raises(StorageError):
        directory.checkpoint(NOW)
    assert (offsets_on(memory.disk, START_OFFSETS), set(memory.files_in(PARTITION))) == before
    assert log.condemned
    directory.checkpoint(NOW)
    assert offsets_on(memory.disk, START_OFFSETS) == {ORDERS: log.high_watermark}
    assert not log.condemned


def test_a_start_after_a_clean_stop_is_clean_and_only_that_one() -> None:
    files, directory = in_memory()
    write_log(directory.create(ORDERS), 30)
    assert not directory.was_clean
    directory.close(NOW)
    second = DataDirectory(files, DATA, SMALL)
    assert second.was_clean
    assert second.reports[ORDERS].was_clean
    third = DataDirectory(RecordingFiles(files.disk.copy()), DATA, SMALL)
    assert not third.was_clean, "the second was never closed"
    second.close(NOW)
    assert DataDirectory(files, DATA, SMALL).was_clean


def test_no_power_cut_after_a_start_leaves_the_marker_of_the_stop_before() -> None:
    files, directory = in_memory()
    write_log(directory.create(ORDERS), 5)
    directory.close(NOW)
    files = RecordingFiles(files.disk)
    DataDirectory(files, DATA, SMALL).logs[ORDERS].append(batch_of(1), NOW)
    for left in files.power_cuts(len(files.calls), limit=50):
        assert f"{DATA}/{CLEAN_SHUTDOWN}" not in left.disk.names


@pytest.mark.parametrize("content", [b"", b"garbage", b"0\n9\norders 0 5\n", b"\xff\xfe\x00", b"7\n1\norders 0 5\n"])
@pytest.mark.parametrize("clean", [True, False])
def test_logs_are_scanned_and_lose_nothing_where_the_checkpoints_are_nonsense(
    content: bytes, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    files, directory = in_memory()
    log = directory.create(ORDERS)
    write_log(log, 40)
    log.flush()
    directory.checkpoint(NOW)
    expected = stored_batches(log)
    if clean:
        directory.close(NOW)
    for name in (RECOVERY_POINTS, START_OFFSETS):
        files.disk.file(f"{DATA}/{name}")[:] = content
    files = RecordingFiles(files.disk.copy())
    again = DataDirectory(files, DATA, SMALL)
    assert stored_batches(again.logs[ORDERS]) == expected
    assert again.logs[ORDERS].producers.producers == log.producers.producers
    assert (again.reports[ORDERS].damage, again.reports[ORDERS].truncation) == ([], None)
    assert [record.levelname for record in caplog.records].count("WARNING") >= 2, "somebody should hear of it"
    again.checkpoint(NOW)
    assert offsets_on(files.disk, RECOVERY_POINTS) == {ORDERS: log.end_offset}


def test_a_partition_that_no_checkpoint_names_was_made_after_it() -> None:
    files, directory = in_memory()
    directory.checkpoint(NOW)
    log = directory.create(ORDERS)
    log.append(batch_of(3), NOW)
    log.flush()
    again = DataDirectory(RecordingFiles(files.disk.copy()), DATA, SMALL)
    assert again.logs[ORDERS].end_offset == 3
    assert (again.reports[ORDERS].damage, again.reports[ORDERS].truncation) == ([], None)


def test_fifty_partitions_are_used_with_sixteen_descriptors(tmp_path: Path) -> None:
    files = OperatingSystemFiles(descriptor_limit=16)
    directory = DataDirectory(files, str(tmp_path), SMALL)
    partitions = [TopicPartition("orders", number) for number in range(50)]
    for partition in partitions:
        directory.create(partition).flush()
    for round_ in range(12):
        for partition in partitions:
            directory.logs[partition].append(batch_of(1 + partition.partition % 3, size=10 + round_), NOW)
            directory.logs[partition].flush()  # what is not flushed is held open
            assert files.open_descriptors <= 16
    directory.checkpoint(NOW)
    expected = {partition: stored_batches(directory.logs[partition]) for partition in partitions}
    assert files.open_descriptors <= 16
    directory.close(NOW)
    assert files.open_descriptors == 0
    files = OperatingSystemFiles(descriptor_limit=16)
    directory = DataDirectory(files, str(tmp_path), SMALL)
    assert directory.was_clean
    assert {partition: stored_batches(directory.logs[partition]) for partition in partitions} == expected
    assert files.open_descriptors <= 16
    assert all(len(list(split(b"".join(batches.values())))) == 12 for batches in expected.values())
    directory.close(NOW)

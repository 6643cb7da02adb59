"""Making backups: what is in them, what is not copied again, and whatever a broker does meanwhile."""

from collections.abc import Callable
from errno import EIO
from typing import Any

import pytest
from backups import (
    DATA,
    DEST,
    RESTORED,
    WatchedFiles,
    a_source,
    back_up,
    batches_of,
    counting,
    restored,
    verified,
    write_more,
)
from brokers import LocalBroker
from compactions import CONFIG, compact
from logs import answers, memory_files

from tailrace.backup.create import AnotherDirectory, NotADataDirectory, open_source
from tailrace.backup.store import NotForBackups, Store, StoreInUse, WritableStore
from tailrace.facts import losses
from tailrace.log.disk.interface import replace_whole, write_whole
from tailrace.log.files.checkpoints import RECOVERY_POINTS, START_OFFSETS
from tailrace.log.files.checksums import ChunkChecksums, Gaps, SegmentChecksums
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.errors import LogOffline
from tailrace.log.retention import Reason
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tailrace.records.batch import BatchHeader
from tailrace.records.record import Record, encode_batch
from tailrace.testing.faulty_files import FaultyFiles
from tailrace.testing.recording_files import RecordingFiles


def reopened(files: RecordingFiles) -> LocalBroker:
    return LocalBroker(RESTORED, files=files)


def test_a_restored_log_and_its_derived_files_are_equal_byte_for_byte() -> None:
    files, broker = a_source()
    broker.directory.checkpoint(2000)
    write_more(broker.log(), 10)
    broker.log().flush()
    wanted, derived = batches_of(broker.log()), answers(broker.log())
    assert back_up(files).manifest.damage == []
    assert verified(files).healthy
    restored(files)
    again = reopened(files)
    assert batches_of(again.log()) == wanted
    assert answers(again.log()) == derived
    assert again.broker.metadata.unclean_starts == 1
    assert again.broker.metadata.topics["orders"].topic_id == broker.broker.metadata.topics["orders"].topic_id


def test_a_restored_broker_reads_no_more_of_a_log_at_its_start_than_the_original() -> None:
    files, broker = a_source()
    broker.directory.checkpoint(2000)
    write_more(broker.log(), 3)
    broker.log().flush()
    back_up(files)
    restored(files)
    assert files_derived(files, RESTORED) == files_derived(files, DATA)
    again = reopened(files)
    [report] = [report for name, report in again.directory.reports.items() if name.topic == "orders"]
    assert report.scanned_batches == 3
    assert report.damage == []
    assert report.truncation is None


def files_derived(files: RecordingFiles, data: str) -> dict[str, int]:
    found = files.files_in(f"{data}/orders-0")
    return {name: size for name, size in found.items() if size and name.endswith(("index", ".sums"))}


def test_what_was_written_and_not_flushed_is_in_it_but_a_write_under_way_is_not() -> None:
    files, broker = a_source()
    write_more(broker.log(), 2)
    end = broker.log().end_offset
    active = broker.log().active
    file = files.open(active.log.path)
    file.write_at(active.size, b"\0\0\0\0 the beginning of a batch")
    back_up(files)
    restored(files)
    assert reopened(files).log().end_offset == end
    assert not [name for name in files.files_in(f"{RESTORED}/orders-0") if ".cut" in name]


def test_a_second_backup_copies_what_is_new_and_the_first_stays_what_it_was() -> None:
    files, broker = a_source()
    broker.directory.checkpoint(2000)
    first = back_up(files).manifest
    assert first.copied_bytes == first.size
    wanted = batches_of(broker.log())
    size_before = sum(segment.size for segment in broker.log().segments[:-1])
    write_more(broker.log(), 10)
    broker.directory.checkpoint(3000)
    second = back_up(files).manifest
    new = next(log for log in second.logs if log.name == "orders-0").size - size_before
    assert 0 < second.copied_bytes <= new + 2000  # and the metadata, and what is derived
    assert verified(files, first.id).healthy
    assert verified(files, second.id).healthy
    restored(files, first.id)
    assert batches_of(reopened(files).log()) == wanted


def test_a_third_backup_of_a_directory_in_which_nothing_happens_copies_nothing() -> None:
    files, broker = a_source()
    broker.close()
    back_up(files)
    assert back_up(files).manifest.copied_bytes == 0


def rewritten(files: RecordingFiles, broker: LocalBroker, number: int = 1) -> None:
    """A segment as compaction leaves it: of the same name, with a batch less, and its last one in place."""
    segment = broker.log().segments[number]
    data = segment.log.read_at(0, segment.size)
    headers = [item[1] for item in segment.batches(0, segment.size) if isinstance(item[1], BatchHeader)]
    end = len(data) - headers[-1].size
    data = data[: end - headers[-2].size] + data[end:]
    chunks = ChunkChecksums()
    chunks.update(data)
    checksums = SegmentChecksums(len(data), segment.derived().next_offset, 0, 0, chunks.checksums, gaps=Gaps.COMPACTED)
    path = segment.log.path
    for suffix in (".index", ".timeindex", ".txnindex"):
        write_whole(files, path.replace(".log", suffix), b"")
    replace_whole(files, path.replace(".log", ".sums"), checksums.encode())
    replace_whole(files, path, data)


def test_a_segment_that_was_compacted_since_is_copied_again() -> None:
    files, broker = a_source()
    broker.directory.checkpoint(2000)
    back_up(files)
    rewritten(files, broker)
    second = back_up(files).manifest
    segment = next(log for log in second.logs if log.name == "orders-0").segments[1]
    assert segment.log.size == files.files_in(f"{DATA}/orders-0")[segment.log.name]
    assert second.copied_bytes >= segment.log.size
    assert verified(files).healthy


def test_a_backup_waits_for_a_swap_and_reports_one_that_makes_no_progress() -> None:
    files, broker = a_source()
    broker.directory.checkpoint(2000)
    swap = f"{DATA}/orders-0/00000000000000000000.swap"
    write_whole(files, swap, b"")
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 5:
            rewritten(files, broker)
            files.remove(swap)

    manifest = back_up(files, sleep=sleep).manifest
    assert len(waited) == 5
    assert manifest.damage == []
    assert verified(files).healthy


@pytest.mark.parametrize(
    ("kind", "name"),
    [("rename", f"{0:020}.log"), ("rename", f"{0:020}.sums"), ("remove", ".log"), ("remove", ".swap")],
)
def test_a_log_whose_swap_was_cut_short_is_copied_with_all_that_a_start_would_find(kind: str, name: str) -> None:
    files = memory_files()
    faulty = FaultyFiles(files)
    broker = LocalBroker(DATA, files=faulty)
    broker.create_topic()
    broker.produce(b"first")
    log = broker.log()
    log.configure(CONFIG)
    for number in range(40):
        record = Record(0, number, b"key %d" % (number % 30), b"%d" % number * 20)
        log.append(encode_batch([record]), number)
    log.roll()
    broker.directory.checkpoint(2000)
    faulty.fail(kind, EIO, name=name)
    with pytest.raises(LogOffline):
        compact(log, 5000)
    assert any(name.endswith(".swap") for name in files.files_in(f"{DATA}/orders-0"))
    waited: list[float] = []
    assert back_up(files, sleep=waited.append).manifest.damage == []
    assert waited, "it might have gone on"
    assert verified(files).healthy
    restored(files)
    broker.directory.abandon()
    with LocalBroker(DATA, files=RecordingFiles(files.disk.copy())) as started, reopened(files) as again:
        found, due = batches_of(again.log()), batches_of(started.log())
        assert due.items() <= found.items(), "a swap that has moved no file yet has left the old segments, too"
        assert found == due or (kind, name) == ("rename", f"{0:020}.log")


def delete_the_oldest(files: RecordingFiles, broker: LocalBroker) -> None:
    log = broker.log()
    log.delete_before(log.segments[2].base_offset)
    broker.directory.checkpoint(2000)


def roll(files: RecordingFiles, broker: LocalBroker) -> None:
    broker.log().roll()
    write_more(broker.log(), 2)
    broker.directory.checkpoint(2000)


def delete_the_topic(files: RecordingFiles, broker: LocalBroker) -> None:
    broker.delete_topic("orders")


def make_it_anew(files: RecordingFiles, broker: LocalBroker) -> None:
    broker.delete_topic("orders")
    broker.create_topic("orders")
    broker.produce(b"another")


MEANWHILE = [rewritten, delete_the_oldest, roll, delete_the_topic, make_it_anew]


@pytest.mark.parametrize("what", MEANWHILE, ids=lambda what: what.__name__)
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.crash), 41])
def test_whatever_a_broker_does_between_any_two_calls_the_backup_is_a_state_that_was(
    what: Callable[[RecordingFiles, LocalBroker], None], step: int
) -> None:
    at, is_over = 0, False
    while not is_over:
        at += step
        files, broker = a_source(batches=20)
        broker.directory.checkpoint(1500)
        before, topic_id = batches_of(broker.log()), broker.broker.metadata.topics["orders"].topic_id

        def then(number: int, at: int = at, files: Any = files, broker: Any = broker) -> None:
            if number == at:
                what(files, broker)

        tell, calls = counting(then)
        manifest = back_up(WatchedFiles(files, tell)).manifest  # type: ignore[arg-type]
        is_over = calls[0] < at
        assert manifest.damage == []
        assert verified(files).healthy
        check_state(files, topic_id, before, what)


def check_state(
    files: RecordingFiles,
    topic_id: bytes,
    before: dict[int, bytes],
    what: Callable[[RecordingFiles, LocalBroker], None],
) -> None:
    """What is restored opens without damage, and has what was there before, but for what was taken away."""
    restored(files)
    again = reopened(files)
    assert not [damage for report in again.directory.reports.values() for damage in report.damage]
    assert not [name for name in again.directory.put_away if name.endswith("-stray")], "a log that nobody knows"
    topic = again.broker.metadata.topics.get("orders")
    if topic is None or topic.topic_id != topic_id:
        assert what in (delete_the_topic, make_it_anew)
        return
    found = batches_of(again.log())
    if what is delete_the_oldest:
        before = {offset: data for offset, data in before.items() if offset >= again.log().start_offset}
    missing = {offset for offset in before if offset not in found}
    assert len(missing) <= (what is rewritten)
    assert all(found[offset] == data for offset, data in before.items() if offset not in missing)


def test_a_topic_recreated_between_look_and_copy_is_not_mistaken_for_the_old_one() -> None:
    files, broker = a_source(batches=1)
    is_done: list[bool] = []

    def tell(kind: str, path: str) -> None:
        if kind == "pin" and path.endswith("orders-0/00000000000000000000.log") and not is_done:
            is_done.append(True)
            broker.delete_topic("orders")
            broker.create_topic("orders")
            broker.produce(b"another, and larger" * 100)

    manifest = back_up(WatchedFiles(files, tell)).manifest  # type: ignore[arg-type]
    assert is_done
    [log] = [log for log in manifest.logs if log.name == "orders-0"]
    assert log.topic_id == broker.partition().topic.topic_id.hex()
    assert verified(files).healthy
    restored(files)
    assert reopened(files).values() == [b"another, and larger" * 100]


def test_damage_in_the_source_is_copied_as_it_is_and_said_each_time() -> None:
    files, broker = a_source()
    broker.directory.checkpoint(2000)
    segment = broker.log().segments[1]
    flip(files, segment.log.path, 100)
    for _ in range(2):
        manifest = back_up(files).manifest
        assert [damage["file"] for damage in manifest.damage] == [f"orders-0/{segment.name}"]
        result = verified(files)
        assert not result.healthy
        assert result.bad_objects == []
        assert [damage.as_json() for damage in result.logs.damage] == manifest.damage
    restored(files)
    data = files.open(f"{RESTORED}/orders-0/{segment.name}")
    assert data.read_at(0, data.size()) == segment.log.read_at(0, segment.size)


def flip(files: RecordingFiles, path: str, position: int) -> None:
    file = files.open(path)
    byte = file.read_at(position, 1)[0]
    file.write_at(position, bytes([byte ^ 1]))


def test_a_corrupt_batch_of_the_active_segment_is_reported_and_the_rest_is_copied() -> None:
    files, broker = a_source()
    broker.log().roll()
    write_more(broker.log(), 5)
    flip(files, broker.log().active.log.path, 70)
    end = broker.log().end_offset
    manifest = back_up(files).manifest
    assert len(manifest.damage) == 1
    assert [log.end_offset for log in manifest.logs if log.name == "orders-0"] == [end]


class BadSector(WatchedFiles):
    """A page of one file cannot be read."""

    def __init__(self, files: RecordingFiles, path: str) -> None:
        super().__init__(files, lambda _, __: None)
        self._path = path

    def open(self, path: str, *, create: bool = False) -> Any:
        file = super().open(path, create=create)
        return UnreadableFile(file) if path == self._path else file


class UnreadableFile:
    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read_cached_at(self, position: int, size: int) -> None:
        return None

    def read_at(self, position: int, size: int) -> Any:
        if position < 8192 and position + size > 4096:
            raise OSError(EIO, "Input/output error", self._file.path)
        return self._file.read_at(position, size)


@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_page_that_cannot_be_read_costs_its_batches_and_no_others(is_sealed: bool) -> None:
    files, broker = a_source(batches=1)
    broker.log().configure(LogConfig(segment_bytes=20_000))
    broker.log().roll()
    path = broker.log().active.log.path
    write_more(broker.log(), 80)
    broker.log().flush()
    if is_sealed:
        broker.log().roll()
        write_more(broker.log(), 3)
        broker.directory.checkpoint(2000)
    manifest = back_up(BadSector(files, path)).manifest  # type: ignore[arg-type]
    assert {damage["file"] for damage in manifest.damage} == {f"orders-0/{path.rpartition('/')[2]}"}
    assert sum(damage["length"] for damage in manifest.damage) < 6000
    restored(files)
    found, wanted = batches_of(reopened(files).log()), batches_of(broker.log())
    assert len(wanted) - 40 < len(found) < len(wanted)
    assert all(wanted[offset] == data for offset, data in found.items())


def test_committed_offsets_are_cut_before_the_logs_and_the_metadata_after_them() -> None:
    files, broker = a_source()
    commit = OffsetCommitRequest(
        group_id="billing",
        topics=[
            OffsetCommitRequestTopic(
                name="orders", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=5)]
            )
        ],
    )
    broker.ask(commit, 8)
    names = [log.name for log in back_up(files).manifest.logs]
    assert names == ["__consumer_offsets-0", "orders-0", "__tailrace_metadata-0"]


def test_backups_of_another_directory_are_refused() -> None:
    files, broker = a_source()
    back_up(files)
    broker.close()
    for name in files.directories_in(DATA):
        for file in files.files_in(f"{DATA}/{name}"):
            files.remove(f"{DATA}/{name}/{file}")
        files.remove_directory(f"{DATA}/{name}")
    for name in (RECOVERY_POINTS, START_OFFSETS):
        files.remove(f"{DATA}/{name}")
    LocalBroker(DATA, files=files, seed=1)
    with pytest.raises(AnotherDirectory, match="of another data directory"):
        back_up(files)


def test_a_backup_refuses_a_source_without_data_and_a_target_with_other_files() -> None:
    files, _ = a_source()
    files.make_directory("disk/empty")
    with pytest.raises(NotADataDirectory):
        open_source(files, "disk/empty")
    with pytest.raises(NotForBackups):
        WritableStore(files, DATA)


def test_two_at_a_time_are_refused(tmp_path: Any) -> None:
    from tailrace.log.disk.os_files import OperatingSystemFiles

    files = OperatingSystemFiles()
    store = WritableStore(files, str(tmp_path / "backups"))
    with pytest.raises(StoreInUse):
        WritableStore(files, str(tmp_path / "backups"))
    store.close()
    WritableStore(files, str(tmp_path / "backups")).close()


def test_bytes_that_no_backup_has_go_with_the_backups_that_had_them() -> None:
    files, broker = a_source()
    broker.directory.checkpoint(2000)
    first = back_up(files).manifest
    delete_the_oldest(files, broker)
    back_up(files)
    store = WritableStore(files, DEST)
    store.delete([first.id])
    assert store.collect() > 0
    store.close()
    assert Store(files, DEST).ids() == [store.ids()[-1]]
    assert verified(files).healthy


def test_a_backup_has_the_notes_of_all_losses_of_its_logs() -> None:
    """Segments that a broker deletes while the backup is made, after the logs of internal topics were copied."""
    files, broker = a_source()
    broker.directory.checkpoint(2000)
    broker.run_jobs()
    before = broker.log().end_of_first_segments(3)
    is_done = False

    def tell(call: str, path: str) -> None:
        nonlocal is_done
        if not is_done and path.startswith(f"{DATA}/orders-0"):
            is_done = True
            broker.broker.retention.delete(broker.partition(), before, Reason.SIZE, broker.now_ms)
            broker.broker.checkpointer.when_offsets_saved()
            broker.run_jobs()

    back_up(WatchedFiles(files, tell))  # type: ignore[arg-type]
    assert is_done
    restored(files)
    again = reopened(files)
    assert again.log().start_offset == before
    assert [losses.decode(value).last for value in again.values("__tailrace_losses")] == [before - 1]

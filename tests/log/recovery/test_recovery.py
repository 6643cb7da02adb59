"""Opening a log after a stop: what is read, what is reported, and that what is derived comes out the same."""

from errno import EIO

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logs import DATA, ORDERS, PARTITION, SMALL, batch_of, memory_files, reopen, stored_batches, write_log

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.files.checkpoints import FORMAT_FILE
from tailrace.log.files.checksums import CHUNK_BYTES, Gaps, SegmentChecksums
from tailrace.log.files.index import AbortedTransaction
from tailrace.log.layout.config import LogConfig
from tailrace.log.layout.names import SNAPSHOT
from tailrace.log.log import Log
from tailrace.log.recovery.recovery import open_log
from tailrace.log.tools.locate import locate
from tailrace.log.tools.verify import verify
from tailrace.records.control import Marker, encode_marker
from tailrace.records.record import Record, encode_batch
from tailrace.testing.faulty_files import FaultyFiles
from tailrace.testing.recording_files import Disk, RecordingFiles

NOW = 5000
ONE_SEGMENT = LogConfig(index_interval_bytes=300)


class Setup:
    def __init__(self, config: LogConfig = SMALL) -> None:
        self.files = memory_files()
        self.config = config
        self.directory = DataDirectory(self.files, DATA, config)
        self.log = self.directory.create(ORDERS)
        self.log.flush()

    def killed(self) -> Disk:
        """The disk, with all that was written, as a killed process leaves it."""
        return self.files.disk.copy()

    def start(self, files: RecordingFiles | FaultyFiles | None = None) -> Log:
        """The next process on the same disk."""
        self.directory = DataDirectory(files or self.files, DATA, self.config)
        self.log = self.directory.logs[ORDERS]
        return self.log


def path_of(base_offset: int, suffix: str = ".log") -> str:
    return f"{PARTITION}/{base_offset:020d}{suffix}"


def snapshots_on(disk: Disk) -> list[str]:
    return sorted(path for path in disk.names if path.endswith(SNAPSHOT))


def transaction(log: Log, producer: int, kind: Marker | None, *, sequence: int = 0) -> None:
    records = [Record(0, 1000, b"key", b"of a transaction")]
    log.append(
        encode_batch(records, producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True), NOW
    )
    if kind is not None:
        log.append(encode_marker(kind, producer, 0, 1, 1000), NOW)


# What is read


def test_after_a_crash_nothing_before_the_recovery_point_is_read() -> None:
    setup = Setup()
    write_log(setup.log, 40)
    setup.directory.checkpoint(NOW)
    sealed = [segment.base_offset for segment in setup.log.segments[:-1]]
    assert len(sealed) > 2
    for number in range(5):
        setup.log.append(batch_of(3, time=6000 + number), NOW)
    setup.log.flush()
    files = FaultyFiles(RecordingFiles(setup.killed()))
    for base_offset in sealed:
        for suffix in (".log", ".index", ".timeindex", ".txnindex"):
            files.fail("read_at", EIO, name=f"{base_offset:020d}{suffix}", forever=True)
    directory = DataDirectory(files, DATA, SMALL)
    assert not directory.was_clean
    assert directory.reports[ORDERS].scanned_batches == 5
    files.heal()
    assert stored_batches(directory.logs[ORDERS]) == stored_batches(setup.log)


def test_a_clean_start_reads_no_data_however_often_it_was_stopped_and_went_on() -> None:
    setup = Setup(ONE_SEGMENT)
    for _ in range(4):
        setup.log.append(batch_of(3), NOW)
        setup.directory.close(NOW)
        files = FaultyFiles(setup.files)
        files.fail("read_at", EIO, name=".log", forever=True)
        setup.start(files)
        assert setup.directory.was_clean
        files.heal()
    assert len(stored_batches(setup.log)) == 4


def test_what_one_start_has_scanned_the_next_does_not_scan_again_after_a_checkpoint() -> None:
    setup = Setup()
    write_log(setup.log, 40)
    setup.log.flush()
    setup.start()
    assert setup.directory.reports[ORDERS].scanned_batches == len(stored_batches(setup.log))
    setup.directory.checkpoint(NOW)
    setup.start()
    assert setup.directory.reports[ORDERS].scanned_batches == 0


# What is reported


def test_the_report_of_a_crash_counts_what_was_scanned() -> None:
    setup = Setup(ONE_SEGMENT)
    setup.log.append(batch_of(3), NOW)
    setup.directory.checkpoint(NOW)
    behind = [batch_of(2), batch_of(1), batch_of(4)]
    for data in behind:
        setup.log.append(data, NOW)
    _, report = reopen(setup.killed(), ONE_SEGMENT)
    assert (report.was_clean, report.truncation, report.damage, report.leader_epoch) == (False, None, [], 1)
    assert (report.scanned_batches, report.scanned_bytes) == (3, sum(map(len, behind)))


def test_the_report_of_a_clean_start_has_nothing_to_say() -> None:
    setup = Setup()
    write_log(setup.log, 30)
    setup.directory.close(NOW)
    _, report = reopen(setup.files.disk)
    assert (report.was_clean, report.truncation, report.damage, report.leader_epoch) == (True, None, [], 0)
    assert (report.scanned_batches, report.scanned_bytes) == (0, 0)


def test_the_report_says_what_was_cut_where_and_why_and_what_it_is_kept_as() -> None:
    setup = Setup(ONE_SEGMENT)
    setup.log.append(batch_of(3), NOW)
    size = setup.log.active.size
    setup.log.append(batch_of(2), NOW)
    disk = setup.killed()
    del disk.file(path_of(0))[-1:]
    torn = bytes(disk.file(path_of(0))[size:])
    log, report = reopen(disk, ONE_SEGMENT)
    assert report.truncation is not None
    cut = report.truncation
    assert (cut.file, cut.position, cut.length, cut.first_offset) == (f"{0:020d}.log", size, len(torn), 3)
    assert "bytes are left" in cut.reason
    assert [bytes(log.files.disk.file(f"{PARTITION}/{name}")) for name in cut.kept_as] == [torn]  # type: ignore[attr-defined]
    assert report.damage == []


def test_the_report_names_damage_that_stays() -> None:
    setup = Setup(ONE_SEGMENT)
    ends = []
    for _ in range(6):
        setup.log.append(batch_of(3), NOW)
        ends.append(setup.log.active.size)
    disk = setup.killed()
    disk.file(path_of(0))[ends[1] + 70] ^= 1
    log, report = reopen(disk, ONE_SEGMENT)
    (damage,) = report.damage
    assert (damage.file, damage.position, damage.length) == (f"{0:020d}.log", ends[1], ends[2] - ends[1])
    assert (damage.first_offset, damage.last_offset) == (6, 8)
    assert log.damage == [damage]
    assert report.truncation is None
    assert log.end_offset == 18


# Leader epochs


@pytest.mark.parametrize(
    ("clean", "least", "expected"),
    [(True, 0, 4), (True, 4, 4), (True, 9, 9), (False, 0, 5), (False, 5, 5), (False, 9, 9)],
)
def test_the_epoch_is_at_least_the_one_asked_for_and_rises_after_a_crash(
    clean: bool, least: int, expected: int
) -> None:
    setup = Setup()
    setup.log.append(batch_of(3), NOW)
    setup.log.raise_leader_epoch(4)
    setup.log.append(batch_of(3), NOW)
    setup.directory.close(NOW)
    files = RecordingFiles(setup.killed())
    log, report = open_log(files, PARTITION, SMALL, clean=clean, recovery_point=6, start_offset=0, leader_epoch=least)
    assert log.leader_epoch == report.leader_epoch == expected
    assert log.epoch_end(0).end_offset == 3
    assert log.epoch_end(4).end_offset == 6
    on_disk = bytes(files.disk.file(f"{PARTITION}/leader-epoch-checkpoint")).split()
    assert int(on_disk[-2]) == expected, "it is on disk before the first append"


def test_a_new_log_begins_with_the_epoch_asked_for() -> None:
    setup = Setup()
    log = setup.directory.create(ORDERS._replace(partition=1), leader_epoch=12)
    log.append(batch_of(1), NOW)
    log.flush()
    assert log.leader_epoch == 12
    assert bytes(setup.files.disk.file(f"{DATA}/orders-1/leader-epoch-checkpoint")) == b"0\n1\n12 0\n"


def test_no_power_cut_makes_the_epoch_go_back_or_stay() -> None:
    """Also where everything that was written in the last epoch is lost: clients have heard of it."""
    setup = Setup(ONE_SEGMENT)
    setup.log.append(batch_of(3), NOW)
    setup.log.flush()
    setup.log.append(batch_of(3), NOW)
    setup.log.raise_leader_epoch(4)
    setup.log.append(batch_of(3), NOW)
    for files in setup.files.power_cuts(len(setup.files.calls), limit=100):
        assert DataDirectory(files, DATA, ONE_SEGMENT).logs[ORDERS].leader_epoch > 4


# What is cut off


def test_a_copy_of_what_was_cut_never_takes_the_place_of_an_earlier_one() -> None:
    setup = Setup(ONE_SEGMENT)
    setup.log.append(batch_of(3), NOW)
    setup.log.flush()
    size = setup.log.active.size
    kept: dict[str, bytes] = {}
    disk = setup.killed()
    for number in range(4):
        disk.file(path_of(0))[size:] = b"torn %d" % number
        log, report = reopen(disk, ONE_SEGMENT)
        assert report.truncation is not None
        assert report.truncation.position == size
        kept[report.truncation.kept_as[0]] = b"torn %d" % number
        disk = log.files.disk  # type: ignore[attr-defined]
    assert len(kept) == 4
    assert {name: bytes(disk.file(f"{PARTITION}/{name}")) for name in kept} == kept


# Producers


def producers_of(disk: Disk) -> tuple[object, ...]:
    log, _ = reopen(disk)
    return dict(log.producers.producers), log.last_stable_offset, log.aborted_transactions(0, log.end_offset)


def test_where_the_newest_snapshot_is_damaged_an_older_one_is_used() -> None:
    setup = Setup()
    write_log(setup.log, 40)
    setup.directory.checkpoint(NOW)
    disk = setup.killed()
    expected = producers_of(disk)
    scanned = [reopen(disk)[1].scanned_batches]
    for path in reversed(snapshots_on(disk)):
        disk.file(path)[-1] ^= 1
        assert producers_of(disk) == expected
        scanned.append(reopen(disk)[1].scanned_batches)
    assert scanned[0] == 0
    assert scanned == sorted(scanned)
    assert scanned[1] < scanned[-1] == len(stored_batches(setup.log)), "in the end all had to be read"


@pytest.mark.parametrize("clean", [True, False])
def test_without_any_snapshot_the_whole_log_is_read_for_its_producers(clean: bool) -> None:
    setup = Setup()
    write_log(setup.log, 40)
    setup.directory.checkpoint(NOW)
    expected, batches = producers_of(setup.killed()), len(stored_batches(setup.log))
    if clean:
        setup.directory.close(NOW)
    disk = setup.killed()
    for path in snapshots_on(disk):
        del disk.names[path]
    assert producers_of(disk) == expected
    assert reopen(disk)[1].scanned_batches == batches


class History:
    """What producers do to a log, always in turn."""

    def __init__(self) -> None:
        self.setup = Setup()
        self.sequences: dict[int, int] = {}
        self.open: set[int] = set()

    def do(self, step: tuple[str, int, int]) -> None:
        kind, producer, count = step
        log = self.setup.log
        if kind in ("send", "transact"):
            sequence = self.sequences.get(producer, 0)
            is_transactional = kind == "transact" or producer in self.open
            records = [Record(number, 1000 + number, b"k", b"v" * 40) for number in range(count)]
            data = encode_batch(
                records,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=is_transactional,
            )
            log.append(data, NOW)
            self.sequences[producer] = sequence + count
            if is_transactional:
                self.open.add(producer)
        elif kind in ("commit", "abort"):
            log.append(encode_marker(Marker[kind.upper()], producer, 0, count, 1000), NOW)
            self.open.discard(producer)
        elif kind == "others":
            log.append(batch_of(count), NOW)
        elif kind == "roll":
            log.roll()
        elif kind == "checkpoint":
            self.setup.directory.checkpoint(NOW)
        elif kind == "restart":
            self.setup.directory.close(NOW)
            self.setup.start()


STEPS = st.tuples(
    st.sampled_from(
        ["send", "send", "transact", "transact", "commit", "abort", "others", "roll", "checkpoint", "restart"]
    ),
    st.integers(1, 4),
    st.integers(1, 3),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, max_size=30), st.booleans())
def test_producers_after_a_restart_are_those_of_a_full_replay_and_those_of_before(
    steps: list[tuple[str, int, int]], clean: bool
) -> None:
    history = History()
    for step in steps:
        history.do(step)
    setup, log = history.setup, history.setup.log
    log.flush()
    before = dict(log.producers.producers), log.last_stable_offset, log.aborted_transactions(0, log.end_offset)
    if clean:
        setup.directory.close(NOW)
    assert producers_of(setup.killed()) == before
    bare = setup.killed()
    for path in [path for path in bare.names if path.startswith(PARTITION) and not path.endswith(".log")]:
        del bare.names[path]
    for path in [path for path in bare.names if not path.startswith(PARTITION) and not path.endswith(FORMAT_FILE)]:
        del bare.names[path]
    assert producers_of(bare) == before, "as from the log files alone"


def test_aborted_transactions_are_known_after_two_crashes_with_a_torn_tail() -> None:
    """The first recovery cuts the tail; the second finds a segment without anything beside it."""
    setup = Setup(ONE_SEGMENT)
    transaction(setup.log, 5, Marker.ABORT)
    setup.directory.checkpoint(NOW)
    setup.log.append(batch_of(3), NOW)
    disk = setup.killed()
    del disk.file(path_of(0))[-5:]
    for _ in range(3):
        log, _ = reopen(disk, ONE_SEGMENT)
        assert log.aborted_transactions(0, 2) == [AbortedTransaction(5, 0, 1, 2)]
        disk = log.files.disk  # type: ignore[attr-defined]


def test_no_power_cut_after_a_checkpoint_loses_an_aborted_transaction() -> None:
    setup = Setup(ONE_SEGMENT)
    transaction(setup.log, 5, Marker.ABORT)
    setup.directory.checkpoint(NOW)
    transaction(setup.log, 6, Marker.ABORT)
    setup.log.flush()
    for files in setup.files.power_cuts(len(setup.files.calls), limit=60):
        log = DataDirectory(files, DATA, ONE_SEGMENT).logs[ORDERS]
        expected = [AbortedTransaction(5, 0, 1, 2), AbortedTransaction(6, 2, 3, 4)]
        assert log.aborted_transactions(0, 4) == expected


# Sums


def fill_megabytes(log: Log, batches: int) -> None:
    for number in range(batches):
        log.append(batch_of(2, size=90_000 + number), NOW)


def check_checksums(setup: Setup) -> None:
    """Every sealed segment has sums that speak of all of it, chunk by chunk, and nothing is wrong with the log."""
    disk = setup.files.disk
    assert setup.log.segments[:-1]
    for segment in setup.log.segments[:-1]:
        checksums = SegmentChecksums.decode(bytes(disk.file(path_of(segment.base_offset, ".sums"))))
        assert checksums is not None
        data = disk.file(path_of(segment.base_offset))
        assert (checksums.log_size, checksums.gaps) == (len(data), Gaps.NONE)
        assert len(checksums.chunks) == -(-len(data) // CHUNK_BYTES)
        for number in range(len(checksums.chunks)):
            low, high = checksums.chunk_bounds(number)
            assert checksums.chunk_is_intact(number, data[low:high])
    found = verify(setup.files, locate(setup.files, DATA))
    assert found.healthy
    assert (found.derived, found.tail) == ([], [])


@pytest.mark.parametrize("stop", ["kill", "kill after a checkpoint", "clean", "clean twice", "torn", "two kills"])
def test_a_segment_that_goes_on_after_a_restart_and_is_sealed_has_right_sums(stop: str) -> None:
    setup = Setup(LogConfig())
    fill_megabytes(setup.log, 8)
    if stop == "kill after a checkpoint":
        setup.directory.checkpoint(NOW)
        fill_megabytes(setup.log, 3)
    setup.log.flush()
    if stop.startswith("clean"):
        setup.directory.close(NOW)
    if stop == "torn":
        del setup.files.disk.file(path_of(0))[-1000:]
    setup.start()
    fill_megabytes(setup.log, 4)
    if stop == "clean twice":
        setup.directory.close(NOW)
        setup.start()
        fill_megabytes(setup.log, 3)
    if stop == "two kills":
        setup.log.flush()
        setup.start()
        fill_megabytes(setup.log, 3)
    setup.log.roll()
    setup.log.append(batch_of(1), NOW)
    setup.directory.checkpoint(NOW)
    assert setup.log.segments[0].size > CHUNK_BYTES
    check_checksums(setup)


def test_segments_sealed_before_a_crash_and_not_checkpointed_get_their_sums_after_it() -> None:
    setup = Setup(LogConfig(segment_bytes=1_500_000))
    fill_megabytes(setup.log, 20)
    setup.log.flush()
    assert len(setup.log.segments) > 2
    assert not any(path.endswith(".sums") for path in setup.files.disk.names)
    setup.start()
    setup.directory.checkpoint(NOW)
    check_checksums(setup)


def test_a_segment_that_was_truncated_and_goes_on_is_as_sound_as_any() -> None:
    setup = Setup(LogConfig())
    fill_megabytes(setup.log, 8)
    setup.directory.checkpoint(NOW)
    setup.directory.truncate(ORDERS, 10)
    fill_megabytes(setup.log, 4)
    setup.log.roll()
    setup.log.append(batch_of(1), NOW)
    setup.directory.checkpoint(NOW)
    check_checksums(setup)


@pytest.mark.parametrize("lost", [False, True], ids=["whole", "cut between segments"])
def test_a_recovered_log_is_saved_once_and_then_has_nothing_to_save(lost: bool) -> None:
    files = memory_files()
    log = DataDirectory(files, DATA, SMALL).create(ORDERS)
    write_log(log, 30)
    log.flush()
    disk = files.disk.copy()
    if lost:
        del disk.names[f"{PARTITION}/{log.segments[-2].base_offset:020d}.log"]
    directory = DataDirectory(RecordingFiles(disk), DATA, SMALL)
    recovered = directory.logs[ORDERS]
    assert recovered.is_saved
    calls = len(directory.files.calls)  # type: ignore[attr-defined]
    recovered.close(NOW)
    assert len(directory.files.calls) == calls, "nothing is written again"  # type: ignore[attr-defined]


def test_offsets_of_a_last_segment_lost_after_a_clean_stop_are_not_reused() -> None:
    files = memory_files()
    directory = DataDirectory(files, DATA, SMALL)
    write_log(directory.create(ORDERS), 30)
    end = directory.logs[ORDERS].end_offset
    directory.close(5000)
    disk = files.disk
    del disk.names[max(name for name in disk.names if name.endswith(".log"))]
    del disk.names[f"{PARTITION}/{end:020d}.snapshot"]  # what is left looks like a log that was stopped cleanly
    log, report = reopen(disk)
    assert log.end_offset == end
    assert [bad.last_offset for bad in report.damage] == [end - 1]

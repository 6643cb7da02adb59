"""Shifted bytes in a sealed segment: every offset is served as it was stored, or named as damaged, by all who look."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import (
    DATA,
    ORDERS,
    PARTITION,
    SMALL,
    batch_of,
    memory_files,
    offsets_named,
    offsets_of,
    reopen,
    stored_batches,
    write_log,
)
from shifted import (
    Shift,
    Stored,
    batches_in,
    check_reads,
    check_times,
    doubled,
    inserted,
    read_log,
    removed,
    swapped,
    ways_to_shift,
    without_batch,
)

from tailrace.log.directory.directory import DataDirectory
from tailrace.log.files.checksums import CHUNK_BYTES, ChunkChecksums, Gaps
from tailrace.log.files.index import TransactionIndex
from tailrace.log.layout.config import LogConfig
from tailrace.log.log import Log
from tailrace.log.scrub import ScrubChunk, ScrubJob
from tailrace.log.segment.derived import DerivedFiles
from tailrace.log.tools.compaction_history import METADATA
from tailrace.log.tools.locate import locate
from tailrace.log.tools.repair import make_plan
from tailrace.log.tools.repair_steps import carry_out
from tailrace.log.tools.verify import Verification, verify
from tailrace.records.batch import read_header, split
from tailrace.records.record import Record, encode_batch
from tailrace.testing.recording_files import Disk, RecordingFiles

LARGE = LogConfig(segment_bytes=3 << 20)


def stopped(batches: int = 30, config: LogConfig = SMALL, write: Callable[[Log, int], None] = write_log) -> Disk:
    """A log of several segments after a clean stop, and a metadata log that names its topic."""
    files = memory_files()
    directory = DataDirectory(files, DATA, config)
    write(directory.create(ORDERS), batches)
    directory.create(METADATA).append(encode_batch([Record(0, 1000, b"", b"topic orders")]), 1000)
    directory.close(5000)
    return files.disk


def logs_of(disk: Disk) -> list[str]:
    return sorted(name for name in disk.names if name.startswith(PARTITION) and name.endswith(".log"))


def stored_in(disk: Disk) -> Stored:
    return Stored.of([bytes(disk.file(path)) for path in logs_of(disk)])


def with_shift(sound: Disk, path: str, shift: Shift, lost: str = "") -> Disk:
    disk = sound.copy()
    disk.file(path)[:] = shift.content
    if lost:
        del disk.names[path.removesuffix(".log") + lost]
    return disk


def opened(disk: Disk, config: LogConfig = SMALL) -> Log:
    """As a broker opens it that knows that the topic was never compacted."""
    log, _ = reopen(disk, config)
    for segment in log.segments[:-1]:
        segment.rule_out_gaps()
    return log


def verified(disk: Disk) -> Verification:
    files = RecordingFiles(disk)
    return verify(files, locate(files, DATA))


def scrub(disk: Disk) -> tuple[list[str], set[int]]:
    """What the scrubber says of a log that has not been read, and the offsets that it names."""
    log = opened(disk)
    pieces = [
        ScrubChunk(ORDERS, log, segment, start)
        for segment in log.segments[:-1]
        for start in range(0, segment.size, CHUNK_BYTES)
    ]
    job = ScrubJob(RecordingFiles(disk), pieces)
    job.run()
    return job.damage, offsets_named(log.damage)


def check(sound: Disk, path: str, shift: Shift, lost: str, max_bytes: int) -> None:
    stored = stored_in(sound)
    disk = with_shift(sound, path, shift, lost)
    log = opened(disk)
    named = check_reads(stored, read_log(log, max_bytes))
    check_times(stored, log)
    assert named <= stored.offsets_of(shift.touched), "what can be trusted is served"
    found = verified(disk)
    assert found.damage
    assert offsets_named(found.damage) == named
    lines, scrubbed = scrub(disk)
    assert lines
    assert scrubbed == named


SOUND = stopped()
SEGMENTS = logs_of(SOUND)
ONE_OF_EACH = [
    (f"{number}: {name}", SEGMENTS[number], shift)
    for number in (0, 1, len(SEGMENTS) - 2)
    for name, shift in ways_to_shift(bytes(SOUND.file(SEGMENTS[number])))
]
FIRST = bytes(SOUND.file(SEGMENTS[0]))
COINCIDENCES = [
    ("the index entry of a moved batch leads into the damage behind it", SEGMENTS[0], swapped(FIRST, 5, 7)),
    ("a shifted batch begins where the log ended", SEGMENTS[0], doubled(FIRST, 5, 7)),
]


@pytest.mark.parametrize("lost", ["", ".index", ".timeindex", ".sums"])
def test_every_offset_of_a_shifted_segment_is_served_or_named(lost: str) -> None:
    for name, path, shift in [*COINCIDENCES, *ONE_OF_EACH]:
        try:
            check(SOUND, path, shift, lost, 700)
        except Exception as error:
            error.add_note(f"{name}, {path} without {lost or 'nothing'}")
            raise


def test_the_scrubber_reports_a_segment_that_was_shifted_under_a_running_broker() -> None:
    stored = stored_in(SOUND)
    for name, path, shift in [*COINCIDENCES, *ONE_OF_EACH[::5]]:
        if len(shift.content) > len(SOUND.file(path)) and not shift.touched:
            continue  # bytes behind the end that the broker knows: the next start sees them
        disk = SOUND.copy()
        files = RecordingFiles(disk)
        log = DataDirectory(files, DATA, SMALL).logs[ORDERS]
        assert not check_reads(stored, read_log(log, 700))
        disk.file(path)[:] = shift.content
        job = ScrubJob(files, [ScrubChunk(ORDERS, log, segment, 0) for segment in log.segments[:-1]])
        job.run()
        assert job.damage, name
        assert check_reads(stored, read_log(log, 700)), name


@pytest.mark.parametrize("lost", ["", ".sums"])
def test_a_repair_of_a_shifted_segment_keeps_all_that_was_served_before(lost: str) -> None:
    stored = stored_in(SOUND)
    for name, path, shift in [*COINCIDENCES, *ONE_OF_EACH[::3]]:
        disk = with_shift(SOUND, path, shift, lost)
        named = check_reads(stored, read_log(opened(disk), 700))
        files = RecordingFiles(disk)
        carry_out(files, make_plan(files, locate(files, DATA)), DATA, "2026-11-16T10:00:00+00:00")
        found = verified(disk)
        assert found.healthy, name
        assert not found.derived, name
        recorded = [gap for _, gap in found.gaps]
        assert {offset for gap in recorded for offset in range(gap.first_offset, gap.last_offset + 1)} == named, name
        kept = {base: data for base, data in stored_batches(reopen(disk)[0]).items() if read_header(data).record_count}
        assert offsets_of(kept) == set(stored.batches) - named, name
        assert all(stored.batches[base] == data for base, data in kept.items()), name


@st.composite
def shifts(draw: st.DrawFn, content: bytes) -> Shift:
    count = len(batches_in(content))
    number = draw(st.integers(0, count - 1))
    other = draw(st.integers(0, count - 1).filter(lambda other: other != number))
    where, size = draw(st.sampled_from(["boundary", "header", "body"])), draw(st.integers(1, 300))
    ways: list[Callable[[], Shift]] = [
        lambda: inserted(content, number, where, size, draw(st.integers(0, 5))),
        lambda: removed(content, number, where, size),
        lambda: doubled(content, number, other),
        lambda: swapped(content, number, other),
        lambda: without_batch(content, number),
    ]
    return draw(st.sampled_from(ways))()


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from([1, 300, 700, 1 << 20]), st.sampled_from(["", ".index", ".timeindex", ".sums"]))
def test_a_segment_shifted_in_any_way_is_served_or_named(data: st.DataObject, max_bytes: int, lost: str) -> None:
    path = data.draw(st.sampled_from(SEGMENTS[:-1]))
    shift = data.draw(shifts(bytes(SOUND.file(path))))
    stored = stored_in(SOUND)
    disk = with_shift(SOUND, path, shift, lost)
    log = opened(disk)
    named = check_reads(stored, read_log(log, max_bytes))
    check_times(stored, log)
    assert offsets_named(verified(disk).damage) == named


def write_large(log: Log, batches: int) -> None:
    for number in range(batches):
        log.append(batch_of(1 + number % 3, time=1000 + number, size=7_000 + 900 * (number % 7)), 1000)


@pytest.fixture(scope="module")
def large() -> Disk:
    return stopped(500, LARGE, write_large)


@pytest.mark.parametrize("chunk", [0, 1, 2])
@pytest.mark.parametrize("kind", ["inserted", "removed", "doubled", "swapped", "gone"])
def test_a_shift_reaches_over_many_mebibytes_in_whichever_order_they_are_read(
    large: Disk, chunk: int, kind: str
) -> None:
    path = logs_of(large)[0]
    content, stored = bytes(large.file(path)), stored_in(large)
    assert len(content) > 2 * CHUNK_BYTES
    number = next(n for n, (position, _) in enumerate(split(content)) if position > chunk * CHUNK_BYTES + 500_000)
    shift = {
        "inserted": lambda: inserted(content, number, "body", 17, 1),
        "removed": lambda: removed(content, number, "body", 17),
        "doubled": lambda: doubled(content, number, number),
        "swapped": lambda: swapped(content, number, number + 3),
        "gone": lambda: without_batch(content, number),
    }[kind]()
    disk = with_shift(large, path, shift)
    log = opened(disk, LARGE)
    backwards = Stored(dict(reversed(stored.batches.items())), stored.times)
    named = check_reads(backwards, read_log(log, 100_000))
    assert named <= stored.offsets_of(shift.touched)
    assert offsets_named(verified(disk).damage) == named


def test_a_gap_that_compaction_left_is_passed_over_in_a_shifted_segment() -> None:
    compacted = SOUND.copy()
    path = SEGMENTS[1]
    batches = batches_in(bytes(compacted.file(path)))
    compacted.file(path)[:] = b"".join([batches[0], *batches[3:]])
    save_derived(compacted, path, Gaps.COMPACTED)
    content = bytes(compacted.file(path))
    assert verified(compacted).healthy
    for name, shift in ways_to_shift(content):
        if "gone" in name or "swapped" in name or "removed" in name:
            continue  # what these lose may look like another gap
        disk = with_shift(compacted, path, shift)
        log, _ = reopen(disk)
        read, stored = read_log(log, 700), stored_in(compacted)
        offset, served, named = 0, set[int](), set[int]()
        while offset < log.high_watermark:
            answer = read(offset)
            if isinstance(answer, bytes):
                for position, header in split(answer):
                    assert answer[position : position + header.size] == stored.batches[header.base_offset], name
                    served |= set(range(header.base_offset, header.next_offset))
                    offset = header.next_offset
            else:
                named |= set(range(answer[0], answer[1] + 1))
                offset = answer[1] + 1
        assert set(stored.batches) <= named | served, name
        assert offsets_named(verified(disk).damage) == named, name
        assert served >= set(stored.batches) - stored.offsets_of(shift.touched), name


def save_derived(disk: Disk, path: str, gaps: Gaps) -> None:
    """Writes the files beside a segment anew, as compaction leaves them."""
    files = RecordingFiles(disk)
    log = files.open(path)
    stem, size = path.removesuffix(".log"), len(disk.file(path))
    derived_files = DerivedFiles(files, stem, log, int(path[-24:-4]), SMALL.index_interval_bytes)
    derived, chunks = derived_files.rebuild(size, gaps), ChunkChecksums()
    derived.seal()
    chunks.read_up_to(log, size)
    transactions = TransactionIndex()
    derived_files.save(derived, transactions, derived.summarise(size, chunks.checksums, transactions), sync=True)
    log.close()


def test_the_coincidences_are_such() -> None:
    (_, _, moved), (_, _, shifted) = COINCIDENCES
    index = opened(SOUND.copy()).segments[0].derived().index
    places = {header.last_offset: (position, header.size) for position, header in split(moved.content)}
    entry = index.at_or_before(12)
    assert entry is not None
    assert places[entry.last_offset][0] < entry.position < sum(places[11])
    assert len(FIRST) in {position for position, _ in split(shifted.content)}


def test_swapped_batches_in_the_last_segment_are_named_while_it_is_appended_to() -> None:
    config = LogConfig(index_interval_bytes=300)
    sound = stopped(40, config)
    (path,) = logs_of(sound)
    stored = stored_in(sound)
    disk = with_shift(sound, path, swapped(bytes(sound.file(path)), 4, 30))
    log, _ = reopen(disk, config)
    end = log.end_offset
    named = check_reads(stored, read_log(log, 700))
    assert named
    log.append(batch_of(2, time=9000), 9000)
    log.flush()
    assert log.read(end, 700) is not None


def test_verify_finds_a_lost_batch_although_the_checksum_file_is_lost_too() -> None:
    shift = without_batch(bytes(SOUND.file(SEGMENTS[1])), 2)
    disk = with_shift(SOUND, SEGMENTS[1], shift, ".sums")
    (damage,) = verified(disk).damage
    assert offsets_named([damage]) == stored_in(SOUND).offsets_of(shift.touched)
    partition = RecordingFiles(disk)
    assert verify(partition, locate(partition, PARTITION)).damage, "also where one partition is asked about"


def set_metadata(disk: Disk, *values: bytes) -> None:
    """The metadata log has these records, and no files beside it."""
    for name in [name for name in disk.names if name.startswith(f"{DATA}/{METADATA}/") and not name.endswith(".log")]:
        del disk.names[name]
    (path,) = [name for name in disk.names if name.startswith(f"{DATA}/{METADATA}/")]
    disk.file(path)[:] = encode_batch([Record(n, 1000, b"", value) for n, value in enumerate(values)])


def lose_cleaner_checkpoint(disk: Disk) -> None:
    del disk.names[f"{DATA}/cleaner-offset-checkpoint"]


@pytest.mark.parametrize(
    "unproven",
    [
        lambda disk: disk.file(f"{DATA}/tailrace.format").__setitem__(slice(None), b"1\n"),
        lambda disk: disk.file(f"{DATA}/cleaner-offset-checkpoint").__setitem__(slice(None), b"0\n1\norders 0 9\n"),
        lambda disk: disk.file(f"{DATA}/cleaner-offset-checkpoint").__setitem__(slice(None), b"garbage"),
        lose_cleaner_checkpoint,
        lambda disk: set_metadata(
            disk, b"topic orders", b"orders cleanup.policy compact", b"orders cleanup.policy delete"
        ),
        lambda disk: set_metadata(disk, b"topic orders", b"log.cleanup.policy compact,delete"),
        lambda disk: set_metadata(disk, b"topic payments"),
        lambda disk: disk.file(f"{DATA}/{METADATA}/{0:020d}.log").__setitem__(70, 255),
    ],
    ids=["format", "cleaned", "garbage", "no checkpoint", "compact", "default", "unknown topic", "metadata damaged"],
)
def test_a_gap_that_compaction_may_have_left_is_a_note(unproven: Callable[[Disk], None]) -> None:
    disk = with_shift(SOUND, SEGMENTS[1], without_batch(bytes(SOUND.file(SEGMENTS[1])), 2), ".sums")
    unproven(disk)
    found = verified(disk)
    assert not [damage for damage in found.damage if damage.file.startswith(str(ORDERS))]
    assert any("offsets are missing in segments without a checksum file" in note for note in found.notes)
